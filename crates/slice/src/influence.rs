//! What the input had an influence on: a forward walk that keeps one bit for each execution, and no graph.
//!
//! Input is what the program was told (the bytes that calls read, files that were mapped, the arguments), or only a part of
//! it ([`CallEffects::input`]); how many bytes came and whether calls failed is not. What start-up code does by itself,
//! whatever the input, is told apart so from what the input made the program do.
//!
//! May miss: what [`mod@crate::backward`] misses, and values that system calls pass on.

use std::collections::HashMap;
use trace::event::Event;
use trace::format::Special;

use crate::code::Code;
use crate::insn::{Control, Insn, Place, Role, Use};
use crate::registers::{REGISTERS, RegId};
use crate::syscalls;
use crate::window::{CallEffects, EVENTS, Window};

/// read, pread64, readv, recvfrom, recvmsg, preadv.
const DELIVER: [u64; 6] = [0, 17, 19, 45, 47, 295];
const MMAP: u64 = 9;
const ANONYMOUS: u64 = 0x20;

/// Executions that the input had an influence on.
#[derive(Default)]
pub struct Influence {
    executions: Vec<u64>,
    /// The walk was ended before the end of the window.
    pub cut: bool,
}

impl Influence {
    /// Did the input have an influence on anything that this execution of a block did?
    pub fn has(&self, execution: u32) -> bool {
        self.executions.get(execution as usize / 64).is_some_and(|word| word >> (execution % 64) & 1 != 0)
    }
}

/// Bytes of registers that the input has an influence on, by register.
type Registers = [u64; REGISTERS];

/// The same of memory.
#[derive(Default)]
struct Memory {
    pages: HashMap<u64, Box<[u64; 64]>>,
}

impl Memory {
    fn set(&mut self, addr: u64, len: u64, on: bool) {
        for at in addr..addr.saturating_add(len.min(1 << 26)) {
            let (page, byte) = (at >> 12, (at & 0xfff) as usize);
            if on {
                self.pages.entry(page).or_insert_with(|| Box::new([0; 64]))[byte / 64] |= 1 << (byte % 64);
            } else if let Some(bits) = self.pages.get_mut(&page) {
                bits[byte / 64] &= !(1 << (byte % 64));
            }
        }
    }

    fn any(&self, addr: u64, len: u64) -> bool {
        (addr..addr.saturating_add(len.min(1 << 16))).any(|at| {
            let bits = self.pages.get(&(at >> 12));
            bits.is_some_and(|bits| bits[(at & 0xfff) as usize / 64] >> (at % 64) & 1 != 0)
        })
    }
}

struct Walk<'w, F> {
    window: &'w Window,
    /// Hears of each instruction that the input has an influence on.
    each: F,
    /// The walk was ended before the end of the window.
    cut: bool,
    regs: Registers,
    others: HashMap<u32, Registers>,
    mem: Memory,
    thread: u32,
    /// Segments at whose ends the input decided.
    decided: Vec<u64>,
    /// Only what input bytes went into counts, not what they decided about.
    data_only: bool,
    /// The last block was the dynamic linker's: what it reads is no input.
    linking: bool,
}

/// Walks a window from its beginning; this memory holds input then. With `data_only` what input decided about does not
/// count, only what it went into.
pub fn influence(
    window: &Window,
    memory: &[(u64, u64)],
    data_only: bool,
    interrupted: &mut dyn FnMut() -> bool,
) -> Influence {
    let mut executions = vec![0; window.blocks.len() / 64 + 1];
    let each = |execution: u32, _: u16| executions[execution as usize / 64] |= 1 << (execution % 64);
    let cut = influenced(window, memory, data_only, each, interrupted);
    Influence { executions, cut }
}

/// The same, instruction by instruction: `each` hears where in the window they are, as in [`crate::Node`]. Answers whether
/// the walk was ended before the end of the window.
pub(crate) fn influenced(
    window: &Window,
    memory: &[(u64, u64)],
    data_only: bool,
    each: impl FnMut(u32, u16),
    interrupted: &mut dyn FnMut() -> bool,
) -> bool {
    let mut walk = Walk {
        window,
        each,
        cut: false,
        regs: [0; REGISTERS],
        others: HashMap::new(),
        mem: Memory::default(),
        thread: window.threads.0,
        decided: vec![0; window.parents.len() / 64 + 1],
        data_only,
        linking: false,
    };
    memory.iter().for_each(|(addr, len)| walk.mem.set(*addr, *len, true));
    walk.run(interrupted);
    walk.cut
}

impl<F: FnMut(u32, u16)> Walk<'_, F> {
    fn run(&mut self, interrupted: &mut dyn FnMut() -> bool) {
        let window = self.window;
        let (mut address, mut segment, mut run, mut start, mut call) = (0, 0u32, 0, 0, 0);
        let mut touched = Vec::new();
        for (execution, number) in window.blocks.iter().enumerate() {
            if execution & 0xffff == 0 && interrupted() {
                self.cut = true;
                return;
            }
            let execution = execution as u32;
            if number != EVENTS {
                let code = &window.codes[number as usize];
                self.linking = code.given;
                self.block(execution, code, address, segment, &mut touched);
                address += code.accesses();
                segment += code.segments.len() as u32;
                continue;
            }
            let end = window.runs[run] as usize;
            run += 1;
            for n in start..end {
                match &window.events[n] {
                    Event::Insn(i) | Event::RepPart(i) => {
                        touched.clear();
                        touched.extend(window.events[n + 1..end].iter().map_while(|e| match e {
                            Event::Mem(m) => Some(m.range()),
                            _ => None,
                        }));
                        if let Some(insn) = window.codes[i.block as usize].insns.get(usize::from(i.index)) {
                            self.visit(insn, (execution, (n - start) as u16), segment, &touched);
                        }
                        segment += 1;
                    }
                    Event::Mem(_) => address += 1,
                    Event::Special(Special::Syscall { .. }) => {
                        self.call(window.calls.get(call).and_then(Option::as_ref));
                        call += 1;
                        segment += 1;
                    }
                    Event::Special(Special::Thread { tid, .. }) => self.turn_to(*tid),
                    Event::Special(_) => {}
                }
            }
            start = end;
        }
    }

    fn turn_to(&mut self, thread: u32) {
        if thread != self.thread {
            let theirs = self.others.remove(&thread).unwrap_or([0; REGISTERS]);
            let mine = std::mem::replace(&mut self.regs, theirs);
            self.others.insert(self.thread, mine);
            self.thread = thread;
        }
    }

    fn block(&mut self, execution: u32, code: &Code, address: usize, segment: u32, touched: &mut Vec<(u64, u64)>) {
        for (n, insn) in code.insns.iter().enumerate() {
            let first = address + code.accesses_of(n).start;
            touched.clear();
            let sizes = insn.mem.iter().take(code.accesses_of(n).len()).enumerate();
            touched.extend(sizes.map(|(k, m)| (self.window.addresses.at(first + k), u64::from(m.size))));
            self.visit(insn, (execution, n as u16), segment + code.segment_of(n as u16) as u32, touched);
        }
    }

    fn is_decided(&self, segment: u32) -> bool {
        // What was decided before the window has a number beyond its segments.
        let parent = self.window.parents.at(segment);
        self.decided.get(parent as usize / 64).is_some_and(|word| word >> (parent % 64) & 1 != 0)
    }

    fn visit(&mut self, insn: &Insn, (execution, number): (u32, u16), segment: u32, touched: &[(u64, u64)]) {
        let by_control = !self.data_only && self.is_decided(segment);
        let mut any = by_control;
        let mut results = 0u64;
        for (n, part) in insn.parts.iter().enumerate().take(64) {
            if by_control || part.uses.iter().any(|u| self.is_used(u, touched)) {
                results |= 1 << n;
                any = true;
            }
        }
        let decides = insn.decides.iter().any(|u| self.is_used(u, touched));
        if decides || by_control && (!insn.decides.is_empty() || insn.control == Control::Call) {
            any = true;
            self.decided[segment as usize / 64] |= 1 << (segment % 64);
        }
        if any {
            (self.each)(execution, number);
        }
        for (n, part) in insn.parts.iter().enumerate() {
            let on = results >> n.min(63) & 1 != 0;
            for def in &part.defs {
                match def.place {
                    Place::Reg(r) if r == RegId::RSP => {}
                    Place::Reg(r) => {
                        let bits = &mut self.regs[usize::from(r.0)];
                        if on {
                            *bits |= def.mask;
                        } else if def.kills {
                            *bits &= !def.mask;
                        }
                    }
                    Place::Mem(m) => {
                        if let Some((addr, len)) = touched.get(usize::from(m)).filter(|_| on || def.kills) {
                            self.mem.set(*addr, *len, on);
                        }
                    }
                }
            }
        }
    }

    fn is_used(&self, u: &Use, touched: &[(u64, u64)]) -> bool {
        match u.place {
            Place::Reg(r) => r != RegId::RSP && self.regs[usize::from(r.0)] & u.mask != 0,
            Place::Mem(m) => {
                let range = touched.get(usize::from(m)).filter(|_| u.role == Role::Value);
                range.is_some_and(|(addr, len)| self.mem.any(*addr, *len))
            }
        }
    }

    fn call(&mut self, effects: Option<&CallEffects>) {
        self.regs[usize::from(RegId::RAX.0)] = 0;
        let Some(effects) = effects else { return };
        let delivers = DELIVER.contains(&effects.nr) && !self.linking && effects.input.is_none();
        for (addr, len) in &effects.writes {
            self.mem.set(*addr, *len, delivers);
        }
        if let Some((addr, len)) = syscalls::maps(effects) {
            let file = effects.nr == MMAP && effects.args[3] & ANONYMOUS == 0;
            self.mem.set(addr, len, file && !self.linking && effects.input.is_none());
        }
        for (addr, len) in effects.input.iter().flatten() {
            self.mem.set(*addr, *len, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{Known, Made};

    const BUFFER: u64 = 0x5000;

    /// Which of two loads, of the first and of the second half of what a call read, have input.
    fn check_input(input: Option<Vec<(u64, u64)>>, expected: [bool; 2]) {
        let mut made = Made::default();
        // mov eax, [rsi], of either half
        let load = made.block(0x2000, "8b 06");
        made.call(CallEffects { writes: vec![(BUFFER, 8)], result: 8, input, ..CallEffects::default() });
        made.ran(load, &[BUFFER]);
        made.ran(load, &[BUFFER + 4]);
        let window = made.window(&mut Known::default());
        let found = influence(&window, &[], false, &mut || false);
        assert_eq!([1, 2].map(|execution| found.has(execution)), expected);
    }

    #[test]
    fn of_what_a_call_read_only_the_bytes_that_count_are_input() {
        check_input(None, [true, true]);
        check_input(Some(vec![(BUFFER + 5, 1)]), [false, true]);
        check_input(Some(Vec::new()), [false, false]);
    }
}
