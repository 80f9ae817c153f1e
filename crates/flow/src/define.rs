//! What code might write that did not run: the other side of a branch, up to where it merges.
//!
//! Relevant slices (Gyimóthy, Beszédes and Forgács 1999; Qi 2013, chapter VI) ask it of every branch. The answer is an
//! over-approximation under the System V ABI: registers and flags by instruction, stores by [`crate::Place`], callees by
//! the union over all functions that may be reached from them. Code that is not in the image, computed calls and call
//! trees beyond the limit may write anything that a pointer can reach, and say so.
//!
//! What it may miss: stores below the stack pointer of a callee, which are dead when it returns, but which a read of an
//! uninitialised variable could see.

use std::collections::BTreeSet;
use std::ops::Range;

use isa::{Effects, Isa, Reg};

use crate::code::Memory;
use crate::function::{CallTarget, Function, Merge};
use crate::places::{PRESERVED, Place, Places, stores};

/// What might be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MayDefine {
    /// General purpose registers, by hardware number; rsp is left out, since it is the same again at a merge.
    pub gprs: u16,
    /// Vector registers.
    pub vectors: u32,
    /// x87, MMX, mask or control registers.
    pub other_registers: bool,
    /// The arithmetic flags.
    pub flags: bool,
    /// Bytes of the frame, as offsets from the stack pointer at the function's entry; sorted, apart from each other.
    pub frame: Vec<Range<i64>>,
    /// Offsets in the frame from which on a store with an index may write.
    pub unbounded_frame: Vec<i64>,
    /// Image addresses; sorted, apart from each other.
    pub absolute: Vec<Range<u64>>,
    /// Image addresses from which on a store with an index may write.
    pub unbounded_absolute: Vec<u64>,
    /// Offsets from the fs base.
    pub thread: Vec<Range<i64>>,
    /// Some store has an address that is not known.
    pub through_pointers: bool,
    /// Some call leads to code that is not known here, which may write anything that it can reach.
    pub calls_unknown: bool,
}

impl MayDefine {
    /// Nothing is written.
    pub fn is_empty(&self) -> bool {
        *self == MayDefine::default()
    }

    /// Might any of these bytes of the frame be written by a store whose place is known?
    pub fn touches_frame(&self, bytes: Range<i64>) -> bool {
        self.frame.iter().any(|r| r.start < bytes.end && bytes.start < r.end)
    }

    /// Might any of these image addresses be written by a store whose place is known?
    pub fn touches_absolute(&self, bytes: Range<u64>) -> bool {
        self.absolute.iter().any(|r| r.start < bytes.end && bytes.start < r.end)
    }

    fn add_place(&mut self, place: Place) {
        match place {
            Place::Frame(bytes) => self.frame.push(bytes),
            Place::FrameFrom(base) => self.unbounded_frame.push(base),
            Place::Absolute(bytes) => self.absolute.push(bytes),
            Place::AbsoluteFrom(base) => self.unbounded_absolute.push(base),
            Place::Thread(bytes) => self.thread.push(bytes),
            Place::Computed => self.through_pointers = true,
        }
    }

    /// Code of which nothing is known but that it keeps to the ABI.
    pub fn add_unknown_code(&mut self) {
        self.add_clobbers();
        self.through_pointers = true;
        self.calls_unknown = true;
    }

    /// The registers that a callee need not give back.
    fn add_clobbers(&mut self) {
        self.gprs |= !PRESERVED;
        self.vectors = u32::MAX;
        self.other_registers = true;
        self.flags = true;
    }

    /// What a callee does, seen from its caller: `frame_shift` is added to offsets of its frame, of which only those at
    /// or above its arguments are the caller's.
    pub fn add_callee(&mut self, callee: &MayDefine, frame_shift: Option<i64>) {
        self.gprs |= callee.gprs & !PRESERVED;
        self.vectors |= callee.vectors;
        self.other_registers |= callee.other_registers;
        self.flags |= callee.flags;
        self.absolute.extend_from_slice(&callee.absolute);
        self.unbounded_absolute.extend_from_slice(&callee.unbounded_absolute);
        self.thread.extend_from_slice(&callee.thread);
        self.through_pointers |= callee.through_pointers;
        self.calls_unknown |= callee.calls_unknown;
        self.through_pointers |= callee.unbounded_frame.iter().any(|base| *base >= RETURN_ADDRESS.end);
        for bytes in callee.frame.iter().filter(|b| b.end > RETURN_ADDRESS.end) {
            let Some(shift) = frame_shift.filter(|_| *bytes != crate::places::ANYWHERE) else {
                self.through_pointers = true;
                continue;
            };
            self.frame.push(bytes.start.max(RETURN_ADDRESS.end).saturating_add(shift)..bytes.end.saturating_add(shift));
        }
    }

    /// Without bounded stores to the caller's frame.
    pub fn without_arguments(&self) -> MayDefine {
        let mut out = self.clone();
        out.frame.retain(|bytes| *bytes == crate::places::ANYWHERE);
        out
    }

    pub fn tidy(&mut self) {
        coalesce(&mut self.frame);
        coalesce(&mut self.absolute);
        coalesce(&mut self.thread);
        self.unbounded_frame.sort_unstable();
        self.unbounded_frame.dedup();
        self.unbounded_absolute.sort_unstable();
        self.unbounded_absolute.dedup();
    }
}

/// Where the return address lies, relative to the stack pointer at entry.
const RETURN_ADDRESS: Range<i64> = 0..8;

fn coalesce<T: Copy + Ord>(ranges: &mut Vec<Range<T>>) {
    ranges.retain(|r| r.start < r.end);
    ranges.sort_unstable_by_key(|r| (r.start, r.end));
    let mut out: Vec<Range<T>> = Vec::with_capacity(ranges.len());
    for range in ranges.drain(..) {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    *ranges = out;
}

/// A call or tail call in a region, with the stack pointer there.
#[derive(Clone, Debug)]
pub struct RegionCall {
    pub pc: u64,
    pub target: CallTarget,
    /// What to add to the callee's frame offsets to get the caller's.
    pub frame_shift: Option<i64>,
}

/// What the instructions of a region write themselves, and what it calls.
#[derive(Clone, Debug, Default)]
pub struct Region {
    pub own: MayDefine,
    pub calls: Vec<RegionCall>,
}

/// The region from `from` on, without what comes after control has passed `until`.
pub fn region(memory: &Memory, isa: &mut Isa, function: &Function, places: &Places, from: u64, until: Merge) -> Region {
    let mut region = Region::default();
    let stop = if let Merge::At(at) = until { Some(at) } else { None };
    let Some(first) = function.block_index(from).filter(|_| Some(from) != stop) else { return region };
    let mut effects = Effects::default();
    // The first block is entered in its middle; if control comes back to it, the rest of it counts too.
    let mut seen = BTreeSet::new();
    let mut work = vec![(first, Some(from))];
    while let Some((block, from)) = work.pop() {
        if !seen.insert((block, from)) {
            continue;
        }
        let mut over = false;
        places.visit(memory, isa, function, block, from, &mut |isa, instruction, state| {
            let at = instruction.ip();
            over |= Some(at) == stop;
            if over {
                return;
            }
            isa.effects(instruction, &mut effects);
            add_registers(&mut region.own, &effects);
            for place in stores(&effects, instruction, state) {
                region.own.add_place(place);
            }
            let of_pc = function.calls.partition_point(|c| c.pc < at);
            for call in function.calls[of_pc..].iter().take_while(|c| c.pc == at) {
                // The callee's entry is 8 below the stack pointer before the call, or the same for a tail call.
                let pushed = if call.tail { 0 } else { 8 };
                let frame_shift = state.stack_offset().map(|o| o.wrapping_sub(pushed));
                region.calls.push(RegionCall { pc: at, target: call.target, frame_shift });
            }
        });
        if !over {
            work.extend(function.blocks[block].successors.iter().map(|next| (*next as usize, None)));
        }
    }
    region.own.tidy();
    region
}

fn add_registers(out: &mut MayDefine, effects: &Effects) {
    for access in effects.regs.iter().filter(|a| a.write) {
        match access.reg {
            Reg::Gpr(g) => out.gprs |= (1 << g) & !(1 << isa::RSP),
            Reg::Vec(v) => out.vectors |= 1 << v,
            Reg::Rip => {}
            _ => out.other_registers = true,
        }
    }
    if !(effects.flags_written | effects.flags_undefined).is_empty() {
        out.flags = true;
    }
    let x87 = effects.x87.control.write || effects.x87.status_write != 0 || effects.x87.tags.write;
    out.other_registers |= x87 || effects.mxcsr.write;
}

/// How a library function that is known by name writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    /// Registers only.
    Nothing,
    /// What its arguments point to.
    Arguments,
    Unknown,
}

const WRITES_NOTHING: &[&str] = &[
    "strlen",
    "strnlen",
    "strcmp",
    "strncmp",
    "strcasecmp",
    "strncasecmp",
    "memcmp",
    "bcmp",
    "memchr",
    "memrchr",
    "strchr",
    "strrchr",
    "strstr",
    "strspn",
    "strcspn",
    "strpbrk",
    "abs",
    "labs",
    "atoi",
    "atol",
    "atoll",
    "atof",
    "toupper",
    "tolower",
    "isalpha",
    "isdigit",
    "isspace",
    "isalnum",
    "isupper",
    "islower",
    "isprint",
    "ispunct",
    "isxdigit",
    "__ctype_b_loc",
    "__ctype_tolower_loc",
    "__ctype_toupper_loc",
    "__errno_location",
    "getenv",
    "floor",
    "ceil",
    "fabs",
];

const WRITES_ARGUMENTS: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "mempcpy",
    "strcpy",
    "strncpy",
    "strcat",
    "strncat",
    "stpcpy",
    "sprintf",
    "snprintf",
    "vsprintf",
    "vsnprintf",
    "sscanf",
    "fgets",
    "fread",
    "read",
    "recv",
    "strtol",
    "strtoul",
    "strtod",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__strcpy_chk",
    "__strncpy_chk",
    "__strcat_chk",
    "__sprintf_chk",
    "__snprintf_chk",
];

fn library(name: &str) -> Library {
    let plain = name.split('@').next().unwrap_or(name);
    match () {
        () if WRITES_NOTHING.contains(&plain) => Library::Nothing,
        () if WRITES_ARGUMENTS.contains(&plain) => Library::Arguments,
        () => Library::Unknown,
    }
}

impl MayDefine {
    /// A function of another image, known by name or not at all.
    pub fn add_import(&mut self, name: Option<&str>) {
        match name.map_or(Library::Unknown, library) {
            Library::Nothing => self.add_clobbers(),
            Library::Arguments => {
                self.add_clobbers();
                self.through_pointers = true;
            }
            Library::Unknown => self.add_unknown_code(),
        }
    }
}
