//! The auxiliary vector that a process was started with, as gdb wants to see it.
//!
//! It lies on the stack of a program that begins, behind its arguments and environment; a recording that begins later says
//! where it was.

use model::GuestAddr;
use recording::{Recording, Unit};
use session::Session;

/// The auxiliary vector of the process.
pub fn of(recording: &Recording, session: &Session, root: &Unit) -> Result<Vec<u8>, session::Error> {
    if root.start.region.is_none() {
        return on_stack(session);
    }
    let log = recording.log(&root.name).ok();
    let process = log.and_then(|log| {
        let raw = log.records().map(|(_, raw)| raw).find(|raw| raw.kind == model::log::Kind::Process)?;
        model::region::ProcessRecord::decode(raw.payload)
    });
    let [start, end] = process.map_or([0; 2], |p| p.auxv);
    let mut bytes = vec![0; end.saturating_sub(start).min(4096) as usize];
    let n = session.read(GuestAddr(start), &mut bytes)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// That on the stack of a program that begins.
fn on_stack(session: &Session) -> Result<Vec<u8>, session::Error> {
    /// More words than arguments and environment can have.
    const MOST: usize = 1 << 20;
    const RSP: usize = 4;
    let at = session.registers(session.place().thread)?.gpr[RSP];
    let mut words = Words { session, at, buffer: Vec::new(), next: 0 };
    // The number of arguments, those and the environment, each list with a zero behind.
    let mut zeros = 0;
    words.next()?;
    for _ in 0..MOST {
        match words.next()? {
            None => return Ok(Vec::new()),
            Some(0) => zeros += 1,
            Some(_) => {}
        }
        if zeros == 2 {
            break;
        }
    }
    let mut vector = Vec::new();
    for _ in 0..64 {
        let (Some(key), Some(value)) = (words.next()?, words.next()?) else { break };
        vector.extend([key, value].into_iter().flat_map(u64::to_le_bytes));
        if key == 0 {
            break;
        }
    }
    Ok(vector)
}

/// Words of guest memory, one behind the other.
struct Words<'s> {
    session: &'s Session,
    at: u64,
    buffer: Vec<u8>,
    next: usize,
}

impl Words<'_> {
    fn next(&mut self) -> Result<Option<u64>, session::Error> {
        if self.next == self.buffer.len() {
            self.buffer.resize(4096, 0);
            let n = self.session.read(GuestAddr(self.at), &mut self.buffer)?;
            self.buffer.truncate(n / 8 * 8);
            (self.at, self.next) = (self.at + self.buffer.len() as u64, 0);
        }
        let word = self.buffer[self.next..].first_chunk().map(|b| u64::from_le_bytes(*b));
        self.next += 8;
        Ok(word)
    }
}
