//! A connection to a server.

use std::io::{BufReader, BufWriter, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::reply::{self, Reply};

/// Somebody who asks.
pub struct Link {
    from: BufReader<TcpStream>,
    to: BufWriter<TcpStream>,
}

impl Link {
    pub fn connect(address: &str) -> Result<Self> {
        const WAITS: Duration = Duration::from_secs(20);
        let stream = TcpStream::connect(address).with_context(|| format!("nobody listens at {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(WAITS))?;
        Ok(Self { from: BufReader::new(stream.try_clone()?), to: BufWriter::new(stream) })
    }

    /// Sends requests in one piece.
    pub fn send(&mut self, requests: &[Vec<Vec<u8>>]) -> Result<()> {
        requests.iter().try_for_each(|words| reply::write(&mut self.to, words))?;
        Ok(self.to.flush()?)
    }

    pub fn hear(&mut self) -> Result<Reply> {
        Reply::read(&mut self.from)
    }

    pub fn ask(&mut self, words: &[Vec<u8>]) -> Result<Reply> {
        self.send(&[words.to_vec()])?;
        self.hear()
    }
}
