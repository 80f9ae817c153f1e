//! The nearest lines of a slice that is still being followed, for whoever should not wait for all of it.
//!
//! A slice is followed back in time, but lines are listed by distance, and what is near may have been made long ago: no line's
//! place is final before the end. So the page is a note of its own, on standard error, once, when some time has passed; the
//! listing on standard output is the same with and without it. It is shown on terminals, or where `--nearest-after` asks.
//!
//! May miss: before the first window has been traced there is nothing to show, however long that takes; of slices with
//! nodes, library code is not shown as the calls that led there.

use super::lines::{self, Line, Lines, Origins, Ran, Sources};
use super::show::{groups, times};
use crate::cli::Slice as Options;
use crate::message::{self, Paint};
use slice::{Site, Slice};
use std::collections::HashSet;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Lines of a page.
const LINES: usize = 20;
/// When somebody on a terminal begins to wonder.
const PATIENCE: Duration = Duration::from_secs(1);
/// Where nothing was found yet, it is looked again after this time.
const AGAIN: Duration = Duration::from_millis(250);

/// A page that will be shown unless the slice is there before.
pub struct Page {
    begun: Instant,
    /// When it is to be shown; nothing if it was, or never will be.
    due: Option<Instant>,
    /// What is to be shown then, if what it is made of is gone by that time.
    text: String,
    /// Nothing of interest had been found; before this time it is not looked again.
    again: Option<Instant>,
    /// The instruction that crashed, once it is known.
    pub died: Option<u64>,
    libs: bool,
    on_terminal: bool,
    paint: Paint,
}

impl Page {
    pub fn new(options: &Options, paint: Paint, on_terminal: bool) -> Page {
        let begun = Instant::now();
        let lists = !(options.quiet || options.json || options.dot || options.path.is_some());
        let after = options.nearest_after.or(on_terminal.then_some(PATIENCE)).filter(|_| lists);
        let due = after.map(|after| begun + after);
        Page { begun, due, text: String::new(), again: None, died: None, libs: options.libs, on_terminal, paint }
    }

    /// Will it still be shown?
    pub fn is_waiting(&self) -> bool {
        self.due.is_some()
    }

    /// Is it time to make it, or to look again whether it can be made?
    pub fn is_due(&self) -> bool {
        let now = Instant::now();
        self.due.is_some_and(|due| now >= due) && self.again.is_none_or(|again| now >= again)
    }

    /// Makes the page from what was found so far.
    pub fn prepare(&mut self, sites: Vec<Site>, origins: &mut Origins<'_>, sources: &mut Sources) {
        let slice = Slice { sites, ..Slice::default() };
        let Lines { list, .. } = lines::gather_ran(
            &Ran::default(),
            &slice,
            &HashSet::new(),
            self.died,
            origins,
            (&mut |_, _, _| None, self.libs),
        );
        self.text = text(&list, sources, self.paint);
        self.again = self.text.is_empty().then(|| Instant::now() + AGAIN);
    }

    /// Shows the page if it is time and there is one.
    pub fn show(&mut self) {
        if self.text.is_empty() || !self.is_due() {
            return;
        }
        self.due = None;
        let clear = if self.on_terminal { "\r\x1b[K" } else { "" };
        let seconds = self.begun.elapsed().as_secs_f64();
        let text = std::mem::take(&mut self.text);
        message::stderr(&format!(
            "{clear}clew: the nearest lines so far ({seconds:.1} s); the slice goes on, Ctrl-C shows what there is\n{text}\n"
        ));
    }
}

/// The first lines by function, with how often they were found so far.
fn text(list: &[Line], sources: &mut Sources, paint: Paint) -> String {
    let mut out = String::new();
    for (title, lines) in groups(&list[..LINES.min(list.len())]) {
        let _ = writeln!(out, "\n{}", paint.strong(&title));
        for line in lines {
            let text = sources.text(&line.origin).unwrap_or_default();
            let _ = writeln!(out, "  {:>6}  {:>10}  {text}", line.place(), times(line.instances, 0));
        }
    }
    out
}
