//! Questions to a replay that waits for them, and its answers.
//!
//! A request is one packet from the host; every request has one answer, which comes as `Report::Answer`. `Run` and `Step`
//! are answered when the guest stops. Any packet that comes meanwhile stops it.

mod answers;
mod parts;
mod requests;
#[cfg(test)]
mod tests;

pub use crate::look::Look;
use crate::wire::{Probe, Replayed};
use crate::{GuestAddr, Mode};
use alloc::{string::String, vec::Vec};

/// A moment of a unit and where its log is then. Moments are ordered by tick, then pc.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment {
    pub tick: u64,
    pub pc: u64,
}

impl core::fmt::Display for Moment {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}:{:#x}", self.tick, self.pc)
    }
}

/// What the host wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Where,
    Run(Until),
    /// One instruction, or what happens instead of it.
    Step,
    Registers {
        thread: u32,
    },
    SetRegisters {
        thread: u32,
        state: State,
    },
    Read {
        addr: GuestAddr,
        len: u32,
    },
    Write {
        addr: GuestAddr,
        bytes: Vec<u8>,
    },
    Threads,
    Maps,
    /// The guest is stopped before each execution of these.
    Breakpoints(Vec<u64>),
    /// The guest is stopped soon after these bytes have changed.
    Watches(Vec<(u64, u32)>),
    /// Instrumentation changes.
    Mode(Mode),
    /// A copy of the process, which listens on the socket that comes with the request.
    Fork,
    /// Executions of conditional branches in these ranges, with `jumps` also of indirect jumps there, and of the
    /// instructions at these addresses, are noted from now on, the last `keep` of them. With none to keep they are only
    /// counted, which is much faster.
    Predicates {
        ranges: Vec<(u64, u64)>,
        places: Vec<u64>,
        jumps: bool,
        keep: u32,
    },
    /// The last `keep` of what was only counted so far are noted from now on.
    KeepPredicates {
        keep: u32,
    },
    /// Those noted, from this one on.
    PredicateList {
        from: u32,
    },
    /// What the guest is to do other than recorded, here.
    Alter(Alteration),
    /// What becomes of these files, which are named in full, is to be told when a trial ends.
    Files(Vec<Vec<u8>>),
    /// A trial is to tell what memory holds at these executions, which count from now on.
    Looks(Vec<Look>),
    /// The kernel is to refuse this process, and its copies, what trials must not do.
    Belt,
    /// The guest goes on by itself, in a world made from the recording.
    Trial(TrialLimits),
    /// A copy of the process, altered, goes on by itself at once and tells about it over the socket that comes with the
    /// request. `Forked` comes from this process alone; the copy says something of its own only if it cannot be altered so.
    Try {
        alteration: Alteration,
        /// As for `Files`.
        files: Vec<Vec<u8>>,
        limits: TrialLimits,
    },
    /// The same, but the host stays: it stops the guest, asks, alters and lets it go on as in a replay. What the guest
    /// writes comes in between; its end is the answer to the request that let it go, and then only questions are left.
    Hold(TrialLimits),
    /// The log counts no longer, and this thread is the one that goes on. The guest computes by itself until it wants
    /// something from outside, which ends it.
    Leave {
        thread: u32,
    },
    Quit,
}

/// One execution of a conditional branch, or of another instruction whose executions were asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Predicate {
    pub moment: Moment,
    /// Counted from 1 since noting began.
    pub instance: u64,
    pub taken: bool,
    /// Where an indirect jump leads; 0 for everything else.
    pub to: u64,
}

/// When to stop at the latest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Until {
    pub moment: Option<Moment>,
    /// The number of a record that is next.
    pub record: Option<u64>,
    /// Do not stop at breakpoints and changes, but remember the last of them.
    pub collect: bool,
    /// Pass this many breakpoints.
    pub skip: u64,
    /// Breakpoints and changes do not count at all.
    pub blind: bool,
    /// Look after every instruction: changes are exact, and `Collected::steps` tells the way.
    pub single: bool,
    /// Stop when this thread runs.
    pub thread: Option<u32>,
}

/// A change of the guest's course.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Alteration {
    /// None: a control. It follows the log to its end.
    Null,
    /// None, and the guest goes its own way at once, although the log fits: a control of the world it goes on in.
    Apart,
    /// The conditional branch at the pc goes the other way.
    Flip,
    /// The conditional branch at the pc goes the other way, and so does the one at this address at its n-th execution
    /// from now on.
    FlipTwo {
        pc: u64,
        execution: u64,
    },
    /// The conditional branch at the pc is taken, or not taken, now and whenever it is executed again.
    Force(bool),
    /// Execution goes on at this address: what lies between is left out.
    Skip(u64),
    /// The function whose first instruction is at the pc returns at once; no register but the stack pointer changes.
    Return,
    /// A register by hardware number; 16 is the flags register.
    SetRegister(u8, u64),
    SetMemory(GuestAddr, Vec<u8>),
    /// Bytes that the call at the pc, a read, will deliver, from this offset on.
    Input {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Something is done at an execution that is still to come: the instance counts from this moment on, and 0 is every
    /// one.
    Arm(Probe),
}

/// What a trial may use up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrialLimits {
    pub ticks: u64,
    pub memory: u64,
    /// Bytes of output that are kept.
    pub output: u64,
    /// The kernel, too, is to refuse what a trial must not do.
    pub belt: bool,
}

/// Registers of a thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// In hardware order.
    pub gpr: [u64; 16],
    pub rip: u64,
    pub rflags: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    /// The rest in the standard form of XSAVE.
    pub extended: Vec<u8>,
}

/// Where a guest has stopped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Place {
    pub moment: Moment,
    /// Number of the next record.
    pub record: u64,
    pub thread: u32,
}

/// Why it stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// The moment or record asked for, or the end of a step.
    Reached,
    /// The moment asked for does not exist: this is the first one behind it.
    Passed,
    Breakpoint,
    /// Watched bytes changed since the moment given.
    Changed {
        since: Moment,
    },
    /// The recording is over, or the guest did something else.
    End(Replayed),
    /// A packet came.
    Interrupted,
}

/// What `Until::collect` remembers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Collected {
    pub breakpoints: u64,
    pub last_breakpoint: Option<Place>,
    /// The last change, between these two.
    pub last_change: Option<(Moment, Moment)>,
    /// With `Until::single`: the last places before the end of the run, each before an instruction that was executed.
    pub steps: Vec<Place>,
}

/// A thread of the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadInfo {
    pub number: u32,
    pub tid: u32,
    /// It waits in a system call of this number.
    pub in_call: Option<u32>,
    /// When it ran last, if it does not run now and ever did: at that moment it made the call, or was stopped for others.
    pub left: Option<Moment>,
}

/// A mapping of the guest.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MapInfo {
    pub start: u64,
    pub end: u64,
    pub prot: u8,
    pub shared: bool,
    pub offset: u64,
    /// Key of the kept file; empty for plain memory.
    pub key: String,
}

/// How a trial ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TrialEnd {
    Exited(u32),
    Signaled {
        signal: u32,
        moment: Moment,
        addr: u64,
    },
    /// The budget is used up.
    RanAway,
    /// All its threads wait for each other.
    Deadlocked,
    /// It waits for something from outside that never comes in a trial; says for what.
    Waits(String),
    OutOfMemory,
    /// The world could not answer.
    Lost(String),
}

/// What the replay answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    Done,
    Stopped {
        why: Why,
        place: Place,
        collected: Collected,
    },
    Registers(State),
    Bytes(Vec<u8>),
    Threads(Vec<ThreadInfo>),
    Maps(Vec<MapInfo>),
    /// The copy's process number.
    Forked(u32),
    /// A trial wrote to a standard stream.
    Output {
        stream: u8,
        bytes: Vec<u8>,
    },
    /// A trial came to the execution of this look: what memory held, as far as it could be read.
    Looked(u32, Vec<u8>),
    /// A trial made the fork that was recorded: this child is taken to have done what it did, and does not run.
    Child(u32),
    /// A file, by its number among those that were asked for, of which a trial leaves these bytes, behind those that were
    /// told before; `None`: it is not there any more. What the trial did not write is not told.
    Left {
        file: u32,
        bytes: Option<Vec<u8>>,
    },
    Ended {
        end: TrialEnd,
        ticks: u64,
    },
    Predicates {
        list: Vec<Predicate>,
        total: u64,
    },
    Refused(String),
}
