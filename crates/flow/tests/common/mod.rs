//! Compiles small programs, reads programs, and makes views of them.
//!
//! Labels of assembler sources are ordinary symbols, so tests name addresses by label.

#![allow(dead_code, reason = "each test file uses a part of this")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use flow::{CodeRange, Flow, Function, FunctionHint, Import, Merge};
use gimli::UnwindSection;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

/// Which hints a view gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hints {
    Symbols,
    /// What a stripped program still has.
    UnwindTables,
    None,
}

pub struct Program {
    pub flow: Flow,
    pub labels: HashMap<String, u64>,
}

/// A folder that goes away with the test.
pub struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("clew-flow-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("the temporary folder must be writable");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Compiles C, C++ (`g++`) or assembler (`as`) and gives the view.
#[track_caller]
pub fn compiled(language: &str, source: &str, flags: &[&str], hints: Hints) -> Program {
    let (_scratch, path) = built(language, source, flags);
    read(&path, hints)
}

/// Compiles and gives the program's path, which is there as long as the folder.
#[track_caller]
pub fn built(language: &str, source: &str, flags: &[&str]) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let (compiler, name) = match language {
        "g++" => ("g++", "prog.cc"),
        "as" => ("gcc", "prog.s"),
        _ => ("gcc", "prog.c"),
    };
    std::fs::write(scratch.0.join(name), source).unwrap();
    let output = Command::new(compiler)
        .args([name, "-o", "prog", "-w"])
        .args(flags)
        .current_dir(&scratch.0)
        .output()
        .unwrap_or_else(|e| panic!("this test needs {compiler}, which cannot be run: {e}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = scratch.0.join("prog");
    (scratch, path)
}

/// Assembles functions in Intel syntax. Functions are declared by `fn NAME` and `end NAME` on lines of their own.
#[track_caller]
pub fn assembled(source: &str) -> Program {
    let mut text = ".intel_syntax noprefix\n.text\n.globl _start\n_start: ud2\n".to_owned();
    for line in source.lines() {
        let line = line.trim();
        match line.split_once(' ') {
            Some(("fn", name)) => text += &format!(".type {name},@function\n{name}:\n"),
            Some(("end", name)) => text += &format!(".size {name},.-{name}\n"),
            _ => text += &format!("{line}\n"),
        }
    }
    compiled("as", &text, &["-nostdlib", "-static"], Hints::Symbols)
}

pub fn read(path: &Path, hints: Hints) -> Program {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = object::File::parse(&*bytes).unwrap();
    let (mut code, mut data) = (Vec::new(), Vec::new());
    for section in file.sections().filter(|s| s.address() != 0) {
        let range = CodeRange { start: section.address(), bytes: section.data().unwrap_or_default().into() };
        match section.kind() {
            SectionKind::Text => code.push(range),
            SectionKind::ReadOnlyData | SectionKind::Data | SectionKind::ReadOnlyDataWithRel => data.push(range),
            _ => {}
        }
    }
    let found = match hints {
        Hints::Symbols => symbols(&file),
        Hints::UnwindTables => unwind_entries(&file),
        Hints::None => Vec::new(),
    };
    let named = file.symbols().filter(|s| s.section_index().is_some());
    let labels = named.filter_map(|s| Some((s.name().ok()?.to_owned(), s.address()))).collect();
    Program {
        flow: Flow::new(code, found).with_data(data).with_imports(imports(&file)).with_pointers(pointers(&file)),
        labels,
    }
}

fn symbols(file: &object::File<'_>) -> Vec<FunctionHint> {
    let all = file.symbols().chain(file.dynamic_symbols());
    let functions = all.filter(|s| s.kind() == SymbolKind::Text && s.section_index().is_some());
    functions
        .map(|s| FunctionHint {
            start: s.address(),
            end: s.address() + s.size(),
            name: s.name().ok().map(str::to_owned),
        })
        .collect()
}

fn unwind_entries(file: &object::File<'_>) -> Vec<FunctionHint> {
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    let text = file.section_by_name(".text").map_or(0, |s| s.address());
    let bases = gimli::BaseAddresses::default().set_eh_frame(section.address()).set_text(text);
    let eh_frame = gimli::EhFrame::new(section.data().unwrap(), gimli::LittleEndian);
    let mut entries = eh_frame.entries(&bases);
    let mut hints = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        if let gimli::CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(gimli::EhFrame::cie_from_offset)
        {
            let start = fde.initial_address();
            hints.push(FunctionHint { start, end: start.wrapping_add(fde.len()), name: None });
        }
    }
    hints
}

/// What relative relocations put into data.
fn pointers(file: &object::File<'_>) -> Vec<u64> {
    let relocations = file.dynamic_relocations().into_iter().flatten();
    let relative = relocations.filter(|(_, r)| matches!(r.target(), object::RelocationTarget::Absolute));
    relative.map(|(_, r)| r.addend() as u64).collect()
}

fn imports(file: &object::File<'_>) -> Vec<Import> {
    let names: BTreeMap<usize, String> =
        file.dynamic_symbols().filter_map(|s| Some((s.index().0, s.name().ok()?.to_owned()))).collect();
    let relocations = file.dynamic_relocations().into_iter().flatten();
    relocations
        .filter_map(|(slot, r)| match r.target() {
            object::RelocationTarget::Symbol(i) => Some(Import { slot, name: names.get(&i.0)?.clone() }),
            _ => None,
        })
        .collect()
}

/// What must hold of every function.
pub fn check_function(function: &Function) {
    let mut before = None;
    for block in function.blocks() {
        assert!(block.start <= block.last && block.last < block.end, "{block:x?}");
        assert!(before < Some(block.start), "blocks are sorted");
        before = Some(block.start);
        assert!(!block.successors.is_empty() || block.exit != flow::Exit::No, "{block:x?} leads nowhere");
        for merge in [function.merge(block.last), function.merge_ignoring_noreturn(block.last)] {
            if let Merge::At(at) = merge {
                assert_eq!(function.block(at).map(|b| b.start), Some(at));
                assert!(!function.is_branch(block.last) || function.merge_points().binary_search(&at).is_ok());
            }
        }
    }
}

impl Program {
    #[track_caller]
    pub fn at(&self, label: &str) -> u64 {
        *self.labels.get(label).unwrap_or_else(|| panic!("no label {label}"))
    }

    #[track_caller]
    pub fn function(&mut self, label: &str) -> std::sync::Arc<flow::Function> {
        let at = self.at(label);
        self.flow.function(at).unwrap_or_else(|| panic!("no function at {label}"))
    }

    /// A merge as a label, `exit` or `never`.
    pub fn name(&self, merge: Merge) -> String {
        match merge {
            Merge::Exit => "exit".to_owned(),
            Merge::Never => "never".to_owned(),
            Merge::At(addr) => {
                let mut labels: Vec<&String> =
                    self.labels.iter().filter(|(_, a)| **a == addr).map(|(l, _)| l).collect();
                labels.sort();
                labels.first().map_or_else(|| format!("{addr:#x}"), |l| (*l).clone())
            }
        }
    }
}
