//! Set-up: the programs that the checks run, installed from the distribution's packages.
//!
//! Guarantees: says in the end which programs are missing and which checks are smaller for it. Only this task may use
//! the network; everything else works without.

use std::{
    env, fs,
    process::{Command, Stdio},
};

use crate::{guests::has_program, scratch::root};

/// A package and a program or file by which we see that it is there.
struct Package {
    name: &'static str,
    /// A program in PATH, or a file when it starts with `/`.
    sign: &'static str,
    needed_for: &'static str,
}

const fn package(name: &'static str, sign: &'static str, needed_for: &'static str) -> Package {
    Package { name, sign, needed_for }
}

const PACKAGES: &[Package] = &[
    package("gcc", "gcc", "guests"),
    package("g++", "g++", "C++ guests"),
    package("libc6-dev", "/usr/include/stdio.h", "guests"),
    package("binutils", "objdump", "agree"),
    package("clang", "clang", "tests of tables of names in debug information"),
    package("chromium", "chromium", "tests of the page of an answer"),
    package("gdb", "gdb", "tests of backtraces and variables, bench record as a comparison"),
    package("make", "/usr/bin/make", "agree, bench record"),
    package("musl-tools", "musl-gcc", "musl guests"),
    package("golang-go", "go", "the Go guest"),
    package("nodejs", "node", "the Node case"),
    package("openjdk-17-jdk-headless", "javac", "the Java cases"),
    package("python3", "/usr/bin/python3", "agree, pysuite, bench"),
    package("perl", "perl", "agree"),
    package("lua5.4", "lua5.4", "agree, bench"),
    package("luajit", "luajit", "agree"),
    package("sqlite3", "/usr/bin/sqlite3", "agree, bench"),
    package("tcl", "tclsh", "agree"),
    package("git", "/usr/bin/git", "agree, bench record"),
    package("openssl", "openssl", "agree"),
    package("jq", "jq", "agree"),
    package("curl", "curl", "agree"),
    package("bzip2", "bzip2", "agree, bench"),
    package("xz-utils", "xz", "agree"),
    package("zstd", "zstd", "agree"),
    package("gawk", "gawk", "agree"),
    package("mawk", "mawk", "agree"),
    package("bc", "bc", "agree"),
    package("m4", "m4", "agree"),
    package("util-linux", "setpriv", "confined runs"),
    package("valgrind", "valgrind", "bench, as a comparison"),
    package("findutils", "/usr/bin/find", "agree, bench record"),
    package("rr", "rr", "bench record, as a comparison"),
    package("qemu-user", "qemu-x86_64", "bench, as a comparison"),
];

/// Installs what is missing, if that is possible.
pub fn setup() -> Result<bool, String> {
    fetch_crates();
    install_programs()
}

/// Downloads the crates of the workspace and of the engine's program, so that later builds need no network.
fn fetch_crates() {
    for manifest in ["Cargo.toml", "crates/engine-bin/Cargo.toml"] {
        if !root().join(manifest).exists() {
            continue;
        }
        let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["fetch", "--quiet", "--manifest-path", manifest])
            .current_dir(root())
            .status();
        if !status.is_ok_and(|s| s.success()) {
            println!("setup: the crates of {manifest} could not all be downloaded; building may need the network");
        }
    }
}

fn install_programs() -> Result<bool, String> {
    let suite = python_tests();
    let mut wanted: Vec<String> = missing().iter().map(|p| p.name.to_owned()).collect();
    wanted.extend(suite.as_ref().filter(|_| !has_python_tests()).cloned());
    if wanted.is_empty() {
        println!("setup: everything is installed");
        return Ok(true);
    }
    println!("setup: installing {}", wanted.join(" "));
    match installer() {
        Some(prefix) => install(&prefix, &wanted),
        None => println!("setup: neither root nor sudo without a password: please install these packages by hand"),
    }
    let still = missing();
    for package in &still {
        println!("setup: {} is missing: {} will be smaller", package.name, package.needed_for);
    }
    let tests = has_python_tests();
    if !tests {
        println!("setup: CPython's tests are missing ({}): pysuite cannot run", suite.unwrap_or_default());
    }
    // Guests are the base of every check; without the rest the checks are smaller and say so.
    let base = !still.iter().any(|p| p.needed_for == "guests");
    println!("setup: {}", if base { "ready" } else { "a C compiler is missing: the checks cannot run" });
    Ok(base)
}

fn missing() -> Vec<&'static Package> {
    let there = |sign: &str| if sign.starts_with('/') { fs::metadata(sign).is_ok() } else { has_program(sign) };
    PACKAGES.iter().filter(|p| !there(p.sign)).collect()
}

/// Name of the package with the tests of the system's Python.
fn python_tests() -> Option<String> {
    let output = Command::new("/usr/bin/python3")
        .args(["-c", "import sys; print('libpython%d.%d-testsuite' % sys.version_info[:2])"])
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned()).filter(|name| !name.is_empty())
}

fn has_python_tests() -> bool {
    Command::new("/usr/bin/python3")
        .args(["-c", "import test.test_json, test.test_mmap"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// Words before a command that makes it run as root.
fn installer() -> Option<Vec<String>> {
    if !has_program("apt-get") {
        return None;
    }
    if rustix::process::geteuid().is_root() {
        return Some(Vec::new());
    }
    let sudo = Command::new("sudo").args(["-n", "true"]).stderr(Stdio::null()).status();
    sudo.is_ok_and(|s| s.success()).then(|| vec!["sudo".to_owned(), "-n".to_owned()])
}

/// Installs all at once, and one by one if that fails, so that one unknown package does not keep out the others.
fn install(prefix: &[String], packages: &[String]) {
    apt(prefix, &["update".to_owned(), "-qq".to_owned()]);
    let options = ["install".to_owned(), "-y".to_owned(), "-qq".to_owned(), "--no-install-recommends".to_owned()];
    let all: Vec<String> = options.iter().chain(packages).cloned().collect();
    if apt(prefix, &all) {
        return;
    }
    for package in packages {
        let one: Vec<String> = options.iter().chain([package]).cloned().collect();
        if !apt(prefix, &one) {
            println!("setup: {package} cannot be installed");
        }
    }
}

fn apt(prefix: &[String], arguments: &[String]) -> bool {
    let mut words: Vec<String> = prefix.to_vec();
    words.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"].map(str::to_owned));
    words.extend(arguments.iter().cloned());
    Command::new(&words[0]).args(&words[1..]).stdout(Stdio::null()).status().is_ok_and(|s| s.success())
}
