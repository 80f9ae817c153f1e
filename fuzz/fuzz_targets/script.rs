//! Any bytes as a script: an interpreter and its argument, or a refusal, never a panic.
#![no_main]
libfuzzer_sys::fuzz_target!(|file: &[u8]| engine::load::script::assert_promises(file));
