//! `#!` scripts: which interpreter a script names, and with which argument.
//!
//! Follows `load_script` in Linux's `fs/binfmt_script.c` (since 5.1) to the letter, its oddities included: only the
//! first 256 bytes of the file count; everything after the interpreter is one argument; a script without a final
//! newline keeps the blanks at its end, and a blank alone at the end gives an empty argument.
//! An interpreter may be a script itself; the limit on that (Linux: five scripts lead to a program, six do not) is the
//! caller's.

#![forbid(unsafe_code)]

use alloc::vec::Vec;
use core::fmt;

/// How much of the file Linux looks at.
pub const HEAD: usize = 256;

/// The first line of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    pub interpreter: Vec<u8>,
    pub argument: Option<Vec<u8>>,
}

/// Why a file is not a script that can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptError {
    /// It does not start with `#!`: try another format.
    NotScript,
    /// Nothing but blanks after `#!`.
    NoInterpreter,
    /// The line ends without a newline right after `#!` and blanks. Linux then takes the name to be empty and fails to
    /// open the current directory as a program.
    EmptyInterpreter,
    /// The interpreter's name does not end within the bytes that are looked at.
    TooLong,
}

/// Parses the beginning of a file (its first [`HEAD`] bytes, fewer if it is shorter).
pub fn parse(head: &[u8]) -> Result<Script, ScriptError> {
    if !head.starts_with(b"#!") {
        return Err(ScriptError::NotScript);
    }
    // Like the kernel's buffer: filled up with zeros when the file is shorter.
    let mut buf = [0; HEAD];
    let len = head.len().min(HEAD);
    buf[..len].copy_from_slice(&head[..len]);

    let last = HEAD - 1;
    let newline = buf.iter().position(|&b| b == b'\n' || b == 0).filter(|&i| buf[i] == b'\n');
    let mut end = match newline {
        Some(i) => i,
        None => {
            let name = next(&buf, 2, last, |b| !blank(b)).ok_or(ScriptError::NoInterpreter)?;
            // Without an end the name may be cut off: better not to run something else.
            next(&buf, name, last, |b| blank(b) || b == 0).ok_or(ScriptError::TooLong)?;
            last
        }
    };
    // Stops at the `!` at the latest.
    while blank(buf[end - 1]) {
        end -= 1;
    }
    let name = next(&buf, 2, end, |b| !blank(b)).filter(|&i| i != end).ok_or(ScriptError::NoInterpreter)?;
    let name_end = next(&buf, name, end, |b| blank(b) || b == 0);
    let argument = name_end.filter(|&i| buf[i] != 0).and_then(|i| next(&buf, i, end, |b| !blank(b)));
    buf[end] = 0;

    let interpreter = &buf[name..name_end.unwrap_or(end)];
    if interpreter.is_empty() {
        return Err(ScriptError::EmptyInterpreter);
    }
    Ok(Script { interpreter: interpreter.to_vec(), argument: argument.map(|at| c_string(&buf[at..]).to_vec()) })
}

impl Script {
    /// The arguments the interpreter starts with: its own name, its argument, the script's path, and the script's
    /// arguments without the first, which the path replaces.
    pub fn argv(&self, path: &[u8], argv: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut out = alloc::vec![self.interpreter.clone()];
        out.extend(self.argument.clone());
        out.push(path.to_vec());
        out.extend(argv.iter().skip(1).map(|a| a.to_vec()));
        out
    }
}

fn blank(b: u8) -> bool {
    b == b' ' || b == b'\t'
}

/// The first index from `from` up to and including `to` whose byte satisfies `accept`.
fn next(buf: &[u8; HEAD], from: usize, to: usize, accept: impl Fn(u8) -> bool) -> Option<usize> {
    (from..=to).find(|&i| accept(buf[i]))
}

fn c_string(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len())]
}

impl ScriptError {
    /// What `execve` of such a file answers.
    pub fn errno(&self) -> i32 {
        const ENOEXEC: i32 = 8;
        const EACCES: i32 = 13;
        match self {
            ScriptError::EmptyInterpreter => EACCES,
            _ => ENOEXEC,
        }
    }
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScriptError::NotScript => "not a script: it does not start with #!",
            ScriptError::NoInterpreter | ScriptError::EmptyInterpreter => "the #! line names no interpreter",
            ScriptError::TooLong => "the interpreter in the #! line is longer than the system allows",
        })
    }
}

/// Parses `file` and asserts what this module promises; for fuzzing and its stored corpus.
pub fn assert_promises(file: &[u8]) {
    let Ok(script) = parse(file) else { return };
    assert_eq!(Ok(&script), parse(&file[..file.len().min(HEAD)]).as_ref());
    assert!(!script.interpreter.is_empty());
    assert!(!script.interpreter.iter().any(|&b| blank(b) || b == 0 || b == b'\n'));
    let argument = script.argument.as_deref().unwrap_or_default();
    assert!(!argument.contains(&0) && !argument.contains(&b'\n') && !argument.first().is_some_and(|&b| blank(b)));
    assert!(2 + script.interpreter.len() + argument.len() <= HEAD);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::String};

    /// Expects `[interpreter][argument]`, or the error's name. All results were seen from Linux 6.18.
    #[track_caller]
    fn check(file: &[u8], expected: &str) {
        let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
        let got = match parse(file) {
            Ok(Script { interpreter, argument: None }) => format!("[{}]", text(&interpreter)),
            Ok(Script { interpreter, argument: Some(a) }) => format!("[{}][{}]", text(&interpreter), text(&a)),
            Err(error) => format!("{error:?}"),
        };
        assert_eq!(got, expected);
        assert_promises(file);
    }

    #[test]
    fn interpreter_and_one_argument() {
        check(b"#!/bin/sh\n", "[/bin/sh]");
        check(b"#!/bin/sh\necho\n", "[/bin/sh]");
        check(b"#!/usr/bin/env python3 -u\n", "[/usr/bin/env][python3 -u]");
        check(b"#! \t/bin/sh\t -e -x \t\n", "[/bin/sh][-e -x]");
        check(b"#!/bin/sh\r\n", "[/bin/sh\r]");
        check(b"#!/bin/sh \n", "[/bin/sh]");
    }

    #[test]
    fn missing_newline() {
        check(b"#!/bin/sh", "[/bin/sh]");
        check(b"#!/bin/sh ", "[/bin/sh][]");
        check(b"#! \t/bin/sh\t-x", "[/bin/sh][-x]");
        check(b"#!/bin/sh -x ", "[/bin/sh][-x ]");
    }

    #[test]
    fn zero_ends_the_line() {
        check(b"#!/bin/sh\0 x\n", "[/bin/sh]");
        check(b"#!/bin/sh x\0y z\n", "[/bin/sh][x]");
        check(b"#!/bin/sh a\0", "[/bin/sh][a]");
    }

    #[test]
    fn no_interpreter() {
        check(b"", "NotScript");
        check(b"#", "NotScript");
        check(b"# !/bin/sh\n", "NotScript");
        check(b"#!\n", "NoInterpreter");
        check(b"#!  \n", "NoInterpreter");
        check(&[b"#!", &[b' '; 300][..]].concat(), "NoInterpreter");
        for empty in [&b"#!"[..], b"#!  ", b"#!\0", b"#!\0/bin/sh\n", b"#! \0\n"] {
            check(empty, "EmptyInterpreter");
        }
        let errno = |file: &[u8]| parse(file).unwrap_err().errno();
        assert_eq!((errno(b"#!\n"), errno(b"#!")), (8, 13));
    }

    /// A line `#!`, `blanks` blanks, `/tmp/pa`, then `rest`.
    #[track_caller]
    fn check_long(blanks: usize, rest: &[u8], expected: &str) {
        let mut file = b"#!".to_vec();
        file.resize(2 + blanks, b' ');
        file.extend(b"/tmp/pa");
        file.extend(rest);
        check(&file, expected);
    }

    #[test]
    fn only_256_bytes_count() {
        check_long(245, b"  \n", "[/tmp/pa]");
        check_long(246, b"\n", "[/tmp/pa]");
        check_long(247, b"\n", "TooLong");
        check_long(248, b"\n", "TooLong");
        check_long(0, &[b' '; 300], "[/tmp/pa]");
        let gap = |n: usize, tail: &[u8]| [&[b' '; 256][..n], tail].concat();
        check_long(0, &gap(245, b"b\n"), "[/tmp/pa][b]");
        check_long(0, &gap(246, b"b\n"), "[/tmp/pa]");
        // The argument is cut off rather than refused.
        check_long(0, &gap(1, &[b'a'; 300]), &format!("[/tmp/pa][{}]", "a".repeat(245)));
    }

    #[test]
    fn script_path_replaces_the_first_argument() {
        let script = parse(b"#!/bin/sh -e\n").unwrap();
        let argv: [&[u8]; 3] = [b"name", b"1", b"2"];
        assert_eq!(script.argv(b"/tmp/s", &argv), [&b"/bin/sh"[..], b"-e", b"/tmp/s", b"1", b"2"]);
        assert_eq!(script.argv(b"/tmp/s", &[]), [&b"/bin/sh"[..], b"-e", b"/tmp/s"]);
    }

    #[test]
    fn stored_and_mutated_scripts_never_break_a_promise() {
        super::super::elf::tests::run_corpus("script", 5_000, assert_promises);
    }
}
