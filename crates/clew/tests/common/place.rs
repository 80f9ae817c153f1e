//! A home folder for recordings of one test, and commands that cannot hang it.

use super::{CLEW, folder};
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Longer than any single command takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(100);

/// A folder with a home for recordings in it; removed at the end of a test that passes.
pub struct Place {
    pub folder: PathBuf,
    pub home: PathBuf,
}

impl Place {
    pub fn new(test: &str) -> Place {
        let folder = folder(test);
        Place { home: folder.join("home"), folder }
    }

    /// `clew` with these arguments and this home.
    pub fn clew<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(CLEW);
        command.args(args).env("CLEW_HOME", &self.home).stdin(Stdio::null());
        command
    }

    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        finish(self.clew(args), b"")
    }

    /// Records a program and its arguments, which must end with this status.
    #[track_caller]
    pub fn record<A: AsRef<OsStr>>(&self, command: &[A], status: i32) -> Output {
        let mut clew = self.clew(["record", "--quiet", "--"]);
        clew.args(command);
        let output = finish(clew, b"");
        assert_eq!(output.status.code(), Some(status), "{}", String::from_utf8_lossy(&output.stderr));
        output
    }

    pub fn done(self) {
        std::fs::remove_dir_all(&self.folder).expect("the folder can be removed");
    }
}

/// Runs to the end with this standard input; fails the test when that takes too long.
#[track_caller]
pub fn finish(mut command: Command, input: &[u8]) -> Output {
    if !input.is_empty() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let pid = rustix::process::Pid::from_child(&child);
    let stdin = child.stdin.take();
    let input = input.to_owned();
    std::thread::spawn(move || {
        // A program that does not read its input to the end is no failure.
        let _ = stdin.map(|mut stdin| stdin.write_all(&input));
    });
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match ended.recv_timeout(PATIENCE) {
        Ok(output) => output.expect("it can be waited for"),
        Err(_) => {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            panic!("it hangs: {command:?}");
        }
    }
}

/// A copy of a folder.
pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the folder can be made");
    for entry in std::fs::read_dir(from).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            std::fs::copy(&from, &to).expect("the file can be copied");
        }
    }
}
