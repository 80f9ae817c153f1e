//! Which segments a backward walk wants the ends of: the branches and calls that decided about what is in the slice.
//!
//! Segments are numbered in the order in which they ran, and the walk meets them from the last to the first. So the wanted
//! ones are kept in order, and the next one to be met is the last of the list; new ones belong near its end, since what
//! decides is seldom far back.

use crate::wants::Who;

/// The end of a segment is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decision {
    pub segment: u32,
    /// Who depends on it; `None` if it is only where library code is shown that it led to.
    pub who: Option<Who>,
    /// Steps from the criterion to the nearest library code that it led to; `u32::MAX` if there is none.
    pub shown: u32,
    /// It is wanted only for what it might have done.
    pub potential: bool,
}

#[derive(Default)]
pub struct Decisions {
    list: Vec<Decision>,
}

impl Decisions {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The wanted segment that ran last.
    #[inline(always)]
    pub fn last(&self) -> Option<u32> {
        self.list.last().map(|d| d.segment)
    }

    #[inline(always)]
    pub fn is_wanted(&self, segment: u32) -> bool {
        self.last() == Some(segment)
    }

    /// What is wanted of a segment, which no later one than it is. Forgets what was wanted of later ones: a string
    /// instruction that was stopped decides nothing.
    #[inline(always)]
    pub fn take(&mut self, segment: u32) -> Option<Decision> {
        loop {
            let last = self.list.last()?;
            if last.segment < segment {
                return None;
            }
            let taken = self.list.pop()?;
            if taken.segment == segment {
                return Some(taken);
            }
        }
    }

    /// Wants a segment; of two who do, the nearer one is kept.
    #[inline]
    pub fn want(&mut self, new: Decision) {
        let mut at = self.list.len();
        while at > 0 && self.list[at - 1].segment > new.segment {
            at -= 1;
        }
        match self.list[..at].last_mut().filter(|d| d.segment == new.segment) {
            Some(old) => old.merge(&new),
            None => self.list.insert(at, new),
        }
    }
}

impl Decision {
    pub fn merge(&mut self, new: &Decision) {
        self.shown = self.shown.min(new.shown);
        let nearer = |who: Who| self.who.is_none_or(|old| who.distance < old.distance);
        if new.who.is_some_and(nearer) {
            self.who = new.who;
        }
        // Who really decides is not only possible.
        self.potential &= new.potential;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(segment: u32, distance: u32) -> Decision {
        Decision { segment, who: Some(Who { node: 0, distance }), shown: u32::MAX, potential: false }
    }

    #[test]
    fn they_come_back_from_the_last_to_the_first() {
        let mut wanted = Decisions::default();
        for (segment, distance) in [(5, 1), (9, 2), (7, 3), (5, 4), (7, 2)] {
            wanted.want(decision(segment, distance));
        }
        assert_eq!(wanted.last(), Some(9));
        assert_eq!(wanted.take(8), None);
        assert_eq!(wanted.take(7), Some(decision(7, 2)));
        assert_eq!(wanted.take(6), None);
        assert_eq!(wanted.take(5), Some(decision(5, 1)));
        assert!(wanted.is_empty());
    }
}
