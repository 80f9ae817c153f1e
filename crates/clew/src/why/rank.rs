//! Which of the changes that repair the run is most likely where the fault is.
//!
//! Proved ones come first; of those, the nearest to the symptom by dependences, the least often executed because of the
//! input, and conditions of `if` before those of loops.

use super::gathered::Gathered;
use super::places::Places;
use super::symptom::Symptom;
use diagnose::order::{self, Often};
use diagnose::{Change, Finding};
use model::serve::Moment;
use report::Place;
use std::collections::HashSet;

/// What the symptom does not depend on, as far as is known, is taken to be so far away.
const FAR: u32 = 40;
/// Conditions of loops are wrong several times less often than those of `if` (K. Pan, S. Kim, E. J. Whitehead, "Toward an
/// understanding of bug fix patterns", 2009): as if they were executed six times as often.
const LOOP: u32 = 15;
/// Where a number is that should be another one: behind branches that are not too far off and not executed too often.
const TOLD: u32 = 48;
/// Places where the wrong number is that are told: the others are on its way to the output.
const WRONG_NUMBERS: usize = 2;

/// One change that repairs the run, as far as ranking goes.
pub struct Candidate<'a> {
    pub finding: &'a Finding,
    pub node: Option<u32>,
    /// Where it is in the window.
    pub at: Option<(u32, u16)>,
    pub distance: u32,
    /// How unlikely it is to be what is wrong.
    weight: u32,
    pub place: Place,
    /// It is in code that somebody else wrote: what compilers bring along.
    foreign: bool,
    /// It is the number that should have been printed.
    pub told: bool,
}

impl Candidate<'_> {
    fn rank(&self) -> (bool, bool, u32, bool) {
        (!self.finding.is_proved(), self.foreign, self.weight, self.told)
    }

    /// Of two of the same rank: the last one is nearest to the failure; but a wrong number is where it comes from.
    fn by_time(&self, other: &Candidate<'_>) -> std::cmp::Ordering {
        let order = self.finding.trial.moment.cmp(&other.finding.trial.moment);
        if self.told { order } else { order.reverse() }
    }
}

/// Changes that repair the run, the likeliest cause first, each line once.
pub fn ranked<'a>(gathered: &'a Gathered, symptom: Option<&Symptom>, places: &mut Places<'_>) -> Vec<Candidate<'a>> {
    let mut list = candidates(gathered, symptom, places);
    list.sort_by(|a, b| a.rank().cmp(&b.rank()).then_with(|| a.by_time(b)));
    let (mut named, mut wrong_numbers) = (HashSet::new(), 0);
    list.retain(|c| {
        let new = named.insert(c.place.key());
        wrong_numbers += usize::from(new && c.told);
        new && !(c.told && wrong_numbers > WRONG_NUMBERS)
    });
    list
}

fn candidates<'a>(gathered: &'a Gathered, symptom: Option<&Symptom>, places: &mut Places<'_>) -> Vec<Candidate<'a>> {
    let mut list = Vec::new();
    let mut wider = None;
    let often = Often::new(gathered.influence.iter().map(|(moment, influence)| (moment.pc, *influence)));
    let mut through_pointers = |moment: Moment| {
        let s = symptom?;
        let instance = gathered.outside.get(&moment)?;
        let nodes = wider.get_or_insert_with(|| s.through_pointers());
        nodes.get(&(instance.execution, instance.insn)).copied()
    };
    for finding in &gathered.search.critical {
        let node = gathered.node(finding);
        let distance = node.zip(symptom).map(|(n, s)| s.slice.nodes[n as usize].distance);
        let distance = distance.or_else(|| through_pointers(finding.trial.moment)).unwrap_or(u32::MAX);
        let pc = match gathered.values.replacements.get(&finding.trial) {
            Some(r) => gathered.values.stores[r.store].execution.moment.pc,
            None => finding.trial.moment.pc,
        };
        let influence = gathered.influence.get(&finding.trial.moment).copied().unwrap_or_default();
        let mut weight = order::weight(distance.min(FAR), often.of(pc, influence), influence);
        if gathered.loops.contains(&pc) {
            weight += LOOP;
        }
        let told = gathered.is_told(finding);
        if finding.trial.change != Change::Flip && places.origins.is_opening(pc) {
            // Where a function puts its arguments into its frame: they come from its caller.
            continue;
        }
        if told {
            weight = TOLD;
        }
        let in_slice = node.zip(symptom).map(|(n, s)| &s.slice.nodes[n as usize]).map(|n| (n.execution, n.insn));
        let outside = gathered.outside.get(&finding.trial.moment).map(|i| (i.execution, i.insn));
        let at = in_slice.or(outside);
        let foreign = !places.is_own(pc);
        list.push(Candidate { finding, node, at, distance, weight, place: places.of(pc), foreign, told });
    }
    list
}
