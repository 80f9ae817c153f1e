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
use model::serve::{Alteration, Look};
use report::Step;
use session::{Budget, Candidate, Session};
use slice::insn::Control;
use slice::pair::At;
use slice::{Criterion, Executed, Input, Pair, Prepare, Slice, Why, Window};
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

/// Instructions between the change and the symptom, at most: each takes some hundred bytes.
const MOST_INSTRUCTIONS: u64 = 3_000_000;
const MOST_NODES: usize = 1_000_000;
/// Stores whose values are compared, those nearest to the symptom.
const MOST_LOOKS: usize = 400;
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
        let mut program = Program::new(session, &self.mapped.loaded, &self.mapped.paths, true);
        let facts = program.as_mut().map_err(|e| e.to_string())?;
        let prepare = Prepare { bypass: true, frames: false };
        let traced = tracing::trace(session, Some(trial.moment), self.symptom, u64::MAX, stop)?;
        let calls = tracing::calls(&self.case.opened.recording, &self.case.unit)?;
        let calls = calls.into_iter().filter(|c| c.tick >= trial.moment.tick).collect();
        let failing = traced.builder.finish(facts, calls, prepare);
        if failing.instructions() > MOST_INSTRUCTIONS {
            return Err(format!("more than {MOST_INSTRUCTIONS} instructions lie between it and the failure"));
        }
        let gathering = Gathering::default();
        let change = Candidate { moment: trial.moment, alteration: alteration(&trial.change) };
        let (_, totals) = session.traced_trial(&change, self.budget, gathering.traces()).map_err(|e| e.to_string())?;
        let repaired = gathering.finish(&totals)?.finish(facts, Vec::new(), prepare);
        if repaired.instructions() > 4 * MOST_INSTRUCTIONS {
            return Err("the repaired run is too long to be compared".into());
        }
        let how = slice::Options { edges: true, most_nodes: MOST_NODES, ..slice::Options::default() };
        let slice = slice::backward(&failing, self.criterion, &how, facts, stop);
        let pair = Pair::new(&failing, &repaired);
        let mut runs = Runs::new(trial, &failing, &repaired, &pair, &slice);
        runs.compare_values(session, &change, self.budget)?;
        let way = runs.way().ok_or("no dependence that differs in the repaired run leads from it to the failure")?;
        let mut squash = Squash::new(&failing, false);
        Ok(runs.tell(&way, places, &mut squash))
    }
}

/// A station of the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Station {
    /// The branch that was switched.
    Switched,
    /// An execution of the repaired run that the failing one lacks: address of its code, and what it stored.
    Missing(u64, Option<Stored>),
    /// A node of the failing run's slice.
    Node(u32),
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
    /// Stores of the repaired run alone: where in it, and its code.
    missing: Vec<(At, u64)>,
    values_missing: HashMap<At, Stored>,
    /// Whom each node uses.
    makers: Vec<Vec<u32>>,
}

impl<'a> Runs<'a> {
    fn new(trial: &'a Trial, failing: &Window, repaired: &Window, pair: &'a Pair, slice: &'a Slice) -> Runs<'a> {
        let nodes: HashSet<At> = slice.nodes.iter().skip(1).map(|n| (n.execution, n.insn)).collect();
        let there: HashSet<At> = nodes.iter().filter_map(|at| pair.counterpart(*at)).collect();
        let here = facts_of(failing, &|at| nodes.contains(&at));
        let mut missing = Vec::new();
        let wanted = wanted_before(slice);
        repaired.each(&mut |e: &Executed<'_>| {
            let at = (e.execution, e.insn);
            let stores = e.code.mem.iter().zip(e.touched).filter(|(m, _)| m.write);
            let hits =
                |(_, (addr, len)): (_, &(u64, u64))| (*addr..addr + len.min(&64)).any(|b| wanted.contains_key(&b));
            if !pair.is_in_both(at) && stores.into_iter().any(hits) {
                missing.push((at, e.code.pc));
            }
        });
        let alone: HashSet<At> = missing.iter().map(|(at, _)| *at).collect();
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

    /// Runs both again and looks what stores stored.
    fn compare_values(&mut self, session: &mut Session, change: &Candidate, budget: &Budget) -> Result<(), String> {
        let mut asked: Vec<(u32, Look, Look)> = Vec::new();
        for node in self.visited().0 {
            let at = self.at(node);
            let Some(other) = self.pair.counterpart(at) else { continue };
            let looks = self.here.get(&at).and_then(Fact::look).zip(self.others.get(&other).and_then(Fact::look));
            // The switched branch itself is not counted where the run begins.
            let Some((one, two)) = looks.filter(|(one, _)| one.pc != self.trial.moment.pc) else { continue };
            asked.push((node, one, two));
            if asked.len() >= MOST_LOOKS {
                break;
            }
        }
        let missing: Vec<(At, Look)> = self
            .missing
            .iter()
            .filter_map(|(at, _)| Some((*at, self.others.get(at)?.look()?)))
            .take(MOST_LOOKS)
            .collect();
        let unchanged = Candidate { moment: change.moment, alteration: Alteration::Null };
        let one: Vec<Look> = asked.iter().map(|a| a.1).collect();
        let two: Vec<Look> = asked.iter().map(|a| a.2).chain(missing.iter().map(|m| m.1)).collect();
        let here = session.looking_trial(&unchanged, budget, &one).map_err(|e| e.to_string())?;
        let there = session.looking_trial(change, budget, &two).map_err(|e| e.to_string())?;
        for (n, (node, ..)) in asked.iter().enumerate() {
            if let (Some(one), Some(two)) = (&here[n], &there[n]) {
                let (one, two) = (Stored::of(one), Stored::of(two));
                self.there[*node as usize] = if one == two { There::Same } else { There::Stored(one, two) };
            }
        }
        for ((at, _), value) in missing.iter().zip(&there[asked.len()..]) {
            self.values_missing.extend(value.as_ref().map(|v| (*at, Stored::of(v))));
        }
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
        // Something was used that the repaired run has overwritten.
        let wanted = wanted_before(self.slice);
        let reached = |node: u32| node == 0 || through.contains_key(&node);
        let found = self.missing.iter().rev().find_map(|(at, pc)| {
            let (addr, len) = self.others.get(at)?.stored?;
            let users = (addr..addr + len).filter_map(|b| wanted.get(&b)).flatten();
            users.copied().find(|n| reached(*n)).map(|user| (*at, *pc, user))
        });
        let (at, pc, user) = found?;
        let missing = Station::Missing(pc, self.values_missing.get(&at).copied());
        Some([Station::Switched, missing].into_iter().chain(onward(user)).collect())
    }

    /// The way for people: one step for each line.
    fn tell(&self, way: &[Station], places: &mut Places<'_>, squash: &mut Squash<'_>) -> Vec<Step> {
        let mut steps: Vec<(Step, bool)> = Vec::new();
        for station in way {
            let (pc, by, telling) = match station {
                Station::Switched => (self.trial.moment.pc, "goes the other way in the repaired run".into(), true),
                Station::Missing(pc, Some(value)) => (*pc, format!("stores {value} in the repaired run only"), true),
                Station::Missing(pc, None) => (*pc, "runs in the repaired run only".into(), true),
                Station::Node(node) => {
                    let at = &self.slice.nodes[*node as usize];
                    let Some((_, pc)) = squash.shown(at, &mut places.origins) else { continue };
                    let (by, telling) = self.words(*node, at.why);
                    (pc, by, telling)
                }
            };
            let place = places.of(pc);
            match steps.last_mut().filter(|(last, _)| last.place.line == place.line && last.place.full == place.full) {
                // A line is told by the last of its instructions of which something is known.
                Some((last, known)) if telling || !*known => (last.by, *known) = (by, telling),
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
