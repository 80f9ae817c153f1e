//! The table as a whole is sound, and `memory` lists exactly what chosen calls touch.

use super::*;
use std::collections::{HashMap, HashSet};

/// Guest memory from 0x1000 up to 0x100000, zero where nothing was put.
#[derive(Default)]
struct Guest(HashMap<u64, u8>);

impl Guest {
    fn with(mut self, addr: u64, bytes: &[u8]) -> Guest {
        self.0.extend(bytes.iter().enumerate().map(|(i, b)| (addr + i as u64, *b)));
        self
    }

    fn u64s(self, addr: u64, words: &[u64]) -> Guest {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.with(addr, &bytes)
    }

    fn u32s(self, addr: u64, words: &[u32]) -> Guest {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.with(addr, &bytes)
    }

    fn word(&self, addr: u64, size: u64) -> Option<u64> {
        let inside = (0x1000..0x10_0000).contains(&addr) && addr + size <= 0x10_0000;
        inside.then(|| (0..size).rev().fold(0, |w, i| w << 8 | u64::from(*self.0.get(&(addr + i)).unwrap_or(&0))))
    }
}

/// `R` reads, `W` writes.
#[derive(PartialEq, Debug, Clone, Copy)]
enum Use {
    R(u64, u64),
    W(u64, u64),
}
use Use::{R, W};

fn listed(nr: u64, args: &[u64], result: Option<i64>, entry: &mut Entry, guest: &Guest) -> Vec<Use> {
    let mut six = [0; 6];
    six[..args.len()].copy_from_slice(args);
    let mut uses = Vec::new();
    memory_with(row(nr).unwrap(), &six, result, entry, &mut |addr, size| guest.word(addr, size), &mut |u| {
        uses.push(if u.write { W(u.addr, u.len) } else { R(u.addr, u.len) });
    });
    uses
}

fn check_memory(nr: u64, args: &[u64], result: Option<i64>, guest: &Guest, expected: &[Use]) {
    let found = listed(nr, args, result, &mut Entry::new(), guest);
    assert_eq!(found, expected, "{} {args:x?} -> {result:?}", row(nr).unwrap().name);
}

/// Lists the call before it is made and again afterwards, with the words that it overwrites remembered in between.
fn check_after(nr: u64, args: &[u64], before: &Guest, result: i64, after: &Guest, expected: &[Use]) {
    let mut entry = Entry::new();
    listed(nr, args, None, &mut entry, before);
    assert_eq!(listed(nr, args, Some(result), &mut entry, after), expected, "{}", row(nr).unwrap().name);
}

/// Argument numbers that a kind refers to.
fn references(kind: Kind) -> Vec<u8> {
    let of = |len| match len {
        Len::Arg(k) | Len::ArgInt(k) | Len::Upto(k) | Len::UptoInt(k) | Len::Sock(k) => vec![k],
        Len::Items(k, _) | Len::ItemsInt(k, _) | Len::UptoItems(k, _) | Len::UptoItemsInt(k, _) => vec![k],
        Len::Bytes(_) | Len::Own { .. } | Len::By(_) => Vec::new(),
    };
    match kind {
        Kind::In(len) | Kind::Out(len) | Kind::InOut(len) => of(len),
        Kind::Range(k) | Kind::SockLen(k) | Kind::IovecIn(k) | Kind::IovecOut(k) => vec![k],
        _ => Vec::new(),
    }
}

#[test]
fn numbers_are_dense_and_found() {
    assert_eq!(rows().len(), COUNT);
    for (nr, expected) in (0..337).chain(424..472).zip(rows()) {
        assert_eq!(u64::from(row(nr).unwrap().nr), nr);
        assert_eq!(u64::from(expected.nr), nr);
    }
    assert!(rows().windows(2).all(|pair| pair[0].nr < pair[1].nr));
    for nr in [337, 400, 423, 472, 512, 547, 0x4000_0000, u64::from(u32::MAX)] {
        assert!(row(nr).is_none(), "{nr}");
    }
    assert_eq!(row(0xffff_ffff_0000_0000).unwrap().name, "read");
}

#[test]
fn names_are_unique_and_agree_with_the_constants() {
    let names: HashSet<&str> = rows().iter().map(|r| r.name).collect();
    assert_eq!(names.len(), rows().len());
    assert_eq!(number::ALL.len(), rows().len());
    for ((name, nr), row) in number::ALL.iter().zip(rows()) {
        assert_eq!((name.to_lowercase().as_str(), *nr), (row.name.trim_start_matches('_'), u64::from(row.nr)));
    }
}

#[test]
fn arguments_refer_to_arguments() {
    for row in rows() {
        assert!(row.params.len() <= 6, "{}", row.name);
        let names: HashSet<&str> = row.params.iter().map(|p| p.name).collect();
        assert_eq!(names.len(), row.params.len(), "{}", row.name);
        for (i, param) in row.params.iter().enumerate() {
            for k in references(param.kind) {
                let target = row.params.get(k as usize).unwrap_or_else(|| panic!("{}.{}", row.name, param.name));
                let pointer = matches!(param.kind, Kind::SockLen(_));
                let length = matches!(param.kind, Kind::Out(Len::Sock(_)));
                let right =
                    if pointer { matches!(target.kind, Kind::Out(_)) } else { length || !target.kind.is_pointer() };
                assert!(k as usize != i && right, "{}.{}", row.name, param.name);
            }
        }
        let shaped = row.params.iter().any(|p| matches!(p.kind, Kind::Shaped));
        assert_eq!(shaped, row.shape.is_some(), "{}", row.name);
    }
}

#[test]
fn policies_are_complete_sentences_and_errors() {
    for row in rows() {
        if let Policy::Refuse(errno, reason) = row.policy {
            assert!((1..134).contains(&errno), "{}", row.name);
            assert!(reason.len() > 20 && !reason.ends_with('.'), "{}", row.name);
        }
    }
    let engine: Vec<&str> = rows().iter().filter(|r| r.policy == Policy::Engine).map(|r| r.name).collect();
    for name in ["mmap", "clone", "execve", "rt_sigreturn", "futex", "close", "openat", "clock_gettime", "getdents64"] {
        assert!(engine.contains(&name), "{name}");
    }
    for name in ["clone3", "rseq", "io_uring_setup", "userfaultfd", "ptrace", "modify_ldt"] {
        let row = rows().iter().find(|r| r.name == name).unwrap();
        assert!(matches!(row.policy, Policy::Refuse(..)), "{name}");
    }
}

#[test]
fn ioctl_requests_are_sorted_and_structures_have_sizes() {
    let numbers: Vec<u32> = super::ioctl_rows::REQUESTS.iter().map(|r| r.number).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    for name in super::ioctl_rows::WAITING {
        assert!(super::ioctl_rows::REQUESTS.iter().any(|r| r.name == *name), "{name}");
    }
    assert!(structs::ALL.iter().all(|s| s.size > 0 && !s.name.is_empty()));
}

#[test]
fn no_call_trips_over_random_arguments() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let guest = Guest::default().u64s(0x2000, &[0x3000; 64]);
    for row in rows() {
        for _ in 0..40 {
            let args: [u64; 6] = std::array::from_fn(|_| match next() % 6 {
                0 => 0,
                1 => next() % 64,
                2 => 0x2000 + next() % 64,
                3 => u64::MAX - next() % 64,
                4 => next(),
                _ => 0x8000 + next() % 4096,
            });
            // A poll that succeeded had a sane count.
            let args = if row.name.ends_with("poll") { [args[0], args[1] % 64, args[2], 0, 0, 0] } else { args };
            let mut entry = Entry::new();
            for result in [None, Some((next() % 4096) as i64), Some(-((next() % 133) as i64 + 1))] {
                memory_with(row, &args, result, &mut entry, &mut |a, s| guest.word(a, s), &mut |u| assert!(u.len > 0));
            }
            row.blocking(&args);
            misses(row, &args);
            ranges(row, &args, &mut |_, _| {});
        }
    }
}

#[test]
fn read_and_write_take_what_the_result_says() {
    let g = Guest::default();
    check_memory(number::READ, &[3, 0x5000, 100], None, &g, &[W(0x5000, 100)]);
    check_memory(number::READ, &[3, 0x5000, 100], Some(7), &g, &[W(0x5000, 7)]);
    check_memory(number::READ, &[3, 0x5000, 100], Some(0), &g, &[]);
    check_memory(number::READ, &[3, 0x5000, 100], Some(-11), &g, &[]);
    check_memory(number::READ, &[3, 0x5000, 100], Some(-14), &g, &[W(0x5000, 100)]);
    check_memory(number::READ, &[3, 0x5000, u64::MAX], None, &g, &[W(0x5000, 0x7fff_f000)]);
    check_memory(number::WRITE, &[1, 0x5000, 100], Some(60), &g, &[R(0x5000, 60)]);
    check_memory(number::GETRANDOM, &[0x5000, 16, 0], Some(16), &g, &[W(0x5000, 16)]);
}

#[test]
fn vectors_fill_their_buffers_in_order() {
    let g = Guest::default().u64s(0x2000, &[0x5000, 10, 0x6000, 0, 0x7000, 20]);
    let args = [3, 0x2000, 3];
    check_memory(number::READV, &args, None, &g, &[R(0x2000, 48), W(0x5000, 10), W(0x7000, 20)]);
    check_memory(number::READV, &args, Some(15), &g, &[R(0x2000, 48), W(0x5000, 10), W(0x7000, 5)]);
    check_memory(number::WRITEV, &args, Some(3), &g, &[R(0x2000, 48), R(0x5000, 3)]);
    check_memory(number::READV, &[3, 0x2000, 1025], None, &g, &[]);
}

#[test]
fn names_end_at_their_zero_byte() {
    let g = Guest::default().with(0x2003, b"/etc/hosts\0junk").with(0x3000, b"\0");
    check_memory(number::OPENAT, &[u64::MAX - 99, 0x2003, 0, 0], None, &g, &[R(0x2003, 11)]);
    check_memory(number::CHDIR, &[0x3000], None, &g, &[R(0x3000, 1)]);
    // A name that runs to the end of memory, and one that is not there at all.
    let g = Guest::default().with(0xf_fff5, b"abcdefghijk");
    check_memory(number::CHDIR, &[0xf_fff5], None, &g, &[R(0xf_fff5, 11)]);
    check_memory(number::CHDIR, &[0x20_0000], None, &g, &[R(0x20_0000, 1)]);
}

#[test]
fn argument_lists_are_followed() {
    let g = Guest::default().with(0x2000, b"/bin/true\0").u64s(0x3000, &[0x2000, 0x2005, 0]).u64s(0x4000, &[0]);
    let expected = [R(0x2000, 10), R(0x2000, 10), R(0x2005, 5), R(0x3000, 24), R(0x4000, 8)];
    check_memory(number::EXECVE, &[0x2000, 0x3000, 0x4000], None, &g, &expected);
}

#[test]
fn recvmsg_lists_address_parts_and_control() {
    // name 0x5000 with room for 16, one part of 100 bytes at 0x6000, room for 64 bytes of control at 0x7000
    let before = Guest::default().u64s(0x2000, &[0x5000, 16, 0x3000, 1, 0x7000, 64, 0]).u64s(0x3000, &[0x6000, 100]);
    let room = [
        R(0x2000, 56),
        W(0x5000, 16),
        W(0x2008, 4),
        R(0x3000, 16),
        W(0x6000, 100),
        W(0x7000, 64),
        W(0x2028, 8),
        W(0x2030, 4),
    ];
    check_memory(number::RECVMSG, &[3, 0x2000, 0], None, &before, &room);
    // The address needed 28 bytes and was cut to 16; 24 bytes of control came.
    let after = Guest::default().u64s(0x2000, &[0x5000, 28, 0x3000, 1, 0x7000, 24, 0]).u64s(0x3000, &[0x6000, 100]);
    let used = [
        R(0x2000, 56),
        W(0x5000, 16),
        W(0x2008, 4),
        R(0x3000, 16),
        W(0x6000, 9),
        W(0x7000, 24),
        W(0x2028, 8),
        W(0x2030, 4),
    ];
    check_after(number::RECVMSG, &[3, 0x2000, 0], &before, 9, &after, &used);
    check_memory(number::RECVMSG, &[3, 0x2000, 0], Some(-11), &before, &[R(0x2000, 56), R(0x3000, 16)]);
    let sent = [R(0x2000, 56), R(0x5000, 16), R(0x7000, 64), R(0x3000, 16), R(0x6000, 40)];
    check_memory(number::SENDMSG, &[3, 0x2000, 0], Some(40), &before, &sent);
}

#[test]
fn recvmmsg_takes_each_message_length() {
    let header = [0, 0, 0x3000, 1, 0, 0, 0, 5];
    let g = Guest::default().u64s(0x2000, &header).u64s(0x2040, &header).u64s(0x3000, &[0x6000, 100]);
    let one = [R(0x2000, 56), R(0x3000, 16), W(0x6000, 5), W(0x2028, 8), W(0x2030, 4), W(0x2038, 4)];
    check_memory(number::RECVMMSG, &[3, 0x2000, 2, 0, 0], Some(1), &g, &one);
    check_memory(number::RECVMMSG, &[3, 0x2000, 2, 0, 0x4000], Some(-11), &g, &[R(0x4000, 16)]);
}

#[test]
fn socket_addresses_are_clipped_to_their_room() {
    let before = Guest::default().u32s(0x3000, &[16]);
    let after = Guest::default().u32s(0x3000, &[28]);
    let args = [3, 0x2000, 0x3000];
    check_memory(number::GETSOCKNAME, &args, None, &before, &[W(0x2000, 16), R(0x3000, 4), W(0x3000, 4)]);
    check_after(number::GETSOCKNAME, &args, &before, 0, &after, &[W(0x2000, 16), R(0x3000, 4), W(0x3000, 4)]);
    let short = Guest::default().u32s(0x3000, &[2]);
    check_after(number::ACCEPT, &args, &before, 5, &short, &[W(0x2000, 2), R(0x3000, 4), W(0x3000, 4)]);
    check_memory(number::ACCEPT, &[3, 0, 0x3000], Some(5), &short, &[]);
}

#[test]
fn socket_options_follow_packet_filters() {
    let g = Guest::default().u64s(0x2000, &[3, 0x3000]).u32s(0x4000, &[4]);
    let uses = [R(0x2000, 16), R(0x3000, 24)];
    check_memory(number::SETSOCKOPT, &[3, 1, 26, 0x2000, 16], Some(0), &g, &uses);
    check_memory(number::SETSOCKOPT, &[3, 1, 2, 0x2000, 4], Some(0), &g, &[R(0x2000, 4)]);
    let uses = [R(0x4000, 4), W(0x4000, 4), W(0x5000, 4)];
    check_memory(number::GETSOCKOPT, &[3, 1, 3, 0x5000, 0x4000], Some(0), &g, &uses);
}

#[test]
fn ioctl_follows_the_request() {
    let g = Guest::default();
    check_memory(number::IOCTL, &[0, 0x5413, 0x2000], Some(0), &g, &[W(0x2000, 8)]);
    check_memory(number::IOCTL, &[0, 0x5413, 0x2000], Some(-25), &g, &[]);
    check_memory(number::IOCTL, &[0, 0x5402, 0x2000], None, &g, &[R(0x2000, 36)]);
    check_memory(number::IOCTL, &[0, 0x5451, 0x2000], None, &g, &[]);
    // FICLONE says that it reads four bytes, but takes a descriptor; FS_IOC_GETFLAGS says long and stores an int.
    check_memory(number::IOCTL, &[0, 0x4004_9409, 5], None, &g, &[]);
    check_memory(number::IOCTL, &[0, 0x8008_6601, 0x2000], Some(0), &g, &[W(0x2000, 4)]);
    // Not in the table: 0xc010_aa3f is _IOWR(0xaa, 0x3f, 16 bytes).
    check_memory(number::IOCTL, &[0, 0xc010_aa3f, 0x2000], Some(0), &g, &[R(0x2000, 16), W(0x2000, 16)]);
    let row = row(number::IOCTL).unwrap();
    assert!(misses(row, &[0, 0xc010_aa3f, 0, 0, 0, 0]).is_some());
    assert!(misses(row, &[0, 0x5413, 0, 0, 0, 0]).is_none());
    // SIOCGIFCONF: 80 bytes of room, 40 filled.
    let before = Guest::default().u64s(0x2000, &[80, 0x3000]);
    let after = Guest::default().u64s(0x2000, &[40, 0x3000]);
    let uses = [R(0x2000, 16), W(0x2000, 16), W(0x3000, 40)];
    check_after(number::IOCTL, &[3, 0x8912, 0x2000], &before, 0, &after, &uses);
}

#[test]
fn poll_writes_only_its_answers() {
    let g = Guest::default();
    check_memory(number::POLL, &[0x2000, 2, 5], None, &g, &[R(0x2000, 16), W(0x2006, 10)]);
    check_memory(number::POLL, &[0x2000, 2, 5], Some(1), &g, &[R(0x2000, 16), W(0x2006, 2), W(0x200e, 2)]);
    check_memory(number::POLL, &[0x2000, 1, 5], Some(-4), &g, &[R(0x2000, 8), W(0x2006, 2)]);
    check_memory(number::POLL, &[0x2000, 1, 5], Some(-22), &g, &[R(0x2000, 8)]);
    check_memory(number::POLL, &[0, 0, 5], Some(0), &g, &[]);
    // args: entries, count, time, mask, mask size
    let g = Guest::default().u64s(0x3000, &[1, 0]);
    let uses = [R(0x4000, 8), R(0x2000, 8), W(0x2006, 2), R(0x3000, 16), W(0x3000, 16)];
    check_memory(number::PPOLL, &[0x2000, 1, 0x3000, 0x4000, 8], Some(-4), &g, &uses);
}

#[test]
fn select_covers_whole_words_of_its_sets() {
    let g = Guest::default().u64s(0x5000, &[1, 500_000]);
    let args = [65, 0x2000, 0, 0x3000, 0x5000];
    let uses = [R(0x2000, 16), W(0x2000, 16), R(0x3000, 16), W(0x3000, 16), R(0x5000, 16), W(0x5000, 16)];
    check_memory(number::SELECT, &args, Some(1), &g, &uses);
    let failed = [R(0x2000, 16), R(0x3000, 16), R(0x5000, 16), W(0x5000, 16)];
    check_memory(number::SELECT, &args, Some(-9), &g, &failed);
    // A zero timeout is not written back.
    check_memory(number::SELECT, &[0, 0, 0, 0, 0x6000], None, &g, &[R(0x6000, 16)]);
    let g = Guest::default().u64s(0x7000, &[0x8000, 8]);
    check_memory(number::PSELECT6, &[0, 0, 0, 0, 0, 0x7000], None, &g, &[R(0x7000, 16), R(0x8000, 8)]);
}

#[test]
fn counted_answers_stop_at_the_result() {
    let g = Guest::default();
    check_memory(number::EPOLL_WAIT, &[4, 0x2000, 10, 0], None, &g, &[W(0x2000, 120)]);
    check_memory(number::EPOLL_WAIT, &[4, 0x2000, 10, 0], Some(3), &g, &[W(0x2000, 36)]);
    check_memory(number::GETDENTS64, &[4, 0x2000, 32768], None, &g, &[W(0x2000, 32768)]);
    check_memory(number::GETDENTS64, &[4, 0x2000, 32768], Some(144), &g, &[W(0x2000, 144)]);
    check_memory(number::GETGROUPS, &[0, 0x2000], Some(5), &g, &[]);
    check_memory(number::GETGROUPS, &[8, 0x2000], Some(5), &g, &[W(0x2000, 20)]);
    check_memory(number::MSGRCV, &[1, 0x2000, 100, 0, 0], Some(3), &g, &[W(0x2000, 11)]);
    check_memory(number::READLINK, &[0x3000, 0x2000, u64::MAX], Some(-22), &g, &[R(0x3000, 1)]);
    check_memory(number::SCHED_GETAFFINITY, &[0, 128, 0x2000], Some(8), &g, &[W(0x2000, 8)]);
}

#[test]
fn waiting_for_children_stores_only_if_there_was_one() {
    let g = Guest::default();
    let args = [u64::MAX, 0x2000, 1, 0x3000];
    check_memory(number::WAIT4, &args, None, &g, &[W(0x2000, 4), W(0x3000, 144)]);
    check_memory(number::WAIT4, &args, Some(77), &g, &[W(0x2000, 4), W(0x3000, 144)]);
    check_memory(number::WAIT4, &args, Some(0), &g, &[]);
    check_memory(number::WAIT4, &args, Some(-10), &g, &[]);
    // waitid(P_ALL, 0, info, WEXITED|WNOHANG, usage): no child, no news, news.
    let args = [0, 0, 0x2000, 5, 0x3000];
    check_memory(number::WAITID, &args, Some(-10), &g, &[W(0x2000, 12), W(0x2010, 12)]);
    check_memory(number::WAITID, &args, Some(0), &g, &[W(0x2000, 12), W(0x2010, 12)]);
    let news = Guest::default().u32s(0x2000, &[17]);
    check_memory(number::WAITID, &args, Some(0), &news, &[W(0x2000, 12), W(0x2010, 12), W(0x3000, 144)]);
}

#[test]
fn commands_decide_what_their_argument_is() {
    let g = Guest::default().with(0x2000, b"worker\0");
    check_memory(number::PRCTL, &[16, 0x3000], Some(0), &g, &[W(0x3000, 16)]);
    check_memory(number::PRCTL, &[15, 0x2000], Some(0), &g, &[R(0x2000, 7)]);
    check_memory(number::PRCTL, &[38, 1], Some(0), &g, &[]);
    check_memory(number::ARCH_PRCTL, &[0x1003, 0x3000], Some(0), &g, &[W(0x3000, 8)]);
    check_memory(number::ARCH_PRCTL, &[0x1002, 0x3000], Some(0), &g, &[]);
    check_memory(number::FCNTL, &[3, 5, 0x3000], Some(0), &g, &[R(0x3000, 32), W(0x3000, 32)]);
    check_memory(number::FCNTL, &[3, 5, 0x3000], Some(-22), &g, &[R(0x3000, 32)]);
    check_memory(number::FCNTL, &[3, 7, 0x3000], None, &g, &[R(0x3000, 32)]);
    check_memory(number::FCNTL, &[3, 4, 0x800], None, &g, &[]);
    check_memory(number::SHMCTL, &[1, 2, 0x3000], Some(0), &g, &[W(0x3000, 112)]);
    check_memory(number::SEMCTL, &[1, 0, 16, 0x3000], Some(0), &g, &[]);
    check_memory(number::EPOLL_CTL, &[4, 2, 5, 0x3000], None, &g, &[]);
    check_memory(number::EPOLL_CTL, &[4, 1, 5, 0x3000], None, &g, &[R(0x3000, 12)]);
}

#[test]
fn structures_have_their_kernel_sizes() {
    let g = Guest::default().with(0x2000, b"x\0");
    check_memory(number::STATX, &[0, 0x2000, 0, 0, 0x3000], Some(0), &g, &[R(0x2000, 2), W(0x3000, 256)]);
    check_memory(number::STATX, &[0, 0x2000, 0, 0, 0x3000], Some(-2), &g, &[R(0x2000, 2)]);
    check_memory(number::FSTAT, &[0, 0x3000], Some(0), &g, &[W(0x3000, 144)]);
    check_memory(number::UNAME, &[0x3000], Some(0), &g, &[W(0x3000, 390)]);
    check_memory(number::MINCORE, &[0x1000, 4097, 0x3000], Some(0), &g, &[W(0x3000, 2)]);
}

#[test]
fn futex_operations_differ() {
    let g = Guest::default();
    let futex = |op: u64| [0x2000, op, 1, 0x3000, 0x4000, 0];
    check_memory(number::FUTEX, &futex(128), None, &g, &[R(0x2000, 4), R(0x3000, 16)]);
    check_memory(number::FUTEX, &futex(129), None, &g, &[]);
    check_memory(number::FUTEX, &futex(3), None, &g, &[]);
    check_memory(number::FUTEX, &futex(4), None, &g, &[R(0x2000, 4)]);
    check_memory(number::FUTEX, &futex(5), None, &g, &[R(0x4000, 4), W(0x4000, 4)]);
    let lock = [R(0x2000, 4), W(0x2000, 4), R(0x3000, 16)];
    check_memory(number::FUTEX, &futex(134), Some(-110), &g, &lock);
    check_memory(number::FUTEX, &futex(11), None, &g, &[R(0x2000, 4), R(0x3000, 16), R(0x4000, 4), W(0x4000, 4)]);
}

#[test]
fn attributes_with_their_own_size() {
    let before = Guest::default().u32s(0x2000, &[0, 4096]);
    let after = Guest::default().u32s(0x2000, &[0, 136]);
    check_after(number::PERF_EVENT_OPEN, &[0x2000, 0, 0, 0, 0], &before, -7, &after, &[R(0x2000, 4096), W(0x2004, 4)]);
    check_memory(number::PERF_EVENT_OPEN, &[0x2000, 0, 0, 0, 0], Some(3), &after, &[R(0x2000, 136)]);
    let request = Guest::default().u32s(0x2000, &[24]);
    check_memory(number::LISTMOUNT, &[0x2000, 0x3000, 9, 0], Some(2), &request, &[R(0x2000, 24), W(0x3000, 16)]);
}

fn check_ranges(nr: u64, args: [u64; 6], expected: &[(u64, u64)]) {
    let mut found = Vec::new();
    ranges(row(nr).unwrap(), &args, &mut |addr, len| found.push((addr, len)));
    assert_eq!(found, expected);
}

#[test]
fn ranges_leave_out_wishes() {
    check_ranges(number::MUNMAP, [0x2000, 0x1000, 0, 0, 0, 0], &[(0x2000, 0x1000)]);
    check_ranges(number::MMAP, [0x2000, 0x1000, 3, 0x22, 0, 0], &[]);
    check_ranges(number::MMAP, [0x2000, 0x1000, 3, 0x32, 0, 0], &[(0x2000, 0x1000)]);
    check_ranges(number::MREMAP, [0x2000, 0x1000, 0x3000, 1, 0x9000, 0], &[(0x2000, 0x1000)]);
    check_ranges(number::MREMAP, [0x2000, 0x1000, 0x3000, 3, 0x9000, 0], &[(0x2000, 0x1000), (0x9000, 0x3000)]);
    check_ranges(number::READ, [0, 0x1000, 1, 0, 0, 0], &[]);
}

fn check_blocking(nr: u64, args: [u64; 6], expected: &str) {
    let name = match row(nr).unwrap().blocking(&args) {
        Blocking::Never => String::from("never"),
        Blocking::OnFd(k) => format!("fd {k}"),
        Blocking::OnFds(a, b) => format!("fds {a} {b}"),
        Blocking::Open => String::from("open"),
        Blocking::Always => String::from("always"),
        Blocking::Timed(t) => format!("{t:?}"),
        Blocking::When(_) => String::from("unresolved"),
    };
    assert_eq!(name, expected, "{}", row(nr).unwrap().name);
}

#[test]
fn blocking_depends_on_flags_and_times() {
    check_blocking(number::READ, [0; 6], "fd 0");
    check_blocking(number::SPLICE, [0; 6], "fds 0 2");
    check_blocking(number::POLL, [0, 0, 0, 0, 0, 0], "never");
    check_blocking(number::POLL, [0, 0, u64::MAX, 0, 0, 0], "Millis(2)");
    check_blocking(number::WAIT4, [0, 0, 0, 0, 0, 0], "always");
    check_blocking(number::WAIT4, [0, 0, 1, 0, 0, 0], "never");
    check_blocking(number::FCNTL, [3, 7, 0, 0, 0, 0], "always");
    check_blocking(number::FCNTL, [3, 6, 0, 0, 0, 0], "never");
    check_blocking(number::FUTEX, [0, 128, 0, 0, 0, 0], "Timespec(3)");
    check_blocking(number::FUTEX, [0, 137, 0, 0, 0, 0], "Deadline(3)");
    check_blocking(number::FUTEX, [0, 129, 0, 0, 0, 0], "never");
    check_blocking(number::RECVFROM, [0, 0, 0, 0x40, 0, 0], "never");
    check_blocking(number::OPENAT, [0, 0, 0, 0, 0, 0], "open");
    check_blocking(number::OPENAT, [0, 0, 0o4000, 0, 0, 0], "never");
    check_blocking(number::IOCTL, [0, 0x5413, 0, 0, 0, 0], "never");
    check_blocking(number::IOCTL, [0, 0x5409, 0, 0, 0, 0], "fd 0");
    check_blocking(number::GETPID, [0; 6], "never");
}

#[test]
fn time_limits_are_read_in_their_own_unit() {
    let g = Guest::default().u64s(0x2000, &[2, 500]).u64s(0x3000, &[1, 1_000_000_000]);
    let limit = |t: Timeout, arg: u64| t.limit(&[arg, 0, 0, 0, 0, 0], &mut |a, s| g.word(a, s));
    assert_eq!(limit(Timeout::Millis(0), 3), Some(Limit::After(3_000_000)));
    assert_eq!(limit(Timeout::Millis(0), u64::from(u32::MAX)), Some(Limit::None));
    assert_eq!(limit(Timeout::Timeval(0), 0x2000), Some(Limit::After(2_000_500_000)));
    assert_eq!(limit(Timeout::Timespec(0), 0x2000), Some(Limit::After(2_000_000_500)));
    assert_eq!(limit(Timeout::Deadline(0), 0x2000), Some(Limit::At(2_000_000_500)));
    assert_eq!(limit(Timeout::Timespec(0), 0), Some(Limit::None));
    assert_eq!(limit(Timeout::Timespec(0), 0x3000), None);
    assert_eq!(limit(Timeout::Timespec(0), 0x20_0000), None);
}

#[test]
fn descriptors_are_found_among_the_arguments() {
    let fds = |nr, args: [u64; 6]| row(nr).unwrap().descriptors(&args).collect::<Vec<_>>();
    assert_eq!(fds(number::DUP2, [3, 4, 0, 0, 0, 0]), [(0, 3), (1, 4)]);
    assert_eq!(fds(number::OPENAT, [u64::MAX - 99, 4, 0, 0, 0, 0]), []);
    assert_eq!(fds(number::EPOLL_CTL, [5, 1, 6, 0, 0, 0]), [(0, 5), (2, 6)]);
}
