//! `docs/wire.md` says what the code does.

mod common;

use std::fmt::Debug;

use common::{Count, Sample, encoded};
use kasha_types::*;
use kasha_wire::frame::Kind;
use kasha_wire::hot::decode_small;
use kasha_wire::link::{Handshake, ToClient, ToCoordinator, ToLoop, ToNode, ToOperator};
use kasha_wire::operation::Check;
use kasha_wire::{DecodeError, Message, OutcomeCode, Read, RecordedVerdict, Refusal, Update, Wire};

const PAGE: &str = include_str!("../../../docs/wire.md");
const SOURCES: [&str; 7] = [
    include_str!("../src/hot.rs"),
    include_str!("../src/message.rs"),
    include_str!("../src/configuration.rs"),
    include_str!("../src/status.rs"),
    include_str!("../src/word.rs"),
    include_str!("../../types/src/ids.rs"),
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

/// "number Name, …" of an enum of plain choices.
fn choices<T: Wire + Debug>() -> String {
    let known = (0..=u8::MAX).filter_map(|number| {
        let value: Result<T, DecodeError> = decode_small(&[number]);
        Some(format!("{number} {:?}", value.ok()?))
    });
    known.collect::<Vec<_>>().join(", ")
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
    assert_eq!(rows.len(), 32);
    for row in rows {
        assert_eq!(row[1], declared(&format!("pub struct {} {{\n", row[0])), "{}", row[0]);
    }
}

#[test]
fn plain_choices() {
    let rows = table("Choices");
    let row = |name: &str| rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no {name}"))[1];
    assert_eq!(row("Durability"), choices::<kasha_wire::Durability>());
    assert_eq!(row("MemberState"), choices::<kasha_wire::MemberState>());
    assert_eq!(row("ShardPhase"), choices::<kasha_wire::ShardPhase>());
    assert_eq!(row("Memory"), choices::<kasha_wire::status::Memory>());
    assert_eq!(row("Work"), choices::<Work>());
    assert_eq!(row("RecordedVerdict"), choices::<RecordedVerdict>());
    assert_eq!(row("Holding"), choices::<kasha_wire::message::Holding>());
    assert_eq!(row("Refusal"), choices::<Refusal>());
}

#[test]
fn operations_and_outcomes() {
    let ours = Update::ALL.iter().chain(Read::ALL).map(|row| (row.code, row.name.to_owned()));
    assert_eq!(numbered("Operations"), ours.collect::<Vec<_>>());
    let checks = Check::ALL.iter().map(|row| (row.code, row.name.to_owned()));
    assert_eq!(numbered("Checks"), checks.collect::<Vec<_>>());
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
        NodeId,
        ShardId,
        Slot,
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
        Round,
        Sequence,
        Tick,
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
