//! etcd: three members, and HTTP/2 connections to the leader, with a stream for each put, as its own client has it.
//!
//! gRPC is HTTP/2 with five bytes before each message, and a `PutRequest` is two fields. So `h2` and this file are a
//! whole client. (etcd's JSON gateway would measure the gateway. A gRPC stack with its code generator is many times as
//! long as this.)

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::Request;
use tokio::runtime::Runtime;

use super::load::{self, Load, Round};
use super::servers::{Place, Servers};
use super::{RivalsOptions, SERVERS, report::Mode};
use crate::limits;

const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;

/// A running cluster and connections to its leader.
pub(super) struct Etcd {
    members: Vec<SocketAddr>,
    leader: SocketAddr,
    connections: Vec<SendRequest<Bytes>>,
    pub(super) servers: Servers,
}

impl Etcd {
    pub(super) fn start(options: &RivalsOptions, place: &Place<'_>, runtime: &Runtime) -> anyhow::Result<Self> {
        let name = Mode::Etcd.name();
        let mut servers = Servers::new(name, &place.folder);
        let url = |host, port| format!("http://{}", place.address(host, port));
        let cluster: Vec<String> = (0..SERVERS).map(|host| format!("m{host}={}", url(host, PEER_PORT))).collect();
        for host in 0..SERVERS {
            let mut command = Command::new("etcd");
            command.arg("--data-dir").arg(place.folder(name, host)?);
            command.args(["--name", &format!("m{host}"), "--log-level", "error"]);
            for flag in ["--listen-client-urls", "--advertise-client-urls"] {
                command.args([flag, &url(host, CLIENT_PORT)]);
            }
            for flag in ["--listen-peer-urls", "--initial-advertise-peer-urls"] {
                command.args([flag, &url(host, PEER_PORT)]);
            }
            command.args(["--initial-cluster", &cluster.join(","), "--initial-cluster-state", "new"]);
            servers.spawn(place, command)?;
        }
        let members: Vec<SocketAddr> = (0..SERVERS).map(|host| place.address(host, CLIENT_PORT)).collect();
        let mut leader = None;
        servers.wait(|| {
            leader = find_leader(&members)?;
            Ok(leader.is_some())
        })?;
        let leader = leader.expect("found");
        let connections = runtime.block_on(connect(leader, options.clients()))?;
        Ok(Self { members, leader, connections, servers })
    }

    pub(super) fn round(&mut self, runtime: &Runtime, load: &Load) -> anyhow::Result<Round> {
        // A follower would have to ask the leader.
        if !is_leader(self.leader)? {
            self.leader = find_leader(&self.members)?.context("etcd has no leader")?;
            self.connections = runtime.block_on(connect(self.leader, self.connections.len()))?;
        }
        let uri = format!("http://{}/etcdserverpb.KV/Put", self.leader);
        load::run(runtime, load, |caller, end| {
            let (mut keys, value, uri) = (load.keys(caller), load.value.clone(), uri.clone());
            let mut requests = self.connections[load.client(caller)].clone();
            async move {
                let mut latencies = Vec::new();
                while !end.has_come(&latencies) {
                    let message = put_request(keys.draw().as_bytes(), &value);
                    let start = Instant::now();
                    requests = put(requests, &uri, message).await?;
                    latencies.push(load::nanos_since(start));
                }
                Ok(latencies)
            }
        })
    }
}

async fn connect(leader: SocketAddr, count: usize) -> anyhow::Result<Vec<SendRequest<Bytes>>> {
    let mut connections = Vec::new();
    for _ in 0..count {
        let stream = tokio::net::TcpStream::connect(leader).await.context("cannot connect to etcd")?;
        stream.set_nodelay(true)?;
        let (requests, connection) = h2::client::handshake(stream).await.context("etcd speaks no HTTP/2")?;
        tokio::spawn(async move {
            // If the connection ends with an error, the next request fails too.
            let _ = connection.await;
        });
        connections.push(requests);
    }
    Ok(connections)
}

async fn put(requests: SendRequest<Bytes>, uri: &str, message: Bytes) -> anyhow::Result<SendRequest<Bytes>> {
    let mut requests = requests.ready().await?;
    let request = Request::post(uri).header("content-type", "application/grpc").header("te", "trailers").body(())?;
    let (response, mut body) = requests.send_request(request, false)?;
    body.send_data(message, true)?;
    let (head, mut body) = response.await?.into_parts();
    let mut bytes = 0;
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        bytes += chunk.len();
        body.flow_control().release_capacity(chunk.len())?;
    }
    let trailers = poll_fn(|context| body.poll_trailers(context)).await?;
    let status = trailers.as_ref().and_then(|trailers| trailers.get("grpc-status"));
    ensure!(
        head.status.is_success() && bytes > 0 && status.is_some_and(|status| status == "0"),
        "etcd refused a put: {head:?} {trailers:?}"
    );
    Ok(requests)
}

/// A gRPC message (uncompressed, its length) with `PutRequest { key = 1, value = 2 }`.
fn put_request(key: &[u8], value: &[u8]) -> Bytes {
    let field_bytes = |field: &[u8]| 1 + varint_bytes(field.len()) + field.len();
    let length = field_bytes(key) + field_bytes(value);
    let mut message = BytesMut::with_capacity(5 + length);
    message.put_u8(0);
    message.put_u32(u32::try_from(length).expect("a small message"));
    for (tag, field) in [(0x0A, key), (0x12, value)] {
        message.put_u8(tag);
        put_varint(&mut message, field.len());
        message.put_slice(field);
    }
    message.freeze()
}

fn varint_bytes(mut number: usize) -> usize {
    let mut bytes = 1;
    while number > 0x7F {
        (number, bytes) = (number >> 7, bytes + 1);
    }
    bytes
}

fn put_varint(message: &mut BytesMut, mut number: usize) {
    while number > 0x7F {
        message.put_u8((number & 0x7F) as u8 | 0x80);
        number >>= 7;
    }
    message.put_u8(number as u8);
}

fn find_leader(members: &[SocketAddr]) -> anyhow::Result<Option<SocketAddr>> {
    for &member in members {
        if is_leader(member)? {
            return Ok(Some(member));
        }
    }
    Ok(None)
}

fn is_leader(member: SocketAddr) -> anyhow::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&member, limits::OPERATION)?;
    stream.set_read_timeout(Some(limits::OPERATION))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics)?;
    Ok(metrics.lines().any(|line| line == "etcd_server_is_leader 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_is_encoded_as_protobuf_says() {
        assert_eq!(&put_request(b"k", b"vw")[..], b"\0\0\0\0\x07\x0A\x01k\x12\x02vw");
        let long = put_request(b"k", &[b'v'; 300]);
        assert_eq!(&long[..11], b"\0\0\0\x01\x32\x0A\x01k\x12\xAC\x02");
        assert_eq!(long.len(), 5 + 3 + 3 + 300);
    }
}
