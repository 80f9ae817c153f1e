//! Where recordings live, and how a name on the command line becomes one.

use crate::startup::Startup;
use recording::{Home, Recording, UnitName};
use std::path::{Path, PathBuf};

/// The folder that recordings live in: CLEW_HOME, else XDG_DATA_HOME/clew, else ~/.local/share/clew.
pub fn path(startup: &Startup) -> Result<PathBuf, String> {
    if let Some(own) = startup.variable("CLEW_HOME").filter(|v| !v.is_empty()) {
        let own = PathBuf::from(own);
        return std::path::absolute(&own).map_err(|e| format!("CLEW_HOME ({}) is no path: {e}", own.display()));
    }
    let absolute = |name: &str| {
        let path = PathBuf::from(startup.variable(name)?);
        path.is_absolute().then_some(path)
    };
    let base = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    base.map(|b| b.join("clew")).ok_or_else(|| {
        "there is no place for recordings: neither CLEW_HOME nor HOME is set; set CLEW_HOME to a folder".to_owned()
    })
}

pub fn open(startup: &Startup) -> Result<Home, String> {
    Home::open(&path(startup)?).map_err(|e| e.to_string())
}

/// A recording and, if the text names one, a unit of it.
pub fn find(text: &str, startup: &Startup) -> Result<(Opened, Option<UnitName>), String> {
    let (name, unit) = split(text);
    let home = open(startup)?;
    let path = home.resolve(name).map_err(|e| e.to_string())?;
    let opened = Opened::open(&path, &home)?;
    let unit = match unit {
        None => None,
        Some(unit) => Some(choose(&opened.recording, unit)?),
    };
    Ok((opened, unit))
}

/// The name and what is behind its last colon, if that can be a unit.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((name, unit)) if unit.starts_with(|c: char| c.is_ascii_digit()) && !Path::new(text).exists() => {
            (name, Some(unit))
        }
        _ => (text, None),
    }
}

/// `PID` means the last image of the process, `PID.IMAGE` a certain one.
fn choose(recording: &Recording, text: &str) -> Result<UnitName, String> {
    let of_pid = |pid: u32| recording.units().iter().map(|u| u.name).filter(|n| n.pid == pid).max();
    let found = match text.parse::<u32>() {
        Ok(pid) => of_pid(pid),
        Err(_) => text.parse::<UnitName>().ok().filter(|n| recording.unit(n).is_ok()),
    };
    found.ok_or_else(|| {
        format!("the recording has no process {text}; `clew info {}` lists them", recording.path().display())
    })
}

/// A recording, unpacked for as long as this lives if it came in a packed file.
pub struct Opened {
    pub recording: Recording,
    scratch: Option<PathBuf>,
}

impl Opened {
    fn open(path: &Path, home: &Home) -> Result<Opened, String> {
        if !recording::is_pack(path) {
            let recording = Recording::open(path).map_err(|e| e.to_string())?;
            return Ok(Opened { recording, scratch: None });
        }
        let scratch = home.path().join(format!(".unpacked-{}", std::process::id()));
        let recording = Recording::open_in(path, &scratch).map_err(|e| {
            // What was unpacked so far is of no use; the first error is the one to tell.
            let _ = std::fs::remove_dir_all(&scratch);
            e.to_string()
        })?;
        Ok(Opened { recording, scratch: Some(scratch) })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some(scratch) = &self.scratch {
            // Only a copy of the packed file.
            let _ = std::fs::remove_dir_all(scratch);
        }
    }
}
