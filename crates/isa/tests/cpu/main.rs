//! `isa` against the processor.
//!
//! Every instruction form is executed from random states in a traced child process (see `child`), and compared with what
//! `isa` declares about it (see `check`): nothing undeclared is written, nothing undeclared is read, and memory is
//! touched exactly where declared. A sample with a fixed seed runs by default; `CLEW_FULL=1` runs all forms, and
//! `CLEW_FORMS=FILE` adds forms from a file like `forms.txt`; `CLEW_SEED=N` starts from other random states.
//!
//! A form that cannot be executed must have a reason (see `skip`): the processor lacks it, user code may not execute it,
//! or it would harm the test. If tracing is not permitted the test fails and says so.

mod check;
mod child;
mod declared;
mod forms;
mod image;
mod key;
mod place;
mod rng;
mod skip;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::OnceLock;

use check::{Form, Outcome};
use child::{Child, Stop};
use isa::{Effects, Isa};
use nix::sys::signal::Signal;
use rng::Rng;

/// One form in this many is in the sample.
const SAMPLE: u64 = 10;
/// Pairs of states in which a fault that was put in must show: an operand must happen to end right at the edge of memory.
const PAIRS: u32 = 150;
/// From so many seeds a fault that was put in must be found.
const STATES: u64 = 10;

fn start() -> Child {
    Child::start(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap_or_else(|error| panic!("{error}"))
}

/// A line that shows even when the test passes.
fn say(line: &str) {
    writeln!(std::io::stderr(), "{line}").expect("standard error can be written");
}

/// All forms, ready to run, without repetitions.
fn all_forms() -> &'static [Form] {
    static FORMS: OnceLock<Vec<Form>> = OnceLock::new();
    FORMS.get_or_init(find_forms)
}

fn find_forms() -> Vec<Form> {
    let extra = std::env::var("CLEW_FORMS").ok().map(|path| {
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read CLEW_FORMS={path}: {error}"))
    });
    let mut raw = forms::stored(extra.as_deref());
    raw.extend(forms::enumerate());
    raw.sort();
    raw.dedup();
    raw.iter().filter_map(|bytes| check::fit(bytes)).collect()
}

/// A number that depends on the bytes of a form only.
fn hash(form: &Form) -> u64 {
    form.bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3))
}

fn hex(form: &Form) -> String {
    form.bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn nothing_undeclared_is_read_or_written() {
    let full = std::env::var_os("CLEW_FULL").is_some_and(|v| v == "1");
    let seed = std::env::var("CLEW_SEED").map_or(0, |seed| seed.parse().expect("CLEW_SEED is a number"));
    let forms = all_forms();
    let total = forms.len();
    let mut child = start();
    let mut isa = Isa::new();
    let (mut checked, mut pairs_run) = (0, 0);
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = vec![];
    for form in forms {
        let mut rng = Rng::new(hash(form) ^ seed);
        if !full && !rng.one_in(SAMPLE) {
            continue;
        }
        if let Some(reason) = skip::never_run(&form.instruction) {
            *skipped.entry(reason).or_default() += 1;
            continue;
        }
        let mut effects = Effects::default();
        isa.effects(&form.instruction, &mut effects);
        let pairs = if full { 30 } else { 10 };
        let outcome = check::check(&mut child, form, &effects, &mut rng, pairs);
        let name = format!("{:?} {}", form.instruction.code(), hex(form));
        match outcome.unwrap_or_else(|error| panic!("{name}: {error}")) {
            Outcome::Agreed(pairs) => {
                checked += 1;
                pairs_run += pairs;
            }
            Outcome::NeverRan(stop) => match skip::why(&form.instruction, &effects, stop) {
                Some(reason) => *skipped.entry(reason).or_default() += 1,
                None => wrong.push(format!("{name}: never ran, for no known reason: {stop:x?}")),
            },
            Outcome::Violated(message) => wrong.push(format!("{name}: {message}")),
        }
    }
    say(&format!("isa against the processor: {checked} of {total} forms agree, in {pairs_run} pairs of random states"));
    for (reason, count) in &skipped {
        say(&format!("  {count} not run: {reason}"));
    }
    assert!(wrong.is_empty(), "{} forms are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert!(checked > 0);
}

/// Checks `code` against effects that `spoil` has made wrong, and expects the fault to be found, in one of these words.
///
/// Which byte of several shows the fault first depends on the random states, and these on what the processor has.
#[track_caller]
fn check_found(code: &[u8], expected: &[&str], spoil: impl FnOnce(&mut Effects)) {
    let form = check::fit(code).expect("an instruction");
    let mut effects = Effects::default();
    Isa::new().effects(&form.instruction, &mut effects);
    spoil(&mut effects);
    let mut child = start();
    for seed in 1..=STATES {
        match check::check(&mut child, &form, &effects, &mut Rng::new(seed), PAIRS).unwrap() {
            Outcome::Violated(message) => {
                let fault = message.lines().next().unwrap_or_default();
                assert!(
                    expected.iter().any(|words| fault.contains(words)),
                    "seed {seed} found another fault: {message}"
                );
            }
            Outcome::Agreed(_) => panic!("the fault was not found with seed {seed}"),
            Outcome::NeverRan(stop) => panic!("never ran: {stop:?}"),
        }
    }
}

#[test]
fn an_undeclared_register_write_is_found() {
    // add ecx, ebx
    check_found(&[0x01, 0xD9], &["rcx["], |effects| effects.regs.retain(|access| !access.write));
}

#[test]
fn an_undeclared_upper_half_is_found() {
    // add ecx, ebx: the upper half of rcx is cleared.
    check_found(&[0x01, 0xD9], &["rcx[4]", "rcx[5]", "rcx[6]", "rcx[7]"], |effects| {
        effects.regs.iter_mut().for_each(|r| r.bytes.end = 4)
    });
}

#[test]
fn an_undeclared_register_read_is_found() {
    // lea rcx, [rbx + rsi]
    check_found(&[0x48, 0x8D, 0x0C, 0x33], &["depends on rsi"], |effects| {
        effects.regs.retain(|access| access.reg != isa::Reg::Gpr(isa::RSI));
    });
}

#[test]
fn an_undeclared_flag_read_is_found() {
    // adc ecx, ebx
    check_found(&[0x11, 0xD9], &["depends on rflags[0]"], |effects| effects.flags_read = isa::Flags::NONE);
}

#[test]
fn a_flag_that_a_shift_keeps_is_found() {
    // shl ecx, cl
    check_found(&[0xD3, 0xE1], &["depends on rflags"], |effects| effects.flags_conditional = isa::Flags::NONE);
}

#[test]
fn a_memory_access_that_is_too_short_is_found() {
    // mov [rbx], rcx
    check_found(&[0x48, 0x89, 0x0B], &["mem"], |effects| effects.mem[0].size = isa::MemSize::Bytes(7));
}

#[test]
fn a_memory_access_that_is_too_long_is_found() {
    // mov rcx, [rbx]
    check_found(&[0x48, 0x8B, 0x0B], &["does not fault"], |effects| effects.mem[0].size = isa::MemSize::Bytes(9));
}

#[test]
fn an_undeclared_vector_read_is_found() {
    // addss xmm1, xmm2
    check_found(&[0xF3, 0x0F, 0x58, 0xCA], &["depends on zmm2[0]"], |effects| {
        effects.regs.retain(|access| access.reg != isa::Reg::Vec(2));
    });
}

#[test]
fn an_undeclared_rounding_mode_is_found() {
    // sqrtsd xmm1, xmm2
    check_found(&[0xF2, 0x0F, 0x51, 0xCA], &["mxcsr"], |effects| effects.mxcsr = isa::Access::NONE);
}

#[test]
fn an_undeclared_stack_top_is_found() {
    // fld1
    check_found(&[0xD9, 0xE8], &["fsw"], |effects| effects.x87.top = isa::Top::Keep);
}

#[test]
fn an_undeclared_jump_is_found() {
    // jmp short
    check_found(&[0xEB, 0x10], &["control went elsewhere"], |effects| effects.kind = isa::Kind::Plain);
}

/// The fast summary must be what follows from the full effects, whatever instruction filled its row.
#[test]
fn summaries_follow_from_effects() {
    let mut isa = Isa::new();
    let mut effects = Effects::default();
    for form in all_forms() {
        isa.effects(&form.instruction, &mut effects);
        let summary = isa.summary(&form.instruction);
        assert_eq!(summary, effects.summary(), "{:?} {}: {effects:?}", form.instruction.code(), hex(form));
    }
}

/// True if the stop says that the processor does not have the instruction.
fn is_unknown_instruction(stop: Stop) -> bool {
    matches!(stop, Stop::Signal(Signal::SIGILL, ..))
}
