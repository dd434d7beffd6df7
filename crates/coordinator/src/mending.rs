//! Decides what the shards need now: their first placement, repairs, and other primaries for those that are badly
//! connected. What a shard needs is a function of the state (`repair`); here it gets that, as soon as it may.
//!
//! **F1** A primary that has served is replaced only when no core of its process can hold a lease.

use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, NodeId, ShardId, Tick};
use kasha_wire::ShardPhase;

use crate::lead::Leading;
use crate::{Command, placement, repair};

impl Leading<'_> {
    /// Commits what the shards need now.
    pub(crate) fn repair(&mut self, now: Tick) {
        if !std::mem::take(&mut self.lead.changed) {
            return;
        }
        if self.decided().configuration.shards.is_empty() {
            let nodes: Vec<NodeId> = self.decided().alive_nodes().collect();
            // Nothing is placed before the group has its size (R9.14).
            let is_small = self.member.ledger.lists().members.len() < usize::from(self.decided().group_wanted);
            if nodes.len() < usize::from(self.decided().nodes_wanted()) || is_small {
                return;
            }
            let faults = self.decided().configuration.faults;
            let shards = placement::first_placement(&nodes, self.decided().shards_wanted, faults);
            self.decide(Command::Place { shards });
        }
        for index in 0..self.decided().configuration.shards.len() {
            /// One change can cause at most one fail-over, one change of members and one change of the list.
            const COMMANDS_MAX: usize = 4;
            if self.is_overtaken(self.decided().configuration.shards[index].shard) {
                continue;
            }
            let mut commands = 0;
            while let Some(command) =
                repair::next_command(self.decided(), self.sight(now), &self.decided().configuration.shards[index])
            {
                if matches!(command, Command::Promote { .. }) && !self.may_promote_more() {
                    hit(Probe::PromotionsCapped);
                    break; // later ticks go on: recoveries must not starve the rest (pitfall 9)
                }
                self.assert_may_promote(now, &command);
                commands += 1;
                assert!(commands <= COMMANDS_MAX, "a repair does not end: {command:?}");
                self.decide(command);
            }
        }
        self.lead.changed = false;
    }

    fn may_promote_more(&mut self) -> bool {
        self.lead.promotions.0 += 1;
        self.lead.promotions.0 <= self.member.options.promotions_max
    }

    /// Whether this node speaks, and some shard waited for that to make a change.
    pub(crate) fn has_waited_for(&self, now: Tick, node: NodeId) -> bool {
        (self.decided().configuration.shards.iter())
            .filter(|shard| shard.primary == node && !self.is_overtaken(shard.shard))
            .any(|shard| repair::next_command(self.decided(), self.sight(now), shard).is_some())
    }

    /// Gives shards with a badly connected primary another one, when no core of the primary can hold a lease (F1).
    pub(crate) fn move_primaries(&mut self, now: Tick) {
        let moving: Vec<(ShardId, Epoch)> = self.member.evidence.moving().collect();
        for (shard, epoch) in moving {
            let config = self.decided().configuration.shard(shard).expect("only placed shards move");
            if config.epoch == epoch && !repair::needs_fail_over(self.decided(), config) && !self.is_overtaken(shard) {
                if config.phase == ShardPhase::Serving && self.lead.leases.may_hold_lease(now, config.primary) {
                    continue;
                }
                let command = repair::promote_better_connected(self.decided(), self.sight(now), config);
                if let Some(command) = command {
                    hit(Probe::PrimaryMoved);
                    self.assert_may_promote(now, &command);
                    self.decide(command);
                }
            }
            self.member.evidence.stop_moving(shard);
        }
    }

    /// Whether a shard is to be moved away from this node. Its leases must lapse for that (F1).
    pub(crate) fn is_moving_from(&self, node: NodeId) -> bool {
        self.member.evidence.moving().any(|(shard, epoch)| {
            let config = self.decided().configuration.shard(shard).expect("only placed shards move");
            config.epoch == epoch && config.primary == node
        })
    }

    /// F1: no core of the old primary's process can hold a lease; or the old primary has not served in its term.
    fn assert_may_promote(&self, now: Tick, command: &Command) {
        if let Command::Promote { shard, .. } = command {
            let config = self.decided().configuration.shard(*shard).expect("placed");
            if config.phase == ShardPhase::Recovering {
                return; // whoever served before it was deposed then
            }
            let old = config.primary;
            let incarnation = self.decided().shards[usize::from(shard.0)].primary_incarnation;
            let is_dead = self.decided().incarnation(old) != Some(incarnation);
            assert!(is_dead || !self.lead.leases.may_hold_lease(now, old), "F1: {old} may hold a lease for {shard}");
        }
    }

    pub(crate) fn is_overtaken(&self, shard: ShardId) -> bool {
        self.lead.overtaken.contains_key(&shard)
    }
}
