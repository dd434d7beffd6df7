//! What a session sends at which level of its cluster (R7.6), and what it takes the time of day for (R10.12).

use std::time::Duration;

use crate::common::{CLIENT, DONE, Net, TABLE};
use kasha_client::session::{CallId, CallOptions, Completion, TransactionParts, WhyFailed, WhyNot};
use kasha_machine::Endpoint;
use kasha_types::{ConfigVersion, UnixMillis};
use kasha_wire::operation::{CommandBuffer, OwnedOperation, PartOperation};
use kasha_wire::{Kind, Later, Level, Update, message};

fn of_commands(commands: &[&[&str]]) -> TransactionParts {
    let mut parts = TransactionParts::default();
    for words in commands {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        let buffer = CommandBuffer::of_words(&words).expect("a command");
        parts.push(TABLE, &PartOperation::Command(buffer.as_command()));
    }
    parts
}

fn commands() -> OwnedOperation {
    let mut parts = of_commands(&[&["incr", "k"]]);
    parts.push(TABLE, &PartOperation::Update(Update::put(b"k", b"v")));
    parts.operation().1.expect("within the limits")
}

impl Net {
    fn told_level(&mut self, level: Level, origin: Option<UnixMillis>) {
        self.configuration.version = self.configuration.version.next();
        let (configuration, unix_origin) = (self.configuration.clone(), Later::at(level, origin));
        self.message(Endpoint::Coordinator, &message::ConfigurationIs { configuration, level, unix_origin });
    }

    fn transaction(&mut self, operation: &OwnedOperation) -> CallId {
        let options = CallOptions::default();
        self.with(|session, now, out| session.update_encoded(now, TABLE, operation, &options, out))
    }

    fn query(&mut self) -> CallId {
        let operation = of_commands(&[&["get", "k"]]).query().1.expect("within the limits");
        self.with(|session, now, out| session.read_encoded(now, TABLE, &operation, None, out))
    }
}

#[test]
fn r7_6_what_the_cluster_does_not_know_is_not_sent() {
    let mut net = Net::open(|_| ());
    let id = net.transaction(&commands());
    assert_eq!(net.completion_of(id), Completion::NotExecuted(WhyNot::Level));
    let id = net.query();
    assert_eq!(net.completion_of(id), Completion::ReadFailed(WhyFailed::NotPossible(WhyNot::Level)));
    assert!(net.take(Kind::Request).is_empty() && net.take(Kind::Read).is_empty());
    // What each level has is sent at each.
    let mut parts = TransactionParts::default();
    parts.push(TABLE, &PartOperation::Update(Update::put(b"k", b"v")));
    net.transaction(&parts.operation().1.expect("within the limits"));
    assert_eq!(net.take(Kind::Request).len(), 1);
    net.told_level(Level::COMMANDS, None);
    net.transaction(&commands());
    net.query();
    assert_eq!((net.take(Kind::Request).len(), net.take(Kind::Read).len()), (1, 1));
    // An older message says less.
    net.configuration.version = ConfigVersion(1);
    net.told_level(Level::FIRST, None);
    net.query();
    assert_eq!(net.take(Kind::Read).len(), 1);
}

#[test]
fn r7_6_what_comes_before_the_level_is_known_waits_for_that() {
    for (level, is_sent) in [(Level::FIRST, false), (Level::COMMANDS, true)] {
        let mut net = Net::new(|_| ());
        let id = net.transaction(&commands());
        net.told_level(level, None);
        net.pass(Duration::from_millis(1));
        if !is_sent {
            assert_eq!(net.completion_of(id), Completion::NotExecuted(WhyNot::Level));
            continue;
        }
        net.open_session(CLIENT);
        let request = net.take_one(Kind::Request);
        net.answer(&request, DONE, true);
        assert!(matches!(net.completion_of(id), Completion::Executed { .. }));
    }
}

#[test]
fn r10_12_the_time_of_day_goes_on_with_cluster_time() {
    const ORIGIN: u64 = 1_700_000_000_000;
    let mut net = Net::open(|_| ());
    assert_eq!(net.session.unix_time(net.now), None);
    net.told_level(Level::COMMANDS, Some(UnixMillis(ORIGIN)));
    net.told_level(Level::COMMANDS, Some(UnixMillis(1)));
    let told = |net: &Net| net.session.unix_time(net.now).expect("all is known").0;
    let before = told(&net);
    assert_eq!(before, ORIGIN + net.session.cluster_time(net.now).0, "said once");
    net.pass(Duration::from_secs(3));
    assert_eq!(told(&net), before + 3_000);
}
