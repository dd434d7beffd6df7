//! Garbage on every port: bytes of no protocol, of another version, cut short, flipped, or never read. The cluster goes
//! on.
#![allow(missing_docs)]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use kasha_machine::Rng;
use kasha_process_tests::PATIENCE;
use kasha_process_tests::cluster::{Cluster, NODES};
use kasha_process_tests::greeting::hello;
use kasha_process_tests::place::local;
use kasha_types::{ClusterId, ConfigVersion, Incarnation};
use kasha_wire::{
    AnyMessage, FRAME_HEADER_BYTES, FrameHeader, Kind, Message, ReadRefused, Recorded, Refused, WIRE_VERSION,
    WireVersion, WireVersions, frame, hot, message,
};

fn dial(port: u16) -> TcpStream {
    let stream = TcpStream::connect(local(port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    stream
}

/// All messages that arrive until the other side closes. What looks like a request may be refused in a frame of its own kind.
fn answers(stream: &mut TcpStream) -> Vec<AnyMessage> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("it does not close: {error}"),
    }
    let (mut messages, mut rest) = (Vec::new(), bytes.as_slice());
    // Whoever began with no frame is answered in text.
    if ["KASHA ", "-KASHA ", "HTTP/"].iter().any(|word| rest.starts_with(word.as_bytes())) {
        return messages;
    }
    while let Some(header) = FrameHeader::parse(rest).unwrap() {
        let (frame, behind) = rest.split_at(FRAME_HEADER_BYTES + header.payload_len);
        let payload = header.check(frame).unwrap();
        match Kind::from_number(header.kind).unwrap() {
            Kind::Message => messages.push(AnyMessage::decode(payload).unwrap()),
            Kind::Refuse => drop(hot::decode_small::<Refused>(payload).unwrap()),
            Kind::ReadRefuse => drop(hot::decode_small::<ReadRefused>(payload).unwrap()),
            Kind::Recorded => drop(hot::decode_small::<Recorded>(payload).unwrap()),
            kind => panic!("garbage is answered with {kind:?}"),
        }
        rest = behind;
    }
    messages
}

/// Sends bytes, ends its side, and returns what comes back until the other side closes.
fn talk(port: u16, bytes: &[u8]) -> Vec<AnyMessage> {
    let mut stream = dial(port);
    // The server may close while the test writes.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    answers(&mut stream)
}

/// The reason in the goodbye, which must come although the test does not end its side.
fn goodbye(port: u16, bytes: &[u8]) -> String {
    let mut stream = dial(port);
    let _ = stream.write_all(bytes);
    let last = answers(&mut stream).pop();
    let Some(AnyMessage::Goodbye(message::Goodbye { reason })) = last else { panic!("{last:?} is no goodbye") };
    reason
}

/// What is said in text, which must come although the test does not end its side.
fn text(port: u16, bytes: &[u8]) -> String {
    let mut stream = dial(port);
    let _ = stream.write_all(bytes);
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    said
}

fn with_byte(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

fn random_bytes(rng: &mut Rng, len: u64) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// A frame with a right checksum and a payload that means nothing.
fn nonsense(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let start = frame::begin(&mut bytes, kind);
    bytes.extend_from_slice(payload);
    frame::end(&mut bytes, start, &[]);
    bytes
}

fn no_protocol(port: u16, rng: &mut Rng) {
    for len in [1, 15, 16, 17, 1000, 300_000] {
        talk(port, &random_bytes(rng, len));
    }
    talk(port, b"");
    let told = text(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(told.contains("not a Kasha frame"), "{told}");
    // A program from before the handshake that is for ever.
    let told = text(port, &with_byte(hello(), 10, 10));
    assert!(told.contains("a greeting of wire version 10"), "{told}");
    let (least, latest) = (WireVersion(WIRE_VERSION.0 + 1), WireVersion(WIRE_VERSION.0 + 2));
    let mut later = Vec::new();
    message::Hello {
        versions: WireVersions::new(least, latest).expect("in order"),
        cluster: ClusterId(0),
        from: None,
        incarnation: Incarnation(0),
        to: None,
    }
    .encode(&mut later);
    let told = goodbye(port, &later);
    let versions = format!("wire versions {least} to {latest}, but this side speaks wire version {WIRE_VERSION}");
    assert!(told.contains(&versions), "{told}");
    let too_large = u32::MAX.to_le_bytes();
    let mut oversized = hello();
    oversized[..4].copy_from_slice(&too_large);
    let told = goodbye(port, &oversized);
    assert!(told.contains("over the limit"), "{told}");
    let told = goodbye(port, &with_byte(nonsense(Kind::Request, &[0; 100]), 10, WireVersion::HANDSHAKE.0));
    assert!(told.contains("the first frame must be a Hello"), "{told}");
    let mut other = Vec::new();
    message::Hello {
        versions: WireVersions::OURS,
        cluster: ClusterId(77),
        from: None,
        incarnation: Incarnation(0),
        to: None,
    }
    .encode(&mut other);
    let told = goodbye(port, &other);
    assert!(told.contains("not cluster-77"), "{told}");
}

fn cut_and_flipped(port: u16, rng: &mut Rng) {
    let mut question = hello();
    message::GetConfiguration { have: ConfigVersion(0) }.encode(&mut question);
    message::GetStatus { id: 1 }.encode(&mut question);
    for len in (0..question.len()).step_by(5) {
        talk(port, &question[..len]);
    }
    for bit in (0..question.len() * 8).step_by(7) {
        let mut flipped = question.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        talk(port, &flipped);
    }
    for &kind in Kind::ALL {
        for _ in 0..6 {
            // A node believes a message from another node if it can decode it. Three bytes never decode.
            let len = if kind == Kind::Message { 3 } else { rng.between(0, 120) };
            let payload = random_bytes(rng, len);
            talk(port, &[hello(), nonsense(kind, &payload)].concat());
        }
    }
    talk(port, &[hello(), with_byte(nonsense(Kind::Message, b""), 11, 200)].concat());
    talk(port, &[hello(), hello(), hello()].concat());
}

/// Asks repeatedly and reads nothing, until nothing more can be written.
fn ask_without_reading(port: u16) -> TcpStream {
    const ASKED_MAX: usize = 4 * 1024 * 1024;
    let mut stream = dial(port);
    let mut questions = hello();
    for id in 0..4096 {
        message::GetConfiguration { have: ConfigVersion(0) }.encode(&mut questions);
        message::GetStatus { id }.encode(&mut questions);
    }
    let mut asked = 0;
    while asked < ASKED_MAX && stream.write_all(&questions).is_ok() {
        asked += questions.len();
    }
    stream
}

#[test]
fn garbage_harms_nobody() {
    let mut cluster = Cluster::start("garbage", "2s", 3);
    let mut rng = Rng::new(1);
    let ports: Vec<_> = (0..=NODES).map(|node| cluster.port_of(node)).collect();
    // These connections stay open to the end: one sends nothing, one half a frame.
    let mut silent: Vec<_> = ports.iter().map(|&port| dial(port)).collect();
    let halves: Vec<_> = ports
        .iter()
        .map(|&port| {
            let mut stream = dial(port);
            stream.write_all(&[hello(), nonsense(Kind::Request, &[0; 100])[..60].to_vec()].concat()).unwrap();
            stream
        })
        .collect();
    for &port in &ports {
        no_protocol(port, &mut rng);
        cut_and_flipped(port, &mut rng);
    }
    cluster.is_unharmed();
    let deaf: Vec<_> = ports.iter().map(|&port| ask_without_reading(port)).collect();
    cluster.is_unharmed();
    for stream in &mut silent {
        let mut told = String::new();
        stream.read_to_string(&mut told).unwrap();
        assert!(told.starts_with("KASHA ") && told.contains("no Hello came"), "{told}");
    }
    drop((deaf, halves));
    cluster.is_unharmed();
    cluster.wait_until_healthy();
    for node in 1..=NODES {
        assert!(!cluster.node(node).said().contains("panicked"), "{}", cluster.node(node).said());
    }
}

#[test]
fn hundreds_of_idle_connections_harm_nobody() {
    // Fewer than the tests' own limit of descriptors; the limit itself is tried in the runtime's tests.
    const MANY: usize = 800;
    let mut cluster = Cluster::start("many", "2s", 3);
    let many: Vec<_> = (0..MANY).map(|number| dial(cluster.port_of(u16::try_from(number % 4).unwrap()))).collect();
    cluster.is_unharmed();
    drop(many);
    cluster.is_unharmed();
    cluster.wait_until_healthy();
}
