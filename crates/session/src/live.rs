//! One engine that replays and answers: requests go in, answers come out, one at a time.

use crate::engine_program::above_stdio;
use crate::error::{Error, ErrorKind};
use crate::hub::Hub;
use crate::launch::{Launch, Traces};
use crate::run::TraceTotals;
use crate::running::Event;
use model::serve::{Answer, Request};
use model::wire::{Packet, Report};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, socketpair,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a caller that may interrupt is asked whether it wants to.
const LOOK: Duration = Duration::from_millis(20);
/// An engine that answers nothing for so long, though it is not running the guest, is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A replaying engine process.
pub struct Live {
    hub: Arc<Hub>,
    events: Receiver<Event>,
    /// Traces that were read to their ends while an answer was waited for.
    traced: RefCell<Vec<TraceTotals>>,
    pid: u32,
    /// Its process, a child of ours as its copies are; nothing until we know its number.
    child: Option<Pid>,
}

impl Live {
    /// Starts an engine whose configuration says that it waits for requests.
    pub fn start(launch: Launch<'_>) -> Result<Live, Error> {
        let (child, traces) = launch.spawn()?;
        let pid = child.pid.as_raw_nonzero().get() as u32;
        Ok(Live::over(child.control, traces, pid, Some(child.pid)))
    }

    fn over(control: OwnedFd, traces: Traces, pid: u32, child: Option<Pid>) -> Live {
        let (sender, events) = channel();
        Live { hub: Arc::new(Hub::new(control, traces, sender)), events, traced: RefCell::default(), pid, child }
    }

    /// The engine's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What becomes of traces from now on.
    pub fn set_traces(&self, traces: Traces) {
        self.hub.set_traces(traces);
    }

    /// Waits until traces have been read to their ends; answers what they held.
    pub fn finish_traces(&self) -> Vec<TraceTotals> {
        self.hub.drain();
        self.hub.finish(None);
        self.events.try_iter().for_each(|event| self.note(event));
        self.traced.take()
    }

    /// Keeps what an event that is no answer tells about a trace.
    fn note(&self, event: Event) {
        if let Event::Trace(totals) = event {
            self.traced.borrow_mut().push(totals);
        }
    }

    pub(crate) fn send(&self, request: &Request, fd: Option<&OwnedFd>) -> Result<(), Error> {
        let bytes = request.encode();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let sent =
            rustix::net::sendmsg(self.hub.control(), &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::NOSIGNAL);
        sent.map(drop).map_err(|e| gone(&e.to_string()))
    }

    /// Asks and waits for the answer.
    pub fn ask(&self, request: &Request) -> Result<Answer, Error> {
        self.send(request, None)?;
        self.answer(&mut || false, true)
    }

    /// As [`Live::ask`], for requests that let the guest run: `interrupted` may stop it.
    pub fn ask_long(&self, request: &Request, interrupted: &mut dyn FnMut() -> bool) -> Result<Answer, Error> {
        self.send(request, None)?;
        self.answer_long(interrupted)
    }

    /// The answer to a request that lets the guest run.
    pub(crate) fn answer_long(&self, interrupted: &mut dyn FnMut() -> bool) -> Result<Answer, Error> {
        let mut stopped = false;
        let answer = self.answer(
            &mut || {
                if !stopped && interrupted() {
                    stopped = true;
                    // Any packet stops the guest; this one is answered as well.
                    return self.send(&Request::Where, None).is_err();
                }
                false
            },
            false,
        )?;
        if stopped {
            self.answer(&mut || false, true)?;
        }
        Ok(answer)
    }

    /// Waits for the next answer. `each` is asked from time to time and may give up.
    pub(crate) fn answer(&self, each: &mut dyn FnMut() -> bool, bounded: bool) -> Result<Answer, Error> {
        let begun = Instant::now();
        loop {
            match self.events.try_recv() {
                Ok(Event::Report(packet)) => {
                    if let Some(answer) = understand(packet)? {
                        return Ok(answer);
                    }
                    continue;
                }
                Ok(other) => {
                    self.note(other);
                    continue;
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(gone("nobody listens")),
            }
            if each() || bounded && begun.elapsed() > PATIENCE {
                return Err(gone("it does not answer"));
            }
            let mut fds = [PollFd::new(self.hub.control(), PollFlags::IN)];
            let wait = Timespec { tv_sec: 0, tv_nsec: LOOK.as_nanos() as i64 };
            match rustix::event::poll(&mut fds, Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(gone(&e.to_string())),
            }
            if !self.hub.drain() {
                // What came before the end counts.
                match self.events.try_recv() {
                    Ok(Event::Report(packet)) => match understand(packet)? {
                        Some(answer) => return Ok(answer),
                        None => continue,
                    },
                    Ok(other) => {
                        self.note(other);
                        continue;
                    }
                    Err(_) => return Err(gone("its process has ended")),
                }
            }
        }
    }

    /// A copy of the engine and its guest as they are.
    pub fn fork(&self) -> Result<Live, Error> {
        let mut copy = self.request_copy(&Request::Fork)?;
        self.acknowledge(&mut copy)?;
        match copy.answer(&mut || false, true)? {
            Answer::Forked(_) => Ok(copy),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks for a copy, which is to be [acknowledged](Live::acknowledge); until then nobody knows whether there is one.
    pub(crate) fn request_copy(&self, request: &Request) -> Result<Live, Error> {
        let prepare = |e: io::Error| Error::new(ErrorKind::Prepare, e);
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|e| prepare(e.into()))?;
        let (ours, theirs) = (above_stdio(ours).map_err(prepare)?, above_stdio(theirs).map_err(prepare)?);
        self.send(request, Some(&theirs))?;
        Ok(Live::over(ours, Traces::default(), 0, None))
    }

    /// Hears whether a copy that was asked for was made, and its number.
    pub(crate) fn acknowledge(&self, copy: &mut Live) -> Result<(), Error> {
        match self.answer(&mut || false, true)? {
            Answer::Forked(pid) => {
                (copy.pid, copy.child) = (pid, Pid::from_raw(pid as i32));
                Ok(())
            }
            Answer::Refused(why) => Err(gone(&why)),
            other => Err(unexpected(&other)),
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(pid) = self.child.take() {
            // It may have gone by itself; then there is only its status to collect.
            let _ = kill_process(pid, Signal::KILL);
            collect(pid);
        }
    }
}

/// Collects the status of a child that is ending, at once or with a later one: to take its memory apart takes the system
/// longer than many a trial, and nobody needs to wait for that.
fn collect(pid: Pid) {
    static ENDING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
    let mut ending = ENDING.lock().unwrap_or_else(PoisonError::into_inner);
    ending.push(pid);
    ending.retain(|pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
}

/// The answer in a packet, if it holds one.
fn understand(packet: Packet) -> Result<Option<Answer>, Error> {
    match packet.report {
        Report::Answer(bytes) => match Answer::decode(&bytes) {
            Some(answer) => Ok(Some(answer)),
            None => Err(gone("its answer does not parse")),
        },
        Report::EngineFault { message, pc } => Err(gone(&format!("the engine is at fault at {pc}: {message}"))),
        Report::NotLoaded { message, .. } => Err(gone(&message)),
        _ => Ok(None),
    }
}

fn gone(why: &str) -> Error {
    Error::new(ErrorKind::Replay, io::Error::other(format!("the replaying engine is lost: {why}")))
}

pub(crate) fn unexpected(answer: &Answer) -> Error {
    match answer {
        Answer::Refused(why) => Error::new(ErrorKind::Refused, io::Error::other(why.clone())),
        other => gone(&format!("it answered {other:?}")),
    }
}
