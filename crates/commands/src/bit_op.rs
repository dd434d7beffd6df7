//! What `BITOP` makes of strings, wherever they are.

/// Bytes of all strings that are combined: more would hold up everybody else for longer than a turn may (R11.14).
pub const COMBINED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The reply to strings that have more.
pub const COMBINES_TOO_MUCH: &str = "ERR BITOP combines at most 4 MiB: more would hold up everybody else";

/// How strings are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combines {
    /// A bit is set if all have it.
    And,
    /// A bit is set if one has it.
    Or,
    /// A bit is set if an odd number have it.
    Xor,
    /// A bit is set if the only string has it not.
    Not,
}

impl Combines {
    /// What this word says of so many strings.
    ///
    /// # Errors
    /// The text of the reply to a word that is wrong.
    pub fn parse(word: &[u8], strings: usize) -> Result<Self, &'static str> {
        match &word.to_ascii_uppercase()[..] {
            b"AND" => Ok(Self::And),
            b"OR" => Ok(Self::Or),
            b"XOR" => Ok(Self::Xor),
            b"NOT" if strings == 1 => Ok(Self::Not),
            b"NOT" => Err("ERR BITOP NOT must be called with a single source key."),
            _ => Err("ERR syntax error"),
        }
    }

    /// The combination, as long as the longest string: behind the end of another one are zeros.
    ///
    /// # Panics
    /// If there is no string.
    #[must_use]
    pub fn combine<S: AsRef<[u8]>>(self, strings: &[S]) -> Vec<u8> {
        let len = strings.iter().map(|string| string.as_ref().len()).max().unwrap_or(0);
        let byte = |string: &S, at: usize| string.as_ref().get(at).copied().unwrap_or(0);
        let combined = (0..len).map(|at| {
            let mut bytes = strings.iter().map(|string| byte(string, at));
            let first = bytes.next().expect("its arity");
            match self {
                Self::And => bytes.fold(first, |all, next| all & next),
                Self::Or => bytes.fold(first, |all, next| all | next),
                Self::Xor => bytes.fold(first, |all, next| all ^ next),
                Self::Not => !first,
            }
        });
        combined.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_combined_as_the_word_says() {
        let of = |word: &[u8], strings: &[&[u8]]| Combines::parse(word, strings.len()).map(|how| how.combine(strings));
        assert_eq!(of(b"and", &[b"\x0F\xFF", b"\x3C"]), Ok(vec![0x0C, 0]));
        assert_eq!(of(b"OR", &[b"\x0F", b"\x30\x01"]), Ok(vec![0x3F, 1]));
        assert_eq!(of(b"Xor", &[b"\x0F", b"\x3C", b"\x01"]), Ok(vec![0x32]));
        assert_eq!(of(b"not", &[b"\x0F"]), Ok(vec![0xF0]));
        assert_eq!(of(b"not", &[b""]), Ok(Vec::new()));
        assert!(of(b"not", &[b"a", b"b"]).is_err() && of(b"nand", &[b"a"]).is_err());
    }
}
