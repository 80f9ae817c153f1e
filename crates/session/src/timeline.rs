//! A session: one unit of a recording that can be visited at any moment, in both directions.
//!
//! ```text
//! start ──●────────●────────●────▶ now ─ ─ ─ end        ● checkpoints: copies of the engine that stand still
//! ```
//! Forward, the current engine runs. Backward, the nearest checkpoint before is copied and runs forward: to the moment
//! wanted, or over the stretch between, remembering the last thing that happened there. Checkpoints are made while a
//! stretch is run over for the first time; their number is bounded, and the most recent stretch has more of them.
//!
//! May miss: a watched value that changes and changes back within 32 ticks.

use crate::error::{Error, ErrorKind};
use crate::live::{Live, unexpected};
use crate::replay::{ReplayOptions, Replayer};
use model::GuestAddr;
use model::log::Origin;
use model::serve::{
    Alteration, Answer, Collected, MapInfo, Moment, Place, Request, State, ThreadInfo, Until, Why,
};
use model::wire::Replayed;
use recording::{Recording, UnitName};
use std::collections::BTreeMap;
use std::io;

/// Checkpoints spread over the whole run, and those close to where one is.
const SPREAD: u64 = 48;
const CLOSE: usize = 12;
/// Distance in ticks of a close checkpoint before the moment gone back to.
const NEAR: u64 = 20_000;
/// Steps that are made at most to find an instruction.
const MOST_STEPS: u32 = 2_000_000;
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
    /// The beginning of the recording.
    Start,
    /// Its end, and how the guest ended.
    End(Replayed),
    Interrupted,
}

/// One unit of a recording at a moment.
pub struct Session {
    unit: UnitName,
    last_tick: Option<u64>,
    start: (Moment, Live),
    spread: BTreeMap<Moment, Live>,
    close: Vec<(Moment, Live)>,
    now: Live,
    place: Place,
    breakpoints: Vec<u64>,
    watches: Vec<(u64, u32)>,
    /// Checkpoints are set up to this moment.
    surveyed: bool,
}

impl Session {
    /// Opens a unit at its beginning; that of a forked one is its ancestor's.
    pub fn open(replayer: &Replayer<'_>, unit: &UnitName) -> Result<Session, Error> {
        let options = ReplayOptions { serve: true, ..ReplayOptions::default() };
        let start = Live::start(replayer.launch(unit, &options)?)?;
        let place = where_is(&start)?;
        let now = start.fork()?;
        let last_tick = replayer.recording.unit(unit).ok().and_then(|u| u.end).map(|e| e.tick);
        Ok(Session {
            unit: *unit,
            last_tick,
            start: (place.moment, start),
            spread: BTreeMap::new(),
            close: Vec::new(),
            now,
            place,
            breakpoints: Vec::new(),
            watches: Vec::new(),
            surveyed: false,
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
        self.start.0
    }

    /// Processes that hold checkpoints, this session's own included.
    pub fn processes(&self) -> Vec<u32> {
        let spread = self.spread.values().map(Live::pid);
        spread.chain(self.close.iter().map(|(_, l)| l.pid())).chain([self.start.1.pid(), self.now.pid()]).collect()
    }

    /// A copy of the engine at this moment, for somebody who wants to go another way.
    pub fn copy(&self) -> Result<Live, Error> {
        self.now.fork()
    }

    /// Breakpoints from now on.
    pub fn set_breakpoints(&mut self, list: &[u64]) {
        self.breakpoints = list.to_vec();
    }

    /// Watched bytes from now on: addresses and lengths.
    pub fn set_watches(&mut self, list: &[(u64, u32)]) {
        self.watches = list.to_vec();
    }

    // ---- questions about the present moment ----

    pub fn threads(&self) -> Result<Vec<ThreadInfo>, Error> {
        match self.now.ask(&Request::Threads)? {
            Answer::Threads(list) => Ok(list),
            other => Err(unexpected(&other)),
        }
    }

    pub fn registers(&self, thread: u32) -> Result<State, Error> {
        registers_of(&self.now, thread)
    }

    /// Reads guest memory; answers how many bytes could be read.
    pub fn read(&self, at: GuestAddr, to: &mut [u8]) -> Result<usize, Error> {
        read_from(&self.now, at, to)
    }

    pub fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        match self.now.ask(&Request::Maps)? {
            Answer::Maps(list) => Ok(list),
            other => Err(unexpected(&other)),
        }
    }

    // ---- going somewhere ----

    /// Forward to a breakpoint, a change or the end.
    pub fn forward(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        equip(&self.now, &self.breakpoints, &self.watches)?;
        let before = self.watched()?;
        let from = self.place.moment;
        let (why, place, _) = run(&self.now, Until::default(), interrupted)?;
        self.place = place;
        match why {
            Why::Changed { since } => {
                // The change lies between two looks: back to the first, then step by step.
                let found = self.first_change(since.max(from), &before)?;
                Ok(found.map_or(Stopped::Here, Stopped::Changed))
            }
            other => Ok(stopped(other)),
        }
    }

    /// One instruction, or what happens instead of it.
    pub fn step(&mut self) -> Result<Stopped, Error> {
        let (why, place) = step(&self.now)?;
        self.place = place;
        Ok(stopped(why))
    }

    /// To a moment. One that does not exist is refused, and the session stays where it is.
    pub fn seek(&mut self, to: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        if to == self.place.moment {
            return Ok(());
        }
        if to.tick > self.start.0.tick {
            self.survey(interrupted)?;
        }
        let live = self.copy_before(to)?;
        let until = Until { moment: Some(to), ..Until::default() };
        let at = where_is(&live)?;
        let (why, place) = if at.moment == to {
            (Why::Reached, at)
        } else {
            let (why, place, _) = run(&live, until, interrupted)?;
            (why, place)
        };
        match why {
            Why::Reached => {
                self.now = live;
                self.place = place;
                Ok(())
            }
            Why::Interrupted => Err(Error::new(ErrorKind::Refused, io::Error::other("interrupted"))),
            _ => {
                let text = format!("there is no moment {to}: the guest never was there");
                Err(Error::new(ErrorKind::Refused, io::Error::other(text)))
            }
        }
    }

    /// To the first moment of a tick or, if the recording ends before, to its end.
    pub fn seek_tick(&mut self, tick: u64, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        let to = Moment { tick, pc: 0 };
        let live = self.copy_before(to)?;
        let at = where_is(&live)?;
        let (why, place) = if at.moment.tick >= tick {
            (Why::Reached, at)
        } else {
            let (why, place, _) = run(&live, Until { moment: Some(to), ..Until::default() }, interrupted)?;
            (why, place)
        };
        self.now = live;
        self.place = place;
        Ok(stopped(why))
    }

    /// To the end of the recording.
    pub fn seek_end(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        self.survey(interrupted)?;
        let live = self.copy_before(Moment { tick: u64::MAX, pc: u64::MAX })?;
        equip(&live, &[], &[])?;
        let (why, place, _) = run(&live, Until::default(), interrupted)?;
        self.now = live;
        self.place = place;
        Ok(stopped(why))
    }

    /// To the n-th execution (from 1) of the instruction at `pc`, counted from the beginning.
    pub fn seek_instance(
        &mut self,
        pc: u64,
        n: u64,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stopped, Error> {
        let live = self.start.1.fork()?;
        equip(&live, &[pc], &[])?;
        let skip = n.saturating_sub(1);
        let (why, place, _) = run(&live, Until { skip, ..Until::default() }, interrupted)?;
        self.now = live;
        self.place = place;
        Ok(stopped(why))
    }

    /// How often the instructions at these addresses were executed before this moment.
    pub fn count_before(&mut self, pcs: &[u64], interrupted: &mut dyn FnMut() -> bool) -> Result<u64, Error> {
        let live = self.start.1.fork()?;
        equip(&live, pcs, &[])?;
        let until = Until { moment: Some(self.place.moment), collect: true, ..Until::default() };
        Ok(run(&live, until, interrupted)?.2.breakpoints)
    }

    /// Backward to a breakpoint, a change or the beginning.
    pub fn backward(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        self.survey(interrupted)?;
        let mut end = self.place.moment;
        while end > self.start.0 {
            let live = self.copy_before_strictly(end)?;
            let from = where_is(&live)?.moment;
            equip(&live, &self.breakpoints, &self.watches)?;
            let until = Until { moment: Some(end), collect: true, ..Until::default() };
            let (why, _, collected) = run(&live, until, interrupted)?;
            if why == Why::Interrupted {
                return Ok(Stopped::Interrupted);
            }
            if let Some(found) = self.last_of(&collected, interrupted)? {
                return Ok(found);
            }
            if from >= end {
                break;
            }
            end = from;
        }
        self.now = self.start.1.fork()?;
        self.place = where_is(&self.now)?;
        Ok(Stopped::Start)
    }

    /// Goes to the last thing that was met in a stretch.
    fn last_of(
        &mut self,
        collected: &Collected,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Stopped>, Error> {
        let breakpoint = collected.last_breakpoint.as_ref().map(|p| p.moment);
        if let Some((since, at)) = collected.last_change
            && breakpoint.is_none_or(|b| b < at)
        {
            let changed = self.last_change(since, at)?;
            if let Some((moment, index)) = changed
                && breakpoint.is_none_or(|b| b < moment)
            {
                self.seek(moment, interrupted)?;
                return Ok(Some(Stopped::Changed(index)));
            }
        }
        match breakpoint {
            Some(moment) => {
                self.seek(moment, interrupted)?;
                Ok(Some(Stopped::Breakpoint))
            }
            None => Ok(None),
        }
    }

    /// One instruction back.
    pub fn step_back(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stopped, Error> {
        let end = self.place.moment;
        if end <= self.start.0 {
            return Ok(Stopped::Start);
        }
        self.keep_close(end, interrupted)?;
        // The instruction before is in the same tick, or the last of one of the ticks before.
        let mut tick = end.tick;
        loop {
            let live = self.copy_before_strictly(Moment { tick, pc: 0 })?;
            let mut at = where_is(&live)?;
            if at.moment.tick < tick {
                equip(&live, &[], &[])?;
                let until = Until { moment: Some(Moment { tick, pc: 0 }), ..Until::default() };
                at = run(&live, until, interrupted)?.1;
            }
            if at.moment < end {
                return self.last_step_before(live, at, end);
            }
            if tick <= self.start.0.tick {
                return Ok(Stopped::Start);
            }
            tick -= 1;
        }
    }

    /// Steps from `at` up to the last moment before `end`.
    fn last_step_before(&mut self, live: Live, mut at: Place, end: Moment) -> Result<Stopped, Error> {
        for _ in 0..MOST_STEPS {
            let here = live.fork()?;
            let (why, next) = step(&live)?;
            if next.moment >= end || matches!(why, Why::End(_)) {
                self.now = here;
                self.place = at;
                return Ok(Stopped::Here);
            }
            at = self.hurry(&live, next, end)?;
        }
        Err(Error::new(ErrorKind::Refused, io::Error::other("the instruction before is too far away")))
    }

    /// A copy before every step is dear: skips ahead while the end is many instructions away.
    fn hurry(&self, live: &Live, at: Place, end: Moment) -> Result<Place, Error> {
        /// Instructions are at most so long.
        const LONGEST: u64 = 15;
        if at.moment.tick != end.tick || end.pc < at.moment.pc + 8 * LONGEST {
            return Ok(at);
        }
        // The guest may jump forward over any address, so single steps are the only sure way; but they need no copies
        // while the end is far.
        let mut at = at;
        while at.moment.tick == end.tick && at.moment.pc + 8 * LONGEST < end.pc {
            let before = live.fork()?;
            let (_, next) = step(live)?;
            if next.moment >= end {
                // It jumped: back to where it came from.
                drop(before);
                return Ok(next);
            }
            at = next;
        }
        Ok(at)
    }

    // ---- checkpoints ----

    /// Runs over the whole recording once, leaving checkpoints behind.
    pub fn survey(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let Some(last) = self.last_tick.filter(|_| !self.surveyed) else { return Ok(()) };
        self.surveyed = true;
        let distance = (last / SPREAD).max(50_000);
        let live = self.start.1.fork()?;
        let mut tick = distance;
        while tick < last {
            let until = Until { moment: Some(Moment { tick, pc: 0 }), ..Until::default() };
            let (why, place, _) = run(&live, until, interrupted)?;
            if why != Why::Reached && why != Why::Passed {
                break;
            }
            self.spread.insert(place.moment, live.fork()?);
            tick = place.moment.tick + distance;
        }
        Ok(())
    }

    /// Makes sure that there is a checkpoint not long before `end`.
    fn keep_close(&mut self, end: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let known = self.nearest(Moment { tick: end.tick, pc: 0 }).0;
        if end.tick - known.tick <= 2 * NEAR || end.tick < NEAR {
            return Ok(());
        }
        self.survey(interrupted)?;
        let live = self.copy_before_strictly(end)?;
        equip(&live, &[], &[])?;
        let to = Moment { tick: end.tick - NEAR, pc: 0 };
        if where_is(&live)?.moment.tick < to.tick {
            let (_, place, _) = run(&live, Until { moment: Some(to), ..Until::default() }, interrupted)?;
            if self.close.len() >= CLOSE {
                self.close.remove(0);
            }
            self.close.push((place.moment, live));
        }
        Ok(())
    }

    /// The last checkpoint at or before a moment.
    fn nearest(&self, at: Moment) -> (Moment, &Live) {
        let spread = self.spread.range(..=at).next_back().map(|(m, l)| (*m, l));
        let close = self.close.iter().filter(|(m, _)| *m <= at).max_by_key(|(m, _)| *m).map(|(m, l)| (*m, l));
        let first = Some((self.start.0, &self.start.1));
        [spread, close, first].into_iter().flatten().max_by_key(|(m, _)| *m).unwrap_or((self.start.0, &self.start.1))
    }

    /// A copy of the last checkpoint at or before a moment; of the present engine, if that is nearer.
    fn copy_before(&self, at: Moment) -> Result<Live, Error> {
        let (moment, live) = self.nearest(at);
        if self.place.moment <= at && self.place.moment > moment {
            return self.now.fork();
        }
        live.fork()
    }

    fn copy_before_strictly(&self, at: Moment) -> Result<Live, Error> {
        let before = match at {
            Moment { tick, pc: 0 } => Moment { tick: tick.saturating_sub(1), pc: u64::MAX },
            Moment { tick, pc } => Moment { tick, pc: pc - 1 },
        };
        self.nearest(before).1.fork()
    }

    // ---- watched bytes ----

    fn watched(&self) -> Result<Vec<Vec<u8>>, Error> {
        watched(&self.now, &self.watches)
    }

    /// Goes to `since` and steps until the watched bytes differ from `before`; the session stands behind the change.
    fn first_change(&mut self, since: Moment, before: &[Vec<u8>]) -> Result<Option<usize>, Error> {
        self.seek(since, &mut || false)?;
        for _ in 0..MOST_STEPS {
            let (why, place) = step(&self.now)?;
            self.place = place;
            let now = self.watched()?;
            if let Some(index) = (0..now.len()).find(|n| now[*n] != before[*n]) {
                return Ok(Some(index));
            }
            if matches!(why, Why::End(_)) {
                break;
            }
        }
        Ok(None)
    }

    /// The last moment in `since..=at` whose instruction changes watched bytes, and which.
    fn last_change(&mut self, since: Moment, at: Moment) -> Result<Option<(Moment, usize)>, Error> {
        let keep = (self.now.fork()?, self.place.clone());
        self.seek(since, &mut || false)?;
        let mut before = self.watched()?;
        let mut found = None;
        for _ in 0..MOST_STEPS {
            let here = self.place.moment;
            let (why, place) = step(&self.now)?;
            self.place = place;
            let now = self.watched()?;
            if let Some(index) = (0..now.len()).find(|n| now[*n] != before[*n]) {
                found = Some((here, index));
            }
            before = now;
            if self.place.moment >= at || matches!(why, Why::End(_)) {
                break;
            }
        }
        (self.now, self.place) = keep;
        Ok(found)
    }
}

fn stopped(why: Why) -> Stopped {
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

fn step(live: &Live) -> Result<(Why, Place), Error> {
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
    match live.ask_long(&Request::Run(until), interrupted)? {
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

fn watched(live: &Live, watches: &[(u64, u32)]) -> Result<Vec<Vec<u8>>, Error> {
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
