//! The lines of a whole image in one table, for those who ask about millions of addresses.
//!
//! Rows are sorted and do not overlap, so a lookup is one binary search, without allocation; files are numbered across
//! units. What `Image::locate` says of file, line and column is the same: of several rows for one address the last counts.
//! May miss: where two units claim the same code (which linkers avoid), the one that starts later counts.

use crate::address::ImageOffset;
use crate::dwarf::DebugInfo;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// The code of one row: adjoining addresses with the same file, line and column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineRow {
    pub start: ImageOffset,
    pub end: ImageOffset,
    /// A number for [`LineTable::file`].
    pub file: u32,
    /// 0 for code that belongs to no line.
    pub line: u32,
    /// 0 where it is not known.
    pub column: u32,
    /// Does the compiler recommend to stop at the start?
    pub statement: bool,
}

/// All lines of an image.
#[derive(Clone, Debug, Default)]
pub struct LineTable {
    rows: Vec<LineRow>,
    files: Vec<PathBuf>,
}

impl LineTable {
    pub(crate) fn load(debug: &DebugInfo) -> LineTable {
        let mut table = LineTable::default();
        let mut numbers: HashMap<PathBuf, u32> = HashMap::new();
        let mut of_unit: (usize, Vec<u32>) = (usize::MAX, Vec::new());
        for rows in debug.all_rows() {
            if of_unit.0 != rows.unit {
                let number = |file: &PathBuf| {
                    let next = table.files.len() as u32;
                    *numbers.entry(crate::image::tidy(file)).or_insert_with_key(|file| {
                        table.files.push(file.clone());
                        next
                    })
                };
                of_unit = (rows.unit, rows.files.iter().map(number).collect());
            }
            for (i, row) in rows.rows.iter().enumerate() {
                let end = rows.rows.get(i + 1).map_or(rows.end, |next| next.address);
                if row.address < end {
                    table.rows.push(LineRow {
                        start: ImageOffset(row.address),
                        end: ImageOffset(end),
                        file: of_unit.1.get(row.file as usize).copied().unwrap_or(u32::MAX),
                        line: row.line,
                        column: row.column,
                        statement: row.statement,
                    });
                }
            }
        }
        table.rows.sort_by_key(|r| r.start);
        table.rows.dedup_by_key(|r| r.start);
        for i in 1..table.rows.len() {
            let next = table.rows[i].start;
            let row = &mut table.rows[i - 1];
            row.end = row.end.min(next);
        }
        table
    }

    /// By address, without overlaps.
    pub fn rows(&self) -> &[LineRow] {
        &self.rows
    }

    /// The row that holds `at`.
    pub fn at(&self, at: ImageOffset) -> Option<&LineRow> {
        self.rows[..self.rows.partition_point(|r| r.start <= at)].last().filter(|r| at < r.end)
    }

    /// The full path of a row's file; `None` when the compiler did not say.
    pub fn file(&self, row: &LineRow) -> Option<&Path> {
        self.files.get(row.file as usize).map(PathBuf::as_path).filter(|f| !f.as_os_str().is_empty())
    }

    /// All files that rows may name, by their numbers.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }
}
