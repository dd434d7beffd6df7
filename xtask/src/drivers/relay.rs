//! A relay between a driver and a server that breaks the connection instead of giving it the reply to an INCR, as the death of a server does: the
//! INCR has been executed, and the driver does not know.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::{Context, Result};

/// What the relay looks for: the last word but one of the request `INCR key`, however the driver writes it.
const INCR: &[u8] = b"$4\r\nINCR\r\n";

/// What redis-rs sends for the same.
const INCRBY: &[u8] = b"$6\r\nINCRBY\r\n";

/// It takes connections for as long as this program runs.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    /// So many replies are yet to be kept back.
    breaks: Arc<AtomicU32>,
}

impl Relay {
    /// Begins to listen.
    pub(crate) fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen")?;
        let relay = Self { address: listener.local_addr()?, breaks: Arc::default() };
        let breaks = Arc::clone(&relay.breaks);
        thread::spawn(move || {
            for driver in listener.incoming().map_while(Result::ok) {
                // Whoever cannot be connected finds the connection closed.
                let _ = connect(driver, server, &breaks);
            }
        });
        Ok(relay)
    }

    /// From now on, so many connections break.
    pub(crate) fn set_breaks(&self, count: u32) {
        self.breaks.store(count, Ordering::Relaxed);
    }

    /// How many are yet to break.
    pub(crate) fn breaks(&self) -> u32 {
        self.breaks.load(Ordering::Relaxed)
    }
}

fn connect(mut driver: TcpStream, server: SocketAddr, breaks: &Arc<AtomicU32>) -> Result<()> {
    let mut server = TcpStream::connect(server)?;
    let (mut replies, mut to_driver) = (server.try_clone()?, driver.try_clone()?);
    let (breaks, waits) = (Arc::clone(breaks), Arc::new(AtomicU32::new(0)));
    let waits_for_reply = Arc::clone(&waits);
    thread::spawn(move || -> Result<()> {
        let mut bytes = [0; 4096];
        while let Some(read) = some(driver.read(&mut bytes)) {
            waits.fetch_or(u32::from(is_incr(&bytes[..read])), Ordering::AcqRel);
            server.write_all(&bytes[..read])?;
        }
        Ok(server.shutdown(Shutdown::Both)?)
    });
    thread::spawn(move || -> Result<()> {
        let mut bytes = [0; 4096];
        while let Some(read) = some(replies.read(&mut bytes)) {
            let one_less = |left: u32| left.checked_sub(1);
            if waits_for_reply.swap(0, Ordering::AcqRel) == 1
                && breaks.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok()
            {
                break;
            }
            to_driver.write_all(&bytes[..read])?;
        }
        replies.shutdown(Shutdown::Both)?;
        Ok(to_driver.shutdown(Shutdown::Both)?)
    });
    Ok(())
}

/// How much was read, if there was something.
fn some(read: std::io::Result<usize>) -> Option<usize> {
    read.ok().filter(|read| *read > 0)
}

/// A driver that waits for each reply sends nothing else in the same piece.
fn is_incr(request: &[u8]) -> bool {
    let request = request.to_ascii_uppercase();
    [INCR, INCRBY].iter().any(|word| request.windows(word.len()).any(|part| part == *word))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn replies_to_incr_are_kept_back() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let server = listener.local_addr().unwrap();
        // A server that answers whatever it is asked, a piece at a time.
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut bytes = [0; 100];
                    while some(stream.read(&mut bytes)).is_some() {
                        stream.write_all(b"+yes\r\n").unwrap();
                    }
                });
            }
        });
        let relay = Relay::to(server).unwrap();
        let ask = |words: &[u8]| {
            let mut stream = TcpStream::connect(relay.address).unwrap();
            stream.write_all(words).unwrap();
            let mut line = String::new();
            // A connection that breaks may be reset.
            let _ = BufReader::new(stream).read_line(&mut line);
            line
        };
        assert_eq!(ask(b"*2\r\n$4\r\nincr\r\n$1\r\na\r\n"), "+yes\r\n");
        relay.set_breaks(2);
        assert_eq!(ask(b"*1\r\n$4\r\nPING\r\n"), "+yes\r\n");
        assert_eq!(ask(b"*2\r\n$4\r\nincr\r\n$1\r\na\r\n"), "");
        assert_eq!(ask(b"*3\r\n$6\r\nINCRBY\r\n$1\r\na\r\n$1\r\n1\r\n"), "");
        assert_eq!(relay.breaks(), 0);
        assert_eq!(ask(b"*2\r\n$4\r\nINCR\r\n$1\r\na\r\n"), "+yes\r\n");
    }
}
