//! The disk of a member: what is on the platter, and what is on its way there.

use std::collections::VecDeque;

use kasha_machine::Rng;
use kasha_types::Tick;
use kasha_viewstamped::{Record, Stored, WriteNumber};

pub(super) struct Disk {
    platter: Stored,
    on_its_way: VecDeque<(WriteNumber, Record, Tick)>,
}

impl Disk {
    pub fn new(stored: Stored) -> Self {
        Self { platter: stored, on_its_way: VecDeque::new() }
    }

    pub fn write(&mut self, number: WriteNumber, record: Record, ready_at: Tick) {
        self.on_its_way.push_back((number, record, ready_at));
    }

    pub fn ready_at(&self) -> Option<Tick> {
        self.on_its_way.front().map(|(_, _, at)| *at)
    }

    /// The first write reaches the platter.
    pub fn fsync(&mut self) -> WriteNumber {
        let (number, record, _) = self.on_its_way.pop_front().expect("something is on its way");
        self.take(record);
        number
    }

    fn take(&mut self, record: Record) {
        self.platter = self.platter.clone().after(record).expect("records follow each other");
    }

    /// Power is lost: some of what is on its way may have reached the platter, in order.
    pub fn crash(&mut self, rng: &mut Rng) {
        let kept = rng.below(self.on_its_way.len() as u64 + 1);
        for _ in 0..kept {
            self.fsync();
        }
        self.on_its_way.clear();
    }

    /// One bit of the state is another one.
    pub fn rot(&mut self) {
        *self.platter.snapshot.state.last_mut().expect("a number is in the snapshot") ^= 1;
    }

    pub fn restart(&self) -> Stored {
        self.platter.clone()
    }
}
