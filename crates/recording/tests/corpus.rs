//! Every stored input of the fuzz target `recording_decode`, and variations with a fixed seed, break no promise.
//!
//! `CORPUS=write` adds the seeds again if they are missing.

mod common;

use std::fs;
use std::path::Path;

use common::*;
use recording::{assert_promises, pack};

#[test]
fn stored_and_mutated_inputs_never_break_a_promise() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/recording_decode");
    if std::env::var_os("CORPUS").is_some() {
        write_seeds(&corpus);
    }
    let mut random = Random(0x636c_6577);
    let paths = files_below(&corpus);
    assert!(paths.len() >= 6, "the corpus is there");
    let total: u64 = paths.iter().map(|p| fs::metadata(p).unwrap().len()).sum();
    assert!(total < 100_000, "the corpus is small");
    for path in paths {
        let seed = fs::read(&path).unwrap();
        assert_promises(&seed);
        for _ in 0..300 {
            assert_promises(&mutated(&seed, &mut random));
        }
    }
}

fn mutated(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        bytes[at] = match random.below(4) {
            0 => 0xff,
            1 => 0,
            2 => bytes[at] ^ 1 << random.below(8),
            _ => random.next() as u8,
        };
    }
    if random.below(8) == 0 {
        bytes.truncate(random.below(bytes.len() + 1));
    }
    bytes
}

/// Every kind of file that a recording has, small.
fn write_seeds(corpus: &Path) {
    let scratch = Scratch::new();
    mixed(&scratch.path("r"));
    pack(&scratch.path("r"), &scratch.path("pack"), Vec::new()).unwrap();
    fs::create_dir_all(corpus).unwrap();
    let copy = |from: &str, to: &str| fs::write(corpus.join(to), fs::read(scratch.path(from)).unwrap()).unwrap();
    copy("pack", "pack");
    copy("r/recording", "text");
    copy("r/units/100.0.log", "chunks");
    copy("r/units/101.1.log", "chunk");
    copy("r/units/100.0.2.raw", "last-segment");
    fs::write(corpus.join("records"), noise(&mut Random(5), 12).concat()).unwrap();
    let records = [start(model::log::Origin::First, FIRST), end(model::log::Ending::Exited, 0)].concat();
    fs::write(corpus.join("segment"), segment(0, 0, false, &records)).unwrap();
    fs::write(corpus.join("empty"), b"").unwrap();
}
