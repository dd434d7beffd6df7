//! A witness behaves like a naive model through random histories, crashes included (CURP 4.2; C2, R5.5, R6.2).

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_types::{ClusterTime, KeyHash, RpcId};
use kasha_witness::limits::SUSPECTS_PER_GC_MAX;
use kasha_witness::{Recorded, Sizes, Why, Witness};

use super::common::{IDENTITY, flush, flush_leaving_leftovers, keys, new_file, rpc};
use crate::draw;
use crate::property::Property;

const SLOTS: u32 = 16;
const WAYS: u8 = 2;
const SETS: u64 = (SLOTS / WAYS as u32) as u64;
const REQUESTS: usize = 24;
const STEPS_MAX: usize = 120;

#[derive(Clone, Debug)]
enum Step {
    Record {
        request: usize,
        other_body: bool,
    },
    Gc {
        requests: Vec<usize>,
        first_key_only: bool,
        floor: u64,
    },
    Read {
        hash: u64,
    },
    Flush {
        leftovers: bool,
    },
    /// What becomes of each write of the turn that the crash interrupts.
    Crash {
        writes: Vec<Fate>,
    },
    Freeze,
}

#[derive(Clone, Copy, Debug)]
enum Fate {
    Lost,
    Torn(usize),
    Whole,
}

impl<'a> Arbitrary<'a> for Fate {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match draw::below(u, 3)? {
            0 => Self::Lost,
            1 => Self::Torn(draw::below(u, 100)?),
            _ => Self::Whole,
        })
    }
}

impl<'a> Arbitrary<'a> for Step {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let request = |u: &mut Unstructured<'a>| draw::below(u, REQUESTS);
        // A freeze is rare: little happens after it.
        Ok(match draw::weighted(u, &[100, 40, 10, 30, 10, 1])? {
            0 => Self::Record { request: request(u)?, other_body: draw::one_in(u, 10)? },
            1 => Self::Gc {
                requests: (0..draw::below(u, 6)?).map(|_| request(u)).collect::<Result<_>>()?,
                first_key_only: draw::one_in(u, 10)?,
                floor: u.int_in_range(0..=3)?,
            },
            2 => Self::Read { hash: u.int_in_range(0..=23)? },
            3 => Self::Flush { leftovers: u.arbitrary()? },
            4 => Self::Crash { writes: draw::up_to(u, 12)? },
            _ => Self::Freeze,
        })
    }
}

/// Request `n` always has the same keys, body and lease, as the same RpcId always does (R2.1).
#[derive(Clone, Debug)]
struct Request {
    keys: Vec<u64>,
    body: Vec<u8>,
    expiry: u64,
}

impl<'a> Arbitrary<'a> for Request {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let keys = if draw::one_in(u, 4)? { draw::below(u, 5)? } else { 1 };
        Ok(Self {
            keys: (0..keys).map(|_| u.int_in_range(0..=23)).collect::<Result<_>>()?,
            body: draw::bytes(u, 40)?,
            expiry: u.int_in_range(1..=29)?,
        })
    }
}

#[derive(Default)]
struct Model {
    /// (key hash, request) → gcs survived.
    slots: BTreeMap<(u64, usize), u32>,
    floor: u64,
    frozen: bool,
    /// Acknowledged (accepted and flushed), and named whole by no gc since.
    promised: BTreeSet<usize>,
    /// Accepted at any time: all that may ever come back from a file.
    ever: BTreeSet<usize>,
}

impl Model {
    fn judge(&self, number: usize, request: &Request, other_body: bool) -> Result<bool, Why> {
        let distinct: BTreeSet<u64> = request.keys.iter().copied().collect();
        if self.frozen {
            return Err(Why::Frozen);
        }
        if distinct.is_empty() {
            return Err(Why::NoKeys);
        }
        if request.expiry <= self.floor {
            return Err(Why::LeaseExpired);
        }
        for &key in &request.keys {
            if self.slots.keys().any(|&(hash, holder)| hash == key && holder != number) {
                return Err(Why::Conflict);
            }
            if self.slots.contains_key(&(key, number)) && other_body {
                return Err(Why::ReusedId);
            }
        }
        let own = distinct.iter().filter(|&&key| self.slots.contains_key(&(key, number))).count();
        if own > 0 {
            return if own == distinct.len() { Ok(false) } else { Err(Why::Conflict) };
        }
        let full = (0..SETS).any(|set| {
            let used = self.slots.keys().filter(|(hash, _)| hash % SETS == set).count();
            let wanted = distinct.iter().filter(|&&hash| hash % SETS == set).count();
            wanted > 0 && used + wanted > usize::from(WAYS)
        });
        if full { Err(Why::NoSlot) } else { Ok(true) }
    }

    fn held(&self) -> BTreeSet<usize> {
        self.slots.keys().map(|&(_, number)| number).collect()
    }
}

fn id(number: usize) -> RpcId {
    rpc(1, number as u64)
}

struct World {
    requests: Vec<Request>,
    witness: Witness,
    file: Vec<u8>,
    model: Model,
    /// Accepted and not flushed yet.
    pending: BTreeSet<usize>,
}

impl World {
    fn record(&mut self, number: usize, other_body: bool) {
        let request = self.requests[number].clone();
        // A client that reuses an id is only refused while the id is held here; a witness promises no more.
        let other_body = other_body && self.model.held().contains(&number);
        let mut body = request.body.clone();
        if other_body {
            body.push(0);
        }
        let judged = self.model.judge(number, &request, other_body);
        let expected = judged.map_or_else(Recorded::Rejected, |_| Recorded::Accepted);
        let recorded = self.witness.record(id(number), &keys(&request.keys), &body, ClusterTime(request.expiry));
        assert_eq!(recorded, expected, "request {number}: {request:?}");
        if judged == Ok(true) {
            self.model.slots.extend(request.keys.iter().map(|&key| ((key, number), 0)));
            self.model.ever.insert(number);
            self.pending.insert(number);
        }
    }

    fn gc(&mut self, numbers: &[usize], first_key_only: bool, floor: u64) {
        let mut entries = Vec::new();
        for &number in numbers {
            let named = if first_key_only { 1 } else { usize::MAX };
            entries.extend(self.requests[number].keys.iter().take(named).map(|&key| (KeyHash(key), id(number))));
        }
        let mut suspects = Vec::new();
        self.witness.gc(&entries, ClusterTime(floor), &mut |rpc: RpcId, body: &[u8]| {
            suspects.push((usize::try_from(rpc.sequence.0).unwrap(), body.to_vec()));
        });
        if self.model.frozen {
            assert!(suspects.is_empty());
            return;
        }
        self.model.floor = self.model.floor.max(floor);
        for (hash, rpc) in entries {
            let number = usize::try_from(rpc.sequence.0).unwrap();
            self.model.slots.remove(&(hash.0, number));
            self.model.promised.remove(&number);
            self.pending.remove(&number);
        }
        self.model.slots.values_mut().for_each(|survived| *survived += 1);
        // The scan sees all of so small a table, so exactly the old ones are named.
        let old: BTreeSet<usize> =
            self.model.slots.iter().filter(|&(_, &survived)| survived >= 3).map(|(&(_, number), _)| number).collect();
        assert!(suspects.iter().all(|(number, body)| *body == self.requests[*number].body));
        let named: BTreeSet<usize> = suspects.iter().map(|&(number, _)| number).collect();
        assert_eq!(named.len(), suspects.len(), "each once");
        assert!(old.len() <= SUSPECTS_PER_GC_MAX, "as many slots");
        assert_eq!(named, old);
    }

    fn flush(&mut self, leftovers: bool) {
        let flush = if leftovers { flush } else { flush_leaving_leftovers };
        flush(&mut self.witness, &mut self.file);
        self.model.promised.append(&mut self.pending);
    }

    fn crash(&mut self, fates: &[Fate]) {
        let mut fates = fates.iter();
        let file = &mut self.file;
        self.witness.drain_dirty(|offset, bytes| {
            let len = match fates.next().unwrap_or(&Fate::Lost) {
                Fate::Lost => 0,
                Fate::Torn(len) => (*len).min(bytes.len()),
                Fate::Whole => bytes.len(),
            };
            file[usize::try_from(offset).unwrap()..][..len].copy_from_slice(&bytes[..len]);
        });
        self.witness = Witness::load(IDENTITY, self.witness.sizes(), file, self.model.frozen).expect("its own file");
        self.pending.clear();
        self.model.slots.clear();
        self.model.floor = 0;
        for number in self.handed_out() {
            assert!(self.model.ever.contains(&number), "request {number} was never accepted");
            self.model.slots.extend(self.requests[number].keys.iter().map(|&key| ((key, number), 0)));
        }
        let held = self.model.held();
        assert!(self.model.promised.is_subset(&held), "promised {:?}, held {held:?}", self.model.promised);
    }

    /// The requests handed out, each once and with its own body.
    fn handed_out(&self) -> BTreeSet<usize> {
        let mut numbers = BTreeSet::new();
        self.witness.requests(|rpc, body| {
            let number = usize::try_from(rpc.sequence.0).unwrap();
            assert_eq!(body, self.requests[number].body);
            assert!(numbers.insert(number), "request {number} twice");
        });
        numbers
    }

    fn check(&self) {
        self.witness.assert_invariants();
        assert_eq!(self.witness.stats().occupied as usize, self.model.slots.len());
        let handed_out = self.handed_out();
        assert!(handed_out.is_subset(&self.model.held()));
        for number in self.model.held() {
            let whole = self.requests[number].keys.iter().all(|&key| self.model.slots.contains_key(&(key, number)));
            assert!(!whole || handed_out.contains(&number));
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Record { request, other_body } => self.record(*request, *other_body),
            Step::Gc { requests, first_key_only, floor } => self.gc(requests, *first_key_only, *floor),
            Step::Read { hash } => {
                let free = !self.model.slots.keys().any(|&(held, _)| held == *hash);
                assert_eq!(self.witness.commutes_with_read(&[KeyHash(*hash)]), free && !self.model.frozen);
            }
            Step::Flush { leftovers } => self.flush(*leftovers),
            Step::Crash { writes } => self.crash(writes),
            Step::Freeze => {
                self.witness.freeze();
                self.model.frozen = true;
            }
        }
        self.check();
    }
}

/// See the module.
#[derive(Debug)]
pub struct WitnessHistory {
    requests: Vec<Request>,
    steps: Vec<Step>,
}

impl<'a> Arbitrary<'a> for WitnessHistory {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let requests = (0..REQUESTS).map(|_| u.arbitrary()).collect::<Result<_>>()?;
        Ok(Self { requests, steps: draw::until_empty(u, STEPS_MAX)? })
    }
}

impl Property for WitnessHistory {
    const NAME: &'static str = "witness_history";
    const INPUT_BYTES_MAX: usize = 1200;

    fn hold(self) {
        let witness = Witness::new(IDENTITY, Sizes::new(SLOTS, WAYS));
        let file = new_file(&witness);
        let pending = BTreeSet::new();
        let mut world = World { requests: self.requests, witness, file, model: Model::default(), pending };
        self.steps.iter().for_each(|step| world.step(step));
    }
}
