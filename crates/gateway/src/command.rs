//! Commands as lines of text, and answers as lines.
//!
//! | line | answers |
//! |---|---|
//! | `GET table key` | `VALUE version bytes`, `NONE` |
//! | `PUT table key value` | `OK version` |
//! | `INCR table key n` | `NUMBER n version`, `ERR …` |
//! | `QUIT` | `BYE`, and the connection ends |
//!
//! `ERR …` means that nothing was executed, `UNKNOWN …` that the command may have been. A value is the rest of its line, spaces
//! included. Tables and keys have no spaces.

use kasha_client::session::{Completion, WhyFailed};
use kasha_wire::outcome::{Outcome, Shape};
use kasha_wire::{Read, Update};

/// One line, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// A read of a key.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// A new value for a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Adds to the number at a key.
    Increment {
        /// The key.
        key: &'a [u8],
        /// The number to add.
        delta: i64,
    },
}

/// What a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A command on a table.
    Command(&'a str, Command<'a>),
    /// The end of the connection.
    Quit,
}

/// What a command is to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// An update.
    Update(Update<'a>),
    /// A read.
    Read(Read<'a>),
}

const USAGE: &str = "say GET table key, PUT table key value, INCR table key n, or QUIT";

impl<'a> Line<'a> {
    /// Understands a line.
    ///
    /// # Errors
    /// What is wrong with it, for whoever wrote it.
    pub fn parse(line: &'a [u8]) -> Result<Self, &'static str> {
        let mut words = line.splitn(4, |&byte| byte == b' ');
        let mut word = || words.next();
        let (name, table, key, rest) = (word().unwrap_or_default(), word(), word(), word());
        if name.eq_ignore_ascii_case(b"QUIT") && table.is_none() {
            return Ok(Self::Quit);
        }
        let (Some(table), Some(key)) = (table, key.filter(|key| !key.is_empty())) else { return Err(USAGE) };
        let Ok(table) = std::str::from_utf8(table) else { return Err("a table's name is UTF-8") };
        let command = match rest {
            None if name.eq_ignore_ascii_case(b"GET") => Command::Get { key },
            Some(value) if name.eq_ignore_ascii_case(b"PUT") => Command::Put { key, value },
            Some(delta) if name.eq_ignore_ascii_case(b"INCR") => match std::str::from_utf8(delta).map(str::parse) {
                Ok(Ok(delta)) => Command::Increment { key, delta },
                Ok(Err(_)) | Err(_) => return Err("INCR adds a decimal number of 64 bits"),
            },
            Some(_) | None => return Err(USAGE),
        };
        Ok(Self::Command(table, command))
    }
}

impl<'a> Command<'a> {
    /// What it is to a session.
    #[must_use]
    pub fn operation(self) -> Operation<'a> {
        match self {
            Self::Get { key } => Operation::Read(Read::Get { key }),
            Self::Put { key, value } => Operation::Update(Update::put(key, value)),
            Self::Increment { key, delta } => Operation::Update(Update::increment(key, delta)),
        }
    }
}

/// Writes the answer to a command whose result has this shape, without the line's end.
///
/// # Panics
/// If a call of another kind was completed.
pub fn answer(shape: Shape, completion: &Completion, out: &mut Vec<u8>) {
    let text = match completion {
        Completion::Executed { result, .. } | Completion::Read { result } => match Outcome::decode(shape, result) {
            Ok(outcome) => return answer_outcome(&outcome, out),
            Err(_) => "UNKNOWN the server's result cannot be read; run the same version of Kasha everywhere".to_owned(),
        },
        Completion::NotExecuted(why) => format!("ERR {why}"),
        Completion::Unknown(why) => format!("UNKNOWN {why}"),
        Completion::ReadFailed(WhyFailed::NotPossible(why)) => format!("ERR {why}"),
        Completion::ReadFailed(why) => format!("ERR {why}"),
        Completion::TimeToLive { .. } | Completion::Table(_) | Completion::Status(_) | Completion::Refreshed => {
            unreachable!("no command asks for this: {completion:?}")
        }
    };
    out.extend_from_slice(text.as_bytes());
}

fn answer_outcome(outcome: &Outcome, out: &mut Vec<u8>) {
    let text = match outcome {
        Outcome::Version(version) => format!("OK {version}"),
        Outcome::Number(number, version) => format!("NUMBER {number} {version}"),
        Outcome::Value(_, value) if value.contains(&b'\n') => {
            "ERR the value has a line break, which an answer of one line cannot have; read it with another client"
                .to_owned()
        }
        Outcome::Value(version, value) => {
            out.extend_from_slice(format!("VALUE {version} ").as_bytes());
            out.extend_from_slice(value);
            return;
        }
        Outcome::NotFound => "NONE".to_owned(),
        Outcome::NotANumber(_) => "ERR the value is no decimal number of 64 bits; nothing was changed".to_owned(),
        Outcome::Overflow(_) => "ERR the sum does not fit 64 bits; nothing was changed".to_owned(),
        Outcome::TooLarge => "ERR the value would be too long; nothing was changed".to_owned(),
        other => format!("ERR {other:?}"),
    };
    out.extend_from_slice(text.as_bytes());
}
