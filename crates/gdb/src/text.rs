//! The small notations of the protocol: hexadecimal text, escaped bytes, names of threads.

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `None` if it is not an even number of hexadecimal digits.
pub fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|d| d as u8);
    text.len().is_multiple_of(2).then_some(())?;
    text.chunks(2).map(|pair| Some(digit(&pair[0])? << 4 | digit(&pair[1])?)).collect()
}

/// Binary data for a packet: bytes with a meaning of their own are escaped.
pub fn escape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'#' | b'$' | b'}' | b'*' => out.extend([b'}', byte ^ 0x20]),
            _ => out.push(*byte),
        }
    }
    out
}

/// `a,b` in hexadecimal digits.
pub fn numbers(text: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = std::str::from_utf8(text).ok()?.split_once(',')?;
    Some((u64::from_str_radix(first, 16).ok()?, u64::from_str_radix(second, 16).ok()?))
}

/// The thread that an identifier names; `None` for "any" and "all".
pub fn thread_of(id: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(id).ok()?;
    let thread = match text.strip_prefix('p') {
        Some(both) => both.split_once('.')?.1,
        None => text,
    };
    u32::from_str_radix(thread, 16).ok().filter(|n| *n != 0)
}

/// Text inside an attribute. Control characters are not allowed there at all.
pub fn in_xml(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&apos;",
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_text_is_read_or_refused() {
        assert_eq!(from_hex(b"00fF"), Some(vec![0, 255]));
        assert_eq!(from_hex(b"0"), None);
        assert_eq!(from_hex(b"zz"), None);
        assert_eq!(to_hex(&[0, 255]), "00ff");
        assert_eq!(escape(b"a#$}*"), b"a}\x03}\x04}]}\x0a");
    }

    #[test]
    fn identifiers_name_a_thread_or_leave_the_choice() {
        for (id, thread) in [("1092", Some(0x1092)), ("p1.1092", Some(0x1092)), ("0", None), ("-1", None)] {
            assert_eq!(thread_of(id.as_bytes()), thread, "{id}");
        }
        for id in ["p1.-1", "p1", "", "xyz", "fffffffff"] {
            assert_eq!(thread_of(id.as_bytes()), None, "{id}");
        }
    }
}
