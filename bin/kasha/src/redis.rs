//! The Redis protocol: the front that serves it, in a process of its own (`kasha proxy`) or in the cores of a node as one machine (REDIS 1).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use kasha_client::session::{Seeds, Session, SessionOptions};
use kasha_gateway::limits::{CANCEL_GRACE, COMMAND_DEADLINE};
use kasha_gateway::{RedisFront, RedisOptions};
use kasha_machine::{Colocated, Effects, Fronted};
use kasha_node::Node;
use kasha_runtime::{
    Application, Control, Framing, Listener, ListeningSocket, LocalSocketFile, listen_at_path, random_u64,
};
use kasha_types::{CoreId, CorePort, Tick};
use kasha_wire::message::Placement;

use crate::telling::TellLease;

/// How long outstanding requests may take when a front is to end (R10.5).
pub const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How often it is looked at whether the front has ended.
const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// A front, over the session that it owns.
pub type Front = Fronted<RedisFront, Session>;

/// A core of a node with a front.
pub type Core = Colocated<Front, Node>;

/// A front. `beside`: the core of a node that it is in.
pub fn front(seeds: Seeds, beside: Option<CoreId>, options: RedisOptions, now: Tick, out: &mut Effects) -> Front {
    let of_session = SessionOptions {
        deadline: COMMAND_DEADLINE,
        cancel_grace: CANCEL_GRACE,
        beside,
        ..SessionOptions::new(seeds, random_u64())
    };
    Fronted::new(RedisFront::new(options), Session::new(of_session, now, out))
}

/// Where a proxy speaks the Redis protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisPlace {
    At(SocketAddr),
    /// A socket that is a file, for programs on this machine.
    File(PathBuf),
}

impl RedisPlace {
    /// Reads `ip:port`, or `unix:/path`.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err(format!("{text:?} names no file: write unix:/path (K0403)")),
            Some(path) => Ok(Self::File(path.into())),
            None => text
                .parse()
                .map(Self::At)
                .map_err(|_| format!("{text:?} is no place: write ip:port, or unix:/path (K0403)")),
        }
    }

    /// Listens there. Says which port that is.
    fn listen(&self) -> Result<(ListeningSocket, Self, Option<LocalSocketFile>)> {
        Ok(match self {
            Self::At(address) => {
                let (socket, address) = kasha_runtime::listen(*address)?;
                (ListeningSocket::Tcp(socket), Self::At(address), None)
            }
            Self::File(path) => {
                let (socket, file) = listen_at_path(path)?;
                (ListeningSocket::Local(socket), self.clone(), Some(file))
            }
        })
    }
}

impl fmt::Display for RedisPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::File(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The port of a node: all its cores accept there. Or that of a proxy, which may have several.
pub struct Port {
    sockets: Vec<ListeningSocket>,
    /// They are removed at the end.
    _files: Vec<LocalSocketFile>,
    options: RedisOptions,
    /// Where each of the cores counts.
    counted: Vec<CorePort>,
}

impl Port {
    /// Takes the port, for so many cores.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub fn listen(spec: &PortSpec, cores: usize) -> Result<(Self, SocketAddr)> {
        let (socket, address) = kasha_runtime::listen(spec.address)?;
        let options = RedisOptions { port: address.port(), ..spec.options.clone() };
        let sockets = vec![ListeningSocket::Tcp(socket)];
        Ok((Self { sockets, _files: Vec::new(), options, counted: CorePort::of_cores(cores) }, address))
    }

    /// Takes all these places, for one core. Says where they are: port 0 has become the port that was taken.
    ///
    /// # Errors
    /// If one of them cannot be had.
    pub fn listen_at(places: &[RedisPlace], options: RedisOptions) -> Result<(Self, Vec<RedisPlace>)> {
        let (mut sockets, mut files, mut taken) = (Vec::new(), Vec::new(), Vec::new());
        for place in places {
            let (socket, at, file) = place.listen()?;
            sockets.push(socket);
            taken.push(at);
            files.extend(file);
        }
        let ports = taken.iter().filter_map(|place| match place {
            RedisPlace::At(address) => Some(address.port()),
            RedisPlace::File(_) => None,
        });
        let options = RedisOptions { port: ports.min().unwrap_or(0), ..options };
        Ok((Self { sockets, _files: files, options, counted: CorePort::of_cores(1) }, taken))
    }

    /// Where this core counts.
    pub fn counted(&self, core: usize) -> CorePort {
        self.counted[core].clone()
    }

    /// For the front of this core.
    pub fn options(&self, core: usize) -> RedisOptions {
        RedisOptions { counted: Some(self.counted(core)), ..self.options.clone() }
    }

    /// For one of the cores.
    pub fn listeners(&self) -> Result<Vec<Listener>> {
        let clones = self.sockets.iter().map(ListeningSocket::try_clone);
        clones.map(|socket| Ok(Listener { socket: socket?, framing: Framing::Requests })).collect()
    }
}

/// Where a node speaks the Redis protocol, and how.
#[derive(Clone, Debug)]
pub struct PortSpec {
    pub address: SocketAddr,
    pub options: RedisOptions,
}

/// Where the keys of databases are that a front makes.
pub fn placement(is_spread: bool) -> Placement {
    if is_spread { Placement::Spread } else { Placement::OneShard }
}

/// Where the first node of `kasha start` speaks the Redis protocol, unless something else does.
pub const FIRST_REDIS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6379);

/// What is said of the ports of a whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstPort {
    /// There are none.
    Off,
    /// The first node's; the others have the next ones.
    At(SocketAddr),
}

/// Reads the address of the first node's port, or `off`.
pub fn parse_first(text: &str) -> Result<FirstPort, String> {
    match text {
        "off" => Ok(FirstPort::Off),
        _ => text
            .parse()
            .map(FirstPort::At)
            .map_err(|_| format!("{text:?} is no address: write ip:port, or off (K0403)")),
    }
}

/// What a core with a front tells, and how it ends in good order: the front first, and then the node, which answers the front until then.
pub struct TellBoth {
    node: TellLease,
    asked: Arc<AtomicBool>,
    /// Tells the node to end.
    front_has_ended: Arc<AtomicBool>,
    since: Option<Tick>,
    looks_again: Option<Tick>,
}

impl TellBoth {
    /// For a core that ends once `asked` is set. `tells`: it logs whether the coordinator answers.
    pub fn new(asked: Arc<AtomicBool>, tells: bool) -> Self {
        let front_has_ended = Arc::<AtomicBool>::default();
        let node = TellLease::new(Arc::clone(&front_has_ended), tells);
        Self { node, asked, front_has_ended, since: None, looks_again: None }
    }

    fn end_front(&mut self, now: Tick, machine: &mut Core, out: &mut Effects) {
        let since = *self.since.get_or_insert_with(|| {
            machine.with_client(out, |client, out| {
                let (front, session) = client.parts_mut();
                front.begin_end(now, session, out);
            });
            now
        });
        self.looks_again = Some(now.after(LOOKS_EVERY));
        let has_ended = machine.client().front().is_idle() || now.since(since) >= ENDS_WITHIN;
        self.front_has_ended.store(has_ended, Ordering::Release);
    }
}

impl Application<Core> for TellBoth {
    fn turn(&mut self, now: Tick, machine: &mut Core, out: &mut Effects) -> Control {
        if self.asked.load(Ordering::Acquire) && !self.front_has_ended.load(Ordering::Acquire) {
            self.end_front(now, machine, out);
        }
        self.node.turn(now, machine.node_mut(), out)
    }

    fn next_wake(&self) -> Option<Tick> {
        self.looks_again.into_iter().chain(Application::<Node>::next_wake(&self.node)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_an_address_or_a_file() {
        for text in ["127.0.0.1:6379", "[::1]:1", "unix:/run/kasha.sock", "unix:socket"] {
            assert_eq!(RedisPlace::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "6379", "localhost:6379", "unix:", "/run/kasha.sock", "off"] {
            assert!(RedisPlace::parse(wrong).unwrap_err().contains("K0403"), "{wrong}");
        }
    }
}
