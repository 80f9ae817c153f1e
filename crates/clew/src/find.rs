//! Finds a program as `execvp` does, before anything is started, so that mistakes are told at once.
//!
//! A name with a slash is a path; any other is looked for in the folders of PATH in turn. A file that is there but may not
//! be executed does not end the search, but is what the answer is about when nothing better is found.
//! What the file holds is not looked at here: that is the engine's matter.

use crate::status;
use rustix::fs::{Access, AtFlags, CWD, FileType};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where the C library looks when there is no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Why a program cannot be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotRunnable {
    pub status: i32,
    pub message: String,
}

/// Do both names lead to one file, by whatever links?
pub fn is_same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().map(|m| (m.dev(), m.ino()));
    matches!((identity(one), identity(other)), (Ok(a), Ok(b)) if a == b)
}

/// The file to run for a name as a user writes it.
pub fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, NotRunnable> {
    if name.is_empty() {
        return Err(not_found("cannot run \"\": the name of the program is empty".into()));
    }
    if name.as_bytes().contains(&b'/') {
        return check(Path::new(name)).map(|()| name.into()).map_err(|why| explain(name, &why));
    }
    let folders = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let mut refused = None;
    for folder in folders.as_bytes().split(|&b| b == b':') {
        let file = join(folder, name);
        match check(&file) {
            Ok(()) => return Ok(file),
            Err(Why::Missing | Why::Error(Errno::NOTDIR | Errno::STALE | Errno::NODEV | Errno::TIMEDOUT)) => {}
            Err(why) => drop(refused.get_or_insert((file, why))),
        }
    }
    Err(match refused {
        Some((file, why)) => explain(file.as_os_str(), &why),
        None => not_found(format!(
            "cannot run {}: there is no such program in PATH; check the name, or give a path such as ./{}",
            quote(name),
            Path::new(name).display(),
        )),
    })
}

enum Why {
    Missing,
    Folder,
    Special,
    NotAllowed,
    Error(Errno),
}

/// May this file be executed, as far as can be told without reading it?
fn check(file: &Path) -> Result<(), Why> {
    let kind = match rustix::fs::stat(file) {
        Ok(stat) => FileType::from_raw_mode(stat.st_mode),
        Err(Errno::NOENT) => return Err(Why::Missing),
        Err(e) => return Err(Why::Error(e)),
    };
    match kind {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Why::Folder),
        _ => return Err(Why::Special),
    }
    // EACCESS asks for the identity that execve uses; kernels without it get the real one, which seldom differs.
    let allowed = match rustix::fs::accessat(CWD, file, Access::EXEC_OK, AtFlags::EACCESS) {
        Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => rustix::fs::access(file, Access::EXEC_OK),
        other => other,
    };
    match allowed {
        Ok(()) => Ok(()),
        Err(Errno::ACCESS) => Err(Why::NotAllowed),
        Err(e) => Err(Why::Error(e)),
    }
}

fn explain(name: &OsStr, why: &Why) -> NotRunnable {
    let shown = quote(name);
    let not_runnable = |message| NotRunnable { status: status::NOT_RUNNABLE, message };
    match why {
        Why::Missing => not_found(format!("cannot run {shown}: there is no such file; check the path")),
        Why::Folder => not_runnable(format!("cannot run {shown}: it is a folder; give the program in it")),
        Why::Special => not_runnable(format!("cannot run {shown}: it is not a regular file")),
        Why::NotAllowed => not_runnable(format!(
            "cannot run {shown}: it may not be executed; make it executable with chmod +x if it is a program"
        )),
        Why::Error(e) => not_runnable(format!("cannot run {shown}: {}; check the path", std::io::Error::from(*e))),
    }
}

fn not_found(message: String) -> NotRunnable {
    NotRunnable { status: status::NOT_FOUND, message }
}

/// An empty folder in PATH is the current one.
fn join(folder: &[u8], name: &OsStr) -> PathBuf {
    let mut file = folder.to_vec();
    if !file.is_empty() && !file.ends_with(b"/") {
        file.push(b'/');
    }
    file.extend_from_slice(name.as_bytes());
    OsString::from_vec(file).into()
}

/// A name in messages: quoted, with what is not text made visible.
pub fn quote(name: &OsStr) -> String {
    format!("{name:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A fresh folder with `good` (executable), `plain` (not executable) and a folder `subfolder` in it.
    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("clew-find-{test}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("subfolder")).unwrap();
        for (name, mode) in [("good", 0o755), ("plain", 0o644)] {
            std::fs::write(folder.join(name), "").unwrap();
            std::fs::set_permissions(folder.join(name), PermissionsExt::from_mode(mode)).unwrap();
        }
        folder
    }

    #[track_caller]
    fn check_refused(name: &str, path: Option<&str>, status: i32, part: &str) {
        let error = find(OsStr::new(name), path.map(OsStr::new)).unwrap_err();
        assert_eq!(error.status, status, "{}", error.message);
        assert!(error.message.contains(part), "{}", error.message);
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        let here = folder("path");
        let show = |name: &str| here.join(name).display().to_string();
        assert_eq!(find(here.join("good").as_os_str(), None).unwrap(), here.join("good"));
        check_refused(&show("nothing"), None, 127, "no such file");
        check_refused(&show("plain"), None, 126, "may not be executed");
        check_refused(&show("subfolder"), None, 126, "it is a folder");
        check_refused(&show("plain/x"), None, 126, "Not a directory");
        check_refused("/dev/null", None, 126, "not a regular file");
        check_refused(&format!("/{}", "x".repeat(300)), None, 126, "too long");
        std::fs::remove_dir_all(here).unwrap();
    }

    #[test]
    fn folders_of_path_are_searched_in_turn() {
        let here = folder("search");
        let path = format!("/does/not/exist:{}/plain:{}:/bin", here.display(), here.display());
        assert_eq!(find(OsStr::new("good"), Some(OsStr::new(&path))).unwrap(), here.join("good"));
        check_refused("plain", Some(&path), 126, "may not be executed");
        check_refused("subfolder", Some(&path), 126, "it is a folder");
        check_refused("nothing-of-this-name", Some(&path), 127, "no such program in PATH");
        check_refused("", Some(&path), 127, "empty");
        std::fs::remove_dir_all(here).unwrap();
    }

    #[test]
    fn without_path_the_usual_folders_are_searched() {
        assert_eq!(find(OsStr::new("sh"), None).unwrap(), Path::new("/bin/sh"));
        check_refused("sh", Some("/proc"), 127, "no such program");
    }

    #[test]
    fn an_empty_part_of_path_is_the_current_folder() {
        assert_eq!(join(b"", OsStr::new("x")), Path::new("x"));
        assert_eq!(join(b"/a", OsStr::new("x")), Path::new("/a/x"));
        assert_eq!(join(b"/a/", OsStr::new("x")), Path::new("/a/x"));
    }
}
