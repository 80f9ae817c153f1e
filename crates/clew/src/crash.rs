//! What people are told when a program dies of a signal.

use image::{Describe, Images};
use model::wire::Crash;

/// The lines for a crash that the engine saw.
pub fn describe(crash: &Crash) -> String {
    let images = Images::new();
    Describe::new(&images).crash(crash).join("\n")
}

/// Signals that a program brings upon itself by an instruction; any other kind of death needs no explanation.
pub fn is_fault(signal: i32) -> bool {
    use signal_hook::consts::signal::{SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP};
    [SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP].contains(&signal)
}

/// The line for such a death when the engine said nothing of it.
pub fn describe_unseen(signal: i32) -> String {
    let name = session::signal_name(signal);
    format!(
        "the program died of {name}, but the engine did not see why: it was sent from outside, or the engine failed"
    )
}
