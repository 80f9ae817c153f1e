//! A session: one unit of a recording that can be visited at any moment, in both directions.
//!
//! ```text
//! start ──●────────●────────●────▶ now ─ ─ ─ end        ● checkpoints: copies of the engine that stand still
//! ```
//! Forward, the current engine runs. Backward ([`crate::travel`]), the nearest checkpoint before is copied and runs
//! forward: to the moment wanted, or over the stretch between, remembering the last thing that happened there.
//! Checkpoints ([`crate::checkpoints`]) are made while a stretch is run over for the first time.
//!
//! May miss: a watched value that changes and changes back within 64 ticks.

use crate::access::{Access, next_stretch};
use crate::checkpoints::Checkpoints;
use crate::error::Error;
use crate::live::{Live, unexpected};
use crate::replay::{ReplayOptions, Replayer};
use crate::travel::Behind;
use model::GuestAddr;
use model::log::Origin;
use model::serve::{Alteration, Answer, Collected, MapInfo, Moment, Place, Request, State, ThreadInfo, Until, Why};
use model::wire::Replayed;
use recording::{Recording, UnitName};

/// The largest piece of memory asked for at once.
const PIECE: usize = 48 << 10;

/// Where and why a session stands still.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// The moment asked for, or the end of a step.
    Here,
    Breakpoint,
    /// The watched bytes at this index (of the list given) changed; backward: are about to change.
    Changed(usize),
    /// The bytes at this index (of the list of accesses) were read or written; backward: are about to be.
    Accessed(usize),
    /// The register that was asked for has another value; backward: is about to have.
    RegisterChanged,
    /// The beginning of the recording.
    Start,
    /// Its end, and how the guest ended.
    End(Replayed),
    Interrupted,
}

/// One unit of a recording at a moment.
pub struct Session {
    unit: UnitName,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) now: Live,
    pub(crate) place: Place,
    /// How the guest ended, if this is the end.
    ended: Option<Replayed>,
    pub(crate) breakpoints: Vec<u64>,
    pub(crate) watches: Vec<(u64, u32)>,
    pub(crate) accesses: Vec<Access>,
    /// Does the present engine know them?
    equipped: bool,
    pub(crate) behind: Option<Behind>,
    /// Files whose fate in trials is to be told.
    pub(crate) files: Vec<Vec<u8>>,
}

impl Session {
    /// Opens a unit at its beginning; that of a forked one is its ancestor's.
    pub fn open(replayer: &Replayer<'_>, unit: &UnitName) -> Result<Session, Error> {
        let options = ReplayOptions { serve: true, ..ReplayOptions::default() };
        let start = Live::start(replayer.launch(unit, &options)?)?;
        let place = where_is(&start)?;
        let now = start.fork()?;
        Ok(Session {
            unit: *unit,
            checkpoints: Checkpoints::new(place.moment, start, last_tick(replayer.recording, unit)),
            now,
            place,
            ended: None,
            breakpoints: Vec::new(),
            watches: Vec::new(),
            accesses: Vec::new(),
            equipped: false,
            behind: None,
            files: Vec::new(),
        })
    }

    pub fn unit(&self) -> UnitName {
        self.unit
    }

    /// The present moment.
    pub fn moment(&self) -> Moment {
        self.place.moment
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn start_moment(&self) -> Moment {
        self.checkpoints.start()
    }

    /// How the guest ended, if the session stands at the end.
    pub fn ended(&self) -> Option<&Replayed> {
        self.ended.as_ref()
    }

    /// Processes that hold checkpoints, this session's own included.
    pub fn processes(&self) -> Vec<u32> {
        let behind = self.behind.as_ref().map(Behind::pid);
        self.checkpoints.processes().chain([self.now.pid()]).chain(behind).collect()
    }

    /// A copy of the engine at this moment, for somebody who wants to go another way.
    pub fn copy(&self) -> Result<Live, Error> {
        self.now.fork()
    }

    /// Breakpoints from now on.
    pub fn set_breakpoints(&mut self, list: &[u64]) {
        self.breakpoints = list.to_vec();
        self.equipped = false;
    }

    /// Watched bytes from now on: addresses and lengths.
    pub fn set_watches(&mut self, list: &[(u64, u32)]) {
        self.watches = list.to_vec();
        self.equipped = false;
    }

    // ---- questions about the present moment ----

    pub fn threads(&self) -> Result<Vec<ThreadInfo>, Error> {
        threads_of(&self.now)
    }

    pub fn registers(&self, thread: u32) -> Result<State, Error> {
        registers_of(&self.now, thread)
    }

    /// Reads guest memory; answers how many bytes could be read.
    pub fn read(&self, at: GuestAddr, to: &mut [u8]) -> Result<usize, Error> {
        read_from(&self.now, at, to)
    }

    pub fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        maps_of(&self.now)
    }

    // ---- going forward ----

    /// Forward to a breakpoint, a change, an access, the end, or `limit`, which must be a moment that exists and lies ahead.
    pub fn forward(&mut self, limit: Option<Moment>, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        if self.accesses.is_empty() {
            return self.forward_to_change(limit, interrupted);
        }
        let mut length = 0;
        loop {
            let live = self.now.fork()?;
            let (end, longer) = next_stretch(self.place.moment, limit, length);
            length = longer;
            let stopped = self.forward_to_change(Some(end), interrupted)?;
            let here = self.place.moment;
            if let Some(found) = self.first_access(&live, here, interrupted)? {
                return Ok(found);
            }
            if stopped != Stopped::Here || limit.is_some_and(|l| here >= l) {
                return Ok(stopped);
            }
        }
    }

    fn forward_to_change(
        &mut self,
        limit: Option<Moment>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stopped, Error> {
        self.equip()?;
        let before = self.watched()?;
        let from = self.place.moment;
        loop {
            let pause = self.checkpoints.pause_after(self.place.moment);
            let until = Until { moment: [limit, pause].into_iter().flatten().min(), ..Until::default() };
            let (why, place, _) = run(&self.now, until, interrupted)?;
            self.stand(place, &why);
            match why {
                Why::Changed { since } => return self.first_change(since.max(from), &before, interrupted),
                Why::Reached | Why::Passed if limit.is_some_and(|l| self.place.moment >= l) => {
                    return Ok(Stopped::Here);
                }
                Why::Reached | Why::Passed => {
                    self.checkpoints.add(self.place.moment, &self.now)?;
                    if self.breakpoints.contains(&self.place.moment.pc) {
                        return Ok(Stopped::Breakpoint);
                    }
                }
                other => return Ok(stopped(other)),
            }
        }
    }

    /// One instruction of this thread, or what happens instead of it. Others go on as they did.
    pub fn step(&mut self, thread: u32, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        if self.accesses.is_empty() {
            return self.step_to_change(thread, interrupted);
        }
        let live = self.now.fork()?;
        let stopped = self.step_to_change(thread, interrupted)?;
        let here = self.place.moment;
        Ok(self.first_access(&live, here, interrupted)?.unwrap_or(stopped))
    }

    fn step_to_change(&mut self, thread: u32, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        self.equip()?;
        let before = self.watched()?;
        if self.place.thread != thread {
            let found = self.wait_for(thread, &before, interrupted)?;
            if found != Stopped::Here || self.place.thread != thread {
                return Ok(found);
            }
        }
        let (why, place) = step(&self.now)?;
        self.stand(place, &why);
        match why {
            Why::Changed { .. } => Ok(self.changed_since(&before)?),
            Why::Reached if self.place.thread != thread => self.wait_for(thread, &before, interrupted),
            other => Ok(stopped(other)),
        }
    }

    /// Forward until this thread runs, or something else stops it.
    fn wait_for(
        &mut self,
        thread: u32,
        before: &[Vec<u8>],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stopped, Error> {
        // A thread that is gone will not run again: then the step ends here.
        if self.threads()?.iter().all(|t| t.number != thread) {
            return Ok(Stopped::Here);
        }
        let from = self.place.moment;
        let (why, place, _) = run(&self.now, Until { thread: Some(thread), ..Until::default() }, interrupted)?;
        self.stand(place, &why);
        match why {
            Why::Changed { since } => self.first_change(since.max(from), before, interrupted),
            other => Ok(stopped(other)),
        }
    }

    /// Tells the present engine where to stop.
    fn equip(&mut self) -> Result<(), Error> {
        if !self.equipped {
            equip(&self.now, &self.breakpoints, &self.watches)?;
            self.equipped = true;
        }
        Ok(())
    }

    /// The present engine has moved.
    fn stand(&mut self, place: Place, why: &Why) {
        self.place = place;
        self.ended = match why {
            Why::End(replayed) => Some(replayed.clone()),
            _ => None,
        };
    }

    /// Another engine becomes the present one.
    pub(crate) fn settle(&mut self, live: Live, place: Place, why: &Why) {
        self.now = live;
        self.equipped = false;
        self.stand(place, why);
    }

    // ---- watched bytes ----

    pub(crate) fn watched(&self) -> Result<Vec<Vec<u8>>, Error> {
        watched(&self.now, &self.watches)
    }

    /// Goes to `since` and on by single instructions until watched bytes change; the session stands behind the change.
    fn first_change(
        &mut self,
        since: Moment,
        before: &[Vec<u8>],
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stopped, Error> {
        self.seek(since, interrupted)?;
        self.equip()?;
        let (why, place, _) = run(&self.now, Until { single: true, ..Until::default() }, interrupted)?;
        self.stand(place, &why);
        match why {
            Why::Changed { .. } => self.changed_since(before),
            other => Ok(stopped(other)),
        }
    }

    fn changed_since(&self, before: &[Vec<u8>]) -> Result<Stopped, Error> {
        let now = self.watched()?;
        let index = (0..now.len()).find(|n| Some(&now[*n]) != before.get(*n));
        Ok(index.map_or(Stopped::Here, Stopped::Changed))
    }
}

/// The tick at which a unit ended, or the last one that its log mentions.
fn last_tick(recording: &Recording, unit: &UnitName) -> Option<u64> {
    if let Some(end) = recording.unit(unit).ok()?.end {
        return Some(end.tick);
    }
    let log = recording.log(unit).ok()?;
    let calls = log.records().filter(|(_, raw)| raw.kind == model::log::Kind::Call);
    calls.filter_map(|(_, raw)| model::log::CallRecord::decode(raw.payload)).last().map(|c| c.tick)
}

pub(crate) fn stopped(why: Why) -> Stopped {
    match why {
        Why::Reached | Why::Passed | Why::Changed { .. } => Stopped::Here,
        Why::Breakpoint => Stopped::Breakpoint,
        Why::End(replayed) => Stopped::End(replayed),
        Why::Interrupted => Stopped::Interrupted,
    }
}

pub(crate) fn where_is(live: &Live) -> Result<Place, Error> {
    match live.ask(&Request::Where)? {
        Answer::Stopped { place, .. } => Ok(place),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn step(live: &Live) -> Result<(Why, Place), Error> {
    match live.ask(&Request::Step)? {
        Answer::Stopped { why, place, .. } => Ok((why, place)),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn run(
    live: &Live,
    until: Until,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<(Why, Place, Collected), Error> {
    begin_run(live, until)?;
    end_run(live, interrupted)
}

/// Lets the guest go; others may be let go before its [end](end_run) is heard.
pub(crate) fn begin_run(live: &Live, until: Until) -> Result<(), Error> {
    live.send(&Request::Run(until), None)
}

pub(crate) fn end_run(live: &Live, interrupted: &mut dyn FnMut() -> bool) -> Result<(Why, Place, Collected), Error> {
    match live.answer_long(interrupted)? {
        Answer::Stopped { why, place, collected } => Ok((why, place, collected)),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn done(answer: Answer) -> Result<(), Error> {
    match answer {
        Answer::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn equip(live: &Live, breakpoints: &[u64], watches: &[(u64, u32)]) -> Result<(), Error> {
    done(live.ask(&Request::Breakpoints(breakpoints.to_vec()))?)?;
    done(live.ask(&Request::Watches(watches.to_vec()))?)
}

pub fn threads_of(live: &Live) -> Result<Vec<ThreadInfo>, Error> {
    match live.ask(&Request::Threads)? {
        Answer::Threads(list) => Ok(list),
        other => Err(unexpected(&other)),
    }
}

pub(crate) fn maps_of(live: &Live) -> Result<Vec<MapInfo>, Error> {
    match live.ask(&Request::Maps)? {
        Answer::Maps(list) => Ok(list),
        other => Err(unexpected(&other)),
    }
}

pub fn registers_of(live: &Live, thread: u32) -> Result<State, Error> {
    match live.ask(&Request::Registers { thread })? {
        Answer::Registers(state) => Ok(state),
        other => Err(unexpected(&other)),
    }
}

pub fn read_from(live: &Live, at: GuestAddr, to: &mut [u8]) -> Result<usize, Error> {
    let mut done = 0;
    while done < to.len() {
        let len = (to.len() - done).min(PIECE);
        match live.ask(&Request::Read { addr: GuestAddr(at.0 + done as u64), len: len as u32 })? {
            Answer::Bytes(bytes) => {
                let n = bytes.len().min(len);
                to[done..done + n].copy_from_slice(&bytes[..n]);
                done += n;
                if n < len {
                    break;
                }
            }
            other => return Err(unexpected(&other)),
        }
    }
    Ok(done)
}

pub(crate) fn watched(live: &Live, watches: &[(u64, u32)]) -> Result<Vec<Vec<u8>>, Error> {
    let one = |(at, len): &(u64, u32)| {
        let mut bytes = vec![0; *len as usize];
        let n = read_from(live, GuestAddr(*at), &mut bytes)?;
        bytes.truncate(n);
        Ok(bytes)
    };
    watches.iter().map(one).collect()
}

/// Is this unit a forked one, whose history begins in its ancestor?
pub fn is_forked(recording: &Recording, unit: &UnitName) -> bool {
    recording.unit(unit).is_ok_and(|u| matches!(u.start.origin, Origin::Fork { .. }))
}

/// Applies an alteration at the present moment of an engine.
pub fn alter(live: &Live, alteration: Alteration) -> Result<(), Error> {
    done(live.ask(&Request::Alter(alteration))?)
}
