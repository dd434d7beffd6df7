//! Whatever a program gets from the client, it can name without another crate.
#![cfg(feature = "tokio")]

use kasha_client::cluster::{CoreStatus, LoopTurns, Member, NodeInfo, ReplicaStatus, ShardConfig, TableInfo};
use kasha_client::*;

/// What one program might keep of each kind.
#[allow(dead_code, clippy::type_complexity)]
struct Kept {
    tables: Vec<(TableId, Table)>,
    calls: (Option<UpdateCall<u64>>, Option<ReadCall<Option<Value>>>, Option<CommitCall>),
    outcomes: (Outcome, Resolved, Answer<Counter>, Unresolved<Counter>, UnknownCall),
    reasons: (WhyNot, WhyUnknown, WhyFailed, WaitsFor, WhyPartFailed, Rejection, DecodeError),
    transactions:
        (Transaction, PartId<Counter>, TransactionOutcome, Results, Failure, Commit, Conflict, Begun, Interactive),
    values: (
        Appended,
        Bounded,
        Conditional,
        Replaced,
        TimeToLive,
        ScannedKey,
        ScannedValue,
        Cursor,
        Scan,
        Scan<ScannedValue>,
    ),
    cluster: (Configuration, ShardConfig, Member, NodeInfo, TableInfo, CoreStatus, ReplicaStatus, LoopTurns),
    ids: (CoreId, ClusterId, SessionStats, Path),
}

#[test]
fn a_number_is_what_a_counter_takes_for_one() {
    let value = |text: &str| Value { version: 1, bytes: text.into() };
    for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
        assert_eq!(value(&number.to_string()).as_i64(), Some(number));
    }
    for other in ["", "-", "-0", "01", " 1", "+1", "1 ", "9223372036854775808", "x"] {
        assert_eq!(value(other).as_i64(), None, "{other:?}");
    }
    assert_eq!(value("text").as_str(), Some("text"));
    assert_eq!(Value { version: 1, bytes: vec![0xff] }.as_str(), None);
}
