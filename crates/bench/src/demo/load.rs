//! One client of the demo: counters, pairs of keys, and money that moves between accounts of all shards, with a tally of what
//! the client was told.
//!
//! Every increment is positive. So no two increments of one counter may have the same number as their answer, and at
//! the end the counter must hold the sum of the acknowledged increments (E1, E2). The accounts begin with nothing, and a transfer
//! takes from one what it gives to another: whoever reads all accounts at one moment must find a sum of 0 (T3).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use kasha_client::Path;
use kasha_client::session::{CallId, CallOptions, Completion, Session, WhyUnknown};
use kasha_machine::{Effects, Rng};
use kasha_runtime::{Application, Clock, Control};
use kasha_types::{ShardId, TableId, Tick, slot_of};
use kasha_wire::operation::ItemsBuffer;
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, Read, Update};

use super::pace::Pace;
use crate::limits;

/// Groups of keys; a group's keys share a tag, and so a shard.
pub(super) const GROUPS: u32 = 64;

/// Counters of a group.
pub(super) const GROUP_COUNTERS: u32 = 4;

/// Keys of a group that are always put together.
pub(super) const GROUP_PUTS: u32 = 3;

/// Accounts, whose keys are spread over all shards.
pub(super) const ACCOUNTS: u32 = 24;

/// How often unknown outcomes are asked for again.
const RESOLVE_INTERVAL: Duration = Duration::from_millis(20);

/// The key of a counter.
pub(super) fn counter_key(counter: u32) -> String {
    format!("{{group-{}}}:counter-{}", counter / GROUP_COUNTERS, counter % GROUP_COUNTERS)
}

/// A key that is put together with the group's others.
pub(super) fn put_key(group: u32, index: u32) -> String {
    format!("{{group-{group}}}:put-{index}")
}

/// The key of an account.
pub(super) fn account_key(account: u32) -> String {
    format!("account-{account}")
}

/// The number in a key's value, if the value is one. A key without a value holds 0.
pub(super) fn number_in(value: Option<&[u8]>) -> Option<i64> {
    value.map_or(Some(0), |value| std::str::from_utf8(value).ok()?.parse().ok())
}

/// What one client, or all clients, saw.
#[derive(Debug)]
pub(super) struct Tally {
    /// Updates sent, each once.
    pub(super) updates: u64,
    /// Attempts beyond each update's first.
    pub(super) retries: u64,
    /// The sum of each counter's acknowledged increments.
    pub(super) added: Vec<i64>,
    /// Every number that an increment was answered with.
    pub(super) numbers: Vec<(u32, i64)>,
    /// What acknowledged transfers gave to each account, less what they took.
    pub(super) moved: Vec<i64>,
    /// Acknowledged transfers, and those between accounts of different shards.
    pub(super) transfers: u64,
    pub(super) transfers_over_shards: u64,
    /// Reads of all accounts at one moment, and those of them that found another sum than 0.
    pub(super) looks: u64,
    /// Looks that had no answer: a shard was away, or something changed all the time.
    pub(super) looks_failed: u64,
    pub(super) wrong_sums: u64,
    /// Updates that were certainly not executed.
    pub(super) not_executed: u64,
    /// Updates whose outcome was never learned.
    pub(super) unresolved: u64,
    /// Answers that the operation cannot have.
    pub(super) absurd: Vec<String>,
    /// Latencies of updates that their witnesses completed.
    pub(super) fast: Histogram<u64>,
    /// Latencies of updates that waited for the backups.
    pub(super) slow: Histogram<u64>,
    /// The times at which each shard answered.
    pub(super) answers: BTreeMap<ShardId, Vec<Tick>>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let histogram = || Histogram::new_with_bounds(1, limits::LATENCY_MAX_NANOS, 3).expect("valid bounds");
        Self {
            updates: 0,
            retries: 0,
            added: vec![0; (GROUPS * GROUP_COUNTERS) as usize],
            numbers: Vec::new(),
            moved: vec![0; ACCOUNTS as usize],
            transfers: 0,
            transfers_over_shards: 0,
            looks: 0,
            looks_failed: 0,
            wrong_sums: 0,
            not_executed: 0,
            unresolved: 0,
            absurd: Vec::new(),
            fast: histogram(),
            slow: histogram(),
            answers: BTreeMap::new(),
        }
    }

    /// Adds what another client saw.
    pub(super) fn add(&mut self, other: Self) {
        self.updates += other.updates;
        self.retries += other.retries;
        self.added.iter_mut().zip(other.added).for_each(|(all, added)| *all += added);
        self.numbers.extend(other.numbers);
        self.moved.iter_mut().zip(other.moved).for_each(|(all, moved)| *all += moved);
        self.transfers += other.transfers;
        self.transfers_over_shards += other.transfers_over_shards;
        self.looks += other.looks;
        self.looks_failed += other.looks_failed;
        self.wrong_sums += other.wrong_sums;
        self.not_executed += other.not_executed;
        self.unresolved += other.unresolved;
        self.absurd.extend(other.absurd);
        self.fast.add(other.fast).expect("the same bounds");
        self.slow.add(other.slow).expect("the same bounds");
        for (shard, times) in other.answers {
            self.answers.entry(shard).or_default().extend(times);
        }
        self.answers.values_mut().for_each(|times| times.sort_unstable());
    }

    /// Increments of one counter that got the same number as another one.
    pub(super) fn repeated_numbers(&self) -> usize {
        let mut numbers = self.numbers.clone();
        numbers.sort_unstable();
        numbers.windows(2).filter(|pair| pair[0] == pair[1]).count()
    }
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Increment {
        counter: u32,
        delta: i64,
    },
    IncrementBoth {
        counters: [u32; 2],
        deltas: [i64; 2],
    },
    PutTogether {
        group: u32,
    },
    Transfer {
        accounts: [u32; 2],
        amount: i64,
    },
    /// Reads all accounts.
    Look,
}

impl Work {
    fn shape(self) -> Shape {
        match self {
            Self::Increment { .. } => Shape::Number,
            Self::IncrementBoth { .. } => Shape::Numbers,
            Self::PutTogether { .. } => Shape::Versions,
            Self::Transfer { .. } => Shape::Numbers,
            Self::Look => Shape::Values,
        }
    }

    /// The group of all its keys, if they have one.
    fn group(self) -> Option<u32> {
        match self {
            Self::Increment { counter, .. } => Some(counter / GROUP_COUNTERS),
            Self::IncrementBoth { counters, .. } => Some(counters[0] / GROUP_COUNTERS),
            Self::PutTogether { group } => Some(group),
            Self::Transfer { .. } | Self::Look => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    work: Work,
    sent: Tick,
}

/// A client's application.
#[derive(Debug)]
pub(super) struct Load {
    table: TableId,
    rng: Rng,
    pace: Pace,
    next: Tick,
    /// The load ends: calls under way are waited for.
    ending: Arc<AtomicBool>,
    /// The time at which waiting ends too.
    give_up: Option<Tick>,
    under_way: BTreeMap<CallId, UnderWay>,
    /// Updates that were told "unknown"; their outcomes are asked for later.
    unknown: VecDeque<(CallId, UnderWay)>,
    /// The shards of the groups, and of the accounts.
    shards: Vec<ShardId>,
    account_shards: Vec<ShardId>,
    puts: u64,
    pub(super) tally: Tally,
}

impl Load {
    pub(super) fn new(table: TableId, seed: u64, interval: Duration, ending: Arc<AtomicBool>) -> Self {
        Self {
            table,
            rng: Rng::new(seed),
            pace: Pace::new(interval),
            next: Clock::now(),
            ending,
            give_up: None,
            under_way: BTreeMap::new(),
            unknown: VecDeque::new(),
            shards: Vec::new(),
            account_shards: Vec::new(),
            puts: 0,
            tally: Tally::new(),
        }
    }

    fn send(&mut self, now: Tick, session: &mut Session, out: &mut Effects) {
        let work = self.draw();
        let options = CallOptions::default();
        let call = match work {
            Work::Increment { counter, delta } => {
                let key = counter_key(counter);
                session.update(now, self.table, &Update::increment(key.as_bytes(), delta), &options, out)
            }
            Work::IncrementBoth { counters, deltas } => {
                let keys = counters.map(counter_key);
                let items = ItemsBuffer::deltas(keys.iter().map(String::as_bytes).zip(deltas));
                session.update(now, self.table, &Update::MultiIncrement { deltas: items.as_items() }, &options, out)
            }
            Work::PutTogether { group } => {
                self.puts += 1;
                let value = format!("{:x}-{}", self.rng.next_u64(), self.puts);
                let keys: Vec<String> = (0..GROUP_PUTS).map(|index| put_key(group, index)).collect();
                let items = ItemsBuffer::pairs(keys.iter().map(|key| (key.as_bytes(), value.as_bytes())));
                session.update(now, self.table, &Update::MultiPut { pairs: items.as_items() }, &options, out)
            }
            Work::Transfer { accounts, amount } => {
                let keys = accounts.map(account_key);
                let items = ItemsBuffer::deltas(keys.iter().map(String::as_bytes).zip([-amount, amount]));
                session.update(now, self.table, &Update::MultiIncrement { deltas: items.as_items() }, &options, out)
            }
            Work::Look => {
                let keys: Vec<String> = (0..ACCOUNTS).map(account_key).collect();
                let items = ItemsBuffer::keys(keys.iter().map(String::as_bytes));
                session.read(now, self.table, &Read::MultiGet { keys: items.as_items() }, None, out)
            }
        };
        self.tally.updates += u64::from(!matches!(work, Work::Look));
        self.under_way.insert(call, UnderWay { work, sent: now });
    }

    /// At least half increment one counter; some increment two at once, put several keys at once, or move money; a few look at it.
    fn draw(&mut self) -> Work {
        let group = self.rng.below(u64::from(GROUPS)) as u32;
        let first = self.rng.below(u64::from(GROUP_COUNTERS)) as u32;
        let counter = |index: u32| group * GROUP_COUNTERS + index % GROUP_COUNTERS;
        let mut delta = || self.rng.between(1, 9) as i64;
        let deltas = [delta(), delta()];
        match self.rng.below(20) {
            0..10 => Work::Increment { counter: counter(first), delta: deltas[0] },
            10..13 => Work::IncrementBoth { counters: [counter(first), counter(first + 1)], deltas },
            13..16 => Work::PutTogether { group },
            // One at a time, as people move money: else, on a slow machine, ever more would wait for the same accounts.
            16..19 if !self.is_under_way(|work| matches!(work, Work::Transfer { .. })) => {
                let from = self.rng.below(u64::from(ACCOUNTS)) as u32;
                let to = (from + self.rng.between(1, u64::from(ACCOUNTS) - 1) as u32) % ACCOUNTS;
                Work::Transfer { accounts: [from, to], amount: deltas[0] }
            }
            19 if !self.is_under_way(|work| matches!(work, Work::Look)) => Work::Look,
            _ => Work::Increment { counter: counter(first), delta: deltas[0] },
        }
    }

    fn is_under_way(&self, is_it: fn(Work) -> bool) -> bool {
        self.under_way.values().any(|under_way| is_it(under_way.work))
    }

    fn on_completed(&mut self, under_way: UnderWay, completion: Completion, call: CallId) {
        match completion {
            Completion::Executed { result, path, attempts } => {
                let now = Clock::now();
                self.pace.note(now.since(under_way.sent));
                self.tally.retries += u64::from(attempts.saturating_sub(1));
                let latency = match path {
                    Path::Fast => &mut self.tally.fast,
                    Path::Synced => &mut self.tally.slow,
                };
                latency.saturating_record(u64::try_from(now.since(under_way.sent).as_nanos()).unwrap_or(u64::MAX));
                if let Some(group) = under_way.work.group() {
                    self.tally.answers.entry(self.shards[group as usize]).or_default().push(now);
                }
                self.on_result(under_way.work, &result);
            }
            Completion::Read { result } => self.on_result(under_way.work, &result),
            Completion::ReadFailed(_) => self.tally.looks_failed += 1,
            Completion::NotExecuted(_) => self.tally.not_executed += 1,
            Completion::Unknown(WhyUnknown::DeadlinePassed) => self.unknown.push_back((call, under_way)),
            Completion::Unknown(_) => self.tally.unresolved += 1,
            other => self.tally.absurd.push(format!("{other:?}")),
        }
    }

    fn on_result(&mut self, work: Work, result: &[u8]) {
        let tally = &mut self.tally;
        let mut on_number = |counter: u32, delta: i64, number: i64| {
            tally.added[counter as usize] += delta;
            tally.numbers.push((counter, number));
        };
        match (work, Outcome::decode(work.shape(), result)) {
            (Work::Increment { counter, delta }, Ok(Outcome::Number(number, _))) => on_number(counter, delta, number),
            (Work::IncrementBoth { counters, deltas }, Ok(Outcome::Numbers(numbers))) if numbers.len() == 2 => {
                for ((counter, delta), (number, _)) in counters.into_iter().zip(deltas).zip(numbers) {
                    on_number(counter, delta, number);
                }
            }
            (Work::PutTogether { .. }, Ok(Outcome::Versions(versions))) if versions.len() == GROUP_PUTS as usize => {}
            (Work::Transfer { accounts: [from, to], amount }, Ok(Outcome::Numbers(numbers))) if numbers.len() == 2 => {
                self.tally.moved[from as usize] -= amount;
                self.tally.moved[to as usize] += amount;
                self.tally.transfers += 1;
                self.tally.transfers_over_shards += u64::from(self.is_of_two_shards([from, to]));
            }
            (Work::Look, Ok(Outcome::Values(values))) if values.len() == ACCOUNTS as usize => {
                let number = |value: &Option<(u64, Vec<u8>)>| number_in(value.as_ref().map(|(_, bytes)| &bytes[..]));
                let sum: Option<i64> = values.iter().map(number).sum();
                self.tally.looks += 1;
                self.tally.wrong_sums += u64::from(sum != Some(0));
            }
            (_, outcome) => self.tally.absurd.push(format!("{outcome:?} to {work:?}")),
        }
    }

    fn is_of_two_shards(&self, accounts: [u32; 2]) -> bool {
        let [from, to] = accounts.map(|account| self.account_shards[account as usize]);
        from != to
    }

    fn resolve(&mut self, session: &mut Session) {
        for _ in 0..self.unknown.len() {
            let (call, under_way) = self.unknown.pop_front().expect("as many as counted");
            match session.resolve(call) {
                Some(completion) => self.on_completed(under_way, completion, call),
                None => self.unknown.push_back((call, under_way)),
            }
        }
    }

    /// Which shard each group, and each account, belongs to. Nothing moves between shards.
    fn find_shards(&mut self, session: &Session) -> bool {
        let Some(configuration) = session.configuration() else { return false };
        let owner = |group| configuration.owner(self.table, slot_of(put_key(group, 0).as_bytes()));
        self.shards = (0..GROUPS).filter_map(owner).collect();
        let owner = |account| configuration.owner(self.table, slot_of(account_key(account).as_bytes()));
        self.account_shards = (0..ACCOUNTS).filter_map(owner).collect();
        self.shards.len() == GROUPS as usize && self.account_shards.len() == ACCOUNTS as usize
    }
}

impl Application<Session> for Load {
    fn turn(&mut self, now: Tick, session: &mut Session, out: &mut Effects) -> Control {
        while let Some((call, completion)) = session.poll_completed() {
            if let Some(under_way) = self.under_way.remove(&call) {
                self.on_completed(under_way, completion, call);
            }
        }
        self.resolve(session);
        if self.ending.load(Ordering::Acquire) {
            let give_up = *self.give_up.get_or_insert(now.after(limits::DRAIN));
            let left = self.under_way.len() + self.unknown.len();
            if left == 0 || now >= give_up {
                self.tally.unresolved += left as u64;
                return Control::Exit;
            }
            return Control::Continue;
        }
        if session.is_open() && (!self.shards.is_empty() || self.find_shards(session)) {
            while self.next <= now && self.under_way.len() < limits::DEMO_OUTSTANDING_MAX {
                self.next = self.next.after(self.pace.interval());
                self.send(now, session, out);
            }
        }
        // Updates that an outage prevented are not sent all at once afterwards.
        self.next = self.next.max(now);
        Control::Continue
    }

    fn next_wake(&self) -> Option<Tick> {
        let drawing = if self.ending.load(Ordering::Acquire) { self.give_up } else { Some(self.next) };
        let resolving = (!self.unknown.is_empty()).then(|| Clock::now().after(RESOLVE_INTERVAL));
        [drawing, resolving].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_numbers_are_found_per_counter() {
        let mut tally = Tally::new();
        tally.numbers = vec![(1, 5), (2, 5), (1, 6), (2, 5)];
        assert_eq!(tally.repeated_numbers(), 1);
    }

    #[test]
    fn a_groups_keys_share_a_slot() {
        for counter in 0..GROUPS * GROUP_COUNTERS {
            let group = counter / GROUP_COUNTERS;
            assert_eq!(slot_of(counter_key(counter).as_bytes()), slot_of(put_key(group, 0).as_bytes()));
        }
    }

    #[test]
    fn tallies_add_up() {
        let (mut one, mut two) = (Tally::new(), Tally::new());
        (one.updates, two.updates, one.added[3], two.added[3]) = (1, 2, 30, 4);
        one.answers.insert(ShardId(0), vec![Tick(5)]);
        two.answers.insert(ShardId(0), vec![Tick(2)]);
        one.add(two);
        assert_eq!((one.updates, one.added[3]), (3, 34));
        assert_eq!(one.answers[&ShardId(0)], [Tick(2), Tick(5)]);
    }
}
