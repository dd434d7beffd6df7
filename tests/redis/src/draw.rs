//! Random commands: mostly right ones, on few keys, so that they meet; now and then with a word too many, or one that means nothing.

use kasha_commands::{Class, Command, Row, find};
use kasha_machine::Rng;

const KEYS: u64 = 12;

/// What stands in a word's place.
#[derive(Clone, Copy, Debug)]
enum Word {
    Key,
    Value,
    Number,
    /// A number of seconds or milliseconds in which nothing ends while a stream runs, or a bad one.
    Time,
    /// A time of day in seconds, far away or long ago, or a bad one.
    Day,
    /// The same in milliseconds.
    DayMillis,
    /// A number with a fraction, or a bad one.
    Fraction,
    /// What KEYS takes.
    Pattern,
    Offset,
    Bit,
    BitOffset,
    Field,
    /// The number of the database that all streams use, or of none.
    Database,
    Text(&'static str),
}

use Word::{
    Bit, BitOffset, Database, Day, DayMillis, Field, Fraction, Key, Number, Offset, Pattern, Text, Time, Value,
};

/// What a command's words are: those that it has in any case, those that come in groups any number of times, and options.
pub struct Form {
    words: &'static [Word],
    again: &'static [Word],
    options: &'static [&'static [Word]],
}

const fn form(words: &'static [Word]) -> Form {
    Form { words, again: &[], options: &[] }
}

const fn again(words: &'static [Word], again: &'static [Word]) -> Form {
    Form { words, again, options: &[] }
}

const fn options(words: &'static [Word], options: &'static [&'static [Word]]) -> Form {
    Form { words, again: &[], options }
}

const IF: &[&[Word]] = &[&[Text("NX")], &[Text("XX")], &[Text("gt")], &[Text("LT")]];
const ENDS: &[&[Word]] = &[
    &[Text("EX"), Time],
    &[Text("px"), Time],
    &[Text("exat"), Day],
    &[Text("PXAT"), DayMillis],
    &[Text("NX")],
    &[Text("xx")],
    &[Text("GET")],
    &[Text("KEEPTTL")],
];

/// The form of a command that is drawn.
pub fn form_of(command: Command) -> Option<Form> {
    of_strings(command).or_else(|| of_keys(command)).or_else(|| of_fronts(command))
}

fn of_strings(command: Command) -> Option<Form> {
    Some(match command {
        Command::Append => form(&[Key, Value]),
        Command::BitCount => {
            options(&[Key], &[&[Number, Number], &[Number, Number, Text("bit")], &[Number, Number, Text("BYTE")]])
        }
        Command::BitField => again(&[Key], &[Field]),
        Command::BitFieldRo => again(&[Key], &[Field]),
        Command::BitOp => options(
            &[],
            &[
                &[Text("AND"), Key, Key, Key],
                &[Text("or"), Key, Key, Key, Key],
                &[Text("XOR"), Key, Key, Key],
                &[Text("NOT"), Key, Key],
            ],
        ),
        Command::BitPos => options(&[Key, Bit], &[&[Number], &[Number, Number], &[Number, Number, Text("BIT")]]),
        Command::Decr | Command::Incr | Command::StrLen | Command::Get | Command::GetDel => form(&[Key]),
        Command::IncrByFloat => form(&[Key, Fraction]),
        Command::DecrBy | Command::IncrBy => form(&[Key, Number]),
        Command::MGet => again(&[Key], &[Key]),
        Command::GetBit => form(&[Key, BitOffset]),
        Command::GetEx => options(
            &[Key],
            &[
                &[Text("EX"), Time],
                &[Text("PX"), Time],
                &[Text("EXAT"), Day],
                &[Text("pxat"), DayMillis],
                &[Text("PERSIST")],
            ],
        ),
        Command::GetRange | Command::SubStr => form(&[Key, Number, Number]),
        Command::GetSet | Command::SetNx => form(&[Key, Value]),
        Command::Lcs => options(
            &[Key, Key],
            &[
                &[Text("LEN")],
                &[Text("IDX")],
                &[Text("IDX"), Text("WITHMATCHLEN")],
                &[Text("IDX"), Text("MINMATCHLEN"), Number],
            ],
        ),
        Command::MSet | Command::MSetNx => again(&[Key, Value], &[Key, Value]),
        Command::PSetEx | Command::SetEx => form(&[Key, Time, Value]),
        Command::Set => options(&[Key, Value], ENDS),
        Command::SetBit => form(&[Key, BitOffset, Bit]),
        Command::SetRange => form(&[Key, Offset, Value]),
        _ => return None,
    })
}

fn of_keys(command: Command) -> Option<Form> {
    Some(match command {
        Command::Copy => options(&[Key, Key], &[&[Text("REPLACE")]]),
        Command::Ttl | Command::PTtl | Command::ExpireTime | Command::PExpireTime => form(&[Key]),
        Command::ExpireAt => options(&[Key, Day], IF),
        Command::PExpireAt => options(&[Key, DayMillis], IF),
        Command::DbSize => form(&[]),
        Command::Keys => form(&[Pattern]),
        Command::Expire => options(&[Key, Time], IF),
        Command::PExpire => options(&[Key, Time], IF),
        Command::Rename | Command::RenameNx => form(&[Key, Key]),
        Command::Persist | Command::Type | Command::ObjectFreq | Command::ObjectIdleTime => form(&[Key]),
        Command::Del | Command::Exists | Command::Touch | Command::Unlink => again(&[Key], &[Key]),
        _ => return None,
    })
}

/// What a front answers by itself.
fn of_fronts(command: Command) -> Option<Form> {
    Some(match command {
        Command::Echo | Command::ClientSetName => form(&[Value]),
        Command::FlushAll | Command::FlushDb => options(&[], &[&[Text("async")], &[Text("SYNC")]]),
        Command::Ping => options(&[], &[&[Value], &[]]),
        Command::Watch => again(&[Key], &[Key]),
        Command::Unwatch
        | Command::Reset
        | Command::ClientGetName
        | Command::LatencyLatest
        | Command::LatencyReset
        | Command::SwapDb => form(&[]),
        Command::LatencyHistory => form(&[Text("command")]),
        Command::ClientNoEvict => options(&[], &[&[Text("on")], &[Text("off")]]),
        Command::Select => form(&[Database]),
        _ => return None,
    })
}

/// Of so many draws of a flush one counts: behind it there is nothing to compare.
const FLUSH_IN: u64 = 6;

/// Whether a command ends all values.
pub fn is_flush(row: &Row) -> bool {
    matches!(row.command, Command::FlushAll | Command::FlushDb)
}

/// Why a command is not drawn.
pub fn why_not(command: Command) -> Option<&'static str> {
    Some(match command {
        Command::RandomKey | Command::Scan | Command::Time => "compared where a stream ends",
        Command::Multi | Command::Exec | Command::Discard => "around some of what is drawn",
        Command::Hello => "what some streams begin with",
        Command::ObjectEncoding | Command::ObjectRefCount => "Kasha looks at the value alone (docs/redis.md)",
        Command::Client
        | Command::Cluster
        | Command::Config
        | Command::Latency
        | Command::Object
        | Command::SlowLog => "a subcommand has to follow",
        Command::ClientHelp
        | Command::CommandHelp
        | Command::ConfigHelp
        | Command::LatencyHelp
        | Command::ObjectHelp
        | Command::SlowLogHelp => "a text of each server",
        Command::ClientId
        | Command::ClientInfo
        | Command::ClientList
        | Command::ConfigGet
        | Command::Info
        | Command::SlowLogGet
        | Command::SlowLogLen => "tells of the server itself",
        Command::CommandAll
        | Command::CommandCount
        | Command::CommandDocs
        | Command::CommandGetKeys
        | Command::CommandGetKeysAndFlags
        | Command::CommandInfo
        | Command::CommandList => "compared by the tests of the table",
        Command::ConfigResetStat | Command::ConfigRewrite | Command::ConfigSet | Command::SlowLogReset => {
            "of operators, and Kasha has nothing to do"
        }
        Command::KashaOnce => "Redis has it not",
        Command::ClientNoTouch | Command::ClientSetInfo => "Redis has it since 7.2",
        Command::ClientReply | Command::Quit => "it silences its connection",
        Command::Auth => "neither has a password",
        Command::Wait => "Redis waits for replicas",
        Command::Asking | Command::ReadOnly | Command::ReadWrite => "Redis has it only in a cluster",
        _ => return None,
    })
}

/// Whether a request is a command of no key, which asks all shards.
pub fn is_of_no_key(words: &[Vec<u8>]) -> bool {
    find(&words[0]).is_some_and(|row| row.class == Class::Composed)
}

/// Draws commands.
pub struct Drawer {
    rng: Rng,
    drawn: Vec<&'static Row>,
    /// Times that were drawn.
    times: u64,
}

impl Drawer {
    pub fn new(rng: Rng) -> Self {
        let is_drawn = |row: &&Row| form_of(row.command).is_some();
        Self { rng, drawn: Command::ALL.iter().filter(is_drawn).collect(), times: 0 }
    }

    /// The words of a request.
    pub fn request(&mut self) -> Vec<Vec<u8>> {
        let mut row = *self.rng.pick(&self.drawn);
        if is_flush(row) && !self.rng.chance(1, FLUSH_IN) {
            row = *self.rng.pick(&self.drawn);
        }
        let form = form_of(row.command).expect("chosen above");
        let mut words: Vec<Vec<u8>> = row.name.split('|').map(|part| self.in_some_case(part)).collect();
        for &word in form.words {
            self.push(word, &mut words);
        }
        while !form.again.is_empty() && self.rng.chance(1, 2) {
            for &word in form.again {
                self.push(word, &mut words);
            }
        }
        let most = if form.words.is_empty() { 1 } else { self.rng.below(3) };
        for _ in 0..most {
            if !form.options.is_empty() {
                let option = *self.rng.pick(form.options);
                option.iter().for_each(|&word| self.push(word, &mut words));
            }
        }
        match self.rng.below(100) {
            0 => words.push(b"what".to_vec()),
            1 if words.len() > 1 => _ = words.pop(),
            2 if words.len() > 2 => {
                let at = usize::try_from(self.rng.between(2, words.len() as u64 - 1)).expect("few");
                words[at] = b"nonsense".to_vec();
            }
            _ => {}
        }
        words
    }

    fn in_some_case(&mut self, word: &str) -> Vec<u8> {
        if self.rng.chance(1, 4) { word.to_ascii_uppercase().into_bytes() } else { word.as_bytes().to_vec() }
    }

    fn push(&mut self, word: Word, words: &mut Vec<Vec<u8>>) {
        let drawn = match word {
            Key => format!("k{}", self.rng.below(KEYS)).into_bytes(),
            Value => self.value(),
            Number => self.number(),
            Time => self.time(),
            Day => self.day(1),
            DayMillis => self.day(1000),
            Fraction => self.fraction(),
            Pattern => self
                .rng
                .pick(&["*", "k*", "k1?", "k[0-5]", "[^k]*", "k1", "K*", "\\k2", "", "k[3-1", "*1"])
                .as_bytes()
                .to_vec(),
            Offset => self.rng.below(40).to_string().into_bytes(),
            Bit => self.rng.pick(&["0", "1", "1", "2"]).as_bytes().to_vec(),
            BitOffset => self.rng.below(100).to_string().into_bytes(),
            Field => return self.field(words),
            Database => self.rng.pick(&["0", "0", "16", "-1", "x"]).as_bytes().to_vec(),
            Text(text) => self.in_some_case(text),
        };
        words.push(drawn);
    }

    fn value(&mut self) -> Vec<u8> {
        match self.rng.below(8) {
            0..3 => self.number(),
            3 => Vec::new(),
            4 => b"abcabcab".to_vec(),
            5 => (0..self.rng.below(20)).map(|_| self.rng.below(256) as u8).collect(),
            _ => (0..self.rng.below(60)).map(|_| b'a' + self.rng.below(4) as u8).collect(),
        }
    }

    fn number(&mut self) -> Vec<u8> {
        let odd = ["9223372036854775807", "-9223372036854775808", "007", "+1", "1.5", "", " 1", "-0", "1e3"];
        match self.rng.below(20) {
            0 => self.rng.pick(&odd).as_bytes().to_vec(),
            _ => (self.rng.below(40) as i64 - 20).to_string().into_bytes(),
        }
    }

    fn time(&mut self) -> Vec<u8> {
        match self.rng.below(12) {
            0 => self.rng.pick(&["0", "-1", "9223372036854775807", "x"]).as_bytes().to_vec(),
            _ => {
                // Each is another one: GT and LT compare with what was said before, by the clock of each server.
                const APART: u64 = 1000;
                self.times += 1;
                (1_000_000 * self.rng.between(1, 50) + APART * self.times).to_string().into_bytes()
            }
        }
    }

    fn day(&mut self, unit: u64) -> Vec<u8> {
        match self.rng.below(12) {
            0 => self.rng.pick(&["0", "-1", "1", "9223372036854775807", "x"]).as_bytes().to_vec(),
            1 => (unit * 1_500_000_000).to_string().into_bytes(),
            _ => (unit * (4_000_000_000 + self.rng.below(1000))).to_string().into_bytes(),
        }
    }

    fn fraction(&mut self) -> Vec<u8> {
        let odd = [
            "inf",
            "-Infinity",
            "nan",
            "1e400",
            "1e4932",
            "-1e4932",
            "1e-20",
            "0x1p-3",
            "0x.8",
            ".",
            "1e",
            " 1",
            "+.5",
            "5.",
            "1e5000",
            "",
            "123456789012345678901234567890",
        ];
        let whole = self.rng.below(2_000_000) as i64 - 1_000_000;
        match self.rng.below(12) {
            0 => self.rng.pick(&odd).as_bytes().to_vec(),
            1 => self.number(),
            2 => format!("{whole}e{}", self.rng.below(40) as i64 - 20).into_bytes(),
            _ => format!("{}.{}", whole / 1000, self.rng.next_u64() >> self.rng.below(60)).into_bytes(),
        }
    }

    fn field(&mut self, words: &mut Vec<Vec<u8>>) {
        let kinds = ["u8", "i8", "u1", "i5", "u63", "i64", "i16", "u64", "i0", "x8"];
        let kind = self.rng.pick(&kinds).as_bytes().to_vec();
        let hash = if self.rng.chance(1, 3) { "#" } else { "" };
        let offset = format!("{hash}{}", self.rng.below(60)).into_bytes();
        match self.rng.below(5) {
            0 => {
                words.push(b"OVERFLOW".to_vec());
                words.push(self.rng.pick(&["WRAP", "sat", "FAIL", "x"]).as_bytes().to_vec());
            }
            1 | 2 => words.extend([b"get".to_vec(), kind, offset]),
            3 => {
                // Redis stores the greatest number where the least one is nearest to this (docs/redis.md).
                let number = Some(self.number()).filter(|number| number != i64::MIN.to_string().as_bytes());
                words.extend([b"SET".to_vec(), kind, offset, number.unwrap_or_default()]);
            }
            _ => words.extend([b"INCRBY".to_vec(), kind, offset, self.number()]),
        }
    }
}
