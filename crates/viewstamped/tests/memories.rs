//! What members tell of their memories, message by message (R9.4).

use std::collections::BTreeSet;

use kasha_types::Tick;
use kasha_viewstamped::{
    Base, Entry, Lists, MemberId, Memory, Message, OpNumber, Options, Output, Piece, PieceAt, Record, Replica,
    RoundNumber, State, Stored, View,
};

use crate::world::{LEASE, Sums};

/// What rounds told, each a byte.
#[derive(Clone, Debug, Default)]
struct Bytes(BTreeSet<u8>);

impl Memory for Bytes {
    fn ask(&mut self, _: Tick) -> Vec<u8> {
        Vec::new()
    }
    fn hear(&mut self, _: Tick, value: &[u8]) {
        self.0.extend(value);
    }
    fn recall(&self, _: Tick, _: bool) -> Vec<u8> {
        Vec::new()
    }
    fn piece(&self, _: Tick, _: u64) -> (Vec<u8>, Option<u64>) {
        (self.0.iter().copied().collect(), None)
    }
    fn merge(&mut self, _: Tick, piece: &[u8]) -> bool {
        self.0.extend(piece);
        true
    }
}

type Member = Replica<Sums, Bytes>;

const LEADER: MemberId = MemberId(1);

fn start(id: u64, stored: Stored, now: Tick) -> Member {
    Replica::start(MemberId(id), Options::new(LEASE), stored, Bytes::default(), id, now).expect("it can be read")
}

/// Makes all writes durable. Returns what the disk has, and what was sent.
fn settle(member: &mut Member, mut disk: Stored, now: Tick) -> (Stored, Vec<(MemberId, Message)>) {
    let mut sent = Vec::new();
    loop {
        let outputs = member.take_output();
        if outputs.is_empty() {
            return (disk, sent);
        }
        for output in outputs {
            match output {
                Output::Send { to, message } => sent.push((to, message)),
                Output::Write { number, record } => {
                    disk = disk.after(record).expect("it follows");
                    member.on_durable(now, number);
                }
                Output::Leads { .. } | Output::Deposed { .. } | Output::Stops(_) => {}
            }
        }
    }
}

/// What the member has asked for.
fn asked(sent: &[(MemberId, Message)]) -> PieceAt {
    let asks = sent.iter().find_map(|(to, message)| match message {
        Message::GetMemory { at, .. } if *to == LEADER => Some(*at),
        _ => None,
    });
    asks.unwrap_or_else(|| panic!("{sent:?}"))
}

fn round(view: View, number: u64, value: &[u8]) -> Message {
    Message::Round { view, round: RoundNumber(number), value: value.to_vec(), committed: OpNumber(0), agreed: None }
}

fn log_of(view: View) -> Message {
    let piece = Piece { base: Base::Behind(OpNumber(0)), entries: vec![Entry::Begin] };
    Message::Log { view, log_view: view, piece, committed: OpNumber(0) }
}

/// A `Memory` that answers the question of the process before teaches the process after it, which has forgotten what it confirmed since.
#[test]
pub fn r9_4_a_late_answer_does_not_teach_the_next_process() {
    let now = Tick(1_000_000_000_000);
    let view = View { number: 1, leader: LEADER };
    let disk = Stored::new(Lists::new([1, 2, 3].map(MemberId)), Sums::default().snapshot());
    let mut member = start(2, disk.clone(), now);
    let (disk, _) = settle(&mut member, disk, now);
    member.on_message(now, LEADER, log_of(view));
    let (disk, _) = settle(&mut member, disk, now);
    member.on_message(now, LEADER, round(view, 1, b""));
    let (disk, sent) = settle(&mut member, disk, now);
    let at = asked(&sent);
    // The leader answers; the answer is late. Then the leader grants G, and this member answers the round: with the leader that is a quorum.
    let late = Message::Memory { view, at, piece: Vec::new(), next: None };
    member.on_message(now, LEADER, round(view, 2, b"G"));
    let (disk, sent) = settle(&mut member, disk, now);
    assert!(sent.iter().any(|(_, message)| matches!(message, Message::RoundOk { round: RoundNumber(2), .. })));
    // It starts again, and asks again. (It has lost G.)
    let now = now.after(LEASE);
    let mut member = start(2, disk.clone(), now);
    let (disk, _) = settle(&mut member, disk, now);
    member.on_message(now, LEADER, round(view, 3, b""));
    let (_, sent) = settle(&mut member, disk, now);
    let again = asked(&sent);
    member.on_message(now, LEADER, late);
    assert!(!member.knows(), "it would say that it knows, and lack what it confirmed");
    member.on_message(now, LEADER, Message::Memory { view, at: again, piece: b"G".to_vec(), next: None });
    assert!(member.knows() && member.memory().0.contains(&b'G'));
}

/// A member tells what it remembers in a view that is not on its disk. After a crash it is in the view before, and confirms a round there.
#[test]
pub fn r9_4_a_member_tells_its_memory_only_in_a_view_that_is_on_its_disk() {
    let now = Tick(1_000_000_000_000);
    let (old, new) = (View { number: 1, leader: LEADER }, View { number: 2, leader: MemberId(5) });
    let disk = Stored::new(Lists::new([1, 2, 3, 4, 5].map(MemberId)), Sums::default().snapshot());
    let mut member = start(2, disk.clone(), now);
    let (disk, _) = settle(&mut member, disk, now);
    member.on_message(now, LEADER, log_of(old));
    let (disk, _) = settle(&mut member, disk, now);
    member.on_message(now, LEADER, round(old, 1, b""));
    let (disk, sent) = settle(&mut member, disk, now);
    member.on_message(now, LEADER, Message::Memory { view: old, at: asked(&sent), piece: Vec::new(), next: None });
    let (disk, _) = settle(&mut member, disk, now);
    assert!(member.knows());
    // 5 leads by the votes of 3, 4, 5. Its log reaches this member, whose disk is slow; it asks for its memory.
    member.on_message(now, new.leader, log_of(new));
    member.on_message(now, new.leader, Message::GetMemory { view: new, at: PieceAt { behind: 0, nonce: 77 } });
    let outputs = member.take_output();
    assert!(outputs.iter().any(|output| matches!(output, Output::Write { record: Record::Whole(_), .. })));
    let tells = |output: &Output| matches!(output, Output::Send { message: Message::Memory { .. }, .. });
    let has_told = outputs.iter().any(tells);
    // The process dies before that write is durable. The next one answers a round of the old view, which 3 (and 1) answered before 3 voted:
    // so G is confirmed, and neither here nor at 4 or 5 when 5 gathered.
    let mut member = start(2, disk.clone(), now);
    let (disk, _) = settle(&mut member, disk, now);
    member.on_message(now, LEADER, round(old, 2, b"G"));
    let (_, sent) = settle(&mut member, disk, now);
    let has_confirmed =
        sent.iter().any(|(_, message)| matches!(message, Message::RoundOk { round: RoundNumber(2), .. }));
    assert!(!(has_told && has_confirmed), "it has told all that it remembers in {new:?}, and confirms more in {old:?}");
}
