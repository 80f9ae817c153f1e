//! The initial stack of a program: arguments, environment and auxiliary vector, byte for byte as Linux lays them out.
//!
//! From high to low addresses (`create_elf_tables` in `fs/binfmt_elf.c`, without its randomisation):
//!
//! ```text
//! top           8 zero bytes
//!               path of the program (AT_EXECFN)
//!               environment strings, the last one highest
//!               argument strings, the last one highest
//!               padding to 16 bytes
//!               platform string (AT_PLATFORM)
//!               16 random bytes (AT_RANDOM)
//!               padding, so that the start becomes a multiple of 16
//!               auxiliary vector, closed by AT_NULL
//!               pointers to the environment strings, 0
//!               pointers to the argument strings, 0
//! start = rsp   number of arguments
//! ```
//!
//! Argument and environment strings are contiguous: programs that change their title in `ps` write over both.
//! Strings must not contain zero bytes.

#![forbid(unsafe_code)]

use alloc::{vec, vec::Vec};
use core::ops::Range;

pub const AT_NULL: u64 = 0;
pub const AT_PLATFORM: u64 = 15;
pub const AT_RANDOM: u64 = 25;
pub const AT_EXECFN: u64 = 31;

/// Longest single string, with its terminating zero (`MAX_ARG_STRLEN`).
const MAX_STRING: usize = 32 * 4096;
/// What arguments and environment may always occupy (`ARG_MAX`).
const ARG_MAX: u64 = 131_072;
/// What they may occupy at most: three quarters of the default stack limit.
const ARG_LIMIT: u64 = (8 << 20) / 4 * 3;

/// The finished stack and where its parts are; the ranges are what `PR_SET_MM_MAP` wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackImage {
    /// Contents from `start` up to the top.
    pub bytes: Vec<u8>,
    /// The initial stack pointer, a multiple of 16.
    pub start: u64,
    /// Argument strings with their terminating zeros: `arg_start`, `arg_end`.
    pub args: Range<u64>,
    /// Environment strings: `env_start`, `env_end`.
    pub env: Range<u64>,
    /// The auxiliary vector with its AT_NULL.
    pub auxv: Range<u64>,
}

/// Builds the stack that ends at `top`, which must be a multiple of 16.
///
/// `auxv` is in the order to be used; the values of `AT_EXECFN`, `AT_PLATFORM` and `AT_RANDOM` in it are replaced by
/// the addresses where these things come to lie, and `AT_NULL` is added.
pub fn build(
    top: u64,
    argv: &[&[u8]],
    envp: &[&[u8]],
    execfn: &[u8],
    platform: &[u8],
    random: [u8; 16],
    auxv: &[(u64, u64)],
) -> StackImage {
    debug_assert_eq!(top % 16, 0);
    let execfn_at = top - 8 - (execfn.len() as u64 + 1);
    let env = execfn_at - strings_len(envp)..execfn_at;
    let args = env.start - strings_len(argv)..env.start;
    let platform_at = (args.start & !15) - (platform.len() as u64 + 1);
    let random_at = platform_at - 16;
    let pairs = auxv.len() as u64 + 1;
    let pointers = 1 + (argv.len() as u64 + 1) + (envp.len() as u64 + 1);
    let start = (random_at - 16 * pairs - 8 * pointers) & !15;
    let auxv_at = start + 8 * pointers;

    let mut out = Writer { bytes: vec![0; (top - start) as usize], start, at: start };
    out.word(argv.len() as u64);
    out.pointers(argv, args.start);
    out.pointers(envp, env.start);
    for &(key, value) in auxv {
        out.word(key);
        out.word(match key {
            AT_EXECFN => execfn_at,
            AT_PLATFORM => platform_at,
            AT_RANDOM => random_at,
            _ => value,
        });
    }
    out.word(AT_NULL);
    out.word(0);
    out.at = random_at;
    out.put(&random);
    out.strings(&[platform]);
    out.at = args.start;
    out.strings(argv);
    out.strings(envp);
    out.strings(&[execfn]);
    StackImage { bytes: out.bytes, start, args, env, auxv: auxv_at..auxv_at + 16 * pairs }
}

/// Do arguments and environment fit? Where they do not, `execve` fails with E2BIG. `stack_limit` is the soft
/// `RLIMIT_STACK`; the rule is Linux's (`bprm_stack_limits` in `fs/exec.c`).
pub fn fits(argv: &[&[u8]], envp: &[&[u8]], execfn: &[u8], stack_limit: u64) -> bool {
    let limit = (stack_limit / 4).clamp(ARG_MAX, ARG_LIMIT);
    let pointers = 8 * (argv.len().max(1) + envp.len()) as u64;
    let strings = strings_len(argv) + strings_len(envp) + strings_len(&[execfn]);
    pointers < limit
        && strings <= limit - pointers
        && argv.iter().chain(envp).chain([&execfn]).all(|s| s.len() < MAX_STRING)
}

/// Bytes that strings occupy with their terminating zeros.
fn strings_len(strings: &[&[u8]]) -> u64 {
    strings.iter().map(|s| s.len() as u64 + 1).sum()
}

/// Fills the image from low to high addresses; what is skipped stays zero.
struct Writer {
    bytes: Vec<u8>,
    start: u64,
    at: u64,
}

impl Writer {
    fn put(&mut self, bytes: &[u8]) {
        let at = (self.at - self.start) as usize;
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len() as u64;
    }

    fn word(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// Pointers to strings that lie one after the other from `first`, then a null pointer.
    fn pointers(&mut self, strings: &[&[u8]], first: u64) {
        let mut at = first;
        for s in strings {
            self.word(at);
            at += s.len() as u64 + 1;
        }
        self.word(0);
    }

    fn strings(&mut self, strings: &[&[u8]]) {
        for s in strings {
            self.put(s);
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::{format, string::String};

    const TOP: u64 = 0x7fff_ffff_f000;

    /// Reads an image as a C program would.
    struct Reader<'a>(&'a StackImage);

    impl Reader<'_> {
        fn word(&self, at: u64) -> u64 {
            let i = (at - self.0.start) as usize;
            u64::from_le_bytes(self.0.bytes[i..i + 8].try_into().unwrap())
        }

        fn string(&self, at: u64) -> String {
            let bytes = &self.0.bytes[(at - self.0.start) as usize..];
            String::from_utf8(bytes.split(|&b| b == 0).next().unwrap().to_vec()).unwrap()
        }
    }

    /// Expects `argc argv | envp | auxv` as seen from the stack pointer, and the invariants of the layout.
    #[track_caller]
    fn check(argv: &[&[u8]], envp: &[&[u8]], expected: &str) {
        let auxv = [(6, 4096), (AT_RANDOM, 0), (AT_EXECFN, 0), (AT_PLATFORM, 0)];
        let image = build(TOP, argv, envp, b"/bin/prog", b"x86_64", *b"0123456789abcdef", &auxv);
        assert_eq!((image.start % 16, image.start + image.bytes.len() as u64), (0, TOP));
        let r = Reader(&image);
        let mut at = image.start;
        let mut next = || {
            at += 8;
            r.word(at - 8)
        };
        let mut text = format!("{}", next());
        for separator in [" |", " |"] {
            loop {
                match next() {
                    0 => break,
                    p => text += &format!(" {}", r.string(p)),
                }
            }
            text += separator;
        }
        loop {
            match (next(), next()) {
                (AT_NULL, _) => break,
                (key @ (AT_RANDOM | AT_EXECFN), p) => text += &format!(" {key}={}", &r.string(p)),
                (AT_PLATFORM, p) => text += &format!(" 15={}", &r.string(p)),
                (key, value) => text += &format!(" {key}={value}"),
            }
        }
        assert_eq!(at, image.auxv.end);
        assert_eq!(text, expected);
        let joined = |strings: &[&[u8]]| strings.iter().flat_map(|s| [s, &b"\0"[..]].concat()).collect::<Vec<u8>>();
        let tail = [joined(argv), joined(envp), b"/bin/prog\0\0\0\0\0\0\0\0\0".to_vec()].concat();
        assert!(image.bytes.ends_with(&tail));
        assert_eq!(image.args.start, TOP - tail.len() as u64);
        assert_eq!((image.args.end, image.env.end), (image.env.start, TOP - 18));
    }

    #[test]
    fn a_program_finds_its_arguments() {
        // The random bytes are followed by the platform string, so that they read as one text.
        let aux = "6=4096 25=0123456789abcdefx86_64 31=/bin/prog 15=x86_64";
        check(&[b"prog", b"-x", b""], &[b"A=1", b"B=2"], &format!("3 prog -x  | A=1 B=2 | {aux}"));
        check(&[], &[], &format!("0 | | {aux}"));
        for n in 0..20 {
            let long = "y".repeat(n);
            check(&[long.as_bytes()], &[b"E="], &format!("1 {long} | E= | {aux}"));
        }
    }

    /// The kernel's own stack of this very process, rebuilt from its parts.
    #[test]
    fn layout_agrees_with_the_kernel() {
        let read = |name: &str| std::fs::read(format!("/proc/self/{name}")).unwrap();
        let split = |bytes: &[u8]| -> Vec<Vec<u8>> {
            let text = bytes.strip_suffix(b"\0").unwrap_or(bytes);
            if bytes.is_empty() { Vec::new() } else { text.split(|&b| b == 0).map(<[u8]>::to_vec).collect() }
        };
        let (argv, envp) = (split(&read("cmdline")), split(&read("environ")));
        let views = |v: &'static [Vec<u8>]| v.iter().map(Vec::as_slice).collect::<Vec<_>>();
        let (argv, envp) = (views(argv.leak()), views(envp.leak()));
        let words: Vec<u64> = read("auxv").chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        let mut auxv: Vec<(u64, u64)> = words.chunks_exact(2).map(|p| (p[0], p[1])).collect();
        auxv.truncate(auxv.iter().position(|p| p.0 == AT_NULL).unwrap());
        let at = |key| auxv.iter().find(|p| p.0 == key).unwrap().1;

        let stat = String::from_utf8(read("stat")).unwrap();
        let fields: Vec<u64> =
            stat.rsplit(") ").next().unwrap().split(' ').map(|f| f.trim().parse().unwrap_or(0)).collect();
        // Fields 48 to 51 of proc_pid_stat(5), less the two before the last parenthesis, counted from 1.
        let (arg_start, env_end) = (fields[48 - 3], fields[51 - 3]);
        let execfn_at = at(AT_EXECFN);
        assert_eq!(env_end, execfn_at);

        // The path of the program is not known otherwise; its length is, from the end of the stack.
        let maps = String::from_utf8(read("maps")).unwrap();
        let stack = maps.lines().find(|l| l.ends_with("[stack]")).unwrap();
        let top = u64::from_str_radix(stack.split(['-', ' ']).nth(1).unwrap(), 16).unwrap();
        let execfn = vec![b'x'; (top - 8 - 1 - execfn_at) as usize];
        let image = build(top, &argv, &envp, &execfn, b"x86_64", [0; 16], &auxv);
        assert_eq!((image.args.start, image.env.end), (arg_start, env_end));
        // The kernel moves the rest down by a random multiple of 16, and random bytes and platform with it.
        let r = Reader(&image);
        let mine = |key| {
            let pairs = (image.auxv.start..image.auxv.end).step_by(16);
            pairs.map(|a| (r.word(a), r.word(a + 8))).find(|p| p.0 == key).unwrap().1
        };
        let moved = mine(AT_PLATFORM) - at(AT_PLATFORM);
        assert_eq!(moved % 16, 0);
        assert_eq!(mine(AT_RANDOM) - at(AT_RANDOM), moved);
    }

    #[test]
    fn limits_are_the_kernels() {
        let long = vec![b'a'; MAX_STRING];
        let fine = &long[1..];
        assert!(fits(&[fine], &[], b"p", 8 << 20));
        assert!(!fits(&[&long], &[], b"p", 8 << 20));
        // With the default limit of 8 MiB a quarter of it is available, with no limit 6 MiB.
        let many = |n: usize| vec![fine; n];
        assert!(fits(&many(15), &[], b"p", 8 << 20) && !fits(&many(16), &[], b"p", 8 << 20));
        assert!(fits(&many(47), &[], b"p", u64::MAX) && !fits(&many(48), &[], b"p", u64::MAX));
        // However small the stack, 128 KiB are available, pointers included.
        let small: Vec<&[u8]> = vec![b"1234567"; 8191];
        assert!(fits(&small, &[], b"123456789012345", 0) && !fits(&small, &[], b"1234567890123456", 0));
    }
}
