//! What a backward walk keeps of what it finds: nodes and edges if they are asked for, and counts at each instruction.

use std::time::Instant;

use crate::graph::{Edge, Node, Site, Why};
use crate::wants::Who;

use super::{At, State, Walk};

/// The site of a system call, which belongs to no instruction of a block.
pub(super) const NO_SITE: u32 = u32::MAX;

impl Walk<'_> {
    /// Adds the execution that [`Walk::by`](super::Walk) wants.
    #[inline]
    pub(super) fn join(&mut self, pc: u64, at: &At, call: Option<u32>) -> Who {
        let (nearest, why) = self.by.nearest.unwrap_or((Who::default(), Why::Criterion));
        let distance = nearest.distance + 1;
        self.state.slice.size += 1;
        match at.site {
            NO_SITE => self.state.add_site(pc, 1, distance),
            site => self.count(site, distance, 1),
        }
        if !self.window.is_own(at.site) {
            self.show(at, distance, true);
        }
        if self.options.only_sites {
            return Who { node: 0, distance };
        }
        let slice = &mut self.state.slice;
        let node = slice.nodes.len() as u32;
        let (execution, insn, segment, thread) = (at.execution, at.insn, at.segment, self.state.thread);
        slice.nodes.push(Node { pc, execution, insn, segment, thread, distance, via: nearest.node, why, call });
        slice.edges.extend(self.by.all.iter().map(|(user, why)| Edge { user: *user, maker: node, why: *why }));
        Who { node, distance }
    }

    /// Counts executions of an instruction.
    #[inline(always)]
    pub(super) fn count(&mut self, site: u32, distance: u32, executions: u32) {
        let found = &mut self.found[site as usize];
        if found.instances == 0 {
            self.state.found_another(self.options.page);
        }
        found.instances += executions;
        found.distance = found.distance.min(distance);
    }
}

impl State {
    #[cold]
    fn found_another(&mut self, page: usize) {
        self.distinct += 1;
        if self.distinct == page {
            self.slice.first_page = Some(Instant::now());
        }
    }

    /// Adds executions of the instruction at an address.
    pub(super) fn add_site(&mut self, pc: u64, instances: u64, distance: u32) {
        let site = self.sites.entry(pc).or_insert(Site { pc, instances: 0, distance: u32::MAX });
        site.instances += instances;
        site.distance = site.distance.min(distance);
    }
}
