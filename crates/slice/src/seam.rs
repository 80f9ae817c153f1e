//! What goes over the seam between two windows: decisions about code whose frame was there when a window began.
//!
//! Such code is decided by the last branch before the window, of the same frame, whose ways have not come together, or by
//! the call that made the frame. Which branch that is only the window before knows. The later one says which frame it is
//! (how many callers away from the one that ran at its beginning) and at which merge points the frame arrived meanwhile:
//! with these, the window before closes its branches as if it had gone on.
//!
//! Guarantee: the decider is the one that one long window finds, where branches are nested as merges of structured code are.
//! May miss: of a frame that arrives at more than [`MOST_MET`] merge points only the first ones are told, so that a branch
//! may decide longer than it should.

use std::collections::HashMap;
use std::hash::Hash;

use crate::facts::{Facts, Merge};
use crate::wants::{FastMap, FastSet};
use crate::window::{BEFORE, NOTHING, Window};

/// Merge points of one frame that are told to the window before.
const MOST_MET: usize = 512;

/// A frame that was there when the window began: its thread, and how many callers it is away from the one that ran there.
pub(crate) type OldFrame = (u32, u32);

/// Something was decided before the window, in a frame that had arrived at so many merge points since its beginning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Earlier {
    pub frame: OldFrame,
    pub met: u32,
}

/// All that a window says about decisions before it.
#[derive(Default)]
pub(crate) struct Earliers {
    /// By number behind [`BEFORE`].
    list: Vec<Earlier>,
    /// Merge points at which old frames arrived while no branch of theirs in the window was open, in order.
    met: HashMap<OldFrame, Vec<u64>>,
}

impl Earliers {
    /// What a parent from [`BEFORE`] on stands for.
    pub fn of(&self, parent: u32) -> Option<Earlier> {
        self.list.get(parent.checked_sub(BEFORE)? as usize).copied()
    }

    /// How parents name it; nothing if there are no more names.
    fn add(&mut self, earlier: Earlier) -> Option<u32> {
        let number = u32::try_from(self.list.len()).ok().filter(|n| *n < NOTHING - BEFORE)?;
        self.list.push(earlier);
        Some(BEFORE + number)
    }

    fn met(&self, frame: OldFrame) -> &[u64] {
        self.met.get(&frame).map_or(&[], Vec::as_slice)
    }
}

/// The frame that is the first one of a thread now, on the way through a window.
#[derive(Default)]
pub(crate) struct First {
    frame: OldFrame,
    /// How parents name what decides about it from before the window.
    pub parent: u32,
    met: FastSet<u64>,
}

impl First {
    pub fn new(thread: u32, earliers: &mut Earliers) -> First {
        let mut first = First { frame: (thread, 0), parent: NOTHING, met: FastSet::default() };
        first.rename(earliers);
        first
    }

    fn rename(&mut self, earliers: &mut Earliers) {
        let met = earliers.met(self.frame).len() as u32;
        self.parent = earliers.add(Earlier { frame: self.frame, met }).unwrap_or(self.parent);
    }

    pub fn callers(&self) -> u32 {
        self.frame.1
    }

    /// It is left: its caller is the first one.
    pub fn leave(&mut self, earliers: &mut Earliers) {
        self.frame.1 += 1;
        self.met.clear();
        self.rename(earliers);
    }

    /// It has arrived somewhere, with no branch open in the window.
    pub fn arrive(&mut self, pc: u64, earliers: &mut Earliers, facts: &mut dyn Facts) {
        if self.met.len() >= MOST_MET || !self.met.insert(pc) {
            return;
        }
        if facts.is_merge_point(pc) {
            earliers.met.entry(self.frame).or_default().push(pc);
            self.rename(earliers);
        }
    }
}

/// One frame at the end of a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndFrame {
    /// Branches whose ways have not come together, the outermost first.
    pub open: Vec<(u32, Merge)>,
    /// The segment that made the frame, or what decided before the window.
    pub made_by: u32,
}

/// What decides about a thread at the end of a window.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtEnd {
    /// The frame that runs, its caller, and so on to one that was there at the window's beginning.
    pub frames: Vec<EndFrame>,
    /// How many callers that one is away from the frame that ran at the beginning.
    pub left: u32,
}

/// Who decided at the end of a window.
enum Decider {
    Nobody,
    Segment(u32),
    /// Somebody before this window, too; with the merge points at which the frame has arrived in all.
    Earlier(OldFrame, Vec<u64>),
}

/// Finds who decided, at the end of a window, about a frame that has arrived at these merge points since.
fn at_end(window: &Window, (thread, callers): OldFrame, met: &[u64]) -> Decider {
    let Some(AtEnd { frames, left }) = window.at_end.get(&thread) else {
        return Decider::Earlier((thread, callers), met.to_vec());
    };
    let Some(frame) = frames.get(callers as usize) else {
        let farther = callers - frames.len() as u32 + left + 1;
        return Decider::Earlier((thread, farther), met.to_vec());
    };
    let mut open = &frame.open[..];
    let mut rest = met;
    while let ([outer @ .., (_, merge)], [pc, later @ ..]) = (open, rest) {
        match *merge == Merge::At(*pc) {
            true => open = outer,
            false => rest = later,
        }
    }
    match (open.last(), frame.made_by) {
        (Some((segment, _)), _) => Decider::Segment(*segment),
        (None, NOTHING) => Decider::Nobody,
        (None, BEFORE..) => {
            let first = (thread, *left);
            let mut all = window.earliers.met(first).to_vec();
            let known: FastSet<u64> = all.iter().copied().collect();
            all.extend(rest.iter().filter(|pc| !known.contains(pc)));
            Decider::Earlier(first, all)
        }
        (None, segment) => Decider::Segment(segment),
    }
}

/// What waits for the window before, by what it says about who decided.
pub(crate) struct Waiting<T> {
    list: FastMap<Earlier, T>,
    /// Merge points at which frames have arrived, of which each of the list knows the first ones.
    met: FastMap<OldFrame, Vec<u64>>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Waiting<T> {
        Waiting { list: FastMap::default(), met: FastMap::default() }
    }
}

impl<T> Waiting<T> {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Something waits; `join` takes it into what waits for the same.
    pub fn add(&mut self, earlier: Earlier, new: T, join: impl FnOnce(&mut T, T)) {
        match self.list.get_mut(&earlier) {
            Some(old) => join(old, new),
            None => drop(self.list.insert(earlier, new)),
        }
    }

    /// A window is left for the one before.
    pub fn leave(&mut self, window: &Window) {
        for (frame, met) in &window.earliers.met {
            let known = self.met.entry(*frame).or_default();
            if known.len() < met.len() {
                known.clone_from(met);
            }
        }
    }

    /// Comes to a window from the one behind it: gives what waited for segments of this one, in no order.
    pub fn enter(&mut self, window: &Window, mut join: impl FnMut(&mut T, T)) -> Vec<(u32, T)> {
        let (waited, lists) = (std::mem::take(&mut self.list), std::mem::take(&mut self.met));
        let mut found = Vec::new();
        for (Earlier { frame, met }, value) in waited {
            let list = lists.get(&frame).map_or(&[][..], |l| &l[..(met as usize).min(l.len())]);
            match at_end(window, frame, list) {
                Decider::Nobody => {}
                Decider::Segment(segment) => found.push((segment, value)),
                Decider::Earlier(frame, all) => {
                    self.add(Earlier { frame, met: all.len() as u32 }, value, &mut join);
                    let known = self.met.entry(frame).or_default();
                    if known.len() < all.len() {
                        *known = all;
                    }
                }
            }
        }
        found
    }
}
