//! The naive twin: one list of what was committed, and the last that anybody was told.

use std::collections::BTreeSet;

use kasha_viewstamped::{MemberId, OpNumber, View};

use super::{Notes, Sums};

#[derive(Default)]
pub struct Judge {
    /// What was committed anywhere, in order.
    numbers: Vec<u64>,
    told: OpNumber,
    time: u64,
    views: BTreeSet<View>,
    /// The views whose leaders knew without a bound of their own what was granted.
    gathered: BTreeSet<View>,
    /// What somebody was told is granted, and in which view.
    granted: Vec<(View, u64)>,
    excused: BTreeSet<MemberId>,
}

impl Judge {
    /// A member has committed these.
    pub fn committed(&mut self, id: MemberId, sums: &Sums) {
        if self.excused.contains(&id) {
            return;
        }
        let common = self.numbers.len().min(sums.numbers.len());
        assert_eq!(self.numbers[..common], sums.numbers[..common], "R9.1: {id} has committed something else");
        self.numbers.extend_from_slice(&sums.numbers[common..]);
    }

    /// What this member knows is wrong on purpose.
    pub fn excuse(&mut self, id: MemberId) {
        self.excused.insert(id);
    }

    /// A leader has told that everything up to here is committed.
    pub fn tells(&mut self, op: OpNumber) {
        self.told = self.told.max(op);
    }

    pub fn tells_time(&mut self, time: u64) {
        self.time = self.time.max(time);
    }

    pub fn tells_grant(&mut self, view: View, number: u64) {
        self.granted.push((view, number));
    }

    /// What a leader remembers.
    pub fn knows(&mut self, id: MemberId, leads: View, notes: &Notes) {
        for &(view, number) in &self.granted {
            assert!(view > leads || notes.knows(number), "R9.4: {id} leads {leads}; {number} was granted in {view}");
        }
        if notes.has_gathered() {
            self.gathered.insert(leads);
        }
    }

    pub fn granted(&self) -> usize {
        self.granted.len()
    }

    pub fn gathered(&self) -> usize {
        self.gathered.len()
    }

    pub fn leads(&mut self, view: View) {
        assert!(self.views.insert(view), "{view} was led before");
    }

    pub fn told(&self) -> OpNumber {
        self.told
    }

    pub fn time(&self) -> u64 {
        self.time
    }

    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    pub fn elections(&self) -> usize {
        self.views.len()
    }
}
