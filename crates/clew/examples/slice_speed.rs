//! What slices cost: tracing and preparing a window, slices over it, memory.
//!
//! `slice_speed RECORDING NATIVE-SECONDS MILLIONS…` takes the end of the recording's first process as the end of every
//! window, traces windows of about so many million instructions, and slices each from the last 20 loads of distinct addresses
//! in the program's own code, or from as many as fit into half a minute. One line of JSON per window. In small windows it makes
//! sure that slices with nodes say the same. `cargo xtask bench slice` runs it and publishes the rows.

use clew::slice::{facts::Program, tracing};
use model::serve::Moment;
use recording::Recording;
use serde_json::json;
use session::{EngineProgram, Replayer, Session};
use slice::{Criterion, Options, Prepare, Slice, Window};
use std::path::Path;
use std::time::{Duration, Instant};

type Any = Box<dyn std::error::Error>;

const SLICES: usize = 20;
/// No further slice of a window is begun after this time.
const LONG: Duration = Duration::from_secs(30);
/// Instructions of the code that make a first page.
const PAGE: usize = 50;
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
    let own = |pc: u64| program.image.contains(program.bias.to_image(model::GuestAddr(pc)));
    let calls = tracing::calls(&recording, &unit)?;
    let how = Prepare { bypass: true, frames: false };
    let ticks_in_all = end.tick - session.start_moment().tick;
    // How many instructions a tick has, from what the last window was like.
    let piece = trace(&mut session, end, 20_000)?;
    let mut facts = Program::new(&session, &loaded, &[], true)?;
    let mut per_tick = piece.finish(&mut facts, calls.clone(), how).instructions() as f64 / 20_000.0;
    for size in sizes {
        forget_peak();
        let millions: f64 = size.parse()?;
        let ticks = ((millions * 1e6 / per_tick) as u64).min(ticks_in_all);
        let begun = Instant::now();
        let builder = trace(&mut session, end, ticks)?;
        let traced = begun.elapsed();
        let mut facts = Program::new(&session, &loaded, &[], true)?;
        let mut window = builder.finish(&mut facts, calls.clone(), how);
        window.mark_own(own);
        let ready = begun.elapsed();
        per_tick = window.instructions() as f64 / ticks.max(1) as f64;
        let measured = slice_all(&window, &mut facts, own)?;
        let line = json!({
            "millions": window.instructions() as f64 / 1e6,
            // The stretch at native speed, from the whole run's time.
            "native": native * ticks as f64 / ticks_in_all as f64,
            "trace": traced.as_secs_f64(),
            "ready": ready.as_secs_f64(),
            "bytes": window.bytes(),
            "slices": measured.whole.len(),
            "first": spread(measured.first),
            "whole": spread(measured.whole),
            "nodes": spread(measured.nodes),
            "edges": spread(measured.edges),
            "peak": peak(),
        });
        println!("{line}");
    }
    Ok(())
}

/// One figure for each slice of a window.
#[derive(Default)]
struct Measured {
    first: Vec<f64>,
    whole: Vec<f64>,
    nodes: Vec<f64>,
    edges: Vec<f64>,
}

fn slice_all(window: &Window, facts: &mut Program, own: impl Fn(u64) -> bool) -> Result<Measured, Any> {
    let mut measured = Measured::default();
    let all = Instant::now();
    for (at, _) in window.last_loads(SLICES, own) {
        if all.elapsed() > LONG {
            break;
        }
        let criterion = Criterion { at: Some(at), ..Criterion::default() };
        let how = Options { only_sites: true, page: PAGE, ..Options::default() };
        let begun = Instant::now();
        let slice = slice::backward(window, &criterion, &how, facts, &mut || false);
        let whole = begun.elapsed();
        let first = slice.first_page.map_or(whole, |at| at - begun);
        measured.first.push(first.as_secs_f64());
        measured.whole.push(whole.as_secs_f64());
        measured.nodes.push(slice.size as f64);
        measured.edges.push(slice.uses as f64);
        if window.instructions() < CHECKED {
            let whole = slice::backward(window, &criterion, &Options::default(), facts, &mut || false);
            check_same(&whole, &slice)?;
        }
    }
    Ok(measured)
}

/// The two ways to slice must agree.
fn check_same(with_nodes: &Slice, without: &Slice) -> Result<(), Any> {
    if with_nodes.sites == without.sites && with_nodes.size == without.size {
        return Ok(());
    }
    let differ = with_nodes.sites.iter().find(|s| !without.sites.contains(s));
    let (a, b) = (with_nodes.size, without.size);
    Err(format!("the two ways to slice differ: {a} and {b} instructions, first at {differ:x?}").into())
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

/// Median and maximum.
fn spread(mut figures: Vec<f64>) -> [f64; 2] {
    figures.sort_unstable_by(f64::total_cmp);
    let at = |n: usize| figures.get(n).copied().unwrap_or(0.0);
    [at(figures.len() / 2), at(figures.len().saturating_sub(1))]
}

/// The most memory that this process has held since [`forget_peak`], in bytes.
fn peak() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Where the kernel does not allow it, later windows tell the largest peak so far.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
