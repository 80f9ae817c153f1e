//! What this process was given, looked at before anything changes it.
//!
//! Guarantees: after [`Startup::look`] the three standard descriptors are open in this process, while a guest still gets
//! those that were closed as closed: the stand-ins are close-on-exec.

use image::{Debuginfod, Search, SourceMap};
use nix::sys::signal::SigSet;
use rustix::fs::{Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// What this process was given.
#[derive(Debug)]
pub struct Startup {
    pub args: Vec<OsString>,
    /// The environment as it is in memory, entry by entry: a guest also gets what is not `NAME=value`.
    pub env: Vec<OsString>,
    /// Signals blocked at the start.
    pub blocked: SigSet,
    /// Signals ignored at the start; bit n-1 is signal n.
    pub ignored: u64,
    /// Where sources are now, by where compilers saw them.
    pub source_map: SourceMap,
}

impl Startup {
    pub fn look() -> Startup {
        open_standard_descriptors();
        let mut args: Vec<OsString> = std::env::args_os().collect();
        if args.is_empty() {
            // Where the C library does not hand arguments to initialisers, nobody has told the standard library.
            args = entries("/proc/self/cmdline").unwrap_or_default();
        }
        Startup {
            args,
            env: entries("/proc/self/environ").unwrap_or_else(|| std::env::vars_os().map(join).collect()),
            blocked: SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty()),
            ignored: ignored_signals().unwrap_or(0),
            source_map: SourceMap::default(),
        }
    }

    /// Where debug information and sources are looked for; on servers only if the user names some.
    pub fn search(&self) -> Search {
        let folder = |name: &str| self.variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let cache = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
        let urls = self.variable("DEBUGINFOD_URLS").and_then(OsStr::to_str);
        let debuginfod = urls.zip(cache).and_then(|(urls, cache)| Debuginfod::new(urls, cache.join("clew/debuginfod")));
        Search { source_map: self.source_map.clone(), debuginfod, ..Search::default() }
    }

    /// The value of an environment variable.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        use std::os::unix::ffi::OsStrExt;
        self.env.iter().find_map(|entry| {
            let value = entry.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(OsStr::from_bytes(value))
        })
    }

    pub fn ignores(&self, signal: i32) -> bool {
        (1..=64).contains(&signal) && self.ignored >> (signal - 1) & 1 != 0
    }
}

/// Makes sure that nothing this process opens lands on a standard descriptor, where messages would be written into it.
fn open_standard_descriptors() {
    let standard = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    for fd in standard {
        let open = rustix::io::fcntl_getfd(fd).is_ok();
        if open {
            continue;
        }
        // The lowest free number is this one, because those below are open by now.
        let opened = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        if let Ok(stand_in) = opened {
            // It must stay open for as long as the process lives.
            std::mem::forget(stand_in);
        }
    }
}

/// The zero-terminated entries of a file in /proc.
fn entries(path: &str) -> Option<Vec<OsString>> {
    let bytes = std::fs::read(path).ok()?;
    Some(split_entries(&bytes))
}

fn split_entries(bytes: &[u8]) -> Vec<OsString> {
    let Some(bytes) = bytes.strip_suffix(b"\0").or((!bytes.is_empty()).then_some(bytes)) else { return Vec::new() };
    bytes.split(|&b| b == 0).map(|e| OsString::from_vec(e.to_vec())).collect()
}

fn join((name, value): (OsString, OsString)) -> OsString {
    let mut entry = name;
    entry.push("=");
    entry.push(value);
    entry
}

fn ignored_signals() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_entries(bytes: &[u8], expected: &[&str]) {
        assert_eq!(split_entries(bytes), expected);
    }

    #[test]
    fn entries_are_separated_by_zero_bytes() {
        check_entries(b"", &[]);
        check_entries(b"\0", &[""]);
        check_entries(b"a=b\0", &["a=b"]);
        check_entries(b"a=b\0\0c\0", &["a=b", "", "c"]);
        check_entries(b"cut", &["cut"]);
    }
}
