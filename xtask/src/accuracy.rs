//! How good answers are on real bugs whose causes are known.
//!
//! The bugs are a folder of the form `corpus` (a tool that builds and describes them) and `bugs/ID/bug.toml`; `--corpus DIR`
//! names it. `accuracy slice` records the failing run of every bug, slices it from the first wrong byte of the output, from
//! the missing output, from the crash or from the exit status, and looks whether a line of the root cause is in the slice.
//! A line counts if it is at most two away, as the corpus counts. `--publish` writes docs/accuracy.md.
//!
//! May miss: hangs, which have no end to slice from.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{args::Args, guests::clew_binary, scratch::root};

/// How far a line may be from the root cause.
const NEAR: u64 = 2;
/// Seconds for one slice.
const BUDGET: &str = "60s";

/// What to measure.
pub struct Request {
    pub clew: Option<String>,
    pub corpus: PathBuf,
    pub only: Option<String>,
    pub publish: bool,
}

impl Request {
    pub fn from_args(args: &mut Args) -> Result<Request, String> {
        let corpus = args.value("--corpus")?.ok_or("--corpus DIR names the folder with the bugs")?;
        Ok(Request {
            clew: args.value("--clew")?,
            corpus: corpus.into(),
            only: args.value("--only")?,
            publish: args.flag("--publish"),
        })
    }
}

/// One bug.
struct Bug {
    id: String,
    run: Value,
    roots: Vec<(String, u64, u64)>,
}

/// One slice of one bug.
#[derive(Default)]
struct Measured {
    lines: u64,
    executed: u64,
    /// Distance and rank of the nearest line of the root cause.
    found: Option<(u64, usize)>,
    seconds: f64,
}

pub fn slices(request: &Request) -> Result<bool, String> {
    let clew = clew_binary(request.clew.clone())?;
    let mut rows = Vec::new();
    let (mut asked, mut inside) = (0, 0);
    for id in bugs(request)? {
        let bug = describe(&request.corpus, &id)?;
        let place = std::env::temp_dir().join(format!("clew-accuracy-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).map_err(|e| e.to_string())?;
        let row = match measure(&clew, &bug, &place) {
            Ok(row) => {
                asked += 1;
                inside += usize::from(row.is_inside());
                row.text(&id)
            }
            Err(why) => format!("| {id} | {why} | | | | | | |"),
        };
        println!("{row}");
        rows.push(row);
        let _ = fs::remove_dir_all(&place);
    }
    let share = 100.0 * f64::from(inside as u32) / f64::from(asked.max(1) as u32);
    let total = format!("In the slice or the relevant slice: {inside} of {asked} ({share:.0} %; goal ≥ 85 %).");
    println!("{total}");
    if request.publish {
        publish(&rows, &total)?;
    }
    Ok(true)
}

/// What was measured for one bug.
struct Row {
    criterion: String,
    backward: Measured,
    relevant: Measured,
    pointers: Measured,
    unbypassed: Measured,
    unrefined: Measured,
}

impl Row {
    fn is_inside(&self) -> bool {
        self.backward.found.is_some() || self.relevant.found.is_some()
    }

    fn text(&self, id: &str) -> String {
        let size = |m: &Measured| format!("{} ({:.0} %)", m.lines, 100.0 * m.lines as f64 / m.executed.max(1) as f64);
        let (place, found) = match (&self.backward.found, &self.relevant.found, &self.pointers.found) {
            (Some(f), ..) => ("backward", Some(f)),
            (_, Some(f), _) => ("relevant", Some(f)),
            (.., Some(f)) => ("with pointers", Some(f)),
            _ => ("neither", None),
        };
        let distance = found.map(|(d, rank)| format!("{d} (line {rank})")).unwrap_or_default();
        format!(
            "| {id} | {} | {} | {} | {place} | {distance} | {} | {} |",
            self.criterion,
            size(&self.backward),
            size(&self.relevant),
            size(&self.unbypassed),
            size(&self.unrefined),
        )
    }
}

fn bugs(request: &Request) -> Result<Vec<String>, String> {
    if let Some(only) = &request.only {
        return Ok(only.split(',').map(str::to_owned).collect());
    }
    let folder = request.corpus.join("bugs");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut ids: Vec<String> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    ids.sort_unstable();
    Ok(ids)
}

fn describe(corpus: &Path, id: &str) -> Result<Bug, String> {
    let out = Command::new(corpus.join("corpus")).args(["cmd", id, "--json"]).stderr(Stdio::null()).output();
    let out = out.map_err(|e| format!("corpus cannot be run: {e}"))?;
    let run: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("{id}: corpus cmd: {e}"))?;
    let text = fs::read_to_string(corpus.join("bugs").join(id).join("bug.toml")).map_err(|e| format!("{id}: {e}"))?;
    Ok(Bug { id: id.to_owned(), run, roots: roots(&text) })
}

/// Files and ranges of lines of the `[[root]]` tables.
fn roots(toml: &str) -> Vec<(String, u64, u64)> {
    let mut found = Vec::new();
    for table in toml.split("[[root]]").skip(1) {
        let table = table.split("\n[").next().unwrap_or(table);
        let file = table.lines().find_map(|l| l.strip_prefix("file = ")).map(|f| f.trim_matches('"').to_owned());
        let Some(file) = file else { continue };
        let lines = table.split_once("lines = ").map_or("", |(_, l)| l.lines().next().unwrap_or(""));
        let numbers: Vec<u64> = lines.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
        found.extend(numbers.chunks_exact(2).map(|p| (file.clone(), p[0], p[1])));
    }
    found
}

fn field<'a>(run: &'a Value, name: &str) -> &'a str {
    run[name].as_str().unwrap_or_default()
}

fn measure(clew: &Path, bug: &Bug, place: &Path) -> Result<Row, String> {
    let run = &bug.run;
    let recording = place.join("recording");
    let mut argv: Vec<String> = Vec::new();
    if field(run, "streams") != "stdout" {
        argv.extend(["sh", "-c", "exec \"$0\" \"$@\" 2>&1"].map(str::to_owned));
    }
    argv.push(field(run, "program").to_owned());
    argv.extend(run["args"].as_array().into_iter().flatten().filter_map(|a| a.as_str().map(str::to_owned)));
    let mut record = Command::new("timeout");
    record.arg(run["timeout"].to_string()).arg(clew).args(["record", "-q", "-o"]).arg(&recording).arg("--").args(argv);
    record.current_dir(field(run, "cwd")).env("CLEW_HOME", place.join("home"));
    for (name, value) in run["env"].as_object().into_iter().flatten() {
        record.env(name, value.as_str().unwrap_or_default());
    }
    let stdin = fs::File::open(field(run, "stdin")).map_err(|e| e.to_string())?;
    let out = record.stdin(stdin).output().map_err(|e| e.to_string())?;
    if out.status.code() == Some(124) {
        return Err("hangs: there is no end to slice from".into());
    }
    let expected = fs::read(field(run, "expected_out")).map_err(|e| e.to_string())?;
    let criterion = criterion(&out.stdout, &expected, &out.status, run)?;
    let slice = |more: &[&str]| measured(clew, bug, &recording, place, &criterion, more);
    Ok(Row {
        criterion: criterion.join(" "),
        backward: slice(&[])?,
        relevant: slice(&["--relevant"])?,
        pointers: slice(&["--relevant", "--pointers"])?,
        unbypassed: slice(&["--no-bypass"])?,
        unrefined: slice(&["--no-refinement"])?,
    })
}

/// What to slice from: how the run failed.
fn criterion(
    actual: &[u8],
    expected: &[u8],
    status: &std::process::ExitStatus,
    run: &Value,
) -> Result<Vec<String>, String> {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal().or_else(|| status.code().filter(|c| *c > 128).map(|c| c - 128));
    if signal.is_some() {
        return Ok(vec!["--crash".into()]);
    }
    let same = actual.iter().zip(expected).take_while(|(a, b)| a == b).count();
    if same < actual.len() {
        return Ok(vec!["--output".into(), same.to_string()]);
    }
    if same < expected.len() {
        return Ok(vec!["--output".into(), "end".into()]);
    }
    if status.code().map(i64::from) != run["expected_exit"].as_i64() {
        return Ok(vec!["--exit".into()]);
    }
    Err("it did not fail here".into())
}

fn measured(
    clew: &Path,
    bug: &Bug,
    recording: &Path,
    place: &Path,
    criterion: &[String],
    more: &[&str],
) -> Result<Measured, String> {
    let mut command = Command::new(clew);
    command.arg("slice").args(criterion).args(more).args(["--json", "--budget", BUDGET]).arg(recording);
    let out = command.env("CLEW_HOME", place.join("home")).output().map_err(|e| e.to_string())?;
    let answer: Value = serde_json::from_slice(&out.stdout)
        .map_err(|_| String::from_utf8_lossy(&out.stderr).trim().replace('|', "/"))?;
    let hits = |c: &Value| {
        let file =
            c["file"].as_str().map(Path::new).and_then(Path::file_name).map(|f| f.to_string_lossy().into_owned());
        let line = c["line"].as_u64().unwrap_or(0);
        bug.roots.iter().any(|(f, from, to)| {
            Path::new(f).file_name().map(|n| n.to_string_lossy().into_owned()) == file
                && line + NEAR >= *from
                && line <= to + NEAR
        })
    };
    let candidates = answer["candidates"].as_array().cloned().unwrap_or_default();
    let found = candidates.iter().enumerate().find(|(_, c)| hits(c));
    let seconds = ["find", "trace", "prepare", "slice"].iter().filter_map(|t| answer["time"][t].as_f64()).sum();
    let count = |name: &str| answer["slice"][name].as_u64().unwrap_or(0);
    let m = Measured {
        lines: count("lines"),
        executed: count("executed_lines"),
        found: found.map(|(n, c)| (c["distance"].as_u64().unwrap_or(0), n + 1)),
        seconds,
    };
    println!("  {} {more:?}: {} of {} lines, {:?}, {:.1} s", bug.id, m.lines, m.executed, m.found, m.seconds);
    Ok(m)
}

fn publish(rows: &[String], total: &str) -> Result<(), String> {
    let text = format!(
        "# How good answers are

Measured on thirty real, historical bugs of C programs (compiled with -O0) whose root causes are known, misses included.

## Slices

Made by `cargo xtask accuracy slice --corpus DIR --publish`. For each bug the failing run is recorded and sliced from the first
wrong byte, from the missing output (`end`), from the crash or from the exit status. Sizes are own source lines and their
share of the executed ones. *In* says in which slice a line of the root cause is: the backward slice, the relevant slice
(potential dependences too), only when stores through pointers count as well, or in neither. The distance is that of the
nearest such line in dependences; behind it, its place when the slice's lines are read by distance. The last two columns
are the backward slice when saved registers are followed through the stack, and when the targets of indirect jumps are not
known.

| bug | sliced from | backward | relevant | in | distance | without save/restore bypass | without indirect targets |
|---|---|---|---|---|---|---|---|
{}

{total}
",
        rows.join("\n")
    );
    let path = root().join("docs/accuracy.md");
    fs::write(&path, text).map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_causes_are_read_from_the_description() {
        let toml = "kind = \"crash\"\n[[root]]\nfile = \"a.c\"\nlines = [[3, 5], [9, 9]]\n\n[[root]]\nfile = \"b.c\"\nlines = [[1, 1]]\n[flip]\nat = \"a.c:7\"\n";
        let expected = [("a.c", 3, 5), ("a.c", 9, 9), ("b.c", 1, 1)];
        assert_eq!(roots(toml), expected.map(|(f, a, b)| (f.to_owned(), a, b)));
    }
}
