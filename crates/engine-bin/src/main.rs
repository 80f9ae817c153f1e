//! The freestanding engine program: entry point, allocator, panic handler and the memory functions that compilers expect.
//!
//! No C library, no TLS, no unwinding. Everything else is the library `engine`.
#![no_std]
#![no_main]
extern crate alloc;

use core::arch::global_asm;
use engine::heap::Heap;

#[global_allocator]
static HEAP: Heap = Heap::new();

global_asm!(".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {main}", "ud2", main = sym main);

extern "C" fn main(sp: *const u64) -> ! {
    // SAFETY: called by `_start` with the kernel's stack pointer.
    unsafe { engine::start::enter(sp) }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    engine::report::fatal(alloc::format!("{info}"), 0)
}

// Written in assembly so that the compiler cannot turn a loop here into a call of itself. Short copies, which are most,
// move two overlapping pieces; long ones use the string instruction, which is fast from a few hundred bytes on.
global_asm!(
    ".globl memcpy",
    "memcpy:",
    "mov rax, rdi",
    "cmp rdx, 16",
    "jb 3f",
    "cmp rdx, 512",
    "ja 5f",
    "movups xmm0, [rsi + rdx - 16]",
    "lea rcx, [rdi + rdx - 16]",
    "2:",
    "cmp rdi, rcx",
    "jae 4f",
    "movups xmm1, [rsi]",
    "movups [rdi], xmm1",
    "add rsi, 16",
    "add rdi, 16",
    "jmp 2b",
    "4:",
    "movups [rcx], xmm0",
    "ret",
    "3:",
    "cmp edx, 8",
    "jb 6f",
    "mov rcx, [rsi]",
    "mov r8, [rsi + rdx - 8]",
    "mov [rdi], rcx",
    "mov [rdi + rdx - 8], r8",
    "ret",
    "6:",
    "cmp edx, 4",
    "jb 7f",
    "mov ecx, [rsi]",
    "mov r8d, [rsi + rdx - 4]",
    "mov [rdi], ecx",
    "mov [rdi + rdx - 4], r8d",
    "ret",
    "7:",
    "test edx, edx",
    "jz 8f",
    "movzx ecx, byte ptr [rsi]",
    "movzx r8d, byte ptr [rsi + rdx - 1]",
    "cmp edx, 3",
    "jb 9f",
    "movzx r9d, byte ptr [rsi + 1]",
    "mov [rdi + 1], r9b",
    "9:",
    "mov [rdi], cl",
    "mov [rdi + rdx - 1], r8b",
    "8:",
    "ret",
    "5:",
    "mov rcx, rdx",
    "rep movsb",
    "ret",
);

// The same for filling.
global_asm!(
    ".globl memset",
    "memset:",
    "mov rax, rdi",
    "cmp rdx, 512",
    "ja 5f",
    "movzx ecx, sil",
    "movabs r8, 0x0101010101010101",
    "imul rcx, r8",
    "cmp edx, 16",
    "jb 3f",
    "movq xmm0, rcx",
    "punpcklqdq xmm0, xmm0",
    "lea rcx, [rdi + rdx - 16]",
    "2:",
    "cmp rdi, rcx",
    "jae 4f",
    "movups [rdi], xmm0",
    "add rdi, 16",
    "jmp 2b",
    "4:",
    "movups [rcx], xmm0",
    "ret",
    "3:",
    "cmp edx, 8",
    "jb 6f",
    "mov [rdi], rcx",
    "mov [rdi + rdx - 8], rcx",
    "ret",
    "6:",
    "test edx, edx",
    "jz 8f",
    "7:",
    "mov [rdi + rdx - 1], cl",
    "dec edx",
    "jnz 7b",
    "8:",
    "ret",
    "5:",
    "mov r9, rax",
    "mov rcx, rdx",
    "mov eax, esi",
    "rep stosb",
    "mov rax, r9",
    "ret",
);

unsafe extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8;
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= n {
        // SAFETY: copying upwards is right when the target does not start inside the source.
        return unsafe { memcpy(to, from, n) };
    }
    let mut i = n;
    while i > 0 {
        i -= 1;
        // SAFETY: within both objects.
        unsafe { core::ptr::write_volatile(to.add(i), core::ptr::read_volatile(from.add(i))) };
    }
    to
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    let mut i = 0;
    while i < n {
        // SAFETY: within both objects.
        let (x, y) = unsafe { (core::ptr::read_volatile(a.add(i)), core::ptr::read_volatile(b.add(i))) };
        if x != y {
            return x as i32 - y as i32;
        }
        i += 1;
    }
    0
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: by the caller's promise.
    unsafe { memcmp(a, b, n) }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(s: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: the string ends in zero.
    while unsafe { core::ptr::read_volatile(s.add(n)) } != 0 {
        n += 1;
    }
    n
}

/// The precompiled `alloc` was built for unwinding: the linker wants this, nobody calls it.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    loop {}
}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
