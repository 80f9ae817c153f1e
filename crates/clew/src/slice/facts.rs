//! What is known about the code of a process: the control flow of its images, as they lie in memory.
//!
//! Code is read from the process, so addresses are the guest's throughout and patched code is seen as it ran. Functions
//! come from debug information, symbols, stubs of calls, and call frame information.

use flow::{CodeRange, Ending, Flow, Function, FunctionHint};
use image::LoadedImages;
use model::GuestAddr;
use model::serve::MapInfo;
use session::Session;
use slice::{Border, Facts, MayDefine, Merge, RegId};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

const READABLE: u8 = 1;
const WRITABLE: u8 = 2;
const EXECUTABLE: u8 = 4;
/// A mapping with constants that is longer is not read: jump tables lie in small ones.
const MOST_DATA: u64 = 64 << 20;

/// One image, or a stretch of code without a file.
struct Part {
    ranges: Vec<(u64, u64)>,
    flow: Flow,
}

/// The code of a process.
pub struct Program {
    parts: Vec<Part>,
    borders: HashMap<u64, Border>,
    /// Functions whose borders are known, by entry.
    met: HashMap<u64, ()>,
    refine: bool,
    linker: Vec<(u64, u64)>,
}

impl Program {
    /// The code that is mapped at the session's moment. Without `refine`, targets of indirect jumps are not known, as if
    /// there were only the code.
    pub fn new(
        session: &Session,
        loaded: &LoadedImages,
        paths: &[Option<PathBuf>],
        refine: bool,
    ) -> Result<Program, session::Error> {
        let maps = session.maps()?;
        let mut files: HashMap<&str, Vec<&MapInfo>> = HashMap::new();
        for m in maps.iter().filter(|m| !m.key.is_empty()) {
            files.entry(&m.key).or_default().push(m);
        }
        let mut parts = Vec::new();
        for of_file in files.values() {
            let code: Vec<_> = of_file.iter().filter(|m| m.prot & EXECUTABLE != 0).copied().collect();
            let Some(first) = code.first() else { continue };
            let constant = |m: &&&MapInfo| m.prot & (READABLE | WRITABLE | EXECUTABLE) == READABLE;
            let data = of_file.iter().filter(constant).filter(|m| m.end - m.start < MOST_DATA).copied();
            let hints = loaded.at(GuestAddr(first.start)).map(|(_, image, _)| hints(image)).unwrap_or_default();
            let mut flow = Flow::new(code.iter().map(|m| bytes(session, m)).collect(), hints);
            if refine {
                flow = flow.with_data(data.map(|m| bytes(session, m)).collect());
            }
            parts.push(Part { ranges: code.iter().map(|m| (m.start, m.end)).collect(), flow });
        }
        let is_linker = |m: &&MapInfo| {
            let name = loaded.at(GuestAddr(m.start)).and_then(|(n, _, _)| paths.get(n)?.as_ref()?.file_name());
            name.is_some_and(|n| n.to_string_lossy().starts_with("ld-linux"))
        };
        let code = maps.iter().filter(|m| m.prot & EXECUTABLE != 0);
        let linker = code.filter(is_linker).map(|m| (m.start, m.end)).collect();
        Ok(Program { parts, borders: HashMap::new(), met: HashMap::new(), refine, linker })
    }

    fn function(&mut self, pc: u64) -> Option<Arc<Function>> {
        let part = self.parts.iter_mut().find(|p| p.ranges.iter().any(|(a, b)| (*a..*b).contains(&pc)))?;
        part.flow.function(pc)
    }
}

impl Program {
    /// Where the indirect jump at `pc` may lead inside its function, by its table and by what was observed.
    pub fn jump_targets(&mut self, pc: u64) -> Vec<u64> {
        let Some(f) = self.function(pc) else { return Vec::new() };
        let block = f.block(pc).filter(|b| b.last == pc && b.ending == Ending::Indirect);
        let successors = block.map(|b| b.successors.as_slice()).unwrap_or_default();
        successors.iter().map(|n| f.blocks()[*n as usize].start).collect()
    }
}

fn bytes(session: &Session, m: &MapInfo) -> CodeRange {
    let mut bytes = vec![0; (m.end - m.start) as usize];
    let n = session.read(GuestAddr(m.start), &mut bytes).unwrap_or(0);
    bytes.truncate(n);
    CodeRange { start: m.start, bytes: bytes.into() }
}

fn hints(loaded: &image::LoadedImage) -> Vec<FunctionHint> {
    let hint = |f: &image::FunctionRange| {
        let [start, end] = [f.start, f.end].map(|at| loaded.bias.to_guest(at).0);
        FunctionHint { start, end, name: Some(f.name.clone()) }
    };
    loaded.image.functions().iter().map(hint).collect()
}

/// Reach of a store whose index is not known.
const REACH: u64 = 4096;
/// No frame is taken to be larger: a store somewhere in a frame goes at most so far from its return address.
const LARGEST_FRAME: i64 = 1 << 16;

fn convert(may: flow::MayDefine) -> MayDefine {
    let vectors = u64::from(may.vectors) << 16;
    let flags = if may.flags { RegId::FLAGS.bit() } else { 0 };
    let x87 = if may.other_registers { RegId::X87.bit() } else { 0 };
    let mut frame: Vec<_> = may.frame.into_iter().map(within_frame).collect();
    frame.extend(may.unbounded_frame.iter().map(|at| *at..at.saturating_add(REACH as i64).min(0).max(at + 1)));
    let mut memory = may.absolute;
    memory.extend(may.unbounded_absolute.iter().map(|at| *at..at.saturating_add(REACH)));
    let pointers = may.through_pointers || may.calls_unknown;
    let registers = u64::from(may.gprs) | vectors | flags | x87;
    MayDefine { registers, frame, memory, pointers, outside: may.calls_unknown }
}

/// Where it is not known which bytes of a frame are meant: those below its return address.
fn within_frame(bytes: Range<i64>) -> Range<i64> {
    if bytes.start >= -LARGEST_FRAME && bytes.end <= LARGEST_FRAME {
        return bytes;
    }
    let start = bytes.start.clamp(-LARGEST_FRAME, LARGEST_FRAME);
    start..bytes.end.clamp(start, start.max(0))
}

impl Facts for Program {
    fn merge(&mut self, branch: u64) -> Merge {
        let Some(f) = self.function(branch) else { return Merge::Exit };
        match f.merge(branch) {
            _ if !self.refine && !f.is_branch(branch) => Merge::NoBranch,
            flow::Merge::At(pc) => Merge::At(pc),
            _ => Merge::Exit,
        }
    }

    fn is_merge_point(&mut self, pc: u64) -> bool {
        self.function(pc).is_some_and(|f| f.merge_points().binary_search(&pc).is_ok())
    }

    fn merge_points(&mut self, start: u64, end: u64) -> Vec<u64> {
        let Some(f) = self.function(start) else { return Vec::new() };
        let points = f.merge_points();
        let from = points.partition_point(|p| *p <= start);
        points[from..].iter().copied().take_while(|p| *p < end).collect()
    }

    fn border(&mut self, pc: u64) -> Option<Border> {
        let f = self.function(pc)?;
        if self.met.insert(f.entry(), ()).is_none() {
            let reg = |r: u8| RegId::gpr(r);
            self.borders.extend(f.saves().iter().map(|s| (s.pc, Border::Save(reg(s.register)))));
            self.borders.extend(f.restores().iter().map(|s| (s.pc, Border::Restore(reg(s.register)))));
        }
        self.borders.get(&pc).copied()
    }

    fn observe(&mut self, from: u64, to: u64) {
        let mut parts = self.parts.iter_mut().filter(|_| self.refine);
        if let Some(part) = parts.find(|p| p.ranges.iter().any(|(a, b)| (*a..*b).contains(&from))) {
            part.flow.observe(from, to);
        }
    }

    fn other_ways(&mut self, branch: u64, went: u64) -> MayDefine {
        let Some(f) = self.function(branch) else { return MayDefine::default() };
        let Some(block) = f.block(branch).filter(|b| b.last == branch) else { return MayDefine::default() };
        let others: Vec<u64> =
            block.successors.iter().map(|s| f.blocks()[*s as usize].start).filter(|s| *s != went).collect();
        let merge = f.merge(branch);
        let Some(part) = self.parts.iter_mut().find(|p| p.ranges.iter().any(|(a, b)| (*a..*b).contains(&branch)))
        else {
            return MayDefine::default();
        };
        let mut all = MayDefine::default();
        for from in others {
            all.add(convert(part.flow.may_define(branch, from, merge)));
        }
        all
    }

    fn is_linker(&mut self, pc: u64) -> bool {
        self.linker.iter().any(|(a, b)| (*a..*b).contains(&pc))
    }

    fn same_function(&mut self, a: u64, b: u64) -> bool {
        match (self.function(a), self.function(b)) {
            (Some(a), Some(b)) => a.entry() == b.entry(),
            _ => false,
        }
    }
}
