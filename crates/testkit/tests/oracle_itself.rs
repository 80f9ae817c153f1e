//! The oracles on their own: before they judge the engine they must agree with themselves and with known answers.

use iced_x86::{Instruction, Mnemonic};
use std::path::Path;
use std::time::Duration;
use testkit::altered::{self, Alteration, Change, Layout};
use testkit::compile::guest;
use testkit::native::Native;
use testkit::oracle::{self, Entry, decode};
use testkit::{End, Shown};

const LIMIT: Duration = Duration::from_secs(20);

fn native(program: &Path) -> Shown {
    Native::run::<&str>(program, &[], LIMIT)
}

/// Stepping twice must give the same streams, and the program must not notice that it is stepped.
fn check_repeatable(name: &str) {
    let Some(guest) = guest(name) else { return println!("{name}: not on this CPU") };
    let first = oracle::trace::<&str>(&guest.program, &[]);
    let second = oracle::trace::<&str>(&guest.program, &[]);
    let shown = native(&guest.program);
    assert_eq!((&first.stdout, first.end), (&shown.stdout, shown.end), "{name}: stepped and native runs differ");
    assert_eq!(first.threads.len(), second.threads.len(), "{name}");
    for (index, (a, b)) in first.threads.iter().zip(&second.threads).enumerate() {
        let differs = a.iter().zip(b).position(|(x, y)| x != y);
        assert_eq!(differs, None, "{name}, thread {index}: {:?}", differs.map(|i| (&a[i], &b[i])));
        assert_eq!(a.len(), b.len(), "{name}, thread {index}");
    }
}

#[test]
fn two_runs_give_the_same_streams() {
    for name in ["oracle/selfmod.c", "oracle/signals.c", "oracle/odd.c"] {
        check_repeatable(name);
    }
}

#[test]
fn a_string_instruction_is_one_entry_with_all_its_bytes() {
    let guest = guest("oracle/inlined.c").expect("any CPU runs it");
    let trace = oracle::trace::<&str>(&guest.program, &[]);
    // memset of 2048 bytes, written out by the compiler as rep stosq.
    let long = trace.threads[0].iter().filter_map(|e| match e {
        Entry::Insn(step) => Some(step.touched.iter().filter(|t| t.access.write).map(|t| t.access.size).sum::<u32>()),
        _ => None,
    });
    assert_eq!(long.max(), Some(2048));
}

/// Compiles a program of known behaviour: counts to ten and prints a letter for each even number.
fn known_program() -> std::path::PathBuf {
    let source = testkit::scratch_folder("known").join("known.c");
    let text = format!(
        "#include \"{}/guests/oracle/bare.h\"\n{}",
        testkit::repository().display(),
        "__attribute__((noinline)) static void one(int i) { if (i % 2 == 0) put_char('a' + i); else put_char('.'); }\n\
         int run(void) { for (int i = 0; i < 10; i++) one(i); return 3; }\n"
    );
    std::fs::write(&source, text).expect("the scratch folder is writable");
    testkit::compile::compile(
        &source,
        &["-O1", "-static", "-nostdlib", "-ffreestanding", "-no-pie", "-fno-stack-protector"],
    )
}

/// The first instruction, as linked, that the program executes ten times and that `wanted` accepts with its predecessor.
fn site(program: &Path, wanted: impl Fn(Mnemonic, &Instruction) -> bool) -> Instruction {
    let trace = oracle::trace::<&str>(program, &[]);
    let mut counts = std::collections::BTreeMap::<u64, (usize, Mnemonic, Instruction)>::new();
    let mut before = Mnemonic::INVALID;
    for e in &trace.threads[0] {
        if let Entry::Insn(s) = e {
            let insn = decode(&s.code, s.pc);
            counts.entry(s.pc).or_insert((0, before, insn)).0 += 1;
            before = insn.mnemonic();
        }
    }
    let found = counts.values().find(|(n, before, i)| *n == 10 && wanted(*before, i));
    found.unwrap_or_else(|| panic!("no such instruction")).2
}

/// The branch on the parity of the number.
fn parity_branch(program: &Path) -> Instruction {
    site(program, |before, i| before == Mnemonic::Test && i.is_jcc_short_or_near())
}

/// The call in the loop: the only one that is not followed by a return.
fn call_in_loop(program: &Path) -> Instruction {
    site(program, |before, i| before == Mnemonic::Mov && i.is_call_near())
}

fn check_altered(program: &Path, site: u64, instance: u64, change: Change, stdout: &str, end: End) {
    for layout in [Layout::Fixed, Layout::Random] {
        let alteration = Alteration { site, instance, change: change.clone() };
        let outcome = altered::run(program, &alteration, layout, Duration::from_secs(2));
        let text = String::from_utf8_lossy(&outcome.shown.stdout).into_owned();
        assert_eq!((text.as_str(), outcome.shown.end), (stdout, end), "{alteration}");
        assert!(outcome.applied, "{alteration}");
    }
}

#[test]
fn alterations_have_the_expected_effect() {
    let program = known_program();
    let shown = native(&program);
    assert_eq!((shown.stdout.as_slice(), shown.end), (&b"a.c.e.g.i."[..], End::Exited(3)));
    let branch = parity_branch(&program);
    let flip = Change::Flip { taken: branch.near_branch_target(), fall: branch.next_ip() };
    check_altered(&program, branch.ip(), 1, flip.clone(), "..c.e.g.i.", End::Exited(3));
    check_altered(&program, branch.ip(), 4, flip.clone(), "a.cde.g.i.", End::Exited(3));
    check_altered(&program, branch.ip(), 10, flip, "a.c.e.g.ij", End::Exited(3));
    check_altered(&program, branch.ip(), 2, Change::Nothing, "a.c.e.g.i.", End::Exited(3));
    let call = call_in_loop(&program);
    check_altered(&program, call.ip(), 3, Change::Skip { to: call.next_ip() }, "a..e.g.i.", End::Exited(3));
    let set = Change::Register { number: 7, value: 24 };
    check_altered(&program, call.ip(), 3, set, "a.y.e.g.i.", End::Exited(3));
    let lost = Change::Skip { to: 8 };
    check_altered(&program, call.ip(), 5, lost, "", End::Signaled(11));
}

#[test]
fn an_instance_that_never_comes_is_told() {
    let program = known_program();
    let branch = parity_branch(&program);
    let alteration = Alteration { site: branch.ip(), instance: 11, change: Change::Nothing };
    let outcome = altered::run(&program, &alteration, Layout::Fixed, Duration::from_secs(2));
    assert!(!outcome.applied);
    assert_eq!(outcome.shown.end, End::Exited(3));
}

#[test]
fn a_program_that_runs_away_is_stopped() {
    let program = known_program();
    let call = call_in_loop(&program);
    // Sets the loop's counter back each time it is compared: done once, it costs two thousand million rounds.
    let alteration = Alteration {
        site: call.ip(),
        instance: 1,
        change: Change::Register { number: 3, value: -0x7fff_fff0_i64 as u64 },
    };
    let outcome = altered::run(&program, &alteration, Layout::Fixed, Duration::from_millis(300));
    assert_eq!(outcome.shown.end, End::RanAway);
}
