//! What is replayed: the logs, mapped, and the program as it was.

use crate::load::{self, Inherited, LoadError, Program};
use crate::memory::Memory;
use crate::start::Made;
use crate::sys::{self, nr};
use alloc::string::String;
use alloc::vec::Vec;
use model::layout::LOG;
use model::log::{self, Kind, Start};
use model::wire::{Config, ReplayConfig};

/// Logs, in the order they are passed through, and how the first begins.
pub struct Source {
    pub config: ReplayConfig,
    pub logs: Vec<&'static [u8]>,
    pub start: Start,
    /// The state it begins with, if that is in the middle of a run.
    pub region: Option<super::region::Region>,
}

impl Source {
    /// The recording that `config` names, if it names one.
    pub fn open(config: &Config, files: i32) -> Result<Option<Source>, String> {
        let Some(mut replay) = config.replay.clone() else { return Ok(None) };
        replay.files_fd = files;
        let mut logs = Vec::new();
        let mut at = LOG.start;
        for fd in &replay.log_fds {
            let log = map(*fd, at).map_err(|e| alloc::format!("a log cannot be mapped (error {e})"))?;
            at += (log.len() as u64).next_multiple_of(1 << 21) + (1 << 21);
            logs.push(log);
        }
        let first = logs.first().copied().unwrap_or_default();
        let start = match log::record(first) {
            Ok(raw) if raw.kind == Kind::Start => Start::decode(raw.payload),
            _ => None,
        };
        let Some(start) = start else { return Err("the log does not begin with a start".into()) };
        Ok(Some(Source { config: replay, logs, start, region: None }))
    }

    /// Brings the recorded program into memory.
    pub fn load(&mut self, inherited: &mut Inherited, config: &Config, memory: &mut Memory) -> Result<Made, LoadError> {
        if let Some(tick) = self.start.region {
            return self.load_region(tick, memory);
        }
        inherited.envp = self.start.envp.clone();
        inherited.auxv = self.start.auxv.clone();
        inherited.random = self.start.random;
        let mut program = self.image(&self.start.program, self.start.exe.as_bytes())?;
        program.argv = self.start.argv.clone();
        let interpreter = match self.start.interpreter.as_str() {
            "" => None,
            key => Some(self.image(key, b"the program interpreter")?),
        };
        let stack_limit = self.start.stack_limit;
        let execfn = self.start.execfn.clone();
        let (loaded, image) =
            load::load(&program, &execfn, inherited, config, memory, interpreter.as_ref(), stack_limit)?;
        Ok(Made {
            loaded,
            image,
            exe: self.start.exe.clone(),
            program: Some(program),
            interpreter,
            execfn,
            stack_limit,
        })
    }

    fn image(&self, key: &str, path: &[u8]) -> Result<Program, LoadError> {
        let fd = open_kept(self.config.files_fd, key);
        if sys::is_err(fd) {
            let path = String::from_utf8_lossy(path);
            let message = alloc::format!("{path}: the recording does not hold it (key {key:?}, error {})", -fd);
            return Err(LoadError { errno: -fd, message });
        }
        load::opened(fd as u64, path)
    }
}

/// Opens a kept file for reading.
pub fn open_kept(folder: i32, key: &str) -> i64 {
    let name = alloc::format!("{key}\0");
    // SAFETY: opens a file of the recording (O_CLOEXEC).
    unsafe { sys::raw(nr::OPENAT, [folder as u64, name.as_ptr() as u64, 0o2_000_000, 0, 0, 0]) }
}

/// Maps a whole file for reading; closes it.
fn map(fd: i32, at: u64) -> Result<&'static [u8], i64> {
    let mut stat = [0u64; 18];
    // SAFETY: asks for the size of our own file and maps it where nothing is; it is never written or unmapped.
    unsafe {
        let r = sys::raw3(nr::FSTAT, fd as u64, stat.as_mut_ptr() as u64, 0);
        if sys::is_err(r) {
            return Err(-r);
        }
        let len = stat[6];
        if at + len > LOG.end {
            return Err(sys::err::ENOMEM);
        }
        if len == 0 {
            return Ok(&[]);
        }
        let flags = sys::MAP_PRIVATE | sys::MAP_FIXED_NOREPLACE;
        let r = sys::raw(nr::MMAP, [at, len, sys::PROT_READ, flags, fd as u64, 0]);
        sys::raw3(nr::CLOSE, fd as u64, 0, 0);
        if sys::is_err(r) {
            return Err(-r);
        }
        Ok(core::slice::from_raw_parts(at as *const u8, len as usize))
    }
}
