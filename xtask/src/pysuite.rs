//! A peer's suite: CPython's own regression tests give the same result per test under `clew run` as natively.
//!
//! Each module runs once natively and once under Clew with the system's Python, which writes its results as JUnit XML.
//! A test that differs is run again alone on both sides: if it then agrees it is unsteady and only noted, otherwise it is
//! a difference. Differences with a known reason are listed in `guests/agree/pysuite-differences`; any other fails.
//! May miss: what the tests print (only results are compared).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use crate::{
    exec::Outcome,
    guests::{Stage, clew_binary, has_program, source_dir},
    random::Random,
    tally::Tally,
};

const PYTHON: &str = "/usr/bin/python3";
pub const MODULES: &[&str] = &[
    "test_threading",
    "test_signal",
    "test_subprocess",
    "test_mmap",
    "test_socket",
    "test_ctypes",
    "test_faulthandler",
    "test_os",
    "test_posix",
    "test_json",
    "test_re",
    "test_multiprocessing_fork",
];
/// Modules that `check` runs whole; of the others it runs a sample.
const WHOLE_IN_SAMPLE: &[&str] = &["test_json", "test_mmap"];
/// Tests that wait for ever natively too where the machine is a guest with vsock.
const LEFT_OUT: &str = "ThreadedVSOCKSocketStreamTest";
const NATIVE_LIMIT: Duration = Duration::from_secs(900);
const CLEW_LIMIT: Duration = Duration::from_secs(1800);

/// What to run.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub clew: Option<String>,
    pub only: Option<String>,
    /// How many tests to choose from the modules that are not run whole.
    pub sample: Option<usize>,
    pub mode: String,
}

type Results = BTreeMap<String, String>;

pub fn pysuite(request: &Request) -> Result<Tally, String> {
    let mut tally = Tally::new("pysuite");
    let stage = Stage::new("pysuite", &clew_binary(request.clew.clone())?)?;
    if !has_program("python3")
        || !stage.run("list", &[PYTHON, "-c", "import test.test_json"], NATIVE_LIMIT)?.stderr.is_empty()
    {
        return Err(
            "CPython's tests are not installed (Debian: libpython3.11-testsuite); run `cargo xtask setup`".to_owned()
        );
    }
    let reasons = reasons()?;
    let chosen = request.sample.map(|n| sample(&stage, n)).transpose()?;
    for module in MODULES.iter().filter(|m| request.only.as_ref().is_none_or(|only| m.contains(only.as_str()))) {
        let tests = match &chosen {
            Some(chosen) if !WHOLE_IN_SAMPLE.contains(module) => match chosen.get(*module) {
                Some(tests) => Some(tests.as_slice()),
                None => continue,
            },
            _ => None,
        };
        compare_module(&stage, request, module, tests, &reasons, &mut tally)?;
    }
    Ok(tally)
}

fn compare_module(
    stage: &Stage,
    request: &Request,
    module: &str,
    tests: Option<&[String]>,
    reasons: &BTreeMap<String, String>,
    tally: &mut Tally,
) -> Result<(), String> {
    let (native, _) = run(stage, None, module, tests)?;
    let (under, outcome) = run(stage, Some(&request.mode), module, tests)?;
    if native.is_empty() {
        return Err(format!("{module} gives no results natively"));
    }
    if under.is_empty() {
        let said = String::from_utf8_lossy(&outcome.stderr).into_owned() + &String::from_utf8_lossy(&outcome.stdout);
        let last = said.lines().rev().find(|l| !l.trim().is_empty()).unwrap_or_default().to_owned();
        tally.count(module, Err(format!("no results: {} [{last}]", outcome.end)));
        return Ok(());
    }
    let names: BTreeSet<&String> = native.keys().chain(under.keys()).collect();
    let different: Vec<String> =
        names.iter().filter(|n| native.get(**n) != under.get(**n)).map(|n| (*n).clone()).collect();
    for _ in 0..names.len() - different.len() {
        tally.count(module, Ok(()));
    }
    for name in different {
        let alone = [name.clone()];
        let (again_native, _) = run(stage, None, module, Some(&alone))?;
        let (again_under, _) = run(stage, Some(&request.mode), module, Some(&alone))?;
        let show = |r: &Results| r.get(&name).map_or("not run", String::as_str).to_owned();
        let text = format!("{} instead of {}", show(&under), show(&native));
        if again_native.get(&name) == again_under.get(&name) {
            tally.count(module, Ok(()));
            tally.note(format!("{name} was {text} once and agreed when run again"));
        } else if let Some(reason) = reasons.get(&name) {
            tally.count(module, Ok(()));
            tally.note(format!("{name} is {text}: {reason}"));
        } else {
            tally.count(&name, Err(text));
        }
    }
    Ok(())
}

/// Results per test, and how the run went. No results mean that the run did not get to its end.
fn run(
    stage: &Stage,
    mode: Option<&str>,
    module: &str,
    tests: Option<&[String]>,
) -> Result<(Results, Outcome), String> {
    let (xml, list) = (stage.scratch.path().join("results.xml"), stage.scratch.path().join("tests.txt"));
    let _ = fs::remove_file(&xml);
    let (clew, xml_text, list_text) =
        (stage.clew.display().to_string(), xml.display().to_string(), list.display().to_string());
    let mut argv: Vec<&str> = Vec::new();
    if let Some(mode) = mode {
        argv.extend([clew.as_str(), "run", "--quiet", "--mode", mode, "--"]);
    }
    argv.extend([PYTHON, "-m", "test", "--ignore", LEFT_OUT, "--junit-xml", &xml_text]);
    if let Some(tests) = tests {
        fs::write(&list, tests.join("\n") + "\n").map_err(|e| e.to_string())?;
        argv.extend(["--matchfile", &list_text]);
    }
    argv.push(module);
    let outcome = stage.run("pysuite", &argv, if mode.is_some() { CLEW_LIMIT } else { NATIVE_LIMIT })?;
    Ok((read_results(&xml), outcome))
}

fn read_results(path: &Path) -> Results {
    parse_results(&fs::read_to_string(path).unwrap_or_default())
}

/// Takes name and outcome of every test case out of JUnit XML.
fn parse_results(xml: &str) -> Results {
    let mut results = Results::new();
    for piece in xml.split("<testcase ").skip(1) {
        let head_end = piece.find('>').unwrap_or(piece.len());
        let (head, rest) = piece.split_at(head_end);
        let Some(name) = attribute(head, "name") else { continue };
        let body = if head.ends_with('/') { "" } else { rest.split("</testcase>").next().unwrap_or_default() };
        let outcome = if body.contains("<error") {
            "error"
        } else if body.contains("<failure") {
            "failure"
        } else if body.contains("<skipped") || attribute(head, "result").is_some_and(|r| r == "skipped") {
            "skipped"
        } else {
            "passed"
        };
        // A test with several results (subtests, repetitions) counts as its worst.
        let worst = results.entry(name).or_insert_with(|| outcome.to_owned());
        if rank(outcome) > rank(worst) {
            *worst = outcome.to_owned();
        }
    }
    results
}

fn rank(outcome: &str) -> u8 {
    match outcome {
        "error" => 3,
        "failure" => 2,
        "skipped" => 1,
        _ => 0,
    }
}

fn attribute(head: &str, name: &str) -> Option<String> {
    let start = head.find(&format!("{name}=\""))? + name.len() + 2;
    let text = &head[start..];
    let end = text.find('"')?;
    Some(text[..end].replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
}

/// `NAME: REASON` per line.
fn reasons() -> Result<BTreeMap<String, String>, String> {
    let path = source_dir().join("pysuite-differences");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let lines = text.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .map(|l| {
            l.split_once(": ").map(|(n, r)| (n.to_owned(), r.to_owned())).ok_or(format!("{}: `{l}`", path.display()))
        })
        .collect()
}

/// A fixed choice of `n` tests from the modules that are not run whole, by module.
fn sample(stage: &Stage, n: usize) -> Result<BTreeMap<String, Vec<String>>, String> {
    let modules: Vec<&str> = MODULES.iter().filter(|m| !WHOLE_IN_SAMPLE.contains(m)).copied().collect();
    let mut all: Vec<(String, String)> = Vec::new();
    for module in &modules {
        let outcome =
            stage.run("list", &[PYTHON, "-m", "test", "--ignore", LEFT_OUT, "--list-cases", module], NATIVE_LIMIT)?;
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        all.extend(text.lines().filter(|l| l.contains('.')).map(|l| ((*module).to_owned(), l.to_owned())));
    }
    let mut chosen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (module, test) in Random::new(crate::agree::SAMPLE_SEED).sample(all, n) {
        chosen.entry(module).or_default().push(test);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_junit_xml() {
        let xml = r#"<testsuite><testcase name="a.b" status="run" result="completed" time="0.1" />
            <testcase name="a.c &lt;x&gt;" status="run"><failure message="m">text</failure></testcase>
            <testcase name="a.d"><skipped>why</skipped></testcase><testcase name="a.d" result="completed"/></testsuite>"#;
        let got: Vec<_> = parse_results(xml).into_iter().collect();
        let expected = [("a.b", "passed"), ("a.c <x>", "failure"), ("a.d", "skipped")];
        assert_eq!(got, expected.map(|(n, r)| (n.to_owned(), r.to_owned())));
    }
}
