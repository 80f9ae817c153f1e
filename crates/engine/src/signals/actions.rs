//! What the guest wants done with each signal, and what the kernel is told.

use super::{FAULTS, bit, handler};
use crate::sys::{self, nr};

pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;
pub const SA_NOCLDSTOP: u64 = 1;
pub const SA_NOCLDWAIT: u64 = 2;
pub const SA_SIGINFO: u64 = 4;
pub const SA_RESTORER: u64 = 0x0400_0000;
pub const SA_ONSTACK: u64 = 0x0800_0000;
pub const SA_RESTART: u64 = 0x1000_0000;
pub const SA_NODEFER: u64 = 0x4000_0000;
pub const SA_RESETHAND: u64 = 0x8000_0000;

/// The kernel's `struct sigaction`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Action {
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// The guest's table.
pub struct Actions {
    table: [Action; 65],
    /// Deaths by default action come through the engine, which has something to say before.
    catch_deaths: bool,
}

/// Signals whose default is not to kill: CHLD, CONT, STOP, TSTP, TTIN, TTOU, URG, WINCH; and KILL, which nobody catches.
const HARMLESS: u64 = bit(17) | bit(18) | bit(19) | bit(20) | bit(21) | bit(22) | bit(23) | bit(28) | bit(9);

/// Does the default action of a signal end the process?
pub fn kills_by_default(signal: u32) -> bool {
    HARMLESS & bit(signal) == 0
}

impl Actions {
    /// The table a program starts with: as inherited. Installs the engine's own handlers.
    pub fn start(inherited_ignored: u64, catch_deaths: bool) -> Actions {
        let mut a = Actions { table: [Action::default(); 65], catch_deaths };
        for signal in 1..=64 {
            let mut old = Action::default();
            // SAFETY: the kernel writes one action.
            unsafe { sys::raw(nr::RT_SIGACTION, [signal as u64, 0, &raw mut old as u64, 8, 0, 0]) };
            let fault = FAULTS & bit(signal) != 0;
            if old.handler == SIG_IGN && !fault || fault && inherited_ignored & bit(signal) != 0 {
                a.table[signal as usize].handler = SIG_IGN;
            }
        }
        for signal in 1..=64 {
            let default = a.table[signal as usize].handler == SIG_DFL;
            if super::NEVER_BLOCKED & bit(signal) != 0 || catch_deaths && default && kills_by_default(signal) {
                tell_kernel(signal, handler::entry(), 0);
            }
        }
        a
    }

    pub fn get(&self, signal: u32) -> Action {
        self.table[signal as usize]
    }

    /// The guest installs an action.
    pub fn set(&mut self, signal: u32, action: Action) {
        self.table[signal as usize] = action;
        if super::NEVER_BLOCKED & bit(signal) != 0 || crate::replay::on() {
            return;
        }
        match action.handler {
            SIG_DFL if self.catch_deaths && kills_by_default(signal) => tell_kernel(signal, handler::entry(), 0),
            SIG_DFL | SIG_IGN => tell_kernel(signal, action.handler, action.flags & (SA_NOCLDSTOP | SA_NOCLDWAIT)),
            // The kernel decides whether an interrupted call is made again, by the guest's own flag.
            _ => tell_kernel(signal, handler::entry(), action.flags & (SA_NOCLDSTOP | SA_NOCLDWAIT | SA_RESTART)),
        }
    }

    /// What a recorded image started with.
    pub fn inherit(&mut self, signal: u32, ignored: bool) {
        self.table[signal as usize].handler = if ignored { SIG_IGN } else { SIG_DFL };
    }

    /// Which fault signals the guest ignores: the kernel cannot carry that over an `execve` for us.
    pub fn ignored_faults(&self) -> u64 {
        (1..=64).filter(|s| FAULTS & bit(*s) != 0 && self.get(*s).handler == SIG_IGN).map(bit).sum()
    }

    /// A handler runs once only.
    pub fn reset(&mut self, signal: u32) {
        let a = Action { handler: SIG_DFL, ..self.get(signal) };
        self.set(signal, a);
    }
}

/// Sets a kernel action; the engine's handler runs on its own stack with everything blocked but faults.
pub fn tell_kernel(signal: u32, to: u64, flags: u64) {
    let a = if to > SIG_IGN {
        Action {
            handler: to,
            // The handler's own stores may find the vault closed: faults must come through, nested.
            flags: flags | SA_SIGINFO | SA_ONSTACK | SA_RESTORER | SA_NODEFER,
            restorer: handler::restorer(),
            mask: !FAULTS,
        }
    } else {
        Action { handler: to, flags: flags | SA_RESTORER, restorer: handler::restorer(), mask: 0 }
    };
    // SAFETY: the kernel reads one action; the handler is written for it.
    unsafe { sys::raw(nr::RT_SIGACTION, [signal as u64, &raw const a as u64, 0, 8, 0, 0]) };
}
