//! Time and randomness: real, or virtual when there is a seed.

use super::{Call, Outcome};
use crate::sys::{self, err, nr};

/// What virtual clocks start from: a fixed date, so that two runs see the same one.
const EPOCH_NS: u64 = 1_700_000_000 * 1_000_000_000;
/// Monotonic clocks start here.
const UPTIME_NS: u64 = 100_000 * 1_000_000_000;

impl Call<'_> {
    pub(super) fn time_call(&mut self) -> Outcome {
        if !self.e.seeded() {
            return self.pass();
        }
        match self.nr {
            nr::CLOCK_GETTIME => {
                let [clock, at, ..] = self.args;
                if clock > 11 {
                    return self.pass();
                }
                put_time(at, self.now_ns(clock), 1)
            }
            nr::GETTIMEOFDAY => {
                let [tv, zone, ..] = self.args;
                if zone != 0 {
                    sys::write_u64(zone, 0);
                }
                if tv == 0 { Outcome::Value(0) } else { put_time(tv, self.now_ns(0), 1000) }
            }
            nr::TIME => {
                let s = self.now_ns(0) / 1_000_000_000;
                if self.args[0] != 0 && !sys::write_u64(self.args[0], s) {
                    return Outcome::Value(-err::EFAULT);
                }
                Outcome::Value(s as i64)
            }
            nr::GETRANDOM => self.getrandom(),
            _ => self.nanosleep(),
        }
    }

    /// A clock, in nanoseconds: 0 real time, everything else monotonic.
    pub(crate) fn now_ns(&mut self, clock: u64) -> u64 {
        if self.e.seeded() {
            let base = match clock {
                0 | 5 | 8 | 11 => EPOCH_NS,
                2 | 3 => 0,
                _ => UPTIME_NS,
            };
            return base + self.e.clock.virtual_ns();
        }
        let mut ts = [0u64; 2];
        // SAFETY: the kernel writes two words.
        unsafe { sys::raw3(nr::CLOCK_GETTIME, clock, ts.as_mut_ptr() as u64, 0) };
        ts[0].saturating_mul(1_000_000_000).saturating_add(ts[1])
    }

    fn getrandom(&mut self) -> Outcome {
        let [at, len, ..] = self.args;
        let mut done = 0;
        while done < len {
            let word = self.e.clock.random().to_le_bytes();
            let n = (len - done).min(8) as usize;
            if sys::write_guest(at + done, &word[..n]) < n {
                return Outcome::Value(if done == 0 { -err::EFAULT } else { done as i64 });
            }
            done += n as u64;
        }
        Outcome::Value(len as i64)
    }

    fn nanosleep(&mut self) -> Outcome {
        let (at, absolute, clock) = match self.nr {
            nr::NANOSLEEP => (self.args[0], false, 1),
            _ => (self.args[2], self.args[1] & 1 != 0, self.args[0]),
        };
        let (Some(s), Some(ns)) = (sys::read_u64(at), sys::read_u64(at + 8)) else {
            return Outcome::Value(-err::EFAULT);
        };
        if ns >= 1_000_000_000 || (s as i64) < 0 {
            return Outcome::Value(-err::EINVAL);
        }
        let given = s.saturating_mul(1_000_000_000).saturating_add(ns);
        let duration = if absolute { given.saturating_sub(self.now_ns(clock)) } else { given };
        let rest = match self.nr {
            _ if absolute => 0,
            nr::NANOSLEEP => self.args[1],
            _ => self.args[3],
        };
        self.sleep_virtually(duration, rest)
    }
}

fn put_time(at: u64, ns: u64, divisor: u64) -> Outcome {
    let ok = sys::write_u64(at, ns / 1_000_000_000) && sys::write_u64(at + 8, ns % 1_000_000_000 / divisor);
    Outcome::Value(if ok { 0 } else { -err::EFAULT })
}
