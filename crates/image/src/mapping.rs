//! Where the sources of a program are now.
//!
//! Compilers record where sources were when they ran; packages are built in folders that are gone, and projects move. A
//! source map says what stands for the beginning of such a path today. Without one, a file is still found beside the
//! program or above it, by the end of its path.
//! Guarantee: a path that exists as recorded is only changed by what the user says.
//! May miss: two different files of one name below the program's folder; the one with the longest common end is taken.

use std::path::{Component, Path, PathBuf};

/// How many folders above the program are searched for sources.
const MAX_ABOVE: usize = 4;

/// What stands for the beginnings of recorded paths, the first that fits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceMap {
    /// Each as (recorded beginning, beginning now); whole folders, not letters, are compared.
    pub rules: Vec<(PathBuf, PathBuf)>,
}

impl SourceMap {
    /// Reads `FROM=TO`, as a command line has it. `None` without a `=` or when `FROM` is empty.
    pub fn rule(text: &str) -> Option<(PathBuf, PathBuf)> {
        let (from, to) = text.split_once('=')?;
        (!from.is_empty()).then(|| (from.into(), to.into()))
    }

    /// `path` as the first rule that fits moves it.
    pub fn moved(&self, path: &Path) -> Option<PathBuf> {
        self.rules.iter().find_map(|(from, to)| {
            let rest = path.strip_prefix(from).ok()?;
            Some(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) })
        })
    }

    /// The file that `recorded` is now: as the map says, as it was recorded, or near `program` (which may be unknown).
    /// `None` when there is no such file.
    pub fn find(&self, recorded: &Path, program: Option<&Path>) -> Option<PathBuf> {
        let is_file = |path: &PathBuf| path.is_file();
        if let Some(moved) = self.moved(recorded).filter(is_file) {
            return Some(moved);
        }
        if recorded.is_absolute() && recorded.is_file() {
            return Some(recorded.to_path_buf());
        }
        let parts: Vec<Component<'_>> =
            recorded.components().filter(|c| matches!(c, Component::Normal(_) | Component::ParentDir)).collect();
        let folders = program?.parent()?.ancestors().take(MAX_ABOVE);
        // The longer the common end, the surer; of equal ones the nearest to the program.
        let ends = (0..parts.len()).map(|skip| parts[skip..].iter().collect::<PathBuf>());
        let ends = ends.filter(|end| !matches!(end.components().next(), Some(Component::ParentDir)));
        let folders: Vec<&Path> = folders.collect();
        ends.flat_map(|end| folders.iter().map(move |folder| folder.join(&end)).collect::<Vec<_>>()).find(is_file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_moved(rules: &[&str], path: &str, expected: Option<&str>) {
        let map = SourceMap { rules: rules.iter().filter_map(|r| SourceMap::rule(r)).collect() };
        assert_eq!(map.moved(Path::new(path)), expected.map(PathBuf::from), "{path} with {rules:?}");
    }

    #[test]
    fn the_first_rule_that_fits_moves_a_path() {
        check_moved(&["/build=/src"], "/build/a/b.c", Some("/src/a/b.c"));
        check_moved(&["/build/=/src/"], "/build/a/b.c", Some("/src/a/b.c"));
        check_moved(&["/build=/src"], "/builder/b.c", None);
        check_moved(&["/build/a=/x", "/build=/y"], "/build/a/b.c", Some("/x/b.c"));
        check_moved(&["/build/a=/x", "/build=/y"], "/build/c/b.c", Some("/y/c/b.c"));
        check_moved(&["/build/b.c=/x/c.c"], "/build/b.c", Some("/x/c.c"));
        check_moved(&["src=/new"], "src/b.c", Some("/new/b.c"));
        check_moved(&[], "/a.c", None);
    }

    #[test]
    fn a_rule_needs_an_equals_sign() {
        assert_eq!(SourceMap::rule("/a=/b"), Some(("/a".into(), "/b".into())));
        assert_eq!(SourceMap::rule("/a="), Some(("/a".into(), "".into())));
        assert_eq!(SourceMap::rule("/a"), None);
        assert_eq!(SourceMap::rule("=/b"), None);
    }
}
