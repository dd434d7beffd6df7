//! Settings of links (N1 to N3), as the packets of real sockets experience them.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, lab, wait_until};
use kasha_netlab::{Counters, Link, Netlab};

const PORT: u16 = 9;

/// A socket on a host, connected to another host's.
fn socket(lab: &Netlab, host: usize, peer: usize) -> UdpSocket {
    lab.host(host).run(|| {
        let socket = UdpSocket::bind((lab.host(host).address(), PORT)).unwrap();
        socket.connect((lab.host(peer).address(), PORT)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    })
}

fn number(socket: &UdpSocket) -> u32 {
    let mut bytes = [0; 4];
    assert_eq!(socket.recv(&mut bytes).unwrap(), 4);
    u32::from_be_bytes(bytes)
}

fn send(socket: &UdpSocket, number: u32) {
    assert_eq!(socket.send(&number.to_be_bytes()).unwrap(), 4);
}

#[test]
fn n1_a_round_trip_takes_both_delays_at_least() {
    let Some(lab) = lab(2, 1) else { return };
    let (one, other) = (socket(&lab, 0, 1), socket(&lab, 1, 0));
    lab.set_link(0, 1, Link::delayed(Duration::from_millis(5)));
    lab.set_link(1, 0, Link::delayed(Duration::from_millis(7)));
    for n in 0..5 {
        let start = Instant::now();
        send(&one, n);
        assert_eq!(number(&other), n);
        assert!(start.elapsed() >= Duration::from_millis(5));
        send(&other, n);
        assert_eq!(number(&one), n);
        assert!(start.elapsed() >= Duration::from_millis(12));
    }
    let Counters { packets, delivered, bytes, .. } = lab.counters(0, 1);
    assert_eq!((packets, delivered, bytes), (5, 5, 5 * 32), "20 bytes of IP, 8 of UDP");
    assert_eq!(lab.totals().delivered, 10);
    assert_eq!(lab.link(1, 0).delay, Duration::from_millis(7));
}

#[test]
fn n2_a_cut_link_passes_nothing_and_a_healed_one_everything() {
    let Some(lab) = lab(3, 2) else { return };
    let sockets = [[0, 1], [1, 0]].map(|[host, peer]| socket(&lab, host, peer));
    lab.change_links(|_, _, link| link.delay = Duration::from_millis(200));
    send(&sockets[0], 1);
    wait_until("the packet is under way", || lab.counters(0, 1).packets == 1);
    lab.cut_off(&[0]);
    send(&sockets[0], 2);
    wait_until("both packets are lost", || lab.counters(0, 1).cut == 2);
    assert!(lab.link(0, 2).is_cut && lab.link(1, 0).is_cut && !lab.link(1, 2).is_cut);
    lab.heal();
    send(&sockets[0], 3);
    assert_eq!(number(&sockets[1]), 3);
    lab.cut(1, 2);
    assert!(lab.link(2, 1).is_cut && !lab.link(0, 1).is_cut);
    assert_eq!(lab.link(1, 2).delay, Duration::from_millis(200), "a cut changes nothing else");
    lab.set_link(0, 1, Link { is_cut: true, ..Link::default() });
    send(&sockets[1], 4);
    assert_eq!(number(&sockets[0]), 4, "one direction alone can be cut");
}

#[test]
fn n3_the_same_seed_loses_and_doubles_the_same_packets() {
    let received = |seed| {
        let lab = lab(2, seed)?;
        let (one, other) = (socket(&lab, 0, 1), socket(&lab, 1, 0));
        lab.set_link(0, 1, Link { loss_per_mille: 300, duplicate_per_mille: 200, ..Link::default() });
        let received = other.try_clone().unwrap();
        let reader = lab.host(1).thread("reader", move || {
            let numbers = std::iter::from_fn(|| Some(number(&received)).filter(|n| *n != u32::MAX));
            numbers.collect::<Vec<u32>>()
        });
        for n in 0..200 {
            send(&one, n);
            // One at a time, so that the n-th packet is this one, and no buffer is too small.
            wait_until("the packet is taken in", || lab.counters(0, 1).packets == u64::from(n) + 1);
        }
        lab.set_link(0, 1, Link::default());
        send(&one, u32::MAX);
        let counters = lab.counters(0, 1);
        Some((reader.unwrap().join().unwrap(), counters.lost, counters.duplicated))
    };
    let (Some(first), Some(again), Some(other)) = (received(11), received(11), received(12)) else { return };
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first.1 > 0 && first.2 > 0, "{first:?}");
    assert_eq!(first.0.len() as u64, 200 - first.1 + first.2);
}

#[test]
fn jitter_reorders() {
    let Some(lab) = lab(2, 3) else { return };
    let (one, other) = (socket(&lab, 0, 1), socket(&lab, 1, 0));
    lab.set_link(0, 1, Link { jitter: Duration::from_millis(100), ..Link::default() });
    (0..50).for_each(|n| send(&one, n));
    let mut received: Vec<u32> = (0..50).map(|_| number(&other)).collect();
    assert!(!received.is_sorted(), "{received:?}");
    received.sort_unstable();
    assert_eq!(received, (0..50).collect::<Vec<u32>>());
}

#[test]
fn tcp_gets_through_a_bad_network_unharmed() {
    let Some(lab) = lab(2, 4) else { return };
    let link = Link {
        delay: Duration::from_micros(200),
        jitter: Duration::from_micros(200),
        loss_per_mille: 20,
        duplicate_per_mille: 20,
        ..Link::default()
    };
    lab.change_links(move |_, _, each| *each = link);
    let listener = lab.host(1).run(|| TcpListener::bind((lab.host(1).address(), 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let sent: Vec<u8> = (0..1u64 << 20).map(|n| ((n * n) >> 7) as u8).collect();
    let copy = sent.clone();
    let writer = lab.host(0).thread("writer", move || TcpStream::connect(address)?.write_all(&copy)).unwrap();
    let mut received = Vec::new();
    // The socket was made on the host and works from anywhere.
    listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
    writer.join().unwrap().unwrap();
    assert!(received == sent, "{} of {} bytes, or others", received.len(), sent.len());
    assert!(lab.totals().lost > 0 && lab.totals().duplicated > 0);
}

#[test]
fn a_slow_line_takes_its_time() {
    let Some(lab) = lab(2, 5) else { return };
    let (one, other) = (socket(&lab, 0, 1), socket(&lab, 1, 0));
    // 32 bytes each.
    lab.set_link(0, 1, Link { bytes_per_second: Some(3200), ..Link::default() });
    let start = Instant::now();
    (0..5).for_each(|n| send(&one, n));
    (0..5).for_each(|n| assert_eq!(number(&other), n));
    assert!(start.elapsed() >= Duration::from_millis(50));
}
