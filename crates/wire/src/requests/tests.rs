use proptest::prelude::*;

use super::*;

/// What came out of a stream, with owned words.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Request(Vec<Vec<u8>>),
    TooLarge(Vec<Vec<u8>>),
    Bad(BadRequest),
}

fn words(request: Request<'_>) -> Vec<Vec<u8>> {
    request.words().map(<[u8]>::to_vec).collect()
}

/// Feeds `parts`, pausing as `pauses` say.
fn cut(parts: &[&[u8]], pauses: &[bool]) -> Vec<Seen> {
    let (mut cutter, mut seen) = (RequestCutter::default(), Vec::new());
    let mut pauses = pauses.iter().cycle();
    for part in parts {
        let mut part = *part;
        loop {
            let fed = cutter.feed(part, |cut| {
                seen.push(match cut {
                    Cut::Request(request) => Seen::Request(words(request)),
                    Cut::TooLarge(request) => Seen::TooLarge(words(request)),
                    Cut::Bad(why) => Seen::Bad(why),
                });
                if *pauses.next().expect("a circle") { Verdict::Pause } else { Verdict::Continue }
            });
            part = &[];
            if fed != Fed::Paused {
                break;
            }
        }
    }
    seen
}

fn whole(bytes: &[u8]) -> Vec<Seen> {
    cut(&[bytes], &[false])
}

fn request(words: &[&[u8]]) -> Seen {
    Seen::Request(words.iter().map(|word| word.to_vec()).collect())
}

fn written(words: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

fn parts<'b>(bytes: &'b [u8], cuts: &[usize]) -> Vec<&'b [u8]> {
    let (mut parts, mut rest) = (Vec::new(), bytes);
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (part, others) = rest.split_at((*cut).min(rest.len()));
        parts.push(part);
        rest = others;
    }
    parts
}

fn word() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$'), Just(b'*'), any::<u8>()], 0..12)
}

proptest! {
    #[test]
    fn any_cut_of_a_stream_gives_its_requests(
        requests in prop::collection::vec(prop::collection::vec(word(), 0..5), 0..8),
        cuts in prop::collection::vec(1usize..40, 1..50),
        pauses in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        let bytes: Vec<u8> = requests.iter().flat_map(|words| written(words)).collect();
        let expected: Vec<_> = requests.into_iter().filter(|words| !words.is_empty()).map(Seen::Request).collect();
        prop_assert_eq!(cut(&parts(&bytes, &cuts), &pauses), expected);
    }

    #[test]
    fn what_comes_out_does_not_depend_on_how_bytes_come(
        bytes in prop::collection::vec(
            prop_oneof![Just(b'\r'), Just(b'\n'), Just(b'$'), Just(b'*'), Just(b'"'), b'0'..=b'3', any::<u8>()], 0..200,
        ),
        cuts in prop::collection::vec(1usize..9, 1..50),
        pauses in prop::collection::vec(any::<bool>(), 1..20),
    ) {
        prop_assert_eq!(cut(&parts(&bytes, &cuts), &pauses), whole(&bytes));
    }

    #[test]
    fn a_kept_request_has_the_same_words(words in prop::collection::vec(word(), 1..5)) {
        let bytes = written(&words);
        let kept: Vec<_> = Request::of_kept(&bytes).words().map(<[u8]>::to_vec).collect();
        prop_assert_eq!(kept, words);
    }
}

#[test]
fn what_is_no_request_is_told_as_redis_tells_it() {
    let cases: [(&[u8], &str); 10] = [
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*01\r\n", "invalid multibulk length"),
        (b"*1\r\n+a\r\n", "expected '$', got '+'"),
        (b"*1\r\n$-2\r\n", "invalid bulk length"),
        (b"*1\r\n$\r\n", "invalid bulk length"),
        (b"*1\r\n$536870913\r\n", "invalid bulk length"),
        (b"set \"a\r\n", "unbalanced quotes in request"),
        (b"set \"a\"b\r\n", "unbalanced quotes in request"),
        (b"set 'a\r\n", "unbalanced quotes in request"),
    ];
    for (bytes, text) in cases {
        let seen = whole(&[bytes, b"*1\r\n$4\r\nping\r\n"].concat());
        let [Seen::Bad(why)] = &seen[..] else { panic!("{seen:?} of {}", bytes.escape_ascii()) };
        assert_eq!(why.to_string(), text);
    }
}

#[test]
fn a_line_without_an_end_ends_the_stream() {
    let long = |begin: &[u8]| [begin, &vec![b'1'; LINE_BYTES_MAX + 1]].concat();
    let cases = [
        (&b""[..], BadRequest::LongLine),
        (b"*", BadRequest::LongCount),
        (b"*2\r\n$4\r\nping\r\n$", BadRequest::LongLength),
    ];
    for (begin, why) in cases {
        assert_eq!(whole(&long(begin)), [Seen::Bad(why)]);
        assert_eq!(cut(&parts(&long(begin), &[1000]), &[true]), [Seen::Bad(why)]);
    }
}

#[test]
fn typed_lines_are_words() {
    assert_eq!(whole(b"\r\n  \n*0\r\n*-1\r\nping\n"), [request(&[b"ping"])]);
    assert_eq!(whole(b" set  k\t'it''s' \n"), [Seen::Bad(BadRequest::Quotes)]);
    assert_eq!(whole(b"set k 'it\\'s \\x'\r\n"), [request(&[b"set", b"k", b"it's \\x"])]);
    assert_eq!(whole(b"set \"\" \"\\x0aA\\n\\\"\\q\\xg\"\r\n"), [request(&[b"set", b"", b"\nA\n\"qxg"])]);
    assert_eq!(whole(b"a\x0bb c\0d\n"), [request(&[b"a\x0bb", b"c"])]);
    assert_eq!(whole(b"pi\"ng\"\n"), [request(&[b"ping"])]);
}

#[test]
fn what_is_too_long_is_swallowed_and_the_stream_goes_on() {
    let long_word = written(&[b"set".to_vec(), b"k".to_vec(), vec![b'v'; WORD_BYTES_KEPT + 1], b"nx".to_vec()]);
    let many_words = written(&[vec![b"mset".to_vec()], vec![vec![b'v'; 1024]; REQUEST_BYTES_KEPT / 1024]].concat());
    for (bytes, kept) in [(long_word, 2), (many_words, 20_000)] {
        let stream = [&bytes[..], b"*1\r\n$4\r\nping\r\n"].concat();
        for size in [4096, 65_536, stream.len()] {
            let seen = cut(&parts(&stream, &[size]), &[true, false]);
            let [Seen::TooLarge(before), after] = &seen[..] else { panic!("{} of {size}", seen.len()) };
            assert!(before.len() >= kept && [&b"set"[..], b"mset"].contains(&&before[0][..]));
            assert_eq!(after, &request(&[b"ping"]));
        }
    }
}

#[test]
fn the_longest_word_that_is_kept_passes() {
    let words = vec![b"set".to_vec(), vec![b'v'; WORD_BYTES_KEPT]];
    assert_eq!(cut(&parts(&written(&words), &[10_000]), &[false]), [Seen::Request(words)]);
}

#[test]
fn an_idle_connection_holds_nothing() {
    let mut cutter = RequestCutter::default();
    let bytes = written(&[vec![b'v'; 1_000_000]]);
    let (first, second) = bytes.split_at(500_000);
    assert_eq!(cutter.feed(first, |_| panic!("half a request")), Fed::Drained);
    assert!(cutter.holds_bytes() && cutter.bytes() >= 500_000);
    assert_eq!(cutter.feed(second, |_| Verdict::Continue), Fed::Drained);
    assert!(!cutter.holds_bytes() && cutter.bytes() <= KEPT_BYTES);
}
