//! Alterations are right: the same change at the same instance gives the same output and end under Clew as natively.
//!
//! Each case is a random (instruction, n, flip, skip or set) drawn from its own seed. A case whose native result depends
//! on where things lie in memory, or takes a middling time, says nothing and is replaced by the next draw.

use model::wire::{Config, Probe};
use model::{Cpu, Mode};
use std::path::PathBuf;
use std::time::Duration;
use testkit::altered::{self, Alteration, Change, Layout, Outcome, Sites};
use testkit::compile::guest;
use testkit::elf::Program;
use testkit::random::Random;
use testkit::under_clew::UnderClew;
use testkit::{End, Shown, oracle, sample};

const GUESTS: [&str; 5] = ["sorts.c", "machine.c", "calc.c", "recursion.c", "varargs.c"];
const CASES_PER_GUEST: usize = 40;
const SAMPLE_PER_GUEST: usize = 6;
const MODES: [Mode; 4] = [Mode::None, Mode::Tick, Mode::Count, Mode::Trace];
const SEED: u64 = 0xc1e0;
/// Processor time after the change; the guests themselves need about a millisecond.
const BUDGET: Duration = Duration::from_millis(500);
/// A case that needs more but ends is too near to running away.
const MIDDLING: Duration = Duration::from_millis(60);
/// For what ends natively.
const LIMIT: Duration = Duration::from_secs(30);

struct Subject {
    name: &'static str,
    path: PathBuf,
    program: Program,
    sites: Sites,
}

impl Subject {
    fn new(name: &'static str) -> Subject {
        let path = guest(&format!("oracle/{name}")).expect("these guests run on any CPU").program;
        let program = Program::read(&path);
        let trace = oracle::trace::<&str>(&path, &[]);
        let sites = Sites::of(&trace, &program);
        Subject { name, path, program, sites }
    }

    /// The alteration of one case, its native outcome, and how many draws were replaced.
    fn case(&self, guest: usize, case: usize) -> (Alteration, Outcome, u32) {
        let mut random = Random::new(SEED ^ (guest as u64) << 32 ^ (case as u64) << 16);
        for replaced in 0.. {
            let alteration = self.sites.draw(&mut random, &self.program);
            let native = altered::run(&self.path, &alteration, Layout::Fixed, BUDGET);
            let middling = native.shown.end != End::RanAway && native.cpu > MIDDLING;
            let elsewhere = || altered::run(&self.path, &alteration, Layout::Random, BUDGET).shown;
            if !middling && native.applied && (0..2).all(|_| same(&native.shown, &elsewhere()).is_ok()) {
                return (alteration, native, replaced);
            }
        }
        unreachable!("the draws do not end")
    }
}

/// The same to the outside? Of two that ran away only what both had time to print is compared.
fn same(a: &Shown, b: &Shown) -> Result<(), String> {
    let shorter = a.stdout.len().min(b.stdout.len());
    let away = a.end == End::RanAway && b.end == End::RanAway;
    let output = if away { a.stdout[..shorter] == b.stdout[..shorter] } else { a.stdout == b.stdout };
    if a.end == b.end && output { Ok(()) } else { Err(format!("natively {}, under Clew {}", show(a), show(b))) }
}

fn show(s: &Shown) -> String {
    let text = String::from_utf8_lossy(&s.stdout[..s.stdout.len().min(80)]).into_owned();
    format!("{} after {:?} ({} bytes)", s.end, text, s.stdout.len())
}

fn under_clew(subject: &Subject, probes: Vec<Probe>, mode: Mode, native: &Shown) -> Result<Shown, String> {
    let limit = if native.end == End::RanAway { BUDGET } else { LIMIT };
    // The C library then takes the same functions as natively: altered programs read what it leaves in dead registers
    // and dead stack.
    let cpu = Cpu::Native;
    UnderClew::run(&subject.path, &[], Config { mode, cpu, probes, ..Config::default() }, limit).shown
}

fn check(subject: &Subject, alteration: &Alteration, native: &Shown, mode: Mode) -> Result<(), String> {
    let shown = under_clew(subject, vec![alteration.probe(&subject.program)], mode, native);
    shown.and_then(|s| same(native, &s)).map_err(|why| {
        let text = oracle::disassemble(subject.program.code(alteration.site), alteration.site);
        format!("{} {alteration} ({text}), mode {mode:?}: {why}", subject.name)
    })
}

#[test]
fn altered_runs_end_as_natively() {
    let (mut wrong, mut done, mut replaced, mut away) = (Vec::new(), 0, 0, 0);
    for (g, name) in GUESTS.into_iter().enumerate() {
        let subject = Subject::new(name);
        for case in sample::indices(CASES_PER_GUEST, SAMPLE_PER_GUEST) {
            let (alteration, native, skipped) = subject.case(g, case);
            done += 1;
            replaced += skipped;
            away += u32::from(native.shown.end == End::RanAway);
            let result = check(&subject, &alteration, &native.shown, MODES[case % MODES.len()]);
            wrong.extend(result.err().map(|w| format!("case {g}.{case}: {w}")));
        }
    }
    let all = GUESTS.len() * CASES_PER_GUEST;
    let more = format!("{away} run away; {replaced} draws replaced");
    sample::say(&format!("alterations: {done} of {all} compared ({more}), {} wrong", wrong.len()));
    assert!(wrong.is_empty(), "{} of {done}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Skipping from before a comparison to the branch behind it: the branch then sees the flags from before, whatever
/// instrumentation came in between and thought them dead.
#[test]
fn flags_survive_a_skipped_comparison() {
    let mut wrong = Vec::new();
    for name in ["sorts.c", "machine.c"] {
        let subject = Subject::new(name);
        let sites = subject.sites.before_comparisons(&subject.program);
        assert!(sites.len() > 5, "{name} has {} such places", sites.len());
        for (site, branch) in sites.into_iter().take(12) {
            let alteration = Alteration { site, instance: 1, change: Change::Skip { to: branch } };
            let native = altered::run(&subject.path, &alteration, Layout::Fixed, BUDGET);
            if native.cpu > MIDDLING {
                continue;
            }
            for mode in MODES {
                wrong.extend(check(&subject, &alteration, &native.shown, mode).err());
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The branch that closes a loop of so many rounds, flipped in the last one, so that the loop goes on.
fn go_on(subject: &Subject, rounds: u64) -> Alteration {
    let closes = |i: &iced_x86::Instruction| i.is_jcc_short_or_near() && i.near_branch_target() < i.ip();
    let found = subject.sites.executed(rounds).find(|i| closes(i)).expect("the loop has a branch");
    let change = Change::Flip { taken: found.near_branch_target(), fall: found.next_ip() };
    Alteration { site: found.ip(), instance: rounds, change }
}

#[test]
fn what_runs_away_natively_runs_away_under_clew() {
    let subject = Subject::new("endless.c");
    for rounds in [1000, 700] {
        let alteration = go_on(&subject, rounds);
        let native = altered::run(&subject.path, &alteration, Layout::Fixed, BUDGET).shown;
        assert_eq!(native.end, End::RanAway, "{alteration}");
        for mode in MODES {
            check(&subject, &alteration, &native, mode).unwrap();
        }
    }
}

/// The control: with a probe that changes nothing, or that never comes, the run must be the native one.
#[test]
fn a_probe_that_changes_nothing_changes_nothing() {
    for name in GUESTS {
        let subject = Subject::new(name);
        let mut random = Random::new(SEED);
        for mode in [Mode::None, Mode::Trace] {
            let mut alteration = subject.sites.draw(&mut random, &subject.program);
            alteration.change = Change::Nothing;
            let native = altered::run(&subject.path, &alteration, Layout::Fixed, BUDGET);
            assert!(native.applied, "{name}: {alteration}");
            check(&subject, &alteration, &native.shown, mode).unwrap();
            let never = Alteration { instance: 1 << 40, ..alteration };
            check(&subject, &never, &native.shown, mode).unwrap();
        }
    }
}
