//! A group in one process: virtual time, a network that loses, doubles and delays, disks that lose what was not fsynced, and a
//! naive twin that knows what was committed and told.

mod disk;
mod judge;
mod sums;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kasha_machine::Rng;
use kasha_types::Tick;
use kasha_viewstamped::{
    Lists, MemberId, Message, OpNumber, Options, Output, Replica, RoundNumber, Stored, Trouble, View,
};

use self::disk::Disk;
pub use self::judge::Judge;
pub use self::sums::{Notes, RESTORES_OLDER, Sums};

pub const LEASE: Duration = Duration::from_millis(500);

/// A member that may be down.
struct Member {
    replica: Option<Replica<Sums, Notes>>,
    /// What the last process remembered: it stands beside its last record, with the clock of this boot (R9.4).
    memory: Notes,
    disk: Disk,
    /// Its clock is ahead of the world's by this.
    ahead: Duration,
    /// Its disk does nothing before this moment.
    disk_stalls_until: Tick,
}

/// A question that a member was asked: what it waits for, and what anybody had been told when it came.
struct Question {
    asked: MemberId,
    view: View,
    round: RoundNumber,
    told: OpNumber,
    time: u64,
    /// What the answer grants.
    granted: u64,
}

/// How likely the network and the world do harm.
#[derive(Clone, Copy)]
pub struct Faults {
    /// Of 1000 messages, so many are lost, and so many come twice.
    pub lost: u64,
    /// The longest way of a message.
    pub delay: Duration,
}

impl Faults {
    pub const NONE: Self = Self { lost: 0, delay: Duration::from_millis(2) };
    pub const SOME: Self = Self { lost: 60, delay: Duration::from_millis(60) };
}

pub struct World {
    pub now: Tick,
    pub rng: Rng,
    pub faults: Faults,
    members: BTreeMap<MemberId, Member>,
    /// What is under way: when it comes, in which order, from whom, to whom.
    network: BTreeMap<(Tick, u64), (MemberId, MemberId, Message)>,
    sent: u64,
    /// Pairs that do not hear each other: from, to.
    cuts: BTreeSet<(MemberId, MemberId)>,
    questions: Vec<Question>,
    proposed: u64,
    starts: u64,
    granted: u64,
    pub judge: Judge,
    /// Members that have said that they take no part any more.
    pub stopped: BTreeMap<MemberId, Trouble>,
}

impl World {
    /// A group of these members, and newcomers that know of nobody.
    pub fn new(seed: u64, members: &[u64], newcomers: &[u64]) -> Self {
        let mut world = Self {
            now: Tick(1_000_000_000),
            rng: Rng::new(seed),
            faults: Faults::NONE,
            members: BTreeMap::new(),
            network: BTreeMap::new(),
            sent: 0,
            cuts: BTreeSet::new(),
            questions: Vec::new(),
            proposed: 0,
            starts: seed << 16,
            granted: 0,
            judge: Judge::default(),
            stopped: BTreeMap::new(),
        };
        let lists = Lists::new(members.iter().copied().map(MemberId));
        for (ids, lists) in [(members, lists), (newcomers, Lists::default())] {
            for &id in ids {
                let stored = Stored::new(lists.clone(), Sums::default().bytes());
                let ahead = Duration::from_secs(world.rng.below(1_000_000));
                let (disk, stall) = (Disk::new(stored), Tick(0));
                let memory = Notes::default();
                let member = Member { replica: None, memory, disk, ahead, disk_stalls_until: stall };
                world.members.insert(MemberId(id), member);
                world.start(MemberId(id));
            }
        }
        world
    }

    pub fn ids(&self) -> Vec<MemberId> {
        self.members.keys().copied().collect()
    }

    pub fn is_up(&self, id: MemberId) -> bool {
        self.members[&id].replica.is_some()
    }

    pub fn replica(&self, id: u64) -> &Replica<Sums, Notes> {
        self.members[&MemberId(id)].replica.as_ref().expect("it is up")
    }

    /// The leader of the latest view that somebody leads.
    pub fn leader(&self) -> Option<MemberId> {
        let up = self.members.values().filter_map(|member| member.replica.as_ref());
        up.filter(|replica| replica.leads()).max_by_key(|replica| replica.view()).map(Replica::me)
    }

    pub fn leaders(&self) -> Vec<MemberId> {
        let up = self.members.values().filter_map(|member| member.replica.as_ref());
        up.filter(|replica| replica.leads()).map(Replica::me).collect()
    }

    /// A process of this member starts with what its disk holds.
    pub fn start(&mut self, id: MemberId) {
        self.starts += 1;
        let seed = self.starts;
        let member = self.members.get_mut(&id).expect("it is one");
        let stored = member.disk.restart();
        let now = self.now.after(member.ahead);
        let memory = member.memory.clone();
        let replica = Replica::start(id, Options::new(LEASE), stored, memory, seed, now);
        member.replica = Some(replica.expect("what was written can be read"));
        self.settle(id);
    }

    /// The process of this member ends; what is not on the platter is gone.
    pub fn kill(&mut self, id: MemberId) {
        let member = self.members.get_mut(&id).expect("it is one");
        if let Some(replica) = member.replica.take() {
            member.memory = replica.memory().after_restart();
        }
        member.disk.crash(&mut self.rng);
        self.questions.retain(|question| question.asked != id);
        let now = self.now;
        let others: Vec<_> = self.members.keys().copied().filter(|other| *other != id).collect();
        for other in others {
            self.with(other, |replica, ahead| replica.on_closed(now.after(ahead), id));
        }
    }

    pub fn stall_disk(&mut self, id: MemberId, time: Duration) {
        self.members.get_mut(&id).expect("it is one").disk_stalls_until = self.now.after(time);
    }

    /// The snapshot on the disk of a member rots, and nobody notices when it starts again.
    pub fn damage(&mut self, id: MemberId) {
        self.with(id, |replica, _| replica.write_anew());
        self.run(Duration::from_millis(20));
        self.kill(id);
        self.members.get_mut(&id).expect("it is one").disk.rot();
        self.judge.excuse(id);
        self.start(id);
    }

    pub fn cut(&mut self, from: MemberId, to: MemberId) {
        self.cuts.insert((from, to));
    }

    /// Nobody hears it, and it hears nobody.
    pub fn isolate(&mut self, id: MemberId) {
        for other in self.ids() {
            self.cuts.extend([(id, other), (other, id)]);
        }
    }

    pub fn heal(&mut self) {
        self.cuts.clear();
        self.faults = Faults::NONE;
        self.members.values_mut().for_each(|member| member.disk_stalls_until = Tick(0));
        let down: Vec<_> = self.ids().into_iter().filter(|id| !self.is_up(*id)).collect();
        down.into_iter().for_each(|id| self.start(id));
    }

    /// Calls a member that is up, and does what it wants.
    pub fn with<T>(&mut self, id: MemberId, call: impl FnOnce(&mut Replica<Sums, Notes>, Duration) -> T) -> Option<T> {
        let member = self.members.get_mut(&id).expect("it is one");
        let ahead = member.ahead;
        let result = member.replica.as_mut().map(|replica| call(replica, ahead));
        self.settle(id);
        result
    }

    /// From now on the program of this member is an older one.
    pub fn is_older(&mut self, id: MemberId) {
        let replica = self.replica(id.0);
        [replica.committed(), replica.decided()].into_iter().for_each(|state| state.is_older.set(true));
    }

    /// This leader proposes something that older programs refuse.
    pub fn propose_new(&mut self, leader: MemberId) -> OpNumber {
        self.proposed += 1;
        let (now, operation) = (self.now, (Sums::NEW + self.proposed).to_le_bytes().to_vec());
        let proposed = self.with(leader, |replica, ahead| {
            let op = replica.propose(now.after(ahead), operation);
            replica.flush();
            op
        });
        proposed.flatten().expect("it leads")
    }

    /// The leader proposes something that was never proposed before.
    pub fn propose(&mut self) -> Option<OpNumber> {
        let leaders = self.leaders();
        if leaders.is_empty() {
            return None;
        }
        let leader = *self.rng.pick(&leaders);
        self.proposed += 1;
        let (now, operation) = (self.now, self.proposed.to_le_bytes().to_vec());
        self.with(leader, |replica, ahead| {
            let op = replica.propose(now.after(ahead), operation);
            replica.flush();
            op
        })?
    }

    /// Somebody asks a member that leads, or thinks so.
    pub fn ask(&mut self) {
        let leaders = self.leaders();
        if leaders.is_empty() {
            return;
        }
        let asked = *self.rng.pick(&leaders);
        let (now, told, time) = (self.now, self.judge.told(), self.judge.time());
        let granted = self.granted;
        self.granted += 1;
        let asks = |replica: &mut Replica<Sums, Notes>, ahead| {
            let round = replica.question(now.after(ahead))?;
            replica.memory_mut().grant(granted);
            Some((replica.view(), round))
        };
        if let Some(Some((view, round))) = self.with(asked, asks) {
            self.questions.push(Question { asked, view, round, told, time, granted });
        }
    }

    /// Goes on until this much time has passed.
    pub fn run(&mut self, time: Duration) {
        let end = self.now.after(time);
        while self.step(end) {}
        self.now = end;
    }

    /// Goes on until this holds, or for so long at most. Whether it holds.
    pub fn run_until(&mut self, time: Duration, holds: impl Fn(&Self) -> bool) -> bool {
        let end = self.now.after(time);
        while !holds(self) {
            if !self.step(end) {
                return holds(self);
            }
        }
        true
    }

    /// The next thing happens, if it does before the end.
    fn step(&mut self, end: Tick) -> bool {
        let message = self.network.keys().next().map(|(at, _)| *at);
        let deadlines = self.members.iter().filter_map(|(&id, member)| {
            let deadline = member.replica.as_ref()?.next_deadline()?;
            Some((Tick(deadline.0.saturating_sub(as_nanos(member.ahead))), id))
        });
        let tick = deadlines.min();
        let disk = self.members.iter().filter_map(|(&id, member)| {
            let at = member.disk.ready_at()?.max(member.disk_stalls_until);
            member.replica.is_some().then_some((at, id))
        });
        let disk = disk.min();
        let times = [message, tick.map(|(at, _)| at), disk.map(|(at, _)| at)];
        let Some(next) = times.into_iter().flatten().min().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        let now = self.now;
        if message == Some(next) {
            let (_, (from, to, message)) = self.network.pop_first().expect("just seen");
            if !self.cuts.contains(&(from, to)) {
                self.with(to, |replica, ahead| replica.on_message(now.after(ahead), from, message));
            }
        } else if let Some((_, id)) = disk.filter(|(at, _)| *at == next) {
            let number = self.members.get_mut(&id).expect("it is one").disk.fsync();
            self.with(id, |replica, ahead| replica.on_durable(now.after(ahead), number));
        } else if let Some((_, id)) = tick {
            // A deadline that does not move would stop the world.
            self.now = self.now.after(Duration::from_nanos(1));
            let now = self.now;
            self.with(id, |replica, ahead| replica.on_tick(now.after(ahead)));
        }
        true
    }

    /// Does what a member wants, and judges what it knows.
    fn settle(&mut self, id: MemberId) {
        let member = self.members.get_mut(&id).expect("it is one");
        let Some(replica) = &mut member.replica else { return };
        replica.assert_invariants();
        let outputs = replica.take_output();
        let now = self.now.after(member.ahead);
        for output in outputs {
            match output {
                Output::Send { to, message } => self.post(id, to, message),
                Output::Write { number, record } => {
                    let takes = Duration::from_micros(self.rng.between(200, 8_000));
                    let disk = &mut self.members.get_mut(&id).expect("it is one").disk;
                    disk.write(number, record, self.now.after(takes));
                }
                Output::Leads { view, memories, .. } => {
                    self.judge.leads(view);
                    let replica = self.members.get_mut(&id).expect("it is one").replica.as_mut().expect("it is up");
                    let memories = memories.iter().map(|(_, bytes)| &bytes[..]);
                    replica.memory_mut().lead(now, memories, self.granted);
                }
                Output::Deposed { view } => {
                    self.questions.retain(|question| question.asked != id || question.view != view);
                }
                Output::Stops(trouble) => {
                    self.stopped.insert(id, trouble);
                }
            }
        }
        self.look_at(id, now);
    }

    fn post(&mut self, from: MemberId, to: MemberId, message: Message) {
        assert!(self.members.contains_key(&to), "{from} knows of {to}, who does not exist");
        let copies = match self.rng.below(1000) {
            draw if draw < self.faults.lost => 0,
            draw if draw < 2 * self.faults.lost => 2,
            _ => 1,
        };
        for _ in 0..copies {
            self.sent += 1;
            let way = Duration::from_nanos(self.rng.below(as_nanos(self.faults.delay)) + 50_000);
            self.network.insert((self.now.after(way), self.sent), (from, to, message.clone()));
        }
    }

    /// What it has committed, and what it may answer.
    fn look_at(&mut self, id: MemberId, now: Tick) {
        let member = self.members.get_mut(&id).expect("it is one");
        let Some(replica) = &mut member.replica else { return };
        self.judge.committed(id, replica.committed());
        if !replica.leads() {
            return;
        }
        self.judge.tells(replica.committed_to());
        let (view, committed) = (replica.view(), replica.committed_to());
        let time = replica.memory_mut().told(now);
        self.judge.knows(id, view, replica.memory());
        let mut answered = Vec::new();
        self.questions.retain(|question| {
            let is_ready = question.asked == id && question.view == view && replica.is_confirmed(question.round);
            if is_ready {
                answered.push((question.told, question.time, question.granted));
            }
            !is_ready
        });
        for (told, earlier, granted) in answered {
            self.judge.tells_grant(view, granted);
            assert!(committed >= told, "R9.2: an answer of {id} knows up to {committed}, and {told} had been told");
            assert!(time >= earlier, "R9.4: {id} tells {time}, and {earlier} had been told");
            self.judge.tells_time(time);
        }
    }
}

fn as_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("short")
}
