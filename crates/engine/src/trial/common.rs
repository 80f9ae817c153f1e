//! What the processes of one trial share: how many of them there may be, and the files they have written.
//!
//! Made before the first of them is forked, so all have it under the same numbers, across `execve` too. Files in memory
//! lie ready; a pipe holds the numbers of those that nobody uses, so no two processes take the same. Which name leads to
//! which file is appended to a ledger; its last entry about a name counts.

use super::trial;
use crate::state::Engine;
use crate::sys::{self, nr};
use alloc::vec::Vec;

/// Processes that a trial may have at the same time, besides its first one.
const MOST_PROCESSES: u64 = 24;
/// Files that lie ready.
const FILES: usize = 64;
/// Bytes of the ledger that are read.
const MOST_LEDGER: usize = 1 << 20;

const O_APPEND: u64 = 0o2000;
const F_SETFL: u64 = 4;
const PIPE_FLAGS: u64 = 0o4000 | 0o2_000_000;
/// One at a time, without waiting, closed by an `execve` unless that is undone.
const SEMAPHORE: u64 = 1 | 0o4000 | 0o2_000_000;
const EVENTFD2: u64 = 290;

/// Descriptors that all processes of the trial have.
#[derive(Clone, Debug)]
pub struct Common {
    /// A semaphore: how many processes may still be started.
    places: i32,
    ledger: i32,
    /// Both ends of the pipe with the numbers of unused files.
    free: [i32; 2],
}

impl Common {
    /// Makes everything; `None` if the kernel does not give that many descriptors.
    fn new() -> Option<Common> {
        let mut free = [0i32; 2];
        // SAFETY: descriptors of our own (pipe2, 293).
        unsafe {
            let places = sys::raw3(EVENTFD2, MOST_PROCESSES, SEMAPHORE, 0);
            let ledger = sys::raw3(nr::MEMFD_CREATE, c"clew-names".as_ptr() as u64, 1, 0);
            let piped = sys::raw3(293, free.as_mut_ptr() as u64, PIPE_FLAGS, 0);
            if sys::is_err(places) || sys::is_err(ledger) || sys::is_err(piped) {
                return None;
            }
            sys::raw3(nr::FCNTL, ledger as u64, F_SETFL, O_APPEND);
            let mut numbers = Vec::with_capacity(FILES);
            for _ in 0..FILES {
                let file = sys::raw3(nr::MEMFD_CREATE, c"clew-trial".as_ptr() as u64, 1, 0);
                if sys::is_err(file) {
                    break;
                }
                numbers.push(file as i32);
            }
            sys::raw3(nr::WRITE, free[1] as u64, numbers.as_ptr() as u64, size_of_val(&*numbers) as u64);
            Some(Common { places: places as i32, ledger: ledger as i32, free })
        }
    }

    /// For the image that comes behind this one.
    pub fn descriptors(&self) -> [i32; 4] {
        [self.places, self.ledger, self.free[0], self.free[1]]
    }

    pub fn from_descriptors(fds: &[i32]) -> Option<Common> {
        match *fds {
            [places, ledger, r, w] => Some(Common { places, ledger, free: [r, w] }),
            _ => None,
        }
    }

    /// A process is to be started: `false` if there are enough.
    pub fn take_place(&self) -> bool {
        let mut one = 0u64;
        // SAFETY: the kernel writes eight bytes.
        unsafe { sys::raw3(nr::READ, self.places as u64, &raw mut one as u64, 8) == 8 }
    }

    /// A process has ended and was waited for.
    pub fn give_place_back(&self) {
        let one = 1u64;
        // SAFETY: the kernel reads eight bytes.
        unsafe { sys::raw3(nr::WRITE, self.places as u64, &raw const one as u64, 8) };
    }

    /// An empty file that all processes have.
    pub fn take_file(&self) -> Option<i64> {
        let mut file = 0i32;
        // SAFETY: the kernel writes four bytes.
        let n = unsafe { sys::raw3(nr::READ, self.free[0] as u64, &raw mut file as u64, 4) };
        (n == 4).then_some(i64::from(file))
    }

    /// Files of the pool, taken or not, and those of the ledger: what an `execve` must leave open.
    pub fn keep_open(&self) {
        for fd in self.descriptors() {
            super::exec::keep_open(i64::from(fd));
        }
        for (_, file) in self.read() {
            file.into_iter().for_each(super::exec::keep_open);
        }
        // Numbers go round once: each is taken out and put back.
        for _ in 0..FILES {
            let Some(file) = self.take_file() else { break };
            super::exec::keep_open(file);
            let number = file as i32;
            // SAFETY: the kernel reads four bytes.
            unsafe { sys::raw3(nr::WRITE, self.free[1] as u64, &raw const number as u64, 4) };
        }
    }

    /// The name leads to this file from now on, or to nothing.
    pub fn enter(&self, name: &[u8], file: Option<i64>) {
        let mut entry = Vec::with_capacity(8 + name.len());
        entry.extend_from_slice(&file.map_or(-1, |f| f as i32).to_le_bytes());
        entry.extend_from_slice(&(name.len() as u32).to_le_bytes());
        entry.extend_from_slice(name);
        // SAFETY: appended as a whole, under the file's own lock.
        unsafe { sys::raw3(nr::WRITE, self.ledger as u64, entry.as_ptr() as u64, entry.len() as u64) };
    }

    /// All entries of the ledger, in order.
    fn read(&self) -> Vec<(Vec<u8>, Option<i64>)> {
        let mut bytes = alloc::vec![0u8; 4096];
        let mut len = 0;
        while len < MOST_LEDGER {
            if len == bytes.len() {
                bytes.resize(len * 2, 0);
            }
            let rest = &mut bytes[len..];
            let args = [self.ledger as u64, rest.as_mut_ptr() as u64, rest.len() as u64, len as u64, 0, 0];
            // SAFETY: reads into our own buffer.
            match unsafe { sys::raw(nr::PREAD64, args) } {
                n @ 1.. => len += n as usize,
                _ => break,
            }
        }
        let (mut rest, mut all) = (&bytes[..len], Vec::new());
        while let [a, b, c, d, e, f, g, h, behind @ ..] = rest {
            let file = i32::from_le_bytes([*a, *b, *c, *d]);
            let Some((name, more)) = behind.split_at_checked(u32::from_le_bytes([*e, *f, *g, *h]) as usize) else {
                break;
            };
            all.push((name.to_vec(), Some(i64::from(file)).filter(|f| *f >= 0)));
            rest = more;
        }
        all
    }

    /// What the ledger says about a name, if anything.
    pub fn find(&self, name: &[u8]) -> Option<Option<i64>> {
        self.read().into_iter().rev().find(|(n, _)| n == name).map(|(_, file)| file)
    }
}

/// What the processes of this trial share, made when it is first needed.
pub fn common(e: &mut Engine) -> Option<&Common> {
    let c = &mut trial(e).world.children.common;
    if c.is_none() {
        *c = Common::new();
    }
    c.as_ref()
}
