//! Programs that are not needed but good to have.

use super::Check;
use crate::find;
use crate::startup::Startup;
use std::ffi::OsStr;

/// Name on the list, what to look for, and what it is for.
const TOOLS: [(&str, &[&str], &str); 3] = [
    ("C compiler", &["cc", "gcc", "clang"], "only Clew's own tests need one"),
    ("gdb", &["gdb"], "install it to look at programs with gdb"),
    ("valgrind", &["valgrind"], "only comparisons of speed use it"),
];

pub fn checks(startup: &Startup) -> Vec<Check> {
    TOOLS.iter().map(|(name, candidates, purpose)| tool(name, candidates, purpose, startup.variable("PATH"))).collect()
}

fn tool(name: &'static str, candidates: &[&str], purpose: &str, path: Option<&OsStr>) -> Check {
    match candidates.iter().find_map(|c| find::find(OsStr::new(c), path).ok()) {
        Some(file) => Check::ok(name, file.display().to_string()),
        None => Check::degraded(name, "not found, optional", purpose),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn the_first_candidate_that_is_there_counts() {
        let path = Some(OsStr::new("/bin"));
        assert_eq!(tool("shell", &["no-such-shell", "sh"], "", path), Check::ok("shell", "/bin/sh"));
        assert_eq!(tool("shell", &["no-such-shell"], "why", path).state, State::Degraded);
    }
}
