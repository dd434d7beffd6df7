//! Older copies of members' folders: what they lack was promised, so they neither vote nor lead.
#![allow(missing_docs)]

use kasha_coordinator::CoordinatorOptions;
use kasha_types::{BootId, ClientId, ConfigVersion};
use kasha_wire::AnyMessage;
use kasha_wire::message::{GetConfiguration, Goodbye, OpenSession, RenewLease, TableCommand, TableRequest};

use crate::common::{Files, MemoryDisk, World, stored};
use crate::group::{Group, SIZE, STRANGER, address, first_identity, process_options};

impl Group {
    /// The process of a node ends, and starts again.
    fn restart(&mut self, index: usize) {
        self.kill(index);
        self.start(index);
        self.node_is_up(index, true);
    }

    /// A process with a copy of this member's folder, which counts it as this start, on a machine at this place.
    fn start_copy(&mut self, index: usize, files: Files, starts: u32, place: usize) {
        let disk = MemoryDisk { durable: files, ..MemoryDisk::default() };
        let options = CoordinatorOptions {
            address: address(place),
            boot: Some(BootId(200 + place as u128)),
            ..process_options(index, starts, first_identity(index))
        };
        self.members.resize_with(self.members.len().max(place + 1), || None);
        self.members[place] = Some(World::try_new(options, disk, self.now).unwrap());
    }

    /// Everybody but the member at this place was told nothing, and that one that it is out of date.
    fn only_this_one_is_sent_away(&mut self, place: usize) -> bool {
        let is_told = |(told, why): &(usize, String)| *told == place && why.contains("(K0503)");
        let told = std::mem::take(&mut self.sent_away);
        !told.is_empty() && told.iter().all(is_told) && self.goodbyes.is_empty()
    }
}

/// Elsewhere, or where the newer process listened.
#[test]
fn r9_6_an_older_start_has_no_vote_and_is_told_why() {
    for (others_restart, is_elsewhere) in [(false, false), (false, true), (true, false), (true, true)] {
        an_older_start(others_restart, is_elsewhere);
    }
}

fn an_older_start(others_restart: bool, is_elsewhere: bool) {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    let (right, third) = ((leader + 1) % SIZE, (leader + 2) % SIZE);
    let older = group.copy_of(right);
    (0..2).for_each(|_| group.restart(right));
    group.run(4_000);
    assert!(group.leaders() == [leader] && group.sent_away.is_empty());
    let place = if is_elsewhere { SIZE } else { right };
    if is_elsewhere {
        // Beside the newer process.
        group.start_copy(right, older.clone(), 2, place);
        group.run(2_000);
        assert!(group.only_this_one_is_sent_away(place) && group.leaders() == [leader]);
    }
    group.kill(right);
    group.kill(third);
    if others_restart {
        group.restart(leader);
    }
    if !is_elsewhere {
        group.start_copy(right, older, 2, place);
    }
    group.sent_away.clear();
    // A leader that has lost its majority needs a while to give up.
    group.run(if others_restart { 0 } else { 4_000 });
    group.nobody_leads(10_000);
    // Who has just started does not know what of its log is committed.
    assert!(others_restart || group.only_this_one_is_sent_away(place));
    group.start(third);
    group.run(5_000);
    let [next] = group.leaders()[..] else { panic!("{:?}", group.leaders()) };
    assert!(next != place && group.answers(next));
    assert!(group.only_this_one_is_sent_away(place));
    // The member's own folder, which has been started more often than anybody knows, is welcome.
    group.members[place] = None;
    group.start(right);
    group.run(3_000);
    assert_eq!(group.sent_away, []);
    let leader = group.leaders()[0];
    assert!(group.config(right).version == group.config(leader).version);
    group.kill((0..SIZE).find(|other| ![leader, right].contains(other)).unwrap());
    group.run(3_000);
    let leader = group.leaders()[0];
    assert!(group.answers(leader), "it has a vote");
}

/// The newest process may be one that no leader has seen: whoever was heard before it has no say any more, and is told nothing that a majority does
/// not know.
#[test]
fn r9_6_of_a_start_that_is_not_committed_nobody_is_told() {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    let (right, third) = ((leader + 1) % SIZE, (leader + 2) % SIZE);
    let older = group.copy_of(right);
    for _ in 0..2 {
        group.kill(right);
        group.start(right); // its cores say nothing of that
        group.run(500);
    }
    group.start_copy(right, older, 2, SIZE);
    group.run(2_000);
    group.kill(right);
    group.kill(third);
    group.run(4_000);
    group.nobody_leads(6_000);
    assert_eq!(group.sent_away, []);
    group.start(right);
    group.run(3_000);
    assert_eq!((group.leaders().len(), &group.sent_away[..]), (1, &[][..]));
}

/// The folder of one member, with the count of its starts as it is, has its files of before some commands. The other two have all of these.
#[test]
fn an_older_copy_of_one_member_s_files_catches_up_beside_two_others_and_nothing_is_lost() {
    for (of_leader, at_once) in [(false, true), (false, false), (true, true), (true, false)] {
        let mut group = Group::serving();
        let client = group.open_session();
        let leader = group.leaders()[0];
        let copied = if of_leader { leader } else { (leader + 1) % SIZE };
        let copy = group.copy_of(copied);
        (1..=3).for_each(|sequence| group.create_table(client, sequence));
        group.run(500);
        let before = group.config(leader).version;
        group.kill(copied);
        group.folders.insert(copied, copy);
        if !at_once {
            group.run(4_000);
            group.create_table(client, 4);
        }
        group.start(copied);
        group.run(4_000);
        group.create_table(client, 5);
        let next = group.leaders()[0];
        group.run(500);
        let version = group.config(next).version;
        assert!(version > before && group.config(copied).version == version, "leader: {of_leader}, at once: {at_once}");
        // Now its vote decides.
        let other = (0..SIZE).find(|other| ![next, copied].contains(other)).unwrap();
        group.kill(if next == copied { other } else { next });
        group.run(5_000);
        let last = group.leaders()[0];
        let told = [1, 2, 3, 5].into_iter().chain((!at_once).then_some(4));
        assert!(group.answers(last) && told.into_iter().all(|sequence| group.has_table(last, sequence)));
        assert_eq!(group.member(last).coordinator.memory_loss(), None);
    }
}

/// A member has missed some commands, and another one has its files of before them; the third one, which was the leader, is down. These two are a
/// majority, and nobody of them can know what they lack. The nodes know.
struct Forgotten {
    group: Group,
    client: ClientId,
    /// Who had everything, and is down.
    third: usize,
    copied: usize,
    lags: usize,
    /// The newest files of the one whose files are older, and of the one that lags.
    newest: [(usize, Files); 2],
}

impl Forgotten {
    fn new() -> Self {
        Self::with_third(true)
    }

    /// The third one is down, or cut off from everybody.
    fn with_third(is_down: bool) -> Self {
        let mut group = Group::serving();
        let client = group.open_session();
        let third = group.leaders()[0];
        let (copied, lags) = ((third + 1) % SIZE, (third + 2) % SIZE);
        let copy = group.copy_of(copied);
        group.isolate(lags);
        (1..=3).for_each(|sequence| group.create_table(client, sequence));
        group.run(1_000);
        assert!(group.has_table(copied, 3) && !group.has_table(lags, 1));
        let newest = [copied, lags].map(|index| (index, group.copy_of(index)));
        group.kill(copied);
        group.cuts.clear();
        if is_down {
            group.kill(third);
        } else {
            group.isolate(third);
            group.hide(&[1, 2, 3], third);
        }
        group.folders.insert(copied, copy);
        group.start(copied);
        Self { group, client, third, copied, lags, newest }
    }

    /// These two, with the third one or without, decide nothing in all that time, and tell nobody anything but that they have lost their memory.
    fn assert_decides_nothing(&mut self, millis: u64) {
        let Self { group, client, copied, lags, .. } = self;
        let client = *client;
        let questions = [
            AnyMessage::from(GetConfiguration { have: ConfigVersion(0) }),
            OpenSession { nonce: 9 }.into(),
            RenewLease { client }.into(),
            TableRequest { client, sequence: 1, command: TableCommand::Create("table-1".into()) }.into(),
        ];
        let known = |group: &Group, index: usize| {
            let coordinator = &group.members[index].as_ref().unwrap().coordinator;
            (coordinator.state().clone(), coordinator.decided().clone())
        };
        let [leader] = group.leaders()[..] else { panic!("{:?}", group.leaders()) };
        assert!([*copied, *lags].contains(&leader));
        let before = (known(group, leader), group.leases.clone(), group.told.clone());
        for step in 0..millis / 100 {
            group.answers.clear();
            let now = group.now;
            match &questions[step as usize % questions.len()] {
                AnyMessage::GetConfiguration(question) => group.member(leader).send_at(now, STRANGER, question),
                AnyMessage::OpenSession(question) => group.member(leader).send_at(now, STRANGER, question),
                AnyMessage::RenewLease(question) => group.member(leader).send_at(now, STRANGER, question),
                AnyMessage::TableRequest(question) => group.member(leader).send_at(now, STRANGER, question),
                _ => unreachable!("listed above"),
            }
            group.settle();
            group.run(100);
            let is_why = |(_, answer): &(usize, AnyMessage)| matches!(answer, AnyMessage::Goodbye(Goodbye { reason }) if reason.contains("K0508"));
            assert!(!group.answers.is_empty() && group.answers.iter().all(is_why), "{:?}", group.answers);
            assert!(group.member(leader).coordinator.memory_loss().is_some());
        }
        assert_eq!((known(group, leader), &group.leases, &group.told), (before.0, &before.1, &before.2));
    }
}

/// The commands that both lack may have named primaries. Until an operator puts the newest folders back nothing is decided: that the third one
/// comes back, with all of them, does not help, since a later view has begun without them.
#[test]
fn r9_13_an_older_copy_and_a_member_that_lags_elect_and_decide_nothing() {
    for third_restarts in [true, false] {
        let mut lost = Forgotten::new();
        let (leases, told) = (lost.group.leases.clone(), lost.group.told.clone());
        let mut led = 0;
        for _ in 0..500 {
            lost.group.run(10);
            let leaders = lost.group.leaders();
            let Some(&leader) = leaders.first() else { continue };
            led += 1;
            let is_found = lost.group.member(leader).coordinator.memory_loss().is_some();
            assert!(is_found || led < 10, "found out by the next heartbeats");
        }
        assert!(led > 100 && lost.group.leases == leases && lost.group.told == told);
        let shards = lost.group.config(lost.lags).shards.clone();
        lost.assert_decides_nothing(10_000);
        if third_restarts {
            lost.group.start(lost.third);
        }
        lost.group.run(5_000);
        lost.assert_decides_nothing(10_000);
        assert_eq!(lost.group.config(lost.lags).shards, shards);
        if !third_restarts {
            // All of them end, and have their newest folders again.
            [lost.copied, lost.lags].into_iter().for_each(|index| lost.group.kill(index));
            lost.group.folders.extend(lost.newest.clone());
            (0..SIZE).for_each(|index| lost.group.start(index));
            lost.group.run(6_000);
            let leader = lost.group.leaders()[0];
            assert!((1..=3).all(|sequence| lost.group.has_table(leader, sequence)) && lost.group.answers(leader));
        }
    }
}

/// It knows what is committed, and not only what is in its files.
#[test]
fn r9_13_who_has_what_the_others_have_forgotten_takes_no_part_beside_them_and_keeps_it() {
    let mut lost = Forgotten::with_third(false);
    lost.group.run(6_000);
    lost.group.cuts.clear();
    lost.group.hidden.clear();
    lost.group.run(3_000);
    lost.assert_decides_nothing(5_000);
    let (third, files) = (lost.third, lost.group.copy_of(lost.third));
    assert!(lost.group.member(third).coordinator.trouble().is_some());
    assert!([1, 2, 3].into_iter().all(|sequence| lost.group.has_table(third, sequence)));
    let journal = stored(&files).expect("it has a journal");
    assert!(journal.configuration().version >= lost.group.config(third).version);
}
