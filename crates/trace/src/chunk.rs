//! A stretch of the stream as the fast consumer hands it over: arrays of blocks and of addresses.

use crate::block::Block;
use crate::checksum::Checksum;
use crate::consume::AHEAD;
use crate::event::{Event, Insn, Mem};
use crate::format::{Special, tag_id};
use crate::template::{MAX_ACCESSES, Singles, static_mem};

/// A chunk is handed over once one of its arrays has this many elements: together they should stay in the L1 cache.
pub(crate) const CHUNK: usize = 2048;
/// What the windows already found may add to a chunk must still fit.
pub(crate) const ROOM: usize = CHUNK + (AHEAD + 2) * MAX_ACCESSES;

/// In [`Chunk::blocks`]: not a block, but the next of [`Chunk::explicit`].
pub const EXPLICIT: u32 = u32::MAX;

/// A stretch of the stream.
pub struct Chunk<'a> {
    /// What ran, in order: tags of blocks ([`Chunk::block`] gives the block with all its instructions), or
    /// [`EXPLICIT`].
    pub blocks: &'a [u32],
    /// The first address of every memory access of every instruction, in order.
    pub addresses: &'a [u64],
    /// What is not one complete plain block, in order. The addresses in it are in `addresses` too.
    pub events: &'a [Event],
    /// For each [`EXPLICIT`] the end of its events.
    pub explicit: &'a [u32],
    /// The thread that runs at the start.
    pub thread: u32,
    table: &'a [Option<Block>],
    singles: &'a Singles,
}

/// Takes a trace chunk by chunk.
pub trait ChunkSink {
    fn chunk(&mut self, chunk: &Chunk<'_>);
}

impl Chunk<'_> {
    /// A block by its tag or id.
    pub fn block(&self, tag: u32) -> Option<&Block> {
        self.table.get(tag_id(tag) as usize)?.as_ref()
    }

    /// The same stretch event by event, for whoever prefers small steps over speed.
    pub fn for_each(&self, mut sink: impl FnMut(&Event)) {
        let mut addresses = self.addresses.iter().copied();
        let mut address = || addresses.next().unwrap_or_default();
        let mut thread = self.thread;
        let (mut start, mut ends) = (0, self.explicit.iter());
        for &tag in self.blocks {
            if tag == EXPLICIT {
                let end = ends.next().map_or(start, |&e| e as usize);
                for e in &self.events[start..end] {
                    match e {
                        Event::Mem(m) => sink(&Event::Mem(Mem { addr: address(), ..*m })),
                        Event::Special(Special::Thread { tid, .. }) => {
                            thread = *tid;
                            sink(e);
                        }
                        Event::Insn(_) | Event::RepPart(_) | Event::Special(_) => sink(e),
                    }
                }
                start = end;
            } else if let Some(block) = self.block(tag) {
                for (index, i) in block.insns.iter().enumerate() {
                    sink(&Event::Insn(Insn { thread, pc: i.ip(), block: block.id, index: index as u16 }));
                    for a in block.plan.accesses_of(index) {
                        sink(&Event::Mem(Mem { addr: address(), ..static_mem(a) }));
                    }
                }
            }
        }
    }

    /// Appends the address of every completed instruction, in order.
    pub fn pcs(&self, out: &mut Vec<u64>) {
        let (mut start, mut ends) = (0, self.explicit.iter());
        for &tag in self.blocks {
            if tag == EXPLICIT {
                let end = ends.next().map_or(start, |&e| e as usize);
                for e in &self.events[start..end] {
                    if let Event::Insn(Insn { pc, .. }) | Event::Special(Special::Step { pc }) = e {
                        out.push(*pc);
                    }
                }
                start = end;
            } else if let Some(single) = self.singles.get(tag) {
                out.extend_from_slice(self.singles.pcs(single));
            }
        }
    }
}

/// The arrays of a chunk. In one piece, so that one register is enough to reach them.
#[derive(Clone)]
pub(crate) struct Arrays {
    pub blocks: [u32; ROOM],
    pub addresses: [u64; ROOM],
}

/// How much of the arrays is filled.
#[derive(Clone, Copy, Default)]
pub(crate) struct Filled {
    pub blocks: usize,
    pub addresses: usize,
}

impl Filled {
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.blocks >= CHUNK || self.addresses >= CHUNK
    }
}

/// The chunk in the making.
#[derive(Clone)]
pub(crate) struct Out {
    pub arrays: Box<Arrays>,
    pub filled: Filled,
    /// Instructions of plain blocks.
    pub insns: u64,
    pub events: Vec<Event>,
    pub explicit: Vec<u32>,
    /// The thread at the start of the chunk.
    pub thread: u32,
    /// The thread now.
    pub now: u32,
}

impl Default for Out {
    fn default() -> Out {
        Out {
            arrays: Box::new(Arrays { blocks: [0; ROOM], addresses: [0; ROOM] }),
            filled: Filled::default(),
            insns: 0,
            events: Vec::new(),
            explicit: Vec::new(),
            thread: 0,
            now: 0,
        }
    }
}

impl Out {
    pub fn is_full(&self) -> bool {
        self.filled.is_full() || self.events.len() >= CHUNK
    }

    /// Hands the chunk over and starts the next one.
    pub fn flush(
        &mut self,
        checksum: &mut Checksum,
        (table, singles): (&[Option<Block>], &Singles),
        sink: &mut impl FnMut(&Chunk<'_>),
    ) {
        let Filled { blocks, addresses } = std::mem::take(&mut self.filled);
        if blocks != 0 {
            let chunk = Chunk {
                blocks: &self.arrays.blocks[..blocks],
                addresses: &self.arrays.addresses[..addresses],
                events: &self.events,
                explicit: &self.explicit,
                thread: self.thread,
                table,
                singles,
            };
            checksum.addresses(chunk.addresses);
            checksum.instructions += self.insns;
            checksum.accesses += addresses as u64;
            sink(&chunk);
        }
        self.insns = 0;
        self.events.clear();
        self.explicit.clear();
        self.thread = self.now;
    }
}
