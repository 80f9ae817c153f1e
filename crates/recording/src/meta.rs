//! The text file `recording`: what was run, and how it ended.
//!
//! The first line is `clew recording 1`; every other line is a key, a blank and a value. Values that may hold any
//! character are JSON. Unknown keys are kept, so that a newer Clew may add some without a new version.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use model::Cpu;
use serde_json::Value;

use crate::disk;
use crate::error::{Doing, Error, Kind, Result};

/// Name of the file in the folder.
pub const FILE: &str = "recording";
const FIRST_WORDS: &str = "clew recording ";
const VERSION: u32 = 1;
/// Linux lets no command line be longer than this in its JSON form.
const LONGEST: u64 = 64 << 20;

/// How the recorded command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    Exited(u32),
    Signaled(u32),
}

/// What a recording says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Meta {
    pub command: Vec<OsString>,
    pub cwd: PathBuf,
    /// When it was begun, in seconds since 1970.
    pub created: u64,
    /// The version of Clew that made it.
    pub clew: String,
    pub cpu: Cpu,
    pub seed: Option<u64>,
    /// Known once the recorded command has ended.
    pub status: Option<Status>,
    /// Further keys and values, each without line breaks; a key is a word.
    pub other: Vec<(String, String)>,
}

impl Meta {
    pub fn encode(&self) -> String {
        let command: Vec<Value> = self.command.iter().map(|a| json(a)).collect();
        let cpu = match self.cpu {
            Cpu::V2 => "v2",
            Cpu::Native => "native",
        };
        let mut lines = vec![
            format!("{FIRST_WORDS}{VERSION}"),
            format!("command {}", Value::Array(command)),
            format!("cwd {}", json(self.cwd.as_os_str())),
            format!("created {}", self.created),
            format!("clew {}", self.clew.replace('\n', " ")),
            format!("cpu {cpu}"),
        ];
        lines.extend(self.seed.map(|seed| format!("seed {seed}")));
        lines.extend(self.status.map(|status| match status {
            Status::Exited(n) => format!("status exited {n}"),
            Status::Signaled(n) => format!("status signaled {n}"),
        }));
        let word = |s: &str| s.replace(char::is_whitespace, "_");
        lines.extend(self.other.iter().map(|(k, v)| format!("{} {}", word(k), v.replace('\n', " "))));
        lines.join("\n") + "\n"
    }

    /// `place` is the file's name for the sentence if it does not parse.
    pub fn decode(text: &[u8], place: &Path) -> Result<Meta> {
        let not_ours = || {
            let what = "does not begin with the line `clew recording 1`, so it is not a recording";
            Error::new(Kind::WrongType, format!("{} {what}", place.display()))
        };
        let text = std::str::from_utf8(text).map_err(|_| not_ours())?;
        let mut lines = text.split('\n');
        let version = lines.next().and_then(|l| l.strip_prefix(FIRST_WORDS)).ok_or_else(not_ours)?;
        let version: u32 = version.parse().map_err(|_| not_ours())?;
        if version != VERSION {
            return Err(Error::new(
                Kind::Version,
                format!(
                    "{} has format version {version}, and this Clew reads version {VERSION}; use the Clew that made it",
                    place.display()
                ),
            ));
        }
        let mut meta = Meta::default();
        for (n, line) in lines.enumerate().filter(|(_, l)| !l.is_empty()) {
            meta.line(line).ok_or_else(|| {
                let at = n + 2;
                let what = format!("line {at} of {} cannot be understood; without that line", place.display());
                Error::new(Kind::Damaged, format!("{what} the recording can be read"))
            })?;
        }
        Ok(meta)
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let (key, value) = line.split_once(' ')?;
        match key {
            "command" => {
                let value: Value = serde_json::from_str(value).ok()?;
                self.command = value.as_array()?.iter().map(from_json).collect::<Option<_>>()?;
            }
            "cwd" => self.cwd = from_json(&serde_json::from_str(value).ok()?)?.into(),
            "created" => self.created = value.parse().ok()?,
            "clew" => self.clew = value.to_owned(),
            "cpu" => {
                self.cpu = match value {
                    "v2" => Cpu::V2,
                    "native" => Cpu::Native,
                    _ => return None,
                }
            }
            "seed" => self.seed = Some(value.parse().ok()?),
            "status" => {
                let (how, n) = value.split_once(' ')?;
                let n = n.parse().ok()?;
                self.status = Some(match how {
                    "exited" => Status::Exited(n),
                    "signaled" => Status::Signaled(n),
                    _ => return None,
                });
            }
            _ if key.is_empty() || key.contains(char::is_whitespace) => return None,
            _ => self.other.push((key.to_owned(), value.to_owned())),
        }
        Some(())
    }

    /// Reads the file of a recording's folder.
    pub(crate) fn read(folder: &Path) -> Result<Meta> {
        let place = folder.join(FILE);
        Meta::decode(&disk::read_limited(&place, LONGEST).doing("read", &place)?, &place)
    }
}

/// Text as a JSON string; other bytes as an array of numbers.
fn json(text: &OsStr) -> Value {
    match text.to_str() {
        Some(text) => text.into(),
        None => text.as_bytes().into(),
    }
}

fn from_json(value: &Value) -> Option<OsString> {
    if let Some(text) = value.as_str() {
        return Some(text.into());
    }
    let bytes = value.as_array()?.iter().map(|b| u8::try_from(b.as_u64()?).ok()).collect::<Option<_>>()?;
    Some(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> PathBuf {
        PathBuf::from("/r/recording")
    }

    fn check_round_trip(meta: Meta) {
        assert_eq!(Meta::decode(meta.encode().as_bytes(), &place()), Ok(meta));
    }

    fn check_refused(text: &str, kind: Kind, says: &str) {
        let error = Meta::decode(text.as_bytes(), &place()).unwrap_err();
        assert_eq!(error.kind, kind);
        assert!(error.message.contains(says), "{error}");
    }

    #[test]
    fn what_is_said_comes_back() {
        check_round_trip(Meta::default());
        check_round_trip(Meta {
            command: vec!["./a b".into(), "x\ny\"".into(), "".into(), OsString::from_vec(vec![0xff, 0, 10])],
            cwd: "/tmp/ä\n".into(),
            created: 1_700_000_000,
            clew: "0.1.0".into(),
            cpu: Cpu::Native,
            seed: Some(u64::MAX),
            status: Some(Status::Signaled(11)),
            other: vec![("kernel".into(), "6.1 something".into()), ("empty".into(), String::new())],
        });
    }

    #[test]
    fn what_is_not_ours_is_refused_with_a_reason() {
        check_refused("", Kind::WrongType, "not a recording");
        check_refused("clew recording x\n", Kind::WrongType, "not a recording");
        check_refused("clew recording 2\nnew ways\n", Kind::Version, "version 2");
        check_refused("clew recording 1\ncpu v2\nseed ten\n", Kind::Damaged, "line 3 of /r/recording");
        check_refused("clew recording 1\nword\n", Kind::Damaged, "line 2");
        check_refused("clew recording 1\ncommand [[300]]\n", Kind::Damaged, "line 2");
        check_refused("clew recording 1\nstatus gone 1\n", Kind::Damaged, "line 2");
    }
}
