//! The store: contents of kept files, shared between recordings by hard links between our own files.
//!
//! `blobs/<hash>` and `stamps/<stamp>` are two names of one file; every recording that kept it has a third. Content is
//! garbage when only names in the store are left. Failing to share is harmless: the recording then has its own copy.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::disk;
use crate::name::is_stamp;

/// Name of the store in the home folder.
pub const FOLDER: &str = ".store";

#[derive(Clone, Debug)]
pub struct Store {
    blobs: PathBuf,
    stamps: PathBuf,
}

impl Store {
    pub fn open(home: &Path) -> io::Result<Store> {
        let top = home.join(FOLDER);
        let store = Store { blobs: top.join("blobs"), stamps: top.join("stamps") };
        for folder in [&top, &store.blobs, &store.stamps] {
            match disk::private_folder(folder) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => (),
            }
        }
        Ok(store)
    }

    /// The folder of contents by stamp, for the engine.
    pub fn stamps(&self) -> &Path {
        &self.stamps
    }

    /// Shares a kept file: it becomes a name of the blob with its content, or that blob. False if it is shared already.
    pub fn put(&self, file: &Path, key: &str) -> io::Result<bool> {
        let meta = fs::symlink_metadata(file)?;
        if !meta.is_file() || meta.nlink() > 1 {
            return Ok(false);
        }
        // From here on a change would reach other recordings, so nobody may make one by accident.
        fs::set_permissions(file, Permissions::from_mode(0o400))?;
        let hash = hash(file)?;
        let blob = self.blobs.join(hash.to_hex().as_str());
        match fs::hard_link(file, &blob) {
            Ok(()) => (),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => self.replace(file, &blob, &hash)?,
            Err(e) => return Err(e),
        }
        if is_stamp(key) {
            // It is there already if another recording met the same file at the same time.
            let _ = fs::hard_link(&blob, self.stamps.join(key));
        }
        Ok(true)
    }

    /// Makes `file` a name of `blob`. A blob that rotted must not take the place of a good copy, so it is looked at.
    fn replace(&self, file: &Path, blob: &Path, expected: &blake3::Hash) -> io::Result<()> {
        if hash(blob)? != *expected {
            fs::remove_file(blob)?;
            return fs::hard_link(file, blob);
        }
        let mut beside = file.as_os_str().to_owned();
        beside.push(".link");
        let beside = PathBuf::from(beside);
        fs::hard_link(blob, &beside)?;
        fs::rename(&beside, file).inspect_err(|_| {
            let _ = fs::remove_file(&beside);
        })
    }

    /// Removes contents that no recording refers to; says how many bytes became free.
    ///
    /// A recorder may link such content at this very moment: then it keeps its own name of it, and only the store
    /// forgets it.
    pub fn collect(&self) -> io::Result<u64> {
        let mut names: HashMap<(u64, u64), (u64, u64, Vec<PathBuf>)> = HashMap::new();
        for folder in [&self.blobs, &self.stamps] {
            for name in disk::names_if_any(folder)? {
                let path = folder.join(name);
                let Ok(meta) = fs::symlink_metadata(&path) else { continue };
                let entry = names.entry((meta.dev(), meta.ino())).or_default();
                (entry.0, entry.1) = (meta.nlink(), disk::usage(&meta));
                entry.2.push(path);
            }
        }
        let mut freed = 0;
        for (links, bytes, paths) in names.into_values() {
            if links <= paths.len() as u64 {
                freed += bytes;
                for path in paths {
                    // Whoever was faster has done the same.
                    let _ = fs::remove_file(path);
                }
            }
        }
        Ok(freed)
    }
}

fn hash(path: &Path) -> io::Result<blake3::Hash> {
    let mut file = disk::open_regular(path)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(n) => {
                hasher.update(&buffer[..n]);
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => (),
            Err(e) => return Err(e),
        }
    }
}
