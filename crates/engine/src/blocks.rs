//! Making and unmaking blocks: translation on demand, the straight lines they are laid out in, and everything that takes
//! translations out of use again (mode switches, code that is unmapped or written to).

use crate::cache::BlockIndex;
use crate::direct::Lookup;
use crate::memory::{kernel_prot, page_down};
use crate::state::Engine;
use crate::sys::{self, PROT_WRITE, nr};
use crate::threads::sched;
use crate::translate::{self, MAX_INSTRUCTIONS, Request};
use alloc::vec::Vec;
use iced_x86::FlowControl;
use model::Mode;
use model::layout::{COUNTERS, GATE, PAGE, TAKEN};

/// Blocks laid out in one go along a straight line.
const CHAIN: usize = 8;

impl Engine {
    /// The block at `pc`, made if need be; `None` when nothing can be executed there.
    pub fn block_at(&mut self, pc: u64, indirect: bool) -> Option<BlockIndex> {
        self.wake_image(pc);
        if let Some(b) = self.cache.find(pc) {
            let end = pc + self.cache.blocks[b as usize].guest_len as u64;
            if !self.pages.any_restless(pc, end) {
                return Some(b);
            }
            // Code on a page that changes often: compared by being made again.
            self.cache.invalidate(b);
        }
        if self.cache.is_full() {
            self.flush();
        }
        let start = if self.config.stats { sys::monotonic_ns() } else { 0 };
        let first = self.lay_out(pc, indirect);
        if self.config.stats {
            self.stats.translation_ns += sys::monotonic_ns() - start;
        }
        first
    }

    /// Translates a straight line of blocks from `pc`; answers the first.
    fn lay_out(&mut self, pc: u64, indirect: bool) -> Option<BlockIndex> {
        let first = self.translate_block(pc, indirect, MAX_INSTRUCTIONS, true)?;
        let mut next = self.translation.next;
        for _ in 1..CHAIN {
            let Some(to) = next else { return Some(first) };
            let stop = self.cache.find(to).is_some()
                || self.probes.at(to)
                || self.pages.is_restless(to)
                || !self.cache.images.may_link(to);
            if stop || self.translate_block(to, false, MAX_INSTRUCTIONS, true).is_none() {
                break;
            }
            next = self.translation.next;
        }
        if let Some(to) = next {
            self.cache.append_jump(to);
        }
        Some(first)
    }

    /// The code at `pc`, as far as it can be read; `None` if there is none.
    pub fn readable_code(&mut self, pc: u64) -> Option<&'static [u8]> {
        let code = readable_part(&mut self.readable, pc, self.memory.code(pc)?);
        (!code.is_empty()).then_some(code)
    }

    /// Translates and installs the one block at `pc`.
    fn translate_block(&mut self, pc: u64, indirect: bool, max: usize, protect: bool) -> Option<BlockIndex> {
        let code = self.readable_code(pc)?;
        self.cache.images.enter(pc, &self.memory);
        let id = self.cache.next_id();
        let slot = self.cache.blocks.len() as u64 * 8;
        let counted = self.mode == Mode::Count && slot < TAKEN;
        let counter = (COUNTERS.start - GATE + slot) as i32;
        let request = Request {
            pc,
            mode: self.mode,
            ticks: self.ticks(),
            indirect_entry: indirect,
            lookup: self.lookup_at(pc),
            max_instructions: max,
            probe_counter: self.probes.counter(pc),
            block_id: id,
            counter: counted.then_some(counter),
            taken_counter: (counted && self.config.coverage).then_some(counter + TAKEN as i32),
            virtual_time: self.virtual_time(),
        };
        let probes = &self.probes;
        let restless = self.pages.is_restless(pc);
        let request = Request { max_instructions: if restless { 1 } else { max }, ..request };
        translate::decode_block(&request, code, &mut self.emitter.isa, &mut |a| probes.at(a), &mut self.decoded);
        if self.chaos.on && self.chaos_cuts() {
            return self.translate_block(pc, indirect, max, protect);
        }
        if let Some(branch) = self.decoded.insns.last().copied()
            && self.notes_predicate(&branch)
        {
            // Once more, with the branch as a block of its own.
            return self.translate_block(pc, indirect, max, protect);
        }
        let probes = &self.probes;
        let memory = &self.memory;
        if crate::record::on() {
            note_features(&mut self.features, &mut self.feature_records, &self.decoded, code);
        }
        // A probe may send the guest elsewhere: what comes behind its site proves nothing about the flags before it.
        let readable = &mut self.readable;
        let (images, pages) = (&self.cache.images, &mut self.pages);
        let mut code_at = |a: u64| {
            if !images.may_link(a) {
                return None;
            }
            pages.note_read(a, a + translate::LOOK_AHEAD_BYTES);
            let code = memory.code(a).map(|code| readable_part(readable, a, code))?;
            Some(&code[..probes.distance(a, code.len())])
        };
        translate::translate(&request, &self.decoded, code, &mut self.emitter, &mut code_at, &mut self.translation);
        let end = self.decoded.end.max(pc + 1);
        self.cache.images.check_end(end);
        let linkable = !self.pages.any_restless(pc, end);
        let block = self.cache.install(pc, &mut self.translation, linkable);
        if let Some(last) = self.decoded.insns.last()
            && matches!(last.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
            && !self.checked_only
        {
            self.cache.expect_direct(last.next_ip());
        }
        self.stats.blocks += 1;
        self.stats.translated_instructions += self.decoded.insns.len() as u64;
        let memory = &self.memory;
        self.pages.add(pc, end, block, |page| protect && protect_code(memory, page));
        for page in (page_down(pc)..end).step_by(PAGE as usize) {
            for alias in memory.aliases(page) {
                self.pages.add(alias, alias + 1, block, |alias| protect && protect_code(memory, alias));
            }
        }
        if self.mode == Mode::Trace {
            self.define_block(id, pc, &code[..(end - pc) as usize]);
        }
        Some(block)
    }

    /// How the indirect branch of a block at `pc` is looked up.
    pub fn lookup_at(&self, pc: u64) -> Lookup {
        if self.checked_only || self.checked_sites.contains_key(&pc) { Lookup::Checked } else { Lookup::of(pc) }
    }

    /// Drops every translation.
    pub fn flush(&mut self) {
        self.harvest_counts();
        self.cache.flush();
        self.pages.clear_blocks();
    }

    /// Instrumentation changes from here on.
    pub fn switch_mode(&mut self, mode: Mode) {
        if mode == self.mode {
            return;
        }
        if self.mode == Mode::Trace {
            self.close_trace();
        }
        self.flush();
        self.mode = mode;
        if mode == Mode::Count && !self.counters_mapped {
            self.counters_mapped = crate::start::map_counters().is_ok();
            if !self.counters_mapped {
                self.note("no memory for block counters: counting stays off", 0);
                self.mode = Mode::Tick;
            }
        }
        if mode == Mode::Trace && self.open_trace().is_err() {
            self.note("no memory for trace buffers: tracing stays off", 0);
            self.mode = Mode::Tick;
        }
        sched().set_ticking(self.ticks());
    }

    /// The guest changed what is mapped in `start..end`: nothing translated from there is valid.
    pub fn code_unmapped(&mut self, start: u64, end: u64) {
        self.readable = [0; 4];
        self.leave_images(start, end);
        let (blocks, protected) = self.pages.take(page_down(start), end);
        // The kernel may move or keep what is there: with the guest's rights, not with ours.
        for page in protected {
            self.unprotect(page);
        }
        self.drop_blocks(blocks);
    }

    /// Takes blocks out of use.
    fn drop_blocks(&mut self, blocks: Vec<BlockIndex>) {
        if !self.cache.has_stubs_for(blocks.len()) {
            return self.flush();
        }
        for b in blocks {
            self.cache.invalidate(b);
        }
    }

    /// Blocks that run over `at` are made anew.
    pub fn drop_blocks_over(&mut self, at: u64) {
        // Blocks of an earlier process would otherwise come into use later as they are.
        self.wake_image(at);
        self.leave_images(at, at + 1);
        for b in self.pages.blocks_on(at) {
            let block = &self.cache.blocks[b as usize];
            if block.valid && (block.pc..block.pc + block.guest_len as u64).contains(&at) {
                self.cache.invalidate(b);
            }
        }
    }

    /// The guest writes to a page with translations: they go, and the page is writable again.
    pub fn code_written(&mut self, page: u64) {
        let blocks = self.pages.written(page);
        for b in &blocks {
            // Written through another mapping of the same file.
            let code = page_down(self.cache.blocks[*b as usize].pc);
            if code != page {
                self.pages.note_fault(code);
            }
        }
        self.drop_blocks(blocks);
        self.unprotect(page);
    }

    fn unprotect(&mut self, page: u64) {
        if let Some((_, vma)) = self.memory.find(page) {
            // SAFETY: gives the guest's page the rights the guest gave it.
            unsafe { sys::raw3(nr::MPROTECT, page, PAGE, kernel_prot(vma.prot as u64)) };
        }
    }

    /// The engine (or the kernel for it) is about to write where translations were made from.
    pub fn reopen_page(&mut self, address: u64) -> bool {
        let page = page_down(address);
        if self.reopen_vfork_page(address) {
            return true;
        }
        if self.pages.is_protected(page) {
            self.code_written(page);
            return true;
        }
        false
    }

    /// A block for just the instruction at `pc`, which writes to translated code, perhaps its own page: the page stays
    /// writable, and the block is used once, because the bytes behind the instruction may change.
    pub fn alone(&mut self, pc: u64) -> Option<BlockIndex> {
        let block = self.translate_block(pc, false, 1, false)?;
        if let Some(to) = self.translation.next {
            self.cache.append_jump(to);
        }
        self.cache.forget(block);
        Some(block)
    }

    /// Sums block counters into the totals and clears them.
    pub fn harvest_counts(&mut self) {
        if self.mode != Mode::Count {
            return;
        }
        for (n, b) in self.cache.blocks.iter().enumerate() {
            let slot = n as u64 * 8;
            if slot >= TAKEN {
                break;
            }
            // SAFETY: counter words of installed blocks, mapped in mode count.
            let executed = unsafe { core::ptr::replace((COUNTERS.start + slot) as *mut u64, 0) };
            self.stats.instructions += executed * b.instructions as u64;
            if b.conditional {
                self.stats.conditional_branches += executed;
            }
            if self.config.coverage && executed != 0 {
                // SAFETY: as above.
                let taken = unsafe { core::ptr::replace((COUNTERS.start + TAKEN + slot) as *mut u64, 0) };
                self.coverage.push(model::wire::BlockCount {
                    pc: model::GuestAddr(b.pc),
                    bytes: b.guest_len as u32,
                    instructions: b.instructions as u32,
                    executed,
                    taken,
                    conditional: b.conditional,
                });
            }
        }
        self.stats.instructions = self.stats.instructions.wrapping_add_signed(self.count_correction);
        self.count_correction = 0;
    }
}

/// Logs instruction set extensions that are met for the first time.
fn note_features(seen: &mut [u64; 4], records: &mut Vec<Vec<u8>>, decoded: &translate::Decoded, code: &[u8]) {
    let start = decoded.insns.first().map_or(0, |i| i.ip());
    for i in &decoded.insns {
        for feature in i.cpuid_features() {
            let n = *feature as usize;
            if seen[(n / 64) & 3] & 1 << (n % 64) == 0 {
                seen[(n / 64) & 3] |= 1 << (n % 64);
                let at = (i.ip() - start) as usize;
                let bytes = code.get(at..at + i.len()).unwrap_or_default().to_vec();
                let record = model::log::FeatureRecord { feature: n as u32, pc: i.ip(), bytes };
                let record = record.encode();
                crate::record::append(model::log::Kind::Feature, 0, &record);
                records.push(record);
            }
        }
    }
}

/// What of `code`, at `pc`, can be read: a mapped page can still be beyond the end of its file. `known` are pages for which
/// that has been tried.
fn readable_part(known: &mut [u64; 4], pc: u64, code: &'static [u8]) -> &'static [u8] {
    let mut end = 0;
    while end < code.len() {
        let page = (pc + end as u64) >> 12;
        let slot = &mut known[page as usize % 4];
        if *slot != page {
            if sys::read_guest(page << 12, &mut [0u8; 1]) == 0 {
                break;
            }
            *slot = page;
        }
        end = (((page + 1) << 12) - pc) as usize;
    }
    &code[..end.min(code.len())]
}

/// Takes write permission from a page that holds translated code; says whether it did.
fn protect_code(memory: &crate::memory::Memory, page: u64) -> bool {
    match memory.find(page) {
        Some((_, vma)) if vma.is(PROT_WRITE) => {
            // SAFETY: a guest page; stores to it fault and are made again after its translations are gone.
            unsafe { sys::raw3(nr::MPROTECT, page, PAGE, kernel_prot(vma.prot as u64) & !PROT_WRITE) == 0 }
        }
        _ => false,
    }
}
