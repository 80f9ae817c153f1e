//! Options of `slice`.

use super::oracle::duration;
use clap::{ArgGroup, Args};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// Show what made a value so: the source lines that a crash, an output or a variable depended on.
///
/// The recording is replayed up to the criterion and traced; then dependences of data and control are followed back, byte by
/// byte, through libraries and system calls and across threads. Code of libraries is shown as the call that led there
/// (`--libs` shows it all).
/// Exit status: 0 found, 1 nothing found, 2 bad usage or input, 3 a fault of Clew.
#[derive(Args, Debug, Default)]
#[command(
    override_usage = "clew slice [OPTIONS] CRITERION RECORDING\n       clew slice [OPTIONS] CRITERION -- PROGRAM [ARGS]...",
    group = ArgGroup::new("start").multiple(false).args(["output", "crash", "hang", "exit"]),
    after_help = "Examples:
  clew slice --crash latest                     what led to the crash
  clew slice --output 120 latest                what made byte 120 of standard output (the first is 0)
  clew slice --output end latest                why nothing more was written
  clew slice --at parse.c:40#3 --var len latest what made len, at the third execution of the line
  clew slice --at parse.c:40 latest             everything that its last execution used
  clew slice --crash --path parse.c:12 latest   how that line leads to the crash"
)]
pub struct Slice {
    /// Start at this place: FILE:LINE[#N] or IMAGE+0xOFFSET[#N]; without #N, at its last execution
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["output", "crash", "hang", "exit"])]
    pub at: Option<String>,
    /// Start from this variable or C expression
    #[arg(long, value_name = "EXPR", conflicts_with_all = ["output", "crash", "hang", "exit"])]
    pub var: Option<String>,
    /// Start from these bytes of memory
    #[arg(long, value_name = "ADDRESS[:LENGTH]", conflicts_with_all = ["output", "crash", "hang", "exit"])]
    pub addr: Option<String>,
    /// Start from this register
    #[arg(long, value_name = "REGISTER", conflicts_with_all = ["output", "crash", "hang", "exit"])]
    pub reg: Option<String>,
    /// Start from byte N of what was written, or from its end: [stdout:|stderr:|FILE:]N or end
    #[arg(long, value_name = "N|end")]
    pub output: Option<String>,
    /// Start from the instruction that crashed
    #[arg(long)]
    pub crash: bool,
    /// Start from where the run was when it was ended from outside: why was it still there?
    #[arg(long)]
    pub hang: bool,
    /// Start from the exit status
    #[arg(long)]
    pub exit: bool,
    /// Show what the criterion influenced, instead of what influenced it
    #[arg(long, conflicts_with_all = ["output", "crash", "hang", "exit", "relevant", "copies", "chop"])]
    pub forward: bool,
    /// Only what this place influenced on the way to the criterion: FILE:LINE or IMAGE+0xOFFSET
    #[arg(long, value_name = "PLACE")]
    pub chop: Option<String>,
    /// Follow values only, not the branches that decided
    #[arg(long)]
    pub data_only: bool,
    /// Tell lines that the value was made by (data) from those that only chose what made it (select)
    #[arg(long, conflicts_with_all = ["forward", "data_only", "copies"])]
    pub parts: bool,
    /// Follow only copies of the value
    #[arg(long)]
    pub copies: bool,
    /// Also show branches that, taken the other way, might have changed a value
    #[arg(long)]
    pub relevant: bool,
    /// With --relevant: stores through pointers in code that did not run might have changed anything
    #[arg(long, requires = "relevant")]
    pub pointers: bool,
    /// Do not follow dependences through these variables or registers
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub prune: Vec<String>,
    /// Go no farther than N dependences
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// Show code of libraries, not only the calls that led there
    #[arg(long)]
    pub libs: bool,
    /// Show which line depends on which, and through what
    #[arg(long)]
    pub edges: bool,
    /// Show how this line leads to the criterion
    #[arg(long, value_name = "FILE:LINE", conflicts_with_all = ["json", "dot"])]
    pub path: Option<String>,
    /// Print the slice as a graph for Graphviz
    #[arg(long, conflicts_with = "json")]
    pub dot: bool,
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Stop after this time and show what was found
    #[arg(long, value_name = "TIME", value_parser = duration, allow_hyphen_values = true, default_value = "60s")]
    pub budget: Duration,
    /// After this time, show the nearest lines found so far on standard error, and go on [default: 1s on a terminal]
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["quiet", "json", "dot"])]
    pub nearest_after: Option<Duration>,
    /// Keep about so many million instructions in memory at a time
    #[arg(long, value_name = "MILLIONS", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub window: u64,
    /// Do not print progress and notes
    #[arg(short, long)]
    pub quiet: bool,
    /// Keep this much detail out of the way of measurements: follow saved registers through the stack
    #[arg(long, hide = true)]
    pub no_bypass: bool,
    /// Keep this much detail out of the way of measurements: targets of indirect jumps are not known
    #[arg(long, hide = true)]
    pub no_refinement: bool,
    /// A recording: its name, a path, `latest` or a packed file; `:PID[.IMAGE]` behind it names one process
    #[arg(required_unless_present_any = ["command", "load"], conflicts_with = "load")]
    pub recording: Option<String>,
    /// The program to record, and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
    /// Also write what was found to this file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Show a slice that --save wrote, without its recording
    #[arg(long, value_name = "FILE", conflicts_with_all = ["save", "command"])]
    pub load: Option<PathBuf>,
}
