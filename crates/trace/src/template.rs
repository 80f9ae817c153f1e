//! Blocks and short sequences of blocks compiled for the fast consumer.
//!
//! A [`Single`] is a block whose record is plain, with all about it that does not depend on the record; every access is a
//! [`Lane`]: which word of the record to add to which constant. A [`Window`] stands for [`WINDOW`] such blocks that ran
//! one after the other. Programs run through few distinct windows (a hot loop has dozens to hundreds), so nearly all of
//! a trace can be consumed a window at a time, almost without branches that depend on the blocks.

use iced_x86::Mnemonic;

use crate::block::Block;
use crate::checksum::{Fold, insn_item, mem_item};
use crate::event::Mem;
use crate::format::tag_bytes;
use crate::plan::{Access, Segment, Shape};

/// Blocks in a window.
pub(crate) const WINDOW: usize = 4;
/// Bytes that may be looked at from the start of a record: four records of the greatest tagged length.
pub(crate) const VIEW: usize = 4096;
/// Lanes computed at a time.
pub(crate) const LANES: usize = 8;
/// Most accesses of one block or window: they must fit behind a full chunk.
pub(crate) const MAX_ACCESSES: usize = 128;

/// One access: address = (the 8 bytes of the record at 4 * `word`, if `from_record`) + `disp` + segment base.
#[derive(Clone, Copy)]
pub(crate) struct Lane {
    pub disp: u64,
    pub word: u8,
    pub from_record: bool,
    pub seg: Segment,
}

/// One simple block.
#[derive(Clone, Copy)]
pub(crate) struct Single {
    pub tag: u32,
    pub first_lane: u32,
    pub first_pc: u32,
    pub fold: Fold,
    pub insns: u16,
    pub accesses: u8,
}

/// Where there is no simple block: no record has this tag.
pub(crate) const NONE: Single =
    Single { tag: u32::MAX, first_lane: 0, first_pc: 0, fold: Fold { factor: 1, term: 0 }, insns: 0, accesses: 0 };

/// The simple blocks.
#[derive(Clone, Default)]
pub(crate) struct Singles {
    /// By block id.
    pub blocks: Vec<Single>,
    pub lanes: Vec<Lane>,
    pub pcs: Vec<u64>,
}

impl Singles {
    /// The block with this tag.
    #[inline(always)]
    pub fn get(&self, tag: u32) -> Option<&Single> {
        self.blocks.get(crate::format::tag_id(tag) as usize).filter(|s| s.tag == tag)
    }

    pub fn lanes(&self, s: &Single) -> &[Lane] {
        &self.lanes[s.first_lane as usize..][..usize::from(s.accesses)]
    }

    pub fn pcs(&self, s: &Single) -> &[u64] {
        &self.pcs[s.first_pc as usize..][..usize::from(s.insns)]
    }

    /// Makes room for the block, and compiles it if it is simple.
    pub fn add(&mut self, b: &Block) {
        let id = b.id as usize;
        if self.blocks.len() <= id {
            self.blocks.resize(id + 1, NONE);
        }
        if !is_simple(b) {
            return;
        }
        let mut single = Single {
            tag: b.plan.tag(b.id),
            first_lane: self.lanes.len() as u32,
            first_pc: self.pcs.len() as u32,
            fold: Fold::default(),
            insns: b.insns.len() as u16,
            accesses: b.plan.accesses.len() as u8,
        };
        for (index, i) in b.insns.iter().enumerate() {
            self.pcs.push(i.ip());
            single.fold.push(insn_item(i.ip()));
            for a in b.plan.accesses_of(index) {
                single.fold.push(mem_item(&static_mem(a)));
                let slot = a.addr.value.slot.map(|slot| &b.plan.slots[usize::from(slot)]);
                self.lanes.push(Lane {
                    disp: a.addr.value.delta as u64,
                    word: slot.map_or(0, |s| (s.offset / 4) as u8),
                    from_record: slot.is_some(),
                    seg: a.addr.seg,
                });
            }
        }
        self.blocks[id] = single;
    }
}

/// Whether all of the block is static but for the values of plain slots.
fn is_simple(b: &Block) -> bool {
    let plain = |a: &Access| a.shape == Shape::Plain && !a.addr.addr32;
    let turns = |m: Mnemonic| matches!(m, Mnemonic::Std | Mnemonic::Cld);
    tag_bytes(b.plan.tag(b.id)).is_some()
        && b.plan.accesses.len() <= MAX_ACCESSES
        && b.plan.accesses.iter().all(plain)
        && !b.insns.iter().any(|i| turns(i.mnemonic()))
}

/// A plain access, but for its address.
pub(crate) fn static_mem(a: &Access) -> Mem {
    Mem { addr: 0, size: a.size, count: 1, down: false, read: a.read, write: a.write, conditional: a.conditional }
}

/// Simple blocks that ran one after the other.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Window {
    pub tags: [u32; WINDOW],
    /// What the blocks do to the checksum.
    pub fold: Fold,
    pub insns: u16,
    pub accesses: u8,
    /// Whether there is anything in the pool.
    pub more: bool,
    pub fixes: u8,
    pub first_lanes: u32,
    pub first_fix: u32,
    /// These are computed without asking whether there are any; further ones are in the pool.
    pub lanes: Lanes,
}

/// Lanes: address = (the 8 bytes of the record at 4 * `word` & `mask`) + `disp`.
#[derive(Clone, Copy)]
pub(crate) struct Lanes {
    pub mask: [u64; LANES],
    pub disp: [u64; LANES],
    pub word: [u8; LANES],
}

const NO_LANES: Lanes = Lanes { mask: [0; LANES], disp: [0; LANES], word: [0; LANES] };

/// Matches nothing: no block has the first tag, and after a third tag of 0, which has no length, the fourth would be read
/// from the same place and be 0 too.
pub(crate) const EMPTY: Window = Window {
    tags: [u32::MAX, u32::MAX, 0, 1],
    fold: Fold { factor: 1, term: 0 },
    insns: 0,
    accesses: 0,
    more: false,
    fixes: 0,
    first_lanes: 0,
    first_fix: 0,
    lanes: NO_LANES,
};

/// A lane to which a segment base is to be added.
#[derive(Clone, Copy)]
pub(crate) struct Fix {
    pub lane: u8,
    pub gs: bool,
}

/// What does not fit into windows.
#[derive(Clone, Default)]
pub(crate) struct Pool {
    pub lanes: Vec<Lanes>,
    pub fixes: Vec<Fix>,
}

impl Pool {
    /// Puts a window together. Nothing if a block is not simple or they are too much together.
    pub fn window(&mut self, tags: [u32; WINDOW], singles: &Singles) -> Option<Window> {
        let (first_lanes, first_fix) = (self.lanes.len(), self.fixes.len());
        let mut w = Window { tags, first_lanes: first_lanes as u32, first_fix: first_fix as u32, ..EMPTY };
        let (mut start, mut lane) = (0, 0);
        for tag in tags {
            let s = singles.get(tag)?;
            w.fold = w.fold.then(s.fold);
            w.insns += s.insns;
            for l in singles.lanes(s) {
                let word = start + usize::from(l.word);
                if lane == MAX_ACCESSES || word > usize::from(u8::MAX) {
                    self.lanes.truncate(first_lanes);
                    self.fixes.truncate(first_fix);
                    return None;
                }
                self.lane(&mut w, lane, Lane { word: word as u8, ..*l });
                lane += 1;
            }
            start += tag_bytes(tag)? / 4;
        }
        w.accesses = lane as u8;
        w.fixes = (self.fixes.len() - first_fix) as u8;
        w.more = w.fixes != 0 || lane > LANES;
        Some(w)
    }

    fn lane(&mut self, w: &mut Window, lane: usize, l: Lane) {
        let (group, n) = (lane / LANES, lane % LANES);
        if group > 0 && n == 0 {
            self.lanes.push(NO_LANES);
        }
        let lanes = match group {
            0 => &mut w.lanes,
            _ => &mut self.lanes[w.first_lanes as usize + group - 1],
        };
        lanes.disp[n] = l.disp;
        lanes.word[n] = l.word;
        lanes.mask[n] = if l.from_record { u64::MAX } else { 0 };
        if l.seg != Segment::None {
            self.fixes.push(Fix { lane: lane as u8, gs: l.seg == Segment::Gs });
        }
    }
}
