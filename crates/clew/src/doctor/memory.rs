//! Memory: limits of this user, and whether the places where the engine puts things are free.

use super::Check;
use model::layout;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::ops::Range;

/// The engine reserves this much address space at least, most of which is never touched.
const NEEDED_ADDRESS_SPACE: u64 = 4 << 30;
/// The engine's own descriptors lie above those of the program.
const NEEDED_DESCRIPTORS: u64 = 64;

pub fn checks() -> Vec<Check> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let own = fs::read_link("/proc/self/exe").map(|p| p.display().to_string()).unwrap_or_default();
    let overcommit = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    vec![
        places(&maps, &own),
        address_space(getrlimit(Resource::As).current),
        stack(getrlimit(Resource::Stack).current),
        descriptors(getrlimit(Resource::Nofile).current),
        commitment(overcommit.trim()),
    ]
}

/// Does the kernel of itself put something where the engine wants to be?
///
/// Judged by the libraries, stack and vDSO of this process. The program itself does not count, nor what has no name and
/// may be its data: that is never loaded into a guest's process.
fn places(maps: &str, own: &str) -> Check {
    const NAME: &str = "address layout";
    if maps.is_empty() {
        return Check::degraded(NAME, "cannot be read", "the runs below tell");
    }
    let wanted = [layout::TARGETS, layout::NEAR_LOW, layout::CACHE, layout::NEAR_HIGH, layout::BRK, layout::ENGINE];
    let taken = maps.lines().filter_map(mapping).find(|(range, name)| {
        let ours = name.is_empty() || *name == own || *name == "[heap]";
        !ours && wanted.iter().any(|w| range.start < w.end && range.end > w.start)
    });
    match taken {
        None => Check::ok(NAME, "the engine's places are free"),
        Some((range, name)) => Check::missing(
            NAME,
            format!("the kernel maps {name} at {:#x}, where the engine wants to be", range.start),
            "start clew without setarch and with an ordinary stack limit (ulimit -s 8192)",
        ),
    }
}

/// Range and name of one line of a list of mappings.
fn mapping(line: &str) -> Option<(Range<u64>, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |s: &str| u64::from_str_radix(s, 16).ok();
    let name = rest.splitn(5, char::is_whitespace).nth(4).unwrap_or("").trim();
    Some((number(start)?..number(end)?, name))
}

fn address_space(limit: Option<u64>) -> Check {
    const NAME: &str = "address space";
    match limit {
        None => Check::ok(NAME, "not limited"),
        Some(n) if n < NEEDED_ADDRESS_SPACE => {
            Check::missing(NAME, format!("limited to {}", mib(n)), "raise it: ulimit -v unlimited")
        }
        Some(n) => Check::degraded(
            NAME,
            format!("limited to {}", mib(n)),
            "large programs may not fit beside the engine; raise it: ulimit -v unlimited",
        ),
    }
}

fn stack(limit: Option<u64>) -> Check {
    const NAME: &str = "stack";
    match limit {
        Some(n) if n <= layout::STACK_MAX => Check::ok(NAME, format!("limited to {}", mib(n))),
        _ => Check::ok(NAME, format!("the limit is larger than the {} that programs get", mib(layout::STACK_MAX))),
    }
}

fn descriptors(limit: Option<u64>) -> Check {
    const NAME: &str = "descriptors";
    match limit {
        None => Check::ok(NAME, "not limited"),
        Some(n) if n < NEEDED_DESCRIPTORS => {
            Check::degraded(NAME, format!("limited to {n}"), "raise the limit: ulimit -n 1024")
        }
        Some(n) => Check::ok(NAME, format!("limited to {n}")),
    }
}

fn commitment(mode: &str) -> Check {
    const NAME: &str = "memory commitment";
    match mode {
        "2" => Check::degraded(
            NAME,
            "strict: what is reserved counts as used",
            "if programs do not start, set vm.overcommit_memory to 0",
        ),
        _ => Check::ok(NAME, "reserving address space is free"),
    }
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn what_the_kernel_put_in_the_way_is_named() {
        let own = "562000000000-562000001000 r-xp 00000000 08:01 12 /usr/bin/clew\n\
                   562000001000-562000002000 rw-p 00000000 00:00 0 \n";
        assert_eq!(places(own, "/usr/bin/clew").state, State::Ok);
        let taken = format!("{own}560000000000-560000001000 rw-p 00000000 00:00 0 [stack]\n");
        let check = places(&taken, "/usr/bin/clew");
        assert_eq!(check.state, State::Missing);
        assert!(check.found.contains("[stack] at 0x560000000000"), "{}", check.found);
        assert_eq!(places("", "").state, State::Degraded);
        assert_eq!(places("nonsense\n\n", "").state, State::Ok);
    }

    #[test]
    fn limits_are_judged_by_size() {
        assert_eq!(address_space(None).state, State::Ok);
        assert_eq!(address_space(Some(1 << 30)).state, State::Missing);
        assert_eq!(address_space(Some(64 << 30)).state, State::Degraded);
        assert_eq!(descriptors(Some(10)).state, State::Degraded);
        assert_eq!(commitment("2").state, State::Degraded);
        assert_eq!(commitment("0").state, State::Ok);
    }
}
