//! `clew rm`: removes recordings, and nothing else.

use crate::cli::{Color, Rm as Options};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::{home, show, status};
use recording::{Home, Removed};
use serde_json::{Value, json};

/// Removes what was named; gives the exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    let home = match home::path(startup) {
        Ok(path) => Home::at(&path),
        Err(why) => {
            messages.error(&why);
            return status::USAGE;
        }
    };
    let mut removed = Vec::new();
    let mut failed = Vec::new();
    match options.older {
        Some(_) if !home.path().is_dir() => {}
        Some(age) => match home.remove_older(age) {
            Ok(gone) => removed = gone,
            Err(e) => failed.push(e.to_string()),
        },
        None => {
            for name in &options.recordings {
                match home.remove(name) {
                    Ok(gone) => removed.push(gone),
                    Err(e) => failed.push(e.to_string()),
                }
            }
        }
    }
    if options.json {
        message::stdout(&format!("{:#}\n", to_json(&removed, &failed)));
    } else if !options.quiet {
        message::stdout(&to_text(&removed, failed.is_empty()));
    }
    failed.iter().for_each(|why| messages.error(why));
    if failed.is_empty() { 0 } else { status::USAGE }
}

fn to_json(removed: &[Removed], failed: &[String]) -> Value {
    let one = |r: &Removed| json!({ "name": r.name, "bytes": r.bytes });
    json!({ "clew": 1, "verb": "rm", "removed": removed.iter().map(one).collect::<Vec<_>>(), "failed": failed })
}

fn to_text(removed: &[Removed], ok: bool) -> String {
    if removed.is_empty() && ok {
        return "No recording is that old; nothing was removed.\n".to_owned();
    }
    removed.iter().map(|r| format!("removed {} ({})\n", r.name, show::bytes(r.bytes))).collect()
}
