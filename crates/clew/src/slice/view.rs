//! What an answer has of one process, in lines: places of nodes, and why lines depend on each other.

use super::Part;
use super::lines::{self, Lines, Origin, Origins, Squash};
use crate::cli::Slice as Options;
use image::Storage;
use model::GuestAddr;
use slice::{Node, Why};
use std::collections::BTreeSet;

/// One part and how its nodes are shown.
pub struct View<'a> {
    pub part: &'a Part,
    pub lines: Lines,
    origins: Origins<'a>,
    squash: Squash<'a>,
}

impl<'a> View<'a> {
    /// `died` is the address of an instruction that crashed there.
    pub fn new(part: &'a Part, died: Option<u64>, options: &Options) -> View<'a> {
        let mut origins = Origins::new(&part.loaded, &|n| part.paths.get(n).cloned().flatten());
        let mut squash = Squash::new(&part.window, options.libs);
        let lines = lines::gather_ran(&part.ran, &part.slice, &part.data, died, &mut origins, &mut squash);
        View { part, lines, origins, squash }
    }

    pub fn own_lines(&self) -> usize {
        self.lines.list.iter().filter(|l| l.origin.own && l.origin.line.is_some()).count()
    }

    /// Edges between lines: user, maker, what for.
    pub fn line_edges(&mut self) -> BTreeSet<(String, String, String)> {
        let part = self.part;
        let mut all = BTreeSet::new();
        for edge in &part.slice.edges {
            let node = part.slice.nodes[edge.maker as usize];
            if self.squash.shown(&node, &mut self.origins).is_none() {
                // Nobody's own code led there.
                continue;
            }
            let (user, maker) = (self.line_of(edge.user), self.line_of(edge.maker));
            if user != maker {
                all.insert((user, maker, self.because(edge.why, edge.user)));
            }
        }
        // Control dependences are told by the nodes' nearest users.
        for node in part.slice.nodes.iter().skip(1).filter(|n| n.why == Why::Control) {
            let user = self.line_of(node.via);
            let maker = self.place_of(node);
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
            let slot = part.window.slot(n.execution)?;
            part.loaded.name_in_frame(GuestAddr(n.pc), GuestAddr(slot + 8), what)
        });
        in_frame.or_else(|| part.loaded.global_at(GuestAddr(addr), 0))
    }

    /// Where a node is shown.
    pub fn origin_of(&mut self, node: &Node) -> Origin {
        let pc = self.squash.shown(node, &mut self.origins).map_or(node.pc, |(_, pc)| pc);
        self.origins.of(pc).clone()
    }

    fn place_of(&mut self, node: &Node) -> String {
        let pc = self.squash.shown(node, &mut self.origins).map_or(node.pc, |(_, pc)| pc);
        self.origins.of(pc).short()
    }

    pub fn line_of(&mut self, node: u32) -> String {
        if node == 0 {
            return "criterion".into();
        }
        let node = self.part.slice.nodes[node as usize];
        self.place_of(&node)
    }
}
