//! What the model derives of a client is what `exactly_once::Tracker` derives, from every short log: records in any order and
//! twice, floors that fall, and segments that go, in any order.

use kasha_exactly_once::{Place, Request, Tracker};
use kasha_types::{AckedBelow, BodyHash, ClientId, ClusterTime, RpcId, Sequence};

use crate::cleaner::Cleaner;
use crate::cleaner::bounds;
use crate::cleaner::state::{Entry, Kind};

const CLIENT: ClientId = ClientId(1);
const LENGTH: usize = 4;

fn rpc(sequence: u8) -> RpcId {
    RpcId { client: CLIENT, sequence: Sequence(sequence.into()) }
}

/// As `ShardState::replay` and `forget_segment` of the node do; each entry has a segment of its own.
fn tracker(log: &[Entry]) -> Tracker {
    let mut tracker = Tracker::new();
    for (at, entry) in (0..).zip(log) {
        match entry.kind {
            Kind::Record { sequence, lease, acknowledgement } => {
                let (acknowledgement, lease_expiry) = (AckedBelow(acknowledgement.into()), ClusterTime(lease.into()));
                let request = Request { rpc: rpc(sequence), body_hash: BodyHash(0), acknowledgement, lease_expiry };
                tracker.recover(&request, Place(at), |_| {});
            }
            Kind::ExpiryFloor { time, names_client, .. } => {
                let floor = ClusterTime(time.into());
                if floor < tracker.floor().time() {
                    continue;
                }
                if names_client {
                    tracker.forget_before(CLIENT, Place(at), |_| {});
                }
                tracker.raise_floor(floor);
            }
            Kind::Freed { segment } => {
                if let Some(Entry { kind: Kind::Record { sequence, .. }, .. }) = log.get(usize::from(segment)) {
                    tracker.forget(rpc(*sequence), Place(segment.into()));
                }
            }
            other => unreachable!("not of a client: {other:?}"),
        }
    }
    tracker
}

fn logs() -> Vec<Vec<Entry>> {
    let mut kinds = Vec::new();
    for (sequence, lease) in [(1, 1), (1, 2), (2, 1), (2, 2)] {
        let acknowledgements = 1..=2;
        kinds.extend(acknowledgements.map(|acknowledgement| Kind::Record { sequence, lease, acknowledgement }));
    }
    for (time, names_client) in [(1, false), (1, true), (2, false), (2, true)] {
        kinds.push(Kind::ExpiryFloor { time, names_client, first: 0 });
    }
    kinds.extend([0, 1].map(|segment| Kind::Freed { segment }));
    let mut logs: Vec<Vec<Entry>> = vec![Vec::new()];
    for length in 0..LENGTH {
        let longer = logs.iter().filter(|log| log.len() == length).flat_map(|log| {
            kinds.iter().map(|&kind| {
                let at = length as u8;
                let kind = match kind {
                    Kind::ExpiryFloor { time, names_client, .. } => Kind::ExpiryFloor { time, names_client, first: at },
                    kind => kind,
                };
                [log.as_slice(), &[Entry { segment: at, is_copy: false, ends_group: true, kind }]].concat()
            })
        });
        let longer: Vec<_> = longer.collect();
        logs.extend(longer);
    }
    logs
}

#[test]
fn what_is_derived_of_a_client_is_what_the_tracker_derives() {
    let model = Cleaner { bounds: &bounds::FLOORS_GREATEST, off: None };
    let logs = logs();
    assert!(logs.len() > 20_000, "{} logs", logs.len());
    for log in logs {
        // An entry frees what stands before it.
        let frees_later =
            (0..).zip(&log).any(|(at, entry)| matches!(entry.kind, Kind::Freed { segment } if segment >= at));
        if frees_later {
            continue;
        }
        let (memory, tracker) = (model.replay(&log, u8::MAX), tracker(&log));
        let client = memory.client.as_ref();
        for sequence in 1..=2 {
            let known = client.and_then(|client| client.records[usize::from(sequence) - 1]);
            assert_eq!(tracker.place_of(rpc(sequence)), known.map(|at| Place(at.into())), "{sequence} of {log:?}");
        }
        let acknowledged = client.map_or(AckedBelow(1), |client| AckedBelow(client.acknowledged.into()));
        assert_eq!(tracker.acknowledgement_of(CLIENT), acknowledged.max(AckedBelow(1)), "{log:?}");
        assert_eq!(tracker.lease_expiry_of(CLIENT), client.map(|client| ClusterTime(client.lease.into())), "{log:?}");
        assert_eq!(tracker.floor().time(), ClusterTime(memory.floor.into()), "{log:?}");
    }
}
