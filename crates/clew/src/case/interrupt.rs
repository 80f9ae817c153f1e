//! Signals that ask a search to end: Ctrl-C, `kill`, and a terminal that goes away.
//!
//! The first one raises a flag, and whoever searches tells what was found so far. `timeout` sends its signal twice within
//! milliseconds, to the process and to its group, so a second one that comes at once is taken for the same one; all others
//! end the process as usual. SIGTERM and SIGHUP end it after a while even if an engine does not answer.

use crate::startup::Startup;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// What is left for telling what was found until SIGTERM came.
const TELLING: Duration = Duration::from_secs(10);
/// A second signal within this time is the first one, sent twice.
const SAME: Duration = Duration::from_secs(1);

/// Signals so far.
#[derive(Default)]
struct Heard {
    first: Option<Instant>,
    count: u32,
    /// Somebody waits to end this process.
    is_timed: bool,
}

impl Heard {
    /// Counts a signal that comes now; must the process end at once?
    fn ends(&mut self, now: Instant) -> bool {
        let first = *self.first.get_or_insert(now);
        self.count += 1;
        match self.count {
            1 => false,
            2 => now.saturating_duration_since(first) > SAME,
            _ => true,
        }
    }
}

/// The flag that these signals raise; there is one for the whole process.
pub fn interruption(startup: &Startup) -> Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(|| watch(startup)).clone()
}

fn watch(startup: &Startup) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let heard = Arc::new(Mutex::new(Heard::default()));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // Under `nohup` it goes on.
        if signal == SIGHUP && startup.ignores(signal) {
            continue;
        }
        // Without the pipe the signal ends the process, which is less polite.
        let Ok((reader, writer)) = std::io::pipe() else { continue };
        if signal_hook::low_level::pipe::register(signal, writer).is_ok() {
            // Raised before the signal's handler returns, not only when the listener comes to it.
            let _ = signal_hook::flag::register(signal, flag.clone());
            let heard = heard.clone();
            std::thread::spawn(move || listen(signal, reader, &heard));
        }
    }
    flag
}

/// Hears of one kind of signal: a byte each.
fn listen(signal: i32, mut reader: std::io::PipeReader, heard: &Mutex<Heard>) {
    let mut byte = [0];
    while reader.read_exact(&mut byte).is_ok() {
        // Whoever panicked while counting counted.
        let mut heard = heard.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if heard.ends(Instant::now()) {
            end(signal);
        }
        if signal != SIGINT && !std::mem::replace(&mut heard.is_timed, true) {
            std::thread::spawn(move || {
                std::thread::sleep(TELLING);
                end(signal);
            });
        }
    }
}

/// Ends this process as the signal does by default.
fn end(signal: i32) {
    let _ = signal_hook::low_level::emulate_default_handler(signal);
}

pub fn is_raised(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(milliseconds: &[u64], ends: &[bool]) {
        let (mut heard, begun) = (Heard::default(), Instant::now());
        let found: Vec<bool> = milliseconds.iter().map(|ms| heard.ends(begun + Duration::from_millis(*ms))).collect();
        assert_eq!(found, ends, "{milliseconds:?}");
    }

    #[test]
    fn a_signal_that_is_sent_twice_at_once_is_one() {
        check(&[0, 3, 900], &[false, false, true]);
        check(&[0, 3, 5000], &[false, false, true]);
        check(&[0, 1500], &[false, true]);
    }
}
