//! Private folders for as long as somebody uses them.
//!
//! A folder is locked while it is used. Whoever makes one removes those first that nobody has locked: a Clew that was killed
//! could not do so itself. A reader that goes away (`clew replay R | head -1`) does not kill whoever has a folder.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use std::fs::File;

/// How the names of all of them begin.
const NAME: &str = "clew-scratch-";

/// A private folder that goes with this value.
pub struct Scratch {
    path: PathBuf,
    /// Open, with the lock.
    _locked: File,
}

impl Scratch {
    /// Somebody else may guess the name, so one that exists is never used.
    pub fn new() -> Result<Scratch, String> {
        let place = std::env::temp_dir();
        sweep(&place);
        // With a handler, a write to a pipe that nobody reads fails, which is told; without, it kills.
        let _ = signal_hook::flag::register(signal_hook::consts::SIGPIPE, Arc::default());
        for n in 0..1000 {
            let path = place.join(format!("{NAME}{}-{n}", std::process::id()));
            let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
            let is_made = made.is_ok();
            match made.and_then(|()| File::open(&path)) {
                // Somebody who swept may have been faster than the lock.
                Ok(folder) if is_locked(&folder) && path.is_dir() => return Ok(Scratch { path, _locked: folder }),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                // Or even faster than that.
                Err(e) if is_made && e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    let place = path.display();
                    return Err(format!("cannot make the folder {place}: {e}; TMPDIR can name another place"));
                }
            }
        }
        Err(format!("{} is full of folders of other Clews; remove {NAME}*", place.display()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only copies are in it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Is it locked by us now, and by nobody else before?
fn is_locked(folder: &File) -> bool {
    flock(folder, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Removes our folders that nobody uses any more.
fn sweep(place: &Path) {
    let Ok(entries) = std::fs::read_dir(place) else { return };
    let me = rustix::process::getuid().as_raw();
    for entry in entries.flatten().filter(|e| e.file_name().to_string_lossy().starts_with(NAME)) {
        let is_ours = entry.metadata().is_ok_and(|m| m.is_dir() && m.uid() == me);
        let Some(folder) = is_ours.then(|| File::open(entry.path()).ok()).flatten() else { continue };
        if is_locked(&folder) {
            // Somebody else may be faster.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_nobody_uses_are_removed_and_others_are_not() {
        let used = Scratch::new().expect("there is room");
        let left = used.path().with_file_name(format!("{NAME}left-{}", std::process::id()));
        std::fs::create_dir(&left).expect("it can be made");
        let next = Scratch::new().expect("there is room");
        assert!(used.path().is_dir() && next.path().is_dir() && !left.exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
