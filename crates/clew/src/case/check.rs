//! Scripts that say whether an output is right.
//!
//! A script that cannot be run, or does not come to an end, says nothing about the program: that is told as what it is
//! before anything is searched.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A script that looks at an output for longer has not found it right.
pub const LONGEST: Duration = Duration::from_secs(10);
/// How often it is looked whether a script has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// What a shell answers when it cannot run a command, or does not find it.
const CANNOT_RUN: [i32; 2] = [126, 127];
/// The variable with the name of the input.
const INPUT: &str = "CLEW_INPUT";
/// Of what a script complains about, as much is told.
const MOST_SAID: usize = 200;

/// What a script says about an output.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    Right,
    Wrong,
    /// Nothing, and why.
    Nothing(String),
}

/// Does the script take this output for right, within a limit of time and before `until`?
pub fn run_check(script: &str, output: &[u8], until: Instant) -> bool {
    ask(&["-c", script], output, None, until) == Said::Right
}

/// The same of a script that may look at the input of the run too, whose name is in `CLEW_INPUT`.
pub fn run_check_of(script: &str, output: &[u8], input: &Path, until: Instant) -> bool {
    ask(&["-c", script], output, Some(input), until) == Said::Right
}

/// Can the script judge this output at all? Says why not.
pub fn works(script: &str, output: &[u8], input: Option<&Path>) -> Result<(), String> {
    let until = Instant::now() + LONGEST;
    let read_only = ask(&["-n", "-c", script], &[], input, until);
    let why = match (read_only, ask(&["-c", script], output, input, until)) {
        (Said::Nothing(why), _) | (Said::Right, Said::Nothing(why)) => why,
        (Said::Wrong, _) => "the shell does not understand it".to_owned(),
        (Said::Right, _) => return Ok(()),
    };
    Err(format!("the script of --check judges nothing: {why}; it must exit with 0 if what it reads is right"))
}

fn ask(arguments: &[&str], output: &[u8], input: Option<&Path>, until: Instant) -> Said {
    let nothing = |why: &dyn std::fmt::Display| Said::Nothing(why.to_string());
    let (mut file, mut said) = match (in_memory(), in_memory()) {
        (Ok(file), Ok(said)) => (file, said),
        (Err(e), _) | (_, Err(e)) => return nothing(&e),
    };
    let complaints = match file.write_all(output).and_then(|()| file.rewind()).and_then(|()| said.try_clone()) {
        Ok(copy) => copy,
        Err(e) => return nothing(&e),
    };
    let mut command = Command::new("/bin/sh");
    command.args(arguments).stdin(file).stdout(Stdio::null()).stderr(complaints).process_group(0);
    command.envs(input.map(|path| (INPUT, path)));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => return nothing(&e),
    };
    let status = match end_of(&mut child, until.min(Instant::now() + LONGEST)) {
        Some(status) => status,
        None => return Said::Nothing("it does not end".into()),
    };
    match status.code() {
        _ if status.success() => Said::Right,
        Some(code) if CANNOT_RUN.contains(&code) => {
            let mut text = String::new();
            let _ = said.rewind().and_then(|()| said.read_to_string(&mut text));
            let text: String = text.trim().chars().take(MOST_SAID).collect();
            Said::Nothing(if text.is_empty() { format!("it exits with {code}") } else { text })
        }
        _ => Said::Wrong,
    }
}

/// In memory, not in a pipe: a script that does not read everything is none the worse for it.
fn in_memory() -> std::io::Result<File> {
    Ok(rustix::fs::memfd_create("clew-output", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

/// How a script ended; nothing if it did not in time. Then it is ended, with all that it started.
fn end_of(child: &mut Child, until: Instant) -> Option<std::process::ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            _ => {
                if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
                    // It may have ended by itself meanwhile.
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                let _ = child.wait();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_cannot_judge_is_told_from_one_that_says_no() {
        let text = |script: &str| works(script, b"right\n", None).err().unwrap_or_default();
        assert_eq!(text("grep -q right"), "");
        assert_eq!(text("grep -q wrong"), "");
        assert_eq!(text("exit 2"), "");
        assert!(text("/nonexistent/script").contains("not found"), "{}", text("/nonexistent/script"));
        assert!(text("syntax ( error").contains("does not understand"), "{}", text("syntax ( error"));
        let until = Instant::now() + LONGEST;
        assert!(run_check("grep -q right", b"right\n", until));
        assert!(!run_check("grep -q right", b"other\n", until));
        assert!(!run_check("sleep 100", b"", Instant::now()), "one that does not end says nothing");
    }
}
