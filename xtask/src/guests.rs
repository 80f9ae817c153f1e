//! Building the guests of `guests/agree` and laying out what a suite needs in one readable place.
//!
//! Guests are built once per change of their source or command into the target directory. A stage is a temporary folder
//! that every user may read, with the guests, the generated inputs and a copy of `clew`, so that confined runs see the
//! same files as ordinary ones.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    agree::inputs,
    exec::{self, Job, Outcome},
    scratch::{self, Scratch, root, target_dir},
};

/// The variable that names the folder of Clew's recordings.
pub const CLEW_HOME: &str = "CLEW_HOME";

/// Everything a suite runs with.
#[derive(Debug)]
pub struct Stage {
    pub scratch: Scratch,
    /// The copy of `clew` to test.
    pub clew: PathBuf,
    /// Guests that could not be built, with the reason.
    pub missing: Vec<String>,
}

impl Stage {
    pub fn new(purpose: &str, clew: &Path) -> Result<Stage, String> {
        let scratch = Scratch::new(purpose).map_err(|e| format!("cannot make a temporary folder: {e}"))?;
        let (built, missing) = build_all()?;
        let stage = Stage { clew: scratch.path().join("clew-bin/clew"), scratch, missing };
        stage.fill(&built, clew).map_err(|e| format!("cannot lay out the test files: {e}"))?;
        Ok(stage)
    }

    fn fill(&self, built: &Path, clew: &Path) -> io::Result<()> {
        let (bin, input) = (self.bin(), self.inputs());
        fs::create_dir(&bin)?;
        fs::create_dir(self.scratch.path().join("clew-bin"))?;
        fs::create_dir_all(input.join("guests"))?;
        fs::create_dir_all(input.join("classes"))?;
        inputs::write_case_inputs(&input)?;
        for entry in fs::read_dir(built)?.flatten() {
            let name = entry.file_name();
            let class = Path::new(&name).extension().is_some_and(|e| e == "class");
            if class {
                fs::copy(entry.path(), input.join("classes").join(&name))?;
            } else if entry.file_type()?.is_file() && !name.to_string_lossy().ends_with(".stamp") {
                fs::copy(entry.path(), bin.join(&name))?;
            }
        }
        for name in ["terminal.py", "raw_terminal.py", "concurrent.js"] {
            fs::copy(source_dir().join(name), input.join("guests").join(name))?;
        }
        fs::copy(clew, &self.clew)?;
        fs::set_permissions(&self.clew, fs::Permissions::from_mode(0o755))
    }

    pub fn bin(&self) -> PathBuf {
        self.scratch.path().join("bin")
    }

    pub fn inputs(&self) -> PathBuf {
        self.scratch.path().join("in")
    }

    /// `PATH` for the programs under test: the guests, then the system's programs.
    pub fn search_path(&self) -> String {
        format!("{}:/usr/bin:/bin:/usr/sbin:/sbin", self.bin().display())
    }

    /// A fresh folder for one run: `w` to run in, with a link `in` to the inputs, and `tmp`.
    ///
    /// The same name gives the same path, so that runs that print their directory can be compared.
    pub fn fresh(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.folder(name);
        scratch::remove_tree(&folder);
        fs::create_dir_all(folder.join("w"))?;
        fs::create_dir(folder.join("tmp"))?;
        symlink(self.inputs(), folder.join("w/in"))?;
        Ok(folder)
    }

    /// The folder that [`Stage::fresh`] makes for `name`.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.scratch.path().join("cases").join(name)
    }

    /// Where the streams of the run called `name` are kept.
    pub fn captures(&self, name: &str) -> PathBuf {
        self.scratch.path().join("captures").join(name)
    }

    /// The environment of every run: nothing of the caller's reaches a program under test.
    pub fn environment(&self, folder: &Path) -> Vec<(String, OsString)> {
        let mut env: Vec<(String, OsString)> = [
            ("PATH", self.search_path().as_str()),
            ("LC_ALL", "C.UTF-8"),
            ("TZ", "UTC"),
            ("TERM", "dumb"),
            ("PYTHONDONTWRITEBYTECODE", "1"),
        ]
        .map(|(k, v)| (k.to_owned(), v.into()))
        .to_vec();
        env.push(("HOME".to_owned(), folder.join("w").into()));
        env.push(("TMPDIR".to_owned(), folder.join("tmp").into()));
        env.push((CLEW_HOME.to_owned(), self.clew_home().into()));
        env
    }

    /// Where Clew keeps files that recordings share: outside the directory that is compared, one for all runs.
    pub fn clew_home(&self) -> PathBuf {
        self.scratch.path().join("clew-home")
    }

    /// Runs a command line in a fresh folder.
    pub fn run(&self, name: &str, argv: &[&str], limit: Duration) -> Result<Outcome, String> {
        let run = || {
            let folder = self.fresh(name)?;
            exec::run(&Job {
                argv: argv.iter().map(OsString::from).collect(),
                env: self.environment(&folder),
                dir: folder.join("w"),
                stdin: None,
                capture: self.captures(name),
                limit,
            })
        };
        run().map_err(|e| format!("{}: {e}", argv.first().unwrap_or(&"")))
    }
}

/// The sources of the guests.
pub fn source_dir() -> PathBuf {
    root().join("guests/agree")
}

/// Is `program` found through our own `PATH`?
pub fn has_program(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|dir| dir.join(program).is_file())
}

/// Builds every guest whose compiler is installed; gives the folder and what is missing.
fn build_all() -> Result<(PathBuf, Vec<String>), String> {
    let out = target_dir().join("guests");
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let list = source_dir().join("builds");
    let text = fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
    let mut missing = Vec::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let (name, command) = line.split_once(':').ok_or_else(|| format!("{}: `{line}`", list.display()))?;
        let words: Vec<&str> = command.split_whitespace().collect();
        build_one(&out, name, &words, &mut missing)?;
    }
    if has_program("javac") {
        let words = ["javac", "-d", ".", "Concurrent.java"];
        build_one(&out, "Concurrent.class", &words, &mut missing)?;
    }
    Ok((out, missing))
}

fn build_one(out: &Path, name: &str, words: &[&str], missing: &mut Vec<String>) -> Result<(), String> {
    if !has_program(words[0]) {
        missing.push(format!("{name} is not built: {} is not installed", words[0]));
        return Ok(());
    }
    let stamp_path = out.join(format!("{name}.stamp"));
    let stamp = stamp(words);
    if out.join(name).exists() && fs::read(&stamp_path).is_ok_and(|old| old == stamp) {
        return Ok(());
    }
    let mut command = Command::new(words[0]);
    command.current_dir(source_dir()).env("GO111MODULE", "off").env("GOCACHE", target_dir().join("go-cache"));
    if words[0] == "javac" {
        command.args(["-d".as_ref(), out.as_os_str(), "Concurrent.java".as_ref()]);
    } else if words[0] == "go" {
        // `go build` takes options before files only.
        command.args(["build".as_ref(), "-o".as_ref(), out.join(name).as_os_str()]).args(&words[2..]);
    } else {
        command.args(&words[1..]).arg("-o").arg(out.join(name));
    }
    let result = command.output().map_err(|e| format!("{}: {e}", words[0]))?;
    if !result.status.success() {
        return Err(format!("guest {name} does not build:\n{}", String::from_utf8_lossy(&result.stderr)));
    }
    fs::write(&stamp_path, stamp).map_err(|e| format!("{}: {e}", stamp_path.display()))
}

/// The command and the sources it names: what the result depends on.
fn stamp(words: &[&str]) -> Vec<u8> {
    let mut all = words.join(" ").into_bytes();
    for word in words {
        all.extend(fs::read(source_dir().join(word)).unwrap_or_default());
    }
    all
}

/// The `clew` to test: the one named, or the workspace's own, built for release.
pub fn clew_binary(named: Option<String>) -> Result<PathBuf, String> {
    if let Some(path) = named {
        return fs::canonicalize(&path).map_err(|e| format!("{path}: {e}"));
    }
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--quiet", "--release", "--package", "clew"])
        .current_dir(root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err("clew does not build".to_owned());
    }
    Ok(target_dir().join("release/clew"))
}
