//! The few requests to the kernel that have no safe wrapper: a new network namespace for a thread, a TUN device, the
//! addresses and flags of interfaces, and the signal that a child gets when its parent ends (or how to avoid all such
//! signals).

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use libc::{c_char, ifreq, sockaddr};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::UnshareFlags;

const TUN_DEVICE: &str = "/dev/net/tun";

/// A host's one device besides loopback.
const TUN_NAME: &str = "net0";

/// Packets that wait in the kernel for the switch to read them; with the kernel's default of 500 a burst would be lost
/// outside of all counters.
const TUN_QUEUE: i32 = 10_000;

/// Puts the calling thread into a new network namespace.
pub(crate) fn unshare_network() -> io::Result<()> {
    // SAFETY: the danger of unshare is a thread with descriptors of its own (CLONE_FILES); this flag has no such effect.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// Makes `command`'s process die with the thread that starts it.
pub(crate) fn die_with_parent(command: &mut Command) {
    let parent = getpid();
    // SAFETY: the closure makes two system calls, and touches no memory of this process.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // It may have died before it was watched.
            if getppid() == Some(parent) { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
        });
    }
}

/// Detaches `command`'s process from everything that ends its parent or a network: it gets a session and a network
/// namespace of its own (the parent may live on another network's host). It inherits `descriptors`.
pub(crate) fn detach<D: AsFd + Send + Sync + 'static>(command: &mut Command, descriptors: Vec<D>) {
    // SAFETY: the closure makes system calls only; of this process's memory it reads what it owns.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            unshare_network()?;
            descriptors.iter().try_for_each(|descriptor| Ok(fcntl_setfd(descriptor, FdFlags::empty())?))
        });
    }
}

/// Opens a new TUN device in the calling thread's namespace: it lives until the descriptor is closed. Reads and writes
/// are whole IP packets and do not block.
pub(crate) fn open_tun() -> io::Result<OwnedFd> {
    let file = File::options().read(true).write(true).open(TUN_DEVICE)?;
    let flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
    let mut request = request_for(TUN_NAME, libc::__c_anonymous_ifr_ifru { ifru_flags: flags });
    update::<{ libc::TUNSETIFF as Opcode }>(&file, &mut request)?;
    let file = OwnedFd::from(file);
    rustix::io::ioctl_fionbio(&file, true)?;
    Ok(file)
}

/// Gives the TUN device its address and takes it and loopback into service, in the calling thread's namespace.
pub(crate) fn configure(address: Ipv4Addr, prefix: u8, mtu: usize) -> io::Result<()> {
    let control = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mask = Ipv4Addr::from_bits(u32::MAX << (32 - u32::from(prefix)));
    let mtu = i32::try_from(mtu).map_err(|_| ErrorKind::InvalidInput)?;
    set::<{ libc::SIOCSIFADDR as Opcode }>(&control, libc::__c_anonymous_ifr_ifru { ifru_addr: inet(address) })?;
    set::<{ libc::SIOCSIFNETMASK as Opcode }>(&control, libc::__c_anonymous_ifr_ifru { ifru_netmask: inet(mask) })?;
    set::<{ libc::SIOCSIFMTU as Opcode }>(&control, libc::__c_anonymous_ifr_ifru { ifru_mtu: mtu })?;
    set::<{ libc::SIOCSIFTXQLEN as Opcode }>(&control, libc::__c_anonymous_ifr_ifru { ifru_metric: TUN_QUEUE })?;
    let up = libc::__c_anonymous_ifr_ifru { ifru_flags: (libc::IFF_UP | libc::IFF_RUNNING) as i16 };
    set::<{ libc::SIOCSIFFLAGS as Opcode }>(&control, up)?;
    let mut loopback = request_for("lo", up);
    update::<{ libc::SIOCSIFFLAGS as Opcode }>(&control, &mut loopback)
}

fn set<const OPCODE: Opcode>(control: &OwnedFd, value: libc::__c_anonymous_ifr_ifru) -> io::Result<()> {
    update::<OPCODE>(control, &mut request_for(TUN_NAME, value))
}

fn update<const OPCODE: Opcode>(descriptor: impl AsFd, request: &mut ifreq) -> io::Result<()> {
    // SAFETY: every opcode in this file takes a pointer to an `ifreq` (netdevice(7), tuntap.rst), which is whole here.
    unsafe { ioctl(descriptor, Updater::<OPCODE, ifreq>::new(request)) }?;
    Ok(())
}

fn request_for(name: &str, value: libc::__c_anonymous_ifr_ifru) -> ifreq {
    let mut request = ifreq { ifr_name: [0; libc::IFNAMSIZ], ifr_ifru: value };
    for (to, from) in request.ifr_name[..libc::IFNAMSIZ - 1].iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    request
}

/// A `sockaddr_in`, byte by byte: two of port, then the address.
fn inet(address: Ipv4Addr) -> sockaddr {
    let mut data = [0; 14];
    for (to, from) in data[2..6].iter_mut().zip(address.octets()) {
        *to = from as c_char;
    }
    sockaddr { sa_family: libc::AF_INET as u16, sa_data: data }
}
