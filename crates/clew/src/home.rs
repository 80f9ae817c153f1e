//! Where recordings live, and how a name on the command line becomes one.

use crate::scratch::Scratch;
use crate::startup::Startup;
use recording::{Home, Recording, UnitName};
use std::path::{Path, PathBuf};

/// The name of the newest recording.
const LATEST: &str = "latest";

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
    // Nothing is made for a recording that lies elsewhere, and it needs no home.
    let path = match path(startup) {
        Ok(home) => Home::at(&home).resolve(name).map_err(|e| e.to_string())?,
        Err(why) if name == LATEST || !Path::new(name).exists() => return Err(why),
        Err(_) => PathBuf::from(name),
    };
    let opened = Opened::open(&path)?;
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
    /// Its folder or the packed file.
    pub source: PathBuf,
    _scratch: Option<Scratch>,
}

impl Opened {
    fn open(path: &Path) -> Result<Opened, String> {
        let source = path.to_owned();
        if !recording::is_pack(path) {
            let recording = Recording::open(path).map_err(|e| e.to_string())?;
            return Ok(Opened { recording, source, _scratch: None });
        }
        let scratch = Scratch::new()?;
        let recording = Recording::open_in(path, scratch.path()).map_err(|e| e.to_string())?;
        Ok(Opened { recording, source, _scratch: Some(scratch) })
    }
}
