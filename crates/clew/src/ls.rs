//! `clew ls`: the recordings in the home folder.

use crate::cli::{Color, Ls as Options};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::{home, show, status};
use recording::{Entry, Home, State};
use serde_json::{Value, json};
use std::path::Path;

/// Lists them; gives the exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let listed = home::path(startup).and_then(|path| {
        let entries = Home::at(&path).list().map_err(|e| e.to_string())?;
        Ok((path, entries))
    });
    match listed {
        Ok((path, entries)) if options.json => message::stdout(&format!("{:#}\n", to_json(&path, &entries))),
        Ok((path, entries)) => message::stdout(&to_text(&path, &entries, Paint::for_stdout(color, startup))),
        Err(why) => {
            Messages { paint: Paint::for_stderr(color, startup) }.error(&why);
            return status::USAGE;
        }
    }
    0
}

fn to_json(path: &Path, entries: &[Entry]) -> Value {
    let one = |e: &Entry| {
        let mut value = json!({
            "name": e.name,
            "path": show::value(e.path.as_os_str()),
            "created": e.created,
            "bytes": e.bytes,
            "state": show::state(&e.state).0,
            "command": show::values(&e.command),
        });
        match &e.state {
            State::Ended(s) => value["status"] = show::status_value(*s),
            State::Damaged(why) => value["damage"] = why.as_str().into(),
            State::Writing | State::Interrupted => {}
        }
        value
    };
    let recordings: Vec<Value> = entries.iter().map(one).collect();
    json!({ "clew": 1, "verb": "ls", "home": show::value(path.as_os_str()), "recordings": recordings })
}

fn to_text(path: &Path, entries: &[Entry], paint: Paint) -> String {
    if entries.is_empty() {
        let place = path.display();
        return format!("There is no recording in {place}; `clew record -- PROGRAM` makes one.\n");
    }
    let mut rows = vec![["NAME", "WHEN", "SIZE", "ENDED", "COMMAND"].map(str::to_owned)];
    rows.extend(entries.iter().map(|e| {
        let (created, size) = (show::when(e.created), show::bytes(e.bytes));
        let what = match &e.state {
            State::Damaged(why) => why.clone(),
            _ => show::command(&e.command),
        };
        [e.name.clone(), created, size, show::state(&e.state).1, what]
    }));
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let mut text = String::new();
    for (n, [name, when, size, ended, command]) in rows.iter().enumerate() {
        let [w0, w1, w2, w3] = widths;
        let ended = format!("{ended:w3$}");
        let ended = match n.checked_sub(1).and_then(|n| entries.get(n)).map(|e| &e.state) {
            None => ended,
            Some(State::Ended(recording::Status::Exited(0))) => paint.good(&ended),
            Some(State::Writing | State::Interrupted) => paint.middling(&ended),
            Some(_) => paint.bad(&ended),
        };
        let line = format!("{name:w0$}  {when:w1$}  {size:>w2$}  {ended}  {command}");
        let line = if n == 0 { paint.strong(&line) } else { line };
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
