//! Sources with line numbers: the slice highlighted, causes marked, what is far from both folded or left out.
//!
//! Guarantees: every line that is a cause, a step of a path or in the slice is there, also where its file is not at hand (then
//! with the text that its place has, or none). What is left out is said. May miss: lines of another version of the file are
//! shown as they stand in the file that was given.

use super::escape::Escaped;
use crate::words::count;
use crate::{Place, Report, Source};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Lines shown on both sides of one that matters.
const AROUND: u32 = 8;
/// The same for lines of the slice alone in a file with more than [`MANY`] lines that matter, which would fill the page.
const AROUND_ONE_OF_MANY: u32 = 2;
const MANY: usize = 400;
/// In files up to this long what lies between is folded; in longer ones it is left out.
const FOLDED_UP_TO: usize = 1500;
/// Characters of a line; generated sources have lines of any length.
const LONGEST_LINE: usize = 400;
/// Files that only the slice is in are open if there are no more than these.
const OPEN_FILES: usize = 12;
/// Distances from the failure up to which a line of the slice has one shade.
const SHADES: [u32; 4] = [2, 6, 16, 48];

/// Files in the order in which the answer names them, with what matters in each.
#[derive(Debug)]
pub struct Sources<'a> {
    files: Vec<File<'a>>,
    by_key: HashMap<&'a str, usize>,
}

#[derive(Debug)]
struct File<'a> {
    /// As short as it is clear.
    name: &'a str,
    key: &'a str,
    source: Option<&'a Source>,
    marks: BTreeMap<u32, Mark<'a>>,
}

/// Why a line matters.
#[derive(Debug, Default)]
struct Mark<'a> {
    text: Option<&'a str>,
    /// Ranks of the causes in this line.
    causes: Vec<usize>,
    on_path: bool,
    slice: Option<InSlice>,
}

#[derive(Clone, Copy, Debug)]
struct InSlice {
    distance: u32,
    instances: u64,
    executed: u64,
}

impl<'a> Sources<'a> {
    pub fn of(report: &'a Report) -> Sources<'a> {
        let given: HashMap<&str, &Source> = report.sources.iter().map(|s| (s.path.as_str(), s)).collect();
        let mut all = Sources { files: Vec::new(), by_key: HashMap::new() };
        for (n, cause) in report.causes.iter().enumerate() {
            all.note(&cause.place, &given, |mark| mark.causes.push(n + 1));
        }
        for step in report.causes.iter().flat_map(|c| &c.path) {
            all.note(&step.place, &given, |mark| mark.on_path = true);
        }
        for line in &report.slice {
            let found = InSlice { distance: line.distance, instances: line.instances, executed: line.executed };
            all.note(&line.place, &given, |mark| {
                if mark.slice.is_none_or(|known| found.distance < known.distance) {
                    mark.slice = Some(found);
                }
            });
        }
        all
    }

    fn note(&mut self, place: &'a Place, given: &HashMap<&str, &'a Source>, note: impl FnOnce(&mut Mark<'a>)) {
        let (Some(key), Some(line)) = (place.file_key(), place.line.filter(|line| *line > 0)) else { return };
        let index = *self.by_key.entry(key).or_insert_with(|| {
            let name = place.file.as_deref().unwrap_or(key);
            self.files.push(File { name, key, source: given.get(key).copied(), marks: BTreeMap::new() });
            self.files.len() - 1
        });
        let mark = self.files[index].marks.entry(line).or_default();
        mark.text = mark.text.or(place.source.as_deref());
        note(mark);
    }

    /// The name of a line in the page.
    pub fn anchor(&self, place: &Place) -> Option<String> {
        let file = self.by_key.get(place.file_key()?)?;
        let line = place.line.filter(|line| self.files[*file].marks.contains_key(line))?;
        Some(anchor(*file, line))
    }

    /// The section, with its heading; nothing if no source is named.
    pub fn section(&self) -> String {
        let mut out = String::new();
        if self.files.is_empty() {
            return out;
        }
        out.push_str("<section class=\"sources\" aria-label=\"Sources\"><h2>Sources</h2>\n");
        out.push_str(LEGEND);
        for (n, file) in self.files.iter().enumerate() {
            let is_named = file.marks.values().any(|m| m.on_path || !m.causes.is_empty());
            file.write(&mut out, n, is_named || self.files.len() <= OPEN_FILES);
        }
        out.push_str("</section>\n");
        out
    }
}

const LEGEND: &str = "<p class=\"legend\"><span class=\"cause\">cause</span> \
    <span class=\"d0\">near the failure</span><span class=\"d1\">&nbsp;</span><span class=\"d2\">&nbsp;</span>\
    <span class=\"d3\">&nbsp;</span><span class=\"d4\">far</span> the failure depends on these lines</p>\n";

fn anchor(file: usize, line: u32) -> String {
    format!("f{file}-{line}")
}

/// Lines one behind the other, near something that matters or not.
#[derive(Debug, PartialEq, Eq)]
struct Stretch {
    first: u32,
    last: u32,
    is_near: bool,
}

impl File<'_> {
    fn write(&self, out: &mut String, index: usize, is_open: bool) {
        let open = if is_open { " open" } else { "" };
        let mut facts: Vec<String> = Vec::new();
        match self.marks.values().filter(|m| m.slice.is_some()).count() {
            0 => {}
            n => facts.push(format!("{} of the slice", count(n as u64, "line"))),
        }
        if self.source.is_none() {
            facts.push("the file is not at hand".to_owned());
        }
        let _ = writeln!(
            out,
            "<details class=\"file\"{open}><summary title=\"{}\"><b>{}</b> <small>{}</small></summary><div class=\"code\">",
            Escaped(self.key),
            Escaped(self.name),
            facts.join(", "),
        );
        for stretch in self.stretches() {
            if stretch.is_near {
                self.rows(out, index, &stretch);
                continue;
            }
            let size = count(u64::from(stretch.last - stretch.first + 1), "line");
            if self.length() <= FOLDED_UP_TO && self.source.is_some() {
                let _ = writeln!(out, "<details class=\"gap\"><summary>{size}</summary>");
                self.rows(out, index, &stretch);
                out.push_str("</details>\n");
            } else {
                let _ = writeln!(out, "<div class=\"gap\">{size} left out</div>");
            }
        }
        out.push_str("</div></details>\n");
    }

    fn length(&self) -> usize {
        self.source.map_or(0, |s| s.lines.len())
    }

    /// The whole file, in stretches that are near lines that matter and stretches that are not.
    fn stretches(&self) -> Vec<Stretch> {
        let length = u32::try_from(self.length()).unwrap_or(u32::MAX);
        let mut windows: Vec<(u32, u32)> = self.marks.iter().map(|(line, mark)| self.window(*line, mark)).collect();
        windows.sort_unstable();
        let mut all: Vec<Stretch> = Vec::new();
        let mut next = 1;
        for (first, last) in windows {
            match all.last_mut() {
                // A gap of two lines is no shorter than what says that it is there.
                Some(near) if first <= near.last.saturating_add(3) => near.last = near.last.max(last),
                _ => {
                    if next < first {
                        all.push(Stretch { first: next, last: first - 1, is_near: false });
                    }
                    all.push(Stretch { first, last, is_near: true });
                }
            }
            next = next.max(last.saturating_add(1));
        }
        if next <= length {
            all.push(Stretch { first: next, last: length, is_near: false });
        }
        all
    }

    /// The first and last line that are shown for one that matters.
    fn window(&self, line: u32, mark: &Mark<'_>) -> (u32, u32) {
        let is_named = mark.on_path || !mark.causes.is_empty();
        let around = match self.source {
            None => 0,
            Some(_) if is_named || self.marks.len() <= MANY => AROUND,
            Some(_) => AROUND_ONE_OF_MANY,
        };
        // A line behind the end comes from another version of the file.
        let end = u32::try_from(self.length()).unwrap_or(u32::MAX).max(line);
        (line.saturating_sub(around).max(1), line.saturating_add(around).min(end))
    }

    fn rows(&self, out: &mut String, index: usize, stretch: &Stretch) {
        for line in stretch.first..=stretch.last {
            let mark = self.marks.get(&line);
            let given = self.source.and_then(|s| s.lines.get(line as usize - 1)).map(String::as_str);
            if let Some(text) = given.or_else(|| mark.and_then(|m| m.text)).or(mark.map(|_| "")) {
                row(out, index, line, text, mark);
            }
        }
    }
}

fn row(out: &mut String, file: usize, line: u32, text: &str, mark: Option<&Mark<'_>>) {
    let Some(mark) = mark else {
        let _ = writeln!(out, "<div class=\"row\"><i>{line}</i><s></s><code>{}</code></div>", Cut(text));
        return;
    };
    let mut classes = String::from("row");
    if !mark.causes.is_empty() {
        classes.push_str(" cause");
    }
    let mut title = String::new();
    if let Some(found) = mark.slice {
        let _ = write!(classes, " d{}", shade(found.distance));
        let _ = write!(
            title,
            " title=\"{} from the failure; {} of {} matter\"",
            count(found.distance.into(), "dependence"),
            found.instances,
            count(found.executed, "execution"),
        );
    }
    let _ = write!(out, "<div class=\"{classes}\" id=\"{}\"{title}><i>{line}</i><s>", anchor(file, line));
    for rank in &mark.causes {
        let _ = write!(out, "<a href=\"#cause-{rank}\" title=\"cause {rank}\">{rank}</a>");
    }
    let _ = writeln!(out, "</s><code>{}</code></div>", Cut(text));
}

fn shade(distance: u32) -> usize {
    SHADES.iter().position(|most| distance <= *most).unwrap_or(SHADES.len())
}

/// A line of source, escaped, and cut if it is very long.
struct Cut<'a>(&'a str);

impl std::fmt::Display for Cut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.0.trim_end();
        match text.char_indices().nth(LONGEST_LINE) {
            Some((end, _)) => write!(f, "{}<span class=\"elided\">… line cut</span>", Escaped(&text[..end])),
            None => write!(f, "{}", Escaped(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SliceLine;

    fn place(line: u32) -> Place {
        Place { full: Some("/a.c".into()), file: Some("a.c".into()), line: Some(line), ..Place::default() }
    }

    fn report(length: u32, slice: &[u32]) -> Report {
        let line = |line: &u32| SliceLine { place: place(*line), distance: *line, ..SliceLine::default() };
        let lines = (1..=length).map(|n| format!("text {n};")).collect();
        Report {
            slice: slice.iter().map(line).collect(),
            sources: vec![Source { path: "/a.c".into(), lines }],
            ..Report::default()
        }
    }

    #[test]
    fn lines_near_what_matters_are_open() {
        let near = |first, last| Stretch { first, last, is_near: true };
        let far = |first, last| Stretch { first, last, is_near: false };
        for (length, slice, expected) in [
            (5, &[3][..], vec![near(1, 5)]),
            (100, &[50], vec![far(1, 41), near(42, 58), far(59, 100)]),
            (100, &[20, 30], vec![far(1, 11), near(12, 38), far(39, 100)]),
            // Two lines between are not worth a fold.
            (100, &[20, 39], vec![far(1, 11), near(12, 47), far(48, 100)]),
            (100, &[20, 40], vec![far(1, 11), near(12, 28), far(29, 31), near(32, 48), far(49, 100)]),
            (10, &[1, 99], vec![near(1, 9), far(10, 90), near(91, 99)]),
        ] {
            let report = report(length, slice);
            assert_eq!(Sources::of(&report).files[0].stretches(), expected, "{slice:?}");
        }
    }

    #[test]
    fn long_files_are_left_out_elsewhere() {
        let report = report(240_000, &[120_000]);
        let html = Sources::of(&report).section();
        assert!(html.contains("<div class=\"gap\">119991 lines left out</div>"), "{html}");
        assert!(html.contains("text 120000;") && !html.contains("text 100;"));
        assert!(html.len() < 5_000, "{}", html.len());
    }

    #[test]
    fn large_slices_do_not_fill_the_page() {
        let lines: Vec<u32> = (1..=5_000).map(|n| n * 40).collect();
        let mut report = report(240_000, &lines);
        let cause = report.slice[9].place.clone();
        let step = crate::Step { place: cause.clone(), by: String::new() };
        report.causes = vec![crate::Cause {
            place: cause,
            kind: crate::Kind::Dependence,
            proved: false,
            instance: None,
            explanation: String::new(),
            distance: None,
            doubt: None,
            evidence: None,
            path: vec![step],
            closer: String::new(),
        }];
        let html = Sources::of(&report).section();
        let has = |n: u32| html.contains(&format!("text {n};"));
        assert!([392, 408, 40, 38, 199_998].into_iter().all(has), "lines that matter, and those around");
        assert!(![391, 409, 37, 199_997].into_iter().any(has), "no others");
        assert!(html.len() < 3_000_000, "{}", html.len());
    }

    #[test]
    fn short_files_are_whole_but_folded() {
        let report = report(100, &[50]);
        let html = Sources::of(&report).section();
        assert!(html.contains("<details class=\"gap\"><summary>41 lines</summary>"), "{html}");
        assert!(html.contains("text 1;") && html.contains("text 100;"));
    }

    #[test]
    fn shades_follow_the_distance() {
        let all: Vec<usize> = [0, 2, 3, 6, 7, 16, 17, 48, 49, u32::MAX].into_iter().map(shade).collect();
        assert_eq!(all, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
    }

    #[test]
    fn lines_without_their_file_are_still_there() {
        let mut report = report(0, &[7, u32::MAX]);
        report.sources.clear();
        report.slice[0].place.source = Some("x = y < z;".into());
        let all = Sources::of(&report);
        assert_eq!(all.anchor(&place(7)).as_deref(), Some("f0-7"));
        assert_eq!(all.anchor(&place(8)), None);
        let html = all.section();
        assert!(html.contains("x = y &lt; z;") && html.contains("the file is not at hand"), "{html}");
        assert!(html.contains("4294967287 lines left out"), "{html}");
    }

    #[test]
    fn endless_lines_are_cut() {
        assert_eq!(Cut(&"x".repeat(LONGEST_LINE)).to_string().len(), LONGEST_LINE);
        let cut = Cut(&"ü<".repeat(100_000)).to_string();
        assert!(cut.ends_with("… line cut</span>") && cut.len() < 3_000, "{}", cut.len());
    }
}
