//! The second stage: pairs of branches, one of which made a difference by itself.
//!
//! ```text
//! two promising ones ─▶ each promising one with branches executed behind its switch, and with those tried first
//! ```
//! The later branch of a pair is named by its address and by how often it is executed behind the switch of the earlier
//! one. That is known for branches of the recorded run, and for those that only the altered run executes it is looked
//! up: a check behind a check is not executed before the first one passes.
//!
//! May miss: branches behind the first thing that the altered run wants from outside, unless the recorded run executed
//! them, too.

use crate::case::{Bench, Branches, Case};
use diagnose::{Change, Search, Trial, pairs};
use model::serve::{Moment, Predicate};
use std::collections::{HashMap, HashSet};

/// Branches that are paired with others because of what they did alone.
const PROMISING: usize = 12;
/// Branches that each of these is paired with, of those executed behind it and of those that were tried first.
const OTHERS: usize = 120;
/// Executions of one branch behind the switch of another.
const OF_ONE_PLACE: u64 = 3;

/// Pairs to try, the most promising first.
pub struct Pairing<'a> {
    pub case: &'a Case<'a>,
    pub found: &'a Branches,
    /// What single branches gave.
    pub singles: &'a Search,
    /// Single branches in the order in which they were to be tried.
    pub order: &'a [Trial],
}

impl Pairing<'_> {
    pub fn trials(&self, bench: &mut Bench<'_>) -> Vec<Trial> {
        let promising = pairs::promising(&self.singles.told, &self.case.failing, PROMISING);
        let places = self.executions();
        let both = pairs::by_rank(promising.len()).into_iter();
        let mut all: Vec<Trial> = both.filter_map(|(a, b)| pair(&places, promising[a], promising[b])).collect();
        let flips = || self.order.iter().filter(|t| t.change == Change::Flip).take(OTHERS);
        let mut lists = Vec::new();
        for first in &promising {
            lists.push(self.behind(bench, *first));
            lists.push(flips().filter_map(|t| pair(&places, *first, t.moment)).collect());
        }
        all.extend(pairs::in_turn(lists));
        let mut seen = HashSet::new();
        all.retain(|t| seen.insert(t.clone()));
        all
    }

    /// When each branch was executed.
    fn executions(&self) -> HashMap<u64, Vec<Moment>> {
        let mut places: HashMap<u64, Vec<Moment>> = HashMap::new();
        for p in self.found.list.iter().filter(|p| p.to == 0) {
            places.entry(p.moment.pc).or_default().push(p.moment);
        }
        places
    }

    /// A branch together with those that are executed behind it when it is switched.
    fn behind(&self, bench: &mut Bench<'_>, first: Moment) -> Vec<Trial> {
        let mut list = bench.branches_behind(&Trial::flip(first), &self.case.code.ranges);
        list.retain(|p| p.instance <= OF_ONE_PLACE);
        // The first execution of each comes first.
        list.sort_by_key(|p| p.instance);
        let second = |p: &Predicate| Change::FlipTwo { pc: p.moment.pc, execution: p.instance };
        list.iter().take(OTHERS).map(|p| Trial { moment: first, change: second(p) }).collect()
    }
}

/// A trial of two executions of the recorded run, in either order.
fn pair(places: &HashMap<u64, Vec<Moment>>, a: Moment, b: Moment) -> Option<Trial> {
    let (first, second) = (a.min(b), a.max(b));
    let list = places.get(&second.pc)?;
    let upto = |moment: Moment| list.partition_point(|m| *m <= moment);
    let execution = (upto(second) - upto(first)) as u64;
    (execution > 0).then_some(Trial { moment: first, change: Change::FlipTwo { pc: second.pc, execution } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_of_two_is_counted_from_the_earlier_one_on() {
        let at = |tick, pc| Moment { tick, pc };
        let places = HashMap::from([(8, vec![at(1, 8), at(3, 8), at(5, 8)]), (9, vec![at(2, 9)])]);
        let expected = |moment, pc, execution| Some(Trial { moment, change: Change::FlipTwo { pc, execution } });
        assert_eq!(pair(&places, at(2, 9), at(5, 8)), expected(at(2, 9), 8, 2));
        assert_eq!(pair(&places, at(5, 8), at(2, 9)), expected(at(2, 9), 8, 2));
        assert_eq!(pair(&places, at(1, 8), at(3, 8)), expected(at(1, 8), 8, 1));
        assert_eq!(pair(&places, at(1, 8), at(1, 8)), None);
    }
}
