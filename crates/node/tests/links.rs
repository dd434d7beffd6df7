//! What a core tells the coordinator of others (pitfall 9; decision 0007).
#![allow(missing_docs)]

use crate::common::{CONN, Core, Files, SHARD, configuration};
use kasha_machine::{Effects, Endpoint, Input, Machine};
use kasha_types::{ConfigVersion, ConnId, CoreId, Epoch, Incarnation, ListVersion, NodeId, Tick};
use kasha_wire::frame::FRAME_HEADER_BYTES;
use kasha_wire::message::Report;
use kasha_wire::{AnyMessage, Configuration, Member, MemberState, Message, ShardPhase, message};

const OTHER: CoreId = CoreId { node: NodeId(2), core: 0 };
/// A lease, and with it eight heartbeats, in steps of half a heartbeat.
const LEASE_STEPS: u32 = 16;
const STEP_MILLIS: u64 = 125;

fn said<M: Message>(core: &Core) -> impl Iterator<Item = (Endpoint, M)> + '_ {
    let sent = core.shell.sent.iter();
    sent.filter_map(|(to, frame)| Some((*to, M::from_frame(frame[12], &frame[FRAME_HEADER_BYTES..])?)))
}

/// Lets time pass; node 2 answers pings if it is to. Returns what the last heartbeat said.
fn pass(core: &mut Core, steps: u32, answers: bool) -> (Vec<NodeId>, Vec<Report>) {
    let mut last = (Vec::new(), Vec::new());
    for _ in 0..steps {
        core.shell.sent.clear();
        core.tick(STEP_MILLIS);
        let all: Vec<_> = said(core).collect();
        for (to, message) in all {
            match message {
                AnyMessage::Heartbeat(heartbeat) => last = (heartbeat.heard, heartbeat.reports),
                AnyMessage::Ping(message::Ping { sent }) if answers => {
                    assert_eq!(to, Endpoint::Core(OTHER));
                    core.message_from(to, message::Pong { sent, node: NodeId(2) });
                }
                _ => {}
            }
        }
    }
    last
}

/// Node 1 leads; node 2 is the backup, and never answers as one.
fn of_two(phase: ShardPhase) -> Configuration {
    let mut configuration = configuration(1, 1, phase);
    configuration.faults = 1;
    let member = Member { node: NodeId(2), state: MemberState::Complete, since: ConfigVersion(1) };
    configuration.shards[0].members.push(member);
    configuration
}

#[test]
fn who_answers_pings_is_heard_for_half_a_lease() {
    let mut core = Core::serving();
    assert_eq!(pass(&mut core, LEASE_STEPS, true).0, [NodeId(2)]);
    assert_eq!(pass(&mut core, LEASE_STEPS * 3 / 8, false).0, [NodeId(2)]);
    assert_eq!(pass(&mut core, LEASE_STEPS / 2, false).0, []);
}

#[test]
fn only_nodes_of_the_cluster_are_heard() {
    let mut core = Core::serving();
    let sent = core.now;
    core.message_from(CONN, message::Pong { sent, node: NodeId(9) });
    core.message_from(CONN, message::Pong { sent: Tick(u64::MAX), node: NodeId(2) });
    assert_eq!(pass(&mut core, 2, false).0, [], "no such node; a ping of the future");
}

#[test]
fn a_ping_is_answered() {
    let mut core = Core::serving();
    core.shell.sent.clear();
    core.message_from(CONN, message::Ping { sent: Tick(7) });
    let pong = (CONN, message::Pong { sent: Tick(7), node: NodeId(1) });
    assert!(said(&core).any(|message| message == pong));
}

#[test]
fn a_member_that_does_nothing_for_two_leases_is_reported() {
    let mut core = Core::start(Files::default(), 1 << 30);
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(ShardPhase::Recovering),
    });
    assert_eq!(pass(&mut core, LEASE_STEPS * 2 - 2, true).1, []);
    let unanswered = Report::Unanswered { shard: SHARD, epoch: Epoch(1), node: NodeId(2) };
    assert_eq!(pass(&mut core, 4, true).1, [unanswered], "it answers pings, but that does not help the shard");
    assert!(core.node.status(core.now).replicas[0].state.ends_with("node-2 does not answer"));
}

#[test]
fn who_was_stopped_itself_reports_nobody() {
    let mut core = Core::start(Files::default(), 1 << 30);
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: of_two(ShardPhase::Recovering),
    });
    pass(&mut core, LEASE_STEPS, true);
    core.tick(STEP_MILLIS * u64::from(LEASE_STEPS) * 9);
    assert_eq!(pass(&mut core, LEASE_STEPS, true).1, []);
}

#[test]
fn a_witness_that_answers_no_ping_for_two_leases_is_reported() {
    let mut core = Core::serving();
    let mut configuration = configuration(3, 1, ShardPhase::Serving);
    configuration.faults = 1;
    configuration.shards[0].witnesses = vec![NodeId(2)];
    configuration.shards[0].list = ListVersion(2);
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration,
    });
    assert_eq!(pass(&mut core, LEASE_STEPS * 4, true).1, []);
    let unanswered = Report::Unanswered { shard: SHARD, epoch: Epoch(1), node: NodeId(2) };
    assert_eq!(pass(&mut core, LEASE_STEPS * 3, false).1, [unanswered]);
    assert_eq!(pass(&mut core, 4, true).1, [], "it is there again");
}

#[test]
fn a_recovery_that_gets_no_further_for_five_leases_is_stuck() {
    let mut core = Core::start(Files::default(), 1 << 30);
    let mut configuration = of_two(ShardPhase::Recovering);
    configuration.shards[0].epoch = Epoch(2);
    configuration.shards[0].recover_from = vec![NodeId(1), NodeId(2)];
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration,
    });
    let (shard, epoch) = (SHARD, Epoch(2));
    let needs = Report::NeedsMembers { shard, epoch, unheard: vec![NodeId(2)], has_copy: false };
    assert_eq!(pass(&mut core, LEASE_STEPS * 5 - 2, true).1, std::slice::from_ref(&needs));
    assert_eq!(pass(&mut core, 4, true).1, [Report::Stuck { shard, epoch }, needs]);
}

/// Found by an outsider, with a coordinator whose folder was lost: such a process waited for ever, and told nobody.
#[test]
fn who_is_named_primary_of_an_epoch_that_it_has_promised_begins_nothing_and_says_so() {
    let files = Core::serving().shell.files;
    for (version, epoch, phase) in
        [(3, 1, ShardPhase::Recovering), (4, 1, ShardPhase::Serving), (5, 0, ShardPhase::Serving)]
    {
        let mut core = Core::start(files.clone(), 1 << 30);
        core.message(message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: configuration(version, epoch, phase),
        });
        let report = Report::PromisedBefore { shard: SHARD, epoch: Epoch(epoch), promised: Epoch(1) };
        assert_eq!(pass(&mut core, 4, true).1, [report], "{phase:?}");
        let status = core.node.status(core.now).replicas;
        assert!(!status[0].primary && status[0].state.contains("K0430"), "{status:?}");
        // A later epoch it begins, and complains no more.
        core.message(message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: configuration(9, 2, ShardPhase::Recovering),
        });
        let reports = pass(&mut core, 4, true).1;
        assert!(!reports.iter().any(|report| matches!(report, Report::PromisedBefore { .. })), "{reports:?}");
        assert!(core.node.status(core.now).replicas[0].primary);
    }
}

/// The configuration may still speak of an earlier process of this node: then a later one is committed soon (R7.1).
#[test]
fn a_configuration_that_names_an_earlier_process_is_no_reason_to_complain() {
    let files = Core::serving().shell.files;
    let mut core = Core::start_with(files, 1 << 30, |options| options.incarnation = Incarnation(2));
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: configuration(3, 1, ShardPhase::Serving),
    });
    assert_eq!(pass(&mut core, 4, true).1, []);
}

/// Who waits for a fail-over hears of it at once, and polls nobody meanwhile.
#[test]
fn who_asked_for_a_newer_configuration_is_told_when_there_is_one_and_once() {
    let mut core = Core::serving();
    let (waits, gone) = (Endpoint::Conn(ConnId(7)), ConnId(8));
    for conn in [waits, Endpoint::Conn(gone)] {
        core.message_from(conn, message::GetConfiguration { have: ConfigVersion(2) });
    }
    core.node.step(core.now, Input::Closed(gone), &mut Effects::new());
    assert_eq!(said::<AnyMessage>(&core).count(), 0, "there is nothing newer");
    for (version, expected) in [(3, vec![waits]), (4, vec![])] {
        core.shell.sent.clear();
        core.message(message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: configuration(version, 1, ShardPhase::Serving),
        });
        let is_it = |told: &message::ConfigurationIs| told.configuration.version.0 == version;
        let told: Vec<_> = said(&core).filter(|(_, message)| is_it(message)).map(|(to, _)| to).collect();
        assert_eq!(told, expected);
    }
}

/// All members of the group that this node knew are others by now.
#[test]
fn a_node_that_no_member_answers_asks_other_nodes_who_the_members_are() {
    let mut core = Core::serving();
    let mut known = configuration(3, 1, ShardPhase::Serving);
    let other = kasha_types::CoreId { node: NodeId(2), core: 0 };
    let mut second = known.nodes[0].clone();
    second.node = NodeId(2);
    known.nodes.push(second);
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration: known.clone(),
    });
    let asks = |core: &mut Core, leases: u32| {
        core.shell.sent.clear();
        for _ in 0..leases * LEASE_STEPS {
            core.tick(STEP_MILLIS);
        }
        let question = (Endpoint::Core(other), message::GetConfiguration { have: ConfigVersion(3) });
        said(core).filter(|message| *message == question).count()
    };
    assert_eq!(asks(&mut core, 5), 0, "an election may take that long");
    assert!((2..5).contains(&asks(&mut core, 4)));
    let member = |id: u64| kasha_wire::GroupMember {
        member: kasha_types::MemberId(id),
        node: NodeId(1),
        folder: 1,
        address: ([10, 0, 0, 9], 8000 + id as u16).into(),
    };
    let mut newer = known.clone();
    (newer.version, newer.group) = (ConfigVersion(4), [4, 5, 6].map(member).to_vec());
    core.message_from(
        Endpoint::Core(other),
        message::ConfigurationIs {
            level: kasha_wire::Level::FIRST,
            unix_origin: kasha_wire::Later::absent(),
            configuration: newer,
        },
    );
    core.shell.sent.clear();
    core.tick(STEP_MILLIS * 2);
    let told: Vec<_> = said::<message::Heartbeat>(&core).map(|(to, _)| to).collect();
    for id in [4, 5, 6] {
        assert!(told.contains(&Endpoint::Member(kasha_types::MemberId(id))), "{told:?}");
    }
}
