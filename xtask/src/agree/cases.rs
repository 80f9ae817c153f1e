//! Agreement cases: the text format of `guests/agree/cases/*.cases` (its README describes the lines).
//!
//! Guarantees: a line that is not understood is an error with file and line, so no case is silently weaker than written.

use std::{fs, path::Path};

/// One command line to run natively and under Clew.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Case {
    /// `family/name`.
    pub name: String,
    pub needs: Vec<String>,
    /// Files that are there before the run.
    pub files: Vec<CaseFile>,
    pub argv: Vec<String>,
    pub stdin: Option<String>,
    pub native_cpu: bool,
    /// Runs natively around the command line.
    pub under: Vec<String>,
    pub normalise: Vec<Normalise>,
    /// Only these modes, when not empty.
    pub modes: Vec<String>,
    pub confined: bool,
    /// Has threads, so its recordings depend on the schedule.
    pub threaded: bool,
    /// Shares memory with other processes, so its recording cannot be exact.
    pub inexact: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaseFile {
    pub name: String,
    pub executable: bool,
    pub text: String,
}

/// What differs from run to run by nature and is replaced by a word before comparing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Normalise {
    Pid,
    Address,
}

/// Reads every `*.cases` file of a folder, in the order of their names.
pub fn read_folder(folder: &Path) -> Result<Vec<Case>, String> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "cases"))
        .collect();
    paths.sort();
    let mut all: Vec<Case> = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let family = path.file_stem().unwrap_or_default().to_string_lossy();
        let cases = parse(&family, &text).map_err(|e| format!("{}: {e}", path.display()))?;
        for case in cases {
            if all.iter().any(|other| other.name == case.name) {
                return Err(format!("{}: two cases are called {}", path.display(), case.name));
            }
            all.push(case);
        }
    }
    Ok(all)
}

/// Parses one file of cases.
pub fn parse(family: &str, text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let at = |message: &str| format!("line {}: {message}", number + 1);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        let rest = rest.trim();
        if key == "case" {
            let name = format!("{family}/{rest}");
            cases.push(Case { name, confined: true, ..Case::default() });
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| at("a case must begin with `case NAME`"))?;
        let words = || split_words(rest).map_err(|e| at(&e));
        match key {
            "needs" => case.needs = words()?,
            "run" => case.argv = words()?,
            "under" => case.under = words()?,
            "modes" => case.modes = rest.split(',').map(str::to_owned).collect(),
            "stdin" => case.stdin = Some(rest.to_owned()),
            "cpu" if rest == "native" => case.native_cpu = true,
            "confined" if rest == "no" => case.confined = false,
            "threaded" if rest == "yes" => case.threaded = true,
            "inexact" if rest == "yes" => case.inexact = true,
            "normalise" => {
                for word in words()? {
                    case.normalise.push(match word.as_str() {
                        "pid" => Normalise::Pid,
                        "address" => Normalise::Address,
                        _ => return Err(at("only `pid` and `address` can be normalised")),
                    });
                }
            }
            "sh" | "bash" => case.argv = vec![key.to_owned(), "-c".to_owned(), block(&mut lines).map_err(|e| at(&e))?],
            "file" => {
                let (executable, name) = match rest.strip_prefix("+x ") {
                    Some(name) => (true, name),
                    None => (false, rest),
                };
                let text = block(&mut lines).map_err(|e| at(&e))?;
                case.files.push(CaseFile { name: name.to_owned(), executable, text });
            }
            _ => return Err(at(&format!("`{line}` is not understood"))),
        }
    }
    match cases.iter().find(|case| case.argv.is_empty()) {
        Some(case) => Err(format!("{} has no command line", case.name)),
        None => Ok(cases),
    }
}

/// Lines up to `end`, without the four columns that indent them.
fn block<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) -> Result<String, String> {
    let mut text = String::new();
    for (_, line) in lines {
        if line.trim() == "end" && line.len() - line.trim_start().len() <= 2 {
            return Ok(text);
        }
        text.push_str(line.strip_prefix("    ").unwrap_or(line.trim_start()));
        text.push('\n');
    }
    Err("`end` is missing".to_owned())
}

/// Splits at blanks; single quotes keep a word together and `'\''` is a quote inside.
fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let (mut word, mut started, mut quoted) = (String::new(), false, false);
    for c in text.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                started = true;
            }
            ' ' if !quoted => {
                if started {
                    words.push(std::mem::take(&mut word));
                    started = false;
                }
            }
            _ => {
                word.push(c);
                started = true;
            }
        }
    }
    if quoted {
        return Err("a quote is not closed".to_owned());
    }
    if started {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_read() {
        let text = "# comment\ncase one\n  threaded yes\n  needs sort awk\n  file +x s\n    a\n      b\n  end\n  run sort -k 'a b' ''\n";
        let expected = Case {
            name: "f/one".into(),
            needs: vec!["sort".into(), "awk".into()],
            files: vec![CaseFile { name: "s".into(), executable: true, text: "a\n  b\n".into() }],
            argv: vec!["sort".into(), "-k".into(), "a b".into(), "".into()],
            confined: true,
            threaded: true,
            ..Case::default()
        };
        assert_eq!(parse("f", text), Ok(vec![expected]));
    }

    #[test]
    fn a_script_keeps_its_shape() {
        let cases = parse("f", "case s\n  bash\n    if true; then\n      echo end\n    fi\n  end\n").unwrap();
        assert_eq!(cases[0].argv, ["bash", "-c", "if true; then\n  echo end\nfi\n"]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let check = |text: &str, expected: &str| assert_eq!(parse("f", text).unwrap_err(), expected);
        check("run x", "line 1: a case must begin with `case NAME`");
        check("case a\n  rum x", "line 2: `rum x` is not understood");
        check("case a\n  inexact no", "line 2: `inexact no` is not understood");
        check("case a\n  sh\n    x\n", "line 2: `end` is missing");
        check("case a\n  run 'x", "line 2: a quote is not closed");
        check("case a\n", "f/a has no command line");
    }
}
