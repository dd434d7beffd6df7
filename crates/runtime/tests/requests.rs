//! Requests of the Redis protocol over real sockets, beside a listener for frames: cutting, limits, bad input, closing.
#![allow(clippy::disallowed_methods)]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use crate::support::{Echo, Raw, Server};
use kasha_runtime::limits::Limits;
use kasha_runtime::{Framing, Listener, LoopOptions, listen};
use kasha_wire::requests::LINE_BYTES_MAX;

fn start(options: LoopOptions) -> (Server, SocketAddr) {
    let (socket, address) = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let options = LoopOptions { listen: vec![Listener { socket, framing: Framing::Requests }], ..options };
    (Server::start(options, |_| Echo::new()), address)
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
    expect_end(&mut slow);
    idle.0.write_all(b"here\n").unwrap();
    expect(&mut idle, b"here!\n");
    assert_eq!(server.stop().stalled, 1);
}
