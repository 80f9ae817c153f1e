//! Positions of all reads and writes, in the order in which they came back, and who wrote which byte.

use super::descriptors::{Followed, How, Thing};
use model::log::CallRecord;
use recording::UnitName;
use std::collections::HashMap;
use std::path::Path;

/// Transfers by the kernel that a byte is followed through.
const MOST_CARRIES: usize = 64;

/// A call that opened a file whose name the log does not have.
pub struct Unnamed {
    pub unit: UnitName,
    pub call: CallRecord,
}

/// The call that wrote a byte, and its place among the bytes of that call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Source {
    pub unit: UnitName,
    pub record: u64,
    pub offset: u64,
}

/// Bytes that came into a thing.
#[derive(Clone, Debug)]
struct Piece {
    start: u64,
    len: u64,
    /// Its turn among all calls.
    turn: usize,
    unit: UnitName,
    record: u64,
    /// The kernel took them from here.
    carried: Option<(Thing, u64)>,
}

/// Bytes that a call delivered.
struct Taken {
    thing: Thing,
    start: u64,
    len: u64,
    turn: usize,
}

/// Who put what where, and who took it.
#[derive(Default)]
pub struct Ledger {
    pieces: HashMap<Thing, Vec<Piece>>,
    taken: HashMap<(UnitName, u64), Taken>,
    /// What calls mapped.
    mapped: HashMap<(UnitName, u64), Taken>,
}

/// Where descriptions and queues are.
struct Positions {
    descriptions: Vec<u64>,
    /// Bytes of queues that were taken, by queue.
    taken: HashMap<Thing, u64>,
    /// How long things are, as far as it was seen.
    ends: HashMap<Thing, u64>,
}

impl Positions {
    /// Where bytes are taken from, and that they are.
    fn take(&mut self, thing: &Thing, (description, place): (usize, Option<u64>), len: u64, keeps: bool) -> u64 {
        let position = match (thing, place) {
            (Thing::Queue(_), _) => self.taken.entry(thing.clone()).or_default(),
            (Thing::File(_) | Thing::Stdin, Some(place)) => return place,
            (Thing::File(_) | Thing::Stdin, None) => &mut self.descriptions[description],
        };
        let start = *position;
        *position += if keeps { 0 } else { len };
        start
    }

    /// Where bytes are put, and that they are.
    fn put(&mut self, thing: &Thing, (description, place): (usize, Option<u64>), len: u64, appends: bool) -> u64 {
        let end = self.ends.entry(thing.clone()).or_default();
        let start = match (thing, place) {
            (Thing::Queue(_), _) => *end,
            (Thing::File(_) | Thing::Stdin, Some(place)) => place,
            (Thing::File(_) | Thing::Stdin, None) if appends => *end,
            (Thing::File(_) | Thing::Stdin, None) => self.descriptions[description],
        };
        *end = (*end).max(start + len);
        if place.is_none() {
            self.descriptions[description] = start + len;
        }
        start
    }
}

impl Ledger {
    pub fn new(followed: Followed) -> Ledger {
        let Followed { descriptions, moved, .. } = followed;
        let mut ledger = Ledger::default();
        let mut at = Positions {
            descriptions: descriptions.iter().map(|d| d.start).collect(),
            taken: HashMap::new(),
            ends: HashMap::new(),
        };
        for (turn, m) in moved.iter().enumerate() {
            let (unit, record, len) = (m.unit, m.record, m.len);
            match m.how {
                How::Map(d, start) => {
                    let Some(thing) = descriptions[d].from.clone() else { continue };
                    ledger.mapped.insert((unit, record), Taken { thing, start, len, turn });
                }
                How::Seek(d) => at.descriptions[d] = len,
                How::Empty(d) => {
                    at.ends.extend(descriptions[d].to.clone().map(|thing| (thing, 0)));
                }
                How::Read(d, place) => {
                    let Some(thing) = descriptions[d].from.clone() else { continue };
                    let start = at.take(&thing, (d, place), len, false);
                    ledger.taken.insert((unit, record), Taken { thing, start, len, turn });
                }
                How::Write(d, place) => {
                    let Some(thing) = descriptions[d].to.clone() else { continue };
                    let start = at.put(&thing, (d, place), len, descriptions[d].appends);
                    ledger.put(thing, Piece { start, len, turn, unit, record, carried: None });
                }
                How::Carry { from, to, keeps } => {
                    let source = descriptions[from.0].from.clone();
                    let carried = source.map(|thing| {
                        let start = at.take(&thing, from, len, keeps);
                        (thing, start)
                    });
                    let Some(thing) = descriptions[to.0].to.clone() else { continue };
                    let start = at.put(&thing, to, len, descriptions[to.0].appends);
                    ledger.put(thing, Piece { start, len, turn, unit, record, carried });
                }
            }
        }
        ledger
    }

    fn put(&mut self, thing: Thing, piece: Piece) {
        self.pieces.entry(thing).or_default().push(piece);
    }

    /// Did the call deliver bytes of something that was written to?
    pub fn knows(&self, unit: UnitName, record: u64) -> bool {
        self.taken.get(&(unit, record)).is_some_and(|t| self.pieces.contains_key(&t.thing))
    }

    /// What a call delivered or mapped, and from where on.
    pub fn delivered(&self, unit: UnitName, record: u64) -> Option<(&Thing, u64)> {
        let taken = self.taken.get(&(unit, record)).or_else(|| self.mapped.get(&(unit, record)))?;
        Some((&taken.thing, taken.start))
    }

    /// Who wrote the byte at `offset` of what a call delivered.
    pub fn source(&self, unit: UnitName, record: u64, offset: u64) -> Option<Source> {
        let taken = self.taken.get(&(unit, record)).filter(|t| offset < t.len)?;
        self.wrote(&taken.thing, taken.start + offset, taken.turn)
    }

    /// Who wrote the byte at `offset` of what is in a file in the end.
    pub fn in_file(&self, path: &Path, offset: u64) -> Option<Source> {
        self.wrote(&Thing::File(path.to_owned()), offset, usize::MAX)
    }

    /// Who wrote a byte of something, before this turn.
    fn wrote(&self, thing: &Thing, at: u64, before: usize) -> Option<Source> {
        let (mut thing, mut at, mut before) = (thing, at, before);
        for _ in 0..MOST_CARRIES {
            // A queue may be read by a call that comes back before the one that filled it.
            let counts = |p: &&Piece| matches!(thing, Thing::Queue(_)) || p.turn < before;
            let pieces = self.pieces.get(thing)?.iter().rev().filter(counts);
            let piece = pieces.into_iter().find(|p| (p.start..p.start + p.len).contains(&at))?;
            let within = at - piece.start;
            match &piece.carried {
                None => return Some(Source { unit: piece.unit, record: piece.record, offset: within }),
                Some((from, start)) => (thing, at, before) = (from, start + within, piece.turn),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::descriptors::{Description, Moved};
    use super::*;

    const A: UnitName = UnitName { pid: 1, image: 0 };
    const B: UnitName = UnitName { pid: 2, image: 0 };

    fn ledger(descriptions: Vec<Description>, moved: Vec<(UnitName, How, u64)>) -> Ledger {
        let moved = moved.into_iter().enumerate();
        let moved = moved.map(|(n, (unit, how, len))| Moved { unit, record: n as u64, time: n as u64, how, len });
        Ledger::new(Followed { descriptions, moved: moved.collect(), ..Followed::default() })
    }

    fn queue(n: u32) -> Vec<Description> {
        let thing = Some(Thing::Queue(n));
        vec![
            Description { from: thing.clone(), ..Description::default() },
            Description { to: thing, ..Description::default() },
        ]
    }

    #[test]
    fn bytes_leave_a_queue_as_they_came() {
        let l = ledger(
            queue(1),
            vec![
                (A, How::Write(1, None), 3),
                (A, How::Write(1, None), 4),
                (B, How::Read(0, None), 5),
                (B, How::Read(0, None), 2),
            ],
        );
        assert_eq!(l.source(B, 2, 2), Some(Source { unit: A, record: 0, offset: 2 }));
        assert_eq!(l.source(B, 2, 3), Some(Source { unit: A, record: 1, offset: 0 }));
        assert_eq!(l.source(B, 3, 1), Some(Source { unit: A, record: 1, offset: 3 }));
        assert_eq!((l.source(B, 3, 2), l.source(A, 0, 0)), (None, None));
    }

    #[test]
    fn bytes_of_a_file_come_from_the_last_write_before() {
        let file = Thing::File("/f".into());
        let both = Description { from: Some(file.clone()), to: Some(file), ..Description::default() };
        let l = ledger(
            vec![both.clone(), both],
            vec![
                (A, How::Write(0, None), 8),
                (A, How::Write(0, Some(2)), 2),
                (B, How::Seek(1), 1),
                (B, How::Read(1, None), 4),
                (A, How::Write(0, Some(0)), 8),
            ],
        );
        let from = |offset| l.source(B, 3, offset).map(|s| (s.record, s.offset));
        assert_eq!([0, 1, 2, 3].map(from), [Some((0, 1)), Some((1, 0)), Some((1, 1)), Some((0, 4))]);
        assert_eq!(l.in_file(Path::new("/f"), 3), Some(Source { unit: A, record: 4, offset: 3 }));
        assert_eq!((l.in_file(Path::new("/f"), 8), l.in_file(Path::new("/g"), 0)), (None, None));
    }

    #[test]
    fn bytes_that_the_kernel_moves_keep_their_writer() {
        let mut descriptions = queue(1);
        descriptions.extend(queue(2));
        let carry = How::Carry { from: (0, None), to: (3, None), keeps: false };
        let moved = vec![(A, How::Write(1, None), 6), (B, carry, 6), (B, How::Read(2, None), 6)];
        let l = ledger(descriptions, moved);
        assert_eq!(l.source(B, 2, 4), Some(Source { unit: A, record: 0, offset: 4 }));
    }
}
