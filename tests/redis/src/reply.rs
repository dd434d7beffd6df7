//! Replies of the Redis protocol, read from a socket.

use std::fmt;
use std::io::{BufRead, Write};

use anyhow::{Context, Result, bail};

/// A reply, whichever version of the protocol it came in.
#[derive(Clone, PartialEq)]
pub enum Reply {
    Nil,
    Word(String),
    Error(String),
    Number(i64),
    Bytes(Vec<u8>),
    Text(Vec<u8>),
    List(Vec<Self>),
    Set(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Double(String),
    Bool(bool),
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => write!(f, "(nil)"),
            Self::Word(word) => write!(f, "+{word}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Number(number) => write!(f, ":{number}"),
            Self::Bytes(bytes) | Self::Text(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::List(replies) => f.debug_list().entries(replies).finish(),
            Self::Set(replies) => f.debug_set().entries(replies).finish(),
            Self::Map(pairs) => f.debug_map().entries(pairs.iter().map(|(key, value)| (key, value))).finish(),
            Self::Double(digits) => write!(f, ",{digits}"),
            Self::Bool(value) => write!(f, "#{value}"),
        }
    }
}

fn line(from: &mut impl BufRead) -> Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    let Some(text) = line.strip_suffix(b"\r\n") else {
        bail!("the connection ends within {:?}", line.escape_ascii().to_string())
    };
    Ok(String::from_utf8_lossy(text).into_owned())
}

fn number(text: &str) -> Result<i64> {
    text.parse().with_context(|| format!("{text:?} is no number"))
}

fn bytes(from: &mut impl BufRead, len: i64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len)? + 2];
    from.read_exact(&mut bytes)?;
    if !bytes.ends_with(b"\r\n") {
        bail!("a string has another length than it says");
    }
    bytes.truncate(bytes.len() - 2);
    Ok(bytes)
}

impl Reply {
    /// The next reply.
    pub fn read(from: &mut impl BufRead) -> Result<Self> {
        let line = line(from)?;
        let (kind, rest) = line.split_at_checked(1).context("an empty line")?;
        let several = |from: &mut _, count: i64| (0..count).map(|_| Self::read(from)).collect::<Result<Vec<_>>>();
        Ok(match kind {
            "+" => Self::Word(rest.to_owned()),
            "-" => Self::Error(rest.to_owned()),
            ":" => Self::Number(number(rest)?),
            "_" => Self::Nil,
            "," => Self::Double(rest.to_owned()),
            "#" => Self::Bool(rest == "t"),
            "$" if rest == "-1" => Self::Nil,
            "*" if rest == "-1" => Self::Nil,
            "$" => Self::Bytes(bytes(from, number(rest)?)?),
            "=" => Self::Text(bytes(from, number(rest)?)?),
            "*" => Self::List(several(from, number(rest)?)?),
            "~" => Self::Set(several(from, number(rest)?)?),
            "%" => {
                let flat = several(from, 2 * number(rest)?)?;
                let mut flat = flat.into_iter();
                let mut pairs = Vec::new();
                while let (Some(key), Some(value)) = (flat.next(), flat.next()) {
                    pairs.push((key, value));
                }
                Self::Map(pairs)
            }
            other => bail!("{other:?} begins no reply"),
        })
    }
}

/// Writes a request.
pub fn write(to: &mut impl Write, words: &[Vec<u8>]) -> Result<()> {
    write!(to, "*{}\r\n", words.len())?;
    for word in words {
        write!(to, "${}\r\n", word.len())?;
        to.write_all(word)?;
        to.write_all(b"\r\n")?;
    }
    Ok(())
}

/// The words of a request that a person would write.
pub fn words(text: &str) -> Vec<Vec<u8>> {
    text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// A request as a person would write it.
pub fn shown(words: &[Vec<u8>]) -> String {
    const SHOWN_MAX: usize = 60;
    let word = |word: &Vec<u8>| match word.len() {
        0 => "\"\"".to_owned(),
        1..SHOWN_MAX => word.escape_ascii().to_string(),
        len => format!("{}…({len} bytes)", word[..16].escape_ascii()),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}
