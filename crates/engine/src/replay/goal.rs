//! How a replay gets to a position: by ticks first, then by a site at the pc.
//!
//! The guest is let go with a budget of ticks; when they are used up it is at the beginning of the wanted tick, and a site
//! is set at the wanted pc. Between two ticks the pc only grows, so the first arrival there is the one.

use super::replay;
use crate::gate::Gate;
use crate::state::Engine;
use crate::threads::Thread;
use iced_x86::{Decoder, DecoderOptions};
use model::log::Position;

/// More ticks than any run has.
pub const FOREVER: u64 = u64::MAX >> 2;

/// What the guest was let go for.
#[derive(Default)]
pub struct Goal {
    set: bool,
    /// The guest stands at a site.
    pub reached_site: bool,
    /// Where sites are set for the positions to be reached.
    pub sites: [Option<u64>; 2],
    /// A string instruction that runs to a part of its length only: its address, the count to be left, and where it ends.
    partial: Option<(u64, u64, u64)>,
    /// Sites of the host.
    pub breakpoints: alloc::vec::Vec<u64>,
    /// Before this tick nothing happens but what the guest does itself.
    pub due: u64,
}

impl Goal {
    pub fn is_set(&self) -> bool {
        self.set
    }

    /// Something changed: what is due must be looked at again.
    pub fn forget(&mut self) {
        self.set = false;
    }
}

/// Is the running thread at the position?
pub fn arrived(e: &mut Engine, t: &mut Thread, g: &mut Gate, at: &Position) -> bool {
    let now = e.clock.now();
    replay(e).goal.reached_site = false;
    if now > at.tick {
        let text = alloc::format!("the guest is past tick {} pc {:#x}, where something happened", at.tick, at.pc);
        super::differs(e, &text);
        return false;
    }
    if let Some((pc, left, end)) = replay(e).goal.partial
        && g.pc == end
    {
        // The part of the string instruction has been executed: it stands at itself again, with the rest to do.
        replay(e).goal.partial = None;
        g.pc = pc;
        g.gpr[1] = left;
        t.probed = None;
    }
    if now < at.tick || g.pc != at.pc {
        return false;
    }
    if g.gpr[1] != at.rcx && g.gpr[1] > at.rcx && is_repeated(e, at.pc) {
        let end = e.after_instruction(at.pc);
        let left = at.rcx;
        g.gpr[1] -= left;
        replay(e).goal.partial = Some((at.pc, left, end));
        return false;
    }
    true
}

/// The position is not to be reached after all: a string instruction that was to run in part runs to its end.
pub fn undo_part(e: &mut Engine, g: &mut Gate) {
    if let Some((pc, left, end)) = replay(e).goal.partial.take() {
        if g.pc == end {
            g.pc = pc;
            g.gpr[1] = left;
        } else if g.pc == pc {
            g.gpr[1] += left;
        }
    }
}

/// Where the string instruction ends of which a part is being executed, if one is.
pub fn end_of_part(e: &mut Engine) -> Option<u64> {
    replay(e).goal.partial.map(|(_, _, end)| end)
}

fn is_repeated(e: &Engine, pc: u64) -> bool {
    let code = e.memory.code(pc).unwrap_or_default();
    let i = Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode();
    i.is_string_instruction() && (i.has_rep_prefix() || i.has_repe_prefix() || i.has_repne_prefix())
}

/// Lets the guest go towards the position, if there is one, and towards what the host wants.
pub fn aim(e: &mut Engine, at: Option<Position>) {
    let now = e.clock.now();
    let wanted = super::serve::wanted(e);
    // The guest may go on longer than its patience, but not past where something is to be done.
    let (mut patience, mut budget, mut sites) = (super::serve::patience(e), FOREVER, [None; 2]);
    let partial = replay(e).goal.partial.map(|(_, _, end)| end);
    // A guest that goes on past the tick of what comes next has gone astray; without a look it might never stop.
    if let Some(tick) = replay(e).next_tick().filter(|_| !replay(e).serve.has_left()) {
        if now > tick {
            let text = alloc::format!("the guest went on past tick {tick}, where something happened");
            super::differs(e, &text);
            if e.trial.is_some() {
                return;
            }
        }
        patience = patience.min((tick + 1).saturating_sub(now).max(1));
    }
    let targets = [at.map(|p| (p.tick, partial.unwrap_or(p.pc))), wanted];
    for (target, site) in targets.into_iter().zip(&mut sites) {
        match target {
            Some((tick, _)) if tick > now => budget = budget.min(tick - now),
            Some((tick, pc)) if tick == now => {
                *site = Some(pc);
                // Whoever does not come by before the next tick never will.
                budget = 1;
            }
            _ => {}
        }
    }
    let silence = replay(e).patience();
    for tick in super::disturbance(e).into_iter().chain(silence).filter(|tick| *tick > now) {
        budget = budget.min(tick - now);
    }
    let due = patience.min(budget);
    let (least, most) = match super::serve::grain(e) {
        Some(grain) => (due.min(grain), due.min(2 * grain)),
        None => (due, budget.min(patience.saturating_mul(2))),
    };
    let r = replay(e);
    r.goal.set = true;
    r.goal.reached_site = false;
    r.goal.due = now.saturating_add(due);
    if r.goal.sites != sites {
        r.goal.sites = sites;
        e.place_sites();
    }
    e.clock.allow_between(least, most);
}

impl Engine {
    /// Sets the sites where a replay wants to be asked.
    pub fn place_sites(&mut self) {
        let r = replay(self);
        let mut sites = r.goal.breakpoints.clone();
        sites.extend(r.goal.sites.iter().flatten());
        sites.extend(self.trial.as_ref().and_then(|trial| trial.schedule.site()));
        let changed = self.probes.set_stops(&sites);
        for at in changed {
            self.drop_blocks_over(at);
        }
    }

    /// The guest came to a site.
    pub fn site_reached(&mut self, t: &mut Thread, pc: u64) {
        replay(self).goal.reached_site = true;
        // Going on means executing the instruction.
        t.probed = Some(pc);
    }
}
