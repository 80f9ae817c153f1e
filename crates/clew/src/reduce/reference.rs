//! A reference on the same input: what the program is to write and how it is to exit.
//!
//! It runs natively, with the same arguments and standard input, in a process group of its own. One that dies or does not
//! end says nothing about what is right for that input.

use super::given::Given;
use session::Stdio as Feed;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A reference that takes longer says nothing.
const LONGEST: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A program that is right.
pub struct Reference<'a> {
    pub program: &'a Path,
    pub given: &'a Given,
}

/// What it did.
pub struct Right {
    pub stdout: Vec<u8>,
    pub exit: u32,
}

impl Reference<'_> {
    /// Runs it on an input that is there; says why nothing is known.
    pub fn run(&self, input: &Path) -> Result<Right, String> {
        let shown = self.program.display();
        let cannot = |e: std::io::Error| format!("the reference {shown} cannot be run: {e}");
        let stdin = match self.given.stdin(input).map_err(cannot)? {
            Feed::Fd(fd) => Stdio::from(fd),
            _ => Stdio::null(),
        };
        let arguments = self.given.command(input).split_off(1);
        let mut command = Command::new(self.program);
        command.args(arguments).stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().map_err(cannot)?;
        let mut out = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            out.as_mut().map(|o| o.read_to_end(&mut bytes)).transpose().map(|_| bytes)
        });
        let status = end_of(&mut child).ok_or_else(|| format!("the reference {shown} does not end"))?;
        let Some(code) = status.code() else { return Err(format!("the reference {shown} fails itself: {status}")) };
        let stdout = reader.join().ok().and_then(Result::ok);
        let stdout = stdout.ok_or_else(|| format!("the output of the reference {shown} cannot be read"))?;
        Ok(Right { stdout, exit: code as u32 })
    }
}

/// How it ended; nothing if it did not in time. What is left of its group is ended.
fn end_of(child: &mut Child) -> Option<ExitStatus> {
    let until = Instant::now() + LONGEST;
    let group = rustix::process::Pid::from_raw(child.id() as i32);
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            _ => break None,
        }
    };
    // It may have ended by itself meanwhile.
    let _ = group.map(|group| rustix::process::kill_process_group(group, rustix::process::Signal::KILL));
    let _ = child.wait();
    status
}
