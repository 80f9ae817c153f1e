//! In which order executed branches are switched.
//!
//! LEFS: the last executed first. PRIOR: those that the erroneous value depends on first, the nearest and the most
//! particular first, spread over the places they stand at, because a loop has very many executions of few branches; then
//! the others, as LEFS has them.
//!
//! Source: X. Zhang, N. Gupta, R. Gupta, "Locating Faults Through Automated Predicate Switching", ICSE 2006, section 3.2;
//! the spreading and the weight of frequent places are ours: in the bugs that we measured, a branch that is wrong is
//! executed a few times, one that only could have hidden the failure (of a lexer, an allocator, an interpreter's loop)
//! thousands of times.

use model::serve::Predicate;
use std::collections::HashMap;

/// Branches that the value depends on that come for each one that it is not known to depend on.
const NEAR_FOR_EACH_OTHER: usize = 3;
/// Where the distance is not known, it is taken to be this, and more the longer ago it was.
const NO_DISTANCE: u32 = 10;

/// The last executed first: indices.
pub fn lefs(predicates: &[Predicate]) -> Vec<usize> {
    (0..predicates.len()).rev().collect()
}

/// What the input had to do with an execution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Influence {
    /// Bytes of the input went into what it tests or computes.
    Data,
    /// It was executed because of the input.
    Control,
    #[default]
    None,
}

impl Influence {
    /// Dependences that it counts as farther away.
    fn aside(self) -> u32 {
        match self {
            Influence::Data => 0,
            Influence::Control => 6,
            Influence::None => 30,
        }
    }
}

/// What dependences say about an execution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// How far it is from the erroneous value, if that depends on it.
    pub distance: Option<u32>,
    pub influence: Influence,
    /// Output that is right hangs on it.
    pub vouched: bool,
}

impl Known {
    /// Where nothing was read, or nobody knows what came of it, the input had to do with everything.
    pub fn settle(all: &mut [Known]) {
        if all.iter().all(|k| k.influence == Influence::None) {
            all.iter_mut().for_each(|k| k.influence = Influence::Control);
        }
    }

    /// Dependences that it counts as farther away.
    fn aside(&self) -> u32 {
        self.influence.aside() + vouched(self.vouched)
    }
}

/// How often places are executed because of the input: what a program does by itself when it starts, whatever the input,
/// says nothing about how particular a place is.
#[derive(Default)]
pub struct Often {
    counts: HashMap<u64, [u64; 3]>,
}

impl Often {
    /// Counts executions, given as places and what the input had to do with them.
    pub fn new(executions: impl Iterator<Item = (u64, Influence)>) -> Often {
        let mut often = Often::default();
        for (pc, influence) in executions {
            often.counts.entry(pc).or_default()[influence as usize] += 1;
        }
        often
    }

    /// Executions that the input had at least so much to do with.
    pub fn of(&self, pc: u64, influence: Influence) -> u64 {
        self.counts.get(&pc).map_or(0, |counts| counts[..=influence as usize].iter().sum())
    }
}

/// What the erroneous value depends on first, the nearest first. Some of those come in between that the value is not known
/// to depend on: what stores through pointers might have done is not known. What the input had no influence on is last.
/// Answers also how many come before any place is tried again.
pub fn prior(predicates: &[Predicate], known: &[Known]) -> (Vec<usize>, usize) {
    let all = predicates.len();
    let often = Often::new(predicates.iter().zip(known).map(|(p, k)| (p.moment.pc, k.influence)));
    let times: Vec<u64> = predicates.iter().zip(known).map(|(p, k)| often.of(p.moment.pc, k.influence)).collect();
    let choose = |wanted: &dyn Fn(&Known) -> bool| -> Vec<Vec<usize>> {
        // Those without a distance count as nearer the later they ran.
        let of = |n: usize| known[n].distance.unwrap_or_else(|| NO_DISTANCE + ((all - n) as u64).ilog2());
        let distance = |n: usize| wanted(&known[n]).then(|| of(n) + known[n].aside());
        spread(predicates, &(0..all).map(distance).collect::<Vec<_>>(), &times)
    };
    let near = choose(&|k| k.influence != Influence::None && k.distance.is_some());
    let others = choose(&|k| k.influence != Influence::None && k.distance.is_none());
    let rest = choose(&|k| k.influence == Influence::None);
    let (mut order, mut first) = (Vec::with_capacity(all), 0);
    let (mut near, mut others) = (near.into_iter(), others.into_iter());
    loop {
        let (near, others) = (near.next(), others.next());
        if near.is_none() && others.is_none() {
            break;
        }
        order.extend(interleave(near.unwrap_or_default(), others.unwrap_or_default(), NEAR_FOR_EACH_OTHER));
        if first == 0 {
            first = order.len();
        }
    }
    order.extend(rest.into_iter().flatten());
    (order, first)
}

/// Two lists as one: `share` of the first for each of the second, as long as there are any.
pub fn interleave<T>(first: Vec<T>, second: Vec<T>, share: usize) -> Vec<T> {
    let mut all = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        let before = all.len();
        all.extend(first.by_ref().take(share));
        all.extend(second.by_ref().take(1));
        if all.len() == before {
            return all;
        }
    }
}

/// How unlikely a place is to be wrong: far from the symptom, executed all the time, or whatever the input. Less is better.
pub fn weight(distance: u32, executed: u64, influence: Influence) -> u32 {
    distance.saturating_add(influence.aside()).saturating_add(often(executed))
}

/// Dependences that what right output speaks for counts as farther away: as if it were executed four times as often.
pub fn vouched(is: bool) -> u32 {
    const ASIDE: u32 = 12;
    if is { ASIDE } else { 0 }
}

fn often(executed: u64) -> u32 {
    /// Dependences that a place may be farther away if it is executed half as often.
    const PER_DOUBLING: u32 = 6;
    PER_DOUBLING * executed.max(1).ilog2()
}

/// Those with a distance, in rounds: of each place the nearest, the first and the last execution come in the first round,
/// twice as many in each round after that; within a round by weight.
fn spread(predicates: &[Predicate], distance: &[Option<u32>], times: &[u64]) -> Vec<Vec<usize>> {
    let mut places: HashMap<u64, Vec<(u32, usize)>> = HashMap::new();
    for (n, d) in distance.iter().enumerate().rev() {
        if let Some(d) = d {
            places.entry(predicates[n].moment.pc).or_default().push((*d, n));
        }
    }
    let mut rounds: Vec<Vec<(u32, std::cmp::Reverse<usize>)>> = Vec::new();
    for mut list in places.into_values() {
        // Executions come the last first.
        let ends = [list[0].1, list[list.len() - 1].1];
        list.sort_by_key(|(d, n)| (*d, std::cmp::Reverse(*n)));
        for (k, (d, n)) in list.into_iter().enumerate() {
            let round = if k == 0 || ends.contains(&n) { 0 } else { (k + 2).ilog2() as usize };
            if rounds.len() <= round {
                rounds.resize_with(round + 1, Vec::new);
            }
            rounds[round].push((d + often(times[n]), std::cmp::Reverse(n)));
        }
    }
    rounds.iter_mut().for_each(|r| r.sort_unstable());
    rounds.into_iter().map(|r| r.into_iter().map(|(_, n)| n.0).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::serve::Moment;

    fn at(pc: u64) -> Predicate {
        Predicate { moment: Moment { tick: 0, pc }, instance: 1, ..Predicate::default() }
    }

    #[test]
    fn lists_are_interleaved_to_their_ends() {
        assert_eq!(interleave(vec![1, 2, 3], vec![7, 8, 9], 2), [1, 2, 7, 3, 8, 9]);
    }

    #[test]
    fn of_those_at_the_same_distance_what_right_output_speaks_for_is_last() {
        let two = [at(1), at(2)];
        let order = |vouched: [bool; 2]| {
            let known = vouched.map(|vouched| Known { distance: Some(3), influence: Influence::Data, vouched });
            prior(&two, &known).0
        };
        assert_eq!((order([false, true]), order([true, false])), (vec![0, 1], vec![1, 0]));
    }

    #[test]
    fn near_ones_come_first_and_each_place_before_the_second_of_another() {
        let loops = [at(1), at(1), at(1), at(1), at(1), at(2), at(3)];
        let distance = [Some(9), Some(7), Some(5), Some(3), Some(1), Some(8), None];
        let mut known = distance.map(|distance| Known { distance, influence: Influence::Data, vouched: false });
        // The place that is executed once, the ends of the other one, then the rest; one that nothing depends on between.
        assert_eq!(prior(&loops, &known), (vec![5, 4, 0, 6, 3, 2, 1], 4));
        // What the input had no influence on is last.
        known[5].influence = Influence::None;
        assert_eq!(prior(&loops, &known), (vec![4, 0, 6, 3, 2, 1, 5], 3));
        assert_eq!(lefs(&loops), [6, 5, 4, 3, 2, 1, 0]);
    }
}
