//! Results of a suite: how many of how many, and which did not pass.

use std::fmt;

/// What a suite found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub name: String,
    pub passed: usize,
    pub total: usize,
    /// One line per failure.
    pub failures: Vec<String>,
    /// What did all that can be asked of it but is not exact; counted apart, not as passed.
    pub inexact: Vec<String>,
    /// What was not run, and why; limits that a reader must know.
    pub notes: Vec<String>,
}

impl Tally {
    pub fn new(name: impl Into<String>) -> Tally {
        Tally { name: name.into(), ..Tally::default() }
    }

    /// Counts one result; a failure is printed at once because a suite can take long.
    pub fn count(&mut self, what: &str, result: Result<(), String>) {
        self.total += 1;
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => {
                let line = format!("{what}: {why}");
                println!("{}: FAIL {line}", self.name);
                self.failures.push(line);
            }
        }
    }

    /// Counts one result that is right as far as it can be known, apart from those that passed.
    pub fn count_inexact(&mut self, what: &str) {
        self.inexact.push(what.to_owned());
    }

    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        println!("{}: note: {text}", self.name);
        self.notes.push(text);
    }

    pub fn passed_all(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} of {} passed", self.name, self.passed, self.total)?;
        match self.inexact.len() {
            0 => Ok(()),
            n => write!(f, ", {n} inexact"),
        }
    }
}
