//! An altered run that the host stays with: stopped, asked, altered and let go on, in the world of a trial.
//!
//! It begins as a copy of a session at a moment, follows the log while that fits, and goes its own way behind. The same
//! alterations at the same moments lead to the same run, so a moment of it is found again by making them again.
//!
//! May miss: changes of watched bytes, unless every instruction is looked at (`Until::single`).

use crate::error::{Error, ErrorKind};
use crate::live::{Live, unexpected};
use crate::timeline::{Session, done, equip, maps_of, where_is};
use crate::trial::Piece;
use model::serve::{Answer, Collected, MapInfo, Moment, Place, Request, TrialEnd, TrialLimits, Until, Why};
use std::io;

/// Where and why an altered run stands still.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HeldStop {
    Stopped { why: Why, collected: Collected },
    Ended(TrialEnd),
}

/// An altered run.
pub struct Held {
    live: Live,
    place: Place,
    /// How it ended, if it has.
    ended: Option<TrialEnd>,
    /// What it has written since somebody asked.
    output: Vec<Piece>,
}

impl Session {
    /// An altered run that begins at a moment of the recording; nothing is altered yet.
    pub fn hold(&mut self, at: Moment, limits: TrialLimits) -> Result<Held, Error> {
        let live = self.copy_at(at, &mut || false)?;
        done(live.ask(&Request::Hold(limits))?)?;
        equip(&live, &[], &[])?;
        let place = where_is(&live)?;
        Ok(Held { live, place, ended: None, output: Vec::new() })
    }
}

impl Held {
    /// The engine, for questions.
    pub fn live(&self) -> &Live {
        &self.live
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn ended(&self) -> Option<&TrialEnd> {
        self.ended.as_ref()
    }

    /// What it has written since this was asked last.
    pub fn take_output(&mut self) -> Vec<Piece> {
        std::mem::take(&mut self.output)
    }

    pub fn maps(&self) -> Result<Vec<MapInfo>, Error> {
        maps_of(&self.live)
    }

    /// A copy. Files that the run has written to are shared between the two.
    pub fn copy(&self) -> Result<Held, Error> {
        let live = self.live.fork()?;
        Ok(Held { live, place: self.place.clone(), ended: self.ended.clone(), output: Vec::new() })
    }

    /// Changes something here: an alteration, memory or registers.
    pub fn change(&mut self, change: &Request) -> Result<(), Error> {
        done(self.live.ask(change)?)?;
        self.place = where_is(&self.live)?;
        Ok(())
    }

    /// Where it is to stop from now on: breakpoints and watched bytes.
    pub fn set_stops(&mut self, breakpoints: &[u64], watches: &[(u64, u32)]) -> Result<(), Error> {
        equip(&self.live, breakpoints, watches)
    }

    pub fn run(&mut self, until: Until, interrupted: &mut dyn FnMut() -> bool) -> Result<HeldStop, Error> {
        self.go(&Request::Run(until), interrupted)
    }

    /// One instruction of the thread that runs, or what happens instead of it.
    pub fn step(&mut self) -> Result<HeldStop, Error> {
        self.go(&Request::Step, &mut || false)
    }

    /// Runs to a moment that lies ahead.
    pub fn run_to(&mut self, moment: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        if self.place.moment == moment {
            return Ok(());
        }
        let until = Until { moment: Some(moment), blind: true, ..Until::default() };
        let text = match self.run(until, interrupted)? {
            HeldStop::Stopped { why: Why::Reached, .. } => return Ok(()),
            HeldStop::Ended(_) if self.place.moment == moment => return Ok(()),
            HeldStop::Stopped { why: Why::Interrupted, .. } => "interrupted".to_owned(),
            _ => format!("the altered run does not come to {moment} again"),
        };
        Err(Error::new(ErrorKind::Refused, io::Error::other(text)))
    }

    fn go(&mut self, request: &Request, interrupted: &mut dyn FnMut() -> bool) -> Result<HeldStop, Error> {
        self.live.send(request, None)?;
        let mut stopped = false;
        loop {
            let live = &self.live;
            let answer = live.answer(
                &mut || {
                    if !stopped && interrupted() {
                        stopped = true;
                        // Any packet stops the guest; this one is answered as well.
                        return live.send(&Request::Where, None).is_err();
                    }
                    false
                },
                false,
            )?;
            let stop = match answer {
                Answer::Output { stream, bytes } => {
                    self.output.push((stream, bytes));
                    continue;
                }
                // Its child did what was recorded.
                Answer::Child(_) => continue,
                Answer::Stopped { why, place, collected } => {
                    self.place = place;
                    HeldStop::Stopped { why, collected }
                }
                Answer::Ended { end, .. } => {
                    self.ended = Some(end.clone());
                    HeldStop::Ended(end)
                }
                other => return Err(unexpected(&other)),
            };
            if stopped {
                self.live.answer(&mut || false, true)?;
            }
            if matches!(stop, HeldStop::Ended(_)) {
                self.place = where_is(&self.live)?;
            }
            return Ok(stop);
        }
    }
}
