//! From guest bytes to one basic block of decoded instructions.

use super::Request;
use alloc::vec::Vec;
use iced_x86::{Code, ConstantOffsets, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use isa::{Isa, Summary};
use model::Mode;

/// Cap on the instructions of one block.
pub const MAX_INSTRUCTIONS: usize = 48;

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Its last instruction transfers control.
    Transfer,
    /// Its last instruction is the engine's to execute.
    Special(Special),
    /// It simply stops: length cap, scratch registers, probe or page reasons. Goes on at the next address.
    Cut,
    /// The bytes at its (only) address are not an instruction the CPU would accept.
    Undefined,
}

/// Instructions the engine executes itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Special {
    Syscall,
    Int80,
    Cpuid,
    Rdtsc,
    Rdtscp,
    Random,
    Xgetbv,
    ReadFsGs,
    WriteFsGs,
    /// Load and store the flags register: trap and alignment-check flags must not reach the CPU, nor ours the guest.
    Popf,
    Pushf,
    /// A transaction starts: it aborts at once, as on a CPU that has just run out of resources for it.
    Xbegin,
    /// Far transfers, `iret`, `sysenter`: into code that cannot be followed.
    Unsupported,
}

/// A decoded block. Buffers are reused between blocks.
#[derive(Default)]
pub struct Decoded {
    pub insns: Vec<Instruction>,
    pub offsets: Vec<ConstantOffsets>,
    /// Filled only for modes that need it.
    pub summaries: Vec<Summary>,
    pub ending: Option<Ending>,
    /// Union of the registers the block touches (trace mode).
    pub used: u16,
    pub end: u64,
}

/// Decodes one block from `code` (the bytes at `request.pc`). `stop` says that a block must not run over an address.
pub fn decode_block(
    request: &Request,
    code: &[u8],
    isa: &mut Isa,
    stop: &mut dyn FnMut(u64) -> bool,
    out: &mut Decoded,
) {
    out.insns.clear();
    out.offsets.clear();
    out.summaries.clear();
    out.used = 1 << 4;
    let mut d = Decoder::with_ip(64, code, request.pc, DecoderOptions::NONE);
    let annotate = request.mode != Mode::None;
    out.ending = Some(Ending::Cut);
    out.end = request.pc;
    while out.insns.len() < request.max_instructions {
        if !out.insns.is_empty() && stop(d.ip()) {
            break;
        }
        let i = d.decode();
        if i.is_invalid() {
            // A cut-off instruction at the end of the readable bytes faults on fetch when it is reached by itself.
            if out.insns.is_empty() {
                out.ending = Some(Ending::Undefined);
            }
            break;
        }
        if annotate {
            let s = isa.summary(&i);
            let used = out.used | s.gpr_read | s.gpr_write;
            if request.mode == Mode::Trace && (!used).count_ones() < 2 && !out.insns.is_empty() {
                break;
            }
            out.used = used;
            out.summaries.push(s);
        }
        let relative = i.memory_base() == iced_x86::Register::RIP || i.memory_base() == iced_x86::Register::EIP;
        out.offsets.push(if relative { d.get_constant_offsets(&i) } else { ConstantOffsets::default() });
        out.insns.push(i);
        out.end = i.next_ip();
        if let Some(s) = special(&i, request.virtual_time) {
            out.ending = Some(Ending::Special(s));
            break;
        }
        match i.flow_control() {
            FlowControl::Next | FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend => {}
            _ => {
                out.ending = Some(Ending::Transfer);
                break;
            }
        }
    }
}

fn special(i: &Instruction, virtual_time: bool) -> Option<Special> {
    Some(match i.mnemonic() {
        Mnemonic::Syscall => Special::Syscall,
        Mnemonic::Int if i.immediate8() == 0x80 => Special::Int80,
        Mnemonic::Cpuid => Special::Cpuid,
        Mnemonic::Rdtsc if virtual_time => Special::Rdtsc,
        Mnemonic::Rdtscp if virtual_time => Special::Rdtscp,
        Mnemonic::Rdrand | Mnemonic::Rdseed if virtual_time => Special::Random,
        Mnemonic::Xgetbv => Special::Xgetbv,
        Mnemonic::Rdgsbase => Special::ReadFsGs,
        Mnemonic::Wrgsbase | Mnemonic::Wrfsbase => Special::WriteFsGs,
        Mnemonic::Popfq | Mnemonic::Popf => Special::Popf,
        Mnemonic::Pushfq | Mnemonic::Pushf => Special::Pushf,
        Mnemonic::Xbegin => Special::Xbegin,
        Mnemonic::Sysenter | Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq | Mnemonic::Retf => {
            Special::Unsupported
        }
        Mnemonic::Jmp | Mnemonic::Call if is_far(i) => Special::Unsupported,
        // GS is the engine's: its base would be lost.
        Mnemonic::Mov | Mnemonic::Pop if i.op0_register() == Register::GS => Special::Unsupported,
        Mnemonic::Lgs => Special::Unsupported,
        _ => return None,
    })
}

fn is_far(i: &Instruction) -> bool {
    i.op0_kind() == OpKind::FarBranch16
        || i.op0_kind() == OpKind::FarBranch32
        || matches!(
            i.code(),
            Code::Jmp_m1616
                | Code::Jmp_m1632
                | Code::Jmp_m1664
                | Code::Call_m1616
                | Code::Call_m1632
                | Code::Call_m1664
        )
}
