//! Through the table of names of a real compiler, the same is found as without it.

use super::{DebugInfo, Named, Splits};
use crate::elf::Elf;
use std::path::{Path, PathBuf};
use std::process::Command;

const ONE: &str = "
int shared_count = 3;
static int hidden = 4;
struct point { int x, y; } origin;
int twice(int n) { static int calls; calls++; return n * 2 + hidden; }
";
const OTHER: &str = "
static int hidden = 9;
extern int shared_count;
int twice(int);
enum colour { red, green } paint = green;
typedef long wide;
wide width;
int main(void) { return twice(hidden) + shared_count - (int)paint; }
";

/// A program of two units with a table of names, in a folder of its own.
fn compiled(test: &str) -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("clew-names-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the temporary folder must be writable");
    std::fs::write(folder.join("one.c"), ONE).expect("it can be written");
    std::fs::write(folder.join("other.c"), OTHER).expect("it can be written");
    let args = ["-gdwarf-5", "-gpubnames", "one.c", "other.c", "-o", "prog"];
    let status = Command::new("clang").args(args).current_dir(&folder).status();
    assert!(status.expect("this test needs clang: cargo xtask setup").success());
    (folder.join("prog"), folder)
}

fn load(program: &Path) -> DebugInfo {
    let elf = Elf::open(program).expect("it is a program");
    DebugInfo::load(&elf, None, Splits::default()).expect("it has debug information")
}

#[test]
fn a_table_leads_to_what_is_found_without_it() {
    let (program, folder) = compiled("same");
    for (name, what, count) in [
        ("shared_count", Named::Variable, 1),
        ("hidden", Named::Variable, 2),
        ("twice", Named::Function, 1),
        ("main", Named::Function, 1),
        ("point", Named::Type, 1),
        ("colour", Named::Type, 1),
        ("wide", Named::Type, 1),
        ("int", Named::Type, 2),
    ] {
        let debug = load(&program);
        let found = debug.named(name, what);
        assert!(debug.index.get().is_none(), "{name}: the table was enough");
        assert_eq!(found.len(), count, "{name}");
        assert_eq!(found, debug.index().candidates(name, what), "{name}");
    }
    // Not in the table, or not as that: the whole file is asked.
    for (name, what, count) in [
        ("green", Named::Enumerator, 1),
        ("calls", Named::Variable, 0),
        ("twice", Named::Variable, 0),
        ("nothing", Named::Type, 0),
    ] {
        let debug = load(&program);
        assert_eq!(debug.named(name, what).len(), count, "{name}");
        assert!(debug.index.get().is_some(), "{name}");
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[test]
fn a_table_that_does_not_speak_of_all_units_is_not_used() {
    let (program, folder) = compiled("stale");
    let fresh = load(&program);
    let first = 4 + u32::from_le_bytes(fresh.names[..4].try_into().expect("four bytes")) as usize;
    assert!(first < fresh.names.len(), "each unit has a table");
    let tables: [(&str, Vec<u8>); 4] = [
        ("one unit is missing", fresh.names[..first].to_vec()),
        ("cut", fresh.names[..fresh.names.len() - 1].to_vec()),
        ("a later version", [&fresh.names[..4], &[6], &fresh.names[5..]].concat()),
        ("none", Vec::new()),
    ];
    for (why, names) in tables {
        let debug = DebugInfo { names, ..load(&program) };
        assert_eq!(debug.named("hidden", Named::Variable).len(), 2, "{why}");
        assert!(debug.index.get().is_some(), "{why}");
    }
    let _ = std::fs::remove_dir_all(folder);
}
