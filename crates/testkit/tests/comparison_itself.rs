//! The comparison on its own: it accepts a trace in which mappings lie elsewhere, and finds every kind of damage.

use std::sync::OnceLock;
use testkit::compare::{Decoded, Got, compare};
use testkit::compile::guest;
use testkit::oracle::{self, Entry, Step, Trace};
use testkit::regions::RegionId;
use trace::event::Mem;

/// The guest with generated code, whose anonymous mappings move.
fn native() -> &'static Trace {
    static TRACE: OnceLock<Trace> = OnceLock::new();
    TRACE.get_or_init(|| oracle::trace::<&str>(&guest("oracle/jit.c").expect("any CPU runs it").program, &[]))
}

/// As if the stack were 0x1230 lower and the other mappings higher, each by its own constant.
fn elsewhere(addr: u64, region: RegionId) -> u64 {
    match region {
        RegionId::Stack => addr - 0x1230,
        RegionId::Strings => addr - 0x1010,
        RegionId::Heap => addr + 0x7000_0000,
        RegionId::Mapping(n) | RegionId::Tls(n) => addr - 0x10_0000_0000 - u64::from(n) * 0x10_0000,
        RegionId::Image | RegionId::Fixed(_) | RegionId::Handler(_) | RegionId::Unknown => addr,
    }
}

fn accesses(step: &Step) -> Vec<Mem> {
    let mem = |t: &oracle::Touched| Mem {
        addr: elsewhere(t.access.addr, t.region),
        size: t.access.size,
        count: 1,
        down: false,
        read: t.access.read,
        write: t.access.write,
        conditional: t.access.conditional,
    };
    step.touched.iter().map(mem).collect()
}

/// The native trace as an engine would have seen it, with instructions of libraries in between.
fn moved() -> Decoded {
    let thread = |entries: &Vec<Entry>| {
        let mut got = Vec::new();
        let mut last = RegionId::Image;
        for (n, entry) in entries.iter().enumerate() {
            if let Entry::Insn(step) = entry {
                if n % 50 == 0 && step.region == RegionId::Image && last == RegionId::Image {
                    got.push(Got::Insn { pc: 0x7f12_3456_0000 + n as u64, mem: Vec::new() });
                }
                last = step.region;
            }
            got.push(match entry {
                Entry::Insn(step) => Got::Insn { pc: elsewhere(step.pc, step.region), mem: accesses(step) },
                Entry::RepPart(step) => Got::RepPart { pc: step.pc, mem: accesses(step) },
                Entry::Signal { signo, pc } => Got::Signal { signo: *signo, pc: *pc },
            });
        }
        got
    };
    Decoded { threads: native().threads.iter().map(thread).collect() }
}

/// Damages the trace and expects the comparison to say something that contains `why`.
fn check_found(damage: impl FnOnce(&mut Vec<Got>, usize), why: &str) {
    let mut decoded = moved();
    let main = &mut decoded.threads[0];
    let late = main.len() / 2;
    let own = |g: &Got| matches!(g, Got::Insn { pc, mem } if *pc < 0x5555_5560_0000 && mem.len() == 1);
    let at = (late..main.len()).find(|&i| own(&main[i])).expect("half of the trace is left");
    damage(main, at);
    let error = compare(native(), &decoded).expect_err("damage is found");
    assert!(error.contains(why), "{error}");
}

#[test]
fn a_trace_may_lie_elsewhere() {
    let covered = compare(native(), &moved()).unwrap();
    assert!(covered.instructions > 10_000 && covered.accesses > 5_000, "{covered:?}");
    assert_eq!(covered.moved.get(&RegionId::Stack), Some(&-0x1230));
    assert_eq!(covered.moved.get(&RegionId::Image).copied().unwrap_or(0), 0);
}

#[test]
fn damage_is_found() {
    check_found(|got, at| drop(got.remove(at)), "expected pc");
    check_found(|got, at| got.insert(at, got[at].clone()), "expected pc");
    check_found(|got, at| got.truncate(at), "the trace ends here");
    let access = |got: &mut Vec<Got>, at: usize, change: fn(&mut Mem)| match &mut got[at] {
        Got::Insn { mem, .. } => change(&mut mem[0]),
        _ => unreachable!("chosen as an instruction with one access"),
    };
    check_found(|got, at| access(got, at, |m| m.addr += 8), "natively only");
    check_found(|got, at| access(got, at, |m| m.size += 1), "under Clew only");
    check_found(|got, at| access(got, at, |m| (m.read, m.write) = (m.write, m.read)), "only");
    check_found(|got, at| got.insert(at, Got::Signal { signo: 11, pc: 0 }), "different kinds");
}
