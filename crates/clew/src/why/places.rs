//! Places in the source, whose they are, and what stands there.

use super::symptom::{Mapped, Symptom};
use crate::case::Refusal;
use crate::slice::lines::{Origin, Origins, Sources, Squash};
use report::{Place, Report, Source, Step};
use session::Session;
use slice::Why;
use std::collections::BTreeSet;

const EXECUTABLE: u8 = 4;
/// Steps of a path, at most.
const LONGEST: usize = 40;

/// Puts the sources of all places that a report names into it, as far as they can be read.
pub fn fill_sources(report: &mut Report) {
    let steps = report.causes.iter().flat_map(|c| &c.path).map(|s| &s.place);
    let places = report.causes.iter().map(|c| &c.place).chain(report.slice.iter().map(|l| &l.place)).chain(steps);
    let paths: BTreeSet<String> = places.filter_map(|p| p.full.clone()).collect();
    for path in paths {
        if let Ok(text) = std::fs::read(&path) {
            let lines = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
            report.sources.push(Source { path, lines });
        }
    }
}

/// Answers where code comes from.
pub struct Places<'a> {
    pub origins: Origins<'a>,
    sources: Sources,
}

impl<'a> Places<'a> {
    pub fn new(mapped: &'a Mapped) -> Places<'a> {
        let origins = Origins::new(&mapped.loaded, &|n| mapped.paths.get(n).cloned().flatten());
        Places { origins, sources: Sources::default() }
    }

    pub fn is_own(&mut self, pc: u64) -> bool {
        self.origins.is_own(pc)
    }

    /// Where the code of the program, and of its own libraries, lies.
    pub fn own_code(&self, session: &Session) -> Result<Vec<(u64, u64)>, Refusal> {
        let maps = session.maps().map_err(Refusal::internal)?;
        let code = maps.iter().filter(|m| m.prot & EXECUTABLE != 0 && self.origins.is_own_mapping(m.start, m.end));
        Ok(code.map(|m| (m.start, m.end)).collect())
    }

    pub fn of(&mut self, pc: u64) -> Place {
        let origin = self.origins.of(pc).clone();
        self.named(&origin)
    }

    /// The place that an origin is.
    pub fn named(&mut self, origin: &Origin) -> Place {
        let shown = |p: &std::path::PathBuf| p.display().to_string();
        Place {
            file: origin.file.as_ref().map(shown),
            full: origin.full.as_ref().map(shown),
            line: origin.line,
            function: origin.function.clone(),
            address: origin.address.clone(),
            source: self.source(origin),
        }
    }

    /// The line as it stands in the source.
    pub fn source(&mut self, origin: &Origin) -> Option<String> {
        origin.full.as_deref().zip(origin.line).and_then(|(f, l)| self.sources.line(f, l))
    }

    /// How a node leads to the symptom: one step for each line.
    pub fn path(&mut self, symptom: &Symptom, node: u32, squash: &mut Squash<'_>) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for n in symptom.slice.path(node) {
            if n == 0 || steps.len() >= LONGEST {
                break;
            }
            let at = &symptom.slice.nodes[n as usize];
            let Some((_, pc)) = squash.shown(at, &mut self.origins) else { continue };
            let place = self.of(pc);
            let by = match at.why {
                Why::Criterion => "is what is wrong",
                Why::Reg(_) | Why::Mem(_) => "its value",
                Why::Control => "decides about it",
                Why::Potential => "might have changed it",
            };
            let same = |s: &Step| s.place.line == place.line && s.place.full == place.full;
            match steps.last_mut() {
                // The last instruction of a line is what leads on.
                Some(last) if same(last) => last.by = by.into(),
                _ => steps.push(Step { place, by: by.into() }),
            }
        }
        steps
    }
}
