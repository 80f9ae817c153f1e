//! The trace is right: what the host decodes from a traced run is what the CPU does natively, instruction by instruction
//! and byte by byte, except for the constants by which mappings lie elsewhere (see `testkit::compare`).

use model::Cpu;
use model::wire::{Action, Config, Probe, Site};
use std::time::Duration;
use testkit::compare::{Covered, Decoded, compare};
use testkit::compile::{Guest, guest, guest_with};
use testkit::elf::Program;
use testkit::under_clew::UnderClew;
use testkit::{Shown, oracle, sample};

/// Cheap and telling ones at the even places, of which the sample is made.
const GUESTS: [&str; 21] = [
    "signals.c",
    "recursion.c",
    "strings.c",
    "varargs.c",
    "selfmod.c",
    "indirect.c",
    "jit.c",
    "exceptions.cpp",
    "vectors.c",
    "sorts.c",
    "jumps.c",
    "machine.c",
    "threads.c",
    "calc.c",
    "odd.c",
    "vectors512.c",
    "x87.c",
    "static/indirect.c",
    "static/signals.c",
    "static/varargs.c",
    "inlined.c",
];
const SAMPLE: usize = 10;
const LIMIT: Duration = Duration::from_secs(60);

/// `static/` before a name: linked statically, so that the C library is part of the program and is compared too, from
/// `main` on. Before that it looks at what Clew changes on purpose: the CPU, the environment, the kernel's features.
fn guest_as(name: &str) -> Option<Guest> {
    match name.strip_prefix("static/") {
        Some(plain) => guest_with(&format!("oracle/{plain}"), &["-static"]),
        None => guest(&format!("oracle/{name}")),
    }
}

/// Compares one guest; nothing if this CPU cannot run it.
fn check(name: &str, cpu: Cpu) -> Option<Result<Covered, String>> {
    let guest = guest_as(name)?;
    let program = Program::read(&guest.program);
    let at_entry = Site::Executable(program.entry);
    let probes = vec![Probe { site: at_entry, instance: 1, action: Action::Report }];
    let (run, events) = UnderClew::trace(&guest.program, &[], Config { cpu, probes, ..Config::default() }, LIMIT);
    let shown = match run.shown {
        Ok(shown) => shown,
        Err(why) => return Some(Err(why)),
    };
    const RSP: usize = 4;
    let rsp = run.run.hits().next().map_or(0, |(_, _, _, registers)| registers.gpr[RSP]);
    let mut native = oracle::trace_aligned::<&str>(&guest.program, &[], rsp);
    let mut decoded = Decoded::new(&events);
    if name.starts_with("static/") {
        let main = program.symbol("main").expect("a static guest has symbols");
        native.since(main);
        decoded.since(main);
    }
    let expected = Shown { stdout: native.stdout.clone(), end: native.end };
    // The trace first: where it goes wrong tells why the output does.
    let result = compare(&native, &decoded);
    let same = || if shown == expected { Ok(()) } else { Err(format!("expected {expected:?}, got {shown:?}")) };
    let troubles = run.run.troubles.iter().chain(run.run.traces.iter().filter_map(|t| t.damage.as_ref()));
    let troubles: Vec<_> = troubles.cloned().collect();
    let fine = || if troubles.is_empty() { Ok(()) } else { Err(troubles.join("; ")) };
    Some(fine().and(result).and_then(|covered| same().map(|()| covered)))
}

#[test]
fn decoded_streams_equal_the_stepped_ones() {
    let chosen = sample::indices(GUESTS.len(), SAMPLE);
    let (mut wrong, mut done) = (Vec::new(), 0);
    for &index in &chosen {
        let name = GUESTS[index];
        // Both CPUs that a guest may be shown, in turn: its own code must not care. A library in it does.
        let own = !name.starts_with("static/");
        let cpu = if own && index % 4 < 2 { Cpu::V2 } else { Cpu::Native };
        match check(name, cpu) {
            None => sample::say(&format!("{name}: not on this CPU")),
            Some(Ok(c)) => {
                done += 1;
                println!("{name}: {c}");
            }
            Some(Err(why)) => wrong.push(format!("{name} ({cpu:?}): {why}")),
        }
    }
    let all = GUESTS.len();
    sample::say(&format!("trace oracle: {done} of {all} guests compared and equal, {} wrong", wrong.len()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
