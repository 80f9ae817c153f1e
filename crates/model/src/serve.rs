//! Questions to a replay that waits for them, and its answers.
//!
//! A request is one packet from the host; every request has one answer, which comes as `Report::Answer`. `Run` and `Step`
//! are answered when the guest stops. Any packet that comes meanwhile stops it.

pub use crate::look::Look;
use crate::wire::{Probe, Reader, Replayed, Writer};
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
    /// instructions at these addresses, are noted from now on, the last `keep` of them.
    Predicates {
        ranges: Vec<(u64, u64)>,
        places: Vec<u64>,
        jumps: bool,
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
    Deadlocked,
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

impl Writer {
    fn moment(&mut self, m: Moment) {
        self.u64(m.tick);
        self.u64(m.pc);
    }
    fn place(&mut self, p: &Place) {
        self.moment(p.moment);
        self.u64(p.record);
        self.u32(p.thread);
    }
    fn option<T>(&mut self, v: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.u8(v.is_some() as u8);
        if let Some(v) = v {
            put(self, v);
        }
    }
    fn state(&mut self, s: &State) {
        for v in s.gpr.into_iter().chain([s.rip, s.rflags, s.fs_base, s.gs_base]) {
            self.u64(v);
        }
        self.bytes(&s.extended);
    }
    fn alteration(&mut self, a: &Alteration) {
        match a {
            Alteration::Null => self.u8(0),
            Alteration::Apart => self.u8(6),
            Alteration::Flip => self.u8(1),
            Alteration::FlipTwo { pc, execution } => {
                self.u8(9);
                self.u64(*pc);
                self.u64(*execution);
            }
            Alteration::Force(taken) => {
                self.u8(7);
                self.u8(u8::from(*taken));
            }
            Alteration::Skip(to) => {
                self.u8(2);
                self.u64(*to);
            }
            Alteration::Return => self.u8(8),
            Alteration::SetRegister(r, v) => {
                self.u8(3);
                self.u8(*r);
                self.u64(*v);
            }
            Alteration::SetMemory(at, bytes) => {
                self.u8(4);
                self.u64(at.0);
                self.bytes(bytes);
            }
            Alteration::Input { offset, bytes } => {
                self.u8(5);
                self.u64(*offset);
                self.bytes(bytes);
            }
            Alteration::Arm(probe) => {
                self.u8(20);
                self.probe(probe);
            }
        }
    }
    fn limits(&mut self, l: &TrialLimits) {
        self.u64(l.ticks);
        self.u64(l.memory);
        self.u64(l.output);
        self.u8(l.belt as u8);
    }
    pub(crate) fn replayed(&mut self, r: &Replayed) {
        self.u64(r.records);
        self.u64(r.tick);
        self.u64(r.pc);
        self.u8(r.difference.is_some() as u8);
        self.str(r.difference.as_deref().unwrap_or(""));
        self.u8(r.ending);
        self.u32(r.status);
    }
}

impl Reader<'_> {
    fn moment(&mut self) -> Option<Moment> {
        Some(Moment { tick: self.u64()?, pc: self.u64()? })
    }
    fn place(&mut self) -> Option<Place> {
        Some(Place { moment: self.moment()?, record: self.u64()?, thread: self.u32()? })
    }
    fn option<T>(&mut self, get: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.u8()? {
            0 => Some(None),
            _ => Some(Some(get(self)?)),
        }
    }
    fn state(&mut self) -> Option<State> {
        let mut s = State::default();
        for v in &mut s.gpr {
            *v = self.u64()?;
        }
        (s.rip, s.rflags, s.fs_base, s.gs_base) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        s.extended = self.bytes()?.to_vec();
        Some(s)
    }
    fn alteration(&mut self) -> Option<Alteration> {
        Some(match self.u8()? {
            0 => Alteration::Null,
            6 => Alteration::Apart,
            1 => Alteration::Flip,
            9 => Alteration::FlipTwo { pc: self.u64()?, execution: self.u64()? },
            7 => Alteration::Force(self.u8()? != 0),
            2 => Alteration::Skip(self.u64()?),
            8 => Alteration::Return,
            3 => Alteration::SetRegister(self.u8()?, self.u64()?),
            4 => Alteration::SetMemory(GuestAddr(self.u64()?), self.bytes()?.to_vec()),
            5 => Alteration::Input { offset: self.u64()?, bytes: self.bytes()?.to_vec() },
            20 => Alteration::Arm(self.probe()?),
            _ => return None,
        })
    }
    fn limits(&mut self) -> Option<TrialLimits> {
        Some(TrialLimits { ticks: self.u64()?, memory: self.u64()?, output: self.u64()?, belt: self.u8()? != 0 })
    }
    pub(crate) fn replayed(&mut self) -> Option<Replayed> {
        let (records, tick, pc) = (self.u64()?, self.u64()?, self.u64()?);
        let differs = self.u8()? != 0;
        let text = self.str()?;
        let difference = differs.then_some(text);
        Some(Replayed { records, tick, pc, difference, ending: self.u8()?, status: self.u32()? })
    }
}

impl Request {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Request::Where => w.u8(0),
            Request::Run(u) => {
                w.u8(1);
                w.option(u.moment, Writer::moment);
                w.option(u.record, Writer::u64);
                w.u8(u.collect as u8);
                w.u64(u.skip);
                w.u8(u.blind as u8);
                w.u8(u.single as u8);
                w.option(u.thread, Writer::u32);
            }
            Request::Step => w.u8(2),
            Request::Registers { thread } => {
                w.u8(3);
                w.u32(*thread);
            }
            Request::SetRegisters { thread, state } => {
                w.u8(4);
                w.u32(*thread);
                w.state(state);
            }
            Request::Read { addr, len } => {
                w.u8(5);
                w.u64(addr.0);
                w.u32(*len);
            }
            Request::Write { addr, bytes } => {
                w.u8(6);
                w.u64(addr.0);
                w.bytes(bytes);
            }
            Request::Threads => w.u8(7),
            Request::Maps => w.u8(8),
            Request::Breakpoints(list) => {
                w.u8(9);
                w.u32(list.len() as u32);
                list.iter().for_each(|a| w.u64(*a));
            }
            Request::Watches(list) => {
                w.u8(10);
                w.u32(list.len() as u32);
                for (at, len) in list {
                    w.u64(*at);
                    w.u32(*len);
                }
            }
            Request::Mode(mode) => {
                w.u8(11);
                w.u8(*mode as u8);
            }
            Request::Fork => w.u8(12),
            Request::Alter(a) => {
                w.u8(13);
                w.alteration(a);
            }
            Request::Trial(l) => {
                w.u8(14);
                w.limits(l);
            }
            Request::Hold(l) => {
                w.u8(42);
                w.limits(l);
            }
            Request::Files(paths) => {
                w.u8(17);
                w.u32(paths.len() as u32);
                paths.iter().for_each(|path| w.bytes(path));
            }
            Request::Quit => w.u8(15),
            Request::Belt => w.u8(19),
            Request::Looks(list) => {
                w.u8(18);
                w.u32(list.len() as u32);
                list.iter().for_each(|l| l.encode(&mut w));
            }
            Request::Predicates { ranges, places, jumps, keep } => {
                w.u8(40);
                w.u32(ranges.len() as u32);
                for (start, end) in ranges {
                    w.u64(*start);
                    w.u64(*end);
                }
                w.u32(places.len() as u32);
                places.iter().for_each(|at| w.u64(*at));
                w.u8(*jumps as u8);
                w.u32(*keep);
            }
            Request::PredicateList { from } => {
                w.u8(41);
                w.u32(*from);
            }
            Request::Leave { thread } => {
                w.u8(16);
                w.u32(*thread);
            }
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let mut r = Reader(bytes);
        Some(match r.u8()? {
            0 => Request::Where,
            1 => Request::Run(Until {
                moment: r.option(Reader::moment)?,
                record: r.option(|r| r.u64())?,
                collect: r.u8()? != 0,
                skip: r.u64()?,
                blind: r.u8()? != 0,
                single: r.u8()? != 0,
                thread: r.option(|r| r.u32())?,
            }),
            2 => Request::Step,
            3 => Request::Registers { thread: r.u32()? },
            4 => Request::SetRegisters { thread: r.u32()?, state: r.state()? },
            5 => Request::Read { addr: GuestAddr(r.u64()?), len: r.u32()? },
            6 => Request::Write { addr: GuestAddr(r.u64()?), bytes: r.bytes()?.to_vec() },
            7 => Request::Threads,
            8 => Request::Maps,
            9 => Request::Breakpoints(r.list(|r| r.u64())?),
            10 => Request::Watches(r.list(|r| Some((r.u64()?, r.u32()?)))?),
            11 => Request::Mode(Mode::from_u8(r.u8()?)?),
            12 => Request::Fork,
            13 => Request::Alter(r.alteration()?),
            14 => Request::Trial(r.limits()?),
            42 => Request::Hold(r.limits()?),
            17 => Request::Files(r.list(|r| Some(r.bytes()?.to_vec()))?),
            15 => Request::Quit,
            19 => Request::Belt,
            18 => Request::Looks(r.list(Look::decode)?),
            40 => Request::Predicates {
                ranges: r.list(|r| Some((r.u64()?, r.u64()?)))?,
                places: r.list(Reader::u64)?,
                jumps: r.u8()? != 0,
                keep: r.u32()?,
            },
            41 => Request::PredicateList { from: r.u32()? },
            16 => Request::Leave { thread: r.u32()? },
            _ => return None,
        })
    }
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Answer::Done => w.u8(0),
            Answer::Stopped { why, place, collected } => {
                w.u8(1);
                w.why(why);
                w.place(place);
                w.u64(collected.breakpoints);
                w.option(collected.last_breakpoint.as_ref(), Writer::place);
                w.option(collected.last_change, |w, (a, b)| {
                    w.moment(a);
                    w.moment(b);
                });
                w.u32(collected.steps.len() as u32);
                collected.steps.iter().for_each(|p| w.place(p));
            }
            Answer::Registers(s) => {
                w.u8(2);
                w.state(s);
            }
            Answer::Bytes(b) => {
                w.u8(3);
                w.bytes(b);
            }
            Answer::Threads(list) => {
                w.u8(4);
                w.u32(list.len() as u32);
                for t in list {
                    w.u32(t.number);
                    w.u32(t.tid);
                    w.option(t.in_call, Writer::u32);
                    w.option(t.left, Writer::moment);
                }
            }
            Answer::Maps(list) => {
                w.u8(5);
                w.u32(list.len() as u32);
                for m in list {
                    w.u64(m.start);
                    w.u64(m.end);
                    w.u8(m.prot);
                    w.u8(m.shared as u8);
                    w.u64(m.offset);
                    w.str(&m.key);
                }
            }
            Answer::Forked(pid) => {
                w.u8(6);
                w.u32(*pid);
            }
            Answer::Output { stream, bytes } => {
                w.u8(7);
                w.u8(*stream);
                w.bytes(bytes);
            }
            Answer::Ended { end, ticks } => {
                w.u8(8);
                w.trial_end(end);
                w.u64(*ticks);
            }
            Answer::Refused(why) => {
                w.u8(9);
                w.str(why);
            }
            Answer::Predicates { list, total } => {
                w.u8(10);
                w.u32(list.len() as u32);
                for p in list {
                    w.moment(p.moment);
                    w.u64(p.instance);
                    w.u8(p.taken as u8);
                    w.u64(p.to);
                }
                w.u64(*total);
            }
            Answer::Left { file, bytes } => {
                w.u8(12);
                w.u32(*file);
                w.option(bytes.as_ref(), |w, bytes| w.bytes(bytes));
            }
            Answer::Child(pid) => {
                w.u8(11);
                w.u32(*pid);
            }
            Answer::Looked(number, bytes) => {
                w.u8(13);
                w.u32(*number);
                w.bytes(bytes);
            }
        }
        w.0
    }

    pub fn decode(bytes: &[u8]) -> Option<Answer> {
        let mut r = Reader(bytes);
        Some(match r.u8()? {
            0 => Answer::Done,
            1 => Answer::Stopped {
                why: r.why()?,
                place: r.place()?,
                collected: Collected {
                    breakpoints: r.u64()?,
                    last_breakpoint: r.option(Reader::place)?,
                    last_change: r.option(|r| Some((r.moment()?, r.moment()?)))?,
                    steps: r.list(Reader::place)?,
                },
            },
            2 => Answer::Registers(r.state()?),
            3 => Answer::Bytes(r.bytes()?.to_vec()),
            4 => Answer::Threads(r.list(|r| {
                let (number, tid) = (r.u32()?, r.u32()?);
                Some(ThreadInfo { number, tid, in_call: r.option(|r| r.u32())?, left: r.option(Reader::moment)? })
            })?),
            5 => Answer::Maps(r.list(|r| {
                Some(MapInfo {
                    start: r.u64()?,
                    end: r.u64()?,
                    prot: r.u8()?,
                    shared: r.u8()? != 0,
                    offset: r.u64()?,
                    key: r.str()?,
                })
            })?),
            6 => Answer::Forked(r.u32()?),
            7 => Answer::Output { stream: r.u8()?, bytes: r.bytes()?.to_vec() },
            8 => Answer::Ended { end: r.trial_end()?, ticks: r.u64()? },
            9 => Answer::Refused(r.str()?),
            10 => Answer::Predicates {
                list: r.list(|r| {
                    let (moment, instance) = (r.moment()?, r.u64()?);
                    Some(Predicate { moment, instance, taken: r.u8()? != 0, to: r.u64()? })
                })?,
                total: r.u64()?,
            },
            11 => Answer::Child(r.u32()?),
            12 => Answer::Left { file: r.u32()?, bytes: r.option(|r| Some(r.bytes()?.to_vec()))? },
            13 => Answer::Looked(r.u32()?, r.bytes()?.to_vec()),
            _ => return None,
        })
    }
}

impl Writer {
    fn why(&mut self, why: &Why) {
        match why {
            Why::Reached => self.u8(0),
            Why::Passed => self.u8(1),
            Why::Breakpoint => self.u8(2),
            Why::Changed { since } => {
                self.u8(3);
                self.moment(*since);
            }
            Why::End(r) => {
                self.u8(4);
                self.replayed(r);
            }
            Why::Interrupted => self.u8(5),
        }
    }
    fn trial_end(&mut self, end: &TrialEnd) {
        match end {
            TrialEnd::Exited(status) => {
                self.u8(0);
                self.u32(*status);
            }
            TrialEnd::Signaled { signal, moment, addr } => {
                self.u8(1);
                self.u32(*signal);
                self.moment(*moment);
                self.u64(*addr);
            }
            TrialEnd::RanAway => self.u8(2),
            TrialEnd::Deadlocked => self.u8(3),
            TrialEnd::OutOfMemory => self.u8(4),
            TrialEnd::Lost(why) => {
                self.u8(5);
                self.str(why);
            }
        }
    }
}

impl Reader<'_> {
    fn why(&mut self) -> Option<Why> {
        Some(match self.u8()? {
            0 => Why::Reached,
            1 => Why::Passed,
            2 => Why::Breakpoint,
            3 => Why::Changed { since: self.moment()? },
            4 => Why::End(self.replayed()?),
            5 => Why::Interrupted,
            _ => return None,
        })
    }
    fn trial_end(&mut self) -> Option<TrialEnd> {
        Some(match self.u8()? {
            0 => TrialEnd::Exited(self.u32()?),
            1 => TrialEnd::Signaled { signal: self.u32()?, moment: self.moment()?, addr: self.u64()? },
            2 => TrialEnd::RanAway,
            3 => TrialEnd::Deadlocked,
            4 => TrialEnd::OutOfMemory,
            5 => TrialEnd::Lost(self.str()?),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests;
