//! Numbers as `INCRBYFLOAT` keeps them: those of the x87's 80 bits, in which Redis computes, read and written as it reads and writes them.
//!
//! The arithmetic is software, so that a witness's replay comes to the same digits on every machine (**R4.8**).

use std::fmt::Write;

use rustc_apfloat::ieee::X87DoubleExtended;
use rustc_apfloat::{Float, Round};

/// A finite number, or an infinity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LongDouble(X87DoubleExtended);

/// Digits behind the point that are written, at most.
const DECIMALS: usize = 17;
const SCALE: u128 = 10_u128.pow(DECIMALS as u32);

impl LongDouble {
    pub const ZERO: Self = Self(X87DoubleExtended::ZERO);

    /// Bytes of a number that Redis reads, at most.
    const BYTES_MAX: usize = 5 * 1024 - 1;

    /// A number as C's `strtold` reads it from a whole word. What is too large, or too small, is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > Self::BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let (is_negative, text) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let number = match () {
            () if ["inf", "infinity"].iter().any(|name| text.eq_ignore_ascii_case(name)) => X87DoubleExtended::INFINITY,
            () => finite(text)?,
        };
        Some(Self(if is_negative { -number } else { number }))
    }

    /// The number in bytes that lie in two places.
    pub fn parse_pieces(pieces: [&[u8]; 2]) -> Option<Self> {
        match pieces {
            [bytes, []] => Self::parse(bytes),
            _ if pieces[0].len() + pieces[1].len() > Self::BYTES_MAX => None,
            _ => Self::parse(&pieces.concat()),
        }
    }

    /// The sum. `None`: it is infinite, or no number.
    pub fn plus(self, other: Self) -> Option<Self> {
        let sum = self.0.add_r(other.0, Round::NearestTiesToEven).value;
        sum.is_finite().then_some(Self(sum))
    }

    /// The digits, with up to 17 behind the point; without an exponent.
    ///
    /// # Panics
    /// If it is infinite.
    pub fn digits(self) -> String {
        assert!(self.0.is_finite(), "an infinity has no digits");
        let (significand, exponent) = self.parts();
        let mut text = match u32::try_from(exponent) {
            Ok(exponent) => whole_digits(significand, exponent),
            Err(_) => fraction_digits(significand, exponent.unsigned_abs()),
        };
        if self.0.is_negative() && text != "0" {
            text.insert(0, '-');
        }
        text
    }

    /// What it is without its sign: the first number, times two to the power of the second one.
    fn parts(self) -> (u64, i32) {
        const BIAS: i32 = 16383;
        let bits = self.0.to_bits();
        let exponent = i32::from((bits >> 64) as u16 & 0x7fff).max(1);
        (bits as u64, exponent - BIAS - 63)
    }
}

/// A number without a sign that is written in decimal or hexadecimal digits.
fn finite(text: &str) -> Option<X87DoubleExtended> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, is_digit, mark): (_, fn(&u8) -> bool, _) = match hex {
        Some(digits) => (digits, u8::is_ascii_hexdigit, b'p'),
        None => (text, u8::is_ascii_digit, b'e'),
    };
    let end = digits.bytes().position(|byte| byte.eq_ignore_ascii_case(&mark)).unwrap_or(digits.len());
    let (mantissa, exponent) = (&digits[..end], digits.get(end + 1..));
    let has_digits = mantissa.bytes().any(|byte| is_digit(&byte));
    let points = mantissa.bytes().filter(|&byte| byte == b'.').count();
    let is_sound = mantissa.bytes().all(|byte| byte == b'.' || is_digit(&byte));
    let exponent_is_sound = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    if !has_digits || !is_sound || points > 1 || !exponent_is_sound {
        return None;
    }
    // A hexadecimal number needs an exponent there.
    let read = match (hex, exponent) {
        (Some(_), None) => X87DoubleExtended::from_str_r(&format!("{text}p0"), Round::NearestTiesToEven),
        _ => X87DoubleExtended::from_str_r(text, Round::NearestTiesToEven),
    };
    let number = read.ok()?.value;
    let is_zero = mantissa.bytes().all(|byte| matches!(byte, b'0' | b'.'));
    (number.is_finite() && number.is_zero() == is_zero).then_some(number)
}

/// Such a number that is whole.
fn whole_digits(significand: u64, exponent: u32) -> String {
    const BASE: u64 = 1_000_000_000;
    const BASE_DIGITS: usize = 9;
    const STEP: u32 = 29;
    // In pieces of nine digits, the last ones first.
    let mut pieces = Vec::new();
    let mut rest = significand;
    while rest > 0 {
        pieces.push(rest % BASE);
        rest /= BASE;
    }
    let mut left = exponent;
    while left > 0 {
        let by = left.min(STEP);
        let mut carry = 0;
        for piece in &mut pieces {
            let sum = (*piece << by) + carry;
            (*piece, carry) = (sum % BASE, sum / BASE);
        }
        if carry > 0 {
            pieces.push(carry);
        }
        left -= by;
    }
    let mut text = pieces.pop().unwrap_or(0).to_string();
    for piece in pieces.iter().rev() {
        write!(text, "{piece:0BASE_DIGITS$}").expect("a string takes everything");
    }
    text
}

/// Such a number, divided by two to this power: rounded to what is written, half to even.
fn fraction_digits(significand: u64, power: u32) -> String {
    let scaled = u128::from(significand) * SCALE;
    let rounded = match scaled.checked_shr(power) {
        None => 0,
        Some(whole) => {
            let (rest, half) = (scaled - (whole << power), 1_u128 << (power - 1));
            let is_up = rest > half || rest == half && whole % 2 == 1;
            whole + u128::from(is_up)
        }
    };
    let (whole, fraction) = (rounded / SCALE, rounded % SCALE);
    let text = format!("{whole}.{fraction:0DECIMALS$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        LongDouble::parse(text.as_bytes()).filter(|number| number.0.is_finite()).map(LongDouble::digits)
    }

    fn sum(one: &str, other: &str) -> Option<String> {
        let [one, other] = [one, other].map(|text| LongDouble::parse(text.as_bytes()).expect("a number"));
        one.plus(other).map(LongDouble::digits)
    }

    #[test]
    fn numbers_are_read_and_written_as_redis_does() {
        for (text, expected) in [
            ("0", "0"),
            ("-0", "0"),
            ("+1", "1"),
            ("10.50", "10.5"),
            ("5.0e3", "5000"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1e-17", "0.00000000000000001"),
            ("1.5e-17", "0.00000000000000002"),
            ("5e-18", "0"),
            ("1e-4940", "0"),
            ("1e-18", "0"),
            ("-1e-18", "0"),
            ("0.1", "0.1"),
            ("3.14159265358979323846", "3.14159265358979324"),
            ("0x10", "16"),
            ("0X1.8p-1", "0.75"),
            ("0x.8", "0.5"),
            ("1e20", "100000000000000000000"),
            ("123456789012345678901234567890", "123456789012345678899921813504"),
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551617", "18446744073709551616"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(expected), "{text}");
        }
        let large = shown("1e4932").expect("it is in the range");
        assert!(large.len() == 4933 && large.starts_with("1000000000000000000"), "{large}");
        for bad in [
            "",
            " 1",
            "1 ",
            "x",
            "+",
            "-",
            ".",
            "1e",
            "1e+",
            "0x",
            "0xp1",
            "1.2.3",
            "--1",
            "nan",
            "1e5000",
            "1e-5000",
            "0x1p-16500",
            "1_0",
            "1f",
            "infinit",
            "1\0",
        ] {
            assert!(LongDouble::parse(bad.as_bytes()).is_none(), "{bad:?}");
        }
        assert!(LongDouble::parse(&[b'1'; 5120]).is_none() && LongDouble::parse(&[b'1'; 4000]).is_some());
    }

    #[test]
    fn sums_are_of_80_bits() {
        assert_eq!(sum("0.1", "0.2").as_deref(), Some("0.3"));
        assert_eq!(sum("10.5", "0.1").as_deref(), Some("10.6"));
        assert_eq!(sum("9223372036854775807", "1").as_deref(), Some("9223372036854775808"));
        assert_eq!(sum("18446744073709551616", "1").as_deref(), Some("18446744073709551616"), "half to even");
        assert_eq!(sum("1e4932", "1e4932"), None);
        assert_eq!((sum("inf", "1"), sum("inf", "-inf")), (None, None));
        assert_eq!(sum("1", "-1").as_deref(), Some("0"));
    }
}
