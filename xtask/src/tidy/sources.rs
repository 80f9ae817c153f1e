//! Rules about Rust sources.

use super::{Breaches, SourceFile};

const LONGEST: usize = 800;

/// Where `unsafe` may be written.
const UNSAFE_PLACES: &[&str] = &["crates/engine/", "crates/engine-bin/", "crates/trace/src/mapping.rs"];
const ENTRY_POINT: &str = "crates/clew/src/main.rs";
/// Who may print, read the environment or end the process. The engine's program ends itself by system calls.
const SIDE_EFFECT_PLACES: &[&str] = &["crates/clew/", "crates/testkit/", "xtask/", "fuzz/", "guests/"];
const SIDE_EFFECTS: &[&str] = &[
    "println!(",
    "eprintln!(",
    "print!(",
    "eprint!(",
    "std::env::",
    "env::var",
    "env::args",
    "process::exit",
    "process::abort",
];

fn rust(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    files.iter().filter(|f| f.path.ends_with(".rs"))
}

/// Lines of code with their numbers: comments and the insides of string literals are left out.
fn code_lines(text: &str) -> Vec<(usize, String)> {
    let mut lexer = Lexer { inside: Inside::Code };
    text.lines().enumerate().map(|(i, line)| (i + 1, lexer.line(line))).collect()
}

/// What the next character belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Code,
    String,
    /// A raw string that ends with a quote and this many `#`.
    RawString(usize),
    BlockComment,
}

/// Enough of Rust's lexical rules to tell code from text.
struct Lexer {
    inside: Inside,
}

impl Lexer {
    fn line(&mut self, line: &str) -> String {
        let chars: Vec<char> = line.chars().collect();
        let starts = |i: usize, text: &str| text.chars().enumerate().all(|(k, c)| chars.get(i + k) == Some(&c));
        let mut out = String::new();
        let mut i = 0;
        while i < chars.len() {
            match self.inside {
                Inside::BlockComment => {
                    if starts(i, "*/") {
                        self.inside = Inside::Code;
                        i += 1;
                    }
                }
                Inside::String => match chars[i] {
                    '\\' => i += 1,
                    '"' => self.inside = Inside::Code,
                    _ => {}
                },
                Inside::RawString(hashes) => {
                    if chars[i] == '"' && (0..hashes).all(|k| chars.get(i + 1 + k) == Some(&'#')) {
                        self.inside = Inside::Code;
                        i += hashes;
                    }
                }
                Inside::Code if starts(i, "//") => break,
                Inside::Code if starts(i, "/*") => {
                    self.inside = Inside::BlockComment;
                    i += 1;
                }
                Inside::Code if chars[i] == '"' => {
                    // `r"` or `r#"`: the hashes before the quote and the letter before them.
                    let hashes = out.chars().rev().take_while(|c| *c == '#').count();
                    let raw = out.trim_end_matches('#').ends_with('r');
                    self.inside = if raw { Inside::RawString(hashes) } else { Inside::String };
                    out.push('"');
                }
                // A quote as a character is not the start of a string.
                Inside::Code if starts(i, "'\"'") || starts(i, "'\\\"'") => {
                    i += if chars[i + 1] == '\\' { 3 } else { 2 }
                }
                Inside::Code => out.push(chars[i]),
            }
            i += 1;
        }
        out
    }
}

/// Does `code` contain `word` not as part of a longer name?
fn has_word(code: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(i, _)| {
        !code[..i].chars().next_back().is_some_and(part) && !code[i + word.len()..].chars().next().is_some_and(part)
    })
}

pub fn headers(files: &[SourceFile]) -> Breaches {
    rust(files)
        .filter(|f| {
            let first = f.text.lines().next().unwrap_or_default();
            !first.starts_with("//!") || first.trim_start_matches("//!").trim().len() < 8
        })
        .map(|f| format!("{}:1: the first line must be `//!` and say what is here", f.path))
        .collect()
}

pub fn lengths(files: &[SourceFile]) -> Breaches {
    let lengths = rust(files).map(|f| (f, f.text.lines().count()));
    lengths.filter(|(_, n)| *n > LONGEST).map(|(f, n)| format!("{}: {n} lines", f.path)).collect()
}

pub fn unfinished(files: &[SourceFile]) -> Breaches {
    let mut breaches = Breaches::new();
    for f in rust(files) {
        for (n, code) in code_lines(&f.text) {
            for word in ["todo!", "unimplemented!", "dbg!"] {
                if code.contains(word) {
                    breaches.push(format!("{}:{n}: {word}", f.path));
                }
            }
        }
    }
    breaches
}

pub fn ignored_tests(files: &[SourceFile]) -> Breaches {
    let mut breaches = Breaches::new();
    for f in rust(files) {
        for (n, code) in code_lines(&f.text) {
            if code.contains("#[ignore") {
                breaches.push(format!("{}:{n}: assert today's behaviour instead of ignoring the test", f.path));
            }
        }
    }
    breaches
}

pub fn bare_allows(files: &[SourceFile]) -> Breaches {
    let mut breaches = Breaches::new();
    for f in rust(files) {
        let lines: Vec<String> = code_lines(&f.text).into_iter().map(|(_, code)| code).collect();
        for (i, code) in lines.iter().enumerate() {
            let attribute = ["#[allow(", "#![allow(", "#[expect(", "#![expect("].iter().any(|a| code.contains(a));
            // The attribute may go on over a few lines.
            let whole = lines[i..lines.len().min(i + 8)].join(" ");
            let end = whole.find(")]").unwrap_or(whole.len());
            if attribute && !whole[..end].contains("reason") {
                breaches.push(format!("{}:{}: give `reason = \"…\"`", f.path, i + 1));
            }
        }
    }
    breaches
}

pub fn unsafe_places(files: &[SourceFile]) -> Breaches {
    let mut breaches = Breaches::new();
    for f in rust(files).filter(|f| !UNSAFE_PLACES.iter().any(|place| f.path.starts_with(place))) {
        for (n, code) in code_lines(&f.text) {
            // The entry point must be C's `main`, and naming it so takes an attribute.
            let code = if f.path == ENTRY_POINT { code.replace("#[unsafe(no_mangle)]", "") } else { code };
            // `unsafe_code` and the like are names of lints.
            if has_word(&code, "unsafe") {
                breaches.push(format!("{}:{n}: unsafe code belongs in crates/engine", f.path));
            }
        }
    }
    breaches
}

/// An `unsafe {` or `unsafe impl` needs a `SAFETY:` comment above it; an `unsafe fn` a `# Safety` section.
pub fn unsafe_reasons(files: &[SourceFile]) -> Breaches {
    let mut breaches = Breaches::new();
    for f in rust(files) {
        let raw: Vec<&str> = f.text.lines().collect();
        for (n, code) in code_lines(&f.text) {
            let block = code.contains("unsafe {") || code.contains("unsafe impl");
            if block && !explained(&raw, n - 1) {
                breaches.push(format!("{}:{n}: no `// SAFETY:` above", f.path));
            }
        }
    }
    breaches
}

/// Is there a SAFETY comment on the line, or in the comment above the statement it belongs to?
fn explained(lines: &[&str], at: usize) -> bool {
    if lines[at].contains("SAFETY:") {
        return true;
    }
    let mut code_seen = 0;
    for line in lines[..at].iter().rev() {
        let line = line.trim();
        if line.contains("SAFETY:") {
            return true;
        }
        if !line.starts_with("//") {
            // A statement may begin a few lines before its `unsafe`.
            code_seen += 1;
            if code_seen > 4 || line.is_empty() || line.ends_with(';') && code_seen > 1 {
                return false;
            }
        }
    }
    false
}

pub fn side_effects(files: &[SourceFile]) -> Breaches {
    let mut breaches = Breaches::new();
    for f in rust(files).filter(|f| !SIDE_EFFECT_PLACES.iter().any(|place| f.path.starts_with(place))) {
        if f.path.contains("/tests/")
            || f.path.contains("/examples/")
            || f.path.contains("/benches/")
            || f.path.ends_with("build.rs")
            || f.path.ends_with("tests.rs")
        {
            continue;
        }
        for (n, code) in code_lines(&f.text) {
            // Tests stand at the end of a file and may say what they find.
            if code.contains("#[cfg(test)]") {
                break;
            }
            if let Some(what) = SIDE_EFFECTS.iter().find(|what| code.contains(**what)) {
                breaches.push(format!("{}:{n}: {} belongs in crates/clew", f.path, what.trim_end_matches('(')));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::{super::file, *};

    fn check(rule: fn(&[SourceFile]) -> Breaches, path: &str, text: &str, expected: &[&str]) {
        assert_eq!(rule(&[file(path, text)]), expected, "{text}");
    }

    #[test]
    fn a_header_is_required() {
        check(headers, "a.rs", "//! What is here, in words.\n", &[]);
        check(headers, "a.rs", "use std::fs;\n", &["a.rs:1: the first line must be `//!` and say what is here"]);
        check(headers, "a.txt", "anything", &[]);
    }

    #[test]
    fn words_in_comments_and_strings_do_not_count() {
        check(unfinished, "a.rs", "// todo!()\nlet s = \"todo!()\";\n", &[]);
        check(unfinished, "a.rs", "\ntodo!()\n", &["a.rs:2: todo!"]);
        check(unsafe_places, "crates/isa/src/a.rs", "#![deny(unsafe_code)] // unsafe\n", &[]);
        check(
            unfinished,
            "a.rs",
            "let s = \"one\ntodo!()\n\"; let c = '\"'; let r = r#\" \" todo!() \"#;\n/* todo!()\n */",
            &[],
        );
        check(unfinished, "a.rs", "let c = '\"'; todo!(); let d = '\"';\n", &["a.rs:1: todo!"]);
    }

    #[test]
    fn unsafe_code_stays_in_its_places() {
        check(unsafe_places, "crates/engine/src/a.rs", "unsafe { x() }\n", &[]);
        check(
            unsafe_places,
            "crates/isa/src/a.rs",
            "unsafe { x() }\n",
            &["crates/isa/src/a.rs:1: unsafe code belongs in crates/engine"],
        );
    }

    #[test]
    fn unsafe_blocks_need_a_reason() {
        check(unsafe_reasons, "a.rs", "// SAFETY: it is mapped.\nlet x = unsafe { y() };\n", &[]);
        check(unsafe_reasons, "a.rs", "// SAFETY: it is mapped,\n// and ours.\nlet x =\n    unsafe { y() };\n", &[]);
        check(unsafe_reasons, "a.rs", "let a = 1;\nlet x = unsafe { y() };\n", &["a.rs:2: no `// SAFETY:` above"]);
    }

    #[test]
    fn lints_are_not_silenced_without_a_reason() {
        check(bare_allows, "a.rs", "#[allow(dead_code)]\n", &["a.rs:1: give `reason = \"…\"`"]);
        check(bare_allows, "a.rs", "#[expect(\n    dead_code,\n    reason = \"later\"\n)]\n", &[]);
    }

    #[test]
    fn printing_is_for_the_command_line() {
        check(
            side_effects,
            "crates/isa/src/a.rs",
            "println!(\"x\");\n",
            &["crates/isa/src/a.rs:1: println! belongs in crates/clew"],
        );
        check(side_effects, "crates/clew/src/a.rs", "println!(\"x\");\n", &[]);
        check(side_effects, "crates/isa/src/a_tests.rs", "println!(\"x\");\n", &[]);
        check(side_effects, "crates/isa/src/a.rs", "#[cfg(test)]\nmod tests { fn f() { println!(); } }\n", &[]);
    }
}
