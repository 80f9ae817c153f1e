//! `clew doctor`: what works on this machine, and what to do about the rest.
//!
//! Each check looks at one thing by itself; the last ones run a real program in every mode, which is what counts.
//! Nothing is changed on the machine and nothing needs privileges.

mod cpu;
mod engine;
mod memory;
mod system;
mod tools;

use crate::cli::{Color, Doctor};
use crate::message::{self, Paint};
use crate::startup::Startup;
use crate::status;
use serde_json::{Value, json};

/// The answer of one check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    pub name: &'static str,
    pub state: State,
    /// What was found.
    pub found: String,
    /// What to do, when there is something to do.
    pub advice: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    Ok,
    /// Works, but less well, or something optional is not there.
    Degraded,
    /// Programs cannot be run, or not all of them.
    Missing,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Degraded => "degraded",
            State::Missing => "missing",
        }
    }
}

impl Check {
    pub fn ok(name: &'static str, found: impl Into<String>) -> Check {
        Check { name, state: State::Ok, found: found.into(), advice: String::new() }
    }

    pub fn degraded(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, state: State::Degraded, found: found.into(), advice: advice.into() }
    }

    pub fn missing(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Check {
        Check { name, state: State::Missing, found: found.into(), advice: advice.into() }
    }
}

/// Checks everything and says so; gives the exit status.
pub fn run(options: &Doctor, color: Color, startup: &Startup) -> i32 {
    let mut checks = Vec::new();
    checks.extend(system::checks());
    checks.extend(cpu::checks());
    checks.extend(memory::checks());
    checks.extend(tools::checks(startup));
    checks.extend(engine::checks(startup));
    let ok = checks.iter().all(|c| c.state != State::Missing);
    if options.json {
        message::stdout(&format!("{:#}\n", to_json(&checks, ok)));
    } else {
        message::stdout(&to_text(&checks, ok, options.quiet, Paint::for_stdout(color, startup)));
    }
    if ok { 0 } else { status::NO }
}

fn to_json(checks: &[Check], ok: bool) -> Value {
    let one = |c: &Check| json!({ "name": c.name, "state": c.state.name(), "found": c.found, "advice": c.advice });
    json!({ "clew": 1, "verb": "doctor", "ok": ok, "checks": checks.iter().map(one).collect::<Vec<_>>() })
}

fn to_text(checks: &[Check], ok: bool, quiet: bool, paint: Paint) -> String {
    let width = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks.iter().filter(|c| !quiet || c.state != State::Ok) {
        let state = format!("{:8}", check.state.name());
        let state = match check.state {
            State::Ok => paint.good(&state),
            State::Degraded => paint.middling(&state),
            State::Missing => paint.bad(&state),
        };
        text.push_str(&format!("{state}  {:width$}  {}", check.name, check.found));
        if !check.advice.is_empty() {
            text.push_str(&format!("; {}", check.advice));
        }
        text.push('\n');
    }
    let verdict = match ok {
        true => "Programs can be run on this machine.",
        false => "Programs cannot be run on this machine, or not all of them: see what is missing.",
    };
    text.push_str(&format!("{}\n", paint.strong(verdict)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::startup::Startup;
    use nix::sys::signal::SigSet;

    fn plain() -> Paint {
        let startup = Startup {
            args: Vec::new(),
            env: Vec::new(),
            blocked: SigSet::empty(),
            ignored: 0,
            source_map: Default::default(),
        };
        Paint::for_stdout(Color::Never, &startup)
    }

    #[test]
    fn the_text_gives_state_name_finding_and_advice() {
        let checks = [Check::ok("a", "fine"), Check::degraded("long", "slow", "buy a new one")];
        let expected =
            "ok        a     fine\ndegraded  long  slow; buy a new one\nPrograms can be run on this machine.\n";
        assert_eq!(to_text(&checks, true, false, plain()), expected);
        let quiet = "degraded  long  slow; buy a new one\nPrograms can be run on this machine.\n";
        assert_eq!(to_text(&checks, true, true, plain()), quiet);
    }

    #[test]
    fn the_document_has_the_agreed_shape() {
        let document = to_json(&[Check::missing("a", "b", "c")], false);
        let expected = json!({
            "clew": 1, "verb": "doctor", "ok": false,
            "checks": [{ "name": "a", "state": "missing", "found": "b", "advice": "c" }],
        });
        assert_eq!(document, expected);
    }
}
