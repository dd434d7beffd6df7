//! What waited comes in again, as if it had just arrived; so does what a witness has held for long.

use kasha_machine::{Effects, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, Tick};
use kasha_wire::Body;
use kasha_wire::hot::ReadView;
use kasha_wire::message::{GcDone, LeaseInfo};

use crate::request::reads::{Comes, ReadPath};
use crate::request::run::RequestPath;
use crate::request::{Condition, Replayed, refuse};
use crate::serving::Serving;
use crate::serving::waiting::Waits;
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
        for info in alive {
            self.waiting.open(Condition::Lease(info.client));
        }
        for &client in expired {
            for update in self.waiting.expire(client) {
                self.counters.refusals += 1;
                refuse(&update.caller, update.rpc, term.epoch, update.refusal, Gate::Now, out);
            }
        }
    }

    /// When the cleaner has done its part. The first that still finds no memory waits again, behind the others, and ends the turn's
    /// part.
    pub fn look_for_memory(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
        if !self.waiting.is_memory_due(now) {
            return;
        }
        for left in (0..self.waiting.count(Condition::Memory)).rev() {
            self.waiting.try_memory();
            self.run_ready(term, site, now, out);
            if self.waiting.count(Condition::Memory) > left {
                return;
            }
        }
    }

    /// The one door for what waits for nothing more: a request and a read come in again, as if they had just arrived; an answer leaves.
    /// False: there was nothing.
    #[inline]
    pub fn run_ready(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) -> bool {
        let mut ran = false;
        while let Some(waits) = self.waiting.next_ready() {
            ran = true;
            self.let_in(term, site, now, waits, out);
        }
        ran
    }

    #[cold]
    fn let_in(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, waits: Waits, out: &mut Effects) {
        match waits {
            Waits::Update(update) => {
                hit(Probe::ParkedRan);
                RequestPath::on_request(term, self, site, update.caller, &update.body, out);
            }
            Waits::Read(read) => {
                let view = ReadView::decode(&read.payload).expect("encoded here");
                ReadPath::on_read(term, self, site, now, (read.to, &view, Comes::Again), out);
            }
            Waits::Answer(answer) => answer.leave(out),
        }
    }
}
