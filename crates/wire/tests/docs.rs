//! `docs/wire.md` says what the code does.

use std::fmt::Debug;

use crate::common::{Count, Sample, encoded};
use kasha_types::*;
use kasha_wire::frame::Kind;
use kasha_wire::link::{Handshake, ToClient, ToCoordinator, ToLoop, ToNode, ToOperator};
use kasha_wire::message::{
    AdminOrder, AdminOutcome, AttachAt, Holding, Placement, Report, TableCommand, TableOutcome, Told,
};
use kasha_wire::operation::{Answer, Check, Condition};
use kasha_wire::outcome::Shape;
use kasha_wire::status::{CleanerState, Memory};
use kasha_wire::{
    Durability, Level, MemberState, Message, OutcomeCode, Read, Reader, RecordedVerdict, Refusal, ShardPhase, Update,
    WIRE_VERSION, Wire, WireVersion,
};

const PAGE: &str = include_str!("../../../docs/wire.md");
const SOURCES: [&str; 9] = [
    include_str!("../src/hot.rs"),
    include_str!("../src/message.rs"),
    include_str!("../src/configuration.rs"),
    include_str!("../src/status.rs"),
    include_str!("../src/version.rs"),
    include_str!("../src/word.rs"),
    include_str!("../../types/src/ids.rs"),
    include_str!("../../types/src/port.rs"),
    include_str!("../../types/src/position.rs"),
];

/// Rows of the table under this heading, cells trimmed.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let start = PAGE.find(&format!("# {heading}\n")).unwrap_or_else(|| panic!("no heading {heading}"));
    let lines = PAGE[start..].lines().skip(1).take_while(|line| !line.starts_with('#'));
    let rows = lines.filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The first two cells of a table's rows.
fn numbered(heading: &str) -> Vec<(u8, String)> {
    table(heading).iter().map(|row| (row[0].parse().unwrap(), row[1].to_owned())).collect()
}

/// "name `Type`, …" of the fields declared behind `opener` in the sources.
fn declared(opener: &str) -> String {
    let source = SOURCES.iter().find(|source| source.contains(opener)).unwrap_or_else(|| panic!("no {opener}"));
    let lines = source[source.find(opener).unwrap()..].lines().skip(1).map(str::trim);
    let fields = lines.take_while(|line| !line.starts_with('}')).filter(|line| !line.starts_with("///"));
    let fields = fields.map(|line| {
        let (name, ty) = line.trim_end_matches(',').split_once(": ").unwrap();
        let ty = ty.rsplit("::").next().unwrap();
        let ty = ty.strip_prefix("Box<").map_or(ty, |ty| ty.trim_end_matches('>'));
        format!("{} `{ty}`", name.trim_start_matches("pub "))
    });
    fields.collect::<Vec<_>>().join(", ")
}

/// Number and name of each choice of an enum. Fields of zeros are fields of any of them.
fn choices<T: Wire + Debug>() -> Vec<(u8, String)> {
    let known = (0..=u8::MAX).filter_map(|number| {
        let mut bytes = [0; 256];
        bytes[0] = number;
        let shown = format!("{:?}", Reader::new(&bytes).take::<T>().ok()?);
        Some((number, shown.chars().take_while(|letter| letter.is_alphanumeric()).collect()))
    });
    known.collect()
}

/// The page without line breaks.
fn text() -> String {
    PAGE.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Found by an outsider: the page said version 9 at its top, and 7 in the table of the frame.
#[test]
fn versions() {
    let text = text();
    let told: Vec<u8> = text
        .match_indices("wire version")
        .filter_map(|(at, found)| {
            let behind = text[at + found.len()..].trim_start_matches([',', ' ']);
            behind.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
        })
        .collect();
    assert!(told.len() >= 2, "{told:?}");
    assert!(told.iter().all(|&version| version == WIRE_VERSION.0), "{told:?}");
    assert!(text.contains(&format!("KASHA {WIRE_VERSION} <reason>")));
}

#[test]
fn numbers_in_the_text() {
    use kasha_types::limits::*;
    let mib = |bytes: usize| {
        assert_eq!(bytes % (1 << 20), 0);
        format!("{} MiB", bytes >> 20)
    };
    let mut frame = Vec::new();
    kasha_wire::message::Ping { sent: Tick(0) }.encode(&mut frame);
    let [low, high] = [frame[8], frame[9]];
    let text = text();
    for told in [
        format!("| 8 | 2 | magic `0x{high:02X}{low:02X}`: the bytes `{low:02X} {high:02X}` |"),
        format!("length of the payload, at most {} |", mib(FRAME_BYTES_MAX)),
        format!("bytes of the operation key, at most {OPERATION_KEY_BYTES_MAX}"),
        format!("A body has at most {}, a key at most {KEY_BYTES_MAX} bytes", mib(BODY_BYTES_MAX)),
        format!("a value at most {}. An operation has 1 to {OPERATION_KEYS_MAX} keys", mib(VALUE_BYTES_MAX)),
        format!("A transaction may write and answer {} together", mib(TRANSACTION_BYTES_MAX)),
        format!("their number `u16`, from 2 to {PARTICIPANTS_MAX}, and"),
        format!("no reflection), modulo {SLOTS}."),
        format!("more than {OUTSTANDING_MAX} above the client's acknowledgement"),
        format!("if `f` is above {FAULTS_MAX}, if there are more than {SHARDS_MAX} shards"),
    ] {
        assert!(text.contains(&told), "{told}");
    }
}

/// What a client does about each refusal.
#[test]
fn refusals() {
    let mut told: Vec<_> = table("What refusals mean").iter().flat_map(|row| row[0].split(", ")).collect();
    let ours = choices::<Refusal>();
    let mut ours: Vec<_> = ours.iter().map(|(_, name)| name.as_str()).collect();
    told.sort_unstable();
    ours.sort_unstable();
    assert_eq!(told, ours);
}

#[test]
fn kinds() {
    let ours: Vec<_> = Kind::ALL.iter().map(|&kind| (kind as u8, format!("{kind:?}"))).collect();
    assert_eq!(numbered("Kinds"), ours);
}

/// Who takes the message with this number.
fn receivers(number: u8) -> String {
    if Handshake::carries(number) {
        return "connection".into();
    }
    let links = [
        ("client", ToClient::carries(number)),
        ("coordinator", ToCoordinator::carries(number)),
        ("node", ToNode::carries(number)),
        ("operator", ToOperator::carries(number)),
        ("event loop", ToLoop::carries(number)),
    ];
    let names: Vec<_> = links.iter().filter(|link| link.1).map(|link| link.0).collect();
    if names.is_empty() { "asker".into() } else { names.join(", ") }
}

#[test]
fn messages() {
    let ours: Vec<_> = kasha_wire::message::TABLE.iter().map(|&(name, number)| (number, name.to_owned())).collect();
    assert_eq!(numbered("Messages"), ours);
    for row in table("Messages") {
        assert_eq!(row[2], receivers(row[0].parse().unwrap()), "{}", row[1]);
        assert_eq!(row[3], declared(&format!("    {} = {} {{\n", row[1], row[0])), "{}", row[1]);
    }
}

#[test]
fn structures() {
    let rows = table("Structures");
    assert_eq!(rows.len(), 36);
    for row in rows {
        assert_eq!(row[1], declared(&format!("pub struct {} {{\n", row[0])), "{}", row[0]);
    }
}

#[test]
fn all_choices() {
    macro_rules! ours {
        ($($ty:ident),* $(,)?) => { vec![$((stringify!($ty), choices::<$ty>())),*] };
    }
    let mut ours = ours![
        Durability,
        MemberState,
        ShardPhase,
        Memory,
        CleanerState,
        Work,
        RecordedVerdict,
        Holding,
        Refusal,
        Placement,
        TableCommand,
        TableOutcome,
        AdminOrder,
        AdminOutcome,
        Report,
        AttachAt,
        Told,
    ];
    let rows = table("Choices");
    let mut told: Vec<_> = rows
        .iter()
        .map(|row| {
            let choices = row[1].split([',', ';']).filter_map(|choice| {
                let (number, name) = choice.trim().split_once(' ')?;
                Some((number.parse().ok()?, name.split(':').next()?.to_owned()))
            });
            (row[0], choices.collect::<Vec<(u8, String)>>())
        })
        .collect();
    ours.sort_unstable();
    told.sort_unstable();
    assert_eq!(told, ours);
}

#[test]
fn operations_and_outcomes() {
    let ours = Update::ALL.iter().chain(Read::ALL).map(|row| (row.code, row.name.to_owned()));
    assert_eq!(numbered("Operations"), ours.collect::<Vec<_>>());
    let checks = Check::ALL.iter().map(|row| (row.code, row.name.to_owned()));
    assert_eq!(numbered("Checks"), checks.collect::<Vec<_>>());
    let numbers = |title| numbered(title).iter().map(|row| row.0).collect::<Vec<_>>();
    assert_eq!(numbers("Conditions"), Condition::CODES);
    assert_eq!(numbers("Answers"), Answer::CODES);
    let of_one_key = (0..=u8::MAX).filter(|&number| Shape::from_number(number).is_some_and(Shape::is_of_a_part));
    assert_eq!(numbers("Shapes"), of_one_key.collect::<Vec<_>>());
    let outcomes = (0..=u8::MAX).filter_map(|code| Some((code, format!("{:?}", OutcomeCode::from_number(code)?))));
    assert_eq!(numbered("Results"), outcomes.collect::<Vec<_>>());
}

#[test]
fn sizes_of_ids() {
    let mut rows: Vec<(&str, usize)> = Vec::new();
    for row in table("Everything else: fields in order") {
        if let Ok(bytes) = row[1].parse() {
            rows.extend(row[0].split(", ").map(|name| (name.trim_matches('`'), bytes)));
        }
    }
    fn size<T: Sample + Wire>(name: &'static str) -> (&'static str, usize) {
        (name, encoded(&T::one(&mut Count(0))).len())
    }
    macro_rules! sizes {
        ($($ty:ident),*) => { [$(size::<$ty>(stringify!($ty))),*] };
    }
    let mut ours = sizes!(
        WireVersion,
        NodeId,
        ShardId,
        Slot,
        Level,
        Epoch,
        TableId,
        SegmentId,
        AckedBelow,
        AttachId,
        BodyHash,
        ClientId,
        ClusterId,
        ClusterTime,
        ConfigVersion,
        Incarnation,
        KeyHash,
        ListVersion,
        LogEnd,
        MemberId,
        ViewNumber,
        Round,
        Sequence,
        Tick,
        UnixMillis,
        BootId
    );
    ours.sort_unstable();
    rows.sort_unstable();
    assert_eq!(rows, ours);
}

/// Offsets in the tables follow from the sizes before them.
#[test]
fn offsets_add_up() {
    for (heading, total) in
        [("Frames", 16), ("Envelope", 32), ("Body", 48), ("Answer", 32), ("Reads", 48), ("Log bytes", 40)]
    {
        let mut end = 0;
        for row in table(heading) {
            let Ok(offset) = row[0].parse::<usize>() else { break };
            assert_eq!(offset, end, "{heading}");
            end += row[1].parse::<usize>().unwrap_or(0);
        }
        assert_eq!(end, total, "{heading}");
    }
}
