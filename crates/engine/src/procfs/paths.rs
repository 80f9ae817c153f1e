//! Paths under `/proc` that the engine answers itself, because the kernel would show the engine instead of the guest.
//!
//! [`recognise`] looks at the text of an absolute path alone. It sees through `//`, `/./` and, where no symbolic link
//! can be involved, `/../`.
//! May miss: paths that reach `/proc` through links of the file system, another mount of procfs, or a directory
//! descriptor; the caller resolves the latter and asks with the whole path.

#![forbid(unsafe_code)]

use alloc::vec::Vec;

/// Who asks.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub pid: u32,
    /// The calling thread.
    pub tid: u32,
    /// Is this a thread of the process?
    pub is_thread: &'a dyn Fn(u32) -> bool,
}

/// Something about the process itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    pub who: Who,
    pub entry: Entry,
}

/// Which directory the path goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// `/proc/self` or `/proc/PID`
    Process,
    /// `/proc/thread-self`, `/proc/PID/task/TID`, or `/proc/TID` of a thread that is not the first
    Thread(u32),
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The directory itself.
    Directory,
    /// `task`, the directory of the threads.
    Task,
    Exe,
    Maps,
    Smaps,
    SmapsRollup,
    NumaMaps,
    /// `map_files`, or something in it.
    MapFiles,
    /// Memory by address: reaches the engine's, and writes through it are not noticed.
    Mem,
    Pagemap,
    Auxv,
    Cmdline,
    Environ,
    Comm,
    Stat,
    Statm,
    Status,
    Syscall,
    Wchan,
    Timers,
    /// `fd`, or one descriptor in it. Also `/dev/fd`.
    Fd(Option<u32>),
    /// `fdinfo`, or one descriptor in it.
    FdInfo(Option<u32>),
    /// Anything else about the process: the kernel's answer will do.
    Other,
}

const FILES: &[(&[u8], Entry)] = &[
    (b"exe", Entry::Exe),
    (b"maps", Entry::Maps),
    (b"smaps", Entry::Smaps),
    (b"smaps_rollup", Entry::SmapsRollup),
    (b"numa_maps", Entry::NumaMaps),
    (b"mem", Entry::Mem),
    (b"pagemap", Entry::Pagemap),
    (b"auxv", Entry::Auxv),
    (b"cmdline", Entry::Cmdline),
    (b"environ", Entry::Environ),
    (b"comm", Entry::Comm),
    (b"stat", Entry::Stat),
    (b"statm", Entry::Statm),
    (b"status", Entry::Status),
    (b"syscall", Entry::Syscall),
    (b"wchan", Entry::Wchan),
    (b"timers", Entry::Timers),
];

/// What an absolute path names about the asking process, if anything.
pub fn recognise(path: &[u8], asker: Asker<'_>) -> Option<Own> {
    let parts = components(path)?;
    let (who, rest) = match parts.as_slice() {
        [b"proc", b"self", rest @ ..] => (Who::Process, rest),
        [b"proc", b"thread-self", rest @ ..] => (Who::Thread(asker.tid), rest),
        [b"proc", id, rest @ ..] => match number(id)? {
            id if id == asker.pid => (Who::Process, rest),
            id if (asker.is_thread)(id) => (Who::Thread(id), rest),
            _ => return None,
        },
        [b"dev", b"fd", rest @ ..] => return entry_in(Who::Process, Fds::Descriptors, rest, path),
        _ => return None,
    };
    let (who, rest) = match (who, rest) {
        // Only the directory of a process has `task`; that of a thread reached through it has not.
        (_, [b"task", tid, rest @ ..]) if parts.get(1) != Some(&&b"thread-self"[..]) => {
            let tid = number(tid).filter(|&tid| tid == asker.pid || (asker.is_thread)(tid))?;
            (Who::Thread(tid), rest)
        }
        other => other,
    };
    match rest {
        [] => Some(Own { who, entry: Entry::Directory }),
        [b"task"] => Some(Own { who, entry: Entry::Task }),
        [b"fd", rest @ ..] => entry_in(who, Fds::Descriptors, rest, path),
        [b"fdinfo", rest @ ..] => entry_in(who, Fds::Info, rest, path),
        [b"map_files", ..] => Some(Own { who, entry: Entry::MapFiles }),
        [name] => {
            let known = FILES.iter().find(|(file, _)| file == name).map(|&(_, entry)| entry);
            // A file with a slash behind it is an error that the kernel reports best.
            known.filter(|_| !wants_directory(path)).or(Some(Entry::Other)).map(|entry| Own { who, entry })
        }
        _ => Some(Own { who, entry: Entry::Other }),
    }
}

/// Which of the two directories of descriptors.
enum Fds {
    Descriptors,
    Info,
}

fn entry_in(who: Who, fds: Fds, rest: &[&[u8]], path: &[u8]) -> Option<Own> {
    let fd = match rest {
        [] => None,
        [fd] if !wants_directory(path) => Some(number(fd)?),
        // Through a descriptor to something else.
        _ => return Some(Own { who, entry: Entry::Other }),
    };
    let entry = match fds {
        Fds::Descriptors => Entry::Fd(fd),
        Fds::Info => Entry::FdInfo(fd),
    };
    Some(Own { who, entry })
}

/// The names in a path, without `.` and resolved `..`; nothing if the path is relative or a `..` cannot be resolved
/// from the text.
fn components(path: &[u8]) -> Option<Vec<&[u8]>> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.strip_prefix(b"/")?.split(|&b| b == b'/') {
        match (part, parts.as_slice()) {
            (b"" | b".", _) => {}
            // A link to `PID/task/TID`.
            (b"..", [b"proc", b"thread-self"]) => parts = alloc::vec![b"proc", b"self", b"task"],
            (b"..", _) if is_plain_directory(&parts) => {
                parts.pop();
            }
            (b"..", _) => return None,
            _ => parts.push(part),
        }
    }
    Some(parts)
}

/// Is this a directory whose parent is what the text says?
fn is_plain_directory(parts: &[&[u8]]) -> bool {
    let of_process = |rest: &[&[u8]]| matches!(rest, [] | [b"fd" | b"fdinfo" | b"map_files" | b"ns" | b"attr"]);
    match parts {
        [] | [b"proc"] => true,
        [b"proc", _, b"task"] | [b"proc", _, b"task", _] => true,
        [b"proc", _, b"task", _, rest @ ..] => of_process(rest),
        [b"proc", id, rest @ ..] => (*id == b"self" || number(id).is_some()) && of_process(rest),
        _ => false,
    }
}

fn wants_directory(path: &[u8]) -> bool {
    path.ends_with(b"/") || path.ends_with(b"/.")
}

/// A number as procfs accepts it: decimal, without leading zeros.
fn number(text: &[u8]) -> Option<u32> {
    if !text.iter().all(u8::is_ascii_digit) || (text.len() > 1 && text[0] == b'0') {
        return None;
    }
    core::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// Asked by thread 101 of process 100, whose threads are 100 to 102. Expects `Who Entry` or "no".
    #[track_caller]
    fn check(path: &str, expected: &str) {
        let asker = Asker { pid: 100, tid: 101, is_thread: &|tid| (100..103).contains(&tid) };
        let got = recognise(path.as_bytes(), asker);
        let text = got.map_or("no".into(), |o| format!("{:?} {:?}", o.who, o.entry));
        assert_eq!(text, expected, "{path}");
    }

    #[test]
    fn ways_to_oneself() {
        check("/proc/self/exe", "Process Exe");
        check("/proc/100/exe", "Process Exe");
        check("/proc/thread-self/exe", "Thread(101) Exe");
        check("/proc/self/task/102/maps", "Thread(102) Maps");
        check("/proc/100/task/100/maps", "Thread(100) Maps");
        check("/proc/102/maps", "Thread(102) Maps");
        check("/proc/102/task/101/maps", "Thread(101) Maps");
        check("/proc/self", "Process Directory");
        check("/proc/100/", "Process Directory");
        check("/proc/self/task", "Process Task");
        check("/proc/self/task/101", "Thread(101) Directory");
    }

    #[test]
    fn files() {
        for (name, entry) in FILES {
            let name = core::str::from_utf8(name).unwrap();
            check(&format!("/proc/self/{name}"), &format!("Process {entry:?}"));
        }
        check("/proc/self/map_files/400000-401000", "Process MapFiles");
        check("/proc/self/cwd", "Process Other");
        check("/proc/self/net/tcp", "Process Other");
        check("/proc/self/exe/x", "Process Other");
        check("/proc/thread-self/task/101/maps", "Thread(101) Other");
    }

    #[test]
    fn descriptors() {
        check("/proc/self/fd", "Process Fd(None)");
        check("/proc/100/fd/", "Process Fd(None)");
        check("/proc/self/fd/17", "Process Fd(Some(17))");
        check("/proc/thread-self/fdinfo/3", "Thread(101) FdInfo(Some(3))");
        check("/dev/fd", "Process Fd(None)");
        check("/dev/fd/0", "Process Fd(Some(0))");
        check("/proc/self/fd/3/x", "Process Other");
        check("/proc/self/fd/3/", "Process Other");
        check("/proc/self/fd/03", "no");
        check("/proc/self/fd/x", "no");
        check("/dev/stdin", "no");
    }

    #[test]
    fn slashes_and_dots() {
        check("//proc///self/./exe", "Process Exe");
        check("/./proc/./self//maps", "Process Maps");
        check("/proc/self/../self/exe", "Process Exe");
        check("/proc/self/fd/../maps", "Process Maps");
        check("/proc/self/task/101/../102/stat", "Thread(102) Stat");
        check("/../proc/../proc/100/exe", "Process Exe");
        check("/proc/thread-self/../102/maps", "Thread(102) Maps");
        // Behind a link, the text says nothing.
        check("/proc/self/cwd/../maps", "no");
        check("/usr/../proc/self/exe", "no");
        // A file is no directory.
        check("/proc/self/maps/", "Process Other");
        check("/proc/self/maps/.", "Process Other");
    }

    #[test]
    fn others() {
        for path in ["", "/", "/proc", "proc/self/exe", "self/exe", "/proc/1/exe", "/proc/0100/exe", "/proc/cpuinfo"] {
            check(path, "no");
        }
        for path in ["/proc/selfish/exe", "/proc/99999999999/exe", "/proc/self/task/1/maps", "/procself/exe", "/dev"] {
            check(path, "no");
        }
    }
}
