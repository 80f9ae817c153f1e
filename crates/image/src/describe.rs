//! A crash in words: what happened, where, and how the program roughly got there.
//!
//! ```text
//! SIGSEGV (address not mapped, 0x0) in parse_header at parse.c:88 (/usr/bin/foo+0x1234)
//!   #1 main at main.c:12
//! ```
//! The backtrace is rough: it lists the words on the stack that can be return addresses, so it may show calls that have
//! already returned, and it misses callers whose frames were not sent.

use crate::address::{FileOffset, ImageOffset};
use crate::images::{Images, Place};
use crate::return_address::{LONGEST_CALL, ends_with_call};
use crate::signals;
use model::GuestAddr;
use model::wire::{Crash, Frame};

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
        let frames = crash.frames.iter().filter_map(|f| self.caller(f)).flatten();
        let mut callers = inlined.chain(frames);
        lines.extend(callers.by_ref().take(MAX_LINES).zip(1..).map(|(name, n)| format!("  #{n} {name}")));
        if callers.next().is_some() {
            lines.push("  …".to_string());
        }
        lines
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
