//! What is told when it is prepared is kept (R8.8): a transaction over several shards that every participant has called prepared or
//! executed happens, and a participant always tells the same results of it. What a participant says before it is durable there
//! counts when all of its witnesses have accepted the same attempt.
//!
//! A client takes the transaction for committed then. That a participant is against counts once a client is told so, or all
//! members of the participant hold it: what a deposed primary alone has written is nothing (R8.1). So a primary that was stopped, and goes on
//! without knowing that a later one has told the results, may write others into its own log. It must not tell them.

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{BodyHash, Epoch, RpcId, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::{AnswerView, Body, OutcomeCode, Recorded, RequestView, hot};

use crate::checkers::endings::{ENDED_ENTRY, ended};
use crate::checkers::promises::{Promise, Promises};
use crate::checkers::records::{COMPLETION_ENTRY, Record, Records, groups_in, result_of};
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// What is known of one transaction.
#[derive(Debug, Default)]
struct Known {
    /// The checksum of the request's body, and the participants that the body names.
    body: Option<BodyHash>,
    participants: BTreeSet<ShardId>,
    /// Participants that have told, so that it counts, that it is prepared or executed.
    told: BTreeSet<ShardId>,
    /// What each participant has told, when that was durable, without the code before it, and in which epoch.
    results: BTreeMap<ShardId, (Epoch, Vec<u8>)>,
    /// A participant has told a client that it does not happen.
    is_refused: bool,
    /// Participants with a log in which it does not happen.
    against: BTreeSet<ShardId>,
    /// A client asks different things of different shards under this id, or all machines have lost power: it proves nothing.
    is_excused: bool,
}

/// The results that follow *prepared* or *done*.
fn results_in(result: &[u8]) -> Option<&[u8]> {
    let (&code, results) = result.split_first()?;
    [OutcomeCode::Prepared as u8, OutcomeCode::Done as u8].contains(&code).then_some(results)
}

/// Watches the answers of participants, and segment files.
#[derive(Debug, Default)]
pub struct PreparedKept {
    promises: Promises,
    cores: Cores,
    records: Records,
    transactions: BTreeMap<RpcId, Known>,
    /// What was told, by attempts, before it was durable at the participant.
    speculative: BTreeMap<(RpcId, ShardId, u32), (Epoch, Vec<u8>)>,
    violations: Vec<String>,
    checked: u64,
}

impl PreparedKept {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, records: Records) -> Self {
        Self { promises: Promises::new(configurations), cores, records, ..Self::default() }
    }

    fn on_request(&mut self, body: &Body<'_>) {
        let Some(participants) = body.participants() else { return };
        let (hash, all) = (Some(body.hash()), || participants.iter().map(|(shard, _)| shard).collect());
        let first = || Known { body: hash, participants: all(), ..Known::default() };
        let known = self.transactions.entry(body.head.rpc).or_insert_with(first);
        known.is_excused |= known.body != hash;
    }

    /// A participant tells what is durable there, or at its witnesses.
    fn on_answer(&mut self, rpc: RpcId, shard: ShardId, (epoch, result): (Epoch, &[u8])) {
        let Some(known) = self.transactions.get_mut(&rpc).filter(|known| !known.is_excused) else { return };
        if let Some(results) = results_in(result) {
            known.results.entry(shard).or_insert_with(|| (epoch, results.to_vec()));
        }
        self.compare(rpc, shard, result);
    }

    /// A later primary has told the results, and this process was the primary of an earlier epoch, in which the group was begun.
    fn is_deposed(&self, by: Option<ProcessId>, (rpc, shard): (RpcId, ShardId), epoch: Epoch) -> bool {
        let told = self.transactions.get(&rpc).and_then(|known| known.results.get(&shard));
        told.is_some_and(|&(told, _)| epoch < told)
            && self.promises.configurations.of_term(shard, epoch).iter().any(|(configuration, config)| {
                by.is_some() && self.cores.host_of(configuration, config.primary, shard) == by
            })
    }

    /// What the log has is what every later answer says. What was logged and told to nobody may be lost, and come to something else.
    fn compare(&mut self, rpc: RpcId, shard: ShardId, result: &[u8]) {
        let Some(known) = self.transactions.get_mut(&rpc).filter(|known| !known.is_excused) else { return };
        let (Some((_, first)), Some(results)) = (known.results.get(&shard), results_in(result)) else { return };
        self.checked += 1;
        if first != results {
            self.violations.push(format!(
                "prepared_kept: {shard} has told {first:?} of {rpc}, and tells or logs {results:?} now (R8.8)"
            ));
        }
    }

    fn on_outcome(&mut self, rpc: RpcId, shard: ShardId, code: OutcomeCode) {
        let Some(known) = self.transactions.get_mut(&rpc) else { return };
        match code {
            OutcomeCode::Prepared | OutcomeCode::Done => _ = known.told.insert(shard),
            _ => known.is_refused = true,
        }
        self.judge(rpc);
    }

    /// `by`: the process into whose file they were written, if it is known.
    fn on_bytes(&mut self, by: Option<ProcessId>, shard: ShardId, bytes: &[u8]) {
        let (mut ends, mut results) = (Vec::new(), Vec::new());
        groups_in(bytes, |group| {
            for &(kind, entry) in group.entries {
                let outcome = (kind == ENDED_ENTRY).then(|| ended(entry)).flatten();
                ends.extend(outcome.filter(|outcome| outcome.executed.is_none()).map(|outcome| outcome.rpc));
                let record = (kind == COMPLETION_ENTRY).then(|| result_of(entry)).flatten();
                results.extend(record.map(|(rpc, result)| (rpc, result.to_vec(), group.epoch)));
            }
        });
        for (rpc, result, epoch) in results {
            if !self.is_deposed(by, (rpc, shard), epoch) {
                self.compare(rpc, shard, &result);
            }
        }
        for rpc in ends {
            if let Some(known) = self.transactions.get_mut(&rpc) {
                known.against.insert(shard);
                self.judge(rpc);
            }
        }
    }

    fn judge(&mut self, rpc: RpcId) {
        let known = &self.transactions[&rpc];
        if known.is_excused || !known.participants.is_subset(&known.told) {
            return;
        }
        let record = Record::Against(rpc);
        let all = &self.promises.configurations;
        let is_held = |&shard: &ShardId| self.records.is_held_by_all(all, &self.cores, shard, record);
        if known.is_refused || known.against.iter().any(is_held) {
            self.violations.push(format!(
                "prepared_kept: all participants have called {rpc} prepared or executed, and it does not happen (R8.8)"
            ));
        }
    }
}

impl Watch for PreparedKept {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        let mut attempt = None;
        match Kind::from_number(sent.kind) {
            Some(Kind::Request | Kind::Cancel) => {
                if let Ok(request) = RequestView::decode(sent.payload)
                    && let Ok(body) = Body::decode(request.body)
                {
                    self.on_request(&body);
                }
            }
            Some(Kind::Answer) => {
                if let Ok(answer) = AnswerView::decode(sent.payload) {
                    if answer.synced {
                        self.on_answer(answer.rpc, answer.shard, (answer.epoch, answer.result));
                    } else {
                        let key = (answer.rpc, answer.shard, answer.attempt);
                        self.speculative.insert(key, (answer.epoch, answer.result.to_vec()));
                    }
                    attempt = Some(answer.attempt);
                }
            }
            Some(Kind::Recorded) => {
                attempt = hot::decode_small::<Recorded>(sent.payload).ok().map(|recorded| recorded.attempt);
            }
            _ => {}
        }
        if let Some(Promise::Outcome(rpc, shard, code)) = self.promises.take_in(sent) {
            if let Some((epoch, result)) = attempt.and_then(|attempt| self.speculative.remove(&(rpc, shard, attempt))) {
                self.on_answer(rpc, shard, (epoch, &result)); // it counts now
            }
            self.on_outcome(rpc, shard, code);
        }
    }

    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Segment { shard, .. } = file else { return };
        if let Some(content) = view.processes[by.0].disk.cached(file) {
            self.on_bytes(Some(by), shard, &content.read(offset, len));
        }
    }

    fn blackout(&mut self, _view: &View<'_>) {
        self.transactions.values_mut().for_each(|known| known.is_excused = true);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: what is prepared is kept", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{ClientId, Sequence};

    use super::*;
    use crate::checkers::endings::{Ended, tests::group};
    use crate::checkers::records::tests::{hold_bytes, segment, three_cores};
    use crate::configurations::tests::{configuration, tell};

    const RPC: RpcId = RpcId { client: ClientId(7), sequence: Sequence(9) };
    const PREPARED: &[u8] = &[11, 0, 0, 0, 0];
    const DONE: &[u8] = &[0, 0, 0, 0, 0];

    /// Both shards take part in one transaction.
    fn watch() -> (PreparedKept, Records) {
        let (configurations, records) = (Configurations::default(), Records::default());
        tell(&configurations, &configuration(1, 1, 1));
        let mut watch = PreparedKept::new(configurations, three_cores(), records.clone());
        let participants = [ShardId(0), ShardId(1)].into();
        watch.transactions.insert(RPC, Known { participants, ..Known::default() });
        (watch, records)
    }

    #[test]
    fn r8_8_a_participant_tells_and_logs_what_it_has_told() {
        let (mut watch, _) = watch();
        watch.on_answer(RPC, ShardId(0), (Epoch(2), PREPARED));
        watch.on_answer(RPC, ShardId(0), (Epoch(2), DONE));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_answer(RPC, ShardId(0), (Epoch(1), &[0, 0, 0, 0, 1]));
        assert_eq!(watch.take_violations().len(), 1);
        for (result, found) in [(DONE, 0), (&[0, 0, 0, 0, 1][..], 1), (&[9], 0)] {
            let mut record = vec![1, 0, 0];
            record.extend_from_slice(&RPC.client.0.to_le_bytes());
            record.extend_from_slice(&RPC.sequence.0.to_le_bytes());
            record.resize(43, 0);
            record.extend_from_slice(result);
            watch.on_bytes(None, ShardId(0), &group(COMPLETION_ENTRY, &record));
            assert_eq!(watch.take_violations().len(), found, "{result:?}");
        }
    }

    /// Seed `interactive` 139152049: a primary that was stopped raised its version floor when it went on, and executed what its successor had
    /// told, with other versions, before it heard of that.
    #[test]
    fn r8_1_a_deposed_primary_writes_what_it_likes_and_tells_nothing_else() {
        let (mut watch, _) = watch();
        tell(&watch.promises.configurations, &configuration(2, 2, 2));
        watch.on_answer(RPC, ShardId(0), (Epoch(2), DONE));
        let mut record = vec![1, 0, 0];
        record.extend_from_slice(&RPC.client.0.to_le_bytes());
        record.extend_from_slice(&RPC.sequence.0.to_le_bytes());
        record.resize(43, 0);
        record.extend_from_slice(&[0, 0, 0, 0, 1]);
        let mut bytes = group(COMPLETION_ENTRY, &record);
        for (epoch, by, found) in [(1, 1, 0), (1, 2, 1), (2, 1, 1), (2, 2, 1)] {
            bytes[24] = epoch;
            watch.on_bytes(Some(ProcessId(by)), ShardId(0), &bytes);
            assert_eq!(watch.take_violations().len(), found, "epoch {epoch}, process {by}");
        }
        watch.on_answer(RPC, ShardId(0), (Epoch(1), &[0, 0, 0, 0, 1]));
        assert_eq!(watch.take_violations().len(), 1, "it tells it");
    }

    #[test]
    fn r8_8_what_all_have_prepared_is_not_refused() {
        let (mut watch, records) = watch();
        watch.on_outcome(RPC, ShardId(0), OutcomeCode::Prepared);
        watch.on_outcome(RPC, ShardId(1), OutcomeCode::Conflict);
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "one has prepared");
        watch.on_outcome(RPC, ShardId(1), OutcomeCode::Done);
        assert_eq!(watch.take_violations().len(), 1);
        let known = watch.transactions.get_mut(&RPC).expect("inserted");
        known.is_refused = false;
        let against = Ended::of(9, None).encode();
        hold_bytes(&records, 1, segment(0), &against);
        watch.on_bytes(None, ShardId(0), &against);
        assert_eq!(watch.take_violations(), Vec::<String>::new(), "one of two members holds it");
        hold_bytes(&records, 2, segment(0), &against);
        watch.on_bytes(None, ShardId(0), &against);
        assert_eq!(watch.take_violations().len(), 1);
    }
}
