//! Where the nodes of a slice are shown, kept beyond the windows that they are in.
//!
//! A node is shown where it is or, if its code is not of interest by itself, at the call that led there: perhaps in a window
//! that is traced only later. What names a variable that a node used, the frame it ran in, is kept as well, and so are the
//! records of system calls. This takes four bytes for each node and some forty for each executed segment that has one.

use std::collections::HashMap;

use crate::graph::{Called, Node};
use crate::seam::Waiting;
use crate::sites::Sites;
use crate::wants::FastMap;
use crate::window::{NOTHING, Window};

/// An execution of the code at an address: tells it from other ones, in whatever window they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    pub execution: u64,
    pub pc: u64,
}

/// One executed segment that has nodes.
struct Segment {
    execution: u64,
    /// The call that led there, if one of its nodes needs it and it is known.
    called_from: Option<Shown>,
    /// Where the return address of its frame lies; 0 if that is not known.
    slot: u64,
}

/// Where a segment that is not shown itself was called from.
#[derive(Clone, Copy)]
enum Caller {
    Here(Shown),
    /// In a window before, by the number of a parent.
    Earlier(u32),
    Nowhere,
}

/// The places of all nodes of a slice.
#[derive(Default)]
pub struct Places {
    /// For each node the number of its segment.
    segment_of: Vec<u32>,
    segments: Vec<Segment>,
    /// Segments whose callers are in windows before those seen.
    waiting: Waiting<Vec<u32>>,
    /// The system calls among the nodes.
    calls: HashMap<u32, Called>,
    windows: u32,
}

/// One window on the way back.
struct Climb<'w> {
    sites: Sites<'w>,
    number: u32,
    known: FastMap<u32, Caller>,
}

impl Climb<'_> {
    fn execution(&self, segment: u32) -> u64 {
        u64::from(self.number) << 32 | u64::from(segment)
    }

    /// Outwards from a segment to the first one of interest, or to one from which the way is known.
    fn caller(&mut self, window: &Window, segment: u32, is_own: &mut dyn FnMut(u64) -> bool) -> Caller {
        let mut way = Vec::new();
        let mut at = segment;
        let found = loop {
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            way.push(at);
            match window.parents.get(at) {
                None | Some(NOTHING) => break Caller::Nowhere,
                Some(parent) if window.earliers.of(parent).is_some() => break Caller::Earlier(parent),
                Some(parent) => match self.own(parent, is_own) {
                    Some(shown) => break Caller::Here(shown),
                    None => at = parent,
                },
            }
        };
        self.known.extend(way.into_iter().map(|s| (s, found)));
        found
    }

    /// The end of a segment, if it is of interest.
    fn own(&self, segment: u32, is_own: &mut dyn FnMut(u64) -> bool) -> Option<Shown> {
        let pc = self.sites.pc(segment).filter(|pc| is_own(*pc))?;
        Some(Shown { execution: self.execution(segment), pc })
    }
}

impl Places {
    /// Takes in a window that was walked: its nodes are those of `nodes` that are not known yet. `is_own` says which code is
    /// of interest by itself.
    pub fn add(&mut self, window: &Window, nodes: &[Node], is_own: &mut dyn FnMut(u64) -> bool) {
        self.windows += 1;
        let mut climb = Climb { sites: Sites::new(window), number: self.windows, known: FastMap::default() };
        for (segment, waiting) in self.waiting.enter(window, |old, new| old.extend(new)) {
            match climb.own(segment, is_own) {
                Some(shown) => waiting.iter().for_each(|n| self.segments[*n as usize].called_from = Some(shown)),
                None => self.place(climb.caller(window, segment, is_own), window, waiting),
            }
        }
        let (mut last, mut is_placed) = (None, false);
        for node in &nodes[self.segment_of.len()..] {
            if last != Some(node.segment) {
                let (execution, slot) = (climb.execution(node.segment), window.slot(node.execution).unwrap_or(0));
                self.segments.push(Segment { execution, called_from: None, slot });
                (last, is_placed) = (Some(node.segment), false);
            }
            let number = self.segments.len() as u32 - 1;
            if let Some(call) = node.call.map(|c| window.call(c)) {
                let called = Called { nr: call.map_or(u64::MAX, |c| c.nr), record: call.map(|c| c.record) };
                self.calls.insert(self.segment_of.len() as u32, called);
            }
            self.segment_of.push(number);
            if !is_placed && !is_own(node.pc) {
                is_placed = true;
                self.place(climb.caller(window, node.segment, is_own), window, vec![number]);
            }
        }
        self.waiting.leave(window);
    }

    fn place(&mut self, caller: Caller, window: &Window, segments: Vec<u32>) {
        match caller {
            Caller::Here(shown) => segments.iter().for_each(|n| self.segments[*n as usize].called_from = Some(shown)),
            Caller::Earlier(parent) => {
                if let Some(earlier) = window.earliers.of(parent) {
                    self.waiting.add(earlier, segments, |old, new| old.extend(new));
                }
            }
            Caller::Nowhere => {}
        }
    }

    /// Some nodes are shown at calls before the windows seen.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn segment(&self, node: u32) -> Option<&Segment> {
        self.segments.get(*self.segment_of.get(node as usize)? as usize)
    }

    /// Where a node is shown whose code, at `pc`, is of interest by itself, or is not.
    pub fn shown(&self, node: u32, pc: u64, is_own: bool) -> Option<Shown> {
        let segment = self.segment(node)?;
        let itself = Shown { execution: segment.execution, pc };
        if is_own { Some(itself) } else { segment.called_from }
    }

    /// Where the return address of a node's frame lies.
    pub fn slot(&self, node: u32) -> Option<u64> {
        self.segment(node).map(|s| s.slot).filter(|s| *s != 0)
    }

    /// The record of a node that is a system call.
    pub fn record(&self, node: u32) -> Option<u64> {
        self.calls.get(&node)?.record
    }

    /// All system calls among the nodes, in no order.
    pub fn calls(&self) -> impl Iterator<Item = &Called> {
        self.calls.values()
    }
}
