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
    /// The recording's folder, and that of the files kept before it; -1 where there is none.
    pub folder: i32,
    pub store: i32,
}

impl HiddenFds {
    /// Moves the descriptors of `config` to high numbers.
    pub fn settle(config: &Config) -> HiddenFds {
        let (folder, store) = match (&config.record, &config.replay) {
            (Some(r), _) => (r.folder_fd, r.store_fd),
            (None, Some(r)) => (r.files_fd, -1),
            (None, None) => (-1, -1),
        };
        HiddenFds {
            control: move_up(config.control_fd),
            engine: move_up(config.engine_fd),
            folder: move_up(folder),
            store: move_up(store),
        }
    }

    pub fn contains(&self, fd: u64) -> bool {
        let fd = fd as u32 as i32;
        fd >= 0 && self.each().contains(&fd)
    }

    /// The guest wants this very number: ours goes elsewhere.
    pub fn make_way(&mut self, fd: u64) {
        let fd = fd as u32 as i32;
        for ours in [&mut self.control, &mut self.engine, &mut self.folder, &mut self.store] {
            if *ours == fd {
                *ours = move_up(fd);
            }
        }
    }

    pub fn each(&self) -> [i32; 4] {
        [self.control, self.engine, self.folder, self.store]
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
