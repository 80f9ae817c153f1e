//! What the system says of a process: its state and its parent, from `/proc/PID/stat`.
//!
//! May miss: a process that ends, or whose number is given to another one, between two looks.

/// State and parent of a process, if it is there.
pub fn process_stat(process: u32) -> Option<(char, u32)> {
    parse(&std::fs::read(format!("/proc/{process}/stat")).ok()?)
}

/// Is a process stopped, as by Ctrl-Z?
pub(crate) fn is_stopped(process: u32) -> bool {
    process_stat(process).is_some_and(|(state, _)| state == 'T')
}

fn parse(stat: &[u8]) -> Option<(char, u32)> {
    // The name before is in parentheses and may contain anything, parentheses too.
    let after = stat.iter().rposition(|&b| b == b')')? + 1;
    let mut fields = std::str::from_utf8(&stat[after..]).ok()?.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_contain_anything() {
        assert_eq!(parse(b"12 (a) R 1 (b)) T 34 12 12 0"), Some(('T', 34)));
        assert_eq!(parse(b"12 (a"), None);
        assert_eq!(parse(b"12 (a)"), None);
    }
}
