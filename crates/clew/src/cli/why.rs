//! Options of `why`.

use super::oracle::at_least_one;
use super::search::Search;
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// Find out why a program fails: the few source lines that matter, proved where that is possible.
///
/// The program is recorded, unless a recording is given. Dependences are followed back from what is wrong; then one thing
/// at a time is changed and the run goes on in a world made from the recording: branches go the other way, statements
/// store other values. What repairs the run is a proved cause, if runs without any change still fail. Nothing outside is
/// changed.
/// Exit status: 0 causes were found, 1 none, 2 bad usage or input, or the program passes, 3 a fault of Clew.
#[derive(Args, Debug)]
#[command(
    override_usage = "clew why [OPTIONS] RECORDING\n       clew why [OPTIONS] -- PROGRAM [ARGS]...",
    after_help = "Examples:
  clew why --expect good.txt -- ./prog input     it prints something wrong
  clew why -- ./prog input                       it crashes
  clew why --timeout 2s -- ./prog                it hangs
  clew why --expect-exit 0 latest                the newest recording
  clew why --ref ./old --isolate in.txt -- ./new @@   find the bytes that make it fail first
  clew why --expect good.txt --html why.html -- ./prog input"
)]
pub struct Why {
    /// Name at most so many causes
    #[arg(long, value_name = "N", default_value = "5", value_parser = at_least_one, allow_negative_numbers = true)]
    pub top: NonZeroUsize,
    /// Also write one self-contained page with sources, causes and paths
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the causes as SARIF 2.1.0
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    #[command(flatten)]
    pub search: Search,
}
