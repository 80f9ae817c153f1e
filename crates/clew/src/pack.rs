//! `clew pack`: one portable file of a recording, with debug information and sources.
//!
//! Added are, for every program and library that was kept, its separate debug files (as `debug/.build-id/…`, so that the
//! folder `extra/debug` is a place to look for debug files) and the sources that debug information names and this machine
//! has (as `sources/<full path>`).
//!
//! Guarantees: a program chooses which paths its debug information names, so only files that are named like sources are
//! taken. All added files together have at most 256 MB.
//! May miss: sources that were changed since the program was built are taken as they are; they are counted and told.

use crate::cli::{Color, Pack as Options};
use crate::message::{self, Messages, Paint};
use crate::startup::Startup;
use crate::{home, show, status};
use image::Image;
use recording::{ErrorKind, PackEntry, PackSummary, Recording};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// What is added to a recording may have this many bytes.
const CAP: u64 = 256 << 20;
/// A longer file is no source that anybody reads.
const LONGEST_SOURCE: u64 = 16 << 20;
/// How files with sources are called. The headers of the C++ library have no ending; see [`is_source`].
const SOURCES: &[&str] = &[
    "adb", "ads", "asm", "c", "c++", "cc", "cpp", "cu", "cxx", "d", "def", "f", "f03", "f08", "f90", "f95", "for",
    "go", "h", "h++", "hh", "hpp", "hxx", "inc", "inl", "ipp", "l", "ll", "m", "ml", "mm", "nim", "pas", "rs", "s",
    "swift", "tcc", "y", "yy", "zig",
];

/// Packs the recording of the command line; gives the exit status.
pub fn run(options: &Options, color: Color, startup: &Startup) -> i32 {
    let messages = Messages { paint: Paint::for_stderr(color, startup) };
    let (opened, unit) = match home::find(&options.recording, startup) {
        Ok(found) => found,
        Err(why) => {
            messages.error(&why);
            return status::USAGE;
        }
    };
    if unit.is_some() {
        messages.error("a recording is packed whole; leave out the process behind the colon");
        return status::USAGE;
    }
    if opened.recording.being_written() {
        let place = opened.source.display();
        messages.error(&format!("{place} is still being recorded; pack it when that command has ended"));
        return status::USAGE;
    }
    let extra = if options.bare { Extra::default() } else { Extra::find(&opened.recording) };
    let (changed, left_out) = (extra.changed, extra.left_out);
    match recording::pack(opened.recording.path(), &options.file, extra.files) {
        Ok(summary) => {
            if options.json {
                message::stdout(&format!("{:#}\n", to_json(&summary, &opened.recording, options, changed, left_out)));
            } else if !options.quiet {
                message::stdout(&to_text(&summary, &opened.recording, options, changed, left_out));
            }
            0
        }
        Err(e) => {
            messages.error(&e.to_string());
            if matches!(e.kind, ErrorKind::Full | ErrorKind::Io) { status::INTERNAL } else { status::USAGE }
        }
    }
}

/// Files to add: their names in the pack and where they are.
#[derive(Default)]
struct Extra {
    files: Vec<(String, PathBuf)>,
    bytes: u64,
    /// Sources that are newer than the recording.
    changed: u64,
    /// Files that there was no room for.
    left_out: u64,
}

impl Extra {
    fn find(recording: &Recording) -> Extra {
        let (mut sources, mut debug) = (BTreeSet::new(), BTreeMap::new());
        for key in keys(recording) {
            // What is no program or library has nothing to add.
            let Some(image) = recording.file(&key).and_then(|path| Image::open(path).ok()) else { continue };
            for (id, path) in image.debug_files() {
                debug.insert(id.to_string(), path);
            }
            sources.extend(image.source_files().into_iter().filter(|path| is_source(path)));
        }
        let recorded = UNIX_EPOCH + Duration::from_secs(recording.meta().created);
        let mut extra = Extra::default();
        // Sources first: they are small, and of more use.
        for path in sources {
            let Some(name) = path.to_str() else { continue };
            if let Some(meta) = plain_file(&path).filter(|m| m.len() <= LONGEST_SOURCE) {
                let is_newer = meta.modified().is_ok_and(|t| t > recorded + Duration::from_secs(1));
                extra.changed += u64::from(extra.add(format!("sources{name}"), &path, &meta) && is_newer);
            }
        }
        for (id, path) in debug {
            if let (Some((folder, rest)), Some(meta)) = (id.split_at_checked(2), plain_file(&path)) {
                extra.add(format!("debug/.build-id/{folder}/{rest}.debug"), &path, &meta);
            }
        }
        extra
    }

    fn add(&mut self, name: String, path: &Path, meta: &Metadata) -> bool {
        if self.bytes + meta.len() > CAP {
            self.left_out += 1;
            return false;
        }
        self.bytes += meta.len();
        self.files.push((name, path.to_owned()));
        true
    }
}

/// Keys of everything that may be a program or a library.
fn keys(recording: &Recording) -> BTreeSet<String> {
    let of_unit = |u: &recording::Unit| {
        let files = u.files.iter().map(|f| f.key.clone());
        files.chain([u.start.program.clone(), u.start.interpreter.clone()]).collect::<Vec<_>>()
    };
    recording.units().iter().flat_map(of_unit).filter(|key| !key.is_empty()).collect()
}

fn plain_file(path: &Path) -> Option<Metadata> {
    std::fs::metadata(path).ok().filter(Metadata::is_file)
}

/// Is this a full path, and called as sources are?
fn is_source(path: &Path) -> bool {
    path.is_absolute()
        && match path.extension().and_then(|e| e.to_str()) {
            Some(ending) => SOURCES.contains(&ending.to_ascii_lowercase().as_str()),
            None => path.starts_with("/usr/include/c++"),
        }
}

/// The names that kept files had, by what they are called in the pack.
fn original_names(recording: &Recording) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for unit in recording.units() {
        for file in unit.files.iter().filter(|f| !f.key.is_empty()) {
            names.insert(format!("files/{}", file.key), show::path(&file.path));
        }
        if !unit.start.program.is_empty() {
            names.entry(format!("files/{}", unit.start.program)).or_insert_with(|| unit.start.exe.clone());
        }
    }
    names
}

/// Small files lie in the logs, whole: their names and sizes.
fn inside_logs(recording: &Recording) -> BTreeMap<String, u64> {
    let files = recording.units().iter().flat_map(|u| &u.files).filter(|f| f.key.is_empty() && f.size > 0);
    files.map(|f| (show::path(&f.path), f.size)).collect()
}

/// What a group of entries is called, by the beginning of their names.
const GROUPS: &[(&str, &str)] = &[
    ("recording", "command line"),
    ("units/", "logs: arguments, environment, and all that was read"),
    ("files/", "files that were used, whole"),
    ("extra/sources/", "sources"),
    ("extra/debug/", "debug information"),
    ("extra/", "other files from the pack it comes from"),
];

fn group(entry: &PackEntry) -> usize {
    GROUPS.iter().position(|(prefix, _)| entry.name.starts_with(prefix)).unwrap_or(GROUPS.len() - 1)
}

fn to_json(summary: &PackSummary, recording: &Recording, options: &Options, changed: u64, left_out: u64) -> Value {
    let names = original_names(recording);
    let entry =
        |e: &PackEntry| json!({ "name": e.name, "original": names.get(&e.name), "bytes": e.bytes, "packed": e.stored });
    let skipped = |(name, why): &(String, String)| json!({ "name": name, "why": why });
    json!({
        "clew": 1,
        "verb": "pack",
        "file": show::value(options.file.as_os_str()),
        "bytes": summary.bytes,
        "entries": summary.entries.iter().map(entry).collect::<Vec<_>>(),
        "in_logs": inside_logs(recording).keys().collect::<Vec<_>>(),
        "skipped": summary.skipped.iter().map(skipped).collect::<Vec<_>>(),
        "changed_sources": changed,
        "left_out": left_out,
    })
}

fn to_text(summary: &PackSummary, recording: &Recording, options: &Options, changed: u64, left_out: u64) -> String {
    let names = original_names(recording);
    let mut text = String::new();
    for (number, (prefix, title)) in GROUPS.iter().enumerate() {
        let entries: Vec<&PackEntry> = summary.entries.iter().filter(|e| group(e) == number).collect();
        if entries.is_empty() {
            continue;
        }
        let bytes: u64 = entries.iter().map(|e| e.bytes).sum();
        text.push_str(&format!("{title}: {}, {}\n", show::count(entries.len() as u64, "file"), show::bytes(bytes)));
        for entry in entries {
            let inside = match *prefix {
                "extra/sources/" => entry.name.strip_prefix("extra/sources").unwrap_or(&entry.name),
                _ => &entry.name,
            };
            let shown = names.get(&entry.name).map_or(inside, String::as_str);
            text.push_str(&format!("  {:>9}  {}\n", show::bytes(entry.bytes), show::path(shown.as_bytes())));
        }
    }
    let small = inside_logs(recording);
    if !small.is_empty() {
        text.push_str(&format!("small files that were used, whole, in the logs: {}\n", small.len()));
    }
    for (name, bytes) in small {
        text.push_str(&format!("  {:>9}  {name}\n", show::bytes(bytes)));
    }
    for (name, why) in &summary.skipped {
        text.push_str(&format!("left out {}: {why}\n", show::path(name.as_bytes())));
    }
    if changed > 0 {
        let what = show::count(changed, "source");
        text.push_str(&format!("{what} changed after the recording was made and may not fit the program\n"));
    }
    if left_out > 0 {
        text.push_str(&format!("{} left out to stay below {}\n", show::count(left_out, "file"), show::bytes(CAP)));
    }
    let (file, size) = (options.file.display(), show::bytes(summary.bytes));
    text.push_str(&format!("packed into {file}: {size}\n"));
    text.push_str("Recordings hold secrets: look at this list before you give the file to others.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_called_like_a_source_is_taken() {
        for good in ["/a/b.c", "/a/b.S", "/a/b.rs", "/usr/include/c++/12/vector"] {
            assert!(is_source(Path::new(good)), "{good}");
        }
        for bad in ["b.c", "/etc/shadow", "/a/.ssh/id_rsa", "/a/b.pem", "/usr/include/x/passwd", "<built-in>"] {
            assert!(!is_source(Path::new(bad)), "{bad}");
        }
    }
}
