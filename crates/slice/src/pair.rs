//! Two runs from one moment beside each other: which executions of the one are those of the other?
//!
//! An execution is named by who decided that it ran, its address, and how many of that name there were before. Who decided
//! is named in the same way, back to the moment where both windows begin. So what follows a branch that went another way
//! is nobody's counterpart until the ways come together, and what comes behind is found again, however long the ways were.
//!
//! Guarantees: counterparts are executions of the same instruction, and so are those that decided about them.
//! May miss: counterparts in other threads than the one that ran at the beginning, if they were at the same depth of calls.
//! Source: B. Xin, W. Sumner, X. Zhang, "Efficient Program Execution Indexing", PLDI 2008.

use crate::executed::Executed;
use crate::wants::{FastMap, FastSet};
use crate::window::{BEFORE, Window};

/// Where an execution is in its window: block or event, and instruction.
pub type At = (u32, u16);

/// Counterparts of two windows.
#[derive(Default)]
pub struct Pair {
    there: FastMap<At, At>,
    here: FastSet<At>,
}

/// Who decided, the address, and how many before.
type Name = (u32, u64, u32);

/// Gives names to the executions of one window.
#[derive(Default)]
struct Namer {
    /// The number of the last instruction of each segment.
    segments: FastMap<u32, u32>,
    counts: FastMap<(u32, u64), u32>,
}

impl Namer {
    fn name(&mut self, window: &Window, e: &Executed<'_>) -> Name {
        let parent = window.parents.at(e.segment);
        // What decided before the window is told by its frame, which both have in common.
        let decider = match window.earliers.of(parent) {
            Some(earlier) => BEFORE.saturating_add(earlier.frame.1),
            None => self.segments.get(&parent).copied().unwrap_or(parent),
        };
        let count = self.counts.entry((decider, e.code.pc)).or_default();
        *count += 1;
        (decider, e.code.pc, *count)
    }
}

impl Pair {
    /// Lays two windows that begin at the same moment beside each other.
    pub fn new(one: &Window, other: &Window) -> Pair {
        let mut numbers: FastMap<Name, (u32, At)> = FastMap::default();
        let mut namer = Namer::default();
        one.each(&mut |e| {
            let name = namer.name(one, e);
            let number = numbers.len() as u32;
            numbers.insert(name, (number, (e.execution, e.insn)));
            namer.segments.insert(e.segment, number);
        });
        let mut pair = Pair::default();
        let mut next = numbers.len() as u32;
        let mut namer = Namer::default();
        other.each(&mut |e| {
            let found = numbers.get(&namer.name(other, e));
            let number = match found {
                Some((number, at)) => {
                    pair.there.insert(*at, (e.execution, e.insn));
                    pair.here.insert((e.execution, e.insn));
                    *number
                }
                None => {
                    next += 1;
                    next
                }
            };
            namer.segments.insert(e.segment, number);
        });
        pair
    }

    /// The counterpart of an execution of the first window.
    pub fn counterpart(&self, at: At) -> Option<At> {
        self.there.get(&at).copied()
    }

    /// Has this execution of the second window a counterpart?
    pub fn is_in_both(&self, at: At) -> bool {
        self.here.contains(&at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made::{Known, Made};

    /// test eax,eax; jne +2 at 0x1000; mov edx,ecx at 0x1004; mov ebx,7; mov [r8],edx at 0x1006.
    fn run(arm: bool, rounds: u32) -> Window {
        let mut known = Known { merges: vec![(0x1002, 0x1006)], ..Known::default() };
        let mut made = Made::default();
        let [test, skipped, behind] = [(0x1000, "85 c0 75 02"), (0x1004, "89 ca"), (0x1006, "bb 07 00 00 00 41 89 10")]
            .map(|(pc, hex)| made.block(pc, hex));
        for _ in 0..rounds {
            made.ran(test, &[]);
            if arm {
                made.ran(skipped, &[]);
            }
            made.ran(behind, &[0x7000]);
        }
        made.window(&mut known)
    }

    #[test]
    fn what_comes_behind_another_way_is_found_again() {
        let (one, other) = (run(true, 2), run(false, 2));
        let pair = Pair::new(&one, &other);
        assert_eq!(pair.counterpart((0, 1)), Some((0, 1)), "the branch");
        assert_eq!(pair.counterpart((1, 0)), None, "the arm ran in one of them only");
        assert_eq!(pair.counterpart((2, 1)), Some((1, 1)), "the store behind");
        assert_eq!(pair.counterpart((5, 1)), Some((3, 1)), "and that of the second round");
        assert!(pair.is_in_both((3, 0)));
        let back = Pair::new(&other, &one);
        assert!(!back.is_in_both((1, 0)));
    }

    #[test]
    fn further_rounds_have_no_counterparts() {
        let (one, other) = (run(true, 3), run(true, 2));
        let pair = Pair::new(&one, &other);
        assert_eq!(pair.counterpart((5, 0)), Some((5, 0)));
        assert_eq!(pair.counterpart((8, 0)), None);
    }
}
