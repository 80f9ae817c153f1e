//! Processes and threads: creation, replacement, end.

use super::{Call, Outcome};
use crate::load;
use crate::record::calls;
use crate::signals::{apply_mask, block_all};
use crate::sys::{self, err, nr};
use crate::threads::{Thread, create, futex, pending, sched};
use alloc::vec::Vec;
use model::log::{Answer, Ending};
use model::wire::Config;

pub const CLONE_VM: u64 = 0x100;
pub const CLONE_VFORK: u64 = 0x4000;
pub const CLONE_PARENT_SETTID: u64 = 0x10_0000;
pub const CLONE_CHILD_CLEARTID: u64 = 0x20_0000;
pub const CLONE_SETTLS: u64 = 0x8_0000;
pub const CLONE_CHILD_SETTID: u64 = 0x100_0000;
pub const CLONE_THREAD: u64 = 0x1_0000;
const SIGCHLD: u64 = 17;
const AT_FDCWD: u64 = -100i64 as u64;
const AT_EMPTY_PATH: u64 = 0x1000;
/// Limits on what `execve` copies.
const MAX_STRING: usize = 131_072;
const MAX_STRINGS: usize = 1 << 20;
const MAX_TOTAL: usize = 6 << 20;

impl Call<'_> {
    pub(super) fn clone(&mut self) -> Outcome {
        let (flags, stack, ptid, ctid, tls) = match self.nr {
            nr::CLONE => (self.args[0], self.args[1], self.args[2], self.args[3], self.args[4]),
            nr::VFORK => (CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0),
            _ => (SIGCHLD, 0, 0, 0, 0),
        };
        if flags & CLONE_THREAD != 0 {
            return create::thread(self, flags, stack, ptid, ctid, tls);
        }
        if flags & CLONE_VM != 0 && flags & CLONE_VFORK == 0 {
            self.e
                .note("clone of a process that shares memory and runs on is not supported: answered EPERM", self.g.pc);
            return Outcome::Value(-err::EPERM);
        }
        self.fork(flags, stack, ptid, ctid, tls)
    }

    fn fork(&mut self, flags: u64, stack: u64, ptid: u64, ctid: u64, tls: u64) -> Outcome {
        let vfork = flags & CLONE_VFORK != 0;
        block_all();
        if self.t.has(pending::SIGNAL) {
            // It must not be in two processes.
            return Outcome::Again;
        }
        let channel = if vfork { crate::fork::Channel::new() } else { None };
        // Others run while a vfork parent waits, but none while the process is copied: the child's engine is the copy.
        let wait_outside = channel.filter(|_| !sched().single());
        let mut flags = flags & !(CLONE_VM | CLONE_SETTLS);
        if wait_outside.is_some() {
            flags &= !CLONE_VFORK;
        }
        let fork = self.e.log_fork(flags);
        // SAFETY: without CLONE_VM the child is a copy that goes on from here; ids are written where the guest asked.
        let r = unsafe { sys::raw(nr::CLONE, [flags, 0, ptid, ctid, 0, 0]) };
        if r == 0 {
            self.child_of_fork(flags, stack, ctid, channel);
            self.e.record_child(self.t, &fork);
            if tls != 0 && self.args[0] & CLONE_SETTLS != 0 {
                crate::gate::set_fs_base(tls);
            }
            return Outcome::Value(0);
        }
        if sys::is_err(r) {
            self.e.not_forked(&fork);
        }
        if let Some(channel) = wait_outside.filter(|_| !sys::is_err(r)) {
            sched().release(self.t, self.e.clock.now());
            channel.wait(r as u64);
            sched().acquire(self.t);
        }
        if let Some(c) = channel {
            c.apply();
        }
        apply_mask(self.t);
        Outcome::Value(r)
    }

    fn child_of_fork(&mut self, flags: u64, stack: u64, ctid: u64, channel: Option<crate::fork::Channel>) {
        // SAFETY: asks for our ids.
        let (pid, tid) = unsafe { (sys::raw3(nr::GETPID, 0, 0, 0) as u32, sys::raw3(nr::GETTID, 0, 0, 0) as u32) };
        sched().begin(self.t);
        self.e.pid = pid;
        self.t.tid = tid;
        self.t.serial = 0;
        self.t.clear_tid = if flags & CLONE_CHILD_CLEARTID != 0 { ctid } else { 0 };
        self.t.robust_list = 0;
        // What it hands on would mostly be its parent's.
        self.e.cache.images.saveable = false;
        self.e.free_regions = (0..self.e.thread_regions).filter(|i| *i != self.t.index).collect();
        for i in self.e.free_regions.clone() {
            // SAFETY: regions exist; their tasks do not, in this process.
            let gone = unsafe { Thread::by_index(i) };
            (gone.task, gone.tid) = (0, 0);
        }
        self.e.reset_totals();
        self.e.leave_parents_trace();
        if self.e.mode == model::Mode::Trace && self.e.open_trace().is_err() {
            self.e.mode = model::Mode::Tick;
            self.e.flush();
        } else if self.e.mode == model::Mode::Trace {
            // The host knows the parent's blocks under the parent's pid: define them again under ours.
            self.e.flush();
        }
        if stack != 0 {
            self.g.gpr[4] = stack;
        }
        self.e.vfork = None;
        if let Some(c) = channel {
            self.e.begin_vfork(c);
        }
        apply_mask(self.t);
    }

    pub(super) fn exit_thread(&mut self) -> Outcome {
        if sched().single() {
            return self.exit_process(self.args[0]);
        }
        block_all();
        if self.t.has(pending::SIGNAL) {
            // It must not go with the thread.
            return Outcome::Again;
        }
        futex::thread_ends(self.e, self.t);
        calls::ends_without_return(self.e, self.t, self.g, self.nr, &self.args, Answer::ThreadGone);
        let tick = self.e.clock.now();
        sched().retire(self.t, tick);
        loop {
            // SAFETY: ends this task; the kernel clears `Thread::task` afterwards, so its stack is not reused before.
            unsafe { sys::raw3(nr::EXIT, self.args[0], 0, 0) };
        }
    }

    pub(super) fn exit_process(&mut self, status: u64) -> Outcome {
        calls::ends_without_return(self.e, self.t, self.g, self.nr, &self.args, Answer::ThreadGone);
        self.e.log_end(Ending::Exited, status as u32 & 0xff);
        // When the first process ends there is seldom anybody left.
        if !self.e.first {
            self.e.hand_on_translations();
        }
        self.e.close_trace();
        self.e.send_totals();
        self.e.finish_vfork();
        sys::exit_group(status)
    }

    pub(super) fn exec(&mut self) -> Outcome {
        let (dir, path, argv, envp, flags) = match self.nr {
            nr::EXECVE => (AT_FDCWD, self.args[0], self.args[1], self.args[2], 0),
            _ => (self.args[0], self.args[1], self.args[2], self.args[3], self.args[4]),
        };
        let Some(path) = read_string(path) else { return Outcome::Value(-err::EFAULT) };
        if path.is_empty() && flags & AT_EMPTY_PATH == 0 {
            return Outcome::Value(-err::ENOENT);
        }
        if path.len() >= 4096 {
            return Outcome::Value(-36);
        }
        let (mut argv, envp) = match (read_strings(argv), read_strings(envp)) {
            (Ok(a), Ok(e)) => (a, e),
            (Err(n), _) | (_, Err(n)) => return Outcome::Value(-n),
        };
        if argv.is_empty() {
            argv.push(Vec::new());
        }
        let path = self.own_exe_path(&path).unwrap_or(path);
        // Everything that can be refused is refused here: afterwards there is no way back.
        let program = match load::open(dir, &path, &argv) {
            Ok(p) => p,
            Err(e) => {
                if e.errno == err::ENOEXEC && e.message.contains("bit") {
                    self.e.note(&e.message, self.g.pc);
                }
                return Outcome::Value(-e.errno);
            }
        };
        // The new image opens the program by name. A descriptor's number may not live that long: then by the name it has.
        let path = if path.starts_with(b"/") || dir as i32 == AT_FDCWD as i32 && !path.is_empty() {
            path
        } else if path.is_empty() {
            program.lasting_name()
        } else {
            let mut whole = crate::procfs::link_of(dir).unwrap_or_default();
            whole.push(b'/');
            whole.extend_from_slice(&path);
            whole
        };
        drop(program);
        self.become_engine(&path, &argv, &envp)
    }

    /// Replaces this image by a new engine that loads `path`.
    fn become_engine(&mut self, path: &[u8], argv: &[Vec<u8>], envp: &[Vec<u8>]) -> Outcome {
        let config = Config {
            mode: self.e.config.mode,
            control_fd: self.e.hidden.control,
            engine_fd: self.e.hidden.engine,
            translations_fd: Some(self.e.hidden.translations).filter(|fd| *fd >= 0),
            inherited_blocked: self.t.mask,
            inherited_ignored: self.e.actions.ignored_faults(),
            // Probes name places in the first image.
            probes: Vec::new(),
            record: self.e.record_config_for_exec(),
            ..self.e.config.clone()
        };
        let Some(config_fd) = write_config(&config.encode()) else { return Outcome::Value(-err::ENOMEM) };
        let mut words: Vec<Vec<u8>> =
            alloc::vec![crate::start::LATER.to_vec(), alloc::format!("{config_fd}\0").into_bytes()];
        words.extend(core::iter::once(path).chain(argv.iter().map(|a| a.as_slice())).map(with_zero));
        let env: Vec<Vec<u8>> = envp.iter().map(with_zero).collect();
        let pointers = |list: &[Vec<u8>]| -> Vec<u64> {
            list.iter().map(|s| s.as_ptr() as u64).chain(core::iter::once(0)).collect()
        };
        let (a, v) = (pointers(&words), pointers(&env));
        // A signal that came so far would be lost with this image, and one that came from here on would be taken by its
        // handler: so the first is dealt with before, and the others wait in the kernel until the new image is ready.
        block_all();
        if self.t.has(pending::SIGNAL) {
            // SAFETY: our own descriptor.
            unsafe { sys::raw3(nr::CLOSE, config_fd as u64, 0, 0) };
            return Outcome::Again;
        }
        self.e.hand_on_translations();
        let trace = self.e.mode == model::Mode::Trace;
        self.e.close_trace();
        self.e.send_totals();
        self.e.finish_vfork();
        self.drop_cloexec_mask();
        // Should the kernel refuse, more records follow, and these two mean nothing.
        calls::ends_without_return(self.e, self.t, self.g, self.nr, &self.args, Answer::Replaced);
        self.e.log_replaced();
        let empty = b"\0";
        let fd = self.e.hidden.engine as u64;
        // SAFETY: replaces the process image; all strings live until then.
        let r = unsafe {
            sys::raw(nr::EXECVEAT, [fd, empty.as_ptr() as u64, a.as_ptr() as u64, v.as_ptr() as u64, AT_EMPTY_PATH, 0])
        };
        apply_mask(self.t);
        // Still here: the kernel refused (argument size, memory). The guest goes on.
        self.e.not_replaced();
        // SAFETY: our own descriptor.
        unsafe { sys::raw3(nr::CLOSE, config_fd as u64, 0, 0) };
        if trace && self.e.open_trace().is_err() {
            self.e.mode = model::Mode::Tick;
        }
        Outcome::Value(r)
    }

    /// Our descriptors must survive the exec even if the guest asked for close-on-exec on everything.
    fn drop_cloexec_mask(&mut self) {
        for fd in self.e.hidden.each() {
            if fd >= 0 {
                // SAFETY: F_SETFD 0 on our own descriptors.
                unsafe { sys::raw3(nr::FCNTL, fd as u64, 2, 0) };
            }
        }
    }
}

fn with_zero(s: impl AsRef<[u8]>) -> Vec<u8> {
    let mut v = s.as_ref().to_vec();
    v.push(0);
    v
}

fn write_config(bytes: &[u8]) -> Option<i64> {
    let name = b"clew-config\0";
    // SAFETY: a file of our own.
    unsafe {
        let fd = sys::raw3(nr::MEMFD_CREATE, name.as_ptr() as u64, 0, 0);
        if sys::is_err(fd) {
            return None;
        }
        let n = sys::raw3(nr::WRITE, fd as u64, bytes.as_ptr() as u64, bytes.len() as u64);
        (n == bytes.len() as i64).then_some(fd)
    }
}

/// A zero-terminated string of the guest's.
pub fn read_string(at: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut at = at;
    loop {
        let mut chunk = [0u8; 256];
        let n = (256 - (at & 255)) as usize;
        let got = sys::read_guest(at, &mut chunk[..n]);
        if let Some(end) = chunk[..got].iter().position(|b| *b == 0) {
            out.extend_from_slice(&chunk[..end]);
            return Some(out);
        }
        if got < n || out.len() > MAX_STRING {
            return None;
        }
        out.extend_from_slice(&chunk[..n]);
        at += n as u64;
    }
}

/// A null-terminated array of strings; errors are errno values.
fn read_strings(at: u64) -> Result<Vec<Vec<u8>>, i64> {
    let (mut out, mut total) = (Vec::new(), 0);
    if at == 0 {
        return Ok(out);
    }
    for n in 0..MAX_STRINGS as u64 {
        let p = sys::read_u64(at + n * 8).ok_or(err::EFAULT)?;
        if p == 0 {
            return Ok(out);
        }
        let string = read_string(p).ok_or(err::EFAULT)?;
        total += string.len() + 1;
        if total > MAX_TOTAL {
            return Err(err::E2BIG);
        }
        out.push(string);
    }
    Err(err::E2BIG)
}
