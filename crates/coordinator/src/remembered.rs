//! What a member remembers while another one leads: ClusterTime, and the leases of clients (R9.4 \[M\]).
//!
//! ClusterTime ends values, so a new leader must go on where the one before was: to begin at the reservation would take up to a
//! second off every lifetime with each election. So a round carries the greatest time that the answers tell which wait for it. A
//! member remembers that, and its vote says it. Each answer that was given has been confirmed by a quorum, and each leader is elected by
//! one. So the greatest time of the votes is not less than any that was told.
//!
//! Where ClusterTime stands still, what was told is ahead of the time that has passed (`time`). So a round carries that time, too. A
//! member counts it on by its own clock, and slow: its clock may be the faster one.
//!
//! A process that has started since has answered rounds that it does not remember. In the same boot of its machine it goes on from the time that
//! stands beside its last record: so that much has passed at least, and more may have been told. Then a leader begins as one that is
//! alone does.

use std::time::Duration;

use kasha_types::{BootId, ClientId, ClusterTime, Tick};
use kasha_viewstamped::{MemberId, Memory};
use kasha_wire::{Reader, Wire, wire_struct};

use crate::clients::{self, ClientLeases, Granted};

/// ClusterTime at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// By the time that has passed.
    pub(crate) time: ClusterTime,
    /// The greatest that was told.
    pub(crate) most: ClusterTime,
}

wire_struct! {
    Told { time, most }
}

impl Told {
    fn max(self, other: Self) -> Self {
        Self { time: self.time.max(other.time), most: self.most.max(other.most) }
    }
}

/// ClusterTime, as a member knows it from rounds.
#[derive(Debug)]
pub(crate) struct RememberedTime {
    node_lease: Duration,
    drift_bound: Duration,
    last: Option<(Told, Tick)>,
}

/// What a vote says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vote {
    told: Option<Told>,
    /// Whether this member remembers what a quorum does.
    knows_all: bool,
}

/// What stands beside each record of the journal.
#[derive(Debug)]
struct Note {
    boot: BootId,
    clock: Tick,
    told: Told,
}

wire_struct! {
    Vote { told, knows_all }
    Note { boot, clock, told }
}

impl RememberedTime {
    /// Of a process that starts with the note of the one before.
    fn start((node_lease, drift_bound): (Duration, Duration), boot: Option<BootId>, note: &[u8], now: Tick) -> Self {
        let found = Reader::new(note).take().ok();
        let ours = found.filter(|note: &Note| Some(note.boot) == boot && note.clock <= now);
        let last = ours.map(|note| (note.told, note.clock));
        Self { node_lease, drift_bound, last }
    }

    /// What the time is now at least.
    fn by_now(&self, now: Tick) -> Option<Told> {
        let (told, then) = self.last?;
        let elapsed = now.since(then);
        let slow = elapsed.mul_f64(1.0 - self.drift_bound.as_secs_f64() / self.node_lease.as_secs_f64());
        let time = told.time.after_millis(u64::try_from(slow.as_millis()).unwrap_or(u64::MAX));
        Some(Told { time, ..told })
    }

    /// A time is told. What was remembered is not less afterwards.
    pub(crate) fn note(&mut self, now: Tick, told: Told) {
        match self.by_now(now) {
            // Parts of a millisecond are not lost as long as the time was not behind.
            Some(known) if known.time >= told.time => {
                self.last = self.last.map(|(last, then)| (Told { most: last.most.max(told.most), ..last }, then));
            }
            known => self.last = Some((known.map_or(told, |known| known.max(told)), now)),
        }
    }
}

/// What a round tells.
#[derive(Debug)]
struct Said {
    told: Option<Told>,
    granted: Vec<Granted>,
}

/// A piece of what a member remembers.
#[derive(Debug)]
struct Piece {
    told: Option<Told>,
    clients: clients::Piece,
}

wire_struct! {
    Said { told, granted }
    Piece { told, clients }
}

/// What a member of the group remembers.
#[derive(Debug)]
pub(crate) struct Remembered {
    pub(crate) time: RememberedTime,
    pub(crate) clients: ClientLeases,
    boot: Option<BootId>,
    /// A lead has begun here, and has not said yet what time it is: what this member remembers of that may be old.
    is_beginning: bool,
    /// The same, and this member did not remember before what a quorum does. That is so until it has told a time, or heard that of a later leader.
    lacks_time: bool,
}

impl Remembered {
    /// Of a process that has just started: it remembers no client, and of time what stood beside the last record.
    /// `timing`: lease and drift bound. `client_lease_millis`: the term of a client's lease.
    pub(crate) fn start(
        timing: (Duration, Duration),
        client_lease_millis: u64,
        boot: Option<BootId>,
        note: &[u8],
        now: Tick,
    ) -> Self {
        let (time, clients) = (RememberedTime::start(timing, boot, note, now), ClientLeases::new(client_lease_millis));
        Self { time, clients, boot, is_beginning: false, lacks_time: false }
    }

    /// A leader tells this time.
    pub(crate) fn tell(&mut self, now: Tick, told: Told) {
        (self.is_beginning, self.lacks_time) = (false, false);
        self.time.note(now, told);
    }

    /// What is to stand beside the next record.
    pub(crate) fn note(&self, now: Tick) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let (Some(boot), Some(told)) = (self.boot, self.time.by_now(now)) {
            Note { boot, clock: now, told }.put(&mut bytes);
        }
        bytes
    }
}

impl Memory for Remembered {
    fn ask(&mut self, now: Tick) -> Vec<u8> {
        let mut bytes = Vec::new();
        let told = self.time.by_now(now).filter(|_| !self.is_beginning);
        Said { told, granted: self.clients.take_unsaid() }.put(&mut bytes);
        bytes
    }

    fn hear(&mut self, now: Tick, value: &[u8]) {
        let Ok(Said { told, granted }) = Reader::new(value).take() else { return };
        self.clients.note(&granted);
        if let Some(told) = told {
            (self.is_beginning, self.lacks_time) = (false, false);
            self.time.note(now, told);
            self.clients.sweep(told.time);
        }
    }

    fn recall(&self, now: Tick, knows_all: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        Vote { told: self.time.by_now(now), knows_all: knows_all && !self.lacks_time }.put(&mut bytes);
        bytes
    }

    fn begins(&mut self, knew_all: bool) {
        self.is_beginning = true;
        self.lacks_time |= !knew_all;
    }

    fn may_teach(&self) -> bool {
        !self.is_beginning
    }

    fn piece(&self, now: Tick, behind: u64) -> (Vec<u8>, Option<u64>) {
        let (clients, next) = self.clients.piece(ClientId(behind));
        let mut bytes = Vec::new();
        Piece { told: self.time.by_now(now), clients }.put(&mut bytes);
        (bytes, next.map(|next| next.0))
    }

    fn merge(&mut self, now: Tick, piece: &[u8]) -> bool {
        let mut reader = Reader::new(piece);
        let Ok(Piece { told, clients }) = reader.take() else { return false };
        if let Some(told) = told {
            self.time.note(now, told);
        }
        self.clients.merge(clients);
        true
    }

    fn gathered(&mut self) {
        self.clients.gathered();
    }
}

fn decoded(bytes: &[u8]) -> Option<Vote> {
    let mut reader = Reader::new(bytes);
    let vote = reader.take().ok()?;
    reader.finish().ok().map(|()| vote)
}

/// What a quorum remembers when one of them begins to lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recalled {
    /// The greatest of what they remember.
    pub(crate) greatest: Option<Told>,
    /// Whether each of them remembers what a quorum does: then nobody was told of a greater time.
    pub(crate) by_all: bool,
}

impl Recalled {
    /// Who is alone and has just started.
    #[cfg(test)]
    pub(crate) const NOTHING: Self = Self { greatest: None, by_all: false };

    /// From the votes of a quorum.
    pub(crate) fn of(memories: &[(MemberId, Vec<u8>)]) -> Self {
        let votes = memories.iter().map(|(_, memory)| decoded(memory));
        let mut recalled = Self { greatest: None, by_all: true };
        for vote in votes {
            recalled.by_all &= vote.is_some_and(|vote| vote.knows_all && vote.told.is_some());
            recalled.greatest = match (recalled.greatest, vote.and_then(|vote| vote.told)) {
                (Some(greatest), Some(told)) => Some(greatest.max(told)),
                (known, told) => known.or(told),
            };
        }
        recalled
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::ClusterId;

    use super::*;
    use crate::CoordinatorOptions;
    use crate::clients::Standing;

    fn remembered() -> RememberedTime {
        let (node_lease, drift_bound) = (Duration::from_millis(500), Duration::from_millis(25));
        RememberedTime { node_lease, drift_bound, last: None }
    }

    fn start(options: &CoordinatorOptions, note: &[u8], now: Tick) -> Remembered {
        let timing = (options.node_lease, options.drift_bound);
        Remembered::start(timing, options.client_lease_millis, options.boot, note, now)
    }

    fn at(millis: u64) -> Tick {
        Tick(0).after(Duration::from_millis(millis))
    }

    fn told(time: u64, most: u64) -> Told {
        Told { time: ClusterTime(time), most: ClusterTime(most) }
    }

    #[test]
    fn r9_4_a_member_counts_on_from_a_round_and_slow() {
        let options = CoordinatorOptions::new(ClusterId(1), 3, 2, 1, ([127, 0, 0, 1], 1).into());
        let new = || Remembered { time: remembered(), ..start(&options, &[], at(0)) };
        let (mut leader, mut other) = (new(), new());
        leader.time.note(at(0), told(5_000, 5_000));
        leader.clients.lead(ClientId(1), ClusterTime(5_000), ClusterTime(5_000));
        let (client, expiry) = leader.clients.grant(ClusterTime(5_000)).expect("room");
        other.hear(at(70_000), &leader.ask(at(0)));
        assert_eq!(other.time.by_now(at(70_000)), Some(told(5_000, 5_000)));
        assert_eq!(other.time.by_now(at(71_000)), Some(told(5_950, 5_000)));
        let vote = Vote { told: Some(told(5_950, 5_000)), knows_all: true };
        assert_eq!(decoded(&leader.recall(at(1_000), true)), Some(vote));
        assert_eq!(other.clients.standing(ClusterTime(5_000), client), Standing::Alive(expiry), "a round tells leases");
    }

    #[test]
    fn r9_4_who_starts_again_in_one_boot_knows_what_has_passed() {
        let mut options = CoordinatorOptions::new(ClusterId(1), 3, 2, 1, ([127, 0, 0, 1], 1).into());
        (options.node_lease, options.drift_bound) = (Duration::from_millis(500), Duration::from_millis(25));
        options.boot = Some(BootId(7));
        let mut before = start(&options, &[], at(0));
        assert_eq!(before.note(at(0)), b"");
        before.time.note(at(1_000), told(5_000, 5_800));
        let note = before.note(at(2_000));
        let vote =
            |options: &_, note, now| decoded(&start(options, note, now).recall(now, false)).expect("a vote").told;
        let again = told(15_450, 5_800);
        assert_eq!(vote(&options, &note, at(12_000)), Some(again), "what has passed, but not what was told since");
        assert_eq!(vote(&options, &note, at(1_999)), None, "a clock that went back");
        assert_eq!(vote(&options, &note[1..], at(12_000)), None);
        options.boot = Some(BootId(8));
        assert_eq!(vote(&options, &note, at(12_000)), None);
        options.boot = None;
        assert_eq!(vote(&options, &note, at(12_000)), None);
    }

    #[test]
    fn r9_4_where_time_stands_still_nothing_is_counted_on_but_what_has_passed() {
        let mut leader = remembered();
        leader.note(at(0), told(5_000, 5_800));
        leader.note(at(400), told(5_400, 5_800));
        assert_eq!(leader.by_now(at(400)), Some(told(5_400, 5_800)));
        leader.note(at(900), told(5_300, 5_900));
        assert_eq!(leader.by_now(at(900)), Some(told(5_875, 5_900)), "what was told is not less, and no time was lost");
    }

    #[test]
    fn r9_4_a_late_round_lowers_nothing() {
        let mut other = remembered();
        other.note(at(0), told(5_000, 5_000));
        other.note(at(1_000), told(5_100, 5_100));
        assert_eq!(other.by_now(at(1_000)), Some(told(5_950, 5_100)));
        other.note(at(1_000), told(6_000, 6_000));
        assert_eq!(other.by_now(at(1_000)), Some(told(6_000, 6_000)));
    }

    /// Found by review: a leader's first round told what it remembered itself, before it had taken in the votes.
    #[test]
    fn r9_4_a_lead_that_begins_passes_on_no_old_time() {
        let options = CoordinatorOptions::new(ClusterId(1), 3, 2, 1, ([127, 0, 0, 1], 1).into());
        let new = || Remembered { time: remembered(), ..start(&options, &[], at(0)) };
        let (mut leader, mut other) = (new(), new());
        leader.time.note(at(0), told(5_000, 5_000));
        leader.begins(false);
        other.hear(at(1_000), &leader.ask(at(1_000)));
        assert_eq!(other.time.by_now(at(1_000)), None);
        let knows = |member: &Remembered| decoded(&member.recall(at(1_000), true)).expect("a vote").knows_all;
        assert!(!knows(&leader) && !leader.may_teach(), "its bound is one for leases, and not for time");
        leader.tell(at(1_000), told(9_000, 9_900));
        assert!(knows(&leader) && leader.may_teach());
        other.begins(false);
        other.hear(at(1_000), &leader.ask(at(1_000)));
        assert_eq!(other.time.by_now(at(1_000)), Some(told(9_000, 9_900)));
        assert!(knows(&other), "it has heard the time of a later leader");
    }

    /// Found by review: a member forgot clients by the time of a round that no quorum had confirmed, and was the only one that knew them.
    #[test]
    fn r9_4_a_member_remembers_a_client_that_a_later_leader_may_not_call_expired() {
        let options = CoordinatorOptions::new(ClusterId(1), 3, 2, 1, ([127, 0, 0, 1], 1).into());
        let term = options.client_lease_millis;
        let new = || Remembered { time: remembered(), ..start(&options, &[], at(0)) };
        let (mut leader, mut other, mut next) = (new(), new(), new());
        leader.clients.lead(ClientId(1), ClusterTime(5_000), ClusterTime(5_000));
        leader.tell(at(0), told(5_000, 5_000));
        let (client, expiry) = leader.clients.grant(ClusterTime(5_000)).expect("room");
        other.hear(at(0), &leader.ask(at(0)));
        let late = 5_000 + 2 * term + 1;
        leader.tell(at(2 * term + 1), told(late, late));
        other.hear(at(2 * term + 1), &leader.ask(at(2 * term + 1)));
        let now = ClusterTime(late - 200);
        next.clients.lead(ClientId(1025), now, now);
        let (piece, _) = other.piece(at(2 * term + 1), 0);
        assert!(!next.merge(at(0), &piece[..piece.len() - 1]), "a piece that was cut tells nothing");
        assert!(next.merge(at(0), &piece));
        next.gathered();
        assert_eq!(next.clients.standing(now, client), Standing::Alive(expiry));
    }

    #[test]
    fn r9_4_the_greatest_of_a_quorum_counts_if_each_remembers_one() {
        let votes = |votes: &[(Option<Told>, bool)]| {
            let bytes = |&(told, knows_all): &_| {
                let mut bytes = Vec::new();
                Vote { told, knows_all }.put(&mut bytes);
                bytes
            };
            let memories: Vec<_> = (1..).map(MemberId).zip(votes.iter().map(bytes)).collect();
            let Recalled { greatest, by_all } = Recalled::of(&memories);
            (greatest, by_all)
        };
        let (one, other) = (Some(told(5, 9)), Some(told(7, 8)));
        assert_eq!(votes(&[(one, true), (other, true)]), (Some(told(7, 9)), true));
        assert_eq!(votes(&[(one, true), (other, false)]), (Some(told(7, 9)), false));
        assert_eq!(votes(&[(one, true), (None, true)]), (one, false));
        assert_eq!(votes(&[(None, false)]), (None, false));
    }
}
