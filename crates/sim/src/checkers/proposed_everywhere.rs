//! Proposed everywhere (R8.1): a participant says that a transaction over several shards was executed only once the proposals
//! of all participants are durable, or what those have become.
//!
//! The timestamp is the greatest proposal: if one of them could be lost, another primary might propose another one, and the
//! transaction come to something else than the client was told. Each shard's members are looked at in the sets of any of its
//! terms: the proposal may be much older than the answer.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::{RpcId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::{AnswerView, Body, OutcomeCode, RequestView};

use crate::checkers::records::{Record, Records};
use crate::configurations::{Configurations, Cores};
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// Watches the answers of participants.
#[derive(Debug, Default)]
pub struct ProposedEverywhere {
    configurations: Configurations,
    cores: Cores,
    records: Records,
    participants: BTreeMap<RpcId, BTreeSet<ShardId>>,
    violations: Vec<String>,
    checked: u64,
}

impl ProposedEverywhere {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, records: Records) -> Self {
        Self { configurations, cores, records, ..Self::default() }
    }

    fn on_executed(&mut self, rpc: RpcId, by: ShardId) {
        let Some(participants) = self.participants.get(&rpc) else { return };
        for &shard in participants {
            self.checked += 1;
            if let Some(lacking) =
                self.records.lacked_in_all_terms(&self.configurations, &self.cores, shard, Record::Part(rpc))
            {
                self.violations.push(format!(
                    "proposed_everywhere: {by} said that {rpc} was executed, but in no committed set of any term of {shard} do \
                     all hold its proposal (R8.1): {lacking}"
                ));
            }
        }
    }
}

impl Watch for ProposedEverywhere {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        match Kind::from_number(sent.kind) {
            Some(Kind::Request) => {
                if let Ok(request) = RequestView::decode(sent.payload)
                    && let Ok(body) = Body::decode(request.body)
                    && let Some(participants) = body.participants()
                {
                    let all = || participants.iter().map(|(shard, _)| shard).collect();
                    self.participants.entry(body.head.rpc).or_insert_with(all);
                }
            }
            Some(Kind::Answer) => {
                if let Ok(answer) = AnswerView::decode(sent.payload)
                    && answer.result.first() == Some(&(OutcomeCode::Done as u8))
                {
                    self.on_executed(answer.rpc, answer.shard);
                }
            }
            _ => {}
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: proposed everywhere", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::{RPC, SHARD, hold, hold_part, segment, three_cores};
    use crate::configurations::tests::{configuration, tell};

    #[test]
    fn executed_means_that_all_members_of_all_participants_hold_the_proposal() {
        let (configurations, records) = (Configurations::default(), Records::default());
        tell(&configurations, &configuration(1, 1, 1));
        let mut watch = ProposedEverywhere::new(configurations.clone(), three_cores(), records.clone());
        watch.participants.insert(RPC, [SHARD].into());
        hold_part(&records, 1, segment(0), RPC);
        hold(&records, 2, segment(0), RPC);
        watch.on_executed(RPC, ShardId(1));
        assert_eq!(watch.take_violations().len(), 1, "a completion record is no proposal");
        hold_part(&records, 2, segment(1), RPC);
        watch.on_executed(RPC, ShardId(1));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        tell(&configurations, &configuration(2, 2, 3));
        watch.on_executed(RPC, ShardId(1));
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "an older term had it");
    }
}
