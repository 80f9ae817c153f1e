//! The call frame information of one image: for an address, how to find the caller's registers.
//!
//! `.eh_frame` is asked first, then `.debug_frame`, which may lie in the separate debug file. All entries are indexed
//! by address once; `.eh_frame_hdr` is not used, since it can be missing or lie, and the index costs one pass.
//!
//! Guarantees: the index costs time and memory linear in the sections, each lookup at most as much again.
//! May miss: code described only in memory (the vDSO, code compiled at run time) and files without section headers.
//! Source: DWARF 5, section 6.4; the Linux Standard Base, section 10.6, for `.eh_frame`.

use crate::dwarf::{Meter, Metered};
use crate::elf::Elf;
use crate::evaluate::{Machine, Missing, evaluate_address};
use crate::process::{Register, Registers};
use crate::range_map::RangeMap;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, Encoding, Format, RegisterRule, UnwindContext,
    UnwindExpression, UnwindSection,
};
use model::GuestAddr;

/// What reading may cost beside the size of the sections.
const BASE_ALLOWANCE: u64 = 1 << 20;
/// Expressions in these sections are as those of version 5 units.
const ENCODING: Encoding = Encoding { format: Format::Dwarf32, version: 5, address_size: 8 };

/// The tables of one image.
#[derive(Debug, Default)]
pub(crate) struct Cfi {
    eh: Table,
    debug: Table,
    bases: BaseAddresses,
}

#[derive(Debug, Default)]
struct Table {
    bytes: Vec<u8>,
    /// The offsets of the entries by the addresses they describe.
    entries: RangeMap,
}

/// How one frame leads to its caller.
#[derive(Debug)]
pub(crate) struct Step {
    pub cfa: GuestAddr,
    /// The caller's registers; without an instruction pointer when there is no caller.
    pub caller: Registers,
    /// Was the frame made by the kernel to call a signal handler?
    pub signal: bool,
}

impl Cfi {
    /// `debug` is the separate debug file, if there is one.
    pub fn load(elf: &Elf, debug: Option<&Elf>) -> Cfi {
        let address = |name: &str| elf.section(name).map_or(0, |s| s.address);
        let bases = BaseAddresses::default()
            .set_eh_frame(address(".eh_frame"))
            .set_text(address(".text"))
            .set_got(address(".got"));
        let debug_frame = [Some(elf), debug].into_iter().flatten().find_map(|e| e.named_contents(".debug_frame"));
        let mut cfi = Cfi { bases, ..Cfi::default() };
        cfi.eh.bytes = elf.named_contents(".eh_frame").unwrap_or_default();
        cfi.debug.bytes = debug_frame.unwrap_or_default();
        cfi.eh.entries = index(&eh_frame(&cfi.eh.bytes, &cfi.eh.meter()), &cfi.bases);
        cfi.debug.entries = index(&debug_frame_section(&cfi.debug.bytes, &cfi.debug.meter()), &cfi.bases);
        cfi
    }

    /// The code that the entries describe: functions, or parts of them, by address.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.eh.entries.entries().chain(self.debug.entries.entries()).map(|e| (e.begin, e.end))
    }

    /// The start and the end of what describes the code at `at`.
    pub fn range_at(&self, at: u64) -> Option<(u64, u64)> {
        let found = self.eh.entries.at(at).next().or_else(|| self.debug.entries.at(at).next());
        found.map(|e| (e.begin, e.end))
    }

    /// The value of the stack pointer before the call of the function that runs at `at`. Reads memory only where an
    /// expression says so.
    pub fn cfa(&self, at: u64, machine: &dyn Machine) -> Option<GuestAddr> {
        let eh = || {
            let offset = self.eh.entries.at(at).next()?.value as usize;
            let meter = self.eh.meter();
            cfa(&eh_frame(&self.eh.bytes, &meter), &self.bases, gimli::EhFrameOffset(offset), at, machine).ok()
        };
        let debug = || {
            let offset = self.debug.entries.at(at).next()?.value as usize;
            let meter = self.debug.meter();
            let section = debug_frame_section(&self.debug.bytes, &meter);
            cfa(&section, &self.bases, gimli::DebugFrameOffset(offset), at, machine).ok()
        };
        eh().or_else(debug)
    }

    /// The way from the frame at `at` with `registers` to its caller. `None` when nothing describes the address, or
    /// what does is damaged.
    pub fn step(&self, at: u64, registers: &Registers, machine: &dyn Machine) -> Option<Step> {
        let eh = || {
            let offset = self.eh.entries.at(at).next()?.value as usize;
            let meter = self.eh.meter();
            step(&eh_frame(&self.eh.bytes, &meter), &self.bases, gimli::EhFrameOffset(offset), at, registers, machine)
                .ok()
        };
        let debug = || {
            let offset = self.debug.entries.at(at).next()?.value as usize;
            let meter = self.debug.meter();
            let section = debug_frame_section(&self.debug.bytes, &meter);
            step(&section, &self.bases, gimli::DebugFrameOffset(offset), at, registers, machine).ok()
        };
        eh().or_else(debug)
    }
}

impl Table {
    fn meter(&self) -> Meter {
        // The entries of the C library cost four times their size: each refers to a common entry that is read again.
        Meter::new((self.bytes.len() as u64).saturating_mul(8).saturating_add(BASE_ALLOWANCE))
    }
}

fn eh_frame<'a>(bytes: &'a [u8], meter: &'a Meter) -> EhFrame<Metered<'a>> {
    let mut section = EhFrame::from(Metered::new(bytes, meter));
    section.set_address_size(8);
    section
}

fn debug_frame_section<'a>(bytes: &'a [u8], meter: &'a Meter) -> DebugFrame<Metered<'a>> {
    let mut section = DebugFrame::from(Metered::new(bytes, meter));
    section.set_address_size(8);
    section
}

fn index<'a, S: UnwindSection<Metered<'a>>>(section: &S, bases: &BaseAddresses) -> RangeMap {
    let mut ranges = Vec::new();
    let mut entries = section.entries(bases);
    // What was read before damage is still good.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(S::cie_from_offset) else { continue };
        let (begin, end) = (fde.initial_address(), fde.end_address());
        // Linkers leave entries of functions they threw away at address 0.
        if let (Ok(offset), 1..) = (u32::try_from(fde.offset()), begin) {
            ranges.push((begin, end, offset));
        }
    }
    RangeMap::new(ranges)
}

fn cfa<'a, S: UnwindSection<Metered<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    at: u64,
    machine: &dyn Machine,
) -> Result<GuestAddr, Missing> {
    let fde = section.fde_from_offset(bases, offset, S::cie_from_offset)?;
    let mut context = UnwindContext::new();
    let row = fde.unwind_info_for_address(section, bases, &mut context, at)?;
    rule_of_cfa(section, row.cfa(), machine)
}

fn rule_of_cfa<'a, S: UnwindSection<Metered<'a>>>(
    section: &S,
    rule: &CfaRule<usize>,
    machine: &dyn Machine,
) -> Result<GuestAddr, Missing> {
    match rule {
        CfaRule::RegisterAndOffset { register, offset } => {
            let base = machine.register(Register(register.0)).ok_or(Missing::OptimizedOut)?;
            Ok(GuestAddr(base.wrapping_add_signed(*offset)))
        }
        CfaRule::Expression(e) => evaluate_address(e.get(section)?, ENCODING, None, machine),
    }
}

fn step<'a, S: UnwindSection<Metered<'a>>>(
    section: &S,
    bases: &BaseAddresses,
    offset: S::Offset,
    at: u64,
    registers: &Registers,
    machine: &dyn Machine,
) -> Result<Step, Missing> {
    let fde = section.fde_from_offset(bases, offset, S::cie_from_offset)?;
    let mut context = UnwindContext::new();
    let row = fde.unwind_info_for_address(section, bases, &mut context, at)?;
    let run = |e: &UnwindExpression<usize>, initial| evaluate_address(e.get(section)?, ENCODING, initial, machine);
    let cfa = rule_of_cfa(section, row.cfa(), machine)?;
    let signal = fde.is_signal_trampoline();
    // The kernel's frame keeps everything that it does not say to be elsewhere.
    let mut caller = if signal { *registers } else { registers.for_caller() };
    caller.set(Register::RSP, Some(cfa.0));
    caller.set(Register::RIP, None);
    let word = |at: GuestAddr| {
        let mut bytes = [0; 8];
        (machine.read(at, &mut bytes) == 8).then(|| u64::from_le_bytes(bytes)).ok_or(Missing::Memory(at))
    };
    let return_address = fde.cie().return_address_register();
    for (register, rule) in row.registers() {
        let value = match rule {
            RegisterRule::Undefined | RegisterRule::Architectural => None,
            RegisterRule::SameValue => machine.register(Register(register.0)),
            RegisterRule::Offset(n) => Some(word(GuestAddr(cfa.0.wrapping_add_signed(*n)))?),
            RegisterRule::ValOffset(n) => Some(cfa.0.wrapping_add_signed(*n)),
            RegisterRule::Register(other) => machine.register(Register(other.0)),
            RegisterRule::Expression(e) => Some(word(run(e, Some(cfa))?)?),
            RegisterRule::ValExpression(e) => Some(run(e, Some(cfa))?.0),
            RegisterRule::Constant(n) => Some(*n),
            _ => None,
        };
        let register = if *register == return_address { Register::RIP } else { Register(register.0) };
        caller.set(register, value);
    }
    Ok(Step { cfa, caller, signal })
}
