//! `clew demo`: a small program with a bug, and what Clew says about it.

use crate::cli::{Cli, Color, Demo, Verb};
use crate::message::{self, Messages, Paint};
use crate::scratch::Scratch;
use crate::startup::Startup;
use crate::{status, why};
use clap::Parser;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

const NAME: &str = "largest.c";
const SOURCE: &str = include_str!("../../../examples/largest.c");
const ARGUMENTS: [&str; 3] = ["3", "7", "9"];
const EXPECTED: &str = "9\n";
/// One cause is told, to be read at a glance.
const CAUSES: &str = "1";

/// Shows it; gives our exit status.
pub fn run(_: &Demo, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    let folder = match Scratch::new() {
        Ok(folder) => folder,
        Err(why) => {
            messages.error(&why);
            return status::INTERNAL;
        }
    };
    let program = match build(folder.path()) {
        Ok(program) => program,
        Err(why) => {
            messages.error(&why);
            return status::USAGE;
        }
    };
    let paint = Paint::for_stdout(color, startup);
    let step = |n: u32, text: &str| message::stdout(&format!("{} {text}\n", paint.strong(&format!("[{n}]"))));
    step(1, &format!("A program with a bug, {NAME}, compiled without anything special:"));
    message::stdout(&numbered(SOURCE));
    step(2, &format!("`largest {}` should print {}; it prints:", ARGUMENTS.join(" "), EXPECTED.trim()));
    let output = Command::new(&program).args(ARGUMENTS).output();
    message::stdout(&format!("    {}", String::from_utf8_lossy(&output.map(|o| o.stdout).unwrap_or_default())));
    step(
        3,
        &format!(
            "`clew why --expect good.txt -- ./largest {}` records that run and finds out why:",
            ARGUMENTS.join(" ")
        ),
    );
    message::stdout("\n");
    let status = search(&program, folder.path(), paint, startup, &messages);
    message::stdout("\n");
    step(4, "The loop ended one number too early: `i < count - 1` should be `i < count`. Now try your own:");
    message::stdout("    clew why --expect good.txt -- ./your-program its arguments\n");
    status
}

/// The source with the numbers of its lines.
fn numbered(source: &str) -> String {
    source.lines().enumerate().map(|(n, line)| format!("    {:>2}  {line}\n", n + 1)).collect()
}

/// What a user would type, with a home for recordings that goes away.
fn search(program: &Path, folder: &Path, paint: Paint, startup: &Startup, messages: &Messages) -> i32 {
    let good = folder.join("good.txt");
    if std::fs::write(&good, EXPECTED).is_err() {
        return status::INTERNAL;
    }
    let mut words: Vec<OsString> = ["clew", "why", "--quiet", "--top", CAUSES, "--expect"].map(Into::into).into();
    words.extend([good.into(), "--".into(), program.into()]);
    words.extend(ARGUMENTS.map(Into::into));
    let mut home = OsString::from("CLEW_HOME=");
    home.push(folder.join("home"));
    let mut env = vec![home];
    env.extend(startup.env.iter().cloned());
    let inner = Startup {
        args: Vec::new(),
        env,
        blocked: startup.blocked,
        ignored: startup.ignored,
        source_map: Default::default(),
    };
    match Cli::try_parse_from(words).map(|cli| cli.verb) {
        Ok(Verb::Why(options)) => match why::find(&options, &inner, messages) {
            Ok(mut report) => {
                // The recording goes away: nobody can look closer at it.
                report.causes.iter_mut().for_each(|c| c.closer.clear());
                message::stdout(&report::text(&report, &paint));
                if report.causes.is_empty() { status::INTERNAL } else { 0 }
            }
            Err(refusal) => {
                messages.error(&refusal.message);
                refusal.status
            }
        },
        _ => status::INTERNAL,
    }
}

/// Compiles the program.
fn build(folder: &Path) -> Result<std::path::PathBuf, String> {
    let source = folder.join(NAME);
    let program = folder.join("largest");
    std::fs::write(&source, SOURCE).map_err(|e| format!("cannot write {}: {e}", source.display()))?;
    let output = Command::new("cc").args(["-g", "-O0", "-o"]).arg(&program).arg(NAME).current_dir(folder).output();
    match output {
        Ok(o) if o.status.success() => Ok(program),
        Ok(o) => Err(format!("the C compiler (cc) refuses the program: {}", String::from_utf8_lossy(&o.stderr).trim())),
        Err(e) => Err(format!("there is no C compiler: cc cannot be run ({e}); install gcc or clang")),
    }
}
