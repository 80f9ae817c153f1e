//! Since when a run hangs.
//!
//! A program that hangs goes round and round: from some moment on it executes the code of one loop. The branches of its last
//! stretch are taken for those of the loop. Samples tell by these where the loop begins: earlier ones hold other branches.
//! That takes a few dozen short looks, however long the program worked before, and whether the loop makes calls or not.
//!
//! Guarantees: the moment is one of the run; nothing is noted for longer than somebody wants to wait.
//! May miss: a loop of which one round takes longer than the last stretch is taken to begin late, and one that goes through
//! the same code as what the program did just before, early.

use diagnose::Failure;
use model::GuestAddr;
use model::serve::{Moment, Predicate};
use session::Session;
use std::collections::HashMap;
use std::ops::Range;

/// Ticks behind the last system call of a program that waits, or of which no loop is known.
const SETTLES_AFTER: u64 = 100_000;
/// Ticks before the end whose branches are those of the loop.
const STRETCH: u64 = 200_000;
/// Ticks of one sample.
const SAMPLE: u64 = 2_000;
/// Samples that are taken between the beginning of the loop and the end, to see that it is one.
const SAMPLES: u64 = 24;
/// How often a beginning may turn out to be too early.
const CORRECTIONS: usize = 4;
/// Of a hundred branches of a sample, so many are those of the loop: now and then it does something else, such as to make
/// room in a table that grows.
const PERCENT: usize = 95;
/// Executions of branches that are noted at a time.
const KEEP: u32 = 1 << 20;
/// Rounds that are looked at: later ones pile up what the first ones did wrong.
const ROUNDS: u64 = 2;
/// At least so many ticks of the loop are looked at.
const LEAST: u64 = 64;
/// All code: what a loop spends its time in may be a library.
const ALL: [(u64, u64); 1] = [(0, 1 << 47)];
/// The instruction `syscall`.
const SYSCALL: [u8; 2] = [0x0F, 0x05];

/// When a run began to hang.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Onset {
    /// The last tick before the loop.
    pub tick: u64,
    /// So many ticks later it is in the loop.
    settles_after: u64,
}

impl Onset {
    /// A moment in the loop.
    pub fn settled(&self) -> u64 {
        self.tick.saturating_add(self.settles_after)
    }

    /// Looks for it in a run that made its last call at a tick.
    pub fn find(failure: &Failure, session: &mut Session, last_call: u64, stop: &mut dyn FnMut() -> bool) -> Onset {
        let known = Onset { tick: last_call, settles_after: SETTLES_AFTER };
        let found = (*failure == Failure::Hang).then(|| Looking { session, stop }.onset()).flatten();
        found.unwrap_or(known)
    }
}

/// Is a thread that stands here in a system call? One that is under way has not returned.
pub fn is_in_call(session: &Session, pc: u64) -> bool {
    [pc, pc.wrapping_sub(2)].into_iter().any(|at| {
        let mut bytes = [0; 2];
        session.read(GuestAddr(at), &mut bytes).is_ok_and(|n| n == 2) && bytes == SYSCALL
    })
}

struct Looking<'a> {
    session: &'a mut Session,
    stop: &'a mut dyn FnMut() -> bool,
}

/// Branches of the loop, and how often each was executed in the last stretch.
type Loop = HashMap<u64, u64>;

impl Looking<'_> {
    fn onset(&mut self) -> Option<Onset> {
        self.session.seek_end(self.stop).ok()?;
        let end = self.session.moment().tick;
        if end < 4 * STRETCH || is_in_call(self.session, self.session.moment().pc) {
            return None;
        }
        let last = end - STRETCH;
        let mut looping = Loop::new();
        for p in self.branches(last..end)? {
            *looping.entry(p.moment.pc).or_default() += 1;
        }
        // What is executed once may belong to the end of the run, and is no measure of a round.
        let seldom = looping.values().copied().filter(|n| *n > 1).min()?;
        let mut between = self.narrow(0..last, &looping)?;
        for _ in 0..CORRECTIONS {
            let step = (last - between.end) / SAMPLES;
            let samples = (1..SAMPLES).map(|n| between.end + n * step);
            let others: Vec<u64> = samples.filter(|tick| self.is_looping(*tick, &looping) == Some(false)).collect();
            let Some(other) = others.last() else { break };
            between = self.narrow(*other..other + step, &looping)?;
        }
        let noted = self.branches(between.start..between.end + SAMPLE)?;
        let before = noted.iter().rev().find(|p| !looping.contains_key(&p.moment.pc));
        let tick = before.map_or(between.start, |p| p.moment.tick);
        let settles_after = (ROUNDS * STRETCH / seldom).clamp(LEAST, SETTLES_AFTER);
        (!(self.stop)()).then_some(Onset { tick, settles_after })
    }

    /// Where the loop begins, to the length of a sample, if it is not there at the beginning of a stretch, but at its end.
    fn narrow(&mut self, stretch: Range<u64>, looping: &Loop) -> Option<Range<u64>> {
        let Range { mut start, mut end } = stretch;
        while end - start > SAMPLE {
            let middle = start + (end - start) / 2;
            match self.is_looping(middle, looping)? {
                true => end = middle,
                false => start = middle,
            }
        }
        Some(start..end)
    }

    /// Are the branches behind a tick those of the loop?
    fn is_looping(&mut self, tick: u64, looping: &Loop) -> Option<bool> {
        let noted = self.branches(tick..tick + SAMPLE)?;
        let known = noted.iter().filter(|p| looping.contains_key(&p.moment.pc)).count();
        Some(100 * known >= PERCENT * noted.len())
    }

    fn branches(&mut self, ticks: Range<u64>) -> Option<Vec<Predicate>> {
        self.session.seek_tick(ticks.start, self.stop).ok()?;
        let from = self.session.moment();
        let upto = Moment { tick: ticks.end, pc: 0 };
        let noted = self.session.predicates_between(&ALL, KEEP, false, (Some(from), Some(upto)), self.stop);
        noted.ok().map(|(list, _)| list).filter(|_| !(self.stop)())
    }
}
