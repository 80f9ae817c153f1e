//! Options of `suppress`.

use super::search::{Order, Search};
use clap::Args;

/// Find the statement, call or function that makes a failing program work when it is left out once.
///
/// The program is recorded, unless a recording is given. Then executions of statements that store something, and of calls,
/// are left out, one per trial: those first that the failure depends on most closely. Each trial runs on in a world made
/// from the recording: nothing outside is changed. It is proved that an execution matters if the run is repaired without
/// it and trials without any change still fail. Executions without which the failing place is just not met are told apart.
/// Exit status: 0 found, 1 nothing found, 2 bad usage or input, or the program passes, 3 a fault of Clew.
#[derive(Args, Debug)]
#[command(
    override_usage = "clew suppress [OPTIONS] RECORDING\n       clew suppress [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "Examples:
  clew suppress --expect good.txt -- ./prog input        it prints something wrong
  clew suppress -- ./prog input                          it crashes
  clew suppress --expect good.txt --all latest           the newest recording, all that matters
  clew suppress --at parse.c:120#4 latest                without the 4th execution of that line
  clew suppress --at release#2 latest                    without the 2nd call of that function"
)]
pub struct Suppress {
    /// In which order executions are left out
    #[arg(long, value_enum, default_value = "prior")]
    pub order: Order,
    /// Only this place, or one execution of it: FILE:LINE[#N], FUNCTION[#N] or IMAGE+0xOFFSET[#N]
    #[arg(long, value_name = "PLACE")]
    pub at: Option<String>,
    /// Go on after the first repairs
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub search: Search,
}
