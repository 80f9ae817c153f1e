//! Rules of the workspace that no compiler checks, as tests of the tree.
//!
//! Each rule looks at every file and gives one line per breach, `file:line: what`. Guarantees: every text file of the
//! repository is looked at, tracked or not, except what is ignored. May miss: rules are textual where that is enough, so
//! a breach hidden behind a macro is not found.

mod docs;
mod layers;
mod sources;

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use crate::{scratch::root, tally::Tally};

/// Folders that hold nothing of ours.
const IGNORED: &[&str] = &[".git", "target", "corpus", "artifacts"];

/// A file of the repository, with its text if it is text.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path from the root, with `/`.
    pub path: String,
    pub text: String,
}

/// Breaches of one rule.
type Breaches = Vec<String>;

/// Checks every rule.
pub fn tidy() -> Result<Tally, String> {
    let mut tally = Tally::new("tidy");
    let files = read_tree(&root())?;
    let rules: [(&str, Breaches); 14] = [
        ("every Rust file starts with a header", sources::headers(&files)),
        ("no file is longer than 800 lines", sources::lengths(&files)),
        ("no unfinished code", sources::unfinished(&files)),
        ("no test is switched off", sources::ignored_tests(&files)),
        ("lints are switched off only with a reason", sources::bare_allows(&files)),
        ("unsafe code only where it belongs", sources::unsafe_places(&files)),
        ("every unsafe block says why it is sound", sources::unsafe_reasons(&files)),
        ("only the command line prints, reads the environment or exits", sources::side_effects(&files)),
        ("crates depend only on what they may", layers::edges()?),
        ("the engine has no other dependencies", layers::engine_dependencies()?),
        ("file names differ ignoring case", unique_names(&files)),
        ("links in documents lead somewhere", docs::links(&files)),
        ("what runs automatically is what the README says", docs::set_up(&files)),
        ("no machine or host is named", docs::places(&files)),
    ];
    for (rule, breaches) in rules {
        let result = if breaches.is_empty() { Ok(()) } else { Err(format!("\n    {}", breaches.join("\n    "))) };
        tally.count(rule, result);
    }
    Ok(tally)
}

/// Every file below `top` that is not ignored; files that are not text have empty text.
fn read_tree(top: &Path) -> Result<Vec<SourceFile>, String> {
    let mut files = Vec::new();
    let mut pending: Vec<PathBuf> = vec![top.to_owned()];
    while let Some(dir) = pending.pop() {
        let entries = fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        for entry in entries.flatten() {
            let name = entry.file_name();
            let path = entry.path();
            let kind = entry.file_type().map_err(|e| format!("{}: {e}", path.display()))?;
            if kind.is_dir() {
                if !IGNORED.iter().any(|ignored| name == *ignored) {
                    pending.push(path);
                }
            } else if kind.is_file() {
                let relative = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
                let text = fs::read(&path).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
                files.push(SourceFile { path: relative, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn unique_names(files: &[SourceFile]) -> Breaches {
    let mut seen: HashMap<String, &str> = HashMap::new();
    files
        .iter()
        .filter_map(|file| {
            let other = seen.insert(file.path.to_lowercase(), &file.path)?;
            Some(format!("{}: the same as {other} on a file system that ignores case", file.path))
        })
        .collect()
}

#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_only_in_case_are_found() {
        let files = [file("docs/A.md", ""), file("docs/a.md", "")];
        assert_eq!(unique_names(&files), ["docs/a.md: the same as docs/A.md on a file system that ignores case"]);
    }
}
