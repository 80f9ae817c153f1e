//! Files of the recorded machine by the names that a debugger knows.
//!
//! The recorder notes canonical names; a debugger asks for what the program's headers and the dynamic linker say, which
//! may lead over links. Links of today's machine are tried, then a kept file with the same last part, if there is one.

use recording::{Recording, Unit};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug, Default)]
pub struct Files {
    /// Keys of kept files by name.
    keys: BTreeMap<PathBuf, String>,
}

impl Files {
    /// The files that these units kept.
    pub fn of<'u>(units: impl Iterator<Item = &'u Unit>) -> Files {
        use std::os::unix::ffi::OsStrExt;
        let mut keys = BTreeMap::new();
        for unit in units {
            for file in unit.files.iter().filter(|f| !f.key.is_empty()) {
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(&file.path));
                keys.insert(path, file.key.clone());
            }
            if !unit.start.program.is_empty() {
                keys.insert(PathBuf::from(&unit.start.exe), unit.start.program.clone());
            }
        }
        Files { keys }
    }

    pub fn find(&self, recording: &Recording, path: &str) -> Option<PathBuf> {
        recording.file(self.key(Path::new(path))?)
    }

    fn key(&self, path: &Path) -> Option<&String> {
        if let Some(key) = self.keys.get(path) {
            return Some(key);
        }
        let real = std::fs::canonicalize(path).ok();
        if let Some(key) = real.and_then(|real| self.keys.get(&real)) {
            return Some(key);
        }
        let same_end = |(name, _): &(&PathBuf, &String)| name.file_name() == path.file_name();
        let mut alike = self.keys.iter().filter(same_end);
        match (alike.next(), alike.next()) {
            (Some((_, key)), None) => Some(key),
            _ => None,
        }
    }

    /// The name of a kept file.
    pub fn name(&self, key: &str) -> Option<&Path> {
        self.keys.iter().find(|(_, k)| *k == key && !key.is_empty()).map(|(path, _)| path.as_path())
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.keys.keys().map(PathBuf::as_path)
    }
}
