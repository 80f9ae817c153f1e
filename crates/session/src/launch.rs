//! What to run, and how.

use crate::engine_program::EngineProgram;
use crate::error::Error;
use crate::running::Running;
use crate::signals::SignalState;
use crate::spawn;
use model::wire::Config;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

/// A guest that is about to be started.
///
/// `Launch { mode…, ..Launch::new(&engine, "/bin/true", ["true"]) }.start()`.
pub struct Launch<'a> {
    pub engine: &'a EngineProgram,
    /// The program file, already found through PATH.
    pub program: PathBuf,
    /// The guest's whole argument vector, its name for itself first.
    pub args: Vec<OsString>,
    /// The guest's whole environment, `NAME=value` each; entries without `=` are passed on as they are.
    pub env: Vec<OsString>,
    /// The descriptors in it are filled in at the start.
    pub config: Config,
    /// Standard input, output and error of the guest.
    pub stdio: [Stdio; 3],
    /// Where the guest starts; `None` is where the host is.
    pub cwd: Option<PathBuf>,
    pub signals: SignalState,
    /// The guest leads a process group of its own; otherwise it stays in the host's.
    pub new_group: bool,
    pub traces: Traces,
    /// Engines leave translations for those that this host starts later, and take what is there.
    pub shares_translations: bool,
    /// Further descriptors that the engine gets, under the numbers they have here; the configuration names them.
    pub passed: Vec<OwnedFd>,
}

/// One standard descriptor of a guest.
#[derive(Debug, Default)]
pub enum Stdio {
    /// What the host has there (closed, if the host has it closed or marked close-on-exec).
    #[default]
    Inherit,
    /// `/dev/null`.
    Null,
    Fd(OwnedFd),
}

/// What becomes of the traces of a run whose configuration says `TraceSink::Ring`.
#[derive(Default)]
pub enum Traces {
    /// Decoded to the full stream, of which totals and a checksum are kept: the fast path.
    #[default]
    Totals,
    /// Decoded by both decoders; that they agree is checked buffer by buffer, and a difference is damage.
    Both,
    /// Decoded event by event by the reference decoder; one sink is made for each ring (process image).
    Events(MakeSink),
    /// Decoded fast, chunk by chunk; one sink is made for each ring.
    Chunks(MakeChunkSink),
}

/// Makes the sink for one ring; given the process that writes it.
pub type MakeSink = Box<dyn FnMut(u32) -> Box<dyn trace::event::Sink + Send> + Send>;

/// The same for chunks.
pub type MakeChunkSink = Box<dyn FnMut(u32) -> Box<dyn trace::chunk::ChunkSink + Send> + Send>;

impl<'a> Launch<'a> {
    pub fn new<A: Into<OsString>>(
        engine: &'a EngineProgram,
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = A>,
    ) -> Launch<'a> {
        Launch {
            engine,
            program: program.into(),
            args: args.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            config: Config::default(),
            stdio: Default::default(),
            cwd: None,
            signals: SignalState::of_rust_main(),
            new_group: false,
            traces: Traces::default(),
            shares_translations: true,
            passed: Vec::new(),
        }
    }

    /// Starts the engine on the program. An error means that no process is left.
    pub fn start(self) -> Result<Running, Error> {
        let (child, traces) = self.spawn()?;
        Running::follow(child, traces)
    }

    pub(crate) fn spawn(self) -> Result<(spawn::Child, Traces), Error> {
        let Launch { engine, program, args, env, mut config, stdio, cwd, signals, new_group, traces, .. } = self;
        let shared = engine.translations().filter(|_| self.shares_translations);
        config.translations_fd = shared.map(|fd| fd.as_raw_fd());
        let passed = self.passed;
        let request = spawn::Request { engine, program, args, env, config, stdio, cwd, signals, new_group, passed };
        Ok((spawn::spawn(request)?, traces))
    }
}
