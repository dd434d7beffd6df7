//! The machine around the state: it decides commands, logs them, and tells others only what is committed.
//!
//! The next decision begins from what is decided (`ledger`). Frames that are sent afterwards wait until that is
//! committed, so nothing that a crash could undo is ever sent (D3). Frames may be lost: cores repeat reports, clients
//! repeat requests, and a heartbeat that shows an old configuration is answered with the new one.
//!
//! A coordinator is a [`Member`], and has a [`Lead`] while it leads. One that is alone leads as soon as its view is on its disk.

use std::collections::BTreeSet;
use std::time::Duration;

use kasha_machine::{Disk, Effect, Effects, Endpoint, Gate, Input, Machine};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterId, LogSlice, MemberId, ShardId, Tick};
use kasha_viewstamped::Trouble;
use kasha_wire::link::ToCoordinator;
use kasha_wire::message::{GetConfiguration, LeaseQuery, OpenSession, RenewLease};
use kasha_wire::{Configuration, GroupMember, Kind, Message};

use crate::goodbye::Goodbye;
use crate::lead::{Lead, Leading};
use crate::ledger::Turnover;
use crate::limits::WALL_NEAR_MILLIS;
use crate::member::Member;
use crate::memory::Loss;
use crate::outbox::Out;
use crate::overtaken::Overtaken;
use crate::storage;
use crate::{CoordinatorOptions, StartError, State};

/// The coordinator of one cluster.
#[derive(Debug)]
pub struct Coordinator {
    member: Member,
    /// `None`: another member leads, or nobody.
    lead: Option<Lead>,
}

impl Coordinator {
    /// What the files of a coordinator hold; `None`: the cluster is not made yet.
    ///
    /// # Errors
    /// If the files cannot be read, are damaged, or are another cluster's.
    pub fn stored(disk: &dyn Disk, cluster: ClusterId) -> Result<Option<State>, StartError> {
        Ok(storage::load(disk, storage::reader_of(cluster))?.log.map(|log| log.state))
    }

    /// The members that count by the newest list in these files; none if the cluster is not made yet.
    ///
    /// # Errors
    /// If the files cannot be read, are damaged, or are another cluster's.
    pub fn stored_members(disk: &dyn Disk, cluster: ClusterId) -> Result<BTreeSet<MemberId>, StartError> {
        let found = storage::load(disk, storage::reader_of(cluster))?.log;
        Ok(found.map(|log| log.stored.newest_members().clone()).unwrap_or_default())
    }

    /// Starts from what `disk` holds, or creates the cluster.
    ///
    /// # Errors
    /// If the options are impossible, or the stored log is another cluster's, another version's or damaged.
    pub fn start(
        options: CoordinatorOptions,
        disk: &dyn Disk,
        now: Tick,
        out: &mut Effects,
    ) -> Result<Self, StartError> {
        let found = storage::load(disk, storage::writer_of(&options))?;
        let options = match &found.log {
            Some(log) => {
                options.check_folder(found.files.member(), &log.state)?;
                options.of_cluster(&log.state)?
            }
            None => options,
        };
        options.check()?;
        for (seed, address) in (0..).zip(&options.seeds) {
            let Some(address) = *address else { continue };
            out.push(Effect::Route { to: Endpoint::Seed(seed), address });
        }
        let mut member = Member::start(options, found, now);
        member.ledger.flush(now, out);
        Ok(Self { member, lead: None })
    }

    /// The committed configuration.
    #[must_use]
    pub fn configuration(&self) -> &Configuration {
        self.state().configuration()
    }

    /// The committed state.
    #[must_use]
    pub fn state(&self) -> &State {
        self.member.ledger.committed()
    }

    /// The state with what is decided and not committed yet: what the next decision begins from.
    #[must_use]
    pub fn decided(&self) -> &State {
        self.member.ledger.decided()
    }

    /// Whether this member leads its group.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.lead.is_some()
    }

    /// Why this member takes no part in its group any more, if that is so: its state is not that of a majority (R9.11).
    #[must_use]
    pub fn trouble(&self) -> Option<&Trouble> {
        self.member.ledger.trouble()
    }

    /// Whether its files hold something: whoever starts without them again has lost what was promised there.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.member.ledger.has_files()
    }

    /// The members of the group, as this one knows them. A newcomer knows of none.
    #[must_use]
    pub fn members(&self) -> BTreeSet<MemberId> {
        self.member.ledger.lists().members
    }

    /// The members that this one has not heard within so long, if it knows of no leader: a majority may be away.
    #[must_use]
    pub fn lacks(&self, now: Tick, time: Duration) -> Vec<GroupMember> {
        let ledger = &self.member.ledger;
        let (_, leader) = ledger.whom_it_follows();
        let is_led = self.leads() || leader.is_some_and(|leader| ledger.has_heard(now, leader, time));
        let group = self.state().configuration().group.iter().copied();
        let is_away = |of: &GroupMember| of.member != ledger.me() && !ledger.has_heard(now, of.member, time);
        if is_led { Vec::new() } else { group.filter(is_away).collect() }
    }

    /// What this coordinator has forgotten, if anything: then it decides nothing (R9.13).
    #[must_use]
    pub fn memory_loss(&self) -> Option<Loss> {
        // Another member may lead by now, and know more: then nothing was lost.
        let lead = self.lead.as_ref()?;
        lead.memory.loss().filter(|_| lead.loss_round.is_some_and(|round| self.member.ledger.is_confirmed(round)))
    }

    /// By how many milliseconds the clock on this machine's wall is ahead of ClusterTime, if that is so much that ClusterTime does not follow it
    /// (R10.12).
    #[must_use]
    pub fn far_wall(&self) -> Option<i64> {
        let ahead = self.lead.as_ref()?.wall_ahead;
        (ahead.unsigned_abs() > WALL_NEAR_MILLIS).then_some(ahead)
    }

    /// The shards of which a node has promised more than this coordinator knows.
    pub fn overtaken(&self) -> impl Iterator<Item = (ShardId, Overtaken)> + '_ {
        self.lead.iter().flat_map(|lead| &lead.overtaken).map(|(&shard, &overtaken)| (shard, overtaken))
    }

    fn leading(&mut self) -> Option<Leading<'_>> {
        self.lead.as_mut().map(|lead| Leading { member: &mut self.member, lead })
    }

    /// A stall of our own looks like a silence of all nodes (pitfall 9).
    fn notice_stall(&mut self, now: Tick) {
        let was_stalled = self.member.note_time(now);
        if let Some(lead) = self.lead.as_mut().filter(|_| was_stalled) {
            hit(Probe::OwnStall);
            lead.leases.extend_all(now);
        }
    }

    /// Begins to lead, or ends.
    fn follow_log(&mut self, out: &mut Effects) {
        while let Some(turnover) = self.member.ledger.next_turnover() {
            match turnover {
                Turnover::Leads { since, recalled } => {
                    self.lead = Some(Lead::begin(&mut self.member, since, recalled));
                }
                Turnover::Deposed => {
                    self.lead = None;
                    self.member.outbox.drop_held();
                    out.push(Effect::DropCommitted);
                }
            }
        }
    }

    fn on_closed(&mut self, now: Tick, end: Endpoint) {
        if let Some(lead) = &mut self.lead {
            lead.on_closed(end);
        }
        self.member.on_closed(now, end);
    }

    fn on_frame(&mut self, now: Tick, from: Endpoint, kind: u8, payload: &[u8], out: &mut Out<'_>) {
        if self.member.outbox.is_parting(from) {
            return;
        }
        let message = match message_of(kind, payload) {
            Ok(ToCoordinator::Grouped(said)) => {
                if let Err(why) = self.member.on_grouped(now, from, &said) {
                    self.member.say_goodbye(from, why, out);
                }
                return;
            }
            other => other,
        };
        match (message, self.leading()) {
            (Ok(message), Some(mut leading)) => leading.on_message(now, from, message, out),
            (Ok(message), None) => self.member.overhear(now, from, &message, out),
            (Err(why), Some(mut leading)) => leading.say_goodbye(from, why, out),
            (Err(why), None) => self.member.say_goodbye(from, why, out),
        }
    }
}

fn message_of(kind: u8, payload: &[u8]) -> Result<ToCoordinator, Goodbye> {
    if kind != Kind::Message as u8 {
        return Err(Goodbye::Kind(kind));
    }
    Message::decode(payload).map_err(Goodbye::Payload)
}

impl Leading<'_> {
    fn on_message(&mut self, now: Tick, from: Endpoint, message: ToCoordinator, out: &mut Out<'_>) {
        self.member.ledger.question(now);
        if !self.may_hear(&message) {
            return self.on_message_deciding_nothing(now, from, message, out);
        }
        match message {
            ToCoordinator::Heartbeat(heartbeat) => {
                if self.remembers(from, &heartbeat) {
                    self.on_heartbeat(now, from, &heartbeat, out);
                }
            }
            ToCoordinator::GetConfiguration(GetConfiguration { have }) => self.on_get_configuration(from, have),
            ToCoordinator::OpenSession(OpenSession { nonce }) => self.on_open_session(now, from, nonce, out),
            ToCoordinator::RenewLease(RenewLease { client }) => self.on_renew_lease(now, from, client, out),
            ToCoordinator::LeaseQuery(LeaseQuery { clients }) => self.on_lease_query(now, from, &clients, out),
            ToCoordinator::TableRequest(request) => self.on_table_request(now, from, request, out),
            ToCoordinator::GiveUp(question) => {
                let answer = self.on_give_up(now, &question);
                self.member.send(from, &answer, out);
            }
            ToCoordinator::Administer(question) => {
                let answer = self.on_administer(now, &question);
                self.member.send(from, &answer, out);
            }
            ToCoordinator::Grouped(_) | ToCoordinator::Handshake(_) => {}
        }
    }
}

impl Machine for Coordinator {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        self.notice_stall(now);
        match input {
            Input::Frame { from, kind, payload } => {
                self.on_frame(now, from, kind, payload, &mut Out::new(out));
                self.follow_log(out);
            }
            Input::Closed(conn) => self.on_closed(now, Endpoint::Conn(conn)),
            Input::Unreachable(end) => self.on_closed(now, end),
            Input::Durable(position) => {
                self.member.on_durable(now, position, out);
                self.follow_log(out);
            }
            Input::UnixTime(unix) => {
                if let Some(mut leading) = self.leading() {
                    leading.on_unix_time(now, unix);
                }
            }
            Input::LogsFlushed | Input::Tick => {}
            Input::Request { .. } | Input::RequestsEnd { .. } | Input::Backlog { .. } => {
                unreachable!("a coordinator listens for frames")
            }
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        self.notice_stall(now);
        self.member.ledger.on_tick(now);
        self.follow_log(out);
        if self.lead.is_none() {
            self.member.follow_timing();
        }
        self.member.tell_what_is_open(out);
        if let Some(mut leading) = self.leading() {
            leading.end_turn(now, &mut Out::new(out));
        }
        self.member.talk(out);
        self.member.ledger.flush(now, out);
    }

    fn next_deadline(&self) -> Option<Tick> {
        let lead = self.lead.as_ref().map(|lead| lead.next_deadline(self.member.last_step));
        lead.into_iter().chain(self.member.ledger.next_deadline()).min()
    }

    fn is_open(&self, gate: Gate) -> bool {
        match gate {
            Gate::Now => true,
            Gate::Committed { view, op, round } => self.member.ledger.is_committed(view, op, round),
            Gate::Durable(_) | Gate::DurableAs { .. } => unreachable!("the coordinator waits for its group"),
            Gate::Synced { .. } | Gate::Flushed { .. } | Gate::Confirmed { .. } => {
                unreachable!("the coordinator has no shard")
            }
        }
    }

    fn log_bytes(&self, _slice: LogSlice) -> &[u8] {
        unreachable!("the coordinator names no log bytes")
    }

    fn assert_invariants(&self) {
        self.member.ledger.assert_invariants();
        if self.leads() {
            assert!(
                self.member.ledger.clients().next() <= self.decided().clients_below,
                "R4.7: granted ids are reserved"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use kasha_machine::{FileName, Held};
    use kasha_types::{ConfigVersion, ConnId};
    use kasha_wire::FRAME_HEADER_BYTES;

    use super::*;

    struct NoFiles;

    impl Disk for NoFiles {
        fn list(&self) -> Vec<FileName> {
            Vec::new()
        }

        fn read(&self, _: FileName) -> std::io::Result<Option<Vec<u8>>> {
            Ok(None)
        }
    }

    /// Ends the turn. Returns how many messages leave, and the end of the commit that is asked for.
    fn end_turn(coordinator: &mut Coordinator, held: &mut Held, out: &mut Effects) -> (usize, Option<Input<'static>>) {
        coordinator.end_turn(Tick(1), out);
        let (mut sent, mut durable) = (0, None);
        for &effect in out.queue() {
            match effect {
                Effect::Send { gate: Gate::Now, .. } => sent += 1,
                Effect::Send { to, head, gate, .. } => held.hold(gate, to, out.bytes(head), None),
                Effect::Commit { to, .. } => durable = Some(Input::Durable(to)),
                Effect::DropCommitted => held.drop_committed(|_, _| {}),
                _ => {}
            }
        }
        out.clear();
        held.release(|gate| coordinator.is_open(gate), |_, _, _| sent += 1);
        (sent, durable)
    }

    #[test]
    fn r9_1_what_a_lead_has_made_does_not_leave_after_it_is_lost() {
        let options = CoordinatorOptions::new(ClusterId(7), 3, 2, 1, ([127, 0, 0, 1], 1).into());
        let (mut out, mut held) = (Effects::new(), Held::new());
        let mut coordinator = Coordinator::start(options, &NoFiles, Tick(1), &mut out).unwrap();
        let from = Endpoint::Conn(ConnId(1));
        let ask = |coordinator: &mut Coordinator, out: &mut Effects| {
            let mut frame = Vec::new();
            GetConfiguration { have: ConfigVersion(0) }.encode(&mut frame);
            let payload = &frame[FRAME_HEADER_BYTES..];
            coordinator.step(Tick(1), Input::Frame { from, kind: Kind::Message as u8, payload }, out);
        };
        let (_, mut durable) = end_turn(&mut coordinator, &mut held, &mut out);
        while coordinator.lead.is_none() {
            coordinator.step(Tick(1), durable.expect("it waits for its disk"), &mut out);
            (_, durable) = end_turn(&mut coordinator, &mut held, &mut out);
        }
        ask(&mut coordinator, &mut out);
        assert_eq!(end_turn(&mut coordinator, &mut held, &mut out).0, 0);
        assert_eq!(held.len(), 1, "the answer waits for the time that the lead has reserved");

        coordinator.member.ledger.hear_of_a_later_view(Tick(1));
        assert_eq!(end_turn(&mut coordinator, &mut held, &mut out).0, 0);
        assert!(coordinator.lead.is_none() && held.is_empty());
        coordinator.step(Tick(1), durable.expect("what was decided"), &mut out);
        ask(&mut coordinator, &mut out);
        assert_eq!(end_turn(&mut coordinator, &mut held, &mut out).0, 0, "it answers nobody");
        assert!(held.is_empty() && coordinator.next_deadline().is_some());
        coordinator.assert_invariants();
    }
}
