//! The extended register state in signal frames: vector, mask and x87 registers in the XSAVE layout.
//!
//! In the engine the upper halves, masks and x87 registers are still in the CPU; only the XMM registers are in the gate.
//! So a frame is filled by putting those back and saving everything, and a return does the reverse.

use crate::gate::Gate;
use core::arch::asm;
use core::arch::x86_64::__cpuid_count;

/// x87, SSE, AVX, masks, upper ZMM: what a frame may hold. Protection keys and AMX tiles are not the guest's.
const WANTED: u64 = 0xe7;
/// Largest standard-format area of these components.
pub const MAX: usize = 2688;

/// The components this CPU has, and the bytes they take.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub mask: u64,
    pub size: usize,
}

#[repr(C, align(64))]
pub struct Area(pub [u8; MAX + 64]);

impl Layout {
    pub fn detect() -> Layout {
        let low: u32;
        // SAFETY: reads XCR0; every CPU with AVX or FSGSBASE has XGETBV.
        unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack)) };
        let mask = low as u64 & WANTED;
        let size = (2..8).filter(|c| mask & 1 << c != 0).fold(576, |size, c| {
            let r = __cpuid_count(0xd, c);
            size.max((r.ebx + r.eax) as usize)
        });
        Layout { mask, size: size.min(MAX) }
    }
}

/// Saves the guest's state into `area`.
pub fn save(layout: Layout, g: &Gate, area: &mut Area) {
    area.0.fill(0);
    load_xmm(g);
    let (lo, hi) = (layout.mask as u32, (layout.mask >> 32) as u32);
    // SAFETY: the area is aligned, zeroed and large enough for the components of the mask.
    unsafe { asm!("xsave64 [{}]", in(reg) area.0.as_mut_ptr(), in("eax") lo, in("edx") hi, options(nostack)) };
}

/// Loads the guest's state from `area`, which has been made safe to load.
pub fn restore(layout: Layout, g: &mut Gate, area: &mut Area) {
    sanitise(layout, area);
    let (lo, hi) = (layout.mask as u32, (layout.mask >> 32) as u32);
    // SAFETY: header and MXCSR have been checked, so the instruction cannot fault.
    unsafe { asm!("xrstor64 [{}]", in(reg) area.0.as_ptr(), in("eax") lo, in("edx") hi, options(nostack)) };
    store_xmm(g);
}

/// A frame may have been edited: nothing in it may make XRSTOR fault.
fn sanitise(layout: Layout, area: &mut Area) {
    let word = |a: &Area, at: usize| u64::from_le_bytes(core::array::from_fn(|i| a.0[at + i]));
    let features = word(area, 512) & layout.mask;
    area.0[512..520].copy_from_slice(&features.to_le_bytes());
    area.0[520..576].fill(0);
    let mxcsr = word(area, 24) as u32 & 0xffff;
    area.0[24..28].copy_from_slice(&mxcsr.to_le_bytes());
}

macro_rules! each_xmm {
    ($form:literal, $g:expr) => {
        // SAFETY: moves between the sixteen registers and the gate's sixteen slots.
        unsafe {
            asm!(
                concat!($form), in(reg) $g.xmm.as_ptr(), options(nostack)
            )
        }
    };
}

fn load_xmm(g: &Gate) {
    each_xmm!(
        "movups xmm0, [{0}]; movups xmm1, [{0}+16]; movups xmm2, [{0}+32]; movups xmm3, [{0}+48]; movups xmm4, [{0}+64]; movups xmm5, [{0}+80]; movups xmm6, [{0}+96]; movups xmm7, [{0}+112]; movups xmm8, [{0}+128]; movups xmm9, [{0}+144]; movups xmm10, [{0}+160]; movups xmm11, [{0}+176]; movups xmm12, [{0}+192]; movups xmm13, [{0}+208]; movups xmm14, [{0}+224]; movups xmm15, [{0}+240]",
        g
    );
}

fn store_xmm(g: &mut Gate) {
    each_xmm!(
        "movups [{0}], xmm0; movups [{0}+16], xmm1; movups [{0}+32], xmm2; movups [{0}+48], xmm3; movups [{0}+64], xmm4; movups [{0}+80], xmm5; movups [{0}+96], xmm6; movups [{0}+112], xmm7; movups [{0}+128], xmm8; movups [{0}+144], xmm9; movups [{0}+160], xmm10; movups [{0}+176], xmm11; movups [{0}+192], xmm12; movups [{0}+208], xmm13; movups [{0}+224], xmm14; movups [{0}+240], xmm15",
        g
    );
}
