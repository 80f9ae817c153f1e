//! Faults in the data part: other values for what statements of the slice stored.
//!
//! Where no branch was decided wrongly, a value was computed wrongly. At stores of the program's own code that the symptom
//! depends on, a few informed replacements are tried: the number that should have been printed for the one that was, what
//! the same statement stored at other times, what was there before (the statement left out), neighbours, 0 and 1.
//!
//! May miss: values that need arithmetic to guess, and what never reaches memory.

use super::near::{self, Nodes};
use super::symptom::Symptom;
use super::told::{Told, mask};
use diagnose::{Change, Trial};
use model::GuestAddr;
use model::serve::{Moment, Predicate};
use session::Session;
use slice::insn::Control;
use std::collections::{HashMap, HashSet};

/// Places whose values are replaced, at most.
const MOST_PLACES: usize = 1500;
/// Executions of one place.
const EXECUTIONS: usize = 3;
/// Executions that are noted: the last ones.
const KEEP: u32 = 1 << 19;
/// Stores whose values are read in one go.
const AT_ONCE: usize = 400;
/// Other values of the same statement.
const SEEN: usize = 3;

/// One store whose value is replaced.
#[derive(Clone, Debug)]
pub struct Store {
    pub execution: Predicate,
    /// How often it ran before the symptom.
    pub times: u64,
    /// Its node in the slice.
    pub node: u32,
    pub distance: u32,
    addr: u64,
    pub len: u64,
    /// What it stored, if that could be read.
    pub was: Option<u64>,
    /// Where the instruction behind it is.
    next: Moment,
}

/// A replacement: which store, what it stored, and what it is to have stored.
#[derive(Clone, Debug)]
pub struct Replacement {
    pub store: usize,
    pub was: u64,
    pub is: u64,
    /// It is what the memory held before: the statement left out.
    pub left_out: bool,
    /// It is the number that should have been printed.
    pub told: bool,
}

/// All replacements to try, nearest to the symptom first.
#[derive(Default)]
pub struct Values {
    pub stores: Vec<Store>,
    pub replacements: HashMap<Trial, Replacement>,
    /// Those that the output itself tells.
    pub told: Vec<Trial>,
    /// All others.
    pub trials: Vec<Trial>,
}

impl Values {
    /// Looks for stores of own code in the slice.
    pub fn find(
        symptom: &Symptom,
        told: Option<&Told>,
        session: &mut Session,
        own: &mut dyn FnMut(u64) -> bool,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Values, String> {
        let ends = stores_of(symptom, own);
        let places: Vec<u64> = ends.keys().copied().collect();
        let before = symptom.start.moment;
        let noted = session.executions(&places, KEEP, before, stop).map_err(|e| e.to_string())?.0;
        let instances = near::align(&noted, before, &symptom.window);
        let nodes = Nodes::of(&symptom.slice, |pc| ends.contains_key(&pc));
        let mut times: HashMap<u64, u64> = HashMap::new();
        for p in &noted {
            times.insert(p.moment.pc, p.instance);
        }
        let mut stores = Vec::new();
        for (execution, instance) in noted.iter().zip(&instances) {
            let Some(instance) = instance else { continue };
            let (Some(node), Some((addr, len))) = (nodes.at(instance), instance.wrote) else { continue };
            // A string instruction that is repeated stores no number.
            if !matches!(len, 1 | 2 | 4 | 8) {
                continue;
            }
            let distance = symptom.slice.nodes[node as usize].distance;
            let next = Moment { tick: execution.moment.tick, pc: ends[&execution.moment.pc] };
            let times = times[&execution.moment.pc];
            stores.push(Store { execution: *execution, times, node, distance, addr, len, was: None, next });
        }
        let mut values = Values { stores: nearest(stores), ..Values::default() };
        values.choose(told, session, stop)?;
        Ok(values)
    }

    /// Reads what each one stored, and what was there before, and chooses other values.
    fn choose(
        &mut self,
        told: Option<&Told>,
        session: &mut Session,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<(), String> {
        let number = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|b| to_number(b));
        let mut pairs: Vec<(Option<u64>, Option<u64>)> = Vec::new();
        // The nearest first: there may not be time for all.
        for stores in self.stores.chunks(AT_ONCE) {
            let moments = |s: &Store| [s.execution.moment, s.next].map(|m| (m, GuestAddr(s.addr), s.len as u32));
            let looks: Vec<(Moment, GuestAddr, u32)> = stores.iter().flat_map(moments).collect();
            let looked = session.look(&looks, stop).map_err(|e| e.to_string())?;
            pairs.extend(looked.chunks(2).map(|pair| (number(&pair[0]), pair.get(1).and_then(number))));
        }
        let mut seen: HashMap<u64, Vec<u64>> = HashMap::new();
        for (s, (_, stored)) in self.stores.iter().zip(&pairs) {
            let list = seen.entry(s.execution.moment.pc).or_default();
            list.extend(stored.filter(|v| !list.contains(v)));
        }
        for (n, (before, stored)) in pairs.iter().enumerate() {
            let store = self.stores[n].clone();
            self.stores[n].was = *stored;
            let Some(was) = *stored else { continue };
            let others = seen[&store.execution.moment.pc].iter().copied().take(SEEN);
            let near = neighbours(was, store.len).into_iter().map(|v| v & mask(store.len));
            let told = told.and_then(|t| t.instead_of(was, store.len));
            let mut tried = HashSet::from([was]);
            for is in told.into_iter().chain(*before).chain(others).chain(near) {
                if !tried.insert(is) {
                    continue;
                }
                let bytes = is.to_le_bytes()[..store.len as usize].to_vec();
                let change = Change::SetMemory(GuestAddr(store.addr), bytes);
                let trial = Trial { moment: store.next, change };
                let is_told = told == Some(is);
                if is_told { &mut self.told } else { &mut self.trials }.push(trial.clone());
                let left_out = !is_told && Some(is) == *before;
                self.replacements.insert(trial, Replacement { store: n, was, is, left_out, told: is_told });
            }
        }
        Ok(())
    }
}

/// Own instructions of the slice that store a number and go on to the next one: their addresses and what follows.
fn stores_of(symptom: &Symptom, own: &mut dyn FnMut(u64) -> bool) -> HashMap<u64, u64> {
    let in_slice: HashSet<u64> = symptom.slice.nodes.iter().skip(1).map(|n| n.pc).collect();
    let mut nearest: HashMap<u64, u32> = HashMap::new();
    for n in symptom.slice.nodes.iter().skip(1) {
        let d = nearest.entry(n.pc).or_insert(u32::MAX);
        *d = (*d).min(n.distance);
    }
    let mut found = Vec::new();
    for code in symptom.window.codes() {
        for (n, insn) in code.insns.iter().enumerate() {
            let stores = insn.mem.iter().filter(|m| m.write).count() == 1;
            let number = insn.mem.iter().all(|m| matches!(m.size, 1 | 2 | 4 | 8));
            let next = code.insns.get(n + 1).map_or(code.end, |i| i.pc);
            let plain = insn.control == Control::Next && !is_push(insn);
            if stores && number && plain && in_slice.contains(&insn.pc) && own(insn.pc) {
                found.push((nearest[&insn.pc], insn.pc, next));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(MOST_PLACES);
    found.into_iter().map(|(_, pc, next)| (pc, next)).collect()
}

/// What it stores is a saved register or an argument on its way, not a variable.
fn is_push(insn: &slice::insn::Insn) -> bool {
    insn.defines & slice::RegId::RSP.bit() != 0
}

/// A few executions of each place: the nearest ones; the nearest place first.
fn nearest(stores: Vec<Store>) -> Vec<Store> {
    let mut places: HashMap<u64, Vec<Store>> = HashMap::new();
    for s in stores {
        places.entry(s.execution.moment.pc).or_default().push(s);
    }
    let mut all = Vec::new();
    for mut list in places.into_values() {
        list.sort_by_key(|s| (s.distance, std::cmp::Reverse(s.execution.moment)));
        all.extend(list.into_iter().take(EXECUTIONS).enumerate());
    }
    all.sort_by_key(|(round, s)| (*round, s.distance, std::cmp::Reverse(s.execution.moment)));
    all.into_iter().map(|(_, s)| s).collect()
}

/// Values beside this one; of what may be a floating-point number, those beside it as such.
fn neighbours(was: u64, len: u64) -> Vec<u64> {
    let mut all = Vec::new();
    let double = f64::from_bits(was);
    if len == 8 && double.is_normal() && (1e-9..1e15).contains(&double.abs()) {
        all.extend([double - 1.0, double + 1.0].map(f64::to_bits));
    }
    all.extend([was.wrapping_sub(1), was.wrapping_add(1), 0, 1]);
    all
}

fn to_number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    u64::from_le_bytes(word)
}
