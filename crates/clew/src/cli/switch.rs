//! Options of `switch` and `demo`.

use super::search::{Order, Search};
use clap::Args;

/// Find the branch that makes a failing program work when it goes the other way.
///
/// The program is recorded, unless a recording is given. Then executed branches of the program's own code are switched,
/// one per trial, the last executed first, then two if no single one is enough; jumps of `switch` statements are led to
/// other cases. Each trial runs on in a world made from the recording: nothing outside is changed. A branch is proved critical if switching it repairs the run and trials without any change do not.
/// Exit status: 0 found, 1 nothing found, 2 bad usage or input, or the program passes, 3 a fault of Clew.
#[derive(Args, Debug)]
#[command(
    override_usage = "clew switch [OPTIONS] RECORDING\n       clew switch [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "Examples:
  clew switch --expect good.txt -- ./prog input      it prints something wrong
  clew switch -- ./prog input                        it crashes
  clew switch --timeout 2s --expect good.txt -- ./p  it hangs
  clew switch --expect good.txt latest               the newest recording
  clew switch --expect good.txt --lines latest       and what to read
  clew switch --order prior --ref ./old --isolate in.txt -- ./new @@   what the bytes that make it fail led to first
  clew switch --expect good.txt --at parse.c:120#4 latest"
)]
pub struct Switch {
    /// In which order branches are tried
    #[arg(long, value_enum, default_value = "lefs")]
    pub order: Order,
    /// Only branches of this place, or one execution of them: FILE:LINE[#N] or IMAGE+0xOFFSET[#N]
    #[arg(long, value_name = "PLACE")]
    pub at: Option<String>,
    /// Go on after the first critical branches
    #[arg(long)]
    pub all: bool,
    /// Tell which lines to read for the first critical branches, the nearest first
    #[arg(long)]
    pub lines: bool,
    #[command(flatten)]
    pub search: Search,
}

/// Show what Clew does on a small program with a bug.
///
/// Compiles the program, records its failing run, and finds the branch that is wrong. Nothing is left behind.
/// Exit status: 0, or 2 if there is no C compiler, or 3 a fault of Clew.
#[derive(Args, Debug)]
pub struct Demo {}
