//! What clients ask of the coordinator: sessions, leases, verdicts, tables.

use kasha_machine::Endpoint;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, ConfigVersion, CoreId, Tick};
use kasha_wire::ShardPhase;
use kasha_wire::message::{
    LeaseInfo, LeaseLost, LeaseRenewed, LeaseVerdict, SessionOpened, TableAnswer, TableCommand, TableOutcome,
    TableRequest,
};

use crate::clients::Standing;
use crate::goodbye::Goodbye;
use crate::lead::Leading;
use crate::limits::{CLIENT_IDS_AHEAD, LEASE_QUERY_MAX};
use crate::outbox::Out;
use crate::{Command, repair, tables};

impl Leading<'_> {
    pub(crate) fn on_open_session(&mut self, now: Tick, from: Endpoint, nonce: u64, out: &mut Out<'_>) {
        let cluster_time = self.cluster_time(now);
        if !self.member.ledger.clients().has_room() {
            return; // it asks again
        }
        let Some((client, lease_expiry)) = self.member.ledger.clients_mut().grant(cluster_time) else {
            return self.say_goodbye(from, Goodbye::TooManyClients, out);
        };
        if client >= self.decided().clients_below {
            self.decide(Command::ReserveClients { below: ClientId(client.0 + CLIENT_IDS_AHEAD) });
        }
        self.member.send(from, &SessionOpened { nonce, client, lease_expiry, cluster_time }, out);
    }

    pub(crate) fn on_renew_lease(&mut self, now: Tick, from: Endpoint, client: ClientId, out: &mut Out<'_>) {
        let cluster_time = self.cluster_time(now);
        if !self.member.ledger.clients().has_room_for(client) {
            return; // it asks again
        }
        match self.member.ledger.clients_mut().renew(cluster_time, client) {
            Some(lease_expiry) => self.member.send(from, &LeaseRenewed { client, lease_expiry, cluster_time }, out),
            None => self.member.send(from, &LeaseLost { client }, out),
        }
    }

    pub(crate) fn on_lease_query(&mut self, now: Tick, from: Endpoint, clients: &[ClientId], out: &mut Out<'_>) {
        let cluster_time = self.cluster_time(now);
        let (mut expired, mut alive) = (Vec::new(), Vec::new());
        for &client in clients.iter().take(LEASE_QUERY_MAX) {
            match self.member.ledger.clients().standing(cluster_time, client) {
                Standing::Alive(expiry) => alive.push(LeaseInfo { client, expiry }),
                Standing::Expired => expired.push(client),
            }
        }
        let view = self.member.ledger.view();
        self.member.send(from, &LeaseVerdict { cluster_time, expired, alive, view }, out);
    }

    pub(crate) fn on_table_request(&mut self, now: Tick, from: Endpoint, request: TableRequest, out: &mut Out<'_>) {
        let TableRequest { client, sequence, command } = request;
        let refuse = |text| TableAnswer { client, sequence, outcome: TableOutcome::Refused(text) };
        if let Some(why) = tables::refusal(&command, self.decided().level()) {
            return self.member.send(from, &refuse(why), out);
        }
        let last = self.decided().table_answer(client).map_or(0, |answer| answer.sequence);
        if last != 0 && sequence <= last {
            // A copy of the last request, which still waits for its answer; earlier requests have had theirs.
            hit(Probe::TableRequestRepeated);
            if sequence == last {
                self.lead.waiters.wait(from, client, sequence);
            }
            return;
        }
        let cluster_time = self.cluster_time(now);
        if self.member.ledger.clients().standing(cluster_time, client) == Standing::Expired {
            return self.member.send(from, &LeaseLost { client }, out);
        }
        if self.decided().table_answers_forgotten(client) {
            return self.member.send(from, &refuse(tables::FORGOTTEN.into()), out);
        }
        if self.decided().configuration.shards.is_empty() || self.member.ledger.is_backed_up() {
            return;
        }
        let drops = matches!(command, TableCommand::Drop(_));
        self.decide(Command::Table { client, sequence, command });
        if drops {
            self.lead.waiters.dropped(self.decided().configuration.version);
        }
        self.lead.waiters.wait(from, client, sequence);
    }

    /// The configuration that every core which may hold a lease is known to obey.
    fn known_by_alive(&self) -> ConfigVersion {
        let may_answer = self.decided().configuration.nodes.iter().filter(|info| info.alive);
        let cores = may_answer.flat_map(|info| {
            (0..u8::try_from(info.cores.len()).expect("at most CORES_MAX")).map(|core| CoreId { node: info.node, core })
        });
        cores
            .map(|core| self.member.links.get(&core).map_or(ConfigVersion(0), |link| link.have))
            .min()
            .unwrap_or(self.decided().configuration.version)
    }

    /// Without a lease, too, a lost primary may complete updates through its witnesses or members, until a new term
    /// serves and has frozen and fenced these (section 7). Until then no answer to a drop of a table is sent (E1).
    fn is_every_deposed_primary_harmless(&self) -> bool {
        self.decided().configuration.shards.iter().all(|shard| {
            let has_served = shard.phase == ShardPhase::Serving || shard.recover_from.is_empty();
            has_served && !repair::needs_fail_over(self.decided(), shard)
        })
    }

    pub(crate) fn answer_table_requests(&mut self, out: &mut Out<'_>) {
        if self.lead.waiters.is_settled() {
            return;
        }
        let known = self.known_by_alive();
        if self.is_every_deposed_primary_harmless() || planted::is_on(Bug::DropToldDuringFailOver) {
            self.lead.waiters.settled(known);
        }
        let answers: Vec<(Endpoint, TableAnswer)> =
            (self.lead.waiters.take_known(self.member.ledger.decided(), known).into_iter())
                .map(|(to, answer)| {
                    let (client, sequence, outcome) = (answer.client, answer.sequence, answer.outcome.clone());
                    (to, TableAnswer { client, sequence, outcome })
                })
                .collect();
        for (to, message) in answers {
            self.member.send(to, &message, out);
        }
    }
}
