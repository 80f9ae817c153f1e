//! Signal numbers, names, and the signal state that a guest starts with.
//!
//! A guest must start with exactly the dispositions and the mask that its host was started with. Handlers vanish at
//! `execve` by themselves; what remains is which signals are ignored and which are blocked. The library cannot know what
//! the host changed since it started, so the caller says what to put back.

use nix::sys::signal::{SigSet, Signal as NamedSignal};
use rustix::process::Signal;
use rustix_libc_wrappers::process::SignalExt;

/// What is put back in the new process before the guest starts.
#[derive(Clone, Debug)]
pub struct SignalState {
    /// The mask the guest starts with; `None` leaves that of the thread which starts it.
    pub blocked: Option<SigSet>,
    /// Signals that the host ignores but was not started ignoring.
    pub reset: SigSet,
}

impl SignalState {
    /// Nothing is put back: for a host that changed nothing.
    pub fn unchanged() -> SignalState {
        SignalState { blocked: None, reset: SigSet::empty() }
    }

    /// What Rust's runtime changes before `main` is put back: it ignores SIGPIPE.
    pub fn of_rust_main() -> SignalState {
        SignalState { blocked: None, reset: NamedSignal::SIGPIPE.into() }
    }
}

/// A signal by number, real-time signals included; `None` for a number that names none, or one libc keeps for itself.
pub fn signal_by_number(number: i32) -> Option<Signal> {
    Signal::from_raw(number)
}

/// `SIGSEGV` for 11, `SIGRTMIN+1` for 35 and so on.
pub fn signal_name(number: i32) -> String {
    // The kernel's first real-time signal is 32; the C library keeps two and calls 34 its SIGRTMIN.
    const RT_MIN: i32 = 34;
    match NamedSignal::try_from(number) {
        Ok(named) => named.as_str().to_owned(),
        Err(_) if number == RT_MIN => "SIGRTMIN".to_owned(),
        Err(_) if (RT_MIN..=64).contains(&number) => format!("SIGRTMIN+{}", number - RT_MIN),
        Err(_) => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cover_ordinary_real_time_and_unknown_signals() {
        for (number, name) in [(11, "SIGSEGV"), (9, "SIGKILL"), (34, "SIGRTMIN"), (35, "SIGRTMIN+1"), (99, "signal 99")]
        {
            assert_eq!(signal_name(number), name);
        }
    }

    #[test]
    fn every_signal_a_user_may_send_has_a_value() {
        for number in (1..=31).chain(34..=64) {
            assert_eq!(signal_by_number(number).map(Signal::as_raw), Some(number));
        }
        assert_eq!(signal_by_number(0), None);
        assert_eq!(signal_by_number(65), None);
    }
}
