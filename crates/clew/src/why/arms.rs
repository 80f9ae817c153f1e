//! What a branch let happen, left out by itself.
//!
//! A branch that goes the other way leaves out one arm and runs the other one. Where it repairs the run to leave out a call
//! of the first arm alone, that is the smaller change: the call is at fault rather than the decision. Where there is no
//! other arm both are the same change, and nothing is tried.
//!
//! Guarantees: what is told was tried.
//! May miss: arms that reach the failure by other ways than a call.
//! Source: ours; changes as small as possible are from A. Zeller, "Isolating Cause-Effect Chains", FSE 2002.

use super::loops::decode;
use super::near;
use super::places::Places;
use super::rank::Candidate;
use super::symptom::Symptom;
use crate::case::Branches;
use diagnose::{Change, Trial};
use iced_x86::{FlowControl, Instruction};
use model::serve::Moment;
use session::Session;
use slice::{Facts, Merge, Node};

/// Executions of a call that are looked at, the last ones.
const KEEP: u32 = 1 << 16;

/// A call that a branch let happen.
pub struct Arm {
    pub trial: Trial,
    /// Which execution it is, and how many there are before the symptom.
    pub instance: (u64, u64),
    /// The execution of the branch.
    pub branch: Moment,
    /// The call in the slice.
    pub node: u32,
}

/// The call in the arm of a proved branch that leads on to the symptom, if there is another arm.
pub fn call_behind(
    best: &Candidate<'_>,
    branches: &Branches,
    symptom: &Symptom,
    session: &mut Session,
    places: &mut Places<'_>,
    stop: &mut dyn FnMut() -> bool,
) -> Option<Arm> {
    let branch = best.finding.trial.moment;
    if best.finding.trial.change != Change::Flip || !best.finding.is_proved() {
        return None;
    }
    let node_of_call = next_line(best, symptom, places)?;
    let call = symptom.slice.nodes[node_of_call as usize];
    let instruction = decode(call.pc, session)?;
    let is_call = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
    if !is_call || !has_other_arm(branch.pc, branches.at(branch)?.taken, symptom, session) {
        return None;
    }
    let (moment, instance) = execution_of(&call, symptom, session, stop)?;
    let trial = Trial { moment, change: Change::Skip(instruction.next_ip()) };
    Some(Arm { trial, instance, branch, node: node_of_call })
}

/// What comes first on the way from a branch to the symptom that is another line of the same function.
fn next_line(best: &Candidate<'_>, symptom: &Symptom, places: &mut Places<'_>) -> Option<u32> {
    let way = symptom.slice.path(best.node?);
    let mut behind = way.into_iter().skip(1).filter(|n| *n != 0);
    let next = behind.find(|n| places.of(symptom.slice.nodes[*n as usize].pc).key() != best.place.key())?;
    let node = &symptom.slice.nodes[next as usize];
    let same = symptom.facts().same_function(best.finding.trial.moment.pc, node.pc);
    same.then_some(next)
}

/// Is there code that runs only if the branch does not go as it did?
fn has_other_arm(pc: u64, taken: bool, symptom: &Symptom, session: &Session) -> bool {
    let Some(branch) = decode(pc, session).filter(Instruction::is_jcc_short_or_near) else { return false };
    let other = if taken { branch.next_ip() } else { branch.near_branch_target() };
    symptom.facts().merge(pc) != Merge::At(other)
}

/// When an instruction of the slice was executed, and which execution that is of how many.
fn execution_of(
    node: &Node,
    symptom: &Symptom,
    session: &mut Session,
    stop: &mut dyn FnMut() -> bool,
) -> Option<(Moment, (u64, u64))> {
    let (executed, times) = session.executions(&[node.pc], KEEP, symptom.start.moment, stop).ok()?;
    let aligned = near::align(&executed, symptom.start.moment, &symptom.window);
    let is_it = |i: &slice::Instance| (i.execution, i.insn) == (node.execution, node.insn);
    let (found, _) = executed.iter().zip(&aligned).find(|(_, i)| i.as_ref().is_some_and(is_it))?;
    Some((found.moment, (found.instance, times)))
}
