//! Room for a log that is yet to begin: that of a child about to be forked, or of the image that replaces this one.
//!
//! ```text
//! parent   makes units/<unit>.<record>.next ─ logs the fork, with room or without ─ clone
//! child                                                                              └─ renames it to its first segment
//! ```
//! A process that finds no room for its log has nowhere to say so. So the room is made while there is still a log that can
//! tell: the record of the fork says when the child has none, and a unit that makes none for its successor ends as one of
//! a full disk does.
//!
//! Guarantees: whether something is missing can be read from the logs alone, whoever was killed. A child that was killed
//! before it did anything leaves a file that no reader takes for a log; the host removes it.
//! May miss: a child that has room but may not open or map it says so to the host only.

use super::{append, segments, stop};
use crate::shared_page::log_state;
use crate::state::Engine;
use crate::text::Short;
use model::log::{FORK_UNRECORDED, Kind};

/// All descriptors that this process may have are in use.
const EMFILE: i64 = 24;

/// A fork that is about to happen.
pub struct Forking {
    /// The record where the child's log will say that it begins.
    pub(super) record: u64,
    /// Where the child finds room for its log.
    pub(super) room: Option<Short>,
}

impl Engine {
    /// The process is about to be copied.
    pub fn log_fork(&mut self, flags: u64) -> Forking {
        self.region.forked = true;
        if super::on() {
            self.share_with_child();
        }
        let record = log_state().records;
        if !super::on() {
            return Forking { record, room: None };
        }
        let unit = log_state().unit;
        let name = Short::new(format_args!("units/{}.{}.{record}.next", unit.0, unit.1));
        let room = match segments::prepare(self.hidden.folder, &name) {
            Ok(()) => Some(name),
            Err(errno) => {
                self.note_loss(&alloc::format!(
                    "a child of process {} is not recorded: {}",
                    self.pid,
                    stop::why(errno)
                ));
                None
            }
        };
        append(Kind::Fork, if room.is_some() { 0 } else { FORK_UNRECORDED }, &flags.to_le_bytes());
        // The room that was made may have been the last there was.
        let room = room.filter(|name| super::on() || segments::discard(self.hidden.folder, name));
        Forking { record, room }
    }

    /// There was no fork after all.
    pub fn not_forked(&self, forking: &Forking) {
        if let Some(room) = &forking.room {
            segments::discard(self.hidden.folder, room);
        }
    }

    /// Another image is about to take over: makes room for its log, or ends recording here.
    pub fn log_replaced(&mut self) {
        if !super::on() {
            return;
        }
        match segments::prepare(self.hidden.folder, &successor(&self.unit_name())) {
            // A guest that has used up its descriptors has some again in its new image, which makes its own room.
            Ok(()) | Err(EMFILE) => self.log_end(model::log::Ending::Replaced, 0),
            Err(errno) => self.stop_recording(errno),
        }
    }

    /// The image was not replaced after all.
    pub fn not_replaced(&self) {
        if super::on() {
            segments::discard(self.hidden.folder, &successor(&self.unit_name()));
        }
    }
}

/// Where the image that replaces this unit finds room for its log.
pub(super) fn successor(unit: &str) -> Short {
    Short::new(format_args!("units/{unit}.next"))
}
