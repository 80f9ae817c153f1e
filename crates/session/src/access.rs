//! Watchpoints that ask for accesses: who reads or writes these bytes, whether they change or not.
//!
//! A stretch is run over as usual, then traced by a copy of the engine; the first access in it (backward: the last) is
//! known by its instruction and how often that was executed in the stretch, and gone to. So a run with such watchpoints
//! takes as long as tracing it does, in stretches that grow.
//!
//! May miss: accesses of the kernel for the guest (a `read` into watched bytes is seen as a change, not as an access), and
//! those that an instruction makes only under a condition that the trace does not hold count as made.

use crate::error::Error;
use crate::launch::Traces;
use crate::live::Live;
use crate::timeline::{Session, Stopped, equip, run, step, where_is};
use crate::window::trace_on;
use model::serve::{Moment, Until, Why};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use trace::event::{Event, Mem};

/// Ticks of the first stretch that is traced, and of the longest.
const STRETCH: u64 = 100_000;
const LONGEST: u64 = 20_000_000;

/// Bytes whose accesses are to be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub addr: u64,
    pub len: u32,
    pub read: bool,
    pub write: bool,
}

impl Access {
    fn is_made_by(&self, m: &Mem) -> bool {
        let (start, len) = m.range();
        let meets = start < self.addr.saturating_add(self.len.into()) && self.addr < start.saturating_add(len.max(1));
        meets && (self.read && m.read || self.write && m.write)
    }
}

/// An execution of an instruction that accessed watched bytes: the n-th of it in its stretch, from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Hit {
    pc: u64,
    execution: u64,
    /// Which of the watched stretches it was.
    index: usize,
}

/// What is listened for in a trace.
#[derive(Clone, Default)]
pub(crate) struct Listening {
    pub accesses: Vec<Access>,
    /// Executions of these instructions, by this thread if one is named.
    pub writers: HashSet<u64>,
    pub tid: Option<u32>,
}

/// What was heard of it.
#[derive(Default)]
pub(crate) struct Heard {
    /// How often each instruction was executed.
    pub executed: HashMap<u64, u64>,
    pc: u64,
    pub first: Option<Hit>,
    pub last: Option<Hit>,
}

impl Heard {
    fn event(&mut self, event: &Event, wanted: &Listening) {
        match event {
            Event::Insn(i) => {
                self.pc = i.pc;
                *self.executed.entry(i.pc).or_default() += 1;
                if wanted.writers.contains(&i.pc) && wanted.tid.is_none_or(|tid| tid == i.thread) {
                    self.hit(0);
                }
            }
            Event::RepPart(i) => self.pc = i.pc,
            Event::Mem(m) => {
                if let Some(index) = wanted.accesses.iter().position(|a| a.is_made_by(m)) {
                    self.hit(index);
                }
            }
            Event::Special(_) => {}
        }
    }

    /// The present execution is one that was wanted.
    fn hit(&mut self, index: usize) {
        let execution = self.executed.get(&self.pc).copied().unwrap_or(0).max(1);
        let hit = Hit { pc: self.pc, execution, index };
        self.first = self.first.or(Some(hit));
        self.last = Some(hit);
    }
}

impl Listening {
    /// Traces from where an engine stands to a moment; the engine stays there.
    pub fn hear(self, live: &Live, to: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<Heard, Error> {
        let heard = Arc::new(Mutex::new(Heard::default()));
        let (sink, wanted) = (heard.clone(), Arc::new(self));
        let make = Box::new(move |_pid: u32| {
            let (sink, wanted) = (sink.clone(), wanted.clone());
            Box::new(move |event: &Event| {
                sink.lock().unwrap_or_else(PoisonError::into_inner).event(event, &wanted);
            }) as Box<dyn trace::event::Sink + Send>
        });
        let scout = live.fork()?;
        trace_on(&scout, to, Traces::Events(make), interrupted)?;
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *heard))
    }
}

/// The end of the next stretch forward, and how long the one behind it is to be.
pub(crate) fn next_stretch(from: Moment, limit: Option<Moment>, length: u64) -> (Moment, u64) {
    let length = length.clamp(STRETCH, LONGEST);
    let end = Moment { tick: from.tick.saturating_add(length), pc: 0 };
    (limit.map_or(end, |l| l.min(end)), length * 2)
}

impl Session {
    /// Watched accesses from now on.
    pub fn set_accesses(&mut self, list: &[Access]) {
        self.accesses = list.to_vec();
    }

    /// Goes to the first access between a moment, at which `live` stands, and another one; the session then stands behind
    /// the instruction. `None` if there is none.
    pub(crate) fn first_access(
        &mut self,
        live: &Live,
        to: Moment,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Stopped>, Error> {
        let Some(hit) = self.hear(live, to, interrupted)?.first else { return Ok(None) };
        let engine = live.fork()?;
        if !go_to(&engine, hit, interrupted)? {
            return Ok(None);
        }
        let (why, place) = step(&engine)?;
        self.settle(engine, place, &why);
        Ok(Some(Stopped::Accessed(hit.index)))
    }

    /// Goes to the last access in a stretch; the session then stands before the instruction.
    pub(crate) fn last_access(
        &mut self,
        floor: Moment,
        from: Moment,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Stopped>, Error> {
        let (mut high, mut stretch) = (from, STRETCH);
        while high > floor {
            let low = floor.max(Moment { tick: high.tick.saturating_sub(stretch), pc: 0 });
            let live = self.copy_at(low, interrupted)?;
            if let Some(hit) = self.hear(&live, high, interrupted)?.last
                && go_to(&live, hit, interrupted)?
            {
                let place = where_is(&live)?;
                self.settle(live, place, &Why::Reached);
                return Ok(Some(Stopped::Accessed(hit.index)));
            }
            if interrupted() {
                return Ok(Some(Stopped::Interrupted));
            }
            (high, stretch) = (low, (stretch * 2).min(LONGEST));
        }
        Ok(None)
    }

    /// Was there an access between here and a moment?
    pub(crate) fn accessed_before(
        &mut self,
        to: Moment,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Stopped>, Error> {
        let heard = self.hear(&self.now, to, interrupted)?;
        Ok(heard.last.map(|hit| Stopped::Accessed(hit.index)))
    }

    fn hear(&self, live: &Live, to: Moment, interrupted: &mut dyn FnMut() -> bool) -> Result<Heard, Error> {
        Listening { accesses: self.accesses.clone(), ..Listening::default() }.hear(live, to, interrupted)
    }
}

/// Runs an engine to the execution that was found; `false` if it does not come there.
pub(crate) fn go_to(live: &Live, hit: Hit, interrupted: &mut dyn FnMut() -> bool) -> Result<bool, Error> {
    let here = where_is(live)?.moment.pc == hit.pc;
    // The instruction at which a run begins does not count.
    let Some(skip) = (hit.execution - 1).checked_sub(here.into()) else { return Ok(true) };
    equip(live, &[hit.pc], &[])?;
    let (why, ..) = run(live, Until { skip, ..Until::default() }, interrupted)?;
    Ok(why == Why::Breakpoint)
}
