//! Every stored input goes through both decoders and the checker without a panic, and the decoders agree.
//!
//! The files in `corpus/decode` are buffers over the made-up program `Synthetic::new(7, 64, Mix::Everything)`: seeds for
//! a fuzzer, and inputs that once failed. `CORPUS=write` adds the seeds again if they are missing.

use std::fs;
use std::path::Path;

use trace::check::Checker;
use trace::checksum::Checksum;
use trace::consume::Consumer;
use trace::decode::Decoder;
use trace::event::{Event, Sink};
use trace::synthetic::{Mix, Rng, Synthetic};

#[test]
fn stored_inputs_are_survived() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/decode");
    let program = Synthetic::new(7, 64, Mix::Everything);
    if std::env::var_os("CORPUS").is_some() {
        for seed in 0..8u64 {
            let (mut bytes, _) = program.trace(&mut Rng(seed), 500);
            // Half of them are damaged.
            if seed % 2 == 1 {
                let at = bytes.len() / 2 + seed as usize;
                bytes[at] ^= 0x81;
            }
            bytes.truncate(1500);
            fs::write(folder.join(format!("seed-{seed}")), bytes).unwrap();
        }
    }
    let mut files = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let (mut decoder, mut consumer, mut checker) = (Decoder::new(), Consumer::new(), Checker::new());
        for def in &program.defs {
            decoder.block(def).unwrap();
            consumer.block(def).unwrap();
            checker.block(def).unwrap();
        }
        let mut checksum = Checksum::default();
        let reference = decoder.buffer(&bytes, &mut |e: &Event| {
            checksum.event(e);
            checker.event(e);
        });
        let fast = consumer.buffer(&bytes, |_| ());
        assert_eq!((fast, consumer.checksum()), (reference, checksum), "{}", path.display());
        files += 1;
    }
    assert!(files >= 8, "the corpus is there");
}
