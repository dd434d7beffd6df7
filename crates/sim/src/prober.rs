//! A client program that updates one key of every shard repeatedly, to measure whether the shard is available.
//!
//! An update of a key waits until the update before it is synced. So the fast path cannot hide a shard that syncs
//! nothing any more. Its updates are in no history: it only measures.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use kasha_client::session::{CallId, CallOptions, Completion, Session, SessionOptions};
use kasha_machine::Effects;
use kasha_types::{ShardId, Tick, slot_of};
use kasha_wire::Update;

use crate::clock::SimTime;
use crate::process::Actor;

/// For each shard, when its newest successful update was asked for; shared by the program and the run.
pub type Successes = Rc<RefCell<BTreeMap<ShardId, SimTime>>>;

/// A key of each shard.
type Keys = BTreeMap<ShardId, Vec<u8>>;

/// The program and its session.
pub struct Prober {
    session: Session,
    successes: Successes,
    pause: u64,
    keys: Keys,
    waiting: BTreeMap<ShardId, (CallId, SimTime)>,
    next_at: SimTime,
}

impl Prober {
    /// Updates each shard after every `pause`, unless the last update has no answer yet.
    pub fn new(options: SessionOptions, successes: Successes, pause: u64, now: Tick, out: &mut Effects) -> Self {
        let session = Session::new(options, now, out);
        Self { session, successes, pause, keys: Keys::new(), waiting: BTreeMap::new(), next_at: SimTime(0) }
    }

    fn collect(&mut self) {
        while let Some((call, completion)) = self.session.poll_completed() {
            let asked =
                self.waiting.iter().find(|(_, waiting)| waiting.0 == call).map(|(&shard, &(_, at))| (shard, at));
            let Some((shard, at)) = asked else { continue };
            self.waiting.remove(&shard);
            if let Completion::Executed { .. } = completion {
                self.successes.borrow_mut().insert(shard, at);
            }
        }
    }

    /// Finds a key for each shard of the first table.
    fn find_keys(&mut self) {
        let Some(configuration) = self.session.configuration() else { return };
        let Some(table) = configuration.tables.first().map(|info| info.table) else { return };
        for number in 0u32.. {
            if self.keys.len() >= configuration.shards.len() {
                return;
            }
            let key = format!("probe-{number}").into_bytes();
            if let Some(shard) = configuration.owner(table, slot_of(&key)) {
                self.keys.entry(shard).or_insert(key);
            }
        }
    }
}

impl Actor for Prober {
    crate::process::machine_is_session!();

    fn drive(&mut self, now: Tick, at: SimTime, out: &mut Effects) {
        self.collect();
        if at < self.next_at {
            return;
        }
        self.next_at = at.after(self.pause);
        self.find_keys();
        let Some(table) = self.session.configuration().and_then(|known| known.tables.first()).map(|info| info.table)
        else {
            self.session.refresh(now, out); // it was told of a cluster that is not placed yet
            return;
        };
        for (&shard, key) in &self.keys {
            if self.waiting.contains_key(&shard) {
                continue;
            }
            let update = Update::put(key, b"there");
            let call = self.session.update(now, table, &update, &CallOptions::default(), out);
            self.waiting.insert(shard, (call, at));
        }
    }

    fn wake(&self) -> Option<SimTime> {
        Some(self.next_at)
    }
}
