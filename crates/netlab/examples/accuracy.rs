//! Measures how exact the delays are on this machine: round trips of one small packet at a time.
//!
//! `cargo run --release -p kasha-netlab --example accuracy -- [DELAY_MICROSECONDS] [SPIN_MICROSECONDS]`
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use kasha_netlab::{Link, Netlab, NetlabOptions};

const ROUND_TRIPS: usize = 5000;

fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let delay = Duration::from_micros(numbers.next().unwrap_or(Ok(500))?);
    let spin = Duration::from_micros(numbers.next().unwrap_or(Ok(0))?);
    let options = NetlabOptions { link: Link::delayed(delay), spin, ..NetlabOptions::new(2, 1) };
    let lab = Netlab::with(options)?;
    let socket = |index: usize| lab.host(index).run(|| UdpSocket::bind((lab.host(index).address(), 1)));
    let (client, server) = (socket(0)?, socket(1)?);
    client.connect(server.local_addr()?)?;
    lab.host(1).thread("echo", move || {
        let mut packet = [0; 8];
        while let Ok((_, from)) = server.recv_from(&mut packet) {
            // If the packet is lost, the side that waits for it notices.
            let _ = server.send_to(&packet, from);
        }
    })?;
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        client.send(&[0; 8])?;
        client.recv(&mut [0; 8])?;
        times.push(start.elapsed().saturating_sub(2 * delay));
    }
    times.sort_unstable();
    let counters = lab.counters(0, 1);
    println!(
        "round trip beyond twice the delay: median {:?}, p99 {:?}",
        times[ROUND_TRIPS / 2],
        times[ROUND_TRIPS / 100 * 99]
    );
    println!("written later than due: mean {:?}, at most {:?}", counters.late_mean(), counters.late_max);
    Ok(())
}
