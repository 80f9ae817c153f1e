//! Guest threads: their records, the baton that lets one of them run, and futexes.

pub mod create;
pub mod futex;
pub mod record;
pub mod sched;

pub use crate::shared_page::sched;
pub use record::{SigInfo, Thread, pending};
pub use sched::{Wake, Woken, load, save};
