//! One thread of a session at its moment, for questions about its stack and variables.
//!
//! ```text
//! Session + Recording + Images ── scene ─▶ Scene: image::Stopped ─▶ backtrace, Inspector, expressions
//! ```
//! Registers and the list of images are taken once; memory is read when it is asked for, so a scene must not outlive the
//! moment, which its borrow of the session ensures.

use crate::error::Error;
use crate::timeline::Session;
use image::{FileOffset, Images, LoadedImages, MappedFile, Register, Search};
use model::GuestAddr;
use model::serve::{MapInfo, State};
use recording::Recording;
use std::path::PathBuf;

/// A thread at a moment.
pub struct Scene<'s> {
    session: &'s Session,
    state: State,
    images: LoadedImages,
}

impl Session {
    /// The thread of this number. `images` keeps what was opened: see [`images_of`].
    pub fn scene(&self, recording: &Recording, images: &Images, thread: u32) -> Result<Scene<'_>, Error> {
        let state = self.registers(thread)?;
        Ok(Scene { session: self, state, images: self.loaded(recording, images)? })
    }

    /// The programs and libraries that are mapped now, the program first.
    pub fn loaded(&self, recording: &Recording, images: &Images) -> Result<LoadedImages, Error> {
        self.images_among(&self.maps()?, recording, images)
    }

    /// The same at the end of the recording, without moving this session.
    pub fn loaded_at_end(&mut self, recording: &Recording, images: &Images) -> Result<LoadedImages, Error> {
        let maps = self.maps_at_end()?;
        self.images_among(&maps, recording, images)
    }

    /// The programs and libraries among these mappings, the program first.
    pub fn images_among(
        &self,
        maps: &[MapInfo],
        recording: &Recording,
        images: &Images,
    ) -> Result<LoadedImages, Error> {
        // A forked process has the program of the one it comes from.
        let first = recording.lineage(&self.unit()).ok().and_then(|l| l.first().copied()).unwrap_or(self.unit());
        let unit = recording.unit(&first).ok();
        let program = unit.and_then(|u| recording.file(&u.start.program)).unwrap_or_default();
        let mapped = |m: &MapInfo| {
            let path = recording.file(&m.key)?;
            Some(MappedFile { path, start: GuestAddr(m.start), offset: FileOffset(m.offset) })
        };
        // Programs also map files, their own for one, to read them: then none of the pieces side by side is executable.
        let files: Vec<&MapInfo> = maps.iter().filter(|m| !m.key.is_empty()).collect();
        let side_by_side = files.chunk_by(|a, b| a.key == b.key);
        let loaded = side_by_side.filter(|pieces| pieces.iter().any(|m| m.prot & EXECUTABLE != 0));
        let mapped: Vec<MappedFile> = loaded.flatten().filter_map(|m| mapped(m)).collect();
        Ok(LoadedImages::from_mappings(images, &program, &mapped))
    }
}

/// Images whose debug information may lie in the recording, else in the usual places.
pub fn images_of(recording: &Recording) -> Images {
    images_with(recording, Search::default())
}

/// Images whose debug information may lie in the recording, else where `search` finds it.
pub fn images_with(recording: &Recording, mut search: Search) -> Images {
    search.roots.splice(0..0, recording.extra().map(|e| e.join("debug")).into_iter().collect::<Vec<PathBuf>>());
    Images::with_search(search)
}

const EXECUTABLE: u8 = 4;
/// Hardware numbers of the registers in the order of DWARF.
const HARDWARE: [usize; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
/// Where `xmm0` lies in an area that `xsave` wrote.
const VECTORS: usize = 160;

impl image::Stopped for Scene<'_> {
    fn read(&self, at: GuestAddr, to: &mut [u8]) -> usize {
        // What cannot be asked cannot be read.
        self.session.read(at, to).unwrap_or(0)
    }

    fn register(&self, register: Register) -> Option<u64> {
        match register {
            Register::RIP => Some(self.state.rip),
            Register::FS_BASE => Some(self.state.fs_base),
            Register(n) => HARDWARE.get(usize::from(n)).map(|h| self.state.gpr[*h]),
        }
    }

    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        let at = VECTORS + 16 * usize::from(number);
        self.state.extended.get(at..)?.first_chunk().copied().filter(|_| number < 16)
    }

    fn images(&self) -> &LoadedImages {
        &self.images
    }
}
