//! The program's entry point.
//!
//! It is C's `main`, not Rust's: before Rust's `main` the runtime ignores SIGPIPE and opens `/dev/null` on closed standard
//! descriptors, and afterwards nobody can tell what was there. A guest must get exactly what `clew` was given, so
//! nothing may be changed before it has been looked at.
#![no_main]

use std::ffi::{c_char, c_int};

#[expect(unsafe_code, reason = "the only way to run before Rust's runtime changes what the guest inherits")]
#[unsafe(no_mangle)]
extern "C" fn main(_argc: c_int, _argv: *const *const c_char) -> c_int {
    clew::main()
}
