//! Why a form is not executed.

use iced_x86::{Code, Instruction, Mnemonic};
use isa::{Effects, Kind, Shape};
use nix::sys::signal::Signal;

use crate::child::Stop;
use crate::is_unknown_instruction;

/// Instructions that the test does not even try.
pub fn never_run(instruction: &Instruction) -> Option<&'static str> {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Syscall | M::Sysenter | M::Int => Some("enters the kernel, which then does what the registers say"),
        M::Int1 | M::Int3 | M::Ud0 | M::Ud1 | M::Ud2 => Some("raises a trap by design"),
        M::Vmcall | M::Vmmcall | M::Vmfunc | M::Vmgexit | M::Tdcall | M::Seamcall => Some("calls the hypervisor"),
        M::Enclu => Some("enters an enclave"),
        M::Xbegin | M::Xabort => Some("a traced process aborts every transaction"),
        _ => None,
    }
}

/// Why `instruction` faulted in every state it was tried in; `None` if it should not have.
pub fn why(instruction: &Instruction, effects: &Effects, stop: Stop) -> Option<&'static str> {
    use Mnemonic as M;
    if is_unknown_instruction(stop) {
        return Some("this processor or this kernel does not have it");
    }
    let general_protection = matches!(stop, Stop::Signal(Signal::SIGSEGV, 128, _));
    if general_protection && effects.kind == Kind::Privileged {
        return Some("only the kernel may execute it");
    }
    if let Code::Iretw | Code::Retfw | Code::Retfw_imm16 | Code::Jmp_m1616 | Code::Call_m1616 = instruction.code() {
        return Some("goes to a 16-bit address, where nothing is mapped");
    }
    let far = matches!(
        instruction.code(),
        Code::Jmp_m1664 | Code::Call_m1664 | Code::Lss_r64_m1664 | Code::Lfs_r64_m1664 | Code::Lgs_r64_m1664
    );
    if far && crate::declared::is_amd() {
        return Some("AMD's processors have no far pointers of 64 bits");
    }
    match instruction.mnemonic() {
        M::Xend => Some("faults outside a transaction"),
        M::Enqcmd | M::Enqcmds => Some("needs a device"),
        M::Rdpmc => Some("the kernel does not let user code read performance counters"),
        M::Bt | M::Bts | M::Btr | M::Btc if bits_are_address(effects) => {
            Some("its bit offset is also its address, which then lies outside the arena")
        }
        _ => None,
    }
}

/// True for `bt [rcx], rcx`.
fn bits_are_address(effects: &Effects) -> bool {
    effects.mem.iter().any(|access| match access.shape {
        Shape::BitString { bits } => access.base == Some(bits) || access.index == Some(bits),
        _ => false,
    })
}
