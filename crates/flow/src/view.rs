//! The view of one image: which function an address belongs to, what was observed, what is cached.

use std::collections::HashMap;
use std::sync::Arc;

use isa::Isa;

use crate::code::{CodeRange, Memory};
use crate::discover::{Discovery, Observed, jumps_out};
use crate::extents::{Begun, Extents, FunctionHint, Import, cold_base};
use crate::function::{CallTarget, Function};
use crate::returns::{Next, Returns, next};
use crate::summaries::Summaries;

/// Candidates for the function that a moved part belongs to that are looked at.
const OWNERS: usize = 8;

/// The static view of one image, refined by what was observed. Functions are analysed when they are asked for.
pub struct Flow {
    pub(crate) memory: Memory,
    pub(crate) extents: Extents,
    observed: Observed,
    returns: Returns,
    pub(crate) isa: Isa,
    functions: HashMap<u64, Arc<Function>>,
    /// Start of a moved part to the start of the function it belongs to; to itself if it belongs to none.
    owners: HashMap<u64, u64>,
    pub(crate) summaries: Summaries,
    pub(crate) pointers: Vec<u64>,
    pub(crate) address_taken: Option<Arc<[u64]>>,
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow").field("analysed", &self.functions.len()).finish_non_exhaustive()
    }
}

impl Flow {
    /// The view of an image with this code. Hints may overlap, be wrong or missing.
    pub fn new(code: Vec<CodeRange>, hints: Vec<FunctionHint>) -> Flow {
        let memory = Memory::new(code);
        let extents = Extents::new(&memory, hints);
        Flow {
            memory,
            extents,
            observed: Observed::default(),
            returns: Returns::default(),
            isa: Isa::new(),
            functions: HashMap::new(),
            owners: HashMap::new(),
            summaries: Summaries::default(),
            pointers: Vec::new(),
            address_taken: None,
        }
    }

    /// Adds sections without code, where jump tables lie.
    pub fn with_data(mut self, data: Vec<CodeRange>) -> Flow {
        self.memory.add_data(data);
        self
    }

    /// Adds the names behind slots that the dynamic linker fills, so that calls through them are known by name.
    pub fn with_imports(mut self, imports: Vec<Import>) -> Flow {
        self.extents.add_imports(imports);
        self
    }

    /// `len` bytes of the image.
    pub fn read(&self, addr: u64, len: usize) -> Option<&[u8]> {
        self.memory.bytes(addr, len)
    }

    /// The starts of all functions that are known, analysed or not, in order.
    pub fn entries(&self) -> Vec<u64> {
        self.extents.starts().collect()
    }

    /// The indirect jump or call at `from` was seen to go to `to`. True if that changed the graph of a function that had
    /// been asked for.
    pub fn observe(&mut self, from: u64, to: u64) -> bool {
        let Some(instruction) = self.memory.instruction(from) else { return false };
        let (indirect, call) = match next(&instruction) {
            Next::Call(None) => (true, true),
            Next::ThroughSlot { call, .. } => (true, call),
            Next::Returns => (instruction.flow_control() == iced_x86::FlowControl::IndirectBranch, false),
            _ => (false, false),
        };
        if !indirect || !self.observed.targets.entry(from).or_default().insert(to) {
            return false;
        }
        if call {
            self.summaries.forget_call_trees();
            self.entry_seen(to);
            return false;
        }
        let changed = |f: &Function| {
            let known = f.block(from).is_some_and(|b| {
                let inside = b.successors.iter().any(|s| f.blocks[*s as usize].start == to);
                let ours = to != f.entry && f.parts.iter().any(|p| p.contains(&to));
                inside || (!ours && b.exit != crate::function::Exit::No)
            });
            f.contains(from) && !known
        };
        self.forget(changed)
    }

    /// An exception that left the call at `call` was caught at `landing`, in the same function. True if that changed the
    /// graph of a function that had been asked for.
    pub fn observe_unwind(&mut self, call: u64, landing: u64) -> bool {
        if !self.observed.landings.entry(call).or_default().insert(landing) {
            return false;
        }
        self.forget(|f| f.contains(call))
    }

    /// Targets of the indirect jump or call at `pc` that were observed, in order.
    pub fn observed_targets(&self, pc: u64) -> Vec<u64> {
        self.observed.targets.get(&pc).into_iter().flatten().copied().collect()
    }

    /// Control was seen to enter a function here: the target of a call, the program's entry, a callback, a handler.
    pub fn entry_seen(&mut self, addr: u64) {
        let begun = self.extents.begin(&self.memory, addr);
        if begun != Begun::Known {
            self.address_taken = None;
        }
        match begun {
            Begun::Known | Begun::New { shortened: None } => {}
            Begun::Inside(start) => {
                let missing = self.functions.get(&start).is_some_and(|f| !f.contains(addr));
                if self.observed.roots.entry(start).or_default().insert(addr) && missing {
                    self.drop_function(start);
                }
            }
            Begun::New { shortened: Some(start) } => self.drop_function(start),
        }
    }

    /// The function that contains the instruction at `pc`; `None` if there is no code.
    ///
    /// An address in a known function that its entry does not reach (a landing pad, the target of an indirect jump that
    /// was not observed) becomes a further way into it. Code that no hint covers belongs to the entry seen last before
    /// it, if that reaches it, else it begins a function of its own.
    pub fn function(&mut self, pc: u64) -> Option<Arc<Function>> {
        self.memory.instruction(pc)?;
        let start = match self.extents.find(pc) {
            Some((start, _)) => self.owner(start),
            None => {
                self.entry_seen(pc);
                pc
            }
        };
        let function = self.analysed(start)?;
        if function.contains(pc) {
            return Some(function);
        }
        let begins_own = !self.extents.at(start).is_some_and(|e| e.sized);
        let function = if begins_own {
            self.entry_seen(pc);
            self.analysed(pc)?
        } else {
            self.observed.roots.entry(start).or_default().insert(pc);
            self.drop_function(start);
            self.analysed(start)?
        };
        // An instruction that runs over the end of its function belongs to none.
        (function.contains(pc) || function.is_cut()).then_some(function)
    }

    /// May the code at `entry` return, as far as names and code show?
    pub fn may_return(&mut self, entry: u64) -> bool {
        self.returns.may_return(&self.memory, &self.extents, entry)
    }

    fn analysed(&mut self, start: u64) -> Option<Arc<Function>> {
        if let Some(function) = self.functions.get(&start) {
            return Some(function.clone());
        }
        let range = self.extents.range(start)?;
        let mut discovery = Discovery {
            memory: &self.memory,
            extents: &self.extents,
            observed: &self.observed,
            returns: &mut self.returns,
            isa: &mut self.isa,
        };
        let function = Arc::new(discovery.function(range));
        for part in &function.parts[1..] {
            if self.extents.at(part.start).is_some_and(|e| e.is_cold_part() || e.names.is_empty()) {
                self.owners.insert(part.start, start);
            }
        }
        self.functions.insert(start, function.clone());
        self.begin_callees(&function);
        Some(function)
    }

    /// Calls show where functions begin that no hint names, and further ways into those that one does.
    fn begin_callees(&mut self, function: &Function) {
        for call in function.calls.iter().filter(|c| !c.tail) {
            if let CallTarget::Direct(to) = call.target {
                self.entry_seen(to);
            }
        }
    }

    /// The function that an extent belongs to: another one if the extent is a part that was moved away.
    fn owner(&mut self, start: u64) -> u64 {
        if let Some(owner) = self.owners.get(&start) {
            return *owner;
        }
        let Some(extent) = self.extents.at(start) else { return start };
        let unnamed = extent.names.is_empty() && extent.sized;
        if !extent.is_cold_part() && !unnamed {
            return start;
        }
        let range = start..extent.end;
        let bases = extent.names.iter().filter_map(|n| cold_base(n));
        let mut candidates: Vec<u64> = bases.flat_map(|base| self.extents.named(base)).copied().collect();
        let by_name = candidates.len();
        let back = jumps_out(&self.memory, range).filter_map(|to| {
            self.extents.find(to).filter(|(start, e)| *start != to && !e.is_cold_part()).map(|(start, _)| start)
        });
        candidates.extend(back);
        // Before anything is asked of it, so that a candidate that asks back gets an answer.
        self.owners.insert(start, start);
        for candidate in candidates.iter().take(OWNERS) {
            let has_it = self.analysed(*candidate).is_some_and(|f| f.parts[1..].iter().any(|p| p.start == start));
            if has_it {
                self.owners.insert(start, *candidate);
                return *candidate;
            }
        }
        // Only landing pads may lead there. Then the name tells, if there is one function of that name.
        if let [owner] = candidates[..by_name] {
            self.owners.insert(start, owner);
            return owner;
        }
        start
    }

    fn drop_function(&mut self, start: u64) {
        if self.functions.remove(&start).is_some() {
            self.summaries.forget(start);
        }
    }

    /// Drops cached functions. True if there was one.
    fn forget(&mut self, stale: impl Fn(&Function) -> bool) -> bool {
        let dropped: Vec<u64> = self.functions.iter().filter(|(_, f)| stale(f)).map(|(start, _)| *start).collect();
        dropped.iter().for_each(|start| self.drop_function(*start));
        !dropped.is_empty()
    }
}
