//! The Redis protocol, beside `redis-protocol`, which shares no code with Kasha.
//!
//! What a client says is cut out of a stream by [`RequestCutter`] however it arrives, and each request has the words that the other library
//! finds in it. The two differ where `Stream::as_expected` says so, and nowhere else. What a front writes in either version of the protocol
//! is read by the other library as what was meant (`reply::Reply`).

mod reply;

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_wire::cutter::{Fed, Verdict};
use kasha_wire::requests::{BadRequest, Cut, Request, RequestCutter, number};
use redis_protocol::resp2;
use redis_protocol::resp2::types::OwnedFrame;

pub use self::reply::RedisReplies;
use crate::draw;
use crate::property::Property;
use crate::streams::Arrival;

type Words = Vec<Vec<u8>>;

/// What came out of a stream.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Request(Words),
    Bad(BadRequest),
}

impl Seen {
    fn of(cut: Cut<'_>) -> Self {
        match cut {
            Cut::Request(request) => Self::Request(words(request)),
            Cut::Bad(why) => Self::Bad(why),
            Cut::TooLarge(_) => unreachable!("no input is so long"),
        }
    }
}

fn words(request: Request<'_>) -> Words {
    let words: Words = request.words().map(<[u8]>::to_vec).collect();
    let kept = request.bytes().to_vec();
    assert!(Request::of_kept(&kept).words().eq(&words), "what is kept of a request has its words");
    words
}

/// A request as clients write it.
fn written(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Where a written request has bytes of line ends that a server does not look at: the second of a line that tells a number, and both behind a
/// word.
fn unseen(words: &[Vec<u8>]) -> Vec<usize> {
    let mut at = format!("*{}\r\n", words.len()).len();
    let mut found = vec![at - 1];
    for word in words {
        at += format!("${}\r\n", word.len()).len();
        found.push(at - 1);
        at += word.len() + 2;
        found.extend([at - 2, at - 1]);
    }
    found
}

/// The words that the other library finds in a request, if it calls it one.
fn words_of(frame: OwnedFrame) -> Option<Words> {
    let OwnedFrame::Array(frames) = frame else { return None };
    let word = |frame| match frame {
        OwnedFrame::BulkString(word) => Some(word),
        OwnedFrame::SimpleString(_)
        | OwnedFrame::Error(_)
        | OwnedFrame::Integer(_)
        | OwnedFrame::Array(_)
        | OwnedFrame::Null => None,
    };
    frames.into_iter().map(word).collect()
}

/// A stream of a client.
#[derive(Debug)]
struct Stream(Vec<u8>);

impl Stream {
    /// Cuts it as it arrives.
    fn cut<const N: usize>(&self, parts: [usize; N], mut pauses: u8) -> Vec<Seen> {
        let (mut cutter, mut seen, mut stream) = (RequestCutter::default(), Vec::new(), &self.0[..]);
        for part in parts.into_iter().cycle() {
            let (mut now, later) = stream.split_at(part.min(stream.len()));
            while cutter.feed(now, |cut| {
                seen.push(Seen::of(cut));
                pauses = pauses.rotate_left(1);
                if pauses & 1 == 1 { Verdict::Pause } else { Verdict::Continue }
            }) == Fed::Paused
            {
                now = &[];
            }
            stream = later;
            if stream.is_empty() {
                break;
            }
        }
        seen
    }

    fn cut_at_once(&self) -> Vec<Seen> {
        self.cut([self.0.len()], 0)
    }

    /// What should come out of it: the other library's words wherever it finds a request that is written as clients write it. The
    /// rest is Kasha's own, as long as the difference is one of these:
    ///
    /// - A line that is typed is a request, too, which the other library does not know ([`Self::typed`]).
    /// - An array of fewer than no words is passed over, like one of none ([`Self::without_words`]).
    /// - Some bytes of line ends are not looked at ([`unseen`]).
    /// - Numbers have no plus and no leading zeros, and words are bulk strings: else a stream ends, which the other library would go on with.
    fn as_expected(&self) -> Vec<Seen> {
        let (mut seen, mut rest) = (Vec::new(), &self.0[..]);
        while let Some(first) = rest.first() {
            let len = if *first == b'*' { Self::array(rest, &mut seen) } else { Self::typed(rest, &mut seen) };
            let Some(len) = len else { break };
            rest = &rest[len..];
        }
        seen
    }

    /// The request that the bytes begin with. Returns its length, if the stream goes on behind it.
    fn array(bytes: &[u8], seen: &mut Vec<Seen>) -> Option<usize> {
        if let Ok(Some((frame, len))) = resp2::decode::decode(bytes)
            && let Some(words) = words_of(frame)
            && written(&words) == bytes[..len]
        {
            seen.extend((!words.is_empty()).then_some(Seen::Request(words)));
            return Some(len);
        }
        if let Some(len) = Self::without_words(bytes) {
            return Some(len);
        }
        let mut taken = None;
        RequestCutter::default().feed(bytes, |cut| {
            let raw = if let Cut::Request(request) = cut { request.bytes().to_vec() } else { Vec::new() };
            taken = Some((Seen::of(cut), raw));
            Verdict::Stop
        });
        let (found, raw) = taken?;
        seen.push(found.clone());
        let Seen::Request(words) = found else { return None };
        let strict = written(&words);
        assert_ne!(raw, strict, "the other library refuses it");
        let mut mended = raw;
        unseen(&words).into_iter().for_each(|at| mended[at] = strict[at]);
        assert_eq!(mended, strict, "it differs in what is looked at");
        let again = resp2::decode::decode(&strict).expect("a request").expect("a whole one");
        assert_eq!((words_of(again.0), again.1), (Some(words), strict.len()));
        Some(strict.len())
    }

    /// The length of a request that is passed over.
    fn without_words(bytes: &[u8]) -> Option<usize> {
        let end = bytes.iter().position(|&byte| byte == b'\r').filter(|end| end + 2 <= bytes.len())?;
        (number(&bytes[1..end])? <= 0).then_some(end + 2)
    }

    /// The same of a line: what follows it does not matter to it.
    fn typed(bytes: &[u8], seen: &mut Vec<Seen>) -> Option<usize> {
        let len = bytes.iter().position(|&byte| byte == b'\n')? + 1;
        let found = Self(bytes[..len].to_vec()).cut_at_once();
        let is_bad = matches!(found[..], [Seen::Bad(_)]);
        seen.extend(found);
        (!is_bad).then_some(len)
    }
}

/// What bytes of a protocol begin, end and count with.
const TOKENS: &[&[u8]] = &[
    b"\r\n",
    b"\r",
    b"*",
    b"$",
    b"*1\r\n",
    b"*2\r\n$3\r\nGET\r\n",
    b"$1\r\n",
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"+OK\r\n",
    b"*+1\r\n",
    b"$01\r\n",
];

/// A stream of requests, of pieces of them, and of other bytes.
fn drawn(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    const REQUEST_WORDS_MAX: usize = 5;
    let mut stream = Vec::new();
    while !u.is_empty() {
        match draw::weighted(u, &[6, 3, 1, 1])? {
            0 => {
                let words = draw::below(u, REQUEST_WORDS_MAX)?;
                let words = (0..words).map(|_| draw::bytes(u, 12)).collect::<Result<Words>>()?;
                stream.extend(written(&words));
            }
            1 => stream.extend_from_slice(TOKENS[draw::below(u, TOKENS.len())?]),
            2 => stream.extend([&b"set k "[..], &draw::bytes(u, 12)?, b"\n"].concat()),
            _ => stream.extend(draw::bytes(u, 12)?),
        }
    }
    Ok(stream)
}

/// Any stream of a client is cut into its requests, whose words are those that another library finds.
#[derive(Debug)]
pub struct RedisRequests {
    arrival: Arrival,
    stream: Stream,
}

impl<'a> Arbitrary<'a> for RedisRequests {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let (arrival, is_raw) = (u.arbitrary()?, u.arbitrary()?);
        Ok(Self { arrival, stream: Stream(if is_raw { draw::rest(u)? } else { drawn(u)? }) })
    }
}

impl Property for RedisRequests {
    const NAME: &'static str = "redis_requests";
    const INPUT_BYTES_MAX: usize = 300;
    const MEMORY_BYTES_MAX: usize = 32 << 20;

    fn hold(self) {
        let Self { arrival, stream } = self;
        let seen = stream.cut_at_once();
        assert_eq!(seen, stream.as_expected());
        assert_eq!(stream.cut(arrival.parts.map(|part| usize::from(part) + 1), arrival.pauses), seen);
    }

    fn seeds() -> Vec<Vec<u8>> {
        let streams: [&[u8]; 9] = [
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\n\r\n*1\r\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*1\r\n$4\r\nPING\r\n",
            b"*2\r\n$0\r\n\r\n$12\r\nabcdefghijkl\r\n*0\r\n*-1\r\n*-7\r\n*1\r\n$4\r\nQUIT\r\n",
            b"set k \"a \\x41\\n\" 'it\\'s'\r\nget k\nping\r\n\r\n*1\r\n$4\r\nPING\r\n",
            b"*1\r\n$4\r\nPINGxx*1\ra$4\rbPINGcd*1\r\n$4\r\nPING\r\n",
            b"*2\r\n$3\r\nGET\r\n:1\r\n",
            b"*2\r\n$3\r\nGET\r\n$-1\r\n",
            b"*1\r\n$2097153\r\nlong",
            b"*1\r\n*1\r\n*1\r\n$1\r\nk\r\n",
            b"*01\r\n$4\r\nPING\r\n",
        ];
        let raw = |(number, stream): (usize, &&[u8])| [&[number as u8, 20, 3, 0x55, 1], *stream].concat();
        let made = (0..8).map(|seed| [&[7, 90, 0, 1, 0], &draw::noise(seed, 120)[..]].concat());
        streams.iter().enumerate().map(raw).chain(made).collect()
    }
}
