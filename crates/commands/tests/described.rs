//! `COMMAND` and its subcommands: what drivers ask for.

use kasha_commands::describe::{self, NoKeys};
use kasha_commands::reply::check;
use kasha_commands::{Command, Item, Items, ReplyWriter};

fn told(tell: impl FnOnce(&mut ReplyWriter<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    tell(&mut ReplyWriter(&mut bytes));
    assert_eq!(check(&bytes), Ok(()));
    bytes
}

fn items(bytes: &[u8]) -> Vec<Item<'_>> {
    Items::of(bytes).collect::<Result<_, _>>().expect("written here")
}

#[test]
fn all_commands_are_told() {
    let count = Command::ALL.iter().filter(|row| row.container().is_none()).count();
    let count = u32::try_from(count).expect("a few hundred");
    assert_eq!(items(&told(describe::all))[0], Item::List(count));
    assert_eq!(items(&told(describe::count)), [Item::Number(i64::from(count))]);
    let list = told(describe::list);
    assert_eq!(items(&list).len(), count as usize + 1);
    assert!(items(&list).contains(&Item::Bytes(b"mset")) && !items(&list).contains(&Item::Bytes(b"command|count")));
    assert_eq!(items(&told(|out| describe::docs(std::iter::empty(), out)))[0], Item::Map(count));
}

#[test]
fn one_command_is_told_as_redis_tells_it() {
    let get = told(|out| describe::info_of([&b"GET"[..], b"nothing"].into_iter(), out));
    let word = Item::Word;
    let bytes = |text: &'static str| Item::Bytes(text.as_bytes());
    let expected = [
        &[Item::List(2), Item::List(10), bytes("get"), Item::Number(2)][..],
        &[Item::Set(2), word("readonly"), word("fast"), Item::Number(1), Item::Number(1), Item::Number(1)],
        &[Item::Set(3), word("@read"), word("@string"), word("@fast"), Item::Set(0), Item::Set(1)],
        &[Item::Map(3), bytes("flags"), Item::Set(2), word("RO"), word("access"), bytes("begin_search")],
        &[Item::Map(2), bytes("type"), bytes("index"), bytes("spec"), Item::Map(1), bytes("index"), Item::Number(1)],
        &[bytes("find_keys"), Item::Map(2), bytes("type"), bytes("range"), bytes("spec"), Item::Map(3)],
        &[bytes("lastkey"), Item::Number(0), bytes("keystep"), Item::Number(1), bytes("limit"), Item::Number(0)],
        &[Item::Set(0), Item::Nil],
    ]
    .concat();
    assert_eq!(items(&get), expected);
}

#[test]
fn the_keys_of_a_request_are_told() {
    let keys = |request: &[&[u8]]| {
        let mut bytes = Vec::new();
        describe::keys_of(request, &mut ReplyWriter(&mut bytes)).map(|()| bytes)
    };
    let of_mset = keys(&[b"mset", b"a", b"1", b"b", b"2"]).expect("it has keys");
    assert_eq!(items(&of_mset), [Item::List(2), Item::Bytes(b"a"), Item::Bytes(b"b")]);
    let of_object = keys(&[b"OBJECT", b"Encoding", b"k"]).expect("it has a key");
    assert_eq!(items(&of_object), [Item::List(1), Item::Bytes(b"k")]);
    let of_once =
        keys(&[b"kasha.once", b"order", b"ttl", b"60", b"MSET", b"a", b"1", b"b", b"2"]).expect("it has keys");
    assert_eq!(of_once, of_mset);
    // Behind a key alone, TTL is the command.
    let of_ttl = keys(&[b"KASHA.ONCE", b"order", b"TTL", b"k"]).expect("it has a key");
    assert_eq!(of_ttl, of_object);
    assert_eq!(keys(&[b"kasha.once", b"order"]), Err(NoKeys::Words));
    assert_eq!(keys(&[b"kasha.once", b"order", b"exec"]), Err(NoKeys::None));
    assert_eq!(keys(&[b"kasha.once", b"order", b"kasha.once", b"order", b"get", b"k"]), Err(NoKeys::None));
    assert_eq!(keys(&[b"kasha.once", b"order", b"nothing", b"k"]), Err(NoKeys::NoCommand));
    assert_eq!(keys(&[b"nothing", b"k"]), Err(NoKeys::NoCommand));
    assert_eq!(keys(&[b"object", b"nothing", b"k"]), Err(NoKeys::NoCommand));
    assert_eq!(keys(&[b"get"]), Err(NoKeys::Words));
    assert_eq!(keys(&[b"ping"]), Err(NoKeys::None));
    assert_eq!(keys(&[b"object"]), Err(NoKeys::None));
    let flags = told(|out| {
        describe::keys_and_flags_of(&[b"del", b"k"], out).expect("it has a key");
    });
    let removes = [Item::Set(2), Item::Word("RM"), Item::Word("delete")];
    assert_eq!(items(&flags)[..3], [Item::List(1), Item::List(2), Item::Bytes(b"k")]);
    assert_eq!(items(&flags)[3..], removes);
}
