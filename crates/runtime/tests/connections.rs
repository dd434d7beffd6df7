//! Frames over real sockets: cutting, handshakes, bad input, limits, closing.
#![allow(clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::{CLUSTER, Echo, Raw, Server, Stuck, frame, hello};
use kasha_machine::{Effect, Effects, Gate, Input, Machine};
use kasha_runtime::limits::Limits;
use kasha_runtime::{Clock, FrameFaults, HeapUse, Identity, LoopError, LoopOptions, listen};
use kasha_types::limits::FRAME_BYTES_MAX;
use kasha_types::{ClusterId, CoreId, LogSlice, NodeId, ShardId, Tick};
use kasha_wire::{AnyMessage, FRAME_HEADER_BYTES, FrameHeader, Kind, Message, WireVersion, WireVersions, message};

#[test]
fn many_connections_one_byte_at_a_time() {
    let server = Server::start(LoopOptions::default(), |_| Echo::new());
    let mut clients: Vec<Raw> = (0..50).map(|_| Raw::connect(server.address)).collect();
    let stream = |client: usize| {
        let mut bytes = hello(ClusterId(0), None);
        for number in 0..5u8 {
            bytes.extend(frame(Kind::Read, &[client as u8, number]));
        }
        bytes
    };
    for at in 0..stream(0).len() {
        for (index, client) in clients.iter_mut().enumerate() {
            client.0.write_all(&stream(index)[at..=at]).unwrap();
        }
    }
    for (index, client) in clients.iter_mut().enumerate() {
        client.message();
        for number in 0..5 {
            assert_eq!(client.answer(), [index as u8, number]);
        }
    }
    let stats = server.stop();
    assert_eq!((stats.accepted, stats.frames_received, stats.bad_frames), (50, 250, 0));
}

#[test]
fn large_frames_pass() {
    let server = Server::start(LoopOptions::default(), |_| Echo::new());
    let mut client = Raw::greeted(server.address);
    for len in [0, 1, 100_000, 3_000_000] {
        let payload: Vec<u8> = (0..len).map(|at: u32| at.to_le_bytes()[0]).collect();
        client.send(&payload);
        assert_eq!(client.answer(), payload);
    }
    server.stop();
}

#[test]
fn the_loop_itself_tells_what_it_has_used_up() {
    let heap = || HeapUse { allocations: 7, bytes: 11 };
    let faults = FrameFaults { drop_per_mille: 1000, duplicate_per_mille: 0, seed: 1 };
    let options = LoopOptions { heap: Some(heap), faults: Some(faults), ..LoopOptions::default() };
    let echo = Echo::new();
    let handled = Arc::clone(&echo.handled);
    let server = Server::start(options, move |_| echo);
    let mut client = Raw::greeted(server.address);
    let mut usage = |id: u64| {
        let mut question = Vec::new();
        message::GetUsage { id }.encode(&mut question);
        client.0.write_all(&question).unwrap();
        match client.message() {
            AnyMessage::UsageIs(message::UsageIs { id: answered, usage }) if answered == id => usage,
            other => panic!("{other:?}"),
        }
    };
    let (first, second) = (usage(1), usage(2));
    let mut turns = |id: u64| {
        let mut question = Vec::new();
        message::GetTurns { id }.encode(&mut question);
        client.0.write_all(&question).unwrap();
        match client.message() {
            AnyMessage::TurnsAre(message::TurnsAre { id: answered, turns }) if answered == id => turns,
            other => panic!("{other:?}"),
        }
    };
    let (early, late) = (turns(3), turns(4));
    assert!(late.turns > early.turns && early.turns > second.turns && late.longest.nanos >= early.longest.nanos);
    assert!(late.longest.nanos > 0 && late.longest.nanos <= late.longest.elapsed_nanos);
    assert!(late.longest_since_asked.nanos <= late.longest.nanos);
    assert_eq!((first.allocations, first.heap_bytes), (7, 11));
    assert!(first.cpu_nanos > 0 && second.cpu_nanos > first.cpu_nanos && second.turns > first.turns);
    server.stop();
    assert_eq!(handled.load(Ordering::SeqCst), 0, "no machine hears of it");
}

#[test]
fn bad_frames_are_told_why_and_the_process_lives() {
    let server = Server::start(LoopOptions::default(), |_| Echo::new());
    let good = frame(Kind::Read, b"payload");
    let change = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bad
    };
    let too_long = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_le_bytes();
    let cases = [
        (change(8, b"XX"), "not a Kasha frame"),
        (change(10, &[99]), "wire version 99"),
        (change(0, &too_long), "over the limit"),
        (change(18, b"x"), "checksum"),
    ];
    for (bad, why) in &cases {
        let mut client = Raw::greeted(server.address);
        client.send(b"first");
        assert_eq!(client.answer(), b"first");
        // What follows a bad frame is never looked at.
        client.0.write_all(&[bad.as_slice(), &good, &good].concat()).unwrap();
        let reason = client.goodbye();
        assert!(reason.contains(why), "{reason:?} tells of {why:?}");
    }
    let mut unknown = Vec::new();
    let start = kasha_wire::frame::begin(&mut unknown, Kind::Read);
    unknown[12] = 200;
    kasha_wire::frame::end(&mut unknown, start, &[]);
    let mut client = Raw::greeted(server.address);
    client.0.write_all(&unknown).unwrap();
    assert!(client.goodbye().contains("kind 200"));
    let mut client = Raw::greeted(server.address);
    client.send(b"alive");
    assert_eq!(client.answer(), b"alive");
    assert_eq!(server.stop().bad_frames, 5);
}

#[test]
fn handshakes_that_do_not_fit_are_told_why() {
    let server = Server::start(LoopOptions::default(), |_| Echo::new());
    let other_core = CoreId { node: NodeId(2), core: 0 };
    let mut no_hello = frame(Kind::Read, b"hi");
    kasha_wire::frame::restamp(&mut no_hello, WireVersion::HANDSHAKE);
    let mut wrong_version = hello(CLUSTER, None);
    wrong_version[10] = 77;
    let cases = [
        (hello(ClusterId(8), None), "this is cluster-7, not cluster-8"),
        (hello(CLUSTER, Some(other_core)), "this is node-1/0, not node-2/0"),
        (no_hello, "first frame must be a Hello"),
        (wrong_version, "wire version 77"),
    ];
    for (first, why) in cases {
        let mut client = Raw::connect(server.address);
        client.0.write_all(&first).unwrap();
        let is_frame = first[10] == WireVersion::HANDSHAKE.0;
        let reason = if is_frame { client.goodbye() } else { client.text() };
        assert!(reason.contains(why), "{reason:?} tells of {why:?}");
    }
    let stats = server.stop();
    assert_eq!((stats.refused, stats.bad_frames, stats.frames_received), (3, 1, 0));
}

/// R7.6: a Hello is of one version for ever; what follows is of the version that both speak, and of no other.
#[test]
fn frames_behind_the_handshake_are_of_the_agreed_version() {
    let versions = |least, latest| WireVersions::new(WireVersion(least), WireVersion(latest)).unwrap();
    let identity = Identity { versions: versions(11, 12), ..crate::support::server_identity() };
    let anywhere = "127.0.0.1:0".parse().unwrap();
    let server = Server::start_as(identity, anywhere, LoopOptions::default(), |_| Echo::new());
    let greet = |least, latest| {
        let mut hello = Vec::new();
        let incarnation = kasha_types::Incarnation(0);
        message::Hello { versions: versions(least, latest), cluster: CLUSTER, from: None, incarnation, to: None }
            .encode(&mut hello);
        let mut client = Raw::connect(server.address);
        client.0.write_all(&hello).unwrap();
        client
    };
    let mut client = greet(12, 13);
    let welcome = client.message();
    assert!(matches!(&welcome, AnyMessage::Welcome(welcome) if welcome.version == WireVersion(12)), "{welcome:?}");
    let mut asked = frame(Kind::Read, b"in version 12");
    kasha_wire::frame::restamp(&mut asked, WireVersion(12));
    client.0.write_all(&asked).unwrap();
    let mut answer = vec![0; FRAME_HEADER_BYTES + b"in version 12".len()];
    client.0.read_exact(&mut answer).unwrap();
    let header = FrameHeader::parse_of(WireVersion(12), &answer).unwrap().unwrap();
    assert_eq!(header.check(&answer).unwrap(), b"in version 12");
    // What was agreed on binds, and a frame of another version ends the connection.
    let mut other = frame(Kind::Read, b"in version 11");
    kasha_wire::frame::restamp(&mut other, WireVersion(11));
    client.0.write_all(&other).unwrap();
    let mut goodbye = Vec::new();
    client.0.read_to_end(&mut goodbye).unwrap();
    assert_eq!(goodbye[10], 12);
    let told = String::from_utf8_lossy(&goodbye);
    assert!(told.contains("wire version 11, where 12 is spoken") && told.contains("(K0206)"), "{told}");
    let told = greet(13, 14).goodbye();
    assert!(told.contains("wire versions 13 to 14, but this side speaks wire versions 11 to 12"), "{told}");
    let stats = server.stop();
    assert_eq!((stats.refused, stats.bad_frames, stats.frames_received), (1, 1, 1));
}

#[test]
fn who_says_nothing_or_stops_in_the_middle_is_closed() {
    let limits =
        Limits { handshake: Duration::from_millis(500), stall: Duration::from_millis(500), ..Limits::default() };
    let echo = Echo::new();
    let closed = Arc::clone(&echo.closed);
    let server = Server::start(LoopOptions { limits, ..LoopOptions::default() }, |_| echo);
    assert!(Raw::connect(server.address).text().contains("no Hello"));
    let mut client = Raw::greeted(server.address);
    client.0.write_all(&frame(Kind::Read, b"never whole")[..20]).unwrap();
    assert!(client.receive().is_none());
    let mut idle = Raw::greeted(server.address);
    std::thread::sleep(Duration::from_millis(1200));
    idle.send(b"an idle connection stays");
    idle.answer();
    assert_eq!(closed.load(Ordering::SeqCst), 1);
    assert_eq!(server.stop().stalled, 2);
}

#[test]
fn connections_have_a_limit() {
    let limits = Limits { connections: 3, ..Limits::default() };
    let server = Server::start(LoopOptions { limits, ..LoopOptions::default() }, |_| Echo::new());
    let mut clients: Vec<Raw> = (0..3).map(|_| Raw::greeted(server.address)).collect();
    // All are told why, however many come together, and whatever they said meanwhile.
    let mut crowd: Vec<Raw> = (0..200).map(|_| Raw::connect(server.address)).collect();
    for client in &mut crowd {
        let _ = client.0.write_all(&hello(CLUSTER, None));
    }
    // Whoever does not close takes no place from those who come later.
    let idle: Vec<Raw> = (0..200).map(|_| Raw::connect(server.address)).collect();
    for mut client in crowd.into_iter().chain([Raw::connect(server.address)]) {
        let told = client.text();
        assert!(told.starts_with("KASHA ") && told.contains("3 connections"), "{told}");
    }
    drop(idle);
    clients[0].send(b"bye");
    assert_eq!(clients[0].answer(), b"bye");
    assert!(clients[0].receive().is_none(), "disconnected after its answer");
    drop(clients.remove(0));
    // The server learns of the end a moment later.
    let mut again = loop {
        let mut client = Raw::connect(server.address);
        client.0.write_all(&hello(CLUSTER, None)).unwrap();
        let mut first = [0; 4];
        client.0.peek(&mut first).unwrap();
        if &first != b"KASH" && matches!(client.message(), AnyMessage::Welcome(_)) {
            break client;
        }
    };
    again.send(b"in");
    assert_eq!(again.answer(), b"in");
    server.stop();
}

/// Found from outside: `redis-cli`, `curl` and a TLS client printed nothing that helps.
#[test]
fn strangers_get_an_answer_that_they_can_print() {
    let server = Server::start(LoopOptions::default(), |_| Echo::new());
    for (said, answer) in [
        (&b"PING\r\n"[..], "KASHA "),
        (b"*1\r\n$4\r\nPING\r\n", "-KASHA "),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.0 400 KASHA "),
        (b"\x16\x03\x01\x00\xf8\x01\x00\x00\xf4\x03\x03\x00\x00\x00\x00\x00\x00", "KASHA "),
    ] {
        let mut client = Raw::connect(server.address);
        client.0.write_all(said).unwrap();
        let told = client.text();
        assert!(told.starts_with(answer) && told.contains("K0202"), "{told}");
    }
    server.stop();
}

#[test]
fn disconnect_lets_everything_sent_leave_first() {
    let echo = Echo { times: 3_000_000, ..Echo::new() };
    let server = Server::start(LoopOptions::default(), |_| echo);
    let mut client = Raw::greeted(server.address);
    client.send(b"bye");
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(client.answer().len(), 9_000_000);
    assert!(client.receive().is_none());
    server.stop();
}

/// What a counter comes to when it counts no more.
fn settled(counter: &AtomicU64) -> u64 {
    let mut before = u64::MAX;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = counter.load(Ordering::SeqCst);
        if now == before {
            return now;
        }
        before = now;
    }
}

#[test]
fn a_client_whose_answers_are_held_is_not_heard_until_they_leave() {
    const REQUESTS: u32 = 20_000;
    const LEN: usize = 1024;
    let limits = Limits { output_pause_bytes: 64 * 1024, ..Limits::default() };
    for (last_word, is_answered) in [("open", true), ("drop", false)] {
        let stuck = Stuck::default();
        let handled = Arc::clone(&stuck.handled);
        let server = Server::start(LoopOptions { limits, ..LoopOptions::default() }, |_| stuck);
        let mut client = Raw::greeted(server.address);
        let mut writer = Raw(client.0.try_clone().unwrap());
        let writing = std::thread::spawn(move || {
            for number in 0..REQUESTS {
                writer.send(&number.to_le_bytes().repeat(LEN / 4));
            }
        });
        let before = settled(&handled);
        assert!(before < u64::from(REQUESTS), "the loop stopped reading: {before}");
        let mut other = Raw::greeted(server.address);
        other.send(last_word.as_bytes());
        assert_eq!(other.answer(), last_word.as_bytes(), "others are heard");
        if is_answered {
            for number in 0..REQUESTS {
                assert_eq!(client.answer(), number.to_le_bytes().repeat(LEN / 4));
            }
        } else {
            // What was held is forgotten, so the client is heard again.
            assert!(settled(&handled) > before);
            client.0.shutdown(std::net::Shutdown::Both).unwrap();
        }
        let _ = writing.join();
        server.stop();
    }
}

#[test]
fn a_client_that_does_not_read_is_not_served_more() {
    const REQUESTS: u32 = 20_000;
    let limits = Limits { output_pause_bytes: 64 * 1024, ..Limits::default() };
    let echo = Echo { times: 1024, ..Echo::new() };
    let handled = Arc::clone(&echo.handled);
    let server = Server::start(LoopOptions { limits, ..LoopOptions::default() }, |_| echo);
    let mut client = Raw::greeted(server.address);
    let mut writer = Raw(client.0.try_clone().unwrap());
    let writing = std::thread::spawn(move || {
        for number in 0..REQUESTS {
            writer.send(&number.to_le_bytes());
        }
    });
    assert!(settled(&handled) < u64::from(REQUESTS), "the loop stopped reading");
    for number in 0..REQUESTS {
        let answer = client.answer();
        assert_eq!((answer.len(), &answer[..4]), (4096, &number.to_le_bytes()[..]));
    }
    writing.join().unwrap();
    server.stop();
}

#[test]
fn a_queue_past_its_limit_closes_the_connection() {
    let limits = Limits { output_close_bytes: 8 * 1024 * 1024, ..Limits::default() };
    let echo = Echo { times: 4_000_000, ..Echo::new() };
    let closed = Arc::clone(&echo.closed);
    let server = Server::start(LoopOptions { limits, ..LoopOptions::default() }, |_| echo);
    let mut client = Raw::greeted(server.address);
    client.0.write_all(&frame(Kind::Read, b"abcd").repeat(10)).unwrap();
    while closed.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(server.stop().overflowed, 1);
}

#[test]
fn many_that_do_not_read_are_too_much_together() {
    let limits = Limits { backlog_total_bytes: 20 * 1024 * 1024, ..Limits::default() };
    let echo = Echo { times: 4_000_000, ..Echo::new() };
    let closed = Arc::clone(&echo.closed);
    let server = Server::start(LoopOptions { limits, ..LoopOptions::default() }, |_| echo);
    // Each is within its own limit.
    let mut clients: Vec<Raw> = (0..5).map(|_| Raw::greeted(server.address)).collect();
    for client in &mut clients {
        client.send(b"abcd");
    }
    while closed.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!((1..5).contains(&server.stop().overflowed));
}

#[test]
fn a_delayed_link_keeps_order_and_is_never_early() {
    let link_delay = Duration::from_millis(20);
    let server = Server::start(LoopOptions { link_delay, ..LoopOptions::default() }, |_| Echo::new());
    let mut clients: Vec<Raw> = (0..3).map(|_| Raw::greeted(server.address)).collect();
    let sent = Clock::now();
    for number in 0..500u32 {
        for client in &mut clients {
            client.send(&number.to_le_bytes());
        }
    }
    for client in &mut clients {
        for number in 0..500u32 {
            assert_eq!(client.answer(), number.to_le_bytes());
            assert!(Clock::now().since(sent) >= link_delay);
        }
    }
    server.stop();
}

#[test]
fn injected_faults_lose_and_double_frames() {
    let faults = Some(FrameFaults { drop_per_mille: 300, duplicate_per_mille: 300, seed: 1 });
    let server = Server::start(LoopOptions { faults, ..LoopOptions::default() }, |_| Echo::new());
    let mut client = Raw::greeted(server.address);
    for number in 0..1000u32 {
        client.send(&number.to_le_bytes());
    }
    // One of so many surely arrives.
    for _ in 0..50 {
        client.send(b"last");
    }
    let mut counts = [0u32; 1000];
    loop {
        let answer = client.answer();
        if answer == b"last" {
            break;
        }
        counts[u32::from_le_bytes(answer.try_into().unwrap()) as usize] += 1;
    }
    assert!(counts.contains(&0) && counts.contains(&2));
    server.stop();
}

#[test]
fn a_machine_may_stop_the_process() {
    let server = Server::start(LoopOptions::default(), |_| Echo::new());
    let mut client = Raw::greeted(server.address);
    client.send(b"stop");
    match server.failure() {
        LoopError::Stopped(why) => assert_eq!(why, "asked to"),
        other => panic!("{other}"),
    }
}

#[test]
fn a_port_in_use_says_what_to_do() {
    let (_held, address) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let text = listen(address).unwrap_err().to_string();
    assert!(text.contains("another process listens there") && text.contains(&address.to_string()), "{text}");
}

/// Answers with a small frame, then with one whose payload lies in its log.
struct FromLog(Vec<u8>);

impl Machine for FromLog {
    fn step(&mut self, _: Tick, input: Input<'_>, out: &mut Effects) {
        if let Input::Frame { from, payload, .. } = input {
            crate::support::send(out, from, payload, Gate::Now);
            let mark = out.mark();
            let start = kasha_wire::frame::begin(out.arena(), Kind::Append);
            kasha_wire::frame::end(&mut out.arena()[mark..], start - mark, &self.0);
            let head = out.span_from(mark);
            let tail = Some(LogSlice { shard: ShardId(0), offset: 0, len: u32::try_from(self.0.len()).unwrap() });
            out.push(Effect::Send { to: from, head, tail, gate: Gate::Now });
        }
    }
    fn end_turn(&mut self, _: Tick, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, _: Gate) -> bool {
        true
    }
    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        &self.0[..slice.len as usize]
    }
}

#[test]
fn bytes_of_the_log_are_sent_from_where_they_lie_in_order() {
    let log: Vec<u8> = (0..700_000u32).map(|at| at.to_le_bytes()[1]).collect();
    let expected = log.clone();
    let server = Server::start(LoopOptions::default(), |_| FromLog(log));
    let mut client = Raw::greeted(server.address);
    for number in 0..100u32 {
        client.send(&number.to_le_bytes());
    }
    // Long enough that the socket is full and the rest is queued.
    std::thread::sleep(Duration::from_millis(100));
    for number in 0..100u32 {
        assert_eq!(client.answer(), number.to_le_bytes());
        let (kind, payload) = client.receive().unwrap();
        assert!(kind == Kind::Append as u8 && payload == expected);
    }
    server.stop();
}
