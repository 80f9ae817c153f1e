//! What slices cost: tracing and preparing a window, slices over it, memory.
//!
//! `slice_speed RECORDING NATIVE-SECONDS MILLIONS…` takes the end of the recording's first process as the end of every
//! window, traces windows of about so many million instructions, and slices each from the last 20 loads of distinct addresses
//! in the program's own code. One line of JSON per window. `cargo xtask bench slice` runs it and publishes the rows.

use clew::slice::{facts::Program, tracing};
use model::serve::Moment;
use recording::Recording;
use serde_json::json;
use session::{EngineProgram, Replayer, Session};
use slice::{Criterion, Options, Prepare};
use std::path::Path;
use std::time::{Duration, Instant};

type Any = Box<dyn std::error::Error>;

const SLICES: usize = 20;
/// In windows of fewer instructions, slices with nodes are compared with those without.
const CHECKED: u64 = 2_000_000;

fn main() -> Result<(), Any> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, native, sizes @ ..] = &args[..] else {
        return Err("usage: slice_speed RECORDING NATIVE-SECONDS MILLIONS…".into());
    };
    let native: f64 = native.parse()?;
    let engine = EngineProgram::in_memory(clew::ENGINE)?;
    let recording = Recording::open(Path::new(path))?;
    let replayer = Replayer { engine: &engine, recording: &recording };
    let unit = recording.units().first().ok_or("nothing was recorded")?.name;
    let mut session = Session::open(&replayer, &unit)?;
    session.seek_end(&mut || false)?;
    let end = session.moment();
    let images = session::images_of(&recording);
    let loaded = session.loaded(&recording, &images)?;
    let program = loaded.get(0).ok_or("the program is not mapped")?.clone();
    let calls = tracing::calls(&recording, &unit)?;
    // How many instructions a tick has, from a piece at the end.
    let piece = trace(&mut session, end, 20_000)?;
    let mut facts = Program::new(&session, &loaded, &[], true)?;
    let how = Prepare { bypass: true, frames: false };
    let measured = piece.finish(&mut facts, calls.clone(), how).instructions() as f64;
    let start = session.start_moment();
    let per_tick = measured / 20_000f64.min((end.tick - start.tick) as f64);
    for size in sizes {
        let millions: f64 = size.parse()?;
        let ticks = (millions * 1e6 / per_tick) as u64;
        // The stretch at native speed, from the whole run's time.
        let begun = Instant::now();
        let builder = trace(&mut session, end, ticks)?;
        let traced = begun.elapsed();
        let mut facts = Program::new(&session, &loaded, &[], true)?;
        let window = builder.finish(&mut facts, calls.clone(), how);
        let ready = begun.elapsed();
        let whole = (end.tick - start.tick) as f64;
        let share = (ticks as f64 / whole).min(1.0);
        let own = |pc: u64| program.image.contains(program.bias.to_image(model::GuestAddr(pc)));
        let how_to_walk = Options { only_sites: true, page: 50, ..Options::default() };
        let (mut times, mut nodes, mut edges) = (Vec::new(), Vec::new(), Vec::new());
        for (at, _) in window.last_loads(SLICES, own) {
            let criterion = Criterion { at: Some(at), ..Criterion::default() };
            let begun = Instant::now();
            let slice = slice::backward(&window, &criterion, &how_to_walk, &mut facts, &mut || false);
            times.push(begun.elapsed());
            if window.instructions() < CHECKED {
                let whole = slice::backward(&window, &criterion, &Options::default(), &mut facts, &mut || false);
                if whole.sites != slice.sites || whole.size != slice.size {
                    let differ = whole.sites.iter().find(|s| !slice.sites.contains(s));
                    return Err(format!(
                        "the two ways to slice differ: {} and {} instructions, at {differ:x?}",
                        whole.size, slice.size
                    )
                    .into());
                }
            }
            nodes.push(slice.size);
            edges.push(slice.uses);
        }
        times.sort_unstable();
        nodes.sort_unstable();
        let line = json!({
            "millions": window.instructions() as f64 / 1e6,
            "native": native * share,
            "trace": traced.as_secs_f64(),
            "ready": ready.as_secs_f64(),
            "bytes": window.bytes(),
            "slices": times.len(),
            "median": median(&times),
            "maximum": times.last().map_or(0.0, Duration::as_secs_f64),
            "nodes_median": nodes.get(nodes.len() / 2),
            "nodes_maximum": nodes.last(),
            "resident": resident(),
        });
        println!("{line}");
    }
    Ok(())
}

/// Traces the last so many ticks before a moment.
fn trace(session: &mut Session, end: Moment, ticks: u64) -> Result<slice::Builder, Any> {
    let start = session.start_moment();
    let from = match end.tick.saturating_sub(start.tick) > ticks {
        true => {
            session.seek_tick(end.tick - ticks, &mut || false)?;
            session.moment()
        }
        false => start,
    };
    Ok(tracing::trace(session, Some(from), end, u64::MAX, &mut || false)?.builder)
}

fn median(times: &[Duration]) -> f64 {
    times.get(times.len() / 2).map_or(0.0, Duration::as_secs_f64)
}

/// Bytes of memory that this process holds now.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 4096
}
