//! `clew record`: a program under the engine, with everything recorded that a replay needs.

use crate::cli::{Color, Record as Options};
use crate::guest::{self, Request};
use crate::message::{Messages, Paint};
use crate::place::{Unnamed, point};
use crate::startup::Startup;
use crate::{find, home, status};
use model::region::RegionPoint;
use model::wire::{Config, LOSS};
use recording::{Folder, Home, Meta, Status};
use session::{Outcome, Recorder, Run};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// What recordings in the home folder may take together, if nobody says otherwise; the oldest go first.
const CAP: u64 = 20 << 30;

/// Records the program of the command line; gives our exit status unless we die of the program's signal.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    if options.chaos {
        return crate::chaos::run(options, color, startup);
    }
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    let Some(name) = options.command.first() else { return status::FAILURE };
    let program = match find::find(name, startup.variable("PATH")) {
        Ok(program) => program,
        Err(why) => {
            messages.error(&why.message);
            return why.status;
        }
    };
    let mut meta = describe(options);
    let recorder = match prepare(options, &program, &meta, startup) {
        Ok(recorder) => recorder,
        Err(why) => {
            messages.error(&why);
            return status::FAILURE;
        }
    };
    let config = Config { cpu: options.cpu.into(), seed: options.seed, dies_with_host: true, ..Config::default() };
    let request = Request {
        command: &options.command,
        program: &program,
        config,
        check_traces: false,
        quiet: options.quiet,
        recorder: Some((&recorder, None)),
    };
    match guest::start(&request, startup, &messages) {
        Err(failed) => {
            discard(recorder, &meta, startup);
            guest::failed(&failed, &program, &messages)
        }
        Ok(running) => {
            let run = guest::follow(running, &request, startup, &messages);
            if matches!(run.outcome, Outcome::NotLoaded { .. }) {
                discard(recorder, &meta, startup);
            } else if is_empty(recorder.folder()) && was_never_reached(options, &run) {
                let place = options.from.as_deref().unwrap_or_default();
                messages.note(&format!("{place} was never reached: nothing was recorded"));
                discard(recorder, &meta, startup);
            } else if is_empty(recorder.folder()) {
                let place = recorder.folder().path().display();
                messages.error(&format!("nothing was recorded; is there room for {place} on that disk?"));
                discard(recorder, &meta, startup);
            } else {
                tell_losses(&run, &messages);
                meta.status = ending(&run);
                finish(recorder, &meta, startup, &messages);
            }
            guest::tell_end(&run, options.quiet, &messages);
            guest::exit_status(&run.outcome)
        }
    }
}

/// Says at the end, wanted or not, that something is missing: nobody may believe in a recording that is none.
pub fn tell_losses(run: &Run, messages: &Messages) {
    let mut losses = run.notes().filter(|n| n.starts_with(LOSS));
    if let Some(loss) = losses.next() {
        match losses.count() {
            0 => messages.error(loss),
            more => messages.error(&format!("{loss}; and {more} more")),
        }
    }
}

/// The points between which the program is to be recorded.
fn region(options: &Options, program: &Path) -> Result<(Option<RegionPoint>, Option<RegionPoint>), String> {
    let of = |text: &Option<String>, name: &str, unnamed: Unnamed| {
        let found = text.as_deref().map(|text| point(text, program, unnamed));
        found.transpose().map_err(|why| format!("{name}: {why}"))
    };
    Ok((of(&options.from, "--from", Unnamed::First)?, of(&options.to, "--to", Unnamed::Next)?))
}

/// Is there no log because the run never came to where it was to begin?
fn was_never_reached(options: &Options, run: &Run) -> bool {
    options.from.is_some() && !run.notes().any(|note| note.starts_with(LOSS))
}

pub fn finish(recorder: Recorder, meta: &Meta, startup: &Startup, messages: &Messages) {
    let place = recorder.folder().path().to_owned();
    match recorder.finish(meta) {
        Ok(sealed) => sealed.left.iter().for_each(|e| messages.note(&e.to_string())),
        Err(e) => messages.error(&format!("the recording could not be finished: {e}")),
    }
    make_room(&place, startup, messages);
}

/// Has no process begun a log? Then the engine had no room for one, and the program ran without being recorded.
pub fn is_empty(folder: &Folder) -> bool {
    std::fs::read_dir(folder.path().join("units")).is_ok_and(|mut units| units.next().is_none())
}

/// Nothing was recorded, so nothing is to stay; should it, it is a recording without any process.
pub fn discard(recorder: Recorder, meta: &Meta, startup: &Startup) {
    let place = recorder.folder().path().to_owned();
    // This lets go of its lock.
    let _ = recorder.finish(meta);
    if let (Ok(home), Some(place)) = (home::path(startup), place.to_str()) {
        let _ = Home::at(&home).remove(place);
    }
}

/// What the recording says about itself.
pub fn describe(options: &Options) -> Meta {
    let points = [("from", &options.from), ("to", &options.to)].into_iter();
    Meta {
        command: options.command.clone(),
        cwd: std::env::current_dir().unwrap_or_default(),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        clew: env!("CARGO_PKG_VERSION").to_owned(),
        cpu: options.cpu.into(),
        seed: options.seed,
        other: points.filter_map(|(name, p)| Some((name.to_owned(), p.clone()?))).collect(),
        ..Meta::default()
    }
}

pub fn prepare(options: &Options, program: &Path, meta: &Meta, startup: &Startup) -> Result<Recorder, String> {
    let (from, to) = region(options, program)?;
    let folder = match &options.output {
        Some(path) => {
            let mut folder = Folder::create(path, meta).map_err(|e| e.to_string())?;
            // A recording elsewhere shares kept files with the others, but makes no home for them.
            if let Ok(path) = home::path(startup)
                && path.is_dir()
                && let Ok(home) = Home::open(&path)
            {
                folder.share_with(&home);
            }
            folder
        }
        None => {
            let name = program.file_name().map_or_else(|| "program".into(), |n| n.to_string_lossy());
            home::open(startup)?.create(&name, meta).map_err(|e| e.to_string())?
        }
    };
    let mut recorder = Recorder::new(folder);
    recorder.set_region(from, to);
    Ok(recorder)
}

pub fn ending(run: &Run) -> Option<Status> {
    status_of(&run.outcome)
}

/// How a program ended, for the recording to tell.
pub fn status_of(outcome: &Outcome) -> Option<Status> {
    match outcome {
        Outcome::Exited(code) => Some(Status::Exited(*code as u32)),
        Outcome::Signaled { signal, .. } => Some(Status::Signaled(*signal as u32)),
        _ => None,
    }
}

/// Removes the oldest recordings when there are too many.
fn make_room(newest: &Path, startup: &Startup, messages: &Messages) {
    let cap = startup.variable("CLEW_CAP").and_then(|v| v.to_str()?.parse::<u64>().ok()).unwrap_or(CAP);
    let home = home::path(startup).ok().filter(|path| newest.starts_with(path));
    let removed = home.and_then(|path| Home::open(&path).ok()).map(|h| h.enforce_cap(cap, newest));
    if let Some(Ok(removed)) = removed
        && !removed.is_empty()
    {
        messages.note(&format!("{} old recording(s) removed to stay below {} bytes (CLEW_CAP)", removed.len(), cap));
    }
}
