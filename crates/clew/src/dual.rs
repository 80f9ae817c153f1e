//! How a change leads to the symptom: the failing run beside the repaired one, from the moment on at which they part.
//!
//! ```text
//! failing run ─ traced ─┬▶ counterparts ─▶ branches that went another way, executions without counterpart
//! repaired run ─ traced ┘        └─ both again, looked at ─▶ what stores stored in both
//! symptom ─ dependences back, but not through what was the same in both ─▶ the branch that was switched
//! ```
//! Whatever is on the way is different in the repaired run, or could not be compared (what stays in registers, what is
//! stored in long pieces). Where the failing run lacks a store that the repaired one makes, the way leads through that.
//!
//! Guarantees: values are those of the two runs. May miss: ways through registers that only the repaired run sets, runs
//! that are longer than [`MOST_INSTRUCTIONS`] between the change and the symptom, and symptoms that nothing leads to by
//! dependences of the failing run.
//! Source: D. Weeratunge, X. Zhang, W. Sumner, S. Jagannathan, "Analyzing Concurrency Bugs Using Dual Slicing", ISSTA 2010.

use crate::case::{Case, alteration};
use crate::slice::facts::Program;
use crate::slice::lines::Squash;
use crate::slice::tracing::{self, Gathering};
use crate::why::places::Places;
use crate::why::symptom::Mapped;
use diagnose::Trial;
use model::serve::{Alteration, Look, TrialLimits};
use report::Step;
use session::{Budget, Candidate, Session};
use slice::insn::Control;
use slice::pair::At;
use slice::{Criterion, Executed, Input, Node, Pair, Prepare, Slice, Why, Window};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

/// Instructions between the change and the symptom, at most: each takes some hundred bytes.
const MOST_INSTRUCTIONS: u64 = 3_000_000;
/// The same in ticks, which are known before anything is traced.
const MOST_TICKS: u64 = 1_000_000;
/// Ticks that the repaired run may take, for each that the failing run takes to its symptom, and besides.
const LONGER: u64 = 4;
const MORE_TICKS: u64 = 100_000;
const MOST_NODES: usize = 1_000_000;
/// Stores whose values are compared at a time: first those nearest to the symptom.
const MOST_LOOKS: usize = 400;
/// Ways that are looked at; each takes two more runs.
const ROUNDS: usize = 8;
/// Steps of a way, at most.
const LONGEST: usize = 40;

/// What is needed to lay runs beside each other.
pub struct Beside<'a> {
    pub case: &'a Case<'a>,
    pub mapped: &'a Mapped,
    pub budget: &'a Budget,
    /// What is wrong at the symptom, and when.
    pub criterion: &'a Criterion,
    pub symptom: model::serve::Moment,
}

/// What the repaired run did at an execution of the failing run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum There {
    /// The same.
    Same,
    /// It stored another value: this here, that there.
    Stored(Stored, Stored),
    /// It went another way.
    OtherWay,
    /// There is no such execution.
    Alone,
    Unknown,
}

/// What is known about one execution.
#[derive(Clone, Copy, Debug)]
struct Fact {
    control: Control,
    /// A number that it stored, where.
    stored: Option<(u64, u64)>,
    /// What was executed next by the same thread: address, and the how-manieth execution of it.
    next: Option<(u64, u64)>,
}

/// Facts about executions of a window.
fn facts_of(window: &Window, wanted: &dyn Fn(At) -> bool) -> HashMap<At, Fact> {
    let mut found: HashMap<At, Fact> = HashMap::new();
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut last: HashMap<u32, At> = HashMap::new();
    window.each(&mut |e: &Executed<'_>| {
        let count = counts.entry(e.code.pc).or_default();
        *count += 1;
        if let Some(fact) = last.remove(&e.thread).and_then(|at| found.get_mut(&at)) {
            fact.next = Some((e.code.pc, *count));
        }
        let at = (e.execution, e.insn);
        if wanted(at) {
            let mut stores = e.code.mem.iter().zip(e.touched).filter(|(m, _)| m.write);
            let one = stores.next().filter(|_| stores.next().is_none() && e.code.control == Control::Next);
            let stored = one.map(|(_, range)| *range).filter(|(_, len)| matches!(len, 1 | 2 | 4 | 8));
            found.insert(at, Fact { control: e.code.control, stored, next: None });
            last.insert(e.thread, at);
        }
    });
    found
}

impl Fact {
    /// Where to look for what it stored.
    fn look(&self) -> Option<Look> {
        let ((addr, len), (pc, execution)) = (self.stored?, self.next?);
        Some(Look { pc, execution, addr, len: len as u32 })
    }
}

impl Beside<'_> {
    /// The way from what a trial changed to the symptom, in steps; why there is none.
    pub fn way(
        &self,
        session: &mut Session,
        trial: &Trial,
        places: &mut Places<'_>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Step>, String> {
        let ticks = self.symptom.tick.saturating_sub(trial.moment.tick);
        if ticks > MOST_TICKS {
            return Err(too_far());
        }
        // What it does long after the symptom says nothing about it.
        let most = self.budget.limits.ticks.min(LONGER * ticks + MORE_TICKS);
        let budget = Budget { limits: TrialLimits { ticks: most, ..self.budget.limits }, ..*self.budget };
        let mut program = Program::new(session, &self.mapped.loaded, &self.mapped.paths, true);
        let facts = program.as_mut().map_err(|e| e.to_string())?;
        let prepare = Prepare { bypass: true, frames: false };
        let traced = tracing::trace(session, Some(trial.moment), self.symptom, u64::MAX, stop)?;
        let calls = tracing::calls(&self.case.opened.recording, &self.case.unit)?;
        let calls = calls.into_iter().filter(|c| c.tick >= trial.moment.tick).collect();
        let failing = traced.builder.finish(facts, calls, prepare);
        if failing.instructions() > MOST_INSTRUCTIONS {
            return Err(too_far());
        }
        let gathering = Gathering::default();
        let change = Candidate { moment: trial.moment, alteration: alteration(&trial.change) };
        let (_, totals) = session.traced_trial(&change, &budget, gathering.traces()).map_err(|e| e.to_string())?;
        let repaired = gathering.finish(&totals)?.finish(facts, Vec::new(), prepare);
        if repaired.instructions() > LONGER * MOST_INSTRUCTIONS {
            return Err("the repaired run is too long to be compared".into());
        }
        let how = slice::Options { edges: true, most_nodes: MOST_NODES, ..slice::Options::default() };
        let slice = slice::backward(&failing, self.criterion, &how, facts, stop);
        let pair = Pair::new(&failing, &repaired);
        let mut runs = Runs::new(trial, (&failing, &repaired), &pair, &slice, places);
        let mut looking = Looking { session, change: &change, budget: &budget, stop };
        let way = runs.find(&mut looking)?;
        let way = way.ok_or("no dependence that differs in the repaired run leads from it to the failure")?;
        let mut squash = Squash::new(&failing, false);
        Ok(runs.tell(&way, places, &mut squash))
    }
}

fn too_far() -> String {
    "too much lies between it and the failure, more than some three million instructions".into()
}

/// A station of the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Station {
    /// The branch that was switched.
    Switched,
    /// A store of the repaired run that the failing one lacks: its number among those, and what it stored.
    Missing(usize, Option<Stored>),
    /// A node of the failing run's slice.
    Node(u32),
}

/// Runs both again and looks at memory.
struct Looking<'a> {
    session: &'a mut Session,
    change: &'a Candidate,
    budget: &'a Budget,
    stop: &'a mut dyn FnMut() -> bool,
}

impl Looking<'_> {
    fn unchanged(&mut self, looks: &[Look]) -> Result<Vec<Option<Stored>>, String> {
        self.look(&Candidate { moment: self.change.moment, alteration: Alteration::Null }, looks)
    }

    fn changed(&mut self, looks: &[Look]) -> Result<Vec<Option<Stored>>, String> {
        self.look(self.change, looks)
    }

    fn look(&mut self, candidate: &Candidate, looks: &[Look]) -> Result<Vec<Option<Stored>>, String> {
        if looks.is_empty() {
            return Ok(Vec::new());
        }
        if (self.stop)() {
            return Err("there was no time to compare values".into());
        }
        let found = self.session.looking_trial(candidate, self.budget, looks).map_err(|e| e.to_string())?;
        Ok(found.into_iter().map(|bytes| bytes.map(|b| Stored::of(&b))).collect())
    }
}

/// A store of the repaired run that has no counterpart.
#[derive(Clone, Copy, Debug)]
struct Missing {
    at: At,
    /// Where it is shown: its own place, or the call from own code that led to it.
    shown: u64,
    /// It is in own code.
    own: bool,
}

/// Both runs, and what is known about them.
struct Runs<'a> {
    trial: &'a Trial,
    pair: &'a Pair,
    slice: &'a Slice,
    /// The branch that was switched: the first instruction of the failing run's window.
    switched: Option<At>,
    /// By node of the slice.
    there: Vec<There>,
    here: HashMap<At, Fact>,
    others: HashMap<At, Fact>,
    /// Stores of the repaired run alone that the failing run's slice would have used.
    missing: Vec<Missing>,
    values_missing: HashMap<At, Stored>,
    /// Whom each node uses.
    makers: Vec<Vec<u32>>,
}

impl<'a> Runs<'a> {
    fn new(
        trial: &'a Trial,
        (failing, repaired): (&Window, &Window),
        pair: &'a Pair,
        slice: &'a Slice,
        places: &mut Places<'_>,
    ) -> Runs<'a> {
        let nodes: HashSet<At> = slice.nodes.iter().skip(1).map(|n| (n.execution, n.insn)).collect();
        let there: HashSet<At> = nodes.iter().filter_map(|at| pair.counterpart(*at)).collect();
        let here = facts_of(failing, &|at| nodes.contains(&at));
        let mut missing = Vec::new();
        let wanted = wanted_before(slice);
        let mut squash = Squash::new(repaired, false);
        repaired.each(&mut |e: &Executed<'_>| {
            let at = (e.execution, e.insn);
            let stores = e.code.mem.iter().zip(e.touched).filter(|(m, _)| m.write);
            let hits =
                |(_, (addr, len)): (_, &(u64, u64))| (*addr..addr + len.min(&64)).any(|b| wanted.contains_key(&b));
            if !pair.is_in_both(at) && stores.into_iter().any(hits) {
                let pc = e.code.pc;
                let node = Node { pc, segment: e.segment, ..slice.nodes[0] };
                let shown = squash.shown(&node, &mut places.origins).map_or(pc, |(_, pc)| pc);
                missing.push(Missing { at, shown, own: places.is_own(pc) });
            }
        });
        let alone: HashSet<At> = missing.iter().map(|m| m.at).collect();
        let others = facts_of(repaired, &|at| there.contains(&at) || alone.contains(&at));
        let mut makers = vec![Vec::new(); slice.nodes.len()];
        for edge in &slice.edges {
            makers[edge.user as usize].push(edge.maker);
        }
        let mut switched = None;
        failing.each(&mut |e| _ = switched.get_or_insert((e.execution, e.insn)));
        let known = vec![There::Unknown; slice.nodes.len()];
        let mut runs = Runs {
            trial,
            pair,
            slice,
            switched,
            there: known,
            here,
            others,
            missing,
            values_missing: HashMap::new(),
            makers,
        };
        runs.compare_ways();
        runs
    }

    fn at(&self, node: u32) -> At {
        let n = &self.slice.nodes[node as usize];
        (n.execution, n.insn)
    }

    /// Is it the branch that was switched?
    fn is_switched(&self, node: u32) -> bool {
        Some(self.at(node)) == self.switched
    }

    /// Which branches went another way, and which executions have no counterpart.
    fn compare_ways(&mut self) {
        for node in 1..self.slice.nodes.len() as u32 {
            let at = self.at(node);
            let Some(other) = self.pair.counterpart(at) else {
                self.there[node as usize] = There::Alone;
                continue;
            };
            let (Some(here), Some(there)) = (self.here.get(&at), self.others.get(&other)) else { continue };
            if matches!(here.control, Control::Branch | Control::IndirectJump) {
                let way = |f: &Fact| f.next.map(|(pc, _)| pc);
                let same = way(here) == way(there);
                self.there[node as usize] = if same { There::Same } else { There::OtherWay };
            }
        }
    }

    /// Looks for a way, and at the values on it, until no more of it turns out to be the same in both runs.
    fn find(&mut self, looking: &mut Looking<'_>) -> Result<Option<Vec<Station>>, String> {
        let nearest = self.visited().0;
        self.compare_values(&nearest, looking)?;
        self.look_at_missing(looking)?;
        for _ in 0..ROUNDS {
            let Some(way) = self.way() else { return Ok(None) };
            let node = |s: &Station| match s {
                Station::Node(n) => Some(*n).filter(|n| self.there[*n as usize] == There::Unknown),
                _ => None,
            };
            let unknown: Vec<u32> = way.iter().filter_map(node).collect();
            if !self.compare_values(&unknown, looking)? {
                return Ok(Some(way));
            }
        }
        Ok(self.way())
    }

    /// Runs both again and looks what these stored; answers whether some stored the same.
    fn compare_values(&mut self, nodes: &[u32], looking: &mut Looking<'_>) -> Result<bool, String> {
        let looks = |node: u32| {
            let at = self.at(node);
            let other = self.pair.counterpart(at)?;
            let (one, two) = (self.here.get(&at)?.look()?, self.others.get(&other)?.look()?);
            // The switched branch itself is not counted where the run begins.
            (one.pc != self.trial.moment.pc).then_some((node, one, two))
        };
        let asked: Vec<(u32, Look, Look)> = nodes.iter().filter_map(|n| looks(*n)).take(MOST_LOOKS).collect();
        let here = looking.unchanged(&asked.iter().map(|a| a.1).collect::<Vec<_>>())?;
        let there = looking.changed(&asked.iter().map(|a| a.2).collect::<Vec<_>>())?;
        let mut any = false;
        for ((node, ..), values) in asked.iter().zip(here.into_iter().zip(there)) {
            if let (Some(one), Some(two)) = values {
                any |= one == two;
                self.there[*node as usize] = if one == two { There::Same } else { There::Stored(one, two) };
            }
        }
        Ok(any)
    }

    /// Looks what the repaired run alone stored.
    fn look_at_missing(&mut self, looking: &mut Looking<'_>) -> Result<(), String> {
        let look = |m: &Missing| Some((m.at, self.others.get(&m.at)?.look()?));
        let asked: Vec<(At, Look)> = self.missing.iter().filter_map(look).take(MOST_LOOKS).collect();
        let values = looking.changed(&asked.iter().map(|a| a.1).collect::<Vec<_>>())?;
        let known = asked.iter().zip(values).filter_map(|((at, _), value)| Some((*at, value?)));
        self.values_missing = known.collect();
        Ok(())
    }

    /// Nodes from the symptom back that are not the same in both runs, the nearest first, and through which each was
    /// reached.
    fn visited(&self) -> (Vec<u32>, HashMap<u32, u32>) {
        let (mut order, mut through) = (Vec::new(), HashMap::from([(0, 0)]));
        let mut queue = VecDeque::from([0]);
        while let Some(node) = queue.pop_front() {
            for &maker in &self.makers[node as usize] {
                let is_new = self.there[maker as usize] != There::Same && !through.contains_key(&maker);
                if is_new || self.is_switched(maker) && !through.contains_key(&maker) {
                    through.insert(maker, node);
                    order.push(maker);
                    queue.push_back(maker);
                }
            }
        }
        (order, through)
    }

    /// From the change to the symptom.
    fn way(&self) -> Option<Vec<Station>> {
        let (order, through) = self.visited();
        let onward = |mut node: u32| {
            let mut way = Vec::new();
            while node != 0 {
                way.push(Station::Node(node));
                node = through[&node];
            }
            way
        };
        if let Some(switched) = order.iter().find(|n| self.is_switched(**n)) {
            let mut way = onward(*switched);
            way[0] = Station::Switched;
            return Some(way);
        }
        // Something was used that the repaired run has overwritten: by own code, if possible, and near the symptom.
        let wanted = wanted_before(self.slice);
        let rank: HashMap<u32, usize> = [0].iter().chain(&order).enumerate().map(|(n, node)| (*node, n)).collect();
        let user_of = |m: &Missing| {
            let (addr, len) = self.others.get(&m.at)?.stored?;
            let users = (addr..addr + len).filter_map(|b| wanted.get(&b)).flatten();
            users.copied().filter(|n| rank.contains_key(n)).min_by_key(|n| rank[n])
        };
        let found = self.missing.iter().enumerate().rev().filter_map(|(n, m)| Some((n, m, user_of(m)?)));
        let (n, missing, user) = found.min_by_key(|(_, m, user)| (!m.own, rank[user]))?;
        let missing = Station::Missing(n, self.values_missing.get(&missing.at).copied());
        Some([Station::Switched, missing].into_iter().chain(onward(user)).collect())
    }

    /// The way for people: one step for each line.
    fn tell(&self, way: &[Station], places: &mut Places<'_>, squash: &mut Squash<'_>) -> Vec<Step> {
        let mut steps: Vec<(Step, bool)> = Vec::new();
        for station in way {
            let (pc, by, telling) = match station {
                Station::Switched => (self.trial.moment.pc, "goes the other way in the repaired run".into(), true),
                Station::Missing(n, value) => {
                    let missing = &self.missing[*n];
                    let by = match value.filter(|_| missing.own) {
                        Some(value) => format!("stores {value} in the repaired run only"),
                        None => "runs in the repaired run only".into(),
                    };
                    (missing.shown, by, true)
                }
                Station::Node(node) => {
                    let at = &self.slice.nodes[*node as usize];
                    let Some((_, pc)) = squash.shown(at, &mut places.origins) else { continue };
                    let (by, telling) = self.words(*node, at.why);
                    (pc, by, telling)
                }
            };
            let place = places.of(pc);
            // A brace is where a function sets up its frame; nobody learns anything from it.
            if place.source.as_ref().is_some_and(|text| !text.contains(char::is_alphanumeric)) {
                continue;
            }
            let is_first = steps.len() == 1;
            match steps.last_mut().filter(|(last, _)| last.place.line == place.line && last.place.full == place.full) {
                // A line is told by the last of its instructions of which something is known; the first as switched.
                Some((last, known)) if !is_first && (telling || !*known) => (last.by, *known) = (by, telling),
                Some(_) => {}
                None => steps.push((Step { place, by }, telling)),
            }
        }
        if steps.len() > LONGEST {
            // The beginning and the end say the most.
            let first = LONGEST / 2;
            steps.drain(first..first + steps.len() - LONGEST);
        }
        steps.into_iter().map(|(step, _)| step).collect()
    }

    /// What is to be said about a node, and whether it says how the runs differ.
    fn words(&self, node: u32, why: Why) -> (String, bool) {
        match self.there[node as usize] {
            There::Stored(here, there) => (format!("stores {here} instead of {there}"), true),
            There::OtherWay => ("goes another way than in the repaired run".into(), true),
            There::Alone => ("runs in the failing run only".into(), true),
            There::Same | There::Unknown => match why {
                Why::Criterion => ("is what is wrong".into(), false),
                Why::Control => ("decides about it".into(), false),
                _ => ("its value".into(), false),
            },
        }
    }
}

/// Bytes of memory that the slice needs from before its window, and who needs them.
fn wanted_before(slice: &Slice) -> HashMap<u64, Vec<u32>> {
    let mut all: HashMap<u64, Vec<u32>> = HashMap::new();
    for input in &slice.inputs {
        if let Input::Mem { addr, mask, node, .. } = input {
            for bit in (0..64).filter(|bit| mask >> bit & 1 != 0) {
                all.entry(addr + bit).or_default().push(*node);
            }
        }
    }
    all
}

/// A number of one to eight bytes in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stored {
    value: i64,
    len: usize,
}

impl Stored {
    fn of(bytes: &[u8]) -> Stored {
        let len = bytes.len().clamp(1, 8);
        let mut word = [0; 8];
        word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
        let unused = 64 - 8 * len as u32;
        Stored { value: i64::from_le_bytes(word) << unused >> unused, len }
    }
}

impl fmt::Display for Stored {
    /// Characters and small numbers as people write them, others as addresses are written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.len, self.value) {
            (1, 0x20..=0x7e) => write!(f, "{:?}", self.value as u8 as char),
            (_, -0xffff..=0xffff) => write!(f, "{}", self.value),
            (len, value) => write!(f, "{:#x}", value as u64 & u64::MAX >> (64 - 8 * len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_as_people_write_them() {
        for (bytes, text) in [
            (&[0x31][..], "'1'"),
            (&[7], "7"),
            (&[0xff, 0xff, 0xff, 0xff], "-1"),
            (&[0, 0, 2, 0], "0x20000"),
            (&[0, 0, 0, 0x80], "0x80000000"),
            (&[0x10, 0x20, 0x30, 0x40, 0x55, 0x7f, 0, 0], "0x7f5540302010"),
        ] {
            assert_eq!(Stored::of(bytes).to_string(), text);
        }
    }
}
