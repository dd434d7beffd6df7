//! A search for an order of operations on one thing in which every result is right, and which agrees with the order in
//! which clients were told and asked.
//!
//! The search follows Wing and Gong, with a memory of visited pairs (set of operations done, state) as Lowe proposed.
//! Unknown operations may be placed anywhere after they were asked for, or nowhere.

use std::hash::Hash;

use hashbrown::HashSet;

use crate::clock::SimTime;

/// The greatest number of operations that is searched. Workloads move on to fresh keys before.
pub const OPERATIONS_MAX: usize = 128;

/// States visited before the search gives up.
const VISITS_MAX: usize = 400_000;

/// One operation, as the search sees it.
pub(crate) trait Step {
    /// The state that operations change.
    type State: Clone + Eq + Hash;

    /// When the operation was asked for.
    fn asked(&self) -> SimTime;

    /// When its result was told; `None`: unknown.
    fn told_at(&self) -> Option<SimTime>;

    /// Operations behind which this one cannot come, as bits.
    fn comes_before(&self) -> u128 {
        0
    }

    /// Whether it may matter which of the two comes first.
    fn meets(&self, _other: &Self) -> bool {
        true
    }

    /// Whether an operation that changes nothing in some state, and has its result there, changes nothing in any other state in which it has this
    /// result (or only makes the state more exact). The search lets such an operation come next wherever it can.
    fn says_what_it_changes(&self) -> bool {
        true
    }

    /// The state after the operation; `None`: it cannot have its result here.
    fn after(&self, state: &Self::State) -> Option<Self::State>;
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// There is an order in which every result is right.
    Order,
    /// There is no such order.
    NoOrder,
    /// The search visited too many states, and gave up.
    Inconclusive,
}

/// Counts and findings of a checker, over all its searches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Searches that ended.
    pub searched: u64,
    /// Searches that gave up.
    pub inconclusive: u64,
    /// What is wrong.
    pub violations: Vec<String>,
}

impl Checked {
    /// Adds the result of a search. `violation` makes the text if there is no order.
    pub(crate) fn add(&mut self, found: &Found, violation: impl FnOnce() -> String) {
        match found {
            Found::Order => self.searched += 1,
            Found::Inconclusive => self.inconclusive += 1,
            Found::NoOrder => {
                self.searched += 1;
                self.violations.push(violation());
            }
        }
    }
}

/// Searches an order of operations that begin in this state.
pub(crate) fn search<S: Step>(steps: &[S], start: &S::State) -> Found {
    search_within(VISITS_MAX, steps, start)
}

/// The same, which gives up after so many states.
pub(crate) fn search_within<S: Step>(visits_max: usize, steps: &[S], start: &S::State) -> Found {
    if steps.len() > OPERATIONS_MAX {
        return Found::Inconclusive;
    }
    let told = |(index, step): (usize, &S)| step.told_at().map(|_| 1u128 << index);
    let needed = steps.iter().enumerate().filter_map(told).fold(0, |all, bit| all | bit);
    let before: Vec<u128> = steps.iter().map(Step::comes_before).collect();
    let meets_bit = |step: &S, index: usize| if step.meets(&steps[index]) { 1u128 << index } else { 0 };
    let meets = steps.iter().map(|step| (0..steps.len()).fold(0, |bits, index| bits | meets_bit(step, index)));
    let meets: Vec<u128> = meets.zip(&before).map(|(meets, before)| meets | before).collect();
    let mut search = Search { steps, before, meets, seen: HashSet::default(), visits: 0, visits_max, needed };
    match search.possible((0, 0), start, start) {
        Some(true) => Found::Order,
        Some(false) => Found::NoOrder,
        None => Found::Inconclusive,
    }
}

struct Search<'a, S: Step> {
    steps: &'a [S],
    /// Of each operation: those behind which it cannot come.
    before: Vec<u128>,
    /// Of each operation: those that it meets.
    meets: Vec<u128>,
    seen: HashSet<(u128, u128, S::State), foldhash::fast::FixedState>,
    visits: usize,
    visits_max: usize,
    needed: u128,
}

impl<S: Step> Search<'_, S> {
    /// Whether the operations that are not in `done` can follow `state`; `None`: the search gave up.
    ///
    /// `late`: unknown ones since the last that is known, and `clean`, the state before these. Each comes as late as it can, just before one that it
    /// meets, and all of them only if that one comes to something else without them.
    fn possible(&mut self, (done, late): (u128, u128), state: &S::State, clean: &S::State) -> Option<bool> {
        if done & self.needed == self.needed {
            return Some(true);
        }
        self.visits += 1;
        if self.visits > self.visits_max {
            return None;
        }
        if !self.seen.insert((done, late, state.clone())) {
            return Some(false);
        }
        let open = |index: &usize| done & (1 << *index) == 0;
        let all = 0..self.steps.len();
        let horizon = all.clone().filter(open).filter_map(|index| self.steps[index].told_at()).min();
        let first = |index: &usize| horizon.is_none_or(|horizon| self.steps[*index].asked() <= horizon);
        // What has to come, and what may, before others.
        let before = |is_told: bool| {
            let those = all.clone().filter(open).filter(|&index| self.steps[index].told_at().is_some() == is_told);
            those.fold(0, |all, index| all | self.before[index])
        };
        let (waits, bars) = (before(true), before(false));
        let is_free = |index: &usize| waits & (1 << *index) == 0 && self.before[*index] & done == 0;
        let mut candidates: Vec<usize> = all.clone().filter(open).filter(first).filter(is_free).collect();
        // An operation whose result fits, that changes nothing and keeps no other one from coming can always come next.
        for &index in &candidates {
            let step = &self.steps[index];
            let is_harmless = step.told_at().is_some() && step.says_what_it_changes() && bars & (1 << index) == 0;
            if is_harmless && step.after(state).as_ref() == Some(state) {
                // It may be what unknown ones came for.
                let is_reason = self.meets[index] & late != 0
                    && (self.bars(late, index) || step.after(clean).as_ref() != Some(clean));
                let (late, clean) = if is_reason { (0, state) } else { (late, clean) };
                return self.possible((done | 1 << index, late), state, clean);
            }
        }
        // Operations that were told first are the likeliest to come first; unknown ones come last.
        candidates.sort_by_key(|&index| self.steps[index].told_at().unwrap_or(SimTime(u64::MAX)));
        for index in candidates {
            let (bit, is_told) = (1 << index, self.steps[index].told_at().is_some());
            if is_told && !self.is_as_late_as_can_be(late, bit) {
                continue;
            }
            let Some(next) = self.steps[index].after(state) else { continue };
            let is_in_vain = match is_told {
                true => late != 0 && !self.bars(late, index) && self.steps[index].after(clean).as_ref() == Some(&next),
                false => next == *state,
            };
            let (late, clean) = if is_told { (0, &next) } else { (late | bit, clean) };
            if !is_in_vain && self.possible((done | bit, late), &next, clean)? {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Whether one of these unknown operations could not come behind that one.
    fn bars(&self, late: u128, next: usize) -> bool {
        (0..self.steps.len()).any(|index| late & (1 << index) != 0 && self.before[index] & (1 << next) != 0)
    }

    /// Whether each of these unknown operations meets another one of them, or what comes next.
    fn is_as_late_as_can_be(&self, late: u128, next: u128) -> bool {
        let mut those = (0..self.steps.len()).filter(|index| late & (1 << *index) != 0);
        those.all(|index| self.meets[index] & (next | late & !(1 << index)) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of a register's operations; the register begins as 0.
    #[derive(Clone, Copy)]
    enum What {
        Write(usize),
        Read(usize),
    }

    struct Operation(What, u64, Option<u64>);

    /// An operation that cannot come behind these.
    struct Before(Operation, u128);

    impl Step for Before {
        type State = usize;

        fn asked(&self) -> SimTime {
            self.0.asked()
        }

        fn told_at(&self) -> Option<SimTime> {
            self.0.told_at()
        }

        fn comes_before(&self) -> u128 {
            self.1
        }

        fn after(&self, state: &usize) -> Option<usize> {
            self.0.after(state)
        }
    }

    impl Step for Operation {
        type State = usize;

        fn asked(&self) -> SimTime {
            SimTime(self.1)
        }

        fn told_at(&self) -> Option<SimTime> {
            self.2.map(SimTime)
        }

        fn after(&self, state: &usize) -> Option<usize> {
            match self.0 {
                What::Write(value) => Some(value),
                What::Read(value) => (*state == value).then_some(value),
            }
        }
    }

    use What::{Read, Write};

    fn found(operations: &[Operation]) -> Found {
        search(operations, &0)
    }

    #[test]
    fn results_agree_with_an_order_or_not() {
        let write = || Operation(Write(1), 0, Some(5));
        assert_eq!(found(&[write(), Operation(Read(0), 3, Some(8))]), Found::Order, "both under way");
        assert_eq!(found(&[write(), Operation(Read(0), 6, Some(8))]), Found::NoOrder);
        assert_eq!(found(&[Operation(Write(1), 0, None), Operation(Read(0), 6, Some(8))]), Found::Order, "or nowhere");
    }

    #[test]
    fn what_would_change_nothing_now_may_be_needed_later() {
        let unknown = || Operation(Write(0), 0, None);
        let [write, read] = [Operation(Write(1), 1, Some(2)), Operation(Read(0), 3, Some(4))];
        assert_eq!(found(&[unknown(), write, read]), Found::Order);
        let twice = [1, 5]
            .into_iter()
            .flat_map(|at| [Operation(Write(1), at, Some(at + 1)), Operation(Read(0), at + 2, Some(at + 3))]);
        let twice: Vec<_> = twice.chain([unknown()]).collect();
        assert_eq!(found(&twice), Found::NoOrder, "it comes once");
    }

    #[test]
    fn what_comes_before_another_does_not_come_behind_it() {
        // Both are under way at once.
        let found = |write: Option<u64>, bits, read| {
            let steps = [Before(Operation(Write(1), 0, write), bits), Before(Operation(Read(read), 1, Some(5)), 0)];
            search(&steps, &0)
        };
        assert_eq!((found(Some(5), 0, 0), found(Some(5), 0b10, 0)), (Found::Order, Found::NoOrder));
        assert_eq!(found(Some(5), 0b10, 1), Found::Order);
        assert_eq!((found(None, 0b10, 0), found(None, 0b10, 1)), (Found::Order, Found::Order), "unknown: or nowhere");
        let late = [
            Before(Operation(Write(1), 0, None), 0b10),
            Before(Operation(Read(0), 1, Some(5)), 0),
            Before(Operation(Read(1), 6, Some(7)), 0),
        ];
        assert_eq!(search(&late, &0), Found::NoOrder, "it would come behind the first read");
        // Whoever reads first sees no difference, and keeps the unknown one from coming later.
        let seen = [
            Before(Operation(Write(1), 0, None), 0b10),
            Before(Operation(Write(0), 1, Some(5)), 0),
            Before(Operation(Read(0), 6, Some(7)), 0),
        ];
        assert_eq!(search(&seen, &0), Found::Order);
    }

    /// An operation on one of two registers.
    struct Of(usize, Operation);

    impl Step for Of {
        type State = [usize; 2];

        fn asked(&self) -> SimTime {
            self.1.asked()
        }

        fn told_at(&self) -> Option<SimTime> {
            self.1.told_at()
        }

        fn meets(&self, other: &Self) -> bool {
            self.0 == other.0
        }

        fn after(&self, state: &[usize; 2]) -> Option<[usize; 2]> {
            let mut after = *state;
            after[self.0] = self.1.after(&state[self.0])?;
            Some(after)
        }
    }

    #[test]
    fn unknown_operations_come_just_before_what_they_meet() {
        let seen = |first, second| {
            let unknown =
                (1..4).flat_map(|value| [0, 1].map(|register| Of(register, Operation(Write(value), 0, None))));
            let told = [
                Of(0, Operation(Read(first), 1, Some(2))),
                Of(1, Operation(Write(9), 3, Some(4))),
                Of(0, Operation(Read(second), 5, Some(6))),
                Of(1, Operation(Read(3), 7, Some(8))),
            ];
            search(&unknown.chain(told).collect::<Vec<_>>(), &[0, 0])
        };
        assert_eq!((seen(1, 2), seen(1, 1), seen(0, 0)), (Found::Order, Found::Order, Found::Order));
        assert_eq!(seen(1, 0), Found::NoOrder);
    }

    #[test]
    fn what_is_too_much_is_not_judged() {
        let at_once = |count| (0..count).map(|value| Operation(Write(value), 0, Some(9)));
        let nobody_wrote_it = |count| [Operation(Read(count), 10, Some(11))];
        let judged = |count| found(&at_once(count).chain(nobody_wrote_it(count)).collect::<Vec<_>>());
        assert_eq!(judged(6), Found::NoOrder);
        assert_eq!(judged(40), Found::Inconclusive, "too many ways");
        assert_eq!(found(&at_once(OPERATIONS_MAX).collect::<Vec<_>>()), Found::Order);
        assert_eq!(found(&at_once(OPERATIONS_MAX + 1).collect::<Vec<_>>()), Found::Inconclusive, "too many");
    }
}
