//! Two runs of a program side by side, although one of them goes other ways: a branch that goes elsewhere is followed by
//! both until its ways come together.
//!
//! May miss: threads that run while another one is on another way; such runs are not aligned.

use super::course::{Course, Step};
use super::frames::OUTERMOST;
use slice::insn::Control;
use slice::{Facts, MayDefine, Merge};
use std::ops::Range;

/// Deeper than any callee goes.
const DEEPEST: u64 = 8 << 20;

/// Why a changed run says nothing about a slice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Off {
    /// The criterion was not reached.
    NotReached,
    /// A store on the common way went elsewhere.
    Moved,
    /// A store on another way went where the model does not expect any.
    Unmodelled,
}

/// The criterion in the changed run.
pub struct Reached {
    /// The step before which it holds.
    pub step: usize,
    /// Branches that went another way.
    pub parted: Vec<u64>,
}

/// What the slice took into account.
pub struct Model<'a> {
    pub facts: &'a mut dyn Facts,
    /// Stores through pointers count, outside these stacks.
    pub pointers: bool,
    pub stacks: Range<u64>,
}

/// One pair of ways between a branch and where they come together.
struct Detour<'a> {
    branch: &'a Step,
    merge: Merge,
    other: MayDefine,
}

/// Follows `original`, whose last step is the criterion, from `from` on, and `altered` beside it.
pub fn align(original: &Course, from: usize, altered: &Course, model: &mut Model<'_>) -> Result<Reached, Off> {
    let (mut i, mut j) = (from, 0);
    let mut parted = Vec::new();
    let criterion = original.steps.len() - 1;
    loop {
        let (a, b) = (&original.steps[i], altered.steps.get(j).ok_or(Off::NotReached)?);
        if (a.pc, a.thread, a.frame) != (b.pc, b.thread, b.frame) {
            let detour = Detour::new(&original.steps[i.checked_sub(1).ok_or(Off::NotReached)?], a, model)?;
            let (i_end, j_end) = (detour.end(original, i)?, detour.end(altered, j)?);
            detour.check_stores(altered, j..j_end, model)?;
            parted.push(detour.branch.pc);
            (i, j) = (i_end, j_end);
            // What has parted must not part again at once.
            let (a, b) = (&original.steps[i], &altered.steps[j]);
            if (a.pc, a.frame) != (b.pc, b.frame) {
                return Err(Off::NotReached);
            }
            continue;
        }
        if i == criterion {
            return Ok(Reached { step: j, parted });
        }
        if original.stores_of(i) != altered.stores_of(j) {
            return Err(Off::Moved);
        }
        (i, j) = (i + 1, j + 1);
    }
}

impl<'a> Detour<'a> {
    fn new(branch: &'a Step, went: &Step, model: &mut Model<'_>) -> Result<Detour<'a>, Off> {
        let (merge, other) = match branch.control {
            _ if branch.thread != went.thread => return Err(Off::NotReached),
            Control::Branch | Control::IndirectJump => {
                (model.facts.merge(branch.pc), model.facts.other_ways(branch.pc, went.pc))
            }
            // Another function was called; whatever it does outside its own frame is not in the model.
            Control::Call => (Merge::NoBranch, MayDefine::default()),
            _ => return Err(Off::NotReached),
        };
        Ok(Detour { branch, merge, other })
    }

    /// Where a way that begins at `start` ends.
    fn end(&self, course: &Course, start: usize) -> Result<usize, Off> {
        let frame = self.branch.frame;
        for (n, step) in course.steps.iter().enumerate().skip(start) {
            if step.thread != self.branch.thread {
                break;
            }
            let left = step.frame > frame;
            match self.merge {
                Merge::At(pc) if step.pc == pc && step.frame == frame => return Ok(n),
                Merge::NoBranch if step.frame == frame => return Ok(n),
                Merge::Exit if left => return Ok(n),
                _ if left => break,
                _ => {}
            }
        }
        Err(Off::NotReached)
    }

    /// Does the other way store only where the model expects it?
    fn check_stores(&self, altered: &Course, steps: Range<usize>, model: &Model<'_>) -> Result<(), Off> {
        let mut callee = None;
        for n in steps {
            let step = &altered.steps[n];
            match step.frame < self.branch.frame {
                true => _ = callee.get_or_insert(step.frame),
                false => callee = None,
            }
            let own = |at: u64| callee.is_some_and(|f: u64| (f.saturating_sub(DEEPEST)..f + 8).contains(&at));
            let is_call = step.control == Control::Call && callee.is_none();
            let fits = |(at, len): &(u64, u64)| is_call || own(*at) || self.expects(*at, *len, model);
            if !altered.stores_of(n).iter().all(fits) {
                return Err(Off::Unmodelled);
            }
        }
        Ok(())
    }

    fn expects(&self, at: u64, len: u64, model: &Model<'_>) -> bool {
        let end = at.saturating_add(len);
        let slot = self.branch.frame;
        let in_frame = |r: &Range<i64>| {
            slot != OUTERMOST && slot.wrapping_add_signed(r.start) <= at && end <= slot.wrapping_add_signed(r.end)
        };
        self.other.frame.iter().any(in_frame)
            || self.other.memory.iter().any(|r| r.start <= at && end <= r.end)
            || model.pointers && self.other.pointers && !model.stacks.contains(&at)
    }
}
