//! Processes that a trial starts: real copies of it, which share files in memory, pipes and a limit on their number.
//!
//! A child of an altered run always runs, also where the recorded guest forked just so: what it does may depend on what
//! was altered. It then has the number that the recorded child had. Children that were forked before the trial began are
//! taken to have done what they did; their ends are in the log.
//!
//! May miss: a `vfork` child has memory of its own, so what it writes before it executes a program is not seen by its
//! parent; bytes that were in a pipe when the trial began come from the log, if the recorded guest read them.

use super::calls::Came;
use super::common::{Common, common};
use super::follow::{self, Found, Recorded};
use super::world::{self, Backing};
use super::{schedule, trial};
use crate::gate::Gate;
use crate::replay::calls::{become_child, wait_mask};
use crate::replay::replay;
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::syscalls::process::{CLONE_CHILD_SETTID, CLONE_PARENT_SETTID, CLONE_SETTLS};
use crate::syscalls::table::Args;
use crate::threads::{SigInfo, Thread, pending};
use alloc::vec::Vec;
use model::log::{Answer, CallRecord};

/// What one pipe holds without waiting.
const PIPE: usize = 64 << 10;

/// Children of this process, in the trial.
#[derive(Default)]
pub struct Children {
    /// Those that run or were not waited for: the number the guest knows, and the real one.
    pub running: Vec<(u32, i64)>,
    /// Numbers of recorded children that this trial's own took the place of.
    pub replaced: Vec<u32>,
    forks: u32,
    /// The last one whose end the guest was told of by a signal.
    told: i64,
    pub common: Option<Common>,
}

impl Children {
    fn real(&self, pid: u32) -> Option<i64> {
        self.running.iter().find(|(p, _)| *p == pid).map(|(_, real)| *real)
    }

    fn take(&mut self, real: i64) -> Option<u32> {
        let at = self.running.iter().position(|(_, r)| *r == real)?;
        Some(self.running.remove(at).0)
    }
}

pub fn has_children(e: &mut Engine) -> bool {
    !trial(e).world.children.running.is_empty()
}

/// `fork` and its like. If the recorded unit is the child, the trial goes on as the child; a control in step with the log
/// takes the child to have done what it did.
pub fn fork_as_recorded(e: &mut Engine, t: &mut Thread, g: &mut Gate, number: u64, args: &Args) -> Option<Came> {
    if !follow::may_call(e, t.serial, number, args) {
        return Some(Came::Wait(None));
    }
    // What the recorded call wrote is left out: of a `vfork` that is what the recorded child did.
    match follow::met(e, t.serial, number, args) {
        Some(call) => match call.edge {
            Some(edge) => {
                replay(e).turn_to(edge.child);
                become_child(e, t);
                follow::begin(e, t);
                schedule::begin(e);
                // Its own log begins with the same call.
                None
            }
            None if call.answer == Answer::Again => None,
            None if call.record.result <= 0 => Some(super::recorded::recorded(e, t, g, &call)),
            None => Some(Came::Value(fork(e, t, g, number, args, Some(&call)))),
        },
        None => Some(Came::Value(fork(e, t, g, number, args, None))),
    }
}

/// A child of the trial's own.
fn fork(e: &mut Engine, t: &mut Thread, g: &mut Gate, number: u64, args: &Args, recorded: Option<&Recorded>) -> i64 {
    share(e);
    if !common(e).is_some_and(Common::take_place) {
        return -err::EAGAIN;
    }
    let own = e.pid;
    let c = &mut trial(e).world.children;
    c.forks += 1;
    let unused = |pid: &u32| c.real(*pid).is_none() && !c.replaced.contains(pid);
    let pid = recorded.map(|call| call.record.result as u32).filter(unused);
    c.replaced.extend(pid);
    // Beyond what kernels hand out, and the same in each trial.
    let pid = pid.unwrap_or(4_200_000 + own.wrapping_mul(64).wrapping_add(c.forks) % 1_000_000);
    // Its end must be seen by its parent.
    crate::signals::actions::tell_kernel(17, crate::signals::actions::SIG_DFL, 0);
    // SAFETY: asks for our id.
    let parent = unsafe { sys::raw3(nr::GETPID, 0, 0, 0) };
    // SAFETY: a copy of this process with its one task (SIGCHLD, 17).
    let r = unsafe { sys::raw(nr::CLONE, [17, 0, 0, 0, 0, 0]) };
    let [flags, stack, ptid, ctid, tls, _] = if number == nr::CLONE { *args } else { [0; 6] };
    if r > 0 {
        trial(e).world.children.running.push((pid, r));
        if flags & CLONE_PARENT_SETTID != 0 {
            sys::write_u32(ptid, pid);
        }
        return pid as i64;
    }
    if r < 0 {
        return r;
    }
    die_with(parent);
    crate::replay::memory::part_from_parent(e);
    replay(e).threads.clear();
    (e.pid, t.tid) = (pid, pid);
    let w = &mut trial(e).world;
    w.is_child = true;
    w.children.running.clear();
    w.children.replaced.clear();
    // The log is the parent's.
    follow::leave(e);
    schedule::end(e, g);
    if flags & CLONE_CHILD_SETTID != 0 {
        sys::write_u32(ctid, pid);
    }
    if stack != 0 {
        g.gpr[4] = stack;
    }
    if flags & CLONE_SETTLS != 0 && tls != 0 {
        crate::gate::set_fs_base(tls);
    }
    0
}

/// Nobody needs a child when the trial is over.
fn die_with(parent: i64) {
    // SAFETY: asks to be killed (9) when the parent ends (PR_SET_PDEATHSIG, 1), and whether it has (getppid, 110).
    let now = unsafe {
        sys::raw3(nr::PRCTL, 1, 9, 0);
        sys::raw3(110, 0, 0, 0)
    };
    if now != parent {
        sys::exit_group(0);
    }
}

/// What two processes are to share must be the kernel's: pipes that the guest holds both ends of, the positions of files,
/// and the rest of a stream, if it is known and fits a pipe.
fn share(e: &mut Engine) {
    let open: Vec<(u32, usize)> = trial(e).world.fds.iter().map(|(fd, at)| (*fd, *at)).collect();
    let is_open = |at: usize| open.iter().any(|(_, n)| *n == at);
    let pipes = core::mem::take(&mut trial(e).world.pipes);
    for (r, w) in pipes.into_iter().filter(|(r, w)| is_open(*r) && is_open(*w)) {
        let entries = &mut trial(e).world.entries;
        if let (Backing::Stream { .. }, Backing::Stream { .. }) = (&entries[r], &entries[w])
            && let Ok([read, write]) = world::real_pipe()
        {
            (entries[r], entries[w]) = (Backing::Live(read), Backing::Live(write));
        }
    }
    for (fd, _) in open {
        world::real(e, fd as u64);
        if let Some((bytes, true)) = world::rest_of_stream(e, fd as u64).filter(|(b, _)| b.len() <= PIPE)
            && let Ok([read, write]) = world::real_pipe()
        {
            // SAFETY: fills our own pipe, which has room for it, and closes the end that nobody needs.
            unsafe {
                sys::raw3(nr::WRITE, write as u64, bytes.as_ptr() as u64, bytes.len() as u64);
                sys::raw3(nr::CLOSE, write as u64, 0, 0);
            }
            world::replace(e, fd as u64, Backing::Live(read));
        }
    }
}

/// A child of the trial's own has ended since somebody last looked, and the guest wants to be told: it gets its signal.
pub fn tell_of_end(e: &mut Engine, t: &mut Thread) -> bool {
    const SIGCHLD: u32 = 17;
    /// WEXITED, WNOHANG and WNOWAIT: it can still be waited for.
    const LOOK: u64 = 4 | 1 | 0x100_0000;
    let is_caught = e.actions.get(SIGCHLD).handler > 1 && t.mask & crate::signals::bit(SIGCHLD) == 0;
    if !is_caught || t.has(pending::SIGNAL) || !has_children(e) {
        return false;
    }
    let mut info = SigInfo::default();
    // SAFETY: the kernel writes a siginfo_t of 128 bytes.
    unsafe { sys::raw(nr::WAITID, [0, 0, info.as_mut_ptr() as u64, LOOK, 0, 0]) };
    let real = i64::from(info[2] as u32);
    let c = &mut trial(e).world.children;
    let Some(pid) = c.running.iter().find(|(_, r)| *r == real).map(|(pid, _)| *pid) else { return false };
    if c.told == real {
        return false;
    }
    c.told = real;
    info[2] = info[2] & !0xffff_ffff | u64::from(pid);
    (t.info, t.synchronous) = (info, false);
    t.raise(pending::SIGNAL);
    true
}

/// A signal came to a thread that waits in a call: the call is over, unless the guest wants it made again.
pub fn interrupt(e: &mut Engine, g: &mut Gate, pc: u64, number: u64) {
    const RESTART: u64 = 0x1000_0000;
    let again =
        matches!(number, nr::READ | nr::WRITE | nr::WAIT4 | nr::WAITID) && e.actions.get(17).flags & RESTART != 0;
    if !again {
        // Behind the instruction, which is two bytes long.
        (g.pc, g.gpr[0]) = (pc + 2, -err::EINTR as u64);
    }
}

/// `rt_sigsuspend`: under another mask until a signal comes.
pub fn suspend(t: &mut Thread, mask: u64) -> Came {
    if t.restore_mask.is_none()
        && let Some(mask) = sys::read_u64(mask)
    {
        wait_mask(t, mask);
    }
    let unblocked = |info: &SigInfo, mask: u64| mask & crate::signals::bit(info[0] as u32) == 0;
    if let Some(held) = t.held.filter(|held| unblocked(held, t.mask)) {
        (t.held, t.info, t.synchronous) = (None, held, false);
        t.raise(pending::SIGNAL);
        return Came::Value(-err::EINTR);
    }
    Came::Wait(None)
}

/// `wait4`: the trial's own children first, then those that the log tells of.
pub fn wait(e: &mut Engine, t: &mut Thread, args: &Args) -> Option<Came> {
    const WNOHANG: u64 = 1;
    let [pid, status, options, usage, ..] = *args;
    let target = match pid as i32 {
        // Groups are not told apart.
        n if n <= 0 => has_children(e).then_some(-1),
        n => trial(e).world.children.real(n as u32),
    };
    let Some(target) = target else { return wait_as_recorded(e, t, args) };
    let mut word = 0u32;
    // SAFETY: asks for a child of ours; the kernel writes one number.
    let r = unsafe { sys::raw(nr::WAIT4, [target as u64, &raw mut word as u64, WNOHANG, 0, 0, 0]) };
    if r > 0 {
        if status != 0 {
            sys::write_u32(status, word);
        }
        if usage != 0 {
            sys::write_guest(usage, &[0; 144]);
        }
        if let Some(c) = common(e) {
            c.give_place_back();
        }
        return Some(Came::Value(trial(e).world.children.take(r).unwrap_or(0) as i64));
    }
    if target == -1
        && let Some(came) = wait_as_recorded(e, t, args)
    {
        return Some(came);
    }
    Some(if options & WNOHANG != 0 { Came::Value(0) } else { Came::Wait(None) })
}

/// The end of a child that was forked before the trial began, if the log has it for this call.
fn wait_as_recorded(e: &mut Engine, t: &Thread, args: &Args) -> Option<Came> {
    let replaced = trial(e).world.children.replaced.clone();
    let own = has_children(e);
    let tells = |r: &CallRecord| match r.result {
        pid @ 1.. => !replaced.contains(&(pid as u32)),
        // There was nothing to wait for then; now there may be.
        _ => !own && replaced.is_empty(),
    };
    match follow::answer_if(e, t.serial, nr::WAIT4, args, tells) {
        Found::This(call) if call.answer == Answer::Value => Some(Came::Value(call.record.result)),
        Found::Later => Some(Came::Wait(None)),
        _ if own => None,
        _ => Some(Came::Value(-err::ECHILD)),
    }
}
