//! The waiting room: what can go on only when something else has happened.
//!
//! Whatever waits says for which conditions, all of which must hold. Whoever makes a condition hold opens it, and gets what waits
//! for nothing more, in the order of its arrival. What that is, and by which door it goes on, the role knows; so a further kind of
//! condition costs a variant of the role's own type, and what opens it. A room belongs to one role, and is dropped with the role
//! (R3.1): everybody who waits there asks again.
//!
//! Each class has a bound of its own, so that many of one class push out nobody of another.
//!
//! Frames behind the gates of a log's positions do not wait here but in [`crate::Held`]: positions are reached in order, so that
//! opening one there looks at no frame twice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// What waits.
pub trait Waiter {
    /// What tells it from others. Who comes with the id of somebody who waits takes that one's place.
    type Id: Copy + Ord;

    /// See [`Waiter::Id`]. `None`: it is like no other.
    fn id(&self) -> Option<Self::Id>;

    /// The number of its bound in [`WaitingRoom::new`].
    fn class(&self) -> usize;

    /// The memory behind it: what it takes itself, and its conditions, the room adds.
    fn bytes(&self) -> usize;
}

/// How much of a class waits at most.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// How many.
    pub most: usize,
    /// How many bytes all of them take, with what the room keeps of their conditions.
    pub bytes: usize,
    /// What happens beyond that.
    pub when_full: WhenFull,
}

/// For whom there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// Who has waited longest leaves.
    OldestLeaves,
    /// Who comes is turned away.
    NobodyEnters,
}

/// The order of arrival.
type Ticket = u64;

#[derive(Debug)]
struct Waiting<C, W> {
    /// Those that do not hold yet: at least one.
    conditions: Vec<C>,
    what: W,
    /// What it counts for, since it came.
    bytes: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    count: usize,
    bytes: usize,
}

/// See the module's header. `C`: a condition, `N`: the number of classes.
#[derive(Debug)]
pub struct WaitingRoom<C, W: Waiter, const N: usize> {
    bounds: [Bound; N],
    used: [Used; N],
    waiting: BTreeMap<Ticket, Waiting<C, W>>,
    by_condition: BTreeSet<(C, Ticket)>,
    by_id: BTreeMap<W::Id, Ticket>,
    by_class: BTreeSet<(usize, Ticket)>,
    next: Ticket,
}

impl<C: Copy + Ord, W: Waiter, const N: usize> WaitingRoom<C, W, N> {
    /// A room in which nobody waits.
    #[must_use]
    pub fn new(bounds: [Bound; N]) -> Self {
        Self {
            bounds,
            used: [Used::default(); N],
            waiting: BTreeMap::new(),
            by_condition: BTreeSet::new(),
            by_id: BTreeMap::new(),
            by_class: BTreeSet::new(),
            next: 0,
        }
    }

    /// Lets somebody wait until all these conditions hold, in the place of an earlier one with the same id, which is dropped, if there is
    /// one. Returns those for whom there is no place now.
    ///
    /// # Panics
    /// If there is no condition: who can go on does not wait.
    #[must_use]
    pub fn wait(&mut self, conditions: Vec<C>, what: W) -> Vec<W> {
        assert!(!conditions.is_empty(), "it waits for nothing");
        let (id, class, bytes) = (what.id(), what.class(), Self::bytes_of(conditions.len(), what.bytes()));
        let known = id.and_then(|id| self.by_id.get(&id).copied());
        if let Some(ticket) = known {
            drop(self.remove_ticket(ticket));
        }
        if self.bounds[class].when_full == WhenFull::NobodyEnters && self.is_over(class, 1, bytes) {
            return vec![what];
        }
        let ticket = known.unwrap_or(self.next);
        self.next += u64::from(known.is_none());
        self.by_condition.extend(conditions.iter().map(|&condition| (condition, ticket)));
        self.by_id.extend(id.map(|id| (id, ticket)));
        self.by_class.insert((class, ticket));
        self.used[class].count += 1;
        self.used[class].bytes += bytes;
        self.waiting.insert(ticket, Waiting { conditions, what, bytes });
        let mut left = Vec::new();
        while self.is_over(class, 0, 0) {
            let oldest = self.by_class.range((class, Ticket::MIN)..).next();
            let ticket = oldest.expect("one has just come").1;
            left.push(self.remove_ticket(ticket));
        }
        left
    }

    /// Whether one more of this class that waits for one condition, with so many bytes behind it, finds a place.
    #[must_use]
    pub fn has_place(&self, class: usize, bytes: usize) -> bool {
        !self.is_over(class, 1, Self::bytes_of(1, bytes))
    }

    /// What somebody counts for. The conditions are listed twice.
    fn bytes_of(conditions: usize, bytes: usize) -> usize {
        size_of::<Waiting<C, W>>() + conditions * (size_of::<C>() + size_of::<(C, Ticket)>()) + bytes
    }

    fn is_over(&self, class: usize, more: usize, bytes: usize) -> bool {
        let (used, bound) = (self.used[class], self.bounds[class]);
        used.count + more > bound.most || used.bytes + bytes > bound.bytes
    }

    /// This condition holds. Returns those that wait for nothing more, in the order of their arrival.
    pub fn open(&mut self, condition: C) -> Vec<W> {
        if self.waiting.is_empty() {
            return Vec::new(); // nearly always
        }
        let tickets = self.tickets_of(condition).collect::<Vec<_>>();
        tickets.into_iter().filter_map(|ticket| self.open_for(condition, ticket)).collect()
    }

    /// One of these conditions holds for the first that waits for one of them. Returns that one, if it waits for nothing more.
    pub fn open_for_first(&mut self, among: RangeInclusive<C>, holds: impl Fn(C) -> bool) -> Option<W> {
        let among = (*among.start(), Ticket::MIN)..=(*among.end(), Ticket::MAX);
        let held = self.by_condition.range(among).filter(|(condition, _)| holds(*condition));
        let (condition, ticket) = *held.min_by_key(|(_, ticket)| *ticket)?;
        self.open_for(condition, ticket)
    }

    fn open_for(&mut self, condition: C, ticket: Ticket) -> Option<W> {
        self.by_condition.remove(&(condition, ticket));
        let waiting = self.waiting.get_mut(&ticket).expect("it is listed under its condition");
        waiting.conditions.retain(|left| *left != condition);
        waiting.conditions.is_empty().then(|| self.remove_ticket(ticket))
    }

    /// Somebody leaves, whatever it waits for.
    pub fn remove(&mut self, id: W::Id) -> Option<W> {
        let ticket = *self.by_id.get(&id)?;
        Some(self.remove_ticket(ticket))
    }

    fn remove_ticket(&mut self, ticket: Ticket) -> W {
        let Waiting { conditions, what, bytes } = self.waiting.remove(&ticket).expect("it waits");
        for condition in conditions {
            self.by_condition.remove(&(condition, ticket));
        }
        if let Some(id) = what.id() {
            self.by_id.remove(&id);
        }
        self.by_class.remove(&(what.class(), ticket));
        let used = &mut self.used[what.class()];
        used.count -= 1;
        used.bytes -= bytes;
        what
    }

    /// Somebody who waits, and the conditions that do not hold yet.
    #[must_use]
    pub fn get(&self, id: W::Id) -> Option<(&W, &[C])> {
        let waiting = self.waiting.get(self.by_id.get(&id)?)?;
        Some((&waiting.what, &waiting.conditions))
    }

    /// Whether anybody waits for one of these conditions.
    #[inline]
    #[must_use]
    pub fn awaits(&self, among: RangeInclusive<C>) -> bool {
        if self.waiting.is_empty() {
            return false; // nearly always
        }
        self.by_condition.range((*among.start(), Ticket::MIN)..=(*among.end(), Ticket::MAX)).next().is_some()
    }

    /// How many wait for this condition.
    #[must_use]
    pub fn count(&self, condition: C) -> usize {
        self.tickets_of(condition).count()
    }

    fn tickets_of(&self, condition: C) -> impl Iterator<Item = Ticket> {
        self.by_condition.range((condition, Ticket::MIN)..=(condition, Ticket::MAX)).map(|(_, ticket)| *ticket)
    }

    /// How many of a class wait.
    #[must_use]
    pub fn len(&self, class: usize) -> usize {
        self.used[class].count
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Who {
        id: Option<u8>,
        class: usize,
        bytes: usize,
        number: usize,
    }

    impl Waiter for Who {
        type Id = u8;

        fn id(&self) -> Option<u8> {
            self.id
        }

        fn class(&self) -> usize {
            self.class
        }

        fn bytes(&self) -> usize {
            self.bytes
        }
    }

    /// Three that wait for one condition, and ten bytes.
    const BYTES_MAX: usize =
        3 * (size_of::<Waiting<char, Who>>() + size_of::<char>() + size_of::<(char, Ticket)>()) + 10;
    const BOUNDS: [Bound; 2] = [
        Bound { most: 3, bytes: BYTES_MAX, when_full: WhenFull::OldestLeaves },
        Bound { most: 3, bytes: BYTES_MAX, when_full: WhenFull::NobodyEnters },
    ];

    type Room = WaitingRoom<char, Who, 2>;

    fn who(class: usize, id: u8) -> Who {
        Who { id: Some(id), class, bytes: 1, number: 0 }
    }

    #[test]
    fn all_conditions_must_hold() {
        let mut room = Room::new(BOUNDS);
        assert!(room.wait(vec!['a', 'b'], who(0, 1)).is_empty() && room.wait(vec!['b'], who(0, 2)).is_empty());
        assert_eq!(room.open('b'), [who(0, 2)]);
        assert_eq!((room.count('a'), room.count('b'), room.awaits('b'..='z')), (1, 0, false));
        assert_eq!((room.open('a'), room.is_empty()), (vec![who(0, 1)], true));
    }

    #[test]
    fn a_full_class_leaves_the_others_alone() {
        let mut room = Room::new(BOUNDS);
        for id in 1..=4 {
            let left = room.wait(vec!['a'], who(0, id));
            assert_eq!(left, if id == 4 { vec![who(0, 1)] } else { Vec::new() });
            let left = room.wait(vec!['a'], who(1, 10 + id));
            assert_eq!(left, if id == 4 { vec![who(1, 14)] } else { Vec::new() });
        }
        assert_eq!((room.len(0), room.len(1)), (3, 3));
    }

    #[test]
    #[should_panic(expected = "it waits for nothing")]
    fn who_can_go_on_does_not_wait() {
        let _ = Room::new(BOUNDS).wait(Vec::new(), who(0, 1));
    }

    /// The same as a list that is searched; behind each what it counts for.
    #[derive(Default)]
    struct Twin(Vec<(Vec<char>, Who, usize)>);

    impl Twin {
        fn wait(&mut self, conditions: &[char], what: &Who) -> Vec<Who> {
            let known = self.0.iter().position(|(_, known, _)| what.id.is_some() && known.id == what.id);
            let known = known.map(|at| (at, self.0.remove(at)));
            let used = |list: &Self| {
                let of_class = list.0.iter().filter(|(_, other, _)| other.class == what.class);
                of_class.fold((0, 0), |(count, bytes), (_, _, more)| (count + 1, bytes + more))
            };
            let (count, bytes) = used(self);
            let more = Room::bytes_of(conditions.len(), what.bytes);
            if what.class == 1 && (count + 1 > 3 || bytes + more > BYTES_MAX) {
                return vec![what.clone()];
            }
            self.0.insert(known.map_or(self.0.len(), |(at, _)| at), (conditions.to_vec(), what.clone(), more));
            let mut left = Vec::new();
            while used(self).0 > 3 || used(self).1 > BYTES_MAX {
                let oldest = self.0.iter().position(|(_, other, _)| other.class == what.class).unwrap();
                left.push(self.0.remove(oldest).1);
            }
            left
        }

        fn open(&mut self, condition: char) -> Vec<Who> {
            self.0.iter_mut().for_each(|(conditions, ..)| conditions.retain(|left| *left != condition));
            self.0.extract_if(.., |(conditions, ..)| conditions.is_empty()).map(|(_, what, _)| what).collect()
        }
    }

    proptest::proptest! {
        #[test]
        fn it_is_a_list_that_is_searched(steps in proptest::collection::vec((0u8..9, 0u8..12, 0usize..7, "[a-d]{1,3}"), 0..120)) {
            let (mut room, mut twin) = (Room::new(BOUNDS), Twin::default());
            for (number, (step, id, bytes, conditions)) in steps.into_iter().enumerate() {
                let mut conditions: Vec<_> = conditions.chars().collect();
                conditions.sort_unstable();
                conditions.dedup();
                let what = Who { id: (id > 2).then_some(id), class: usize::from(id % 2), bytes, number };
                match step {
                    0..=4 => proptest::prop_assert_eq!(twin.wait(&conditions, &what), room.wait(conditions, what)),
                    5 | 6 => proptest::prop_assert_eq!(twin.open(conditions[0]), room.open(conditions[0])),
                    7 => {
                        let at = twin.0.iter().position(|(_, known, _)| known.id == Some(id));
                        proptest::prop_assert_eq!(at.map(|at| twin.0.remove(at).1), room.remove(id));
                    }
                    _ => {
                        let first = twin.0.iter().position(|(left, ..)| left.iter().any(|one| ('b'..='c').contains(one)));
                        let among = |one: &char| ('b'..='c').contains(one);
                        let opened = first.map(|at| {
                            let condition = *twin.0[at].0.iter().filter(|one| among(one)).min().unwrap();
                            twin.0[at].0.retain(|left| *left != condition);
                            twin.0[at].0.is_empty().then(|| twin.0.remove(at).1)
                        });
                        proptest::prop_assert_eq!(opened.flatten(), room.open_for_first('b'..='c', |_| true));
                    }
                }
                for class in 0..2 {
                    let of_class = twin.0.iter().filter(|(_, other, _)| other.class == class).count();
                    proptest::prop_assert_eq!(room.len(class), of_class);
                }
                for condition in 'a'..='d' {
                    let awaiting = twin.0.iter().filter(|(left, ..)| left.contains(&condition)).count();
                    proptest::prop_assert_eq!(room.count(condition), awaiting);
                }
            }
        }
    }
}
