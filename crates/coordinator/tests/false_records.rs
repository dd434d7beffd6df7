//! Log records with impossible commands under right checksums: the start fails with an error that says why, and nothing
//! panics.
#![allow(missing_docs)]

use crate::common::*;
use kasha_coordinator::{Command, StartError};
use kasha_types::limits::{CORES_MAX, NODES_MAX};
use kasha_types::{
    BootId, ClientId, ClusterTime, ConfigVersion, Epoch, Incarnation, ListVersion, NodeId, ShardId, Tick, UnixMillis,
};
use kasha_viewstamped::{Entry, Stored};
use kasha_wire::message::TableCommand;
use kasha_wire::{Member, MemberState};

/// Starts from the journal of a cluster (one that serves, or one without a placement), with these commands behind its last
/// operation.
fn start_with(world: &World, commands: &[Command]) -> Result<World, StartError> {
    let files = with_commands(&world.disk.durable, commands);
    let disk = MemoryDisk { durable: files, ..MemoryDisk::default() };
    World::try_new(world.options.clone(), disk, Tick(9_000_000_000))
}

#[track_caller]
fn is_refused(world: &World, command: Command, why: &str) {
    match start_with(world, std::slice::from_ref(&command)) {
        Err(StartError::Damaged { what, .. }) => assert!(what.contains(why), "{command:?}: {what}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{command:?} was believed"),
    }
}

fn seen(node: u16, starts: u32, cores: u8) -> Command {
    Command::NodeSeen {
        node: NodeId(node),
        incarnation: Incarnation::new(starts, 1000 + u32::from(node)),
        boot: BootId(9),
        addresses: vec![([10, 0, 0, 1], 7000).into(); usize::from(cores)],
    }
}

fn reserve(to: u64, least: u64) -> Command {
    let (to, time, least) = (ClusterTime(to), ClusterTime(1), ClusterTime(least));
    Command::ReserveTime { to, boot: Some(BootId(1)), clock: Tick(1), time, least }
}

const NOBODY: NodeId = NodeId(777);
const NOWHERE: ShardId = ShardId(9);
const SHARD: ShardId = ShardId(0);

#[test]
fn what_is_said_of_nodes_and_reservations() {
    let world = World::serving(3, 2, 1);
    assert!(start_with(&world, &[seen(1, 1, 1), seen(4, 1, CORES_MAX)]).is_ok());
    is_refused(&world, seen(1, 0, 1), "incarnations only grow");
    is_refused(&world, seen(4, 1, CORES_MAX + 1), "65 cores");
    is_refused(&world, Command::NodeLost { node: NOBODY }, "not known");
    is_refused(&world, reserve(1, 1), "only grow");
    is_refused(&world, reserve(1 << 40, (1 << 40) + 1), "within its reservation");
    let origin = UnixMillis(7);
    let mut placed = World::serving(3, 1, 1);
    placed.run(1_000);
    is_refused(&placed, Command::UnixOrigin { origin }, "is said once");
    is_refused(&world, Command::ReserveClients { below: ClientId(0) }, "only grow");
    is_refused(&world, Command::ReserveClients { below: ClientId(u64::MAX) }, "near its end");
    let mut many: Vec<Command> = (4..=u16::try_from(NODES_MAX).unwrap()).map(|node| seen(node, 1, 1)).collect();
    assert!(start_with(&world, &many).is_ok());
    many.push(seen(500, 1, 1));
    assert!(matches!(start_with(&world, &many), Err(StartError::Damaged { what, .. }) if what.contains("too many")));
}

#[test]
fn what_is_said_of_a_placement() {
    let served = World::serving(3, 2, 1);
    let shards = served.config().shards.clone();
    is_refused(&served, Command::Place { shards: shards.clone() }, "placed once");
    let mut world = World::new(options(4, 2, 1));
    (1..=3).for_each(|id| world.add_node(id, 1));
    world.run(300);
    assert!(world.config().shards.is_empty());
    let create = Command::Table { client: ClientId(1), sequence: 1, command: TableCommand::Create("t".into()) };
    is_refused(&world, create, "tables need shards");
    assert!(start_with(&world, &[Command::Place { shards: shards.clone() }]).is_ok());
    is_refused(&world, Command::Place { shards: shards[..1].to_vec() }, "1 shards");
    let other = |change: fn(&mut kasha_wire::ShardConfig)| {
        let mut shards = shards.clone();
        change(&mut shards[1]);
        Command::Place { shards }
    };
    is_refused(&world, other(|shard| shard.primary = NOBODY), "not known");
    is_refused(&world, other(|shard| shard.witnesses = vec![NOBODY]), "not known");
    is_refused(&world, other(|shard| shard.members[1].node = NOBODY), "not known");
    is_refused(&world, other(|shard| shard.shard = SHARD), "in order");
    is_refused(&world, other(|shard| shard.members[1].node = shard.primary), "distinct");
    is_refused(&world, other(|shard| shard.witnesses.push(NodeId(1))), "exactly f witnesses");
}

#[test]
fn what_is_said_of_terms_and_members() {
    let world = World::serving(3, 2, 1);
    let config = world.shard(0).clone();
    let (epoch, primary, members) = (config.epoch, config.primary, config.members.clone());
    let promote = |shard, epoch, primary, from: &[NodeId]| Command::Promote {
        shard,
        epoch,
        primary,
        members: vec![Member { node: primary, state: MemberState::Complete, since: ConfigVersion(0) }],
        recover_from: from.to_vec(),
    };
    assert!(start_with(&world, &[promote(SHARD, epoch.next(), primary, &[primary])]).is_ok());
    is_refused(&world, promote(NOWHERE, epoch.next(), primary, &[]), "not placed");
    is_refused(&world, promote(SHARD, epoch, primary, &[]), "epochs grow by one");
    is_refused(&world, promote(SHARD, epoch.next().next(), primary, &[]), "epochs grow by one");
    is_refused(&world, promote(SHARD, epoch.next(), NOBODY, &[]), "not known");
    is_refused(&world, promote(SHARD, epoch.next(), primary, &[NOBODY]), "no complete copy");
    let set = |epoch, members: &[Member]| Command::SetMembers { shard: SHARD, epoch, members: members.to_vec() };
    assert!(start_with(&world, &[set(epoch, &members)]).is_ok());
    is_refused(&world, set(epoch.next(), &members), "another term");
    is_refused(&world, set(epoch, &[members[0], Member { node: NodeId(3), ..members[1] }]), "not decreed");
    is_refused(&world, set(epoch, &[]), "complete member");
    let copied = |epoch, node| Command::Copied { shard: SHARD, epoch, node };
    assert!(start_with(&world, &[copied(epoch, primary)]).is_ok());
    is_refused(&world, copied(Epoch(0), primary), "another term");
    is_refused(&world, copied(epoch, NOBODY), "no member");
}

#[test]
fn what_is_said_of_lists() {
    let world = World::serving(3, 2, 1);
    let config = world.shard(0).clone();
    let (list, witnesses) = (config.list, config.witnesses.clone());
    let close = |shard, list| Command::CloseList { shard, list };
    let open = |list, witnesses: &[NodeId]| Command::OpenList { shard: SHARD, list, witnesses: witnesses.to_vec() };
    assert!(start_with(&world, &[close(SHARD, list), open(list.next(), &witnesses)]).is_ok());
    is_refused(&world, close(NOWHERE, list), "not placed");
    is_refused(&world, close(SHARD, list.next()), "does not use");
    is_refused(&world, open(list.next(), &witnesses), "not closing");
    let second = |command: Command| match start_with(&world, &[close(SHARD, list), command]) {
        Err(StartError::Damaged { what, .. }) => what,
        other => panic!("believed: {:?}", other.is_ok()),
    };
    assert!(second(close(SHARD, list)).contains("does not use"));
    assert!(second(open(ListVersion(7), &witnesses)).contains("not closing"));
    assert!(second(open(list.next(), &[NOBODY])).contains("not known"));
    let recovered = |list| Command::Recovered { shard: SHARD, epoch: config.epoch, list, witnesses: witnesses.clone() };
    is_refused(&world, recovered(list), "not recovering");
    let promote = Command::Promote {
        shard: SHARD,
        epoch: config.epoch.next(),
        primary: config.primary,
        members: config.members.clone(),
        recover_from: vec![config.primary],
    };
    let of_term = |list, witnesses| Command::Recovered { shard: SHARD, epoch: config.epoch.next(), list, witnesses };
    assert!(start_with(&world, &[promote.clone(), of_term(list, witnesses.clone())]).is_ok());
    for (command, why) in [
        (of_term(ListVersion(7), witnesses.clone()), "list versions grow by one"),
        (of_term(list, Vec::new()), "list versions grow by one"),
        (of_term(list.next(), vec![NOBODY]), "not known"),
        (of_term(list.next(), vec![config.primary]), "R6.1"),
    ] {
        let error = start_with(&world, &[promote.clone(), command]).err().unwrap();
        assert!(matches!(&error, StartError::Damaged { what, .. } if what.contains(why)), "{error}");
    }
}

#[test]
fn what_is_no_command_is_no_operation() {
    let world = World::serving(3, 2, 1);
    let start = |change: &dyn Fn(&mut Stored)| {
        let durable = rewritten(&world.disk.durable, change);
        World::try_new(world.options.clone(), MemoryDisk { durable, ..MemoryDisk::default() }, Tick(0))
    };
    assert!(start(&|_| {}).is_ok());
    let is_refused = |change: &dyn Fn(&mut Stored), why: &str| {
        let error = start(change).err().expect(why).to_string();
        assert!(error.contains(why) && error.contains("K0109"), "{error}");
    };
    is_refused(&|stored| stored.entries.push(Entry::Operation(vec![200])), "a command's number");
    is_refused(&|stored| stored.entries.push(Entry::Operation(Vec::new())), "operation");
    is_refused(&|stored| stored.snapshot.state.truncate(9), "coordinator journal file");
    is_refused(&|stored| stored.snapshot.state.push(0), "coordinator journal file");
    is_refused(&|stored| stored.view.number = u64::MAX, "near its end");
    is_refused(&|stored| stored.snapshot.op.0 = u64::MAX - 9, "near its end");
    is_refused(&|stored| stored.log_view.number = stored.view.number + 1, "comes after");
}
