//! What a member derives from a log, and how a replay derives it. The names are those of node `state::ShardState`.

use crate::cleaner::Cleaner;
use crate::cleaner::bounds::FloorOrder;
use crate::cleaner::rules::Rule;
use crate::cleaner::state::{Entry, KEYS_MAX, KeyIx, Kind, Place, SegmentIx, UPDATES_MAX, has};

/// What is known of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// Results below have arrived.
    pub acknowledged: u8,
    /// The latest end of its lease that a record speaks of.
    pub lease: u8,
    /// Where its records are, by sequence.
    pub records: [Option<Place>; UPDATES_MAX],
}

/// What is derived from a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// Where each key's newest entry is.
    pub keys: [Option<Place>; KEYS_MAX],
    /// Versions of keys without a value go on above it.
    pub version_floor: u8,
    /// Where that stands.
    pub version_floor_entry: Option<Place>,
    /// The client.
    pub client: Option<Client>,
    /// Leases up to here are over.
    pub floor: u8,
    /// Where that stands.
    pub floor_entry: Option<Place>,
    /// Where the operation key's record is.
    pub operation_key: Option<Place>,
    /// The greatest ClusterTime at which an operation key had expired.
    pub time: u8,
    /// Where that stands.
    pub dropped_entry: Option<Place>,
}

/// The version of a key's entry.
pub fn version_at(log: &[Entry], at: Place) -> u8 {
    match log[usize::from(at)].kind {
        Kind::Object { version, .. } | Kind::Tombstone { version, .. } => version,
        other => unreachable!("no entry of a key: {other:?}"),
    }
}

/// Whether a key's entry is a value.
pub fn is_object(log: &[Entry], at: Place) -> bool {
    matches!(log[usize::from(at)].kind, Kind::Object { .. })
}

fn expires_at(log: &[Entry], at: Place) -> u8 {
    match log[usize::from(at)].kind {
        Kind::OperationKey { expires, .. } => expires,
        other => unreachable!("no operation key: {other:?}"),
    }
}

impl Client {
    fn forget_if(&mut self, mut is_gone: impl FnMut(Place) -> bool) -> bool {
        let mut any = false;
        for record in &mut self.records {
            if record.is_some_and(&mut is_gone) {
                (*record, any) = (None, true);
            }
        }
        any
    }

    fn has_records(&self) -> bool {
        self.records.iter().any(Option::is_some)
    }
}

impl Memory {
    /// Every place that a reference leads to.
    pub fn references(&self) -> impl Iterator<Item = Place> + '_ {
        let entries = [self.version_floor_entry, self.floor_entry, self.operation_key, self.dropped_entry];
        let records = self.client.iter().flat_map(|client| client.records);
        self.keys.into_iter().chain(entries).chain(records).flatten()
    }

    /// The version that a key's next entry gets.
    pub fn next_version(&self, log: &[Entry], key: KeyIx) -> u8 {
        match self.keys[usize::from(key)] {
            Some(at) if is_object(log, at) => version_at(log, at) + 1,
            Some(at) => version_at(log, at).max(self.version_floor) + 1,
            None => self.version_floor + 1,
        }
    }

    /// Whether `Tracker::look_up_replayed` takes an update for new. Only the floor refuses what a witness brings.
    pub fn is_new(&self, sequence: u8, lease: u8) -> bool {
        let known = self.client.as_ref().is_some_and(|client| {
            sequence < client.acknowledged || client.records[usize::from(sequence) - 1].is_some()
        });
        !known && lease > self.floor
    }

    /// The run that a request with the operation key would find, at the ClusterTime that the log speaks of.
    pub fn run_found(&self, log: &[Entry]) -> Option<u8> {
        let at = self.operation_key.filter(|&at| expires_at(log, at) >= self.time)?;
        match log[usize::from(at)].kind {
            Kind::OperationKey { run, .. } => Some(run),
            other => unreachable!("no operation key: {other:?}"),
        }
    }

    /// Whether the operation key's time is over.
    pub fn has_expired(&self, log: &[Entry], now: u8) -> bool {
        self.operation_key.is_some_and(|at| expires_at(log, at) < now)
    }

    /// `ShardState::forget_segment`: no reference leads there any more.
    pub fn forget_segment(&mut self, log: &[Entry], segment: SegmentIx) {
        let stays = |at: &Place| log[usize::from(*at)].segment != segment;
        for entry in self.keys.iter_mut().chain([
            &mut self.version_floor_entry,
            &mut self.floor_entry,
            &mut self.operation_key,
            &mut self.dropped_entry,
        ]) {
            *entry = entry.filter(stays);
        }
        if let Some(client) = &mut self.client
            && client.forget_if(|at| !stays(&at))
            && !client.has_records()
        {
            self.client = None;
        }
    }

    fn record(&mut self, sequence: u8, lease: u8, acknowledgement: u8, at: Place) {
        let client = self.client.get_or_insert_default();
        client.lease = client.lease.max(lease);
        client.acknowledged = client.acknowledged.max(acknowledgement.min(sequence));
        if sequence >= client.acknowledged {
            let record = &mut client.records[usize::from(sequence) - 1];
            *record = (*record).max(Some(at));
        }
        let acknowledged = usize::from(client.acknowledged).saturating_sub(1);
        client.records[..acknowledged].fill(None);
    }

    /// `ShardState::raise_floor`: the client is forgotten. If it came back with a later lease, only its records before
    /// `first` are forgotten.
    pub fn raise_floor(&mut self, time: u8, names_client: bool, first: Place) {
        self.floor = self.floor.max(time);
        if !names_client {
            return;
        }
        if self.client.as_ref().is_some_and(|client| client.lease <= self.floor) {
            self.client = None;
        }
        if let Some(client) = &mut self.client {
            client.forget_if(|at| at < first);
            if !client.has_records() {
                self.client = None;
            }
        }
    }
}

impl Cleaner {
    /// `ShardState::replay` of one entry.
    pub(super) fn replay_entry(&self, memory: &mut Memory, log: &[Entry], at: Place) {
        match log[usize::from(at)].kind {
            Kind::Object { key, version, .. } | Kind::Tombstone { key, version, .. } => {
                let known = &mut memory.keys[usize::from(key)];
                if known.is_none_or(|known| version_at(log, known) <= version) {
                    *known = Some(at);
                }
            }
            Kind::Record { sequence, lease, acknowledgement } => memory.record(sequence, lease, acknowledgement, at),
            Kind::OperationKey { .. } => memory.operation_key = memory.operation_key.max(Some(at)),
            Kind::Dropped { at: time } => {
                memory.time = memory.time.max(time);
                let is_over = |&known: &Place| match self.keeps(Rule::DroppedKeyTie) {
                    true => expires_at(log, known) < time,
                    false => expires_at(log, known) <= time,
                };
                memory.operation_key = memory.operation_key.filter(|known| !is_over(known));
                memory.dropped_entry = Some(at);
            }
            Kind::ExpiryFloor { time, names_client, first } => {
                let takes_all = self.bounds.floor_order == FloorOrder::NoneBehindPending;
                if takes_all || time >= memory.floor {
                    memory.raise_floor(time, names_client, first);
                    memory.floor_entry = Some(at);
                }
            }
            Kind::VersionFloor { version } => {
                memory.version_floor = memory.version_floor.max(version);
                memory.version_floor_entry = Some(at);
            }
            Kind::Freed { segment } => memory.forget_segment(log, segment),
        }
    }

    /// A full replay of a log, from the segments that are there.
    pub(super) fn replay(&self, log: &[Entry], held: u8) -> Memory {
        let mut memory = Memory::default();
        for (at, _) in (0..).zip(log).filter(|(_, entry)| has(held, entry.segment)) {
            self.replay_entry(&mut memory, log, at);
        }
        memory
    }
}
