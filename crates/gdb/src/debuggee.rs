//! What a debugger can ask for: the one trait that a session implements and this crate serves.
//!
//! It is about a past that can be visited, not about a process that runs: there is a current moment, time can be moved
//! both ways, and asking changes nothing. The only way to change something is a *copy* of the current moment
//! ([`Debuggee::begin_copy`]), which is thrown away afterwards unless the debuggee wants to keep it.
//!
//! Every method may be called at any time while a client is connected, in any order, always from one thread.

use std::{fmt, path::PathBuf};

use crate::registers::CpuState;

/// Why a request was not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// Not possible, and nothing has changed: an address that is not mapped, a thread that is not there. The client gets
    /// an error and the session goes on.
    Refused(String),
    /// The debuggee is gone. The client is told why and the session ends.
    Lost(String),
}

impl Error {
    pub fn refused(reason: impl Into<String>) -> Error {
        Error::Refused(reason.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(reason) | Error::Lost(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {}

/// A thread of the guest that is alive at the current moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Thread {
    /// Its id as the guest saw it, never 0.
    pub id: u32,
    pub name: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Forward,
    Backward,
}

/// How far to go, if nothing else stops it first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resume {
    /// Until `thread` has executed one instruction (backward: has un-executed one). Other threads run as recorded.
    Step { thread: u32 },
    /// As `Step`, repeated until the instruction pointer of `thread` is outside `start..end`. Only forward.
    RangeStep { thread: u32, start: u64, end: u64 },
    /// Until a breakpoint, a watchpoint, a signal, or an end of the recording.
    Continue,
}

/// Which accesses a watchpoint is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum WatchKind {
    Write,
    Read,
    Access,
}

/// A stretch of memory that is watched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Watch {
    pub addr: u64,
    pub len: u64,
    pub kind: WatchKind,
}

/// Why time stands still again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// The step is done; [`Debuggee::stopped_thread`] made it.
    Step,
    /// `thread` is about to execute an instruction that has a breakpoint. Backward too: the instruction was un-executed.
    /// A breakpoint at the place where the resumption begins does not count.
    Breakpoint { thread: u32 },
    /// `thread` made an access of this kind within a watched stretch that contains `addr`. Forward, the access has just
    /// been made; backward, it has just been undone: gdb compares the value before and after.
    Watch { thread: u32, addr: u64, kind: WatchKind },
    /// The beginning of the recording.
    HistoryStart,
    /// The end of the recording, just before the guest ends. Going back is possible from here, which is why this is
    /// better than `Exited` and `Terminated`.
    HistoryEnd,
    /// `thread` gets a signal (in Linux numbers) here. Resuming forward delivers it as recorded.
    Signal { thread: u32, signo: u8 },
    /// The guest has exited and there is no way back. Copies may report this.
    Exited(u8),
    /// The guest was ended by a signal and there is no way back. Copies may report this.
    Terminated(u8),
    /// `interrupted` said so.
    Interrupted,
}

/// Where the bytes of a recorded file are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostFile {
    Path(PathBuf),
    Bytes(Vec<u8>),
}

/// Whether a command of the user moved the current moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moved {
    No,
    /// gdb must learn of it: its next resumption stops at once and shows where we are.
    Yes,
}

/// The terminal of somebody who waits for a command to finish.
pub trait Console {
    /// Shows text; lines end with a newline.
    fn print(&mut self, text: &str);
    /// Whether to give up: Ctrl-C, or the client is gone. Cheap enough to be asked often.
    fn interrupted(&mut self) -> bool;
}

/// Something that can be examined at a moment, and moved to others.
pub trait Debuggee {
    /// The threads alive now.
    fn threads(&mut self) -> Result<Vec<Thread>, Error>;

    /// The thread that the last stop is about. Never 0.
    fn stopped_thread(&mut self) -> u32;

    /// Why we are where we are, for a client that has just connected: `Stop::Signal` at a crash, for example.
    fn reason(&mut self) -> Stop {
        Stop::Step
    }

    fn registers(&mut self, thread: u32) -> Result<CpuState, Error>;

    /// Only called on a copy.
    fn set_registers(&mut self, thread: u32, state: &CpuState) -> Result<(), Error>;

    /// Reads from `addr` on and says how many bytes could be read: fewer than asked for when the mapped memory ends.
    /// Breakpoints are not visible.
    fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<usize, Error>;

    /// Only called on a copy. Works on read-only pages too.
    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Error>;

    /// From now on exactly these addresses have breakpoints, sorted.
    fn set_breakpoints(&mut self, addresses: &[u64]) -> Result<(), Error>;

    /// From now on exactly these stretches are watched, sorted.
    fn set_watchpoints(&mut self, watches: &[Watch]) -> Result<(), Error>;

    /// Moves time. `interrupted` is to be asked often (it is cheap); once it says true, stop soon with
    /// [`Stop::Interrupted`] at a moment that can be examined.
    fn resume(
        &mut self,
        direction: Direction,
        how: Resume,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, Error>;

    /// Until [`Debuggee::end_copy`], everything is about a throw-away copy of this moment, whose registers and memory
    /// may be written and which may run forward. Going back in it is refused. This is how `print f(x)` works.
    fn begin_copy(&mut self) -> Result<(), Error> {
        Err(Error::refused("a recording cannot be changed"))
    }

    /// Time is to be moved, and the user has changed something in the copy by hand: makes the copy the debuggee, if that
    /// is possible here. Otherwise it is thrown away.
    fn keep_copy(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Throws the copy away; the moment at which it was made is the current one again.
    fn end_copy(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn pid(&mut self) -> u32;

    /// The program, as an absolute path of the recorded machine. `None`: the client must be told with `file`.
    fn exec_file(&mut self) -> Option<String>;

    /// The auxiliary vector as the guest got it; empty if not known. gdb finds the program's base address and the
    /// dynamic linker with it, and from there the shared libraries, by reading the linker's list in memory.
    fn auxv(&mut self) -> Result<Vec<u8>, Error>;

    /// The recorded content of a file that the client wants to read: programs, libraries, debug information. What is
    /// not given here cannot be read by the client.
    fn file(&mut self, path: &str) -> Option<HostFile>;

    /// The 128 bytes of `siginfo_t` of the signal that `thread` stopped with, if it did.
    fn siginfo(&mut self, _thread: u32) -> Option<Vec<u8>> {
        None
    }

    /// What the user is to read about the last stop, beside what the client says of it. Whole lines; asked once.
    fn remark(&mut self) -> Option<String> {
        None
    }

    /// What the user typed after `monitor`.
    fn monitor(&mut self, command: &str, console: &mut dyn Console) -> Result<Moved, Error>;
}
