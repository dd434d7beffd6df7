//! Free ports for children.
//!
//! These are not ports that the kernel would give for port 0. Those come from the range of outgoing connections: while
//! a killed child is away, a client's connection may get the child's port, and the child could not come back.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::{Context, bail};
use kasha_machine::Rng;

const FIRST: u16 = 10_240;
const OUTGOING_FIRST: u16 = 32_768;
const TRIES: u32 = 1000;

/// `count` loopback addresses at which nobody listens. Another process may take one before it is used; then the child
/// says so and ends.
///
/// # Errors
/// If hardly any port is free.
pub(crate) fn free_ports(count: usize, seed: u64) -> anyhow::Result<Vec<SocketAddr>> {
    let end = first_outgoing_port();
    let mut rng = Rng::new(seed);
    // All sockets are held until all addresses are found, so that none is found twice.
    let mut held = Vec::new();
    let mut addresses = Vec::new();
    for _ in 0..TRIES {
        if addresses.len() == count {
            return Ok(addresses);
        }
        let port = if end > FIRST { rng.between(u64::from(FIRST), u64::from(end) - 1) } else { 0 };
        let port = u16::try_from(port).expect("below the end");
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            addresses.push(listener.local_addr().context("cannot ask a socket for its port")?);
            held.push(listener);
        }
    }
    bail!("cannot find {count} free ports on 127.0.0.1; end programs that listen on many, or check `ss -ltn`")
}

fn first_outgoing_port() -> u16 {
    std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok())
        .unwrap_or(OUTGOING_FIRST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let mut ports = free_ports(20, 7).unwrap();
        for port in &ports {
            drop(TcpListener::bind(port));
        }
        ports.sort();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
