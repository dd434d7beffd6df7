//! How far a request has been looked at.

use super::{BadRequest, LINE_BYTES_MAX, REQUEST_BYTES_KEPT, WORD_BYTES_KEPT, WORD_BYTES_MAX, WORDS_MAX};

/// Digits of the number in a short line.
const DIGITS_OF_SHORT: usize = 4;

/// What is known of the request that a stream's next bytes are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Bytes that need not be looked at again.
    at: usize,
    /// Bytes behind those that have no line end.
    searched: usize,
    /// Words that have not come, once their number has.
    missing: Option<u32>,
}

/// What bytes turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// More has to come first.
    More,
    /// A request without words, of so many bytes.
    Empty { len: usize },
    /// A whole request of so many bytes.
    Whole { len: usize },
    /// A line that was typed, with its line end.
    Typed { len: usize },
    /// The beginning of a request that is too long: whole words. So many words have not come.
    TooLarge { len: usize, missing: u32 },
    /// No request.
    Bad(BadRequest),
}

/// A number as Redis reads one: an optional minus, no leading zeros, nothing else.
#[must_use]
pub fn number(digits: &[u8]) -> Option<i64> {
    let unsigned = digits.strip_prefix(b"-").unwrap_or(digits);
    let canonical = matches!(unsigned, [b'0'] | [b'1'..=b'9', ..]) && digits != b"-0";
    let text = std::str::from_utf8(digits).ok().filter(|_| canonical)?;
    text.parse().ok()
}

/// The length of a word, from the line that tells it.
pub(super) fn length(line: &[u8]) -> Result<usize, BadRequest> {
    let digits = match line.split_first() {
        Some((b'$', digits)) => digits,
        Some((&other, _)) => return Err(BadRequest::NoLength(other)),
        // Redis finds the carriage return in the dollar's place.
        None => return Err(BadRequest::NoLength(b'\r')),
    };
    let len = number(digits).filter(|len| (0..=WORD_BYTES_MAX).contains(len)).ok_or(BadRequest::Length)?;
    Ok(usize::try_from(len).expect("half a gigabyte"))
}

/// The line that begins there, without its end of two bytes; `None`: its end has not come.
pub(super) fn line(bytes: &[u8], searched: usize) -> Option<&[u8]> {
    let end = searched + memchr::memchr(b'\r', &bytes[searched..])?;
    (end + 2 <= bytes.len()).then(|| &bytes[..end])
}

/// The number of a line that begins with this mark, and how long the line is without its end. `None`: it is no short line, as almost every one
/// is, or its end has not come; then it has to be looked at more closely.
#[inline]
pub(super) fn short_line(bytes: &[u8], mark: u8) -> Option<(usize, usize)> {
    let (&first, rest) = bytes.split_first()?;
    let mut number = 0;
    for (at, &byte) in rest.iter().enumerate().take(DIGITS_OF_SHORT + 1) {
        match byte {
            b'1'..=b'9' => number = number * 10 + usize::from(byte - b'0'),
            b'0' if at > 0 => number *= 10,
            // Of the line's end, the second byte may be any, as in Redis.
            b'\r' if at > 0 && first == mark && rest.len() > at + 1 => return Some((number, at + 1)),
            _ => return None,
        }
    }
    None
}

impl Progress {
    /// Looks at more of the request that `bytes` begin with.
    pub(super) fn go_on(&mut self, bytes: &[u8]) -> Parsed {
        match bytes.first() {
            None => Parsed::More,
            Some(b'*') => self.go_on_with_words(bytes).unwrap_or_else(Parsed::Bad),
            Some(_) => self.go_on_with_line(bytes),
        }
    }

    fn go_on_with_line(&mut self, bytes: &[u8]) -> Parsed {
        match memchr::memchr(b'\n', &bytes[self.searched..]) {
            Some(end) if self.searched + end < LINE_BYTES_MAX => Parsed::Typed { len: self.searched + end + 1 },
            None if bytes.len() <= LINE_BYTES_MAX => {
                self.searched = bytes.len();
                Parsed::More
            }
            Some(_) | None => Parsed::Bad(BadRequest::LongLine),
        }
    }

    fn go_on_with_words(&mut self, bytes: &[u8]) -> Result<Parsed, BadRequest> {
        let mut missing = match (self.missing, short_line(bytes, b'*')) {
            (Some(missing), _) => missing,
            (None, Some((count, len))) => {
                self.pass(len + 2);
                u32::try_from(count).expect("a few digits")
            }
            (None, None) => {
                let Some(line) = self.line(bytes, BadRequest::LongCount)? else { return Ok(Parsed::More) };
                let count = number(&line[1..]).filter(|&count| count <= WORDS_MAX).ok_or(BadRequest::Count)?;
                self.pass(line.len() + 2);
                if count <= 0 {
                    return Ok(Parsed::Empty { len: self.at });
                }
                u32::try_from(count).expect("a million")
            }
        };
        while missing > 0 {
            self.missing = Some(missing);
            let (len, line_len) = match short_line(&bytes[self.at..], b'$') {
                Some(known) => known,
                None => {
                    let Some(line) = self.line(bytes, BadRequest::LongLength)? else { return Ok(Parsed::More) };
                    (length(line)?, line.len())
                }
            };
            let end = self.at + line_len + 2;
            if len > WORD_BYTES_KEPT || end + len + 2 > REQUEST_BYTES_KEPT {
                return Ok(Parsed::TooLarge { len: self.at, missing });
            }
            if end + len + 2 > bytes.len() {
                return Ok(Parsed::More);
            }
            self.pass(line_len + 2 + len + 2);
            missing -= 1;
        }
        Ok(Parsed::Whole { len: self.at })
    }

    /// The line that has to be looked at next, if its end has come.
    fn line<'b>(&mut self, bytes: &'b [u8], too_long: BadRequest) -> Result<Option<&'b [u8]>, BadRequest> {
        let rest = &bytes[self.at..];
        let found = line(rest, self.searched);
        if found.is_none() {
            // The last byte may be a carriage return whose line feed has not come.
            self.searched = rest.len().saturating_sub(1);
            if rest.len() > LINE_BYTES_MAX {
                return Err(too_long);
            }
        }
        Ok(found)
    }

    fn pass(&mut self, bytes: usize) {
        self.at += bytes;
        self.searched = 0;
    }
}
