//! Redis: a primary and two replicas, all with an append-only file, and one connection for each caller.
//!
//! A caller sends `SET` and `WAIT` in one packet. Its update is done when the second answer says that enough replicas
//! have it. A replica's acknowledged writes are in its file (it appends before it answers), which is flushed once a
//! second.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use super::load::{self, Load, Round};
use super::servers::{Place, Servers};
use super::{RivalsOptions, SERVERS};
use crate::limits;

const PORT: u16 = 6379;

/// A running primary with its replicas, and connections to it.
pub(super) struct Redis {
    connections: Vec<Arc<Mutex<TcpStream>>>,
    pub(super) servers: Servers,
}

impl Redis {
    pub(super) fn start(options: &RivalsOptions, place: &Place<'_>, runtime: &Runtime) -> anyhow::Result<Self> {
        let mut servers = Servers::new("redis", &place.folder);
        let primary = place.address(0, PORT);
        for host in 0..SERVERS {
            let mut command = Command::new("redis-server");
            command.arg("--dir").arg(place.folder("redis", host)?);
            command.args(["--port", &PORT.to_string(), "--bind", &place.address(host, PORT).ip().to_string()]);
            command.args(["--protected-mode", "no", "--save", "", "--repl-diskless-sync-delay", "0"]);
            command.args(["--appendonly", "yes", "--appendfsync", "everysec"]);
            if host > 0 {
                command.args(["--replicaof", &primary.ip().to_string(), &PORT.to_string()]);
            }
            servers.spawn(place, command)?;
        }
        servers.wait(|| runtime.block_on(has_replicas(primary)))?;
        // WAIT blocks the connection that it is sent on, so callers cannot share one.
        let connections = (0..options.clients()).map(|_| {
            let stream = runtime.block_on(connect(primary))?;
            Ok(Arc::new(Mutex::new(stream)))
        });
        Ok(Self { connections: connections.collect::<anyhow::Result<_>>()?, servers })
    }

    pub(super) fn round(&mut self, runtime: &Runtime, load: &Load, replicas: u64) -> anyhow::Result<Round> {
        load::run(runtime, load, |caller, end| {
            let (mut keys, value) = (load.keys(caller), load.value.clone());
            let connection = Arc::clone(&self.connections[caller]);
            async move {
                // No other caller uses it: each has a connection of its own.
                let mut stream = connection.lock().await;
                let (mut request, mut latencies) = (Vec::new(), Vec::new());
                while !end.has_come(&latencies) {
                    encode(&mut request, keys.draw().as_bytes(), &value, replicas);
                    let start = Instant::now();
                    stream.write_all(&request).await?;
                    check(&answers(&mut stream).await?, replicas)?;
                    latencies.push(load::nanos_since(start));
                }
                Ok(latencies)
            }
        })
    }
}

async fn connect(address: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream = TcpStream::connect(address).await.context("cannot connect to Redis")?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Whether both replicas follow.
async fn has_replicas(primary: SocketAddr) -> anyhow::Result<bool> {
    let mut stream = connect(primary).await?;
    stream.write_all(b"INFO replication\r\nQUIT\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.matches("state=online").count() == SERVERS - 1)
}

fn encode(request: &mut Vec<u8>, key: &[u8], value: &[u8], replicas: u64) {
    use std::io::Write as _;
    request.clear();
    let mut command = |parts: &[&[u8]]| {
        write!(request, "*{}\r\n", parts.len()).expect("a vector takes it");
        for part in parts {
            write!(request, "${}\r\n", part.len()).expect("a vector takes it");
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
    };
    command(&[b"SET", key, value]);
    let patience = limits::OPERATION.as_millis().to_string();
    command(&[b"WAIT", replicas.to_string().as_bytes(), patience.as_bytes()]);
}

/// Two lines: the answers to `SET` and `WAIT`.
async fn answers(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut answers = Vec::with_capacity(64);
    while answers.iter().filter(|byte| **byte == b'\n').count() < 2 {
        ensure!(stream.read_buf(&mut answers).await? > 0, "Redis closed the connection");
    }
    Ok(answers)
}

fn check(answers: &[u8], replicas: u64) -> anyhow::Result<()> {
    let text = std::str::from_utf8(answers).unwrap_or_default();
    let count = text.strip_prefix("+OK\r\n:").and_then(|count| count.trim_end().parse::<u64>().ok());
    match count {
        Some(count) if count >= replicas => Ok(()),
        _ => bail!("Redis answers {:?}", String::from_utf8_lossy(answers)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_what_redis_means() {
        let mut request = Vec::new();
        encode(&mut request, b"key", b"v", 2);
        let wait = "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$5\r\n10000\r\n";
        assert_eq!(String::from_utf8(request).unwrap(), format!("*3\r\n$3\r\nSET\r\n$3\r\nkey\r\n$1\r\nv\r\n{wait}"));
        assert!(check(b"+OK\r\n:2\r\n", 2).is_ok());
        for bad in [&b"+OK\r\n:1\r\n"[..], b"-READONLY\r\n:2\r\n", b"+OK\r\n-ERR\r\n", b""] {
            assert!(check(bad, 2).is_err());
        }
    }
}
