//! The words of an expression.
//!
//! Source: C17, section 6.4, without strings, wide characters and digraphs; `$name` is a register, as in gdb.

use super::error::{ExpressionError, ExpressionErrorKind as Kind};
use crate::text::printable;

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    Integer { value: u64, unsigned: bool, long: bool, decimal: bool },
    Float { value: f64, single: bool },
    Character(u8),
    Name(String),
    Register(String),
    Operator(&'static str),
    End,
}

/// A word and where it begins.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Word {
    pub token: Token,
    pub at: usize,
}

/// Longer ones first, so that the first that matches is the longest.
const OPERATORS: [&str; 42] = [
    "<<=", ">>=", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "%=", "&=",
    "|=", "^=", "(", ")", "[", "]", ".", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", "?", ":", "=",
    ",",
];

pub(super) fn words(text: &str) -> Result<Vec<Word>, ExpressionError> {
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let (token, length) = word(&text[at..]).map_err(|kind| kind.at(at))?;
        words.push(Word { token, at });
        at += length;
    }
    words.push(Word { token: Token::End, at });
    Ok(words)
}

fn word(text: &str) -> Result<(Token, usize), Kind> {
    let name_length = |s: &str| s.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    let bytes = text.as_bytes();
    match bytes[0] {
        b'0'..=b'9' => number(text),
        b'.' if bytes.get(1).is_some_and(u8::is_ascii_digit) => number(text),
        b'\'' => character(bytes),
        b'"' => Err(Kind::Unsupported("strings")),
        b'$' => {
            let length = name_length(&text[1..]);
            Ok((Token::Register(text[1..=length].to_string()), length + 1))
        }
        b if b.is_ascii_alphabetic() || b == b'_' => {
            let length = name_length(text);
            Ok((Token::Name(text[..length].to_string()), length))
        }
        _ => match OPERATORS.iter().find(|o| text.starts_with(**o)) {
            Some(operator) => Ok((Token::Operator(operator), operator.len())),
            None => {
                let found = text.chars().take(1).collect::<String>();
                Err(Kind::Syntax { found: printable(&found), expected: "an expression of C" })
            }
        },
    }
}

fn number(text: &str) -> Result<(Token, usize), Kind> {
    let hexadecimal = text.starts_with("0x") || text.starts_with("0X");
    let mut end = 0;
    for (i, c) in text.char_indices() {
        let after_exponent = !hexadecimal && text[..i].ends_with(['e', 'E']) && matches!(c, '+' | '-');
        if !(c.is_ascii_alphanumeric() || c == '.' || after_exponent) {
            break;
        }
        end = i + c.len_utf8();
    }
    let all = &text[..end];
    let wrong = || Kind::Syntax { found: printable(all), expected: "a number" };
    let is_float = !hexadecimal && all.contains(['.', 'e', 'E']);
    if is_float {
        let digits = all.trim_end_matches(['f', 'F', 'l', 'L']);
        let value: f64 = digits.parse().map_err(|_| wrong())?;
        let suffix = &all[digits.len()..];
        if suffix.len() > 1 {
            return Err(wrong());
        }
        let single = suffix.eq_ignore_ascii_case("f");
        let value = if single { f64::from(value as f32) } else { value };
        return Ok((Token::Float { value, single }, end));
    }
    let digits = all.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = all[digits.len()..].to_ascii_lowercase();
    if !matches!(suffix.as_str(), "" | "u" | "l" | "ul" | "lu" | "ll" | "ull" | "llu") {
        return Err(wrong());
    }
    let octal = digits.len() > 1 && digits.starts_with('0');
    let value = match () {
        _ if hexadecimal => u64::from_str_radix(&digits[2..], 16),
        _ if octal => u64::from_str_radix(digits, 8),
        _ => digits.parse(),
    };
    let value = value.map_err(|_| wrong())?;
    let (unsigned, long) = (suffix.contains('u'), suffix.contains('l'));
    Ok((Token::Integer { value, unsigned, long, decimal: !hexadecimal && !octal }, end))
}

fn character(bytes: &[u8]) -> Result<(Token, usize), Kind> {
    let wrong = || Kind::Syntax { found: "'".to_string(), expected: "one character between quotes" };
    let (value, length) = match bytes.get(1..).ok_or_else(wrong)? {
        [b'\\', escaped, rest @ ..] => escape(*escaped, rest).ok_or_else(wrong)?,
        [plain, ..] if plain.is_ascii() && !matches!(plain, b'\'' | b'\n') => (*plain, 1),
        _ => return Err(wrong()),
    };
    match bytes.get(1 + length) {
        Some(b'\'') => Ok((Token::Character(value), length + 2)),
        _ => Err(wrong()),
    }
}

/// The character that `\\` and `first` mean, and how many bytes of the text they take.
fn escape(first: u8, rest: &[u8]) -> Option<(u8, usize)> {
    let simple = |c| Some((c, 2));
    match first {
        b'n' => simple(b'\n'),
        b't' => simple(b'\t'),
        b'r' => simple(b'\r'),
        b'a' => simple(7),
        b'b' => simple(8),
        b'f' => simple(12),
        b'v' => simple(11),
        b'e' => simple(27),
        b'\\' | b'\'' | b'"' | b'?' => simple(first),
        b'0'..=b'7' => {
            let more = rest.iter().take(2).take_while(|b| matches!(b, b'0'..=b'7'));
            let digits: Vec<u32> = more.map(|b| u32::from(b - b'0')).collect();
            let value = digits.iter().fold(u32::from(first - b'0'), |n, d| n * 8 + d);
            Some((value as u8, 2 + digits.len()))
        }
        b'x' => {
            let digits: Vec<u32> = rest.iter().take(2).map_while(|b| char::from(*b).to_digit(16)).collect();
            (!digits.is_empty()).then(|| (digits.iter().fold(0, |n, d| n * 16 + d) as u8, 2 + digits.len()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_word(text: &str, expected: Token) {
        assert_eq!(words(text).map(|w| w[0].token.clone()), Ok(expected), "{text}");
    }

    fn integer(value: u64, unsigned: bool, long: bool, decimal: bool) -> Token {
        Token::Integer { value, unsigned, long, decimal }
    }

    #[test]
    fn words_of_every_kind_are_read() {
        check_word("42", integer(42, false, false, true));
        check_word("0x2aUL", integer(42, true, true, false));
        check_word("052", integer(42, false, false, false));
        check_word("1.5e-3", Token::Float { value: 0.0015, single: false });
        check_word(".5f", Token::Float { value: 0.5, single: true });
        check_word("'a'", Token::Character(b'a'));
        check_word("'\\n'", Token::Character(b'\n'));
        check_word("'\\033'", Token::Character(27));
        check_word("'\\x41'", Token::Character(b'A'));
        check_word("'\\''", Token::Character(b'\''));
        check_word("  _name1+", Token::Name("_name1".to_string()));
        check_word("$rip", Token::Register("rip".to_string()));
        check_word(">>=", Token::Operator(">>="));
        check_word("", Token::End);
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        assert_eq!(words(text).map_err(|e| e.to_string()), Err(expected.to_string()), "{text}");
    }

    #[test]
    fn what_is_no_word_is_named_with_its_place() {
        check_error("1 + 5x", "expected a number but found 5x, at column 5");
        check_error("0x", "expected a number but found 0x, at column 1");
        check_error("99999999999999999999", "expected a number but found 99999999999999999999, at column 1");
        check_error("1.2.3", "expected a number but found 1.2.3, at column 1");
        check_error("a == \"x\"", "strings are not supported in expressions, at column 6");
        check_error("'ab'", "expected one character between quotes but found ', at column 1");
        check_error("'", "expected one character between quotes but found ', at column 1");
        check_error("a @ b", "expected an expression of C but found @, at column 3");
        check_error("ä", "expected an expression of C but found ä, at column 1");
        check_error("'ä'", "expected one character between quotes but found ', at column 1");
    }
}
