//! What the group of the tests replicates: the sum of all numbers, and their order; and a clock that its rounds carry.

use std::cell::Cell;
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
}

impl Sums {
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
        for number in bytes.chunks(8) {
            state.permits(number)?;
            state.apply(number);
        }
        Ok(state)
    }
}

/// A clock in milliseconds that goes on across elections: the leader tells it with its rounds.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// The time that was told, and when that was by our clock.
    heard: Option<(u64, Tick)>,
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).expect("short")
}

impl Clock {
    /// The time, by what was heard and by our clock since.
    pub fn told(&mut self, now: Tick) -> u64 {
        let time = self.at(now);
        self.heard = Some((time, now));
        time
    }

    fn at(&self, now: Tick) -> u64 {
        self.heard.map_or(0, |(time, then)| time + millis(now.since(then)))
    }

    /// A new leader goes on from the greatest time of its quorum.
    pub fn lead<'a>(&mut self, now: Tick, memories: impl Iterator<Item = &'a [u8]>) {
        let said = memories.filter_map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        self.heard = Some((said.max().unwrap_or(0).max(self.at(now)), now));
    }
}

impl Memory for Clock {
    fn ask(&mut self, now: Tick) -> Vec<u8> {
        self.told(now).to_le_bytes().to_vec()
    }

    fn hear(&mut self, now: Tick, value: &[u8]) {
        let time = u64::from_le_bytes(value.try_into().expect("eight bytes"));
        self.heard = Some((time.max(self.at(now)), now));
    }

    fn recall(&self, now: Tick) -> Vec<u8> {
        self.at(now).to_le_bytes().to_vec()
    }
}
