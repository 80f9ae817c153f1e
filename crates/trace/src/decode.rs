//! The reference decoder: from the bytes of a trace to the exact stream of events, in the most direct way.
//!
//! It is what the fast consumer ([`crate::consume`]) is compared with, so it walks every instruction and every access
//! and shares nothing with it but the plan. It never panics: what does not parse is a [`TraceError`] with the position.
//! It believes the trace: whether the stream makes sense is the matter of [`crate::check`].

use std::collections::HashMap;
use std::fmt;

use iced_x86::Mnemonic;
use model::wire::BlockDef;

use crate::block::{Block, BlockError};
use crate::event::{Event, Insn, Mem, Sink};
use crate::format::{END, FIRST_SPECIAL, PARTIAL, Partial, Special, tag_bytes, tag_id};
use crate::plan::{Access, AddrExpr, BlockPlan, ID_BYTES, LaneBits, Planner, Segment, Shape, Value};

/// What is wrong with a trace, and at which byte of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceError {
    pub at: usize,
    pub kind: TraceErrorKind,
}

/// What is wrong with a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceErrorKind {
    /// The buffer ends inside a record.
    Cut,
    /// No such block has been defined.
    UnknownBlock(u32),
    /// The length in the tag is not that of the block's record.
    BadTag(u32),
    /// No such special record exists.
    UnknownSpecial(u32),
    /// A partial record claims more instructions than its block has, or lacks slots of those it claims.
    BadPartial(u32),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TraceErrorKind::Cut => write!(f, "the record is cut off")?,
            TraceErrorKind::UnknownBlock(id) => write!(f, "block {id} has not been defined")?,
            TraceErrorKind::BadTag(tag) => write!(f, "the length in tag {tag:#x} is not that of the block")?,
            TraceErrorKind::UnknownSpecial(id) => write!(f, "no special record has id {id:#x}")?,
            TraceErrorKind::BadPartial(id) => write!(f, "the partial record of block {id} does not fit the block")?,
        }
        write!(f, " (at byte {} of the trace buffer)", self.at)
    }
}

impl std::error::Error for TraceError {}

/// What the meaning of a record depends on besides its block.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The thread that runs.
    pub tid: u32,
    pub fs_base: u64,
    pub gs_base: u64,
    /// Its direction flag.
    pub df: bool,
    /// Direction flags of the other threads, where set.
    others: HashMap<u32, bool>,
}

impl Context {
    /// Follows a special record.
    pub fn special(&mut self, special: &Special) {
        match *special {
            Special::Thread { tid, fs_base, gs_base } => {
                if tid != self.tid {
                    self.others.insert(self.tid, self.df);
                    self.df = self.others.get(&tid).copied().unwrap_or(false);
                }
                *self = Context { tid, fs_base, gs_base, df: self.df, others: std::mem::take(&mut self.others) };
            }
            // The kernel clears the flag for a handler.
            Special::Signal { .. } => self.df = false,
            Special::SigReturn { df, .. } | Special::Direction { df } => self.df = df,
            Special::Syscall { .. } | Special::Step { .. } | Special::Pad | Special::End => {}
        }
    }
}

/// The reference decoder of one process's trace. A fork's child goes on with a clone of its parent's.
#[derive(Default)]
pub struct Decoder {
    planner: Planner,
    blocks: HashMap<u32, Block>,
    pub context: Context,
}

impl Clone for Decoder {
    fn clone(&self) -> Decoder {
        Decoder { planner: Planner::new(), blocks: self.blocks.clone(), context: self.context.clone() }
    }
}

impl Decoder {
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Registers a block; must come before the first buffer that uses it. The same definition may come again.
    pub fn block(&mut self, def: &BlockDef) -> Result<(), BlockError> {
        let block = Block::new(def, &mut self.planner)?;
        match self.blocks.get(&def.id) {
            Some(old) if !old.is_same(&block) => Err(BlockError::Redefined(def.id)),
            _ => {
                self.blocks.insert(def.id, block);
                Ok(())
            }
        }
    }

    /// Decodes one buffer. After an error nothing that follows can be trusted.
    pub fn buffer(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<(), TraceError> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let used = self.record(rest, sink).map_err(|kind| TraceError { at, kind })?;
            match used {
                Some(used) => at += used,
                None => break,
            }
        }
        Ok(())
    }

    fn record(&mut self, rest: &[u8], sink: &mut impl Sink) -> Result<Option<usize>, TraceErrorKind> {
        decode_record(rest, |id| self.blocks.get(&id), &mut self.context, sink)
    }
}

/// Decodes the record at the start of `rest` and gives its length, or nothing if the rest of the buffer is unused.
pub(crate) fn decode_record<'b>(
    rest: &[u8],
    block_of: impl Fn(u32) -> Option<&'b Block>,
    context: &mut Context,
    sink: &mut impl Sink,
) -> Result<Option<usize>, TraceErrorKind> {
    let tag = rest.first_chunk().map(|b| u32::from_le_bytes(*b)).ok_or(TraceErrorKind::Cut)?;
    let block_of = |id: u32| block_of(id).ok_or(TraceErrorKind::UnknownBlock(id));
    if tag < FIRST_SPECIAL {
        let block = block_of(tag_id(tag))?;
        if tag_bytes(tag).is_some() && tag != block.plan.tag(block.id) {
            return Err(TraceErrorKind::BadTag(tag));
        }
        let len = block.plan.record_bytes() as usize;
        let slots = rest.get(ID_BYTES as usize..len).ok_or(TraceErrorKind::Cut)?;
        run(block, block.insns.len(), slots, context, sink).ok_or(TraceErrorKind::Cut)?;
        return Ok(Some(len));
    }
    if tag == PARTIAL {
        let (partial, len) = Partial::decode(rest).ok_or(TraceErrorKind::Cut)?;
        let block = block_of(tag_id(partial.block))?;
        run_partial(block, &partial, context, sink).ok_or(TraceErrorKind::BadPartial(partial.block))?;
        return Ok(Some(len));
    }
    let known = (FIRST_SPECIAL + 1..=END).contains(&tag);
    let missing = if known { TraceErrorKind::Cut } else { TraceErrorKind::UnknownSpecial(tag) };
    let (special, len) = Special::decode(rest).ok_or(missing)?;
    if special == Special::Pad {
        return Ok(None);
    }
    context.special(&special);
    sink.event(&Event::Special(special));
    Ok(Some(len))
}

/// Emits the first `completed` instructions of a block. Nothing if a slot that they need is missing.
fn run(block: &Block, completed: usize, slots: &[u8], context: &mut Context, sink: &mut impl Sink) -> Option<()> {
    for (index, i) in block.insns.get(..completed)?.iter().enumerate() {
        let insn = Insn { thread: context.tid, pc: i.ip(), block: block.id, index: index as u16 };
        sink.event(&Event::Insn(insn));
        let record = Record { plan: &block.plan, slots, stopped: None };
        for access in block.plan.accesses_of(index) {
            record.expand(access, context, &mut |m: Mem| sink.event(&Event::Mem(m)))?;
        }
        match i.mnemonic() {
            Mnemonic::Std => context.df = true,
            Mnemonic::Cld => context.df = false,
            _ => {}
        }
    }
    Some(())
}

/// Emits what a partial record says. Nothing if it does not fit the block.
fn run_partial(block: &Block, partial: &Partial<'_>, context: &mut Context, sink: &mut impl Sink) -> Option<()> {
    let completed = partial.completed as usize;
    run(block, completed, partial.slots, context, sink)?;
    let Some(stopped) = block.insns.get(completed) else { return Some(()) };
    let record = Record { plan: &block.plan, slots: partial.slots, stopped: Some(partial.rcx) };
    let mut announced = false;
    for access in block.plan.accesses_of(completed) {
        if !matches!(access.shape, Shape::Rep { .. }) {
            continue;
        }
        let expanded = record.expand(access, context, &mut |m: Mem| {
            if !announced {
                announced = true;
                let insn =
                    Insn { thread: context.tid, pc: stopped.ip(), block: block.id, index: partial.completed as u16 };
                sink.event(&Event::RepPart(insn));
            }
            sink.event(&Event::Mem(m));
        });
        if expanded.is_none() {
            // Its slots were not recorded yet, so it had not begun.
            break;
        }
    }
    Some(())
}

/// The slots of one record, complete or not.
struct Record<'a> {
    plan: &'a BlockPlan,
    slots: &'a [u8],
    /// rcx at the stop, for the rep string instruction that did not complete.
    stopped: Option<u64>,
}

impl Record<'_> {
    fn slot_bytes(&self, slot: u16) -> Option<&[u8]> {
        let slot = self.plan.slots.get(usize::from(slot))?;
        let start = (slot.offset - ID_BYTES) as usize;
        self.slots.get(start..start + slot.what.bytes() as usize)
    }

    fn slot(&self, slot: u16) -> Option<u64> {
        self.slot_bytes(slot)?.first_chunk().map(|b| u64::from_le_bytes(*b))
    }

    fn value(&self, v: Value) -> Option<u64> {
        let recorded = match v.slot {
            Some(slot) => self.slot(slot)?,
            None => 0,
        };
        Some(recorded.wrapping_add(v.delta as u64))
    }

    /// Gives the accesses that one planned access stands for; none if a slot is missing.
    fn expand(&self, a: &Access, context: &Context, out: &mut impl FnMut(Mem)) -> Option<()> {
        let base = self.value(a.addr.value)?;
        let at = |offset: u64| address(base.wrapping_add(offset), &a.addr, context);
        let one = |offset: u64| Mem {
            addr: at(offset),
            size: a.size,
            count: 1,
            down: false,
            read: a.read,
            write: a.write,
            conditional: a.conditional,
        };
        let size = u64::from(a.size);
        match a.shape {
            Shape::Plain => out(one(0)),
            Shape::Rep { count, left } => {
                let before = self.value(count)?;
                let after = match (self.stopped, left) {
                    (Some(rcx), _) => rcx,
                    (None, Some(left)) => self.slot(left)?,
                    (None, None) => 0,
                };
                let done = before.wrapping_sub(after);
                let count = if a.addr.addr32 { u64::from(done as u32) } else { done };
                if count != 0 {
                    out(Mem { count, down: context.df, ..one(0) });
                }
            }
            Shape::Indexed { index, index_elem, lanes, scale, mask } => {
                let indices = self.slot_bytes(index)?;
                for lane in self.lanes(mask, lanes, a.size)? {
                    let i = element(indices, lane, index_elem)?;
                    out(one(i.wrapping_mul(u64::from(scale))));
                }
            }
            Shape::Masked { lanes, mask } => {
                for lane in self.lanes(mask, lanes, a.size)? {
                    out(one(lane as u64 * size));
                }
            }
            Shape::Any { lanes, mask } => {
                if self.lanes(mask, lanes, a.size)?.next().is_some() {
                    out(one(0));
                }
            }
            Shape::Packed { lanes, mask } => {
                for n in 0..self.lanes(mask, lanes, a.size)?.count() {
                    out(one(n as u64 * size));
                }
            }
            Shape::BitString { bits } => {
                let bits = self.value(bits)?;
                let offset = match a.size {
                    2 => i64::from(bits as i16),
                    4 => i64::from(bits as i32),
                    _ => bits as i64,
                };
                let operand = offset.div_euclid(8 * i64::from(a.size.max(1)));
                out(one((operand as u64).wrapping_mul(size)));
            }
            Shape::PlusLowByte { al } => out(one(self.value(al)? & 0xff)),
            Shape::Block => {
                let m = one(0);
                out(Mem { addr: m.addr & !(size.max(1) - 1), ..m });
            }
        }
        Some(())
    }

    /// The selected lanes, in order.
    fn lanes(&self, mask: LaneBits, lanes: u8, elem: u32) -> Option<impl Iterator<Item = usize>> {
        // A mask register has 64 bits.
        let lanes = 0..usize::from(lanes.min(64));
        let bits = match mask {
            LaneBits::All => u64::MAX,
            LaneBits::Bits(slot) => self.slot(slot)?,
            LaneBits::Signs(slot) => {
                let bytes = self.slot_bytes(slot)?;
                let last = |lane: usize| bytes.get(lane * elem as usize..)?.get(elem as usize - 1);
                let signed = |lane: &usize| elem != 0 && last(*lane).is_some_and(|b| b & 0x80 != 0);
                lanes.clone().filter(signed).fold(0u64, |bits, lane| bits | 1 << lane)
            }
        };
        Some(lanes.filter(move |lane| bits >> lane & 1 != 0))
    }
}

/// Adds the segment base to the sum of the other parts.
fn address(sum: u64, expr: &AddrExpr, context: &Context) -> u64 {
    let sum = if expr.addr32 { u64::from(sum as u32) } else { sum };
    match expr.seg {
        Segment::None => sum,
        Segment::Fs => sum.wrapping_add(context.fs_base),
        Segment::Gs => sum.wrapping_add(context.gs_base),
    }
}

/// One lane of a vector of 4- or 8-byte integers, sign-extended.
fn element(bytes: &[u8], lane: usize, width: u8) -> Option<u64> {
    let start = lane * usize::from(width);
    if width == 4 {
        let b = bytes.get(start..)?.first_chunk()?;
        Some(i64::from(i32::from_le_bytes(*b)) as u64)
    } else {
        bytes.get(start..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
    }
}
