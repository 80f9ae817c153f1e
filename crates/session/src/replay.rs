//! Replays of a recording's units.
//!
//! A unit that was started by the recorder or by an `execve` is replayed from its beginning; a forked unit by replaying
//! its ancestors up to the fork. Whole trees are replayed in one go: the replaying process copies itself at each fork.

use crate::engine_program::{EngineProgram, above_stdio, memory_file};
use crate::error::{Error, ErrorKind};
use crate::launch::{Launch, Stdio};
use crate::running::{Event, Running};
use model::Mode;
use model::log::Origin;
use model::wire::{Config, Disturb, ForkEdge, Packet, ReplayConfig, Replayed, Report, TraceSink};
use recording::{Recording, UnitName};
use rustix::fs::{Mode as FileMode, OFlags};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// How a unit is replayed.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// Compare digests.
    pub verify: bool,
    /// Hear what the guest wrote to its standard streams.
    pub emit: bool,
    /// Replay forked descendants too.
    pub descendants: bool,
    pub serve: bool,
    /// Sessions on the same recording come next: leave them what was translated.
    pub sessions_follow: bool,
    pub mode: Mode,
    pub disturb: Option<Disturb>,
}

/// Starts replays of one recording.
pub struct Replayer<'a> {
    pub engine: &'a EngineProgram,
    pub recording: &'a Recording,
}

/// What a replay wrote to the standard streams: (stream, time stamp of the recording, bytes).
pub type Outputs = Vec<(u8, u64, Vec<u8>)>;

impl<'a> Replayer<'a> {
    /// Units that begin with a program of their own, in the order they were started.
    pub fn images(&self) -> Vec<UnitName> {
        let units = self.recording.units().iter();
        let own = units.filter(|u| !matches!(u.start.origin, Origin::Fork { .. }));
        let mut images: Vec<_> = own.map(|u| (u.start.time, u.name)).collect();
        images.sort_unstable();
        images.into_iter().map(|(_, name)| name).collect()
    }

    /// The launch of an engine that replays `unit`.
    pub fn launch(&self, unit: &UnitName, options: &ReplayOptions) -> Result<Launch<'a>, Error> {
        let damaged = |e: recording::Error| Error::new(ErrorKind::Recording, io::Error::other(e.to_string()));
        let prepare = |e: io::Error| Error::new(ErrorKind::Prepare, e);
        let mut units = self.recording.lineage(unit).map_err(damaged)?;
        let mut forks = Vec::new();
        for (n, child) in units.iter().enumerate().skip(1) {
            if let Origin::Fork { record, .. } = self.recording.unit(child).map_err(damaged)?.start.origin {
                forks.push(ForkEdge { parent: n as u32 - 1, record, child: n as u32, copy: false });
            }
        }
        if options.descendants {
            self.add_descendants(&mut units, &mut forks);
        }
        for unit in &units {
            if let Some(why) = crate::cpu::missing_feature(self.recording.unit(unit).map_err(damaged)?) {
                return Err(Error::new(ErrorKind::Recording, io::Error::other(why)));
            }
        }
        let first = self.recording.unit(&units[0]).map_err(damaged)?;
        let mut launch = Launch::new(self.engine, &first.start.exe, [first.start.exe.clone()]);
        let mut logs = Vec::new();
        for unit in &units {
            let log = self.recording.log(unit).map_err(damaged)?;
            logs.push(memory_file("clew-log", log.bytes(), false).map_err(prepare)?);
        }
        let files = self.files().map_err(prepare)?;
        launch.config = Config {
            mode: if options.mode == Mode::None { Mode::Tick } else { options.mode },
            cpu: first.start.cpu,
            seed: None,
            dies_with_host: true,
            sink: TraceSink::Ring,
            replay: Some(ReplayConfig {
                log_fds: logs.iter().map(AsRawFd::as_raw_fd).collect(),
                forks,
                files_fd: files.as_raw_fd(),
                verify: options.verify,
                emit: options.emit,
                serve: options.serve,
                disturb: options.disturb,
            }),
            ..Config::default()
        };
        launch.shares_translations = options.serve || options.sessions_follow || self.images().len() > 1;
        launch.passed = logs;
        launch.passed.push(files);
        launch.stdio = [Stdio::Null, Stdio::Null, Stdio::Null];
        Ok(launch)
    }

    fn add_descendants(&self, units: &mut Vec<UnitName>, forks: &mut Vec<ForkEdge>) {
        let mut at = units.len() - 1;
        while at < units.len() {
            let parent = units[at];
            for child in self.recording.children(&parent) {
                if let Origin::Fork { record, .. } = child.start.origin {
                    forks.push(ForkEdge { parent: at as u32, record, child: units.len() as u32, copy: true });
                    units.push(child.name);
                }
            }
            at += 1;
        }
    }

    fn files(&self) -> io::Result<OwnedFd> {
        let path = self.recording.path().join("files");
        above_stdio(rustix::fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, FileMode::empty())?)
    }

    /// Replays a unit to its end. Every packet is shown to `each`; answers how far each process came.
    pub fn run(
        &self,
        unit: &UnitName,
        options: &ReplayOptions,
        mut each: impl FnMut(&Packet),
    ) -> Result<HashMap<u32, Replayed>, Error> {
        let mut running: Running = self.launch(unit, options)?.start()?;
        let mut results = HashMap::new();
        let mut failed = None;
        while let Some(event) = running.next() {
            match event {
                Event::Report(packet) => {
                    match &packet.report {
                        Report::Replayed(r) => drop(results.insert(packet.pid, r.clone())),
                        Report::EngineFault { message, pc } => {
                            failed.get_or_insert(format!("the engine is at fault at {pc}: {message}"));
                        }
                        Report::NotLoaded { message, .. } => drop(failed.get_or_insert(message.clone())),
                        _ => {}
                    }
                    each(&packet);
                }
                Event::Closed => break,
                _ => {}
            }
        }
        match failed {
            Some(message) => Err(Error::new(ErrorKind::Replay, io::Error::other(message))),
            None => Ok(results),
        }
    }
}
