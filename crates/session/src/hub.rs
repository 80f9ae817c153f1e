//! The host's end of the control socket: takes packets and hands each to whom it concerns.
//!
//! Any thread may [`Hub::drain`] the socket. A trace reader does so before it decodes a buffer: the engine sends the
//! definition of a block before it hands over the first buffer that uses it, so after draining every definition the
//! buffer needs has arrived. Packets are handed on under one lock, in the order they were sent.
//!
//! A packet that does not parse is reported as such and skipped.

use crate::launch::Traces;
use crate::running::Event;
use crate::stream::Stream;
use model::wire::{BlockDef, MAX_PACKET, Packet, Report};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) struct Hub {
    control: OwnedFd,
    state: Mutex<State>,
    /// Held while readers are waited for, so that whoever comes second waits for the same ones.
    finishing: Mutex<()>,
}

struct State {
    events: Sender<Event>,
    traces: Traces,
    processes: HashMap<u32, Process>,
    /// The other end is gone: nothing more will come.
    closed: bool,
}

/// What is kept about one traced process.
#[derive(Default)]
struct Process {
    /// Every block of the present image; a ring that is opened later may use any of them.
    definitions: Vec<BlockDef>,
    /// The ring in use is the last; those before have ended, but may not have been read to their ends yet.
    streams: Vec<Stream>,
}

impl Hub {
    pub fn new(control: OwnedFd, traces: Traces, events: Sender<Event>) -> Hub {
        let state = State { events, traces, processes: HashMap::new(), closed: false };
        Hub { control, state: Mutex::new(state), finishing: Mutex::default() }
    }

    /// The host's end of the socket.
    pub fn control(&self) -> &OwnedFd {
        &self.control
    }

    /// What becomes of rings that are opened from now on.
    pub fn set_traces(&self, traces: Traces) {
        self.lock().traces = traces;
    }

    /// Hands on packets until no process of the tree is left.
    pub fn serve(self: &Arc<Hub>) {
        loop {
            let mut fds = [PollFd::new(&self.control, PollFlags::IN)];
            match rustix::event::poll(&mut fds, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => break,
            }
            if !self.drain() {
                break;
            }
        }
    }

    /// Hands on every packet that has been sent so far; false when no more can come.
    pub fn drain(self: &Arc<Hub>) -> bool {
        let mut state = self.lock();
        while !state.closed {
            match next_packet(&self.control) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => break,
                Ok(Next::End) | Err(_) => state.closed = true,
                Ok(Next::Packet(packet, fd)) => state.dispatch(self, packet, fd),
                Ok(Next::Garbled) => state.tell(Event::Garbled),
            }
        }
        !state.closed
    }

    /// Waits until the trace of this process (of all processes, for `None`) has been read to its end, which must have
    /// been written by now.
    pub fn finish(&self, pid: Option<u32>) {
        let _finishing = self.finishing.lock().unwrap_or_else(PoisonError::into_inner);
        let ended: Vec<Process> = {
            let mut state = self.lock();
            match pid {
                Some(pid) => state.processes.remove(&pid).into_iter().collect(),
                None => state.processes.drain().map(|(_, p)| p).collect(),
            }
        };
        ended.into_iter().flat_map(|p| p.streams).for_each(Stream::finish);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves nothing half done here: each packet is complete in itself.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn dispatch(&mut self, hub: &Arc<Hub>, packet: Packet, fd: Option<OwnedFd>) {
        let pid = packet.pid;
        match packet.report {
            Report::Blocks(definitions) => {
                let process = self.processes.entry(pid).or_default();
                if let Some(stream) = process.streams.last() {
                    stream.define(&definitions);
                }
                process.definitions.extend(definitions);
            }
            Report::Ring { .. } => self.open_ring(hub, pid, fd),
            report => {
                if let (Report::Started { .. }, Some(process)) = (&report, self.processes.get_mut(&pid)) {
                    // Another image: its blocks are numbered anew.
                    process.definitions.clear();
                    process.streams.iter().for_each(Stream::end);
                }
                self.tell(Event::Report(Packet { pid, report }));
            }
        }
    }

    fn open_ring(&mut self, hub: &Arc<Hub>, pid: u32, fd: Option<OwnedFd>) {
        let process = self.processes.entry(pid).or_default();
        // A process writes one ring at a time.
        process.streams.iter().for_each(Stream::end);
        let known = process.definitions.clone();
        let opened = match fd {
            Some(fd) => Stream::open(pid, fd, known, &mut self.traces, hub, self.events.clone()),
            None => Err(io::Error::other("the ring's descriptor is missing")),
        };
        match opened {
            Ok(stream) => process.streams.push(stream),
            Err(error) => self.tell(Event::NoTrace { pid, error }),
        }
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more when the session was dropped; the guest is being killed then.
        let _ = self.events.send(event);
    }
}

/// What the other end has sent.
enum Next {
    /// With the descriptor that came with it.
    Packet(Packet, Option<OwnedFd>),
    /// Not from an engine of this version.
    Garbled,
    End,
}

thread_local! {
    /// Kept by whoever receives: a hub for each of thousands of trials would have the system clear one each time.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_PACKET]);
}

/// Takes one packet without waiting.
fn next_packet(control: &OwnedFd) -> Result<Next, Errno> {
    BUFFER.with_borrow_mut(|buffer| receive(control, buffer))
}

fn receive(control: &OwnedFd, buffer: &mut [u8]) -> Result<Next, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = rustix::net::recvmsg(control, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
    let fds = ancillary.drain().filter_map(|m| match m {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fd = fds.flatten().next();
    Ok(match message.bytes {
        0 => Next::End,
        _ if message.flags.contains(ReturnFlags::TRUNC) => Next::Garbled,
        n => Packet::decode(&buffer[..n]).map_or(Next::Garbled, |packet| Next::Packet(packet, fd)),
    })
}
