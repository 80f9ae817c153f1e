//! The kernel: its version, /proc, execution domain, and the sandboxes that trials put around themselves.

use super::Check;
use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
use nix::sys::personality::{self, Persona};
use std::fs;

/// What magic number a mounted /proc has.
const PROC_MAGIC: u64 = 0x9fa0;
/// From here on the FSGSBASE instructions are there, which the engine reaches its own data with.
const NEEDED_KERNEL: (u32, u32) = (5, 9);

pub fn checks() -> Vec<Check> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    vec![kernel(&release), proc_mounted(), execution_domain(), ptrace(), seccomp(), landlock()]
}

fn kernel(release: &str) -> Check {
    const NAME: &str = "kernel";
    let found = format!("Linux {release}");
    match version(release) {
        None => Check::degraded(NAME, found, "its version cannot be read; the runs below tell"),
        Some(v) if v < NEEDED_KERNEL => Check::missing(NAME, found, "version 5.9 or later is needed"),
        Some(_) => Check::ok(NAME, found),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn proc_mounted() -> Check {
    const NAME: &str = "/proc";
    let mounted = rustix::fs::statfs("/proc").is_ok_and(|s| s.f_type as u64 == PROC_MAGIC);
    match mounted && fs::read_link("/proc/self/exe").is_ok() {
        true => Check::ok(NAME, "mounted"),
        false => Check::missing(NAME, "not mounted", "mount it: mount -t proc proc /proc"),
    }
}

fn execution_domain() -> Check {
    const NAME: &str = "execution domain";
    let Ok(persona) = personality::get() else { return Check::ok(NAME, "cannot be asked for, which is no harm") };
    if persona.intersects(Persona::ADDR_LIMIT_3GB | Persona::ADDR_LIMIT_32BIT) {
        return Check::missing(NAME, "addresses are limited to 32 bits", "start clew without setarch");
    }
    if persona.contains(Persona::READ_IMPLIES_EXEC) {
        return Check::degraded(NAME, "all readable memory is executable", "start clew without setarch -X");
    }
    let random = if persona.contains(Persona::ADDR_NO_RANDOMIZE) { "off" } else { "on" };
    Check::ok(NAME, format!("address randomisation is {random}; the engine places everything itself either way"))
}

fn ptrace() -> Check {
    Check::ok("ptrace", "not needed")
}

fn seccomp() -> Check {
    const NAME: &str = "seccomp";
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mode = status.lines().find_map(|l| l.strip_prefix("Seccomp:")).map(str::trim);
    let under = if mode == Some("2") { "; this process is under a filter already" } else { "" };
    match fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail") {
        Ok(actions) if actions.split_whitespace().any(|a| a == "errno") => {
            Check::ok(NAME, format!("filters are available{under}"))
        }
        _ if mode.is_some() => Check::ok(NAME, format!("available, actions unknown{under}")),
        _ => Check::degraded(NAME, "not in this kernel", "trials will rest on the engine's mediation alone"),
    }
}

fn landlock() -> Check {
    const NAME: &str = "Landlock";
    let versions = [(6, ABI::V6), (5, ABI::V5), (4, ABI::V4), (3, ABI::V3), (2, ABI::V2), (1, ABI::V1)];
    match versions.iter().find(|(_, abi)| landlock_has(*abi)) {
        Some((n, _)) => Check::ok(NAME, format!("available, version {n} or later")),
        None => Check::degraded(NAME, "not available", "trials will rest on the engine's mediation alone"),
    }
}

/// Makes a rule set that is never applied.
fn landlock_has(abi: ABI) -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::from_all(abi)).and_then(|r| r.create()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn kernels_are_judged_by_their_version() {
        let expected = [
            ("6.1.0-18-amd64", State::Ok),
            ("5.9", State::Ok),
            ("5.4.0-generic", State::Missing),
            ("4.4.0", State::Missing),
            ("unknown", State::Degraded),
        ];
        for (release, state) in expected {
            assert_eq!(kernel(release).state, state, "{release}");
        }
    }
}
