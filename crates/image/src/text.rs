//! Text from files, made fit to print.
//!
//! Names in a program file are bytes chosen by whoever made it: control characters would reach the user's terminal, and
//! a C++ name can fill pages.

/// Names longer than this are cut in messages.
const MAX_NAME: usize = 200;

/// `name` with control characters escaped and cut to a readable length.
pub(crate) fn printable(name: &str) -> String {
    let mut out = String::new();
    for (n, c) in name.chars().enumerate() {
        if n == MAX_NAME {
            out.push('…');
            break;
        }
        // Bidirectional controls reorder what follows them, which is as bad as an escape sequence.
        let reorders = matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}');
        if c.is_control() || reorders { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// A path in full: people copy paths out of messages, so they are never cut.
pub(crate) fn printable_path(path: &std::path::Path) -> String {
    path.to_string_lossy()
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_cannot_drive_the_terminal() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(printable("größe"), "größe");
        assert_eq!(printable(&"x".repeat(5000)).chars().count(), MAX_NAME + 1);
        assert_eq!(printable_path(std::path::Path::new("/a b/\x07c")), "/a b/\\u{7}c");
    }
}
