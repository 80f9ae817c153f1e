//! One live guest: what it does, told in order, until nothing is left of it.
//!
//! Two threads follow it: one takes the engine's packets, one waits for the first process. Both put [`Event`]s into one
//! queue. [`Event::Ended`] comes after everything the first process said; [`Event::Closed`] is last and comes when every
//! process of the tree has gone.

use crate::error::{Error, ErrorKind};
use crate::hub::Hub;
use crate::launch::Traces;
use crate::run::{Gathering, Run, TraceTotals};
use crate::signals::signal_by_number;
use crate::spawn::Child;
use crate::stat::{is_stopped, process_stat};
use model::wire::Packet;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Something that happened in a guest tree.
#[derive(Debug)]
pub enum Event {
    /// An engine said something; block definitions and rings are used here and not told.
    Report(Packet),
    /// A packet did not parse.
    Garbled,
    /// A ring has been read to its end.
    Trace(TraceTotals),
    /// A ring could not be read.
    NoTrace { pid: u32, error: io::Error },
    /// The first process was stopped by this signal.
    Stopped(i32),
    /// The first process is gone.
    Ended(Ended),
    /// No process of the tree is left.
    Closed,
}

/// How the first process ended, as its parent sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    Exited(i32),
    Signaled(i32),
    /// Something else took the status: children are reaped by the system when SIGCHLD is ignored.
    Unknown,
}

/// A live guest tree. Dropping it kills the first process if it is still there.
pub struct Running {
    handle: Handle,
    events: Receiver<Event>,
}

/// Sends signals to the first process; safe to use at any time, from any thread.
#[derive(Clone, Debug)]
pub struct Handle {
    pid: Pid,
    seen: Arc<Mutex<Seen>>,
}

/// What has been seen of the first process.
#[derive(Default, Debug)]
struct Seen {
    /// True once the process may have been reaped: then its number may be another's.
    gone: bool,
    /// How often it has stopped.
    stops: u64,
    /// How many of these stops the host has stopped for, too.
    answered: u64,
}

impl Running {
    pub(crate) fn follow(child: Child, traces: Traces) -> Result<Running, Error> {
        let (sender, events) = channel();
        let hub = Arc::new(Hub::new(child.control, traces, sender.clone()));
        // From here on dropping `running` kills the process.
        let running = Running { handle: Handle { pid: child.pid, seen: Arc::default() }, events };
        let handle = running.handle.clone();
        let (waiting, serving) = (hub.clone(), hub);
        let told = sender.clone();
        spawn_thread("clew-wait", move || handle.watch(&waiting, &told))?;
        spawn_thread("clew-hub", move || {
            serving.serve();
            serving.finish(None);
            // Nobody listens when the session was dropped.
            let _ = sender.send(Event::Closed);
        })?;
        Ok(running)
    }

    pub fn pid(&self) -> u32 {
        self.handle.pid()
    }

    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits for the next event; `None` after the last one.
    #[expect(clippy::should_implement_trait, reason = "an iterator would suggest that skipping to the end is cheap")]
    pub fn next(&mut self) -> Option<Event> {
        self.events.recv().ok()
    }

    /// Waits for the next event, but no longer than this; `None` also after the last one.
    pub fn next_within(&mut self, limit: Duration) -> Option<Event> {
        self.events.recv_timeout(limit).ok()
    }

    /// Waits until the first process is gone. The rest of the tree, if any, goes on without a listener.
    pub fn wait_first(self) -> Run {
        self.gather(|event| matches!(event, Event::Ended(_)))
    }

    /// As [`Running::wait_first`], but kills it and gives `None` when it takes longer than `limit`.
    pub fn wait_first_within(self, limit: Duration) -> Option<Run> {
        let until = Instant::now() + limit;
        let mut gathering = Gathering::new(self.pid());
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let event = match self.events.recv_timeout(left) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let last = matches!(event, Event::Ended(_));
            gathering.take(event);
            if last {
                break;
            }
        }
        Some(gathering.finish())
    }

    /// Waits until no process of the tree is left.
    pub fn wait(self) -> Run {
        self.gather(|_| false)
    }

    fn gather(mut self, last: impl Fn(&Event) -> bool) -> Run {
        let mut gathering = Gathering::new(self.pid());
        while let Some(event) = self.next() {
            let done = last(&event);
            gathering.take(event);
            if done {
                break;
            }
        }
        gathering.finish()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It is an error only when the process is gone already, which is what is wanted.
        let _ = self.handle.signal(Signal::KILL.as_raw());
    }
}

impl Handle {
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get() as u32
    }

    /// Sends a signal by number to the first process alone.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        let signal = signal_by_number(number).ok_or(Errno::INVAL)?;
        let seen = self.seen();
        if seen.gone {
            return Err(Errno::SRCH.into());
        }
        Ok(kill_process(self.pid, signal)?)
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Is the first process stopped now?
    pub fn is_stopped(&self) -> bool {
        !self.seen().gone && is_stopped(self.pid())
    }

    /// Says that the host stops as the guest did, for the next stop of those that were told.
    pub fn answer_stop(&self) {
        self.seen().answered += 1;
    }

    /// Is the first process still in the last stop that was answered?
    ///
    /// Asked by a host that was continued. A guest that was continued with it may have been stopped anew since, and must
    /// stay so; then that stop has been told, or is there to be told.
    pub fn is_left_stopped(&self) -> bool {
        let seen = self.seen();
        if seen.gone || !is_stopped(self.pid()) || seen.answered != seen.stops {
            return false;
        }
        let untold = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.pid), untold), Ok(None))
    }

    /// Sends a signal to the first process and to all that it has started and that has not been left alone since.
    pub fn signal_all(&self, number: i32) -> io::Result<()> {
        let signal = signal_by_number(number).ok_or(Errno::INVAL)?;
        let family = descendants(self.pid());
        let first = self.signal(number);
        for pid in family.into_iter().filter_map(|pid| Pid::from_raw(pid as i32)) {
            // It may have ended by itself meanwhile.
            let _ = kill_process(pid, signal);
        }
        first
    }

    /// Waits for stops and for the end, and tells them.
    fn watch(&self, hub: &Arc<Hub>, events: &Sender<Event>) {
        loop {
            match self.wait_once() {
                Err(Errno::INTR) => {}
                Ok(Some(Event::Ended(ended))) => return self.ended(ended, hub, events),
                Ok(Some(event)) => drop(events.send(event)),
                Ok(None) => {}
                Err(_) => return self.ended(Ended::Unknown, hub, events),
            }
        }
    }

    fn ended(&self, ended: Ended, hub: &Arc<Hub>, events: &Sender<Event>) {
        self.seen().gone = true;
        // Whatever it sent is in the socket by now.
        hub.drain();
        hub.finish(Some(self.pid()));
        // Nobody listens when the session was dropped.
        let _ = events.send(Event::Ended(ended));
    }

    fn wait_once(&self) -> Result<Option<Event>, Errno> {
        let id = WaitId::Pid(self.pid);
        let any = WaitIdOptions::EXITED | WaitIdOptions::STOPPED;
        // First only looked at, so that a signal can never be sent to a number that has been given to another process.
        let Some(seen) = waitid(id, any | WaitIdOptions::NOWAIT)? else { return Ok(None) };
        if seen.exited() || seen.killed() || seen.dumped() {
            let mut known = self.seen();
            known.gone = true;
            let Some(status) = waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED)? else { return Ok(None) };
            let ended = match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Ended::Exited(code),
                (_, Some(signal)) => Ended::Signaled(signal),
                _ => Ended::Unknown,
            };
            return Ok(Some(Event::Ended(ended)));
        }
        let mut known = self.seen();
        let status = waitid(WaitId::Pid(self.pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)?;
        // Nothing when it has been continued in between.
        let Some(signal) = status.and_then(|s| s.stopping_signal()) else { return Ok(None) };
        known.stops += 1;
        Ok(Some(Event::Stopped(signal)))
    }
}

fn spawn_thread(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(body);
    spawned.map(drop).map_err(|e| Error::new(ErrorKind::Prepare, e))
}

/// Processes that descend from one, as the system lists them.
fn descendants(first: u32) -> Vec<u32> {
    let number = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u32>().ok();
    let parent = |pid: u32| Some((pid, process_stat(pid)?.1));
    let Ok(listed) = std::fs::read_dir("/proc") else { return Vec::new() };
    let all: Vec<(u32, u32)> = listed.filter_map(number).filter_map(parent).collect();
    let mut family = vec![first];
    let mut next = 0;
    while let Some(of) = family.get(next).copied() {
        family.extend(all.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        next += 1;
    }
    family.split_off(1)
}
