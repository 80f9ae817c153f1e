//! Words that all verbs use about repaired runs.

use diagnose::Oracle;

/// Output up to this is repeated in a sentence.
const SHORT: usize = 40;

/// What a repaired run does: the end of a sentence that begins with what was changed.
pub fn repaired(oracle: &Oracle) -> String {
    let short = oracle.stdout.as_deref().filter(|e| e.len() <= SHORT).and_then(|e| std::str::from_utf8(e).ok());
    match short.map(str::trim_end) {
        Some(text) if !text.is_empty() && !text.contains(char::is_control) => format!("prints {text} as expected"),
        _ if oracle.sees_results() => "does what is expected".into(),
        _ => match oracle.exit {
            Some(status) => format!("exits with {status} as expected"),
            None if oracle.alive => "is still going".into(),
            None => "passes the place where it failed and ends by itself".into(),
        },
    }
}

/// So many changes only avoid the failure: what to say so that they are judged. How a program ends says nothing about what it did.
pub fn avoided(changes: usize) -> String {
    let (avoid, are) = match changes {
        1 => ("1 change only avoids".to_owned(), "it is"),
        n => (format!("{n} changes only avoid"), "they are"),
    };
    format!(
        "{avoid} the failure, which proves nothing: say what the program should write (--expect FILE, --check SCRIPT), and {are} \
         judged"
    )
}

/// `1st`, `2nd`.
pub fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_avoids_is_counted_in_words() {
        let [one, more] = [avoided(1), avoided(2)];
        assert!(one.starts_with("1 change only avoids ") && one.ends_with("and it is judged"), "{one}");
        assert!(more.starts_with("2 changes only avoid ") && more.ends_with("and they are judged"), "{more}");
    }

    #[test]
    fn ordinals_read_well() {
        let all: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111].into_iter().map(ordinal).collect();
        assert_eq!(all, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th"]);
    }
}
