//! What nodes report of their shards, and of other nodes that do not answer them; and what is decided on that.

use kasha_types::probe::{Probe, hit};
use kasha_types::{ConfigVersion, Epoch, ListVersion, NodeId, ShardId, Tick};
use kasha_wire::message::Report;
use kasha_wire::{MemberState, ShardConfig, ShardPhase};

use crate::evidence::{Lack, Sight};
use crate::lead::Leading;
use crate::overtaken::Overtaken;
use crate::{Command, State, placement, repair};

impl Leading<'_> {
    /// Handles a report. A stale or repeated report changes nothing.
    pub(crate) fn on_report(&mut self, now: Tick, from: NodeId, have: ConfigVersion, report: &Report) {
        // A primary that complains about a time when we were cut off may have been cut off too, and needs a lease
        // (R7.8).
        let complains = matches!(report, Report::Unanswered { .. } | Report::Stuck { .. });
        if complains && self.lead.leases.was_cut_off(now, self.member.options.patience + self.member.options.node_lease)
        {
            return hit(Probe::ComplaintVoid);
        }
        let sight = self.sight(now);
        let command = match *report {
            Report::Recovered { shard, epoch } => {
                self.led_by(from, shard, epoch).and_then(|config| recovered(self.decided(), sight, config))
            }
            Report::Copied { shard, epoch, node } => {
                let joins = |config: &ShardConfig| {
                    config.member(node).is_some_and(|member| member.state == MemberState::Joining)
                        && have >= config.members_since
                };
                let joins = self.led_by(from, shard, epoch).is_some_and(joins);
                if joins {
                    self.member.evidence.answers(now, shard, node);
                }
                joins.then_some(Command::Copied { shard, epoch, node })
            }
            Report::ListClosed { shard, epoch, list } => {
                let config = self.led_by(from, shard, epoch).filter(|config| config.closing && config.list == list);
                config.map(|config| {
                    let witnesses = placement::choose_witnesses(self.decided(), sight, config);
                    Command::OpenList { shard, list: list.next(), witnesses }
                })
            }
            Report::Stuck { shard, epoch } => (self.led_by(from, shard, epoch))
                .filter(|config| config.phase == ShardPhase::Recovering && !self.is_overtaken(shard))
                .and_then(|config| repair::promote_next(self.decided(), sight, config))
                .filter(|_| self.member.evidence.may_try_another(now, shard))
                .inspect(|_| hit(Probe::StuckRecovery)),
            Report::Unanswered { shard, epoch, node } => return self.on_unanswered(now, from, (shard, epoch), node),
            Report::WitnessLost { shard, list } => self.witness_lost(from, shard, list),
            Report::Stopping { shard, epoch, list } => {
                let serves = |config: &&ShardConfig| config.phase == ShardPhase::Serving && config.list == list;
                let empties = self.led_by(from, shard, epoch).filter(serves).is_some();
                self.member.evidence.stops(from);
                empties.then(|| Command::EmptyList { shard, list: list.next() })
            }
            Report::NeedsWitness { shard, epoch, ref unheard_members, ref unheard_witnesses } => {
                let (unheard_members, unheard_witnesses) = (unheard_members.clone(), unheard_witnesses.clone());
                return self.note_lack(now, from, (shard, epoch), Lack::Witness { unheard_members, unheard_witnesses });
            }
            Report::PromisedBefore { shard, epoch, promised } => {
                return self.note_promised_before(from, (shard, epoch), promised);
            }
            Report::NeedsMembers { shard, epoch, ref unheard, has_copy } => {
                return self.note_lack(now, from, (shard, epoch), Lack::Members { unheard: unheard.clone(), has_copy });
            }
        };
        if let Some(command) = command {
            self.decide(command);
        }
    }

    /// The shard, if this node is its primary in this term.
    fn led_by(&self, node: NodeId, shard: ShardId, epoch: Epoch) -> Option<&ShardConfig> {
        let config = self.decided().configuration.shard(shard)?;
        let leads = config.epoch == epoch && config.primary == node && !repair::needs_fail_over(self.decided(), config);
        leads.then_some(config)
    }

    /// A witness lost what it held. While the primary lives a new list begins (R6.2); a recovery uses the other
    /// witnesses.
    fn witness_lost(&self, from: NodeId, shard: ShardId, list: ListVersion) -> Option<Command> {
        let config = self.decided().configuration.shard(shard)?;
        let is_in_use = config.phase == ShardPhase::Serving && !config.closing && config.list == list;
        (is_in_use && config.witnesses.contains(&from)).then_some(Command::CloseList { shard, list })
    }

    /// A member or witness does not answer its primary: it is replaced or left out, or the primary itself is replaced.
    fn on_unanswered(&mut self, now: Tick, from: NodeId, (shard, epoch): (ShardId, Epoch), node: NodeId) {
        let concerns = |config: &&ShardConfig| config.member(node).is_some() || config.witnesses.contains(&node);
        if node == from || self.led_by(from, shard, epoch).filter(concerns).is_none() {
            return;
        }
        hit(Probe::MemberAvoided);
        self.lead.changed |= self.member.evidence.avoid(now, shard, from, node);
        let config = self.decided().configuration.shard(shard).expect("looked up");
        let sight = self.sight(now);
        // Without a node in its place the set would lose a copy that may be better connected than the primary.
        if config.member(node).is_some()
            && !repair::is_replaceable(self.decided(), sight, config, node)
            && repair::promote_better_connected(self.decided(), sight, config).is_some()
        {
            self.member.evidence.set_moving(shard, epoch);
        }
        self.repair(now);
    }

    /// A term reports what it waits for.
    fn note_lack(&mut self, now: Tick, from: NodeId, (shard, epoch): (ShardId, Epoch), lack: Lack) {
        if self.led_by(from, shard, epoch).is_some_and(|config| config.phase == ShardPhase::Recovering) {
            self.member.evidence.lacks(now, shard, epoch, lack);
        }
    }

    /// The primary of this term says that it has promised the epoch before.
    fn note_promised_before(&mut self, from: NodeId, (shard, epoch): (ShardId, Epoch), promised: Epoch) {
        // A report about another term, or of a process that is to be replaced, proves nothing.
        if promised >= epoch && self.led_by(from, shard, epoch).is_some() {
            self.lead.overtaken.insert(shard, Overtaken { node: from, epoch, promised });
        }
    }
}

/// Section 7, step 5. A shard that never served keeps its first list if that is still good: no client has used it.
fn recovered(state: &State, sight: Sight<'_>, config: &ShardConfig) -> Option<Command> {
    match config.phase {
        ShardPhase::Serving => None,
        ShardPhase::Recovering => {
            let unused = config.epoch.0 == 1 && !repair::list_must_change(state, sight, config);
            let (list, witnesses) = if unused {
                (config.list, config.witnesses.clone())
            } else {
                (config.list.next(), placement::choose_witnesses(state, sight, config))
            };
            Some(Command::Recovered { shard: config.shard, epoch: config.epoch, list, witnesses })
        }
    }
}
