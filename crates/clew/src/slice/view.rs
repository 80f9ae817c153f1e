//! What an answer has of one process, in lines: places of nodes, and why lines depend on each other.

use super::Part;
use super::lines::{self, Lines, Origin, Origins};
use crate::cli::Slice as Options;
use image::Storage;
use model::GuestAddr;
use slice::{Shown, Why};
use std::collections::{BTreeSet, HashSet};

/// One part and how its nodes are shown.
pub struct View<'a> {
    pub part: &'a Part,
    pub lines: Lines,
    origins: Origins<'a>,
    /// Code of libraries is shown by itself.
    libs: bool,
}

impl<'a> View<'a> {
    /// `died` is the address of an instruction that crashed there.
    pub fn new(part: &'a Part, died: Option<u64>, options: &Options) -> View<'a> {
        let mut origins = Origins::new(&part.loaded, &|n| part.paths.get(n).cloned().flatten());
        let libs = options.libs;
        let mut shown = |number: u32, node: &slice::Node, origins: &mut Origins<'_>| {
            part.places.shown(number, node.pc, libs || origins.is_own(node.pc))
        };
        let lines = lines::gather_ran(&part.ran, &part.slice, &part.data, died, &mut origins, (&mut shown, libs));
        View { part, lines, origins, libs }
    }

    /// Where a node is shown; nothing if nobody's own code led there.
    fn shown(&mut self, number: u32) -> Option<Shown> {
        let pc = self.part.slice.nodes[number as usize].pc;
        self.part.places.shown(number, pc, self.libs || self.origins.is_own(pc))
    }

    pub fn own_lines(&self) -> usize {
        self.lines.list.iter().filter(|l| l.origin.own && l.origin.line.is_some()).count()
    }

    /// Edges between lines: user, maker, what for.
    pub fn line_edges(&mut self) -> BTreeSet<(String, String, String)> {
        let part = self.part;
        let (mut all, mut told) = (BTreeSet::new(), HashSet::new());
        for edge in &part.slice.edges {
            let Some(shown) = self.shown(edge.maker) else { continue };
            // Executions of the same instructions have much the same edges; what names a variable is told by the frame.
            let pc = part.slice.nodes[edge.user as usize].pc;
            let user = (pc, self.shown(edge.user).map(|s| s.pc), part.places.slot(edge.user));
            if !told.insert((user, shown.pc, edge.why)) {
                continue;
            }
            let (user, maker) = (self.line_of(edge.user), self.line_of(edge.maker));
            if user != maker {
                all.insert((user, maker, self.because(edge.why, edge.user)));
            }
        }
        // Control dependences are told by the nodes' nearest users.
        let mut decided = HashSet::new();
        for (n, node) in part.slice.nodes.iter().enumerate().skip(1).filter(|(_, n)| n.why == Why::Control) {
            let itself = |number: u32| part.slice.nodes[number as usize].pc;
            let [user, maker] = [node.via, n as u32].map(|n| self.shown(n).map_or(itself(n), |s| s.pc));
            if !decided.insert((user, maker)) {
                continue;
            }
            let (user, maker) = (self.line_of(node.via), self.line_of(n as u32));
            if user != maker {
                all.insert((user, maker, "decided".into()));
            }
        }
        all
    }

    /// Why `user` depends on another node, with the name of the variable that the value was in.
    pub fn because(&self, why: Why, user: u32) -> String {
        match why {
            Why::Criterion => "asked for".into(),
            Why::Reg(reg) => format!("through {}", reg.name()),
            Why::Mem(addr) => match self.variable(addr, user) {
                Some(name) => format!("through {name}"),
                None => format!("through memory at {addr:#x}"),
            },
            Why::Control => "decided".into(),
            Why::Potential => "might have changed it".into(),
        }
    }

    /// What the code of `user` calls the byte at an address.
    fn variable(&self, addr: u64, user: u32) -> Option<String> {
        let part = self.part;
        let what = Storage::Memory { at: GuestAddr(addr), size: 0 };
        let node = part.slice.nodes.get(user as usize).filter(|_| user != 0);
        let in_frame = node.and_then(|n| {
            let slot = part.places.slot(user)?;
            part.loaded.name_in_frame(GuestAddr(n.pc), GuestAddr(slot + 8), what)
        });
        in_frame.or_else(|| part.loaded.global_at(GuestAddr(addr), 0))
    }

    /// What is shown for a node.
    pub fn origin_of(&mut self, number: u32) -> Origin {
        let itself = self.part.slice.nodes[number as usize].pc;
        let pc = self.shown(number).map_or(itself, |s| s.pc);
        self.origins.of(pc).clone()
    }

    pub fn line_of(&mut self, number: u32) -> String {
        match number {
            0 => "criterion".into(),
            n => self.origin_of(n).short(),
        }
    }
}
