//! Names as programmers wrote them: C++ (Itanium ABI) and Rust (legacy and v0) symbols made readable.
//!
//! Return types and Rust's hashes are left out, parameter types stay: they tell overloads apart.
//! A name that does not demangle, or whose readable form would be absurdly long, stays as it is.
//!
//! Symbols are chosen by whoever made the file, and both halves of the demangler can take exponential time: the parser
//! by trying alternatives (an optional `gs` before `new` and `delete` doubles the work at each nesting), the printer by
//! following back references. So nesting, those operators and the output are limited; the limits lose one in two
//! thousand of the 245 000 C++ names of LLVM, GCC and libstdc++ beyond what the demangler itself does not know.

use std::fmt::{self, Write};

/// Longer symbols are shown as they are.
const MAX_MANGLED: usize = 4 << 10;
/// How deeply the parser may recurse; it needs several steps for each level of templates.
const MAX_NESTING: u32 = 80;
/// How many of the operators that double the work a symbol may have. The letters are counted in identifiers too: real
/// symbols stay below even so, and telling identifiers apart would mean to parse.
const MAX_DOUBLINGS: usize = 12;
/// Longer readable forms are given up.
const MAX_READABLE: usize = 64 << 10;

/// The readable form of a symbol, or the symbol itself.
pub fn demangle(name: &str) -> String {
    with_options(name, cpp_demangle::DemangleOptions::new().no_return_type())
}

/// The readable form without parameters: what people type to name a function.
pub(crate) fn demangle_short(name: &str) -> String {
    with_options(name, cpp_demangle::DemangleOptions::new().no_return_type().no_params())
}

/// Can the readable form differ from the symbol?
pub(crate) fn is_mangled(name: &str) -> bool {
    name.starts_with("_Z") || name.starts_with("_R") || name.starts_with("__Z")
}

fn with_options(name: &str, options: cpp_demangle::DemangleOptions) -> String {
    if is_mangled(name) && name.len() <= MAX_MANGLED {
        let readable = rust(name).or_else(|| cpp(name, &options));
        return readable.unwrap_or_else(|| name.to_string());
    }
    name.to_string()
}

fn rust(name: &str) -> Option<String> {
    let parsed = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Limited(String::new());
    write!(out, "{parsed:#}").ok()?;
    Some(out.0)
}

fn cpp(name: &str, options: &cpp_demangle::DemangleOptions) -> Option<String> {
    let doubles = |pair: &&[u8]| matches!(*pair, b"nw" | b"na" | b"dl" | b"da");
    if name.as_bytes().windows(2).filter(doubles).count() > MAX_DOUBLINGS {
        return None;
    }
    let limits = cpp_demangle::ParseOptions::default().recursion_limit(MAX_NESTING);
    let parsed = cpp_demangle::BorrowedSymbol::new_with_options(name.as_bytes(), &limits).ok()?;
    let mut out = Limited(String::new());
    parsed.structured_demangle(&mut out, options).ok()?;
    Some(out.0)
}

/// Fails instead of growing beyond the limit.
struct Limited(String);

impl Write for Limited {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.0.len() + s.len() > MAX_READABLE {
            return Err(fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_demangled(mangled: &str, expected: &str, short: &str) {
        assert_eq!(demangle(mangled), expected);
        assert_eq!(demangle_short(mangled), short);
    }

    #[test]
    fn symbols_of_each_language_become_readable() {
        check_demangled("main", "main", "main");
        check_demangled("_ZN5space3fooEibc", "space::foo(int, bool, char)", "space::foo");
        check_demangled("_Z3fooIiET_S0_", "foo<int>(int)", "foo<int>");
        check_demangled(
            "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
            "core::fmt::Write::write_fmt",
            "core::fmt::Write::write_fmt",
        );
        check_demangled("_RNvCs1234_7mycrate3foo", "mycrate::foo", "mycrate::foo");
        check_demangled("_Znot a symbol", "_Znot a symbol", "_Znot a symbol");
        check_demangled("", "", "");
    }

    #[test]
    fn a_name_that_doubles_at_every_step_is_not_expanded() {
        // Each pair<S, S> refers twice to the type before it.
        let mut name = String::from("_Z1fSt4pairIiiE");
        for i in 0..60 {
            let s = |n: usize| match n {
                0 => "S_".to_string(),
                n => format!("S{}_", std::char::from_digit(n as u32 - 1, 36).unwrap().to_ascii_uppercase()),
            };
            name.push_str(&format!("St4pairI{0}{0}E", s(i.min(35))));
        }
        assert!(demangle(&name).len() <= MAX_READABLE);
    }
    #[test]
    fn a_name_that_doubles_the_parsers_work_is_not_parsed() {
        let before = std::time::Instant::now();
        for (start, step) in
            [("_Z1fIX", "nw1a"), ("_Z1fDT", "dlix"), ("_Z1fI", "StI"), ("_Z1fI", "C1I"), ("_Z1fI", "LDT")]
        {
            for n in [8, 12, 16, 20, 24, 40, 100] {
                let name = format!("{start}{}", step.repeat(n));
                assert_eq!(demangle(&name), name);
            }
        }
        // Unlimited, the first of them alone takes hours.
        assert!(before.elapsed().as_secs() < 20);
    }
}
