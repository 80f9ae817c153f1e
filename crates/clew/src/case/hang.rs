//! Since when a run hangs.
//!
//! A program that hangs goes round and round: from some moment on it executes the code of one loop. What it has executed since
//! a moment is one loop if both halves of that time went through the same branches: the longest such time is looked for, in
//! halves of the run. Where rounds get longer and longer, its end may be within a single one. Samples tell by the loop's
//! branches where it begins: earlier ones hold other branches. That takes some dozens of short looks, however long the program
//! worked before, and whether the loop makes calls or not.
//!
//! Guarantees: the moment is one of the run; nothing is noted for longer than somebody wants to wait.
//! May miss: a loop that came round only a few times in all is taken to begin late, and one that goes through the same code as
//! what the program did just before, early.

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
/// Samples of one quarter of a time that may be all of one loop.
const OF_A_QUARTER: u64 = 16;
/// Of a hundred branches of one half of the time of a loop, so many are those of the other: while it makes room in a table that
/// grows, it may be busy with that for long.
const OF_THE_SAME: u64 = 80;
/// Of a stretch that begins with the loop or without it, the looks at its beginning are this part apart.
const APART: u64 = 64;
/// How often a beginning may turn out to be too early.
const CORRECTIONS: usize = 4;
/// Of a hundred branches of a sample in the loop, so many are known to be of it.
const OF_THE_LOOP: u64 = 95;
/// Samples back from the first ones that look like the loop, at most, in which rounds may be too short to look so.
const STEPS_BACK: usize = 16;
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

/// Branches, and how often each was executed while somebody looked.
type Loop = HashMap<u64, u64>;

/// All these branches.
fn merged<'a>(parts: impl IntoIterator<Item = &'a Loop>) -> Loop {
    let mut all = Loop::new();
    for (pc, times) in parts.into_iter().flatten() {
        *all.entry(*pc).or_default() += times;
    }
    all
}

/// Are so many of a hundred executions of some branches of such as are among others?
fn is_within(some: &Loop, others: &Loop, percent: u64) -> bool {
    let all: u64 = some.values().sum();
    let known: u64 = some.iter().filter(|(pc, _)| others.contains_key(pc)).map(|(_, times)| times).sum();
    100 * known >= percent * all
}

impl Looking<'_> {
    fn onset(&mut self) -> Option<Onset> {
        self.session.seek_end(self.stop).ok()?;
        let end = self.session.moment().tick;
        if end < 4 * STRETCH || is_in_call(self.session, self.session.moment().pc) {
            return None;
        }
        let (looping, last) = self.steady(end)?;
        let mut between = self.narrow(0..last, &looping)?;
        for _ in 0..CORRECTIONS {
            let step = (last - between.end) / SAMPLES;
            let samples = (1..SAMPLES).map(|n| between.end + n * step);
            let others: Vec<u64> =
                samples.filter(|t| self.is_looping(*t..*t + step, &looping) == Some(false)).collect();
            let Some(other) = others.last() else { break };
            between = self.narrow(*other..other + step, &looping)?;
        }
        let tick = self.last_other(between.start..between.end + 3 * SAMPLE, &looping)?;
        // The first rounds may be short ones, with much that samples of later ones missed.
        let first = self.executed(tick..end.min(tick + STRETCH))?;
        let looping = merged([&looping, &first]);
        let mut begins = tick;
        for _ in 0..STEPS_BACK {
            let start = begins.saturating_sub(SAMPLE);
            if !is_within(&self.executed(start..begins)?, &looping, OF_THE_LOOP) {
                break;
            }
            begins = start;
        }
        let tick = self.last_other(begins.saturating_sub(SAMPLE)..begins, &looping)?;
        // What is executed once may belong to what comes before or behind, and is no measure of a round.
        let seldom = first.values().copied().filter(|n| *n > 1).min()?;
        let settles_after = (ROUNDS * STRETCH / seldom).clamp(LEAST, SETTLES_AFTER);
        (!(self.stop)()).then_some(Onset { tick, settles_after })
    }

    /// The branches of the loop that a run of so many ticks ends in, and since when at the latest it is in it.
    fn steady(&mut self, end: u64) -> Option<(Loop, u64)> {
        let mut looping = self.executed(end - STRETCH..end)?;
        let mut length = end / 2;
        while length > 4 * STRETCH {
            let quarter = |n: u64| end - length + n * length / 4..end - length + (n + 1) * length / 4;
            let quarters: Vec<Loop> = (0..4).map(|n| self.sampled(quarter(n))).collect::<Option<_>>()?;
            let [first, second, third, fourth] = &quarters[..] else { return None };
            let (earlier, later) = (merged([first, second]), merged([third, fourth]));
            if is_within(&earlier, &later, OF_THE_SAME) && is_within(&later, &earlier, OF_THE_SAME) {
                // What came to its end in the first quarter may be what the program did before.
                looping = merged([&looping, second, third, fourth]);
                return Some((looping, quarter(1).start));
            }
            length /= 2;
        }
        Some((looping, end - STRETCH))
    }

    /// Branches that samples of a stretch find.
    fn sampled(&mut self, stretch: Range<u64>) -> Option<Loop> {
        let step = (stretch.end - stretch.start) / OF_A_QUARTER;
        // The distance keeps in step with no loop.
        let ticks = (0..OF_A_QUARTER).map(|n| stretch.start + n * step + n * n);
        let samples: Vec<Loop> = ticks.map(|tick| self.executed(tick..tick + SAMPLE)).collect::<Option<_>>()?;
        Some(merged(&samples))
    }

    /// Branches of a stretch, and how often each was executed.
    fn executed(&mut self, ticks: Range<u64>) -> Option<Loop> {
        let mut all = Loop::new();
        for p in self.branches(ticks)? {
            *all.entry(p.moment.pc).or_default() += 1;
        }
        Some(all)
    }

    /// The last tick of a stretch at which a branch was executed that is not the loop's; its beginning if there is none.
    fn last_other(&mut self, stretch: Range<u64>, looping: &Loop) -> Option<u64> {
        let noted = self.branches(stretch.clone())?;
        let other = noted.iter().rev().find(|p| !looping.contains_key(&p.moment.pc));
        Some(other.map_or(stretch.start, |p| p.moment.tick))
    }

    /// Where the loop begins, to the length of a sample, if it is not there at the beginning of a stretch, but at its end.
    fn narrow(&mut self, stretch: Range<u64>, looping: &Loop) -> Option<Range<u64>> {
        let Range { mut start, mut end } = stretch;
        while end - start > SAMPLE {
            let middle = start + (end - start) / 2;
            match self.is_looping(middle..end, looping)? {
                true => end = middle,
                false => start = middle,
            }
        }
        Some(start..end)
    }

    /// Are the branches behind the beginning of a stretch those of the loop? Two looks of three say so: there may be parts of it
    /// that are seldom seen.
    fn is_looping(&mut self, stretch: Range<u64>, looping: &Loop) -> Option<bool> {
        let apart = ((stretch.end - stretch.start) / APART).max(SAMPLE);
        let mut votes = 0;
        for n in 0..3 {
            let tick = stretch.start + n * apart;
            votes += u64::from(is_within(&self.executed(tick..tick + SAMPLE)?, looping, OF_THE_LOOP));
            if votes == 2 || votes + 1 == n {
                break;
            }
        }
        Some(votes == 2)
    }

    fn branches(&mut self, ticks: Range<u64>) -> Option<Vec<Predicate>> {
        self.session.seek_tick(ticks.start, self.stop).ok()?;
        let from = self.session.moment();
        let upto = Moment { tick: ticks.end, pc: 0 };
        let noted = self.session.predicates_between(&ALL, KEEP, false, (Some(from), Some(upto)), self.stop);
        noted.ok().map(|(list, _)| list).filter(|_| !(self.stop)())
    }
}
