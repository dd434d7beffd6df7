//! A session as the master of a two-phase commit: it carries the votes, and waits for the executions.

#[allow(dead_code, reason = "each test file uses a part")]
use std::time::Duration;

use crate::common::{Net, Sent};
use kasha_client::Path;
use kasha_client::session::{CallId, CallOptions, Completion};
use kasha_types::ShardId;
use kasha_wire::frame::Kind;
use kasha_wire::message::{Told, Words};
use kasha_wire::operation::ItemsBuffer;
use kasha_wire::{OutcomeCode, Update};

/// A counter of shard 0, and one of shard 1.
const COUNTERS: [&[u8]; 2] = [b"a-low-slot-", b"foo"];

fn master() -> (Net, CallId) {
    let mut net = Net::open(|options| options.two_phase = true);
    let deltas = ItemsBuffer::deltas(COUNTERS.map(|key| (key, 1)));
    let id = net.update(&Update::MultiIncrement { deltas: deltas.as_items() }, &CallOptions::default());
    (net, id)
}

/// What the participants got, shard 0 first.
fn requests(net: &mut Net) -> [Sent; 2] {
    let mut sent = net.take(Kind::Request);
    sent.sort_by_key(|request| request.request().envelope.shard);
    sent.try_into().expect("one request to each participant")
}

/// A participant's answer about its one counter.
fn answer(code: OutcomeCode, vote: &[u8]) -> Vec<u8> {
    let part = [[0; 17].as_slice(), vote].concat();
    let len = (part.len() - vote.len()) as u32;
    [&[code as u8], &1u32.to_le_bytes()[..], &[0], &len.to_le_bytes(), &part].concat()
}

fn prepared(at: u64) -> Vec<u8> {
    answer(OutcomeCode::Prepared, &at.to_le_bytes())
}

/// To whom what is told, and in whose name.
fn told(net: &mut Net) -> Vec<(ShardId, ShardId, Told)> {
    let words: Vec<Words> = net.messages();
    words.into_iter().map(|words| (words.to, words.from, words.words[0].told)).collect()
}

#[test]
fn votes_are_carried_when_all_have_prepared_and_all_execute_before_the_caller_is_told() {
    let (mut net, id) = master();
    assert!(net.take(Kind::Record).is_empty(), "no witness takes part");
    let [low, high] = requests(&mut net);
    net.answer(&low, &prepared(5), true);
    assert_eq!(told(&mut net), []);
    net.answer(&high, &prepared(7), true);
    let mut heard = told(&mut net);
    heard.sort_by_key(|(to, ..)| *to);
    let votes = [(ShardId(0), ShardId(1), Told::Proposed(7)), (ShardId(1), ShardId(0), Told::Proposed(5))];
    assert_eq!(heard, votes);
    net.answer(&low, &answer(OutcomeCode::Done, &[]), true);
    assert_eq!(net.session.poll_completed(), None, "the other one has not executed it");
    net.answer(&high, &answer(OutcomeCode::Done, &[]), true);
    let completion = net.completion_of(id);
    assert!(matches!(completion, Completion::Executed { path: Path::Synced, .. }), "{completion:?}");
}

#[test]
fn a_conflict_is_carried_to_the_others_before_it_is_tried_again() {
    let (mut net, _) = master();
    let [low, high] = requests(&mut net);
    net.answer(&low, &prepared(5), true);
    net.answer(&high, &[OutcomeCode::Conflict as u8], true);
    assert_eq!(told(&mut net), [(ShardId(0), ShardId(1), Told::Conflict)]);
    net.pass(Duration::from_millis(30));
    let [low_again, _] = requests(&mut net);
    assert_ne!(low_again.rpc(), low.rpc());
}

/// A node of the usual mode appends no vote: its participants tell each other.
#[test]
fn without_votes_nothing_is_carried() {
    let (mut net, _) = master();
    let [low, high] = requests(&mut net);
    for request in [&low, &high] {
        net.answer(request, &answer(OutcomeCode::Prepared, &[]), true);
    }
    assert_eq!(told(&mut net), []);
    assert_eq!(net.session.poll_completed(), None, "they have not executed it");
}
