//! Foreign text as part of a page: nothing in it is markup, and nothing in it acts.

use crate::words::acts;
use std::fmt;

/// Text that is written escaped, for contents and for quoted attributes.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(|c: char| matches!(c, '&' | '<' | '>' | '"' | '\'') || acts(c)) {
            f.write_str(&rest[..at])?;
            let c = rest[at..].chars().next().unwrap_or_default();
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                _ => write!(f, "\\u{{{:x}}}", c as u32)?,
            }
            rest = &rest[at + c.len_utf8()..];
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_markup() {
        for (text, expected) in [
            ("plain ü\t", "plain ü\t"),
            ("<script>a && b</script>", "&lt;script&gt;a &amp;&amp; b&lt;/script&gt;"),
            ("\" onclick='x'", "&quot; onclick=&#39;x&#39;"),
            ("&lt;", "&amp;lt;"),
            ("a\0\u{202e}b", "a\\u{0}\\u{202e}b"),
        ] {
            assert_eq!(Escaped(text).to_string(), expected);
        }
    }
}
