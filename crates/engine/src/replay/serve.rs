//! A replay that a host steers: stub.
use super::replay;
use crate::gate::Gate;
use crate::state::Engine;
use crate::threads::Thread;
use model::wire::{Replayed, Report};

#[derive(Default)]
pub struct Serve;

pub fn begin(_e: &mut Engine) {}
pub fn stops(_e: &mut Engine, _t: &mut Thread, _g: &mut Gate) -> bool {
    true
}
pub fn wanted(_e: &mut Engine) -> Option<(u64, u64)> {
    None
}
pub fn at_end(e: &mut Engine, replayed: Replayed) {
    let _ = replay(e);
    e.control.send(e.pid, Report::Replayed(replayed));
    crate::sys::exit_group(0)
}
