//! The fast consumer: the full instruction and address stream of a trace, materialised chunk by chunk.
//!
//! It gives what [`crate::decode`] gives, in arrays: the blocks that ran and all addresses that they touched, in
//! execution order, and the same checksum. Blocks whose record is plain (nearly all) are compiled into templates and
//! consumed a window of four at a time (module `template`): find the next four tags, look the window up, compute its
//! addresses lane by lane. Everything else (rep strings, gathers, special records) takes the way of the reference
//! decoder and is told as events.
//!
//! Guarantees: a buffer that the reference decoder accepts gives the same stream and checksum; one that it rejects is
//! rejected with the same error. Never panics, whatever the input. Speed: see the example `consume_speed`.

use model::wire::BlockDef;

use crate::block::{Block, BlockError};
use crate::checksum::Checksum;
use crate::chunk::{Arrays, Chunk, EXPLICIT, Filled, Out, ROOM};
use crate::decode::{Context, TraceError, TraceErrorKind, decode_record};
use crate::event::{Event, Sink};
use crate::format::{Special, tag_bytes};
use crate::plan::{Planner, Segment};
use crate::template::{EMPTY, LANES, Lanes, Pool, Singles, VIEW, WINDOW, Window};

/// Places for windows, as a power of two.
const PLACE_BITS: u32 = 16;
/// Windows are forgotten, all together, when there are so many.
const MAX_WINDOWS: usize = 1 << 16;
/// How many windows are found before the first of them is applied.
pub(crate) const AHEAD: usize = 4;
/// A window is compiled when it has been missed so often.
const LEARN_AFTER: u8 = 4;

/// The fast consumer of one process's trace. A fork's child goes on with a clone of its parent's.
pub struct Consumer {
    planner: Planner,
    table: Vec<Option<Block>>,
    singles: Singles,
    /// Which of `windows` is at a place; 0, which is empty, if none.
    places: Box<[u32; 1 << PLACE_BITS]>,
    /// How often a window was missed at a place.
    misses: Vec<u8>,
    windows: Vec<Window>,
    pool: Pool,
    out: Out,
    context: Context,
    checksum: Checksum,
}

impl Default for Consumer {
    fn default() -> Consumer {
        Consumer::new()
    }
}

impl Clone for Consumer {
    fn clone(&self) -> Consumer {
        Consumer {
            planner: Planner::new(),
            table: self.table.clone(),
            singles: self.singles.clone(),
            places: self.places.clone(),
            misses: self.misses.clone(),
            windows: self.windows.clone(),
            pool: self.pool.clone(),
            out: self.out.clone(),
            context: self.context.clone(),
            checksum: self.checksum,
        }
    }
}

impl Consumer {
    pub fn new() -> Consumer {
        Consumer {
            planner: Planner::new(),
            table: Vec::new(),
            singles: Singles::default(),
            places: Box::new([0; 1 << PLACE_BITS]),
            misses: vec![0; 1 << PLACE_BITS],
            windows: vec![EMPTY],
            pool: Pool::default(),
            out: Out::default(),
            context: Context::default(),
            checksum: Checksum::default(),
        }
    }

    /// The checksum of all buffers so far.
    pub fn checksum(&self) -> Checksum {
        self.checksum
    }

    /// Registers a block; must come before the first buffer that uses it. The same definition may come again.
    pub fn block(&mut self, def: &BlockDef) -> Result<(), BlockError> {
        let block = Block::new(def, &mut self.planner)?;
        let id = def.id as usize;
        if self.table.len() <= id {
            self.table.resize(id + 1, None);
        }
        if let Some(old) = &self.table[id] {
            return if old.is_same(&block) { Ok(()) } else { Err(BlockError::Redefined(def.id)) };
        }
        self.singles.add(&block);
        self.table[id] = Some(block);
        Ok(())
    }

    /// Consumes one buffer; `sink` gets its stream in chunks. After an error nothing that follows can be trusted.
    pub fn buffer(&mut self, bytes: &[u8], mut sink: impl FnMut(&Chunk<'_>)) -> Result<(), TraceError> {
        let mut at = 0;
        let mut result = Ok(true);
        if let Some(last) = bytes.len().checked_sub(VIEW) {
            result = self.pass(bytes, &mut at, last + 1, bytes.len(), &mut sink);
        }
        if result == Ok(true) && at < bytes.len() {
            // The end goes where it is followed by bytes that match no window.
            let end = &bytes[at..];
            let mut padded = [0xff; 2 * VIEW];
            padded[..end.len()].copy_from_slice(end);
            let mut in_end = 0;
            result = self.pass(&padded, &mut in_end, end.len(), end.len(), &mut sink);
            at += in_end;
        }
        self.out.flush(&mut self.checksum, (&self.table, &self.singles), &mut sink);
        result.map(|_| ()).map_err(|kind| TraceError { at, kind })
    }

    /// Consumes the records that start before `stop`; they must end at `limit` at the latest, and `VIEW` bytes must be
    /// readable from each start. False if a record says that the rest of the buffer is unused.
    fn pass(
        &mut self,
        bytes: &[u8],
        at: &mut usize,
        stop: usize,
        limit: usize,
        sink: &mut impl FnMut(&Chunk<'_>),
    ) -> Result<bool, TraceErrorKind> {
        while *at < stop {
            *at = self.windows(bytes, *at, stop, limit);
            if self.out.filled.is_full() {
                self.out.flush(&mut self.checksum, (&self.table, &self.singles), sink);
                continue;
            }
            if *at < stop {
                self.learn(&bytes[*at..]);
            }
            for _ in 0..WINDOW {
                if *at >= stop || self.out.filled.is_full() {
                    break;
                }
                let used = match self.single(&bytes[*at..], limit - *at) {
                    Some(used) => used,
                    None => match self.explicit(&bytes[*at..limit], sink)? {
                        Some(used) => used,
                        None => return Ok(false),
                    },
                };
                *at += used;
            }
        }
        Ok(true)
    }

    /// Consumes known windows, until one is not known, the chunk is full or `stop` is reached. Gives the new position.
    #[inline(never)]
    fn windows(&mut self, bytes: &[u8], mut at: usize, stop: usize, limit: usize) -> usize {
        // Windows are found some time before they are applied: finding one is a chain of loads, and what applying it
        // needs is in the cache by then.
        let mut ahead = [(0, 0); AHEAD];
        let (mut found, mut applied) = (0, 0);
        let mut shape = self.checksum.shape;
        while at < stop && !self.out.filled.is_full() {
            let Some(view) = bytes.get(at..).and_then(|b| b.first_chunk::<VIEW>()) else { break };
            let (tags, len) = next_tags(view);
            let place = self.places[place(tags)];
            let Some(t) = self.windows.get(place as usize) else { break };
            let known = t.tags[0] == tags[0] && t.tags[1] == tags[1] && t.tags[2] == tags[2] && t.tags[3] == tags[3];
            if !known || at + len > limit {
                break;
            }
            if found - applied == AHEAD {
                let (at, place) = ahead[applied % AHEAD];
                applied += 1;
                self.window(place, bytes, at, &mut shape);
            }
            ahead[found % AHEAD] = (at, place);
            found += 1;
            at += len;
        }
        while applied < found {
            let (at, place) = ahead[applied % AHEAD];
            applied += 1;
            self.window(place, bytes, at, &mut shape);
        }
        self.checksum.shape = shape;
        at
    }

    /// Appends what the window at a place of the buffer says.
    #[inline(always)]
    fn window(&mut self, place: u32, bytes: &[u8], at: usize, shape: &mut u64) {
        let Some(view) = bytes.get(at..).and_then(|b| b.first_chunk::<VIEW>()) else { return };
        let Some(t) = self.windows.get(place as usize) else { return };
        *shape = t.fold.apply(*shape);
        self.out.insns += u64::from(t.insns);
        apply(t, &self.pool, view, &mut self.out.arrays, &mut self.out.filled, &self.context);
    }

    /// Consumes one simple block, if that is what comes next, and gives the length of its record.
    fn single(&mut self, bytes: &[u8], limit: usize) -> Option<usize> {
        let view = bytes.first_chunk::<VIEW>()?;
        let tag = read_tag(view, 0);
        let single = self.singles.get(tag)?;
        let used = tag_bytes(tag).filter(|&used| used <= limit)?;
        self.checksum.shape = single.fold.apply(self.checksum.shape);
        self.out.insns += u64::from(single.insns);
        let Filled { blocks, addresses } = &mut self.out.filled;
        self.out.arrays.blocks[*blocks] = tag;
        *blocks += 1;
        let lanes = self.singles.lanes(single);
        for (to, lane) in self.out.arrays.addresses[*addresses..].iter_mut().zip(lanes) {
            let recorded = if lane.from_record { read_word(view, lane.word) } else { 0 };
            let base = match lane.seg {
                Segment::None => 0,
                Segment::Fs => self.context.fs_base,
                Segment::Gs => self.context.gs_base,
            };
            *to = recorded.wrapping_add(lane.disp).wrapping_add(base);
        }
        *addresses += lanes.len();
        Some(used)
    }

    /// Consumes one record of any kind, as the reference decoder does, and gives its length, or nothing if the rest of
    /// the buffer is unused.
    fn explicit(&mut self, rest: &[u8], sink: &mut impl FnMut(&Chunk<'_>)) -> Result<Option<usize>, TraceErrorKind> {
        let Consumer { table, singles, out, checksum, context, .. } = self;
        let mut events = Events { out, checksum, known: (table, singles), sink };
        let used = decode_record(rest, |id| table.get(id as usize)?.as_ref(), context, &mut events);
        events.close();
        used
    }

    /// Notes that the window at the start of `bytes` is not known; often enough, and it is compiled.
    #[cold]
    fn learn(&mut self, bytes: &[u8]) {
        let Some(view) = bytes.first_chunk::<VIEW>() else { return };
        let (tags, _) = next_tags(view);
        let place = place(tags);
        let other = place ^ 1;
        if self.windows[self.places[other] as usize].tags == tags {
            // It was moved there by one that is now less wanted.
            self.places.swap(place, other);
            return;
        }
        self.misses[place] += 1;
        if self.misses[place] < LEARN_AFTER {
            return;
        }
        self.misses[place] = 0;
        if self.windows.len() >= MAX_WINDOWS {
            self.windows.truncate(1);
            self.places.fill(0);
            self.pool = Pool::default();
        }
        if let Some(window) = self.pool.window(tags, &self.singles) {
            self.places[other] = self.places[place];
            self.places[place] = self.windows.len() as u32;
            self.windows.push(window);
        }
    }
}

/// Takes events that are not a complete simple block into the chunk.
struct Events<'a, S> {
    out: &'a mut Out,
    checksum: &'a mut Checksum,
    known: (&'a [Option<Block>], &'a Singles),
    sink: &'a mut S,
}

impl<S: FnMut(&Chunk<'_>)> Events<'_, S> {
    /// Ends the run of events, if there is one.
    fn close(&mut self) {
        let end = self.out.events.len() as u32;
        if self.out.explicit.last().map_or(0, |&e| e) != end {
            self.out.explicit.push(end);
            self.out.arrays.blocks[self.out.filled.blocks] = EXPLICIT;
            self.out.filled.blocks += 1;
        }
    }
}

impl<S: FnMut(&Chunk<'_>)> Sink for Events<'_, S> {
    fn event(&mut self, event: &Event) {
        if self.out.is_full() {
            self.close();
            self.out.flush(self.checksum, self.known, self.sink);
        }
        match event {
            Event::Mem(m) => {
                self.out.arrays.addresses[self.out.filled.addresses] = m.addr;
                self.out.filled.addresses += 1;
            }
            Event::Special(Special::Thread { tid, .. }) => self.out.now = *tid,
            Event::Insn(_) | Event::RepPart(_) | Event::Special(_) => {}
        }
        self.checksum.all_but_address(event);
        self.out.events.push(*event);
    }
}

/// Appends what a template says about the records at the start of `view`.
#[inline(always)]
fn apply(t: &Window, pool: &Pool, view: &[u8; VIEW], out: &mut Arrays, filled: &mut Filled, context: &Context) {
    let (blocks, addresses) = (filled.blocks, filled.addresses);
    out.blocks[blocks..blocks + WINDOW].copy_from_slice(&t.tags);
    compute(&mut out.addresses, addresses, &t.lanes, view);
    let accesses = usize::from(t.accesses);
    if t.more {
        apply_pool(t, pool, view, &mut out.addresses, addresses, context);
    }
    filled.blocks += WINDOW;
    filled.addresses += accesses;
}

/// Computes lanes whether they are needed or not: what is too much is overwritten by the next ones.
#[inline(always)]
fn compute(to: &mut [u64; ROOM], at: usize, lanes: &Lanes, view: &[u8; VIEW]) {
    let to = &mut to[at..at + LANES];
    for (n, to) in to.iter_mut().enumerate() {
        *to = (read_word(view, lanes.word[n]) & lanes.mask[n]).wrapping_add(lanes.disp[n]);
    }
}

#[inline(always)]
fn read_word(view: &[u8; VIEW], word: u8) -> u64 {
    let at = usize::from(word) * 4;
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&view[at..at + 8]);
    u64::from_le_bytes(bytes)
}

/// The rest of the lanes, and segment bases.
#[inline(never)]
fn apply_pool(t: &Window, pool: &Pool, view: &[u8; VIEW], to: &mut [u64; ROOM], at: usize, context: &Context) {
    let groups = usize::from(t.accesses).div_ceil(LANES).saturating_sub(1);
    for (n, lanes) in pool.lanes[t.first_lanes as usize..][..groups].iter().enumerate() {
        compute(to, at + (1 + n) * LANES, lanes, view);
    }
    for fix in &pool.fixes[t.first_fix as usize..][..usize::from(t.fixes)] {
        let base = if fix.gs { context.gs_base } else { context.fs_base };
        let address = &mut to[at + usize::from(fix.lane)];
        *address = address.wrapping_add(base);
    }
}

/// The tags of the next four records and their length together, if all are blocks; otherwise something that is no
/// window's.
#[inline(always)]
fn next_tags(view: &[u8; VIEW]) -> ([u32; WINDOW], usize) {
    // Where a record starts depends on the length of the one before and on nothing else: this chain of loads is what
    // bounds the speed.
    let mut tags = [0; WINDOW];
    let mut at = 0;
    for tag in &mut tags {
        *tag = read_tag(view, at);
        at += 4 * (*tag >> 24) as usize;
    }
    (tags, at)
}

#[inline(always)]
fn read_tag(view: &[u8; VIEW], at: usize) -> u32 {
    let mut tag = [0; 4];
    tag.copy_from_slice(&view[at..at + 4]);
    u32::from_le_bytes(tag)
}

/// Where a window is kept.
#[inline(always)]
fn place(tags: [u32; WINDOW]) -> usize {
    let pair = |a: u32, b: u32| u64::from(a) | u64::from(b) << 32;
    let first = pair(tags[0], tags[1]).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let mixed = (first.rotate_left(23) ^ pair(tags[2], tags[3])).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (64 - PLACE_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Mix, Rng, Synthetic};

    #[test]
    fn windows_are_learned_and_then_used() {
        let program = Synthetic::new(5, 12, Mix::Plain);
        let mut consumer = Consumer::new();
        program.defs.iter().for_each(|def| consumer.block(def).unwrap());
        let (bytes, _) = program.trace(&mut Rng(5), 200_000);
        consumer.buffer(&bytes, |_| ()).unwrap();
        assert!(consumer.windows.len() > 10);
        let (mut at, mut found) = (0, 0);
        let stop = bytes.len() - VIEW;
        while at < stop {
            let end = consumer.windows(&bytes, at, stop, bytes.len());
            consumer.out.filled = Filled::default();
            found += end - at;
            let tag = u32::from_le_bytes([bytes[end], bytes[end + 1], bytes[end + 2], bytes[end + 3]]);
            at = end + tag_bytes(tag).unwrap();
        }
        assert!(found * 10 > stop * 9, "only {found} bytes of {stop} are in known windows");
    }
}
