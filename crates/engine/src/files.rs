//! The engine's own descriptors: high numbers, invisible to the guest.

use crate::sys::{self, nr};
use model::wire::Config;

const F_DUPFD: u64 = 0;
/// Numbers from here on are tried first: above what programs usually open, below the usual soft limit.
const WANTED: u64 = 1016;

/// Descriptors that the guest must not see.
pub struct HiddenFds {
    pub control: i32,
    pub engine: i32,
}

impl HiddenFds {
    /// Moves the descriptors of `config` to high numbers.
    pub fn settle(config: &Config) -> HiddenFds {
        HiddenFds { control: move_up(config.control_fd), engine: move_up(config.engine_fd) }
    }

    pub fn contains(&self, fd: u64) -> bool {
        let fd = fd as u32 as i32;
        fd >= 0 && (fd == self.control || fd == self.engine)
    }

    /// The guest wants this very number: ours goes elsewhere.
    pub fn make_way(&mut self, fd: u64) {
        let fd = fd as u32 as i32;
        for ours in [&mut self.control, &mut self.engine] {
            if *ours == fd {
                *ours = move_up(fd);
            }
        }
    }

    pub fn each(&self) -> [i32; 2] {
        [self.control, self.engine]
    }
}

/// Moves a descriptor to the first free high number; keeps it where it is if there is none.
fn move_up(fd: i32) -> i32 {
    if fd < 0 {
        return fd;
    }
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes two words (RLIMIT_NOFILE is 7).
    unsafe { sys::raw3(nr::GETRLIMIT, 7, limit.as_mut_ptr() as u64, 0) };
    let floor = WANTED.min(limit[0].saturating_sub(8)).max(3);
    for from in [floor, 3] {
        // SAFETY: duplicates and closes our own descriptor; it stays open across execve on purpose.
        unsafe {
            let r = sys::raw3(nr::FCNTL, fd as u64, F_DUPFD, from);
            if !sys::is_err(r) {
                sys::raw3(nr::CLOSE, fd as u64, 0, 0);
                return r as i32;
            }
        }
    }
    fd
}
