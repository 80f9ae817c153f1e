//! Machine state apart from registers and memory, and what sort of thing an instruction does.
//!
//! This is a list of the special instructions; whatever is not in it is plain. Privileged instructions are only
//! marked as such: user code that executes one gets a fault and no effect.

use iced_x86::{FlowControl, Instruction, Mnemonic, Register};

use crate::effects::{Effects, Kind, System};
use crate::registers::{ByteRange, Reg, RegAccess};

/// Adds system state and kind of `instruction`.
pub(crate) fn system(instruction: &Instruction, out: &mut Effects) {
    out.kind = kind(instruction);
    if out.kind == Kind::Branch {
        let conditional = instruction.flow_control() == FlowControl::ConditionalBranch;
        let bytes = ByteRange::new(0, 8);
        out.regs.push(RegAccess { reg: Reg::Rip, bytes, read: false, write: true, conditional });
    }
    let (read, write) = state(instruction);
    out.system_read |= read;
    out.system_write |= write;
    for access in &out.regs {
        // Loading a selector loads the base from its descriptor; a null selector keeps the base on some processors.
        if let (Reg::Segment(n), true) = (access.reg, access.write) {
            let base = match n {
                4 => System::FS_BASE,
                5 => System::GS_BASE,
                _ => System::NONE,
            };
            out.system_read |= base | System::DESCRIPTORS;
            out.system_write |= base;
        }
    }
}

/// What sort of thing `instruction` does.
fn kind(instruction: &Instruction) -> Kind {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Syscall | M::Sysenter | M::Int | M::Vmcall | M::Vmmcall | M::Vmgexit | M::Vmfunc | M::Enclu => {
            Kind::SystemCall
        }
        M::Int1 | M::Int3 | M::Into | M::Ud0 | M::Ud1 | M::Ud2 | M::Bound => Kind::Trap,
        M::Xbegin | M::Xend | M::Xabort => Kind::Transaction,
        M::Mfence | M::Lfence | M::Sfence | M::Serialize | M::Cpuid => Kind::Fence,
        M::Nop
        | M::Pause
        | M::Endbr64
        | M::Endbr32
        | M::Reservednop
        | M::Fnop
        | M::Prefetch
        | M::Prefetchw
        | M::Prefetchwt1
        | M::Prefetchnta
        | M::Prefetcht0
        | M::Prefetcht1
        | M::Prefetcht2
        | M::Clflush
        | M::Clflushopt
        | M::Clwb
        | M::Cldemote
        | M::Ptwrite
        | M::Tpause
        | M::Umonitor
        | M::Umwait
        | M::Monitorx
        | M::Mwaitx
        | M::Xsusldtrk
        | M::Xresldtrk => Kind::Hint,
        _ if instruction.is_privileged() => Kind::Privileged,
        _ => match instruction.flow_control() {
            FlowControl::Next => Kind::Plain,
            FlowControl::Exception => Kind::Trap,
            FlowControl::Interrupt => Kind::SystemCall,
            FlowControl::XbeginXabortXend => Kind::Transaction,
            _ => Kind::Branch,
        },
    }
}

/// System state that `instruction` reads and writes.
fn state(instruction: &Instruction) -> (System, System) {
    use Mnemonic as M;
    const NONE: System = System::NONE;
    match instruction.mnemonic() {
        M::Rdtsc | M::Rdpmc | M::Rdpru => (System::TSC, NONE),
        M::Rdtscp => (System::TSC | System::CPUID, NONE),
        M::Cpuid | M::Rdpid => (System::CPUID, NONE),
        M::Rdrand | M::Rdseed => (System::RANDOM, NONE),
        M::Xgetbv => (System::XCR0, NONE),
        M::Rdfsbase => (System::FS_BASE, NONE),
        M::Rdgsbase => (System::GS_BASE, NONE),
        M::Wrfsbase => (NONE, System::FS_BASE),
        M::Wrgsbase => (NONE, System::GS_BASE),
        M::Rdpkru => (System::PKRU, NONE),
        M::Wrpkru => (NONE, System::PKRU),
        M::Xsave | M::Xsave64 | M::Xsaveopt | M::Xsaveopt64 | M::Xsavec | M::Xsavec64 => {
            (System::EXTENDED_STATE | System::XCR0, NONE)
        }
        M::Xrstor | M::Xrstor64 => (System::XCR0, System::EXTENDED_STATE),
        M::Rdsspd | M::Rdsspq => (System::SHADOW_STACK, NONE),
        M::Incsspd | M::Incsspq | M::Saveprevssp | M::Rstorssp | M::Wrssd | M::Wrssq => {
            (System::SHADOW_STACK, System::SHADOW_STACK)
        }
        M::Ldtilecfg | M::Tilerelease => (NONE, System::TILE_CONFIG),
        M::Sttilecfg
        | M::Tilezero
        | M::Tileloadd
        | M::Tileloaddt1
        | M::Tilestored
        | M::Tdpbf16ps
        | M::Tdpfp16ps
        | M::Tdpbssd
        | M::Tdpbsud
        | M::Tdpbusd
        | M::Tdpbuud
        | M::Tcmmimfp16ps
        | M::Tcmmrlfp16ps => (System::TILE_CONFIG, NONE),
        M::Xbegin | M::Xend | M::Xabort => (System::TRANSACTION, System::TRANSACTION),
        M::Xtest => (System::TRANSACTION, NONE),
        M::Sgdt | M::Sidt | M::Sldt | M::Str | M::Smsw | M::Lar | M::Lsl | M::Verr | M::Verw => {
            (System::DESCRIPTORS, NONE)
        }
        M::Clui | M::Stui | M::Senduipi => (NONE, System::USER_INTERRUPTS),
        M::Testui => (System::USER_INTERRUPTS, NONE),
        M::Uiret => (System::USER_INTERRUPTS, System::USER_INTERRUPTS),
        M::Monitorx | M::Umonitor => (NONE, System::MONITOR),
        M::Mwaitx | M::Umwait => (System::MONITOR | System::TSC, System::MONITOR),
        M::Tpause => (System::TSC, NONE),
        M::Mfence | M::Lfence | M::Sfence | M::Serialize => (NONE, System::MEMORY_ORDER),
        M::Clflush | M::Clflushopt | M::Clwb | M::Cldemote => (NONE, System::MEMORY_ORDER),
        M::In | M::Insb | M::Insw | M::Insd => (System::PORTS, System::PORTS),
        M::Out | M::Outsb | M::Outsw | M::Outsd => (NONE, System::PORTS),
        M::Aesenc128kl
        | M::Aesdec128kl
        | M::Aesenc256kl
        | M::Aesdec256kl
        | M::Aesencwide128kl
        | M::Aesdecwide128kl
        | M::Aesencwide256kl
        | M::Aesdecwide256kl
        | M::Encodekey128
        | M::Encodekey256 => (System::PRIVILEGED, NONE),
        _ if instruction.is_privileged() => (System::PRIVILEGED, System::PRIVILEGED),
        _ => (NONE, NONE),
    }
}

/// Mends registers of special instructions.
pub(crate) fn registers(instruction: &Instruction, out: &mut Effects) {
    use Mnemonic as M;
    match instruction.mnemonic() {
        // Without shadow stacks these are no-operations. With UMIP the kernel emulates the others and leaves the upper
        // part of the register alone, which a processor would clear or leave undefined.
        M::Rdsspd | M::Rdsspq | M::Sldt | M::Str | M::Smsw => {
            for access in out.regs.iter_mut().filter(|access| access.write) {
                access.conditional = true;
            }
        }
        M::Fxsave | M::Fxsave64 | M::Fxrstor | M::Fxrstor64 => {
            let write = matches!(instruction.mnemonic(), M::Fxrstor | M::Fxrstor64);
            for n in 0..16 {
                let bytes = ByteRange::new(0, 16);
                out.regs.push(RegAccess { reg: Reg::Vec(n), bytes, read: !write, write, conditional: false });
            }
        }
        // iced names the segment register; the base is what is meant.
        M::Rdfsbase | M::Rdgsbase | M::Wrfsbase | M::Wrgsbase => {
            out.regs.retain(|access| !matches!(access.reg, Reg::Segment(_)));
        }
        _ => {}
    }
    // fs and gs in an address stand for their bases, which are in the memory access.
    let loads_selector = (0..instruction.op_count()).any(|n| {
        let register = instruction.op_register(n);
        instruction.op_kind(n) == iced_x86::OpKind::Register && matches!(register, Register::FS | Register::GS)
    });
    if !loads_selector {
        out.regs.retain(|access| !matches!(access.reg, Reg::Segment(4 | 5)) || access.write);
    }
}
