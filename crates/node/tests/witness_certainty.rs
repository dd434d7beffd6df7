//! What a recovery may conclude from a witness's answer (section 7, step 4; C3, R5.5).

use crate::common::{Core, Files, Heard, SHARD, configuration};
use kasha_machine::{Endpoint, FileName};
use kasha_types::*;
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{self, Envelope, RequestView};
use kasha_wire::message::{Heartbeat, Holding, Report};
use kasha_wire::{
    Configuration, Durability, Member, MemberState, Message, NodeInfo, Recorded, RecordedVerdict, Served, ShardPhase,
    Update, message,
};

const LIST: ListVersion = ListVersion(7);
const SLOTS: FileName = FileName::Witness { shard: SHARD, list: LIST };
const MODE: FileName = FileName::WitnessMode { shard: SHARD, list: LIST };

/// Node 2 is primary, node 1 a witness of list 7.
fn witnessed(version: u64, epoch: u32, phase: ShardPhase) -> Configuration {
    let mut configuration = configuration(version, epoch, phase);
    configuration.faults = 1;
    let shard = &mut configuration.shards[0];
    shard.primary = NodeId(2);
    shard.members = vec![Member { node: NodeId(2), state: MemberState::Complete, since: ConfigVersion(1) }];
    shard.witnesses = vec![NodeId(1)];
    shard.list = LIST;
    if phase == ShardPhase::Recovering {
        shard.recover_from = vec![NodeId(2)];
    }
    configuration
}

/// The `starts`-th process of node 1's data folder.
fn start(files: Files, starts: u32) -> Core {
    Core::start_with(files, 1 << 30, |options| options.incarnation = Incarnation::new(starts, 9))
}

fn obey(core: &mut Core, configuration: Configuration) {
    core.message(message::ConfigurationIs {
        level: kasha_wire::Level::FIRST,
        unix_origin: kasha_wire::Later::absent(),
        configuration,
    });
}

/// A witness in service, which holds one request.
fn in_service() -> Core {
    let mut core = start(Files::default(), 1);
    obey(&mut core, witnessed(1, 1, ShardPhase::Serving));
    assert_eq!(record(&mut core, 1), RecordedVerdict::Accepted);
    core
}

fn record(core: &mut Core, sequence: u64) -> RecordedVerdict {
    let key = format!("k{sequence}");
    let body = Core::body((1, sequence), 1, None, &Update::increment(key.as_bytes(), 1));
    let envelope =
        Envelope { shard: SHARD, epoch: Epoch(1), list: LIST, cluster_time: ClusterTime(0), attempt: 1, turn: None };
    let mut frame = Vec::new();
    RequestView::encode(Kind::Record, &envelope, &body, &mut frame);
    core.shell.sent.clear();
    core.frame(Kind::Record, &frame);
    let (_, frame) = core.shell.sent.last().expect("an answer");
    hot::decode_small::<Recorded>(&frame[FRAME_HEADER_BYTES..]).expect("a verdict").verdict
}

/// What a freeze hears: how sure, and how many requests.
fn freeze(core: &mut Core, list: ListVersion, epoch: u32) -> (Holding, usize) {
    core.shell.sent.clear();
    core.message_from(crate::common::CONN, message::FreezeWitness { shard: SHARD, list, epoch: Epoch(epoch) });
    let sent = core.shell.sent.iter().filter(|(to, _)| *to == crate::common::CONN);
    let mut answers = sent.filter_map(|(_, frame)| Message::decode(&frame[FRAME_HEADER_BYTES..]).ok());
    let message::WitnessHolds { holding, requests, .. } = answers.next().expect("an answer");
    (holding, requests.len())
}

/// The next process, in the configuration that recovers list 7, is asked what it holds.
fn recovered(files: Files) -> (Holding, usize) {
    let mut core = start(files, 2);
    obey(&mut core, witnessed(5, 2, ShardPhase::Recovering));
    let first = freeze(&mut core, LIST, 2);
    assert_eq!(freeze(&mut core, LIST, 2), first, "asked again");
    let mut core = start(core.shell.files, 3);
    obey(&mut core, witnessed(5, 2, ShardPhase::Recovering));
    assert_eq!(freeze(&mut core, LIST, 2), first, "asked again after another restart");
    first
}

#[test]
fn what_was_accepted_is_surely_held() {
    assert_eq!(recovered(in_service().shell.files), (Holding::Sure, 1));
}

/// It was told of the list by the recovery only: no update can have completed on it.
#[test]
fn c3_a_witness_that_never_was_in_service_is_surely_empty_and_begins_nothing() {
    let mut core = start(Files::default(), 1);
    obey(&mut core, configuration(1, 1, ShardPhase::Serving));
    obey(&mut core, witnessed(5, 2, ShardPhase::Recovering));
    assert_eq!(freeze(&mut core, LIST, 2), (Holding::Sure, 0));
    assert_eq!(record(&mut core, 1), RecordedVerdict::WrongList);
    assert!(!core.shell.files.0.contains_key(&SLOTS));
    assert_eq!(recovered(core.shell.files), (Holding::Sure, 0));
}

/// A restart in between, and the list came into force meanwhile: the ledger says that nothing was begun here.
#[test]
fn a_list_that_came_into_force_during_a_restart_is_begun_surely() {
    let core = start(Files::default(), 1);
    let mut core = tick(core);
    core = start(core.shell.files, 2);
    obey(&mut core, witnessed(4, 1, ShardPhase::Serving));
    assert_eq!(record(&mut core, 1), RecordedVerdict::Accepted);
    assert_eq!(recovered(core.shell.files), (Holding::Sure, 1));
}

fn tick(mut core: Core) -> Core {
    core.tick(1);
    core
}

#[test]
fn r5_5_a_witness_whose_files_are_gone_is_not_an_empty_one() {
    let lose = |files: &[FileName]| {
        let mut left = in_service().shell.files;
        files.iter().for_each(|file| drop(left.0.remove(file).expect("it was there")));
        left
    };
    for files in [&[SLOTS][..], &[MODE], &[SLOTS, MODE], &[FileName::Core, SLOTS, MODE], &[FileName::Core, SLOTS]] {
        assert_eq!(recovered(lose(files)), (Holding::Damaged, 0), "{files:?}");
        // Nor does a Serving configuration make it one.
        let mut core = start(lose(files), 2);
        obey(&mut core, witnessed(3, 1, ShardPhase::Serving));
        assert_ne!(record(&mut core, 2), RecordedVerdict::Accepted, "{files:?}");
        assert_eq!(recovered(core.shell.files), (Holding::Damaged, 0), "{files:?}");
    }
    assert_eq!(recovered(lose(&[FileName::Core])), (Holding::Sure, 1), "the instance speaks for itself");
}

#[test]
fn r5_5_a_damaged_byte_is_not_an_empty_witness() {
    for (file, at) in [(MODE, 5), (MODE, 20), (SLOTS, 20), (FileName::Core, 18)] {
        let mut files = in_service().shell.files;
        files.0.get_mut(&file).expect("it is there")[at] ^= 1;
        let lost = if file == FileName::Core { (Holding::Sure, 1) } else { (Holding::Damaged, 0) };
        assert_eq!(recovered(files), lost, "{file:?} {at}");
    }
    // A ledger that cannot be read says nothing about instances that are missing.
    let mut files = in_service().shell.files;
    files.0.get_mut(&FileName::Core).expect("it is there")[18] ^= 1;
    files.0.retain(|file, _| ![SLOTS, MODE].contains(file));
    assert_eq!(recovered(files), (Holding::Damaged, 0));
}

#[test]
fn the_next_list_is_begun_surely_whatever_became_of_the_last() {
    let mut files = in_service().shell.files;
    files.0.retain(|file, _| ![SLOTS, MODE, FileName::Core].contains(file));
    let mut core = start(files, 2);
    obey(&mut core, witnessed(3, 1, ShardPhase::Serving));
    let mut next = witnessed(4, 1, ShardPhase::Serving);
    next.shards[0].list = LIST.next();
    obey(&mut core, next.clone());
    (next.version, next.shards[0].epoch) = (ConfigVersion(5), Epoch(2));
    (next.shards[0].phase, next.shards[0].recover_from) = (ShardPhase::Recovering, vec![NodeId(2)]);
    obey(&mut core, next);
    assert_eq!(freeze(&mut core, LIST.next(), 2), (Holding::Sure, 0));
}

#[test]
fn r5_5_after_a_loss_of_power_it_depends_on_the_durability() {
    for (durability, holding) in [(Durability::Replicated, Holding::PowerLost), (Durability::Fsync, Holding::Sure)] {
        let files = in_service().shell.files;
        let mut core = Core::start_with(files, 1 << 30, |options| options.boot = BootId(2));
        let mut configuration = witnessed(5, 2, ShardPhase::Recovering);
        configuration.durability = durability;
        obey(&mut core, configuration.clone());
        assert_eq!(freeze(&mut core, LIST, 2), (holding, 1), "{durability:?}");
        // A freeze does not make it sure.
        let mut core = Core::start_with(core.shell.files, 1 << 30, |options| options.boot = BootId(2));
        obey(&mut core, configuration);
        assert_eq!(freeze(&mut core, LIST, 2), (holding, 1), "{durability:?}");
    }
}

/// The process died, or power was lost, before the ledger named the instance: it accepted nothing, whatever is there.
#[test]
fn files_that_the_ledger_does_not_name_are_removed() {
    let before = tick(start(Files::default(), 1)).shell.files;
    let unnamed = |lost: &[FileName]| {
        let mut files = in_service().shell.files;
        files.0.insert(FileName::Core, before.0[&FileName::Core].clone());
        lost.iter().for_each(|file| drop(files.0.remove(file).expect("it was there")));
        files
    };
    for lost in [&[][..], &[SLOTS], &[MODE]] {
        let core = tick(start(unnamed(lost), 2));
        assert!(!core.shell.files.0.contains_key(&SLOTS) && !core.shell.files.0.contains_key(&MODE));
        assert_eq!(recovered(unnamed(lost)), (Holding::Sure, 0), "{lost:?}");
        let mut core = start(unnamed(lost), 2);
        obey(&mut core, witnessed(3, 1, ShardPhase::Serving));
        assert_eq!(record(&mut core, 2), RecordedVerdict::Accepted, "{lost:?}");
        assert_eq!(recovered(core.shell.files), (Holding::Sure, 1), "{lost:?}");
    }
}

/// Found by a review: it became sure and empty.
#[test]
fn a_lost_witness_is_not_sure_after_a_restart() {
    let mut core = Core::start(Files::default(), 1 << 30);
    obey(&mut core, configuration(1, 1, ShardPhase::Serving));
    assert_eq!(freeze(&mut core, LIST, 1), (Holding::NeverHad, 0));
    let mut core = Core::start(core.shell.files, 1 << 30);
    obey(&mut core, configuration(1, 1, ShardPhase::Serving));
    assert_eq!(freeze(&mut core, LIST, 1), (Holding::NeverHad, 0));
}

/// Found by a review: its files are lost, and the configuration made it an empty one that is sure.
#[test]
fn a_lost_witness_is_not_sure_because_the_configuration_came_again() {
    let mut core = Core::start(Files::default(), 1 << 30);
    obey(&mut core, witnessed(1, 1, ShardPhase::Recovering));
    assert_eq!(freeze(&mut core, LIST, 1), (Holding::Damaged, 0));
}

/// Found by a review: each took an instance's memory and file.
#[test]
fn a_freeze_of_a_list_that_is_not_there_costs_nothing() {
    let mut core = in_service();
    let files = core.shell.files.0.len();
    for number in 8..1000 {
        assert_eq!(freeze(&mut core, ListVersion(number), 9), (Holding::NeverHad, 0));
    }
    assert_eq!(core.shell.files.0.len(), files);
    assert_eq!(core.node.status(core.now).witnesses.len(), 1);
}

/// Node 1 is promoted to epoch 2; its log has nothing. The witnesses of list 1 are these.
fn promoted(witnesses: &[u16]) -> Core {
    promoted_with(witnesses, &[1], |_| ())
}

/// The same; the members that may hold the log are these.
fn promoted_with(witnesses: &[u16], electorate: &[u16], change: impl FnOnce(&mut Core)) -> Core {
    let files = Core::serving().shell.files;
    let mut core = Core::start(files, 1 << 30);
    change(&mut core);
    obey(&mut core, promotion(3, witnesses, electorate));
    core.heartbeat_answered();
    core.epoch = Epoch(2);
    core
}

fn promotion(version: u64, witnesses: &[u16], electorate: &[u16]) -> Configuration {
    let mut configuration = configuration(version, 2, ShardPhase::Recovering);
    configuration.shards[0].recover_from = electorate.iter().copied().map(NodeId).collect();
    configuration.shards[0].witnesses = witnesses.iter().copied().map(NodeId).collect();
    let third = NodeInfo { node: NodeId(3), ..configuration.nodes[1].clone() };
    configuration.nodes.push(third);
    configuration
}

fn bodies(count: u64) -> Vec<Vec<u8>> {
    let body = |n| Core::body((1, n), 1, None, &Update::increment(b"n", 1));
    (1..=count).map(body).collect()
}

/// What the term waits for; empty: it waits no more.
fn waits_for(core: &Core) -> String {
    let state = core.node.status(core.now).replicas[0].state.clone();
    if state.starts_with("waits for a witness") { state } else { String::new() }
}

/// Serves, and says how many requests were replayed.
fn replayed(core: &mut Core) -> Option<u64> {
    assert_eq!(waits_for(core), "");
    let mut serving = configuration(4, 2, ShardPhase::Serving);
    serving.shards[0].list = ListVersion(2);
    obey(core, serving);
    match core.get(b"n")? {
        Heard::Read(result) if result.len() > 9 => std::str::from_utf8(&result[9..]).ok()?.parse().ok(),
        Heard::Read(_) => Some(0),
        Heard::Answer { .. } | Heard::Refused(_) | Heard::ReadRefused => None,
    }
}

#[test]
fn one_sure_witness_is_enough_and_is_the_one_that_is_replayed() {
    let mut core = promoted(&[2, 3]);
    core.witness_says(2, 2, Holding::PowerLost, &bodies(5));
    core.witness_says(3, 2, Holding::Sure, &bodies(2));
    assert_eq!(replayed(&mut core), Some(2));
}

#[test]
fn step_4_a_lost_witness_is_waited_on_for_ever() {
    let mut core = promoted(&[2]);
    assert!(waits_for(&core).contains("node-2 does not answer"), "{}", waits_for(&core));
    for _ in 0..100 {
        core.witness_says(2, 2, Holding::NeverHad, &[]);
        core.tick(25);
    }
    assert!(waits_for(&core).contains("node-2 does not know"), "{}", waits_for(&core));
    core.witness_says(2, 2, Holding::Damaged, &[]);
    assert!(waits_for(&core).contains("node-2 has lost the witness files"), "{}", waits_for(&core));
    // Somebody gave it its files back: it is asked again.
    core.shell.sent.clear();
    core.tick(25);
    let node_2 = Endpoint::Core(CoreId { node: NodeId(2), core: 0 });
    assert!(core.shell.sent.iter().any(|(to, _)| *to == node_2));
    core.witness_says(2, 2, Holding::Sure, &bodies(3));
    assert_eq!(replayed(&mut core), Some(3));
}

#[test]
fn step_4_one_loss_says_nothing_about_the_other_witness() {
    for holding in [Holding::Damaged, Holding::NeverHad, Holding::PowerLost] {
        let mut core = promoted(&[2, 3]);
        core.witness_says(2, 2, holding, &[]);
        core.witness_says(2, 2, holding, &[]);
        core.witness_says(9, 2, Holding::Sure, &bodies(9)); // no witness of this list
        assert_ne!(waits_for(&core), "", "{holding:?}");
        core.witness_says(3, 2, Holding::Sure, &bodies(1));
        assert_eq!(replayed(&mut core), Some(1), "{holding:?}");
    }
}

#[test]
fn r5_5_after_a_loss_of_power_the_fullest_counts_when_all_have_answered() {
    // Every member, which is this one, reports again; then the witnesses are asked again.
    let says_twice = |core: &mut Core, node, holding, count| {
        core.witness_says(node, 2, holding, &bodies(count));
        core.tick(1);
        core.witness_says(node, 2, holding, &bodies(count));
    };
    let mut core = promoted(&[2, 3]);
    core.witness_says(2, 2, Holding::PowerLost, &bodies(1));
    assert_ne!(waits_for(&core), "");
    core.witness_says(3, 2, Holding::PowerLost, &bodies(3));
    core.tick(1);
    core.witness_says(3, 2, Holding::PowerLost, &bodies(3));
    assert_ne!(waits_for(&core), "");
    core.witness_says(2, 2, Holding::PowerLost, &bodies(1));
    assert_eq!(replayed(&mut core), Some(3));

    let mut core = promoted(&[2, 3]);
    core.witness_says(2, 2, Holding::Damaged, &[]);
    core.witness_says(3, 2, Holding::PowerLost, &bodies(1));
    core.tick(1);
    core.witness_says(2, 2, Holding::Damaged, &[]);
    core.witness_says(3, 2, Holding::PowerLost, &bodies(1));
    assert_eq!(replayed(&mut core), Some(1), "nothing better can come");

    let mut core = promoted(&[2, 3]);
    core.witness_says(2, 2, Holding::NeverHad, &[]);
    says_twice(&mut core, 3, Holding::PowerLost, 1);
    assert_ne!(waits_for(&core), "", "the first will be told of the list, and may turn out to be sure");
    core.witness_says(2, 2, Holding::Sure, &bodies(2));
    assert_eq!(replayed(&mut core), Some(2));

    let mut core = promoted(&[2]);
    says_twice(&mut core, 2, Holding::PowerLost, 1);
    assert_eq!(replayed(&mut core), Some(1));
}

/// A member's report that it surely holds a log of epoch 1 up to here.
fn member_reports(core: &mut Core, end: u64) {
    core.message(message::FenceReport {
        shard: SHARD,
        epoch: Epoch(2),
        node: NodeId(2),
        attach: AttachId(0),
        exists: true,
        end: LogPosition { epoch: Epoch(1), offset: LogEnd(end) },
        history: vec![LogPosition { epoch: Epoch(1), offset: LogEnd::START }],
        intact: true,
        complete: true,
        whole: false,
    });
    core.tick(25);
}

/// What the coordinator is told that the term waits for.
#[derive(Debug, PartialEq, Eq)]
enum Lacks {
    /// These members, and there is a copy to go on with.
    Members(Vec<NodeId>),
    /// A witness; these members and these witnesses have said nothing.
    Witness(Vec<NodeId>, Vec<NodeId>),
}

fn lacks(core: &mut Core) -> Option<Lacks> {
    core.shell.sent.clear();
    (0..50).for_each(|_| core.tick(25));
    let sent = core.shell.sent.iter().filter(|(to, _)| *to == Endpoint::Coordinator);
    let mut heartbeats = sent.filter_map(|(_, frame)| Heartbeat::decode(&frame[FRAME_HEADER_BYTES..]).ok());
    heartbeats.next_back()?.reports.into_iter().find_map(|report| match report {
        Report::NeedsMembers { unheard, has_copy: true, .. } => Some(Lacks::Members(unheard)),
        Report::NeedsWitness { unheard_members, unheard_witnesses, .. } => {
            Some(Lacks::Witness(unheard_members, unheard_witnesses))
        }
        _ => None,
    })
}

#[test]
fn r7_7_a_term_says_for_whom_it_waits() {
    let mut core = promoted_with(&[2, 3], &[1, 2], |_| ());
    (0..11).for_each(|_| core.tick(25));
    assert_eq!(lacks(&mut core), Some(Lacks::Witness(vec![NodeId(2)], vec![NodeId(2), NodeId(3)])));
    core.witness_says(3, 2, Holding::Damaged, &[]);
    core.witness_says(2, 2, Holding::NeverHad, &[]);
    assert_eq!(lacks(&mut core), Some(Lacks::Witness(vec![NodeId(2)], vec![NodeId(2)])));
    member_reports(&mut core, 0);
    assert_eq!(lacks(&mut core), Some(Lacks::Witness(vec![], vec![NodeId(2)])));
    core.witness_says(2, 2, Holding::Damaged, &[]);
    assert_eq!(lacks(&mut core), Some(Lacks::Witness(vec![], vec![])));
}

/// Milliseconds until the state no longer begins so.
fn milliseconds_in(core: &mut Core, words: &str) -> u64 {
    let mut waited = 0;
    while core.node.status(core.now).replicas[0].state.starts_with(words) {
        core.tick(5);
        waited += 5;
        assert!(waited < 1000, "{}", core.node.status(core.now).replicas[0].state);
    }
    waited
}

/// A member that is silent costs a quarter of a second if it is called alive, and nothing if it is called lost.
#[test]
fn only_a_member_that_is_called_alive_is_heard_out() {
    for (is_alive, millis) in [(true, 250), (false, 0)] {
        let mut core = promoted_with(&[3], &[1, 2], |_| ());
        if !is_alive {
            let mut configuration = promotion(4, &[3], &[1, 2]);
            configuration.nodes[1].alive = false;
            obey(&mut core, configuration);
        }
        let took = milliseconds_in(&mut core, "fencing");
        assert!((millis..=millis + 30).contains(&took), "{is_alive}: {took} ms");
        assert_ne!(waits_for(&core), "");
    }
}

/// A witness too, if the log needs none (R7.7).
#[test]
fn only_a_witness_that_is_called_alive_is_heard_out_for_a_whole_log() {
    for (is_alive, millis) in [(true, 250), (false, 0)] {
        let mut core = Core::start(Core::serving().shell.files, 1 << 30);
        let mut configuration = promotion(3, &[3], &[1]);
        configuration.shards[0].served = Some(Served { epoch: Epoch(1), primary: NodeId(1) });
        configuration.nodes[2].alive = is_alive;
        obey(&mut core, configuration);
        let took = milliseconds_in(&mut core, "waits for a witness");
        assert!((millis..=millis + 30).contains(&took), "{is_alive}: {took} ms");
        let state = core.node.status(core.now).replicas[0].state.clone();
        assert!(state.contains("coordinator's commit"), "{state}");
    }
}

/// Whether node 2 was asked for this.
fn asked<M: Message>(core: &Core) -> bool {
    let node_2 = |to: &Endpoint| matches!(to, Endpoint::Core(core) if core.node == NodeId(2));
    core.shell.sent.iter().any(|(to, frame)| node_2(to) && M::is_in(frame[12], &frame[FRAME_HEADER_BYTES..]))
}

/// Found by the simulator: a promise that was slow to reach the file cost the longer log.
#[test]
fn step_2_nothing_is_cut_before_our_own_log_has_its_say() {
    let mut core = promoted_with(&[3], &[1, 2], |core| core.slow_disk = true);
    let own = core.node.status(core.now).replicas[0].end;
    member_reports(&mut core, 0);
    assert!(!asked::<message::FetchLog>(&core));
    core.slow_disk = false;
    core.tick(25);
    assert_ne!(waits_for(&core), "", "its own log is the greater one");
    assert_eq!(core.node.status(core.now).replicas[0].end, own);
}

/// Found by the simulator: what the witness lost was in the log of the old primary, and nobody asked that.
#[test]
fn r5_5_after_a_loss_of_power_every_member_must_have_reported_too() {
    for (end, is_longer) in [(0, false), (1 << 20, true)] {
        let mut core = promoted_with(&[3], &[1, 2], |_| ());
        // Node 2 passes for alive, and is waited for a moment.
        (0..11).for_each(|_| core.tick(25));
        core.witness_says(3, 2, Holding::PowerLost, &bodies(1));
        (0..11).for_each(|_| core.tick(25));
        core.shell.sent.clear();
        core.tick(25);
        let state = core.node.status(core.now).replicas[0].state.clone();
        assert!(
            state.contains("waits for every member; start node-2; if lost for good: kasha admin give-up"),
            "{state}"
        );
        assert_eq!(lacks(&mut core), Some(Lacks::Members(vec![NodeId(2)])));
        assert!(asked::<message::Fence>(&core));
        core.witness_says(3, 2, Holding::PowerLost, &bodies(1));
        assert_eq!(core.node.status(core.now).replicas[0].state, state, "it has not reported");
        member_reports(&mut core, end);
        if is_longer {
            assert!(asked::<message::FetchLog>(&core));
        } else {
            core.witness_says(3, 2, Holding::PowerLost, &bodies(1));
            assert_eq!(replayed(&mut core), Some(1));
        }
    }
}

#[test]
fn step_4_witnesses_that_are_all_lost_are_waited_on() {
    let mut core = promoted(&[2, 3]);
    core.witness_says(2, 2, Holding::Damaged, &[]);
    core.witness_says(3, 2, Holding::Damaged, &[]);
    assert!(waits_for(&core).contains("node-3 has lost"), "{}", waits_for(&core));
    core.witness_says(3, 2, Holding::NeverHad, &[]);
    assert_ne!(waits_for(&core), "");
}

/// While the primary lives, nothing that was lost is needed: the coordinator is told, and a new list begins.
#[test]
fn a_lost_instance_of_a_list_in_force_is_reported() {
    let reported = |files: Files| {
        let mut core = start(files, 2);
        obey(&mut core, witnessed(5, 1, ShardPhase::Serving));
        core.shell.sent.clear();
        core.tick(10_000);
        let to_coordinator = core.shell.sent.iter().filter(|(to, _)| *to == Endpoint::Coordinator);
        let mut heartbeats =
            to_coordinator.filter_map(|(_, frame)| Heartbeat::decode(&frame[FRAME_HEADER_BYTES..]).ok());
        heartbeats.any(|said| said.reports.contains(&Report::WitnessLost { shard: SHARD, list: LIST }))
    };
    assert!(!reported(in_service().shell.files));
    let mut damaged = in_service().shell.files;
    damaged.0.remove(&MODE);
    assert!(reported(damaged));
    let mut gone = in_service().shell.files;
    gone.0.remove(&MODE);
    gone.0.remove(&SLOTS);
    assert!(reported(gone));
}
