//! The compiled stepper.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Path of the stepper program, compiled at the first use.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/oracle/stepper.c"));
        crate::compile::compile(source, &["-O2"])
    })
}
