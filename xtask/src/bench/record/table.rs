//! The table of recording and replay: as text while measuring, as Markdown in a section of docs/performance.md.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use super::{COLUMNS, Column, Group, Measured, Row};
use crate::bench::table::{geometric_mean, replace_between};

const BEGIN: &str = "<!-- bench record: written by `cargo xtask bench record --publish` -->";
const END: &str = "<!-- end of bench record -->";
const SECTION: &str = "\n## Recording and replay\n\n";

/// Groups with their name and their goal for recording; the goal of replay is recording.
const GROUPS: &[(Group, &str, f64)] = &[
    (Group::Cpu, "CPU-bound rows", 1.6),
    (Group::Syscalls, "rows of many system calls", 2.0),
    (Group::Build, "make -j2", 4.0),
];

fn time(row: &Row, column: Column) -> Option<Duration> {
    let i = COLUMNS.iter().position(|c| *c == column)?;
    row.best[i].as_ref().ok().copied()
}

fn ratio(row: &Row, column: Column) -> Option<f64> {
    Some(time(row, column)?.as_secs_f64() / time(row, Column::Native)?.as_secs_f64())
}

fn mean(rows: &[Row], group: Group, column: Column) -> Option<f64> {
    geometric_mean(rows.iter().filter(|r| r.group == group).map(|r| ratio(r, column)))
}

/// Ratio to native of the first recording.
fn first(row: &Row) -> Option<f64> {
    Some(row.first?.as_secs_f64() / time(row, Column::Native)?.as_secs_f64())
}

/// Bytes of the log per second of recording.
fn rate(row: &Row) -> Option<f64> {
    Some(row.log as f64 / time(row, Column::Record)?.as_secs_f64())
}

fn bytes(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{:.2} GB", n / 1e9),
        n if n >= 1e6 => format!("{:.1} MB", n / 1e6),
        n => format!("{:.0} kB", n / 1e3),
    }
}

/// One row for the terminal.
pub fn line(row: &Row) -> String {
    let mut out = format!("{:22}", row.name);
    for (column, best) in COLUMNS.iter().zip(&row.best) {
        let cell = match (column, best) {
            (Column::Native, Ok(time)) => format!("{:.3} s", time.as_secs_f64()),
            (_, Ok(_)) => ratio(row, *column).map_or("-".to_owned(), |r| format!("x{r:.2}")),
            (_, Err(why)) if why.is_empty() => continue,
            (_, Err(_)) => "failed".to_owned(),
        };
        let _ = write!(out, "  {} {cell}", column.title());
    }
    let per_second = rate(row).map_or("-".to_owned(), bytes);
    let first = first(row).map_or("-".to_owned(), |r| format!("x{r:.2}"));
    let (log, total) = (bytes(row.log as f64), bytes((row.log + row.kept) as f64));
    let _ = write!(out, "  first record {first}  log {log}, {per_second}/s, with files {total}");
    out
}

/// Means with their goals, and the peers, for the terminal.
pub fn summary(measured: &Measured) -> String {
    let mut out = String::new();
    for (group, name, goal) in GROUPS {
        if let (Some(record), Some(replay)) =
            (mean(&measured.rows, *group, Column::Record), mean(&measured.rows, *group, Column::Replay))
        {
            let _ = writeln!(
                out,
                "geometric mean, {name}: record x{record:.2} (goal ≤ {goal:.1}), replay x{replay:.2} (goal ≤ x{record:.2})"
            );
        }
    }
    let _ = writeln!(out, "gdb record full: {}", gdb(measured));
    let _ = writeln!(out, "rr: {}", rr(measured));
    out
}

fn gdb(measured: &Measured) -> String {
    match &measured.peers.gdb {
        Ok(ratio) => format!("{ratio:.0} times as long as natively"),
        Err(why) => why.clone(),
    }
}

fn rr(measured: &Measured) -> String {
    measured.peers.rr.as_ref().map_or_else(Clone::clone, |()| "measured beside".to_owned())
}

/// The whole table, with means and goals, the peers and the command that made it.
pub fn markdown(measured: &Measured, machine: &str) -> String {
    let rr_runs = measured.peers.rr.is_ok();
    let columns: Vec<Column> =
        COLUMNS.into_iter().filter(|c| rr_runs || !matches!(c, Column::RrRecord | Column::RrReplay)).collect();
    let mut out = format!("Made by `{}`. {machine}\n\n| workload |", measured.command);
    columns.iter().for_each(|c| out.push_str(&format!(" {} |", c.title())));
    out.push_str(" first record | log | log per second | log and kept files |\n|---|---|---|---|---|");
    columns.iter().for_each(|_| out.push_str("---|"));
    out.push('\n');
    for (group, name, goal) in GROUPS {
        let beside = match group {
            Group::Cpu => Group::Start,
            Group::Build => Group::TinyBuild,
            group => *group,
        };
        let belongs = |r: &&Row| r.group == *group || r.group == beside;
        let rows: Vec<&Row> = measured.rows.iter().filter(belongs).collect();
        rows.iter().for_each(|row| out.push_str(&markdown_row(row, &columns)));
        if rows.is_empty() {
            continue;
        }
        let _ = write!(out, "| **geometric mean, {name}** | |");
        for column in &columns[1..] {
            let mean = mean(&measured.rows, *group, *column);
            let _ = write!(out, " {} |", mean.map_or("–".to_owned(), |m| format!("**{m:.2}**")));
        }
        let first = geometric_mean(measured.rows.iter().filter(|r| r.group == *group).map(first));
        let _ = writeln!(out, " {} | | | |", first.map_or("–".to_owned(), |m| format!("**{m:.2}**")));
        let _ = write!(out, "| goal, {name} | | ≤ {goal:.1} | ≤ record |");
        columns[3..].iter().for_each(|_| out.push_str(" |"));
        out.push_str(" | | | |\n");
    }
    let _ = write!(out, "| *gdb `record full`*, 50,000 instructions | | {} |", gdb(measured));
    columns[2..].iter().for_each(|_| out.push_str(" |"));
    out.push_str(" | | | |\n");
    if !rr_runs {
        let _ = writeln!(out, "| *rr* | | {} | | | | | |", rr(measured));
    }
    out.push_str("\ncc1, hello and the build of tiny files stand beside the means: they spend their time starting.\n");
    if !measured.travel.is_empty() {
        let _ = write!(out, "\nGoing about in a recording (`guests/bench/travel.c`):\n\n{}", measured.travel);
    }
    out
}

fn markdown_row(row: &Row, columns: &[Column]) -> String {
    let mut out = format!("| {} |", row.name);
    for column in columns {
        let cell = match column {
            Column::Native => time(row, *column).map(|t| format!("{:.3} s", t.as_secs_f64())),
            _ => ratio(row, *column).map(|r| format!("{r:.2}")),
        };
        let _ = write!(out, " {} |", cell.unwrap_or("–".to_owned()));
    }
    let per_second = rate(row).map_or("–".to_owned(), |r| format!("{}/s", bytes(r)));
    let first = first(row).map_or("–".to_owned(), |r| format!("{r:.2}"));
    let (log, total) = (bytes(row.log as f64), bytes((row.log + row.kept) as f64));
    let _ = writeln!(out, " {first} | {log} | {per_second} | {total} |");
    out
}

/// Writes the table into its section of the document; adds the section at the end if there is none.
pub fn publish(measured: &Measured, machine: &str, document: &Path) -> Result<(), String> {
    let text = fs::read_to_string(document).map_err(|e| format!("{}: {e}", document.display()))?;
    fs::write(document, with_section(&text, &markdown(measured, machine)))
        .map_err(|e| format!("{}: {e}", document.display()))
}

fn with_section(text: &str, table: &str) -> String {
    replace_between(text, BEGIN, END, table)
        .unwrap_or_else(|| format!("{text}{SECTION}{INTRODUCTION}\n{BEGIN}\n{table}{END}\n"))
}

const INTRODUCTION: &str = "\
Ratios of wall time to native, the minimum of interleaved rounds: *record* runs the program and everything it starts under
`clew record`, *replay* re-executes that recording with `clew replay`. A recording is a log and the files that the program
used, which are kept once for all recordings: *first record* is the one time that none were kept yet. *log per second* is
the size of the log per second of recording. Each replay printed what the recorded run did, and one per row was verified to
be identical.
";

#[cfg(test)]
mod tests {
    use super::{super::Peers, *};

    fn row(name: &str, group: Group, record: u64) -> Row {
        let mut best = vec![Err(String::new()); COLUMNS.len()];
        best[0] = Ok(Duration::from_millis(100));
        best[1] = Ok(Duration::from_millis(record));
        best[2] = Ok(Duration::from_millis(record / 2));
        Row { name: name.into(), group, best, first: Some(Duration::from_millis(150)), log: 3_000_000, kept: 1_000_000 }
    }

    #[test]
    fn each_group_has_its_mean_and_goal() {
        let rows = vec![
            row("a", Group::Cpu, 100),
            row("b", Group::Cpu, 400),
            row("hello", Group::Start, 9000),
            row("find", Group::Syscalls, 300),
        ];
        let measured = Measured { rows, peers: Peers::default(), command: "cargo x".into(), travel: String::new() };
        let text = markdown(&measured, "Machine: m.");
        for expected in [
            "Made by `cargo x`. Machine: m.",
            "| hello | 0.100 s | 90.00 | 45.00 | 1.50 | 3.0 MB | 333 kB/s | 4.0 MB |",
            "| **geometric mean, CPU-bound rows** | | **2.00** | **1.00** | **1.50** | | | |",
            "| goal, rows of many system calls | | ≤ 2.0 | ≤ record | | | | |",
            "| *rr* | | left out | | | | | |",
        ] {
            assert!(text.contains(expected), "{expected} is not in\n{text}");
        }
        assert!(!text.contains("make -j2"), "{text}");
        let width = |line: &str| line.matches('|').count();
        let lines: Vec<&str> = text.lines().filter(|l| l.starts_with('|')).collect();
        assert!(lines.iter().all(|l| width(l) == width(lines[0])), "{text}");
    }

    #[test]
    fn a_section_is_added_once_and_the_others_stay() {
        let once = with_section("# P\n\n## Other\n\ntext\n", "one\n");
        assert!(once.starts_with("# P\n\n## Other\n\ntext\n\n## Recording and replay\n\n"), "{once}");
        let twice = with_section(&once, "two\n");
        assert_eq!(twice, once.replace("one\n", "two\n"));
    }
}
