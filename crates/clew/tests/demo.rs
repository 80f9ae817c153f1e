//! `clew demo` shows a search that finds its cause, and leaves nothing behind.

mod common;

use common::place::{Place, finish};
use common::{stderr, stdout};
use std::time::{Duration, Instant};

#[test]
fn the_demonstration_finds_the_bug_and_cleans_up() {
    let place = Place::new("demo");
    let scratch = place.folder.join("tmp");
    std::fs::create_dir(&scratch).expect("the folder can be made");
    let mut demo = place.clew(["demo"]);
    demo.env("TMPDIR", &scratch);
    let begun = Instant::now();
    let output = finish(demo, b"");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // It takes less than a second; the machine may be busy.
    assert!(begun.elapsed() < Duration::from_secs(30));
    let text = stdout(&output);
    assert!(text.contains("largest.c:9 in largest  proved, execution 2 of 2"), "{text}");
    assert!(text.contains("with line 9 taken the other way on its 2nd execution the program prints 9"), "{text}");
    assert_eq!(std::fs::read_dir(&scratch).expect("it is there").count(), 0, "nothing is left");
    assert!(!place.home.exists(), "the user's recordings are left alone");
    place.done();
}

#[test]
fn without_a_compiler_it_says_so() {
    let place = Place::new("demo-without");
    let mut demo = place.clew(["demo"]);
    demo.env("PATH", &place.folder);
    let output = finish(demo, b"");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("there is no C compiler"), "{}", stderr(&output));
    place.done();
}
