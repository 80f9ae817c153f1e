//! Which of the changes that repair the run is most likely where the fault is.
//!
//! Proved ones come first; of those, the nearest to the symptom by dependences, the least often executed because of the
//! input, and conditions of `if` before those of loops.

use super::calls::{self, Calls};
use super::functions::Functions;
use super::gathered::Gathered;
use super::places::Places;
use super::symptom::Symptom;
use diagnose::order::{self, Often};
use diagnose::{Change, Finding, Trial};
use model::serve::Moment;
use report::Place;
use slice::Sites;
use std::collections::{HashMap, HashSet};

/// What the symptom does not depend on, as far as is known, is taken to be so far away.
const FAR: u32 = 40;
/// No way is known from there to the symptom: dependences behind all that are as far. Of thirty bugs with a proved cause at the
/// root none was so.
const OUTSIDE: f64 = 20.0;
/// Conditions of loops are wrong several times less often than those of `if` (K. Pan, S. Kim, E. J. Whitehead, "Toward an
/// understanding of bug fix patterns", 2009): as if they were executed six times as often.
const LOOP: f64 = 15.0;
/// Where a number is that should be another one: behind branches that are not too far off and not executed too often.
const TOLD: f64 = 38.0;
/// Dependences count half where the functions that branches are in are compared too.
const DISTANCE: f64 = 0.5;
/// Lines of one function that come before any of another's.
const OF_ONE_FUNCTION: usize = 2;
/// Of the branches that were tried, so many repair the run where the oracle sees little.
const EASY: f64 = 0.05;
/// Lines around the best change that are told behind all that repair the run.
const BEHIND: usize = 3;
/// Places where the wrong number is that are told: the others are on its way to the output.
const WRONG_NUMBERS: usize = 2;

/// One change that repairs the run, as far as ranking goes.
pub struct Candidate<'a> {
    pub finding: &'a Finding,
    /// When what is told happened.
    pub moment: Moment,
    pub node: Option<u32>,
    /// Where it is in the window.
    pub at: Option<(u32, u16)>,
    pub distance: u32,
    /// How unlikely it is to be what is wrong.
    weight: f64,
    pub place: Place,
    /// Where it is in code that somebody else wrote, what compilers bring along; the place is that of the call from the
    /// program's own code, if that is known.
    pub foreign: Option<Place>,
    /// It is the number that should have been printed.
    pub told: bool,
    /// It is what a call hands over, at the place of the call.
    pub is_argument: bool,
    /// Its place is where that number was cut.
    pub is_cut: bool,
}

impl Candidate<'_> {
    fn compare(&self, other: &Candidate<'_>) -> std::cmp::Ordering {
        // What only makes the first wrong piece right does so by accident more easily, unless it is that very number.
        let is_piece = |c: &Candidate<'_>| !c.finding.is_repair() && !c.told;
        let class = |c: &Candidate<'_>| (!c.finding.is_proved(), !c.finding.is_repair(), is_piece(c), c.is_unwritten());
        let order = class(self).cmp(&class(other)).then_with(|| self.weight.total_cmp(&other.weight));
        order.then_with(|| self.told.cmp(&other.told)).then_with(|| self.by_time(other))
    }

    /// Did nobody write it for this program? What a compiler puts where a block ends, destructors and checks of the stack, has a
    /// brace for its line.
    fn is_unwritten(&self) -> bool {
        let is_brace = |source: &String| !source.contains(char::is_alphanumeric);
        self.foreign.is_some() || self.place.source.as_ref().is_some_and(is_brace)
    }

    /// Of two of the same rank: the last one is nearest to the failure; but a wrong number is where it comes from.
    fn by_time(&self, other: &Candidate<'_>) -> std::cmp::Ordering {
        let order = self.finding.trial.moment.cmp(&other.finding.trial.moment);
        if self.told { order } else { order.reverse() }
    }
}

/// What is told when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The next change that repairs the run.
    Repair,
    /// A call that much hangs on.
    Call,
    /// A line around the best change.
    Around,
}

/// What repairs the run, and what hangs together with it.
pub struct Ranking<'a> {
    /// The likeliest cause first, each line once.
    pub candidates: Vec<Candidate<'a>>,
    /// Where so many branches repair the run that a repair says little.
    calls: Option<Calls>,
}

impl<'a> Ranking<'a> {
    pub fn of(
        gathered: &'a Gathered,
        symptom: Option<&Symptom>,
        sites: Option<&Sites<'_>>,
        places: &mut Places<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Ranking<'a> {
        let functions = Functions::count(gathered, places);
        // One or two branches under a call say nothing about it.
        let seen = symptom.zip(sites).filter(|_| functions.rate() > EASY);
        let calls = seen.and_then(|(s, sites)| Calls::count(gathered, s, sites, places, stop));
        let candidates = ranked(candidates(gathered, symptom, &functions, calls.as_ref(), sites, places));
        Ranking { candidates, calls }
    }

    /// Lines with calls that most hangs on.
    pub fn calls(&self, places: &mut Places<'_>) -> Vec<Place> {
        let ranked = self.calls.iter().flat_map(Calls::ranked);
        ranked.map(|pc| places.of(pc)).collect()
    }

    /// In which order things are told. Where few branches repair the run, the first ones are good; else what they have
    /// in common says as much. Behind the last repair there are a few lines around the first.
    pub fn turns(&self) -> Vec<Turn> {
        turns(self.candidates.len(), self.calls.is_some())
    }
}

fn turns(mut repairs: usize, is_easy: bool) -> Vec<Turn> {
    use Turn::{Around, Call, Repair};
    let (first, then): (&[Turn], &[Turn]) = match is_easy {
        true => (&[Repair, Repair, Call, Repair, Repair, Around, Call], &[Repair, Around, Repair, Call]),
        false => (&[Repair, Repair, Repair, Around], &[Repair, Around]),
    };
    let mut turns = Vec::new();
    for turn in first.iter().chain(then.iter().cycle()) {
        if repairs == 0 {
            break;
        }
        repairs -= usize::from(*turn == Repair);
        turns.push(*turn);
    }
    if !turns.is_empty() {
        turns.extend([Around; BEHIND]);
    }
    turns
}

/// In order, each line once.
fn ranked(mut list: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    list.sort_by(Candidate::compare);
    let (mut named, mut wrong_numbers) = (HashSet::new(), 0);
    list.retain(|c| {
        let new = named.insert(c.place.key());
        wrong_numbers += usize::from(new && c.told);
        new && !(c.told && wrong_numbers > WRONG_NUMBERS)
    });
    diverse(list)
}

/// A few of each function first: the others of a function that repairs the run in many ways say nothing new.
fn diverse(list: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    let mut named: HashMap<Option<String>, usize> = HashMap::new();
    let (mut first, others): (Vec<_>, Vec<_>) = list.into_iter().partition(|c| {
        let times = named.entry(c.place.function.clone()).or_default();
        *times += 1;
        *times <= OF_ONE_FUNCTION
    });
    first.extend(others);
    first.sort_by_key(|c| !c.finding.is_proved());
    first
}

fn candidates<'a>(
    gathered: &'a Gathered,
    symptom: Option<&Symptom>,
    functions: &Functions,
    calls: Option<&Calls>,
    sites: Option<&Sites<'_>>,
    places: &mut Places<'_>,
) -> Vec<Candidate<'a>> {
    let mut list = Vec::new();
    let often = often(gathered);
    let through_pointers = |moment: Moment| {
        let s = symptom?;
        let instance = gathered.outside.get(&moment)?;
        s.through_pointers().get(&(instance.execution, instance.insn)).copied()
    };
    for finding in gathered.search.critical.iter().chain(&gathered.search.advancing) {
        let node = gathered.node(finding);
        let distance = node.zip(symptom).map(|(n, s)| s.slice.nodes[n as usize].distance);
        let distance = distance.or_else(|| through_pointers(finding.trial.moment)).unwrap_or(u32::MAX);
        let pc = match gathered.values.replacements.get(&finding.trial) {
            Some(r) => gathered.values.stores[r.store].execution.moment.pc,
            None => finding.trial.moment.pc,
        };
        let told = gathered.is_told(finding);
        let influence = gathered.influence.get(&finding.trial.moment).copied().unwrap_or_default();
        let near = DISTANCE * f64::from(distance.min(FAR)) + if distance == u32::MAX { OUTSIDE } else { 0.0 };
        let mut weight = near + f64::from(order::weight(0, often.of(pc, influence), influence));
        if !gathered.values.replacements.contains_key(&finding.trial) {
            weight += functions.weight(pc, places);
            weight += calls.and_then(|c| c.above(finding.trial.moment)).unwrap_or(0.0);
        }
        if gathered.loops.contains(&pc) && gathered.rounds.count(pc) == 0 {
            weight += LOOP;
        }
        let mut shown = pc;
        let is_argument = finding.trial.change != Change::Flip && places.origins.is_opening(pc);
        if is_argument {
            // Where a function puts its arguments into its frame: they come from its caller. Of other values than the
            // one that should have been printed nobody knows whether they are meant.
            match call_of(node, symptom, sites).filter(|_| told) {
                Some(call) if places.is_own(call) => shown = call,
                // Nobody calls `main` but the library: it is the function's first line itself.
                Some(_) => {}
                None => continue,
            }
        }
        if told {
            weight = TOLD;
        }
        // What is wrong later on is only on its way.
        let cut = gathered.cut.as_ref().filter(|cut| told && cut.moment.tick <= finding.trial.moment.tick);
        let (node, moment) = cut.map_or((node, finding.trial.moment), |cut| (Some(cut.node), cut.moment));
        shown = cut.map_or(shown, |cut| cut.pc);
        let in_slice = node.zip(symptom).map(|(n, s)| &s.slice.nodes[n as usize]).map(|n| (n.execution, n.insn));
        let outside = gathered.outside.get(&finding.trial.moment).map(|i| (i.execution, i.insn));
        // Where a call is that handed a number over, no node tells.
        let at = in_slice.or(outside).filter(|_| cut.is_none_or(|cut| !cut.handed_over));
        let foreign = (!places.is_own(shown)).then(|| places.of(shown));
        if foreign.is_some() {
            shown = call_from_own_code(at, sites, places).unwrap_or(shown);
        }
        list.push(Candidate {
            finding,
            moment,
            node,
            at,
            distance,
            weight,
            place: places.of(shown),
            foreign,
            told,
            is_argument: is_argument && shown != pc,
            is_cut: cut.is_some(),
        });
    }
    weigh_arm(gathered, &mut list);
    list
}

/// How often places are executed, not counting the rounds of a loop that does not end.
fn often(gathered: &Gathered) -> Often {
    let counted = gathered.influence.iter().filter(|(moment, _)| !gathered.rounds.hold(**moment));
    Often::new(counted.map(|(moment, influence)| (moment.pc, *influence)))
}

/// The call of the function that a node of the slice is in.
fn call_of(node: Option<u32>, symptom: Option<&Symptom>, sites: Option<&Sites<'_>>) -> Option<u64> {
    let ((node, symptom), sites) = node.zip(symptom).zip(sites)?;
    calls::innermost(sites, symptom.slice.nodes[node as usize].segment)
}

/// The innermost call from the program's own code that led to an execution.
fn call_from_own_code(at: Option<(u32, u16)>, sites: Option<&Sites<'_>>, places: &mut Places<'_>) -> Option<u64> {
    let ((execution, insn), sites) = at.zip(sites)?;
    calls::innermost_of(sites, sites.segment(execution, insn)?, |pc| places.is_own(pc))
}

/// The smaller change comes with its branch, and before it: it happened later.
fn weigh_arm(gathered: &Gathered, list: &mut [Candidate<'_>]) {
    let branch = gathered.arm.as_ref().and_then(|arm| {
        let is_it = |c: &&Candidate<'_>| c.finding.trial == Trial::flip(arm.branch);
        list.iter().find(is_it).map(|c| c.weight)
    });
    if let Some(weight) = branch {
        list.iter_mut().filter(|c| gathered.arm_of(c.finding).is_some()).for_each(|c| c.weight = weight);
    }
}

#[cfg(test)]
mod tests {
    use super::Turn::{Around, Call, Repair};
    use super::*;

    #[test]
    fn all_repairs_are_told_and_lines_around_the_first_behind_them() {
        assert_eq!(turns(0, false), []);
        assert_eq!(turns(1, false), [Repair, Around, Around, Around]);
        assert_eq!(turns(4, false), [Repair, Repair, Repair, Around, Repair, Around, Around, Around]);
        for easy in [false, true] {
            let told = turns(50, easy).into_iter().filter(|t| *t == Repair).count();
            assert_eq!(told, 50, "{easy}");
        }
    }

    #[test]
    fn calls_are_told_only_where_repairs_say_little() {
        assert!(!turns(9, false).contains(&Call));
        assert_eq!(turns(5, true)[..5], [Repair, Repair, Call, Repair, Repair]);
    }
}
