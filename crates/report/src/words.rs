//! Words that several forms share: sentences, counts, and foreign text made harmless to look at.

use std::borrow::Cow;

/// `text` as a sentence: a capital at the start, a full stop at the end.
pub fn sentence(text: &str) -> String {
    let text = text.trim();
    let mut chars = text.chars();
    let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    let stop = if text.is_empty() || text.ends_with(['.', '!', '?', '…']) { "" } else { "." };
    format!("{first}{}{stop}", chars.as_str())
}

/// `1 trial`, `2 trials`.
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Foreign text with nothing in it that acts: see [`acts`].
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().map(|c| if acts(c) { format!("\\u{{{:x}}}", c as u32) } else { c.to_string() }).collect())
}

/// Does it do something instead of being seen? Control characters steer terminals, and marks of direction can make a
/// line of source look like another one.
pub fn acts(c: char) -> bool {
    let directs = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks = matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    c.is_control() && c != '\t' || directs || breaks
}

/// A command line that a shell reads as these words.
pub fn command_line(words: &[String]) -> String {
    let quoted: Vec<Cow<'_, str>> = words.iter().map(|w| quote(w)).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clauses_become_sentences() {
        for (clause, expected) in [
            ("it dies of SIGSEGV", "It dies of SIGSEGV."),
            ("is it so?", "Is it so?"),
            ("  ärger ", "Ärger."),
            ("Done.", "Done."),
            ("", ""),
        ] {
            assert_eq!(sentence(clause), expected);
        }
    }

    #[test]
    fn text_that_acts_is_written_out() {
        for (text, expected) in [
            ("plain\tü", "plain\tü"),
            ("\x1b[2Jgone", "\\u{1b}[2Jgone"),
            ("a\r\n", "a\\u{d}\\u{a}"),
            ("/*\u{202e} }if\u{2066}", "/*\\u{202e} }if\\u{2066}"),
            ("\0\u{9b}31m", "\\u{0}\\u{9b}31m"),
        ] {
            assert_eq!(visible(text), expected);
        }
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (words, expected) in [
            (&["./lua", "-e", "print(1)"][..], "./lua -e 'print(1)'"),
            (&["a", "", "it's"], r"a '' 'it'\''s'"),
            (&["$(rm x)", "a;b"], "'$(rm x)' 'a;b'"),
        ] {
            let words: Vec<String> = words.iter().map(|w| (*w).to_owned()).collect();
            assert_eq!(command_line(&words), expected);
        }
    }
}
