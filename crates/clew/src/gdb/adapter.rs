//! A session as the gdb server wants to see it.
//!
//! Threads go by their tids. Forward, the guest stops at the signals that the log knows of before they are delivered;
//! backward it does not. At a crash it stops with the fatal signal, and the recording ends there.
//!
//! An altered run ([`super::altered`]) takes the recording's place while there is one, and so does a throw-away copy
//! ([`super::copy`]) of either.

use super::altered::{Altered, Mark};
use super::auxv;
use super::copy::Copy;
use super::files::Files;
use super::points::Points;
use super::ranges;
use super::signals::Signals;
use super::slices::Slices;
use gdb::{Console, CpuState, Debuggee, Direction, Error, HostFile, Moved, Resume, Stop, Thread, Watch, WatchKind};
use image::Images;
use model::GuestAddr;
use model::serve::{Moment, Place, Request, State, ThreadInfo};
use model::wire::Replayed;
use recording::{Recording, Unit};
use session::{Access, Live, Session, Stopped, read_from, registers_of, threads_of};
use std::collections::BTreeMap;

/// Steps of a line that are made one by one before ways out of it are looked for.
const SLOW_STEPS: u32 = 48;
/// A line has no more code than this.
const LONGEST_LINE: u64 = 1 << 16;
const PIECE: usize = 32 << 10;

/// A recording that a debugger looks at.
pub struct Recorded<'r> {
    pub(super) recording: &'r Recording,
    pub(super) session: Session,
    pub(super) images: Images,
    /// The unit, and the ancestor whose program it runs.
    unit: &'r Unit,
    root: &'r Unit,
    files: Files,
    /// The auxiliary vector.
    auxv: Vec<u8>,
    signals: Signals,
    pub(super) copy: Option<Copy>,
    /// The altered run that has taken the recording's place.
    pub(super) altered: Option<Altered>,
    pub(super) breakpoints: Vec<u64>,
    /// Those that ask for changes, and those that ask for accesses.
    pub(super) watches: Vec<Watch>,
    pub(super) accesses: Vec<Watch>,
    /// What the user stops at beside gdb's breakpoints.
    pub(super) points: Points,
    pub(super) slices: Slices,
    /// What is to be told about the last stop.
    pub(super) remarks: String,
    /// The signal that comes at this moment has been told.
    told: Option<Moment>,
    /// Threads at the present moment, if they have been asked for.
    threads: Option<Vec<ThreadInfo>>,
    pub(super) checkpoints: BTreeMap<u32, Mark>,
}

pub(super) fn failed(e: session::Error) -> Error {
    match e.kind() {
        session::ErrorKind::Refused => Error::Refused(e.to_string()),
        _ => Error::Lost(e.to_string()),
    }
}

impl<'r> Recorded<'r> {
    pub fn new(recording: &'r Recording, session: Session, search: image::Search) -> Result<Recorded<'r>, String> {
        let damaged = |e: recording::Error| e.to_string();
        let name = session.unit();
        let lineage = recording.lineage(&name).map_err(damaged)?;
        let units = lineage.iter().map(|u| recording.unit(u)).collect::<Result<Vec<_>, _>>().map_err(damaged)?;
        Ok(Recorded {
            recording,
            images: session::images_with(recording, search),
            unit: recording.unit(&name).map_err(damaged)?,
            root: units[0],
            files: Files::of(units.iter().copied()),
            signals: Signals::of(recording, &name).map_err(damaged)?,
            auxv: auxv::of(recording, &session, units[0]).map_err(|e| e.to_string())?,
            session,
            copy: None,
            altered: None,
            breakpoints: Vec::new(),
            watches: Vec::new(),
            accesses: Vec::new(),
            points: Points::default(),
            slices: Slices::default(),
            remarks: String::new(),
            told: None,
            threads: None,
            checkpoints: BTreeMap::new(),
        })
    }

    /// The program as it was recorded.
    pub fn program(&self) -> Option<std::path::PathBuf> {
        self.recording.file(&self.root.start.program)
    }

    pub fn files(&self) -> &Files {
        &self.files
    }

    /// The present moment is another one.
    pub(super) fn moved(&mut self) {
        self.told = None;
        self.threads = None;
    }

    /// The engine that has taken the place of the session's, if one has.
    fn other_world(&self) -> Option<&Live> {
        self.copy.as_ref().map(Copy::live).or(self.altered.as_ref().map(Altered::live))
    }

    /// Where the user is: in the recording, or in the altered run.
    pub(super) fn place(&self) -> &Place {
        self.altered.as_ref().map_or(self.session.place(), Altered::place)
    }

    fn known_threads(&mut self) -> Result<Vec<ThreadInfo>, Error> {
        if let Some(live) = self.other_world() {
            return threads_of(live).map_err(failed);
        }
        if self.threads.is_none() {
            self.threads = Some(self.session.threads().map_err(failed)?);
        }
        Ok(self.threads.clone().unwrap_or_default())
    }

    /// The number of a thread in the session.
    pub(super) fn number(&mut self, tid: u32) -> Result<u32, Error> {
        let found = self.known_threads()?.into_iter().find(|t| t.tid == tid).map(|t| t.number);
        found.ok_or_else(|| Error::refused(format!("there is no thread {tid} at this moment")))
    }

    pub(super) fn tid(&mut self, number: u32) -> u32 {
        let known = self.known_threads().unwrap_or_default();
        known.iter().find(|t| t.number == number).or(known.first()).map_or(self.unit.start.tid, |t| t.tid).max(1)
    }

    fn state(&mut self, tid: u32) -> Result<(u32, State), Error> {
        let number = self.number(tid)?;
        let state = match self.other_world() {
            Some(live) => registers_of(live, number),
            None => self.session.registers(number),
        };
        Ok((number, state.map_err(failed)?))
    }

    /// What to tell about where the session stopped.
    fn stop(&mut self, stopped: Stopped) -> Result<Stop, Error> {
        self.threads = None;
        let place = self.session.place().clone();
        let thread = self.tid(place.thread);
        Ok(match stopped {
            Stopped::Here | Stopped::RegisterChanged => Stop::Step,
            Stopped::Breakpoint => Stop::Breakpoint { thread },
            Stopped::Changed(n) => match self.watches.get(n) {
                Some(watch) => Stop::Watch { thread, addr: watch.addr, kind: watch.kind },
                None => Stop::Step,
            },
            Stopped::Accessed(n) => match self.accesses.get(n) {
                Some(watch) => Stop::Watch { thread, addr: watch.addr, kind: watch.kind },
                None => Stop::Step,
            },
            Stopped::Start => Stop::HistoryStart,
            Stopped::Interrupted => Stop::Interrupted,
            Stopped::End(replayed) => self.end(&replayed, thread, place.moment)?,
        })
    }

    fn end(&mut self, replayed: &Replayed, thread: u32, moment: Moment) -> Result<Stop, Error> {
        if let Some(difference) = &replayed.difference {
            return Err(Error::refused(format!(
                "the replay cannot go on, it differs from the recording: {difference}"
            )));
        }
        if replayed.ending == 1 && self.told != Some(moment) {
            self.told = Some(moment);
            self.tell_previous();
            return Ok(Stop::Signal { thread, signo: replayed.status as u8 });
        }
        Ok(Stop::HistoryEnd)
    }

    /// A signal that comes here and has not been told yet.
    fn signal_here(&mut self) -> Option<Stop> {
        let here = self.session.moment();
        if self.told == Some(here) || self.session.ended().is_some() {
            return None;
        }
        let signo = self.signals.at(here)?.signo;
        self.told = Some(here);
        let thread = self.tid(self.session.place().thread);
        Some(Stop::Signal { thread, signo })
    }

    /// Forward to the next thing, signals included.
    fn run(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stop, Error> {
        if let Some(stop) = self.signal_here() {
            return Ok(stop);
        }
        loop {
            let limit = self.signals.after(self.session.moment()).map(|a| a.moment);
            let stopped = self.session.forward(limit, interrupted).map_err(failed)?;
            if stopped == Stopped::Breakpoint && !self.is_gdbs() {
                match self.own_point(interrupted)? {
                    Some(stop) => return Ok(stop),
                    None => continue,
                }
            }
            let stop = self.stop(stopped.clone())?;
            return match stopped {
                Stopped::Here => Ok(self.signal_here().unwrap_or(stop)),
                _ => Ok(stop),
            };
        }
    }

    /// Has gdb a breakpoint here?
    fn is_gdbs(&self) -> bool {
        self.breakpoints.contains(&self.session.moment().pc)
    }

    /// Tells the session where to stop: gdb's breakpoints and the user's own points.
    pub(super) fn arm(&mut self) {
        let all: Vec<u64> = self.breakpoints.iter().copied().chain(self.points.addresses()).collect();
        self.session.set_breakpoints(&all);
    }

    fn step(&mut self, tid: u32, interrupted: &mut dyn FnMut() -> bool) -> Result<Stop, Error> {
        if let Some(stop) = self.signal_here() {
            return Ok(stop);
        }
        let number = self.number(tid)?;
        let stopped = self.session.step(number, interrupted).map_err(failed)?;
        self.stop(stopped)
    }

    /// Steps until the thread is outside of the range.
    fn step_out(
        &mut self,
        tid: u32,
        range: std::ops::Range<u64>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, Error> {
        let number = self.number(tid)?;
        let mut steps = 0;
        loop {
            let stop = match steps < SLOW_STEPS {
                true => self.step(tid, interrupted)?,
                false => self.run_out(number, &range, interrupted)?,
            };
            // Instructions whose ways out are not known are stepped over.
            steps = if steps < SLOW_STEPS { steps + 1 } else { SLOW_STEPS - 1 };
            let Place { moment, thread, .. } = *self.session.place();
            if stop != Stop::Step || thread != number || !range.contains(&moment.pc) {
                return Ok(stop);
            }
            if self.breakpoints.contains(&moment.pc) {
                return Ok(Stop::Breakpoint { thread: tid });
            }
            if interrupted() {
                return Ok(Stop::Interrupted);
            }
        }
    }

    /// Runs until the range may be left.
    fn run_out(
        &mut self,
        number: u32,
        range: &std::ops::Range<u64>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, Error> {
        let mut code = vec![0; (range.end - range.start).min(LONGEST_LINE) as usize];
        let n = self.session.read(GuestAddr(range.start), &mut code).map_err(failed)?;
        let exits = ranges::exits(&code[..n], range);
        let all: Vec<u64> = self.breakpoints.iter().chain(&exits).copied().collect();
        self.session.set_breakpoints(&all);
        let stop = loop {
            let stop = self.run(interrupted);
            let place = self.session.place();
            let ours = self.breakpoints.contains(&place.moment.pc);
            match stop {
                // Other threads pass there too.
                Ok(Stop::Breakpoint { .. }) if !ours && place.thread != number => {}
                Ok(Stop::Breakpoint { .. }) if !ours => break Ok(Stop::Step),
                other => break other,
            }
        };
        self.arm();
        stop
    }

    fn back(&mut self, how: Resume, interrupted: &mut dyn FnMut() -> bool) -> Result<Stop, Error> {
        let number = match how {
            Resume::Step { thread } | Resume::RangeStep { thread, .. } => Some(self.number(thread)?),
            Resume::Continue => None,
        };
        loop {
            let stopped = match number {
                Some(number) => self.session.step_back(number, interrupted),
                None => self.session.backward(interrupted),
            };
            self.moved();
            let stopped = stopped.map_err(failed)?;
            if stopped != Stopped::Breakpoint || self.is_gdbs() {
                return self.stop(stopped);
            }
            if let Some(stop) = self.own_point(interrupted)? {
                return Ok(stop);
            }
        }
    }

    /// The mappings as the kernel would have listed them.
    fn maps(&self) -> Option<Vec<u8>> {
        let mut text = String::new();
        let maps = self.altered.as_ref().map_or_else(|| self.session.maps(), |a| a.held.maps());
        for m in maps.ok()? {
            let bit = |n: u8, c: char| if m.prot & n != 0 { c } else { '-' };
            let shared = if m.shared { 's' } else { 'p' };
            let flags: String = [bit(1, 'r'), bit(2, 'w'), bit(4, 'x'), shared].iter().collect();
            let name = self.files.name(&m.key).map(|p| p.display().to_string()).unwrap_or_default();
            text += &format!("{:08x}-{:08x} {flags} {:08x} 00:00 0 {name}\n", m.start, m.end, m.offset);
        }
        Some(text.into_bytes())
    }
}

/// No system call is in progress.
const NO_CALL: u64 = u64::MAX;

fn cpu_state(state: &State, in_call: Option<u32>) -> CpuState {
    let mut cpu = CpuState {
        gpr: state.gpr,
        rip: state.rip,
        rflags: state.rflags,
        fs_base: state.fs_base,
        gs_base: state.gs_base,
        orig_rax: in_call.map_or(NO_CALL, u64::from),
        ..CpuState::default()
    };
    cpu.load_xsave(&state.extended);
    cpu
}

impl Debuggee for Recorded<'_> {
    fn threads(&mut self) -> Result<Vec<Thread>, Error> {
        let program = std::path::Path::new(&self.unit.start.exe);
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let known = self.known_threads()?;
        Ok(known.iter().map(|t| Thread { id: t.tid, name: name.clone() }).collect())
    }

    fn stopped_thread(&mut self) -> u32 {
        let number = match &self.copy {
            Some(copy) => copy.thread(),
            None => self.place().thread,
        };
        self.tid(number)
    }

    fn reason(&mut self) -> Stop {
        let thread = self.stopped_thread();
        match self.session.ended().filter(|_| self.altered.is_none()) {
            Some(replayed) if replayed.ending == 1 => Stop::Signal { thread, signo: replayed.status as u8 },
            _ => Stop::Step,
        }
    }

    fn registers(&mut self, thread: u32) -> Result<CpuState, Error> {
        let (number, state) = self.state(thread)?;
        let in_call = self.known_threads()?.iter().find(|t| t.number == number).and_then(|t| t.in_call);
        Ok(cpu_state(&state, in_call))
    }

    fn set_registers(&mut self, thread: u32, cpu: &CpuState) -> Result<(), Error> {
        let (number, mut state) = self.state(thread)?;
        let Some(copy) = &mut self.copy else { return Err(Error::refused("a recording cannot be changed")) };
        (state.gpr, state.rip, state.rflags) = (cpu.gpr, cpu.rip, cpu.rflags);
        (state.fs_base, state.gs_base) = (cpu.fs_base, cpu.gs_base);
        cpu.store_xsave(&mut state.extended);
        copy.runs(number);
        copy.change(Request::SetRegisters { thread: number, state })
    }

    fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<usize, Error> {
        let read = match self.other_world() {
            Some(live) => read_from(live, GuestAddr(addr), into),
            None => self.session.read(GuestAddr(addr), into),
        };
        read.map_err(failed)
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Error> {
        let Some(copy) = &mut self.copy else { return Err(Error::refused("a recording cannot be changed")) };
        for (n, piece) in bytes.chunks(PIECE).enumerate() {
            let addr = GuestAddr(addr.wrapping_add((n * PIECE) as u64));
            copy.change(Request::Write { addr, bytes: piece.to_vec() })?;
        }
        Ok(())
    }

    fn set_breakpoints(&mut self, addresses: &[u64]) -> Result<(), Error> {
        self.breakpoints = addresses.to_vec();
        self.arm();
        Ok(())
    }

    fn set_watchpoints(&mut self, watches: &[Watch]) -> Result<(), Error> {
        let len = |w: &Watch| w.len.min(1 << 16) as u32;
        (self.watches, self.accesses) = watches.iter().partition(|w| w.kind == WatchKind::Write);
        let list: Vec<(u64, u32)> = self.watches.iter().map(|w| (w.addr, len(w))).collect();
        self.session.set_watches(&list);
        let access = |w: &Watch| Access { addr: w.addr, len: len(w), read: true, write: w.kind == WatchKind::Access };
        let list: Vec<Access> = self.accesses.iter().map(access).collect();
        self.session.set_accesses(&list);
        Ok(())
    }

    fn resume(
        &mut self,
        direction: Direction,
        how: Resume,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, Error> {
        if self.copy.is_some() {
            return self.run_copy(how, interrupted);
        }
        if self.altered.is_some() {
            return self.resume_altered(direction, how, interrupted);
        }
        match (direction, how) {
            (Direction::Backward, how) => self.back(how, interrupted),
            (Direction::Forward, Resume::Continue) => self.run(interrupted),
            (Direction::Forward, Resume::Step { thread }) => self.step(thread, interrupted),
            (Direction::Forward, Resume::RangeStep { thread, start, end }) => {
                self.step_out(thread, start..end, interrupted)
            }
        }
    }

    fn begin_copy(&mut self) -> Result<(), Error> {
        let copy = match &self.altered {
            Some(altered) => Copy::of_altered(altered),
            None => Copy::of_recorded(&self.session),
        };
        self.copy = Some(copy.map_err(failed)?);
        Ok(())
    }

    fn keep_copy(&mut self) -> Result<bool, Error> {
        let (Some(copy), Some(altered)) = (self.copy.take(), &mut self.altered) else { return Ok(false) };
        Ok(altered.adopt(copy))
    }

    fn end_copy(&mut self) -> Result<(), Error> {
        self.copy = None;
        Ok(())
    }

    fn pid(&mut self) -> u32 {
        self.unit.start.pid
    }

    fn exec_file(&mut self) -> Option<String> {
        Some(self.root.start.exe.clone())
    }

    fn auxv(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.auxv.clone())
    }

    fn file(&mut self, path: &str) -> Option<HostFile> {
        let own = path.strip_prefix("/proc/").and_then(|p| p.strip_prefix(&format!("{}/", self.unit.start.pid)));
        match own {
            Some(inside) if inside == "maps" || inside.ends_with("/maps") => self.maps().map(HostFile::Bytes),
            _ => self.files.find(self.recording, path).map(HostFile::Path),
        }
    }

    fn siginfo(&mut self, _thread: u32) -> Option<Vec<u8>> {
        let recorded = self.altered.is_none();
        self.signals.info(self.session.moment()).filter(|_| recorded).map(<[u8]>::to_vec)
    }

    fn remark(&mut self) -> Option<String> {
        Some(std::mem::take(&mut self.remarks)).filter(|text| !text.is_empty())
    }

    fn monitor(&mut self, command: &str, console: &mut dyn Console) -> Result<Moved, Error> {
        super::monitor::obey(self, command, console)
    }
}
