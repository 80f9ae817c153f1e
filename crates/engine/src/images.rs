//! The files that translated code came from, so that translations can be handed on from one process to the next.
//!
//! An image is one executable private mapping of a file that is not writable. Each block belongs to the image that its
//! address lies in, or to none (generated code). Blocks of an image are linked only to blocks of the same image, so an
//! image whose blocks came from an earlier process ([`crate::pool`]) can sleep until its mapping is there again: nothing
//! leads into it but a lookup by the engine, which wakes it.
//!
//! Images that change (another mapping, other rights, a probe) are left: their blocks become ordinary ones, and nothing of
//! this process is handed on.

use crate::cache::BlockIndex;
use crate::memory::{Memory, Vma};
use crate::state::Engine;
use crate::sys::{PROT_EXEC, PROT_WRITE};
use alloc::vec::Vec;
use model::layout::CACHE;

/// Number of an image in its process.
pub type ImageIndex = u16;
/// Code that is no image's.
const NONE: ImageIndex = ImageIndex::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum State {
    /// Its blocks are in use and known to `CodePages`.
    Own,
    /// Its blocks came from an earlier process and may not be used yet.
    Asleep,
    /// They are in use, but `CodePages` does not know them.
    Awake,
    /// They must not be used: what is mapped there is something else.
    Refused,
    /// It is no longer mapped as it was.
    Left,
}

/// One image, with where its digests and targets lie in what was handed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Image {
    pub start: u64,
    pub end: u64,
    pub object: (u64, u64),
    pub offset: u64,
    /// Pages and their digests: first and number.
    pub digests: (u64, u64),
    /// Blocks that indirect branches lead to: first and number.
    pub targets: (u64, u64),
    pub state: State,
}

impl Image {
    fn new(start: u64, vma: &Vma) -> Option<Image> {
        let fits = vma.file && !vma.shared && vma.is(PROT_EXEC) && !vma.is(PROT_WRITE);
        let object = vma.object.filter(|_| fits)?;
        let (end, offset, state) = (vma.end, vma.offset, State::Own);
        Some(Image { start, end, object, offset, digests: (0, 0), targets: (0, 0), state })
    }

    pub fn contains(&self, at: u64) -> bool {
        (self.start..self.end).contains(&at)
    }

    fn is_open(&self) -> bool {
        matches!(self.state, State::Own | State::Awake)
    }
}

/// The images of one process.
pub struct Images {
    pub list: Vec<Image>,
    current: ImageIndex,
    /// May the translations of this process be handed on?
    pub saveable: bool,
    asleep: u32,
}

impl Default for Images {
    fn default() -> Self {
        Images { list: Vec::new(), current: NONE, saveable: false, asleep: 0 }
    }
}

impl Images {
    /// All blocks are gone, and with them what is known of their images.
    pub fn clear(&mut self) {
        *self = Images::default();
    }

    /// Takes over images of an earlier process.
    pub fn adopt(&mut self, images: &[Image]) {
        self.list.clear();
        let is_there = |image: &Image| if image.start < image.end { State::Asleep } else { State::Left };
        self.list.extend(images.iter().map(|image| Image { state: is_there(image), ..*image }));
        self.asleep = self.list.iter().filter(|image| image.state == State::Asleep).count() as u32;
        self.current = NONE;
    }

    /// The image that is being translated.
    pub fn current(&self) -> ImageIndex {
        self.current
    }

    /// Translation goes on at `pc`.
    pub fn enter(&mut self, pc: u64, memory: &Memory) {
        if !self.saveable && self.list.is_empty() {
            return;
        }
        if self.list.get(self.current as usize).is_some_and(|i| i.is_open() && i.contains(pc)) {
            return;
        }
        let known = self.list.iter().position(|i| i.is_open() && i.contains(pc));
        self.current = known.map_or(NONE, |n| n as ImageIndex);
        if known.is_none()
            && self.list.len() < NONE as usize
            && let Some((start, vma)) = memory.find(pc)
            && let Some(image) = Image::new(start, &vma)
        {
            self.current = self.list.len() as ImageIndex;
            self.list.push(image);
        }
    }

    /// May the code that is being translated lead to `target` without asking the engine?
    pub fn may_link(&self, target: u64) -> bool {
        self.list.get(self.current as usize).is_none_or(|image| image.contains(target))
    }

    /// A block ends here: one that reaches into the next mapping belongs to two.
    pub fn check_end(&mut self, end: u64) {
        if self.list.get(self.current as usize).is_some_and(|image| end > image.end) {
            self.saveable = false;
        }
    }

    pub fn is_awake(&self, image: ImageIndex) -> bool {
        self.list.get(image as usize).is_none_or(|i| !matches!(i.state, State::Asleep | State::Refused))
    }

    fn asleep_at(&self, pc: u64) -> Option<usize> {
        if self.asleep == 0 {
            return None;
        }
        self.list.iter().position(|i| i.state == State::Asleep && i.contains(pc))
    }
}

impl Engine {
    /// Code at `pc` is about to run: blocks of an earlier process for it are used if it is the same code.
    #[inline]
    pub fn wake_image(&mut self, pc: u64) {
        if let Some(n) = self.cache.images.asleep_at(pc) {
            self.wake(n);
        }
    }

    #[cold]
    fn wake(&mut self, n: usize) {
        let image = self.cache.images.list[n];
        let same = self.is_same(&image);
        self.cache.images.asleep -= 1;
        self.cache.images.list[n].state = if same { State::Awake } else { State::Refused };
        if !same {
            return;
        }
        for block in crate::pool::targets(&image) {
            let b = self.cache.blocks[*block as usize];
            self.cache.direct.enter(b.pc, CACHE.start + b.direct as u64);
        }
    }

    /// Is what is mapped now what these blocks were made from, byte for byte as far as they are concerned?
    fn is_same(&self, image: &Image) -> bool {
        let Some((start, vma)) = self.memory.find(image.start) else { return false };
        let Some(now) = Image::new(start, &vma) else { return false };
        let same = (now.start, now.end, now.object, now.offset) == (image.start, image.end, image.object, image.offset);
        let changes = |v: &Vma| v.object == vma.object && v.changes_file();
        same && !self.memory.iter().any(|(_, v)| changes(v))
            && crate::pool::digests(image).iter().all(|d| crate::pool::digest_of_page(d[0]) == d[1])
    }

    /// Something changes in `start..end`: images there are what they were no longer. Their blocks become ordinary ones.
    pub fn leave_images(&mut self, start: u64, end: u64) {
        for n in 0..self.cache.images.list.len() {
            let image = self.cache.images.list[n];
            if !image.is_open() || start >= image.end || end <= image.start {
                continue;
            }
            let whole = start <= image.start && end >= image.end;
            self.cache.images.saveable &= whole;
            if image.state == State::Awake {
                self.own_blocks(n as ImageIndex);
            }
            self.cache.images.list[n].state = if whole { State::Left } else { State::Own };
        }
    }

    /// Tells `CodePages` of the blocks of an image that came from an earlier process.
    fn own_blocks(&mut self, image: ImageIndex) {
        for n in 0..self.cache.adopted {
            let b = self.cache.blocks[n as usize];
            if b.image == image && b.valid {
                self.pages.add(b.pc, b.pc + (b.guest_len as u64).max(1), n as BlockIndex, |_| false);
            }
        }
    }
}
