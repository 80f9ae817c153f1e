//! What all methods together have found, before anything is ranked.

use super::arms::Arm;
use super::cut::Cut;
use super::loops::Rounds;
use super::places::Places;
use super::values::Values;
use crate::case::Branches;
use diagnose::order::Influence;
use diagnose::{Finding, Search, Verdict};
use model::serve::Moment;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// What was found by all methods.
pub struct Gathered {
    pub search: Search,
    pub branches: Branches,
    /// Where executions of branches are in the slice.
    pub nodes: HashMap<Moment, u32>,
    /// Executions of branches that are in the window but not in the slice.
    pub outside: HashMap<Moment, slice::Instance>,
    /// What the input had to do with executions of branches.
    pub influence: HashMap<Moment, Influence>,
    pub values: Values,
    /// Where the right number was cut.
    pub cut: Option<Cut>,
    /// What the best branch let happen, left out.
    pub arm: Option<Arm>,
    /// Addresses of branches that decide whether a loop goes on.
    pub loops: HashSet<u64>,
    /// Calls that were under way when the program died, the innermost first.
    pub stack: Vec<u64>,
    /// What a run that does not end does since it goes round and round.
    pub rounds: Rounds,
    /// Where a run that does not end stands.
    pub standing: Option<String>,
    pub limits: Vec<String>,
    /// What the time went into.
    pub phases: Vec<(String, f64)>,
}

impl Gathered {
    pub fn new(limits: Vec<String>) -> Gathered {
        Gathered {
            search: Search::default(),
            branches: Branches::default(),
            nodes: HashMap::new(),
            outside: HashMap::new(),
            influence: HashMap::new(),
            values: Values::default(),
            cut: None,
            arm: None,
            loops: HashSet::new(),
            stack: Vec::new(),
            rounds: Rounds::default(),
            standing: None,
            limits,
            phases: Vec::new(),
        }
    }

    /// Does it store the number that should have been printed? The program is as wrong before that as it was.
    pub fn is_told(&self, finding: &Finding) -> bool {
        self.values.replacements.get(&finding.trial).is_some_and(|r| r.told)
    }

    /// What the best branch let happen, if this leaves it out.
    pub fn arm_of(&self, finding: &Finding) -> Option<&Arm> {
        self.arm.as_ref().filter(|arm| arm.trial == finding.trial)
    }

    /// Is there a proved cause in the program's own code of which the output did not tell how to repair it?
    pub fn has_proof(&self, places: &mut Places<'_>) -> bool {
        self.search.critical.iter().any(|f| f.is_proved() && !self.is_told(f) && places.is_own(f.trial.moment.pc))
    }

    /// Did one of the trials repair the run that were told behind so many?
    pub fn has_repair_since(&self, told: usize) -> bool {
        self.search.told[told..].iter().any(|(_, verdict, _)| *verdict == Verdict::Fixed)
    }

    /// How often the branch at an address was executed, not counting the rounds of a loop that does not end.
    pub fn executed(&self, pc: u64) -> u64 {
        self.branches.count(pc).saturating_sub(self.rounds.count(pc))
    }

    /// Notes what time went into.
    pub fn spent(&mut self, what: &str, begun: Instant) {
        let seconds = begun.elapsed().as_secs_f64();
        match self.phases.iter_mut().find(|(name, _)| name == what) {
            Some((_, sum)) => *sum += seconds,
            None => self.phases.push((what.to_owned(), seconds)),
        }
    }

    /// The node of the slice that a trial changed.
    pub fn node(&self, finding: &Finding) -> Option<u32> {
        match self.values.replacements.get(&finding.trial) {
            Some(r) => Some(self.values.stores[r.store].node),
            None => match self.arm_of(finding) {
                Some(arm) => Some(arm.node),
                None => self.nodes.get(&finding.trial.moment).copied(),
            },
        }
    }
}
