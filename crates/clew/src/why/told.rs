//! What the difference between right and wrong output says about values: a number that should be another one.
//!
//! Where the program printed 2 and should have printed 1, a 2 that the output depends on, and that repairs the run if it
//! is a 1, is where the wrong number was already there; the earliest such place is where it came from.
//!
//! May miss: numbers in other bases than ten, and those that are scaled or rounded on their way to the output.

/// A number that was printed, and the one that should have been.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    found: Number,
    expected: Number,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Number {
    /// Nothing if it has decimals, or is too large.
    integer: Option<i128>,
    double: f64,
}

impl Told {
    /// The numbers around the first byte that differs.
    pub fn of(found: &[u8], expected: &[u8], offset: usize) -> Option<Told> {
        let before = found.get(..offset)?.iter().rev();
        let digits = before.clone().take_while(|b| b.is_ascii_digit() || **b == b'.').count();
        let sign = usize::from(before.clone().nth(digits) == Some(&b'-'));
        let from = offset - digits - sign;
        let (found, expected) = (number(&found[from..])?, number(expected.get(from..)?)?);
        (found != expected).then_some(Told { found, expected })
    }

    /// What is to be stored instead of these bytes, if they hold the number that was printed.
    pub fn instead_of(&self, was: u64, len: u64) -> Option<u64> {
        let (found, expected) = (&self.found, &self.expected);
        if let (Some(f), Some(e)) = (found.integer, expected.integer)
            && fits(f, len)
            && fits(e, len)
            && f as u64 & mask(len) == was
        {
            return Some(e as u64 & mask(len));
        }
        match len {
            8 if f64::from_bits(was) == found.double && was != 0 => Some(expected.double.to_bits()),
            4 if f64::from(f32::from_bits(was as u32)) == found.double && was != 0 => {
                Some(u64::from((expected.double as f32).to_bits()))
            }
            _ => None,
        }
    }

    /// The right number, what was printed instead, and how many bytes of the right one say that: it was cut to those.
    pub fn cut(&self) -> Option<(i128, u64, u64)> {
        let (found, expected) = (self.found.integer?, self.expected.integer?);
        let is_cut = |len: &u64| {
            let low = |n: i128| n as u64 & mask(*len);
            !fits(expected, *len) && fits(found, *len) && low(found) == low(expected)
        };
        let kept = [4, 2, 1].into_iter().find(is_cut).filter(|_| fits(expected, 8))?;
        Some((expected, found as u64, kept))
    }
}

/// All bits of so many bytes.
pub fn mask(len: u64) -> u64 {
    u64::MAX >> (64 - 8 * len.clamp(1, 8))
}

/// Can so many bytes hold it, with or without a sign?
pub fn fits(n: i128, len: u64) -> bool {
    let bits = 8 * len;
    n >= -(1 << (bits - 1)) && n < 1 << bits
}

/// The decimal number that a text begins with.
fn number(text: &[u8]) -> Option<Number> {
    /// More digits than any number that is stored.
    const LONGEST: usize = 40;
    let sign = usize::from(text.first() == Some(&b'-'));
    let digits = |from: usize| text.get(from..).map_or(0, |t| t.iter().take_while(|b| b.is_ascii_digit()).count());
    let whole = digits(sign);
    if whole == 0 || whole > LONGEST {
        return None;
    }
    let point = sign + whole;
    let decimals = if text.get(point) == Some(&b'.') { digits(point + 1) } else { 0 };
    let end = if decimals > 0 { point + 1 + decimals } else { point };
    let token = std::str::from_utf8(&text[..end]).ok()?;
    Some(Number { integer: token.parse().ok(), double: token.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: &str, expected: &str, stored: u64, len: u64, instead: Option<u64>) {
        let offset = found.bytes().zip(expected.bytes()).take_while(|(a, b)| a == b).count();
        let told = Told::of(found.as_bytes(), expected.as_bytes(), offset);
        assert_eq!(told.and_then(|t| t.instead_of(stored, len)), instead, "{found} {expected}");
    }

    #[test]
    fn numbers_are_those_around_the_first_difference() {
        check("at 120 of", "at 125 of", 120, 4, Some(125));
        check("at 120 of", "at 125 of", 121, 4, None);
        check("at 12", "at 125", 12, 1, Some(125));
        check("x-1", "x9223372036854775807", u64::MAX, 8, Some(i64::MAX as u64));
        check("x-1", "x9223372036854775807", 0xffff_ffff, 4, None);
        check("-5", "-7", 0xfb, 1, Some(0xf9));
    }

    #[test]
    fn numbers_with_decimals_are_found_as_such() {
        check("1.50", "1.25", 1.5f64.to_bits(), 8, Some(1.25f64.to_bits()));
        check("[2]", "[1]", 2f64.to_bits(), 8, Some(1f64.to_bits()));
        check("1.50", "1.25", u64::from(1.5f32.to_bits()), 4, Some(u64::from(1.25f32.to_bits())));
    }

    #[test]
    fn the_low_bytes_of_the_right_number_are_a_number_that_was_cut() {
        let cut = |found: &str, expected: &str| Told::of(found.as_bytes(), expected.as_bytes(), 0)?.cut();
        assert_eq!(cut("-1", "9223372036854775807"), Some((i64::MAX.into(), u64::MAX, 4)));
        assert_eq!(cut("705032704", "5000000000"), Some((5_000_000_000, 705_032_704, 4)));
        assert_eq!(cut("464", "66000"), Some((66_000, 464, 2)));
        assert_eq!(cut("-56", "200"), None, "that is the same byte with a sign");
        assert_eq!(cut("705032705", "5000000000"), None);
        assert_eq!(cut("7", "8"), None);
    }

    #[test]
    fn what_is_no_number_says_nothing() {
        check("NaN", "-1", 0, 8, None);
        check("", "1", 0, 8, None);
        check("a", "b", 0, 8, None);
    }
}
