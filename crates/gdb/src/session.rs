//! One client from its first packet to its last.
//!
//! Packets go to `gdbstub`, except for what it lacks or would give the session up for. Answered here:
//!
//! - `?` with the real reason and thread (`gdbstub` always says SIGTRAP and the first thread),
//! - `qXfer:threads` (names of threads), `qXfer:siginfo` (also how calls are recognised, see [`crate::throwaway`]),
//! - `QPassSignals` (signals that the user does not want to hear of),
//! - `qRcmd` (`monitor`), so that text appears while the command works and Ctrl-C reaches it,
//! - before `bs`, `bc` and `s`, the thread: gdb leaves the choice to us ("all threads", "any"), which ends a `gdbstub`
//!   session, and it does not repeat a choice that `gdbstub` forgets at every stop,
//! - memory reads beyond any sensible size, which `gdbstub` would answer until memory runs out.
//!
//! In `qSupported`, process numbers are only offered to clients that offered them.

use std::{collections::BTreeSet, io};

use gdbstub::{
    common::Signal,
    stub::{DisconnectReason, MultiThreadStopReason},
    target::ext::{base::reverse_exec::ReplayLogPosition, breakpoints},
};

use crate::{
    debuggee::{Console, Debuggee, Direction, Error, Moved, Resume, Stop, WatchKind},
    signals,
    stub::{Outcome, Stub},
    target::{Adapter, tid},
    text::{escape, from_hex, in_xml, numbers, thread_of, to_hex},
    wire::{Incoming, PACKET_SIZE, Stream, Wire},
};

/// Why a session is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The client took its leave: `detach`, `disconnect`, `quit`.
    Detached,
    /// The client wants the debuggee gone: `kill`.
    Killed,
    /// The client is gone without a word.
    Closed,
}

/// What keeps a session from going on.
#[derive(Debug)]
pub enum ServeError {
    Io(io::Error),
    /// The debuggee is lost, and why.
    Debuggee(String),
}

impl std::fmt::Display for ServeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ServeError::Io(e) => write!(f, "the connection to gdb failed: {e}"),
            ServeError::Debuggee(reason) => write!(f, "{reason}"),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ServeError::Io(e) => Some(e),
            ServeError::Debuggee(_) => None,
        }
    }
}

impl From<io::Error> for ServeError {
    fn from(e: io::Error) -> ServeError {
        ServeError::Io(e)
    }
}

impl From<Error> for ServeError {
    fn from(e: Error) -> ServeError {
        ServeError::Debuggee(e.to_string())
    }
}

const OK: &[u8] = b"OK";
/// `EINVAL`: what a packet that makes no sense is answered with.
const INVALID: &[u8] = b"E16";
/// gdb's size of `siginfo_t`. It only writes back, at the end of a call, what it could read whole.
const SIGINFO_SIZE: usize = 128;

/// Serves one client until it leaves. Afterwards no breakpoint is left and no copy exists, so that the debuggee can be
/// given to another client.
pub fn serve(stream: &mut dyn Stream, debuggee: &mut dyn Debuggee) -> Result<End, ServeError> {
    let wire = Wire::new(stream)?;
    let mut target = Adapter::new(debuggee);
    let stub = Stub::new(&mut target)?;
    let mut session = Session {
        wire,
        target,
        stub,
        multiprocess: false,
        general: None,
        resumed: None,
        passed: BTreeSet::new(),
        moved: false,
    };
    let end = session.run();
    if let Err(ServeError::Debuggee(reason)) = &end {
        // Nothing better can be done when the client is gone too.
        let _ = session.say(&format!("{reason}\n"));
        let _ = session.wire.send(b"X09");
        return end;
    }
    session.leave()?;
    end
}

struct Session<'s, 'd> {
    wire: Wire<'s>,
    target: Adapter<'d>,
    stub: Stub<'d>,
    /// Whether the client wants `p1.2` for thread 2 of process 1.
    multiprocess: bool,
    /// The thread that the client examines (`Hg`), as it names it.
    general: Option<Vec<u8>>,
    /// The thread that the client chose for stepping (`Hc`); `None` if it leaves that to us.
    resumed: Option<u32>,
    /// Signals in gdb's numbers that are not reported.
    passed: BTreeSet<u8>,
    /// The user moved time with a command, and gdb does not know yet.
    moved: bool,
}

impl Session<'_, '_> {
    fn run(&mut self) -> Result<End, ServeError> {
        loop {
            let end = match self.wire.next()? {
                Incoming::Packet(body) => self.packet(&body)?,
                // Nothing runs: the stop that the client wants is already on its way.
                Incoming::Interrupt => None,
                Incoming::Closed => Some(End::Closed),
            };
            if let Some(end) = end {
                return Ok(end);
            }
        }
    }

    fn leave(&mut self) -> Result<(), ServeError> {
        let decision = self.target.copy.end();
        self.target.finish_copy(decision)?;
        Ok(self.target.forget_points()?)
    }

    fn packet(&mut self, body: &[u8]) -> Result<Option<End>, ServeError> {
        match self.own_answer(body)? {
            Some(answer) => self.wire.send(&answer)?,
            None => return self.pass_on(body),
        }
        if body == b"QStartNoAckMode" {
            self.wire.stop_acknowledging();
        }
        Ok(None)
    }

    /// The answer to what `gdbstub` does not get to see.
    fn own_answer(&mut self, body: &[u8]) -> Result<Option<Vec<u8>>, ServeError> {
        let answer = match body {
            b"QStartNoAckMode" => OK.to_vec(),
            b"?" => self.reason(),
            [b'H', b'c', id @ ..] => {
                // An identifier that names no thread leaves the choice to us.
                self.resumed = thread_of(id);
                OK.to_vec()
            }
            [b'm', range @ ..] if !is_sensible(range) => INVALID.to_vec(),
            [b'q', b'R', b'c', b'm', b'd', b',', hex @ ..] => self.monitor(hex)?,
            _ => match body.strip_prefix(b"QPassSignals:").or(body.strip_prefix(b"qXfer:")) {
                Some(list) if body[0] == b'Q' => self.pass_signals(list),
                Some(request) => return self.transfer(request),
                None => return Ok(None),
            },
        };
        Ok(Some(answer))
    }

    fn pass_on(&mut self, body: &[u8]) -> Result<Option<End>, ServeError> {
        if matches!(body, b"bs" | b"bc" | [b's' | b'c', ..]) {
            self.choose_thread()?;
        }
        match self.stub.handle(&mut self.target, body)? {
            Outcome::Answer(answer) if body.starts_with(b"qSupported") => {
                let answer = self.features(body, &answer);
                self.wire.send(&answer)?;
            }
            Outcome::Answer(answer) => {
                if let ([b'H', b'g', id @ ..], OK) = (body, &answer[..]) {
                    self.general = Some(id.to_vec());
                }
                self.wire.send(&answer)?;
            }
            Outcome::Nonsense => {
                self.choose_again()?;
                self.wire.send(INVALID)?;
            }
            Outcome::Resumed => return self.resume(),
            Outcome::Ended(answer, reason) => {
                self.wire.send(&answer)?;
                return Ok(Some(match reason {
                    DisconnectReason::Kill => End::Killed,
                    _ => End::Detached,
                }));
            }
        }
        Ok(None)
    }

    /// What `gdbstub` supports, and what is answered here.
    fn features(&mut self, asked: &[u8], answer: &[u8]) -> Vec<u8> {
        let asked = String::from_utf8_lossy(asked);
        self.multiprocess = asked.split([':', ';']).any(|feature| feature == "multiprocess+");
        let mut answer = String::from_utf8_lossy(answer).into_owned();
        if !self.multiprocess {
            answer = answer.replace(";multiprocess+", "");
        }
        answer += ";QPassSignals+;qXfer:threads:read+;qXfer:siginfo:read+;qXfer:siginfo:write+";
        answer.into_bytes()
    }

    /// Tells `gdbstub` which thread the next step is about.
    fn choose_thread(&mut self) -> Result<(), ServeError> {
        let thread = self.resumed.unwrap_or_else(|| self.target.debuggee.get_mut().stopped_thread());
        let packet = format!("Hc{}", self.identifier(thread));
        self.stub.handle(&mut self.target, packet.as_bytes())?;
        Ok(())
    }

    /// Tells a new machine what the old one knew.
    fn choose_again(&mut self) -> Result<(), ServeError> {
        if let Some(id) = self.general.clone() {
            self.stub.handle(&mut self.target, &[b"Hg", &id[..]].concat())?;
        }
        Ok(())
    }

    /// A thread as the client names it.
    fn identifier(&mut self, thread: u32) -> String {
        match self.multiprocess {
            true => format!("p{:x}.{thread:x}", self.target.debuggee.get_mut().pid().max(1)),
            false => format!("{thread:x}"),
        }
    }

    /// The answer to `?`.
    fn reason(&mut self) -> Vec<u8> {
        let debuggee = self.target.debuggee.get_mut();
        let (signal, thread) = match debuggee.reason() {
            Stop::Signal { thread, signo } => (signals::to_gdb(signo), thread),
            _ => (Signal::SIGTRAP.0, debuggee.stopped_thread()),
        };
        // gdb examines this thread from now on.
        let id = self.identifier(thread);
        self.general = Some(id.clone().into_bytes());
        if let Err(Error::Lost(_)) = self.stub.handle(&mut self.target, format!("Hg{id}").as_bytes()) {
            return INVALID.to_vec();
        }
        format!("T{signal:02x}thread:{id};").into_bytes()
    }

    fn pass_signals(&mut self, list: &[u8]) -> Vec<u8> {
        let number = |text: &[u8]| u8::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok();
        let signals: Option<BTreeSet<u8>> = list.split(|b| *b == b';').filter(|n| !n.is_empty()).map(number).collect();
        match signals {
            Some(signals) => {
                self.passed = signals;
                OK.to_vec()
            }
            None => INVALID.to_vec(),
        }
    }

    /// `object:read:annex:offset,length` or `object:write:annex:offset:data`; `None` for objects that `gdbstub` has.
    fn transfer(&mut self, request: &[u8]) -> Result<Option<Vec<u8>>, ServeError> {
        let mut parts = request.splitn(4, |b| *b == b':');
        let (object, verb) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let range = parts.nth(1).unwrap_or_default();
        let whole = match (object, verb) {
            (b"threads", b"read") => self.thread_list()?,
            (b"siginfo", b"read") => {
                let thread = self.general_thread();
                let mut bytes = self.target.debuggee.get_mut().siginfo(thread).unwrap_or_default();
                bytes.resize(SIGINFO_SIZE, 0);
                self.target.copy.siginfo_read();
                bytes
            }
            (b"siginfo", b"write") => {
                // What is written is what was read; that it is written is what counts.
                self.target.copy.siginfo_written();
                let data = range.iter().position(|b| *b == b':').map_or(0, |at| range.len() - at - 1);
                return Ok(Some(format!("{data:x}").into_bytes()));
            }
            (b"threads" | b"siginfo", _) => return Ok(Some(INVALID.to_vec())),
            _ => return Ok(None),
        };
        let Some((offset, length)) = numbers(range) else { return Ok(Some(INVALID.to_vec())) };
        let rest = usize::try_from(offset).ok().and_then(|o| whole.get(o..)).unwrap_or_default();
        let part = &rest[..rest.len().min(usize::try_from(length).unwrap_or(0)).min(PACKET_SIZE / 2)];
        let mut answer = vec![if part.len() < rest.len() { b'm' } else { b'l' }];
        answer.extend(escape(part));
        Ok(Some(answer))
    }

    fn general_thread(&mut self) -> u32 {
        let chosen = self.general.as_deref().and_then(thread_of);
        chosen.unwrap_or_else(|| self.target.debuggee.get_mut().stopped_thread())
    }

    fn thread_list(&mut self) -> Result<Vec<u8>, ServeError> {
        let ids = self.target.thread_numbers()?;
        let named = self.target.debuggee.get_mut().threads().unwrap_or_default();
        let mut xml = String::from("<?xml version=\"1.0\"?>\n<threads>\n");
        for id in ids {
            let name = named.iter().find(|t| t.id == id).map_or("", |t| &t.name);
            xml += &format!("<thread id=\"{}\" name=\"{}\"/>\n", self.identifier(id), in_xml(name));
        }
        xml += "</threads>\n";
        Ok(xml.into_bytes())
    }

    fn monitor(&mut self, hex: &[u8]) -> Result<Vec<u8>, ServeError> {
        let Some(command) = from_hex(hex) else { return Ok(INVALID.to_vec()) };
        let command = String::from_utf8_lossy(&command).into_owned();
        let decision = self.target.copy.end();
        let lost = self.target.finish_copy(decision)?;
        let mut console = Terminal { wire: &mut self.wire, failure: None };
        if lost {
            console.print(DROPPED);
        }
        let result = self.target.debuggee.get_mut().monitor(&command, &mut console);
        if let Some(failure) = console.failure {
            return Err(failure.into());
        }
        match result {
            Ok(moved) => {
                self.moved |= moved == Moved::Yes;
                Ok(OK.to_vec())
            }
            Err(Error::Refused(reason)) => {
                self.say(&format!("{reason}\n"))?;
                Ok(b"E01".to_vec())
            }
            Err(lost) => Err(lost.into()),
        }
    }

    /// Shows text in the client's terminal. Only allowed while the client waits for an answer.
    fn say(&mut self, text: &str) -> io::Result<()> {
        let mut terminal = Terminal { wire: &mut self.wire, failure: None };
        terminal.print(text);
        terminal.failure.map_or(Ok(()), Err)
    }

    /// Moves the debuggee and reports where it stopped.
    fn resume(&mut self) -> Result<Option<End>, ServeError> {
        let stop = self.move_on()?;
        if self.wire.is_closed() {
            return Ok(Some(End::Closed));
        }
        if let Some(remark) = self.target.debuggee.get_mut().remark() {
            self.say(&remark)?;
        }
        let reason = self.stop_reason(stop)?;
        let answer = match self.stub.stopped(&mut self.target, reason)? {
            Outcome::Answer(answer) => answer,
            _ => INVALID.to_vec(),
        };
        self.general = Some(self.identifier_of_stop());
        self.wire.send(&answer)?;
        Ok(None)
    }

    fn identifier_of_stop(&mut self) -> Vec<u8> {
        let thread = self.target.debuggee.get_mut().stopped_thread();
        self.identifier(thread).into_bytes()
    }

    fn move_on(&mut self) -> Result<Stop, ServeError> {
        let (direction, how) = self.target.wanted;
        if std::mem::take(&mut self.moved) {
            return Ok(Stop::Step);
        }
        let decision = self.target.copy.on_resume();
        if self.target.finish_copy(decision)? {
            self.say(DROPPED)?;
        }
        if let Err(e) = self.target.settle_points() {
            return self.refused(e);
        }
        if self.target.copy.in_call() && direction == Direction::Backward {
            return self.refused(Error::refused("cannot go back inside a function that gdb called"));
        }
        loop {
            let wire = &mut self.wire;
            let stop = match self.target.debuggee.get_mut().resume(direction, how, &mut || wire.interrupted()) {
                Ok(stop) => stop,
                Err(e) => return self.refused(e),
            };
            match stop {
                Stop::Signal { signo, .. } if self.is_passed(signo, how) => {}
                _ => return Ok(stop),
            }
        }
    }

    /// A step must end where it ended; only a run goes on over a signal that the user does not want to see.
    fn is_passed(&self, signo: u8, how: Resume) -> bool {
        how == Resume::Continue && self.passed.contains(&signals::to_gdb(signo))
    }

    /// Nothing moved: says why, and stops where we are.
    fn refused(&mut self, error: Error) -> Result<Stop, ServeError> {
        match error {
            Error::Refused(reason) => {
                self.say(&format!("{reason}\n"))?;
                Ok(Stop::Step)
            }
            lost => Err(lost.into()),
        }
    }

    fn stop_reason(&mut self, stop: Stop) -> Result<MultiThreadStopReason<u64>, ServeError> {
        let here = self.target.debuggee.get_mut().stopped_thread();
        let signal = |thread, signal| MultiThreadStopReason::SignalWithThread { tid: tid(thread), signal };
        Ok(match stop {
            Stop::Step => signal(here, Signal::SIGTRAP),
            Stop::Interrupted => signal(here, Signal::SIGINT),
            Stop::Signal { thread, signo } => signal(thread, Signal(signals::to_gdb(signo))),
            Stop::Breakpoint { thread } => {
                let at = self.target.debuggee.get_mut().registers(thread).map_or(0, |state| state.rip);
                match self.target.is_software_breakpoint(at) {
                    true => MultiThreadStopReason::SwBreak(tid(thread)),
                    false => MultiThreadStopReason::HwBreak(tid(thread)),
                }
            }
            Stop::Watch { thread, addr, kind } => {
                let kind = match kind {
                    WatchKind::Write => breakpoints::WatchKind::Write,
                    WatchKind::Read => breakpoints::WatchKind::Read,
                    WatchKind::Access => breakpoints::WatchKind::ReadWrite,
                };
                MultiThreadStopReason::Watch { tid: tid(thread), kind, addr }
            }
            Stop::HistoryStart => {
                MultiThreadStopReason::ReplayLog { tid: Some(tid(here)), pos: ReplayLogPosition::Begin }
            }
            Stop::HistoryEnd => MultiThreadStopReason::ReplayLog { tid: Some(tid(here)), pos: ReplayLogPosition::End },
            // The guest itself is well; only its copy is not. gdb must not take this for the end of the session.
            Stop::Exited(_) | Stop::Terminated(_) if self.target.copy.in_call() => {
                self.say("the called function ended its copy of the program\n")?;
                signal(here, Signal::SIGTRAP)
            }
            Stop::Exited(status) => MultiThreadStopReason::Exited(status),
            Stop::Terminated(signo) => MultiThreadStopReason::Terminated(Signal(signals::to_gdb(signo))),
        })
    }
}

const DROPPED: &str = "note: what was set by hand is dropped, the recording goes on as it was\n";

/// The client's terminal, by packets that only show text.
struct Terminal<'t, 's> {
    wire: &'t mut Wire<'s>,
    failure: Option<io::Error>,
}

impl Console for Terminal<'_, '_> {
    fn print(&mut self, text: &str) {
        for piece in text.as_bytes().chunks(PACKET_SIZE / 4) {
            if let Err(e) = self.wire.send(format!("O{}", to_hex(piece)).as_bytes()) {
                self.failure = Some(e);
            }
        }
    }

    fn interrupted(&mut self) -> bool {
        self.failure.is_some() || self.wire.interrupted()
    }
}

/// Whether a stretch of memory to be read fits into an answer and into the address space.
fn is_sensible(range: &[u8]) -> bool {
    numbers(range).is_some_and(|(addr, len)| len <= PACKET_SIZE as u64 / 2 && addr.checked_add(len).is_some())
}
