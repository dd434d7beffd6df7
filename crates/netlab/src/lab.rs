//! The network as a whole: its hosts, and its links, which can be changed at any time.
//!
//! This module starts and ends a network (N4) and passes changes of links to the switch (N2).

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::ensure;
use kasha_machine::Rng;

use crate::guardian::Guardian;
use crate::host::{self, Host};
use crate::link::{Counters, Direction, Link};
use crate::switch::Switch;

/// The greatest number of hosts of a network: they share a /24.
const HOSTS_MAX: usize = 200;

/// The first three parts of every address. Each network is separate from all others, so all can use the same.
const SUBNET: [u8; 3] = [10, 99, 0];

/// The options of a network.
#[derive(Clone, Copy, Debug)]
pub struct NetlabOptions {
    /// The number of hosts.
    pub hosts: usize,
    /// The seed from which the links draw faults.
    pub seed: u64,
    /// The settings of all links at first.
    pub link: Link,
    /// The largest packet in bytes. Jumbo frames by default: a switch in user space pays by the packet.
    pub mtu: usize,
    /// How long before a packet is due the switch stops sleeping and spins. That makes delays more exact, and costs CPU
    /// time. The default is none: on few cores the spinning would slow down what is measured.
    pub spin: Duration,
}

impl NetlabOptions {
    /// Perfect links between this many hosts.
    #[must_use]
    pub fn new(hosts: usize, seed: u64) -> Self {
        Self { hosts, seed, link: Link::default(), mtu: 9000, spin: Duration::ZERO }
    }
}

/// A running network. Hosts are numbered from 0. When it is dropped, all processes on its hosts are killed.
#[derive(Debug)]
pub struct Netlab {
    // Dropped before the switch: processes that still run die on a working network.
    hosts: Vec<Host>,
    switch: Switch,
    // Dropped after the hosts: it is needed while anything runs on them.
    _guardian: Guardian,
}

impl Netlab {
    /// Whether this process can make such networks here: it tries.
    ///
    /// # Errors
    /// What is missing, as text for the operator.
    pub fn available() -> Result<(), String> {
        // The namespace and its device end with the thread.
        let tried = std::thread::spawn(|| host::make(address(0), 1500).map(drop)).join();
        match tried {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("the virtual network needs Linux, root and /dev/net/tun: {error:#}")),
            Err(_) => Err("the virtual network cannot be tried: the thread that made a host panicked".to_owned()),
        }
    }

    /// Perfect links between this many hosts.
    ///
    /// # Errors
    /// If networks cannot be made here, or the number of hosts is not sensible.
    pub fn start(hosts: usize, seed: u64) -> anyhow::Result<Self> {
        Self::with(NetlabOptions::new(hosts, seed))
    }

    /// A network with these options.
    ///
    /// # Errors
    /// If networks cannot be made here, or the options are not sensible.
    pub fn with(options: NetlabOptions) -> anyhow::Result<Self> {
        let NetlabOptions { hosts: count, seed, link, mtu, spin } = options;
        ensure!((1..=HOSTS_MAX).contains(&count), "a network has 1 to {HOSTS_MAX} hosts, not {count}");
        ensure!((576..=65_535).contains(&mtu), "a packet has 576 to 65535 bytes, not {mtu}");
        let (mut hosts, mut devices, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..count {
            let (host, device) = Host::new(address(index), mtu)?;
            addresses.push(host.address());
            hosts.push(host);
            devices.push(device);
        }
        let mut rng = Rng::new(seed);
        let directions = (0..count * count).map(|_| Direction::new(link, rng.fork())).collect();
        let switch = Switch::start(devices, addresses, directions, mtu, spin)?;
        let guardian = Guardian::start(hosts.iter().map(Host::namespace).collect())?;
        Ok(Self { hosts, switch, _guardian: guardian })
    }

    /// All hosts, in order of their number.
    #[must_use]
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The host with this number.
    ///
    /// # Panics
    /// If there is no host with this number.
    #[must_use]
    pub fn host(&self, index: usize) -> &Host {
        &self.hosts[index]
    }

    /// The present settings of the link from one host to another.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn link(&self, from: usize, to: usize) -> Link {
        let index = self.index(from, to);
        self.switch.ask(move |directions| directions[index].link)
    }

    /// Changes one direction (N2).
    ///
    /// # Panics
    /// If there is no such host.
    pub fn set_link(&self, from: usize, to: usize, link: Link) {
        let index = self.index(from, to);
        self.switch.ask(move |directions| directions[index].link = link);
    }

    /// Changes all directions at once. The closure gets each link with its ends (from, to), and may change it.
    pub fn change_links(&self, mut change: impl FnMut(usize, usize, &mut Link) + Send + 'static) {
        let count = self.hosts.len();
        self.switch.ask(move |directions| {
            for (index, direction) in directions.iter_mut().enumerate() {
                change(index / count, index % count, &mut direction.link);
            }
        });
    }

    /// Cuts both directions between two hosts.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn cut(&self, one: usize, other: usize) {
        let pair = [self.index(one, other), self.index(other, one)];
        self.switch.ask(move |directions| pair.iter().for_each(|index| directions[*index].link.is_cut = true));
    }

    /// Cuts all links between these hosts and the others, both ways. Other cuts stay.
    pub fn cut_off(&self, group: &[usize]) {
        let group = group.to_vec();
        self.change_links(move |from, to, link| link.is_cut |= group.contains(&from) != group.contains(&to));
    }

    /// Ends all cuts. Delays, losses and other settings stay.
    pub fn heal(&self) {
        self.change_links(|_, _, link| link.is_cut = false);
    }

    /// What happened to the packets from one host to another so far.
    ///
    /// # Panics
    /// If there is no such host.
    #[must_use]
    pub fn counters(&self, from: usize, to: usize) -> Counters {
        let index = self.index(from, to);
        self.switch.ask(move |directions| directions[index].counters)
    }

    /// The sum of the counters of all links.
    #[must_use]
    pub fn totals(&self) -> Counters {
        self.switch.ask(|directions| {
            directions.iter().fold(Counters::default(), |sum, direction| sum.plus(&direction.counters))
        })
    }

    fn index(&self, from: usize, to: usize) -> usize {
        let count = self.hosts.len();
        assert!(from < count && to < count, "there are hosts 0 to {}, no link from {from} to {to}", count - 1);
        from * count + to
    }
}

fn address(index: usize) -> Ipv4Addr {
    let [a, b, c] = SUBNET;
    Ipv4Addr::new(a, b, c, u8::try_from(index + 1).expect("few hosts"))
}
