//! R4.10: one update that cannot finish stops neither the other shards' updates nor the session.

#[allow(dead_code, reason = "shared with the tests of the session")]
use std::collections::BTreeSet;
use std::time::Duration;

use crate::common::{CANCELLED, CLIENT, DONE, Net, Sent, TABLE, core};
use kasha_client::limits::{ATTEMPT_TIMEOUT, CALLS_MAX, IDENTITIES_MAX};
use kasha_client::session::{CallId, CallOptions, Completion, WaitsFor, WhyNot, WhyUnknown};
use kasha_machine::Endpoint;
use kasha_types::limits::OUTSTANDING_MAX;
use kasha_types::{AckedBelow, ClientId, ClusterTime, ConfigVersion, Epoch, NodeId, ShardId, TableId};
use kasha_wire::message::TableOutcome;
use kasha_wire::operation::ItemsBuffer;
use kasha_wire::{AnyMessage, Kind, Read, Update, message};

const SECOND: Duration = Duration::from_secs(1);
const SPARE: ClientId = ClientId(8);
/// A participant has put its part, whose version is 1.
const DONE_PART: &[u8] = &[0, 1, 0, 0, 0, 1, 9, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// An update of shard 1; those of [`Net::put`] are shard 0's.
fn put_high(net: &mut Net) -> CallId {
    net.update(&Update::put(b"foo", b"v"), &CallOptions::default())
}

/// Puts to shard 1, each answered at once. Every one of them is sent at once.
fn put_high_and_answer(net: &mut Net, count: u64) -> Vec<Sent> {
    put_and_answer(net, b"foo", count)
}

/// The same, of this key.
fn put_and_answer(net: &mut Net, key: &[u8], count: u64) -> Vec<Sent> {
    let put = |net: &mut Net, number| {
        let update = Update::put(key, b"v");
        let id = net.update(&update, &CallOptions::default());
        let mut requests = net.take(Kind::Request);
        requests.retain(|request| request.body().update == update);
        assert_eq!(requests.len(), 1, "put {number} to a shard that answers is sent at once");
        net.answer(&requests[0], DONE, true);
        assert!(net.completed().iter().any(|(call, how)| *call == id && matches!(how, Completion::Executed { .. })));
        net.take(Kind::Record);
        requests.remove(0)
    };
    (0..count).map(|number| put(net, number)).collect()
}

/// A busy session of two shards, with a second id.
fn busy() -> Net {
    let mut net = Net::open(|_| ());
    let id = net.put();
    let request = net.take_one(Kind::Request);
    net.answer(&request, DONE, true);
    assert_eq!(net.completed().pop().map(|(call, _)| call), Some(id));
    put_high_and_answer(&mut net, OUTSTANDING_MAX / 2);
    net.open_session(SPARE);
    net.sent.clear();
    assert_eq!(net.session.clients().collect::<Vec<_>>(), [CLIENT, SPARE]);
    net
}

/// The same, with an update to shard 0 that does not end, and another id that numbers updates.
fn held_up() -> (Net, CallId, Sent) {
    let mut net = busy();
    let stuck = net.put();
    let request = net.take_one(Kind::Request);
    put_high_and_answer(&mut net, 2 * OUTSTANDING_MAX);
    assert_eq!(net.session.client(), Some(SPARE));
    net.sent.clear();
    (net, stuck, request)
}

fn renew(net: &mut Net, client: ClientId) {
    let (lease_expiry, cluster_time) = (ClusterTime(1_000_000), ClusterTime(700_000));
    net.message(Endpoint::Coordinator, &message::LeaseRenewed { client, lease_expiry, cluster_time });
}

#[test]
fn r4_10_one_stuck_update_stops_no_other_shard() {
    let mut net = Net::open(|_| ());
    net.put();
    let mut opened = CLIENT.0;
    for _ in 0..4000 {
        put_high_and_answer(&mut net, 1);
        let asks = |sent: &Sent| sent.to == Endpoint::Coordinator && sent.kind == Kind::Message;
        if net.sent.iter().any(asks) && opened == CLIENT.0 {
            opened += 1;
            net.open_session(ClientId(opened));
        }
        net.sent.clear();
    }
    assert_eq!(net.session.client(), Some(SPARE));
}

#[test]
fn r4_10_an_update_of_several_shards_that_hangs_holds_back_its_like_and_no_shard() {
    let mut net = busy();
    let low = b"a-low-slot-";
    let pairs = ItemsBuffer::pairs([(&low[..], &b"v"[..]), (b"foo", b"v")]);
    let of_both = Update::MultiPut { pairs: pairs.as_items() };
    // Shard 1 is away. So shard 0, which waits for its vote, does not answer either.
    let stuck = net.update(&of_both, &CallOptions::default());
    let requests = net.take(Kind::Request);
    assert_eq!(requests.len(), 2);
    put_and_answer(&mut net, low, 2 * OUTSTANDING_MAX);
    assert_eq!(net.session.client(), Some(SPARE));
    let second = net.update(&of_both, &CallOptions::default());
    assert!(net.take(Kind::Request).is_empty(), "it would hold up another id");
    put_high(&mut net);
    assert_eq!(
        net.take_one(Kind::Request).body().head.rpc.client,
        CLIENT,
        "whether shard 1 answers is tried out there"
    );

    for request in &requests {
        net.answer(request, DONE_PART, true);
    }
    let ended: Vec<_> = net.completed().into_iter().map(|(call, _)| call).collect();
    assert_eq!(ended, [stuck]);
    assert_eq!(net.take(Kind::Request).len(), 2, "{second:?} is sent");
}

#[test]
fn r4_10_the_second_id_is_there_before_the_coordinator_goes() {
    let mut net = busy();
    net.put();
    net.take(Kind::Request);
    put_high_and_answer(&mut net, 5000);
    assert_eq!(net.session.client(), Some(SPARE));
}

#[test]
fn r4_10_a_session_that_keeps_no_spare_has_one_id_while_nothing_is_held_up() {
    let mut net = Net::open(|options| options.keeps_spare = false);
    put_high_and_answer(&mut net, 5000);
    assert!(net.messages::<AnyMessage>().is_empty());
}

#[test]
fn r4_10_what_is_for_the_shard_that_holds_up_waits_without_a_number() {
    let (mut net, stuck, request) = held_up();
    let held = net.put();
    let shard = WaitsFor::Shard { shard: ShardId(0), primary: NodeId(1) };
    net.pass(29 * SECOND);
    assert!(net.take(Kind::Request).iter().all(|sent| sent.rpc() == request.rpc()), "retries of the stuck one only");
    let other = net.put();
    net.pass(2 * SECOND);
    let mut ended = net.completed();
    ended.sort_by_key(|(call, _)| *call);
    let mut expected = [
        (stuck, Completion::Unknown(WhyUnknown::DeadlinePassed)),
        (held, Completion::NotExecuted(WhyNot::DeadlineBeforeSend(shard))),
    ];
    expected.sort_by_key(|(call, _)| *call);
    assert_eq!(ended, expected);
    let text = WhyNot::DeadlineBeforeSend(shard).to_string();
    assert!(text.contains("shard-0") && text.contains("node-1") && text.contains("K0310"), "{text}");
    let last = net.take(Kind::Request).pop().expect("it goes on");
    net.answer(&last, DONE, true);
    assert!(matches!(net.session.resolve(stuck), Some(Completion::Executed { .. })));
    let request = net.take_one(Kind::Request);
    net.answer(&request, DONE, true);
    assert_eq!(net.completed().pop().map(|(call, _)| call), Some(other), "the shard answers again");
}

/// Found by a reading: what had waited for a shard passed its deadline while other shards kept the window half full.
#[test]
fn r4_10_what_was_held_back_starts_in_its_order_however_busy_the_session_is() {
    let (mut net, _, request) = held_up();
    let held: Vec<_> = (0..3).map(|_| net.put()).collect();
    let busy = OUTSTANDING_MAX * 3 / 4;
    (0..busy).for_each(|_| _ = put_high(&mut net));
    let mut of_others = net.take(Kind::Request);
    assert_eq!(of_others.len() as u64, busy);
    net.answer(&request, DONE, true);
    let late = net.put();
    let mut answered = Vec::new();
    for _ in 0..4 {
        // One call of another shard ends and one begins: the window is never half free.
        net.answer(&of_others.pop().expect("there are many"), DONE, true);
        put_high(&mut net);
        for sent in net.take(Kind::Request) {
            if sent.body().update == (Update::put(b"foo", b"v")) {
                of_others.insert(0, sent);
            } else {
                net.answer(&sent, DONE, true);
            }
        }
        answered.extend(
            net.completed().into_iter().map(|(call, _)| call).filter(|call| held.contains(call) || *call == late),
        );
    }
    assert_eq!(answered, [&held[..], &[late]].concat());
}

#[test]
fn r4_10_a_shard_of_which_nothing_was_heard_since_is_tried_under_the_held_up_id() {
    let mut net = busy();
    let stuck = net.put();
    net.take(Kind::Request);
    // Nothing was asked of shard 1 when the window closed: it may have gone with shard 0.
    let all: Vec<_> = (1..OUTSTANDING_MAX).map(|_| net.put()).collect();
    net.pass(Duration::from_millis(70));
    assert_eq!((net.session.client(), all.len()), (Some(SPARE), 511));
    net.sent.clear();
    assert_eq!(put_high_and_answer(&mut net, 3).iter().map(|sent| sent.rpc().client).collect::<Vec<_>>(), [SPARE; 3]);
    net.session.abandon(stuck);

    let mut net = busy();
    net.put();
    for _ in 0..OUTSTANDING_MAX - OUTSTANDING_MAX / 8 - 1 {
        net.put();
    }
    net.pass(Duration::from_millis(70));
    assert_eq!(net.session.client(), Some(SPARE));
    net.sent.clear();
    let [first, second, third] = [0; 3].map(|_| put_high(&mut net));
    let request = net.take_one(Kind::Request);
    assert_eq!(request.rpc().client, CLIENT, "the first one tries the shard");
    net.answer(&request, DONE, true);
    let rest = net.take(Kind::Request);
    assert_eq!(rest.iter().map(|sent| sent.rpc().client).collect::<Vec<_>>(), [SPARE; 2]);
    rest.iter().for_each(|request| net.answer(request, DONE, true));
    assert_eq!(net.completed().iter().map(|(call, _)| *call).collect::<Vec<_>>(), [first, second, third]);
}

#[test]
fn r4_10_an_id_is_renewed_while_something_is_open_under_it_and_then_tells_its_last_acknowledgement() {
    let (mut net, _, request) = held_up();
    for _ in 0..3 {
        net.pass(101 * SECOND);
        let renews = net.messages();
        assert!(renews.contains(&message::RenewLease { client: CLIENT }), "{renews:?}");
        assert!(renews.contains(&message::RenewLease { client: SPARE }), "{renews:?}");
        [CLIENT, SPARE].into_iter().for_each(|client| renew(&mut net, client));
    }
    let ahead = ClientId(9);
    net.pass(2 * SECOND);
    net.open_session(ahead);
    net.answer(&request, DONE, true);
    net.sent.clear();
    let told = put_high_and_answer(&mut net, 2);
    assert_eq!(told.iter().map(|sent| sent.rpc().client).collect::<Vec<_>>(), [CLIENT, SPARE]);
    let last = told[0].rpc().sequence.0;
    assert_eq!(told[0].body().head.acknowledgement, AckedBelow(last), "all below has ended");
    net.pass(101 * SECOND);
    assert!(!net.messages().contains(&message::RenewLease { client: CLIENT }));
    assert_eq!(net.session.clients().collect::<Vec<_>>(), [SPARE, ahead]);
}

#[test]
fn r4_10_the_loss_of_a_lease_is_one_ids() {
    let (mut net, stuck, _) = held_up();
    let (held, high) = (net.put(), put_high(&mut net));
    net.message(Endpoint::Coordinator, &message::LeaseLost { client: CLIENT });
    assert_eq!(net.completion_of(stuck), Completion::Unknown(WhyUnknown::LeaseLost));
    let requests = net.take(Kind::Request);
    assert_eq!(requests.len(), 2, "the one to shard 1, and the one that waited for shard 0");
    requests.iter().for_each(|request| {
        assert_eq!(request.rpc().client, SPARE);
        net.answer(request, DONE, true);
    });
    assert_eq!(net.completed().iter().map(|(call, _)| *call).collect::<Vec<_>>(), [high, held]);
    net.message(Endpoint::Coordinator, &message::LeaseLost { client: SPARE });
    assert_eq!(net.session.client(), None);
    assert!(!net.session.is_open());
    let next = put_high(&mut net);
    net.open_session(ClientId(10));
    let request = net.take_one(Kind::Request);
    net.answer(&request, DONE, true);
    assert_eq!(net.completed().pop().map(|(call, _)| call), Some(next));
}

#[test]
fn r4_10_when_the_numbering_id_is_lost_the_other_goes_on() {
    let (mut net, stuck, request) = held_up();
    let high = put_high(&mut net);
    net.take(Kind::Request);
    net.message(Endpoint::Coordinator, &message::LeaseLost { client: SPARE });
    assert_eq!(net.completion_of(high), Completion::Unknown(WhyUnknown::LeaseLost));
    assert_eq!(put_high_and_answer(&mut net, 1)[0].rpc().client, CLIENT);
    net.answer(&request, DONE, true);
    assert_eq!(net.completed().pop().map(|(call, _)| call), Some(stuck));
}

#[test]
fn r4_10_a_table_request_belongs_to_one_id() {
    let mut net = busy();
    let id = net.with(|session, now, out| session.create_table(now, "a", out));
    let request = |client, sequence| {
        let is_it = move |message: &message::TableRequest| (message.client, message.sequence) == (client, sequence);
        move |net: &mut Net| net.messages().iter().any(is_it)
    };
    assert!(request(CLIENT, 1)(&mut net));
    net.put();
    put_high_and_answer(&mut net, OUTSTANDING_MAX);
    assert_eq!(net.session.client(), Some(SPARE));
    net.sent.clear();
    net.pass(SECOND);
    assert!(request(CLIENT, 1)(&mut net), "its retries are the first id's");
    let outcome = TableOutcome::Created(TableId(2));
    let answer = |client| message::TableAnswer { client, sequence: 1, outcome: outcome.clone() };
    net.message(Endpoint::Coordinator, &answer(SPARE));
    assert!(net.completed().is_empty());
    net.message(Endpoint::Coordinator, &answer(CLIENT));
    assert_eq!(net.completion_of(id), Completion::Table(outcome.clone()));
    net.with(|session, now, out| session.create_table(now, "b", out));
    assert!(request(SPARE, 1)(&mut net), "the next one is the other's first");
}

#[test]
fn r4_10_shards_that_stop_one_after_the_other_need_an_id_each() {
    let mut net = Net::open(|_| ());
    let ids = |net: &Net| net.session.clients().count();
    net.put();
    for client in CLIENT.0 + 1..CLIENT.0 + 9 {
        put_high_and_answer(&mut net, OUTSTANDING_MAX / 2);
        if net.sent.iter().any(|sent| sent.kind == Kind::Message) {
            net.open_session(ClientId(client));
            net.sent.clear();
        }
        assert!(ids(&net) <= IDENTITIES_MAX);
    }
    assert_eq!(ids(&net), 3, "one is held up, one numbers, one is ready");
}

/// The long waiting times of an outage end with the outage: the first attempt at another primary is lost, and the next
/// one comes soon, for an update, for updates that are held back behind it, and for a read.
#[test]
fn r4_10_the_patience_of_an_outage_ends_with_the_outage() {
    let (mut net, stuck, _) = held_up();
    let held = net.put();
    let read = net.with(|session, now, out| session.read(now, TABLE, &Read::Get { key: b"a-low-slot-" }, None, out));
    net.pass(5 * SECOND);
    net.configuration.version = ConfigVersion(2);
    let shard = &mut net.configuration.shards[0];
    (shard.epoch, shard.primary) = (Epoch(4), NodeId(3));
    net.sent.clear();
    net.give_configuration(Endpoint::Coordinator);
    let (request, question) = (net.take_one(Kind::Request), net.take_one(Kind::Read));
    assert_eq!((request.to, question.to), (core(3), core(3)), "both go to the new primary at once");
    // The one shows that the core is silent, and the other one waits twice as long: far less than in the outage.
    net.pass(ATTEMPT_TIMEOUT * 5 / 2);
    let again = net.take(Kind::Request).pop().expect("it is sent again");
    let question = net.take(Kind::Read).pop().expect("it is sent again");
    assert_eq!((again.to, question.to), (core(3), core(3)));
    net.answer(&again, DONE, true);
    net.answer_read(&question, &[4]);
    let next = net.take_one(Kind::Request);
    net.answer(&next, DONE, true);
    let ended: BTreeSet<CallId> = net.completed().iter().map(|(call, _)| *call).collect();
    assert_eq!(ended, BTreeSet::from([stuck, held, read]));
}

#[test]
fn r4_10_a_cancelled_update_holds_up_its_id_until_its_outcome_is_known() {
    let mut net = busy();
    let deadline = Some(net.now.after(SECOND));
    let options = CallOptions { deadline, cancel_on_deadline: true, ..CallOptions::default() };
    let stuck = net.update(&Update::increment(b"a-low-slot-", 1), &options);
    net.take(Kind::Request);
    put_high_and_answer(&mut net, OUTSTANDING_MAX);
    assert_eq!(net.session.client(), Some(SPARE));
    net.pass(3 * SECOND);
    assert_eq!(net.completion_of(stuck), Completion::Unknown(WhyUnknown::DeadlinePassed));
    net.sent.clear();
    let held = net.put();
    net.pass(SECOND);
    assert!(net.take(Kind::Request).is_empty(), "it waits");
    let cancel = net.take(Kind::Cancel).pop().expect("the cancellation goes on");
    net.answer(&cancel, CANCELLED, true);
    assert_eq!(net.session.resolve(stuck), Some(Completion::NotExecuted(WhyNot::DeadlineCancelled)));
    let request = net.take_one(Kind::Request);
    net.answer(&request, DONE, true);
    assert_eq!(net.completed().pop().map(|(call, _)| call), Some(held));
}

#[test]
fn a_million_updates_to_a_stopped_shard_leave_room_for_the_others() {
    let mut net = busy();
    let put = Update::put(b"a-low-slot-", b"v");
    let refused = net.with(|session, now, out| {
        let ask = |_| {
            session.update(now, TABLE, &put, &CallOptions::default(), out);
            session.poll_completed().map(|(_, how)| how)
        };
        (0..1_000_000).filter_map(ask).filter(|how| *how == Completion::NotExecuted(WhyNot::Overloaded)).count()
    });
    assert_eq!(refused, 1_000_000 - CALLS_MAX / 2);
    net.pass(Duration::from_millis(100));
    net.sent.clear();
    put_high_and_answer(&mut net, 1000);
}
