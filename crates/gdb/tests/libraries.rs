//! gdb finds the program and its shared libraries by itself, from the auxiliary vector, memory and files.
//!
//! The debuggee is a real process that waits for input: only its memory is looked at.

mod support;

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use gdb::{Console, CpuState, Debuggee, Direction, End, Error, HostFile, Moved, Resume, Stop, Thread, Watch};
use support::client::gdb_batch;

/// A process that does nothing, as if it were a recording of one moment.
struct Waiting {
    child: Child,
    memory: File,
    opened: Vec<String>,
}

impl Waiting {
    fn new() -> Waiting {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat can be started");
        // Once it has answered, the dynamic linker has done its work.
        child.stdin.as_mut().unwrap().write_all(b"x").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let memory = File::open(format!("/proc/{}/mem", child.id())).expect("its memory can be read");
        Waiting { child, memory, opened: Vec::new() }
    }

    fn auxiliary(&mut self, kind: u64) -> u64 {
        let word = |at: &[u8]| u64::from_le_bytes(at.try_into().unwrap());
        let auxv = self.auxv().unwrap();
        auxv.chunks_exact(16).find(|pair| word(&pair[..8]) == kind).map_or(0, |pair| word(&pair[8..]))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Debuggee for Waiting {
    fn threads(&mut self) -> Result<Vec<Thread>, Error> {
        Ok(vec![Thread { id: self.child.id(), name: "cat".to_owned() }])
    }

    fn stopped_thread(&mut self) -> u32 {
        self.child.id()
    }

    fn reason(&mut self) -> Stop {
        Stop::Signal { thread: self.child.id(), signo: 7 }
    }

    fn registers(&mut self, _thread: u32) -> Result<CpuState, Error> {
        const AT_ENTRY: u64 = 9;
        Ok(CpuState { rip: self.auxiliary(AT_ENTRY), ..CpuState::default() })
    }

    fn set_registers(&mut self, _thread: u32, _state: &CpuState) -> Result<(), Error> {
        Err(Error::refused("only for looking"))
    }

    fn read(&mut self, addr: u64, into: &mut [u8]) -> Result<usize, Error> {
        self.memory.read_at(into, addr).map_err(|e| Error::refused(e.to_string()))
    }

    fn write(&mut self, _addr: u64, _bytes: &[u8]) -> Result<(), Error> {
        Err(Error::refused("only for looking"))
    }

    fn set_breakpoints(&mut self, _addresses: &[u64]) -> Result<(), Error> {
        Ok(())
    }

    fn set_watchpoints(&mut self, _watches: &[Watch]) -> Result<(), Error> {
        Ok(())
    }

    fn resume(&mut self, _: Direction, _: Resume, _: &mut dyn FnMut() -> bool) -> Result<Stop, Error> {
        Err(Error::refused("this moment is all there is"))
    }

    fn pid(&mut self) -> u32 {
        self.child.id()
    }

    fn exec_file(&mut self) -> Option<String> {
        Some(fs::read_link(format!("/proc/{}/exe", self.child.id())).ok()?.to_string_lossy().into_owned())
    }

    fn auxv(&mut self) -> Result<Vec<u8>, Error> {
        fs::read(format!("/proc/{}/auxv", self.child.id())).map_err(|e| Error::refused(e.to_string()))
    }

    fn file(&mut self, path: &str) -> Option<HostFile> {
        self.opened.push(path.to_owned());
        Some(HostFile::Path(PathBuf::from(path)))
    }

    fn monitor(&mut self, _command: &str, _console: &mut dyn Console) -> Result<Moved, Error> {
        Ok(Moved::No)
    }
}

#[test]
fn program_and_libraries_are_found_without_help() {
    let mut process = Waiting::new();
    let program = process.exec_file().unwrap();
    let commands = [
        "info inferiors",
        "info sharedlibrary",
        "info symbol malloc",
        "info auxv",
        "stepi",
        "print $_siginfo.si_signo",
    ];
    let (said, end) = gdb_batch(&mut process, &commands);
    let text = said.join("\n");
    assert_eq!(end, End::Detached, "{text}");
    let has = |wanted: &[&str]| said.iter().any(|line| wanted.iter().all(|w| line.contains(w)));
    assert!(has(&[&format!("process {}", process.pid()), &program]), "the program in:\n{text}");
    assert!(has(&["0x", "Yes", "libc.so.6"]), "the C library in:\n{text}");
    assert!(has(&["malloc in section .text of", "libc.so.6"]), "symbols of the C library in:\n{text}");
    assert!(has(&["AT_ENTRY"]), "the auxiliary vector in:\n{text}");
    assert!(has(&["this moment is all there is"]), "the reason of a refusal in:\n{text}");
    assert!(process.opened.contains(&program), "the program is read through us: {:?}", process.opened);
    assert!(process.opened.iter().any(|path| path.ends_with("libc.so.6")), "{:?}", process.opened);
}

#[test]
fn a_client_learns_which_signal_the_recording_is_stopped_at() {
    let (said, _) = gdb_batch(&mut Waiting::new(), &["info program"]);
    assert!(said.iter().any(|line| line.contains("It stopped with signal SIGBUS")), "{}", said.join("\n"));
}
