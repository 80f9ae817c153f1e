//! Arithmetic as C defines it: promotions, usual conversions, wrapping, division towards zero.
//!
//! Results wrap where C leaves them undefined, as machines do. A shift by the width of its operand or more gives what
//! shifting step by step would give, as in gdb. Source: C17, sections 6.3.1 and 6.5.

use super::error::ExpressionErrorKind as Kind;
use crate::variables::{Class, Number, Type};
use std::rc::Rc;

/// A type that arithmetic is done in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arithmetic {
    Integer { bits: u32, signed: bool },
    Single,
    Double,
}

pub(super) const INT: Arithmetic = Arithmetic::Integer { bits: 32, signed: true };
pub(super) const UNSIGNED: Arithmetic = Arithmetic::Integer { bits: 32, signed: false };
pub(super) const LONG: Arithmetic = Arithmetic::Integer { bits: 64, signed: true };
pub(super) const UNSIGNED_LONG: Arithmetic = Arithmetic::Integer { bits: 64, signed: false };

impl Arithmetic {
    /// What a number of type `class` becomes before anything is done with it. `bits` is the width of a bit field.
    pub fn promoted(class: Class, bits: Option<u64>) -> Arithmetic {
        let (size, signed) = match class {
            Class::Float { size: 4 } => return Arithmetic::Single,
            Class::Float { .. } => return Arithmetic::Double,
            Class::Pointer => (8, false),
            class => (class.size(), class.is_signed()),
        };
        let width = bits.unwrap_or(size.saturating_mul(8));
        match (width, signed) {
            (0..=31, _) | (32, true) => INT,
            (32, false) => UNSIGNED,
            (33..=64, signed) => Arithmetic::Integer { bits: 64, signed },
            (_, signed) => Arithmetic::Integer { bits: 128, signed },
        }
    }

    /// The type that both operands are converted to.
    pub fn common(self, other: Arithmetic) -> Arithmetic {
        use Arithmetic::{Double, Integer, Single};
        match (self, other) {
            (Double, _) | (_, Double) => Double,
            (Single, _) | (_, Single) => Single,
            (Integer { bits: a, signed: sa }, Integer { bits: b, signed: sb }) => match a.cmp(&b) {
                std::cmp::Ordering::Greater => self,
                std::cmp::Ordering::Less => other,
                std::cmp::Ordering::Equal => Integer { bits: a, signed: sa && sb },
            },
        }
    }

    /// `number` as a value of this type.
    pub fn convert(self, number: Number) -> Number {
        match (self, number) {
            (Arithmetic::Integer { bits, signed }, Number::Integer(n)) => Number::Integer(wrap(n, bits, signed)),
            (Arithmetic::Integer { bits, signed }, Number::Float(n)) => Number::Integer(wrap(n as i128, bits, signed)),
            (Arithmetic::Single, number) => Number::Float(f64::from(float(number) as f32)),
            (Arithmetic::Double, number) => Number::Float(float(number)),
        }
    }

    /// The type of C with these values.
    pub fn as_type(self) -> Rc<Type> {
        let (name, size, encoding) = match self {
            Arithmetic::Integer { bits: 0..=32, signed: true } => ("int", 4, gimli::DW_ATE_signed),
            Arithmetic::Integer { bits: 0..=32, signed: false } => ("unsigned int", 4, gimli::DW_ATE_unsigned),
            Arithmetic::Integer { bits: 33..=64, signed: true } => ("long", 8, gimli::DW_ATE_signed),
            Arithmetic::Integer { bits: 33..=64, signed: false } => ("unsigned long", 8, gimli::DW_ATE_unsigned),
            Arithmetic::Integer { signed: true, .. } => ("__int128", 16, gimli::DW_ATE_signed),
            Arithmetic::Integer { signed: false, .. } => ("unsigned __int128", 16, gimli::DW_ATE_unsigned),
            Arithmetic::Single => ("float", 4, gimli::DW_ATE_float),
            Arithmetic::Double => ("double", 8, gimli::DW_ATE_float),
        };
        Rc::new(Type::Base { name: name.to_string(), size, encoding })
    }
}

pub(super) fn float(number: Number) -> f64 {
    match number {
        Number::Integer(n) => n as f64,
        Number::Float(n) => n,
    }
}

pub(super) fn is_true(number: Number) -> bool {
    match number {
        Number::Integer(n) => n != 0,
        Number::Float(n) => n != 0.0,
    }
}

/// The value that `bits` bits of `n` stand for.
pub(super) fn wrap(n: i128, bits: u32, signed: bool) -> i128 {
    let unused = 128 - bits.clamp(1, 128);
    if signed { (n << unused) >> unused } else { ((n as u128) << unused >> unused) as i128 }
}

/// `a operator b`, where the operator is one of `* / % + - & | ^`, in the type `common`.
pub(super) fn compute(operator: &str, a: Number, b: Number, common: Arithmetic) -> Result<Number, Kind> {
    let result = match (common.convert(a), common.convert(b)) {
        (Number::Integer(a), Number::Integer(b)) => Number::Integer(integers(operator, a, b, common)?),
        (a, b) => {
            let (a, b) = (float(a), float(b));
            Number::Float(match operator {
                "*" => a * b,
                "/" => a / b,
                "+" => a + b,
                "-" => a - b,
                _ => return Err(Kind::Unfit { found: "double".to_string(), needed: "whole numbers" }),
            })
        }
    };
    Ok(common.convert(result))
}

fn integers(operator: &str, a: i128, b: i128, common: Arithmetic) -> Result<i128, Kind> {
    if b == 0 && matches!(operator, "/" | "%") {
        return Err(Kind::DivisionByZero);
    }
    // Unsigned numbers of 128 bits are held as signed ones.
    let unsigned = matches!(common, Arithmetic::Integer { bits: 128, signed: false });
    Ok(match operator {
        "*" => a.wrapping_mul(b),
        "/" if unsigned => (a as u128 / b as u128) as i128,
        "/" => a.wrapping_div(b),
        "%" if unsigned => (a as u128 % b as u128) as i128,
        "%" => a.wrapping_rem(b),
        "+" => a.wrapping_add(b),
        "-" => a.wrapping_sub(b),
        "&" => a & b,
        "|" => a | b,
        _ => a ^ b,
    })
}

/// `a << b` or `a >> b`, in the type of `a`.
pub(super) fn shift(left: bool, a: i128, b: i128, of: Arithmetic) -> Result<Number, Kind> {
    let Arithmetic::Integer { bits, signed } = of else {
        return Err(Kind::Unfit { found: "double".to_string(), needed: "whole numbers" });
    };
    if b < 0 {
        return Err(Kind::Unfit { found: "a negative number".to_string(), needed: "a count that is not negative" });
    }
    let count = u32::try_from(b).unwrap_or(u32::MAX);
    let result = match (left, count >= bits) {
        (true, true) => 0,
        (true, false) => a << count,
        (false, true) => {
            if a < 0 && signed {
                -1
            } else {
                0
            }
        }
        (false, false) if signed => a >> count,
        (false, false) => ((a as u128) >> count) as i128,
    };
    Ok(Number::Integer(wrap(result, bits, signed)))
}

/// `a operator b`, where the operator compares.
pub(super) fn compare(operator: &str, a: Number, b: Number, common: Arithmetic) -> bool {
    let ordering = match (common.convert(a), common.convert(b)) {
        (Number::Integer(a), Number::Integer(b)) => match common {
            Arithmetic::Integer { bits: 128, signed: false } => Some((a as u128).cmp(&(b as u128))),
            _ => Some(a.cmp(&b)),
        },
        (a, b) => float(a).partial_cmp(&float(b)),
    };
    // A number that is none is unequal to everything.
    match operator {
        "==" => ordering.is_some_and(|o| o.is_eq()),
        "!=" => ordering.is_none_or(|o| o.is_ne()),
        "<" => ordering.is_some_and(|o| o.is_lt()),
        ">" => ordering.is_some_and(|o| o.is_gt()),
        "<=" => ordering.is_some_and(|o| o.is_le()),
        _ => ordering.is_some_and(|o| o.is_ge()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_compute(operator: &str, a: i128, b: i128, of: Arithmetic, expected: Result<i128, Kind>) {
        assert_eq!(compute(operator, Number::Integer(a), Number::Integer(b), of), expected.map(Number::Integer));
    }

    #[test]
    fn integers_wrap_and_divide_as_in_c() {
        check_compute("+", i128::from(i32::MAX), 1, INT, Ok(i128::from(i32::MIN)));
        check_compute("-", 0, 1, UNSIGNED, Ok(0xffff_ffff));
        check_compute("*", 1 << 40, 1 << 40, UNSIGNED_LONG, Ok(0));
        check_compute("/", -7, 2, INT, Ok(-3));
        check_compute("%", -7, 2, INT, Ok(-1));
        check_compute("/", i128::from(i64::MIN), -1, LONG, Ok(i128::from(i64::MIN)));
        check_compute("/", 1, 0, INT, Err(Kind::DivisionByZero));
        check_compute("%", 1, 0, INT, Err(Kind::DivisionByZero));
        check_compute("/", -1, 2, UNSIGNED, Ok(0x7fff_ffff));
        check_compute("^", 6, 3, INT, Ok(5));
    }

    #[track_caller]
    fn check_shift(left: bool, a: i128, b: i128, of: Arithmetic, expected: i128) {
        assert_eq!(shift(left, a, b, of), Ok(Number::Integer(expected)));
    }

    #[test]
    fn shifts_keep_the_type_of_what_is_shifted() {
        check_shift(true, 1, 31, INT, i128::from(i32::MIN));
        check_shift(true, 1, 40, INT, 0);
        check_shift(false, -8, 1, INT, -4);
        check_shift(false, -8, 99, INT, -1);
        check_shift(false, 0xffff_fff8, 1, UNSIGNED, 0x7fff_fffc);
        assert!(shift(true, 1, -1, INT).is_err());
    }

    #[test]
    fn the_common_type_is_the_wider_and_unsigned_wins() {
        let integer = |size, signed| Class::Integer { size, signed };
        for (a, b, expected) in [
            (integer(4, true), integer(4, false), UNSIGNED),
            (integer(4, false), integer(8, true), LONG),
            (integer(2, false), integer(1, true), INT),
            (integer(8, false), integer(8, true), UNSIGNED_LONG),
            (Class::Float { size: 4 }, integer(8, true), Arithmetic::Single),
            (Class::Float { size: 4 }, Class::Float { size: 8 }, Arithmetic::Double),
        ] {
            let common = Arithmetic::promoted(a, None).common(Arithmetic::promoted(b, None));
            assert_eq!(common, expected, "{a:?} and {b:?}");
        }
        assert_eq!(Arithmetic::promoted(integer(4, false), Some(5)), INT, "a narrow bit field becomes int");
    }

    #[test]
    fn comparisons_convert_first() {
        let n = Number::Integer;
        assert!(!compare("<", n(-1), n(1), UNSIGNED));
        assert!(compare("<", n(-1), n(1), INT));
        assert!(compare("!=", Number::Float(f64::NAN), Number::Float(f64::NAN), Arithmetic::Double));
        assert!(!compare("<=", Number::Float(f64::NAN), n(1), Arithmetic::Double));
    }
}
