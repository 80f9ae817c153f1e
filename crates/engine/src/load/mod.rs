//! From a path to a guest that is ready to run: the program, its interpreter, its stack.

pub mod elf;
pub mod script;
pub mod stack;

use crate::cpu::hwcap;
use crate::memory::{Memory, Place, Vma, conceal, kernel_prot, map_at, object_of, page_down, page_up};
use crate::signals::xstate;
use crate::sys::{self, err, nr};
use alloc::string::String;
use alloc::vec::Vec;
use model::layout::{self, PIE_BASE, STACK_MAX, STACK_TOP};
use model::wire::Config;

const O_RDONLY_CLOEXEC: u64 = 0x8_0000;
const AT_FDCWD: u64 = -100i64 as u64;
/// How many files may be opened on the way through `#!` lines to a program: five scripts and the program.
const SCRIPTS: usize = 6;

/// What the run needs to know about the loaded program.
#[derive(Clone, Copy, Debug)]
pub struct Loaded {
    pub bias: u64,
    pub entry: u64,
    /// Where the program itself begins, behind its interpreter.
    pub program: u64,
    pub sp: u64,
    pub xstate: xstate::Layout,
}

/// Why a program cannot be run: the errno for `execve`, and a sentence for people.
pub struct LoadError {
    pub errno: i64,
    pub message: String,
}

/// A program file that has been opened and understood.
pub struct Program {
    fd: u64,
    elf: elf::Elf,
    /// Path of the file that is executed (the interpreter of a script).
    pub path: Vec<u8>,
    pub argv: Vec<Vec<u8>>,
}

impl Program {
    /// The descriptor it is read from.
    pub fn fd(&self) -> u64 {
        self.fd
    }

    /// A path that names the file after an `execve` too: its own, or where it has none (deleted, memfd) a descriptor that
    /// stays open.
    pub fn lasting_name(&self) -> Vec<u8> {
        match crate::procfs::link_of(self.fd) {
            Some(link) if link.starts_with(b"/") && !link.starts_with(b"/memfd:") && !link.ends_with(b" (deleted)") => {
                link
            }
            _ => {
                // SAFETY: duplicates our own descriptor, without close-on-exec.
                let fd = unsafe { sys::raw3(nr::DUP, self.fd, 0, 0) };
                alloc::format!("/proc/self/fd/{fd}").into_bytes()
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { sys::raw3(nr::CLOSE, self.fd, 0, 0) };
    }
}

fn show(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

fn error(errno: i64, message: String) -> LoadError {
    LoadError { errno, message }
}

/// Opens the program at `path` and follows `#!` lines. Checks everything that `execve` checks before it commits.
pub fn open(dir: u64, path: &[u8], argv: &[Vec<u8>]) -> Result<Program, LoadError> {
    let mut path = path.to_vec();
    let mut argv = argv.to_vec();
    let mut dir = dir;
    for _ in 0..SCRIPTS {
        let fd = open_executable(dir, &path)?;
        let mut head = [0u8; 4096];
        let n = pread(fd, 0, &mut head);
        let head = &head[..n];
        if head.starts_with(b"#!") {
            close(fd);
            let s = script::parse(head).map_err(|e| error(e.errno() as i64, alloc::format!("{}: {e}", show(&path))))?;
            let args: Vec<&[u8]> = argv.iter().map(|a| a.as_slice()).collect();
            argv = s.argv(&path, &args);
            path = s.interpreter.clone();
            dir = AT_FDCWD;
            continue;
        }
        let parsed = elf::parse(head, file_len(fd), &mut |at, buf| pread(fd, at, buf) == buf.len());
        match parsed {
            Ok(elf) => return Ok(Program { fd, elf, path, argv }),
            Err(e) => {
                close(fd);
                return Err(error(e.errno() as i64, alloc::format!("{}: {e}", show(&path))));
            }
        }
    }
    Err(error(err::ELOOP, alloc::format!("{}: too many interpreters in a row", show(&path))))
}

fn open_executable(dir: u64, path: &[u8]) -> Result<u64, LoadError> {
    let mut name = path.to_vec();
    name.push(0);
    let empty = if path.is_empty() { 0x1000 } else { 0 };
    // SAFETY: opens and examines a file by name.
    unsafe {
        if empty != 0 && dir == AT_FDCWD {
            return Err(error(err::ENOENT, "no program name".into()));
        }
        let fd = if empty != 0 {
            // execveat(fd, "", AT_EMPTY_PATH): a descriptor of our own for the same file.
            let link = alloc::format!("/proc/self/fd/{}\0", dir as i32);
            sys::raw(nr::OPENAT, [AT_FDCWD, link.as_ptr() as u64, O_RDONLY_CLOEXEC, 0, 0, 0])
        } else {
            sys::raw(nr::OPENAT, [dir, name.as_ptr() as u64, O_RDONLY_CLOEXEC, 0, 0, 0])
        };
        if sys::is_err(fd) {
            let what = match -fd {
                err::ENOENT => "no such file",
                err::EACCES => "permission denied",
                _ => "cannot be opened",
            };
            return Err(error(-fd, alloc::format!("{}: {what}", show(path))));
        }
        let fd = fd as u64;
        let mut stat = [0u64; 18];
        sys::raw3(nr::FSTAT, fd, stat.as_mut_ptr() as u64, 0);
        let mode = stat[3] as u32;
        if mode & 0o170000 != 0o100000 {
            close(fd);
            let what = if mode & 0o170000 == 0o040000 { "is a directory" } else { "is not a regular file" };
            return Err(error(err::EACCES, alloc::format!("{}: {what}", show(path))));
        }
        let link = alloc::format!("/proc/self/fd/{fd}\0");
        // 1 = X_OK, by effective ids. Where /proc is missing the mode bits decide.
        let r = sys::raw(nr::FACCESSAT2, [AT_FDCWD, link.as_ptr() as u64, 1, 0x200, 0, 0]);
        if r == -err::EACCES || r != 0 && mode & 0o111 == 0 {
            close(fd);
            return Err(error(err::EACCES, alloc::format!("{}: not executable (no x permission)", show(path))));
        }
        Ok(fd)
    }
}

fn close(fd: u64) {
    // SAFETY: our own descriptor.
    unsafe { sys::raw3(nr::CLOSE, fd, 0, 0) };
}

fn file_len(fd: u64) -> u64 {
    let mut stat = [0u64; 18];
    // SAFETY: the kernel writes struct stat (144 bytes).
    unsafe { sys::raw3(nr::FSTAT, fd, stat.as_mut_ptr() as u64, 0) };
    stat[6]
}

fn pread(fd: u64, at: u64, buf: &mut [u8]) -> usize {
    let mut done = 0;
    while done < buf.len() {
        let rest = &mut buf[done..];
        // SAFETY: reads into our own buffer.
        let n =
            unsafe { sys::raw(nr::PREAD64, [fd, rest.as_mut_ptr() as u64, rest.len() as u64, at + done as u64, 0, 0]) };
        if n <= 0 {
            break;
        }
        done += n as usize;
    }
    done
}

/// The environment a program starts with, from the engine's own initial stack.
pub struct Inherited {
    pub envp: Vec<Vec<u8>>,
    pub auxv: Vec<(u64, u64)>,
    pub random: [u8; 16],
}

const AT_PHDR: u64 = 3;
const AT_PHENT: u64 = 4;
const AT_PHNUM: u64 = 5;
const AT_PAGESZ: u64 = 6;
const AT_BASE: u64 = 7;
const AT_FLAGS: u64 = 8;
const AT_ENTRY: u64 = 9;
const AT_PLATFORM: u64 = 15;
const AT_HWCAP: u64 = 16;
const AT_CLKTCK: u64 = 17;
const AT_SECURE: u64 = 23;
const AT_RANDOM: u64 = 25;
const AT_HWCAP2: u64 = 26;
const AT_EXECFN: u64 = 31;
const AT_MINSIGSTKSZ: u64 = 51;

/// Maps program and interpreter, builds the stack.
pub fn load(
    program: &Program,
    execfn: &[u8],
    inherited: &Inherited,
    config: &Config,
    memory: &mut Memory,
    interpreter: Option<&Program>,
    stack_limit: u64,
) -> Result<(Loaded, stack::StackImage), LoadError> {
    let bias = match program.elf.kind {
        elf::Kind::Fixed => 0,
        elf::Kind::Relocatable => pie_bias(&program.elf, memory)?,
    };
    map_image(program.fd, &program.elf, bias, memory, &program.path)?;
    let mut entry = program.elf.entry_at(bias);
    let mut base = 0;
    if let Some(interpreter) = interpreter {
        let span = interpreter.elf.span();
        let align = interpreter.elf.align().max(layout::PAGE);
        let at = memory
            .room(span.end - span.start + align - layout::PAGE, Place::Near)
            .ok_or_else(|| error(err::ENOMEM, "no room for the program interpreter".into()))?;
        base = interpreter.elf.bias_for(at.next_multiple_of(align));
        map_image(interpreter.fd, &interpreter.elf, base, memory, &interpreter.path)?;
        entry = interpreter.elf.entry_at(base);
    }
    let image = build_stack(program, execfn, inherited, config, (bias, base), memory, stack_limit)?;
    let loaded =
        Loaded { bias, entry, program: program.elf.entry_at(bias), sp: image.start, xstate: xstate::Layout::detect() };
    Ok((loaded, image))
}

/// The soft limit on the stack.
pub fn stack_limit() -> u64 {
    let mut limit = [0u64; 2];
    // SAFETY: the kernel writes two words (RLIMIT_STACK is 3).
    unsafe { sys::raw3(nr::GETRLIMIT, 3, limit.as_mut_ptr() as u64, 0) };
    limit[0]
}

/// The program interpreter that `program` asks for.
pub fn interpreter_of(program: &Program) -> Result<Option<Program>, LoadError> {
    let Some(path) = &program.elf.interpreter else { return Ok(None) };
    let fd = open_executable(AT_FDCWD, path)?;
    let named = |e: LoadError| LoadError { message: alloc::format!("program interpreter {}", e.message), ..e };
    opened(fd, path).map(Some).map_err(named)
}

/// An image in an open file, whose name is `path`.
pub fn opened(fd: u64, path: &[u8]) -> Result<Program, LoadError> {
    let mut head = [0u8; 4096];
    let n = pread(fd, 0, &mut head);
    match elf::parse(&head[..n], file_len(fd), &mut |at, buf| pread(fd, at, buf) == buf.len()) {
        Ok(elf) => Ok(Program { fd, elf, path: path.to_vec(), argv: Vec::new() }),
        Err(e) => {
            close(fd);
            Err(error(e.errno() as i64, alloc::format!("{}: {e}", show(path))))
        }
    }
}

fn pie_bias(elf: &elf::Elf, memory: &Memory) -> Result<u64, LoadError> {
    let span = elf.span();
    let align = elf.align().max(layout::PAGE);
    let at = PIE_BASE.next_multiple_of(align);
    let len = span.end - span.start;
    if memory.is_free(at..at + len) && at + len <= layout::CACHE.start {
        return Ok(elf.bias_for(at));
    }
    let room =
        memory.room(len + align, Place::Near).ok_or_else(|| error(err::ENOMEM, "no room for the program".into()))?;
    Ok(elf.bias_for(room.next_multiple_of(align)))
}

fn map_image(fd: u64, elf: &elf::Elf, bias: u64, memory: &mut Memory, path: &[u8]) -> Result<(), LoadError> {
    let failed = |at: u64, r: i64| {
        error(err::ENOMEM, alloc::format!("{}: cannot map its segment at {at:#x} (error {})", show(path), -r))
    };
    for s in elf.plan(bias) {
        let file = s.file.map_or(0..0, |f| f.address..f.address + f.len);
        for r in [&file, &s.anon] {
            if layout::touches_engine(r.start, r.end - r.start) && !r.is_empty() {
                return Err(error(
                    err::ENOMEM,
                    alloc::format!("{}: wants memory that Clew needs at {:#x}", show(path), r.start),
                ));
            }
        }
        if let Some(f) = s.file {
            let flags = sys::MAP_PRIVATE | sys::MAP_FIXED;
            // SAFETY: guest memory outside the engine; segments of one image may share a page.
            let r = unsafe { sys::raw(nr::MMAP, [f.address, f.len, f.prot as u64, flags, fd, f.offset]) };
            if sys::is_err(r) {
                return Err(failed(f.address, r));
            }
            conceal(&(f.address..f.address + f.len), f.prot as u64);
            memory.insert(
                f.address..f.address + f.len,
                Vma { file: true, object: object_of(fd), offset: f.offset, ..Vma::anonymous(f.prot as u64) },
            );
        }
        if !s.zero.is_empty() {
            let zeros = alloc::vec![0u8; (s.zero.end - s.zero.start) as usize];
            sys::write_guest(s.zero.start, &zeros);
        }
        if !s.anon.is_empty() {
            let flags = sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_FIXED;
            let (at, len) = (s.anon.start, s.anon.end - s.anon.start);
            // SAFETY: guest memory outside the engine.
            let r = unsafe { sys::raw(nr::MMAP, [at, len, kernel_prot(s.anon_prot as u64), flags, u64::MAX, 0]) };
            if sys::is_err(r) {
                return Err(failed(at, r));
            }
            memory.insert(s.anon.clone(), Vma::anonymous(s.anon_prot as u64));
        }
    }
    Ok(())
}

fn build_stack(
    program: &Program,
    execfn: &[u8],
    inherited: &Inherited,
    config: &Config,
    (bias, base): (u64, u64),
    memory: &mut Memory,
    stack_limit: u64,
) -> Result<stack::StackImage, LoadError> {
    let argv: Vec<&[u8]> = program.argv.iter().map(|a| a.as_slice()).collect();
    let envp: Vec<&[u8]> = inherited.envp.iter().map(|a| a.as_slice()).collect();
    if !stack::fits(&argv, &envp, execfn, stack_limit) {
        return Err(error(err::E2BIG, "arguments and environment are too long".into()));
    }
    let size = page_up(stack_limit.clamp(1 << 17, STACK_MAX)) + (1 << 17);
    let prot = 3 | if program.elf.exec_stack { 4 } else { 0 };
    let bottom = page_down(STACK_TOP - size);
    let r = map_at(
        bottom,
        STACK_TOP - bottom,
        kernel_prot(prot),
        sys::MAP_PRIVATE | sys::MAP_ANONYMOUS | sys::MAP_NORESERVE,
        u64::MAX,
        0,
    );
    if sys::is_err(r) {
        return Err(error(err::ENOMEM, alloc::format!("no memory for a stack of {} KiB", size >> 10)));
    }
    memory.insert(bottom..STACK_TOP, Vma::anonymous(prot));
    memory.stack = bottom..STACK_TOP;

    let mut auxv = Vec::new();
    for &(key, value) in &inherited.auxv {
        let value = match key {
            AT_PHDR => program.elf.phdr_at(bias),
            AT_PHENT => elf::PHENT,
            AT_PHNUM => program.elf.phnum as u64,
            AT_BASE => base,
            AT_ENTRY => program.elf.entry_at(bias),
            AT_HWCAP => hwcap::hwcap(config.cpu, value),
            AT_HWCAP2 => hwcap::hwcap2(config.cpu, value),
            AT_MINSIGSTKSZ => hwcap::minsigstksz(Some(value)),
            AT_EXECFN | AT_PLATFORM | AT_RANDOM | AT_PAGESZ | AT_FLAGS | AT_CLKTCK | AT_SECURE | 11..=14 => value,
            // The vDSO is gone (time calls become system calls) and rseq is not offered.
            _ => continue,
        };
        auxv.push((key, value));
    }
    let image = stack::build(STACK_TOP, &argv, &envp, execfn, b"x86_64", inherited.random, &auxv);
    if image.start < bottom + (1 << 16) || sys::write_guest(image.start, &image.bytes) < image.bytes.len() {
        return Err(error(err::E2BIG, "arguments and environment do not fit on the stack".into()));
    }
    Ok(image)
}
