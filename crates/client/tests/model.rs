//! The session against a small CURP cluster that loses, repeats and reorders every message, crashes, and refuses. What
//! a caller is told must be what happened (R2.1, R2.2, E1, E2).

#[allow(dead_code, reason = "shared with the tests of the session")]
use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Net, Sent};
use kasha_client::session::{CallId, CallOptions, Completion, SessionStats, WhyUnknown};
use kasha_machine::{Endpoint, Rng};
use kasha_types::{Epoch, ListVersion, RpcId};
use kasha_wire::hot::decode_small;
use kasha_wire::{Body, Kind, OutcomeCode, RecordedVerdict, Refusal, SyncRequest, Update};
use proptest::prelude::*;

/// One shard: its log of (body, result), a part of which is synced, and its two witnesses.
struct Shard {
    /// The primary runs another version, and cannot decode these updates.
    is_foreign: bool,
    epoch: Epoch,
    list: ListVersion,
    log: Vec<(Vec<u8>, Vec<u8>)>,
    synced: usize,
    witnesses: [BTreeMap<RpcId, Vec<u8>>; 2],
}

fn head(body: &[u8]) -> kasha_wire::BodyHead {
    Body::decode(body).expect("a body").head
}

impl Shard {
    fn find(&self, rpc: RpcId) -> Option<usize> {
        self.log.iter().position(|(body, _)| head(body).rpc == rpc)
    }

    /// The records of all sequences below this one are dropped.
    fn acknowledged(&self) -> u64 {
        self.log.iter().map(|(body, _)| head(body).acknowledgement.0).max().unwrap_or(0)
    }

    /// How often an update of this key has run.
    fn runs(&self, key: &[u8]) -> usize {
        let ran = |(body, result): &&(Vec<u8>, Vec<u8>)| {
            result[0] == OutcomeCode::Done as u8
                && matches!(Body::decode(body).expect("a body").update, Update::Increment { key: k, .. } if k == key)
        };
        self.log.iter().filter(ran).count()
    }

    fn execute(&mut self, bytes: &[u8], cancel: bool) {
        let mut result = vec![OutcomeCode::Cancelled as u8];
        if !cancel {
            let body = Body::decode(bytes).expect("a body");
            let Update::Increment { key, .. } = body.update else { panic!("only increments here") };
            result = vec![OutcomeCode::Done as u8];
            result.extend_from_slice(&(self.runs(key) as i64 + 1).to_le_bytes());
            result.extend_from_slice(&1u64.to_le_bytes());
        }
        self.log.push((bytes.to_vec(), result));
    }

    fn serve(&mut self, net: &mut Net, rng: &mut Rng, sent: &Sent) {
        match sent.kind {
            Kind::Request | Kind::Cancel => self.on_request(net, rng, sent),
            Kind::Record => {
                let Endpoint::Core(core) = sent.to else { panic!("a witness") };
                let index = usize::from(core.node.0) % 2;
                let is_current = sent.request().envelope.list == self.list;
                let accepted = is_current && !rng.chance(1, 8);
                if accepted {
                    self.witnesses[index].insert(sent.rpc(), sent.request().body.to_vec());
                }
                let refused = if is_current { RecordedVerdict::Conflict } else { RecordedVerdict::WrongList };
                net.record(sent, if accepted { RecordedVerdict::Accepted } else { refused });
            }
            Kind::Sync => {
                let request: SyncRequest = decode_small(&sent.payload).expect("a sync request");
                if request.epoch == self.epoch && self.find(request.rpc).is_some() {
                    self.synced = self.log.len();
                    net.sync(sent, |_| ());
                }
            }
            Kind::Message => net.give_configuration(Endpoint::Coordinator),
            other => panic!("{other:?} is not in this test"),
        }
    }

    fn on_request(&mut self, net: &mut Net, rng: &mut Rng, sent: &Sent) {
        let envelope = sent.request().envelope;
        if envelope.epoch != self.epoch {
            return net.refuse(sent, Refusal::NotPrimary);
        }
        if self.is_foreign {
            return net.refuse(sent, Refusal::BadRequest);
        }
        if envelope.list != ListVersion::NONE && envelope.list != self.list {
            return net.refuse(sent, Refusal::OldWitnessList);
        }
        if sent.rpc().sequence.0 < self.acknowledged() {
            return net.refuse(sent, Refusal::Stale);
        }
        let mut synced = envelope.list == ListVersion::NONE && rng.chance(1, 2);
        match self.find(sent.rpc()) {
            Some(_) => synced = true,
            None if sent.kind == Kind::Request && rng.chance(1, 4) => return net.refuse(sent, Refusal::OutOfMemory),
            None => self.execute(sent.request().body, sent.kind == Kind::Cancel),
        }
        let at = self.find(sent.rpc()).expect("executed");
        if synced {
            self.synced = self.log.len();
        }
        let result = self.log[at].1.clone();
        net.answer(sent, &result, synced);
    }

    /// The unsynced part of the log is lost. One witness is frozen, and what it holds is replayed.
    fn crash(&mut self, net: &mut Net, rng: &mut Rng) {
        self.log.truncate(self.synced);
        let acknowledged = self.acknowledged();
        let held = self.witnesses[usize::from(rng.chance(1, 2))].clone();
        for (rpc, body) in held {
            if self.find(rpc).is_none() && rpc.sequence.0 >= acknowledged {
                self.execute(&body, false);
            }
        }
        self.synced = self.log.len();
        self.is_foreign = rng.chance(1, 5);
        self.witnesses = Default::default();
        (self.epoch, self.list) = (self.epoch.next(), self.list.next());
        let configuration = &mut net.configuration;
        configuration.version = configuration.version.next();
        (configuration.shards[0].epoch, configuration.shards[0].list) = (self.epoch, self.list);
    }

    /// Witnesses drop requests that are synced.
    fn collect(&mut self) {
        let synced: Vec<_> = self.log[..self.synced].iter().map(|(body, _)| head(body).rpc).collect();
        for witness in &mut self.witnesses {
            witness.retain(|rpc, _| !synced.contains(rpc));
        }
    }
}

fn key_of(call: usize) -> Vec<u8> {
    format!("{{a-low-slot-}}{call}").into_bytes()
}

fn run(seed: u64) -> SessionStats {
    let mut rng = Rng::new(seed);
    let mut net = Net::open(|options| (options.seed, options.deadline) = (seed, Duration::from_millis(900)));
    let mut shard = Shard {
        is_foreign: false,
        epoch: Epoch(3),
        list: ListVersion(5),
        log: vec![],
        synced: 0,
        witnesses: Default::default(),
    };
    let mut calls: Vec<CallId> = Vec::new();
    let mut told: BTreeMap<CallId, Completion> = BTreeMap::new();
    for _ in 0..300 {
        match rng.below(20) {
            0..4 => {
                let options = CallOptions { cancel_on_deadline: rng.chance(1, 3), ..CallOptions::default() };
                let key = key_of(calls.len());
                calls.push(net.update(&Update::increment(&key, 1), &options));
            }
            4..14 if !net.sent.is_empty() => {
                let at = usize::try_from(rng.below(net.sent.len() as u64)).expect("an index");
                let sent = net.sent.swap_remove(at);
                if rng.chance(1, 5) {
                    net.sent.push(sent.clone());
                }
                shard.serve(&mut net, &mut rng, &sent);
            }
            14 if !net.sent.is_empty() => drop(net.sent.swap_remove(0)),
            15 => shard.synced = shard.log.len(),
            16 => shard.collect(),
            17 if rng.chance(1, 2) => shard.crash(&mut net, &mut rng),
            18 if rng.chance(1, 4) && !calls.is_empty() => net.session.abandon(*rng.pick(&calls)),
            _ => net.pass(Duration::from_millis(rng.below(60))),
        }
        told.extend(net.completed());
    }
    // From here on nothing is lost, and everything must end.
    shard.is_foreign = false;
    for _ in 0..2000 {
        if net.session.outstanding() == 0 {
            break;
        }
        for sent in std::mem::take(&mut net.sent) {
            shard.serve(&mut net, &mut rng, &sent);
        }
        net.pass(Duration::from_millis(20));
        told.extend(net.completed());
    }
    assert_eq!(net.session.outstanding(), 0, "seed {seed}: a call never ends");
    for _ in 0..2 {
        check(&mut net, &shard, &calls, &told, seed);
        shard.crash(&mut net, &mut rng);
        told.retain(|_, completion| !matches!(completion, Completion::Unknown(_)));
    }
    net.session.stats().clone()
}

#[test]
fn the_rare_paths_are_reached() {
    let mut sums = [0; 7];
    for seed in 0..20 {
        let stats = run(seed);
        let refused = stats.refusals(Refusal::NotPrimary);
        let unreadable = stats.refusals(Refusal::BadRequest);
        let ends = [stats.fast, stats.synced, stats.cancellations, stats.unknown];
        let counts = ends.into_iter().chain([stats.sync_requests, refused, unreadable]);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    assert!(sums.iter().all(|&sum| sum > 20), "fast, synced, cancellations, unknown, syncs, refusals: {sums:?}");
}

fn check(net: &mut Net, shard: &Shard, calls: &[CallId], told: &BTreeMap<CallId, Completion>, seed: u64) {
    for (index, call) in calls.iter().enumerate() {
        let runs = shard.runs(&key_of(index));
        assert!(runs <= 1, "E1, seed {seed}: call {index} ran {runs} times");
        let Some(mut completion) = told.get(call).cloned() else { continue };
        if completion == Completion::Unknown(WhyUnknown::DeadlinePassed) {
            completion = net.session.resolve(*call).expect("everything has ended");
            if completion == Completion::Unknown(WhyUnknown::Forgotten) {
                continue; // Abandoned after it had been told.
            }
        }
        match completion {
            Completion::Executed { result, .. } => {
                assert_eq!(runs, 1, "D1, seed {seed}: call {index} was told to be executed");
                assert_eq!(result[1], 1, "seed {seed}: the first run's result");
            }
            Completion::NotExecuted(why) => {
                assert_eq!(runs, 0, "R2.2, seed {seed}: call {index} was told not to be executed: {why}");
            }
            other => panic!("seed {seed}: {other:?} of call {index}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn what_is_told_is_what_happened(seed in any::<u64>()) {
        run(seed);
    }
}
