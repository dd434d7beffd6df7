//! Replies: what a front writes is what was meant.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_commands::{Item, ReplyWriter, reply};
use kasha_gateway::resp::{self, Protocol};
use redis_protocol::resp2::decode::decode as decode2;
use redis_protocol::resp2::types::OwnedFrame as Frame2;
use redis_protocol::resp3::decode::complete::decode as decode3;
use redis_protocol::resp3::types::{OwnedFrame as Frame3, VerbatimStringFormat};

use crate::draw;
use crate::property::Property;

/// A reply as a tree. Members of sets and keys of maps differ: the other library keeps them by their hashes.
#[derive(Clone, Debug)]
enum Reply {
    Nil,
    NoList,
    Ok,
    Word(String),
    Error(String),
    Number(i64),
    Bytes(Vec<u8>),
    Text(String),
    List(Vec<Self>),
    Set(BTreeSet<Vec<u8>>),
    Map(BTreeMap<Vec<u8>, Self>),
}

impl Reply {
    /// `depth`: lists within it, at most.
    fn drawn(u: &mut Unstructured<'_>, depth: usize) -> Result<Self> {
        const ITEMS_MAX: usize = 5;
        Ok(match draw::below(u, if depth == 0 { 8 } else { 11 })? {
            0 => Self::Nil,
            1 => Self::NoList,
            2 => Self::Ok,
            3 => Self::Word(text(u)?),
            4 => Self::Error(text(u)?),
            5 => Self::Number(u.arbitrary()?),
            6 => Self::Bytes(draw::bytes(u, 20)?),
            7 => Self::Text(text(u)?),
            8 => {
                let count = draw::below(u, ITEMS_MAX)?;
                Self::List((0..count).map(|_| Self::drawn(u, depth - 1)).collect::<Result<_>>()?)
            }
            9 => {
                let count = draw::below(u, ITEMS_MAX)?;
                Self::Set((0..count).map(|_| draw::bytes(u, 8)).collect::<Result<_>>()?)
            }
            _ => {
                let count = draw::below(u, ITEMS_MAX)?;
                let mut pair = || Ok((draw::bytes(u, 8)?, Self::drawn(u, depth - 1)?));
                Self::Map((0..count).map(|_| pair()).collect::<Result<_>>()?)
            }
        })
    }

    fn write(&self, out: &mut ReplyWriter<'_>) {
        let count = |len: usize| u32::try_from(len).expect("short");
        match self {
            Self::Nil => out.item(Item::Nil),
            Self::NoList => out.item(Item::NoList),
            Self::Ok => out.item(Item::Ok),
            Self::Word(word) => out.item(Item::Word(word)),
            Self::Error(text) => out.item(Item::Error(text)),
            Self::Number(number) => out.item(Item::Number(*number)),
            Self::Bytes(bytes) => out.item(Item::Bytes(bytes)),
            Self::Text(text) => out.item(Item::Text(text)),
            Self::List(replies) => {
                out.item(Item::List(count(replies.len())));
                replies.iter().for_each(|reply| reply.write(out));
            }
            Self::Set(members) => {
                out.item(Item::Set(count(members.len())));
                members.iter().for_each(|member| out.item(Item::Bytes(member)));
            }
            Self::Map(pairs) => {
                out.item(Item::Map(count(pairs.len())));
                pairs.iter().for_each(|(key, value)| {
                    out.item(Item::Bytes(key));
                    value.write(out);
                });
            }
        }
    }

    /// What the older protocol has for it.
    fn in_resp2(&self) -> Frame2 {
        match self {
            Self::Nil | Self::NoList => Frame2::Null,
            Self::Ok => Frame2::SimpleString(b"OK".to_vec()),
            Self::Word(word) => Frame2::SimpleString(in_one_line(word).into_bytes()),
            Self::Error(text) => Frame2::Error(in_one_line(text)),
            Self::Number(number) => Frame2::Integer(*number),
            Self::Bytes(bytes) => Frame2::BulkString(bytes.clone()),
            Self::Text(text) => Frame2::BulkString(text.clone().into_bytes()),
            Self::List(replies) => Frame2::Array(replies.iter().map(Self::in_resp2).collect()),
            Self::Set(members) => Frame2::Array(members.iter().cloned().map(Frame2::BulkString).collect()),
            Self::Map(pairs) => {
                let pairs = pairs.iter().flat_map(|(key, value)| [Frame2::BulkString(key.clone()), value.in_resp2()]);
                Frame2::Array(pairs.collect())
            }
        }
    }

    /// What the newer one has.
    fn in_resp3(&self) -> Frame3 {
        let attributes = None;
        let blob = |bytes: &[u8]| Frame3::BlobString { data: bytes.to_vec(), attributes: None };
        match self {
            Self::Nil | Self::NoList => Frame3::Null,
            Self::Ok => Frame3::SimpleString { data: b"OK".to_vec(), attributes },
            Self::Word(word) => Frame3::SimpleString { data: in_one_line(word).into_bytes(), attributes },
            Self::Error(text) => Frame3::SimpleError { data: in_one_line(text), attributes },
            Self::Number(number) => Frame3::Number { data: *number, attributes },
            Self::Bytes(bytes) => blob(bytes),
            Self::Text(text) => Frame3::VerbatimString {
                data: text.clone().into_bytes(),
                format: VerbatimStringFormat::Text,
                attributes,
            },
            Self::List(replies) => Frame3::Array { data: replies.iter().map(Self::in_resp3).collect(), attributes },
            Self::Set(members) => Frame3::Set { data: members.iter().map(|member| blob(member)).collect(), attributes },
            Self::Map(pairs) => Frame3::Map {
                data: pairs.iter().map(|(key, value)| (blob(key), value.in_resp3())).collect(),
                attributes,
            },
        }
    }
}

fn text(u: &mut Unstructured<'_>) -> Result<String> {
    Ok(String::from_utf8_lossy(&draw::bytes(u, 20)?).into_owned())
}

/// Words and errors have no line ends.
fn in_one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}

/// Replies that follow one another on a connection.
#[derive(Debug)]
pub struct RedisReplies {
    cut: u16,
    replies: Vec<Reply>,
}

impl<'a> Arbitrary<'a> for RedisReplies {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        const REPLIES_MAX: usize = 6;
        let (cut, mut replies) = (u.arbitrary()?, Vec::new());
        while !u.is_empty() && replies.len() < REPLIES_MAX {
            replies.push(Reply::drawn(u, reply::DEPTH_MAX)?);
        }
        Ok(Self { cut, replies })
    }
}

impl RedisReplies {
    /// Writes all replies in one protocol, and reads them as `decode` does: nothing, or a reply and its length.
    fn hold_in<F: PartialEq + std::fmt::Debug>(
        &self,
        protocol: Protocol,
        meant: impl Fn(&Reply) -> F,
        decode: impl Fn(&[u8]) -> Option<(F, usize)>,
    ) {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for reply in &self.replies {
            let mut items = Vec::new();
            reply.write(&mut ReplyWriter(&mut items));
            assert_eq!(reply::check(&items), Ok(()));
            resp::write(&items, protocol, &mut bytes);
            ends.push(bytes.len());
        }
        let mut begin = 0;
        for (reply, end) in self.replies.iter().zip(ends) {
            let rest = &bytes[begin..];
            assert_eq!(decode(rest), Some((meant(reply), end - begin)), "{}", rest.escape_ascii());
            // Whoever has a part of it waits for more.
            let part = &rest[..usize::from(self.cut) % (end - begin)];
            assert_eq!(decode(part), None, "{}", part.escape_ascii());
            begin = end;
        }
    }
}

impl Property for RedisReplies {
    const NAME: &'static str = "redis_replies";
    const INPUT_BYTES_MAX: usize = 300;
    const MEMORY_BYTES_MAX: usize = 32 << 20;

    fn hold(self) {
        self.hold_in(Protocol::Resp2, Reply::in_resp2, |bytes| decode2(bytes).expect("no error of framing"));
        self.hold_in(Protocol::Resp3, Reply::in_resp3, |bytes| decode3(bytes).expect("no error of framing"));
    }
}
