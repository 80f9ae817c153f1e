//! The code cache: installed translations, the links between them, and the way back from a cache address to the guest.
//!
//! Layout of the cache region: common code and blocks in order of installation, then exit stubs, then entries for indirect
//! branches (checks, and what direct lookup lands on for blocks that became targets after they were translated), then
//! return addresses that calls push. Detours of direct lookup lie where [`DETOUR_PAGES`] says.
//! Only the thread that holds the baton can have its instruction pointer in the cache, and only while it is not in the
//! engine; every other thread is at a guest address. So blocks can be invalidated and the whole cache flushed at any time.
//!
//! An invalidated block stays where it is; its first bytes become a jump to a hub that leads to its successor.

use crate::address_map::AddressMap;
use crate::direct::{DETOUR_CODE, DETOUR_LEN, Direct};
use crate::gate::{self, at, exit};
use crate::images::{ImageIndex, Images};
use crate::pc_table::PcTable;
use crate::sys::{self, PROT_EXEC, PROT_READ, PROT_WRITE};
use crate::translate::asm::{Asm, R11, RCX};
use crate::translate::terminator::{self, CHECK_NEXT, DIRECT_ENTRY};
use crate::translate::{Common, Event, EventKind, ExitKind, RelocKind, SpillSlot, Translation};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use model::layout::{CACHE, DETOUR_PAGES};

/// How far each part of the cache is mapped. Nothing is mapped ahead of need, so that a wild access of the guest to the
/// rest faults as it does natively. Kept outside the cache's own record because the vault asks too.
static MAPPED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
pub const PARTS: [u64; 4] = [CACHE.start, STUBS, ENTRIES, CONSTANTS];

/// The mapped ranges of the cache.
pub fn mapped() -> [(u64, u64); 4] {
    core::array::from_fn(|part| (PARTS[part], MAPPED[part].load(Relaxed)))
}

/// Not at the start: an entry of direct lookup with zeros in its second and third bytes would leave its neighbours with
/// parts that are addresses. (They are not mapped, so that costs a fault; the few blocks at such places are no matter.)
const COMMON: u64 = CACHE.start + 0x1_0100;
const BLOCKS: u64 = COMMON + 256;
const STUBS: u64 = CACHE.start + (160 << 20);
const ENTRIES: u64 = CACHE.start + (224 << 20);
const ENTRIES_END: u64 = CACHE.start + (240 << 20);
const CONSTANTS: u64 = CACHE.start + (248 << 20);
/// Room that the next translations may need.
const SLACK: u64 = 1 << 20;
const STUB_LEN: u64 = 17;
const HUB_LEN: u64 = 5;
/// The cache grows in these pieces.
const FIRST: u64 = 256 << 10;
const LARGE: u64 = 2 << 20;
/// An invalidated block needs room for a jump.
const MIN_BODY: usize = 5;

/// Index of a block in the cache since the last flush.
pub type BlockIndex = u32;

/// An installed block. Positions are offsets from the start of the cache.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    pub pc: u64,
    pub id: u32,
    pub code: u32,
    pub body: u32,
    pub after_probe: u32,
    pub end: u32,
    /// Where indirect branches with direct lookup land; 0 = nowhere yet.
    pub direct: u32,
    events: u32,
    event_count: u16,
    pub guest_len: u16,
    pub instructions: u16,
    pub record: u16,
    /// The image it was made from.
    pub image: ImageIndex,
    pub conditional: bool,
    pub valid: bool,
    /// Other blocks may lead here without asking the engine. Not so for code that changes unnoticed.
    pub linkable: bool,
    /// Checked lookup finds it.
    pub in_hash: bool,
}

/// A way out of the cache.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    pub kind: ExitKind,
    pub target: u64,
    /// Offset of the rel32 that leads to the stub; 0 when it cannot be linked.
    pub site: u32,
}

/// What the guest is doing at a cache address.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub block: BlockIndex,
    /// Instructions completed before this one.
    pub instruction: u32,
    /// Address of the instruction.
    pub pc: u64,
    /// The address is exactly where that instruction's code starts (or the block's).
    pub boundary: bool,
    /// Guest registers that are not in their register: (register, slot).
    pub spilled: [Option<(u8, SpillSlot)>; 5],
    pub counted: bool,
    /// The address is that of the jump through the table of direct lookup.
    pub lookup: bool,
    /// The block's probe has been counted down.
    pub behind_probe: bool,
}

/// The cache of one process.
pub struct Cache {
    pub blocks: Vec<Block>,
    pub by_pc: PcTable,
    pub events: Vec<Event>,
    pub exits: Vec<Exit>,
    /// For each address with blocks out of use, where they lead and the stub behind that.
    pub hubs: AddressMap<(u64, u64)>,
    /// What blocks were made from, and how many of them came from an earlier process.
    pub images: Images,
    pub adopted: BlockIndex,
    hot: u64,
    stubs: u64,
    entries: u64,
    constants: u64,
    exit_jump: u64,
    common: CommonCode,
    pub direct: Direct,
    /// Added to an index to make a block id that is never used again.
    pub id_base: u32,
    pub flushes: u64,
    pub invalidated: u64,
}

impl Cache {
    /// Maps the cache and writes its common code.
    pub fn new() -> Result<Cache, i64> {
        for (part, start) in PARTS.into_iter().enumerate() {
            MAPPED[part].store(start, Relaxed);
            grow(part, start, FIRST)?;
        }
        let mut c = Cache {
            blocks: Vec::new(),
            by_pc: PcTable::default(),
            events: Vec::new(),
            exits: Vec::new(),
            hubs: AddressMap::default(),
            images: Images::default(),
            adopted: 0,
            hot: BLOCKS,
            stubs: STUBS,
            entries: ENTRIES,
            constants: CONSTANTS,
            exit_jump: 0,
            common: CommonCode::default(),
            direct: Direct::default(),
            id_base: 0,
            flushes: 0,
            invalidated: 0,
        };
        c.write_common();
        write_detours()?;
        c.reset_table();
        Ok(c)
    }

    fn write_common(&mut self) {
        let mut a = Asm::default();
        // jmp gs:[exit_code]
        a.put(&[0x65, 0xff, 0x24, 0x25]);
        a.put32(at::EXIT_CODE as u32);
        self.exit_jump = COMMON;
        let mut leave = |register, number| {
            let at = COMMON + a.here() as u64;
            leave_indirect(&mut a, register, number);
            at
        };
        self.common = CommonCode {
            checked_miss: leave(R11, exit::CHECKED),
            checked_expired: leave(R11, exit::TICK_INDIRECT),
            direct_miss: leave(RCX, exit::DIRECT),
            direct_expired: leave(RCX, exit::TICK_INDIRECT),
        };
        assert!(a.bytes.len() as u64 <= BLOCKS - COMMON);
        write_code(COMMON, &a.bytes);
    }

    fn reset_table(&self) {
        sys::populate(model::layout::GATE + gate::TABLE_OFFSET, size_of::<[u64; gate::TABLE_ENTRIES]>() as u64);
        // SAFETY: the gate is mapped before the cache is made.
        unsafe { gate::table() }.fill(self.common.checked_miss);
    }

    /// Forgets every translation.
    pub fn flush(&mut self) {
        self.id_base += self.blocks.len() as u32;
        self.flushes += 1;
        self.blocks.clear();
        self.by_pc.clear();
        self.events.clear();
        self.exits.clear();
        self.hubs.clear();
        self.images.clear();
        self.adopted = 0;
        self.direct.clear();
        self.hot = BLOCKS;
        self.stubs = STUBS;
        self.entries = ENTRIES;
        self.constants = CONSTANTS;
        self.reset_table();
    }

    pub fn is_full(&self) -> bool {
        self.hot + SLACK > STUBS
            || self.stubs + SLACK > ENTRIES
            || self.entries + SLACK > ENTRIES_END
            || self.constants + SLACK > CACHE.end
    }

    /// Is there room to take `n` blocks out of use one by one?
    pub fn has_stubs_for(&self, n: usize) -> bool {
        self.stubs + n as u64 * (STUB_LEN + HUB_LEN) + SLACK / 2 < ENTRIES
    }

    /// Bytes of emitted code.
    pub fn used(&self) -> u64 {
        (self.hot - BLOCKS) + (self.stubs - STUBS) + (self.entries - ENTRIES) + (self.constants - CONSTANTS)
    }

    pub fn find(&self, pc: u64) -> Option<BlockIndex> {
        let block = self.by_pc.get(pc)?;
        (block >= self.adopted || self.images.is_awake(self.blocks[block as usize].image)).then_some(block)
    }

    pub fn next_id(&self) -> u32 {
        self.id_base + self.blocks.len() as u32
    }

    pub fn exit(&self, n: u32) -> Exit {
        self.exits[n as usize]
    }

    /// Where the code of each part ends.
    pub fn ends(&self) -> [u64; 4] {
        [self.hot, self.stubs, self.entries, self.constants]
    }

    /// Goes on behind code that an earlier process left, which has been mapped up to here.
    pub fn go_on_at(&mut self, ends: [u64; 4]) {
        [self.hot, self.stubs, self.entries, self.constants] = ends;
        for (part, end) in ends.into_iter().enumerate() {
            let mapped = end.next_multiple_of(4096);
            if mapped > MAPPED[part].load(Relaxed) {
                MAPPED[part].store(mapped, Relaxed);
            }
        }
    }

    /// Puts a translation behind the last one.
    pub fn install(&mut self, pc: u64, t: &mut Translation, linkable: bool) -> BlockIndex {
        while t.asm.bytes.len() < t.body as usize + MIN_BODY {
            t.asm.bytes.push(0x90);
        }
        let base = self.hot;
        let index = self.blocks.len() as BlockIndex;
        for n in 0..t.relocs.len() {
            let r = t.relocs[n];
            let field = r.at as usize;
            let here = base + r.at as u64;
            let to = match r.kind {
                RelocKind::Rip(after) => r.target.wrapping_sub(after as u64 - 4),
                RelocKind::Exit(kind) => self.exit_target(kind, r.target, here),
                RelocKind::Common(Common::CheckedExpired) => self.common.checked_expired,
                RelocKind::Common(Common::DirectExpired) => self.common.direct_expired,
                RelocKind::Constant => self.constant(r.target),
            };
            let rel = to.wrapping_sub(here + 4) as i64;
            debug_assert!(rel as i32 as i64 == rel, "a relocation of the block at {pc:#x} is out of reach");
            t.asm.bytes[field..field + 4].copy_from_slice(&(rel as i32).to_le_bytes());
        }
        make_room(0, base + t.asm.bytes.len() as u64);
        write_code(base, &t.asm.bytes);
        self.hot += t.asm.bytes.len() as u64;
        let offset = (base - CACHE.start) as u32;
        let events = self.events.len() as u32;
        self.events.extend_from_slice(&t.events);
        self.blocks.push(Block {
            pc,
            id: self.id_base + index,
            code: offset,
            body: offset + t.body,
            after_probe: offset + t.after_probe,
            end: (self.hot - CACHE.start) as u32,
            direct: if t.body == DIRECT_ENTRY { offset } else { 0 },
            events,
            event_count: t.events.len() as u16,
            guest_len: t.guest_len as u16,
            instructions: t.instructions as u16,
            record: t.record as u16,
            image: self.images.current(),
            conditional: t.conditional,
            valid: true,
            linkable,
            in_hash: false,
        });
        self.by_pc.insert(pc, index);
        index
    }

    /// Code that continues the straight line after the last installed block.
    pub fn append_jump(&mut self, to: u64) {
        make_room(0, self.hot + 5);
        let here = self.hot + 1;
        let target = self.exit_target(ExitKind::Link, to, here);
        let mut code = [0xe9, 0, 0, 0, 0];
        code[1..].copy_from_slice(&rel32(here, target));
        write_code(self.hot, &code);
        self.hot += 5;
        if let Some(last) = self.blocks.last_mut() {
            last.end = (self.hot - CACHE.start) as u32;
        }
    }

    /// Address a rel32 at `site` must lead to: the block itself, or a stub that leaves the cache.
    fn exit_target(&mut self, kind: ExitKind, target: u64, site: u64) -> u64 {
        let may_link = kind == ExitKind::Link && self.images.may_link(target);
        if may_link
            && let Some(b) = self.find(target)
            && self.blocks[b as usize].linkable
        {
            return CACHE.start + self.blocks[b as usize].body as u64;
        }
        let site = if may_link { (site - CACHE.start) as u32 } else { 0 };
        self.stub(Exit { kind, target, site })
    }

    /// Address of a word that holds `value`.
    fn constant(&mut self, value: u64) -> u64 {
        let here = self.constants;
        make_room(3, here + 8);
        write_code(here, &value.to_le_bytes());
        self.constants += 8;
        here
    }

    fn stub(&mut self, exit: Exit) -> u64 {
        let id = self.exits.len() as u32;
        self.exits.push(exit);
        let here = self.stubs;
        make_room(1, here + STUB_LEN);
        let mut code = [0u8; STUB_LEN as usize];
        code[..4].copy_from_slice(&[0x65, 0xc7, 0x04, 0x25]);
        code[4..8].copy_from_slice(&(at::EXIT as u32).to_le_bytes());
        code[8..12].copy_from_slice(&id.to_le_bytes());
        code[12] = 0xe9;
        code[13..].copy_from_slice(&rel32(here + 13, self.exit_jump));
        write_code(here, &code);
        self.stubs += STUB_LEN;
        here
    }

    /// Lets the exit at `site` go to `block` directly from now on.
    pub fn link(&mut self, site: u32, block: BlockIndex) {
        let body = CACHE.start + self.blocks[block as usize].body as u64;
        let here = CACHE.start + site as u64;
        write_code(here, &rel32(here, body));
    }

    /// Lets checked lookup find `block`.
    pub fn enter_in_hash(&mut self, block: BlockIndex) {
        let b = self.blocks[block as usize];
        if b.in_hash {
            return;
        }
        self.blocks[block as usize].in_hash = true;
        // SAFETY: the gate is mapped; the baton is held.
        let slot = unsafe { &mut gate::table()[(b.pc & 0xffff) as usize] };
        let mut t = Translation::default();
        terminator::check(&mut t, b.pc);
        let (next, here) = (CHECK_NEXT as usize, self.entries);
        t.asm.bytes[next..next + 4].copy_from_slice(&rel32(here + next as u64, *slot));
        *slot = self.entry(t, b.body);
    }

    /// Lets direct lookup find `block`.
    pub fn enter_direct(&mut self, block: BlockIndex) {
        let b = self.blocks[block as usize];
        let at = match b.direct {
            0 => {
                let mut t = Translation::default();
                terminator::direct_entry(&mut t);
                self.entry(t, b.body)
            }
            at => CACHE.start + at as u64,
        };
        self.blocks[block as usize].direct = (at - CACHE.start) as u32;
        self.direct.enter(b.pc, at);
    }

    /// A branch to `pc` is likely to come, but there is no block, or none that may be entered without asking.
    pub fn expect_direct(&mut self, pc: u64) {
        self.direct.expect(pc, self.common.direct_miss);
    }

    /// Installs the code of `t`, which goes on at `body`, as an entry.
    fn entry(&mut self, mut t: Translation, body: u32) -> u64 {
        let here = self.entries;
        make_room(2, here + 256);
        let at = t.asm.jmp() as usize;
        let rel = rel32(here + at as u64, CACHE.start + body as u64);
        t.asm.bytes[at..at + 4].copy_from_slice(&rel);
        write_code(here, &t.asm.bytes);
        self.entries += t.asm.bytes.len() as u64;
        here
    }

    /// Cache address to enter a block at.
    pub fn body(&self, block: BlockIndex) -> u64 {
        CACHE.start + self.blocks[block as usize].body as u64
    }

    /// The same behind the block's probe.
    pub fn after_probe(&self, block: BlockIndex) -> u64 {
        CACHE.start + self.blocks[block as usize].after_probe as u64
    }

    /// Takes a block out of use: whoever comes to it leaves the cache and finds its successor.
    pub fn invalidate(&mut self, block: BlockIndex) {
        let b = self.blocks[block as usize];
        if !b.valid {
            return;
        }
        self.invalidated += 1;
        self.blocks[block as usize].valid = false;
        if self.find(b.pc) == Some(block) {
            self.by_pc.remove(b.pc);
        }
        let hub = self.hub(b.pc);
        let body = CACHE.start + b.body as u64;
        let mut code = [0xe9, 0, 0, 0, 0];
        code[1..].copy_from_slice(&rel32(body + 1, hub));
        write_code(body, &code);
    }

    /// The jump that all blocks at `pc` that are out of use lead to, and that leads to the one that is not, if there is one.
    /// Without it they would lead to each other, and ever longer chains of them would have to be run through.
    fn hub(&mut self, pc: u64) -> u64 {
        if let Some(&(hub, stub)) = self.hubs.get(&pc) {
            write_code(hub + 1, &rel32(hub + 1, stub));
            return hub;
        }
        let hub = self.stubs;
        make_room(1, hub + HUB_LEN);
        self.stubs += HUB_LEN;
        let stub = self.stub(Exit { kind: ExitKind::Link, target: pc, site: (hub + 1 - CACHE.start) as u32 });
        let mut code = [0xe9, 0, 0, 0, 0];
        code[1..].copy_from_slice(&rel32(hub + 1, stub));
        write_code(hub, &code);
        self.hubs.insert(pc, (hub, stub));
        hub
    }

    /// Nobody finds the block any more; it runs at most once.
    pub fn forget(&mut self, block: BlockIndex) {
        let pc = self.blocks[block as usize].pc;
        if self.find(pc) == Some(block) {
            self.by_pc.remove(pc);
        }
    }

    /// Is this an address of the cache at all?
    pub fn contains(rip: u64) -> bool {
        CACHE.contains(&rip) || DETOUR_PAGES.contains(&(rip & !0xfff))
    }

    /// What the guest is doing at a cache address inside a block's body; `None` in stubs, checks and common code.
    pub fn place(&self, rip: u64) -> Option<Place> {
        if !(BLOCKS..self.hot).contains(&rip) {
            return None;
        }
        let offset = (rip - CACHE.start) as u32;
        let block = self.blocks.partition_point(|b| b.code <= offset).checked_sub(1)?;
        let b = &self.blocks[block];
        if offset < b.body {
            return None;
        }
        let within = offset - b.code;
        let mut place = Place {
            block: block as u32,
            instruction: 0,
            pc: b.pc,
            boundary: offset == b.body,
            spilled: [None; 5],
            counted: false,
            lookup: false,
            behind_probe: offset >= b.after_probe && b.after_probe != b.body,
        };
        let mut next_pc = b.pc;
        let mut started = 0;
        let events = &self.events[b.events as usize..][..b.event_count as usize];
        for e in events.iter().take_while(|e| e.offset() <= within) {
            match e.kind() {
                EventKind::Instruction => {
                    place.pc = next_pc;
                    place.instruction = started;
                    place.boundary = e.offset() == within;
                    next_pc += e.arg() as u64;
                    started += 1;
                }
                EventKind::Spilled(slot) => place.spilled[slot as usize] = Some((e.arg(), slot)),
                EventKind::Restored(slot) => place.spilled[slot as usize] = None,
                EventKind::Counted => place.counted = true,
                EventKind::Lookup => place.lookup = e.offset() == within,
            }
        }
        Some(place)
    }
}

/// Makes sure that a part of the cache is mapped up to `end` (and that the vault does not see half of it).
fn make_room(part: usize, end: u64) {
    let now = MAPPED[part].load(Relaxed);
    if end > now {
        // Small programs stay on small pages; large ones grow in large pieces.
        let piece = if now - PARTS[part] >= LARGE { LARGE } else { FIRST };
        // What came from an earlier process may end anywhere.
        let piece = (now + 1).next_multiple_of(piece) - now;
        if grow(part, now, piece).is_err() {
            crate::report::fatal("no memory for the code cache".into(), 0);
        }
    }
}

fn grow(part: usize, at: u64, piece: u64) -> Result<(), i64> {
    let exec = if PARTS[part] == CONSTANTS { 0 } else { PROT_EXEC };
    sys::map_engine(at, piece, PROT_READ | PROT_WRITE | exec)?;
    if piece > FIRST {
        sys::prefer_large_pages(at, piece);
    }
    MAPPED[part].store(at + piece, Relaxed);
    Ok(())
}

/// Addresses of code that all blocks share.
#[derive(Default, Clone, Copy)]
struct CommonCode {
    checked_miss: u64,
    checked_expired: u64,
    direct_miss: u64,
    direct_expired: u64,
}

/// The target of an indirect branch, in `register`, goes to the gate; the registers that the branch used come back.
fn leave_indirect(a: &mut Asm, register: u8, number: u32) {
    a.store_gs(register, at::PC);
    a.store_gs_imm32(at::EXIT, number);
    if register == R11 {
        a.load_gs(R11, at::R11);
    }
    a.load_gs(RCX, at::RCX);
    a.put(&[0x65, 0xff, 0x24, 0x25]);
    a.put32(at::EXIT_CODE as u32);
}

/// Writes the detours of direct lookup.
fn write_detours() -> Result<(), i64> {
    let mut detour = Asm::default();
    terminator::detour(&mut detour);
    assert!(detour.bytes.len() as u64 <= DETOUR_LEN);
    for (page, starts) in DETOUR_PAGES.into_iter().zip(DETOUR_CODE) {
        sys::map_engine(page, 4096, PROT_READ | PROT_WRITE)?;
        let mut code = [0x90u8; 4096];
        for start in starts {
            code[*start as usize..][..detour.bytes.len()].copy_from_slice(&detour.bytes);
        }
        // SAFETY: the page just mapped; from here on it never changes.
        unsafe {
            core::ptr::copy_nonoverlapping(code.as_ptr(), page as *mut u8, code.len());
            sys::raw3(sys::nr::MPROTECT, page, 4096, PROT_READ | PROT_EXEC);
        }
    }
    Ok(())
}

fn rel32(field: u64, to: u64) -> [u8; 4] {
    (to.wrapping_sub(field + 4) as i32).to_le_bytes()
}

/// Writes into the cache.
fn write_code(at: u64, code: &[u8]) {
    assert!(at >= CACHE.start && at + code.len() as u64 <= CACHE.end, "code at {at:#x} outside the cache");
    // SAFETY: inside the cache (checked), which is mapped writable while the engine runs; no thread executes there.
    unsafe { core::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len()) };
}
