//! Compiles small C programs for tests and asks them where their own code lies.
//!
//! The programs are the oracle: each prints the return addresses of its `HERE()` calls, so nothing here depends on the
//! code under test. What is expected stands in the source beside the call: `HERE(); // LINE: inner < outer < main`.

#![allow(dead_code, reason = "each test file uses a part of this")]

pub mod gdb;
pub mod limits;

use image::{Bias, FileOffset, Image, ImageOffset};
use model::GuestAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// What every probed program begins with. It is included by path, so that line numbers are those of the source.
const PROBE: &str = r#"
#include <stdio.h>
extern const char __ehdr_start;
__attribute__((noinline, noclone)) static void here(int line) {
    printf("%d %p %p\n", line, __builtin_return_address(0), (void *)&__ehdr_start);
}
/* The empty statement keeps the call from becoming a jump. */
#define HERE() do { here(__LINE__); __asm__ volatile(""); } while (0)
"#;

/// A folder that goes away with the test.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("clew-image-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the temporary folder must be writable");
        // The compiler records the folder without symbolic links.
        Scratch(path.canonicalize().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, contents).unwrap();
        path
    }

    /// Runs a tool in this folder.
    #[track_caller]
    pub fn run(&self, tool: &str, args: &[&str]) {
        let output = match Command::new(tool).args(args).current_dir(&self.0).output() {
            Ok(output) => output,
            Err(e) => panic!("this test needs {tool}, which cannot be run ({e}): install gcc and binutils"),
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool} {args:?} failed: {stderr}");
    }

    /// Compiles `source` as `src/prog.c` (or `.cc`, `.s`) into `prog`.
    #[track_caller]
    pub fn compile(&self, compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
        let name = match compiler {
            "g++" => "src/prog.cc",
            _ if source.trim_start().starts_with(".globl") => "src/prog.s",
            _ => "src/prog.c",
        };
        self.write("probe.h", PROBE);
        self.write(name, source);
        let args: Vec<&str> = [&["-include", "probe.h", name, "-o", "prog", "-w"][..], flags].concat();
        self.run(compiler, if name.ends_with(".s") { &args[2..] } else { &args });
        self.path("prog")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One executed `HERE()`.
#[derive(Debug)]
pub struct Probe {
    pub line: u32,
    /// The return address: one byte after the call.
    pub after_call: GuestAddr,
    pub header: GuestAddr,
}

impl Probe {
    /// The last byte of the call, by the bias that the image's header implies.
    pub fn call(&self, image: &Image) -> ImageOffset {
        self.bias(image).to_image(GuestAddr(self.after_call.0 - 1))
    }

    pub fn bias(&self, image: &Image) -> Bias {
        image.bias(FileOffset(0), self.header).expect("the ELF header is mapped")
    }
}

/// Runs the program and collects its probes.
#[track_caller]
pub fn probes(program: &Path) -> Vec<Probe> {
    let output = Command::new(program).output().expect("the compiled program must run");
    let text = String::from_utf8(output.stdout).unwrap();
    let number = |s: &str| u64::from_str_radix(s.trim_start_matches("0x"), 16).unwrap();
    let probes: Vec<Probe> = text
        .lines()
        .map(|l| l.split(' ').collect::<Vec<_>>())
        .map(|w| Probe {
            line: w[0].parse().unwrap(),
            after_call: GuestAddr(number(w[1])),
            header: GuestAddr(number(w[2])),
        })
        .collect();
    assert!(!probes.is_empty(), "the program printed no probes");
    probes
}

/// The functions that `source` expects at `line`, the innermost first.
#[track_caller]
pub fn expected(source: &str, line: u32) -> Vec<&str> {
    let text = source.lines().nth(line as usize - 1).unwrap_or("");
    let (_, marker) = text.split_once("// LINE: ").unwrap_or_else(|| panic!("line {line} has no marker: {text:?}"));
    marker.split(" < ").map(str::trim).collect()
}
