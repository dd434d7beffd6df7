//! The asynchronous wrapper against a server of a few lines on the loopback. The server is one node and its own
//! coordinator, has no replicas, and loses the first delivery of every update.
#![cfg(feature = "tokio")]
#![allow(clippy::disallowed_methods, reason = "the wrapper's business is the outside world")]

#[allow(dead_code, reason = "shared with the tests of the session")]
use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::configuration;
use kasha_client::{Answer, Client, ClientOptions, Conditional, Counter, Error, Rejection, Resolved, Resolver};
use kasha_types::{ClientId, ClusterTime, Incarnation, ListVersion, NodeId, RpcId, TableId};
use kasha_wire::message::{TableCommand, TableOutcome};
use kasha_wire::operation::Condition;
use kasha_wire::{
    AnswerView, AnyMessage, Body, Configuration, FRAME_HEADER_BYTES, FrameHeader, Kind, Message, ReadAnswerView,
    ReadView, RequestView, Update, message,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct Server {
    counters: BTreeMap<Vec<u8>, i64>,
    results: BTreeMap<(u64, u64), Vec<u8>>,
    lost: BTreeMap<(u64, u64), u32>,
    /// Time limits of operation keys, in milliseconds of ClusterTime.
    not_after: Vec<u64>,
    /// Deliveries of each update that are lost.
    losses: u32,
}

impl Server {
    fn execute(&mut self, update: &Update<'_>) -> Vec<u8> {
        let mut result = vec![0];
        match update {
            Update::Increment { key: b"text", .. } => return vec![4],
            Update::Increment { key, delta, .. } => {
                let value = self.counters.entry(key.to_vec()).or_default();
                *value += delta;
                result.extend_from_slice(&value.to_le_bytes());
                result.extend_from_slice(&1u64.to_le_bytes());
            }
            Update::Put { axes, .. } if axes.terms.condition == Some(Condition::ABSENT) => {
                result = vec![1];
                result.extend_from_slice(&5u64.to_le_bytes());
            }
            other => panic!("{other:?} is not in this test"),
        }
        result
    }

    fn on_request(&mut self, payload: &[u8], out: &mut Vec<u8>) {
        let request = RequestView::decode(payload).expect("a request");
        let body = Body::decode(request.body).expect("a body");
        let RpcId { client, sequence } = body.head.rpc;
        let id = (client.0, sequence.0);
        let lost = self.lost.entry(id).or_default();
        *lost += 1;
        if *lost <= self.losses {
            return;
        }
        let result = match self.results.get(&id) {
            Some(result) => result.clone(),
            None => self.execute(&body.update),
        };
        self.results.insert(id, result.clone());
        self.not_after.push(body.head.not_after.0);
        let (epoch, attempt, shard) = (request.envelope.epoch, request.envelope.attempt, request.envelope.shard);
        AnswerView { rpc: body.head.rpc, epoch, attempt, synced: true, shard, result: &result }.encode(&[], out);
    }

    fn on_message(configuration: &Configuration, message: AnyMessage, out: &mut Vec<u8>) {
        let cluster_time = ClusterTime(1);
        let answer: AnyMessage = match message {
            AnyMessage::Hello(message::Hello { to, .. }) => message::Welcome {
                version: kasha_wire::WIRE_VERSION,
                cluster: configuration.cluster,
                core: to,
                incarnation: Incarnation(1),
            }
            .into(),
            AnyMessage::GetConfiguration(_) => message::ConfigurationIs {
                level: kasha_wire::Level::FIRST,
                unix_origin: kasha_wire::Later::absent(),
                configuration: configuration.clone(),
            }
            .into(),
            AnyMessage::OpenSession(message::OpenSession { nonce }) => {
                let lease_expiry = ClusterTime(300_000);
                message::SessionOpened { nonce, client: ClientId(1), lease_expiry, cluster_time }.into()
            }
            AnyMessage::TableRequest(message::TableRequest { client, sequence, command }) => {
                let outcome = match command {
                    TableCommand::Create(_) | TableCommand::CreateAt(..) => TableOutcome::Exists(TableId(1)),
                    TableCommand::Drop(_) => TableOutcome::NotFound,
                };
                message::TableAnswer { client, sequence, outcome }.into()
            }
            other => panic!("{other:?} is not in this test"),
        };
        answer.encode(out);
    }
}

async fn serve(mut stream: TcpStream, server: Arc<Mutex<Server>>, configuration: Configuration) {
    let mut buffer = Vec::new();
    while stream.read_buf(&mut buffer).await.is_ok_and(|read| read > 0) {
        let mut out = Vec::new();
        while let Some(header) = FrameHeader::parse(&buffer).expect("a frame")
            && buffer.len() >= FRAME_HEADER_BYTES + header.payload_len
        {
            let frame: Vec<u8> = buffer.drain(..FRAME_HEADER_BYTES + header.payload_len).collect();
            let payload = header.check(&frame).expect("a right checksum");
            match Kind::from_number(header.kind) {
                Some(Kind::Request) => server.lock().expect("no panic").on_request(payload, &mut out),
                Some(Kind::Read) => {
                    let read_id = ReadView::decode(payload).expect("a read").read_id;
                    ReadAnswerView { read_id, result: &[2] }.encode(&[], &mut out);
                }
                Some(Kind::Message) => {
                    let message = AnyMessage::decode(payload).expect("a message");
                    Server::on_message(&configuration, message, &mut out);
                }
                other => panic!("{other:?} is not in this test"),
            }
        }
        if stream.write_all(&out).await.is_err() {
            return;
        }
    }
}

async fn start(losses: u32) -> (SocketAddr, Arc<Mutex<Server>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let server = Arc::new(Mutex::new(Server { losses, ..Server::default() }));
    let mut configuration = configuration(1);
    configuration.coordinator = address;
    configuration.faults = 0;
    configuration.nodes.truncate(1);
    configuration.nodes[0].cores = vec![address];
    for shard in &mut configuration.shards {
        (shard.primary, shard.list) = (NodeId(1), ListVersion(1));
        shard.witnesses.clear();
    }
    let shared = Arc::clone(&server);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&shared), configuration.clone()));
        }
    });
    (address, server)
}

#[tokio::test]
async fn retried_updates_count_once() {
    let (address, server) = start(1).await;
    let client = Client::connect([address.to_string()]).await.expect("a cluster");
    let table = client.table("default").await.expect("a table");
    let calls = (0..50).map(|n| {
        let call = table.increment(format!("counter-{}", n % 5), 1).once(format!("call-{n}"));
        tokio::spawn(call.into_future())
    });
    for call in calls.collect::<Vec<_>>() {
        let counter: Counter = call.await.expect("no panic").expect("executed");
        assert!(counter.value <= 10);
    }
    let counters = server.lock().expect("no panic").counters.clone();
    assert_eq!(counters.into_values().collect::<Vec<_>>(), [10; 5]);
    assert!(client.stats().await.expect("running").retries >= 50);
}

#[tokio::test]
async fn outcomes_and_errors_are_told_apart() {
    let (address, _server) = start(0).await;
    let client = Client::connect([address.to_string()]).await.expect("a cluster");
    let table = client.create_table("default").await.expect("a table");
    assert_eq!(table.get("missing").await.expect("an answer"), None);
    assert_eq!(table.put_if_absent("k", "v").await.expect("an outcome"), Conditional::Failed(Some(5)));
    let rejected = table.increment("text", 1).await.expect_err("no number");
    assert!(matches!(rejected, Error::Rejected(Rejection::NotANumber(0))), "{rejected}");
    let refused = table.put(vec![0; 70_000], "v").await.expect_err("too long");
    assert!(matches!(refused, Error::NotExecuted(_)), "{refused}");
    let pairs = [(vec![0; 70_000], "v")];
    assert!(matches!(table.multi_put(&pairs).await, Err(Error::NotExecuted(_))));
    assert!(matches!(client.table("other").await, Err(Error::NoTable(name)) if name == "other"));
    assert!(!client.drop_table("other").await.expect("an answer"));
    assert_eq!(client.list_tables().await.expect("an answer"), ["default"]);
}

#[tokio::test]
async fn time_to_live_and_operation_key_are_told_in_any_order() {
    let (address, server) = start(0).await;
    let table = Client::connect([address.to_string()]).await.expect("a cluster").table("default").await.expect("there");
    let hour = Duration::from_secs(3600);
    table.increment("a", 1).remember_for(hour).once("order-42").await.expect("executed");
    table.increment("b", 1).once("order-43").remember_for(hour).await.expect("executed");
    table.increment("c", 1).once("order-44").await.expect("executed");
    let limits = server.lock().expect("no panic").not_after.clone();
    let (hour, day) = (3_600_000, 24 * 3_600_000);
    assert!(limits[0] >= hour && limits[1] >= hour && limits[0].max(limits[1]) < day, "{limits:?}");
    assert!(limits[2] >= day, "{limits:?}");
}

#[tokio::test]
async fn an_unknown_update_is_resolved_and_an_abandoned_one_is_finished() {
    let (address, server) = start(2).await;
    let client = Client::connect([address.to_string()]).await.expect("a cluster");
    let table = client.table("default").await.expect("a table");
    let call = loop {
        let patience = Duration::from_millis(1);
        match table.increment("a", 3).deadline(patience).await.expect_err("two deliveries are lost") {
            Error::Unknown { call, .. } => break call,
            // On a busy machine nothing has left before the deadline.
            Error::NotExecuted(_) => {}
            other => panic!("{other}"),
        }
    };
    let resolved = call.resolve().await.expect("the driver runs");
    assert_eq!(resolved, Resolved::Executed(kasha_wire::Outcome::Number(3, 1)));

    let dropped = tokio::spawn(table.increment("b", 1).into_future());
    until(|| server.lock().expect("no panic").lost.len() == 2).await;
    dropped.abort();
    until(|| server.lock().expect("no panic").counters.contains_key(&b"b"[..])).await;
}

#[tokio::test]
async fn an_answer_that_comes_late_has_the_type_of_the_call() {
    let (address, _server) = start(2).await;
    let client = Client::connect([address.to_string()]).await.expect("a cluster");
    let table = client.table("default").await.expect("a table");
    let late = async |key: &str| loop {
        match table.increment(key, 3).deadline(Duration::from_millis(1)).answer().await {
            Ok(Answer::Unknown(call)) => break call.resolve().await,
            // On a busy machine nothing has left before the deadline.
            Err(Error::NotExecuted(_)) => {}
            other => panic!("two deliveries are lost: {other:?}"),
        }
    };
    assert_eq!(late("a").await.expect("executed"), Counter { value: 3, version: 1 });
    let rejected = late("text").await.expect_err("it is no number");
    assert!(matches!(rejected, Error::Rejected(Rejection::NotANumber(_))), "{rejected}");
    let Answer::Known(counter) = table.increment("a", 1).answer().await.expect("executed") else { panic!("in time") };
    assert_eq!(counter.value, 4);
}

/// Waits for the background.
async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn nobody_there_is_an_error_that_says_so() {
    let options = ClientOptions { connect_timeout: Duration::from_millis(300), ..ClientOptions::default() };
    let error = Client::connect_with(["127.0.0.1:1"], options).await.expect_err("nobody listens");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    let error = Client::connect(["no port"]).await.expect_err("no address");
    assert!(error.to_string().contains("no port"), "{error}");
    let (address, _server) = start(0).await;
    Client::connect(["no port".to_owned(), address.to_string()]).await.expect("one address is enough");
}

/// A name that nobody knows yet, then one of a stranger who says nothing that is a frame, then one of twenty addresses at which
/// nobody listens, and at last the server's too: the client finds it, and is told why it does not until then.
#[tokio::test]
async fn a_name_is_looked_up_whenever_it_is_dialled() {
    let (address, _server) = start(0).await;
    let stranger = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let strange = stranger.local_addr().expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = stranger.accept().await {
            let _ = stream.write_all(b"220 mail.example ESMTP\r\n").await;
        }
    });
    let gone: Vec<SocketAddr> = (1..=20).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
    let many = [&gone[..10], &[strange, address], &gone[10..]].concat();
    let answers = Arc::new(Mutex::new(None));
    let known = Arc::clone(&answers);
    let resolver = Resolver::new(move |name| {
        assert_eq!(name, "kasha.example:7400");
        known.lock().expect("no panic").clone().ok_or(std::io::ErrorKind::NotFound.into())
    });
    let options = move |millis| {
        let connect_timeout = Duration::from_millis(millis);
        ClientOptions { connect_timeout, resolver: resolver.clone(), ..ClientOptions::default() }
    };
    for (answer, why) in
        [(None, "kasha.example"), (Some(vec![]), "no address"), (Some(vec![strange]), "not a Kasha frame")]
    {
        *answers.lock().expect("no panic") = answer;
        let error = Client::connect_with(["kasha.example:7400"], options(300)).await.expect_err("nobody is there");
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    *answers.lock().expect("no panic") = None;
    let patient = options(60_000);
    let waits = tokio::spawn(async move { Client::connect_with(["kasha.example:7400"], patient).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    *answers.lock().expect("no panic") = Some(many);
    waits.await.expect("no panic").expect("it is found in the end");
}

/// A program can keep an error, send it to another thread, and pass it on with `?`.
#[test]
fn errors_are_errors() {
    fn is_error<T: std::error::Error + Send + Sync + 'static>() {}
    is_error::<Error>();
}
