//! A backward slice of a run of any length, window by window from the criterion back.
//!
//! Only windows that the slice enters are traced, and one at a time is in memory, so that memory is bounded by the size of
//! a window and what is wanted at one time. Slices that keep nodes also keep where these are shown (`slice::places`), and
//! are cut at a number of nodes. A run of one small window keeps it: whoever asks for more need not trace again.
//! When time runs out, or the user does not want to wait, what was found so far is the answer, and it is said how far back
//! it goes.
//!
//! May miss: the frames with which a window begins are found by unwinding; where that fails, variables in them are not
//! named and potential dependences through their slots are not seen.

use super::Times;
use super::facts::Program;
use super::lines::{Origins, Ran, Sources};
use super::page::Page;
use super::tracing::{self, Traced};
use model::serve::Moment;
use recording::Recording;
use session::Session;
use slice::window::Builder;
use slice::{Backward, CallEffects, Criterion, Places, Prepare, Site, Slice, Window};
use std::cell::RefCell;
use std::time::Instant;

/// Bytes up to which a window is kept.
const KEPT: usize = 64 << 20;
/// Frames of each thread that are looked for at the beginning of a window.
const MOST_FRAMES: usize = 4096;

/// What is needed to trace and prepare further windows.
pub struct Windows<'a> {
    pub session: &'a mut Session,
    pub recording: &'a Recording,
    pub images: &'a image::Images,
    pub facts: &'a mut Program,
    pub calls: Vec<CallEffects>,
    pub how: Prepare,
    /// Where the run, or what may be traced of it, begins.
    pub start: Moment,
    /// Millions of instructions in a window.
    pub millions: u64,
    /// Whose code is whose: library code is shown where it was called from, unless `libs` are asked for.
    pub origins: Origins<'a>,
    pub libs: bool,
    /// Tells how far it is.
    pub say: &'a dyn Fn(&str),
    /// What is shown before all of it is there, if this slice is the one that it is shown of, and where sources are.
    pub page: Option<(&'a RefCell<Page>, Sources)>,
    /// What tracing and preparing took.
    pub times: &'a mut Times,
}

/// A slice of several windows.
pub struct Followed {
    pub slice: Slice,
    /// Where its nodes are shown, if it has any.
    pub places: Places,
    /// The window, if it is small and the only one that there is.
    pub window: Option<Window>,
    pub ran: Ran,
    /// Bytes of memory that the largest window took.
    pub memory: usize,
    /// Time ran out before this moment was reached from the criterion.
    pub stopped: Option<Moment>,
}

impl Windows<'_> {
    /// Prepares what was traced.
    pub fn prepare(&mut self, traced: Traced, stop: &mut dyn FnMut() -> bool) -> Result<(Window, Moment), String> {
        let begun = Instant::now();
        let Traced { mut builder, from, .. } = traced;
        if self.how.frames && from > self.session.start_moment() {
            self.session.seek(from, stop).map_err(|e| e.to_string())?;
            self.note_frames(&mut builder)?;
        }
        // Calls before a window, or before a fork, must not be taken for those in it.
        let in_window = |c: &&CallEffects| c.tick >= from.tick;
        let calls = self.calls.iter().filter(in_window).cloned().collect();
        let window = builder.finish(self.facts, calls, self.how);
        self.times.prepare += begun.elapsed();
        Ok((window, from))
    }

    /// Notes where the frames lie with which each thread begins, where the session stands.
    fn note_frames(&self, builder: &mut Builder) -> Result<(), String> {
        for thread in self.session.threads().map_err(|e| e.to_string())? {
            let scene = self.session.scene(self.recording, self.images, thread.number);
            let frames = image::backtrace(&scene.map_err(|e| e.to_string())?, MOST_FRAMES).frames;
            // The return address lies below where the stack pointer was before the call.
            let real = frames.iter().take_while(|f| f.origin != image::Origin::Guess).filter(|f| !f.trampoline);
            let slots = real.map_while(|f| f.cfa).map(|cfa| cfa.0.saturating_sub(8)).collect();
            builder.begins_with(thread.tid, slots);
        }
        Ok(())
    }

    /// Traces all that comes before a moment for the targets of its indirect jumps. Without these the code of a function
    /// is not all known, nor then what its branches might have done.
    fn learn_jumps(&mut self, before: Moment, stop: &mut dyn FnMut() -> bool) -> Result<(), String> {
        let begun = Instant::now();
        let mut from = before;
        while from > self.start && !stop() {
            let traced = match tracing::trace(self.session, Some(self.start), from, self.millions, stop) {
                Ok(traced) => traced,
                Err(_) if stop() => break,
                Err(why) => return Err(why),
            };
            traced.builder.tell_jumps(self.facts);
            from = traced.from;
        }
        self.times.trace += begun.elapsed();
        Ok(())
    }

    /// Goes through a window, and shows a page on the way if that takes long.
    fn walk(&mut self, backward: &mut Backward<'_>, window: &Window, stop: &mut dyn FnMut() -> bool) {
        let (page, origins) = (&mut self.page, &mut self.origins);
        backward.walk_watched(window, self.facts, &mut |so_far| {
            if let Some((page, sources)) = page
                && page.borrow().is_due()
            {
                page.borrow_mut().prepare(so_far.sites(), origins, sources);
            }
            stop()
        });
    }

    /// Makes a page of what was found, to be shown while other things are done.
    fn prepare_page(&mut self, sites: &dyn Fn() -> Vec<Site>) {
        if let Some((page, sources)) = &mut self.page
            && page.borrow().is_waiting()
        {
            page.borrow_mut().prepare(sites(), &mut self.origins, sources);
        }
    }

    /// Slices from the end of the window that was traced first.
    pub fn follow(
        &mut self,
        traced: Traced,
        criterion: &Criterion,
        options: &slice::Options,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Followed, String> {
        if options.relevant {
            self.learn_jumps(traced.from, stop)?;
        }
        let mut backward = Backward::new(criterion, options);
        let mut places = Places::default();
        let (mut window, mut from) = self.prepare(traced, stop)?;
        let is_whole = from <= self.start;
        let (mut ran, mut memory) = (Ran::default(), 0);
        let (mut stopped, mut windows) = (None, 1);
        loop {
            if options.only_sites && !self.libs {
                window.mark_own(|pc| self.origins.is_own(pc));
            }
            self.walk(&mut backward, &window, stop);
            if !options.only_sites {
                places.add(&window, backward.nodes(), &mut |pc| self.libs || self.origins.is_own(pc));
            }
            ran.add(&window);
            memory = memory.max(window.bytes());
            let is_over = backward.is_cut() || backward.is_over() && !places.is_waiting();
            if is_over || from <= self.start {
                break;
            }
            windows += 1;
            self.prepare_page(&|| backward.sites());
            let size = backward.size();
            (self.say)(&format!(
                "tracing window {windows}, back from {from}; {size} instructions are in the slice so far"
            ));
            // The arrays of one window are as much as may be in memory.
            window = Window::default();
            let begun = Instant::now();
            let before = tracing::trace(self.session, Some(self.start), from, self.millions, stop);
            self.times.trace += begun.elapsed();
            match before.and_then(|traced| self.prepare(traced, stop)) {
                Ok(prepared) if !stop() => (window, from) = prepared,
                Err(why) if !stop() => return Err(why),
                _ => {
                    stopped = Some(from);
                    break;
                }
            }
        }
        self.prepare_page(&|| backward.sites());
        let mut slice = backward.finish();
        slice.cut |= stopped.is_some();
        let window = Some(window).filter(|w| is_whole && w.bytes() <= KEPT);
        Ok(Followed { slice, places, window, ran, memory, stopped })
    }
}
