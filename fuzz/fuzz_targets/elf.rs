//! Any bytes as a program file: parsed or refused, never a panic, never a mapping outside the image.
#![no_main]
libfuzzer_sys::fuzz_target!(|file: &[u8]| engine::load::elf::assert_promises(file));
