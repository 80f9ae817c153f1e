//! A trial with which the host stays: it stops the guest, asks, alters and lets it go on, as in a replay.
//!
//! In step with the log everything is as in a replay that is served ([`crate::replay::serve`]). Behind it, the run loop
//! comes by here before the guest goes on, and at every site. A turn of a thread that is cut short for the host goes on
//! afterwards, so that threads take the same turns whether somebody looks or not: the same alterations at the same moments
//! lead to the same run.
//!
//! May miss: changes of watched bytes behind the log, unless every instruction is looked at (`Until::single`).

use super::{in_step, trial};
use crate::gate::Gate;
use crate::replay::{replay, serve};
use crate::state::Engine;
use crate::threads::Thread;
use model::serve::TrialLimits;

/// The guest may leave the log from here on, and the host stays.
pub fn begin(e: &mut Engine, limits: TrialLimits) {
    in_step::prepare(e, limits);
    replay(e).hold();
    if limits.belt {
        super::belt::put_on(e);
    }
}

/// Behind the log: stops the guest here if the host wants that. Answers whether it did, and may have moved the guest.
pub fn look(e: &mut Engine, t: &mut Thread, g: &mut Gate) -> bool {
    if !serve::holds(e) {
        return false;
    }
    let stopped = !serve::stops(e, t, g);
    aim(e);
    stopped
}

/// The guest is at a site.
pub fn at_site(e: &mut Engine, t: &mut Thread, g: &mut Gate) {
    replay(e).goal.reached_site = true;
    look(e, t, g);
}

/// Lets the guest go no farther than to the tick of the moment that the host wants, and in that tick to its pc.
pub fn aim(e: &mut Engine) {
    let now = e.clock.now();
    let wanted = serve::wanted(e);
    let site = wanted.filter(|(tick, _)| *tick == now).map(|(_, pc)| pc);
    if replay(e).goal.sites != [site, None] {
        replay(e).goal.sites = [site, None];
        e.place_sites();
    }
    let rest = trial(e).turn_end.saturating_sub(now);
    if let Some((tick, _)) = wanted.filter(|(tick, _)| (now..now + rest).contains(tick)) {
        // Whoever does not come by in the wanted tick is looked at in the next one.
        e.clock.allow(if tick == now { 1 } else { tick - now });
    }
}

/// Was the turn cut short for the host? Then it goes on.
pub fn is_early(e: &mut Engine) -> bool {
    let now = e.clock.now();
    let rest = trial(e).turn_end.saturating_sub(now);
    if rest == 0 || !serve::holds(e) {
        return false;
    }
    e.clock.allow(rest);
    true
}
