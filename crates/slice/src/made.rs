//! Hand-made windows for tests: blocks from bytes, run in any order with any addresses.

use model::GuestAddr;
use model::wire::BlockDef;
use trace::block::Block;
use trace::event::{Event, Insn as InsnEvent, Mem};
use trace::format::Special;
use trace::plan::Planner;

use crate::code::Code;
use crate::facts::{Border, Facts, Merge};
use crate::graph::{Input, Slice};
use crate::insn::Maker;
use crate::window::{CallEffects, EVENTS, Window};
use crate::{Criterion, Options, backward};

/// What tests know about their code.
#[derive(Default)]
pub struct Known {
    /// Where branches merge.
    pub merges: Vec<(u64, u64)>,
    pub borders: Vec<(u64, Border)>,
}

impl Facts for Known {
    fn other_ways(&mut self, _: u64, _: u64) -> crate::facts::MayDefine {
        crate::facts::MayDefine::default()
    }

    fn merge(&mut self, branch: u64) -> Merge {
        self.merges.iter().find(|(b, _)| *b == branch).map_or(Merge::Exit, |(_, at)| Merge::At(*at))
    }
    fn is_merge_point(&mut self, pc: u64) -> bool {
        self.merges.iter().any(|(_, at)| *at == pc)
    }
    fn merge_points(&mut self, start: u64, end: u64) -> Vec<u64> {
        let mut points: Vec<u64> = self.merges.iter().map(|(_, at)| *at).filter(|p| (start..end).contains(p)).collect();
        points.sort_unstable();
        points.retain(|p| *p > start);
        points
    }
    fn border(&mut self, pc: u64) -> Option<Border> {
        self.borders.iter().find(|(at, _)| *at == pc).map(|(_, b)| *b)
    }
    fn observe(&mut self, _: u64, _: u64) {}
    fn same_function(&mut self, a: u64, b: u64) -> bool {
        a >> 12 == b >> 12
    }
    fn is_linker(&mut self, _: u64) -> bool {
        false
    }
}

/// A window in the making.
#[derive(Default)]
pub struct Made {
    window: Window,
    maker: Maker,
    planner: Option<Planner>,
    calls: Vec<CallEffects>,
}

impl Made {
    /// A block of code; gives its number.
    pub fn block(&mut self, pc: u64, hex: &str) -> u32 {
        let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|d| (d[0] << 4 | d[1]) as u8).collect();
        let id = self.window.codes.len() as u32;
        let planner = self.planner.get_or_insert_with(Planner::new);
        let block = Block::new(&BlockDef { id, pc: GuestAddr(pc), bytes }, planner).expect("it decodes");
        self.window.add_code(Code::new(&block, &mut self.maker))
    }

    /// The block runs and touches these addresses.
    pub fn ran(&mut self, block: u32, addresses: &[u64]) {
        assert_eq!(self.window.codes[block as usize].accesses(), addresses.len(), "addresses of block {block}");
        self.window.blocks.push(block);
        self.window.addresses.extend(addresses);
    }

    /// The string instruction that a block consists of runs so many times; addresses, and whether they are read.
    pub fn ran_long(&mut self, block: u32, count: u64, addresses: &[(u64, bool)]) {
        let code = &self.window.codes[block as usize];
        let insn = InsnEvent { thread: self.window.threads.1, pc: code.pc, block, index: 0 };
        self.window.events.push(Event::Insn(insn));
        for (addr, read) in addresses {
            let (addr, read, write) = (*addr, *read, !*read);
            let mem = Mem { addr, size: 1, count, down: false, read, write, conditional: false };
            self.window.events.push(Event::Mem(mem));
            self.window.addresses.push(addr);
        }
        self.close_events();
    }

    fn event(&mut self, event: Event) {
        self.window.events.push(event);
        self.close_events();
    }

    fn close_events(&mut self) {
        self.window.runs.push(self.window.events.len() as u32);
        self.window.blocks.push(EVENTS);
    }

    /// From here on another thread runs.
    pub fn thread(&mut self, tid: u32) {
        self.window.ran_before.push(self.window.threads.1);
        self.window.threads.1 = tid;
        self.event(Event::Special(Special::Thread { tid, fs_base: 0, gs_base: 0 }));
    }

    pub fn call(&mut self, effects: CallEffects) {
        let (pc, nr, result) = (effects.pc, effects.nr, effects.result as u64);
        self.event(Event::Special(Special::Syscall { pc, nr, result }));
        self.calls.push(effects);
    }

    /// The slice of a criterion: addresses of its instructions in the order they ran, and how many inputs it has.
    pub fn slice(self, known: &mut Known, criterion: &Criterion, options: &Options) -> (Vec<u64>, Vec<Input>) {
        let slice = self.whole_slice(known, criterion, options);
        let mut nodes: Vec<_> = slice.nodes[1..].iter().map(|n| (n.execution, n.insn, n.pc)).collect();
        nodes.sort_unstable();
        (nodes.into_iter().map(|n| n.2).collect(), slice.inputs)
    }

    pub fn whole_slice(self, known: &mut Known, criterion: &Criterion, options: &Options) -> Slice {
        backward(&self.window(known), criterion, options, known, &mut || false)
    }

    /// The window, prepared.
    pub fn window(mut self, known: &mut Known) -> Window {
        for code in &mut self.window.codes {
            code.refine(known, true);
        }
        self.window.calls = self.calls.into_iter().map(Some).collect();
        crate::control::find_parents(&mut self.window, known, false);
        self.window
    }
}
