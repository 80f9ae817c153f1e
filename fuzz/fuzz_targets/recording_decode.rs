//! Any bytes as a part of a recording: read or refused, never a panic, never more than what was written.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| recording::assert_promises(bytes));
