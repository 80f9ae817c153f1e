//! The end of a log before its unit's: there is no room for more, and the guest goes on unrecorded.

use super::{RECORDING, RESERVE, append};
use crate::shared_page::log_state;
use crate::state::Engine;
use alloc::string::String;
use core::sync::atomic::Ordering::Relaxed;
use model::log::{End, Ending, Kind};
use model::wire::LOSS;

impl Engine {
    /// There is no room for more: says so in the log and to the host.
    pub(super) fn stop_recording(&mut self, errno: i64) {
        let s = log_state();
        // The reserve takes this one.
        s.size += RESERVE;
        // SAFETY: the baton is held.
        let g = unsafe { crate::gate::gate() };
        let end = End { ending: Ending::DiskFull, status: errno as u32, tick: self.clock.now(), pc: g.pc };
        append(Kind::End, 0, &end.encode());
        RECORDING.store(false, Relaxed);
        self.note_loss(&alloc::format!("process {} goes on without being recorded: {}", self.pid, why(errno)));
    }

    /// Says to the host that something will be missing.
    pub(super) fn note_loss(&mut self, what: &str) {
        self.note(&alloc::format!("{LOSS}{what}"), 0);
    }

    /// This process has no log at all.
    pub(super) fn has_no_log(&mut self, errno: i64) {
        self.note_loss(&alloc::format!("process {} is not recorded: {}", self.pid, why(errno)));
    }
}

/// An error number in words.
pub(super) fn why(errno: i64) -> String {
    match errno {
        28 => "the disk is full".into(),
        13 => "it may not write to the recording's folder".into(),
        errno => alloc::format!("error {errno}"),
    }
}
