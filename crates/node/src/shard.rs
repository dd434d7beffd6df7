//! One shard's replica on this core: its copy of the log, the state derived from it, and its role. Whatever comes for the
//! shard is handed to the role here, and nowhere else is it asked which role that is: the handlers live on the roles, and
//! borrow what they work on (a [`Site`]).

pub(crate) mod commit;
pub(crate) mod copy;
pub(crate) mod distributed;
pub(crate) mod expiry;
pub(crate) mod operation_keys;
pub(crate) mod replay;
pub(crate) mod replay_check;
pub(crate) mod site;
pub(crate) mod state;
pub(crate) mod term;
pub(crate) mod unfinished;

use kasha_machine::{Disk, Effect, Effects, Endpoint};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, ConfigVersion, CoreId, Epoch, LogEnd, LogPosition, RpcId, SegmentId, ShardId, Tick, Work};
use kasha_wire::hot::{AppendView, ReadView};
use kasha_wire::message::{LeaseInfo, Report};
use kasha_wire::{Refusal, ShardConfig, ShardPhase};

use crate::backup::Backup;
use crate::core::Core;
use crate::primary::{Primary, Stage};
use crate::request::reads::{Comes, ReadPath, refuse_read};
use crate::request::run::RequestPath;
use crate::request::{Caller, refuse_undecoded};
use crate::serving::Serving;
use crate::shard::copy::LogCopy;
use crate::shard::replay::next_retired;
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::term::Term;
use crate::{NodeOptions, StartError};

/// What this core is to a shard.
#[derive(Debug)]
pub(crate) enum Role {
    /// It holds files, and waits to be told more (R7.1).
    Idle,
    /// It follows a primary.
    Backup(Backup),
    /// It is the primary of an epoch, or is becoming it.
    Primary(Box<Primary>),
}

/// A shard's replica.
#[derive(Debug)]
pub(crate) struct Replica {
    pub copy: LogCopy,
    pub state: ShardState,
    pub role: Role,
    /// The configuration names this process primary of this epoch, which it must not begin: it promised it before (0005).
    pub passed: Option<Epoch>,
}

impl Role {
    pub fn primary(&self) -> Option<&Primary> {
        match self {
            Self::Primary(primary) => Some(primary),
            Self::Idle | Self::Backup(_) => None,
        }
    }

    pub fn primary_mut(&mut self) -> Option<&mut Primary> {
        match self {
            Self::Primary(primary) => Some(primary),
            Self::Idle | Self::Backup(_) => None,
        }
    }

    pub fn backup_mut(&mut self) -> Option<&mut Backup> {
        match self {
            Self::Backup(backup) => Some(backup),
            Self::Idle | Self::Primary(_) => None,
        }
    }

    /// What clients are served with, or why they are not.
    pub fn serving(&mut self) -> Result<(&mut Term, &mut Serving), Refusal> {
        self.primary_mut().ok_or(Refusal::NotPrimary)?.serving_mut().ok_or(Refusal::Recovering)
    }
}

impl Replica {
    /// A replica that was never here.
    pub fn fresh(options: &NodeOptions, shard: ShardId) -> Self {
        Self { copy: LogCopy::fresh(options, shard), state: ShardState::new(shard), role: Role::Idle, passed: None }
    }

    /// Reads a replica's files.
    pub fn load(
        options: &NodeOptions,
        shard: ShardId,
        segments: Vec<SegmentId>,
        disk: &dyn Disk,
        out: &mut Effects,
    ) -> Result<Self, StartError> {
        let copy = LogCopy::load(options, shard, segments, disk, out)?;
        Ok(Self { copy, state: ShardState::new(shard), role: Role::Idle, passed: None })
    }

    pub fn shard(&self) -> ShardId {
        self.copy.shard
    }

    pub fn parts<'a>(&'a mut self, core: &'a mut Core) -> (Site<'a>, &'a mut Role) {
        let Self { copy, state, role, .. } = self;
        (Site { copy, state, core }, role)
    }
}

/// How the role changes.
impl Replica {
    /// The configuration says that we are the primary.
    pub fn obey_primary(&mut self, core: &mut Core, config: &ShardConfig, out: &mut Effects) {
        let promised = self.copy.meta.promised;
        let (mut site, role) = self.parts(core);
        if let Some(primary) = role.primary_mut().filter(|primary| primary.term.epoch == config.epoch) {
            return primary.obey(&mut site, config);
        }
        // Only the primary of an epoch asks for promises of it, so an epoch that was promised was begun: perhaps by an earlier
        // incarnation, whose bytes in that epoch must stay the only ones. And who serves in a term that this process did
        // not begin waits to be promoted anew (R7.1).
        if config.phase == ShardPhase::Recovering && config.epoch > promised {
            self.begin_term(core, config, out);
        } else if planted::is_on(Bug::FastRestartServes) && config.epoch >= promised {
            self.begin_term(core, config, out);
            let (mut site, role) = self.parts(core);
            role.primary_mut().expect("just begun").begin_serving(&mut site, config);
        } else {
            // To be told: whoever named us knows less than our file, or takes us for an earlier process, and then names anew.
            let named = core.configuration.as_ref().and_then(|configuration| configuration.node(core.id().node));
            let is_this_process = named.is_some_and(|info| info.incarnation == core.options.incarnation);
            self.passed = is_this_process.then_some(config.epoch);
        }
    }

    /// What the coordinator is told of a term that we must not begin.
    pub fn passed_report(&self) -> Option<Report> {
        let (shard, promised) = (self.copy.shard, self.copy.meta.promised);
        let is_idle = matches!(self.role, Role::Idle);
        self.passed.filter(|_| is_idle).map(|epoch| Report::PromisedBefore { shard, epoch, promised })
    }

    /// The process is asked to stop: a serving primary closes its list for good.
    pub fn begin_stop(&mut self, core: &Core, config: &ShardConfig) {
        let end = self.copy.log.end().offset;
        if let Ok((term, serving)) = self.role.serving()
            && term.epoch == config.epoch
        {
            serving.begin_stop(core, config, end);
        }
    }

    /// The configuration made us primary of this epoch (step 1). Whatever we were, we begin anew.
    fn begin_term(&mut self, core: &mut Core, config: &ShardConfig, out: &mut Effects) {
        assert!(self.role.primary().is_none_or(|primary| primary.term.epoch < config.epoch), "a term begins once");
        core.work.add(Work::Role);
        self.lose_role(out);
        self.passed = None;
        let (mut site, role) = self.parts(core);
        *role = Role::Primary(Box::new(Primary::begin(&mut site, config, out)));
    }

    /// A primary of this epoch speaks: obey it from now on, unless we promised a later one. `None`: do not.
    pub fn follow<'a>(
        &'a mut self,
        core: &'a mut Core,
        (epoch, primary): (Epoch, CoreId),
        out: &mut Effects,
    ) -> Option<(Site<'a>, &'a mut Backup)> {
        let promised = self.copy.meta.promised;
        if epoch < promised && !planted::is_on(Bug::EpochUnfenced) {
            return None;
        }
        let follows_it = match &self.role {
            Role::Primary(own) if own.term.epoch >= epoch => return None,
            Role::Backup(backup) if backup.epoch == epoch && backup.primary != primary => return None,
            Role::Backup(backup) => backup.epoch == epoch,
            Role::Primary(_) | Role::Idle => false,
        };
        if !follows_it {
            if epoch > promised || !self.copy.exists {
                self.copy.promise(core, epoch, out);
            }
            self.lose_role(out);
            self.role = Role::Backup(Backup::new(epoch, primary));
        }
        let (site, role) = self.parts(core);
        role.backup_mut().map(|backup| (site, backup))
    }

    /// Gives up whatever role it has: nothing that was held may leave any more (R3.1).
    pub fn lose_role(&mut self, out: &mut Effects) {
        let role = std::mem::replace(&mut self.role, Role::Idle);
        if !matches!(role, Role::Idle) && !planted::is_on(Bug::HeldEffectsKept) {
            out.push(Effect::DropHeld(self.copy.shard));
        }
        if let Role::Primary(primary) = role {
            primary.settle_for_follower(&mut self.copy, &mut self.state);
        }
    }

    /// The shard serves without us: what we hold is of no use. The promise stays (F2).
    pub fn discard(&mut self, core: &mut Core, out: &mut Effects) {
        self.lose_role(out);
        if self.copy.is_used() {
            self.copy.discount(core, out);
            self.parts(core).0.reset_log(LogEnd::START, out);
        }
    }

    /// Whether a configuration that does not name us is from before the primary attached us as a member.
    pub fn was_attached_after(&self, version: ConfigVersion) -> bool {
        matches!(&self.role, Role::Backup(backup) if backup.was_attached_after(version))
    }
}

/// What comes for the role.
impl Replica {
    /// One update from a client.
    pub fn on_request(&mut self, core: &mut Core, caller: Caller, body: &[u8], out: &mut Effects) {
        let (mut site, role) = self.parts(core);
        match role.serving() {
            Ok((term, serving)) => RequestPath::on_request(term, serving, &mut site, caller, body, out),
            Err(why) => refuse_undecoded(&caller, body, site.copy.meta.promised, why, out),
        }
    }

    /// Answers one read, or refuses it.
    pub fn on_read(&mut self, core: &mut Core, now: Tick, to: Endpoint, view: &ReadView<'_>, out: &mut Effects) {
        let (mut site, role) = self.parts(core);
        match role.serving() {
            Ok((term, serving)) => ReadPath::on_read(term, serving, &mut site, now, (to, view, Comes::First), out),
            Err(why) => refuse_read(to, view, site.copy.meta.promised, why, out),
        }
    }

    /// Where an update of this term is in the log, which is now to be synced to there (R2.1 \[M\]). `None`: another term, or
    /// not known here.
    pub fn on_sync(&mut self, rpc: RpcId, epoch: Epoch) -> Option<LogPosition> {
        let (term, _) = self.role.serving().ok()?;
        let is_of_term = term.epoch == epoch;
        if !is_of_term {
            hit(Probe::SyncOfAnotherTerm);
        }
        let record =
            self.state.tracker.place_of(rpc).filter(|_| is_of_term || planted::is_on(Bug::SyncInAnotherEpoch))?;
        let end = record.end_after();
        term.shipping.want_synced(end);
        Some(LogPosition { epoch: term.epoch, offset: end })
    }

    /// Log bytes from a primary.
    pub fn on_append(&mut self, core: &mut Core, from: Endpoint, append: &AppendView<'_>, out: &mut Effects) {
        let (mut site, role) = self.parts(core);
        match role {
            Role::Backup(backup) => backup.on_append(&mut site, from, append, out),
            Role::Idle if append.epoch >= site.copy.meta.promised || planted::is_on(Bug::EpochUnfenced) => {
                hit(Probe::AppendUnattached);
                // A new incarnation: attach us again.
                site.copy.mismatch(site.core, from, (append.epoch, append.attach), out);
            }
            Role::Idle | Role::Primary(_) => {}
        }
    }

    /// The coordinator's verdict on leases.
    pub fn on_lease_verdict(&mut self, core: &mut Core, expired: &[ClientId], alive: &[LeaseInfo], out: &mut Effects) {
        let (mut site, role) = self.parts(core);
        if let Ok((term, serving)) = role.serving() {
            serving.on_lease_verdict(term, &mut site, expired, alive, out);
        }
    }

    /// Ends a turn: what the role and the copy have to write and send.
    pub fn end_turn(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        self.copy.remove_freed_files(core, out);
        let (mut site, role) = self.parts(core);
        match role {
            Role::Idle => site.replay_slice(),
            Role::Backup(backup) => backup.end_turn(&mut site, out),
            Role::Primary(primary) => primary.end_turn(&mut site, now, out),
        }
        self.copy.note_acknowledged(core, out);
    }

    /// Whether our log is to survive a loss of power, and does not yet (R8.17).
    pub fn wants_flush(&self, core: &Core) -> bool {
        match self.role.primary() {
            Some(Primary { term, stage: Stage::Serving(_) }) => term.wants_flush(core, &self.copy),
            Some(_) | None => false,
        }
    }

    /// Whether a follower's state has followed the log to its end.
    pub fn is_replayed(&self) -> bool {
        self.copy.is_followed() && !self.state.has_unfinished()
    }

    pub fn next_deadline(&self, core: &Core) -> Option<Tick> {
        let executes = self.role.primary().is_some_and(|primary| primary.stage.executes());
        let replays = self.copy.meta.complete && !executes && !self.is_replayed();
        let goes_on = replays || self.has_more_to_free(core) || self.copy.has_file_to_remove(core);
        let primary = self.role.primary().and_then(|primary| primary.next_deadline(core, &self.state));
        goes_on.then_some(Tick(0)).into_iter().chain(primary).min()
    }

    /// Whether another turn would free, forget, expire or drop more.
    fn has_more_to_free(&self, core: &Core) -> bool {
        let Self { copy, state, role, .. } = self;
        let up_to = match role.primary() {
            Some(Primary { term, stage: Stage::Serving(serving) }) => {
                let has_expired = operation_keys::have_expired(state, core.cluster_time)
                    || serving.expiry.is_due(state, core.counted.time(), term.shipping.synced());
                if state.has_unfinished() || state.store.has_graves_to_tend() || has_expired {
                    return true;
                }
                term.shipping.synced()
            }
            Some(primary) if primary.stage.executes() => return false,
            Some(_) | None if copy.meta.complete => copy.known_synced.min(copy.replayed.offset),
            Some(_) | None => copy.known_synced,
        };
        next_retired(copy, state, up_to).is_some()
    }

    pub fn assert_invariants(&self) {
        self.copy.assert_invariants();
        if let Some(Primary { term, .. }) = self.role.primary() {
            let shard = self.copy.shard;
            assert_eq!(term.epoch, self.copy.meta.promised, "F2: {shard} is primary of what it promised");
            term.shipping.assert_invariants(self.copy.log.end().offset);
        }
        self.state.tracker.assert_invariants();
        self.state.distributed.participant.assert_invariants();
    }
}
