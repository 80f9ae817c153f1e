//! What a backward walk keeps of what it finds: nodes and edges if they are asked for, and counts at each instruction.

use std::time::Instant;

use crate::graph::{Edge, Node, Site, Why};
use crate::wants::{FastMap, Who};
use crate::window::Window;

use super::{At, Found, State, Walk};

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

/// What a walk has found so far.
pub struct SoFar<'w> {
    window: &'w Window,
    found: &'w [Found],
    behind: &'w FastMap<u64, Site>,
}

impl SoFar<'_> {
    /// What the slice comes to so far, in the order of addresses. Nearer ones may still be found: a value may have been
    /// made long ago.
    pub fn sites(&self) -> Vec<Site> {
        let mut all: Vec<Site> = sites(self.window, self.found).chain(self.behind.values().copied()).collect();
        all.sort_unstable_by_key(|s| s.pc);
        // An instruction may be in several blocks, and in windows behind this one.
        all.dedup_by(|next, first| {
            let same = next.pc == first.pc;
            if same {
                first.instances += next.instances;
                first.distance = first.distance.min(next.distance);
            }
            same
        });
        all
    }
}

/// What was found in one window.
pub(super) fn sites<'w>(window: &'w Window, found: &'w [Found]) -> impl Iterator<Item = Site> + 'w {
    let insns = window.codes.iter().flat_map(|c| &c.insns);
    let found = insns.zip(found).filter(|(_, f)| f.instances != 0);
    found.map(|(insn, f)| Site { pc: insn.pc, instances: u64::from(f.instances), distance: f.distance })
}

impl Walk<'_> {
    pub(super) fn so_far(&self) -> SoFar<'_> {
        SoFar { window: self.window, found: &self.found, behind: &self.state.sites }
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
