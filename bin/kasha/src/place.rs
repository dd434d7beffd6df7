//! Addresses as people write them: `10.0.0.1:7400`, `[::1]:7400`, `node-1.example:7400`.

use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::Deserialize;

/// A host, by its number or name, and a port.
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

impl Place {
    /// The address that the name has now: the first one, and one of IPv4 before others. A name that gets another address later is
    /// looked up again only by the next start. Only localhost is this host alone: a name that others have for it must not mean that.
    pub fn address(&self) -> Result<SocketAddr> {
        let Self(text) = self;
        let found = text.to_socket_addrs().with_context(|| {
            format!("{text:?} has no address: check the name, or write the number of the host (K0403)")
        })?;
        let is_number = text.parse::<SocketAddr>().is_ok();
        let means_this_host = is_number || text.starts_with("localhost:");
        let found: Vec<_> = found.filter(|address| means_this_host || !address.ip().is_loopback()).collect();
        let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
        first.copied().with_context(|| {
            format!(
                "{text:?} is this host alone here (see /etc/hosts), and others cannot reach that: write the number of the \
                 host (K0403)"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_names_or_numbers() {
        for text in ["127.0.0.1:7400", "[::1]:7400", "localhost:7400"] {
            let address = text.parse::<Place>().unwrap().address().unwrap();
            assert!(address.ip().is_loopback() && address.port() == 7400, "{text}: {address}");
        }
        for text in ["", "7400", "host", ":7400", "host:", "host:port", "host:70000"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
        let nobody = "nobody.invalid:1".parse::<Place>().unwrap().address().unwrap_err();
        assert!(nobody.to_string().contains("nobody.invalid"), "{nobody}");
    }
}
