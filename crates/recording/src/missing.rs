//! What a recording says itself that it lacks: there was no room for it.
//!
//! Guarantees: read from the logs alone, so that it does not depend on a recorder that lived to its end.
//! May miss: what was lost afterwards; see [`Unit::damage`] and [`Recording::unreadable`].

use std::fmt;

use model::log::Ending;

use crate::name::UnitName;
use crate::reader::{Recording, Unit};

/// Something that ran but is not in the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// What a unit, and all that it started, did from this record on.
    Rest { unit: UnitName, record: u64 },
    /// A child, and all that it started, that was forked at this record.
    Child { unit: UnitName, record: u64 },
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Rest { unit, record } => {
                write!(f, "process {unit} from record {record} on, and what it started, is missing: the disk was full")
            }
            Missing::Child { unit, record } => {
                write!(f, "the child of process {unit} at record {record} is missing: there was no room for its log")
            }
        }
    }
}

impl Unit {
    /// What is known to be missing of it and its children.
    pub fn missing(&self) -> impl Iterator<Item = Missing> {
        let cut = self.end.is_some_and(|e| e.ending == Ending::DiskFull);
        let unit = self.name;
        let rest = cut.then(|| Missing::Rest { unit, record: self.records.saturating_sub(1) });
        self.unrecorded.iter().map(move |record| Missing::Child { unit, record: *record }).chain(rest)
    }
}

impl Recording {
    /// What is known to be missing of all units.
    pub fn missing(&self) -> impl Iterator<Item = Missing> {
        self.units().iter().flat_map(Unit::missing)
    }

    /// Is something that ran not here, or no longer? What is here may still be right.
    pub fn is_incomplete(&self) -> bool {
        !self.unreadable().is_empty()
            || self.units().iter().any(|u| u.damage.is_some())
            || self.missing().next().is_some()
    }
}
