//! gdb as an independent oracle: it runs a program to a breakpoint, answers questions and saves a core file.
//!
//! The core file is then the stopped process for the code under test, so both speak of the very same state.
//! Without gdb these tests say that they were not run; with `CLEW_REQUIRE_GDB` set they fail.

use super::Scratch;
use image::{FileOffset, Images, LoadedImages, MappedFile, Register, Search, StackFrame, Stopped, backtrace};
use model::GuestAddr;
use object::LittleEndian as LE;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The function at whose start every test program stops.
pub const STOP: &str = "stop_here";

/// A program stopped by gdb, and what gdb says about it.
pub struct Session {
    pub core: Core,
    /// The answers to the commands, in their order.
    pub answers: Vec<String>,
}

/// A core file.
pub struct Core {
    bytes: Vec<u8>,
    /// Address, offset and size in the file.
    segments: Vec<(u64, usize, usize)>,
    registers: Vec<u64>,
    vectors: Vec<u8>,
    images: LoadedImages,
}

/// Runs `program` to [`STOP`] and asks `commands`. `None`, after saying so, when there is no gdb.
#[track_caller]
pub fn ask(scratch: &Scratch, program: &Path, commands: &[String]) -> Option<Session> {
    if Command::new("gdb").arg("--version").output().is_err() {
        assert!(std::env::var_os("CLEW_REQUIRE_GDB").is_none(), "gdb is required but cannot be run");
        eprintln!("NOT RUN: this test compares with gdb, which is not installed");
        return None;
    }
    let core = scratch.path("core");
    let before = ["set confirm off", "set width 0", "set height 0", "set debuginfod enabled off"];
    let mut script: Vec<String> = before.iter().map(|s| s.to_string()).collect();
    script.push("handle SIGUSR1 nostop noprint pass".to_string());
    script.push(format!("break {STOP}"));
    script.push("run".to_string());
    script.push(format!("generate-core-file {}", core.display()));
    for command in commands {
        script.push("echo \\n@@@@".to_string());
        script.push(command.clone());
    }
    script.push("echo \\n@@@@".to_string());
    let mut gdb = Command::new("sh");
    // Errors belong between the answers.
    gdb.args(["-c", "exec gdb \"$@\" 2>&1", "sh", "-nx", "-batch"]).env("LC_ALL", "C");
    for line in &script {
        gdb.args(["-ex", line]);
    }
    let output = gdb.arg(program).current_dir(&scratch.0).output().expect("this test needs sh");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut answers: Vec<String> = text.split("\n@@@@").map(|a| a.trim().to_string()).collect();
    assert_eq!(answers.len(), commands.len() + 2, "gdb did not answer everything:\n{text}");
    answers.pop();
    answers.remove(0);
    Some(Session { core: Core::open(&core, program), answers })
}

impl Core {
    #[track_caller]
    fn open(path: &Path, program: &Path) -> Core {
        let bytes = std::fs::read(path).expect("gdb wrote a core file");
        let elf = ElfFile64::<LE, _>::parse(&*bytes).unwrap();
        let (mut segments, mut registers, mut vectors, mut mapped) = (vec![], vec![], vec![], vec![]);
        let header = elf.elf_header();
        for p in header.program_headers(LE, &*bytes).unwrap() {
            if p.p_type(LE) == object::elf::PT_LOAD {
                segments.push((p.p_vaddr(LE), p.p_offset(LE) as usize, p.p_filesz(LE) as usize));
            }
            let Ok(Some(mut notes)) = p.notes(LE, &*bytes) else { continue };
            while let Ok(Some(note)) = notes.next() {
                match note.n_type(LE) {
                    object::elf::NT_PRSTATUS if registers.is_empty() => {
                        let words = note.desc()[112..112 + 27 * 8].chunks_exact(8);
                        registers = words.map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
                    }
                    object::elf::NT_PRFPREG if vectors.is_empty() => vectors = note.desc()[160..160 + 256].to_vec(),
                    object::elf::NT_FILE => mapped = mapped_files(note.desc()),
                    _ => {}
                }
            }
        }
        let images = LoadedImages::from_mappings(&Images::with_search(Search::default()), program, &mapped);
        Core { segments, registers, vectors, images, bytes }
    }

    pub fn backtrace(&self) -> Vec<StackFrame> {
        backtrace(self, 100).frames
    }
}

/// The note `NT_FILE`: count, page size, then start, end and offset in pages of each file, then the names.
fn mapped_files(note: &[u8]) -> Vec<MappedFile> {
    let word = |i: usize| u64::from_le_bytes(note[i * 8..i * 8 + 8].try_into().unwrap());
    let (count, page) = (word(0) as usize, word(1));
    let names = note[16 + count * 24..].split(|&b| b == 0).map(|n| String::from_utf8_lossy(n).into_owned());
    let file = |(i, name): (usize, String)| MappedFile {
        path: PathBuf::from(name),
        start: GuestAddr(word(2 + i * 3)),
        offset: FileOffset(word(4 + i * 3) * page),
    };
    names.take(count).enumerate().map(file).collect()
}

impl Stopped for Core {
    fn read(&self, at: GuestAddr, to: &mut [u8]) -> usize {
        for &(start, offset, size) in &self.segments {
            let Some(skip) = at.0.checked_sub(start).filter(|d| *d < size as u64) else { continue };
            let from = &self.bytes[offset + skip as usize..offset + size];
            let n = from.len().min(to.len());
            to[..n].copy_from_slice(&from[..n]);
            // The next byte may lie in the next segment.
            return if n < to.len() { n + self.read(GuestAddr(at.0 + n as u64), &mut to[n..]) } else { n };
        }
        // gdb leaves out what stands in files.
        let Some((_, loaded, offset)) = self.images.at(at) else { return 0 };
        let bytes = loaded.image.bytes(offset, to.len() as u64).unwrap_or_default();
        to[..bytes.len()].copy_from_slice(&bytes);
        bytes.len()
    }

    fn register(&self, register: Register) -> Option<u64> {
        // Where each DWARF register stands in `struct user_regs_struct`.
        const ORDER: [usize; 17] = [10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16];
        let slot = if register == Register::FS_BASE { 21 } else { *ORDER.get(register.0 as usize)? };
        self.registers.get(slot).copied()
    }

    fn vector(&self, number: u16) -> Option<[u8; 16]> {
        self.vectors.get(number as usize * 16..)?.first_chunk().copied()
    }

    fn images(&self) -> &LoadedImages {
        &self.images
    }
}
