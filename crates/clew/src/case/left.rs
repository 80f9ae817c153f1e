//! Files that a run is to leave behind, as `--expect-file` names them: what the recorded run left, and an altered one.
//!
//! What the recorded run left is found by replaying each process that may have written files; the last one that did counts.
//! An altered run leaves what its trial says. A file that the trial did not write is as another process of the recording
//! left it, or, if nobody wrote it at all, as it is now; if the recorded process itself wrote it and the altered one does
//! not, it is not there.
//!
//! May miss: names that lead to the same file by other ways than their folders, and what is written through mappings.

use super::Refusal;
use model::log::{CallRecord, DescriptorKind, DescriptorRecord, Kind};
use model::serve::{Alteration, TrialLimits};
use recording::{Recording, UnitName};
use session::{Budget, Candidate, Replayer, Session, TrialOutcome};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A replay to the end, however long it takes.
const WHOLE: Duration = Duration::from_secs(3600);

/// The contents of a file; nothing where there is none.
type Contents = Option<Vec<u8>>;

/// What became of the files in the recorded run.
#[derive(Default)]
pub struct Left {
    paths: Vec<PathBuf>,
    /// The last process that wrote or removed each, and what it left.
    by: Vec<Option<(UnitName, Contents)>>,
}

impl Left {
    /// Replays the processes that may have written files.
    pub fn gather(replayer: &Replayer<'_>, named: &[(PathBuf, PathBuf)]) -> Result<Left, Refusal> {
        let paths: Vec<PathBuf> = named.iter().map(|(path, _)| in_full(path)).collect();
        let mut left = Left { by: vec![None; paths.len()], paths };
        if left.paths.is_empty() {
            return Ok(left);
        }
        let budget = Budget::default();
        let limits = TrialLimits { ticks: u64::MAX >> 1, ..budget.limits };
        let budget = Budget { limits, wall: WHOLE, ..budget };
        for unit in replayer.recording.units().iter().map(|u| u.name) {
            if !may_write(replayer.recording, unit) {
                continue;
            }
            let mut session = Session::open(replayer, &unit).map_err(Refusal::internal)?;
            session.want_files(left.wanted());
            let whole = Candidate { moment: session.start_moment(), alteration: Alteration::Null };
            let outcome = session.trial(&whole, &budget).map_err(Refusal::internal)?;
            for (n, contents) in outcome.files {
                left.by[n as usize] = Some((unit, contents));
            }
        }
        Ok(left)
    }

    /// As engines are asked for them.
    pub fn wanted(&self) -> Vec<Vec<u8>> {
        self.paths.iter().map(|p| p.as_os_str().as_bytes().to_vec()).collect()
    }

    /// What the recorded run left.
    pub fn recorded(&self) -> Vec<Contents> {
        let one = |(n, by): (usize, &Option<(UnitName, Contents)>)| match by {
            Some((_, contents)) => contents.clone(),
            None => std::fs::read(&self.paths[n]).ok(),
        };
        self.by.iter().enumerate().map(one).collect()
    }

    /// What an altered run of `unit` left.
    pub fn altered(&self, unit: UnitName, outcome: &TrialOutcome) -> Vec<Contents> {
        let recorded = |n: usize| match &self.by[n] {
            Some((by, _)) if *by == unit => None,
            Some((_, contents)) => contents.clone(),
            None => std::fs::read(&self.paths[n]).ok(),
        };
        (0..self.paths.len()).map(|n| outcome.files.get(&(n as u32)).cloned().unwrap_or_else(|| recorded(n))).collect()
    }

    /// Who wrote the file with this number last.
    pub fn writer(&self, n: usize) -> Option<UnitName> {
        self.by.get(n)?.as_ref().map(|(unit, _)| *unit)
    }

    pub fn path(&self, n: usize) -> Option<&Path> {
        self.paths.get(n).map(PathBuf::as_path)
    }
}

/// A name from the present folder on.
pub fn in_full(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Did the process open a file for writing, inherit one, rename or remove any?
fn may_write(recording: &Recording, unit: UnitName) -> bool {
    const FOR_WRITING: u64 = 3;
    let Ok(log) = recording.log(&unit) else { return false };
    let call = |c: CallRecord| match c.nr {
        _ if c.result < 0 => false,
        2 => c.args[1] & FOR_WRITING != 0,
        257 => c.args[2] & FOR_WRITING != 0,
        85 | 437 | 82 | 87 | 263 | 264 | 316 => true,
        _ => false,
    };
    let inherits = |d: DescriptorRecord| d.kind == DescriptorKind::File && u64::from(d.flags) & FOR_WRITING != 0;
    log.records().any(|(_, r)| match r.kind {
        Kind::Call => CallRecord::decode(r.payload).is_some_and(call),
        Kind::Descriptor => DescriptorRecord::decode(r.payload).is_some_and(inherits),
        _ => false,
    })
}
