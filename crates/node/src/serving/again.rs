//! What waited comes in again, as if it had just arrived; so does what a witness has held for long.

use kasha_machine::{Effects, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, RpcId, Tick};
use kasha_wire::Body;
use kasha_wire::hot::ReadView;
use kasha_wire::message::{GcDone, LeaseInfo};

use crate::request::reads::{Comes, on_read, refuse_read};
use crate::request::run::RequestPath;
use crate::request::{Replayed, WaitsFor, refuse};
use crate::serving::Serving;
use crate::serving::parking::Parked;
use crate::shard::site::Site;
use crate::shard::term::Term;

impl Serving {
    /// A witness dropped what was named, and names suspects (CURP 4.5): they go through `look_up`, are synced, and are
    /// named in a later gc. One that is stale, expired or not ours can be dropped at once.
    pub fn on_gc_done(&mut self, term: &mut Term, site: &mut Site<'_>, done: &GcDone) {
        if self.committed_list != done.list || !self.garbage.on_done(done.node, done.round) {
            return;
        }
        for suspect in &done.suspects {
            let is_dropped = planted::is_on(Bug::SuspectDropped);
            let mut replayed = || RequestPath::on_suspect(term, self, site, &suspect.0);
            if !is_dropped && matches!(replayed(), Replayed::NoRoom | Replayed::NotNow) {
                continue; // it stays where it is, and is named again
            }
            // Recorded or not, it goes with the next gc after a sync: what made it stale may itself not be synced yet.
            let Ok(body) = Body::decode(&suspect.0) else { continue };
            let mut hashes = Vec::new();
            body.footprint_at(site.copy.shard, &mut hashes);
            self.garbage.add(site.copy.log.end().offset, body.head.rpc, &hashes);
        }
    }

    /// The coordinator's verdict on leases (R4.3, R4.6).
    #[cold]
    pub fn on_lease_verdict(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        expired: &[ClientId],
        alive: &[LeaseInfo],
        out: &mut Effects,
    ) {
        let Site { copy, state, .. } = site;
        self.leases.on_verdict(term.epoch, &mut copy.log, state, expired, alive);
        let is_alive = |client: ClientId| alive.iter().any(|info| info.client == client);
        let is_for = |waits_for, is_it: &dyn Fn(ClientId) -> bool| match waits_for {
            WaitsFor::Lease(client) => is_it(client),
            WaitsFor::Room | WaitsFor::Transaction(_) | WaitsFor::Turn(_) => false,
        };
        for _ in 0..self.parking.len() {
            let Some(parked) = self.parking.take(|waits_for| is_for(waits_for, &is_alive)) else { break };
            self.run_parked(term, site, &parked, out);
        }
        while let Some(parked) = self.parking.take(|waits_for| is_for(waits_for, &|client| expired.contains(&client))) {
            self.counters.refusals += 1;
            refuse(&parked.caller, parked.rpc, term.epoch, parked.refusal(), Gate::Now, out);
        }
    }

    /// When the cleaner has done its part. The first that still finds no room is parked again, behind the others, and ends
    /// the turn's part.
    pub fn run_those_that_wait_for_room(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
        if !self.parking.is_room_due(now) {
            return;
        }
        for _ in 0..self.parking.len() {
            let Some(parked) = self.parking.take(|waits_for| waits_for == WaitsFor::Room) else { return };
            let others = self.parking.len();
            self.run_parked(term, site, &parked, out);
            if self.parking.len() > others {
                return;
            }
        }
    }

    /// It comes in again, as if it had just arrived.
    #[cold]
    pub(super) fn run_parked(&mut self, term: &mut Term, site: &mut Site<'_>, parked: &Parked, out: &mut Effects) {
        hit(Probe::ParkedRan);
        RequestPath::on_request(term, self, site, parked.caller, &parked.body, out);
    }

    /// Those that wait for these transactions come in again. False: there was none.
    pub(super) fn run_those_that_waited(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        released: &[RpcId],
        now: Tick,
        out: &mut Effects,
    ) -> bool {
        let mut ran = false;
        for read in self.transacting.waiting.take_reads(released) {
            let view = ReadView::decode(&read.payload).expect("encoded here");
            if let Err(why) = on_read(term, self, site, now, (read.to, &view, Comes::Again), out) {
                refuse_read(read.to, &view, term.epoch, why, out);
            }
        }
        for &rpc in released {
            for _ in 0..self.parking.len() {
                let Some(parked) = self.parking.take(|waits_for| waits_for == WaitsFor::Transaction(rpc)) else {
                    break;
                };
                ran = true;
                self.run_parked(term, site, &parked, out);
            }
        }
        ran
    }
}
