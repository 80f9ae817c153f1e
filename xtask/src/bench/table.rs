//! The table of ratios: as text while measuring, as Markdown between markers in docs/performance.md.

use std::{fmt::Write as _, fs, path::Path, time::Duration};

use super::{COLUMNS, Column, Row};

const BEGIN: &str = "<!-- bench engine: written by `cargo xtask bench engine --publish` -->";
const END: &str = "<!-- end of bench engine -->";

/// Goals of the engine for the geometric mean over the CPU-bound rows.
const GOALS: &[(Column, f64)] = &[
    (Column::None, 1.25),
    (Column::Tick, 1.5),
    (Column::Count, 1.6),
    (Column::TraceDropped, 3.0),
    (Column::TraceConsumed, 8.0),
];

/// One row for the terminal.
pub fn line(row: &Row) -> String {
    let mut out = format!("{:14}", row.workload.name);
    for (column, best) in COLUMNS.iter().zip(&row.best) {
        let cell = match (column, best) {
            (Column::Native, Ok(time)) => format!("{:.3} s", time.as_secs_f64()),
            (_, Ok(_)) => ratio(row, *column).map_or("-".to_owned(), |r| format!("x{r:.2}")),
            (_, Err(why)) if why.is_empty() => "-".to_owned(),
            (_, Err(_)) => "failed".to_owned(),
        };
        let _ = write!(out, "  {} {cell}", column.title());
    }
    out
}

fn time(row: &Row, column: Column) -> Option<Duration> {
    let i = COLUMNS.iter().position(|c| *c == column)?;
    row.best[i].as_ref().ok().copied()
}

/// Time in `column` over the native time.
pub fn ratio(row: &Row, column: Column) -> Option<f64> {
    Some(time(row, column)?.as_secs_f64() / time(row, Column::Native)?.as_secs_f64())
}

/// Geometric mean over the CPU-bound rows; none if one of them has no figure.
pub fn mean(rows: &[Row], column: Column) -> Option<f64> {
    geometric_mean(rows.iter().filter(|r| r.workload.cpu_bound).map(|r| ratio(r, column)))
}

/// The mean of ratios; none if there are none or one is missing.
pub fn geometric_mean(ratios: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let logs: Option<Vec<f64>> = ratios.map(|r| r.map(f64::ln)).collect();
    let logs = logs.filter(|l| !l.is_empty())?;
    Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// The whole table, with means and goals.
pub fn markdown(rows: &[Row], machine: &str) -> String {
    let mut out = format!("{machine}\n\n| workload | guest instructions |");
    for column in COLUMNS {
        let _ = write!(out, " {} |", column.title());
    }
    out.push_str("\n|---|---|---|---|---|---|---|---|---|---|\n");
    for row in rows {
        let count =
            row.instructions.filter(|n| *n > 0).map_or("–".to_owned(), |n| format!("{:.2} G", n as f64 / 1e9));
        let _ = write!(out, "| {} | {count} |", row.workload.name);
        for column in COLUMNS {
            let cell = match column {
                Column::Native => time(row, column).map(|t| format!("{:.3} s", t.as_secs_f64())),
                _ => ratio(row, column).map(|r| format!("{r:.2}")),
            };
            let _ = write!(out, " {} |", cell.unwrap_or("–".to_owned()));
        }
        out.push('\n');
    }
    out.push_str("| **geometric mean, CPU-bound rows** | | |");
    for column in &COLUMNS[1..] {
        let _ = write!(out, " {} |", mean(rows, *column).map_or("–".to_owned(), |m| format!("**{m:.2}**")));
    }
    out.push_str("\n| goal | | |");
    for column in &COLUMNS[1..] {
        let goal = GOALS.iter().find(|(c, _)| c == column);
        let _ = write!(out, " {} |", goal.map_or(String::new(), |(_, g)| format!("≤ {g}")));
    }
    if let Some(hello) = rows.iter().find(|r| r.workload.name == "hello")
        && let (Some(native), Some(none)) = (time(hello, Column::Native), time(hello, Column::None))
    {
        let more = (none.as_secs_f64() - native.as_secs_f64()) * 1e3;
        let _ = write!(out, "\n\n`hello` in mode none takes {more:.1} ms more than natively (goal: at most 10 ms).");
    }
    out + "\n"
}

/// Writes the table into the document, between its markers.
pub fn publish(rows: &[Row], machine: &str, document: &Path) -> Result<(), String> {
    let text = fs::read_to_string(document).map_err(|e| format!("{}: {e}", document.display()))?;
    let new = replace_between(&text, BEGIN, END, &markdown(rows, machine))
        .ok_or(format!("{}: no markers", document.display()))?;
    fs::write(document, new).map_err(|e| format!("{}: {e}", document.display()))
}

/// The text with another table between two markers.
pub fn replace_between(text: &str, begin: &str, end: &str, table: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{table}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Workload;

    fn row(name: &str, cpu_bound: bool, none: u64) -> Row {
        let workload = Workload { name: name.into(), argv: Vec::new(), stdin: None, cpu_bound };
        let mut best = vec![Err(String::new()); COLUMNS.len()];
        best[0] = Ok(Duration::from_millis(100));
        best[1] = Ok(Duration::from_millis(none));
        Row { workload, instructions: None, best }
    }

    #[test]
    fn the_mean_is_geometric_and_over_cpu_bound_rows() {
        let rows = [row("a", true, 100), row("b", true, 400), row("hello", false, 9000)];
        assert!((mean(&rows, Column::None).unwrap() - 2.0).abs() < 1e-9);
        assert_eq!(mean(&rows, Column::Tick), None);
    }

    #[test]
    fn only_the_text_between_the_markers_changes() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(replace_between(&text, BEGIN, END, "new\n").unwrap(), format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
    }
}
