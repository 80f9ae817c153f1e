//! A number that is cut: where the low bytes of the right number were printed, the right one was there before.
//!
//! The place to look at is where the whole number went in and its low bytes came out: an assignment to a variable that is
//! too short, an argument of a function that takes less, or, where a function takes as many arguments as its caller says
//! (`...`), the call that hands over more than it says.
//!
//! Guarantees: both numbers were seen in the run, and the one was made from the other.
//! May miss: numbers that are in registers all the time.
//! Source: ours; the class is CWE-197 (numeric truncation) and CWE-686 (argument of the wrong type).

use super::calls;
use super::places::Places;
use super::symptom::Symptom;
use super::told::{Told, fits, mask};
use super::values::Store;
use iced_x86::{Code, Decoder, DecoderOptions, Register};
use model::GuestAddr;
use model::serve::Moment;
use session::Session;
use slice::Sites;
use std::collections::HashSet;

/// Dependences from the cut number back to the whole one, at most: from argument to argument through some calls.
const BACK: u32 = 32;
/// Bytes at the beginning of a function that puts away all arguments there may be.
const PUTS_AWAY: usize = 120;

/// Where a number was cut.
pub struct Cut {
    /// The statement or the call.
    pub pc: u64,
    /// What was first seen to hold the low bytes only, and when.
    pub node: u32,
    pub moment: Moment,
    /// It is the call that handed over the whole number.
    pub handed_over: bool,
    pub whole: i128,
    /// How many bytes of it were kept.
    pub kept: u64,
}

/// Looks among these stores, whose values are known.
pub fn find(
    told: &Told,
    stores: &[Store],
    symptom: &Symptom,
    sites: &Sites<'_>,
    session: &Session,
    places: &mut Places<'_>,
) -> Option<Cut> {
    let (whole, low, kept) = told.cut()?;
    let mut cut: Vec<&Store> = stores.iter().filter(|s| s.len >= kept && s.was == Some(low & mask(s.len))).collect();
    cut.sort_by_key(|s| s.execution.moment);
    // What has no room for all of it holds another number.
    let is_whole = |s: &&Store| fits(whole, s.len) && s.was == Some(whole as u64 & mask(s.len));
    let node = |s: &Store| symptom.slice.nodes[s.node as usize];
    for store in cut {
        let at = node(store);
        let made_from = made_from((at.execution, at.insn), symptom);
        let was_there = |s: &&Store| made_from.contains(&(node(s).execution, node(s).insn));
        let Some(from) = stores.iter().filter(is_whole).filter(was_there).max_by_key(|s| s.execution.moment) else {
            continue;
        };
        let (pc, from_pc) = (store.execution.moment.pc, from.execution.moment.pc);
        let is_argument = |pc, places: &mut Places<'_>| places.origins.is_opening(pc);
        // What is longer than what was kept did not cut it: the number was cut when it was read.
        let handing = if is_argument(pc, places) {
            Some(at.segment)
        } else if store.len > kept && is_argument(from_pc, places) && puts_away_all(from_pc, session, places) {
            Some(node(from).segment)
        } else {
            None
        };
        let call = handing.and_then(|segment| calls::innermost(sites, segment)).filter(|call| places.is_own(*call));
        return Some(Cut {
            pc: call.unwrap_or(pc),
            node: store.node,
            moment: store.execution.moment,
            handed_over: call.is_some(),
            whole,
            kept,
        });
    }
    None
}

/// What a value was made from, by execution and instruction.
fn made_from(at: (u32, u16), symptom: &Symptom) -> HashSet<(u32, u16)> {
    let criterion = slice::Criterion { at: Some(at), ..slice::Criterion::default() };
    let how = slice::Options { data_only: true, depth: BACK, ..slice::Options::default() };
    let made = slice::backward(&symptom.window, &criterion, &how, &mut slice::NoFacts, &mut || false);
    made.nodes.iter().skip(1).map(|n| (n.execution, n.insn)).collect()
}

/// Does a function put away all arguments there may be, because only its caller knows how many there are? Then it asks
/// whether some of them are floating-point numbers: `al` says how many (System V ABI, AMD64 supplement, 3.5.7).
fn puts_away_all(pc: u64, session: &Session, places: &Places<'_>) -> bool {
    let Some(entry) = places.origins.function_start(pc) else { return false };
    let mut bytes = [0; PUTS_AWAY];
    let Ok(n) = session.read(GuestAddr(entry), &mut bytes) else { return false };
    let asks = |i: &iced_x86::Instruction| i.code() == Code::Test_rm8_r8 && i.op0_register() == Register::AL;
    Decoder::with_ip(64, &bytes[..n], entry, DecoderOptions::NONE).iter().any(|i| asks(&i))
}
