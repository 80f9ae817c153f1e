//! Where a program died, as far as that makes one crash the same as another.
//!
//! Two crashes are the same if they happened in the same function, called from the program's own code in the same way: the
//! functions from the one that died up to the first one of the program itself. Lines do not count, as inputs that differ
//! may fail at different ones. A stack that is used up is the same failure wherever it happens.

use image::{Describe, Images};
use model::wire::Crash;
use std::path::Path;

/// Callers that are looked at where none of them is in the program itself.
const MOST_CALLERS: usize = 3;
/// An access as near to the stack pointer that fails had no stack left.
const NEAR_STACK: u64 = 1 << 16;
const SIGSEGV: u32 = 11;

/// Where it died.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CrashPlace {
    /// Functions, the innermost first; none if nothing is known about that place.
    In(Vec<String>),
    /// The stack was used up.
    StackOverflow,
}

impl CrashPlace {
    /// The place of a crash of the program `exe`.
    pub fn of(crash: &Crash, exe: &str) -> CrashPlace {
        let stack = crash.registers.gpr[4];
        if crash.signal == SIGSEGV && crash.addr.0.abs_diff(stack) < NEAR_STACK {
            return CrashPlace::StackOverflow;
        }
        let images = Images::new();
        let way = Describe::new(&images).way(crash);
        let own = way.iter().position(|(path, _)| path == Path::new(exe));
        let count = own.map_or(MOST_CALLERS, |n| n + 1);
        CrashPlace::In(way.into_iter().take(count).map(|(_, function)| function).collect())
    }

    /// The end of a sentence about a crash.
    pub fn words(&self) -> String {
        match self {
            CrashPlace::StackOverflow => ": its stack is used up".into(),
            CrashPlace::In(functions) => match functions.as_slice() {
                [] => String::new(),
                [only] => format!(" in {only}"),
                [first, .., own] => format!(" in {first}, called from {own}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_in_words() {
        let place = |names: &[&str]| CrashPlace::In(names.iter().map(ToString::to_string).collect()).words();
        assert_eq!(place(&[]), "");
        assert_eq!(place(&["parse"]), " in parse");
        assert_eq!(place(&["raise", "abort", "check"]), " in raise, called from check");
        assert_eq!(CrashPlace::StackOverflow.words(), ": its stack is used up");
    }
}
