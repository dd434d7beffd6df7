//! What the group of the tests replicates: the sum of all numbers, and their order; and what its rounds carry: a clock, and grants.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use kasha_types::{Tick, crc32c};
use kasha_viewstamped::{Memory, State};

/// Every number that was committed, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    pub numbers: Vec<u64>,
    /// A checksum of them.
    pub digest: u64,
    /// A bit of this member's memory is another one: so is each later digest.
    pub is_damaged: Cell<bool>,
    /// This member's program knows no number from [`Sums::NEW`] on.
    pub is_older: Cell<bool>,
}

thread_local! {
    /// Whether states that are read from snapshots are those of an older program.
    pub static RESTORES_OLDER: Cell<bool> = const { Cell::new(false) };
}

impl Sums {
    /// Older programs refuse numbers from here on.
    pub const NEW: u64 = 1 << 40;

    pub fn bytes(&self) -> Vec<u8> {
        self.numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
    }
}

fn number(operation: &[u8]) -> Option<u64> {
    operation.try_into().ok().map(u64::from_le_bytes)
}

impl State for Sums {
    fn permits(&self, operation: &[u8]) -> Result<(), String> {
        let number = number(operation).ok_or("an operation has eight bytes")?;
        if self.is_older.get() && number >= Self::NEW {
            return Err(format!("{number} is nothing that this program knows"));
        }
        if self.numbers.contains(&number) { Err(format!("{number} was there before")) } else { Ok(()) }
    }

    fn apply(&mut self, operation: &[u8]) {
        let number = number(operation).expect("permitted");
        self.numbers.push(number);
        let text = [self.digest.to_le_bytes(), number.to_le_bytes()].concat();
        self.digest = u64::from(crc32c(&text)) ^ u64::from(self.is_damaged.get()) << 40;
    }

    fn digest(&self) -> u64 {
        self.digest
    }

    fn snapshot(&self) -> Vec<u8> {
        self.bytes()
    }

    fn restore(bytes: &[u8]) -> Result<Self, String> {
        let mut state = Self::default();
        state.is_older.set(RESTORES_OLDER.get());
        for number in bytes.chunks(8) {
            state.permits(number)?;
            state.apply(number);
        }
        Ok(state)
    }
}

/// Grants in one piece: few, so that a memory has several.
const PIECE: usize = 3;

/// What members remember of rounds: a clock in milliseconds that goes on across elections, and numbers that were granted.
#[derive(Clone, Debug, Default)]
pub struct Notes {
    /// The time that was told, and when that was by our clock.
    heard: Option<(u64, Tick)>,
    granted: BTreeSet<u64>,
    /// What the next round tells.
    unsaid: Vec<u64>,
    /// Every number below this may have been granted: since this lead began, and by what was gathered or taught.
    of_lead: u64,
    of_memory: u64,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("short")
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

fn bytes_of(numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    numbers.into_iter().flat_map(u64::to_le_bytes).collect()
}

impl Notes {
    /// The time, by what was heard and by our clock since.
    pub fn told(&mut self, now: Tick) -> u64 {
        let time = self.at(now);
        self.heard = Some((time, now));
        time
    }

    fn at(&self, now: Tick) -> u64 {
        self.heard.map_or(0, |(time, then)| time + millis(now.since(then)))
    }

    /// A new leader goes on from the greatest time of its quorum. Numbers below `granted` may have been granted.
    pub fn lead<'a>(&mut self, now: Tick, memories: impl Iterator<Item = &'a [u8]>, granted: u64) {
        let said = memories.filter_map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        self.heard = Some((said.max().unwrap_or(0).max(self.at(now)), now));
        self.of_memory = self.of_memory.max(self.of_lead);
        self.of_lead = granted;
        self.unsaid.clear();
    }

    /// Whether this may have been granted, for all that is known.
    pub fn knows(&self, number: u64) -> bool {
        number < self.of_lead.max(self.of_memory) || self.granted.contains(&number)
    }

    /// Whether it needs no bound of its own lead any more.
    pub fn has_gathered(&self) -> bool {
        self.of_lead == 0
    }

    pub fn grant(&mut self, number: u64) {
        self.granted.insert(number);
        self.unsaid.push(number);
    }

    /// The process ends. The time stands beside its last record; nothing else does.
    pub fn after_restart(&self) -> Self {
        Self { heard: self.heard, ..Self::default() }
    }
}

impl Memory for Notes {
    fn ask(&mut self, now: Tick) -> Vec<u8> {
        let time = self.told(now);
        bytes_of(std::iter::once(time).chain(std::mem::take(&mut self.unsaid)))
    }

    fn hear(&mut self, now: Tick, value: &[u8]) {
        let mut said = numbers(value);
        let time = said.next().expect("a time");
        self.heard = Some((time.max(self.at(now)), now));
        self.granted.extend(said);
    }

    fn recall(&self, now: Tick, _: bool) -> Vec<u8> {
        self.at(now).to_le_bytes().to_vec()
    }

    fn piece(&self, _: Tick, behind: u64) -> (Vec<u8>, Option<u64>) {
        let granted: Vec<_> = self.granted.range(behind..).copied().take(PIECE).collect();
        let next = granted.last().filter(|_| granted.len() == PIECE).map(|last| last + 1);
        (bytes_of(std::iter::once(self.of_lead.max(self.of_memory)).chain(granted)), next)
    }

    fn merge(&mut self, _: Tick, piece: &[u8]) -> bool {
        let mut said = numbers(piece);
        self.of_memory = self.of_memory.max(said.next().expect("a bound"));
        self.granted.extend(said);
        true
    }

    fn gathered(&mut self) {
        self.of_lead = 0;
    }
}
