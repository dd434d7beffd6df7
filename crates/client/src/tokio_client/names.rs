//! Where a server is: at an address, or wherever its name leads when it is dialled (R12.38).
//!
//! The system's look-up blocks, often for many seconds if no name server answers. Each takes a thread of its own, which
//! nobody waits for any more if it takes too long, and there are few of them at once.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use crate::limits::{ANSWERS_MAX, LOOK_UP_PATIENCE, LOOK_UPS_MAX};

type LookUp = dyn Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// How the names of servers are looked up. The default asks the system.
#[derive(Clone)]
pub struct Resolver(Arc<LookUp>);

impl Resolver {
    /// A function that is given `host:port`, and may block: it is called on a thread of its own.
    pub fn new(look_up: impl Fn(&str) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(look_up))
    }

    /// The addresses of a name, those of IPv4 first, since most servers listen at such.
    async fn look_up(&self, name: &str) -> Result<Vec<SocketAddr>, String> {
        static AT_ONCE: Semaphore = Semaphore::const_new(LOOK_UPS_MAX);
        let permit = AT_ONCE.acquire().await.map_err(|error| error.to_string())?;
        let (tell, answer) = oneshot::channel();
        let (look_up, asked) = (Arc::clone(&self.0), name.to_owned());
        let thread = std::thread::Builder::new().name("kasha-names".to_owned());
        let started = thread.spawn(move || {
            let _ = tell.send(look_up(&asked));
            drop(permit);
        });
        started.map_err(|error| error.to_string())?;
        let found = timeout(LOOK_UP_PATIENCE, answer).await.map_err(|_| "no name server answered".to_owned())?;
        let found = found.map_err(|_| "its look-up panicked".to_owned())?.map_err(|error| error.to_string())?;
        let (mut addresses, other): (Vec<_>, Vec<_>) = found.into_iter().partition(SocketAddr::is_ipv4);
        addresses.extend(other);
        let mut once: Vec<SocketAddr> = Vec::new();
        for address in addresses {
            if !once.contains(&address) && once.len() < ANSWERS_MAX {
                once.push(address);
            }
        }
        if once.is_empty() { Err("the name has no address".to_owned()) } else { Ok(once) }
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(|name| Ok(name.to_socket_addrs()?.collect()))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Way {
    At(SocketAddr),
    Named(Arc<str>),
}

impl Way {
    /// What a program wrote: `host:port`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse() {
            return Ok(Self::At(address));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self::Named(text.into())),
            Some(_) | None => Err(format!("{text:?} is no address: write host:port, for example 127.0.0.1:7400")),
        }
    }

    /// The addresses to try now, in turn: first the one whose turn it is.
    pub(super) async fn addresses(&self, resolver: &Resolver, turn: usize) -> Result<Vec<SocketAddr>, String> {
        let mut addresses = match self {
            Self::At(address) => vec![*address],
            Self::Named(name) => resolver.look_up(name).await?,
        };
        let turn = turn % addresses.len();
        addresses.rotate_left(turn);
        Ok(addresses)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => write!(f, "{address}"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_an_address_or_a_name_and_a_port() {
        assert_eq!(Way::parse("127.0.0.1:7400"), Ok(Way::At(([127, 0, 0, 1], 7400).into())));
        assert_eq!(Way::parse("node-1.example:7400"), Ok(Way::Named("node-1.example:7400".into())));
        for wrong in ["", "host", ":7400", "host:", "host:port", "host:70000"] {
            assert!(Way::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn each_address_of_a_name_has_its_turn() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let (one, two, six) = (address("10.0.0.1:1"), address("10.0.0.2:1"), address("[::1]:1"));
        let resolver = Resolver::new(move |_| Ok(vec![six, one, two, one]));
        let way = Way::Named("a:1".into());
        assert_eq!(way.addresses(&resolver, 0).await, Ok(vec![one, two, six]));
        assert_eq!(way.addresses(&resolver, 4).await, Ok(vec![two, six, one]));
        let nobody = Resolver::new(|_| Ok(Vec::new()));
        assert!(way.addresses(&nobody, 0).await.is_err());
    }
}
