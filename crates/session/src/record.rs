//! Recording: equips a launch so that the guest tree is recorded, and tidies up behind it.
//!
//! The engines write the log and keep files by themselves; the host compresses segments as they become full, in a thread
//! of its own, and seals the folder at the end. When the host is killed, what the engines wrote stays as it is, which
//! readers accept.

use crate::engine_program::above_stdio;
use crate::error::{Error, ErrorKind};
use crate::launch::{Launch, Stdio};
use model::Mode;
use model::region::RegionPoint;
use model::wire::{Packet, RecordConfig, Report};
use recording::{Folder, Meta, Sealed, UnitName};
use rustix::process::{Pid, test_kill_process};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A recording being made.
pub struct Recorder {
    folder: Arc<Folder>,
    /// Started when there is something to compress: a host that takes charge of signals must do so before any thread
    /// exists.
    compressor: Mutex<Option<Compressor>>,
    /// Where recording begins and ends.
    region: [Option<RegionPoint>; 2],
}

/// A segment that is full.
struct Full {
    unit: UnitName,
    sequence: u32,
    /// Its engine would use the file again.
    wanted: bool,
}

struct Compressor {
    segments: Sender<Full>,
    thread: JoinHandle<()>,
}

impl Compressor {
    fn start(folder: Arc<Folder>) -> io::Result<Compressor> {
        let (segments, full) = channel::<Full>();
        let thread = std::thread::Builder::new().name("clew-compress".into()).spawn(move || {
            for Full { unit, sequence, wanted } in full {
                // A segment that cannot be compressed now stays as it is and is tried again at the end.
                let _ = match wanted {
                    true => folder.compress_and_give_back(unit, sequence),
                    false => folder.compress(unit, sequence),
                };
            }
        })?;
        Ok(Compressor { segments, thread })
    }
}

impl Recorder {
    pub fn new(folder: Folder) -> Recorder {
        Recorder { folder: Arc::new(folder), compressor: Mutex::default(), region: [None; 2] }
    }

    /// Only this stretch of the run is recorded.
    pub fn set_region(&mut self, from: Option<RegionPoint>, to: Option<RegionPoint>) {
        self.region = [from, to];
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Makes the launch record. `chaos` switches threads at random instructions.
    pub fn equip(&self, launch: &mut Launch<'_>, chaos: Option<u64>) -> Result<(), Error> {
        let prepare = |e: io::Error| Error::new(ErrorKind::Prepare, e);
        let copy = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().and_then(above_stdio);
        let folder = copy(self.folder.dir_fd()).map_err(prepare)?;
        let store = self.folder.stamps_fd().map(copy).transpose().map_err(prepare)?;
        let counts = self.region.iter().any(|p| matches!(p, Some(RegionPoint::Instructions(_))));
        launch.config.mode = match launch.config.mode {
            _ if counts => Mode::Count,
            Mode::None => Mode::Tick,
            mode => mode,
        };
        launch.config.record = Some(RecordConfig {
            folder_fd: folder.as_raw_fd(),
            store_fd: store.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            origin: String::new(),
            streams: streams(&launch.stdio),
            chaos,
            from: self.region[0],
            to: self.region[1],
        });
        launch.passed.push(folder);
        launch.passed.extend(store);
        Ok(())
    }

    /// Hears what an engine says.
    pub fn hear(&self, packet: &Packet) {
        let Report::Segment { unit, sequence, wanted } = &packet.report else { return };
        let mut compressor = self.compressor.lock().unwrap_or_else(PoisonError::into_inner);
        if compressor.is_none() {
            // Without the thread, segments are compressed at the end.
            *compressor = Compressor::start(self.folder.clone()).ok();
        }
        if let (Ok(unit), Some(compressor)) = (unit.parse(), &*compressor) {
            // The thread lives as long as this.
            let _ = compressor.segments.send(Full { unit, sequence: *sequence, wanted: *wanted });
        }
    }

    /// The guest's first process has ended: compresses what is left of processes that have gone.
    pub fn finish(self, meta: &Meta) -> recording::Result<Sealed> {
        let compressor = self.compressor.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(Compressor { segments, thread }) = compressor {
            drop(segments);
            // It never panics on purpose; should it, the segments are still there.
            let _ = thread.join();
        }
        self.folder.seal(is_gone, meta)
    }
}

/// Has the process of this number ended?
fn is_gone(pid: u32) -> bool {
    match Pid::from_raw(pid as i32) {
        Some(pid) => test_kill_process(pid).is_err(),
        None => true,
    }
}

/// Device and inode of the standard streams that a guest will have.
fn streams(stdio: &[Stdio; 3]) -> [[u64; 2]; 3] {
    let own = [rustix::stdio::stdin(), rustix::stdio::stdout(), rustix::stdio::stderr()];
    let identity = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).map_or([0; 2], |s| [s.st_dev, s.st_ino]);
    std::array::from_fn(|n| match &stdio[n] {
        Stdio::Inherit => identity(own[n]),
        Stdio::Null => rustix::fs::stat("/dev/null").map_or([0; 2], |s| [s.st_dev, s.st_ino]),
        Stdio::Fd(fd) => identity(OwnedFd::as_fd(fd)),
    })
}
