//! The cleaner at a primary that is its shard's only member.

use std::time::Duration;

use crate::common::{Core, Files, Heard, configuration, stories};
use kasha_machine::{Machine, Rng};
use kasha_types::{ClientId, ClusterTime, Epoch, Incarnation, NodeId};
use kasha_wire::frame::Kind;
use kasha_wire::status::Memory;
use kasha_wire::{Refusal, ShardPhase, Update, message};

const MIB: u64 = 1 << 20;

/// A client whose updates each acknowledge the one before.
struct Client {
    id: u64,
    sequence: u64,
}

impl Client {
    fn new(id: u64) -> Self {
        Self { id, sequence: 0 }
    }

    /// Sends an update until it is taken. Returns how often it was sent.
    fn update(&mut self, core: &mut Core, update: &Update<'_>) -> u32 {
        self.sequence += 1;
        for attempt in 1..200 {
            match core.update((self.id, self.sequence), self.sequence, update) {
                Some(Heard::Answer { .. }) => return attempt,
                None => {
                    let wakes = core.node.next_deadline().expect("it is parked");
                    assert!(
                        wakes <= core.now.after(Duration::from_millis(1)),
                        "nobody else wakes the core when there is room"
                    );
                    core.tick(20);
                }
                other => panic!("attempt {attempt}: {other:?}"),
            }
        }
        panic!("refused for ever");
    }
}

fn value_of(core: &mut Core, key: &[u8]) -> Option<Vec<u8>> {
    let Some(Heard::Read(read)) = core.get(key) else { panic!("a read is answered") };
    (read[0] == 0).then(|| read[9..].to_vec())
}

fn started_again(files: Files, memory: u64) -> Core {
    started_as(2, files, memory)
}

/// A new process, and a new term, on these files.
fn started_as(epoch: u32, files: Files, memory: u64) -> Core {
    let incarnation = Incarnation((u64::from(epoch) << 32) | 1);
    let mut again = Core::start_with(files, memory, |options| options.incarnation = incarnation);
    let version = u64::from(epoch) * 2;
    let mut recovering = configuration(version - 1, epoch, ShardPhase::Recovering);
    recovering.shards[0].recover_from = vec![NodeId(1)];
    again.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: recovering,
    });
    (0..200).for_each(|_| again.tick(30));
    again.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: configuration(version, epoch, ShardPhase::Serving),
    });
    again.heartbeat_answered();
    again.epoch = Epoch(epoch);
    again
}

/// Found from outside: a store filled up in seconds with a small part of it alive, since one cold key kept a whole segment.
#[test]
fn what_is_overwritten_never_fills_the_memory() {
    let memory = 64 * MIB;
    let mut core = Core::serving_with(memory);
    let mut client = Client::new(1);
    let filler = vec![b'x'; 50_000];
    let mut cold = Vec::new();
    // One key in eight is never written again; the others are, over and over.
    for number in 0..6_000_u32 {
        let key =
            if number % 8 == 0 && cold.len() < 400 { format!("cold {number}") } else { format!("hot {}", number % 7) };
        let value = [key.as_bytes(), &filler].concat();
        client.update(&mut core, &Update::put(key.as_bytes(), &value));
        if key.starts_with("cold") {
            cold.push(key);
        }
        if number % 50 == 0 {
            core.tick(20);
        }
    }
    let replica = &core.node.status(core.now).replicas[0];
    assert!(replica.memory_bytes <= memory + memory / 16 + 16 * MIB, "{replica:?}");
    assert_ne!(replica.memory, Memory::Full);
    for mut core in [started_again(core.shell.files.clone(), memory), core] {
        for key in &cold {
            let read = value_of(&mut core, key.as_bytes());
            assert!(read.is_some_and(|read| read.starts_with(key.as_bytes())), "{key}");
        }
    }
}

/// Only live data fills the memory; and what is deleted makes room.
#[test]
fn a_full_shard_comes_back_to_life_when_something_is_deleted() {
    let memory = 64 * MIB;
    let mut core = Core::serving_with(memory);
    let mut client = Client::new(1);
    let value = vec![b'x'; 100_000];
    let put = |core: &mut Core, client: &mut Client, number: u32| {
        let (key, mut refused) = (format!("k{number}"), None);
        client.sequence += 1;
        for _ in 0..100 {
            let update = Update::put(key.as_bytes(), &value);
            match core.update((client.id, client.sequence), client.sequence, &update) {
                Some(Heard::Answer { .. }) => return Ok(()),
                Some(Heard::Refused(why)) => refused = Some(why),
                other => panic!("{other:?}"),
            }
            core.tick(20);
        }
        Err(refused.expect("refused each time"))
    };
    let mut number = 0;
    let refused = loop {
        match put(&mut core, &mut client, number) {
            Ok(()) => number += 1,
            Err(why) => break why,
        }
    };
    assert_eq!(refused, Refusal::OutOfMemory);
    assert_eq!(core.node.status(core.now).replicas[0].memory, Memory::Full);
    for gone in 0..number / 2 {
        client.update(&mut core, &Update::delete(format!("k{gone}").as_bytes()));
    }
    for more in number..number + number / 4 {
        put(&mut core, &mut client, more).expect("there is room again");
    }
    assert_eq!(value_of(&mut core, b"k0"), None);
    assert_eq!(value_of(&mut core, format!("k{}", number - 1).as_bytes()), Some(value.clone()));
}

/// A result that a client has not acknowledged moves with the cleaner, and a retry gets the same bytes.
#[test]
fn e2_a_record_that_was_copied_answers_a_retry() {
    let memory = 64 * MIB;
    let mut core = Core::serving_with(memory);
    let incr = Update::increment(b"n", 5);
    let first = core.update((9, 1), 1, &incr);
    let mut client = Client::new(1);
    let filler = vec![b'x'; 50_000];
    for number in 0..4_000_u32 {
        let key = format!("k{}", number % 500);
        client.update(&mut core, &Update::put(key.as_bytes(), &filler));
        core.tick(1);
    }
    let freed = core.node.status(core.now).replicas[0].end.offset.0 / (8 * MIB);
    assert!(freed > 16, "the log went round");
    let Some(Heard::Answer { result, .. }) = first else { panic!("{first:?}") };
    for mut core in [started_again(core.shell.files.clone(), memory), core] {
        core.tick(50);
        assert!(matches!(core.update((9, 1), 1, &incr), Some(Heard::Answer { result: again, .. }) if again == result));
        assert_eq!(value_of(&mut core, b"n"), Some(b"5".to_vec()));
    }
}

#[test]
fn r5_12_a_damaged_segment_stops_its_node() {
    stories::a_damaged_segment_stops_its_node();
}

/// Results of a megabyte, kept for a client that never acknowledges: they fill the memory, that client and others are told so,
/// each of the results is still there, and all of it goes when the client acknowledges.
#[test]
fn results_that_nobody_acknowledges_are_kept_until_the_memory_is_full_and_no_longer() {
    let mut core = Core::serving_as(64 * MIB, |options| options.segment_bytes = 8 << 20);
    let value = |number: u64| vec![u8::try_from(number % 251).expect("small"); 1_000_000];
    let swap = |core: &mut Core, sequence: u64, acknowledged: u64| {
        for _ in 0..50 {
            let heard = core.update((9, sequence), acknowledged, &Update::get_and_put(b"k", &value(sequence)));
            if heard.is_some() {
                return heard;
            }
            core.tick(20);
        }
        panic!("busy for ever");
    };
    let holds = |result: &[u8], number: u64| result.ends_with(&value(number)[..100_000]);
    let mut last = 0;
    let refused = loop {
        match swap(&mut core, last + 1, 1) {
            Some(Heard::Answer { result, .. }) => assert!(last == 0 || holds(&result, last), "the value before"),
            other => break other,
        }
        last += 1;
    };
    assert_eq!(refused, Some(Heard::Refused(Refusal::OutOfMemory)));
    assert!((20..60).contains(&last), "{last} results of a megabyte in 64 MiB");
    let mut other = Client::new(1);
    other.update(&mut core, &Update::delete(b"of another client"));
    let retried = swap(&mut core, 2, 1);
    assert!(matches!(retried, Some(Heard::Answer { result, .. }) if holds(&result, 1)), "a retry gets its result");
    let heard = core.update((9, last + 2), last + 2, &Update::delete(b"k"));
    assert!(matches!(heard, Some(Heard::Answer { .. })), "{heard:?}");
    for number in 0..100 {
        other.update(&mut core, &Update::put(format!("k{}", number % 5).as_bytes(), &value(number)));
        core.tick(5);
    }
}

/// A node is started again with a limit below what lives: it says so and stops. With the old limit it has all of the data.
#[test]
fn a_limit_below_what_lives_stops_the_node_and_loses_nothing() {
    let mut core = Core::serving_with(192 * MIB);
    let (mut client, value) = (Client::new(1), vec![b'x'; 500_000]);
    let key = |number: u32| format!("k{number}");
    for number in 0..240 {
        client.update(&mut core, &Update::put(key(number).as_bytes(), &value));
    }
    let again = started_again(core.shell.files.clone(), 64 * MIB);
    assert!(again.shell.stopped.as_ref().is_some_and(|why| why.contains("K0407")), "{:?}", again.shell.stopped);
    let mut again = started_as(3, again.shell.files, 192 * MIB);
    for number in 0..240 {
        assert_eq!(value_of(&mut again, key(number).as_bytes()).map(|read| read.len()), Some(value.len()), "{number}");
    }
}

/// Found by scenario `cleaning`: where headers and the unused ends of segments take much of them, more was let in than cleaned
/// segments could hold. The cleaner then copied full segments about for ever, or left no room for any delete.
#[test]
fn r5_16_in_small_segments_new_data_is_refused_for_good_and_deletes_go_on() {
    let segment = 4096;
    let mut core = Core::serving_as(12 * segment, |options| options.segment_bytes = segment as u32);
    let (mut client, mut rng) = (Client::new(1), Rng::new(1));
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..1_500 {
        let (key, value) = (format!("k{}", rng.below(90)), vec![b'x'; rng.between(100, 700) as usize]);
        client.sequence += 1;
        let mut answers = (0..100).map(|_| {
            core.tick(20);
            let put = Update::put(key.as_bytes(), &value);
            core.update((client.id, client.sequence), client.sequence, &put)
        });
        match answers.find(Option::is_some) {
            Some(Some(Heard::Answer { .. })) => taken += 1,
            Some(Some(Heard::Refused(Refusal::OutOfMemory))) => {
                refused += 1;
                client.update(&mut core, &Update::delete(format!("k{}", rng.below(90)).as_bytes()));
            }
            Some(other) => panic!("{other:?}"),
            None => panic!("the cleaner promises room for ever, after {taken} updates"),
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
}

/// Found by scenario `operation_keys`, seed 1320: a delete that is kept under an operation key frees less than it takes. As a
/// delete it had the reserve to itself, and used the reserve up, until no delete found room.
#[test]
fn r5_16_a_delete_that_is_kept_under_an_operation_key_does_not_use_the_reserve() {
    let mut core = Core::serving_with(64 * MIB);
    let (value, mut sequence) = (vec![b'x'; 100_000], 0);
    let mut send = |core: &mut Core, key: Option<&[u8]>, update: &Update<'_>| {
        sequence += 1;
        for _ in 0..100 {
            let body = Core::body((1, sequence), sequence, key, update);
            match core.send(Kind::Request, &body) {
                None => core.tick(20), // it is parked
                heard => return heard,
            }
        }
        panic!("busy for ever");
    };
    let mut number = 0;
    while send(&mut core, None, &Update::put(format!("k{number}").as_bytes(), &value))
        != Some(Heard::Refused(Refusal::OutOfMemory))
    {
        number += 1;
    }
    // What was refused left some room. Deletes that are kept may take that, and not the reserve of two segments.
    let mut kept = |core: &mut Core, order: u32| {
        let heard = send(core, Some(format!("order {order}").as_bytes()), &Update::delete(b"absent"));
        heard != Some(Heard::Refused(Refusal::OutOfMemory))
    };
    let orders = (0..5_000).map_while(|order| kept(&mut core, order).then_some(order)).count();
    assert!(orders < 2_000, "{orders} deletes were kept");
    let deleted = send(&mut core, None, &Update::delete(b"k0"));
    assert!(matches!(deleted, Some(Heard::Answer { .. })), "{deleted:?}");
}

/// Found by a test with real processes: a repeat under an operation key was refused as not executed for want of memory, although
/// the operation had been executed.
#[test]
fn r4_9_a_repeat_finds_room_where_a_cancel_does() {
    let mut core = Core::serving_with(64 * MIB);
    let result = |heard: Option<Heard>| match heard {
        Some(Heard::Answer { result, .. }) => result,
        other => panic!("{other:?}"),
    };
    let increment = Update::increment(b"k", 5);
    let once = |client: u64| Core::body((client, 1), 1, Some(b"order-42"), &increment);
    let first = result(core.send(Kind::Request, &once(2)));
    let (mut client, mut number) = (Client::new(3), 0);
    for bytes in [100_000, 3_000, 1] {
        let value = vec![b'x'; bytes];
        let mut fill = || {
            (client.sequence, number) = (client.sequence + 1, number + 1);
            let key = format!("f{number}");
            let put = Update::put(key.as_bytes(), &value);
            (0..100).find_map(|_| {
                core.tick(20);
                core.update((client.id, client.sequence), client.sequence, &put)
            })
        };
        while fill() != Some(Heard::Refused(Refusal::OutOfMemory)) {}
    }
    assert_eq!(result(core.send(Kind::Request, &once(4))), first);
}

/// Records that nobody can acknowledge (the clients wait for another shard) use up the reserve of deletes. When the clients
/// acknowledge at last, the requests that say so are taken, and make room.
#[test]
fn r5_16_an_acknowledgement_is_heard_when_deletes_have_used_up_their_reserve() {
    let segment = 4096;
    let mut core = Core::serving_as(12 * segment, |options| options.segment_bytes = segment as u32);
    let send = |core: &mut Core, rpc: (u64, u64), acknowledged: u64, update: &Update<'_>| {
        for _ in 0..100 {
            match core.update(rpc, acknowledged, update) {
                None => core.tick(20), // it is parked
                Some(Heard::Refused(why)) => return Err(why),
                Some(Heard::Answer { .. }) => return Ok(()),
                other => panic!("{other:?}"),
            }
        }
        panic!("busy for ever");
    };
    let key = |number: u64| format!("k{number}");
    let put = |core: &mut Core, number: u64| {
        send(core, (1, number), number, &Update::put(key(number).as_bytes(), &[b'x'; 200]))
    };
    let puts = (1..).find(|&number| put(&mut core, number) == Err(Refusal::OutOfMemory)).expect("it fills");
    let absent = Update::delete(b"absent");
    let deletes = (1..400).find(|&sequence| send(&mut core, (2, sequence), 1, &absent).is_err());
    let refused = deletes.expect("their records use up the reserve");
    assert!(send(&mut core, (2, refused + 1), 1, &absent).is_err(), "it acknowledges nothing");
    assert_eq!(
        send(&mut core, (2, refused + 1), refused, &absent),
        Ok(()),
        "it frees the records of all deletes before"
    );
    let other = send(&mut core, (9, 1), 1, &Update::delete(key(1).as_bytes()));
    assert_eq!(other, Ok(()), "and makes room for others");
    assert!(put(&mut core, puts + 1).is_err(), "but not for new data");
}

/// A delete of what is not there, or its cancel. Its record stays until its client acknowledges it.
fn end_a_delete(core: &mut Core, kind: Kind, rpc: (u64, u64), acknowledged: u64) -> Result<Vec<u8>, Refusal> {
    let body = Core::body(rpc, acknowledged, None, &Update::delete(b"absent"));
    for _ in 0..100 {
        match core.send(kind, &body) {
            None => core.tick(20), // it is parked
            Some(Heard::Refused(why)) => return Err(why),
            Some(Heard::Answer { result, .. }) => return Ok(result),
            other => panic!("{other:?}"),
        }
    }
    panic!("busy for ever");
}

/// A core whose memory takes no new data, and which knows many clients.
fn full_core() -> Core {
    let segment = 4096;
    let mut core = Core::serving_as(12 * segment, |options| options.segment_bytes = segment as u32);
    let (sent, clients_below, cluster_time) = (core.now, ClientId(100_000), ClusterTime(1000));
    core.message(message::HeartbeatAnswer {
        sent,
        lease_millis: 6_000_000,
        cluster_time,
        clients_below,
        view: kasha_types::ViewNumber(1),
    });
    let (mut client, value) = (Client::new(1), [b'x'; 200]);
    loop {
        client.sequence += 1;
        let key = format!("k{}", client.sequence);
        let put = Update::put(key.as_bytes(), &value);
        let mut heard = (0..100).map(|_| {
            core.tick(20);
            core.update((client.id, client.sequence), client.sequence, &put)
        });
        if heard.find(Option::is_some) == Some(Some(Heard::Refused(Refusal::OutOfMemory))) {
            return core;
        }
    }
}

/// Found by scenario `partition`, seed 903549478: a client's second update was lost while hundreds that followed were answered. Their
/// records used up the reserve of deletes, so that the second could neither run nor be cancelled, and its client acknowledged nothing.
/// A body says for ever what was acknowledged when it was built (R2.1).
#[test]
fn r5_16_what_holds_an_acknowledgement_up_finds_room_when_deletes_have_used_up_their_reserve() {
    let mut core = full_core();
    // The first update of client 2 is under way for ever.
    let refused = (2..400).find(|&sequence| end_a_delete(&mut core, Kind::Request, (2, sequence), 1).is_err());
    let refused = refused.expect("their records use up the reserve");
    assert!(end_a_delete(&mut core, Kind::Cancel, (3, 1), 1).is_err(), "it holds nobody up");
    assert!(end_a_delete(&mut core, Kind::Cancel, (2, refused), 1).is_err(), "an older one holds its client up");
    assert_eq!(end_a_delete(&mut core, Kind::Cancel, (2, 1), 1), Ok(vec![6]), "it never ran, and never will");
    assert!(end_a_delete(&mut core, Kind::Cancel, (2, refused), 1).is_ok(), "all before it is over");
    assert!(
        end_a_delete(&mut core, Kind::Request, (2, refused + 1), refused + 1).is_ok(),
        "its client acknowledges all"
    );
    assert!(end_a_delete(&mut core, Kind::Cancel, (3, 1), 1).is_ok(), "and makes room for others");
}

/// Each of many clients has one record, which its first update holds up. The ends of those must not use up the room that the
/// acknowledgements need.
#[test]
fn r5_16_acknowledgements_find_room_when_many_clients_have_ended_what_held_them_up() {
    let mut core = full_core();
    let has_record = |core: &mut Core, client| end_a_delete(core, Kind::Request, (client, 2), 1).is_ok();
    let clients: Vec<u64> = (2..4000).take_while(|&client| has_record(&mut core, client)).collect();
    let ends = |core: &mut Core| {
        clients.iter().filter(|&&client| end_a_delete(core, Kind::Cancel, (client, 1), 1).is_ok()).count()
    };
    let ended = ends(&mut core);
    assert!(ended > 2 && ended < clients.len() / 2, "{ended} of {} found room", clients.len());
    (0..20).for_each(|_| core.tick(100));
    let heard = |&&client: &&u64| end_a_delete(&mut core, Kind::Request, (client, 3), 3).is_ok();
    assert_eq!(clients.iter().filter(heard).count(), clients.len(), "each frees more than it takes");
}
