//! Throw-away copies of the present moment, in which gdb writes and calls functions.
//!
//! A copy of the recording leaves the log: functions can be called in it as long as they only compute. A copy of an
//! altered run goes on in the same world as the run itself, and can take its place when the user has changed something.

use super::adapter::{Recorded, failed};
use super::altered::Altered;
use gdb::{Debuggee, Error, Resume, Stop};
use model::serve::{Answer, Request, TrialEnd, Until, Why};
use model::wire::Replayed;
use session::{Held, HeldStop, Live, Session};

/// A throw-away copy of the present moment.
pub struct Copy {
    world: World,
    /// The thread, by number, that runs in it.
    thread: u32,
    /// What was written to it.
    changes: Vec<Request>,
}

enum World {
    /// Whether it has left the log.
    Recorded(Live, bool),
    Altered(Held),
}

impl Copy {
    pub fn of_recorded(session: &Session) -> Result<Copy, session::Error> {
        let world = World::Recorded(session.copy()?, false);
        Ok(Copy { world, thread: session.place().thread, changes: Vec::new() })
    }

    pub fn of_altered(altered: &Altered) -> Result<Copy, session::Error> {
        let world = World::Altered(altered.held.copy()?);
        Ok(Copy { world, thread: altered.place().thread, changes: Vec::new() })
    }

    pub fn live(&self) -> &Live {
        match &self.world {
            World::Recorded(live, _) => live,
            World::Altered(held) => held.live(),
        }
    }

    pub fn thread(&self) -> u32 {
        self.thread
    }

    /// This thread is the one that goes on, if none has yet. In an altered run that is decided there.
    pub fn runs(&mut self, thread: u32) {
        if let World::Recorded(_, false) = self.world {
            self.thread = thread;
        }
    }

    pub fn change(&mut self, change: Request) -> Result<(), Error> {
        match &mut self.world {
            World::Recorded(live, _) => done(live.ask(&change))?,
            World::Altered(held) => held.change(&change).map_err(failed)?,
        }
        self.changes.push(change);
        Ok(())
    }

    /// The altered run that this copy has become, and what was changed in it.
    pub fn into_altered(self) -> Option<(Held, Vec<Request>)> {
        match self.world {
            World::Recorded(..) => None,
            World::Altered(held) => Some((held, self.changes)),
        }
    }

    /// Goes on by one instruction, or to a breakpoint. Gives why it stopped, and where.
    fn go(&mut self, step: bool, interrupted: &mut dyn FnMut() -> bool) -> Result<(Why, u64), Error> {
        let request = if step { Request::Step } else { Request::Run(Until::default()) };
        match &mut self.world {
            World::Recorded(live, _) => match live.ask_long(&request, interrupted).map_err(failed)? {
                Answer::Stopped { why, place, .. } => Ok((why, place.moment.pc)),
                other => Err(unexpected(&other)),
            },
            World::Altered(held) => {
                let stop = if step { held.step() } else { held.run(Until::default(), interrupted) };
                let why = match stop.map_err(failed)? {
                    HeldStop::Stopped { why, .. } => why,
                    HeldStop::Ended(end) => Why::End(ended(&end)),
                };
                Ok((why, held.place().moment.pc))
            }
        }
    }

    /// Gets ready to run.
    fn prepare(&mut self, breakpoints: &[u64]) -> Result<(), Error> {
        match &mut self.world {
            World::Recorded(live, left) => {
                if !*left {
                    done(live.ask(&Request::Leave { thread: self.thread }))?;
                    *left = true;
                }
                done(live.ask(&Request::Breakpoints(breakpoints.to_vec())))?;
                done(live.ask(&Request::Watches(Vec::new())))
            }
            World::Altered(held) => held.set_stops(breakpoints, &[]).map_err(failed),
        }
    }
}

/// The end of an altered run in the words of a replay.
fn ended(end: &TrialEnd) -> Replayed {
    let (ending, status, difference) = match end {
        TrialEnd::Exited(status) => (0, *status, None),
        TrialEnd::Signaled { signal, .. } => (1, *signal, None),
        TrialEnd::Lost(why) | TrialEnd::Waits(why) => (3, 0, Some(why.clone())),
        TrialEnd::RanAway | TrialEnd::Deadlocked | TrialEnd::OutOfMemory => (3, 0, None),
    };
    Replayed { ending, status, difference, ..Replayed::default() }
}

impl Recorded<'_> {
    pub(super) fn run_copy(&mut self, how: Resume, interrupted: &mut dyn FnMut() -> bool) -> Result<Stop, Error> {
        let Some(copy) = &mut self.copy else { return Err(Error::refused("there is no copy")) };
        copy.prepare(&self.breakpoints)?;
        loop {
            let (why, pc) = copy.go(how != Resume::Continue, interrupted)?;
            match (why, &how) {
                (Why::Reached, Resume::RangeStep { start, end, .. }) if (*start..*end).contains(&pc) => {}
                (why, _) => return self.copy_stopped(why),
            }
            if interrupted() {
                return Ok(Stop::Interrupted);
            }
        }
    }

    fn copy_stopped(&mut self, why: Why) -> Result<Stop, Error> {
        let thread = self.stopped_thread();
        match why {
            Why::Breakpoint => Ok(Stop::Breakpoint { thread }),
            Why::Interrupted => Ok(Stop::Interrupted),
            Why::End(Replayed { difference: Some(what), .. }) => {
                let what = what.split(" (").next().unwrap_or_default();
                Err(Error::refused(format!(
                    "the called function cannot go on: {what}, which a recording cannot answer"
                )))
            }
            Why::End(replayed) if replayed.ending == 1 => Ok(Stop::Signal { thread, signo: replayed.status as u8 }),
            Why::End(_) => Ok(Stop::Exited(0)),
            Why::Reached | Why::Passed | Why::Changed { .. } => Ok(Stop::Step),
        }
    }
}

fn unexpected(answer: &Answer) -> Error {
    match answer {
        Answer::Refused(why) => Error::refused(why.clone()),
        other => Error::Lost(format!("the replaying engine answered {other:?}")),
    }
}

fn done(answer: Result<Answer, session::Error>) -> Result<(), Error> {
    match answer.map_err(failed)? {
        Answer::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}
