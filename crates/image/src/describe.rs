//! A crash in words: what happened, where, and how the program roughly got there.
//!
//! ```text
//! SIGSEGV (address not mapped, 0x0) in parse_header at parse.c:88 (/usr/bin/foo+0x1234)
//!   #1 main at main.c:12
//! ```
//! The backtrace follows the call frame information of the files. Where there is none (code made at run time, files that
//! are gone), it lists instead the words on the stack that can be return addresses: that is rough, as it may show calls that
//! have already returned. Callers beyond the part of the stack that was sent are missing.

use crate::address::{FileOffset, ImageOffset};
use crate::images::{Images, Place};
use crate::process::{LoadedImages, MappedFile, Register, Stopped};
use crate::return_address::{LONGEST_CALL, ends_with_call};
use crate::signals;
use crate::unwind::{Origin, StackFrame, backtrace};
use model::GuestAddr;
use model::wire::{Crash, Frame, Mapped};
use std::path::{Path, PathBuf};

/// More lines of backtrace help nobody.
const MAX_LINES: usize = 30;

/// Turns reports into text.
#[derive(Clone, Copy, Debug)]
pub struct Describe<'a> {
    pub images: &'a Images,
}

impl<'a> Describe<'a> {
    pub fn new(images: &'a Images) -> Describe<'a> {
        Describe { images }
    }

    /// The lines that tell people of a crash.
    pub fn crash(&self, crash: &Crash) -> Vec<String> {
        let pc = GuestAddr(crash.registers.rip);
        let place = self.images.place(&crash.file, FileOffset(crash.file_offset).into(), pc);
        let mut lines = vec![match place.names.first() {
            Some(name) => format!("{} in {name} ({})", what(crash), place.address),
            None => format!("{} at {}", what(crash), place.address),
        }];
        let inlined = place.names.iter().skip(1).cloned();
        let frames = self.unwound(crash).unwrap_or_else(|| {
            let rough = crash.frames.iter().filter_map(|f| self.caller(f));
            rough.flatten().collect()
        });
        let mut callers = inlined.chain(frames);
        lines.extend(callers.by_ref().take(MAX_LINES).zip(1..).map(|(name, n)| format!("  #{n} {name}")));
        if callers.next().is_some() {
            lines.push("  …".to_string());
        }
        lines
    }

    /// The way to a crash, the innermost first: the file that holds the code and the function, or the place where nothing has
    /// a name. Callers that are guessed are left out.
    pub fn way(&self, crash: &Crash) -> Vec<(PathBuf, String)> {
        let process = Crashed::new(crash, self.images);
        let frames = backtrace(&process, MAX_LINES).frames;
        let known = frames.iter().take_while(|f| f.origin != Origin::Guess).filter(|f| !f.trampoline);
        let named = |frame: &StackFrame| match process.images.at(frame.at) {
            Some((_, loaded, at)) => {
                let function = frame.location.function.clone();
                (loaded.image.path().to_owned(), function.unwrap_or_else(|| format!("+{at}")))
            }
            None => (PathBuf::new(), String::new()),
        };
        known.map(named).collect()
    }

    /// The names of all callers, the innermost first, if the stack can be followed at all.
    fn unwound(&self, crash: &Crash) -> Option<Vec<String>> {
        let process = Crashed::new(crash, self.images);
        let callers = backtrace(&process, MAX_LINES + 2).frames.split_off(1);
        if callers.first()?.origin == Origin::Guess {
            return None;
        }
        let names = |frame: &StackFrame| match process.images.at(frame.at) {
            Some((_, loaded, at)) => {
                let place = self.images.place(&loaded.image.path().to_string_lossy(), at.into(), frame.at);
                if place.names.is_empty() { vec![place.address] } else { place.names }
            }
            None => vec![frame.at.to_string()],
        };
        Some(callers.iter().filter(|f| !f.trampoline).flat_map(names).collect())
    }

    /// The names for a return address, the innermost first, or `None` when it cannot be one.
    fn caller(&self, frame: &Frame) -> Option<Vec<String>> {
        // The return address may already belong to the next line or function; the call ends one byte before it.
        let before = |n: u64| n.saturating_sub(1);
        let position = FileOffset(before(frame.file_offset)).into();
        let place = self.images.place(&frame.file, position, GuestAddr(before(frame.pc.0)));
        if !follows_call(&place) {
            return None;
        }
        if place.names.is_empty() { Some(vec![place.address]) } else { Some(place.names) }
    }
}

/// What a report tells of the process that crashed.
struct Crashed<'a> {
    crash: &'a Crash,
    images: LoadedImages,
}

impl<'a> Crashed<'a> {
    fn new(crash: &'a Crash, images: &Images) -> Crashed<'a> {
        let mapped: Vec<MappedFile> = crash.mapped.iter().map(mapped_file).collect();
        let program = Path::new(&crash.file);
        Crashed { crash, images: LoadedImages::from_mappings(images, program, &mapped) }
    }
}

impl Stopped for Crashed<'_> {
    fn read(&self, at: GuestAddr, to: &mut [u8]) -> usize {
        let stack = GuestAddr(self.crash.registers.gpr[4]);
        let on_stack = at.0.checked_sub(stack.0).and_then(|n| self.crash.stack.get(usize::try_from(n).ok()?..));
        let bytes = match on_stack {
            Some(rest) => rest.to_vec(),
            // What is not on the stack can only be constant: code.
            None => {
                let constant = self.images.at(at).and_then(|(_, l, offset)| l.image.bytes(offset, to.len() as u64));
                constant.unwrap_or_default()
            }
        };
        let n = bytes.len().min(to.len());
        to[..n].copy_from_slice(&bytes[..n]);
        n
    }

    fn register(&self, register: Register) -> Option<u64> {
        /// Hardware numbers in the order of DWARF's.
        const ORDER: [usize; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
        match register {
            Register::RIP => Some(self.crash.registers.rip),
            Register(n) => ORDER.get(usize::from(n)).map(|hardware| self.crash.registers.gpr[*hardware]),
        }
    }

    fn images(&self) -> &LoadedImages {
        &self.images
    }
}

fn mapped_file(m: &Mapped) -> MappedFile {
    MappedFile { path: PathBuf::from(&m.file), start: m.start, offset: FileOffset(m.file_offset) }
}

fn what(crash: &Crash) -> String {
    let mut details = vec![signals::cause(crash.signal, crash.code).to_string()];
    if signals::has_address(crash.signal, crash.code) {
        details.push(crash.addr.to_string());
    }
    details.retain(|d| !d.is_empty());
    match details.is_empty() {
        true => signals::name(crash.signal),
        false => format!("{} ({})", signals::name(crash.signal), details.join(", ")),
    }
}

/// `place` is the last byte before a candidate; code that cannot be read gets the benefit of the doubt.
fn follows_call(place: &Place) -> bool {
    let Some((image, last)) = &place.image else { return true };
    let start = ImageOffset(last.0.saturating_sub(LONGEST_CALL - 1));
    image.bytes(start, last.0 - start.0 + 1).is_none_or(|bytes| ends_with_call(&bytes))
}
