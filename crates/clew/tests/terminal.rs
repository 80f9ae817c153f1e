//! Job control on a real terminal, with a real shell between the terminal and `clew`.

mod common;

use common::{CLEW, folder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A terminal with an interactive shell in it.
struct Terminal {
    master: OwnedFd,
    shell: Child,
    /// Everything that has appeared.
    seen: String,
    /// How much of it has been waited for.
    at: usize,
}

impl Terminal {
    fn open() -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&master, size(24, 80)).unwrap();
        let shell = Command::new("setsid")
            .args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"])
            .env("PS1", "ready> ")
            .env("TERM", "dumb")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave)
            .spawn()
            .unwrap();
        let mut terminal = Terminal { master, shell, seen: String::new(), at: 0 };
        terminal.expect("ready> ");
        terminal
    }

    fn send(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let n = rustix::io::write(&self.master, rest).unwrap();
            rest = &rest[n..];
        }
    }

    /// Waits until `text` appears after what was waited for before.
    #[track_caller]
    fn expect(&mut self, text: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = self.seen[self.at..].find(text) {
                self.at += found + text.len();
                return;
            }
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap();
            let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
            if poll(&mut fds, Some(&timeout)).unwrap() == 0 {
                panic!("{text:?} did not appear in:\n{}", self.seen);
            }
            let mut buffer = [0; 4096];
            match rustix::io::read(&self.master, &mut buffer) {
                Ok(n) if n > 0 => self.seen.push_str(&String::from_utf8_lossy(&buffer[..n])),
                _ => panic!("the terminal closed before {text:?} appeared:\n{}", self.seen),
            }
        }
    }

    /// Types a command that runs a script under clew and waits until it has come to the point where `after` starts.
    #[track_caller]
    fn start(&mut self, before: &str, after: &str) {
        // The word is split so that the shell's echo of the command is not taken for it.
        self.send(format!("{CLEW} run -- sh -c '{before} echo \"star\"\"ted\"; {after}'\n").as_bytes());
        self.expect("started");
    }

    /// The process that the line of `jobs -l` names whose `Stopped` was waited for.
    fn job(&self) -> u32 {
        let line = self.seen[..self.at].lines().last().unwrap();
        let number = line.split_whitespace().find_map(|word| word.parse().ok());
        number.unwrap_or_else(|| panic!("no number of a process in {line:?}"))
    }

    /// Expects the shell to be back, with this exit status of the last command.
    #[track_caller]
    fn expect_status(&mut self, status: i32) {
        self.expect("ready> ");
        self.send(b"echo \"sta\"\"tus\" $?.\n");
        self.expect(&format!("status {status}."));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // What it started gets the hangup that follows; both may have gone already.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// Waits until the first thread of a host that was continued has blocked SIGTSTP again. No person is so fast with the next
/// Ctrl-Z; one that comes before stops the host at once, perhaps before its guest.
fn until_stops_are_blocked(host: u32) {
    let until = Instant::now() + PATIENCE;
    let is_blocked = || {
        let status = std::fs::read_to_string(format!("/proc/{host}/task/{host}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() >> 19 & 1 == 1
    };
    while !is_blocked() {
        assert!(Instant::now() < until, "the host does not block SIGTSTP again");
        std::thread::yield_now();
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

#[test]
fn ctrl_c_ends_the_program() {
    let mut terminal = Terminal::open();
    terminal.start("", "exec sleep 1000");
    terminal.send(b"\x03");
    terminal.expect_status(130);
}

#[test]
fn ctrl_c_that_the_program_handles_does_not_end_clew() {
    let mut terminal = Terminal::open();
    let before = r#"n=0; trap "n=1; echo cau""ght" INT;"#;
    terminal.start(before, "while test $n = 0; do sleep 0.05; done; read line; exit $line");
    terminal.send(b"\x03");
    terminal.expect("caught");
    terminal.send(b"9\n");
    terminal.expect_status(9);
}

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let mut terminal = Terminal::open();
    terminal.start("", "while read line; do echo got-$line; done; exit 5");
    for word in ["one", "two"] {
        terminal.send(b"\x1a");
        terminal.expect("Stopped");
        terminal.expect("ready> ");
        terminal.send(b"jobs -l\n");
        terminal.expect("+ ");
        terminal.expect("Stopped");
        let host = terminal.job();
        terminal.expect("ready> ");
        terminal.send(format!("fg\n{word}\n").as_bytes());
        // That it answers proves that it has the terminal again.
        terminal.expect(&format!("got-{word}"));
        until_stops_are_blocked(host);
    }
    terminal.send(b"\x04");
    terminal.expect_status(5);
}

#[test]
fn continuing_clew_alone_continues_the_program() {
    let folder = folder("continue");
    let fifo = folder.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut terminal = Terminal::open();
    terminal.start("", &format!("read line <{}; echo \"got\"-$line", fifo.display()));
    terminal.send(b"\x1a");
    terminal.expect("Stopped");
    terminal.expect("ready> ");
    terminal.send(b"kill -CONT $(jobs -p)\n");
    // Opening it waits for the reader.
    std::fs::write(&fifo, "word\n").unwrap();
    terminal.expect("got-word");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_background_job_that_reads_the_terminal_is_stopped() {
    let mut terminal = Terminal::open();
    // With `set -b` the shell tells at once that a job has stopped.
    terminal.send(format!("set -b; {CLEW} run -- sh -c 'read line; echo \"got\"-$line' &\n").as_bytes());
    terminal.expect("Stopped");
    terminal.send(b"fg\nabc\n");
    terminal.expect("got-abc");
}

#[test]
fn the_program_sees_the_size_of_the_terminal_change() {
    let mut terminal = Terminal::open();
    terminal.start(r#"trap "stty size; exit 3" WINCH; "#, "stty size; while :; do sleep 0.05; done");
    terminal.expect("24 80");
    tcsetwinsize(&terminal.master, size(33, 99)).unwrap();
    terminal.expect("33 99");
    terminal.expect_status(3);
}

#[test]
fn a_program_may_make_the_terminal_raw() {
    let mut terminal = Terminal::open();
    terminal.start("stty raw -echo;", "dd bs=1 count=2 2>/dev/null | od -An -tx1; stty sane; exit 4");
    terminal.send(b"\x03\x1a");
    terminal.expect("03 1a");
    terminal.expect_status(4);
}

#[test]
fn a_shell_under_clew_has_job_control_of_its_own() {
    let mut terminal = Terminal::open();
    terminal.send(format!("PS1='inner> ' {CLEW} run -- bash --norc --noprofile --noediting -i\n").as_bytes());
    terminal.expect("\ninner> ");
    terminal.send(b"sh -c 'echo \"star\"\"ted\"; read line; echo \"got\"-$line'\n");
    terminal.expect("started");
    terminal.send(b"\x1a");
    terminal.expect("Stopped");
    terminal.expect("inner> ");
    terminal.send(b"fg\nword\n");
    terminal.expect("got-word");
    terminal.expect("inner> ");
    terminal.send(b"exit 7\n");
    terminal.expect_status(7);
}
