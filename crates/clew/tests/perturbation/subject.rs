//! Programs whose values are sliced: own guests at two levels of optimization, and programs of the system.

use crate::common::place::{Place, finish};
use recording::Recording;
use std::path::{Path, PathBuf};
use testkit::{compile, sample};

/// A program, how it is called, and what it reads.
pub struct Subject {
    pub name: String,
    pub program: PathBuf,
    words: &'static [&'static str],
    input: Vec<u8>,
    options: &'static [&'static str],
    /// It is one of our guests.
    pub is_own: bool,
}

/// Own guests and how they are recorded: with a seed where the schedule matters, and once as the machine is, with the
/// widest vectors that it has.
const GUESTS: &[(&str, &[&str])] = &[
    ("strings", &[]),
    ("sorting", &[]),
    ("numbers", &[]),
    ("machine", &[]),
    ("workers", &["--seed", "3"]),
    ("strings", &["--cpu", "native"]),
    ("omitted", &[]),
];

/// Programs of the system: name, arguments.
const SYSTEM: &[(&str, &[&str])] = &[
    ("sort", &["-n", "-k", "2"]),
    ("gzip", &["-9", "-n", "-c"]),
    ("sed", &["-n", "-e", "s/\\([a-z]*\\) \\([0-9]*\\)/\\2-\\1/p"]),
    ("mawk", &["{ s[$1] += $2 * 1.5; n++ } END { for (k in s) print k, s[k]; print n }"]),
    (
        "lua5.4",
        &[
            "-e",
            "local t = {} for l in io.lines() do t[#t + 1] = l:upper():reverse() end table.sort(t) print(table.concat(t, '|'))",
        ],
    ),
];

/// A few lines of words and numbers.
fn lines() -> Vec<u8> {
    let word = |n: u64| ["kiwi", "plum", "fig", "lemon", "pear"][(n * 7 % 5) as usize];
    (0..12).map(|n| format!("{} {}\n", word(n), n * n * 37 % 101)).collect::<String>().into_bytes()
}

/// All subjects; says which programs are missing.
pub fn subjects() -> Vec<Subject> {
    let mut all = Vec::new();
    for (guest, options) in GUESTS {
        for level in ["-O0", "-O2"] {
            let made = compile::guest_with(&format!("slice/{guest}.c"), &[level]).expect("any CPU runs it");
            let name = [&[guest, level], *options].concat().join("");
            all.push(Subject {
                name,
                program: made.program,
                words: &["word"],
                input: Vec::new(),
                options,
                is_own: true,
            });
        }
    }
    for (name, words) in SYSTEM {
        let program = Path::new("/usr/bin").join(name);
        if !program.exists() {
            sample::say(&format!("slices: {name} is not installed, so it was NOT RUN"));
            continue;
        }
        all.push(Subject { name: (*name).into(), program, words, input: lines(), options: &[], is_own: false });
    }
    all
}

impl Subject {
    /// Records it.
    pub fn record(&self, place: &Place) -> Recording {
        let path = place.folder.join("recording");
        let mut command = place.clew(["record", "--quiet", "--output"]);
        command.arg(&path);
        command.args(self.options);
        command.arg("--").arg(&self.program).args(self.words).env("LC_ALL", "C");
        let output = finish(command, &self.input);
        assert_eq!(output.status.code(), Some(0), "{}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        Recording::open(&path).expect("the recording can be read")
    }
}
