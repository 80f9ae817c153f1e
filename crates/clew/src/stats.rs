//! The statistics of a run, for people and for programs.

use crate::cli::{CpuName, Run as Options};
use model::Mode;
use model::wire::Stats;
use serde_json::{Value, json};
use session::{Outcome, Run, TraceTotals};
use std::time::Duration;

/// How a mode is written on the command line.
pub fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::None => "none",
        Mode::Tick => "tick",
        Mode::Count => "count",
        Mode::Trace => "trace",
    }
}

fn cpu_name(cpu: CpuName) -> &'static str {
    match cpu {
        CpuName::V2 => "v2",
        CpuName::Native => "native",
    }
}

/// One JSON document about a run.
pub fn json(options: &Options, run: &Run, wall: Duration) -> Value {
    let images: Vec<Value> = run
        .images
        .iter()
        .map(|i| json!({ "pid": i.pid, "exe": i.exe, "stats": i.stats.as_ref().map(stats_json) }))
        .collect();
    let mut notes: Vec<&str> = run.notes().collect();
    notes.sort_unstable();
    notes.dedup();
    json!({
        "clew": 1,
        "verb": "run",
        "program": options.command.first().map(|c| c.to_string_lossy()),
        "outcome": outcome_json(&run.outcome),
        "mode": mode_name(options.effective_mode()),
        "cpu": cpu_name(options.cpu),
        "seed": options.seed,
        "wall_ns": u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
        "total": stats_json(&run.total()),
        "trace": trace_json(&sum_traces(&run.traces)),
        "images": images,
        "traces": run.traces.iter().map(trace_json).collect::<Vec<_>>(),
        "notes": notes,
        "troubles": run.troubles,
    })
}

fn outcome_json(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Exited(code) => json!({ "kind": "exited", "code": code }),
        Outcome::Signaled { signal, .. } => {
            json!({ "kind": "signaled", "signal": signal, "name": session::signal_name(*signal) })
        }
        Outcome::NotLoaded { status, message } => json!({ "kind": "not-loaded", "status": status, "message": message }),
        Outcome::EngineFault { message, pc } => {
            json!({ "kind": "engine-fault", "message": message, "pc": pc.to_string() })
        }
        Outcome::Lost { message, pc } => json!({ "kind": "lost", "message": message, "pc": pc.to_string() }),
        Outcome::Unknown => json!({ "kind": "unknown" }),
    }
}

/// Digests are text: they use all 64 bits, which many readers of JSON do not keep.
fn stats_json(s: &Stats) -> Value {
    json!({
        "mode": Mode::from_u8(s.mode).map(mode_name),
        "instructions": s.instructions,
        // Null where none are counted: in mode none, and without a seed in modes count and trace.
        "ticks": (s.ticks != 0).then_some(s.ticks),
        "conditional_branches": s.conditional_branches,
        "blocks": s.blocks,
        "translated_instructions": s.translated_instructions,
        "translation_ns": s.translation_ns,
        "cache_bytes": s.cache_bytes,
        "exits": s.exits,
        "syscalls": s.syscalls,
        "signals": s.signals,
        "threads": s.threads,
        "switches": s.switches,
        "flushes": s.flushes,
        "invalidated": s.invalidated,
        "trace_bytes": s.trace_bytes,
        "schedule": format!("{:016x}", s.schedule),
    })
}

fn trace_json(t: &TraceTotals) -> Value {
    json!({
        "pid": t.pid,
        "instructions": t.instructions,
        "accesses": t.accesses,
        "bytes": t.bytes,
        "buffers": t.buffers,
        "checksum": format!("{:016x}", t.checksum),
        "damage": t.damage,
    })
}

/// The sum over all rings; the checksum and the process are those of the first.
fn sum_traces(traces: &[TraceTotals]) -> TraceTotals {
    let mut sum = traces.first().cloned().unwrap_or_default();
    for t in traces.iter().skip(1) {
        sum.instructions += t.instructions;
        sum.accesses += t.accesses;
        sum.bytes += t.bytes;
        sum.buffers += t.buffers;
        sum.damage = sum.damage.or_else(|| t.damage.clone());
    }
    sum
}

/// A table about a run; rows that do not apply are left out.
pub fn table(options: &Options, run: &Run, wall: Duration) -> String {
    let total = run.total();
    let trace = sum_traces(&run.traces);
    let mut rows: Vec<(&str, String)> = vec![
        ("mode", mode_name(options.effective_mode()).to_owned()),
        ("wall time", seconds(wall)),
        ("instructions", optional(total.instructions.max(trace.instructions))),
        ("ticks", optional(total.ticks)),
        ("conditional branches", optional(total.conditional_branches)),
        ("memory accesses", optional(trace.accesses)),
        ("blocks translated", grouped(total.blocks)),
        ("instructions translated", grouped(total.translated_instructions)),
        ("translation time", seconds(Duration::from_nanos(total.translation_ns))),
        ("code cache", format!("{} bytes", grouped(total.cache_bytes))),
        ("exits to the engine", grouped(total.exits)),
        ("system calls", grouped(total.syscalls)),
        ("signals", optional(total.signals)),
        ("threads", grouped(total.threads)),
        ("thread switches", optional(total.switches)),
        ("cache flushes", optional(total.flushes)),
        ("blocks invalidated", optional(total.invalidated)),
        ("trace", bytes_row(total.trace_bytes.max(trace.bytes))),
    ];
    if total.schedule != 0 {
        rows.push(("schedule", format!("{:016x}", total.schedule)));
    }
    if trace.instructions > 0 {
        rows.push(("trace checksum", format!("{:016x}", trace.checksum)));
    }
    if run.images.len() > 1 {
        rows.push(("process images", grouped(run.images.len() as u64)));
    }
    let missing = run.images.iter().filter(|i| i.stats.is_none()).count();
    if missing > 0 {
        rows.push(("without statistics", format!("{missing} (killed, replaced or still running)")));
    }
    rows.retain(|(_, value)| !value.is_empty());
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:width$}  {value}\n")).collect()
}

fn seconds(d: Duration) -> String {
    format!("{:.6} s", d.as_secs_f64())
}

fn bytes_row(n: u64) -> String {
    if n == 0 { String::new() } else { format!("{} bytes", grouped(n)) }
}

/// Nothing for a figure that the mode does not have.
fn optional(n: u64) -> String {
    if n == 0 { String::new() } else { grouped(n) }
}

/// 1234567 as 1,234,567.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped_by_three() {
        for (n, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (1_234_567, "1,234,567"),
            (u64::MAX, "18,446,744,073,709,551,615"),
        ] {
            assert_eq!(grouped(n), text);
        }
    }

    #[test]
    fn traces_add_up_and_keep_the_first_damage() {
        let one = TraceTotals { pid: 1, instructions: 5, bytes: 7, checksum: 9, ..TraceTotals::default() };
        let two = TraceTotals { pid: 2, instructions: 1, damage: Some("cut".into()), ..one.clone() };
        let sum = sum_traces(&[one, two]);
        assert_eq!((sum.pid, sum.instructions, sum.bytes, sum.checksum), (1, 6, 14, 9));
        assert_eq!(sum.damage.as_deref(), Some("cut"));
    }
}
