//! R7.7: the operator gives up what a recovery waits for. The command is refused wherever it could lose an update
//! without need.
#![allow(missing_docs)]

use crate::common::*;
use kasha_types::{Epoch, ListVersion, NodeId, ShardId};
use kasha_wire::message::{Missing, Report};
use kasha_wire::{AnyMessage, ShardPhase, message};

const SHARD: ShardId = ShardId(0);

fn nodes(numbers: &[u16]) -> Vec<NodeId> {
    numbers.iter().copied().map(NodeId).collect()
}

fn ask(world: &mut World, seen: Option<Missing>) -> Result<Missing, String> {
    let answers = world.ask(CLIENT, &message::GiveUp { nonce: 5, shard: SHARD, seen });
    let answer = answers.into_iter().find_map(|message| match message {
        AnyMessage::GivenUp(message::GivenUp { nonce: 5, missing, refused }) => Some((missing, refused)),
        _ => None,
    });
    match answer.expect("an answer") {
        (Some(missing), None) => Ok(missing),
        (None, Some(why)) => Err(why),
        other => panic!("neither: {other:?}"),
    }
}

fn needs_witness(world: &World, members: &[u16], witnesses: &[u16]) -> Report {
    let (unheard_members, unheard_witnesses) = (nodes(members), nodes(witnesses));
    Report::NeedsWitness { shard: SHARD, epoch: world.shard(0).epoch, unheard_members, unheard_witnesses }
}

fn needs_members(world: &World, unheard: &[u16], has_copy: bool) -> Report {
    Report::NeedsMembers { shard: SHARD, epoch: world.shard(0).epoch, unheard: nodes(unheard), has_copy }
}

/// f = 2. Node 1 was the shard's primary, with the backups 2 and 3 and the witnesses 4 and 5. It is lost, and node 2 is
/// to recover the shard.
fn recovering() -> World {
    let mut world = World::serving(6, 1, 2);
    world.reporting = false;
    world.node(1).up = false;
    world.run(1300);
    let shard = world.shard(0);
    assert_eq!((shard.primary, shard.epoch, shard.phase), (NodeId(2), Epoch(2), ShardPhase::Recovering));
    assert_eq!((shard.recover_from.clone(), shard.witnesses.clone()), (nodes(&[1, 2, 3]), nodes(&[4, 5])));
    world
}

fn lose(world: &mut World, ids: &[u16]) {
    for &id in ids {
        world.node(id).up = false;
        world.run(3000); // one after the other: many silences at once are ours
    }
    let lost = |id: &u16| world.config().node(NodeId(*id)).is_some_and(|info| !info.alive);
    assert!(ids.iter().all(lost), "{:?}", world.config().nodes);
}

/// The question and the command are both refused with these words, and nothing changes.
fn refused(world: &mut World, words: &str) {
    let before = world.coordinator.state().applied();
    let shard = world.shard(0).clone();
    let missing = |members, witnesses| Some(Missing { epoch: shard.epoch, members, witnesses });
    let seen = [None, missing(Vec::new(), shard.witnesses.clone()), missing(nodes(&[1]), Vec::new())];
    for seen in seen {
        let why = ask(world, seen).expect_err("it must be refused");
        assert!(why.contains(words) && why.contains("(K0506)"), "{why}, but not {words}");
    }
    assert_eq!(world.coordinator.state().applied(), before);
}

#[test]
fn r7_7_what_serves_or_does_not_say_that_it_waits_is_left_alone() {
    let mut world = World::serving(6, 1, 2);
    refused(&mut world, "shard-0 serves");
    let mut world = recovering();
    refused(&mut world, "the recovery of shard-0 goes on");
    lose(&mut world, &[4, 5]);
    let lack = needs_witness(&world, &[1], &[4, 5]);
    for from in [3, 6] {
        world.beat(from, 0, vec![lack.clone()]);
        refused(&mut world, "the recovery of shard-0 goes on"); // not its primary's word
    }
    world.beat(
        2,
        0,
        vec![Report::NeedsWitness {
            shard: SHARD,
            epoch: Epoch(1),
            unheard_members: vec![],
            unheard_witnesses: vec![],
        }],
    );
    refused(&mut world, "the recovery of shard-0 goes on"); // another term's
    let unknown = world.ask(CLIENT, &message::GiveUp { nonce: 1, shard: ShardId(7), seen: None });
    assert!(
        matches!(&unknown[..], [AnyMessage::GivenUp(message::GivenUp { missing: None, refused: Some(why), .. })] if why.contains("no shard-7"))
    );
    world.beat(2, 0, vec![lack]);
    assert!(ask(&mut world, None).is_ok());
    world.run(1200);
    refused(&mut world, "the recovery of shard-0 goes on"); // its word is older than a lease
}

#[test]
fn r7_7_witnesses_are_given_up_and_the_list_keeps_its_version() {
    let mut world = recovering();
    lose(&mut world, &[4, 5]);
    world.beat(2, 0, vec![needs_witness(&world, &[1], &[4, 5])]);
    let missing = ask(&mut world, None).unwrap();
    assert_eq!(missing, Missing { epoch: Epoch(2), members: vec![], witnesses: nodes(&[4, 5]) });
    assert_eq!(world.shard(0).epoch, Epoch(2), "it was only asked");
    assert_eq!(ask(&mut world, Some(missing.clone())), Ok(missing.clone()));
    assert_eq!(world.summary(0), (Epoch(3), NodeId(2), ShardPhase::Recovering, ListVersion(1)));
    assert!(world.shard(0).witnesses.is_empty());
    assert_eq!(world.shard(0).recover_from, nodes(&[1, 2, 3]), "a whole log that turns up counts");
    let again = ask(&mut world, Some(missing)).expect_err("it was done");
    assert!(again.contains("goes on"), "{again}");
    world.restart();
    assert_eq!(world.summary(0), (Epoch(3), NodeId(2), ShardPhase::Recovering, ListVersion(1)));
}

#[test]
fn r7_7_members_are_given_up_and_the_witnesses_are_still_asked() {
    let mut world = recovering();
    world.beat(2, 0, vec![needs_members(&world, &[1], true)]);
    let missing = ask(&mut world, None).unwrap();
    assert_eq!(missing, Missing { epoch: Epoch(2), members: nodes(&[1]), witnesses: vec![] });
    let other = Missing { members: nodes(&[3]), ..missing.clone() };
    assert!(ask(&mut world, Some(other)).expect_err("not what it waits for").contains("something else"));
    let earlier = Missing { epoch: Epoch(1), ..missing.clone() };
    assert!(ask(&mut world, Some(earlier)).expect_err("another term's").contains("something else"));
    assert_eq!(ask(&mut world, Some(missing.clone())), Ok(missing));
    assert_eq!(world.summary(0), (Epoch(3), NodeId(2), ShardPhase::Recovering, ListVersion(1)));
    assert_eq!(world.shard(0).recover_from, nodes(&[2, 3]));
    assert_eq!(world.shard(0).witnesses, nodes(&[4, 5]));
    world.restart_and_listen();
    assert_eq!(world.shard(0).recover_from, nodes(&[2, 3]));
    world.beat(2, 0, vec![Report::Recovered { shard: SHARD, epoch: Epoch(3) }]);
    assert_eq!(world.shard(0).phase, ShardPhase::Serving);
}

/// A leader that has just begun has overheard, or remembers, who is alive; what it has not heard itself is no silence yet.
#[test]
fn r9_15_nothing_is_given_up_within_a_lease_of_the_beginning_of_a_lead() {
    let mut world = recovering();
    lose(&mut world, &[4, 5]);
    world.restart_and_listen();
    let lack = needs_witness(&world, &[1], &[4, 5]);
    let began = world.now;
    let mut first = None;
    while world.now.since(began).as_millis() < 3000 {
        world.beat_all();
        world.beat(2, 0, vec![lack.clone()]);
        match ask(&mut world, None) {
            Err(why) => assert!(first.is_none() && why.contains("just begun to lead"), "{why}"),
            Ok(_) => first = first.or(Some(world.now.since(began))),
        }
        world.run(100);
    }
    let (first, lease) = (first.expect("it may be given up later"), world.options.node_lease);
    assert!(first + std::time::Duration::from_millis(500) >= lease, "{first:?}");
    let missing = ask(&mut world, None).unwrap();
    assert_eq!(ask(&mut world, Some(missing.clone())), Ok(missing));
}

#[test]
fn r7_7_a_member_that_is_alive_must_speak_first() {
    let mut world = recovering();
    lose(&mut world, &[4, 5]);
    for lack in [needs_witness(&world, &[1, 3], &[4, 5]), needs_members(&world, &[1, 3], true)] {
        world.beat(2, 0, vec![lack]);
        refused(&mut world, "node-3 is alive, and has not said what its log holds");
    }
}

#[test]
fn r7_7_a_witness_that_is_alive_must_speak_first() {
    let mut world = recovering();
    lose(&mut world, &[4]);
    world.beat(2, 0, vec![needs_witness(&world, &[1], &[4, 5])]);
    refused(&mut world, "node-5 is alive, and has not said what its witness holds");
    world.beat(2, 0, vec![needs_witness(&world, &[1], &[4])]);
    assert!(ask(&mut world, None).is_ok(), "it has said that it lost something");
}

/// The node is silent, and the configuration does not call it lost yet: many nodes are silent at once, so we may be cut
/// off.
#[test]
fn r7_7_who_is_not_lost_yet_is_alive() {
    let mut world = recovering();
    lose(&mut world, &[4, 5]);
    (world.node(3).up, world.node(6).up) = (false, false);
    world.run(1500);
    assert!(world.config().node(NodeId(3)).unwrap().alive);
    world.beat(2, 0, vec![needs_members(&world, &[1, 3], true)]);
    refused(&mut world, "node-3 is alive, and has not said what its log holds");
}

/// The configuration calls the node lost, and it was not taken back yet, but we or other nodes hear it.
#[test]
fn r7_7_who_has_come_back_a_moment_ago_is_alive() {
    for only_others_hear_it in [false, true] {
        let mut world = recovering();
        world.node(1).up = true;
        if only_others_hear_it {
            world.hidden.insert(1);
        } else {
            world.cuts.extend((2..=6).map(|other| (1, other)));
        }
        world.run(if only_others_hear_it { 800 } else { 100 });
        assert!(!world.config().node(NodeId(1)).unwrap().alive);
        world.beat(2, 0, vec![needs_members(&world, &[1], true)]);
        refused(&mut world, "node-1 is alive, and has not said what its log holds");
    }
}

#[test]
fn r7_7_the_word_of_an_earlier_term_is_over() {
    let mut world = recovering();
    world.run(4000); // complaints count
    let lack = needs_members(&world, &[1], true);
    world.beat(2, 0, vec![lack]);
    assert!(ask(&mut world, None).is_ok());
    world.beat(2, 0, vec![Report::Stuck { shard: SHARD, epoch: Epoch(2) }]);
    assert_eq!((world.shard(0).primary, world.shard(0).epoch), (NodeId(3), Epoch(3)));
    refused(&mut world, "the recovery of shard-0 goes on");
}

#[test]
fn r7_7_without_a_complete_copy_there_is_nothing_to_go_on_with() {
    let mut world = recovering();
    lose(&mut world, &[3]);
    world.beat(2, 0, vec![needs_members(&world, &[1, 3], false)]);
    refused(&mut world, "holds a complete copy");
}

/// A node may report anything. Whatever it names, the shard keeps its primary and the members that it may recover from.
#[test]
fn r7_7_false_words_take_no_more_than_what_is_there() {
    let mut world = recovering();
    world.beat(2, 0, vec![needs_members(&world, &[], true)]);
    refused(&mut world, "the recovery of shard-0 goes on");
    world.beat(2, 0, vec![needs_members(&world, &[1, 1, 77], true)]);
    let missing = ask(&mut world, None);
    if let Ok(missing) = missing {
        ask(&mut world, Some(missing)).unwrap();
        assert_eq!(world.shard(0).recover_from, nodes(&[2, 3]));
    }
    let mut world = recovering();
    world.beat(2, 0, vec![needs_witness(&world, &[], &[])]);
    let missing = ask(&mut world, None).unwrap();
    ask(&mut world, Some(missing)).unwrap();
    let epoch = world.shard(0).epoch;
    world.beat(
        2,
        0,
        vec![Report::NeedsWitness { shard: SHARD, epoch, unheard_members: vec![], unheard_witnesses: vec![] }],
    );
    refused(&mut world, "the recovery of shard-0 goes on"); // the list is empty
}

/// The operator runs the command again while the coordinator's disk has not answered the first one. (This ended the process: what was
/// committed was compared, and what is decided was changed.)
#[test]
fn r7_7_a_command_that_comes_again_before_it_is_committed_changes_nothing_more() {
    let mut world = recovering();
    world.beat(2, 0, vec![needs_witness(&world, &[], &[4, 5])]);
    lose(&mut world, &[4, 5]);
    world.beat(2, 0, vec![needs_witness(&world, &[], &[4, 5])]);
    let missing = ask(&mut world, None).unwrap();
    let epoch = world.shard(0).epoch;
    world.fast_disk = false;
    let question = message::GiveUp { nonce: 5, shard: SHARD, seen: Some(missing) };
    assert!(world.ask(CLIENT, &question).is_empty(), "it waits for the disk");
    assert!(world.ask(CLIENT, &question).is_empty(), "so does this");
    world.fast_disk = true;
    world.run(100);
    assert_eq!(world.shard(0).epoch, epoch.next());
}
