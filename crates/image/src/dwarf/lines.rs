//! The line table of one unit: addresses to file and line, and back.
//!
//! Rows are kept as the program states them. Of several rows for one address the last counts for lookups, as in other
//! debuggers; the others are still found by line.
//! A damaged program keeps the sequences that were complete before the damage.
//! Source: DWARF 5, section 6.2.

use super::meter::{Meter, Metered};
use crate::range_map::RangeMap;
use gimli::{FileEntry, LineProgramHeader, UnitRef};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Longer paths cannot be opened, so there is no use in building them.
const MAX_PATH: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// By the file numbers of the unit; empty where there is no such file.
    pub files: Vec<PathBuf>,
    /// The folder in which the compiler ran.
    pub folder: Option<PathBuf>,
    rows: Vec<Row>,
    sequences: Vec<Sequence>,
    by_address: RangeMap,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub address: u64,
    pub file: u32,
    /// 0 for code that belongs to no line.
    pub line: u32,
    pub column: u32,
    pub statement: bool,
}

/// Rows of adjoining code.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    first: u32,
    last: u32,
    end: u64,
}

/// Adjoining addresses of one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub begin: u64,
    pub end: u64,
    pub file: u32,
    pub line: u32,
    pub statement: bool,
}

impl Lines {
    pub fn load(unit: UnitRef<'_, Metered<'_>>, meter: &Meter) -> Option<Lines> {
        let program = unit.line_program.clone()?;
        let mut lines = Lines { folder: folder(unit), ..Lines::default() };
        let mut rows = program.rows();
        let mut first = 0;
        while let Ok(Some((_, row))) = rows.next_row() {
            if row.end_sequence() {
                lines.close(first, row.address());
                first = lines.rows.len();
                continue;
            }
            lines.rows.push(Row {
                address: row.address(),
                file: u32::try_from(row.file_index()).unwrap_or(u32::MAX),
                line: row.line().and_then(|l| u32::try_from(l.get()).ok()).unwrap_or(0),
                column: match row.column() {
                    gimli::ColumnType::LeftEdge => 0,
                    gimli::ColumnType::Column(c) => u32::try_from(c.get()).unwrap_or(0),
                },
                statement: row.is_stmt(),
            });
        }
        lines.rows.truncate(first);
        lines.files = files(unit, rows.header(), meter);
        let ranges =
            lines.sequences.iter().enumerate().map(|(i, s)| (lines.rows[s.first as usize].address, s.end, i as u32));
        lines.by_address = RangeMap::new(ranges);
        Some(lines)
    }

    /// Ends the sequence that began with row `first`, or drops it when it covers nothing.
    fn close(&mut self, first: usize, end: u64) {
        let begin = self.rows.get(first).map_or(0, |r| r.address);
        let fits = u32::try_from(self.rows.len()).is_ok();
        if begin == 0 || begin >= end || !fits {
            self.rows.truncate(first);
            return;
        }
        self.sequences.push(Sequence { first: first as u32, last: self.rows.len() as u32, end });
    }

    pub fn at(&self, at: u64) -> Option<&Row> {
        self.by_address.at(at).find_map(|range| {
            let rows = self.rows_of(&self.sequences[range.value as usize]);
            rows[..rows.partition_point(|r| r.address <= at)].last()
        })
    }

    /// The rows of each sequence and where it ends.
    pub fn sequences(&self) -> impl Iterator<Item = (&[Row], u64)> {
        self.sequences.iter().map(|s| (self.rows_of(s), s.end))
    }

    pub fn file(&self, number: u64) -> Option<&PathBuf> {
        self.files.get(usize::try_from(number).ok()?).filter(|p| !p.as_os_str().is_empty())
    }

    /// The code of the first line from `line` on that has any, in the files that `wanted` accepts.
    pub fn spans(&self, wanted: impl Fn(&PathBuf) -> bool, line: u32) -> Vec<Span> {
        let wanted: Vec<bool> = self.files.iter().map(wanted).collect();
        let is_wanted = |r: &&Row| wanted.get(r.file as usize) == Some(&true) && r.line >= line.max(1);
        let Some(line) = self.rows.iter().filter(is_wanted).map(|r| r.line).min() else { return Vec::new() };
        let mut spans: Vec<Span> = Vec::new();
        for sequence in &self.sequences {
            let rows = self.rows_of(sequence);
            for (i, row) in rows.iter().enumerate().filter(|(_, r)| is_wanted(r) && r.line == line) {
                let begin = row.address;
                let end = rows.get(i + 1).map_or(sequence.end, |next| next.address).max(begin);
                match spans.last_mut() {
                    Some(last) if last.end == begin && last.file == row.file => last.end = end,
                    _ => spans.push(Span { begin, end, file: row.file, line, statement: row.statement }),
                }
            }
        }
        // A row that the next one overrides covers nothing; it counts only when there is no better one.
        if spans.iter().any(|s| s.begin < s.end) {
            spans.retain(|s| s.begin < s.end);
        }
        spans
    }

    fn rows_of(&self, s: &Sequence) -> &[Row] {
        &self.rows[s.first as usize..s.last as usize]
    }
}

fn folder(unit: UnitRef<'_, Metered<'_>>) -> Option<PathBuf> {
    let bytes = unit.comp_dir?.rest();
    (bytes.len() <= MAX_PATH).then(|| PathBuf::from(OsStr::from_bytes(bytes)))
}

/// The paths of all files that `header` lists.
pub(crate) fn files<'a>(
    unit: UnitRef<'_, Metered<'a>>,
    header: &LineProgramHeader<Metered<'a>>,
    meter: &Meter,
) -> Vec<PathBuf> {
    let mut files = Vec::new();
    loop {
        let path = match header.file(files.len() as u64) {
            Some(file) => path(unit, header, file).unwrap_or_default(),
            // Before DWARF 5 numbers begin with 1.
            None if files.is_empty() => PathBuf::new(),
            None => break,
        };
        if meter.charge(path.as_os_str().len() as u64).is_err() {
            break;
        }
        files.push(path);
    }
    files
}

/// `folder/directory/name`, each absolute part replacing what stands before it.
fn path<'a>(
    unit: UnitRef<'_, Metered<'a>>,
    header: &LineProgramHeader<Metered<'a>>,
    file: &FileEntry<Metered<'a>>,
) -> Option<PathBuf> {
    let mut path = folder(unit).unwrap_or_default();
    // Directory 0 is the folder itself.
    let directory = file.directory(header).filter(|_| file.directory_index() != 0);
    for part in directory.into_iter().chain([file.path_name()]) {
        let bytes = unit.attr_string(part).ok()?.rest();
        if path.as_os_str().len() + bytes.len() >= MAX_PATH {
            return None;
        }
        path.push(OsStr::from_bytes(bytes));
    }
    Some(path)
}
