//! Control dependence against the shape of the source: what stands inside a block depends on the block's header.
//!
//! The guests must be laid out by indentation and have no jumps out of blocks; more than the headers may be in a slice (an
//! early return decides about everything behind it), less may not.

use super::{Stage, Window};
use model::GuestAddr;
use model::serve::Moment;
use slice::{Criterion, Omit, Options, backward};
use std::collections::BTreeSet;
use testkit::random::Random;

/// The lines of the headers around a line, both counted from 1, innermost first.
pub fn headers(source: &str, line: u32) -> Vec<u32> {
    let lines: Vec<&str> = source.lines().collect();
    let indent = |l: &str| l.len() - l.trim_start().len();
    let mut inner = indent(lines[line as usize - 1]);
    let mut found = Vec::new();
    for n in (0..line as usize - 1).rev() {
        let text = lines[n].trim_start();
        if text.is_empty() || indent(lines[n]) >= inner {
            continue;
        }
        // The matching `if` of an `else` stands as far to the right as the `else`.
        let is_else = text.trim_start_matches(['}', ' ']).starts_with("else");
        inner = indent(lines[n]) + usize::from(is_else);
        if ["if (", "while (", "for ("].iter().any(|h| text.starts_with(h)) {
            found.push(n as u32 + 1);
        }
    }
    found
}

impl Stage<'_> {
    /// The line of the program that an instruction belongs to.
    fn line(&self, pc: u64, file: &str) -> Option<u32> {
        let (_, image, at) = self.loaded.at(GuestAddr(pc))?;
        let found = image.image.locate(at);
        found.line.filter(|l| *l > 0 && found.short_file().is_some_and(|f| f.ends_with(file)))
    }

    /// For random executed instructions of the program: is one of the headers around its line missing in the slice of its
    /// being reached? Answers how many headers were looked for, and what is missing.
    pub fn check_headers(
        &mut self,
        (file, source): (&str, &str),
        samples: usize,
        random: &mut Random,
        omit: Option<Omit>,
    ) -> (usize, Vec<String>) {
        let whole = self.whole();
        let own: Vec<usize> =
            (0..whole.steps.len()).filter(|n| self.line(whole.steps[*n].pc, file).is_some()).collect();
        let (mut looked_for, mut missing) = (0, Vec::new());
        for _ in 0..samples {
            let step = whole.steps[*random.pick(&own)];
            let Some(line) = self.line(step.pc, file) else { continue };
            let sought = self.session.seek_instance(&[step.pc], u64::from(step.instance), &mut || false);
            sought.unwrap_or_else(|e| panic!("execution {} of {:#x}: {e}", step.instance, step.pc));
            // The window ends behind the instruction, so that the code of its own block counts.
            let thread = self.session.place().thread;
            self.session.step(thread, &mut || false).expect("a step can be made");
            let to: Moment = self.session.moment();
            let window: Window = self.window(to, false);
            let criterion = Criterion { instructions: vec![step.pc], ..Criterion::default() };
            let slice =
                backward(&window, &criterion, &Options { omit, ..Options::default() }, &mut self.facts, &mut || false);
            let lines: BTreeSet<u32> = slice.nodes.iter().filter_map(|n| self.line(n.pc, file)).collect();
            for header in headers(source, line) {
                looked_for += 1;
                if !lines.contains(&header) {
                    missing.push(format!("{file}:{line} (execution {}) misses line {header}", step.instance));
                }
            }
        }
        (looked_for, missing)
    }
}
