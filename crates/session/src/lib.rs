//! Host side of the engine: starts it on a program, hears its reports, reads its trace, tells how it ended.
//!
//! ```text
//! EngineProgram ─┐
//! Launch ────────┴─ start ─▶ Running ── next ─▶ Event … ─▶ Ended ─▶ Closed
//!                               └────── wait ─▶ Run (everything gathered)
//! ```
//! [`EngineProgram`] is the engine's executable, made once per process; [`Launch`] says what to run and how; [`Running`]
//! is one live guest tree; [`Run`] is what remains of it.
//!
//! Guarantees: nothing here prints, exits, or reads the environment; no descriptor of one session reaches the guest of
//! another (every descriptor is close-on-exec in the host and made inheritable only inside the new process); the guest
//! is killed when a `Running` is dropped before its end. Sessions may be started from any number of threads.
//!
//! What it may miss: processes of the tree that outlive both the first process and the host go on without a listener.

mod access;
mod backward;
mod batch;
mod checkpoints;
mod cpu;
mod engine_program;
mod error;
mod held;
mod hub;
mod launch;
mod live;
mod noted;
mod record;
mod register_watch;
mod replay;
mod run;
mod running;
mod scene;
mod signals;
mod spawn;
mod stat;
mod stream;
mod timeline;
mod travel;
mod trial;
mod watched;
mod window;

pub use access::Access;
pub use batch::{Ear, Ears};
pub use engine_program::EngineProgram;
pub use error::{Error, ErrorKind};
pub use held::{Held, HeldStop};
pub use launch::{Launch, MakeChunkSink, MakeSink, Stdio, Traces};
pub use live::Live;
pub use record::Recorder;
pub use replay::{Outputs, ReplayOptions, Replayer};
pub use run::{Gathering, Image, Outcome, Run, TraceTotals};
pub use running::{Ended, Event, Handle, Running};
pub use scene::{Scene, images_of, images_with};
pub use signals::{SignalState, signal_by_number, signal_name};
pub use stat::process_stat;
pub use timeline::{Session, Stopped, alter, is_forked, read_from, registers_of, threads_of};
pub use travel::Counted;
pub use trial::{Budget, Candidate, Piece, TrialOutcome, run_altered};
pub use window::Window;
