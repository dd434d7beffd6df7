//! `FLUSHDB` and `FLUSHALL` beside a cluster of two shards whose nodes a test speaks for.

use kasha_commands::Command;
use kasha_machine::Endpoint;
use kasha_types::ListVersion;
use kasha_wire::Level;
use kasha_wire::hot::RequestView;
use kasha_wire::operation::PartOperation;

use super::once::Sent;
use super::pages::World;

fn world() -> World {
    World::at(Level::COMMANDS, None)
}

/// How many tables this update flushes at the shard that it goes to.
fn flushes(update: &Sent) -> usize {
    let (body, view) = (update.body(), RequestView::decode(&update.payload).expect("a request"));
    let is_one = |operation: &PartOperation<'_>| matches!(operation, PartOperation::Command(command) if command.row().command == Command::FlushDb);
    assert_eq!(view.envelope.list, ListVersion::NONE, "R10.11: no witness holds it");
    assert!(body.touches_everything());
    let own = body.parts_at(view.envelope.shard).expect("it takes part");
    own.iter().filter(|part| is_one(&part.operation) && part.operation.touches_everything()).count()
}

#[test]
fn r10_15_a_flush_is_one_transaction_with_a_part_for_each_shard() {
    let mut world = world();
    for option in [&["FLUSHDB"][..], &["flushdb", "Async"], &["FLUSHDB", "SYNC"]] {
        world.ask(option);
        let updates = world.updates();
        assert_eq!(updates.iter().map(flushes).collect::<Vec<_>>(), [1, 1], "{option:?}");
        assert_eq!((&updates[0].body().head.rpc, &world.said[..]), (&updates[1].body().head.rpc, ""));
        world = self::world();
    }
    for wrong in [&["FLUSHDB", "now"][..], &["FLUSHDB", "sync", "async"]] {
        world.ask(wrong);
        assert_eq!(world.said, "-ERR syntax error\r\n+PONG\r\n", "{wrong:?}");
    }
}

/// Else a table that another front has made meanwhile would keep what its writer was told is there.
#[test]
fn r10_15_flushall_asks_first_which_tables_there_are() {
    for in_multi in [false, true] {
        let mut world = world();
        if in_multi {
            world.ask(&["MULTI"]);
            world.ask(&["FLUSHALL"]);
        }
        world.sent.clear();
        world.ask(&[if in_multi { "EXEC" } else { "FLUSHALL" }]);
        world.tick(200);
        assert!(world.updates().is_empty() && world.said.is_empty(), "{}", world.said);
        world.tell_configuration(Endpoint::Seed(0), Level::COMMANDS, None);
        assert!(world.updates().is_empty(), "a node may not know yet");
        world.tell_configuration(Endpoint::Coordinator, Level::COMMANDS, None);
        assert_eq!(world.updates().iter().map(flushes).collect::<Vec<_>>(), [1, 1]);
    }
}

#[test]
fn a_flush_stands_in_a_transaction_with_what_is_before_and_behind() {
    let mut world = world();
    for words in [&["MULTI"][..], &["SET", "a", "1"], &["FLUSHDB"], &["FLUSHDB", "never"], &["SET", "a", "2"]] {
        world.ask(words);
    }
    world.ask(&["EXEC"]);
    let updates = world.updates();
    assert_eq!(updates.iter().map(flushes).sum::<usize>(), 2);
    assert_eq!(world.said, "");
}

#[test]
fn r10_2_flushall_is_told_in_time_that_nobody_says_which_tables_there_are() {
    let mut world = world();
    world.ask(&["FLUSHALL"]);
    for _ in 0..30 {
        world.tick(100);
    }
    assert!(world.said.starts_with("-TRYAGAIN "), "{}", world.said);
    // What comes late is for nobody: the next one asks again.
    world.tell_configuration(Endpoint::Coordinator, Level::COMMANDS, None);
    world.sent.clear();
    world.ask(&["FLUSHALL"]);
    assert!(world.updates().is_empty());
}
