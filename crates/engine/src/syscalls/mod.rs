//! The choke point: every system call of the guest comes through [`execute`].
//!
//! The table ([`table`]) says what a call is; calls with policy *engine* have a function here, the others are made as they
//! are. Pointers into the engine and descriptors of the engine are refused as if they were not there. A call that can
//! sleep is made outside the baton when other threads exist.

pub mod files;
pub mod memory;
pub mod misc;
pub mod process;
pub mod signals;
pub mod table;
pub mod time;
pub mod wait;

use crate::gate::Gate;
use crate::record::calls;
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::threads::{Thread, pending, sched};
use table::{Args, Blocking, Policy, Row};
use trace::format;

/// What came of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The value for rax.
    Value(i64),
    /// To be made again, after what is pending has been dealt with.
    Again,
    /// Registers and pc have been set.
    Done,
}

impl From<i64> for Outcome {
    fn from(v: i64) -> Self {
        if v == -err::RESTART { Outcome::Again } else { Outcome::Value(v) }
    }
}

/// One call being made.
pub struct Call<'a> {
    pub e: &'a mut Engine,
    pub t: &'a mut Thread,
    pub g: &'a mut Gate,
    pub nr: u64,
    pub args: Args,
    pub row: Option<&'static Row>,
}

/// Executes the `syscall` instruction at the gate's pc.
pub fn execute(e: &mut Engine, t: &mut Thread, g: &mut Gate, len: u8) {
    let pc = g.pc;
    let nr = g.gpr[0] as u32 as u64;
    let args = [g.gpr[7], g.gpr[6], g.gpr[2], g.gpr[10], g.gpr[8], g.gpr[9]];
    e.stats.syscalls += 1;
    e.clock.step();
    // As the instruction itself does.
    g.gpr[1] = pc + len as u64;
    g.gpr[11] = g.rflags;
    g.pc = pc + len as u64;
    if e.replaying() {
        return crate::replay::call(e, t, g, pc, nr, &args);
    }
    if e.trial.is_some() {
        return crate::trial::calls::call(e, t, g, pc, nr, &args);
    }
    let mut begun = calls::begin(e, t, g, pc, nr, &args);
    let outcome = {
        let mut call = Call { e, t, g, nr, args, row: table::row(nr) };
        call.dispatch()
    };
    if let Some(begun) = &mut begun {
        calls::end(e, t, g, begun, outcome);
    }
    match outcome {
        Outcome::Value(v) => {
            g.gpr[0] = v as u64;
            e.trace_special(format::Special::Syscall { pc, nr, result: v as u64 });
        }
        Outcome::Again => {
            g.gpr[0] = nr;
            g.pc = pc;
        }
        Outcome::Done => {}
    }
}

impl Call<'_> {
    fn dispatch(&mut self) -> Outcome {
        let Some(row) = self.row else { return Outcome::Value(-err::ENOSYS) };
        if !self.e.filters.is_empty()
            && let Some(answer) = self.filtered()
        {
            return answer;
        }
        if let Policy::Refuse(errno, why) = row.policy {
            // The C library asks for these two at every start and goes on without; saying so would be noise.
            if !matches!(self.nr, nr::RSEQ | nr::CLONE3) {
                self.e.note(&alloc::format!("{}: {why}", row.name), self.g.pc);
            }
            return Outcome::Value(-(errno as i64));
        }
        if row.descriptors(&self.args).any(|(_, fd)| self.e.hidden.contains(fd as u64))
            && self.nr != nr::DUP2
            && self.nr != nr::DUP3
        {
            return Outcome::Value(-err::EBADF);
        }
        if row.pointers(&self.args).any(|a| a != 0 && model::layout::touches_engine(a, 1)) {
            return Outcome::Value(-err::EFAULT);
        }
        self.forget_descriptors();
        let outcome = match row.policy {
            Policy::Engine => self.own(),
            _ => self.pass(),
        };
        if let Outcome::Value(fd @ 0..) = outcome {
            self.learn_descriptor(fd);
        }
        outcome
    }

    /// Calls that the engine implements or wraps.
    fn own(&mut self) -> Outcome {
        match self.nr {
            nr::MMAP | nr::MUNMAP | nr::MPROTECT | nr::MREMAP | nr::BRK | nr::MADVISE | nr::SHMAT | nr::SHMDT => {
                self.address_space()
            }
            nr::CLONE | nr::FORK | nr::VFORK => self.clone(),
            nr::EXECVE | nr::EXECVEAT => self.exec(),
            nr::EXIT => self.exit_thread(),
            nr::EXIT_GROUP => self.exit_process(self.args[0]),
            nr::RT_SIGACTION
            | nr::RT_SIGPROCMASK
            | nr::RT_SIGRETURN
            | nr::SIGALTSTACK
            | nr::RT_SIGSUSPEND
            | nr::RT_SIGPENDING
            | nr::PAUSE => self.signal_call(),
            nr::PPOLL | nr::PSELECT6 | nr::EPOLL_PWAIT | nr::EPOLL_PWAIT2 => self.wait_with_mask(),
            nr::FUTEX => self.futex(),
            nr::SET_ROBUST_LIST | nr::GET_ROBUST_LIST | nr::SET_TID_ADDRESS => self.thread_call(),
            nr::SCHED_YIELD => self.sched_yield(),
            nr::CLOCK_GETTIME | nr::GETTIMEOFDAY | nr::TIME | nr::GETRANDOM | nr::NANOSLEEP | nr::CLOCK_NANOSLEEP => {
                self.time_call()
            }
            _ => self.other(),
        }
    }

    /// A call that changes the address space: for a trial.
    pub fn own_memory(&mut self) -> Outcome {
        self.address_space()
    }

    /// What a call changes in the engine's own tables, without anything else: for a replay.
    pub fn own_state(&mut self) -> Outcome {
        match self.nr {
            nr::ARCH_PRCTL => self.misc_call().unwrap_or(Outcome::Value(0)),
            _ => self.signal_call(),
        }
    }

    fn other(&mut self) -> Outcome {
        if let Some(o) = self.file_call() {
            return o;
        }
        if let Some(o) = self.misc_call() {
            return o;
        }
        self.pass()
    }

    /// Makes the call as the guest asked.
    pub fn pass(&mut self) -> Outcome {
        let args = self.args;
        self.pass_with(args)
    }

    /// Makes the call with other arguments.
    pub fn pass_with(&mut self, args: Args) -> Outcome {
        // Not only when the kernel has answered EFAULT: it may have taken something from a queue by then.
        self.open_written(&args);
        if self.e.seeded() && (!sched().single() || self.is_limited(&args)) {
            return self.wait_in_turn(&args);
        }
        let r = if sched().single() {
            self.make(&args)
        } else if self.may_sleep(&args) {
            self.outside_baton(&args)
        } else {
            self.make(&args)
        };
        self.finish(r, &args)
    }

    /// A page protected by the engine may still have stood in the kernel's way (it was written while the call waited, and
    /// translated from again): then once more without.
    pub fn finish(&mut self, r: i64, args: &Args) -> Outcome {
        if r == -err::EINTR && !interrupted(self.t) {
            // One of the engine's own signals came between: nothing the guest should see.
            return Outcome::Again;
        }
        if r != -err::EFAULT || !self.open_written(args) {
            return r.into();
        }
        self.make(args).into()
    }

    /// The system call itself.
    pub fn make(&mut self, args: &Args) -> i64 {
        // SAFETY: arguments that point into the engine have been refused; the rest is the guest's own business.
        unsafe { sys::guest(self.nr, args, self.t.pending_word()) }
    }

    /// The call, while other threads run.
    pub fn outside_baton(&mut self, args: &Args) -> i64 {
        let tick = self.e.clock.now();
        crate::record::waits(true);
        sched().release(self.t, tick);
        let r = self.make(args);
        sched().acquire(self.t);
        crate::record::waits(false);
        r
    }

    fn may_sleep(&mut self, args: &Args) -> bool {
        let Some(row) = self.row else { return false };
        match row.blocking(args) {
            Blocking::Never => false,
            Blocking::OnFd(a) => !is_regular(args[a as usize]),
            Blocking::OnFds(a, b) => !is_regular(args[a as usize]) || !is_regular(args[b as usize]),
            _ => true,
        }
    }

    /// Makes pages writable that the call writes and the engine has protected; says whether there were any.
    fn open_written(&mut self, args: &Args) -> bool {
        let Some(row) = self.row else { return false };
        if !self.e.pages.any_protected() && self.e.vfork.is_none() {
            return false;
        }
        let mut any = false;
        let e = &mut *self.e;
        let mut read = |at: u64, size: u64| {
            let mut b = [0; 8];
            let n = size.min(8) as usize;
            (sys::read_guest(at, &mut b[..n]) == n).then(|| u64::from_le_bytes(b))
        };
        table::memory(row, args, None, &mut read, &mut |u| {
            if u.write && u.len != 0 {
                let mut page = crate::memory::page_down(u.addr);
                let end = u.addr.saturating_add(u.len.min(64 << 20));
                while page < end {
                    any |= e.reopen_page(page);
                    page += 4096;
                }
            }
        });
        any
    }
}

/// Files and directories do not make a caller wait.
fn is_regular(fd: u64) -> bool {
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes struct stat (144 bytes).
    let r = unsafe { sys::raw3(nr::FSTAT, fd, stat.as_mut_ptr() as u64, 0) };
    r == 0 && matches!(stat[3] as u32 & 0o170000, 0o100000 | 0o040000 | 0o060000)
}

/// The page where very old programs call time functions: answered as the system calls they stand for.
pub fn vsyscall(e: &mut Engine, t: &mut Thread, g: &mut Gate) -> bool {
    let number = match g.pc {
        0xffff_ffff_ff60_0000 => nr::GETTIMEOFDAY,
        0xffff_ffff_ff60_0400 => nr::TIME,
        0xffff_ffff_ff60_0800 => 309,
        _ => return false,
    };
    let Some(ret) = sys::read_u64(g.gpr[4]) else { return false };
    let args = [g.gpr[7], g.gpr[6], g.gpr[2], 0, 0, 0];
    e.clock.step();
    let pc = g.pc;
    g.pc = ret;
    if e.replaying() {
        crate::replay::call(e, t, g, pc, number, &args);
    } else {
        let mut begun = calls::begin(e, t, g, pc, number, &args);
        let mut call = Call { e, t, g, nr: number, args, row: table::row(number) };
        let outcome = call.dispatch();
        if let Some(begun) = &mut begun {
            calls::end(e, t, g, begun, outcome);
        }
        if let Outcome::Value(v) = outcome {
            g.gpr[0] = v as u64;
        }
    }
    g.gpr[4] += 8;
    g.pc = ret;
    true
}

/// Is a signal waiting for this thread?
pub fn interrupted(t: &Thread) -> bool {
    t.has(pending::SIGNAL)
}
