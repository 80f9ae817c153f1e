//! Starts the engine's process.
//!
//! Every descriptor of the host is close-on-exec. `posix_spawn` makes the three that the engine needs inheritable inside
//! the new process (a `dup2` of a descriptor onto itself does that), so concurrent starts in other threads never see
//! them and there is nothing to undo. The same call restores signal dispositions and mask, which `std::process` cannot:
//! it always resets SIGPIPE and empties the mask.
//!
//! A working folder other than the host's is entered by a thread that has given up sharing it (`unshare(CLONE_FS)`);
//! sandboxes that refuse `unshare` refuse this, and only this.

use crate::engine_program::{EngineProgram, above_stdio, memory_file};
use crate::error::{Error, ErrorKind};
use crate::launch::Stdio;
use crate::signals::SignalState;
use model::wire::Config;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags};
use nix::sys::stat::Mode;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Pid;
use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BUSY_TRIES: u32 = 200;
const BUSY_PAUSE: Duration = Duration::from_millis(5);

pub(crate) struct Request<'a> {
    pub engine: &'a EngineProgram,
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<OsString>,
    pub config: Config,
    pub stdio: [Stdio; 3],
    pub cwd: Option<PathBuf>,
    pub signals: SignalState,
    pub new_group: bool,
    pub passed: Vec<OwnedFd>,
}

/// A started engine.
pub(crate) struct Child {
    pub pid: Pid,
    /// The host's end of the control socket.
    pub control: OwnedFd,
}

pub(crate) fn spawn(mut request: Request<'_>) -> Result<Child, Error> {
    match request.cwd.take() {
        None => spawn_here(request),
        Some(folder) => inside(&folder, || spawn_here(request))?,
    }
}

fn spawn_here(request: Request<'_>) -> Result<Child, Error> {
    let prepare = |e: io::Error| Error::new(ErrorKind::Prepare, e);
    let (ours, theirs) = socket_pair().map_err(prepare)?;
    let mut config = request.config;
    config.control_fd = theirs.as_raw_fd();
    config.engine_fd = request.engine.fd().as_raw_fd();
    let translations = config.translations_fd;
    let config = memory_file("clew-config", &config.encode(), false).map_err(prepare)?;

    let mut argv = vec![c"clew-engine".to_owned(), number(config.as_raw_fd())];
    argv.push(c_string(request.program.into_os_string())?);
    for arg in request.args {
        argv.push(c_string(arg)?);
    }
    let env = request.env.into_iter().map(c_string).collect::<Result<Vec<_>, _>>()?;
    let mut passed = vec![config.as_raw_fd(), theirs.as_raw_fd(), request.engine.fd().as_raw_fd()];
    passed.extend(translations);
    passed.extend(request.passed.iter().map(AsRawFd::as_raw_fd));
    let (actions, _kept) = file_actions(request.stdio, &passed).map_err(prepare)?;
    let attributes = attributes(&request.signals, request.new_group).map_err(|e| prepare(e.into()))?;
    let path = CString::new(format!("/proc/self/fd/{}", request.engine.fd().as_raw_fd())).unwrap_or_default();
    let start = || nix::spawn::posix_spawn(path.as_c_str(), &actions, &attributes, &argv, &env);
    let pid = until_not_busy(start).map_err(|e| Error::new(start_error(e), e))?;
    let pid = Pid::from_raw(pid.as_raw()).ok_or_else(|| prepare(io::Error::other("the new process has no number")))?;
    Ok(Child { pid, control: ours })
}

/// Tries again while the file counts as being written, or a descriptor as being opened.
///
/// An engine in a file that has just been written is busy for as long as a process that another thread is starting at
/// that moment still holds a copy of the descriptor it was written through: until its `execve`. `dup2` is refused onto a
/// number that another thread is about to open.
fn until_not_busy<T>(start: impl Fn() -> nix::Result<T>) -> nix::Result<T> {
    for _ in 0..BUSY_TRIES {
        match start() {
            Err(Errno::ETXTBSY | Errno::EBUSY) => std::thread::sleep(BUSY_PAUSE),
            other => return other,
        }
    }
    start()
}

/// Which kind of failure an `execve` error of the engine is.
fn start_error(e: Errno) -> ErrorKind {
    match e {
        Errno::E2BIG => ErrorKind::TooLarge,
        // ENOENT: no /proc; EACCES, EPERM: not allowed from there; ENOEXEC, EINVAL: not something this kernel runs.
        Errno::ENOENT | Errno::EACCES | Errno::EPERM | Errno::ENOEXEC | Errno::EINVAL => ErrorKind::ExecuteEngine,
        _ => ErrorKind::Prepare,
    }
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (a, b) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    Ok((above_stdio(a)?, above_stdio(b)?))
}

/// What happens to descriptors in the new process. The second value must live until it has been started.
fn file_actions(stdio: [Stdio; 3], passed: &[RawFd]) -> io::Result<(PosixSpawnFileActions, Vec<OwnedFd>)> {
    let mut actions = PosixSpawnFileActions::init()?;
    let mut kept = Vec::new();
    for (target, stdio) in (0..).zip(stdio) {
        match stdio {
            Stdio::Inherit => {}
            Stdio::Null => actions.add_open(target, c"/dev/null", OFlag::O_RDWR, Mode::empty())?,
            Stdio::Fd(fd) => {
                // Above the standard ones, because an earlier action would otherwise replace it.
                let fd = above_stdio(fd)?;
                actions.add_dup2(fd.as_raw_fd(), target)?;
                kept.push(fd);
            }
        }
    }
    for &fd in passed {
        actions.add_dup2(fd, fd)?;
    }
    Ok((actions, kept))
}

fn attributes(signals: &SignalState, new_group: bool) -> nix::Result<PosixSpawnAttr> {
    let mut attributes = PosixSpawnAttr::init()?;
    let mut flags = PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF;
    attributes.set_sigdefault(&signals.reset)?;
    if let Some(mask) = &signals.blocked {
        flags |= PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK;
        attributes.set_sigmask(mask)?;
    }
    if new_group {
        flags |= PosixSpawnFlags::POSIX_SPAWN_SETPGROUP;
        attributes.set_pgroup(nix::unistd::Pid::from_raw(0))?;
    }
    attributes.set_flags(flags)?;
    Ok(attributes)
}

/// Calls `start` in a thread of its own whose working folder is `folder`.
fn inside<T: Send>(folder: &Path, start: impl FnOnce() -> T + Send) -> Result<T, Error> {
    let enter = || -> io::Result<()> {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
        Ok(rustix::process::chdir(folder)?)
    };
    std::thread::scope(|scope| {
        let entered = scope.spawn(|| enter().map(|()| start()));
        let result = entered.join().unwrap_or_else(|_| Err(io::Error::other("the starting thread panicked")));
        result.map_err(|e| Error::new(ErrorKind::Folder, e))
    })
}

fn number(n: RawFd) -> CString {
    CString::new(n.to_string()).unwrap_or_default()
}

fn c_string(s: OsString) -> Result<CString, Error> {
    CString::new(s.into_vec()).map_err(|e| Error::new(ErrorKind::ZeroByte, io::Error::from(e)))
}
