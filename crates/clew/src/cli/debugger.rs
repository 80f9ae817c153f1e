//! Options of `gdb`.

use clap::Args;
use std::ffi::OsString;

/// Show a recording to gdb: everything that gdb can do with a process, and going back in time.
///
/// Without `--port` gdb is started here. The recording is at its beginning: `continue` goes to its end, or to the crash,
/// and `reverse-continue` back. Without `:PID` the first process that died of a signal is shown, else the first one.
/// `monitor help` lists the commands of the recording. Exit status: that of gdb; 2 bad usage or input, 3 a fault of Clew.
#[derive(Args, Debug)]
#[command(
    override_usage = "clew gdb [OPTIONS] RECORDING [-- GDB-ARGUMENTS...]",
    after_help = "Examples:
  clew gdb latest                             debug the newest recording
  clew gdb latest:4711                        one process of several
  clew gdb latest --port 1234                 wait for gdb or an editor on this port of this machine
  clew gdb latest -- -batch -ex 'continue' -ex 'backtrace'"
)]
pub struct Gdb {
    /// A recording: its name, a path, `latest` or a packed file; `:PID[.IMAGE]` behind it names one process
    pub recording: String,
    /// Wait for debuggers on this port of this machine; 0 takes any that is free
    #[arg(long, value_name = "N", conflicts_with = "arguments")]
    pub port: Option<u16>,
    /// Do not print notes
    #[arg(short, long)]
    pub quiet: bool,
    /// Arguments for gdb
    #[arg(last = true, value_name = "GDB-ARGUMENTS")]
    pub arguments: Vec<OsString>,
}
