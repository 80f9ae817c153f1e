//! Single numbers: read from a value's bytes by its type, and written as gdb writes them.
//!
//! Integers are held in 128 bits, so that no type of C overflows; floating point in 64, which loses digits of
//! `long double` only.

use super::dies::Program;
use super::location::Value;
use super::types::Type;
use crate::evaluate::Missing;
use gimli::DwAte;
use std::rc::Rc;

/// A number as C has it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Number {
    Integer(i128),
    Float(f64),
}

/// What kind of number a type holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Integer {
        size: u64,
        signed: bool,
    },
    /// Shown with the character beside the number.
    Character {
        size: u64,
        signed: bool,
    },
    Boolean {
        size: u64,
    },
    Float {
        size: u64,
    },
    Pointer,
    Enumeration {
        size: u64,
        signed: bool,
    },
}

impl Program<'_> {
    /// `None` for what is no single number.
    pub fn class(&self, ty: &Rc<Type>) -> Option<Class> {
        match &*self.strip(ty) {
            // Old versions of DWARF have no code for these.
            Type::Base { name, size, .. } if name == "char16_t" || name == "char32_t" => {
                base_class(*size, gimli::DW_ATE_UTF)
            }
            Type::Base { size, encoding, .. } => base_class(*size, *encoding),
            Type::Pointer { .. } => Some(Class::Pointer),
            Type::Enumeration { size, enumerators, .. } => {
                let signed = enumerators.iter().any(|(_, n)| *n < 0);
                Some(Class::Enumeration { size: *size, signed })
            }
            _ => None,
        }
    }

    /// The number that `value` is.
    pub fn number(&self, value: &Value) -> Result<Number, Missing> {
        let class = self.class(&value.ty).ok_or(Missing::Unsupported("the type is not a number"))?;
        if let Some((first, count)) = value.bits {
            return self.bit_field(value, first, count, class.is_signed());
        }
        let bytes = value.bytes(self.process, class.size())?;
        Ok(match class {
            Class::Float { size } => Number::Float(float(&bytes, size).ok_or(Missing::Damaged)?),
            _ => Number::Integer(integer(&bytes, class.is_signed())),
        })
    }

    fn bit_field(&self, value: &Value, first: u64, count: u64, signed: bool) -> Result<Number, Missing> {
        if !(1..=64).contains(&count) || first >= 8 {
            return Err(Missing::Damaged);
        }
        let bytes = value.bytes(self.process, (first + count).div_ceil(8))?;
        let all = integer(&bytes, false) as u128;
        let bits = (all >> first) as u64 & (u64::MAX >> (64 - count));
        let negative = signed && bits >> (count - 1) & 1 == 1;
        Ok(Number::Integer(if negative { i128::from(bits) - (1i128 << count) } else { i128::from(bits) }))
    }
}

impl Class {
    pub fn size(self) -> u64 {
        match self {
            Class::Integer { size, .. }
            | Class::Character { size, .. }
            | Class::Boolean { size }
            | Class::Float { size }
            | Class::Enumeration { size, .. } => size,
            Class::Pointer => 8,
        }
    }

    pub fn is_signed(self) -> bool {
        matches!(
            self,
            Class::Integer { signed: true, .. }
                | Class::Character { signed: true, .. }
                | Class::Enumeration { signed: true, .. }
        )
    }
}

fn base_class(size: u64, encoding: DwAte) -> Option<Class> {
    let is_integer = (1..=16).contains(&size);
    match encoding {
        gimli::DW_ATE_float => matches!(size, 4 | 8 | 16).then_some(Class::Float { size }),
        _ if !is_integer => None,
        gimli::DW_ATE_boolean => Some(Class::Boolean { size }),
        gimli::DW_ATE_signed => Some(Class::Integer { size, signed: true }),
        gimli::DW_ATE_unsigned | gimli::DW_ATE_address => Some(Class::Integer { size, signed: false }),
        gimli::DW_ATE_signed_char => Some(Class::Character { size, signed: true }),
        gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF => Some(Class::Character { size, signed: false }),
        _ => None,
    }
}

/// Little-endian bytes, 16 at most, as a number.
pub(crate) fn integer(bytes: &[u8], signed: bool) -> i128 {
    let negative = signed && bytes.last().is_some_and(|b| *b >= 0x80);
    let mut wide = [if negative { 0xff } else { 0 }; 16];
    wide.iter_mut().zip(bytes).for_each(|(w, b)| *w = *b);
    i128::from_le_bytes(wide)
}

fn float(bytes: &[u8], size: u64) -> Option<f64> {
    match size {
        4 => Some(f64::from(f32::from_le_bytes(*bytes.first_chunk()?))),
        8 => Some(f64::from_le_bytes(*bytes.first_chunk()?)),
        16 => Some(extended(*bytes.first_chunk()?)),
        _ => None,
    }
}

/// The x87's format: 64 bits of significand, 15 of exponent, and the sign.
fn extended(bytes: [u8; 10]) -> f64 {
    let (significand, rest) = bytes.split_at(8);
    let significand = integer(significand, false) as f64;
    let rest = integer(rest, false);
    let sign = if rest & 0x8000 != 0 { -1.0 } else { 1.0 };
    match (rest & 0x7fff) as i32 {
        0x7fff if significand == (1u64 << 63) as f64 => sign * f64::INFINITY,
        0x7fff => f64::NAN,
        exponent => {
            // In two steps: one power would leave the range for numbers that are in it.
            let power = exponent - 16383 - 63;
            sign * significand * 2f64.powi(power / 2) * 2f64.powi(power - power / 2)
        }
    }
}

/// A floating-point number of a type of `size` bytes, with the digits that tell it from its neighbours.
pub(crate) fn float_text(n: f64, size: u64) -> String {
    if n.is_nan() {
        let sign = if n.is_sign_negative() { "-" } else { "" };
        let payload = n.to_bits() & ((1 << 52) - 1);
        return format!("{sign}nan({:#x})", if size == 4 { payload >> 29 } else { payload });
    }
    if n.is_infinite() {
        return if n < 0.0 { "-inf" } else { "inf" }.to_string();
    }
    general(n, if size == 4 { 9 } else { 17 })
}

/// `%.{digits}g` of C.
fn general(n: f64, digits: usize) -> String {
    let scientific = format!("{n:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => s.to_string(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    trim(&format!("{n:.*}", (digits as i32 - 1 - exponent).max(0) as usize))
}

/// A character inside of quotes.
pub(crate) fn escape(out: &mut String, c: u32, quote: char) {
    match c {
        0x07 => out.push_str("\\a"),
        0x08 => out.push_str("\\b"),
        0x09 => out.push_str("\\t"),
        0x0a => out.push_str("\\n"),
        0x0b => out.push_str("\\v"),
        0x0c => out.push_str("\\f"),
        0x0d => out.push_str("\\r"),
        0x5c => out.push_str("\\\\"),
        c if c == quote as u32 => {
            out.push('\\');
            out.push(quote);
        }
        0x20..=0x7e => out.push(c as u8 as char),
        c => out.push_str(&format!("\\{c:03o}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_float(n: f64, size: u64, expected: &str) {
        assert_eq!(float_text(n, size), expected);
    }

    #[test]
    fn floating_point_has_the_digits_of_gdb() {
        check_float(1.5, 8, "1.5");
        check_float(0.1, 8, "0.10000000000000001");
        check_float(f64::from(0.1f32), 4, "0.100000001");
        check_float(1e10, 8, "10000000000");
        check_float(1e300, 8, "1.0000000000000001e+300");
        check_float(-2.5e-7, 8, "-2.4999999999999999e-07");
        check_float(0.0, 8, "0");
        check_float(-0.0, 8, "-0");
        check_float(100.0, 4, "100");
        check_float(f64::INFINITY, 8, "inf");
        check_float(f64::NEG_INFINITY, 4, "-inf");
        check_float(f64::from_bits(0x7ff8_0000_0000_0000), 8, "nan(0x8000000000000)");
    }

    #[track_caller]
    fn check_integer(bytes: &[u8], signed: bool, expected: i128) {
        assert_eq!(integer(bytes, signed), expected, "{bytes:x?}");
    }

    #[test]
    fn integers_have_the_sign_of_their_type() {
        check_integer(&[0xff], true, -1);
        check_integer(&[0xff], false, 255);
        check_integer(&[0, 0, 0, 0x80], true, i128::from(i32::MIN));
        check_integer(&[0xff; 8], false, i128::from(u64::MAX));
        check_integer(&[], true, 0);
    }

    #[test]
    fn the_extended_format_is_understood() {
        let one = [0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f];
        assert_eq!(extended(one), 1.0);
        let minus_two_and_a_half = [0, 0, 0, 0, 0, 0, 0, 0xa0, 0x00, 0xc0];
        assert_eq!(extended(minus_two_and_a_half), -2.5);
    }

    #[test]
    fn characters_are_escaped_as_in_c() {
        let mut out = String::new();
        "a\n\0\u{1b}\"'\\".chars().for_each(|c| escape(&mut out, c as u32, '"'));
        assert_eq!(out, "a\\n\\000\\033\\\"'\\\\");
    }
}
