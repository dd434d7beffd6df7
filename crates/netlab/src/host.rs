//! A host: a network namespace without a name, and a thread (the keeper) that keeps it alive.
//!
//! The keeper makes the namespace and starts the host's processes. It ends with the network. The processes end with it,
//! because they asked the kernel for that (N4). Their own children did not ask: `stragglers` and the guardian kill
//! those.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::Context;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::stragglers;
use crate::system;

/// The calling thread's network namespace, wherever this process runs.
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Hosts' addresses have this prefix.
pub(crate) const PREFIX: u8 = 24;

/// A namespace that threads can enter. It lives as long as any copy of this value, any process in it, or any socket
/// made in it. After the network was dropped it is a host without a cable.
#[derive(Clone, Debug)]
pub struct Namespace(Arc<OwnedFd>);

impl Namespace {
    /// Moves the calling thread into this namespace for the rest of its life, with the sockets that it makes and the
    /// threads and processes that it starts from now on. (For a runtime's threads: call this as each one starts.)
    ///
    /// # Errors
    /// If this process has lost its rights.
    pub fn enter(&self) -> io::Result<()> {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }

    /// The number of the descriptor. It is valid as long as this value lives.
    pub(crate) fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// The path by which other processes find the namespace while this value lives; `nsenter --net=` takes it.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.number()))
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

struct Start {
    command: Command,
    reply: Sender<io::Result<Child>>,
}

/// One host of a network.
pub struct Host {
    address: Ipv4Addr,
    namespace: Namespace,
    starts: Option<Sender<Start>>,
    keeper: Option<JoinHandle<()>>,
}

impl Host {
    /// A new host and its device.
    pub(crate) fn new(address: Ipv4Addr, mtu: usize) -> anyhow::Result<(Self, OwnedFd)> {
        let (made, result) = channel();
        let (starts, requests) = channel();
        let keeper = std::thread::Builder::new().name(format!("netlab-{address}")).spawn(move || {
            let is_made = match make(address, mtu) {
                Ok(host) => made.send(Ok(host)),
                Err(error) => return drop(made.send(Err(error))),
            };
            if is_made.is_ok() {
                keep(&requests);
            }
        });
        let keeper = keeper.context("cannot start a thread")?;
        let (namespace, device) = result.recv().context("the thread that makes a host panicked")??;
        let namespace = Namespace(Arc::new(namespace));
        Ok((Self { address, namespace, starts: Some(starts), keeper: Some(keeper) }, device))
    }

    /// The host's address: it listens there, and other hosts reach it there. The host also has a loopback of its own.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// The host's namespace, for threads that are to live there.
    #[must_use]
    pub fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }

    /// Starts a process on this host. The process is killed when the network is dropped, and when this process ends in
    /// whatever way.
    ///
    /// # Errors
    /// Those of [`Command::spawn`].
    pub fn spawn(&self, command: Command) -> io::Result<Child> {
        let (reply, child) = channel();
        let starts = self.starts.as_ref().expect("not dropped");
        starts.send(Start { command, reply }).expect("the keeper ends with the host");
        child.recv().expect("the keeper ends with the host")
    }

    /// Runs a function on this host, in a thread of its own, and waits for it. Processes that the function starts may
    /// outlive it, but not this network, like those of [`Host::spawn`].
    ///
    /// # Panics
    /// If the function panics, or the system has no threads left.
    pub fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        let namespace = &self.namespace;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                namespace.enter().expect("what was made here can be entered");
                job()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Starts a thread on this host.
    ///
    /// # Errors
    /// If the system has no threads left.
    pub fn thread<T: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        let namespace = self.namespace();
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            namespace.enter().expect("what was made here can be entered");
            job()
        })
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The children of the host's processes asked the kernel for nothing.
        if let Some(namespace) = stragglers::identity(&self.namespace.0) {
            stragglers::kill_all(namespace);
        }
        drop(self.starts.take());
        if let Some(keeper) = self.keeper.take() {
            // If it panicked, its panic was printed there.
            let _ = keeper.join();
        }
    }
}

/// Makes the calling thread's namespace a new one, with the devices of a host.
pub(crate) fn make(address: Ipv4Addr, mtu: usize) -> anyhow::Result<(OwnedFd, OwnedFd)> {
    system::unshare_network().context("cannot make a network namespace")?;
    let device = system::open_tun().context("cannot make a TUN device")?;
    system::configure(address, PREFIX, mtu).context("cannot configure a TUN device")?;
    let namespace = File::open(OWN_NAMESPACE).with_context(|| format!("cannot open {OWN_NAMESPACE}"))?;
    Ok((namespace.into(), device))
}

fn keep(requests: &Receiver<Start>) {
    while let Ok(Start { mut command, reply }) = requests.recv() {
        system::die_with_parent(&mut command);
        // The thread that asked waits for this reply.
        let _ = reply.send(command.spawn());
    }
}
