//! Addresses as people write them: `10.0.0.1:7400`, `[::1]:7400`, `node-1.example:7400`. A name is looked up whenever it is
//! needed (R12.38): what it stands for may be elsewhere by then, and may be nowhere yet.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use kasha_runtime::{ListenError, Resolver, listen, look_up};
use serde::Deserialize;

/// How long a server that starts waits for a name to have an address, or one of this machine's.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long it waits before it says so.
const SILENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(200);
/// How long one look-up may take. It goes on by itself, and the next question finds its answer.
const LOOK_UP: Duration = Duration::from_secs(5);

/// A host, by its IP address or name, and a port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Place(String);

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self(text.to_owned())),
            Some(_) | None => {
                Err(format!("{text:?} is no address: write host:port, for example 127.0.0.1:7400 (K0403)"))
            }
        }
    }
}

impl TryFrom<String> for Place {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The thread that looks names up for this process.
pub fn resolver() -> Result<Resolver> {
    Ok(Resolver::start(of_others)?)
}

/// The addresses of a name that others can reach, too. Only localhost is this host alone: a name that others have for this
/// host must not mean that, though /etc/hosts may say so.
fn of_others(name: &str) -> io::Result<Vec<SocketAddr>> {
    let found = look_up(name)?;
    if name.starts_with("localhost:") {
        return Ok(found);
    }
    let (own, found): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| address.ip().is_loopback());
    if found.is_empty() && !own.is_empty() {
        return Err(io::Error::other(
            "the name is this host alone here (see /etc/hosts), and others cannot reach that: write the IP address",
        ));
    }
    Ok(found)
}

impl Place {
    /// The address, if it is written as one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.parse().ok()
    }

    /// The name and the port.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The addresses that it has now. For a program that starts: this waits for a look-up.
    pub fn addresses(&self, resolver: &Resolver) -> Result<Vec<SocketAddr>, String> {
        match self.address() {
            Some(address) => Ok(vec![address]),
            None => resolver.wait(&self.0, LOOK_UP),
        }
    }

    /// Waits until it has an address.
    pub fn wait(&self, resolver: &Resolver) -> Result<SocketAddr> {
        self.until("an address", || self.addresses(resolver).map(|found| found[0]).map_err(Fault::Passes))
    }

    /// Listens at it; at a name, as soon as one of its addresses is one of this machine's. Returns where: port 0 is a free one.
    pub fn listen(&self, resolver: &Resolver) -> Result<(TcpListener, SocketAddr)> {
        if let Some(address) = self.address() {
            return Ok(listen(address)?);
        }
        self.until("an address of this machine", || {
            let found = self.addresses(resolver).map_err(Fault::Passes)?;
            let mut fault = Fault::Passes("it has no address".to_owned());
            for address in found {
                match (listen(address), &fault) {
                    (Ok(listens), _) => return Ok(listens),
                    // The name stands for where this host was before, or for other hosts, too.
                    (Err(error), Fault::Passes(_)) if error.error.kind() == io::ErrorKind::AddrNotAvailable => {
                        fault = Fault::Passes(error.to_string());
                    }
                    (Err(error), Fault::Passes(_)) => fault = Fault::Stays(error),
                    (Err(_), Fault::Stays(_)) => {}
                }
            }
            Err(fault)
        })
    }

    fn until<T>(&self, what: &str, mut attempt: impl FnMut() -> Result<T, Fault>) -> Result<T> {
        let (began, mut told) = (Instant::now(), false);
        loop {
            let problem = match attempt() {
                Ok(found) => return Ok(found),
                Err(Fault::Stays(error)) => return Err(error.into()),
                Err(Fault::Passes(problem)) => problem,
            };
            if began.elapsed() > PATIENCE {
                bail!(
                    "{self} has not {what} after {} s ({problem}): check the name, or write the IP address (K0420)",
                    PATIENCE.as_secs()
                );
            }
            if !told && began.elapsed() > SILENCE {
                told = true;
                let _ = writeln!(crate::stderr::Log, "kasha: waiting for {self} to have {what} ({problem}) …");
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Why a place cannot be used.
enum Fault {
    /// Names get their addresses, and hosts theirs, at different moments.
    Passes(String),
    Stays(ListenError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_names_or_ip_addresses() {
        let resolver = resolver().unwrap();
        for text in ["127.0.0.1:7400", "[::1]:7400", "localhost:7400"] {
            let address = text.parse::<Place>().unwrap().wait(&resolver).unwrap();
            assert!(address.ip().is_loopback() && address.port() == 7400, "{text}: {address}");
        }
        for text in ["", "7400", "host", ":7400", "host:", "host:port", "host:70000"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        let nobody = "nobody.invalid:1".parse::<Place>().unwrap().addresses(&resolver).unwrap_err();
        assert!(nobody.contains("nobody.invalid"), "{nobody}");
    }

    #[test]
    fn at_a_name_one_listens_where_this_machine_is() {
        let ours = SocketAddr::from(([127, 0, 0, 1], 0));
        let elsewhere = SocketAddr::from(([192, 0, 2, 1], 0));
        let resolver = Resolver::start(move |_| Ok(vec![elsewhere, ours])).unwrap();
        let (_listener, address) = "kasha.example:0".parse::<Place>().unwrap().listen(&resolver).unwrap();
        assert!(address.ip() == ours.ip() && address.port() != 0, "{address}");
    }
}
