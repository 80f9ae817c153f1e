//! Comparing two runs: streams, end, and every file left behind.
//!
//! Guarantees: byte for byte, after replacing only what the case names (`Normalise`). Times and owners of files are not
//! compared: they differ between two native runs too.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::cases::Normalise;
use crate::exec::{End, Outcome};

/// A run and what it left in its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    pub outcome: Outcome,
    pub files: BTreeMap<PathBuf, Entry>,
}

/// One file, with its permissions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub mode: u32,
    pub content: Content,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    File(Vec<u8>),
    Directory,
    Link(PathBuf),
    Other,
}

/// Reads everything below `dir` except the link to the inputs.
pub fn snapshot(dir: &Path) -> io::Result<BTreeMap<PathBuf, Entry>> {
    let mut files = BTreeMap::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(folder) = pending.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let relative = path.strip_prefix(dir).unwrap_or(&path).to_owned();
            if relative == Path::new("in") {
                continue;
            }
            let meta = fs::symlink_metadata(&path)?;
            let content = if meta.is_dir() {
                pending.push(path.clone());
                Content::Directory
            } else if meta.is_symlink() {
                Content::Link(fs::read_link(&path)?)
            } else if meta.is_file() {
                Content::File(fs::read(&path)?)
            } else {
                Content::Other
            };
            files.insert(relative, Entry { mode: meta.permissions().mode() & 0o7777, content });
        }
    }
    Ok(files)
}

/// The first difference between what was expected and what came, in one line.
pub fn difference(expected: &Observed, got: &Observed, normalise: &[Normalise]) -> Option<String> {
    let (e, g) = (&expected.outcome, &got.outcome);
    if e.end != g.end {
        let hint = String::from_utf8_lossy(&g.stderr);
        let hint = hint.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default();
        return Some(format!("ends with {} instead of {} [{}]", g.end, e.end, shorten(hint)));
    }
    for (name, want, have) in [("stdout", &e.stdout, &g.stdout), ("stderr", &e.stderr, &g.stderr)] {
        if let Some(text) = byte_difference(&normalised(want, normalise), &normalised(have, normalise)) {
            return Some(format!("{name} {text}"));
        }
    }
    if !g.strays.is_empty() {
        return Some(format!("left running: {}", g.strays.join(", ")));
    }
    file_difference(&expected.files, &got.files, normalise)
}

/// The first file that differs.
pub fn file_difference(
    expected: &BTreeMap<PathBuf, Entry>,
    got: &BTreeMap<PathBuf, Entry>,
    normalise: &[Normalise],
) -> Option<String> {
    for (path, want) in expected {
        let path_text = path.display();
        let Some(have) = got.get(path) else { return Some(format!("file {path_text} is missing")) };
        if want.mode != have.mode {
            return Some(format!("file {path_text} has mode {:o} instead of {:o}", have.mode, want.mode));
        }
        match (&want.content, &have.content) {
            (Content::File(a), Content::File(b)) => {
                if let Some(text) = byte_difference(&normalised(a, normalise), &normalised(b, normalise)) {
                    return Some(format!("file {path_text} {text}"));
                }
            }
            (a, b) if a != b => return Some(format!("file {path_text} is of another kind")),
            _ => {}
        }
    }
    let extra = got.keys().find(|path| !expected.contains_key(*path))?;
    Some(format!("file {} should not be there", extra.display()))
}

/// Where two streams differ first, with the line, if they do.
pub fn byte_difference(want: &[u8], have: &[u8]) -> Option<String> {
    if want == have {
        return None;
    }
    let at = want.iter().zip(have).take_while(|(a, b)| a == b).count();
    let line_start = want[..at].iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let piece = |bytes: &[u8]| {
        let rest = &bytes[line_start.min(bytes.len())..];
        let line = rest.split(|b| *b == b'\n').next().unwrap_or_default();
        shorten(&String::from_utf8_lossy(line))
    };
    Some(format!("differs at byte {at}: `{}` instead of `{}`", piece(have), piece(want)))
}

fn shorten(text: &str) -> String {
    let cut: String = text.chars().filter(|c| !c.is_control()).take(160).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}

/// Whether a run is worth comparing at all: one that had to be stopped proves nothing.
pub fn finished(outcome: &Outcome) -> bool {
    matches!(outcome.end, End::Exit(_) | End::Signal(_))
}

fn normalised(bytes: &[u8], what: &[Normalise]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if what.contains(&Normalise::Address) {
        out = replace_runs(&out, b"0x", u8::is_ascii_hexdigit, b"", b"ADDRESS");
    }
    if what.contains(&Normalise::Pid) {
        out = replace_runs(&out, b"==", u8::is_ascii_digit, b"==", b"==PID==");
        out = replace_runs(&out, b"(pid=", u8::is_ascii_digit, b")", b"(pid)");
        out = replace_runs(&out, b"(tid=", u8::is_ascii_digit, b"", b"(tid");
    }
    out
}

/// Replaces every `prefix`, one or more `class` bytes, `suffix` by `word`.
fn replace_runs(bytes: &[u8], prefix: &[u8], class: fn(&u8) -> bool, suffix: &[u8], word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(prefix) {
            let n = after.iter().take_while(|b| class(b)).count();
            if n > 0
                && let Some(tail) = after[n..].strip_prefix(suffix)
            {
                out.extend_from_slice(word);
                rest = tail;
                continue;
            }
        }
        out.push(rest[0]);
        rest = &rest[1..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(stdout: &str, files: &[(&str, &str)]) -> Observed {
        let outcome = Outcome { end: End::Exit(0), stdout: stdout.into(), stderr: Vec::new(), strays: Vec::new() };
        let file = |text: &str| Entry { mode: 0o644, content: Content::File(text.into()) };
        Observed { outcome, files: files.iter().map(|(n, t)| (PathBuf::from(n), file(t))).collect() }
    }

    #[test]
    fn the_first_different_line_is_shown() {
        let d = difference(&observed("one\ntwo\n", &[]), &observed("one\ntwx\n", &[]), &[]);
        assert_eq!(d.as_deref(), Some("stdout differs at byte 6: `twx` instead of `two`"));
    }

    #[test]
    fn files_are_compared_both_ways() {
        let (a, b) = (observed("", &[("f", "x")]), observed("", &[]));
        assert_eq!(difference(&a, &b, &[]).as_deref(), Some("file f is missing"));
        assert_eq!(difference(&b, &a, &[]).as_deref(), Some("file f should not be there"));
    }

    #[test]
    fn only_named_kinds_are_normalised() {
        let (a, b) = (observed("==12==ERROR at 0x1f\n", &[]), observed("==345==ERROR at 0xabc\n", &[]));
        assert_eq!(difference(&a, &b, &[Normalise::Pid, Normalise::Address]), None);
        assert!(difference(&a, &b, &[Normalise::Pid]).is_some());
    }
}
