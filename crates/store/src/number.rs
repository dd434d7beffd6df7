//! Numbers as counters keep them: decimal, as Redis reads and writes them.

/// Bytes of a decimal 64-bit number, sign included.
const BYTES_MAX: usize = 20;

/// A number's digits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    buffer: [u8; BYTES_MAX],
    begin: u8,
}

impl Number {
    /// An optional minus, no leading zeros, no spaces.
    pub fn parse(bytes: &[u8]) -> Option<i64> {
        let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
        let canonical = matches!(digits, [b'0'] | [b'1'..=b'9', ..]) && bytes != b"-0";
        if !canonical || bytes.len() > BYTES_MAX {
            return None;
        }
        std::str::from_utf8(bytes).ok()?.parse().ok()
    }

    /// The number in bytes that lie in two places.
    pub fn parse_pieces(pieces: [&[u8]; 2]) -> Option<i64> {
        let is_short = pieces[0].len() + pieces[1].len() <= BYTES_MAX;
        if is_short { Self::parse(&pieces.concat()) } else { None }
    }

    pub fn new(number: i64) -> Self {
        let (mut buffer, mut at) = ([0; BYTES_MAX], BYTES_MAX);
        let mut rest = number.unsigned_abs();
        loop {
            at -= 1;
            buffer[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            buffer[at] = b'-';
        }
        Self { buffer, begin: at as u8 }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.buffer[usize::from(self.begin)..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_redis() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            let digits = Number::new(number);
            assert_eq!(digits.as_bytes(), number.to_string().into_bytes());
            assert_eq!(Number::parse(digits.as_bytes()), Some(number));
        }
        for bad in [&b""[..], b"-", b"-0", b"01", b" 1", b"+1", b"1 ", b"9223372036854775808", b"x"] {
            assert_eq!(Number::parse(bad), None, "{bad:?}");
        }
    }
}
