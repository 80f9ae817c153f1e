//! The command line as people write it.
//!
//! Arguments of the guest are taken as bytes and never looked at; options are ours only up to the program's name.

mod debugger;
mod oracle;
mod recordings;
mod reduce;
mod search;
mod slice;
mod suppress;
mod switch;
mod why;

use crate::message::{self, Paint};
use crate::startup::Startup;
use crate::status;
use clap::builder::styling::{AnsiColor, Styles};
use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand, ValueEnum};
pub use debugger::Gdb;
pub use oracle::Oracle;
pub use recordings::{Info, Ls, Pack, Rm};
pub use reduce::{Reduce, Source};
pub use search::{InputBytes, Order, Search};
pub use slice::Slice;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
pub use suppress::Suppress;
pub use switch::{Demo, Switch};
pub use why::Why;

const STYLES: Styles =
    Styles::styled().header(AnsiColor::Green.on_default().bold()).literal(AnsiColor::Cyan.on_default());

/// Finds the root cause of a failing native program.
#[derive(Parser, Debug)]
#[command(name = "clew", version, about = "Finds the root cause of a failing native program", styles = STYLES, subcommand_required = true, arg_required_else_help = true)]
#[command(
    disable_help_subcommand = true,
    after_help = "Examples:
  clew why --expect good.txt -- ./prog input    why does it fail?
  clew record -- ./prog input.txt               record a failing run
  clew replay latest --verify                   run it again, exactly
  clew gdb latest                               look at it with gdb, backwards too
  clew slice --crash latest                     what led to the crash
  clew switch --expect good.txt -- ./prog       which branch, taken the other way, makes it work
  clew suppress --expect good.txt -- ./prog     which statement or call, left out, makes it work
  clew reduce --input in.txt -- ./prog @@       the smallest input that still fails
  clew doctor                                   see what works on this machine"
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
    /// Sources that were compiled below OLD are below NEW now
    #[arg(long, global = true, value_name = "OLD=NEW", value_parser = source_rule)]
    pub source_map: Vec<(PathBuf, PathBuf)>,
}

fn source_rule(text: &str) -> Result<(PathBuf, PathBuf), String> {
    image::SourceMap::rule(text).ok_or_else(|| "write OLD=NEW, two folders".into())
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Run a program under the engine and record nothing
    Run(Run),
    /// Record a program and everything it starts
    Record(Record),
    /// Re-execute a recording
    Replay(Replay),
    /// Show a recording to gdb
    Gdb(Gdb),
    /// List recordings
    Ls(Ls),
    /// Say what is in a recording
    Info(Info),
    /// Remove recordings
    Rm(Rm),
    /// Make one portable file of a recording
    Pack(Pack),
    /// Find out why a program fails: the few source lines that matter, proved where that is possible
    Why(Why),
    /// Find the branch that makes a failing program work when it goes the other way
    Switch(Switch),
    /// Find the statement, call or function that makes a failing program work when it is left out once
    Suppress(Suppress),
    /// Make a failing input small, or find what makes the difference between a passing and a failing one
    Reduce(Reduce),
    /// Show what made a value so: the lines that a crash, an output or a variable depended on
    Slice(Slice),
    /// Show what Clew does on a small program with a bug
    Demo(Demo),
    /// Say what works on this machine
    Doctor(Doctor),
}

/// Record a program and everything it starts.
///
/// Standard input, output and error, signals, the terminal and the exit status are the program's own, as with `clew run`.
/// The recording goes into Clew's home folder (CLEW_HOME, else XDG_DATA_HOME/clew, else ~/.local/share/clew), where the
/// newest is called `latest`.
#[derive(Args, Debug)]
#[command(
    override_usage = "clew record [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "Examples:
  clew record -- ./prog input.txt            record a run
  clew replay latest                         run it again, exactly
  clew record -o bug.rec -- ./prog           put the recording elsewhere
  clew record --seed 7 -- ./threaded         schedule, clock and random numbers follow from 7
  clew record --chaos --expect-exit 0 -- ./threaded   find a schedule under which it fails, and keep that run
  clew record --from parse#3 -- ./prog       from the third call of parse to the end
  clew record --from a.c:12 --to a.c:40 -- ./prog

Points of a run, for --from and --to:
  FILE:LINE, FUNCTION, IMAGE+0xOFFSET        a place in the program, before it is executed
  PLACE#N                                    its N-th execution in the run
  ticks:N                                    as soon as N ticks of the process image are over: jumps and calls that go
                                             backwards or are indirect, returns, system calls, signals, thread switches
  icount:N                                   at the first tick at which N instructions of the process have been executed;
                                             counting them makes the run slower"
)]
pub struct Record {
    /// Put the recording into this folder, which must not exist or be empty
    #[arg(short = 'o', long = "output", value_name = "FOLDER")]
    pub output: Option<std::path::PathBuf>,
    /// Make schedules, clocks and random numbers follow from N alone
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Run it again and again, switching threads at random instructions, until it fails; keep that run
    #[arg(long)]
    pub chaos: bool,
    /// With --chaos: how long to try (60s if nothing is said)
    #[arg(long, value_name = "TIME", value_parser = oracle::duration, requires = "chaos")]
    pub budget: Option<std::time::Duration>,
    #[command(flatten)]
    pub oracle: oracle::Oracle,
    /// Record nothing before this point of the run; there the whole state is saved (without #N: the first execution)
    #[arg(long, value_name = "POINT")]
    pub from: Option<String>,
    /// Record nothing behind this point of the run (without #N: the first execution behind the beginning)
    #[arg(long, value_name = "POINT")]
    pub to: Option<String>,
    /// Which CPU the program is told it runs on
    #[arg(long, value_enum, default_value_t)]
    pub cpu: CpuName,
    /// Do not print crashes and notes; the engine's own failures are always printed
    #[arg(short, long)]
    pub quiet: bool,
    /// The program, found through PATH as a shell would, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Re-execute a recording and re-emit what it wrote.
///
/// Nothing outside is touched: everything that came from outside comes from the recording. With `--verify` the state of
/// the program is compared with the recorded digests, and the last line on standard error is `identical` or the first
/// difference. Exit status: 0 replayed, 1 differs, 2 bad usage or input, 3 a fault of Clew.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  clew replay latest                what it wrote, again
  clew replay latest --verify       and was it exactly the same?
  clew replay latest:4711           one process of several")]
pub struct Replay {
    /// A recording: its name, a path, `latest` or a packed file; `:PID[.IMAGE]` behind it names one process
    pub recording: String,
    /// Compare the state with the recorded digests
    #[arg(long)]
    pub verify: bool,
    /// Do not print notes
    #[arg(short, long)]
    pub quiet: bool,
}

/// Run a program under the engine and record nothing.
///
/// Standard input, output and error, signals, the terminal and the exit status are the program's own. Exit status: the
/// program's; 128+n if it died of signal n and that signal cannot be passed on; 127 not found; 126 not runnable; 125
/// Clew's own failure.
#[derive(Args, Debug)]
#[command(
    override_usage = "clew run [OPTIONS] [--] PROGRAM [ARGS]...",
    after_help = "Examples:
  clew run -- ls -l                          run a program
  clew run --stats --mode count -- ./prog    print how many instructions it executed
  clew run --seed 7 -- ./threaded            the same schedule, clock and random numbers every time
  clew run --stats --json -- ./prog          statistics as one line of JSON"
)]
pub struct Run {
    /// Print statistics to standard error at the end
    #[arg(long)]
    pub stats: bool,
    /// Print the statistics as one line of JSON (on standard error too: standard output is the program's)
    #[arg(long, requires = "stats")]
    pub json: bool,
    /// What the engine adds to the program's code
    #[arg(long, value_enum, default_value_t)]
    pub mode: ModeName,
    /// Which CPU the program is told it runs on
    #[arg(long, value_enum, default_value_t)]
    pub cpu: CpuName,
    /// Make schedules, clocks and random numbers follow from N alone; at least mode tick
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// In mode trace: who takes the trace
    #[arg(long, value_enum, default_value_t)]
    pub sink: SinkName,
    /// Do not print crashes and notes; the engine's own failures are always printed
    #[arg(short, long)]
    pub quiet: bool,
    /// The program, found through PATH as a shell would, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Say what works on this machine.
///
/// Each line is ok, degraded (works, but less well) or missing (does not work), with what to do. Exit status: 0 if
/// programs can be run, 1 if not.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  clew doctor                     check everything and run a program in every mode
  clew doctor --json              the same as JSON
  clew doctor --quiet             only what is not ok")]
pub struct Doctor {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
    /// Print only what is not ok
    #[arg(short, long)]
    pub quiet: bool,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ModeName {
    /// Nothing: the program's own code, relocated
    #[default]
    None,
    /// The tick clock
    Tick,
    /// A counter per block: exact instruction counts; with --seed the tick clock too
    Count,
    /// A record per block: exact instruction and address streams; with --seed the tick clock too
    Trace,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CpuName {
    /// X86-64-v2: the C library then uses simple string functions
    #[default]
    V2,
    /// As the machine is
    Native,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SinkName {
    /// Decoded by this process to the full stream
    #[default]
    Host,
    /// Overwritten, for measuring
    Drop,
    /// Decoded twice, by the fast and by the exact decoder, and compared
    Check,
}

impl From<CpuName> for model::Cpu {
    fn from(name: CpuName) -> model::Cpu {
        match name {
            CpuName::V2 => model::Cpu::V2,
            CpuName::Native => model::Cpu::Native,
        }
    }
}

impl Run {
    /// The mode after `--seed` has had its say: a seed needs the tick clock.
    pub fn effective_mode(&self) -> model::Mode {
        match self.mode {
            ModeName::None if self.seed.is_some() => model::Mode::Tick,
            ModeName::None => model::Mode::None,
            ModeName::Tick => model::Mode::Tick,
            ModeName::Count => model::Mode::Count,
            ModeName::Trace => model::Mode::Trace,
        }
    }
}

/// Prints what clap has to say (help too) and gives the exit status for it.
pub fn refuse(error: &clap::Error, startup: &Startup) -> i32 {
    let wanted = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let rendered = error.render();
    let (verb, color) = before_command(&startup.args);
    if wanted {
        let paint = Paint::for_stdout(color, startup);
        let text = if paint.on() { rendered.ansi().to_string() } else { rendered.to_string() };
        message::stdout(&text);
        return 0;
    }
    let paint = Paint::for_stderr(color, startup);
    let text = without_tip(&rendered.to_string());
    match text.strip_prefix("error: ") {
        Some(rest) => message::stderr(&format!("{} {rest}", paint.bad("clew:"))),
        // Help that is shown because nothing was asked for.
        None => message::stderr(&text),
    }
    // What `run` returns is the program's, so its own failures must be told apart; the other verbs have 2 for this.
    if verb.is_some_and(|v| v == "run" || v == "record") { status::FAILURE } else { status::USAGE }
}

/// What clap has to say without its advice to write `--` before a value that looks like an option: here the program under
/// test comes behind that.
fn without_tip(text: &str) -> String {
    let is_tip = |paragraph: &&str| paragraph.trim_start().starts_with("tip: to pass '");
    text.split("\n\n").filter(|p| !is_tip(p)).collect::<Vec<_>>().join("\n\n")
}

/// The verb, and whether colour is wanted, of a command line that may be wrong.
fn before_command(args: &[OsString]) -> (Option<&OsStr>, Color) {
    let (mut verb, mut color) = (None, Color::Auto);
    let mut words = args.iter().skip(1).take_while(|a| *a != "--");
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let value = match text.strip_prefix("--color") {
            Some("") => words.next().map(|w| w.to_string_lossy()),
            Some(rest) => rest.strip_prefix('=').map(Into::into),
            None => None,
        };
        if let Some(value) = value {
            color = Color::from_str(&value, true).unwrap_or(color);
        } else if !text.starts_with('-') {
            if verb.is_some() {
                // From the second bare word on, all is the program's.
                break;
            }
            verb = Some(word.as_os_str());
        }
    }
    (verb, color)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::os::unix::ffi::OsStringExt;

    fn parse(args: &[&str]) -> Result<Run, ErrorKind> {
        match Cli::try_parse_from([&["clew"], args].concat()) {
            Ok(Cli { verb: Verb::Run(run), .. }) => Ok(run),
            Ok(other) => panic!("{other:?}"),
            Err(e) => Err(e.kind()),
        }
    }

    fn check_command(args: &[&str], expected: &[&str]) {
        assert_eq!(parse(args).unwrap().command, expected);
    }

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_are_ours_only_up_to_the_program() {
        check_command(&["run", "ls", "-l"], &["ls", "-l"]);
        check_command(&["run", "ls", "--stats", "--help"], &["ls", "--stats", "--help"]);
        check_command(&["run", "--stats", "--", "ls", "--", "-x"], &["ls", "--", "-x"]);
        check_command(&["run", "ls", "--", "-x"], &["ls", "--", "-x"]);
        check_command(&["run", "--", "--odd-name"], &["--odd-name"]);
        check_command(&["run", "ls", ""], &["ls", ""]);
    }

    #[test]
    fn unknown_options_and_missing_programs_are_refused() {
        assert_eq!(parse(&["run", "--bogus", "ls"]).unwrap_err(), ErrorKind::UnknownArgument);
        assert_eq!(parse(&["run"]).unwrap_err(), ErrorKind::MissingRequiredArgument);
        assert_eq!(parse(&["run", "--"]).unwrap_err(), ErrorKind::MissingRequiredArgument);
        assert_eq!(parse(&["run", "--json", "ls"]).unwrap_err(), ErrorKind::MissingRequiredArgument);
        assert_eq!(parse(&["run", "--mode", "fast", "ls"]).unwrap_err(), ErrorKind::InvalidValue);
        assert_eq!(parse(&["run", "--seed", "-1", "ls"]).unwrap_err(), ErrorKind::UnknownArgument);
    }

    #[test]
    fn arguments_need_not_be_text() {
        let odd = OsString::from_vec(vec![b'a', 0xff]);
        let args = ["clew".into(), "run".into(), "--".into(), odd.clone()];
        let Verb::Run(run) = Cli::try_parse_from(args).unwrap().verb else { panic!() };
        assert_eq!(run.command, [odd]);
    }

    #[test]
    fn verb_and_colour_are_found_in_a_wrong_command_line() {
        let found = |words: &[&str]| {
            let args: Vec<OsString> = words.iter().map(Into::into).collect();
            let (verb, color) = before_command(&args);
            (verb.map(|v| v.to_string_lossy().into_owned()), color)
        };
        assert_eq!(found(&["clew", "--color", "always", "run", "--bogus"]), (Some("run".into()), Color::Always));
        assert_eq!(found(&["clew", "run", "--color=never", "x"]), (Some("run".into()), Color::Never));
        assert_eq!(found(&["clew", "run", "x", "--color", "never"]), (Some("run".into()), Color::Auto));
        assert_eq!(found(&["clew", "--color"]), (None, Color::Auto));
    }

    #[test]
    fn a_seed_implies_the_tick_clock() {
        let mode = |args: &[&str]| parse(args).unwrap().effective_mode();
        assert_eq!(mode(&["run", "x"]), model::Mode::None);
        assert_eq!(mode(&["run", "--seed", "1", "x"]), model::Mode::Tick);
        assert_eq!(mode(&["run", "--seed", "1", "--mode", "count", "x"]), model::Mode::Count);
    }
}
