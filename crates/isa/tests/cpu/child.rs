//! A process to execute single instructions in, driven by ptrace.
//!
//! The child is a tiny static program made here byte by byte: it asks to be traced and stops. From then on the tracer
//! writes the instruction under test between a prologue, which loads the vector and x87 state with `xrstor`, and an
//! epilogue, which saves it with `xsave` and stops at `int3`. Prologue and epilogue change no flag and no other register,
//! so the state right before and right after the instruction is known exactly, without single-stepping (which would
//! stop a rep instruction in the middle and show up in `pushf`).

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child as Process, Command, Stdio};
use std::sync::Mutex;

use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::image::{self, ARENA, ARENA_SIZE, Image};
use crate::rng::Rng;

const CODE: u64 = 0x1000_0000;
const CODE_SIZE: usize = 0x1000;
/// Where the instruction under test begins.
pub const INSTRUCTION: u64 = CODE + 0x800;
/// A page of `int3`: where indirect branches are sent.
pub const LANDING: u64 = 0x1002_0000;
/// Where direct branches are sent: within the reach of a short jump, behind the epilogue, among `int3`s.
pub const NEAR_LANDING: u64 = INSTRUCTION + 0x60;
const DATA: u64 = 0x1003_0000;
const DATA_SIZE: usize = 0x8000;
const XSAVE_IN: u64 = DATA;
const XSAVE_OUT: u64 = DATA + 0x3000;
const RAX_IN: u64 = DATA + 0x7000;
const RDX_IN: u64 = RAX_IN + 8;
const RAX_OUT: u64 = RAX_IN + 16;
const RDX_OUT: u64 = RAX_IN + 24;

/// Components that are set and compared: x87, SSE, AVX, opmask, upper halves and upper registers of AVX-512.
const COMPONENTS: u64 = 0xE7;
/// PTRACE_TRACEME; the child makes the call itself, so that no code runs between fork and exec.
const TRACE_ME: &[u8] = &[0xB8, 0x65, 0, 0, 0, 0x31, 0xFF, 0x0F, 0x05, 0xCC];

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The next instruction would have run.
    FellThrough,
    /// Control went to this address.
    Jumped(u64),
    /// A signal was raised at this address; the number after it is the signal's code.
    Signal(Signal, i32, u64),
}

/// Offsets of the components in a standard-format XSAVE area, as CPUID gives them.
struct Layout {
    components: u64,
    avx: usize,
    masks: usize,
    upper_halves: usize,
    upper_registers: usize,
    size: usize,
}

/// The traced process.
pub struct Child {
    process: Process,
    pid: Pid,
    start: user_regs_struct,
    layout: Layout,
    epilogue: u64,
    /// Bytes of a vector register that this processor has.
    pub vec_bytes: usize,
    /// How many vector registers it has.
    pub vec_count: usize,
    /// It has opmask registers.
    pub masks: bool,
    /// Bits of the state that a run can be started with.
    pub settable: Image,
    /// Bits of the state that stay when nothing happens: the ones to compare.
    pub kept: Image,
}

impl Child {
    /// Starts the process. The calling thread must make all further calls.
    pub fn start(folder: &Path) -> io::Result<Child> {
        // No other thread may fork while the file is open for writing: its child would keep it busy.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let guard = ONE_AT_A_TIME.lock();
        let path = folder.join(format!("cpu-child-{}", std::process::id()));
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&path)?;
        file.write_all(&program())?;
        drop(file);
        let started = Command::new(&path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        fs::remove_file(&path)?;
        drop(guard);
        let process = started?;
        let pid = Pid::from_raw(process.id() as i32);
        // The child stops at exec's trap only if it is traced already, so the first stop is its own int3.
        match waitpid(pid, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            other => {
                return Err(io::Error::other(format!(
                    "the child could not become a traced process ({other:?}): ptrace is not permitted here"
                )));
            }
        }
        ptrace::setoptions(pid, ptrace::Options::PTRACE_O_EXITKILL)?;
        let start = ptrace::getregs(pid)?;
        let layout = Layout { components: 3, avx: 0, masks: 0, upper_halves: 0, upper_registers: 0, size: 576 };
        let mut child = Child {
            process,
            pid,
            start,
            layout,
            epilogue: 0,
            vec_bytes: 16,
            vec_count: 16,
            masks: false,
            settable: Image::zero(),
            kept: Image::zero(),
        };
        child.find_layout()?;
        child.calibrate()?;
        Ok(child)
    }

    /// Asks the processor, in the child, what state it has and where XSAVE puts it.
    fn find_layout(&mut self) -> io::Result<()> {
        let cpuid = |child: &Child, leaf: u64, sub: u64| child.execute(&[0x0F, 0xA2, 0xCC], leaf, sub);
        let xgetbv = self.execute(&[0x0F, 0x01, 0xD0, 0xCC], 0, 0)?;
        let components = (xgetbv.rdx << 32 | xgetbv.rax) & COMPONENTS;
        let place = |n: u64| -> io::Result<usize> {
            let found = cpuid(self, 0xD, n)?;
            Ok(if components >> n & 1 == 1 { found.rbx as usize } else { 0 })
        };
        let layout = Layout {
            components,
            avx: place(2)?,
            masks: place(5)?,
            upper_halves: place(6)?,
            upper_registers: place(7)?,
            size: 0x3000,
        };
        self.vec_bytes = if components & 0xE0 == 0xE0 { 64 } else { 16 << (components >> 2 & 1) };
        self.vec_count = if components & 0xE0 == 0xE0 { 32 } else { 16 };
        self.masks = components & 0xE0 == 0xE0;
        self.layout = layout;
        Ok(())
    }

    /// Finds out which state survives a `nop`: some processors do not keep the x87 pointers, for instance.
    fn calibrate(&mut self) -> io::Result<()> {
        self.settable = image::settable(self.vec_bytes, self.vec_count, self.masks);
        self.kept.0.fill(0xFF);
        self.kept.put(image::FLAGS, &image::CHECKED_FLAGS.to_le_bytes());
        self.load(&[0x90])?;
        let mut rng = Rng::new(2);
        for _ in 0..20 {
            let state = image::random(&mut rng, self);
            let (_, after) = self.run(&state)?;
            for at in 0..image::SIZE {
                self.kept.0[at] &= !(state.0[at] ^ after.0[at]);
            }
        }
        for at in 0..image::SIZE {
            self.settable.0[at] &= self.kept.0[at];
        }
        Ok(())
    }

    /// Runs `code` with rax and rcx set, up to its `int3`.
    fn execute(&self, code: &[u8], rax: u64, rcx: u64) -> io::Result<user_regs_struct> {
        self.write(&[(INSTRUCTION, code)])?;
        let regs = user_regs_struct { rip: INSTRUCTION, rax, rcx, rdx: 0, orig_rax: u64::MAX, ..self.start };
        ptrace::setregs(self.pid, regs)?;
        ptrace::cont(self.pid, None)?;
        match waitpid(self.pid, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(ptrace::getregs(self.pid)?),
            other => Err(io::Error::other(format!("helper code ended with {other:?}"))),
        }
    }

    /// Puts `instruction` between prologue and epilogue.
    pub fn load(&mut self, instruction: &[u8]) -> io::Result<()> {
        let mut page = vec![0xCC; CODE_SIZE];
        let mut prologue = vec![];
        // xrstor64 [XSAVE_IN]; mov rax, [RAX_IN]; mov rdx, [RDX_IN]: absolute disp32 operands.
        absolute(&mut prologue, &[0x48, 0x0F, 0xAE, 0x2C, 0x25], XSAVE_IN);
        absolute(&mut prologue, &[0x48, 0x8B, 0x04, 0x25], RAX_IN);
        absolute(&mut prologue, &[0x48, 0x8B, 0x14, 0x25], RDX_IN);
        let at = (INSTRUCTION - CODE) as usize;
        page[at - prologue.len()..at].copy_from_slice(&prologue);
        page[at..at + instruction.len()].copy_from_slice(instruction);
        let epilogue = self.epilogue_code();
        let after = at + instruction.len();
        page[after..after + epilogue.len()].copy_from_slice(&epilogue);
        assert!(INSTRUCTION + (instruction.len() + epilogue.len()) as u64 <= NEAR_LANDING);
        self.epilogue = CODE + after as u64;
        self.write(&[(CODE, &page)])
    }

    /// mov [RAX_OUT], rax; mov [RDX_OUT], rdx; mov eax, components; mov edx, 0; xsave64 [XSAVE_OUT]; int3.
    fn epilogue_code(&self) -> Vec<u8> {
        let mut code = vec![];
        absolute(&mut code, &[0x48, 0x89, 0x04, 0x25], RAX_OUT);
        absolute(&mut code, &[0x48, 0x89, 0x14, 0x25], RDX_OUT);
        code.push(0xB8);
        code.extend((self.layout.components as u32).to_le_bytes());
        code.extend([0xBA, 0, 0, 0, 0]);
        absolute(&mut code, &[0x48, 0x0F, 0xAE, 0x24, 0x25], XSAVE_OUT);
        code.push(0xCC);
        code
    }

    /// Executes the loaded instruction from `state`.
    pub fn run(&mut self, state: &Image) -> io::Result<(Stop, Image)> {
        let area = self.pack(state);
        let inputs = [state.gpr(0).to_le_bytes(), state.gpr(2).to_le_bytes()].concat();
        self.write(&[(ARENA, &state.0[image::MEMORY..]), (XSAVE_IN, &area), (RAX_IN, &inputs)])?;
        let prologue_len = 9 + 8 + 8;
        let mut regs = self.start;
        scatter_gprs(&mut regs, state);
        regs.rax = self.layout.components;
        regs.rdx = 0;
        regs.rip = INSTRUCTION - prologue_len;
        regs.orig_rax = u64::MAX;
        regs.eflags = u64::from(state.u32(image::FLAGS));
        regs.fs_base = state.u64(image::FS_BASE);
        regs.gs_base = state.u64(image::GS_BASE);
        ptrace::setregs(self.pid, regs)?;
        ptrace::cont(self.pid, None)?;
        let signal = match waitpid(self.pid, None)? {
            WaitStatus::Stopped(_, signal) => signal,
            other => return Err(io::Error::other(format!("the child is gone: {other:?}"))),
        };
        let after = ptrace::getregs(self.pid)?;
        let end = self.epilogue + self.epilogue_code().len() as u64;
        if signal == Signal::SIGTRAP && after.rip == end {
            return Ok((Stop::FellThrough, self.unpack(state, &after, true)?));
        }
        let code = ptrace::getsiginfo(self.pid)?.si_code;
        if signal != Signal::SIGTRAP {
            return Ok((Stop::Signal(signal, code, after.rip), self.unpack(state, &after, false)?));
        }
        // Control went elsewhere, so the epilogue has not run: run it now.
        let mut resume = after;
        resume.rip = self.epilogue;
        ptrace::setregs(self.pid, resume)?;
        ptrace::cont(self.pid, None)?;
        match waitpid(self.pid, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            other => return Err(io::Error::other(format!("the epilogue ended with {other:?}"))),
        }
        Ok((Stop::Jumped(after.rip - 1), self.unpack(state, &after, true)?))
    }

    /// Writes pieces of the child's memory.
    fn write(&self, pieces: &[(u64, &[u8])]) -> io::Result<()> {
        let local: Vec<_> = pieces.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
        let remote: Vec<_> =
            pieces.iter().map(|(at, bytes)| RemoteIoVec { base: *at as usize, len: bytes.len() }).collect();
        process_vm_writev(self.pid, &local, &remote)?;
        Ok(())
    }

    /// The XSAVE area for `state`.
    fn pack(&self, state: &Image) -> Vec<u8> {
        let layout = &self.layout;
        let mut area = vec![0; layout.size];
        let bytes = &state.0;
        area[0..2].copy_from_slice(&bytes[image::CONTROL..image::CONTROL + 2]);
        area[2..4].copy_from_slice(&bytes[image::STATUS..image::STATUS + 2]);
        area[4] = bytes[image::TAGS];
        area[6..24].copy_from_slice(&bytes[image::POINTERS..image::POINTERS + 18]);
        area[24..28].copy_from_slice(&bytes[image::MXCSR..image::MXCSR + 4]);
        for n in 0..8 {
            let physical = image::X87 + 10 * ((state.top() + n) & 7);
            area[32 + 16 * n..42 + 16 * n].copy_from_slice(&bytes[physical..physical + 10]);
        }
        for (at, from, len) in self.vector_pieces() {
            area[at..at + len].copy_from_slice(&bytes[from..from + len]);
        }
        area[512..520].copy_from_slice(&layout.components.to_le_bytes());
        area
    }

    /// (offset in the XSAVE area, offset in the image, length) of every piece of vector and mask state.
    fn vector_pieces(&self) -> Vec<(usize, usize, usize)> {
        let layout = &self.layout;
        let mut pieces = vec![];
        for n in 0..16 {
            let at = image::VEC + 64 * n;
            pieces.push((160 + 16 * n, at, 16));
            if layout.avx != 0 {
                pieces.push((layout.avx + 16 * n, at + 16, 16));
            }
            if self.masks {
                pieces.push((layout.upper_halves + 32 * n, at + 32, 32));
                pieces.push((layout.upper_registers + 64 * n, image::VEC + 64 * (n + 16), 64));
            }
        }
        if self.masks {
            pieces.push((layout.masks, image::MASK, 64));
        }
        pieces
    }

    /// The state after an execution. Without `complete` (a fault) only memory and registers are read.
    fn unpack(&self, before: &Image, regs: &user_regs_struct, complete: bool) -> io::Result<Image> {
        let mut state = before.clone();
        let mut area = vec![0; self.layout.size];
        let mut outputs = [0; 16];
        {
            let memory = &mut state.0[image::MEMORY..];
            let mut local = [IoSliceMut::new(memory), IoSliceMut::new(&mut area), IoSliceMut::new(&mut outputs)];
            let remote = [
                RemoteIoVec { base: ARENA as usize, len: ARENA_SIZE },
                RemoteIoVec { base: XSAVE_OUT as usize, len: self.layout.size },
                RemoteIoVec { base: RAX_OUT as usize, len: 16 },
            ];
            process_vm_readv(self.pid, &mut local, &remote)?;
        }
        gather_gprs(regs, &mut state);
        state.put(image::FLAGS, &(regs.eflags as u32).to_le_bytes());
        state.put(image::FS_BASE, &regs.fs_base.to_le_bytes());
        state.put(image::GS_BASE, &regs.gs_base.to_le_bytes());
        for (n, selector) in [regs.es, regs.cs, regs.ss, regs.ds, regs.fs, regs.gs].into_iter().enumerate() {
            state.put(image::SELECTORS + 2 * n, &(selector as u16).to_le_bytes());
        }
        if complete {
            if regs.rip == self.epilogue + self.epilogue_code().len() as u64 {
                state.put(image::GPR, &outputs[..8]);
                state.put(image::GPR + 16, &outputs[8..]);
            }
            self.unpack_area(&area, &mut state);
        }
        Ok(state)
    }

    fn unpack_area(&self, area: &[u8], state: &mut Image) {
        state.put(image::CONTROL, &area[0..2]);
        state.put(image::STATUS, &area[2..4]);
        state.put(image::TAGS, &area[4..5]);
        state.put(image::POINTERS, &area[6..24]);
        state.put(image::MXCSR, &area[24..28]);
        for n in 0..8 {
            let physical = image::X87 + 10 * ((state.top() + n) & 7);
            state.put(physical, &area[32 + 16 * n..42 + 16 * n]);
        }
        for (at, to, len) in self.vector_pieces() {
            state.put(to, &area[at..at + len]);
        }
    }

    /// Segment selectors of the child, es, cs, ss, ds, fs, gs: random states start with these.
    pub fn selectors(&self) -> [u16; 6] {
        let regs = &self.start;
        [regs.es, regs.cs, regs.ss, regs.ds, regs.fs, regs.gs].map(|selector| selector as u16)
    }

    /// A valid XSAVE area with the state of `image`, for instructions that load one.
    pub fn xsave_area(&self, image: &Image) -> Vec<u8> {
        self.pack(image)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The process may be gone already; there is nothing to do about an error here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Appends `opcode` with the absolute address `target` as its disp32.
fn absolute(code: &mut Vec<u8>, opcode: &[u8], target: u64) {
    code.extend(opcode);
    code.extend((target as u32).to_le_bytes());
}

fn scatter_gprs(regs: &mut user_regs_struct, state: &Image) {
    let targets = [
        &mut regs.rax,
        &mut regs.rcx,
        &mut regs.rdx,
        &mut regs.rbx,
        &mut regs.rsp,
        &mut regs.rbp,
        &mut regs.rsi,
        &mut regs.rdi,
        &mut regs.r8,
        &mut regs.r9,
        &mut regs.r10,
        &mut regs.r11,
        &mut regs.r12,
        &mut regs.r13,
        &mut regs.r14,
        &mut regs.r15,
    ];
    for (n, target) in targets.into_iter().enumerate() {
        *target = state.gpr(n as u8);
    }
}

fn gather_gprs(regs: &user_regs_struct, state: &mut Image) {
    let values = [
        regs.rax, regs.rcx, regs.rdx, regs.rbx, regs.rsp, regs.rbp, regs.rsi, regs.rdi, regs.r8, regs.r9, regs.r10,
        regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
    ];
    for (n, value) in values.into_iter().enumerate() {
        state.set_gpr(n as u8, value);
    }
}

/// A static ELF program with four fixed segments: code, landing page, data and arena.
fn program() -> Vec<u8> {
    let mut code = vec![0xCC; CODE_SIZE];
    code[..TRACE_ME.len()].copy_from_slice(TRACE_ME);
    let segments: [(u64, u32, Vec<u8>); 4] = [
        (CODE, 7, code),
        (LANDING, 5, vec![0xCC; 0x1000]),
        (DATA, 6, vec![0; DATA_SIZE]),
        (ARENA, 6, vec![0; ARENA_SIZE]),
    ];
    let mut out = vec![];
    out.extend(b"\x7FELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    // ET_EXEC, EM_X86_64, version 1.
    out.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    out.extend(CODE.to_le_bytes());
    out.extend(64u64.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    for half in [64u16, 56, segments.len() as u16, 64, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    let mut offset = 0x1000u64;
    for (address, flags, bytes) in &segments {
        out.extend(1u32.to_le_bytes());
        out.extend(flags.to_le_bytes());
        for word in [offset, *address, *address, bytes.len() as u64, bytes.len() as u64, 0x1000] {
            out.extend(word.to_le_bytes());
        }
        offset += bytes.len() as u64;
    }
    out.resize(0x1000, 0);
    for (_, _, bytes) in segments {
        out.extend(bytes);
    }
    out
}
