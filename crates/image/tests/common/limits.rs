//! Questions about damaged files, asked in a child process with hard limits on memory and processor time.
//!
//! The child is this same test program, told by environment variables which file to ask about.

use super::Scratch;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// Names the file to question, and in the second case that many damaged variants of it.
const FILE: &str = "CLEW_TEST_HOSTILE_FILE";
const VARIANTS: &str = "CLEW_TEST_HOSTILE_VARIANTS";

/// Address space and processor time of the child: several times what an honest file of this size takes.
const MEMORY_KIB: u32 = 1 << 20;
const SECONDS: u32 = 60;

/// A generator with a fixed sequence (xorshift64*).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn damage(program: &[u8], targets: &[Range<usize>], random: &mut Random) -> Vec<u8> {
    let mut bytes = program.to_vec();
    if random.below(5) == 0 {
        bytes.truncate(random.below(program.len()));
        return bytes;
    }
    let target = &targets[random.below(targets.len())];
    for _ in 0..1 << random.below(7) {
        let at = target.start + random.below(target.len());
        match random.below(3) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = [0, 0xff, 0x7f, 0x80][random.below(4)],
            _ => bytes[at] = random.next() as u8,
        }
    }
    bytes
}

/// The child's part: hands the named file, or damaged variants of it, to `question`. Without the environment variable
/// there is nothing to do.
pub fn each_variant(targets: &dyn Fn(&[u8]) -> Vec<Range<usize>>, question: &mut dyn FnMut(&Path, &mut Random)) {
    let Ok(path) = std::env::var(FILE) else { return };
    let path = Path::new(&path);
    let variants: u64 = std::env::var(VARIANTS).map_or(0, |n| n.parse().unwrap());
    if variants == 0 {
        return question(path, &mut Random(1));
    }
    let program = std::fs::read(path).unwrap();
    let targets = targets(&program);
    let scratch = Scratch::new();
    for variant in 1..=variants {
        // Each variant has its own sequence, so that one can be repeated alone.
        let mut random = Random(variant.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        println!("variant {variant}");
        // A file of its own each time: images notice when theirs is replaced.
        let file = scratch.write(&format!("v{variant}"), damage(&program, &targets, &mut random));
        question(&file, &mut random);
        std::fs::remove_file(file).unwrap();
    }
}

#[track_caller]
pub fn check_survives(test: &str, path: &Path, variants: u32) {
    let limits = format!("ulimit -v {MEMORY_KIB} && ulimit -t {SECONDS} && exec \"$@\"");
    let child = Command::new("sh")
        .args(["-c", &limits, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs([(FILE, path.as_os_str()), (VARIANTS, variants.to_string().as_ref())])
        .output()
        .expect("this test needs sh");
    let out = String::from_utf8_lossy(&child.stdout);
    let tail: Vec<&str> = out.lines().rev().take(12).collect();
    let error = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && out.contains("1 passed"), "{}: {tail:?}\n{error}", child.status);
}
