//! What the host wants to know of a trial while it runs: memory at certain executions of instructions.
//!
//! Their addresses are sites that count every execution, so only a few should be asked about.

use crate::gate::Gate;
use crate::replay::serve::send;
use crate::state::Engine;
use crate::sys;
use alloc::vec::Vec;
use model::serve::{Answer, Look};

/// No value is longer.
const MOST_BYTES: usize = 64;

/// These are told of as they come, from now on.
pub fn expect(e: &mut Engine, looks: Vec<Look>) {
    e.probes.forget_predicates();
    e.probes.only_count(false);
    for look in &looks {
        e.probes.note_predicate(look.pc);
    }
    e.looks = looks;
    e.flush();
}

/// The guest is at a site: tells what is wanted of it; `false` if it is none of these.
pub fn tell(e: &mut Engine, g: &Gate) -> bool {
    if e.looks.is_empty() {
        return false;
    }
    let Some(execution) = e.probes.predicate_hit(g.pc) else { return false };
    for n in 0..e.looks.len() {
        let Look { pc, execution: wanted, addr, len } = e.looks[n];
        if pc == g.pc && wanted == execution {
            let mut bytes = alloc::vec![0; (len as usize).min(MOST_BYTES)];
            let hidden = model::layout::touches_engine(addr, bytes.len() as u64);
            let got = if hidden { 0 } else { sys::read_guest(addr, &mut bytes) };
            bytes.truncate(got);
            send(e, &Answer::Looked(n as u32, bytes));
        }
    }
    true
}
