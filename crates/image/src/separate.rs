//! Debug information that lies in another file than the program.
//!
//! Found as gdb finds it: by build-id under `ROOT/.build-id`, then by the name in `.gnu_debuglink` beside the program,
//! in `.debug` beside it, and under `ROOT` followed by the program's folder. DWARF that `dwz` moved into a shared file
//! is found through `.gnu_debugaltlink`. Last, the servers are asked that the user named, by build-id.
//! Guarantee: a file is used only when it belongs to the program: equal build-ids where both have one, else an equal
//! checksum. Source: GDB manual, "Separate Debug Files".

use crate::debuginfod::Debuginfod;
use crate::elf::{BuildId, Elf};
use crate::error::ImageError;
use crate::mapping::SourceMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Where to look for separate debug files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Search {
    /// Folders that hold `.build-id` and copies of the file system's folders.
    pub roots: Vec<PathBuf>,
    /// Where folders are that compilers recorded; split debug information is looked for there too.
    pub source_map: SourceMap,
    /// Servers to ask for what is not on this machine.
    pub debuginfod: Option<Debuginfod>,
}

impl Default for Search {
    fn default() -> Search {
        Search::in_folders(vec![PathBuf::from("/usr/lib/debug")])
    }
}

impl Search {
    /// Looks only below `roots`, and beside programs.
    pub fn in_folders(roots: Vec<PathBuf>) -> Search {
        Search { roots, source_map: SourceMap::default(), debuginfod: None }
    }

    /// The debug file that belongs to `program`.
    pub(crate) fn debug_file(&self, program: &Elf) -> Option<Elf> {
        let by_build_id = program.build_id.iter().flat_map(|id| self.by_build_id(id));
        let fetched = || program.build_id.as_ref().and_then(|id| self.debuginfod.as_ref()?.debug_file(id));
        let near = by_build_id.map(|path| (path, None)).chain(self.by_link(program));
        near.chain(std::iter::once_with(fetched).flatten().map(|path| (path, None))).find_map(|(path, crc)| {
            let found = Elf::open(&path).ok()?;
            let belongs = match (&program.build_id, &found.build_id) {
                (Some(a), Some(b)) => a == b,
                _ => crc.is_some_and(|crc| checksum(&found).is_ok_and(|c| c == crc)),
            };
            (belongs && !found.source.same_file(&program.source)).then_some(found)
        })
    }

    /// The file with DWARF that `debug` shares with others.
    pub(crate) fn shared_file(&self, debug: &Elf) -> Option<Elf> {
        let link = debug.alt_link()?;
        let named = debug.source.path().parent()?.join(OsStr::from_bytes(&link.path));
        std::iter::once(named)
            .chain(self.by_build_id(&link.build_id))
            .chain(std::iter::once_with(|| self.debuginfod.as_ref()?.debug_file(&link.build_id)).flatten())
            .filter_map(|path| Elf::open(&path).ok())
            .find(|e| e.build_id.as_ref() == Some(&link.build_id))
    }

    fn by_build_id(&self, id: &BuildId) -> Vec<PathBuf> {
        let hex = id.to_string();
        let Some((folder, rest)) = hex.split_at_checked(2) else { return Vec::new() };
        self.roots.iter().map(|root| root.join(".build-id").join(folder).join(format!("{rest}.debug"))).collect()
    }

    fn by_link(&self, program: &Elf) -> Vec<(PathBuf, Option<u32>)> {
        let Some(link) = program.debug_link() else { return Vec::new() };
        let name = Path::new(OsStr::from_bytes(&link.name));
        // The link is a bare name; anything else would lead out of the folders meant.
        let mut parts = name.components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            return Vec::new();
        }
        let mut candidates = Vec::new();
        for folder in folders(program.source.path()) {
            candidates.extend([folder.join(name), folder.join(".debug").join(name)]);
            let inside: PathBuf = folder.components().filter(|c| matches!(c, Component::Normal(_))).collect();
            candidates.extend(self.roots.iter().map(|root| root.join(&inside).join(name)));
        }
        candidates.into_iter().map(|path| (path, Some(link.crc))).collect()
    }
}

/// The folder of `path` as given and without symbolic links: packages know a file by one of the two.
fn folders(path: &Path) -> Vec<PathBuf> {
    let given = path.parent().map(Path::to_path_buf);
    let real = std::fs::canonicalize(path).ok().and_then(|p| p.parent().map(Path::to_path_buf));
    let mut folders: Vec<PathBuf> = given.into_iter().chain(real).collect();
    folders.dedup();
    folders
}

/// The CRC-32 of the whole file, as `.gnu_debuglink` has it.
fn checksum(elf: &Elf) -> Result<u32, ImageError> {
    let mut crc = Crc32::new();
    elf.source.scan(|bytes| crc.add(bytes))?;
    Ok(crc.value())
}

/// The CRC-32 of IEEE 802.3, bit-reversed, as in zip and PNG.
struct Crc32 {
    table: [u32; 256],
    state: u32,
}

impl Crc32 {
    fn new() -> Crc32 {
        let table = std::array::from_fn(|i| {
            (0..8).fold(i as u32, |c, _| if c & 1 != 0 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 })
        });
        Crc32 { table, state: !0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.state = self.table[(self.state as u8 ^ b) as usize] ^ (self.state >> 8);
        }
    }

    fn value(&self) -> u32 {
        !self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_common_one() {
        let mut crc = Crc32::new();
        crc.add(b"12345");
        crc.add(b"6789");
        assert_eq!(crc.value(), 0xcbf4_3926, "the check value of CRC-32/ISO-HDLC");
    }

    #[test]
    fn a_build_id_gives_the_path_that_packages_use() {
        let search = Search::in_folders(vec!["/a".into(), "/b".into()]);
        let paths = search.by_build_id(&BuildId(vec![0xab, 0xcd, 0xef]));
        assert_eq!(paths, [Path::new("/a/.build-id/ab/cdef.debug"), Path::new("/b/.build-id/ab/cdef.debug")]);
        assert!(search.by_build_id(&BuildId(vec![])).is_empty());
    }
}
