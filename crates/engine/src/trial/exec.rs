//! A trial executes another program: its world goes on in a new image.
//!
//! The process becomes a new engine, as in a recording, but one that replays: a log of one start that names the program,
//! with the kept files that are known, lies in memory, and the world comes with the configuration
//! ([`model::handover`]). The new image leaves that log at once ([`resume`]) and goes on in the same world. Programs are
//! found as the guest finds files: as it wrote them, as they were recorded, else as they are.
//!
//! May miss: of what the recorded guest did after its own `execve` nothing is known here, so the new image has no answers
//! of the log; it starts with no thread but one, and timers, epoll instances and the like do not come along.

use super::calls::Came;
use super::common::Common;
use super::world::{self, Backing};
use super::{Trial, follow, schedule, threads, trial};
use crate::load::{self, LoadError, Program};
use crate::procfs::link_of;
use crate::record::unit::working_folder;
use crate::replay::replay;
use crate::state::Engine;
use crate::sys::{self, err, nr};
use crate::syscalls::process::{Execute, start_image, write_config};
use crate::syscalls::table::Args;
use crate::threads::Thread;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use model::handover::{Behind, Handover};
use model::log::{self, Kind, Origin, Start};
use model::wire::{Config, ReplayConfig};

const AT_FDCWD: u64 = -100i64 as u64;
const F_DUPFD: u64 = 0;
const F_SETFD: u64 = 2;
const REGULAR: u32 = 0o100000;

/// `execve` and `execveat` in the world; comes back only if they are refused.
pub fn execute(e: &mut Engine, t: &Thread, number: u64, args: &Args) -> Came {
    Came::Value(match Execute::read(number, args) {
        Ok(wanted) => -replace(e, t, wanted),
        Err(errno) => -errno,
    })
}

/// Replaces the image; answers the error number if that is not possible.
fn replace(e: &mut Engine, t: &Thread, wanted: Execute) -> i64 {
    let mut dir = wanted.dir;
    let mut find = |path: &[u8]| open_program(e, core::mem::replace(&mut dir, AT_FDCWD), path);
    let program = match load::open_by(&wanted.path, &wanted.argv, &mut find) {
        Ok(program) => program,
        Err(why) => return why.errno,
    };
    let interpreter = match load::interpreter_by(&program, &mut find) {
        Ok(interpreter) => interpreter,
        Err(why) => return why.errno,
    };
    let mut start = describe(e, t, &wanted, &program);
    let images: Vec<i32> = [Some(&program), interpreter.as_ref()].into_iter().flatten().map(lasting).collect();
    let key = |n: usize| images.get(n).map(|fd| alloc::format!("/proc/self/fd/{fd}")).unwrap_or_default();
    (start.program, start.interpreter) = (key(0), key(1));
    let Some(log_fd) = write_config(&log_of(e, &start)) else { return err::ENOMEM };
    let mut handover = hand_over(e);
    handover.spent = images;
    e.hidden.each().into_iter().filter(|fd| *fd >= 0).for_each(|fd| keep_open(i64::from(fd)));
    let config = Config {
        control_fd: e.hidden.control,
        engine_fd: e.hidden.engine,
        translations_fd: Some(e.hidden.translations).filter(|fd| *fd >= 0),
        inherited_blocked: t.mask,
        probes: Vec::new(),
        record: None,
        replay: Some(ReplayConfig {
            log_fds: alloc::vec![log_fd as i32],
            files_fd: e.hidden.folder,
            handover: Some(handover),
            ..ReplayConfig::default()
        }),
        ..e.config.clone()
    };
    let Some(config_fd) = write_config(&config.encode()) else { return err::ENOMEM };
    -start_image(e.hidden.engine, config_fd, &wanted.path, &wanted.argv, &wanted.envp)
}

/// Opens a program as the guest of this trial sees it.
fn open_program(e: &mut Engine, dir: u64, path: &[u8]) -> Result<u64, LoadError> {
    let refuse = |errno: i64| {
        let message = alloc::format!("{}: cannot be executed (error {errno})", String::from_utf8_lossy(path));
        Err(LoadError { errno, message })
    };
    let fd = if path.is_empty() {
        match world::real(e, dir) {
            Some(real) => world::reopen(real, 0),
            None => -err::EBADF,
        }
    } else {
        match world::overlaid(e, path) {
            Some(Some(file)) => world::reopen(file, 0),
            Some(None) => -err::ENOENT,
            None => world::open_for_reading(e, dir, path, &world::absolute(path)),
        }
    };
    if sys::is_err(fd) {
        return refuse(-fd);
    }
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes struct stat (144 bytes).
    unsafe { sys::raw3(nr::FSTAT, fd as u64, stat.as_mut_ptr() as u64, 0) };
    let mode = stat[3] as u32;
    // A kept copy has lost its right to be executed; that it is a file is all that is known.
    let kept = e.hidden.folder >= 0 && !is_named(fd as u64, path);
    if mode & 0o170000 != REGULAR || mode & 0o111 == 0 && !kept {
        // SAFETY: our own descriptor.
        unsafe { sys::raw3(nr::CLOSE, fd as u64, 0, 0) };
        return refuse(err::EACCES);
    }
    Ok(fd as u64)
}

/// Is the descriptor the file that has this name today?
fn is_named(fd: u64, path: &[u8]) -> bool {
    let mut name = path.to_vec();
    name.push(0);
    let mut stats = [[0u64; 18]; 2];
    // SAFETY: the kernel writes struct stat twice.
    unsafe {
        sys::raw3(nr::FSTAT, fd, stats[0].as_mut_ptr() as u64, 0);
        sys::raw3(nr::STAT, name.as_ptr() as u64, stats[1].as_mut_ptr() as u64, 0);
    }
    stats[0][..2] == stats[1][..2]
}

/// A descriptor of a program that stays open across the `execve`.
fn lasting(program: &Program) -> i32 {
    // SAFETY: duplicates our own descriptor, without close-on-exec.
    unsafe { sys::raw3(nr::FCNTL, program.fd(), F_DUPFD, 3) as i32 }
}

/// An `execve` does not close this descriptor of ours.
pub fn keep_open(fd: i64) {
    // SAFETY: flags of our own descriptor.
    unsafe { sys::raw3(nr::FCNTL, fd as u64, F_SETFD, 0) };
}

/// How the new image begins, without the keys of its files.
fn describe(e: &mut Engine, t: &Thread, wanted: &Execute, program: &Program) -> Start {
    let mut random = [0; 16];
    random.iter_mut().for_each(|b| *b = e.clock.random() as u8);
    let exe = link_of(program.fd()).unwrap_or_else(|| program.path.clone());
    Start {
        origin: Origin::First,
        pid: e.pid,
        tid: e.pid,
        exe: String::from_utf8_lossy(&exe).into_owned(),
        execfn: wanted.path.clone(),
        argv: program.argv.clone(),
        envp: wanted.envp.clone(),
        random,
        cwd: working_folder(),
        blocked: t.mask,
        ignored: e.ignored_signals(),
        region: None,
        ..replay(e).source().start.clone()
    }
}

/// A log that is one start, and what is known of kept files.
fn log_of(e: &mut Engine, start: &Start) -> Vec<u8> {
    // Those behind the moment count as well: files are kept as they were when the recorded guest opened them first.
    let (log, mut at) = replay(e).rest();
    while let Some(raw) = log.get(at..).and_then(|l| log::record(l).ok()) {
        replay(e).learn(&raw);
        at += raw.len;
    }
    let mut bytes = Vec::new();
    put_record(&mut bytes, Kind::Start, &start.encode());
    replay(e).each_kept(&mut |kind, payload| put_record(&mut bytes, kind, payload));
    bytes
}

fn put_record(bytes: &mut Vec<u8>, kind: Kind, payload: &[u8]) {
    let end = bytes.len() + log::record_len(payload.len());
    bytes.extend_from_slice(&log::record_header(kind, 0, payload));
    bytes.extend_from_slice(payload);
    bytes.resize(end, 0);
}

/// The world as it is, with the descriptors that it needs kept open. What an `execve` closes is left out.
fn hand_over(e: &mut Engine) -> Handover {
    let w = &mut trial(e).world;
    for fd in core::mem::take(&mut w.cloexec) {
        w.close(fd as u64);
    }
    let numbers: Vec<(u32, u32)> = w.fds.iter().map(|(fd, at)| (*fd, *at as u32)).collect();
    let first: BTreeMap<usize, u32> = w.fds.iter().rev().map(|(fd, at)| (*at, *fd)).collect();
    let count = w.entries.len();
    let mut entries = Vec::new();
    for at in 0..count {
        let behind = first.get(&at).map_or(Behind::Unknown, |fd| behind(e, *fd));
        entries.push((behind, trial(e).world.nonblocking.contains(&at)));
    }
    let now = e.clock.now();
    let tr = trial(e);
    let overlay = tr.world.overlay.iter().map(|(path, file)| (path.clone(), file.map(|f| f as i32))).collect();
    tr.world.overlay.iter().filter_map(|(_, file)| *file).for_each(keep_open);
    let common = tr.world.children.common.as_ref();
    common.iter().for_each(|c| c.keep_open());
    Handover {
        limits: tr.limits,
        begun: tr.begun,
        tick: now,
        waited: tr.waited,
        written: tr.written,
        numbers,
        entries,
        overlay,
        children: tr.world.children.running.iter().map(|(guest, real)| (*guest, *real as u32)).collect(),
        is_child: tr.world.is_child,
        common: common.map(|c| c.descriptors().to_vec()).unwrap_or_default(),
        spent: Vec::new(),
    }
}

fn behind(e: &mut Engine, fd: u32) -> Behind {
    if let Some((bytes, ends)) = world::rest_of_stream(e, fd as u64) {
        return Behind::Stream { bytes, ends };
    }
    match trial(e).world.backing(fd as u64).cloned() {
        Some(Backing::Out(n)) => Behind::Out(n),
        Some(Backing::Kept { file, flags, position }) => Behind::Kept { file, flags, position },
        Some(backing @ (Backing::Real(real) | Backing::Live(real))) => {
            keep_open(real);
            Behind::Real { fd: real as i32, live: matches!(backing, Backing::Live(_)) }
        }
        _ => Behind::Unknown,
    }
}

/// The new image takes the world over, before its first instruction.
pub fn resume(e: &mut Engine, t: &mut Thread, h: Handover) {
    for fd in &h.spent {
        // SAFETY: our own descriptor; the program is in memory.
        unsafe { sys::raw3(nr::CLOSE, *fd as u64, 0, 0) };
    }
    e.clock.begin_at(h.tick);
    let mut w = world::World { is_child: h.is_child, ..world::World::default() };
    w.fds = h.numbers.iter().map(|(fd, at)| (*fd, *at as usize)).collect();
    w.nonblocking = h.entries.iter().enumerate().filter(|(_, (_, on))| *on).map(|(n, _)| n).collect();
    w.entries = h.entries.into_iter().map(|(behind, _)| backing_of(behind)).collect();
    w.overlay = h.overlay.into_iter().map(|(path, file)| (path, file.map(i64::from))).collect();
    w.children.running = h.children.iter().map(|(guest, real)| (*guest, i64::from(*real))).collect();
    w.children.common = Common::from_descriptors(&h.common);
    e.trial = Some(Box::new(Trial {
        limits: h.limits,
        begun: h.begun,
        world: w,
        follow: follow::Follow::default(),
        threads: threads::Threads::default(),
        schedule: schedule::Schedule::default(),
        waited: h.waited,
        input: None,
        written: h.written,
        mapped: 0,
        resident: super::resident(),
    }));
    follow::begin(e, t);
    threads::begin(e);
    let ticks = super::turn(e, t);
    e.clock.allow(ticks);
}

fn backing_of(behind: Behind) -> Backing {
    match behind {
        Behind::Out(n) => Backing::Out(n),
        Behind::Stream { bytes, ends } => Backing::Stream { bytes: Some(follow::Input { bytes, ends }), at: 0 },
        Behind::Real { fd, live: false } => Backing::Real(i64::from(fd)),
        Behind::Real { fd, live: true } => Backing::Live(i64::from(fd)),
        Behind::Kept { file, flags, position } => Backing::Kept { file, flags, position },
        Behind::Unknown => Backing::Unknown,
    }
}
