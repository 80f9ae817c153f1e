//! The processor: what the engine rests on and what it can use.

use super::Check;
use std::fs;

/// Bit of AT_HWCAP2 that says that the kernel lets programs use the FSGSBASE instructions.
const HWCAP2_FSGSBASE: usize = 1 << 1;
/// What x86-64-v2 has beyond the base, as /proc/cpuinfo names it.
const V2: [&str; 6] = ["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2"];
/// What is worth a mention.
const NOTED: [&str; 5] = ["avx", "avx2", "avx512f", "amx_tile", "user_shstk"];

pub fn checks() -> Vec<Check> {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = flags(&info);
    let (_, hwcap2) = rustix::param::linux_hwcap();
    vec![instructions(&flags), fsgsbase(hwcap2)]
}

fn flags(info: &str) -> Vec<&str> {
    let line = info.lines().find(|l| l.split(':').next().is_some_and(|name| name.trim() == "flags"));
    line.and_then(|l| l.split_once(':')).map(|(_, f)| f.split_whitespace().collect()).unwrap_or_default()
}

fn instructions(flags: &[&str]) -> Check {
    const NAME: &str = "processor";
    if flags.is_empty() {
        return Check::degraded(NAME, "its features cannot be read", "the runs below tell");
    }
    let lacking: Vec<_> = V2.iter().filter(|f| !flags.contains(f)).copied().collect();
    if !lacking.is_empty() {
        return Check::degraded(NAME, format!("older than x86-64-v2: no {}", lacking.join(", ")), "use --cpu native");
    }
    let noted: Vec<_> = NOTED.iter().filter(|f| flags.contains(f)).copied().collect();
    let extra = if noted.is_empty() { String::new() } else { format!(" with {}", noted.join(", ")) };
    Check::ok(NAME, format!("x86-64-v2{extra}"))
}

fn fsgsbase(hwcap2: usize) -> Check {
    const NAME: &str = "FSGSBASE";
    match hwcap2 & HWCAP2_FSGSBASE != 0 {
        true => Check::ok(NAME, "usable"),
        false => Check::missing(NAME, "not usable", "Linux 5.9 or later on a processor made after 2012 is needed"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn flags_are_read_from_the_first_processor() {
        let info = "processor\t: 0\nvmx flags\t: a b\nflags\t\t: fpu popcnt\n\nprocessor\t: 1\nflags\t\t: other\n";
        assert_eq!(flags(info), ["fpu", "popcnt"]);
        assert!(flags("").is_empty());
    }

    #[test]
    fn an_old_processor_is_named_as_one() {
        assert_eq!(instructions(&V2).state, State::Ok);
        let old = instructions(&V2[1..]);
        assert_eq!(old.state, State::Degraded);
        assert!(old.found.contains("cx16"), "{}", old.found);
    }
}
