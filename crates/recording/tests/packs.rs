//! Packs: there and back, with extra files, and from hostile hands.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;

use common::*;
use recording::{ErrorKind as Kind, Recording, is_pack, pack, pack_contents, unpack};

#[test]
fn a_pack_comes_back_whole_with_its_extra_files() {
    let scratch = Scratch::new();
    let truth = mixed(&scratch.path("r"));
    fs::write(scratch.path("main.c"), b"int main() {}").unwrap();
    std::os::unix::fs::symlink("main.c", scratch.path("link.c")).unwrap();
    let large: Vec<u8> = {
        let mut r = Random(9);
        (0..9_000_000).map(|_| r.next() as u8).collect()
    };
    fs::write(scratch.path("debug"), &large).unwrap();
    let extra = vec![
        ("/src/main.c".to_owned(), scratch.path("main.c")),
        ("src/link.c".to_owned(), scratch.path("link.c")),
        ("usr/lib/debug/x".to_owned(), scratch.path("debug")),
        ("gone".to_owned(), scratch.path("gone")),
        ("../../etc/passwd".to_owned(), scratch.path("main.c")),
    ];
    let summary = pack(&scratch.path("r"), &scratch.path("p"), extra).unwrap();
    let skipped: Vec<_> = summary.skipped.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(skipped, ["extra/gone", "extra/../../etc/passwd"]);
    let debug = summary.entries.iter().find(|e| e.name == "extra/usr/lib/debug/x").unwrap();
    assert_eq!(debug.bytes, 9_000_000);
    assert!(debug.stored >= debug.bytes && debug.stored < debug.bytes + 1000, "what does not compress is stored");
    let raw = summary.entries.iter().find(|e| e.name == "units/100.0.2.raw").unwrap();
    assert!(raw.bytes < fs::metadata(scratch.path("r/units/100.0.2.raw")).unwrap().len(), "only what is committed");
    assert_eq!(summary.bytes, fs::metadata(scratch.path("p")).unwrap().len());
    assert_eq!(fs::metadata(scratch.path("p")).unwrap().permissions().mode() & 0o7777, 0o600);

    assert!(is_pack(&scratch.path("p")) && !is_pack(&scratch.path("r")) && !is_pack(&scratch.path("main.c")));
    assert_eq!(pack_contents(&scratch.path("p")).unwrap().entries, summary.entries);
    assert_eq!(unpack(&scratch.path("p"), &scratch.path("u")).unwrap().entries, summary.entries);
    check_whole(&scratch.path("u"), &truth);
    let unpacked = Recording::open(&scratch.path("u")).unwrap();
    assert_eq!(unpacked.meta(), Recording::open(&scratch.path("r")).unwrap().meta());
    let extra = unpacked.extra().unwrap();
    assert_eq!(fs::read(extra.join("src/main.c")).unwrap(), b"int main() {}");
    assert_eq!(fs::read(extra.join("src/link.c")).unwrap(), b"int main() {}");
    assert!(fs::read(extra.join("usr/lib/debug/x")).unwrap() == large);
    assert_eq!(fs::read(unpacked.file(KEPT).unwrap()).unwrap(), b"hello");

    // What was unpacked packs again, with what its pack brought along.
    let again = pack(&scratch.path("u"), &scratch.path("p2"), Vec::new()).unwrap();
    let sizes = |s: &recording::PackSummary| {
        let mut all: Vec<_> = s.entries.iter().map(|e| (e.name.clone(), e.bytes)).collect();
        all.sort();
        all
    };
    assert_eq!(sizes(&again), sizes(&summary));
}

#[test]
fn a_pack_opens_through_a_scratch_folder() {
    let scratch = Scratch::new();
    let truth = mixed(&scratch.path("r"));
    pack(&scratch.path("r"), &scratch.path("p"), Vec::new()).unwrap();
    assert_eq!(Recording::open(&scratch.path("p")).unwrap_err().kind, Kind::Packed);
    let opened = Recording::open_in(&scratch.path("p"), &scratch.path("s")).unwrap();
    assert_eq!(opened.path(), scratch.path("s"));
    check_whole(&scratch.path("s"), &truth);
    assert_eq!(Recording::open_in(&scratch.path("r"), &scratch.path("t")).unwrap().path(), scratch.path("r"));
    assert!(!scratch.path("t").exists());
}

#[test]
fn nothing_is_overwritten() {
    let scratch = Scratch::new();
    mixed(&scratch.path("r"));
    fs::write(scratch.path("precious"), b"x").unwrap();
    assert_eq!(pack(&scratch.path("r"), &scratch.path("precious"), Vec::new()).unwrap_err().kind, Kind::Exists);
    assert_eq!(fs::read(scratch.path("precious")).unwrap(), b"x");
    pack(&scratch.path("r"), &scratch.path("p"), Vec::new()).unwrap();
    assert_eq!(unpack(&scratch.path("p"), &scratch.path("r")).unwrap_err().kind, Kind::Exists);
    let error = unpack(&scratch.path("precious"), &scratch.path("u")).unwrap_err();
    assert_eq!((error.kind, scratch.path("u").exists()), (Kind::WrongType, false));
    assert_eq!(pack(&scratch.path("nothing"), &scratch.path("q"), Vec::new()).unwrap_err().kind, Kind::Missing);
    assert!(!scratch.path("q").exists() && !scratch.path("q.part").exists());
}

/// Builds a pack by hand, with checks that hold.
fn forged(entries: &[(&str, &[u8])]) -> Vec<u8> {
    use model::log::digest;
    let mut out = b"CLEWPACK\x01\0\0\0\0\0\0\0".to_vec();
    let mut index = b"INDX".to_vec();
    index.extend((entries.len() as u32).to_le_bytes());
    for (name, content) in entries {
        let at = out.len() as u64;
        let mut header = b"ENTR".to_vec();
        header.extend((name.len() as u32).to_le_bytes());
        header.extend((content.len() as u64).to_le_bytes());
        let check = digest(digest(0, &header), name.as_bytes());
        out.extend(&header);
        out.extend(check.to_le_bytes());
        out.extend(name.as_bytes());
        if !content.is_empty() {
            let mut block = (content.len() as u32).to_le_bytes().repeat(2);
            let check = digest(digest(0, &block), content);
            block.extend(check.to_le_bytes());
            out.extend(&block);
            out.extend(*content);
        }
        out.extend(blake3::hash(content).as_bytes());
        index.extend((name.len() as u32).to_le_bytes());
        index.extend(name.as_bytes());
        for n in [at, content.len() as u64, out.len() as u64 - at] {
            index.extend(n.to_le_bytes());
        }
    }
    let at = out.len() as u64;
    let check = digest(0, &index);
    out.extend(&index);
    out.extend(at.to_le_bytes());
    out.extend(check.to_le_bytes());
    out.extend(b"CLEWPEND");
    out
}

fn check_forged(entries: &[(&str, &[u8])], accepted: bool) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("box")).unwrap();
    fs::write(scratch.path("p"), forged(entries)).unwrap();
    let result = unpack(&scratch.path("p"), &scratch.path("box/u"));
    assert_eq!(result.is_ok(), accepted, "{entries:?}: {result:?}");
    if !accepted {
        assert_eq!(files_below(&scratch.path("")), [scratch.path("p")], "{entries:?}");
        assert!(!scratch.path("box/u").exists());
    }
}

#[test]
fn names_of_entries_cannot_lead_out_of_the_folder() {
    let text = b"clew recording 1\n";
    check_forged(&[("recording", text), ("files/a", b"x"), ("extra/a/b", b"")], true);
    for name in
        ["../evil", "/tmp/evil", "extra/../../evil", "files/../../evil", "units/evil", "evil", "extra/", "extra//x"]
    {
        check_forged(&[("recording", text), (name, b"x")], false);
    }
    check_forged(&[("recording", text), ("files/a", b"x"), ("files/a", b"y")], false);
    check_forged(&[("recording", text), ("extra/a", b"x"), ("extra/a/b", b"y")], false);
    check_forged(&[("files/a", b"x")], false);
    check_forged(&[], false);
}
