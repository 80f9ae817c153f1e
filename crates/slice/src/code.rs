//! A block of code as slices use it: its instructions, and summaries that tell quickly whether it matters.

use trace::block::Block;

use crate::facts::{Border, Facts};
use crate::insn::{Control, Insn, Maker, Place, StateMove};
use crate::quick::Quick;

/// What an instruction stores, as far as it can be told quickly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Store {
    None,
    /// One access of the block, of this size.
    One(u16, u32),
    /// It must be looked at.
    Other,
}

/// What a backward walk looks at first of an instruction: might it matter?
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// Registers that it may define, as bits.
    pub defines: u64,
    pub store: Store,
    /// Its segment, counted in this block.
    pub segment: u16,
    pub border: Option<Border>,
    /// What it makes of what, if that is simple.
    pub quick: Option<Quick>,
}

/// What a backward walk looks at first of a block. Kept apart from the rest, so that those of all blocks that run often
/// stay in the processor's cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outline {
    /// Registers that it may define, as bits.
    pub defines: u64,
    pub store: Store,
    pub accesses: u32,
    pub segments: u16,
    /// It saves the registers for floating point and vectors as a whole.
    pub saves_state: bool,
}

/// One block.
#[derive(Clone, Debug)]
pub struct Code {
    pub pc: u64,
    pub end: u64,
    pub insns: Vec<Insn>,
    /// First access of each instruction among the block's, and behind the last one their number.
    pub first_access: Vec<u16>,
    /// Registers that it may define, as bits.
    pub defines: u64,
    /// Accesses that write: number and size.
    pub stores: Vec<(u16, u32)>,
    /// Where segments begin: the first instruction, and merge points of branches.
    pub segments: Vec<u16>,
    /// It is the dynamic linker's: what it makes is taken as given.
    pub given: bool,
    /// It saves the registers for floating point and vectors as a whole.
    pub saves_state: bool,
    /// What registers of callers its instructions save and restore.
    pub borders: Vec<(u16, Border)>,
    /// One for each instruction.
    pub(crate) steps: Vec<Step>,
    /// The number of its first instruction among those of all codes of its window.
    pub(crate) first_site: u32,
}

impl Code {
    pub fn new(block: &Block, maker: &mut Maker) -> Code {
        let mut code = Code {
            pc: block.pc,
            end: block.insns.last().map_or(block.pc, |i| i.next_ip()),
            insns: Vec::with_capacity(block.insns.len()),
            first_access: vec![0],
            defines: 0,
            stores: Vec::new(),
            segments: vec![0],
            given: false,
            saves_state: false,
            borders: Vec::new(),
            steps: Vec::new(),
            first_site: 0,
        };
        for (n, i) in block.insns.iter().enumerate() {
            let accesses = block.plan.accesses_of(n);
            let insn = maker.insn(i, accesses);
            let first = *code.first_access.last().unwrap_or(&0);
            for part in &insn.parts {
                for def in &part.defs {
                    match def.place {
                        Place::Reg(r) => code.defines |= r.bit(),
                        Place::Mem(m) => {
                            code.stores.push((first + u16::from(m), accesses[usize::from(m)].size));
                        }
                    }
                }
            }
            code.first_access.push(first + accesses.len() as u16);
            code.saves_state |= insn.state == Some(StateMove::Save);
            code.insns.push(insn);
        }
        code
    }

    /// Takes in what is known about the program.
    pub fn refine(&mut self, facts: &mut dyn Facts, bypass: bool) {
        let merges = facts.merge_points(self.pc, self.end);
        let index_of = |pc: u64| self.insns.iter().position(|i| i.pc == pc).map(|n| n as u16);
        self.segments = [0].into_iter().chain(merges.into_iter().filter_map(index_of).filter(|n| *n > 0)).collect();
        self.segments.dedup();
        self.given = facts.is_linker(self.pc);
        self.borders.clear();
        if bypass {
            let border = |(n, i): (usize, &Insn)| facts.border(i.pc).map(|b| (n as u16, b));
            self.borders = self.insns.iter().enumerate().filter_map(border).collect();
        }
        self.steps = (0..self.insns.len()).map(|n| self.step(n)).collect();
    }

    pub(crate) fn outline(&self) -> Outline {
        let store = match self.stores[..] {
            [] => Store::None,
            [(access, size)] if size != 0 => Store::One(access, size),
            _ => Store::Other,
        };
        Outline {
            defines: self.defines,
            store,
            accesses: self.accesses() as u32,
            segments: self.segments.len() as u16,
            saves_state: self.saves_state,
        }
    }

    fn step(&self, n: usize) -> Step {
        let insn = &self.insns[n];
        let accesses = self.accesses_of(n);
        let mut stores = self.stores.iter().filter(|(access, _)| accesses.contains(&usize::from(*access)));
        let store = match (stores.next(), stores.next()) {
            _ if insn.state.is_some() => Store::Other,
            (None, _) => Store::None,
            (Some((access, size)), None) if *size != 0 => Store::One(*access, *size),
            _ => Store::Other,
        };
        let segment = self.segment_of(n as u16) as u16;
        let border = self.border(n as u16);
        let quick = if self.given { None } else { Quick::new(insn, accesses, border) };
        Step { defines: insn.defines, store, segment, border, quick }
    }

    pub fn accesses(&self) -> usize {
        usize::from(*self.first_access.last().unwrap_or(&0))
    }

    pub fn accesses_of(&self, insn: usize) -> std::ops::Range<usize> {
        usize::from(self.first_access[insn])..usize::from(self.first_access[insn + 1])
    }

    pub fn control(&self) -> Control {
        self.insns.last().map_or(Control::Next, |i| i.control)
    }

    pub fn border(&self, insn: u16) -> Option<Border> {
        self.borders.iter().find(|(n, _)| *n == insn).map(|(_, b)| *b)
    }

    /// The segment of an instruction, counted in this block.
    pub fn segment_of(&self, insn: u16) -> usize {
        self.segments.partition_point(|s| *s <= insn) - 1
    }
}
