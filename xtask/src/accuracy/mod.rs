//! How good answers are on real bugs whose causes are known.
//!
//! The bugs are the project's folder `corpus`, or one like it (`--corpus DIR`): a tool that fetches, builds and describes
//! them, and `bugs/ID/bug.toml`; with `--later`, `later/ID/bug.toml`: bugs that came when weights had been chosen.
//! [`slices()`] looks whether a line of the root cause is in the slice of the symptom, [`switches()`] how many trials find it and
//! how much is to be read then, [`whys()`] at which rank `clew why` names it. A line counts if it is at most two away, as the
//! corpus counts. `--publish` writes the section of docs/accuracy.md.

mod slices;
mod switches;
mod whys;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{args::Args, guests::clew_binary, scratch::root};

pub use slices::slices;
pub use switches::switches;
pub use whys::whys;

/// How far a line may be from the root cause.
const NEAR: u64 = 2;

/// What to measure.
pub struct Request {
    pub clew: Option<String>,
    pub corpus: PathBuf,
    /// Bugs that nobody looked at while weights were chosen.
    pub later: bool,
    pub only: Option<String>,
    pub publish: bool,
    /// Time for one bug, as the command line has it.
    pub budget: String,
}

impl Request {
    pub fn from_args(args: &mut Args) -> Result<Request, String> {
        Ok(Request {
            clew: args.value("--clew")?,
            corpus: args.value("--corpus")?.map_or_else(|| root().join("corpus"), PathBuf::from),
            later: args.flag("--later"),
            only: args.value("--only")?,
            publish: args.flag("--publish"),
            budget: args.value("--budget")?.unwrap_or_else(|| "60s".into()),
        })
    }

    /// Where the bugs are.
    fn folder(&self) -> PathBuf {
        self.corpus.join(if self.later { "later" } else { "bugs" })
    }

    fn bugs(&self) -> Result<Vec<String>, String> {
        if let Some(only) = &self.only {
            return Ok(only.split(',').map(str::to_owned).collect());
        }
        let folder = self.folder();
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let bugs = entries.flatten().filter(|e| e.path().join("bug.toml").exists());
        let mut ids: Vec<String> = bugs.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        ids.sort_unstable();
        Ok(ids)
    }
}

/// What came of one bug; why nothing did.
struct Measured<R> {
    bug: Bug,
    result: Result<R, String>,
}

/// How one kind of answer is measured and told.
struct Kind<'a, R> {
    /// Columns of its table.
    columns: usize,
    /// Measures one bug with this program; a fresh folder is there for it.
    measure: &'a dyn Fn(&Path, &Bug, &Path) -> Result<R, String>,
    /// The cells of its row behind the bug's name.
    cells: &'a dyn Fn(&Bug, &R) -> Vec<String>,
}

/// Measures every bug that is asked for, and prints the rows as they come. Answers these, too.
fn measure_all<R>(request: &Request, kind: &Kind<'_, R>) -> Result<(Vec<String>, Vec<Measured<R>>), String> {
    let clew = clew_binary(request.clew.clone())?;
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for id in request.bugs()? {
        let bug = Bug::describe(&request.corpus, &request.folder(), &id)?;
        let place = std::env::temp_dir().join(format!("clew-accuracy-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(&place).map_err(|e| e.to_string())?;
        let result = (kind.measure)(&clew, &bug, &place);
        let mut cells = vec![id];
        match &result {
            Ok(measured) => cells.extend((kind.cells)(&bug, measured)),
            Err(why) => cells.push(why.replace('|', "/").replace('\n', " ")),
        }
        cells.resize(kind.columns, String::new());
        let row = format!("| {} |", cells.join(" | "));
        println!("{row}");
        rows.push(row);
        all.push(Measured { bug, result });
        let _ = fs::remove_dir_all(&place);
    }
    Ok((rows, all))
}

/// Asks `clew` with these arguments about a bug, as a user would: with what should have come out. Gives the JSON document.
fn ask(clew: &Path, bug: &Bug, place: &Path, arguments: &[&str]) -> Result<Value, String> {
    let mut command = Command::new(clew);
    command.args(arguments).arg("--json").arg("--expect").arg(bug.field("expected_out"));
    command.arg("--expect-exit").arg(bug.run["expected_exit"].to_string());
    command.arg("--timeout").arg(format!("{}s", bug.run["timeout"])).arg("--").args(bug.command());
    bug.place(&mut command, &place.join("home"))?;
    let out = command.output().map_err(|e| e.to_string())?;
    let message = || String::from_utf8_lossy(&out.stderr).trim().chars().take(160).collect();
    serde_json::from_slice(&out.stdout).map_err(|_| message())
}

/// One bug.
struct Bug {
    id: String,
    run: Value,
    roots: Vec<(String, u64, u64)>,
    /// What switching one branch at or near the root does: `Some(true)` if that repairs the run.
    flip: Option<bool>,
    /// Where that branch is.
    flipped: Option<(String, u64)>,
}

impl Bug {
    fn describe(corpus: &Path, bugs: &Path, id: &str) -> Result<Bug, String> {
        let mut command = Command::new(corpus.join("corpus"));
        command.arg("--bugs").arg(bugs).args(["cmd", id, "--json"]);
        let out = command.stderr(Stdio::null()).output();
        let out = out.map_err(|e| format!("corpus cannot be run: {e}"))?;
        let run: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("{id}: corpus cmd: {e}"))?;
        let text = fs::read_to_string(bugs.join(id).join("bug.toml"));
        let text = text.map_err(|e| format!("{id}: {e}"))?;
        let flip = text.split_once("[flip]").map(|(_, flip)| flip.contains("repairs = true"));
        Ok(Bug { id: id.to_owned(), run, roots: roots(&text), flip, flipped: flipped(&text) })
    }

    /// The failing program and its arguments.
    fn command(&self) -> Vec<String> {
        let mut argv: Vec<String> = Vec::new();
        if self.field("streams") != "stdout" {
            argv.extend(["sh", "-c", "exec \"$0\" \"$@\" 2>&1"].map(str::to_owned));
        }
        argv.push(self.field("program").to_owned());
        argv.extend(self.run["args"].as_array().into_iter().flatten().filter_map(|a| a.as_str().map(str::to_owned)));
        argv
    }

    /// Puts a command where the bug shows: its folder, its environment, its input.
    fn place(&self, command: &mut Command, home: &Path) -> Result<(), String> {
        command.current_dir(self.field("cwd")).env("CLEW_HOME", home);
        for (name, value) in self.run["env"].as_object().into_iter().flatten() {
            command.env(name, value.as_str().unwrap_or_default());
        }
        let stdin = fs::File::open(self.field("stdin")).map_err(|e| e.to_string())?;
        command.stdin(stdin);
        Ok(())
    }

    fn field(&self, name: &str) -> &str {
        self.run[name].as_str().unwrap_or_default()
    }

    /// Is this finding at the root cause?
    fn is_hit(&self, finding: &Value) -> bool {
        let file = finding["file"].as_str().and_then(file_name);
        let line = finding["line"].as_u64().unwrap_or(0);
        self.roots.iter().any(|(f, from, to)| file_name(f) == file && line + NEAR >= *from && line <= to + NEAR)
    }

    /// Is it there, or at the branch that is known to repair the run?
    fn is_meaningful(&self, finding: &Value) -> bool {
        let (file, line) = (finding["file"].as_str().and_then(file_name), finding["line"].as_u64());
        let is_flipped = |(f, at): &(String, u64)| file_name(f) == file && line == Some(*at);
        self.is_hit(finding) || self.flipped.as_ref().is_some_and(is_flipped)
    }
}

fn file_name(path: &str) -> Option<String> {
    Path::new(path).file_name().map(|f| f.to_string_lossy().into_owned())
}

/// File and line of the table `[flip]`.
fn flipped(toml: &str) -> Option<(String, u64)> {
    let (_, table) = toml.split_once("[flip]")?;
    let at = table.split("\n[").next()?.lines().find_map(|l| l.strip_prefix("at = "))?;
    let (file, line) = at.trim_matches('"').split_once(':')?;
    Some((file.to_owned(), line.parse().ok()?))
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

/// Behind it a section holds what people wrote about the figures.
const MEASURED: &str = "<!-- end of what was measured -->\n";

/// Replaces what was measured in a section of docs/accuracy.md, or adds the section.
fn publish(heading: &str, text: &str) -> Result<(), String> {
    let path = root().join("docs/accuracy.md");
    let old = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    fs::write(&path, with_section(&old, heading, text)).map_err(|e| format!("{}: {e}", path.display()))
}

fn with_section(old: &str, heading: &str, text: &str) -> String {
    let title = format!("## {heading}\n");
    let (before, section, behind) = match old.split_once(&title) {
        Some((before, rest)) => {
            let (section, behind) = rest.find("\n## ").map_or((rest, ""), |n| rest.split_at(n));
            (before.to_owned(), section, behind)
        }
        None => (format!("{}\n\n", old.trim_end()), "", ""),
    };
    let words = section.split_once(MEASURED).map_or("", |(_, words)| words);
    format!("{before}{title}\n{}\n{MEASURED}{words}{behind}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_wrote_about_figures_is_kept() {
        let old = format!("# Title\n\n## One\n\n1\n{MEASURED}\nA word.\n\n## Two\n\n2\n");
        let new = with_section(&old, "One", "3\n");
        assert_eq!(new, old.replace("\n1\n", "\n3\n"));
        let added = with_section(&new, "Three", "4");
        assert_eq!(added, format!("{}\n\n## Three\n\n4\n{MEASURED}", new.trim_end()));
    }

    #[test]
    fn root_causes_are_read_from_the_description() {
        let toml = "kind = \"crash\"\n[[root]]\nfile = \"a.c\"\nlines = [[3, 5], [9, 9]]\n\n[[root]]\nfile = \"b.c\"\nlines = [[1, 1]]\n[flip]\nat = \"a.c:7\"\n";
        let expected = [("a.c", 3, 5), ("a.c", 9, 9), ("b.c", 1, 1)];
        assert_eq!(roots(toml), expected.map(|(f, a, b)| (f.to_owned(), a, b)));
        assert_eq!(flipped(toml), Some(("a.c".into(), 7)));
        assert_eq!(flipped("[flip]\nrepairs = false\n"), None);
    }
}
