//! The engine's own descriptors: high numbers, invisible to the guest; and what is known of the guest's.

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
    /// Translations that engines hand on; -1 if they do not.
    pub translations: i32,
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
            translations: move_up(config.translations_fd.unwrap_or(-1)),
        }
    }

    pub fn contains(&self, fd: u64) -> bool {
        let fd = fd as u32 as i32;
        fd >= 0 && self.each().contains(&fd)
    }

    /// The guest wants this very number: ours goes elsewhere.
    pub fn make_way(&mut self, fd: u64) {
        let fd = fd as u32 as i32;
        for ours in [&mut self.control, &mut self.engine, &mut self.folder, &mut self.store, &mut self.translations] {
            if *ours == fd {
                *ours = move_up(fd);
            }
        }
    }

    pub fn each(&self) -> [i32; 5] {
        [self.control, self.engine, self.folder, self.store, self.translations]
    }
}

/// Which descriptors were found to lead elsewhere than into `/proc`: names below them need not be looked at. Asking where a
/// descriptor leads costs as much as the call that uses it. In the shared page, so that calls do not open the vault.
///
/// A number is forgotten when it is closed or made anew. May miss: a number that another process with the same table of
/// descriptors (`CLONE_FILES`) gives another meaning.
#[derive(Default)]
pub struct Elsewhere {
    numbers: [u64; 8],
}

impl Elsewhere {
    fn word(&mut self, fd: u64) -> Option<(&mut u64, u64)> {
        let fd = fd as u32 as usize;
        self.numbers.get_mut(fd / 64).map(|word| (word, 1 << (fd % 64)))
    }

    pub fn contains(&mut self, fd: u64) -> bool {
        self.word(fd).is_some_and(|(word, bit)| *word & bit != 0)
    }

    pub fn insert(&mut self, fd: u64) {
        if let Some((word, bit)) = self.word(fd) {
            *word |= bit;
        }
    }

    pub fn forget(&mut self, fd: u64) {
        if let Some((word, bit)) = self.word(fd) {
            *word &= !bit;
        }
    }

    pub fn forget_all(&mut self) {
        self.numbers = [0; 8];
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

#[cfg(test)]
mod tests {
    use super::Elsewhere;

    #[test]
    fn a_number_is_known_until_it_is_forgotten() {
        let mut e = Elsewhere::default();
        for fd in [0, 63, 64, 511] {
            assert!(!e.contains(fd), "{fd}");
            e.insert(fd);
            assert!(e.contains(fd) && !e.contains(fd + 1), "{fd}");
        }
        e.forget(64);
        assert!(!e.contains(64) && e.contains(63));
        // Numbers without a place, and those that are none, are never known.
        for fd in [512, u32::MAX as u64, -100i64 as u64] {
            e.insert(fd);
            assert!(!e.contains(fd), "{fd}");
            e.forget(fd);
        }
        e.forget_all();
        assert!(!e.contains(0));
    }
}
