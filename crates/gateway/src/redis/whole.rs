//! Commands of no key: `SCAN`, `KEYS`, `DBSIZE`, `RANDOMKEY`, and `TIME` where it is not known yet. Each asks shard after shard, a page at a time, and
//! has one call outstanding: for its connection it is a command as any other (**R10.3**).
//!
//! **R10.15** A cursor is a place in the order of a table's keys that all primaries have in common (0039). It names its shard by the slot in it, and
//! nobody keeps anything for it: another front may get it, after any time. A number that is no place is behind the last one.

use kasha_client::session::{CallId, Completion, Count, Session};
use kasha_commands::glob;
use kasha_commands::{Command as Name, Item, ReplyWriter, Row};
use kasha_machine::Effects;
use kasha_types::limits::{KEY_BYTES_MAX, SLOTS};
use kasha_types::{ShardId, Slot, TableId, Tick, UnixMillis};
use kasha_wire::operation::ScanCursor;
use kasha_wire::outcome::{ScannedPage, Shape};
use kasha_wire::requests::number;
use kasha_wire::{Outcome, Read};

use super::calls;
use crate::limits::{COMMAND_DEADLINE, KEYS_BYTES_MAX, PATTERN_BYTES_MAX, SCAN_PAGE, SCAN_PAGES_MAX};

/// What is read of a node that sends something else than a page.
const NO_PAGE: &str = "ERR the server's result cannot be read; run the same version of Kasha everywhere";

/// A command of no key that is under way.
#[derive(Debug)]
pub enum Whole {
    Size(Count),
    Keys(Keys),
    Scan(Scan),
    Random(Random),
    /// The coordinator is asked what time it is at ClusterTime 0.
    Time,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// This call has to end first.
    Asks(CallId),
    /// It is over, and this is its reply.
    Replies(Vec<u8>),
}

/// `KEYS`.
#[derive(Debug)]
pub struct Keys {
    pattern: Pattern,
    from: ScanCursor,
    found: Found,
}

/// `SCAN`.
#[derive(Debug)]
pub struct Scan {
    pattern: Pattern,
    from: ScanCursor,
    /// So many keys are still to be looked at, about.
    left: u64,
    /// So many more pages are asked for, at most.
    pages: u64,
    found: Found,
}

/// `RANDOMKEY`: the first page with a key behind a random place.
#[derive(Debug)]
pub struct Random {
    begin: ScanCursor,
    from: ScanCursor,
    /// It has been at the end, and goes on from the beginning.
    is_around: bool,
}

/// A pattern, and what all names begin with that match it.
#[derive(Debug)]
struct Pattern {
    pattern: Option<Vec<u8>>,
    prefix: Vec<u8>,
}

/// Names that were found, each an item of a reply.
#[derive(Debug, Default)]
struct Found {
    items: Vec<u8>,
    count: u32,
}

impl Pattern {
    fn of(pattern: Option<&[u8]>) -> Self {
        let literal = |pattern: &[u8]| pattern.iter().take_while(|byte| !b"*?[\\".contains(byte)).copied().collect();
        Self { pattern: pattern.map(<[u8]>::to_vec), prefix: pattern.map_or_else(Vec::new, literal) }
    }

    /// Why it is not looked for: each name would be compared with all of it.
    fn refusal(pattern: &[u8]) -> Option<Next> {
        (pattern.len() > PATTERN_BYTES_MAX).then(|| error("ERR the pattern is longer than 4096 bytes"))
    }

    /// Whether no key can match it: none is so long.
    fn is_of_no_key(&self) -> bool {
        self.prefix.len() > KEY_BYTES_MAX
    }

    fn matches(&self, name: &[u8]) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name))
    }
}

impl Found {
    fn take(&mut self, page: &ScannedPage, pattern: &Pattern) {
        for (_, name) in page.keys.iter().filter(|(_, name)| pattern.matches(name)) {
            ReplyWriter(&mut self.items).item(Item::Bytes(name));
            self.count += 1;
        }
    }

    fn write(&self, out: &mut ReplyWriter<'_>) {
        out.item(Item::List(self.count));
        out.0.extend_from_slice(&self.items);
    }
}

fn reply(write: impl FnOnce(&mut ReplyWriter<'_>)) -> Next {
    let mut bytes = Vec::new();
    write(&mut ReplyWriter(&mut bytes));
    Next::Replies(bytes)
}

fn error(text: &str) -> Next {
    reply(|out| out.item(Item::Error(text)))
}

/// **R10.12** The time is what the session takes ClusterTime for, by which values end. It goes on in milliseconds.
pub fn tell_time(unix: UnixMillis, out: &mut ReplyWriter<'_>) {
    const MILLIS_A_SECOND: u64 = 1000;
    const MICROS_A_MILLI: u64 = 1000;
    let (seconds, micros) = (unix.0 / MILLIS_A_SECOND, unix.0 % MILLIS_A_SECOND * MICROS_A_MILLI);
    let [seconds, micros] = [seconds, micros].map(|number| number.to_string());
    out.each(Item::List(2), [Item::Bytes(seconds.as_bytes()), Item::Bytes(micros.as_bytes())]);
}

/// What a call is made with.
pub struct Asking<'d> {
    pub now: Tick,
    pub table: TableId,
    pub session: &'d mut Session,
    pub out: &'d mut Effects,
}

impl Asking<'_> {
    fn read(&mut self, read: &Read<'_>) -> Next {
        let deadline = Some(self.now.after(COMMAND_DEADLINE));
        Next::Asks(self.session.read(self.now, self.table, read, deadline, self.out))
    }

    fn page(&mut self, cursor: ScanCursor, most: u64, pattern: &Pattern) -> Next {
        let most = u32::try_from(most).unwrap_or(u32::MAX).clamp(1, SCAN_PAGE);
        self.read(&Read::Scan { cursor, most, prefix: &pattern.prefix })
    }
}

impl Whole {
    /// Begins a command whose arity is right.
    pub fn begin(row: &Row, words: &[&[u8]], asking: &mut Asking<'_>) -> (Option<Self>, Next) {
        let whole = match row.command {
            Name::Time => return (Some(Self::Time), Next::Asks(asking.session.refresh(asking.now, asking.out))),
            Name::DbSize => Self::Size(Count::default()),
            Name::RandomKey => Self::Random(Random::begin(asking)),
            Name::Keys => {
                if let Some(refused) = Pattern::refusal(words[1]) {
                    return (None, refused);
                }
                let pattern = Pattern::of(Some(words[1]));
                if pattern.is_of_no_key() {
                    return (None, reply(|out| out.item(Item::List(0))));
                }
                Self::Keys(Keys { pattern, from: ScanCursor::START, found: Found::default() })
            }
            Name::Scan => match Scan::parse(words) {
                Ok(scan) => Self::Scan(scan),
                Err(ended) => return (None, ended),
            },
            other => return (None, error(&format!("ERR '{}' is not known here yet", other.row().name))),
        };
        let asked = whole.ask(asking);
        (Some(whole), asked)
    }

    fn ask(&self, asking: &mut Asking<'_>) -> Next {
        match self {
            Self::Size(count) => match count.read() {
                Some(read) => asking.read(&read),
                None => {
                    let keys = i64::try_from(count.keys()).unwrap_or(i64::MAX);
                    reply(|out| out.item(Item::Number(keys)))
                }
            },
            Self::Keys(keys) => asking.page(keys.from, u64::MAX, &keys.pattern),
            Self::Scan(scan) => asking.page(scan.from, scan.left, &scan.pattern),
            Self::Random(random) => asking.page(random.from, Random::PAGE, &Pattern::of(None)),
            Self::Time => unreachable!("it asks once"),
        }
    }

    /// The call that it waited for has ended.
    pub fn next(&mut self, completion: &Completion, asking: &mut Asking<'_>) -> Next {
        if let Self::Time = self {
            return match (completion, asking.session.unix_time(asking.now)) {
                (_, Some(unix)) => reply(|out| tell_time(unix, out)),
                (Completion::Refreshed, None) => error("TRYAGAIN the cluster does not know the time of day yet"),
                (_, None) => error("TRYAGAIN the coordinator does not answer"),
            };
        }
        let page = match completion {
            Completion::Read { result } => Outcome::decode(Shape::Keys, result),
            failed => return error(&calls::failure(failed).0),
        };
        let Ok(Outcome::Keys(page)) = page else { return error(NO_PAGE) };
        let ended = match self {
            Self::Size(count) => {
                count.on_page(&page);
                None
            }
            Self::Keys(keys) => keys.on_page(&page),
            Self::Scan(scan) => scan.on_page(&page),
            Self::Random(random) => random.on_page(&page, asking),
            Self::Time => unreachable!("handled above"),
        };
        ended.unwrap_or_else(|| self.ask(asking))
    }
}

impl Keys {
    fn on_page(&mut self, page: &ScannedPage) -> Option<Next> {
        self.found.take(page, &self.pattern);
        if self.found.items.len() > KEYS_BYTES_MAX {
            return Some(error("ERR the names of these keys are longer than 8 MiB together; use SCAN"));
        }
        match page.next {
            Some(from) => {
                self.from = from;
                None
            }
            None => Some(reply(|out| self.found.write(out))),
        }
    }
}

/// A cursor as Redis reads one: by C's `strtoul`, which takes a sign.
fn cursor(word: &[u8]) -> Option<u64> {
    let (is_negative, digits) = match word {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        [] => return Some(0),
        digits => (false, digits),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

impl Scan {
    /// What Redis looks at, unless told otherwise.
    const COUNT: u64 = 10;

    /// The options of `SCAN`, or what ends it at once.
    fn parse(words: &[&[u8]]) -> Result<Self, Next> {
        const SYNTAX: &str = "ERR syntax error";
        let from = cursor(words[1]).ok_or_else(|| error("ERR invalid cursor"))?;
        let (mut pattern, mut count, mut is_of_strings) = (None, Self::COUNT, true);
        let mut rest = words[2..].iter();
        while let Some(option) = rest.next() {
            let argument = rest.next().ok_or_else(|| error(SYNTAX))?;
            match &option.to_ascii_uppercase()[..] {
                b"COUNT" => {
                    let given = number(argument).ok_or_else(|| error("ERR value is not an integer or out of range"))?;
                    count = u64::try_from(given).ok().filter(|&count| count > 0).ok_or_else(|| error(SYNTAX))?;
                }
                b"MATCH" => match Pattern::refusal(argument) {
                    None => pattern = Some(*argument),
                    Some(refused) => return Err(refused),
                },
                // Every value is a string; there is none of another type, nor of one that nobody knows.
                b"TYPE" => is_of_strings = argument.eq_ignore_ascii_case(b"string"),
                _ => return Err(error(SYNTAX)),
            }
        }
        let pattern = Pattern::of(pattern);
        match ScanCursor::from_number(from).filter(|_| is_of_strings && !pattern.is_of_no_key()) {
            None => Err(Self::told(None, &Found::default())),
            Some(from) => {
                let pages = (1 + count / u64::from(SCAN_PAGE)).min(SCAN_PAGES_MAX);
                Ok(Self { pattern, from, left: count, pages, found: Found::default() })
            }
        }
    }

    fn told(next: Option<ScanCursor>, found: &Found) -> Next {
        reply(|out| {
            out.item(Item::List(2));
            out.item(Item::Bytes(next.map_or(0, ScanCursor::number).to_string().as_bytes()));
            found.write(out);
        })
    }

    fn on_page(&mut self, page: &ScannedPage) -> Option<Next> {
        self.found.take(page, &self.pattern);
        self.left = self.left.saturating_sub(page.keys.len() as u64);
        self.pages -= 1;
        match page.next {
            Some(from) if self.left > 0 && self.pages > 0 => {
                self.from = from;
                None
            }
            next => Some(Self::told(next, &self.found)),
        }
    }
}

impl Random {
    /// Keys of which one is taken: the first one behind a random place would be one behind a gap more often.
    const PAGE: u64 = 16;

    /// A place: a slot, and so a shard by how many slots it owns, and a place in its tablet.
    fn begin(asking: &mut Asking<'_>) -> Self {
        let drawn = asking.session.draw();
        let slot = Slot(u16::try_from(drawn % u64::from(SLOTS)).expect("a remainder"));
        let configuration = asking.session.configuration().expect("it has the table");
        let tablet = configuration.tablets_of(asking.table).find(|tablet| tablet.last >= slot);
        let slot = tablet.map_or(Slot(0), |tablet| tablet.first);
        let begin = ScanCursor { slot, position: (drawn >> 32) as u32 };
        Self { begin, from: begin, is_around: false }
    }

    fn on_page(&mut self, page: &ScannedPage, asking: &mut Asking<'_>) -> Option<Next> {
        if !page.keys.is_empty() {
            let which = asking.session.draw() % page.keys.len() as u64;
            let (_, name) = &page.keys[usize::try_from(which).expect("a remainder")];
            return Some(reply(|out| out.item(Item::Bytes(name))));
        }
        let next = if page.in_shard == 0 { self.behind_empty_shard(asking).unwrap_or(page.next) } else { page.next };
        // The end comes twice where the first place is in what a page that is the last one has passed.
        let is_over = self.is_around && next.is_none_or(|next| next >= self.begin);
        self.is_around |= next.is_none();
        self.from = next.unwrap_or(ScanCursor::START);
        is_over.then(|| reply(|out| out.item(Item::Nil)))
    }

    /// The tablet behind this one, if the page has told that its shard has no key: of a shard's tablets only the first one tells it.
    fn behind_empty_shard(&self, asking: &Asking<'_>) -> Option<Option<ScanCursor>> {
        let configuration = asking.session.configuration()?;
        let tablets = || configuration.tablets_of(asking.table);
        let tablet = tablets().find(|tablet| tablet.last >= self.from.slot)?;
        let first = |of: ShardId| tablets().find(|tablet| tablet.shard == of);
        let tells = first(tablet.shard).is_some_and(|first| first.first == tablet.first);
        tells.then(|| ScanCursor::behind(tablet.last))
    }
}

#[cfg(test)]
mod tests {
    use kasha_commands::Items;

    use super::*;

    #[test]
    fn a_cursor_is_read_as_redis_reads_one() {
        for (word, expected) in [
            (&b"0"[..], Some(0)),
            (b"", Some(0)),
            (b"007", Some(7)),
            (b"+7", Some(7)),
            (b"-1", Some(u64::MAX)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"-", None),
            (b" 1", None),
            (b"1x", None),
        ] {
            assert_eq!(cursor(word), expected, "{}", word.escape_ascii());
        }
    }

    fn page(next: u64, names: &[&str]) -> ScannedPage {
        let keys = names.iter().map(|name| (1, name.as_bytes().to_vec())).collect();
        let next = ScanCursor::from_number(next).filter(|next| *next != ScanCursor::START);
        ScannedPage { next, in_shard: 9, keys }
    }

    /// The cursor and how many names are told, if the scan ends here.
    fn told(next: Option<Next>) -> Option<(Vec<u8>, u32)> {
        let Next::Replies(bytes) = next? else { panic!("a page asks for nothing") };
        let mut items = Items::of(&bytes).map(|item| item.expect("sound"));
        let (Some(Item::List(2)), Some(Item::Bytes(cursor)), Some(Item::List(count))) =
            (items.next(), items.next(), items.next())
        else {
            panic!("{}", bytes.escape_ascii())
        };
        assert_eq!(items.count(), count as usize);
        Some((cursor.to_vec(), count))
    }

    #[test]
    fn r10_15_a_scan_ends_with_as_many_keys_as_it_was_to_look_at() {
        let scan = |words: &[&[u8]]| match Scan::parse(&[&[&b"scan"[..], b"0"], words].concat()) {
            Ok(scan) => scan,
            Err(ended) => panic!("{ended:?}"),
        };
        let mut few = scan(&[b"COUNT", b"3", b"match", b"a*"]);
        assert_eq!(told(few.on_page(&page(5, &["ab", "b", "c"]))), Some((b"5".to_vec(), 1)), "it has looked at three");
        let mut one = scan(&[]);
        assert_eq!(told(one.on_page(&page(7, &["a"]))), Some((b"7".to_vec(), 1)), "a page is enough for ten");
        let mut many = scan(&[b"COUNT", b"1000000000"]);
        let mut pages = 1;
        let end = loop {
            if let Some(end) = told(many.on_page(&page(pages, &["a"]))) {
                break end;
            }
            pages += 1;
        };
        assert_eq!((end, pages), ((b"16".to_vec(), 16), SCAN_PAGES_MAX), "whatever COUNT is");
        let mut last = scan(&[b"COUNT", b"1000"]);
        assert_eq!(told(last.on_page(&page(9, &["a"]))), None);
        assert_eq!(last.from.number(), 9);
        assert_eq!(told(last.on_page(&page(0, &["b"]))), Some((b"0".to_vec(), 2)), "the end");
        for none in [&[&b"TYPE"[..], b"hash"][..], &[b"TYPE", b"nonsense"]] {
            let words = [&[&b"scan"[..], b"0"], none].concat();
            assert_eq!(told(Scan::parse(&words).err()), Some((b"0".to_vec(), 0)));
        }
        let random = [&b"scan"[..], b"18446744073709551615"];
        assert_eq!(told(Scan::parse(&random).err()), Some((b"0".to_vec(), 0)));
    }

    #[test]
    fn keys_that_are_too_many_are_told_so() {
        let pattern = Pattern::of(Some(b"*"));
        let mut keys = Keys { pattern, from: ScanCursor::START, found: Found::default() };
        let long = "x".repeat(60_000);
        let pages = (1..).find_map(|number| keys.on_page(&page(number, &[&long])).map(|end| (number, end)));
        let Some((pages, Next::Replies(reply))) = pages else { panic!("it ends") };
        assert_eq!(pages as usize, KEYS_BYTES_MAX / 60_005 + 1);
        assert!(matches!(Items::of(&reply).next(), Some(Ok(Item::Error(text))) if text.contains("use SCAN")));
    }

    #[test]
    fn all_names_that_match_a_pattern_begin_with_its_prefix() {
        for (pattern, prefix) in
            [("user:*", "user:"), ("*", ""), ("a?b", "a"), ("x[ab]", "x"), ("e\\*", "e"), ("whole", "whole")]
        {
            let pattern = Pattern::of(Some(pattern.as_bytes()));
            assert_eq!(pattern.prefix, prefix.as_bytes());
            assert!(!pattern.is_of_no_key());
        }
        assert!(Pattern::of(Some(&vec![b'a'; KEY_BYTES_MAX + 1])).is_of_no_key());
        assert!(Pattern::of(None).matches(b"anything") && Pattern::of(None).prefix.is_empty());
    }
}
