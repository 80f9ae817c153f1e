//! Chaos: turns of random length that end at random instructions, so that races show.
//!
//! A turn ends after a random number of ticks, small ones more often; half of the time not at the tick itself but a few
//! instructions behind it, in the middle of straight code, where an unlocked read-modify-write can be split. Besides, a
//! few instructions of the program's own code, others in every run, are places where turns end. Who goes on is random
//! too (`threads::sched`), among the first in the queue: threads are slowed, never starved.

use crate::gate::Gate;
use crate::state::Engine;
use crate::threads::sched;
use iced_x86::{Decoder, DecoderOptions, FlowControl};

/// Turns are at most two to this power of ticks long.
const LONGEST: u64 = 13;
/// One block of the program in so many has a place where turns end, for so many times: more of the first ones, because
/// small programs have no more.
const ODDS: u64 = 2;
const LATER_ODDS: u64 = 8;
const FIRST: u32 = 128;
const TIMES: u32 = 64;
/// So many times for sure, then by chance.
const SURE: u32 = 4;
/// Instructions behind the tick at most.
const AHEAD: u64 = 40;

/// The state of chaos.
#[derive(Default)]
pub struct Chaos {
    pub on: bool,
    /// Where the turn will end, when that is not at a tick.
    site: Option<u64>,
    /// Blocks of the program that turns can end in.
    blocks: u32,
}

impl Engine {
    /// A new thread exists: from now on turns are short.
    pub fn chaos_begins(&mut self) {
        if self.chaos.on {
            self.next_chaotic_turn();
        }
    }

    /// Hands out the ticks of the next turn.
    pub fn next_chaotic_turn(&mut self) {
        let power = self.clock.random() % LONGEST;
        let ticks = 1 + self.clock.random() % (1 << power);
        self.clock.allow(if sched().single() { 100_000 } else { ticks });
    }

    /// A turn is over. Is it to end a few instructions further on? Then a site waits there.
    pub fn chaos_goes_on(&mut self, g: &Gate) -> bool {
        if !self.chaos.on || sched().single() || self.clock.random() & 1 == 0 {
            return false;
        }
        let steps = 1 + self.clock.random() % AHEAD;
        let Some(to) = self.straight_ahead(g.pc, steps) else { return false };
        self.place_chaos(Some(to));
        true
    }

    /// The address `steps` instructions on, or fewer, if the code is straight for that long.
    fn straight_ahead(&mut self, pc: u64, steps: u64) -> Option<u64> {
        let code = self.readable_code(pc)?;
        let mut d = Decoder::with_ip(64, code, pc, DecoderOptions::NONE);
        let mut ends = alloc::vec::Vec::new();
        for _ in 0..AHEAD {
            let i = d.decode();
            if i.is_invalid() || i.flow_control() != FlowControl::Next || i.is_string_instruction() {
                break;
            }
            ends.push(i.next_ip());
        }
        ends.get(steps as usize % ends.len().max(1)).copied()
    }

    /// A block of the program's own code is made: may a turn end in its middle? Then it is cut there.
    pub fn chaos_cuts(&mut self) -> bool {
        let odds = if self.chaos.blocks < FIRST { ODDS } else { LATER_ODDS };
        if !self.chaos.on || sched().single() || !self.clock.random().is_multiple_of(odds) {
            return false;
        }
        let n = self.decoded.insns.len() as u64;
        let Some(first) = self.decoded.insns.first().map(|i| i.ip()).filter(|_| n > 1) else { return false };
        let own = |at: u64| self.memory.find(at).and_then(|(_, v)| v.object);
        if own(first).is_none() || own(first) != own(self.loaded.program) {
            return false;
        }
        self.chaos.blocks += 1;
        let at = self.decoded.insns[1 + (self.clock.random() % (n - 1)) as usize].ip();
        self.probes.note_chaos(at, TIMES)
    }

    /// The guest came to a site: is it where the turn ends?
    pub fn chaos_site_reached(&mut self, g: &Gate) -> bool {
        if let Some(left) = self.probes.chaos_hit(g.pc) {
            return left + SURE >= TIMES || self.clock.random() & 1 == 0;
        }
        let here = self.chaos.site == Some(g.pc);
        if here {
            self.place_chaos(None);
        }
        here
    }

    fn place_chaos(&mut self, site: Option<u64>) {
        self.chaos.site = site;
        let sites: alloc::vec::Vec<u64> = site.into_iter().collect();
        for at in self.probes.set_stops(&sites) {
            self.drop_blocks_over(at);
        }
    }
}
