//! Cuts requests of the Redis protocol out of a byte stream, and takes them apart into words.
//!
//! A request is an array of bulk strings, `*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`, or a line of words that a person types. Both come out in the
//! first form ([`Request`]). As Redis does, a cutter passes over empty requests, and does not look at what stands where a word's line end
//! has to be.
//!
//! A request whose words, or one of whose words, is longer than what is kept of a request is swallowed to its end, and the
//! connection stays in order: its owner is told so, and answers an error. What is no request ends the stream.
//! An idle connection holds no memory, and no byte is searched twice.

mod progress;
mod swallow;
#[cfg(test)]
mod tests;
mod typed;

use std::fmt;

use crate::cutter::{Fed, Verdict};
pub use progress::number;
use progress::{Parsed, Progress};
use swallow::Swallow;

/// Bytes of a line: one that is typed, or one that tells a number (Redis' `PROTO_INLINE_MAX_SIZE`).
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Words of a request (Redis' limit).
pub const WORDS_MAX: i64 = 1024 * 1024;

/// Bytes of a word; a longer one is no request (Redis' `proto-max-bulk-len`).
pub const WORD_BYTES_MAX: i64 = 512 * 1024 * 1024;

/// Bytes of a word that are kept: twice as many as a value may have, so that whoever exceeds it by little is told which command it was.
pub const WORD_BYTES_KEPT: usize = 2 * kasha_types::limits::VALUE_BYTES_MAX;

/// Bytes of a request that are kept: a million short words, or what the longest transaction takes.
pub const REQUEST_BYTES_KEPT: usize = 24 * 1024 * 1024;

/// Capacity above which an emptied buffer is given back.
const KEPT_BYTES: usize = 16 * 1024;

/// What was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut<'a> {
    /// A whole request with at least one word.
    Request(Request<'a>),
    /// A request was too long, and is over. Its words up to the first that was too long or did not fit.
    TooLarge(Request<'a>),
    /// What came is no request. Nothing more is cut.
    Bad(BadRequest),
}

/// Why bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRequest {
    /// A line that was typed is longer than [`LINE_BYTES_MAX`].
    LongLine,
    /// A line that was typed has a quote too many.
    Quotes,
    /// The number of words does not end.
    LongCount,
    /// The number of words is none, or too great.
    Count,
    /// The length of a word does not end.
    LongLength,
    /// There should be the length of a word.
    NoLength(u8),
    /// The length of a word is none, or too great.
    Length,
}

impl fmt::Display for BadRequest {
    /// In Redis' words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::LongLine => write!(f, "too big inline request"),
            Self::Quotes => write!(f, "unbalanced quotes in request"),
            Self::LongCount => write!(f, "too big mbulk count string"),
            Self::Count => write!(f, "invalid multibulk length"),
            Self::LongLength => write!(f, "too big bulk count string"),
            Self::NoLength(b'\r' | b'\n') => write!(f, "expected '$', got ' '"),
            Self::NoLength(found) => write!(f, "expected '$', got '{}'", found as char),
            Self::Length => write!(f, "invalid bulk length"),
        }
    }
}

/// A request in its first form, or its beginning: words that are whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a>(&'a [u8]);

impl<'a> Request<'a> {
    /// A request whose bytes were kept ([`Self::bytes`]).
    #[must_use]
    pub const fn of_kept(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Its words, in order: the name of a command, and the command's arguments.
    #[must_use]
    pub fn words(self) -> Words<'a> {
        let begin = self.0.iter().position(|&byte| byte == b'\r').map_or(self.0.len(), |end| end + 2);
        Words(self.0.get(begin..).unwrap_or_default())
    }
}

/// The words of a request.
#[derive(Clone, Debug)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (len, line_len) = match progress::short_line(self.0, b'$') {
            Some(known) => known,
            None => {
                let digits = self.0.strip_prefix(b"$")?;
                let end = digits.iter().position(|&byte| byte == b'\r')?;
                (progress::number(&digits[..end]).and_then(|len| usize::try_from(len).ok())?, end + 1)
            }
        };
        let word = self.0.get(line_len + 2..)?.get(..len)?;
        self.0 = self.0.get(line_len + 2 + len + 2..).unwrap_or_default();
        Some(word)
    }
}

/// What a connection keeps of a request that has not ended.
#[derive(Debug, Default)]
pub struct RequestCutter {
    /// Input that no request was cut out of yet; the unfinished one begins at `begin`.
    kept: Vec<u8>,
    begin: usize,
    progress: Progress,
    swallow: Option<Box<Swallow>>,
    /// What came was no request.
    is_over: bool,
}

impl RequestCutter {
    /// Whether part of a request, or after a pause whole ones, are kept.
    #[must_use]
    pub fn holds_bytes(&self) -> bool {
        !self.kept.is_empty() || self.swallow.is_some()
    }

    /// Forgets what it holds, and cuts nothing more.
    pub fn give_up(&mut self) {
        *self = Self { is_over: true, ..Self::default() };
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.kept.capacity() + self.swallow.as_ref().map_or(0, |swallow| swallow.before.capacity())
    }

    /// Handles every whole request of what was kept and then of `bytes`; keeps the rest.
    pub fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Cut<'_>) -> Verdict) -> Fed {
        if self.is_over {
            return Fed::Drained;
        }
        if self.kept.is_empty() {
            let (used, fed) = self.cut(bytes, &mut each);
            if !self.is_over {
                self.kept.extend_from_slice(&bytes[used..]);
            }
            return fed;
        }
        let mut kept = std::mem::take(&mut self.kept);
        kept.extend_from_slice(bytes);
        let begin = std::mem::take(&mut self.begin);
        let (used, fed) = self.cut(&kept[begin..], &mut each);
        if !self.is_over {
            self.keep(kept, begin + used);
        }
        fed
    }

    /// Keeps what stands behind `begin`; moves it to the front when that costs less than was cut since.
    fn keep(&mut self, mut kept: Vec<u8>, mut begin: usize) {
        if begin * 2 >= kept.len() {
            kept.drain(..begin);
            kept.shrink_to(KEPT_BYTES);
            begin = 0;
        }
        (self.kept, self.begin) = (kept, begin);
    }

    /// Cuts requests out of bytes that begin where the unfinished request does. Returns how many bytes are not needed any more.
    fn cut(&mut self, bytes: &[u8], each: &mut impl FnMut(Cut<'_>) -> Verdict) -> (usize, Fed) {
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            let (len, verdict) = match self.swallow.take() {
                Some(swallow) => self.swallow_more(swallow, rest, each),
                None => self.cut_one(rest, each),
            };
            used += len;
            match verdict {
                None => return (used, Fed::Drained),
                Some(Verdict::Continue) => {}
                Some(Verdict::Pause) => return (used, Fed::Paused),
                Some(Verdict::Stop) => return (used, Fed::Stopped),
            }
        }
    }

    /// Cuts one request, or the beginning of one that is too long. No verdict: more has to come first.
    fn cut_one(&mut self, bytes: &[u8], each: &mut impl FnMut(Cut<'_>) -> Verdict) -> (usize, Option<Verdict>) {
        match self.progress.go_on(bytes) {
            Parsed::More => (0, None),
            Parsed::Empty { len } => {
                self.progress = Progress::default();
                (len, Some(Verdict::Continue))
            }
            Parsed::Whole { len } => {
                self.progress = Progress::default();
                (len, Some(each(Cut::Request(Request(&bytes[..len])))))
            }
            Parsed::Typed { len } => {
                self.progress = Progress::default();
                let verdict = match typed::request(&bytes[..len]) {
                    Some(request) if request.is_empty() => Verdict::Continue,
                    Some(request) => each(Cut::Request(Request(&request))),
                    None => self.end(BadRequest::Quotes, each),
                };
                (len, Some(verdict))
            }
            Parsed::TooLarge { len, missing } => {
                self.progress = Progress::default();
                self.swallow = Some(Box::new(Swallow::new(bytes[..len].to_vec(), missing)));
                (len, Some(Verdict::Continue))
            }
            Parsed::Bad(why) => (0, Some(self.end(why, each))),
        }
    }

    fn swallow_more(
        &mut self,
        mut swallow: Box<Swallow>,
        bytes: &[u8],
        each: &mut impl FnMut(Cut<'_>) -> Verdict,
    ) -> (usize, Option<Verdict>) {
        match swallow.go_on(bytes) {
            Ok((len, true)) => (len, Some(each(Cut::TooLarge(Request(&swallow.before))))),
            Ok((len, false)) => {
                self.swallow = Some(swallow);
                (len, None)
            }
            Err(why) => (0, Some(self.end(why, each))),
        }
    }

    /// Nothing more is cut, whatever the owner says.
    fn end(&mut self, why: BadRequest, each: &mut impl FnMut(Cut<'_>) -> Verdict) -> Verdict {
        self.is_over = true;
        self.swallow = None;
        each(Cut::Bad(why));
        Verdict::Stop
    }
}
