//! Compiles guests, once per source, flags and compiler.
//!
//! A guest is one file in `guests/`; its opening comment holds its facts on lines of their own: `flags:` for the
//! compiler, `needs:` for CPU features as `/proc/cpuinfo` names them.

use crate::{repository, scratch_folder};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiled guest.
#[derive(Clone, Debug)]
pub struct Guest {
    pub name: String,
    pub source: PathBuf,
    pub program: PathBuf,
}

/// Compiles `guests/<name>`; `None` if this CPU cannot run it.
pub fn guest(name: &str) -> Option<Guest> {
    guest_with(name, &[])
}

/// The same with more flags than its own.
pub fn guest_with(name: &str, more: &[&str]) -> Option<Guest> {
    let source = repository().join("guests").join(name);
    let text = read(&source);
    let missing: Vec<_> = fact(&text, "needs:").into_iter().filter(|f| !cpu_has(f)).collect();
    if !missing.is_empty() {
        return None;
    }
    let program = compile(&source, &[fact(&text, "flags:"), more.to_vec()].concat());
    let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    Some(Guest { name, source, program })
}

/// Compiles a C or C++ file with debug information and gives the program's path.
pub fn compile(source: &Path, flags: &[&str]) -> PathBuf {
    let compiler = if source.extension().is_some_and(|e| e == "cpp") { "g++" } else { "gcc" };
    let mut hash = DefaultHasher::new();
    (read(source), headers_beside(source), flags, compiler, version_of(compiler)).hash(&mut hash);
    let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let program = scratch_folder("guests").join(format!("{stem}-{:016x}", hash.finish()));
    if program.exists() {
        return program;
    }
    // Made beside and renamed, so that tests at the same time see the whole program or none.
    let fresh = crate::scratch_file(&stem);
    let mut command = Command::new(compiler);
    // A path-independent program: the same source gives the same bytes in every checkout.
    command.arg("-g").arg("-ffile-prefix-map=".to_owned() + &repository().to_string_lossy() + "=.");
    command.args(flags).arg("-w").arg("-o").arg(&fresh).arg(source);
    let output = command.output().unwrap_or_else(|e| panic!("cannot run {compiler}: {e}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} does not compile {}:\n{said}", source.display());
    std::fs::rename(&fresh, &program).unwrap_or_else(|e| panic!("cannot make {}: {e}", program.display()));
    program
}

/// The words after `key` on its line in the opening comment.
fn fact<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let found = text.lines().take(8).find_map(|l| l.split_once(key));
    found.map_or(Vec::new(), |(_, rest)| rest.trim_end_matches("*/").split_whitespace().collect())
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

/// Contents of the headers in the same folder, which a guest may include.
fn headers_beside(source: &Path) -> Vec<String> {
    let Some(Ok(entries)) = source.parent().map(std::fs::read_dir) else { return Vec::new() };
    let mut paths: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "h"));
    paths.sort();
    paths.iter().map(|p| read(p)).collect()
}

fn version_of(compiler: &str) -> Vec<u8> {
    let output = Command::new(compiler).arg("--version").output();
    output.unwrap_or_else(|e| panic!("cannot run {compiler}: {e}")).stdout
}

fn cpu_has(feature: &str) -> bool {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|l| l.starts_with("flags"));
    flags.is_some_and(|l| l.split_whitespace().any(|w| w == feature))
}
