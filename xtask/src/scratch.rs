//! Temporary directories that go away by themselves, and the workspace's own places.
//!
//! Guarantees: a `Scratch` is new, readable by every user (confined runs need that) and removed when dropped, unless
//! it is asked to stay.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A temporary directory.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    pub fn new(purpose: &str) -> io::Result<Scratch> {
        let folder = env::temp_dir().canonicalize()?;
        let path = loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("clew-{purpose}-{}-{n}", std::process::id()));
            match fs::create_dir(&path) {
                // Left behind by a process with the same number that was killed: in a container numbers come again soon.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => break other.map(|()| path)?,
            }
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(Scratch { path, keep: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the directory behind, for a person to look at.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            remove_tree(&self.path);
        }
    }
}

/// Removes a directory even if a program took away its own permissions on a part of it.
pub fn remove_tree(path: &Path) {
    if fs::remove_dir_all(path).is_ok() || !path.exists() {
        return;
    }
    open_up(path);
    let _ = fs::remove_dir_all(path);
}

fn open_up(dir: &Path) {
    let _ = fs::set_permissions(dir, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// Where cargo puts what it builds; ours lies beside it.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
