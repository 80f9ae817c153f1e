//! A reference: another program, or another version of it, whose output and exit status are right.
//!
//! It runs natively, with the same arguments and the same input. Input that can be read only once is refused: the program
//! that fails needs it too.

use super::Refusal;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// What the reference did.
pub struct Right {
    pub stdout: Vec<u8>,
    pub exit: u32,
}

/// Runs the reference in place of the program of `command`.
pub fn run(reference: &Path, command: &[OsString], limit: Duration) -> Result<Right, Refusal> {
    let Some((_, arguments)) = command.split_first() else {
        return Err(Refusal::usage("--ref needs the failing command behind `--`, not a recording of it"));
    };
    let shown = reference.display();
    let mut child = Command::new(reference)
        .args(arguments)
        .stdin(input()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|e| Refusal::usage(format!("the reference {shown} cannot be run: {e}")))?;
    let mut out = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        out.as_mut().map(|o| o.read_to_end(&mut bytes)).transpose().map(|_| bytes)
    });
    let until = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Refusal::usage(format!(
                    "the reference {shown} does not end within {limit:?}, so nothing is known to be right"
                )));
            }
        }
    };
    let stdout = reader.join().ok().and_then(Result::ok);
    let stdout = stdout.ok_or_else(|| Refusal::internal("the output of the reference cannot be read"))?;
    match status.code() {
        Some(code) => Ok(Right { stdout, exit: code as u32 }),
        None => {
            let signal = status.signal().unwrap_or(0);
            Err(Refusal::usage(format!(
                "the reference {shown} dies of signal {signal}, so nothing is known to be right"
            )))
        }
    }
}

/// Our standard input from where it stands, without using it up.
fn input() -> Result<Stdio, Refusal> {
    let is_file = |kind: rustix::fs::FileType| kind == rustix::fs::FileType::RegularFile;
    let Ok(stat) = rustix::fs::fstat(rustix::stdio::stdin()) else { return Ok(Stdio::null()) };
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        kind if is_file(kind) => {
            let again = || -> std::io::Result<File> {
                let mut file = File::open("/proc/self/fd/0")?;
                let here = rustix::fs::seek(rustix::stdio::stdin(), rustix::fs::SeekFrom::Current(0))?;
                file.seek(SeekFrom::Start(here))?;
                Ok(file)
            };
            again().map(Stdio::from).map_err(|e| Refusal::usage(format!("the input cannot be read twice: {e}")))
        }
        rustix::fs::FileType::Fifo | rustix::fs::FileType::Socket => {
            Err(Refusal::usage("the reference needs the input too, and a pipe can be read once only: write < FILE"))
        }
        _ => Ok(Stdio::null()),
    }
}
