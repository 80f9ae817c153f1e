//! Answers to a host about a guest that stands still.

use super::serve::{self, send};
use super::{replay, thread_list};
use crate::gate::{self, Gate};
use crate::signals::xstate::{self, Area};
use crate::state::Engine;
use crate::sys::{self, nr};
use crate::threads::Thread;
use alloc::string::String;
use alloc::vec::Vec;
use model::serve::{Alteration, Answer, MapInfo, Request, State, ThreadInfo, TrialLimits, Why};
use model::wire::MAX_PACKET;

/// Answers a request that does not let the guest go on.
pub fn answer(e: &mut Engine, t: &mut Thread, g: &mut Gate, request: Request, fd: Option<i32>) {
    let answer = match request {
        Request::Where => {
            let place = serve::place(e, t, g);
            Answer::Stopped { why: Why::Reached, place, collected: Default::default() }
        }
        Request::Registers { thread } => match registers(e, t, g, thread) {
            Some(state) => Answer::Registers(state),
            None => no_thread(thread),
        },
        Request::SetRegisters { thread, state } => match set_registers(e, t, g, thread, &state) {
            true => Answer::Done,
            false => no_thread(thread),
        },
        Request::Read { addr, len } => {
            let mut bytes = alloc::vec![0; (len as usize).min(MAX_PACKET - 64)];
            let hidden = model::layout::touches_engine(addr.0, bytes.len() as u64);
            let got = if hidden { 0 } else { sys::read_guest(addr.0, &mut bytes) };
            bytes.truncate(got);
            Answer::Bytes(bytes)
        }
        Request::Write { addr, bytes } => match sys::write_guest(addr.0, &bytes) == bytes.len() {
            true => Answer::Done,
            false => Answer::Refused(alloc::format!("memory at {addr} cannot be written")),
        },
        Request::Threads => Answer::Threads(threads(e, t)),
        Request::Maps => Answer::Maps(maps(e)),
        Request::Breakpoints(list) => {
            serve::set_breakpoints(e, list);
            Answer::Done
        }
        Request::Watches(list) => {
            serve::set_watches(e, list);
            Answer::Done
        }
        Request::Mode(mode) => {
            e.switch_mode(mode);
            Answer::Done
        }
        Request::Predicates { ranges, places, jumps, keep } => {
            super::predicates::watch(e, ranges, &places, jumps, keep as usize);
            Answer::Done
        }
        Request::KeepPredicates { keep } => {
            super::predicates::keep(e, keep as usize);
            Answer::Done
        }
        Request::PredicateList { from } => {
            let (list, total) = super::predicates::list(e, from as usize);
            Answer::Predicates { list, total }
        }
        Request::Fork => match fd {
            Some(fd) => {
                if fork(e, fd) {
                    send(e, &Answer::Forked(own_pid()));
                }
                return;
            }
            None => Answer::Refused("a copy needs a socket".into()),
        },
        Request::Alter(a) => crate::trial::alter(e, t, g, a),
        Request::Files(paths) => {
            e.prepared.wanted = paths;
            Answer::Done
        }
        Request::Looks(list) => {
            crate::trial::looks::expect(e, list);
            Answer::Done
        }
        Request::Belt => {
            crate::trial::belt::put_on(e);
            Answer::Done
        }
        Request::Trial(limits) => {
            send(e, &Answer::Done);
            return crate::trial::begin(e, t, g, limits);
        }
        Request::Try { alteration, files, limits } => match fd {
            Some(fd) => return try_in_copy(e, t, g, fd, alteration, files, limits),
            None => Answer::Refused("a copy needs a socket".into()),
        },
        Request::Hold(_) if crate::trial::is_on(e) => Answer::Refused("the guest goes its own way already".into()),
        Request::Hold(limits) => {
            crate::trial::held::begin(e, limits);
            Answer::Done
        }
        Request::Leave { thread } => match leave(e, t, g, thread) {
            true => Answer::Done,
            false => no_thread(thread),
        },
        Request::Quit => sys::exit_group(0),
        Request::Run(_) | Request::Step => Answer::Refused("the guest cannot go on here".into()),
    };
    send(e, &answer);
}

fn no_thread(thread: u32) -> Answer {
    Answer::Refused(alloc::format!("there is no thread {thread}"))
}

fn threads(e: &mut Engine, t: &Thread) -> Vec<ThreadInfo> {
    let list = thread_list(e, t);
    let running = replay(e).in_call.map(|c| c.nr as u32);
    let mut all = Vec::new();
    for (n, (number, tid)) in list.into_iter().enumerate() {
        let parked = replay(e).threads.get(number);
        let (in_call, left) = parked.map_or((None, None), |c| (c.in_call.map(|c| c.nr as u32), c.left));
        all.push(ThreadInfo { number, tid, in_call: if n == 0 { running } else { in_call }, left });
    }
    all
}

fn registers(e: &mut Engine, t: &Thread, g: &mut Gate, thread: u32) -> Option<State> {
    let layout = e.loaded.xstate;
    if thread == t.serial {
        let mut area = Area([0; xstate::MAX + 64]);
        xstate::save(layout, g, &mut area);
        return Some(State {
            gpr: g.gpr,
            rip: g.pc,
            rflags: g.rflags | g.hidden_flags,
            fs_base: gate::fs_base(),
            gs_base: g.guest_gs,
            extended: area.0[..layout.size].to_vec(),
        });
    }
    let c = replay(e).threads.get(thread)?;
    let saved = c.thread.saved;
    Some(State {
        gpr: saved.gpr,
        rip: saved.pc,
        rflags: saved.rflags | saved.hidden_flags,
        fs_base: c.fs,
        gs_base: saved.guest_gs,
        extended: c.area.0[..layout.size].to_vec(),
    })
}

/// Flags that can be set.
const FLAGS: u64 = 0x0cd5;

fn set_registers(e: &mut Engine, t: &mut Thread, g: &mut Gate, thread: u32, state: &State) -> bool {
    let layout = e.loaded.xstate;
    let mut area = Area([0; xstate::MAX + 64]);
    let given = state.extended.len().min(layout.size);
    area.0[..given].copy_from_slice(&state.extended[..given]);
    if thread == t.serial {
        g.gpr = state.gpr;
        g.pc = state.rip;
        g.rflags = state.rflags & FLAGS | 0x202;
        g.guest_gs = state.gs_base;
        gate::set_fs_base(state.fs_base);
        if given >= 576 {
            xstate::restore(layout, g, &mut area);
        }
        t.probed = None;
        replay(e).goal.forget();
        return true;
    }
    let Some(c) = replay(e).threads.get(thread) else { return false };
    c.thread.saved.gpr = state.gpr;
    c.thread.saved.pc = state.rip;
    c.thread.saved.rflags = state.rflags & FLAGS | 0x202;
    c.thread.saved.guest_gs = state.gs_base;
    c.fs = state.fs_base;
    if given >= 576 {
        c.area = area;
    }
    true
}

/// The log counts no longer, and the guest goes on with this thread.
fn leave(e: &mut Engine, t: &mut Thread, g: &mut Gate, thread: u32) -> bool {
    let layout = e.loaded.xstate;
    let r = replay(e);
    if thread != t.serial {
        if !r.threads.contains(thread) {
            return false;
        }
        let in_call = r.in_call.take();
        r.threads.park(layout, t, g, in_call);
        r.threads.resume(layout, thread, t, g);
    }
    serve::leave(e);
    true
}

/// The guest's mappings, with the keys of the kept files behind them.
fn maps(e: &mut Engine) -> Vec<MapInfo> {
    let names = kept_names();
    let all = e.memory.iter().map(|(start, v)| {
        let key = names.iter().find(|(range, _)| range.contains(&start)).map(|(_, key)| key.clone());
        MapInfo {
            start,
            end: v.end,
            prot: v.prot,
            shared: v.shared,
            offset: v.offset,
            key: key.filter(|_| v.file).unwrap_or_default(),
        }
    });
    // More than a packet holds is of no use to anybody.
    all.take(600).collect()
}

/// Which files are mapped where, by the kernel's list: names end with the key.
fn kept_names() -> Vec<(core::ops::Range<u64>, String)> {
    let text = crate::procfs::read_file(b"/proc/self/maps\0");
    let parse = |line: &[u8]| {
        let line = core::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace();
        let (lo, hi) = words.next()?.split_once('-')?;
        let name = words.nth(4)?;
        let key = name.rsplit('/').next()?;
        let range = u64::from_str_radix(lo, 16).ok()?..u64::from_str_radix(hi, 16).ok()?;
        Some((range, key.into()))
    };
    text.split(|b| *b == b'\n').filter_map(parse).collect()
}

/// A copy of this process is altered and goes on by itself, telling about it on `fd`.
fn try_in_copy(
    e: &mut Engine,
    t: &mut Thread,
    g: &mut Gate,
    fd: i32,
    alteration: Alteration,
    files: Vec<Vec<u8>>,
    limits: TrialLimits,
) {
    // A copy would open most of it by faults, each of which costs a signal.
    crate::vault::open_all();
    if !fork(e, fd) {
        return;
    }
    if !files.is_empty() {
        e.prepared.wanted = files;
    }
    match crate::trial::alter(e, t, g, alteration) {
        Answer::Done => crate::trial::begin(e, t, g, limits),
        refused => {
            send(e, &refused);
            sys::exit_group(0)
        }
    }
}

/// A copy of this process, which listens on `fd`. It is a child of the host as this one is (CLONE_PARENT): it dies with
/// the host, however that ends, and outlives this process. Answers whether this is the copy; the host hears of it from
/// the other.
fn fork(e: &mut Engine, fd: i32) -> bool {
    const CLONE_PARENT: u64 = 0x8000;
    // SAFETY: a copy with its one task; its end is told to the host (SIGCHLD, 17).
    let r = unsafe { sys::raw(nr::CLONE, [CLONE_PARENT | 17, 0, 0, 0, 0, 0]) };
    if r == 0 {
        // SAFETY: the parent's socket is not ours.
        unsafe { sys::raw3(nr::CLOSE, e.control.fd as u64, 0, 0) };
        e.control.fd = fd;
        e.hidden.control = fd;
        crate::start::die_with_parent(&e.control);
        super::memory::part_from_parent(e);
        e.leave_parents_trace();
        return true;
    }
    // SAFETY: the copy has its own.
    unsafe { sys::raw3(nr::CLOSE, fd as u64, 0, 0) };
    match r {
        1.. => send(e, &Answer::Forked(r as u32)),
        _ => send(e, &Answer::Refused(alloc::format!("the process cannot be copied (error {})", -r))),
    }
    false
}

fn own_pid() -> u32 {
    // SAFETY: asks for our id.
    (unsafe { sys::raw3(nr::GETPID, 0, 0, 0) }) as u32
}
