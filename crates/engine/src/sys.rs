//! Raw system calls: the only door to the kernel that the engine uses for itself.
//!
//! Nothing here touches libc, TLS or errno; a result is the kernel's own word, negative errors included.
//! Two entries exist: [`raw`] for the engine's own needs, and [`guest`] for calls made on the guest's behalf, which has
//! known addresses around its `syscall` instruction so that a signal handler can tell "not yet made" from "made".

use core::arch::{asm, global_asm};
use core::mem::MaybeUninit;

pub mod nr {
    //! System call numbers the engine names itself.
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const CLOSE: u64 = 3;
    pub const STAT: u64 = 4;
    pub const FSTAT: u64 = 5;
    pub const LSTAT: u64 = 6;
    pub const POLL: u64 = 7;
    pub const LSEEK: u64 = 8;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const BRK: u64 = 12;
    pub const RT_SIGACTION: u64 = 13;
    pub const RT_SIGPROCMASK: u64 = 14;
    pub const RT_SIGRETURN: u64 = 15;
    pub const IOCTL: u64 = 16;
    pub const PREAD64: u64 = 17;
    pub const ACCESS: u64 = 21;
    pub const SELECT: u64 = 23;
    pub const SCHED_YIELD: u64 = 24;
    pub const MREMAP: u64 = 25;
    pub const MADVISE: u64 = 28;
    pub const SHMAT: u64 = 30;
    pub const SHMDT: u64 = 67;
    pub const DUP: u64 = 32;
    pub const DUP2: u64 = 33;
    pub const PAUSE: u64 = 34;
    pub const NANOSLEEP: u64 = 35;
    pub const GETPID: u64 = 39;
    pub const SENDMSG: u64 = 46;
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const WAIT4: u64 = 61;
    pub const KILL: u64 = 62;
    pub const FCNTL: u64 = 72;
    pub const FTRUNCATE: u64 = 77;
    pub const CREAT: u64 = 85;
    pub const READLINK: u64 = 89;
    pub const GETTIMEOFDAY: u64 = 96;
    pub const GETRLIMIT: u64 = 97;
    pub const GETUID: u64 = 102;
    pub const GETGID: u64 = 104;
    pub const GETEUID: u64 = 107;
    pub const GETEGID: u64 = 108;
    pub const RT_SIGPENDING: u64 = 127;
    pub const RT_SIGTIMEDWAIT: u64 = 128;
    pub const RT_SIGQUEUEINFO: u64 = 129;
    pub const RT_TGSIGQUEUEINFO: u64 = 297;
    pub const RT_SIGSUSPEND: u64 = 130;
    pub const SIGALTSTACK: u64 = 131;
    pub const PERSONALITY: u64 = 135;
    pub const PRCTL: u64 = 157;
    pub const ARCH_PRCTL: u64 = 158;
    pub const GETTID: u64 = 186;
    pub const TKILL: u64 = 200;
    pub const TIME: u64 = 201;
    pub const FUTEX: u64 = 202;
    pub const GETDENTS64: u64 = 217;
    pub const SET_TID_ADDRESS: u64 = 218;
    pub const CLOCK_GETTIME: u64 = 228;
    pub const CLOCK_NANOSLEEP: u64 = 230;
    pub const EXIT_GROUP: u64 = 231;
    pub const EPOLL_WAIT: u64 = 232;
    pub const TGKILL: u64 = 234;
    pub const WAITID: u64 = 247;
    pub const OPENAT: u64 = 257;
    pub const NEWFSTATAT: u64 = 262;
    pub const READLINKAT: u64 = 267;
    pub const FACCESSAT: u64 = 269;
    pub const PSELECT6: u64 = 270;
    pub const PPOLL: u64 = 271;
    pub const SET_ROBUST_LIST: u64 = 273;
    pub const GET_ROBUST_LIST: u64 = 274;
    pub const EPOLL_PWAIT: u64 = 281;
    pub const DUP3: u64 = 292;
    pub const PRLIMIT64: u64 = 302;
    pub const SECCOMP: u64 = 317;
    pub const GETRANDOM: u64 = 318;
    pub const MEMFD_CREATE: u64 = 319;
    pub const EXECVEAT: u64 = 322;
    pub const STATX: u64 = 332;
    pub const RSEQ: u64 = 334;
    pub const CLONE3: u64 = 435;
    pub const CLOSE_RANGE: u64 = 436;
    pub const OPENAT2: u64 = 437;
    pub const FACCESSAT2: u64 = 439;
    pub const EPOLL_PWAIT2: u64 = 441;
}

pub mod err {
    //! Error numbers, positive.
    pub const EPERM: i64 = 1;
    pub const ENOENT: i64 = 2;
    pub const ESRCH: i64 = 3;
    pub const EINTR: i64 = 4;
    pub const E2BIG: i64 = 7;
    pub const ENOEXEC: i64 = 8;
    pub const EBADF: i64 = 9;
    pub const ECHILD: i64 = 10;
    pub const EAGAIN: i64 = 11;
    pub const ENOMEM: i64 = 12;
    pub const EACCES: i64 = 13;
    pub const EFAULT: i64 = 14;
    pub const EEXIST: i64 = 17;
    pub const EINVAL: i64 = 22;
    pub const EDEADLK: i64 = 35;
    pub const ENOSYS: i64 = 38;
    pub const ELOOP: i64 = 40;
    pub const ETIMEDOUT: i64 = 110;
    /// Not a kernel answer to programs: a call that has to be made again after a signal handler has run.
    pub const RESTART: i64 = 512;
}

pub const PROT_NONE: u64 = 0;
pub const PROT_READ: u64 = 1;
pub const PROT_WRITE: u64 = 2;
pub const PROT_EXEC: u64 = 4;
pub const MAP_SHARED: u64 = 1;
pub const MAP_PRIVATE: u64 = 2;
pub const MAP_FIXED: u64 = 0x10;
pub const MAP_ANONYMOUS: u64 = 0x20;
pub const MAP_32BIT: u64 = 0x40;
pub const MAP_GROWSDOWN: u64 = 0x100;
pub const MAP_NORESERVE: u64 = 0x4000;
pub const MAP_FIXED_NOREPLACE: u64 = 0x10_0000;

/// Was the kernel's answer an error?
pub fn is_err(r: i64) -> bool {
    (-4095..0).contains(&r)
}

/// Makes a system call for the engine itself.
///
/// # Safety
/// The caller vouches for what the call does to memory and descriptors.
#[inline]
pub unsafe fn raw(n: u64, a: [u64; 6]) -> i64 {
    let r: i64;
    // SAFETY: the caller vouches for the call; the kernel preserves everything but rax, rcx and r11.
    unsafe {
        asm!("syscall", inlateout("rax") n => r, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2], in("r10") a[3],
             in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    r
}

/// [`raw`] with fewer arguments.
///
/// # Safety
/// As [`raw`].
#[inline]
pub unsafe fn raw3(n: u64, a: u64, b: u64, c: u64) -> i64 {
    // SAFETY: passed on to the caller.
    unsafe { raw(n, [a, b, c, 0, 0, 0]) }
}

// rdi = number, rsi = arguments, rdx = pointer to the pending flag of this thread. A pending signal found before the
// `syscall` instruction, or a handler that finds rip between `guest_syscall_check` and `guest_syscall_insn`, makes the
// call answer -RESTART without having been made. After the instruction the result stands.
global_asm!(
    ".globl clew_guest_syscall",
    ".globl clew_guest_syscall_check",
    ".globl clew_guest_syscall_insn",
    ".globl clew_guest_syscall_done",
    "clew_guest_syscall:",
    "push rbx",
    "mov rax, rdi",
    "mov rbx, rdx",
    "mov r11, rsi",
    "mov rdi, [r11]",
    "mov rsi, [r11 + 8]",
    "mov rdx, [r11 + 16]",
    "mov r10, [r11 + 24]",
    "mov r8, [r11 + 32]",
    "mov r9, [r11 + 40]",
    "clew_guest_syscall_check:",
    "cmp dword ptr [rbx], 0",
    "jne clew_guest_syscall_abort",
    "clew_guest_syscall_insn:",
    "syscall",
    ".globl clew_guest_syscall_done",
    "clew_guest_syscall_done:",
    "pop rbx",
    "ret",
    ".globl clew_guest_syscall_abort",
    "clew_guest_syscall_abort:",
    "mov rax, -512",
    "pop rbx",
    "ret",
);

unsafe extern "C" {
    fn clew_guest_syscall(n: u64, args: *const [u64; 6], pending: *const u32) -> i64;
    fn clew_guest_syscall_check();
    fn clew_guest_syscall_insn();
    fn clew_guest_syscall_done();
    fn clew_guest_syscall_abort();
}

/// Makes a call on the guest's behalf; answers `-RESTART` when a signal came first.
///
/// # Safety
/// `pending` must stay valid during the call. The call's effect on memory is the guest's doing; the caller has made sure
/// that it cannot reach the engine's.
pub unsafe fn guest(n: u64, a: &[u64; 6], pending: *const u32) -> i64 {
    // SAFETY: passed on to the caller.
    unsafe { clew_guest_syscall(n, a, pending) }
}

/// Where a handler that found `rip` inside the call sequence, before the call was made, must send it instead.
pub fn guest_call_not_made(rip: u64) -> Option<u64> {
    let check = clew_guest_syscall_check as *const () as u64;
    let insn = clew_guest_syscall_insn as *const () as u64;
    (check..=insn).contains(&rip).then_some(clew_guest_syscall_abort as *const () as u64)
}

/// Has a guest call just been made?
pub fn is_after_guest_call(rip: u64) -> bool {
    rip == clew_guest_syscall_done as *const () as u64
}

// rdi = to, rsi = from, rdx = length; answers the bytes not copied. `rep movsb` takes its time to start, so short copies
// are made in pieces. rdi, rsi and rcx (what is left) move on behind each piece: a fault in one is turned by the engine's
// handler into a jump to `clew_copy_bytes`, which comes as far as it can, and a fault there into one to `clew_copy_end`.
global_asm!(
    ".globl clew_copy",
    ".globl clew_copy_pieces",
    ".globl clew_copy_bytes",
    ".globl clew_copy_end",
    "clew_copy:",
    "mov rcx, rdx",
    "cmp rcx, 512",
    "jae clew_copy_bytes",
    "cmp rcx, 32",
    "jb 3f",
    "clew_copy_pieces:",
    "2:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "lea rsi, [rsi + 32]",
    "lea rdi, [rdi + 32]",
    "sub rcx, 32",
    "cmp rcx, 32",
    "jae 2b",
    "3:",
    "test cl, 16",
    "jz 4f",
    "movups xmm0, [rsi]",
    "movups [rdi], xmm0",
    "lea rsi, [rsi + 16]",
    "lea rdi, [rdi + 16]",
    "sub rcx, 16",
    "4:",
    "test cl, 8",
    "jz 5f",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "lea rsi, [rsi + 8]",
    "lea rdi, [rdi + 8]",
    "sub rcx, 8",
    "5:",
    "test cl, 4",
    "jz 6f",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "lea rsi, [rsi + 4]",
    "lea rdi, [rdi + 4]",
    "sub rcx, 4",
    "6:",
    "test rcx, rcx",
    "jz clew_copy_end",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rcx",
    "jmp 6b",
    "clew_copy_bytes:",
    "rep movsb",
    "clew_copy_end:",
    "mov rax, rcx",
    "ret",
);

unsafe extern "C" {
    fn clew_copy(to: *mut u8, from: *const u8, n: usize) -> usize;
    fn clew_copy_pieces();
    fn clew_copy_bytes();
    fn clew_copy_end();
}

/// Where a fault at `rip` goes on, when it is the engine touching guest memory with care.
pub fn copy_fault_target(rip: u64) -> Option<u64> {
    let pieces = clew_copy_pieces as *const () as u64;
    let bytes = clew_copy_bytes as *const () as u64;
    match rip {
        rip if rip == bytes => Some(clew_copy_end as *const () as u64),
        rip if (pieces..bytes).contains(&rip) => Some(bytes),
        _ => None,
    }
}

/// Copies guest memory into `to`; answers how many bytes could be read.
pub fn read_guest(from: u64, to: &mut [u8]) -> usize {
    // SAFETY: `to` is ours and large enough; a fault on the guest's side is caught by `copy_fault_target`.
    to.len() - unsafe { clew_copy(to.as_mut_ptr(), from as *const u8, to.len()) }
}

/// Copies guest memory into room that need not hold anything yet; answers what could be read.
pub fn read_guest_into(from: u64, to: &mut [MaybeUninit<u8>]) -> &[u8] {
    // SAFETY: `to` is ours and large enough; a fault on the guest's side is caught by `copy_fault_target`.
    let got = to.len() - unsafe { clew_copy(to.as_mut_ptr() as *mut u8, from as *const u8, to.len()) };
    // SAFETY: so many bytes have been written.
    unsafe { to[..got].assume_init_ref() }
}

/// Copies into guest memory; answers how many bytes could be written. Engine memory is refused.
pub fn write_guest(to: u64, from: &[u8]) -> usize {
    if model::layout::touches_engine(to, from.len() as u64) {
        return 0;
    }
    // SAFETY: the target is not engine memory (checked above); a fault is caught by `copy_fault_target`.
    let done = from.len() - unsafe { clew_copy(to as *mut u8, from.as_ptr(), from.len()) };
    crate::record::written(to, &from[..done]);
    done
}

/// Reads a word of guest memory.
pub fn read_u64(at: u64) -> Option<u64> {
    let mut b = [0; 8];
    (read_guest(at, &mut b) == 8).then(|| u64::from_le_bytes(b))
}

/// Reads half a word of guest memory.
pub fn read_u32(at: u64) -> Option<u32> {
    let mut b = [0; 4];
    (read_guest(at, &mut b) == 4).then(|| u32::from_le_bytes(b))
}

/// Writes a word of guest memory; says whether it could.
pub fn write_u64(at: u64, v: u64) -> bool {
    write_guest(at, &v.to_le_bytes()) == 8
}

/// Writes half a word of guest memory; says whether it could.
pub fn write_u32(at: u64, v: u32) -> bool {
    write_guest(at, &v.to_le_bytes()) == 4
}

/// Maps fresh memory for the engine at a fixed place.
pub fn map_engine(at: u64, len: u64, prot: u64) -> Result<(), i64> {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    // SAFETY: fresh anonymous memory in the engine's own range; NOREPLACE keeps what is there.
    let r = unsafe { raw(nr::MMAP, [at, len, prot, flags, u64::MAX, 0]) };
    if r == at as i64 { Ok(()) } else { Err(r) }
}

/// Has the kernel bring pages in now, in one go, rather than one fault at a time. Kernels that cannot do it need not.
pub fn populate(at: u64, len: u64) {
    const MADV_POPULATE_WRITE: u64 = 23;
    // SAFETY: the engine's own pages; contents do not change.
    unsafe { raw3(nr::MADVISE, at, len, MADV_POPULATE_WRITE) };
}

/// Lets the kernel use large pages for a range that will be filled: fewer faults, fewer address translations.
pub fn prefer_large_pages(at: u64, len: u64) {
    const MADV_HUGEPAGE: u64 = 14;
    // SAFETY: advice about the engine's own pages.
    unsafe { raw3(nr::MADVISE, at, len, MADV_HUGEPAGE) };
}

/// The kernel's monotonic clock in nanoseconds.
pub fn monotonic_ns() -> u64 {
    clock_ns(1)
}

/// Sleeps for so long, or until a signal comes.
pub fn nap(ns: u64) {
    let time = [ns / 1_000_000_000, ns % 1_000_000_000];
    if ns != 0 {
        // SAFETY: the kernel reads the time to sleep.
        unsafe { raw3(nr::NANOSLEEP, time.as_ptr() as u64, 0, 0) };
    }
}

/// What one of the machine's clocks shows, in nanoseconds.
pub fn clock_ns(clock: u64) -> u64 {
    let mut ts = [0u64; 2];
    // SAFETY: the kernel writes 16 bytes into `ts`.
    unsafe { raw3(nr::CLOCK_GETTIME, clock, ts.as_mut_ptr() as u64, 0) };
    ts[0] * 1_000_000_000 + ts[1]
}

/// Ends the process at once.
pub fn exit_group(status: u64) -> ! {
    loop {
        // SAFETY: does not return.
        unsafe { raw3(nr::EXIT_GROUP, status, 0, 0) };
    }
}
