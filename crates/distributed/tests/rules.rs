//! One participant, word by word: what the search of random histories repairs, or cannot reach.

use kasha_distributed::{
    Arrival, Behind, Class, Footprint, Origin, Participant, Proposal, Said, Step, Timestamp, Why, Word,
};
use kasha_types::{ClientId, KeyHash, LogEnd, RpcId, Sequence, ShardId};

const OWN: ShardId = ShardId(0);
const PEER: ShardId = ShardId(1);
const KEY: KeyHash = KeyHash(7);
const BODY: u64 = 5;

fn rpc(number: u64) -> RpcId {
    RpcId { client: ClientId(number), sequence: Sequence(1) }
}

/// An independent transaction of both shards, which writes one key.
fn proposal(participants: &[ShardId]) -> Proposal {
    let footprint = Footprint::new([], [KEY]);
    Proposal { class: Class::Independent, body: BODY, participants: participants.to_vec(), footprint }
}

fn word(number: u64, said: Said) -> Word {
    Word { rpc: rpc(number), body: BODY, said, asks: false, participants: Vec::new(), behind: Vec::new() }
}

/// A participant whose ceiling is far away, and a log of one entry.
fn participant() -> Participant {
    let mut participant = Participant::new(OWN);
    participant.ceiling_logged(Timestamp(1_000_000), LogEnd(1));
    participant.on_durable(LogEnd(1));
    participant
}

fn all_steps(participant: &mut Participant) -> Vec<Step> {
    std::iter::from_fn(|| participant.next_step()).collect()
}

#[test]
fn r8_1_a_vote_leaves_although_the_transaction_is_executed_at_once() {
    let mut here = participant();
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(10), LogEnd(2));
    assert_eq!(here.on_word(PEER, &word(1, Said::Proposed(Timestamp(20)))), None);
    assert_eq!(all_steps(&mut here), [], "its own proposal is not synced");
    assert_eq!(here.take_words(), []);
    // Its gate is closed, so that there is no word of settlement either.
    here.on_durable(LogEnd(2));
    assert_eq!(here.next_step(), Some(Step::Execute(rpc(1), Timestamp(20))));
    let gate = here.executed(rpc(1), Timestamp(20), LogEnd(3), Origin::Log { gate: &[rpc(9)] });
    assert_eq!(gate.map(|(_, members)| members), Some(vec![rpc(9)]));
    all_steps(&mut here);
    let said = Said::Executed { at: Timestamp(20), recorded: false, settled: false };
    assert_eq!(here.take_words(), [(PEER, word(1, said))]);
}

#[test]
fn words_that_come_before_the_request_count() {
    let mut here = participant();
    assert_eq!(here.on_word(PEER, &word(1, Said::Proposed(Timestamp(20)))), None);
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(10), LogEnd(2));
    here.on_durable(LogEnd(2));
    assert_eq!(here.next_step(), Some(Step::Execute(rpc(1), Timestamp(20))));
}

#[test]
fn words_whose_requests_never_come_do_not_push_out_the_others() {
    let mut here = participant();
    for number in 10..3_000 {
        assert_eq!(here.on_word(PEER, &word(number, Said::Proposed(Timestamp(20)))), None);
    }
    assert_eq!(here.on_word(PEER, &word(1, Said::Proposed(Timestamp(20)))), None, "the smallest id of all");
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(10), LogEnd(2));
    here.on_durable(LogEnd(2));
    assert_eq!(here.next_step(), Some(Step::Execute(rpc(1), Timestamp(20))));
}

#[test]
fn r8_11_others_are_asked_after_a_patience_and_only_for_what_they_have_not_said() {
    let third = ShardId(2);
    let mut here = participant();
    here.proposed(rpc(1), proposal(&[OWN, PEER, third]), Timestamp(10), LogEnd(2));
    here.on_durable(LogEnd(2));
    all_steps(&mut here);
    here.take_words();
    assert_eq!(here.on_word(third, &word(1, Said::Proposed(Timestamp(20)))), None);
    here.ask_again();
    assert_eq!(here.take_words(), [], "their requests may be on their way");
    here.ask_again();
    let asked = Word { asks: true, participants: vec![OWN, PEER, third], ..word(1, Said::Proposed(Timestamp(10))) };
    assert_eq!(here.take_words(), [(PEER, asked)]);
}

#[test]
fn r8_6_a_new_primary_votes_again_and_asks() {
    let mut here = Participant::new(OWN);
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(10), LogEnd(1));
    here.begin_serving(LogEnd(1));
    all_steps(&mut here);
    let words = here.take_words();
    assert!(matches!(&words[..], [(PEER, Word { said: Said::Proposed(Timestamp(10)), asks: true, .. })]), "{words:?}");
}

#[test]
fn r8_1_the_highest_ceiling_counts_wherever_it_stands_in_the_log() {
    let mut here = Participant::new(OWN);
    here.ceiling_logged(Timestamp(4_000), LogEnd(1));
    here.ceiling_logged(Timestamp(1_000), LogEnd(2));
    here.begin_serving(LogEnd(2));
    let arrival = here.on_request(rpc(1), &proposal(&[OWN, PEER]), Timestamp(5));
    assert_eq!(arrival, Arrival::Propose(Timestamp(4_001)));
}

#[test]
fn what_only_never_ends_frees_its_keys_when_that_is_synced() {
    let mut here = participant();
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(10), LogEnd(2));
    here.on_durable(LogEnd(2));
    assert_eq!(here.on_word(PEER, &word(1, Said::Never)), None);
    assert_eq!(here.next_step(), Some(Step::End(rpc(1), Why::Conflict)));
    here.ended(rpc(1), proposal(&[OWN, PEER]), Why::Conflict, LogEnd(3));
    all_steps(&mut here);
    let footprint = Footprint::new([KEY], []);
    assert_eq!((here.blocked_by(&footprint), here.take_released()), (Some(rpc(1)), vec![]));
    here.on_durable(LogEnd(3));
    assert_eq!((here.blocked_by(&footprint), here.take_released()), (None, vec![rpc(1)]));
}

#[test]
fn a_timestamp_that_no_clock_says_is_not_heard() {
    let mut here = participant();
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(10), LogEnd(2));
    here.on_durable(LogEnd(2));
    for at in [u64::MAX, u64::MAX - 5] {
        assert_eq!(here.on_word(PEER, &word(1, Said::Proposed(Timestamp(at)))), None);
        assert_eq!(all_steps(&mut here), []);
    }
}

#[test]
fn a_participant_that_is_named_twice_speaks_once() {
    let mut here = participant();
    here.proposed(rpc(1), proposal(&[OWN, PEER, PEER]), Timestamp(10), LogEnd(2));
    here.on_durable(LogEnd(2));
    assert_eq!(here.on_word(PEER, &word(1, Said::Proposed(Timestamp(20)))), None);
    assert_eq!(here.next_step(), Some(Step::Execute(rpc(1), Timestamp(20))));
}

#[test]
fn r8_7_an_update_overlaps_with_what_has_an_unsynced_outcome() {
    let mut here = participant();
    let other = KeyHash(8);
    let proposal = Proposal { footprint: Footprint::new([other], [KEY]), ..proposal(&[OWN]) };
    here.proposed(rpc(1), proposal, Timestamp(10), LogEnd(2));
    here.on_durable(LogEnd(2));
    assert_eq!(here.next_step(), Some(Step::Execute(rpc(1), Timestamp(10))));
    assert!(here.executed(rpc(1), Timestamp(10), LogEnd(3), Origin::Now).is_none());
    let update = |key| Footprint::new([], [key]);
    assert_eq!(here.blocked_by(&update(KEY)), None);
    assert!(here.overlaps(&update(KEY)) && here.overlaps(&update(other)), "what it read counts, too");
    assert!(!here.overlaps(&Footprint::new([other], [])) && !here.overlaps(&update(KeyHash(9))));
    here.on_durable(LogEnd(3));
    assert!(!here.overlaps(&update(KEY)) && !here.overlaps(&update(other)));
}

#[test]
fn what_has_waited_long_goes_before_all_that_comes_later_as_a_transaction_of_its_own() {
    let mut here = participant();
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(10), LogEnd(2));
    here.proposed(rpc(2), proposal(&[OWN]), Timestamp(11), LogEnd(3));
    here.proposed(rpc(3), proposal(&[OWN, PEER]), Timestamp(12), LogEnd(4));
    here.on_durable(LogEnd(4));
    assert_eq!(all_steps(&mut here), []);
    assert_eq!(here.on_word(PEER, &word(3, Said::Proposed(Timestamp(12)))), None);
    assert_eq!(all_steps(&mut here), [], "it has both votes, and two are before it");
    assert_eq!(here.on_word(PEER, &word(1, Said::Proposed(Timestamp(30)))), None);
    assert_eq!(here.next_step(), Some(Step::Execute(rpc(2), Timestamp(11))), "the first has moved behind it");
    let _ = here.executed(rpc(2), Timestamp(11), LogEnd(5), Origin::Now);
    assert_eq!(here.next_step(), Some(Step::Execute(rpc(3), Timestamp(12))));
}

#[test]
fn r8_11_a_participant_takes_part_in_one_thing_under_one_id() {
    let mut here = participant();
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(10), LogEnd(2));
    here.on_durable(LogEnd(2));
    all_steps(&mut here);
    here.take_words();
    let stranger = ShardId(5);
    let asks = Word { body: BODY + 1, asks: true, ..word(1, Said::Proposed(Timestamp(20))) };
    assert_eq!(here.on_word(stranger, &asks), None);
    let never = Word { body: BODY + 1, ..word(1, Said::Never) };
    assert_eq!(here.take_words(), [(stranger, never)]);
    assert_eq!(here.on_word(PEER, &Word { asks: false, ..asks }), None);
    assert_eq!(all_steps(&mut here), [], "that was no vote for this transaction");
}

#[test]
fn r8_11_never_is_said_when_what_says_so_is_durable() {
    let mut here = participant();
    here.say_never(PEER, rpc(1), BODY, LogEnd(3));
    here.say_never(PEER, rpc(1), BODY, LogEnd(4)); // it asks again
    here.on_durable(LogEnd(2));
    assert_eq!(here.take_words(), []);
    here.on_durable(LogEnd(3));
    assert_eq!(here.take_words(), [(PEER, word(1, Said::Never))]);
    assert!(here.is_idle());
    // A new term: another one may have proposed it meanwhile.
    here.say_never(PEER, rpc(1), BODY, LogEnd(9));
    here.begin_serving(LogEnd(5));
    here.on_durable(LogEnd(9));
    assert_eq!(here.take_words(), []);
}

#[test]
fn r8_15_what_is_replayed_in_another_order_waits_for_no_more_than_was_logged() {
    let (first, second) = (rpc(1), rpc(2));
    let mut here = Participant::new(OWN);
    for (rpc, at) in [(second, 11), (first, 10)] {
        here.proposed(rpc, proposal(&[OWN, PEER]), Timestamp(at), LogEnd(1));
    }
    // The second was executed behind the first, whose entries were copied to the end of the log.
    let gate = here.executed(second, Timestamp(11), LogEnd(1), Origin::Log { gate: &[first] });
    assert_eq!(gate.map(|(_, members)| members), Some(vec![first]));
    assert!(here.executed(first, Timestamp(10), LogEnd(1), Origin::Log { gate: &[] }).is_none());
    here.begin_serving(LogEnd(1));
    let gate = here.pass(None, &Footprint::new([KEY], []), Origin::Now);
    assert_eq!(gate.map(|(_, members)| members), Some(vec![first, second]), "a new reader waits for both");
}

#[test]
fn r8_5_a_check_that_says_no_waits_for_what_it_read_and_only_its_answer_does() {
    let mut here = participant();
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(10), LogEnd(2));
    here.on_durable(LogEnd(2));
    assert_eq!(here.on_word(PEER, &word(1, Said::Proposed(Timestamp(10)))), None);
    assert_eq!(here.next_step(), Some(Step::Execute(rpc(1), Timestamp(10))));
    let _ = here.executed(rpc(1), Timestamp(10), LogEnd(3), Origin::Now);
    all_steps(&mut here);
    here.take_words();
    let coordinated = Proposal { class: Class::Coordinated, ..proposal(&[OWN, PEER]) };
    assert!(matches!(here.on_request(rpc(2), &coordinated, Timestamp(20)), Arrival::Propose(_)));
    let gate = here.aborted(rpc(2), coordinated, &Footprint::new([KEY], []), LogEnd(4), Origin::Now);
    let (gate, members) = gate.expect("the first is not settled");
    assert_eq!(members, [rpc(1)]);
    here.on_durable(LogEnd(4));
    all_steps(&mut here);
    assert!(here.take_words().contains(&(PEER, word(2, Said::Against(Why::Abort)))), "votes wait for no gate");
    assert!(!here.is_open(gate));
    let settled = Said::Executed { at: Timestamp(10), recorded: true, settled: true };
    assert_eq!(here.on_word(PEER, &word(1, settled)), None);
    all_steps(&mut here);
    assert!(here.is_open(gate));
}

/// A row of three independent transactions on one key, executed here, all behind the first.
fn executed_row() -> (Participant, Vec<kasha_distributed::GateId>) {
    let mut here = participant();
    for number in 1..=3 {
        here.proposed(rpc(number), proposal(&[OWN, PEER]), Timestamp(10 + number), LogEnd(2));
        assert_eq!(here.on_word(PEER, &word(number, Said::Proposed(Timestamp(5)))), None);
    }
    here.on_durable(LogEnd(2));
    let mut gates = Vec::new();
    while let Some(step) = here.next_step() {
        let Step::Execute(rpc, at) = step else { panic!("{step:?}") };
        gates.extend(here.executed(rpc, at, LogEnd(3), Origin::Now).map(|(gate, _)| gate));
    }
    assert_eq!(gates.len(), 2, "the first waits for nothing");
    (here, gates)
}

/// What a participant says that has executed a transaction behind another one.
fn executed_behind(number: u64, behind: &[(u64, u64)]) -> Word {
    let said = Said::Executed { at: Timestamp(10 + number), recorded: false, settled: behind.is_empty() };
    let behind = behind.iter().map(|&(number, body)| Behind { rpc: rpc(number), body }).collect();
    Word { behind, ..word(number, said) }
}

#[test]
fn r8_4_a_row_settles_at_once_in_whatever_order_it_is_told() {
    for order in [[1, 2, 3], [3, 2, 1], [2, 1, 3]] {
        let (mut here, gates) = executed_row();
        let told: Vec<_> = here.take_words().into_iter().map(|(_, word)| (word.rpc, word.behind)).collect();
        let behind = |number| vec![Behind { rpc: rpc(number), body: BODY }];
        assert_eq!(told, [(rpc(1), vec![]), (rpc(2), behind(1)), (rpc(3), behind(2))]);
        for number in order {
            let behind = (number > 1).then_some((number - 1, BODY));
            assert_eq!(here.on_word(PEER, &executed_behind(number, behind.as_slice())), None);
        }
        assert!(all_steps(&mut here).is_empty() && gates.iter().all(|&gate| here.is_open(gate)), "{order:?}");
        here.on_durable(LogEnd(3));
        all_steps(&mut here);
        let said: Vec<_> = here.take_words().into_iter().map(|(_, word)| (word.rpc, word.said)).collect();
        let all = |number| (rpc(number), Said::Executed { at: Timestamp(10 + number), recorded: true, settled: true });
        assert_eq!(
            said,
            [all(1), all(2), all(3)],
            "that a gate has opened is known to whoever was told what it waits for"
        );
    }
}

#[test]
fn r8_4_a_told_gate_opens_by_that_transaction_only_and_by_all_that_it_waits_for() {
    let told: [&[(u64, u64)]; 3] = [&[(1, BODY + 1)], &[(9, BODY)], &[(1, BODY), (9, BODY)]];
    for behind in told {
        let (mut here, gates) = executed_row();
        for word in [executed_behind(1, &[]), executed_behind(2, behind)] {
            assert_eq!(here.on_word(PEER, &word), None);
        }
        all_steps(&mut here);
        assert!(
            here.is_open(gates[0]) && !here.is_open(gates[1]),
            "the second is executed here, and settled nowhere: {behind:?}"
        );
        assert_eq!(here.on_word(PEER, &executed_behind(2, &[])), None);
        all_steps(&mut here);
        assert!(here.is_open(gates[1]), "the other participant knows better");
    }
}

/// A participant that has executed a transaction behind these, and what it says of that.
fn told_behind(participants_of_others: &[ShardId], others: u64) -> Vec<Behind> {
    let mut here = participant();
    let read = Footprint::new([KEY], []);
    for number in 10..10 + others {
        let reader = Proposal { footprint: read.clone(), ..proposal(participants_of_others) };
        here.proposed(rpc(number), reader, Timestamp(number), LogEnd(2));
    }
    here.proposed(rpc(1), proposal(&[OWN, PEER]), Timestamp(100), LogEnd(2));
    here.on_durable(LogEnd(2));
    all_steps(&mut here);
    here.take_words();
    for number in (10..10 + others).chain([1]) {
        for peer in [PEER, ShardId(2)] {
            assert_eq!(here.on_word(peer, &word(number, Said::Proposed(Timestamp(5)))), None);
        }
    }
    while let Some(Step::Execute(rpc, at)) = here.next_step() {
        let _ = here.executed(rpc, at, LogEnd(3), Origin::Now);
    }
    here.take_words().into_iter().filter(|(_, word)| word.rpc == rpc(1)).flat_map(|(_, word)| word.behind).collect()
}

#[test]
fn r8_4_a_gate_is_told_whole_or_not_at_all() {
    assert_eq!(told_behind(&[OWN, PEER], 16).len(), 16);
    assert_eq!(told_behind(&[OWN, PEER], 17), [], "too many");
    assert_eq!(told_behind(&[OWN, ShardId(2)], 1), [], "the other one takes no part in it");
    assert_eq!(told_behind(&[OWN, PEER, ShardId(2)], 1).len(), 1);
}

#[test]
fn r8_4_who_was_told_a_gate_is_not_told_that_it_opens_but_when_it_asks() {
    let (mut here, gates) = executed_row();
    here.take_words();
    for (number, behind) in [(1, &[][..]), (2, &[(1, BODY)])] {
        assert_eq!(here.on_word(PEER, &executed_behind(number, behind)), None);
    }
    all_steps(&mut here);
    assert!(here.is_open(gates[0]));
    assert_eq!(here.take_words(), []);
    let asks = Word { asks: true, participants: vec![OWN, PEER], ..executed_behind(2, &[(1, BODY)]) };
    assert_eq!(here.on_word(PEER, &asks), None);
    let said = Said::Executed { at: Timestamp(12), recorded: false, settled: true };
    assert_eq!(here.take_words(), [(PEER, word(2, said))]);
}

#[test]
fn r8_4_an_older_word_takes_nothing_back() {
    let (mut here, gates) = executed_row();
    for word in [executed_behind(1, &[]), executed_behind(2, &[]), executed_behind(2, &[(9, BODY)])] {
        assert_eq!(here.on_word(PEER, &word), None);
    }
    all_steps(&mut here);
    assert!(here.is_open(gates[1]), "what was open once stays open");
}

/// For comparisons with two-phase commit: the client hears the vote, and tells the others. If it does not, they ask.
#[test]
fn a_vote_that_is_left_to_the_client_is_told_by_a_question_only() {
    let mut here = participant();
    here.leave_votes_to_clients();
    let coordinated = || Proposal { class: Class::Coordinated, ..proposal(&[OWN, PEER]) };
    here.proposed(rpc(1), coordinated(), Timestamp(10), LogEnd(2));
    here.ended(rpc(2), coordinated(), Why::Conflict, LogEnd(3));
    here.on_durable(LogEnd(3));
    all_steps(&mut here);
    assert_eq!(here.take_words(), []);
    here.ask_again();
    here.ask_again();
    let asked = |number, said| (PEER, Word { asks: true, participants: vec![OWN, PEER], ..word(number, said) });
    let all = [asked(1, Said::Proposed(Timestamp(10))), asked(2, Said::Against(Why::Conflict))];
    assert_eq!(here.take_words(), all);
    assert_eq!(here.on_word(PEER, &word(1, Said::Proposed(Timestamp(20)))), None);
    assert_eq!(here.next_step(), Some(Step::Execute(rpc(1), Timestamp(20))));
}
