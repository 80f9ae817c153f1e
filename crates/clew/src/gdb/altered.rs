//! The altered run: the recording with something changed, going on by itself from a moment, while the user watches.
//!
//! It begins when something is to be changed and takes the recording's place until the user goes to a moment of the
//! recording again. What was changed where is remembered ([`Course`]): a moment of an altered run is found again by making the
//! same changes again, which is how checkpoints in it, going back, and the numbers of executions work.
//!
//! May miss: gdb is not told of signals that the altered run survives; going back does not stop at watched values.

use super::adapter::{Recorded, failed};
use super::copy::Copy;
use super::ranges;
use gdb::{Debuggee, Direction, Error, Resume, Stop, WatchKind};
use model::GuestAddr;
use model::serve::{Moment, Place, Request, TrialEnd, TrialLimits, Until, Why};
use session::{Held, HeldStop, Live, Session, read_from};
use std::fmt::Write;

/// The user can stop it, so only memory and output are limited.
const LIMITS: TrialLimits = TrialLimits { ticks: u64::MAX >> 2, memory: 2 << 30, output: 64 << 20, belt: true };
/// Steps of a line that are made one by one before ways out of it are looked for.
const SLOW_STEPS: u32 = 48;
/// A line has no more code than this.
const LONGEST_LINE: u64 = 1 << 16;
/// Steps, at most, when the last instruction is looked for.
const MOST_STEPS: usize = 100_000;
const EXECUTABLE: u8 = 4;

/// What was changed, and where.
#[derive(Clone, Debug)]
pub struct Course {
    /// Where it leaves the recording.
    base: Moment,
    changes: Vec<(Moment, Request)>,
    /// The changes as the user wrote them.
    words: Vec<String>,
}

/// A moment that can be gone back to: of the recording, or of an altered run.
#[derive(Clone, Debug)]
pub struct Mark {
    pub moment: Moment,
    course: Option<Course>,
}

impl Mark {
    pub fn is_altered(&self) -> bool {
        self.course.is_some()
    }
}

/// An altered run.
pub struct Altered {
    pub held: Held,
    course: Course,
    /// gdb has been told of its end.
    told: bool,
}

impl Altered {
    pub fn live(&self) -> &Live {
        self.held.live()
    }

    pub fn place(&self) -> &Place {
        self.held.place()
    }

    /// The changes as the user wrote them.
    pub fn words(&self) -> &[String] {
        &self.course.words
    }

    /// Changes something here, and remembers it.
    pub fn change(&mut self, change: Request) -> Result<(), Error> {
        let here = self.place().moment;
        self.held.change(&change).map_err(failed)?;
        self.course.changes.push((here, change));
        Ok(())
    }

    /// Notes what the user wrote.
    pub fn note(&mut self, words: String) {
        self.course.words.push(words);
    }

    /// A copy in which the user has changed something becomes the run.
    pub fn adopt(&mut self, copy: Copy) -> bool {
        let here = self.place().moment;
        let Some((held, changes)) = copy.into_altered() else { return false };
        self.held = held;
        self.course.words.push(format!("values set at {here}"));
        self.course.changes.extend(changes.into_iter().map(|change| (here, change)));
        true
    }
}

impl Course {
    /// An altered run that takes this course to a moment, begun at `from` in the recording; `each` is shown every stretch
    /// that it runs over.
    fn take(
        &self,
        session: &mut Session,
        from: Moment,
        to: Moment,
        each: &mut dyn FnMut(&mut Held, Moment) -> Result<(), session::Error>,
    ) -> Result<Held, Error> {
        let mut held = session.hold(from, LIMITS).map_err(failed)?;
        for (moment, change) in &self.changes {
            each(&mut held, *moment).map_err(failed)?;
            held.change(change).map_err(failed)?;
        }
        each(&mut held, to).map_err(failed)?;
        // What it wrote on the way was told when it came there first.
        held.take_output();
        Ok(held)
    }
}

impl Recorded<'_> {
    /// The altered run, which begins here if there is none.
    pub(super) fn altered_here(&mut self) -> Result<&mut Altered, Error> {
        if self.altered.is_none() {
            if self.session.ended().is_some() {
                let advice = "go back first, with `monitor rollback N` or `monitor seek MOMENT`";
                return Err(Error::refused(format!("the recording is over here and nothing can be altered: {advice}")));
            }
            let base = self.session.moment();
            let held = self.session.hold(base, LIMITS).map_err(failed)?;
            let course = Course { base, changes: Vec::new(), words: Vec::new() };
            self.altered = Some(Altered { held, course, told: false });
        }
        self.altered.as_mut().ok_or_else(|| Error::refused("there is no altered run"))
    }

    /// The present moment, to come back to.
    pub(super) fn mark(&self) -> Mark {
        let course = self.altered.as_ref().map(|a| a.course.clone());
        Mark { moment: self.place().moment, course }
    }

    /// Goes back to a moment, in the altered run that it was of.
    pub(super) fn go_to_mark(&mut self, mark: &Mark, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        let altered = match &mark.course {
            None => {
                self.session.seek(mark.moment, interrupted).map_err(failed)?;
                None
            }
            Some(course) => {
                let held = course
                    .take(&mut self.session, course.base, mark.moment, &mut |held, to| held.run_to(to, interrupted))?;
                Some(Altered { held, course: course.clone(), told: false })
            }
        };
        self.altered = altered;
        self.moved();
        Ok(())
    }

    /// How often instructions were executed before the present moment: in all of the altered run, or in the recording.
    pub(super) fn count_before(&mut self, pcs: &[u64], interrupted: &mut dyn FnMut() -> bool) -> Result<u64, Error> {
        let Some(altered) = &self.altered else {
            return self.session.count_before(pcs, interrupted).map_err(failed);
        };
        let (course, to) = (altered.course.clone(), altered.place().moment);
        let start = self.session.start_moment();
        let mut count = 0;
        course.take(&mut self.session, start, to, &mut |held, to| {
            let from = held.place().moment;
            if from == to {
                return Ok(());
            }
            held.set_stops(pcs, &[])?;
            // The instruction at which a run begins does not count there.
            count += u64::from(pcs.contains(&from.pc));
            let until = Until { moment: Some(to), collect: true, ..Until::default() };
            if let HeldStop::Stopped { collected, .. } = held.run(until, interrupted)? {
                count += collected.breakpoints;
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// Moves the altered run. If its process is lost, the recording takes its place again.
    pub(super) fn resume_altered(
        &mut self,
        direction: Direction,
        how: Resume,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, Error> {
        if !self.accesses.is_empty() {
            return Err(Error::refused("rwatch and awatch do not work in an altered run: delete them, or use watch"));
        }
        let moved = match (direction, how) {
            (Direction::Forward, Resume::Continue) => self.run_on(&[], interrupted),
            (Direction::Forward, Resume::Step { thread }) => {
                let number = self.number(thread)?;
                self.step_altered(number, interrupted)
            }
            (Direction::Forward, Resume::RangeStep { thread, start, end }) => {
                self.step_out_altered(thread, start..end, interrupted)
            }
            (Direction::Backward, Resume::Continue) => self.run_back(interrupted),
            (Direction::Backward, _) => self.step_back_altered(interrupted),
        };
        match moved {
            Err(Error::Lost(why)) => {
                self.altered = None;
                self.moved();
                let _ = writeln!(self.remarks, "The altered run is lost ({why}). This is the recording again.");
                Ok(Stop::Step)
            }
            other => other,
        }
    }

    /// Back to the last breakpoint in the altered run, or to where it left the recording. Watched values are not looked at.
    fn run_back(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stop, Error> {
        let Some(altered) = &self.altered else { return Ok(Stop::HistoryStart) };
        let (course, here) = (altered.course.clone(), altered.place().moment);
        let breakpoints = self.breakpoints.clone();
        let mut last = None;
        course.take(&mut self.session, course.base, here, &mut |held, to| {
            let from = held.place().moment;
            // The breakpoint at which a stretch begins does not count there.
            if breakpoints.contains(&from.pc) && from < here {
                last = Some(from);
            }
            if from == to {
                return Ok(());
            }
            held.set_stops(&breakpoints, &[])?;
            let until = Until { moment: Some(to), collect: true, ..Until::default() };
            if let HeldStop::Stopped { collected, .. } = held.run(until, interrupted)? {
                last = collected.last_breakpoint.map(|p| p.moment).or(last);
            }
            Ok(())
        })?;
        self.go_back_to(&course, last.unwrap_or(course.base), interrupted)?;
        let thread = self.stopped_thread();
        Ok(if last.is_some() { Stop::Breakpoint { thread } } else { Stop::HistoryStart })
    }

    /// One instruction back.
    fn step_back_altered(&mut self, interrupted: &mut dyn FnMut() -> bool) -> Result<Stop, Error> {
        let Some(altered) = &self.altered else { return Ok(Stop::HistoryStart) };
        let course = altered.course.clone();
        match self.before_in_altered()? {
            Some(moment) => {
                self.go_back_to(&course, moment, interrupted)?;
                Ok(Stop::Step)
            }
            None => Ok(Stop::HistoryStart),
        }
    }

    /// Takes the course to an earlier moment; what was changed behind it is undone.
    fn go_back_to(
        &mut self,
        course: &Course,
        moment: Moment,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
        let changes = course.changes.iter().filter(|(at, _)| *at <= moment).cloned().collect();
        let course = Course { changes, ..course.clone() };
        let mark = Mark { moment, course: Some(course) };
        self.go_to_mark(&mark, interrupted)
    }

    /// One instruction of this thread.
    fn step_altered(&mut self, number: u32, interrupted: &mut dyn FnMut() -> bool) -> Result<Stop, Error> {
        let before = self.watched()?;
        let Some(altered) = &mut self.altered else { return Ok(Stop::Step) };
        if altered.place().thread != number {
            let until = Until { thread: Some(number), blind: true, ..Until::default() };
            if let HeldStop::Ended(end) = altered.held.run(until, interrupted).map_err(failed)? {
                return self.altered_stopped(HeldStop::Ended(end), &before);
            }
        }
        let stop = altered.held.step().map_err(failed)?;
        self.altered_stopped(stop, &before)
    }

    /// Steps until the thread is outside of the range.
    fn step_out_altered(
        &mut self,
        tid: u32,
        range: std::ops::Range<u64>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Stop, Error> {
        let number = self.number(tid)?;
        let mut steps = 0;
        loop {
            let stop = match steps < SLOW_STEPS {
                true => self.step_altered(number, interrupted)?,
                false => {
                    let mut code = vec![0; (range.end - range.start).min(LONGEST_LINE) as usize];
                    let n = self.read(range.start, &mut code)?;
                    self.run_on(&ranges::exits(&code[..n], &range), interrupted)?
                }
            };
            // Instructions whose ways out are not known are stepped over.
            steps = if steps < SLOW_STEPS { steps + 1 } else { SLOW_STEPS - 1 };
            let Place { moment, thread, .. } = *self.place();
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

    /// Forward to a breakpoint, a change, the end, or one of these places.
    fn run_on(&mut self, places: &[u64], interrupted: &mut dyn FnMut() -> bool) -> Result<Stop, Error> {
        let before = self.watched()?;
        let breakpoints: Vec<u64> = self.breakpoints.iter().chain(places).copied().chain(self.points.calls()).collect();
        let watches: Vec<(u64, u32)> = self.watches.iter().map(|w| (w.addr, w.len.min(1 << 16) as u32)).collect();
        let until = Until { single: !watches.is_empty(), ..Until::default() };
        loop {
            let Some(altered) = &mut self.altered else { return Ok(Stop::Step) };
            altered.held.set_stops(&breakpoints, &watches).map_err(failed)?;
            let stop = altered.held.run(until, interrupted).map_err(failed)?;
            let pc = altered.place().moment.pc;
            let at_breakpoint = matches!(stop, HeldStop::Stopped { why: Why::Breakpoint, .. });
            if at_breakpoint && !self.breakpoints.contains(&pc) {
                if places.contains(&pc) {
                    self.tell_output();
                    return Ok(Stop::Step);
                }
                let here = self.place().moment;
                if self.points.is_told(here) || !self.is_call_wanted(interrupted)? {
                    continue;
                }
                self.tell_output();
                return Ok(Stop::Step);
            }
            return self.altered_stopped(stop, &before);
        }
    }

    fn watched(&self) -> Result<Vec<Vec<u8>>, Error> {
        let Some(altered) = &self.altered else { return Ok(Vec::new()) };
        let read = |w: &gdb::Watch| {
            let mut bytes = vec![0; w.len.min(1 << 16) as usize];
            let n = read_from(altered.live(), GuestAddr(w.addr), &mut bytes).map_err(failed)?;
            bytes.truncate(n);
            Ok(bytes)
        };
        self.watches.iter().map(read).collect()
    }

    /// What to tell gdb about where the altered run stopped.
    fn altered_stopped(&mut self, stop: HeldStop, before: &[Vec<u8>]) -> Result<Stop, Error> {
        self.tell_output();
        let thread = self.stopped_thread();
        let why = match stop {
            HeldStop::Stopped { why, .. } => why,
            HeldStop::Ended(end) => return self.altered_ended(&end, thread),
        };
        Ok(match why {
            Why::Breakpoint => Stop::Breakpoint { thread },
            Why::Interrupted => Stop::Interrupted,
            Why::Changed { .. } => {
                let now = self.watched()?;
                let changed = self.watches.iter().zip(now.iter().zip(before)).find(|(_, (now, old))| now != old);
                changed.map_or(Stop::Step, |(w, _)| Stop::Watch { thread, addr: w.addr, kind: WatchKind::Write })
            }
            Why::Reached | Why::Passed | Why::End(_) => Stop::Step,
        })
    }

    fn altered_ended(&mut self, end: &TrialEnd, thread: u32) -> Result<Stop, Error> {
        let told = self.altered.as_mut().is_some_and(|a| std::mem::replace(&mut a.told, true));
        if !told {
            let how = self.how_it_ended(end);
            let _ = writeln!(self.remarks, "The altered run {how}.");
            self.tell_previous();
        }
        Ok(match end {
            TrialEnd::Signaled { signal, .. } if !told => Stop::Signal { thread, signo: *signal as u8 },
            _ => Stop::HistoryEnd,
        })
    }

    fn how_it_ended(&self, end: &TrialEnd) -> String {
        match end {
            TrialEnd::Exited(status) => format!("exited with status {status}"),
            TrialEnd::Signaled { signal, moment, .. } => {
                let name = session::signal_name(*signal as i32);
                format!("died of {name} at {}", self.describe(moment.pc))
            }
            TrialEnd::RanAway => "ran away".into(),
            TrialEnd::Deadlocked => "is deadlocked: all its threads wait for each other".into(),
            TrialEnd::Waits(what) => format!("waits for something from outside: {what}"),
            TrialEnd::OutOfMemory => "uses more memory than it may have".into(),
            TrialEnd::Lost(what) => format!("cannot go on, because its world has no answer: {what}"),
        }
    }

    /// Shows what the altered run has written.
    fn tell_output(&mut self) {
        let Some(altered) = &mut self.altered else { return };
        for (stream, bytes) in altered.held.take_output() {
            let name = if stream == 2 { "stderr" } else { "stdout" };
            for line in String::from_utf8_lossy(&bytes).lines() {
                let shown: String = line.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
                let _ = writeln!(self.remarks, "{name}: {shown}");
            }
        }
    }

    /// The guest died where no code is: says what it executed before that.
    pub(super) fn tell_previous(&mut self) {
        let pc = self.place().moment.pc;
        let maps = self.altered.as_ref().map_or_else(|| self.session.maps(), |a| a.held.maps()).unwrap_or_default();
        if maps.iter().any(|m| m.prot & EXECUTABLE != 0 && (m.start..m.end).contains(&pc)) {
            return;
        }
        let previous = match &self.altered {
            None => self.session.previous(&mut || false).ok().flatten().map(|place| place.moment.pc),
            Some(_) => self.before_in_altered().ok().flatten().map(|moment| moment.pc),
        };
        if let Some(before) = previous {
            let place = self.describe(before);
            let _ = writeln!(
                self.remarks,
                "The program counter {pc:#x} is no code. The instruction before was at {before:#x}, {place}."
            );
        }
    }

    /// The moment of the last instruction that the altered run executed, if it has executed any.
    fn before_in_altered(&mut self) -> Result<Option<Moment>, Error> {
        let Some(altered) = &self.altered else { return Ok(None) };
        let (course, here) = (altered.course.clone(), altered.place().moment);
        // Few instructions are executed within a tick, but some ticks are the engine's alone.
        for ticks in [1, 64, u64::MAX] {
            let near = Moment { tick: here.tick.saturating_sub(ticks), pc: 0 };
            if let Some(found) = self.last_step(&course, near, here)? {
                return Ok(Some(found));
            }
            if near <= course.base {
                break;
            }
        }
        Ok(None)
    }

    /// The last moment before `here` that single steps from `near` lead over.
    fn last_step(&mut self, course: &Course, near: Moment, here: Moment) -> Result<Option<Moment>, Error> {
        let mut before = course.clone();
        before.changes.retain(|(moment, _)| *moment < near);
        let begin = near.max(course.base);
        let mut held =
            before.take(&mut self.session, course.base, begin, &mut |held, to| held.run_to(to, &mut || false))?;
        let mut rest = course.changes.iter().filter(|(moment, _)| *moment >= near).peekable();
        let mut last = None;
        for _ in 0..MOST_STEPS {
            let at = held.place().moment;
            while let Some((_, change)) = rest.next_if(|(moment, _)| *moment == at) {
                held.change(change).map_err(failed)?;
            }
            if at >= here {
                break;
            }
            last = Some(at);
            if let HeldStop::Ended(_) = held.step().map_err(failed)? {
                break;
            }
        }
        Ok(last)
    }
}
