//! Requests of the Redis protocol over real sockets, beside a listener for frames: cutting, limits, bad input, closing.
#![allow(clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::support::{Echo, Folder, Raw, Server};
use kasha_runtime::limits::Limits;
use kasha_runtime::{Framing, Listener, ListeningSocket, LoopOptions, NetworkStats, listen, listen_at_path};
use kasha_types::{CorePort, PortUse};
use kasha_wire::requests::LINE_BYTES_MAX;

fn start(options: LoopOptions) -> (Server, SocketAddr) {
    start_with(options, Echo::new())
}

fn start_with(options: LoopOptions, echo: Echo) -> (Server, SocketAddr) {
    let (socket, address) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let socket = ListeningSocket::Tcp(socket);
    let options = LoopOptions { listen: vec![Listener { socket, framing: Framing::Requests }], ..options };
    (Server::start(options, |_| echo), address)
}

/// Reads exactly this.
fn expect(client: &mut Raw, text: &[u8]) {
    let mut got = vec![0; text.len()];
    client.0.read_exact(&mut got).unwrap();
    assert_eq!(got.escape_ascii().to_string(), text.escape_ascii().to_string());
}

/// The other side has ended.
fn expect_end(client: &mut Raw) {
    let mut rest = Vec::new();
    // Input that was not read makes the system reset the connection.
    let _ = client.0.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{}", rest.escape_ascii());
}

#[test]
fn each_listener_has_its_framing() {
    let (server, address) = start(LoopOptions::default());
    let (mut text, mut frames) = (Raw::connect(address), Raw::greeted(server.address));
    text.0.write_all(b"one\ntwo\r\n\nha").unwrap();
    expect(&mut text, b"one!\ntwo!\n");
    frames.send(b"a frame");
    assert_eq!(frames.answer(), b"a frame");
    text.0.write_all(b"lf\n").unwrap();
    expect(&mut text, b"half!\n");
    server.stop();
}

#[test]
fn one_byte_at_a_time_and_any_bytes() {
    for link_delay in [Duration::ZERO, Duration::from_millis(2)] {
        let (server, address) = start(LoopOptions { link_delay, ..LoopOptions::default() });
        let mut client = Raw::connect(address);
        let bytes: Vec<u8> = (0..=255).collect();
        for byte in [&b"*1\r\n$256\r\n"[..], &bytes, b"\r\n"].concat() {
            client.0.write_all(&[byte]).unwrap();
        }
        expect(&mut client, &[&bytes[..], b"!\n"].concat());
        server.stop();
    }
}

#[test]
fn what_is_no_request_is_refused_behind_what_came_before() {
    let (server, address) = start(LoopOptions::default());
    let mut client = Raw::connect(address);
    client.0.write_all(&[&b"before\n"[..], &vec![b'x'; LINE_BYTES_MAX + 1]].concat()).unwrap();
    expect(&mut client, b"before!\nno request\n");
    expect_end(&mut client);
    assert_eq!(server.stop().bad_frames, 1);
}

#[test]
fn who_has_said_all_hears_the_replies_still_and_half_a_request_is_none() {
    for link_delay in [Duration::ZERO, Duration::from_millis(2)] {
        let (server, address) = start(LoopOptions { link_delay, ..LoopOptions::default() });
        let mut client = Raw::connect(address);
        client.0.write_all(b"whole\nhalf").unwrap();
        client.0.shutdown(Shutdown::Write).unwrap();
        expect(&mut client, b"whole!\nall heard\n");
        expect_end(&mut client);
        assert_eq!(server.stop().frames_received, 1);
    }
}

#[test]
fn half_a_request_may_not_stand_for_long_and_an_idle_connection_may() {
    let limits =
        Limits { stall: Duration::from_millis(200), handshake: Duration::from_millis(200), ..Limits::default() };
    let (server, address) = start(LoopOptions { limits, ..LoopOptions::default() });
    let (mut idle, mut slow) = (Raw::connect(address), Raw::connect(address));
    slow.0.write_all(b"half").unwrap();
    expect(&mut slow, b"no request\n");
    expect_end(&mut slow);
    idle.0.write_all(b"here\n").unwrap();
    expect(&mut idle, b"here!\n");
    assert_eq!(server.stop().stalled, 1);
}

/// A client that sends so many requests of these bytes, and begins to read when it may: what it was told, all in order.
fn late_reader(address: SocketAddr, requests: usize, bytes: usize, may_read: impl FnOnce()) {
    let mut client = Raw::connect(address);
    let mut writes = client.0.try_clone().unwrap();
    let word = move |number: usize| format!("{number:0bytes$}");
    let writer = std::thread::spawn(move || {
        for number in 0..requests {
            writes.write_all(format!("*1\r\n${bytes}\r\n{}\r\n", word(number)).as_bytes()).unwrap();
        }
    });
    may_read();
    for number in 0..requests {
        expect(&mut client, format!("{}!\n", word(number)).as_bytes());
    }
    writer.join().unwrap();
}

/// Waits until nothing more is answered; how much was.
fn stands_still(handled: &AtomicU64) -> u64 {
    loop {
        let before = handled.load(Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(700));
        if before > 0 && handled.load(Ordering::SeqCst) == before {
            return before;
        }
    }
}

#[test]
fn replies_that_nobody_reads_stop_their_connection_and_do_not_close_it() {
    const REQUESTS: usize = 2000;
    let limits = Limits {
        stall: Duration::from_millis(200),
        output_pause_bytes: 512 * 1024,
        output_close_bytes: 2 * 1024 * 1024,
        ..Limits::default()
    };
    let echo = Echo::new();
    let handled = Arc::clone(&echo.handled);
    let (server, address) = start_with(LoopOptions { limits, ..LoopOptions::default() }, echo);
    let (go, may_go) = channel::<()>();
    let reader = std::thread::spawn(move || late_reader(address, REQUESTS, 60_000, || may_go.recv().unwrap()));
    let before = stands_still(&handled);
    assert!(before < REQUESTS as u64 / 2, "{before} of them are answered before any is read");
    go.send(()).unwrap();
    reader.join().unwrap();
    let NetworkStats { stalled, overflowed, .. } = server.stop();
    assert_eq!((stalled, overflowed), (0, 0));
}

/// Where replies wait for many, each may leave little unread, and whoever reads is served.
#[test]
fn replies_that_nobody_reads_have_a_bound_of_all_connections() {
    const MANY: usize = 12;
    let limits = Limits { replies_total_bytes: 1024 * 1024, ..Limits::default() };
    let echo = Echo::new();
    let handled = Arc::clone(&echo.handled);
    let (server, address) = start_with(LoopOptions { limits, ..LoopOptions::default() }, echo);
    let go = Arc::new(Barrier::new(MANY + 1));
    let readers: Vec<_> = (0..MANY)
        .map(|_| {
            let go = Arc::clone(&go);
            std::thread::spawn(move || late_reader(address, 400, 60_000, || _ = go.wait()))
        })
        .collect();
    let before = stands_still(&handled);
    assert!(before < 400 * MANY as u64 / 2, "{before} of them are answered before any is read");
    late_reader(address, 100, 1000, || ());
    assert_eq!(handled.load(Ordering::SeqCst), before + 100, "the others are read no further");
    go.wait();
    for reader in readers {
        reader.join().unwrap();
    }
    assert_eq!(server.stop().overflowed, 0);
}

#[test]
fn half_requests_have_a_bound_together_and_whoever_goes_on_is_heard() {
    const HALF: usize = 1024 * 1024;
    const MANY: usize = 100;
    let limits = Limits { halves_total_bytes: 16 * HALF, ..Limits::default() };
    let (server, address) = start(LoopOptions { limits, ..LoopOptions::default() });
    let half = [format!("*2\r\n$4\r\nhalf\r\n${}\r\n", 2 * HALF).as_bytes(), &vec![b'x'; HALF]].concat();
    let mut clients: Vec<_> = (0..MANY)
        .map(|_| {
            let mut client = Raw::connect(address);
            // One that is given up meanwhile does not take all of it.
            let _ = client.0.write_all(&half);
            client
        })
        .collect();
    // Those that are left do not go on: once that is seen, they are given up for one that does.
    let whole = [&half[..], &vec![b'x'; HALF], b"\r\n"].concat();
    let (mut heard, mut refused) = (0, 0);
    while heard < 3 {
        std::thread::sleep(Duration::from_millis(600));
        let mut client = Raw::connect(address);
        let is_sent = client.0.write_all(&whole).is_ok();
        let mut reply = vec![0; 5 + 2 * HALF + 2];
        if is_sent && client.0.read_exact(&mut reply).is_ok() {
            assert!(reply.starts_with(b"half xx") && reply.ends_with(b"x!\n"));
            heard += 1;
        } else {
            refused += 1;
            assert!(refused < 20, "whoever goes on is given up");
        }
    }
    let mut left = 0;
    for client in &mut clients {
        client.0.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut said = String::new();
        match client.0.read_to_string(&mut said) {
            Ok(_) => assert_eq!(said, "no request\n"),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => left += 1,
            // What it sent after that was not read.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
    }
    assert!((1..=16).contains(&left), "{left} of {MANY} are left");
    assert_eq!(server.stop().overflowed, (MANY - left) as u64 + refused);
}

#[test]
fn connections_are_counted() {
    let port = CorePort::of_cores(1).remove(0);
    let limits = Limits { requesters: 2, ..Limits::default() };
    let (server, address) = start(LoopOptions { limits, port: Some(port.clone()), ..LoopOptions::default() });
    let (mut one, silent) = (Raw::connect(address), Raw::connect(address));
    one.0.write_all(b"one\n").unwrap();
    expect(&mut one, b"one!\n");
    let mut refused = Raw::connect(address);
    expect(&mut refused, b"-ERR max number of clients reached\r\n");
    let counted = |connections, accepted, refused| PortUse { connections, accepted, refused, ..PortUse::default() };
    assert_eq!(port.of_core(), counted(2, 2, 1));
    drop(silent);
    while port.of_core() != counted(1, 2, 1) {
        std::thread::sleep(Duration::from_millis(5));
    }
    server.stop();
}

/// A socket that is a file, beside one at an address.
#[test]
fn programs_on_the_same_machine_come_through_a_file() {
    let folder = Folder::new("local-socket");
    let path = folder.0.join("socket");
    let (socket, _file) = listen_at_path(&path).unwrap();
    let local = Listener { socket: ListeningSocket::Local(socket), framing: Framing::Requests };
    let server = Server::start(LoopOptions { listen: vec![local], ..LoopOptions::default() }, |_| Echo::new());
    let mut frames = Raw::greeted(server.address);
    for _ in 0..3 {
        let mut text = UnixStream::connect(&path).unwrap();
        text.write_all(b"one\ntwo\n").unwrap();
        text.shutdown(Shutdown::Write).unwrap();
        let mut said = String::new();
        text.read_to_string(&mut said).unwrap();
        assert_eq!(said, "one!\ntwo!\nall heard\n");
    }
    frames.send(b"a frame");
    assert_eq!(frames.answer(), b"a frame");
    server.stop();
}
