//! Garbage collection at witnesses: what is synced is named to each of them, so that they drop it (CURP 4.5).

use std::collections::VecDeque;

use kasha_machine::{Effects, Endpoint, Gate};
use kasha_replication::Company;
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterTime, CoreId, KeyHash, ListVersion, LogEnd, NodeId, RpcId, ShardId, Tick};
use kasha_wire::ShardConfig;
use kasha_wire::message::{Gc, GcEntry};

use crate::core::Core;
use crate::core::send::send;

/// Names kept for a silent witness; beyond, they are dropped, and suspects bring them back (section 6).
const GC_BACKLOG_MAX: usize = 4096;

/// A key that an unsynced operation touched.
#[derive(Clone, Copy, Debug)]
struct Touched {
    end: LogEnd,
    entry: GcEntry,
}

/// One witness of the current list.
#[derive(Debug)]
struct WitnessLink {
    core: CoreId,
    /// The gc under way.
    in_flight: Option<(u64, Tick)>,
    /// A round began while it was: the backlog waits for no other.
    missed_company: bool,
    backlog: Vec<GcEntry>,
}

/// What is to be named, and to whom.
#[derive(Debug)]
pub(super) struct Garbage {
    touched: VecDeque<Touched>,
    witnesses: Vec<WitnessLink>,
    round: u64,
}

fn links(core: &Core, config: &ShardConfig) -> Vec<WitnessLink> {
    let configuration = core.configuration.as_ref().expect("a configuration promoted us");
    let cores = config.witnesses.iter().filter_map(|&node| configuration.core_of(node, config.shard));
    cores.map(|core| WitnessLink { core, in_flight: None, missed_company: false, backlog: Vec::new() }).collect()
}

impl Garbage {
    pub fn new(core: &Core, config: &ShardConfig) -> Self {
        Self { touched: VecDeque::new(), witnesses: links(core, config), round: 0 }
    }

    /// Another list has come into force.
    pub fn set_witnesses(&mut self, core: &Core, config: &ShardConfig) {
        self.witnesses = links(core, config);
    }

    pub fn has_no_witness(&self) -> bool {
        self.witnesses.is_empty()
    }

    /// Keys touched by operations that are not synced.
    pub fn unsynced(&self) -> usize {
        self.touched.len()
    }

    /// What ends at `end` is to be named once it is synced.
    #[inline(always)]
    pub fn add(&mut self, end: LogEnd, rpc: RpcId, footprint: &[KeyHash]) {
        // Nearly always one: an iterator's reservation costs more than the push.
        for &key in footprint {
            self.touched.push_back(Touched { end, entry: GcEntry { key, rpc } });
        }
    }

    /// What is synced is to be named to every witness.
    pub fn note_synced(&mut self, synced: LogEnd) {
        while let Some(touched) = self.touched.front().filter(|touched| touched.end <= synced) {
            for link in &mut self.witnesses {
                if link.backlog.len() < GC_BACKLOG_MAX {
                    link.backlog.push(touched.entry);
                }
            }
            self.touched.pop_front();
        }
    }

    /// Names it; one gc is under way at each witness (CURP 4.5), and leaves with a round where one is near.
    pub fn collect(
        &mut self,
        core: &Core,
        now: Tick,
        (shard, list): (ShardId, ListVersion),
        floor: ClusterTime,
        company: Company,
        out: &mut Effects,
    ) {
        let patience = core.options.pace.retry * 4;
        for link in &mut self.witnesses {
            if link.in_flight.is_some_and(|(_, sent)| now.since(sent) < patience) {
                link.missed_company |= company == Company::Now && !link.backlog.is_empty();
                continue;
            }
            if link.backlog.is_empty() || (company == Company::Soon && !link.missed_company) {
                continue;
            }
            link.missed_company = false;
            if link.in_flight.is_some() {
                hit(Probe::GcUnanswered);
            }
            self.round += 1;
            link.in_flight = Some((self.round, now));
            let entries = std::mem::take(&mut link.backlog);
            let mut gc = Gc { shard, list, round: self.round, floor, entries };
            send(Endpoint::Core(link.core), &gc, Gate::Now, out);
            gc.entries.clear();
            link.backlog = gc.entries; // its memory is used again
        }
    }

    /// A witness answers. False: something that was asked before.
    pub fn on_done(&mut self, node: NodeId, round: u64) -> bool {
        let link = self.witnesses.iter_mut().find(|link| link.core.node == node);
        match link {
            Some(link) if link.in_flight.is_some_and(|(sent, _)| sent == round) => {
                link.in_flight = None;
                true
            }
            Some(_) | None => false,
        }
    }
}
