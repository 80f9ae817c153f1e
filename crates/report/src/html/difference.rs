//! Expected and found output side by side, around the first difference.
//!
//! Guarantees: the first difference is marked, and every byte of the shown part can be told from every other: what cannot
//! be printed is written in hexadecimal. May miss: output far away from the difference is left out, and its size said.

use super::escape::Escaped;
use crate::Difference;
use crate::words::{acts, count};
use std::fmt::Write;
use std::ops::Range;

/// Lines before and behind the one with the difference.
const LINES_BEFORE: usize = 3;
const LINES_AFTER: usize = 5;
/// Bytes before and behind the difference, however long lines are.
const BYTES_BEFORE: usize = 300;
const BYTES_AFTER: usize = 600;

/// The section, with its heading.
pub fn section(difference: &Difference) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "<section class=\"difference\"><h2>What is wrong with {}</h2>", Escaped(&difference.stream));
    let _ = writeln!(out, "<p>{}</p><div class=\"pair\">", position(difference));
    side(&mut out, "expected", &difference.expected, difference.offset);
    side(&mut out, "found", &difference.found, difference.offset);
    out.push_str("</div></section>\n");
    out
}

fn position(difference: &Difference) -> String {
    let same = &difference.expected[..difference.offset.min(difference.expected.len())];
    let line = same.iter().filter(|b| **b == b'\n').count() + 1;
    let column = same.iter().rev().take_while(|b| **b != b'\n').count() + 1;
    format!("The first difference is at byte {} (line {line}, column {column}).", difference.offset)
}

fn side(out: &mut String, name: &str, bytes: &[u8], offset: usize) {
    let offset = offset.min(bytes.len());
    let part = shown(bytes, offset);
    let _ = write!(out, "<figure><figcaption>{name}</figcaption><pre class=\"bytes\" tabindex=\"0\">");
    left_out(out, part.start, "before");
    let at = character(bytes, offset);
    text(out, &bytes[part.start..at.start]);
    let _ = write!(out, "<mark class=\"{name}\">");
    match at.is_empty() {
        true => out.push_str("<span class=\"code\">end of output</span>"),
        false => text(out, &bytes[at.clone()]),
    }
    out.push_str("</mark>");
    text(out, &bytes[at.end..part.end.max(at.end)]);
    left_out(out, bytes.len() - part.end.max(at.end), "more");
    out.push_str("</pre></figure>\n");
}

fn left_out(out: &mut String, bytes: usize, what: &str) {
    if bytes > 0 {
        let _ = write!(out, "<span class=\"elided\">… {} {what} …</span>", count(bytes as u64, "byte"));
        if what == "before" {
            out.push('\n');
        }
    }
}

/// The part around `offset` that is shown: whole lines, as far as they are not too long.
fn shown(bytes: &[u8], offset: usize) -> Range<usize> {
    let earliest = offset.saturating_sub(BYTES_BEFORE);
    let breaks = bytes[earliest..offset].iter().enumerate().rev().filter(|(_, b)| **b == b'\n');
    let start = match breaks.map(|(n, _)| earliest + n + 1).nth(LINES_BEFORE) {
        Some(start) => start,
        None if earliest == 0 => 0,
        None => boundary(bytes, earliest),
    };
    let latest = bytes.len().min(offset + BYTES_AFTER);
    let breaks = bytes[offset..latest].iter().enumerate().filter(|(_, b)| **b == b'\n');
    let end = breaks.map(|(n, _)| offset + n + 1).nth(LINES_AFTER).unwrap_or_else(|| boundary(bytes, latest));
    start.min(offset)..end.max(offset)
}

/// The next place that is not inside a character.
fn boundary(bytes: &[u8], from: usize) -> usize {
    let continues = |n: &usize| bytes.get(*n).is_some_and(|b| b & 0xc0 == 0x80);
    (from..from + 4).find(|n| !continues(n)).unwrap_or(from).min(bytes.len())
}

/// The character around the byte at `offset`, or that byte; empty at the end.
fn character(bytes: &[u8], offset: usize) -> Range<usize> {
    let is_char = |r: &Range<usize>| {
        bytes.get(r.clone()).is_some_and(|b| std::str::from_utf8(b).is_ok_and(|s| s.chars().count() == 1))
    };
    let starts = (offset.saturating_sub(3)..=offset).rev();
    let mut ranges = starts.flat_map(|start| (1..=4).map(move |len| start..start + len));
    let around = ranges.find(|r| r.contains(&offset) && is_char(r));
    around.unwrap_or(offset..bytes.len().min(offset + 1))
}

/// Bytes as text: line ends are shown, what cannot be printed is in hexadecimal.
fn text(out: &mut String, bytes: &[u8]) {
    let mut codes = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => {
                    flush(out, &mut codes);
                    out.push_str("<span class=\"end\">↵</span>\n");
                }
                c if acts(c) => {
                    let mut buffer = [0; 4];
                    c.encode_utf8(&mut buffer).bytes().for_each(|b| code(&mut codes, b));
                }
                c => {
                    flush(out, &mut codes);
                    let _ = write!(out, "{}", Escaped(c.encode_utf8(&mut [0; 4])));
                }
            }
        }
        chunk.invalid().iter().for_each(|b| code(&mut codes, *b));
    }
    flush(out, &mut codes);
}

fn code(codes: &mut String, byte: u8) {
    let _ = write!(codes, "\\x{byte:02x}");
}

/// Writes codes that were gathered: neighbours share one element.
fn flush(out: &mut String, codes: &mut String) {
    if !codes.is_empty() {
        let _ = write!(out, "<span class=\"code\">{codes}</span>");
        codes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is between `<pre …>` and `</pre>` of each side.
    fn sides(expected: &[u8], found: &[u8], offset: usize) -> Vec<String> {
        let difference = Difference { stream: "x".into(), expected: expected.into(), found: found.into(), offset };
        let html = section(&difference);
        let pre = html.split("tabindex=\"0\">").skip(1);
        pre.map(|p| p.split("</pre>").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn the_first_difference_is_marked() {
        let end = "<span class=\"end\">↵</span>\n";
        let ends = "<span class=\"code\">end of output</span>";
        for (expected, found, offset, on_left, on_right) in [
            (
                &b"10\n"[..],
                &b"11\n"[..],
                1,
                format!("1<mark class=\"expected\">0</mark>{end}"),
                format!("1<mark class=\"found\">1</mark>{end}"),
            ),
            (
                b"a\nb\n",
                b"a\n",
                2,
                format!("a{end}<mark class=\"expected\">b</mark>{end}"),
                format!("a{end}<mark class=\"found\">{ends}</mark>"),
            ),
            (
                b"<b>",
                b"\x1b[1",
                0,
                "<mark class=\"expected\">&lt;</mark>b&gt;".to_owned(),
                "<mark class=\"found\"><span class=\"code\">\\x1b</span></mark>[1".to_owned(),
            ),
            // The wrong byte is the second one of a character.
            (
                "é".as_bytes(),
                "è".as_bytes(),
                1,
                "<mark class=\"expected\">é</mark>".to_owned(),
                "<mark class=\"found\">è</mark>".to_owned(),
            ),
            // Output may begin with what looks like the rest of a character.
            (
                b"\x89P",
                b"\x89Q",
                1,
                "<span class=\"code\">\\x89</span><mark class=\"expected\">P</mark>".to_owned(),
                "<span class=\"code\">\\x89</span><mark class=\"found\">Q</mark>".to_owned(),
            ),
            (
                b"",
                b"\xff\0z",
                0,
                format!("<mark class=\"expected\">{ends}</mark>"),
                "<mark class=\"found\"><span class=\"code\">\\xff</span></mark><span class=\"code\">\\x00</span>z"
                    .to_owned(),
            ),
        ] {
            assert_eq!(sides(expected, found, offset), [on_left, on_right], "{expected:?} {found:?}");
        }
    }

    #[test]
    fn long_output_is_cut_on_both_sides() {
        let mut expected: Vec<u8> = (0..10_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let found = expected.clone();
        let offset = found.len() / 2;
        expected[offset] = b'!';
        for side in sides(&expected, &found, offset) {
            assert!(side.len() < 2_000, "{}", side.len());
            assert!(side.contains("bytes before …") && side.contains("bytes more …"), "{side}");
        }
    }

    #[test]
    fn any_bytes_and_offsets_are_shown() {
        let bytes: Vec<u8> = (0..=255).chain("ä€😀".bytes()).chain([0xf0, 0x9f]).collect();
        for offset in 0..bytes.len() + 5 {
            for part in [&bytes[..], &bytes[..bytes.len().min(offset)], &[]] {
                sides(part, &bytes, offset);
            }
        }
    }

    #[test]
    fn places_are_told_by_line_and_column() {
        let difference = Difference { expected: b"ab\ncd\n".to_vec(), offset: 4, ..Difference::default() };
        assert_eq!(position(&difference), "The first difference is at byte 4 (line 2, column 2).");
    }
}
