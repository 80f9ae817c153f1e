//! Which branches decide whether a loop goes on: those that jump back. And what a loop that does not end goes through.
//!
//! Compilers put the condition of a loop behind its body, whether they optimise or not.
//! May miss: loops that are left in the middle, and those of compilers that test first.

use crate::case::Branches;
use iced_x86::{Decoder, DecoderOptions, Instruction};
use model::GuestAddr;
use model::serve::Moment;
use session::Session;
use std::collections::{HashMap, HashSet};

const LONGEST: usize = 15;

/// Those of these branches that jump back, in memory as it is now.
pub fn among(branches: impl Iterator<Item = u64>, session: &Session) -> HashSet<u64> {
    branches.filter(|pc| jumps_back(*pc, session)).collect()
}

fn jumps_back(pc: u64, session: &Session) -> bool {
    decode(pc, session).is_some_and(|branch| branch.is_jcc_short_or_near() && branch.near_branch_target() < pc)
}

/// The instruction at an address, in memory as it is now.
pub fn decode(pc: u64, session: &Session) -> Option<Instruction> {
    let mut bytes = [0; LONGEST];
    let n = session.read(GuestAddr(pc), &mut bytes).ok()?;
    let instruction = Decoder::with_ip(64, &bytes[..n], pc, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// What a run that does not end does since it goes round and round. That its branches are executed often is the failure itself,
/// and its conditions are the first ones that may be wrong.
#[derive(Default)]
pub struct Rounds {
    since: Option<u64>,
    counts: HashMap<u64, u64>,
}

impl Rounds {
    /// Those since a tick.
    pub fn since(tick: u64, branches: &Branches) -> Rounds {
        let mut rounds = Rounds { since: Some(tick), counts: HashMap::new() };
        for p in &branches.list {
            if rounds.hold(p.moment) {
                *rounds.counts.entry(p.moment.pc).or_default() += 1;
            }
        }
        rounds
    }

    /// Is it one of their moments?
    pub fn hold(&self, moment: Moment) -> bool {
        self.since.is_some_and(|tick| moment.tick > tick)
    }

    /// How often they went through the branch at an address.
    pub fn count(&self, pc: u64) -> u64 {
        self.counts.get(&pc).copied().unwrap_or(0)
    }
}
