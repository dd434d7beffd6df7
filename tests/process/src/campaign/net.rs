//! The network of a round. Its processes run on hosts of a virtual network or, without root, all on loopback, where no
//! link can be cut.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Output};
use std::thread::JoinHandle;
use std::time::Duration;

use kasha_netlab::{Link, Netlab, NetlabOptions};

use super::Failure;
use super::plan::{Plan, Who};
use crate::place::{free_ports, local};
use crate::process::die_with_this_thread;

const COORDINATOR_PORT: u16 = 7400;
const NODE_PORT: u16 = 7401;
const REDIS_PORT: u16 = 6379;

/// The network, and the place of each process on it.
#[derive(Debug)]
pub struct Net {
    lab: Option<Netlab>,
    link: Link,
    first_port: u16,
    nodes: usize,
    own_coordinator: bool,
}

impl Net {
    /// One host for each process, and one for the clients.
    ///
    /// # Errors
    /// If the network is there and cannot be made.
    pub fn new(plan: &Plan, wanted: bool) -> Result<Self, Failure> {
        let nodes = usize::from(plan.shape.nodes);
        let link = Link { delay: plan.shape.delay, ..Link::default() };
        let lab = match Netlab::available() {
            Ok(()) if wanted => {
                let options = NetlabOptions { link, ..NetlabOptions::new(nodes + 2, plan.seed) };
                let lab = Netlab::with(options).map_err(|error| Failure::Broken(format!("{error:#}")))?;
                Some(lab)
            }
            Ok(()) => None,
            Err(why) => {
                println!("SKIPPED: links are not cut, and everybody is on loopback: {why}");
                None
            }
        };
        let first_port = if lab.is_some() { 0 } else { free_ports(2 + 4 * plan.shape.nodes) };
        Ok(Self { lab, link, first_port, nodes, own_coordinator: plan.shape.own_coordinator })
    }

    /// Whether the network is virtual, so that links can be cut.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.lab.is_some()
    }

    fn host(&self, who: Who) -> usize {
        match who {
            Who::Node(node) => usize::from(node) - 1,
            Who::Coordinator => self.nodes,
            Who::Leader | Who::NextToLeader => unreachable!("no host has this name"),
        }
    }

    fn clients(&self) -> usize {
        self.nodes + 1
    }

    fn ip(&self, who: Who) -> Ipv4Addr {
        self.lab.as_ref().map_or(Ipv4Addr::LOCALHOST, |lab| lab.host(self.host(who)).address())
    }

    /// The coordinator's address.
    #[must_use]
    pub fn coordinator(&self) -> SocketAddr {
        let hub = if self.own_coordinator { Who::Coordinator } else { Who::Node(1) };
        match self.lab {
            Some(_) => (self.ip(hub), COORDINATOR_PORT).into(),
            None => local(self.first_port),
        }
    }

    /// Where the process of a node listens as a member of the coordinator's group.
    #[must_use]
    pub fn control(&self, node: u16) -> SocketAddr {
        match self.lab {
            Some(_) => (self.ip(Who::Node(node)), COORDINATOR_PORT).into(),
            None => local(self.first_port + 2 * u16::try_from(self.nodes).expect("few") + node),
        }
    }

    /// The address of a core of a node.
    #[must_use]
    pub fn core(&self, node: u16, core: u16) -> SocketAddr {
        match self.lab {
            Some(_) => (self.ip(Who::Node(node)), NODE_PORT + core).into(),
            None => local(self.first_port + 1 + 2 * (node - 1) + core),
        }
    }

    /// Where a node speaks the Redis protocol.
    #[must_use]
    pub fn redis(&self, node: u16) -> SocketAddr {
        match self.lab {
            Some(_) => (self.ip(Who::Node(node)), REDIS_PORT).into(),
            None => local(self.first_port + 3 * u16::try_from(self.nodes).expect("few") + node),
        }
    }

    /// Where a proxy beside the clients speaks it.
    #[must_use]
    pub fn proxy(&self) -> SocketAddr {
        match &self.lab {
            Some(lab) => (lab.host(self.clients()).address(), REDIS_PORT).into(),
            None => local(self.first_port + 4 * u16::try_from(self.nodes).expect("few") + 1),
        }
    }

    /// Every node's address of the Redis protocol.
    #[must_use]
    pub fn redis_nodes(&self) -> Vec<SocketAddr> {
        (1..=self.nodes).map(|node| self.redis(u16::try_from(node).expect("few"))).collect()
    }

    /// The addresses that clients begin with.
    #[must_use]
    pub fn seeds(&self) -> Vec<String> {
        (1..=self.nodes).map(|node| self.core(u16::try_from(node).expect("few"), 0).to_string()).collect()
    }

    /// Starts a process on its host. It dies with this one.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn(&self, who: Who, command: Command) -> io::Result<Child> {
        self.spawn_at(self.host(who), command)
    }

    /// Starts a process beside the clients. It dies with this one.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_beside_clients(&self, command: Command) -> io::Result<Child> {
        self.spawn_at(self.clients(), command)
    }

    fn spawn_at(&self, host: usize, mut command: Command) -> io::Result<Child> {
        match &self.lab {
            Some(lab) => lab.host(host).spawn(command),
            None => {
                die_with_this_thread(&mut command);
                command.spawn()
            }
        }
    }

    /// Runs a command on the host of the clients.
    ///
    /// # Errors
    /// If it does not start.
    pub fn output(&self, mut command: Command) -> io::Result<Output> {
        match &self.lab {
            Some(lab) => lab.host(self.clients()).run(|| command.output()),
            None => command.output(),
        }
    }

    /// Starts a thread on the host of the clients.
    ///
    /// # Errors
    /// If there can be none.
    pub fn thread<T: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        match &self.lab {
            Some(lab) => lab.host(self.clients()).thread(name, job),
            None => std::thread::Builder::new().name(name.to_owned()).spawn(job),
        }
    }

    /// Cuts or heals one direction.
    pub fn cut(&self, from: Who, to: Who, is_cut: bool) {
        if let Some(lab) = &self.lab {
            let (from, to) = (self.host(from), self.host(to));
            lab.set_link(from, to, Link { is_cut, ..lab.link(from, to) });
        }
    }

    /// Cuts or heals all links between these processes and all others, clients included.
    pub fn cut_off(&self, whom: &[Who], is_cut: bool) {
        let hosts: Vec<usize> = whom.iter().map(|who| self.host(*who)).collect();
        if let Some(lab) = &self.lab {
            lab.change_links(move |from, to, link| {
                if hosts.contains(&from) != hosts.contains(&to) {
                    link.is_cut = is_cut;
                }
            });
        }
    }

    /// All links lose and double packets, and delay them.
    pub fn rough(&self, loss_per_mille: u16, duplicate_per_mille: u16, jitter: Duration) {
        if let Some(lab) = &self.lab {
            lab.change_links(move |_, _, link| *link = Link { loss_per_mille, duplicate_per_mille, jitter, ..*link });
        }
    }

    /// All links are as they were at the beginning.
    pub fn heal(&self) {
        let link = self.link;
        if let Some(lab) = &self.lab {
            lab.change_links(move |_, _, each| *each = link);
        }
    }
}
