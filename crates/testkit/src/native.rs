//! Runs a program natively and takes down what it shows.

use crate::{End, Shown};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// More output than this counts as running away.
pub const OUTPUT_LIMIT: usize = 1 << 20;

/// A native run.
#[derive(Debug)]
pub struct Native;

impl Native {
    /// Runs to the end or, after `limit`, to a kill.
    pub fn run<A: AsRef<OsStr>>(program: &Path, args: &[A], limit: Duration) -> Shown {
        let mut command = Command::new(program);
        command.args(args);
        show(&mut command, limit)
    }
}

/// Runs a command with an empty environment and no input.
pub(crate) fn show(command: &mut Command, limit: Duration) -> Shown {
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot run {:?}: {e}", command.get_program()));
    let mut pipe = child.stdout.take().expect("stdout is a pipe");
    let reader = std::thread::spawn(move || read_at_most(&mut pipe, OUTPUT_LIMIT));
    let end = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break Some(status);
        }
        if Instant::now() >= end {
            child.kill().expect("a child can be killed");
            child.wait().expect("a child can be waited for");
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let stdout = reader.join().expect("the reader does not panic");
    let end = match status {
        _ if stdout.len() >= OUTPUT_LIMIT => End::RanAway,
        Some(status) => end_of(status),
        None => End::RanAway,
    };
    Shown { stdout, end }
}

pub(crate) fn end_of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (_, Some(signal)) => End::Signaled(signal),
        _ => End::RanAway,
    }
}

/// Reads to the end or to the limit; then the writer gets a broken pipe.
pub(crate) fn read_at_most(from: &mut impl Read, limit: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An error is the end of what can be read.
    let _ = from.take(limit as u64).read_to_end(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(script: &str, stdout: &str, end: End) {
        let shown = Native::run(Path::new("/bin/sh"), &["-c", script], Duration::from_secs(2));
        assert_eq!((String::from_utf8_lossy(&shown.stdout).as_ref(), shown.end), (stdout, end));
    }

    #[test]
    fn output_and_end_are_told() {
        check("echo a; exit 3", "a\n", End::Exited(3));
        check("printf b; kill -9 $$", "b", End::Signaled(9));
    }
}
