//! Signals that the guest got, from the logs: when each came, and what the kernel said about it.

use model::log::{Ending, Kind, Origin, SignalRecord};
use model::serve::Moment;
use recording::{Recording, UnitName};

#[derive(Debug)]
pub struct Arrival {
    pub moment: Moment,
    pub signo: u8,
    pub info: [u8; 128],
}

/// The signals of one unit and of its ancestors before it was forked, in order.
#[derive(Debug, Default)]
pub struct Signals {
    all: Vec<Arrival>,
    /// The last one ended the guest.
    fatal: bool,
}

impl Signals {
    pub fn of(recording: &Recording, unit: &UnitName) -> Result<Signals, recording::Error> {
        let lineage = recording.lineage(unit)?;
        let mut all = Vec::new();
        for (n, name) in lineage.iter().enumerate() {
            // An ancestor counts up to the fork.
            let child = lineage.get(n + 1).and_then(|c| recording.unit(c).ok());
            let end = match child.map(|c| &c.start.origin) {
                Some(Origin::Fork { record, .. }) => *record,
                _ => u64::MAX,
            };
            let log = recording.log(name)?;
            for (_, raw) in log.records().filter(|(i, raw)| *i < end && raw.kind == Kind::Signal) {
                all.extend(SignalRecord::decode(raw.payload).map(|s| arrival(&s)));
            }
        }
        let end = recording.unit(unit)?.end;
        let fatal = end.is_some_and(|e| {
            e.ending == Ending::Signaled && all.last().is_some_and(|a: &Arrival| u32::from(a.signo) == e.status)
        });
        Ok(Signals { all, fatal })
    }

    /// Signals that the guest lived on after.
    fn survived(&self) -> &[Arrival] {
        &self.all[..self.all.len() - usize::from(self.fatal)]
    }

    /// The signal that comes at this moment.
    pub fn at(&self, moment: Moment) -> Option<&Arrival> {
        self.survived().iter().find(|a| a.moment == moment)
    }

    /// The first signal behind this moment.
    pub fn after(&self, moment: Moment) -> Option<&Arrival> {
        self.survived().iter().find(|a| a.moment > moment)
    }

    /// What the kernel said about the signal that came at this moment, the fatal one included.
    pub fn info(&self, moment: Moment) -> Option<&[u8]> {
        self.all.iter().rfind(|a| a.moment == moment).map(|a| &a.info[..])
    }
}

fn arrival(s: &SignalRecord) -> Arrival {
    let mut info = [0; 128];
    for (n, word) in s.info.iter().enumerate() {
        info[8 * n..][..8].copy_from_slice(&word.to_le_bytes());
    }
    Arrival { moment: Moment { tick: s.at.tick, pc: s.at.pc }, signo: s.info[0] as u8, info }
}
