//! The result types: everything about one instruction, or the little that a translator needs.

use alloc::vec::Vec;
use core::ops::{BitOr, BitOrAssign};

use crate::flags::Flags;
use crate::memory::MemAccess;
use crate::registers::{ByteRange, GprMask, Reg, RegAccess};

/// What a translator asks of every instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// General purpose registers that are an input, those of memory operands included.
    pub gpr_read: GprMask,
    /// General purpose registers that may be written. A write that leaves some bytes of the register as they were, or
    /// that may not happen, also counts in `gpr_read`.
    pub gpr_write: GprMask,
    /// Flags that may be an input.
    pub flags_read: Flags,
    /// Flags that every execution overwrites or leaves undefined.
    pub flags_kill: Flags,
    /// Flags that may be overwritten or left undefined.
    pub flags_may_write: Flags,
    /// The instruction touches memory, or may.
    pub mem: bool,
}

/// How a piece of state that is not tracked by bytes is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// It is an input.
    pub read: bool,
    /// It is an output. If it is only partly replaced (sticky exception bits), `read` is set too.
    pub write: bool,
}

impl Access {
    /// Untouched.
    pub const NONE: Access = Access { read: false, write: false };
    /// Input only.
    pub const READ: Access = Access { read: true, write: false };
    /// Output only.
    pub const WRITE: Access = Access { read: false, write: true };
    /// Input and output.
    pub const UPDATE: Access = Access { read: true, write: true };
}

/// What happens to TOP, the x87 stack pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Top {
    /// It stays, and does not matter.
    #[default]
    Unused,
    /// It stays, and says which physical registers `St` stands for.
    Keep,
    /// Decremented before the result is stored: `St(7)` becomes st(0).
    Push,
    /// Like `Push`, or unchanged when the operand is out of range (`fptan`, `fsincos`).
    MaybePush,
    /// Incremented, the old st(0) becomes empty.
    Pop,
    /// Incremented twice, the old st(0) and st(1) become empty.
    PopTwice,
    /// Decremented without storing (`fdecstp`).
    Decrement,
    /// Incremented without emptying (`fincstp`).
    Increment,
    /// Set to 0 whatever it was (`fninit`, every MMX instruction).
    Zero,
    /// Set to 0 after it has said which physical registers `St` stands for (`fnsave`).
    LeaveZero,
    /// Loaded from memory (`fldenv`, `frstor`, `fxrstor`, `xrstor`).
    Load,
}

/// Use of the x87 state apart from its data registers, which are [`crate::Reg::St`] and [`crate::Reg::Mmx`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct X87 {
    /// Control word.
    pub control: Access,
    /// Bits of the status word (C0..C3, exception flags; without TOP) that are an input.
    pub status_read: u16,
    /// Bits of the status word that are an output, defined or not. Sticky bits are in both.
    pub status_write: u16,
    /// Those of them whose value the manual leaves undefined.
    pub status_undefined: u16,
    /// Tag word: which registers are empty.
    pub tags: Access,
    /// Last instruction pointer, data pointer and opcode (FIP, FDP, FOP).
    pub pointers: Access,
    /// What happens to TOP.
    pub top: Top,
}

impl X87 {
    /// Exception flags IE DE ZE OE UE PE, stack fault SF, summary ES and busy B.
    pub const EXCEPTIONS: u16 = 0x80FF;
    /// Condition code C0.
    pub const C0: u16 = 1 << 8;
    /// Condition code C1.
    pub const C1: u16 = 1 << 9;
    /// Condition code C2.
    pub const C2: u16 = 1 << 10;
    /// Condition code C3.
    pub const C3: u16 = 1 << 14;
    /// All four condition codes.
    pub const CODES: u16 = 0x4700;
}

/// A set of machine state and outside sources that only special instructions touch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct System(pub u32);

impl System {
    /// Nothing.
    pub const NONE: System = System(0);
    /// Time stamp counter (`rdtsc`, `rdtscp`, `rdpmc`, `tpause`, `umwait`).
    pub const TSC: System = System(1 << 0);
    /// CPU identification (`cpuid`), and the current processor (`rdpid`, `rdtscp`).
    pub const CPUID: System = System(1 << 1);
    /// The set of enabled state components (`xgetbv`, `xsave*`, `xrstor*`).
    pub const XCR0: System = System(1 << 2);
    /// fs base.
    pub const FS_BASE: System = System(1 << 3);
    /// gs base.
    pub const GS_BASE: System = System(1 << 4);
    /// Protection keys (`rdpkru`, `wrpkru`, `xsave*`, `xrstor*`).
    pub const PKRU: System = System(1 << 5);
    /// Shadow stack pointer and shadow stack.
    pub const SHADOW_STACK: System = System(1 << 6);
    /// Hardware random numbers (`rdrand`, `rdseed`).
    pub const RANDOM: System = System(1 << 7);
    /// AMX tile configuration.
    pub const TILE_CONFIG: System = System(1 << 8);
    /// Transactional state (`xbegin`, `xend`, `xabort`, `xtest`).
    pub const TRANSACTION: System = System(1 << 9);
    /// Descriptor tables, machine status word, task register: read by `sgdt`, `sidt`, `sldt`, `smsw`, `str`, `lar`,
    /// `lsl`, `verr`, `verw`.
    pub const DESCRIPTORS: System = System(1 << 10);
    /// The order in which other agents see memory accesses (fences, cache flushes).
    pub const MEMORY_ORDER: System = System(1 << 11);
    /// Extended state that `xsave*` and `xrstor*` choose at run time: any of x87, MXCSR, vector, mask, bound, PKRU and
    /// tile registers, as edx:eax and the area's header say.
    pub const EXTENDED_STATE: System = System(1 << 12);
    /// User interrupt flag and state (`clui`, `stui`, `testui`, `senduipi`).
    pub const USER_INTERRUPTS: System = System(1 << 13);
    /// Address monitor (`monitorx`, `umonitor`, `mwaitx`, `umwait`).
    pub const MONITOR: System = System(1 << 14);
    /// Input and output ports.
    pub const PORTS: System = System(1 << 15);
    /// Model specific registers, control and debug registers, and whatever else only the kernel may touch.
    pub const PRIVILEGED: System = System(1 << 16);

    /// True if nothing is in the set.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if all of `other` is in the set.
    pub const fn contains(self, other: System) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for System {
    type Output = System;
    fn bitor(self, other: System) -> System {
        System(self.0 | other.0)
    }
}

impl BitOrAssign for System {
    fn bitor_assign(&mut self, other: System) {
        self.0 |= other.0;
    }
}

/// What sort of thing an instruction does, as far as registers and memory do not say it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Its effect is what the other fields say and nothing else.
    #[default]
    Plain,
    /// It may transfer control (jmp, jcc, call, ret, loop, jrcxz).
    Branch,
    /// It only advises: prefetches, `nop`, `pause`, `endbr64`, cache line write-back and flush.
    Hint,
    /// It orders memory accesses or the instruction stream (fences, `serialize`, `cpuid`).
    Fence,
    /// It enters the kernel by design: `syscall`, `sysenter`, `int n`.
    SystemCall,
    /// It raises an exception by design: `int3`, `int1`, `ud0..ud2`, `bound`, `into`.
    Trap,
    /// It starts or ends a transaction, so that later effects may be undone.
    Transaction,
    /// User code may not execute it: far transfers through the kernel's tables, I/O, control registers, `hlt`.
    Privileged,
}

/// Everything one instruction reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Registers, explicit and implicit.
    pub regs: Vec<RegAccess>,
    /// Memory, explicit and implicit.
    pub mem: Vec<MemAccess>,
    /// Flags that are an input.
    pub flags_read: Flags,
    /// Flags that get a defined value.
    pub flags_written: Flags,
    /// Flags whose value afterwards the manual leaves undefined.
    pub flags_undefined: Flags,
    /// Of the flags written or undefined, those that may also keep their old value (a shift count of 0, a `rep cmps`
    /// with rcx = 0).
    pub flags_conditional: Flags,
    /// x87 state apart from data registers.
    pub x87: X87,
    /// SSE control and status register.
    pub mxcsr: Access,
    /// Other state that is an input.
    pub system_read: System,
    /// Other state that is an output.
    pub system_write: System,
    /// What sort of thing it is.
    pub kind: Kind,
}

impl Effects {
    /// The sets that a translator needs.
    pub fn summary(&self) -> Summary {
        let may_write = self.flags_written | self.flags_undefined;
        let mut out = Summary {
            flags_read: self.flags_read,
            flags_kill: may_write.without(self.flags_conditional),
            flags_may_write: may_write,
            mem: !self.mem.is_empty(),
            ..Summary::default()
        };
        for access in &self.regs {
            if let Reg::Gpr(n) = access.reg {
                let partial = access.conditional || access.bytes != ByteRange::new(0, 8);
                out.gpr_read |= if access.read || (access.write && partial) { 1 << n } else { 0 };
                out.gpr_write |= if access.write { 1 << n } else { 0 };
            }
        }
        out
    }

    /// Forgets everything but the memory of the vectors.
    pub fn clear(&mut self) {
        let Effects { regs, mem, .. } = self;
        regs.clear();
        mem.clear();
        *self = Effects { regs: core::mem::take(regs), mem: core::mem::take(mem), ..Effects::default() };
    }
}
