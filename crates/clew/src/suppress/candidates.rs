//! Executions of pieces of code that trials may leave out, and in which order.
//!
//! Candidates are the statements of the program's own code that store something that the symptom depends on, the calls
//! that led there, functions that no call of the program's own leads to (callbacks), and statements that end with a jump. Executions that the symptom is
//! not known to depend on come in between, because nobody knows what they might have overwritten.
//!
//! May miss: in a recursive function the distance of an execution may be taken for that of an inner one; that changes the
//! order only.

use super::named::{Named, Thing};
use super::pieces::{Behind, Piece, Pieces};
use crate::case::{Case, Code, Place, Refusal, branches, is_raised};
use crate::why::near::{self, Nodes};
use crate::why::symptom::{self, Symptom};
use diagnose::order::{self, Known};
use diagnose::{Change, Trial};
use model::serve::{Moment, Predicate};
use session::Session;
use slice::RegId;
use slice::insn::{Control, Insn};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Places that are candidates, at most: the nearest.
const MOST_PLACES: usize = 4000;
/// Executions that are kept, from the last one back.
const KEEP: u32 = 1 << 19;

/// What may be left out.
pub struct Candidates {
    /// Executions of the pieces' first instructions, in order.
    list: Vec<Predicate>,
    pieces: BTreeMap<u64, Vec<Piece>>,
    /// What is known about each execution.
    known: Vec<Known>,
    counts: HashMap<u64, u64>,
    /// How many executions there were in all.
    executed: u64,
    pub limits: Vec<String>,
}

/// Reads code of the failing program and looks for what can be left out.
pub struct Finder<'a> {
    pub case: &'a Case<'a>,
    pub session: &'a mut Session,
    pub within: Duration,
}

impl Finder<'_> {
    /// Everything that the symptom depends on.
    pub fn in_slice(&mut self) -> Result<Candidates, Refusal> {
        let until = Instant::now() + self.within;
        let flag = self.case.interrupted.clone();
        let mut stop = move || Instant::now() > until || is_raised(&flag);
        let told = symptom::arguments(self.session)?;
        let start = symptom::start(self.case, self.session, &mut stop)?;
        let mapped = symptom::mapped(self.case, self.session)?;
        let symptom = symptom::follow(self.case, self.session, start, &mapped, &told, self.within);
        let symptom = symptom.map_err(|why| Refusal::internal(format!("no dependences are known: {why}")))?;
        let near = Near::of(&self.case.code, &symptom);
        let mut found = self.noted(near.pieces, &near.parts, symptom.start.moment.into(), &mut stop)?;
        found.measure(&near.parts, &symptom);
        found.limits.extend(symptom.limits);
        Ok(found.without_parts())
    }

    /// What a place names, as far as it can be left out.
    pub fn at(&mut self, at: &Named, text: &str) -> Result<Candidates, Refusal> {
        let until = Instant::now() + self.within;
        let (pieces, refused) = pieces_at(&self.case.code, &at.thing).map_err(Refusal::usage)?;
        if let Some(why) = refused.first().filter(|_| pieces.is_empty()) {
            return Err(Refusal::usage(format!("{text} cannot be left out: {why}")));
        }
        let mut stop = || Instant::now() > until;
        let mut found = self.noted(pieces, &HashMap::new(), None, &mut stop)?;
        if let Some(why) = refused.first() {
            found.limits.push(format!("a part of {text} is not left out: {why}"));
        }
        if let Some(n) = at.instance {
            let nth = branches::nth(self.session, &found.list, found.executed, n, &mut stop);
            found.list = nth.into_iter().collect();
            found.limits.clear();
        }
        if found.list.is_empty() {
            return Err(Refusal::usage(format!("{text} was not executed, or not that often")));
        }
        found.unknown_distances();
        Ok(found)
    }

    /// Looks when these pieces, and these parts of them, were executed.
    fn noted(
        &mut self,
        pieces: BTreeMap<u64, Vec<Piece>>,
        parts: &HashMap<u64, Vec<u64>>,
        upto: Option<Moment>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Candidates, Refusal> {
        let mut places: Vec<u64> = pieces.keys().chain(parts.keys()).copied().collect();
        places.sort_unstable();
        places.dedup();
        let mut cut = false;
        let mut stop = || {
            cut = cut || stop();
            cut
        };
        let noted = self.session.executions(&places, KEEP, upto, &mut stop).map_err(Refusal::internal)?;
        let (mut list, executed) = noted;
        let mut limits = Vec::new();
        if cut {
            limits.push("the time ran out while executions were counted: only those until then are candidates".into());
        }
        if executed > list.len() as u64 {
            limits.push(format!("of {executed} executions the last {} are candidates", list.len()));
        }
        // What a forked process did before it was forked, its parent did.
        let begins = self.case.written.begins(self.case.unit);
        let all = list.len();
        list.retain(|p| p.moment.tick >= begins);
        let executed = executed - (all - list.len()) as u64;
        let counts = list.iter().map(|p| (p.moment.pc, p.instance)).collect();
        Ok(Candidates { list, pieces, known: Vec::new(), counts, executed, limits })
    }
}

/// Pieces that the symptom depends on, and which of their instructions it does.
struct Near {
    pieces: BTreeMap<u64, Vec<Piece>>,
    /// An instruction of the slice, and the pieces that it is in, by their starts.
    parts: HashMap<u64, Vec<u64>>,
}

impl Near {
    fn of(code: &Code, symptom: &Symptom) -> Near {
        let mut near = Near { pieces: BTreeMap::new(), parts: HashMap::new() };
        let Some(pieces) = Pieces::new(code) else { return near };
        let mut distance: HashMap<u64, u32> = HashMap::new();
        for node in symptom.slice.nodes.iter().skip(1).filter(|n| code.holds(n.pc)) {
            let d = distance.entry(node.pc).or_insert(u32::MAX);
            *d = (*d).min(node.distance);
        }
        let insns = || symptom.window.codes().iter().flat_map(|c| &c.insns);
        let called = called_directly(&pieces, insns());
        let mut found: Vec<(u32, u64, Piece)> = Vec::new();
        for insn in insns() {
            let Some(d) = distance.get(&insn.pc) else { continue };
            let alone = || pieces.instruction(insn.pc).map(|piece| vec![piece]);
            let own = match insn.control {
                Control::Call => alone(),
                Control::Next if is_store(insn) => pieces.statement(insn.pc).or_else(|_| alone()),
                _ => continue,
            };
            found.extend(own.into_iter().flatten().map(|piece| (*d, insn.pc, piece)));
        }
        for insn in insns().filter(|i| code.holds(i.pc) && pieces.is_entry(i.pc) && !called.contains(&i.pc)) {
            // How far its execution is from the symptom, what it did tells.
            let d = distance.get(&insn.pc).copied().unwrap_or(u32::MAX);
            found.push((d, insn.pc, pieces.function(insn.pc)));
        }
        for insn in insns().filter(|i| i.control == Control::Jump && code.holds(i.pc)) {
            // `break`, `continue`, `goto`, `return x`: nothing depends on them, but what they passed over did not happen.
            let ways = pieces.statement(insn.pc).into_iter().flatten();
            found.extend(ways.map(|piece| (distance.get(&insn.pc).copied().unwrap_or(u32::MAX), insn.pc, piece)));
        }
        found.sort_by_key(|(d, pc, _)| (*d, *pc));
        for (_, pc, piece) in found {
            if near.parts.len() >= MOST_PLACES {
                break;
            }
            let starts = near.parts.entry(pc).or_default();
            if !starts.contains(&piece.start) {
                starts.push(piece.start);
            }
            let known = near.pieces.entry(piece.start).or_default();
            if !known.contains(&piece) {
                known.push(piece);
            }
        }
        near
    }
}

/// Functions that a call of the program's own leads to.
fn called_directly<'a>(pieces: &Pieces<'_>, insns: impl Iterator<Item = &'a Insn>) -> HashSet<u64> {
    insns.filter(|i| i.control == Control::Call).filter_map(|i| pieces.target(i.pc)).collect()
}

/// Does it store a value? What is pushed is a saved register or an argument on its way.
fn is_store(insn: &Insn) -> bool {
    insn.mem.iter().any(|m| m.write) && insn.defines & RegId::RSP.bit() == 0
}

/// What can be left out of what is named, and why the rest cannot.
type Divided = (BTreeMap<u64, Vec<Piece>>, Vec<String>);

fn pieces_at(code: &Code, thing: &Thing) -> Result<Divided, String> {
    let pieces = Pieces::new(code).ok_or_else(|| format!("the code of {} cannot be read", code.name))?;
    let starts = match thing {
        Thing::Place(place) => code.ranges_of(place)?.into_iter().map(|(start, _)| start).collect(),
        Thing::Function(name) => code.entries_of(name)?,
    };
    let (mut found, mut refused) = (BTreeMap::<u64, Vec<Piece>>::new(), Vec::new());
    for start in starts {
        let ways = match thing {
            Thing::Place(Place::Line(..)) => pieces.statement(start),
            Thing::Place(Place::Offset(_)) => pieces.instruction(start).map(|piece| vec![piece]),
            Thing::Function(_) => Ok(vec![pieces.function(start)]),
        };
        refused.extend(ways.as_ref().err().cloned());
        for piece in ways.into_iter().flatten() {
            let known = found.entry(piece.start).or_default();
            if !known.contains(&piece) {
                known.push(piece);
            }
        }
    }
    Ok((found, refused))
}

impl Candidates {
    /// How far each execution is from the symptom: as far as the nearest of its parts that were executed before the
    /// next one began.
    fn measure(&mut self, parts: &HashMap<u64, Vec<u64>>, symptom: &Symptom) {
        let aligned = near::align(&self.list, symptom.start.moment, &symptom.window);
        let nodes = Nodes::of(&symptom.slice, |pc| parts.contains_key(&pc));
        self.unknown_distances();
        let mut begun: HashMap<u64, usize> = HashMap::new();
        for (n, instance) in aligned.iter().enumerate() {
            let pc = self.list[n].moment.pc;
            if self.pieces.contains_key(&pc) {
                begun.insert(pc, n);
            }
            let Some(instance) = instance else { continue };
            self.known[n].influence = symptom.influence(instance.execution);
            self.known[n].vouched = symptom.vouched.has(instance.execution, instance.insn);
            let Some(node) = nodes.at(instance) else { continue };
            let d = symptom.slice.nodes[node as usize].distance;
            for piece in parts.get(&pc).into_iter().flatten().filter_map(|start| begun.get(start)) {
                let distance = &mut self.known[*piece].distance;
                *distance = Some(distance.map_or(d, |known| known.min(d)));
            }
        }
        Known::settle(&mut self.known);
    }

    fn unknown_distances(&mut self) {
        self.known = vec![Known::default(); self.list.len()];
    }

    /// Only executions of whole pieces.
    fn without_parts(mut self) -> Candidates {
        let whole: Vec<usize> =
            (0..self.list.len()).filter(|n| self.pieces.contains_key(&self.list[*n].moment.pc)).collect();
        self.list = whole.iter().map(|n| self.list[*n]).collect();
        self.known = whole.iter().map(|n| self.known[*n]).collect();
        self
    }

    /// Trials, those first that the symptom depends on most closely.
    pub fn nearest_first(&self) -> Vec<Trial> {
        self.trials(order::prior(&self.list, &self.known).0)
    }

    /// Trials, the last executed first.
    pub fn last_first(&self) -> Vec<Trial> {
        self.trials(order::lefs(&self.list))
    }

    fn trials(&self, order: Vec<usize>) -> Vec<Trial> {
        let of = |n: usize| {
            let moment = self.list[n].moment;
            self.pieces[&moment.pc].iter().map(move |piece| Trial { moment, change: piece.change() })
        };
        order.into_iter().flat_map(of).collect()
    }

    /// How many trials there may be.
    pub fn len(&self) -> u64 {
        self.list.iter().map(|p| self.pieces[&p.moment.pc].len() as u64).sum()
    }

    /// What a trial leaves out, which execution of it, and of how many.
    pub fn piece(&self, trial: &Trial) -> Option<(&Piece, u64, u64)> {
        let piece = self.pieces.get(&trial.moment.pc)?.iter().find(|p| p.change() == trial.change)?;
        let found = self.list.binary_search_by_key(&trial.moment, |p| p.moment).ok();
        let n = found.map_or(1, |n| self.list[n].instance);
        Some((piece, n, self.counts.get(&piece.start).copied().unwrap_or(n).max(n)))
    }
}

impl Piece {
    fn change(&self) -> Change {
        match self.behind {
            Behind::At(to) => Change::Skip(to),
            Behind::InCaller => Change::Return,
        }
    }
}
