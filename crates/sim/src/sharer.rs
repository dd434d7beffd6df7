//! A client program whose many callers share one session over all shards, while one shard is away for long (R4.10).
//!
//! Each caller updates a key of its own repeatedly, and soon gives up waiting; some update keys of two shards at once, which
//! hang while one of the two is away. The updates are in no history: the program checks how long updates to one shard that is
//! not away take, and whether a lease is lost. The text of its violations begins with the program's name.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use kasha_client::session::{CallId, CallOptions, Completion, Session, SessionOptions, WhyNot, WhyUnknown};
use kasha_machine::Effects;
use kasha_types::{NodeId, ShardId, Tick, slot_of};
use kasha_wire::Update;
use kasha_wire::operation::ItemsBuffer;

use crate::clients::Stage;
use crate::clock::{SimTime, millis};
use crate::network::HostId;
use crate::process::Actor;

/// The callers of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    /// Several callers for each shard, which soon give up waiting.
    Many,
    /// One caller, for this shard, which waits long. Nothing else makes its session ask for a newer configuration.
    One(ShardId),
}

impl Callers {
    fn for_each_shard(self) -> usize {
        match self {
            Self::Many => 4,
            Self::One(_) => 1,
        }
    }

    /// Whether there is a caller for each shard that updates a key of the next shard, too.
    fn update_pairs(self) -> bool {
        matches!(self, Self::Many)
    }

    fn pause(self) -> u64 {
        match self {
            Self::Many => millis(60),
            Self::One(_) => millis(100),
        }
    }

    fn patience(self) -> Duration {
        match self {
            Self::Many => Duration::from_millis(400),
            Self::One(_) => Duration::from_secs(20),
        }
    }

    fn call(self, shard: ShardId) -> bool {
        match self {
            Self::Many => true,
            Self::One(only) => shard == only,
        }
    }
}

/// The longest time of an update to a shard that is not away. A silent witness costs the waiting time of one attempt;
/// several of them in a row cost a second.
const LONGEST: u64 = millis(200);

/// The same, counted from the moment at which another primary serves the shard: clients learn of it within 50 ms.
const NEWS: u64 = millis(60);

/// The shards that are away or were just now, and since when others are back; shared by the program and the run.
pub type Away = Rc<RefCell<Shards>>;

/// The state of the shards, as the run knows it.
#[derive(Debug, Default)]
pub struct Shards {
    /// Shards of which nothing is expected.
    pub away: BTreeSet<ShardId>,
    /// When another primary of the shard began to serve.
    pub back_at: BTreeMap<ShardId, SimTime>,
    /// A node of which nothing is heard.
    pub gone: Option<Gone>,
}

/// A node that is gone, while no configuration says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// The node.
    pub node: NodeId,
    /// Since when.
    pub since: SimTime,
    /// The only host for which it is gone; `None`: it is dead.
    pub only_for: Option<HostId>,
}

struct Caller {
    /// The shard of the keys, if they are of one.
    shard: Option<ShardId>,
    shards: Vec<ShardId>,
    keys: Vec<Vec<u8>>,
    waiting: Option<(CallId, SimTime)>,
    next_at: SimTime,
}

/// The program and its session.
pub struct Sharer {
    session: Session,
    away: Away,
    stage: Rc<RefCell<Stage>>,
    who: Callers,
    callers: Vec<Caller>,
    /// Updates whose callers gave up waiting, and when these callers had asked.
    detached: Vec<(CallId, Option<ShardId>, SimTime)>,
}

impl Sharer {
    /// A program with these callers.
    pub fn new(
        options: SessionOptions,
        away: Away,
        stage: Rc<RefCell<Stage>>,
        who: Callers,
        now: Tick,
        out: &mut Effects,
    ) -> Self {
        let session = Session::new(options, now, out);
        Self { session, away, stage, who, callers: Vec::new(), detached: Vec::new() }
    }

    fn find_keys(&mut self) {
        let Some(configuration) = self.session.configuration() else { return };
        let Some(table) = configuration.tables.first().map(|info| info.table) else { return };
        let each = self.who.for_each_shard();
        let called: Vec<_> =
            configuration.shards.iter().map(|config| config.shard).filter(|&it| self.who.call(it)).collect();
        // One key for each caller, and two for those of two shards.
        let mut keys: BTreeMap<ShardId, Vec<Vec<u8>>> = BTreeMap::new();
        let mut number = 0u32;
        while called.iter().any(|shard| keys.get(shard).is_none_or(|found| found.len() < each + 2)) {
            let key = format!("shared-{number}").into_bytes();
            number += 1;
            let Some(shard) = configuration.owner(table, slot_of(&key)) else { return };
            keys.entry(shard).or_default().push(key);
        }
        let new = |shards: &[ShardId], keys| {
            let (shard, shards) = (shards.first().copied().filter(|_| shards.len() == 1), shards.to_vec());
            Caller { shard, shards, keys, waiting: None, next_at: SimTime(0) }
        };
        for shard in &called {
            self.callers.extend(keys[shard][..each].iter().map(|key| new(&[*shard], vec![key.clone()])));
        }
        if self.who.update_pairs() && called.len() > 1 {
            for (shard, next) in called.iter().zip(called.iter().cycle().skip(1)) {
                self.callers.push(new(&[*shard, *next], vec![keys[shard][each].clone(), keys[next][each + 1].clone()]));
            }
        }
    }

    fn collect(&mut self, stage: &mut Stage, at: SimTime) {
        while let Some((call, completion)) = self.session.poll_completed() {
            let caller = self.callers.iter_mut().find(|caller| caller.waiting.is_some_and(|(id, _)| id == call));
            let Some(caller) = caller else { continue };
            let (_, asked) = caller.waiting.take().expect("just seen");
            caller.next_at = at.after(self.who.pause());
            let (shard, shards) = (caller.shard, self.away.borrow());
            stage.unresolved -= 1;
            let is_touched = |shard: &ShardId| shards.away.contains(shard) || shards.back_at.contains_key(shard);
            let is_held_back = matches!(completion, Completion::NotExecuted(WhyNot::DeadlineBeforeSend(_)));
            if is_held_back && !caller.shards.iter().any(is_touched) {
                let text = format!("an update of {:?}, none of which is away, was not sent", caller.shards);
                stage.violations.push(format!("shared_session: {text} (R4.10)"));
            }
            match completion {
                Completion::Unknown(WhyUnknown::DeadlinePassed) => {
                    stage.unresolved += 1;
                    self.detached.push((call, shard, asked));
                }
                Completion::Unknown(why) => lost(stage, why),
                _ => {}
            }
            let Some(shard) = shard.filter(|shard| !shards.away.contains(shard)) else { continue };
            if let Some(&back_at) = shards.back_at.get(&shard).filter(|&&back_at| back_at > asked) {
                news_travel(stage, shard, back_at, at);
            } else if at.0 - asked.0 > LONGEST {
                let text = format!("an update to {shard}, which is not away, took {} µs", (at.0 - asked.0) / 1000);
                stage.violations.push(format!("shared_session: {text} (R4.10)"));
            }
        }
        let session = &mut self.session;
        let shards = self.away.borrow();
        self.detached.retain(|&(call, shard, asked)| match session.resolve(call) {
            None => true,
            Some(completion) => {
                stage.unresolved -= 1;
                if let Some(shard) = shard
                    && let Some(&back_at) = shards.back_at.get(&shard).filter(|&&back_at| back_at > asked)
                {
                    news_travel(stage, shard, back_at, at);
                }
                stage.probes.hit("shared session: resolved");
                if let Completion::Unknown(why) = completion {
                    lost(stage, why);
                }
                false
            }
        });
    }
}

/// An update that waited for a shard ends soon after the shard serves again, however long the outage was.
fn news_travel(stage: &mut Stage, shard: ShardId, back_at: SimTime, at: SimTime) {
    if at.0.saturating_sub(back_at.0) > NEWS {
        let micros = (at.0 - back_at.0) / 1000;
        let text = format!("an update that waited for {shard} took {micros} µs after it served again");
        stage.violations.push(format!("news_travel: {text}"));
    }
}

/// The program never stops, and reaches the coordinator whenever that is there, so it must never lose a lease.
fn lost(stage: &mut Stage, why: WhyUnknown) {
    stage.violations.push(format!("identities_kept: an update will never be known, {why:?} (R4.10)"));
}

impl Drop for Sharer {
    fn drop(&mut self) {
        if let Ok(mut stage) = self.stage.try_borrow_mut() {
            let waiting = self.callers.iter().filter(|caller| caller.waiting.is_some()).count();
            stage.unresolved -= waiting + self.detached.len();
        }
    }
}

impl Actor for Sharer {
    crate::process::machine_is_session!();

    fn drive(&mut self, now: Tick, at: SimTime, out: &mut Effects) {
        let shared = self.stage.clone();
        let stage = &mut *shared.borrow_mut();
        self.collect(stage, at);
        if stage.stopped {
            return;
        }
        if self.callers.is_empty() {
            self.find_keys();
        }
        let Some(table) = self.session.configuration().and_then(|known| known.tables.first()).map(|info| info.table)
        else {
            return;
        };
        for caller in &mut self.callers {
            if caller.waiting.is_some() || caller.next_at > at {
                continue;
            }
            let pairs = ItemsBuffer::pairs(caller.keys.iter().map(|key| (&key[..], &b"v"[..])));
            let update = match &caller.keys[..] {
                [key] => Update::increment(key, 1),
                _ => Update::MultiPut { pairs: pairs.as_items() },
            };
            let options = CallOptions { deadline: Some(now.after(self.who.patience())), ..CallOptions::default() };
            let call = self.session.update(now, table, &update, &options, out);
            stage.unresolved += 1;
            caller.waiting = Some((call, at));
        }
    }

    fn wake(&self) -> Option<SimTime> {
        let stopped = self.stage.borrow().stopped;
        let resolves = (!self.detached.is_empty() || self.callers.iter().any(|caller| caller.waiting.is_some()))
            .then(|| self.callers.iter().map(|caller| caller.next_at).max().unwrap_or(SimTime(0)).after(millis(40)));
        let idle = self.callers.iter().filter(|caller| caller.waiting.is_none()).map(|caller| caller.next_at).min();
        idle.filter(|_| !stopped).into_iter().chain(resolves).min()
    }
}
