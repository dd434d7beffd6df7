//! Three rules are written twice, in the models and in the code: `look_up`, the verdict of an attempt, and the election
//! of a log. These tests compare both versions over every small input.

use kasha_exactly_once::{LookUp, Place, Request, Tracker};
use kasha_replication::{Choice, Election, FenceReport, Quorum};
use kasha_types::{AckedBelow, BodyHash, ClientId, ClusterTime, Epoch, LogEnd, LogPosition, NodeId, RpcId, Sequence};
use kasha_witness::{Attempt, Verdict};
use stateright::Model;

use crate::replicas::{self, Replicas};
use crate::updates::primary::{Found, Origin};
use crate::updates::state::{Entry, Outcome, Record, State};
use crate::updates::{self, Action, Updates, program};

fn updates_model() -> (Updates, State) {
    let model = Updates { program: &program::FAIL_OVER, off: None, thrift: updates::Thrift::default() };
    let state = model.init_states().swap_remove(0);
    (model, state)
}

/// A record, or a request, as the tracker sees it.
fn request(model: &Updates, call: u8, acknowledgement: u8, lease: u8) -> Request {
    let plan = model.plan(call);
    let rpc = RpcId { client: ClientId(plan.client.into()), sequence: Sequence(plan.sequence.into()) };
    let (acknowledgement, lease_expiry) = (AckedBelow(acknowledgement.into()), ClusterTime(lease.into()));
    Request { rpc, body_hash: BodyHash(0), acknowledgement, lease_expiry }
}

/// A tracker that has replayed this log, as `state::replay` of the node does.
fn tracker(model: &Updates, log: &[Entry]) -> Tracker {
    let mut tracker = Tracker::new();
    for (at, entry) in (0..).zip(log) {
        match entry {
            Entry::Record(record) => {
                let request = request(model, record.call, record.acknowledgement, record.lease);
                tracker.recover(&request, Place(at), |_| {});
            }
            Entry::Floor(lease) => {
                tracker.forget_before(ClientId(1), Place(at), |_| {});
                tracker.raise_floor(ClusterTime((*lease).into()));
            }
            Entry::KeyDropped(_) => unreachable!("no operation keys here"),
        }
    }
    tracker
}

/// Every log of up to three records and a floor, in every order.
fn logs(model: &Updates) -> Vec<Vec<Entry>> {
    let mut entries = vec![Entry::Floor(1)];
    for call in 0..3 {
        for acknowledgement in 1..=model.plan(call).sequence {
            for lease in 1..=2 {
                let outcome = Outcome::Count(1);
                let stored = acknowledgement;
                entries.push(Entry::Record(Record { call, acknowledgement, stored, lease, outcome, executed: true }));
            }
        }
    }
    let is_same = |a: &Entry, b: &Entry| match (a, b) {
        (Entry::Record(a), Entry::Record(b)) => a.call == b.call,
        (a, b) => a == b,
    };
    let mut logs: Vec<Vec<Entry>> = vec![Vec::new()];
    for length in 0..4 {
        let longer = logs.iter().filter(|log| log.len() == length).flat_map(|log| {
            let fresh = entries.iter().filter(|entry| log.iter().all(|known| !is_same(known, entry)));
            fresh.map(|entry| [log.as_slice(), &[*entry]].concat()).collect::<Vec<_>>()
        });
        logs.extend(longer.collect::<Vec<_>>());
    }
    logs
}

#[test]
fn look_up_is_the_tracker_s() {
    let (model, mut state) = updates_model();
    let logs = logs(&model);
    assert!(logs.len() > 500, "{} logs", logs.len());
    for log in logs {
        let term = state.term_mut(1);
        term.log = log.iter().copied().collect();
        (term.base, term.forgotten) = (term.end(), term.floor().map_or(0, |(at, _)| at + 1));
        let mut tracker = tracker(&model, &log);
        for (call, lease) in (0..3).flat_map(|call| [(call, 1), (call, 2)]) {
            state.call_mut(call).lease = lease;
            let asked = request(&model, call, 1, lease);
            for origin in [Origin::Client, Origin::Replay] {
                let answer = match origin {
                    Origin::Client => tracker.look_up(&asked),
                    Origin::Suspect | Origin::Replay => tracker.look_up_replayed(&asked),
                };
                let expected = match answer {
                    LookUp::New | LookUp::LeaseUnproven => Found::New,
                    LookUp::Completed(Place(at)) => Found::Completed(at as u8),
                    LookUp::Stale => Found::Stale,
                    LookUp::LeaseExpired => Found::Expired,
                    other => panic!("{other:?} of {log:?}"),
                };
                let term = state.term(1);
                let found = model.look_up(&state, term, term.end(), call, origin);
                assert_eq!(found, expected, "call {call}, lease {lease}, {origin:?}, {log:?}");
            }
        }
    }
}

#[test]
fn an_attempt_completes_when_the_witness_crate_says_so() {
    let (_, mut state) = updates_model();
    let model = Updates { program: &program::TWO_WITNESSES, off: None, thrift: updates::Thrift::default() };
    for (answered, accepted) in (0..4).flat_map(|accepted| [(false, accepted), (true, accepted)]) {
        let call = state.call_mut(0);
        (call.stage, call.current, call.sent) = (updates::state::Stage::Running, updates::state::Attempt(1), 2);
        (call.answers[1], call.accepted[1]) = (answered.then_some(Outcome::Count(1)), accepted);
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        let mut attempt = Attempt::new(Epoch(1), kasha_types::ListVersion(1), 2);
        if answered {
            attempt.on_answer(Epoch(1), false);
        }
        for witness in (0..2).filter(|witness| accepted & 1 << witness != 0) {
            attempt.on_recorded(kasha_types::ListVersion(1), witness, true);
        }
        let completes = matches!(attempt.verdict(), Verdict::Complete(_));
        assert_eq!(actions.contains(&Action::OnAnswer { call: 0, list: 1 }), completes, "{answered} {accepted}");
    }
}

#[test]
fn the_choice_of_a_log_is_the_election_s() {
    let model = Replicas { bounds: &replicas::bounds::THREE_MEMBERS, off: None, names_matter: true };
    let mut state = model.init_states().swap_remove(0);
    let greatness = [(1, 1), (1, 2), (2, 2)];
    let marks = |at: usize| (greatness[at % 3], (at / 3).is_multiple_of(2), (at / 6).is_multiple_of(2));
    let report = |at: usize| (at < 12).then(|| marks(at));
    for (own, second, third) in (0..12).flat_map(|a| (0..13).flat_map(move |b| (0..13).map(move |c| (a, b, c)))) {
        let mut election = Election::new(Epoch(3), (0..3).map(NodeId).collect(), Quorum::OneSure);
        let mut primary = *state.node(0).primary.clone().expect("node 0 leads");
        (primary.epoch, primary.stage, primary.electorate) = (3, replicas::state::Stage::Fencing, 7);
        for (node, at) in [(0, own), (1, second), (2, third)] {
            let Some(((epoch, end), intact, complete)) = report(at) else {
                primary.reports[node] = None;
                continue;
            };
            let entry = |epoch| replicas::state::Entry { epoch, writer: 0 };
            let log = (0..end).map(|at| entry(if at + 1 == end { epoch } else { 1 })).collect();
            primary.reports[node] = Some(replicas::state::Report { log, intact, complete });
            election.on_report(FenceReport {
                node: NodeId(node as u16),
                end: LogPosition { epoch: Epoch(epoch.into()), offset: LogEnd(end) },
                history: Vec::new(),
                intact,
                complete,
                whole: false,
            });
        }
        let node = state.node_mut(0);
        let reported = primary.reports[0].clone().expect("its own");
        (node.log, node.intact, node.complete) = (reported.log, reported.intact, reported.complete);
        let great = |node: usize| primary.reports[node].as_ref().map(replicas::state::Report::greatness);
        let chosen = model.choice(&state, 0, &primary).map(|node| great(node.into()));
        let expected = match election.choice() {
            Choice::Wait => None,
            Choice::Take(node) => Some(great(node.0.into())),
        };
        assert_eq!(chosen, expected, "{:?}", primary.reports);
    }
}
