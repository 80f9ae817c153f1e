//! Trials: stub.
use crate::gate::Gate;
use crate::state::Engine;
use crate::threads::Thread;
use model::serve::{Alteration, Answer, TrialLimits};

pub fn alter(_e: &mut Engine, _g: &mut Gate, _a: Alteration) -> Answer {
    Answer::Done
}
pub fn begin(_e: &mut Engine, _t: &mut Thread, _l: TrialLimits) {}
