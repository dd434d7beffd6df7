//! The operator gives up what a recovery waits for, if it is lost for good (R7.7).
//!
//! A term that waits reports that in every heartbeat, with the nodes that it waits for. There are two cases:
//! - A term that lacks reports of members gives up members. It has no log yet, so it has not asked its witnesses.
//! - A term that has a log and lacks a witness gives up the witness list. It keeps the members: a whole log that turns
//!   up still counts.
//!
//! The command is refused where it could lose an update without need: while the shard serves; while its recovery does
//! not report that it waits; while a node is alive that has not said what it holds; and if no member has reported that
//! it holds a complete copy.

use kasha_types::{NodeId, ShardId, Tick};
use kasha_wire::message::{GiveUp, GivenUp, Missing};
use kasha_wire::{ShardConfig, ShardPhase};

use crate::Command;
use crate::evidence::Lack;
use crate::lead::Leading;

impl Leading<'_> {
    /// The operator asks what would be given up (`seen` is `None`), or gives up what was shown.
    pub(crate) fn on_give_up(&mut self, now: Tick, question: &GiveUp) -> GivenUp {
        let &GiveUp { nonce, shard, ref seen } = question;
        match self.give_up(now, shard, seen.as_ref()) {
            Ok(missing) => GivenUp { nonce, missing: Some(missing), refused: None },
            Err(why) => GivenUp { nonce, missing: None, refused: Some(why) },
        }
    }

    /// What the shard's recovery waits for, or why that cannot be given up. It is given up now if the operator has seen
    /// exactly this.
    fn give_up(&mut self, now: Tick, shard: ShardId, seen: Option<&Missing>) -> Result<Missing, String> {
        let committed = &self.member.ledger.committed().configuration;
        let config = committed.shard(shard).ok_or_else(|| format!("there is no {shard} (K0506)"))?;
        if let Some(overtaken) = self.lead.overtaken.get(&shard) {
            return Err(overtaken.to_string());
        }
        let missing = self.missing(now, config)?;
        // R9.15: what was not heard yet is no silence.
        if now.since(self.lead.since) < self.member.options.node_lease {
            let why = "the coordinator has just begun to lead, and may not have heard everybody yet: nothing was changed; look again in a \
                       second, or in a lease of nodes if that is longer (K0506)";
            return Err(why.to_owned());
        }
        let Some(seen) = seen else { return Ok(missing) };
        if *seen != missing {
            return Err(format!("{shard} waits for something else by now: nothing was changed; look again (K0506)"));
        }
        // What is decided begins from what is decided: this may come twice before the disk has answered once.
        if self.decided().configuration.shard(shard) != Some(config) {
            return Err(format!("{shard} is just being changed: nothing more was changed; look again (K0506)"));
        }
        let epoch = config.epoch.next();
        let command = if missing.members.is_empty() {
            Command::GiveUpWitnesses { shard, epoch }
        } else {
            let stays = |node: &NodeId| !missing.members.contains(node);
            let recover_from = config.recover_from.iter().copied().filter(stays).collect();
            Command::GiveUpMembers { shard, epoch, recover_from }
        };
        self.decide(command);
        Ok(missing)
    }

    fn missing(&self, now: Tick, config: &ShardConfig) -> Result<Missing, String> {
        let (shard, epoch) = (config.shard, config.epoch);
        if config.phase == ShardPhase::Serving {
            return Err(format!("{shard} serves: there is nothing to give up (K0506)"));
        }
        let unneeded = || {
            format!(
                "the recovery of {shard} goes on, or waits for something that cannot be given up: kasha status says what; \
                 look again in some seconds (K0506)"
            )
        };
        let lack = self.member.evidence.lack(now, shard, epoch).ok_or_else(unneeded)?;
        let (members, witnesses) = match lack {
            Lack::Members { unheard, .. } => (unheard, &Vec::new()),
            Lack::Witness { unheard_members, unheard_witnesses } => (unheard_members, unheard_witnesses),
        };
        for (nodes, holds) in [(members, "log"), (witnesses, "witness")] {
            if let Some(node) = nodes.iter().find(|&&node| self.may_be_alive(now, node)) {
                return Err(format!(
                    "{node} is alive, and has not said what its {holds} holds: wait, and look again (K0506)"
                ));
            }
        }
        match lack {
            Lack::Members { has_copy: false, .. } => Err(format!(
                "no member of {shard} that has reported holds a complete copy, so there is nothing to go on with: start {}, \
                 or restore a folder (K0506)",
                list(members)
            )),
            // Only nodes that the state knows: what a node reports is not committed unchecked.
            Lack::Members { unheard, .. } => {
                let mut given_up = unheard.clone();
                given_up.retain(|node| config.recover_from.contains(node) && *node != config.primary);
                if given_up.is_empty() {
                    Err(unneeded())
                } else {
                    Ok(Missing { epoch, members: given_up, witnesses: Vec::new() })
                }
            }
            Lack::Witness { .. } if config.witnesses.is_empty() => Err(unneeded()),
            Lack::Witness { .. } => Ok(Missing { epoch, members: Vec::new(), witnesses: config.witnesses.clone() }),
        }
    }

    /// Whether a node may be alive. The configuration may call it lost although it came back a moment ago.
    fn may_be_alive(&self, now: Tick, node: NodeId) -> bool {
        self.decided().is_alive(node) || self.sight(now).speaks(node) || self.member.evidence.is_vouched_for(now, node)
    }
}

fn list(nodes: &[NodeId]) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
