//! The input that was given, and how other inputs take its place.
//!
//! An input in a file is given under the same name in a private folder: where the arguments say `@@`, else where one of them
//! is the file's name. One on standard input is given there, as a file or through a pipe as it came.
//!
//! Guarantees: the user's file is only read.

use crate::case::Refusal;
use crate::cli::Source;
use rustix::fs::FileType;
use session::Stdio;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What stands for the name of the input.
const HERE: &[u8] = b"@@";
/// Longer ones are not for this.
const LONGEST: u64 = 64 << 20;

/// An input, and the command that reads it.
pub struct Given {
    pub bytes: Vec<u8>,
    command: Vec<OsString>,
    way: Way,
    /// What else standard input holds, if it can be given to many runs.
    aside: Option<Vec<u8>>,
}

/// How the program gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Way {
    /// Under this name, instead of this argument where it is not `@@`.
    File {
        name: OsString,
        argument: OsString,
    },
    Stdin {
        is_pipe: bool,
    },
}

impl Given {
    pub fn read(source: &Source, command: &[OsString]) -> Result<Given, Refusal> {
        let has_mark = command.iter().skip(1).any(|a| contains(a, HERE));
        match source {
            Source::Stdin if has_mark => {
                Err(Refusal::usage("@@ stands for the name of an input file, and the input is standard input"))
            }
            Source::Stdin => {
                let kind = kind_of_stdin();
                if kind == Some(FileType::CharacterDevice) {
                    return Err(Refusal::usage("standard input is no file and no pipe: write < FILE, or --input FILE"));
                }
                let bytes = stdin()?;
                let is_pipe = kind != Some(FileType::RegularFile);
                Ok(Given { bytes, command: command.to_vec(), way: Way::Stdin { is_pipe }, aside: None })
            }
            Source::File(path) => {
                let shown = path.display();
                let argument = path.as_os_str().to_owned();
                if !has_mark && !command.iter().skip(1).any(|a| *a == argument) {
                    return Err(Refusal::usage(format!(
                        "no argument names {shown}: write @@ where the program is told the name of its input"
                    )));
                }
                let bytes = file(path).map_err(|e| Refusal::usage(format!("the input {shown} cannot be read: {e}")))?;
                let name = path.file_name().map_or_else(|| "input".into(), OsStr::to_owned);
                let aside = if kind_of_stdin() == Some(FileType::RegularFile) { stdin().ok() } else { None };
                Ok(Given { bytes, command: command.to_vec(), way: Way::File { name, argument }, aside })
            }
        }
    }

    /// Puts an input into a folder; where it is.
    pub fn put(&self, folder: &Path, bytes: &[u8]) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let name = match &self.way {
            Way::File { name, .. } => name.as_os_str(),
            Way::Stdin { .. } => OsStr::new("stdin"),
        };
        let path = folder.join(name);
        // The program may have removed it, or put something else in its place.
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(&path)?,
            Ok(_) => std::fs::remove_file(&path)?,
            Err(_) => {}
        }
        std::fs::write(&path, bytes)?;
        Ok(path)
    }

    /// The command for an input that is there.
    pub fn command(&self, path: &Path) -> Vec<OsString> {
        let Way::File { argument, .. } = &self.way else { return self.command.clone() };
        let has_mark = self.command.iter().skip(1).any(|a| contains(a, HERE));
        let replaced = |(n, word): (usize, &OsString)| match n {
            0 => word.clone(),
            _ if has_mark => replace(word, path),
            _ if word == argument => path.as_os_str().to_owned(),
            _ => word.clone(),
        };
        self.command.iter().enumerate().map(replaced).collect()
    }

    /// Standard input for an input that is there.
    pub fn stdin(&self, path: &Path) -> std::io::Result<Stdio> {
        let piped = |bytes: Vec<u8>| -> std::io::Result<Stdio> {
            let (reader, mut writer) = std::io::pipe()?;
            // A program that does not read everything closes the pipe, which ends this.
            std::thread::spawn(move || drop(writer.write_all(&bytes)));
            Ok(Stdio::Fd(OwnedFd::from(reader)))
        };
        match (&self.way, &self.aside) {
            (Way::Stdin { is_pipe: true }, _) => piped(std::fs::read(path)?),
            (Way::Stdin { is_pipe: false }, _) => Ok(Stdio::Fd(File::open(path)?.into())),
            (Way::File { .. }, Some(bytes)) => piped(bytes.clone()),
            (Way::File { .. }, None) => Ok(Stdio::Null),
        }
    }
}

/// What standard input is.
fn kind_of_stdin() -> Option<FileType> {
    let stat = rustix::fs::fstat(rustix::stdio::stdin()).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

fn stdin() -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut bytes);
    match read {
        Ok(_) if bytes.len() as u64 > LONGEST => Err(Refusal::usage(too_long())),
        Ok(_) => Ok(bytes),
        Err(e) => Err(Refusal::usage(format!("standard input cannot be read: {e}"))),
    }
}

/// A whole file that is not too long.
pub fn file(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|e| e.to_string())?;
    file.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    if bytes.len() as u64 > LONGEST { Err(too_long()) } else { Ok(bytes) }
}

fn too_long() -> String {
    format!("it is longer than {} MiB", LONGEST >> 20)
}

/// A command with the name of the file itself where the mark is.
pub fn named(command: &[OsString], path: &Path) -> Vec<OsString> {
    let replaced = |(n, word): (usize, &OsString)| if n == 0 { word.clone() } else { replace(word, path) };
    command.iter().enumerate().map(replaced).collect()
}

fn contains(word: &OsStr, mark: &[u8]) -> bool {
    word.as_bytes().windows(mark.len()).any(|w| w == mark)
}

/// A word with the name instead of the mark.
fn replace(word: &OsStr, path: &Path) -> OsString {
    let (mut rest, mut out) = (word.as_bytes(), Vec::new());
    while let Some(at) = rest.windows(HERE.len()).position(|w| w == HERE) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(path.as_os_str().as_bytes());
        rest = &rest[at + HERE.len()..];
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(argument: &str, command: &[&str]) -> Given {
        let way = Way::File { name: "in".into(), argument: argument.into() };
        Given { bytes: Vec::new(), command: command.iter().map(Into::into).collect(), way, aside: None }
    }

    fn check_command(argument: &str, command: &[&str], expected: &[&str]) {
        assert_eq!(given(argument, command).command(Path::new("/s/in")), expected);
    }

    #[test]
    fn the_name_of_the_input_is_put_where_the_mark_is_or_the_file_was_named() {
        check_command("in", &["p", "-f", "@@"], &["p", "-f", "/s/in"]);
        check_command("in", &["p", "--file=@@,@@", "in"], &["p", "--file=/s/in,/s/in", "in"]);
        check_command("in", &["in", "in", "./in"], &["in", "/s/in", "./in"]);
    }

    #[test]
    fn a_command_without_the_input_is_refused() {
        let command: Vec<OsString> = ["p", "other"].map(Into::into).into();
        let refused = Given::read(&Source::File("in".into()), &command).err().map(|r| r.message);
        assert!(refused.is_some_and(|why| why.contains("write @@")));
    }
}
