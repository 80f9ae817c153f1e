//! Signal numbers: gdb has its own, which are those of an older Unix.
//!
//! From `include/gdb/signals.def` of gdb. Numbers that have no counterpart become `SIGUNKNOWN`.

/// `GDB_SIGNAL_UNKNOWN`.
const UNKNOWN: u8 = 143;

/// (Linux on x86-64, gdb) where they differ, below the real-time signals.
const DIFFERENT: &[(u8, u8)] = &[
    (7, 10),       // SIGBUS
    (10, 30),      // SIGUSR1
    (12, 31),      // SIGUSR2
    (16, UNKNOWN), // SIGSTKFLT
    (17, 20),      // SIGCHLD
    (18, 19),      // SIGCONT
    (19, 17),      // SIGSTOP
    (20, 18),      // SIGTSTP
    (23, 16),      // SIGURG
    (29, 23),      // SIGIO
    (30, 32),      // SIGPWR
    (31, 12),      // SIGSYS
];

/// gdb's number of a Linux signal.
pub fn to_gdb(linux: u8) -> u8 {
    match (DIFFERENT.iter().find(|(from, _)| *from == linux), linux) {
        (Some((_, gdb)), _) => *gdb,
        (None, 0..=28) => linux,
        // Real-time signals: gdb has 33 to 63 in one row, and 32 and 64 elsewhere.
        (None, 32) => 77,
        (None, 33..=63) => linux + 12,
        (None, 64) => 78,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_share_a_number_stay_and_others_move() {
        for (linux, gdb) in [(11, 11), (6, 6), (2, 2), (15, 15), (28, 28), (7, 10), (17, 20), (10, 30), (31, 12)] {
            assert_eq!(to_gdb(linux), gdb, "Linux signal {linux}");
        }
        for (linux, gdb) in [(32, 77), (33, 45), (34, 46), (63, 75), (64, 78), (99, UNKNOWN)] {
            assert_eq!(to_gdb(linux), gdb, "Linux signal {linux}");
        }
    }

    #[test]
    fn no_two_signals_become_one() {
        let mut all: Vec<u8> = (1..=64).map(to_gdb).filter(|gdb| *gdb != UNKNOWN).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!((all.len(), count), (63, 63));
    }
}
