//! A [`Debuggee`] as `gdbstub` wants to see its targets.
//!
//! Resumption is only noted here (`gdbstub` asks for it in the middle of a packet); the session does it afterwards.
//! Writes go to a copy, see [`crate::throwaway`]. Breakpoints are collected and given to the debuggee all at once, before it
//! moves: gdb takes all of them out at every stop and puts them back.

use std::{cell::RefCell, collections::BTreeSet};

use gdbstub::{
    common::{Pid, Signal, Tid},
    target::{
        Target, TargetError, TargetResult,
        ext::{
            auxv::{Auxv, AuxvOps},
            base::{
                BaseOps,
                multithread::{
                    MultiThreadBase, MultiThreadRangeStepping, MultiThreadRangeSteppingOps, MultiThreadResume,
                    MultiThreadResumeOps, MultiThreadSchedulerLocking, MultiThreadSchedulerLockingOps,
                    MultiThreadSingleStep, MultiThreadSingleStepOps,
                },
                reverse_exec::{ReverseCont, ReverseContOps, ReverseStep, ReverseStepOps},
                single_register_access::{SingleRegisterAccess, SingleRegisterAccessOps},
            },
            breakpoints::{self, BreakpointsOps, HwBreakpointOps, HwWatchpointOps, SwBreakpointOps},
            exec_file::{ExecFile, ExecFileOps},
            extended_mode::{
                Args, AttachKind, CurrentActivePid, CurrentActivePidOps, ExtendedMode, ExtendedModeOps, ShouldTerminate,
            },
            host_io::HostIoOps,
        },
    },
};

use crate::{
    debuggee::{Debuggee, Direction, Error, Resume, Watch, WatchKind},
    files::OpenFiles,
    registers::{Amd64, CpuState, Number},
    throwaway::{OnResume, ThrowAway},
};

const EFAULT: u8 = 14;
const EINVAL: u8 = 22;

/// What `gdbstub` talks to.
pub struct Adapter<'d> {
    /// `gdbstub` asks some questions through a shared reference.
    pub debuggee: RefCell<&'d mut dyn Debuggee>,
    pub files: OpenFiles,
    pub copy: ThrowAway,
    /// What the client asked for last.
    pub wanted: (Direction, Resume),
    points: Points,
    /// The points that the debuggee knows of.
    settled: Points,
}

/// Everything that the client wants to stop at.
#[derive(Clone, PartialEq, Eq, Default)]
struct Points {
    software: BTreeSet<u64>,
    hardware: BTreeSet<u64>,
    watches: BTreeSet<Watch>,
}

impl Points {
    fn addresses(&self) -> Vec<u64> {
        self.software.union(&self.hardware).copied().collect()
    }
}

fn number(tid: Tid) -> u32 {
    // No thread has the number that does not fit; asking for it is refused by the debuggee.
    u32::try_from(tid.get()).unwrap_or(u32::MAX)
}

/// A thread's number as `gdbstub` wants it.
pub fn tid(thread: u32) -> Tid {
    Tid::new(thread as usize).unwrap_or(Tid::MIN)
}

fn failed(error: Error, code: u8) -> TargetError<String> {
    match error {
        Error::Refused(_) => TargetError::Errno(code),
        Error::Lost(reason) => TargetError::Fatal(reason),
    }
}

impl<'d> Adapter<'d> {
    pub fn new(debuggee: &'d mut dyn Debuggee) -> Adapter<'d> {
        Adapter {
            debuggee: RefCell::new(debuggee),
            files: OpenFiles::default(),
            copy: ThrowAway::default(),
            wanted: (Direction::Forward, Resume::Continue),
            points: Points::default(),
            settled: Points::default(),
        }
    }

    /// The threads alive, that of the last stop first: `gdbstub` takes the first where the client leaves the choice.
    pub fn thread_numbers(&self) -> Result<Vec<u32>, Error> {
        let mut debuggee = self.debuggee.borrow_mut();
        let stopped = debuggee.stopped_thread();
        let others: Vec<u32> = match debuggee.threads() {
            Ok(threads) => threads.iter().map(|t| t.id).filter(|id| *id != stopped && *id != 0).collect(),
            Err(Error::Refused(_)) => Vec::new(),
            Err(lost) => return Err(lost),
        };
        Ok([stopped].into_iter().chain(others).collect())
    }

    /// Whether a stop at `addr` is at a breakpoint that gdb called a software one.
    pub fn is_software_breakpoint(&self, addr: u64) -> bool {
        !self.points.hardware.contains(&addr) || self.points.software.contains(&addr)
    }

    /// Tells the debuggee what to stop at, if that is news to it.
    pub fn settle_points(&mut self) -> Result<(), Error> {
        let debuggee = self.debuggee.get_mut();
        let addresses = self.points.addresses();
        if addresses != self.settled.addresses() {
            debuggee.set_breakpoints(&addresses)?;
        }
        if self.points.watches != self.settled.watches {
            debuggee.set_watchpoints(&self.points.watches.iter().copied().collect::<Vec<_>>())?;
        }
        self.settled = self.points.clone();
        Ok(())
    }

    /// Takes out everything that the client put in.
    pub fn forget_points(&mut self) -> Result<(), Error> {
        self.points = Points::default();
        self.settle_points()
    }

    /// Carries out what [`ThrowAway`] decided; says whether changes of the user are lost.
    pub fn finish_copy(&mut self, decision: OnResume) -> Result<bool, Error> {
        match decision {
            OnResume::Go => Ok(false),
            OnResume::End { changed: true } if self.debuggee.get_mut().keep_copy()? => Ok(false),
            OnResume::End { changed } => self.debuggee.get_mut().end_copy().map(|()| changed),
        }
    }

    fn make_copy(&mut self) -> Result<(), Error> {
        match self.copy.exists() {
            true => Ok(()),
            false => self.debuggee.get_mut().begin_copy(),
        }
    }

    fn change_registers(&mut self, thread: u32, state: &CpuState) -> Result<(), Error> {
        let before = self.debuggee.get_mut().registers(thread)?;
        // After a call gdb puts everything back, also when it has not changed.
        if before == *state {
            return Ok(());
        }
        self.make_copy()?;
        self.copy.written(before.rip != state.rip);
        self.debuggee.get_mut().set_registers(thread, state)
    }

    fn note(&mut self, direction: Direction, resume: Resume) {
        self.wanted = (direction, resume);
    }
}

/// The part of `data` that an answer to a `qXfer` request has room for.
fn slice_into(data: &[u8], offset: u64, length: usize, into: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|o| data.get(o..)).unwrap_or_default();
    let n = rest.len().min(length).min(into.len() / 2);
    into[..n].copy_from_slice(&rest[..n]);
    n
}

impl Target for Adapter<'_> {
    type Arch = Amd64;
    /// Why the debuggee is lost.
    type Error = String;

    fn base_ops(&mut self) -> BaseOps<'_, Self::Arch, Self::Error> {
        BaseOps::MultiThread(self)
    }

    // Compression saves nothing on a local connection, and answers are easier to read without.
    fn use_rle(&self) -> bool {
        false
    }

    fn use_fork_stop_reason(&self) -> bool {
        false
    }

    fn use_vfork_stop_reason(&self) -> bool {
        false
    }

    fn use_vforkdone_stop_reason(&self) -> bool {
        false
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_extended_mode(&mut self) -> Option<ExtendedModeOps<'_, Self>> {
        Some(self)
    }

    fn support_host_io(&mut self) -> Option<HostIoOps<'_, Self>> {
        Some(self)
    }

    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        match self.debuggee.get_mut().exec_file() {
            Some(_) => Some(self),
            None => None,
        }
    }

    fn support_auxv(&mut self) -> Option<AuxvOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadBase for Adapter<'_> {
    fn read_registers(&mut self, regs: &mut CpuState, tid: Tid) -> TargetResult<(), Self> {
        *regs = self.debuggee.get_mut().registers(number(tid)).map_err(|e| failed(e, EINVAL))?;
        Ok(())
    }

    fn write_registers(&mut self, regs: &CpuState, tid: Tid) -> TargetResult<(), Self> {
        self.change_registers(number(tid), regs).map_err(|e| failed(e, EINVAL))
    }

    fn support_single_register_access(&mut self) -> Option<SingleRegisterAccessOps<'_, Tid, Self>> {
        Some(self)
    }

    fn read_addrs(&mut self, start_addr: u64, data: &mut [u8], _tid: Tid) -> TargetResult<usize, Self> {
        match self.debuggee.get_mut().read(start_addr, data) {
            Ok(0) if !data.is_empty() => Err(TargetError::Errno(EFAULT)),
            Ok(n) => Ok(n.min(data.len())),
            Err(e) => Err(failed(e, EFAULT)),
        }
    }

    fn write_addrs(&mut self, start_addr: u64, data: &[u8], _tid: Tid) -> TargetResult<(), Self> {
        // gdb writes nothing to find out whether binary packets are understood.
        if data.is_empty() {
            return Ok(());
        }
        let write = |adapter: &mut Self| {
            adapter.make_copy()?;
            adapter.copy.written(false);
            adapter.debuggee.get_mut().write(start_addr, data)
        };
        write(self).map_err(|e| failed(e, EFAULT))
    }

    fn list_active_threads(&mut self, thread_is_active: &mut dyn FnMut(Tid)) -> Result<(), String> {
        let threads = self.thread_numbers().map_err(|e| e.to_string())?;
        threads.into_iter().for_each(|thread| thread_is_active(tid(thread)));
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }
}

impl SingleRegisterAccess<Tid> for Adapter<'_> {
    fn read_register(&mut self, tid: Tid, reg_id: Number, buf: &mut [u8]) -> TargetResult<usize, Self> {
        let state = self.debuggee.get_mut().registers(number(tid)).map_err(|e| failed(e, EINVAL))?;
        let value = state.register(reg_id);
        buf.get_mut(..value.len()).ok_or(TargetError::Errno(EINVAL))?.copy_from_slice(&value);
        Ok(value.len())
    }

    fn write_register(&mut self, tid: Tid, reg_id: Number, val: &[u8]) -> TargetResult<(), Self> {
        let state = self.debuggee.get_mut().registers(number(tid)).map_err(|e| failed(e, EINVAL))?;
        let state = state.with_register(reg_id, val).ok_or(TargetError::Errno(EINVAL))?;
        self.change_registers(number(tid), &state).map_err(|e| failed(e, EINVAL))
    }
}

impl MultiThreadResume for Adapter<'_> {
    fn resume(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), String> {
        self.note(Direction::Forward, Resume::Continue);
        Ok(())
    }

    /// Signals are delivered as recorded, whatever the client wants.
    fn set_resume_action_continue(&mut self, _tid: Tid, _signal: Option<Signal>) -> Result<(), String> {
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_range_step(&mut self) -> Option<MultiThreadRangeSteppingOps<'_, Self>> {
        Some(self)
    }

    fn support_reverse_step(&mut self) -> Option<ReverseStepOps<'_, Tid, Self>> {
        Some(self)
    }

    fn support_reverse_cont(&mut self) -> Option<ReverseContOps<'_, Tid, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadSingleStep for Adapter<'_> {
    fn set_resume_action_step(&mut self, tid: Tid, _signal: Option<Signal>) -> Result<(), String> {
        self.note(Direction::Forward, Resume::Step { thread: number(tid) });
        Ok(())
    }
}

impl MultiThreadRangeStepping for Adapter<'_> {
    fn set_resume_action_range_step(&mut self, tid: Tid, start: u64, end: u64) -> Result<(), String> {
        self.note(Direction::Forward, Resume::RangeStep { thread: number(tid), start, end });
        Ok(())
    }
}

impl MultiThreadSchedulerLocking for Adapter<'_> {
    /// Which thread runs when was decided when the recording was made.
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl ReverseStep<Tid> for Adapter<'_> {
    fn reverse_step(&mut self, tid: Tid) -> Result<(), String> {
        self.note(Direction::Backward, Resume::Step { thread: number(tid) });
        Ok(())
    }
}

impl ReverseCont<Tid> for Adapter<'_> {
    fn reverse_cont(&mut self) -> Result<(), String> {
        self.note(Direction::Backward, Resume::Continue);
        Ok(())
    }
}

impl breakpoints::Breakpoints for Adapter<'_> {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl breakpoints::SwBreakpoint for Adapter<'_> {
    fn add_sw_breakpoint(&mut self, addr: u64, _kind: usize) -> TargetResult<bool, Self> {
        self.points.software.insert(addr);
        Ok(true)
    }

    fn remove_sw_breakpoint(&mut self, addr: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.points.software.remove(&addr))
    }
}

impl breakpoints::HwBreakpoint for Adapter<'_> {
    fn add_hw_breakpoint(&mut self, addr: u64, _kind: usize) -> TargetResult<bool, Self> {
        self.points.hardware.insert(addr);
        Ok(true)
    }

    fn remove_hw_breakpoint(&mut self, addr: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.points.hardware.remove(&addr))
    }
}

fn watch(addr: u64, len: u64, kind: breakpoints::WatchKind) -> Watch {
    let kind = match kind {
        breakpoints::WatchKind::Write => WatchKind::Write,
        breakpoints::WatchKind::Read => WatchKind::Read,
        breakpoints::WatchKind::ReadWrite => WatchKind::Access,
    };
    Watch { addr, len, kind }
}

impl breakpoints::HwWatchpoint for Adapter<'_> {
    fn add_hw_watchpoint(&mut self, addr: u64, len: u64, kind: breakpoints::WatchKind) -> TargetResult<bool, Self> {
        self.points.watches.insert(watch(addr, len, kind));
        Ok(true)
    }

    fn remove_hw_watchpoint(&mut self, addr: u64, len: u64, kind: breakpoints::WatchKind) -> TargetResult<bool, Self> {
        Ok(self.points.watches.remove(&watch(addr, len, kind)))
    }
}

impl Auxv for Adapter<'_> {
    fn get_auxv(&self, offset: u64, length: usize, buf: &mut [u8]) -> TargetResult<usize, Self> {
        let auxv = self.debuggee.borrow_mut().auxv().map_err(|e| failed(e, EINVAL))?;
        Ok(slice_into(&auxv, offset, length, buf))
    }
}

impl ExecFile for Adapter<'_> {
    fn get_exec_file(&self, _: Option<Pid>, offset: u64, length: usize, buf: &mut [u8]) -> TargetResult<usize, Self> {
        let path = self.debuggee.borrow_mut().exec_file().unwrap_or_default();
        Ok(slice_into(path.as_bytes(), offset, length, buf))
    }
}

/// Needed for real process numbers and for an answer to `kill`; starting or attaching is refused.
impl ExtendedMode for Adapter<'_> {
    fn run(&mut self, _filename: Option<&[u8]>, _args: Args<'_, '_>) -> TargetResult<Pid, Self> {
        Err(TargetError::NonFatal)
    }

    fn attach(&mut self, _pid: Pid) -> TargetResult<(), Self> {
        Err(TargetError::NonFatal)
    }

    /// So that gdb detaches when it quits, and asks nothing.
    fn query_if_attached(&mut self, _pid: Pid) -> TargetResult<AttachKind, Self> {
        Ok(AttachKind::Attach)
    }

    fn kill(&mut self, _pid: Option<Pid>) -> TargetResult<ShouldTerminate, Self> {
        Ok(ShouldTerminate::Yes)
    }

    fn restart(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn support_current_active_pid(&mut self) -> Option<CurrentActivePidOps<'_, Self>> {
        Some(self)
    }
}

impl CurrentActivePid for Adapter<'_> {
    fn current_active_pid(&mut self) -> Result<Pid, String> {
        Ok(tid(self.debuggee.get_mut().pid()))
    }
}
