//! A primary's term, from promotion to serving (section 7; CURP 3.3 and 4.6).
//!
//! ```text
//! Fencing ─▶ Fetching ─▶ Replaying ─▶ Witnessing ─▶ Syncing ─▶ Reporting ─▶ Serving
//!   step 2     step 2      step 3       step 4       step 5      step 5
//!    ▲                                    │
//!    └──── no witness is sure (R5.5) ◀────┘
//! ```
//!
//! No step falls through: without one sure member, or without a whole log or one witness of the current list, the term
//! waits (R7.7). Nothing is written in the term's epoch before it is known which log it goes on with, and which witness.
//!
//! Each stage has its handlers, which say what the next stage is. What all of them share is the [`Term`] (`term`).
//!
//! | file | stages |
//! |---|---|
//! | `fencing`, `fetching` | which log the term goes on with, and taking it |
//! | `witnesses` | which witness is replayed, if one is needed |
//! | `beginning` | the epoch begins, and what was recovered is synced |
//! | `telling` | what the coordinator and people are told |
//! | `serving` | clients are served |

mod beginning;
pub(crate) mod fencing;
mod fetching;
mod telling;
pub(crate) mod witnesses;

use kasha_machine::Effects;
use kasha_replication::FenceReport;
use kasha_types::probe::{Probe, hit};
use kasha_types::{AttachId, LogEnd, Tick};
use kasha_wire::message::{self, WitnessHolds};
use kasha_wire::{ShardConfig, ShardPhase};

use crate::core::Core;
use crate::primary::beginning::Syncing;
use crate::primary::fencing::Fencing;
use crate::primary::fetching::Fetching;
use crate::primary::witnesses::Asking;
use crate::serving::Serving;
use crate::shard::copy::LogCopy;
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::term::Term;
use crate::shard::term::{fewest_peers, members_of};

/// Where a term is.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one for each shard, in a box")]
pub(crate) enum Stage {
    /// Members of the set that last served promise our epoch and report.
    Fencing(Fencing),
    /// Another member has the greater log: take what we lack.
    Fetching(Fetching),
    /// The log goes into the state.
    Replaying,
    /// One witness of the current list is frozen, and what it holds goes through `look_up`.
    Witnessing(Asking),
    /// Everything so far goes to the committed set, and is flushed here.
    Syncing(Syncing),
    /// The coordinator is to commit that we serve, under a fresh witness list.
    Reporting,
    /// Clients are served.
    Serving(Serving),
}

/// The primary of one epoch.
#[derive(Debug)]
pub(crate) struct Primary {
    pub term: Term,
    pub stage: Stage,
}

impl Stage {
    /// The state is ahead of replay from here on.
    pub fn executes(&self) -> bool {
        match self {
            Self::Fencing(_) | Self::Fetching(_) | Self::Replaying | Self::Witnessing(_) => false,
            Self::Syncing(_) | Self::Reporting | Self::Serving(_) => true,
        }
    }
}

impl Primary {
    /// The configuration made us primary of this epoch (step 1).
    pub fn begin(site: &mut Site<'_>, config: &ShardConfig, out: &mut Effects) -> Self {
        let never_served = config.recover_from.is_empty();
        if never_served {
            site.reset_log(LogEnd::START, out);
            (site.copy.meta.intact, site.copy.meta.complete) = (true, true);
        }
        let Site { copy, core, .. } = site;
        copy.promise(core, config.epoch, out);
        let term = Term::new(copy.shard, core, config);
        let stage = if never_served { Stage::Replaying } else { Stage::Fencing(term.fence_anew()) };
        Self { term, stage }
    }

    fn go_on(&mut self, next: Option<Stage>) {
        if let Some(stage) = next {
            self.stage = stage;
        }
    }

    /// What clients are served with.
    pub fn serving(&self) -> Option<&Serving> {
        match &self.stage {
            Stage::Serving(serving) => Some(serving),
            Stage::Fencing(_)
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing(_)
            | Stage::Syncing(_)
            | Stage::Reporting => None,
        }
    }

    pub fn serving_mut(&mut self) -> Option<(&mut Term, &mut Serving)> {
        match &mut self.stage {
            Stage::Serving(serving) => Some((&mut self.term, serving)),
            Stage::Fencing(_)
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing(_)
            | Stage::Syncing(_)
            | Stage::Reporting => None,
        }
    }

    /// A newer configuration of this term.
    pub fn obey(&mut self, site: &mut Site<'_>, config: &ShardConfig) {
        let Self { term, stage } = self;
        match stage {
            Stage::Reporting if config.phase == ShardPhase::Serving => self.begin_serving(site, config),
            Stage::Fencing(_)
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing(_)
            | Stage::Syncing(_)
            | Stage::Reporting => term.shipping.set_members(members_of(site.core, config)),
            Stage::Serving(serving) => {
                term.shipping.require_peers(fewest_peers(site.core)); // the operator may have lowered it
                term.shipping.set_members(members_of(site.core, config));
                term.list = config.list;
                serving.update(site.core, config, site.copy.log.end().offset);
                serving.drop_tables(term, site);
            }
        }
    }

    /// The coordinator committed that we serve.
    pub fn begin_serving(&mut self, site: &mut Site<'_>, config: &ShardConfig) {
        let term = &mut self.term;
        assert_eq!(term.epoch, config.epoch, "the configuration speaks of our term");
        term.list = config.list;
        term.shipping.require_peers(fewest_peers(site.core));
        term.shipping.set_members(members_of(site.core, config));
        let end = site.copy.log.end().offset;
        let mut serving = Serving::new(site.core, site.state, config, end);
        if site.core.stopping {
            serving.begin_stop(site.core, config, end);
        }
        serving.drop_tables(term, site);
        self.stage = Stage::Serving(serving);
    }

    /// The role is lost: the state follows the log to its end, as a follower's would.
    pub fn settle_for_follower(self, copy: &mut LogCopy, state: &mut ShardState) {
        if self.stage.executes() {
            hit(Probe::PrimaryDeposed);
            copy.replayed.offset = copy.log.end().offset;
        }
        if let Stage::Serving(serving) = self.stage {
            serving.settle_for_follower(&mut copy.log, state);
        }
    }

    /// A member reports: to a fence of ours, or to learn where its log joins ours.
    pub fn on_fence_report(&mut self, site: &mut Site<'_>, now: Tick, report: message::FenceReport, out: &mut Effects) {
        let message::FenceReport { node, attach, exists, end, history, intact, complete, whole, .. } = report;
        let report = FenceReport { node, end, history, intact, complete, whole };
        let Self { term, stage } = self;
        let next = match stage {
            Stage::Fencing(fencing) => {
                fencing.on_report(term, exists, report);
                None
            }
            Stage::Witnessing(asking) if attach == AttachId(0) => asking.on_report(term, exists, report),
            Stage::Fetching(_) | Stage::Replaying | Stage::Witnessing(_) => None,
            Stage::Syncing(_) | Stage::Reporting | Stage::Serving(_) => {
                term.shipping.on_fence_report(now, &site.copy.log, attach, &report, out);
                None
            }
        };
        self.go_on(next);
    }

    /// A piece of the log that is fetched.
    pub fn on_log_piece(&mut self, site: &mut Site<'_>, from: LogEnd, bytes: &[u8], out: &mut Effects) {
        let next = match &mut self.stage {
            Stage::Fetching(fetching) => fetching.on_log_piece(&mut self.term, site, from, bytes, out),
            Stage::Fencing(_)
            | Stage::Replaying
            | Stage::Witnessing(_)
            | Stage::Syncing(_)
            | Stage::Reporting
            | Stage::Serving(_) => None,
        };
        self.go_on(next);
    }

    /// A witness of our list was frozen, and says what it holds.
    pub fn on_witness_holds(&mut self, site: &mut Site<'_>, answer: WitnessHolds, out: &mut Effects) {
        let next = match &mut self.stage {
            Stage::Witnessing(asking) if self.term.list == answer.list => {
                asking.on_answer(&mut self.term, site, answer, out)
            }
            Stage::Fencing(_)
            | Stage::Fetching(_)
            | Stage::Replaying
            | Stage::Witnessing(_)
            | Stage::Syncing(_)
            | Stage::Reporting
            | Stage::Serving(_) => None,
        };
        self.go_on(next);
    }

    /// Once a turn: goes on as far as the term can now, ships, and keeps house.
    pub fn end_turn(&mut self, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
        if !self.stage.executes() {
            site.replay_slice();
        }
        let term = &mut self.term;
        let next = match &mut self.stage {
            Stage::Fencing(fencing) => fencing.advance(term, site, now, out),
            Stage::Fetching(fetching) => fetching.advance(term, site, now, out),
            Stage::Replaying => term.end_replay(site, now, out),
            Stage::Witnessing(asking) => asking.advance(term, site, now, out),
            Stage::Syncing(syncing) => syncing.advance(term, site, out),
            Stage::Reporting => None,
            Stage::Serving(serving) => {
                serving.clean(term, site, out);
                serving.run_ready(term, site, now, out);
                serving.look_for_memory(term, site, now, out);
                serving.transact(term, site, now, out);
                None
            }
        };
        self.go_on(next);
        self.ship(site, now, out);
        if let Some((term, serving)) = self.serving_mut() {
            serving.end_turn(term, site, now, out);
        }
    }

    /// Ships what is due.
    fn ship(&mut self, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
        let Site { copy, core, .. } = site;
        let (wanted, answers_wait) = match &mut self.stage {
            Stage::Fencing(_) | Stage::Fetching(_) | Stage::Replaying | Stage::Witnessing(_) => return,
            // No member is cut before our own file holds what its log had: else a crash of ours could take the only copy of
            // an update that was answered (R7.7).
            Stage::Syncing(syncing) if syncing.lacks_file(copy) => return copy.write_log(core, out),
            Stage::Syncing(_) | Stage::Reporting => (copy.log.end().offset, false), // the whole shard waits
            Stage::Serving(serving) => (serving.wanted_synced(), std::mem::take(&mut serving.writes_own_file)),
        };
        let shipping = &mut self.term.shipping;
        shipping.on_own_durable(copy.held);
        shipping.want_synced(wanted);
        shipping.pump(now, &copy.log, out);
        // Our own file is a member's, and gets the round's bytes with the others; what is answered at once, at once (R7.7).
        if shipping.is_in_flight() || answers_wait || self.term.wants_flush(core, copy) {
            copy.write_log(core, out);
        }
    }

    pub fn next_deadline(&self, core: &Core, state: &ShardState) -> Option<Tick> {
        let shipping = &self.term.shipping;
        match &self.stage {
            Stage::Fetching(fetching) => fetching.next_deadline(core.options.pace.retry),
            Stage::Fencing(Fencing { asked, .. }) | Stage::Witnessing(Asking { asked, .. }) => {
                Some(asked.map_or(Tick(0), |asked| asked.after(core.options.pace.retry)))
            }
            // The replica replays by itself; our promise comes from the disk.
            Stage::Replaying => None,
            Stage::Syncing(_) | Stage::Reporting => shipping.next_deadline(),
            Stage::Serving(serving) => {
                [shipping.next_deadline(), serving.next_deadline(state)].into_iter().flatten().min()
            }
        }
    }
}
