//! An answer as `clew why` gives it for a small program, with a slice that reaches into a very long file.

use report::{Cause, Difference, Evidence, Execution, Kind, Place, Report, SliceLine, Source, Step, Tried};

const COUNT: &str = include_str!("count.c");
/// As long as the amalgamation of a database.
const LONG: usize = 240_000;
/// A line of the long file that is in the slice.
const LONG_LINE: u32 = 120_000;

/// The answer.
pub fn sample() -> Report {
    Report {
        verb: "why".into(),
        recording: "count-3".into(),
        process: "4711.1".into(),
        command: ["./count", "two lines.txt"].map(str::to_owned).to_vec(),
        failure: "byte 8 of standard output is '9' instead of '8'".into(),
        difference: Some(Difference {
            stream: "standard output".into(),
            expected: b"2 lines\n8 words\n41 bytes\n 2 1\n 3 4\n 5 3\n".to_vec(),
            found: b"2 lines\n9 words\n41 bytes\n 2 1\n 3 4\n 5 3\n".to_vec(),
            offset: 8,
        }),
        causes: vec![condition(), increment(), reader()],
        slice: slice(),
        sources: sources(),
        tried: Tried {
            trials: 61,
            controls: 4,
            verdicts: vec![("fixed".into(), 2), ("same failure".into(), 40), ("other failure".into(), 19)],
        },
        limits: vec!["12 branches executed earlier were not tried (--all)".into()],
        seconds: 2.34,
        phases: Vec::new(),
        needed: Vec::new(),
    }
}

fn condition() -> Cause {
    Cause {
        place: at("if (length >= 0)", "read_all"),
        kind: Kind::CriticalPredicate,
        proved: true,
        instance: Some(Execution { number: 5, of: Some(9) }),
        explanation: "with line 49 taken the other way on its 5th execution the program prints 8 words as expected"
            .into(),
        distance: None,
        doubt: None,
        evidence: Some(Evidence {
            moment: "tick 1204, pc 0x401268".into(),
            alteration: "flip count+0x1268#5".into(),
            verdict: "fixed".into(),
            end: "exited with 0".into(),
        }),
        path: vec![
            step("if (length >= 0)", "read_all", "decides about"),
            step("add_word(t, length);", "read_all", "calls"),
            step("t->words++;", "add_word", "t->words"),
            step("printf(\"%ld lines", "main", "the 2nd argument"),
            Step { place: long_place(), by: "memory at 0x4c2a10".into() },
            Step { place: Place { address: "libc.so.6+0x10e1a4".into(), ..Place::default() }, by: String::new() },
        ],
        closer: "clew gdb count-3 -- -ex 'break count.c:49' -ex continue".into(),
    }
}

fn increment() -> Cause {
    Cause {
        place: at("t->words++;", "add_word"),
        kind: Kind::Suppression,
        proved: true,
        instance: Some(Execution { number: 5, of: Some(9) }),
        explanation: "with line 27 left out on its 5th execution the program prints 8 words as expected".into(),
        distance: None,
        doubt: None,
        evidence: Some(Evidence {
            moment: "tick 1207, pc 0x40118c".into(),
            alteration: "suppress count+0x118c#5".into(),
            verdict: "fixed".into(),
            end: "exited with 0".into(),
        }),
        path: vec![step("t->words++;", "add_word", "t->words"), step("printf(\"%ld lines", "main", "")],
        closer: "clew gdb count-3 -- -ex 'break count.c:27' -ex continue".into(),
    }
}

fn reader() -> Cause {
    Cause {
        place: at("length = 0;", "read_all"),
        kind: Kind::Dependence,
        proved: false,
        instance: None,
        explanation: "the value that decides at line 49 comes from here".into(),
        distance: None,
        doubt: Some("no change of it was tried".into()),
        evidence: None,
        path: vec![step("length = 0;", "read_all", "length"), step("if (length >= 0)", "read_all", "")],
        closer: "clew gdb count-3 -- -ex 'break count.c:51' -ex continue".into(),
    }
}

fn slice() -> Vec<SliceLine> {
    let lines = [
        ("printf(\"%ld lines", "main", 1),
        ("t->words++;", "add_word", 2),
        ("add_word(t, length);", "read_all", 3),
        ("if (length >= 0)", "read_all", 4),
        ("length = 0;", "read_all", 5),
        ("length++;", "read_all", 9),
        ("if (!is_blank(c))", "read_all", 12),
        ("return c == ' '", "is_blank", 18),
        ("while ((c = getc(in))", "read_all", 30),
        ("memset(t, 0", "clear", 60),
    ];
    let own = lines.iter().map(|(text, function, distance)| SliceLine {
        place: at(text, function),
        distance: *distance,
        instances: 9,
        executed: 41,
    });
    own.chain([SliceLine { place: long_place(), distance: 2, instances: 1, executed: 1 }]).collect()
}

fn sources() -> Vec<Source> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect();
    let long = (1..=LONG).map(|n| format!("\tstep({n}); /* generated */")).collect();
    vec![
        Source { path: "/src/count/count.c".into(), lines: lines(COUNT) },
        Source { path: "/src/library/printing.c".into(), lines: long },
    ]
}

fn step(text: &str, function: &str, by: &str) -> Step {
    Step { place: at(text, function), by: by.into() }
}

/// The first line of `count.c` that begins with `text`.
fn at(text: &str, function: &str) -> Place {
    let found = COUNT.lines().zip(1..).find(|(line, _)| line.trim().starts_with(text));
    let (line, number) = found.expect("the source has this line");
    Place {
        file: Some("count.c".into()),
        full: Some("/src/count/count.c".into()),
        line: Some(number),
        function: Some(function.into()),
        address: format!("count+{:#x}", 0x1000 + number * 16),
        source: Some(line.into()),
    }
}

fn long_place() -> Place {
    Place {
        file: Some("library/printing.c".into()),
        full: Some("/src/library/printing.c".into()),
        line: Some(LONG_LINE),
        function: Some("print".into()),
        address: "libprinting.so+0x9000".into(),
        source: Some(format!("\tstep({LONG_LINE}); /* generated */")),
    }
}
