//! Whoever ends `clew`, and however: the processes that replay for it end with it.
//!
//! The engines are stopped before their host ends, as if they were busy for ever: none can notice by itself that nobody
//! asks any more. The test becomes the parent of what is left behind, so it sees how each of them ended.

mod common;

use common::compile;
use common::place::{PATIENCE, Place};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, test_kill_process, waitpid,
};
use std::collections::HashMap;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Instant;

/// The parent of a process, if there is such a process and it has not ended.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, parentheses included.
    let (state, rest) = stat.rsplit_once(") ")?.1.split_once(' ')?;
    if state == "Z" { None } else { rest.split(' ').next()?.parse().ok() }
}

/// All processes that come from this one.
fn descendants(of: i32) -> Vec<i32> {
    let numbers = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let parents: HashMap<i32, i32> = numbers.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let comes_from = |pid: &i32| {
        let mut up = parents.get(pid);
        while let Some(p) = up {
            if *p == of {
                return true;
            }
            up = parents.get(p);
        }
        false
    };
    parents.keys().copied().filter(comes_from).collect()
}

/// Has a process waited for something, or worked for a while? A copy that was just made has not yet asked to die with its host; if
/// it is stopped before, it can neither ask nor notice that the host has gone.
fn has_settled(pid: i32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    let Some((_, fields)) = stat.rsplit_once(") ") else { return true };
    let fields: Vec<&str> = fields.split(' ').collect();
    // Time in the program and in the kernel, in hundredths of a second, are the 14th and the 15th field, the state the third.
    let worked = fields[11..13].iter().filter_map(|n| n.parse::<u64>().ok()).sum::<u64>() > 0;
    worked || matches!(fields[0], "S" | "Z")
}

/// Waits until the host has an engine and a copy of it, then stops them all. The host is stopped, too.
#[track_caller]
fn stopped_engines(host: &mut Child, what: &str) -> Vec<Pid> {
    let begun = Instant::now();
    while descendants(host.id() as i32).len() < 2 {
        assert!(host.try_wait().unwrap().is_none(), "{what}: it ended without having been looked at");
        assert!(begun.elapsed() < PATIENCE, "{what}: no engines");
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(host), Signal::STOP).unwrap();
    while !descendants(host.id() as i32).into_iter().all(has_settled) {
        assert!(begun.elapsed() < PATIENCE, "{what}: an engine neither works nor waits");
        std::thread::yield_now();
    }
    let engines: Vec<Pid> = descendants(host.id() as i32).into_iter().filter_map(Pid::from_raw).collect();
    engines.iter().for_each(|engine| kill_process(*engine, Signal::STOP).unwrap());
    engines
}

/// Waits for a process that was left to us; answers the signal that it died of.
#[track_caller]
fn died_of(pid: Pid, what: &str) -> Option<i32> {
    let begun = Instant::now();
    loop {
        match waitpid(Some(pid), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => return status.terminating_signal(),
            // Not ours (yet): its parent is another engine that is ending, too, and has not left it to us.
            Ok(None) | Err(_) => {
                if test_kill_process(pid).is_err() {
                    // Its parent collected it while both were ending.
                    return Some(Signal::KILL.as_raw());
                }
            }
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: process {pid:?} goes on");
        std::thread::yield_now();
    }
}

#[test]
fn engines_die_with_their_host() {
    set_child_subreaper(Some(getpid())).unwrap();
    let place = Place::new("orphans");
    let program = compile("spin_tree", &place.folder);
    let recorded = place.run(["record", "--quiet", "--", program.to_str().unwrap()]);
    assert!(recorded.stderr.is_empty(), "{}", String::from_utf8_lossy(&recorded.stderr));
    for verb in [&["slice", "--crash", "latest"][..], &["replay", "latest"]] {
        for signal in [Signal::TERM, Signal::HUP, Signal::KILL] {
            let what = format!("{verb:?} ended by {signal:?}");
            let mut host = place.clew(verb).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let engines = stopped_engines(&mut host, &what);
            kill_process(Pid::from_child(&host), signal).unwrap();
            kill_process(Pid::from_child(&host), Signal::CONT).unwrap();
            host.wait().unwrap();
            let ends: Vec<_> = engines.iter().map(|engine| died_of(*engine, &what)).collect();
            assert!(ends.iter().all(|end| *end == Some(Signal::KILL.as_raw())), "{what}: {ends:?}");
        }
    }
    place.done();
}
