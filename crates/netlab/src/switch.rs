//! The switch: one thread that owns all links, and reads and writes all TUN devices.
//!
//! A thread that changes or reads a link sends the switch a closure and waits until it has run. So there are no locks,
//! and N2 holds. The switch sleeps until the next packet is due, as exactly as the kernel allows, without timer slack
//! and with the best niceness. It counts how much too late it was.

use std::net::Ipv4Addr;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::link::{Direction, Nanos, nanos};
use crate::queue::Queue;

/// Packets that are read from one device before the other devices have their turn and due packets are sent.
const BATCH: usize = 32;

/// All directions, of each pair of hosts: `from * hosts + to`.
pub(crate) type Directions = [Direction];

type Job = Box<dyn FnOnce(&mut Directions) + Send>;

/// The running switch; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Switch {
    jobs: Option<Sender<Job>>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Begins to forward between these devices, the n-th being the n-th host's.
    pub(crate) fn start(
        devices: Vec<OwnedFd>,
        addresses: Vec<Ipv4Addr>,
        directions: Vec<Direction>,
        packet_bytes: usize,
        spin: Duration,
    ) -> anyhow::Result<Self> {
        let bell =
            Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).context("cannot make an eventfd")?);
        let (sender, jobs) = channel();
        let mut running = Running {
            addresses,
            directions,
            queue: Queue::new(packet_bytes),
            packet: vec![0; packet_bytes],
            spin,
            begin: Instant::now(),
        };
        let heard = Arc::clone(&bell);
        let thread = std::thread::Builder::new()
            .name("netlab-switch".into())
            .spawn(move || running.run(&devices, &heard, &jobs));
        Ok(Self { jobs: Some(sender), bell, thread: Some(thread.context("cannot start a thread")?) })
    }

    /// Runs `job` on the switch's thread, between two packets, and waits for what it returns.
    pub(crate) fn ask<T: Send + 'static>(&self, job: impl FnOnce(&mut Directions) -> T + Send + 'static) -> T {
        let (reply, answer) = channel();
        let job: Job = Box::new(move |directions| {
            // The thread that asked waits for this reply.
            let _ = reply.send(job(directions));
        });
        self.jobs.as_ref().expect("not dropped").send(job).expect("the switch runs as long as the network");
        self.ring();
        answer.recv().expect("the switch runs as long as the network")
    }

    fn ring(&self) {
        // This fails only if it was rung 2^64 times.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        drop(self.jobs.take());
        self.ring();
        if let Some(thread) = self.thread.take() {
            // If it panicked, its panic was printed there.
            let _ = thread.join();
        }
    }
}

/// The state of the switch's thread.
struct Running {
    addresses: Vec<Ipv4Addr>,
    directions: Vec<Direction>,
    queue: Queue,
    packet: Vec<u8>,
    spin: Duration,
    begin: Instant,
}

impl Running {
    fn run(&mut self, devices: &[OwnedFd], bell: &OwnedFd, jobs: &Receiver<Job>) {
        // Both make delays more exact. Without them delays are still never too short.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let _ = rustix::process::setpriority_process(None, -20);
        let mut polled: Vec<PollFd<'_>> = devices.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        polled.push(PollFd::new(bell, PollFlags::IN));
        loop {
            if poll(&mut polled, self.patience().as_ref()).is_ok() {
                let (rung, readable) = polled.split_last().expect("the bell");
                if !rung.revents().is_empty() && !self.work(bell, jobs) {
                    return;
                }
                for (from, _) in readable.iter().enumerate().filter(|(_, fd)| fd.revents().contains(PollFlags::IN)) {
                    self.receive(devices, from);
                    // One busy device must not make the packets of the other devices late.
                    self.deliver(devices);
                }
            }
            self.deliver(devices);
        }
    }

    /// How long nothing is due.
    fn patience(&self) -> Option<Timespec> {
        let due = self.queue.next_due()?;
        let left = Duration::from_nanos(due.saturating_sub(self.now())).saturating_sub(self.spin);
        Some(Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() })
    }

    /// Runs the closures that were sent; false if no more can come.
    fn work(&mut self, bell: &OwnedFd, jobs: &Receiver<Job>) -> bool {
        // One read empties it.
        let _ = rustix::io::read(bell, &mut [0u8; 8]);
        loop {
            match jobs.try_recv() {
                Ok(job) => job(&mut self.directions),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn now(&self) -> Nanos {
        nanos(self.begin.elapsed())
    }

    fn receive(&mut self, devices: &[OwnedFd], from: usize) {
        for _ in 0..BATCH {
            let length = match rustix::io::read(&devices[from], &mut self.packet) {
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                // Empty, or the device is down.
                Err(_) => return,
            };
            let Some(to) = self.destination(&self.packet[..length]) else { continue };
            let now = self.now();
            let direction = &mut self.directions[from * self.addresses.len() + to];
            for due in direction.admit(now, length).into_iter().flatten() {
                if !self.queue.push(due, from, to, &self.packet[..length]) {
                    direction.counters.overflowed += 1;
                }
            }
        }
    }

    /// The host that an IPv4 packet is for. Kernels also send IPv6 and broadcast packets; these are dropped.
    fn destination(&self, packet: &[u8]) -> Option<usize> {
        if packet.first()? >> 4 != 4 {
            return None;
        }
        let address: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
        self.addresses.iter().position(|known| known.octets() == address)
    }

    fn deliver(&mut self, devices: &[OwnedFd]) {
        let now = self.now();
        while let Some((underway, packet)) = self.queue.pop_due(now) {
            let direction = &mut self.directions[underway.from * self.addresses.len() + underway.to];
            if direction.link.is_cut {
                direction.counters.cut += 1;
                continue;
            }
            let counters = &mut direction.counters;
            match rustix::io::write(&devices[underway.to], packet) {
                Ok(_) => counters.delivered += 1,
                Err(_) => counters.refused += 1,
            }
            let late = Duration::from_nanos(nanos(self.begin.elapsed()) - underway.due);
            counters.late_total += late;
            counters.late_max = counters.late_max.max(late);
        }
    }
}
