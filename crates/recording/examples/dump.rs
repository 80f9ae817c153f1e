//! Prints the records of a unit's log, one line each: `dump RECORDING [UNIT]`.

use model::log::{CallRecord, Kind, Position, SignalRecord};
use recording::Recording;
use std::path::Path;

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(path) = args.next() else { return eprintln!("usage: dump RECORDING [UNIT]") };
    let recording = match Recording::open(Path::new(&path)) {
        Ok(recording) => recording,
        Err(e) => return eprintln!("{e}"),
    };
    let wanted = args.next();
    for unit in recording.units().iter().filter(|u| wanted.as_ref().is_none_or(|w| *w == u.name.to_string())) {
        println!("unit {} of {:?}", unit.name, unit.start.origin);
        let Ok(log) = recording.log(&unit.name) else { continue };
        for (n, raw) in log.records() {
            let text = match raw.kind {
                Kind::Call => format!("{:?}", CallRecord::decode(raw.payload)),
                Kind::Preempt => format!("{:?}", Position::decode(raw.payload)),
                Kind::Signal => format!("{:?}", SignalRecord::decode(raw.payload)),
                Kind::Inexact => String::from_utf8_lossy(raw.payload).into_owned(),
                _ => format!("{:x?}", &raw.payload[..raw.payload.len().min(24)]),
            };
            println!("{n} {:?}/{} {text}", raw.kind, raw.flags);
        }
    }
}
