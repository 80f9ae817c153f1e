//! The gdb remote protocol over anything that can be stepped both ways.
//!
//! Implement [`Debuggee`], give it to [`serve`] together with a connection, and stock gdb, LLDB and editors can look at
//! it: threads, all registers up to AVX, memory, breakpoints, watchpoints, forward and backward, files of the recorded
//! machine, commands of our own behind `monitor`, and calls of functions in a throw-away copy.
//!
//! The protocol is the one in the appendix "gdb Remote Serial Protocol" of the gdb manual; most of it is done by the
//! crate `gdbstub`, and the header of `session.rs` lists what it lacks and how that is made up for.
//!
//! Guarantees: what a client sends never makes this panic, wait forever, or use unbounded memory, and a client that
//! disappears ends the session. Nothing is printed. Left out: several processes in one session, `run`, non-stop mode,
//! tracepoints, AVX-512 registers.

mod debuggee;
mod files;
mod listen;
mod registers;
mod session;
mod signals;
mod stub;
mod target;
mod text;
mod throwaway;
mod wire;

pub use debuggee::{Console, Debuggee, Direction, Error, HostFile, Moved, Resume, Stop, Thread, Watch, WatchKind};
pub use listen::{ALIASES, COMMANDS, listen, serve_next};
pub use registers::{CpuState, X87};
pub use session::{End, ServeError, serve};
pub use wire::Stream;
