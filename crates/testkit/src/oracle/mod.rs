//! The trace oracle: what a program does, instruction by instruction, as the CPU tells it through ptrace.
//!
//! `stepper.c` steps; here its records become, for each thread, a list of [`Entry`]s with the memory each instruction
//! touched. The addresses come from the registers before the instruction and iced's own description of it (`access`).
//!
//! Guarantees: every completed instruction of the program's own image and of anonymous executable memory that it maps,
//! from its entry to its end; a rep string instruction is one entry with the bytes of all its iterations.
//! Misses: shared libraries and the dynamic linker, accesses that the kernel makes in system calls, and what depends on
//! timing: programs with timers or races do not give the same stream twice.

mod access;
mod records;
mod stepper;

pub use access::{Access, Machine, Vectors, accesses, repeats};
pub use stepper::program as stepper_program;

use crate::End;
use crate::elf::Program;
use crate::regions::{RegionId, Regions};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use records::{Record, Records};
use std::ffi::OsStr;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

/// One thing a thread did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    Insn(Step),
    /// A rep string instruction that a signal interrupted; these are the iterations done so far.
    RepPart(Step),
    /// A signal was delivered before the instruction at `pc`.
    Signal {
        signo: u32,
        pc: u64,
    },
}

/// One executed instruction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub pc: u64,
    pub region: RegionId,
    pub code: [u8; 16],
    pub touched: Vec<Touched>,
}

/// Memory that one instruction touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touched {
    pub access: Access,
    pub region: RegionId,
}

/// A whole native run.
#[derive(Clone, Debug)]
pub struct Trace {
    /// By order of creation.
    pub threads: Vec<Vec<Entry>>,
    pub regions: Regions,
    pub stdout: Vec<u8>,
    pub end: End,
}

impl Trace {
    /// Drops what the first thread did before it first came to `pc`.
    pub fn since(&mut self, pc: u64) {
        if let Some(main) = self.threads.first_mut() {
            let at = main.iter().position(|e| matches!(e, Entry::Insn(step) if step.pc == pc)).unwrap_or(0);
            main.drain(..at);
        }
    }

    /// How many instructions were executed inside the traced ranges.
    pub fn instructions(&self) -> usize {
        self.threads.iter().flatten().filter(|e| matches!(e, Entry::Insn(_))).count()
    }
}

/// What the CPU told about one instruction, or about one iteration of a rep string instruction.
#[derive(Debug)]
pub struct Raw<'a> {
    pub thread: u32,
    /// State before it.
    pub machine: &'a Machine,
    /// There for instructions that may take addresses or masks from vector registers.
    pub vectors: Option<&'a Vectors>,
    pub insn: &'a Instruction,
    pub code: &'a [u8],
    pub accesses: &'a [Access],
}

/// Steps through a program natively.
pub fn trace<A: AsRef<OsStr>>(path: &Path, args: &[A]) -> Trace {
    observe(path, args, 0, |_| {})
}

/// Steps through a program natively with a stack pointer at its entry that equals `rsp` modulo a page.
///
/// Code that aligns its stack frames (to 32 bytes for vectors, to 64 in the dynamic linker) moves them by an amount that
/// depends on the stack pointer; two runs are only comparable where that amount is the same.
pub fn trace_aligned<A: AsRef<OsStr>>(path: &Path, args: &[A], rsp: u64) -> Trace {
    observe(path, args, rsp, |_| {})
}

/// Steps through a program natively (see [`trace_aligned`]) and shows each instruction with the state before it.
pub fn observe<A: AsRef<OsStr>>(path: &Path, args: &[A], rsp: u64, mut see: impl FnMut(&Raw<'_>)) -> Trace {
    let program = Program::read(path);
    let out = crate::scratch_file("stdout");
    let hex = |v: u64| format!("{v:x}");
    let extent = program.extent();
    let mut command = Command::new(stepper::program());
    command
        .arg("trace")
        .arg(&out)
        .args([hex(rsp), hex(program.entry), hex(extent.start), hex(extent.end)])
        .arg(path)
        .args(args);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot run the stepper: {e}"));
    let pipe = child.stdout.take().expect("stdout is a pipe");
    let bias = program.bias();
    let mut gathering = Gathering::new(Regions::new(extent.start + bias..extent.end + bias));
    let mut records = Records::new(BufReader::with_capacity(1 << 20, pipe));
    while let Some(record) = records.next() {
        gathering.take(record, &mut see);
    }
    let status = child.wait().expect("a child can be waited for");
    assert!(status.success(), "the stepper failed on {} ({status})", path.display());
    let stdout = std::fs::read(&out).expect("the stepper made the output file");
    std::fs::remove_file(&out).expect("our own file can be removed");
    gathering.finish(stdout)
}

/// Builds a [`Trace`] from records.
struct Gathering {
    regions: Regions,
    threads: Vec<Thread>,
    machine: access::Info,
    handlers: u32,
    end: Option<End>,
}

#[derive(Default)]
struct Thread {
    entries: Vec<Entry>,
    /// Taken down before the next instruction.
    vectors: Option<Box<Vectors>>,
    /// A rep string instruction that has done some iterations, perhaps all.
    rep: Option<Step>,
    /// A signal has been delivered and its handler has not begun.
    signaled: bool,
    /// Handlers that run: their regions and the stack pointer at their beginning.
    handlers: Vec<(RegionId, u64)>,
}

/// Bytes of the fixed part of the kernel's signal frame: return address, `ucontext`, `siginfo` (`struct rt_sigframe`).
const SIGNAL_FRAME: u64 = 8 + 304 + 128;
/// The stack that a handler may use below its frame.
const HANDLER_REACH: u64 = 16 << 10;

impl Thread {
    /// Follows handlers as they begin and end: one has ended when the stack pointer is elsewhere.
    fn handlers(&mut self, rsp: u64, next: &mut u32) {
        if std::mem::take(&mut self.signaled) {
            self.handlers.push((RegionId::Handler(*next), rsp));
            *next += 1;
        }
        while self.handlers.last().is_some_and(|h| !in_handler(h, rsp)) {
            self.handlers.pop();
        }
    }

    fn end_of_rep(&mut self) {
        if let Some(step) = self.rep.take() {
            self.entries.push(Entry::Insn(step));
        }
    }
}

fn in_handler((_, start): &(RegionId, u64), addr: u64) -> bool {
    (start - HANDLER_REACH..start + SIGNAL_FRAME).contains(&addr)
}

impl Gathering {
    fn new(regions: Regions) -> Gathering {
        Gathering { regions, threads: Vec::new(), machine: access::Info::new(), handlers: 0, end: None }
    }

    fn thread(&mut self, index: u32) -> &mut Thread {
        let index = index as usize;
        if self.threads.len() <= index {
            self.threads.resize_with(index + 1, Thread::default);
        }
        &mut self.threads[index]
    }

    fn take(&mut self, record: Record, see: &mut impl FnMut(&Raw<'_>)) {
        match record {
            Record::Maps { text, strings } => self.regions.initial(&text, strings),
            Record::Vectors { thread, vectors } => self.thread(thread).vectors = Some(vectors),
            Record::Insn { thread, machine, code } => self.insn(thread, &machine, code, see),
            Record::Syscall { nr, args, result } => self.regions.system_call(nr, &args, result),
            Record::Signal { thread, signo, pc } => {
                let t = self.thread(thread);
                match t.rep.take() {
                    Some(step) if step.pc == pc => t.entries.push(Entry::RepPart(step)),
                    Some(step) => t.entries.push(Entry::Insn(step)),
                    None => {}
                }
                t.entries.push(Entry::Signal { signo, pc });
                t.signaled = true;
            }
            Record::End { status } => self.end = Some(end_of(status)),
        }
    }

    fn insn(&mut self, thread: u32, machine: &Machine, code: [u8; 16], see: &mut impl FnMut(&Raw<'_>)) {
        let insn = decode(&code, machine.rip);
        let mut handlers = self.handlers;
        let t = self.thread(thread);
        t.handlers(machine.gpr[4], &mut handlers);
        let (vectors, running) = (t.vectors.take(), t.handlers.clone());
        self.handlers = handlers;
        let found = self.machine.accesses(&insn, machine, vectors.as_deref());
        let bytes = &code[..insn.len()];
        see(&Raw { thread, machine, vectors: vectors.as_deref(), insn: &insn, code: bytes, accesses: &found });
        let regions = &self.regions;
        let touched = found.into_iter().map(|access| {
            let handler = running.iter().rev().find(|h| in_handler(h, access.addr));
            let region = match handler {
                _ if access.tls => RegionId::Tls(thread),
                Some((region, _)) => *region,
                None => regions.find(access.addr),
            };
            Touched { access, region }
        });
        let touched: Vec<_> = touched.collect();
        let region = regions.find(machine.rip);
        let step = Step { pc: machine.rip, region, code, touched };
        let t = self.thread(thread);
        let repeats = access::repeats(&insn);
        match &mut t.rep {
            Some(rep) if repeats && rep.pc == step.pc => rep.touched.extend(step.touched),
            _ => {
                t.end_of_rep();
                if repeats {
                    t.rep = Some(step);
                } else {
                    t.entries.push(Entry::Insn(step));
                }
            }
        }
    }

    fn finish(mut self, stdout: Vec<u8>) -> Trace {
        for t in &mut self.threads {
            t.end_of_rep();
        }
        let end = self.end.expect("the stepper tells how the program ended");
        let mut threads: Vec<_> = self.threads.into_iter().map(|t| t.entries).collect();
        for entries in &mut threads {
            // The signal that killed it is its end, not something it did.
            if matches!((entries.last(), end), (Some(Entry::Signal { signo, .. }), End::Signaled(s)) if *signo == s as u32)
            {
                entries.pop();
            }
        }
        Trace { threads, regions: self.regions, stdout, end }
    }
}

/// From the status that `waitpid` gives.
pub(crate) fn end_of(status: u32) -> End {
    use std::os::unix::process::ExitStatusExt;
    crate::native::end_of(std::process::ExitStatus::from_raw(status as i32))
}

/// Decodes one instruction; an invalid one has length 0.
pub fn decode(code: &[u8], pc: u64) -> Instruction {
    Decoder::with_ip(64, code, pc, DecoderOptions::NONE).decode()
}

/// The instruction as text, for messages.
pub fn disassemble(code: &[u8], pc: u64) -> String {
    let mut text = String::new();
    iced_x86::FastFormatter::new().format(&decode(code, pc), &mut text);
    text
}
