//! How much of a large comparison one test run does.
//!
//! Tests that compare hundreds of cases do a fixed part of them normally and all with `CLEW_FULL=1`, and say which.

use std::io::Write;

/// Whether all cases are wanted.
pub fn full() -> bool {
    std::env::var_os("CLEW_FULL").is_some_and(|v| v != "0" && !v.is_empty())
}

/// The indices of the cases to do out of `all`: every one, or `some` spread evenly.
pub fn indices(all: usize, some: usize) -> Vec<usize> {
    if full() || some >= all {
        return (0..all).collect();
    }
    (0..some).map(|i| i * all / some).collect()
}

/// Says how much was done, also when the test passes and its other output is held back.
pub fn say(line: &str) {
    // A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::indices;

    #[test]
    fn a_sample_is_spread_over_all_cases() {
        if !super::full() {
            assert_eq!(indices(10, 3), [0, 3, 6]);
        }
        assert_eq!(indices(2, 5), [0, 1]);
    }
}
