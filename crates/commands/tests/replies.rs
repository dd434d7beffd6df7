//! Replies: what was written is read, and any bytes are read or refused.

use kasha_commands::reply::{BadReply, DEPTH_MAX, check};
use kasha_commands::{Item, Items, ReplyWriter};
use proptest::prelude::*;

/// A reply as a tree.
#[derive(Clone, Debug, PartialEq)]
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
    Set(Vec<Self>),
    Map(Vec<(Self, Self)>),
}

impl Reply {
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
            Self::Set(replies) => {
                out.item(Item::Set(count(replies.len())));
                replies.iter().for_each(|reply| reply.write(out));
            }
            Self::Map(pairs) => {
                out.item(Item::Map(count(pairs.len())));
                pairs.iter().for_each(|(key, value)| {
                    key.write(out);
                    value.write(out);
                });
            }
        }
    }

    fn read(items: &mut Items<'_>) -> Self {
        match items.next().expect("a reply").expect("one that was written") {
            Item::Nil => Self::Nil,
            Item::NoList => Self::NoList,
            Item::Ok => Self::Ok,
            Item::Word(word) => Self::Word(word.to_owned()),
            Item::Error(text) => Self::Error(text.to_owned()),
            Item::Number(number) => Self::Number(number),
            Item::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Item::Text(text) => Self::Text(text.to_owned()),
            Item::List(count) => Self::List(Self::several(items, count)),
            Item::Set(count) => Self::Set(Self::several(items, count)),
            Item::Map(count) => Self::Map((0..count).map(|_| (Self::read(items), Self::read(items))).collect()),
        }
    }

    fn several(items: &mut Items<'_>, count: u32) -> Vec<Self> {
        (0..count).map(|_| Self::read(items)).collect()
    }
}

fn replies() -> impl Strategy<Value = Reply> {
    let line = "[A-Za-z0-9 :äß]{0,12}";
    let leaf = prop_oneof![
        Just(Reply::Nil),
        Just(Reply::NoList),
        Just(Reply::Ok),
        line.prop_map(Reply::Word),
        line.prop_map(Reply::Error),
        any::<i64>().prop_map(Reply::Number),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Reply::Bytes),
        any::<String>().prop_map(Reply::Text),
    ];
    leaf.prop_recursive(DEPTH_MAX as u32, 40, 4, |reply| {
        prop_oneof![
            prop::collection::vec(reply.clone(), 0..4).prop_map(Reply::List),
            prop::collection::vec(reply.clone(), 0..4).prop_map(Reply::Set),
            prop::collection::vec((reply.clone(), reply), 0..3).prop_map(Reply::Map),
        ]
    })
}

fn written(reply: &Reply) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply.write(&mut ReplyWriter(&mut bytes));
    bytes
}

proptest! {
    #[test]
    fn what_was_written_is_read(reply in replies()) {
        let bytes = written(&reply);
        prop_assert_eq!(check(&bytes), Ok(()));
        let mut items = Items::of(&bytes);
        prop_assert_eq!(Reply::read(&mut items), reply);
        prop_assert!(items.next().is_none());
    }

    #[test]
    fn a_part_of_a_reply_is_none(reply in replies(), at in any::<prop::sample::Index>()) {
        let bytes = written(&reply);
        prop_assert_eq!(check(&bytes[..at.index(bytes.len())]), Err(BadReply::Truncated));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let is_reply = check(&bytes).is_ok();
        prop_assert!(!is_reply || Items::of(&bytes).all(|item| item.is_ok()));
    }
}

#[test]
fn bad_replies_are_told_apart() {
    assert_eq!(check(&[]), Err(BadReply::Truncated));
    assert_eq!(check(&[11]), Err(BadReply::Kind(11)));
    assert_eq!(check(&[0, 0]), Err(BadReply::Trailing));
    assert_eq!(check(&[3, 1, 0, 0, 0, 0xff]), Err(BadReply::Text));
    assert_eq!(check(&[4, 2, 0, 0, 0, b'a', b'\n']), Err(BadReply::Text));
    assert_eq!(check(&[8, 0xff, 0xff, 0xff, 0xff]), Err(BadReply::Truncated));
    let nested = |depth: usize| {
        let mut bytes = [8, 1, 0, 0, 0].repeat(depth);
        bytes.push(0);
        bytes
    };
    assert_eq!(check(&nested(DEPTH_MAX)), Ok(()));
    assert_eq!(check(&nested(DEPTH_MAX + 1)), Err(BadReply::Depth));
}
