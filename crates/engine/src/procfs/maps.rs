//! `/proc/PID/maps` and `/proc/PID/smaps` as the guest expects them, from what the kernel says.
//!
//! [`rewrite`] removes the engine's mappings, gives the guest's heap and stack their names, shows pages that the engine
//! protects (to notice writes to translated code) with the guest's own permissions, and joins lines that only this
//! protection had split. Columns and padding are the kernel's (`show_map_vma` in `fs/proc/task_mmu.c`).
//!
//! Guarantees: never panics; lines that are not understood pass unchanged; a text without anything of the engine comes
//! out as it went in, apart from names of heap and stack.
//! May miss: when a line of smaps must be split because the kernel merged protected and other pages, the counters are
//! divided in proportion to size, so that their sums stay right; and two lines that the kernel would have kept apart
//! for reasons of its own are joined when one of them was protected.

#![forbid(unsafe_code)]

use alloc::{string::String, vec::Vec};
use core::{fmt::Write, ops::Range};
use model::layout;

/// What the guest knows about its memory and the kernel does not.
#[derive(Clone, Debug, Default)]
pub struct View<'a> {
    /// From the initial program break to the current one.
    pub heap: Range<u64>,
    /// The initial thread's stack. The mapping that contains any of it gets the name.
    pub stack: Range<u64>,
    /// The guest's mappings whose protection may not be what the guest asked for: its code. Disjoint, in any order.
    pub pages: &'a [GuestPages],
}

/// A mapping and the permissions that the guest gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPages {
    pub range: Range<u64>,
    /// `PROT_READ` 1, `PROT_WRITE` 2, `PROT_EXEC` 4.
    pub prot: u32,
}

const HEAP: &[u8] = b"[heap]";
const STACK: &[u8] = b"[stack]";

/// The guest's view of maps or smaps, from the kernel's text of the same file.
pub fn rewrite(kernel: &[u8], view: &View<'_>) -> Vec<u8> {
    let mut pages: Vec<&GuestPages> = view.pages.iter().filter(|p| p.range.start < p.range.end).collect();
    pages.sort_by_key(|p| p.range.start);

    let mut out = Vec::with_capacity(kernel.len());
    let mut last: Option<Mapping<'_>> = None;
    let mut lines = kernel.split(|&b| b == b'\n').filter(|l| !l.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let Some(mut mapping) = Mapping::parse(line) else {
            flush(&mut last, &mut out);
            out.extend_from_slice(line);
            out.push(b'\n');
            continue;
        };
        while let Some(detail) = lines.next_if(|l| Mapping::parse(l).is_none()) {
            mapping.details.push(Detail::parse(detail));
        }
        mapping.rename(view);
        for piece in mapping.pieces(&pages) {
            if !last.as_mut().is_some_and(|l| l.join(&piece)) {
                flush(&mut last, &mut out);
                last = Some(piece);
            }
        }
    }
    flush(&mut last, &mut out);
    out
}

fn flush(last: &mut Option<Mapping<'_>>, out: &mut Vec<u8>) {
    if let Some(mapping) = last.take() {
        mapping.print(out);
    }
}

/// One line of maps, with the lines of smaps that follow it.
#[derive(Clone)]
struct Mapping<'a> {
    range: Range<u64>,
    perms: [u8; 4],
    offset: u64,
    /// `fe:00`
    device: &'a [u8],
    inode: &'a [u8],
    name: &'a [u8],
    details: Vec<Detail<'a>>,
    /// Part of one of the guest's mappings in [`View::pages`], whose other parts the kernel may keep apart.
    touched: bool,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a [u8]) -> Option<Mapping<'a>> {
        let (range, rest) = field(line)?;
        let (perms, rest) = field(rest)?;
        let (offset, rest) = field(rest)?;
        let (device, rest) = field(rest)?;
        let (inode, name) = field(rest)?;
        let dash = range.iter().position(|&b| b == b'-')?;
        let (start, end) = (hex(&range[..dash])?, hex(&range[dash + 1..])?);
        let known = start < end && device.contains(&b':') && inode.iter().all(u8::is_ascii_digit);
        known.then_some(Mapping {
            range: start..end,
            perms: perms.try_into().ok()?,
            offset: hex(offset)?,
            device,
            inode,
            name,
            details: Vec::new(),
            touched: false,
        })
    }

    fn anonymous(&self) -> bool {
        self.inode == b"0"
    }

    /// Names heap and stack as the kernel would, if this were the guest's own process.
    fn rename(&mut self, view: &View<'_>) {
        let hits = |r: &Range<u64>| r.start < r.end && self.range.start < r.end && self.range.end > r.start;
        if self.anonymous() && (self.name.is_empty() || self.name == HEAP || self.name == STACK) {
            self.name = if hits(&view.stack) {
                STACK
            } else if hits(&view.heap) {
                HEAP
            } else {
                b""
            };
        }
    }

    /// Cuts out what is the engine's, and cuts where the guest's permissions begin to differ from the kernel's.
    fn pieces(self, pages: &[&GuestPages]) -> Vec<Mapping<'a>> {
        let mut pieces = Vec::new();
        let mut at = self.range.start;
        while at < self.range.end {
            let mut end = self.range.end;
            let mut engines = false;
            for r in [&layout::ENGINE, &layout::CACHE, &layout::TARGETS] {
                end = next_boundary(at, end, r);
                engines |= r.contains(&at);
            }
            let from = pages.partition_point(|p| p.range.end <= at);
            let mut prot = None;
            if let Some(p) = pages.get(from) {
                end = next_boundary(at, end, &p.range);
                prot = p.range.contains(&at).then_some(p.prot);
            }
            if !engines {
                pieces.push(self.piece(at..end, prot));
            }
            at = end;
        }
        pieces
    }

    fn piece(&self, range: Range<u64>, prot: Option<u32>) -> Mapping<'a> {
        let mut piece = self.clone();
        piece.touched = prot.is_some();
        if !self.anonymous() || self.offset != 0 {
            piece.offset = self.offset.wrapping_add(range.start - self.range.start);
        }
        if let Some(prot) = prot {
            for (i, &letter) in b"rwx".iter().enumerate() {
                piece.perms[i] = if prot & 1 << i != 0 { letter } else { b'-' };
            }
        }
        for detail in &mut piece.details {
            detail.cut(&self.range, &range);
            detail.set_flags(prot);
        }
        piece.range = range;
        piece
    }

    /// Takes `next` in, if the two differ only by a boundary that the engine made.
    fn join(&mut self, next: &Mapping<'a>) -> bool {
        let len = self.range.end - self.range.start;
        let fits = self.range.end == next.range.start
            && self.touched
            && next.touched
            && (self.perms, self.device, self.inode, self.name) == (next.perms, next.device, next.inode, next.name)
            && (next.offset == self.offset.wrapping_add(len) || self.anonymous() && self.offset == next.offset)
            && self.details.len() == next.details.len();
        if fits {
            self.range.end = next.range.end;
            for (mine, other) in self.details.iter_mut().zip(&next.details) {
                mine.add(other);
            }
        }
        fits
    }

    fn print(&self, out: &mut Vec<u8>) {
        /// Column at which the kernel puts names.
        const NAME_COLUMN: usize = 73;
        let start = out.len();
        let perms = String::from_utf8_lossy(&self.perms);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = write!(text, "{:08x}-{:08x} {perms} {:08x} ", self.range.start, self.range.end, self.offset);
        out.extend_from_slice(text.as_bytes());
        out.extend_from_slice(self.device);
        out.push(b' ');
        out.extend_from_slice(self.inode);
        out.push(b' ');
        if !self.name.is_empty() {
            let width = (NAME_COLUMN - 1).max(out.len() - start);
            out.resize(start + width, b' ');
            out.push(b' ');
            out.extend_from_slice(self.name);
        }
        out.push(b'\n');
        for detail in &self.details {
            detail.print(out);
        }
    }
}

/// Where a piece that begins at `at` must end at the latest, if `range` is treated differently.
fn next_boundary(at: u64, end: u64, range: &Range<u64>) -> u64 {
    let boundary = if at < range.start { range.start } else { range.end };
    if boundary > at { boundary.min(end) } else { end }
}

/// One line of smaps after the first.
#[derive(Clone)]
struct Detail<'a> {
    line: &'a [u8],
    kind: DetailKind,
}

#[derive(Clone)]
enum DetailKind {
    /// `Size`: follows from the addresses.
    Size(Number),
    /// An amount of memory: adds up.
    Amount(Number),
    /// `VmFlags`, where the guest's permissions take the place of the kernel's.
    Flags(Option<u32>),
    /// Anything else, passed as it is.
    Other,
}

/// A number in a line: its value, where it came from and whether it changed.
#[derive(Clone)]
struct Number {
    value: u64,
    digits: Range<usize>,
}

impl<'a> Detail<'a> {
    fn parse(line: &'a [u8]) -> Detail<'a> {
        Detail { line, kind: Detail::kind(line).unwrap_or(DetailKind::Other) }
    }

    fn kind(line: &[u8]) -> Option<DetailKind> {
        let colon = line.iter().position(|&b| b == b':')?;
        let key = &line[..colon];
        if key == b"VmFlags" {
            return Some(DetailKind::Flags(None));
        }
        let body = line.strip_suffix(b" kB")?;
        let start = colon + 1 + body[colon + 1..].iter().position(|&b| b != b' ')?;
        let digits = core::str::from_utf8(&body[start..]).ok()?;
        let number = Number { value: digits.parse().ok()?, digits: start..body.len() };
        match key {
            b"Size" => Some(DetailKind::Size(number)),
            b"KernelPageSize" | b"MMUPageSize" => None,
            _ => Some(DetailKind::Amount(number)),
        }
    }

    /// Keeps the share of `part` in `whole`. The shares of all parts add up to the former value.
    fn cut(&mut self, whole: &Range<u64>, part: &Range<u64>) {
        let len = u128::from(whole.end - whole.start);
        match &mut self.kind {
            DetailKind::Size(n) => n.value = (part.end - part.start) / 1024,
            DetailKind::Amount(n) => {
                let up_to = |at: u64| u128::from(n.value) * u128::from(at - whole.start) / len;
                n.value = (up_to(part.end) - up_to(part.start)) as u64;
            }
            _ => {}
        }
    }

    fn set_flags(&mut self, prot: Option<u32>) {
        if let DetailKind::Flags(flags) = &mut self.kind {
            *flags = prot;
        }
    }

    fn add(&mut self, other: &Detail<'_>) {
        match (&mut self.kind, &other.kind) {
            (DetailKind::Size(a), DetailKind::Size(b)) | (DetailKind::Amount(a), DetailKind::Amount(b)) => {
                a.value = a.value.saturating_add(b.value);
            }
            _ => {}
        }
    }

    fn print(&self, out: &mut Vec<u8>) {
        match &self.kind {
            DetailKind::Size(n) | DetailKind::Amount(n) => self.print_number(n, out),
            DetailKind::Flags(Some(prot)) => self.print_flags(*prot, out),
            DetailKind::Flags(None) | DetailKind::Other => out.extend_from_slice(self.line),
        }
        out.push(b'\n');
    }

    /// The new number ends in the column where the old one did.
    fn print_number(&self, n: &Number, out: &mut Vec<u8>) {
        let mut digits = String::new();
        let _ = write!(digits, "{}", n.value);
        let label = self.line.iter().position(|&b| b == b':').map_or(0, |i| i + 1);
        let pad = n.digits.end.saturating_sub(label + digits.len()).max(1);
        out.extend_from_slice(&self.line[..label]);
        out.resize(out.len() + pad, b' ');
        out.extend_from_slice(digits.as_bytes());
        out.extend_from_slice(&self.line[n.digits.end..]);
    }

    /// The kernel prints the two-letter flags in a fixed order, permissions first.
    fn print_flags(&self, prot: u32, out: &mut Vec<u8>) {
        const PERMISSIONS: [&[u8]; 3] = [b"rd", b"wr", b"ex"];
        out.extend_from_slice(b"VmFlags:");
        let given = PERMISSIONS.into_iter().enumerate().filter(|(i, _)| prot & 1 << i != 0).map(|(_, flag)| flag);
        let words = self.line.split(|&b| b == b' ').skip(1);
        let others = words.filter(|w| !w.is_empty() && !PERMISSIONS.contains(w));
        for flag in given.chain(others) {
            out.push(b' ');
            out.extend_from_slice(flag);
        }
        out.push(b' ');
    }
}

/// The first word and what follows it, without the blanks between.
fn field(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&b| b == b' ').unwrap_or(text.len());
    let next = text[end..].iter().position(|&b| b != b' ').map_or(text.len(), |n| end + n);
    (end > 0).then(|| (&text[..end], &text[next..]))
}

fn hex(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_hexdigit);
    u64::from_str_radix(core::str::from_utf8(text).ok().filter(|_| digits)?, 16).ok()
}

#[cfg(test)]
mod tests;
