//! Recordings that were cut, changed or forged: an error or a beginning of the truth, never a panic.

mod common;

use std::fs;
use std::path::Path;

use common::*;
use recording::{Recording, pack, unpack};

/// Applies `change` to one file of a copy-in-place and puts it back afterwards.
fn check_changed(path: &Path, truth: &Truth, file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let before = fs::read(file).unwrap();
    let mut after = before.clone();
    change(&mut after);
    fs::write(file, &after).unwrap();
    check_honest(path, truth);
    fs::write(file, before).unwrap();
}

#[test]
fn truncation_anywhere_leaves_a_beginning() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let truth = mixed(&path);
    let mut random = Random(1);
    for file in files_below(&path) {
        let length = fs::metadata(&file).unwrap().len() as usize;
        let mut cuts: Vec<usize> = (0..40).map(|_| random.below(length)).collect();
        cuts.extend([0, 1, 63, 64, 65, length - 1].iter().filter(|c| **c < length));
        for cut in cuts {
            check_changed(&path, &truth, &file, |bytes| bytes.truncate(cut));
        }
    }
    check_whole(&path, &truth);
}

#[test]
fn changed_bits_anywhere_leave_a_beginning() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let truth = mixed(&path);
    let mut random = Random(2);
    let files = files_below(&path);
    for _ in 0..500 {
        let file = &files[random.below(files.len())];
        check_changed(&path, &truth, file, |bytes| {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        });
    }
    check_whole(&path, &truth);
}

#[test]
fn every_bit_of_a_segments_header_may_change() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let truth = mixed(&path);
    let raw = path.join("units").join(FIRST.raw(2));
    for bit in 0..64 * 8 {
        check_changed(&path, &truth, &raw, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
    }
}

#[test]
fn files_that_are_exchanged_are_noticed() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let truth = mixed(&path);
    let units = path.join("units");
    let raw = fs::read(units.join(FIRST.raw(2))).unwrap();
    fs::write(units.join(FIRST.raw(3)), &raw).unwrap();
    check_honest(&path, &truth);
    fs::rename(units.join(FIRST.raw(3)), units.join(FIRST.raw(1))).unwrap();
    check_whole(&path, &truth);
    fs::remove_file(units.join(FIRST.log())).unwrap();
    check_honest(&path, &truth);
}

/// A damaged pack is refused and leaves nothing behind, or gives the recording as it was.
fn check_pack(scratch: &Scratch, bytes: &[u8], truth: &Truth) -> bool {
    let (damaged, into) = (scratch.path("damaged"), scratch.path("into"));
    fs::write(&damaged, bytes).unwrap();
    let whole = match unpack(&damaged, &into) {
        Ok(_) => {
            check_whole(&into, truth);
            fs::remove_dir_all(&into).unwrap();
            true
        }
        Err(_) => false,
    };
    assert!(!into.exists());
    whole
}

#[test]
fn damaged_packs_are_refused_and_leave_nothing() {
    let scratch = Scratch::new();
    let truth = mixed(&scratch.path("r"));
    pack(&scratch.path("r"), &scratch.path("p"), Vec::new()).unwrap();
    let bytes = fs::read(scratch.path("p")).unwrap();
    assert!(check_pack(&scratch, &bytes, &truth));
    let mut random = Random(3);
    for _ in 0..500 {
        let mut changed = bytes.clone();
        let at = random.below(bytes.len());
        changed[at] ^= 1 << random.below(8);
        assert!(!check_pack(&scratch, &changed, &truth), "byte {at} is not checked");
    }
    for _ in 0..60 {
        let cut = random.below(bytes.len());
        assert!(!check_pack(&scratch, &bytes[..cut], &truth), "cut at {cut}");
    }
    assert!(!check_pack(&scratch, &[&bytes[..], b"more"].concat(), &truth));
}

#[test]
fn forged_segments_do_not_reserve_what_they_claim() {
    let scratch = Scratch::new();
    let path = scratch.path("r");
    let truth = mixed(&path);
    let log = path.join("units").join(FIRST.log());
    for claim in [1u64 << 40, u64::MAX, (64 << 20) + 1] {
        for field in [24, 32] {
            check_changed(&path, &truth, &log, |b| b[field..field + 8].copy_from_slice(&claim.to_le_bytes()));
        }
        let raw = path.join("units").join(FIRST.raw(2));
        check_changed(&path, &truth, &raw, |b| b[16..24].copy_from_slice(&claim.to_le_bytes()));
    }
    // Nor do file names with absurd numbers make anybody count up to them.
    fs::write(path.join("units/100.0.4294967295.raw"), b"x").unwrap();
    let recording = Recording::open(&path).unwrap();
    assert!(recording.unit(&FIRST).unwrap().damage.is_some());
}
