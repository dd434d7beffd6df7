//! A front that speaks the Redis protocol, with the state of each connection.
//!
//! A connection's requests are handled in their order, when the inputs of a turn are in. A command that the front can answer by itself is answered
//! at once (`local`). One on keys of one shard goes, with those behind it that are of that shard, too, into a call that takes the commands of all
//! connections (`gathered`); any other one is a call of its own (`calls`). While it is outstanding the connection's later requests wait. So:
//!
//! - **R10.1** replies leave in the order of the requests;
//! - **R10.2** a connection is not closed because an outcome is unknown: it is told `UNKNOWN`, and nothing provokes a driver to repeat what may
//!   have run;
//! - **R10.3** in its strictest form: a connection reads its own writes;
//! - **R10.4** a reply is made of what the record says, in the protocol that the connection speaks when its request runs;
//! - **R10.5** a connection that ends drops its replies and the requests that wait, never an update that was sent;
//! - **R10.6** `EXEC` is one operation, which a command never refuses.

mod calls;
mod connection;
mod counts;
mod doing;
mod gathered;
mod info;
mod local;
mod multi;
mod once;
mod options;
mod settings;
mod tables;
mod unknown;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use kasha_client::session::{CallId, Completion, Session};
use kasha_commands::{Item, ReplyWriter};
use kasha_machine::{Effect, Effects, Endpoint, Front, RequestsEnd};
use kasha_types::planted::{self, Bug};
use kasha_types::{ConnId, Tick};
use kasha_wire::OutcomeCode;
use kasha_wire::operation::PartsBuffer;
use kasha_wire::outcome::each_part;
use kasha_wire::requests::Request;

use crate::limits::{REPLIED_WITHIN, WAITING_BYTES_LIMIT, WAITING_BYTES_TOTAL_MAX, WAITING_REQUESTS_LIMIT};
use crate::resp::Protocol;
use calls::Expected;
use connection::{Blocked, Connection, Hearing, Outstanding, Waiting};
use counts::Counts;
use doing::{Begun, Doing, row_of};
use gathered::{Batch, Gathered, Share};
pub use options::RedisOptions;
use tables::{Found, Tables};
use unknown::{Key, Unknown};
use whole::{Asking, Next};

/// The reply to a request that waited for one whose outcome is not known (R10.18), or for a table.
const TRY_AGAIN: &str = "TRYAGAIN it waited for what others do not answer, and was not executed";

/// Whose a call is.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Connection(ConnId),
    /// It has commands of several.
    Batch(Batch),
    /// It is for the table of this database.
    Table(u8),
    /// It looks for a cluster that was silent.
    Search,
}

/// The front.
#[derive(Debug, Default)]
pub struct RedisFront {
    options: RedisOptions,
    connections: BTreeMap<ConnId, Connection>,
    calls: BTreeMap<CallId, Owner>,
    gathered: Gathered,
    /// Memory for the commands of one connection.
    run_memory: PartsBuffer,
    /// Connections that may have a request to begin.
    ready: Vec<ConnId>,
    tables: Tables,
    unknown: Unknown,
    /// Connections whose first request does not wait longer than until then.
    blocked: BTreeSet<(Tick, ConnId)>,
    /// The cost of the requests of all connections that wait.
    bytes: usize,
    counts: Counts,
    /// No more requests are taken.
    is_ending: bool,
    /// A reply while it is written, in the form without a protocol.
    scratch: Vec<u8>,
}

impl RedisFront {
    /// A front without connections.
    #[must_use]
    pub fn new(options: RedisOptions) -> Self {
        Self { tables: Tables::new(options.placement), options, ..Self::default() }
    }

    /// Connections that have said something.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// No more requests are taken, those that wait are forgotten, and each connection ends behind what it is told of those that were sent
    /// (R10.5).
    pub fn begin_end(&mut self, now: Tick, session: &mut Session, out: &mut Effects) {
        self.is_ending = true;
        let conns: Vec<_> = self.connections.keys().copied().collect();
        for conn in conns {
            let connection = self.connections.get_mut(&conn).expect("listed above");
            self.bytes -= connection.bytes;
            connection.forget_requests();
            connection.blocked = None;
            self.blocked.retain(|&(_, of)| of != conn);
            if connection.hearing == Hearing::Open {
                connection.hearing = Hearing::UntilAnswered(None);
            }
            self.go_on(now, conn, session, out);
        }
    }

    /// What keeps the requests from being executed, for people, as INFO tells it. `None`: nothing, as far as is known.
    #[must_use]
    pub fn waits_for(&self, session: &Session) -> Option<String> {
        local::waits_for(session, self.counts.is_silent)
    }

    /// Its host has found that nobody of the cluster answers. From then on the host is to call this again and again: that one process answers
    /// again proves little, so that the silence ends when a leader of the coordinator's group has told the configuration, or something was executed.
    pub fn search_silent_cluster(&mut self, now: Tick, session: &mut Session, out: &mut Effects) {
        self.counts.is_silent = true;
        if !self.calls.values().any(|owner| *owner == Owner::Search) {
            self.calls.insert(session.refresh(now, out), Owner::Search);
        }
    }

    /// Whether nobody of the cluster answers.
    #[must_use]
    pub fn is_cluster_silent(&self) -> bool {
        self.counts.is_silent
    }

    /// Whether nothing is outstanding.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.gathered.is_empty() && self.calls.values().all(|owner| matches!(owner, Owner::Table(_) | Owner::Search))
    }

    fn connection(&mut self, from: ConnId) -> &mut Connection {
        self.connections.entry(from).or_insert_with(|| {
            self.counts.connections += 1;
            Connection::new(self.counts.connections, self.options.password.is_none())
        })
    }

    /// Goes through the requests that wait until one has to be waited for.
    fn go_on(&mut self, now: Tick, conn: ConnId, session: &mut Session, out: &mut Effects) {
        let Self {
            options,
            connections,
            calls,
            gathered,
            run_memory,
            tables,
            unknown,
            blocked,
            bytes,
            scratch,
            counts,
            ..
        } = self;
        let clients = connections.len();
        let Some(connection) = connections.get_mut(&conn) else { return };
        let before = connection.bytes;
        while connection.outstanding.is_none()
            && connection.blocked.is_none()
            && connection.may_be_told_more(counts.round)
            && let Some(mut request) = connection.take_request()
        {
            scratch.clear();
            let mut doing =
                Doing { now, session, options, clients, counts, unknown, gathered, run_memory, out, scratch };
            match doing.begin((conn, connection), &request) {
                Begun::Answered(decided) => {
                    let is_answered = decided.or(request.is_answered).unwrap_or_else(|| connection.is_answered());
                    counts.commands += 1;
                    if is_answered {
                        connection.tell(conn, scratch, counts, out);
                    }
                }
                Begun::Ended => {
                    counts.commands += 1;
                    if connection.is_answered() {
                        connection.tell(conn, scratch, counts, out);
                    }
                    connection.forget_requests();
                    connection.hearing = Hearing::UntilAnswered(None);
                }
                Begun::Waits(outstanding) => {
                    if let Outstanding::Call { call, .. } = outstanding {
                        calls.insert(call, Owner::Connection(conn));
                    }
                    connection.outstanding = Some(outstanding);
                }
                Begun::Gathered(is_answered, mut requests) => {
                    request.is_answered = Some(is_answered);
                    requests.push_front(request);
                    connection.outstanding = Some(Outstanding::Gathered(requests));
                }
                Begun::Blocked(by) => {
                    blocked.insert((request.since.after(REPLIED_WITHIN), conn));
                    connection.blocked = Some(by);
                    connection.push_front(request);
                    if let Blocked::Table(database) = by
                        && let Some(call) = tables.look_for(now, database, session, out)
                    {
                        calls.insert(call, Owner::Table(database));
                    }
                }
            }
        }
        *bytes = *bytes + connection.bytes - before;
        self.end_or_wait(conn, out);
    }

    /// What comes of a connection of which nothing more begins now. It goes on in the next round if it was told enough in this one; it ends if it has
    /// said that it does, and nothing is left to do for it.
    fn end_or_wait(&mut self, conn: ConnId, out: &mut Effects) {
        let Self { connections, counts, scratch, ready, .. } = self;
        let connection = connections.get_mut(&conn).expect("the caller has it");
        if connection.is_unheard && connection.may_have_more() {
            connection.is_unheard = false;
            out.push(Effect::Hear { from: conn, more: true });
        }
        if connection.outstanding.is_some() || connection.blocked.is_some() {
            return;
        }
        if !connection.requests.is_empty() {
            if !connection.is_stuffed {
                ready.push(conn);
            }
            return;
        }
        if let Hearing::UntilAnswered(why) = &mut connection.hearing {
            if let Some(why) = why.take() {
                scratch.clear();
                ReplyWriter(scratch).item(Item::Error(&why));
                connection.tell(conn, scratch, counts, out);
            }
            out.push(Effect::Disconnect(Endpoint::Conn(conn)));
            connection.hearing = Hearing::Over;
        }
    }

    fn end(&mut self, now: Tick, from: ConnId, why: Option<String>, session: &mut Session, out: &mut Effects) {
        let connection = self.connection(from);
        if connection.hearing == Hearing::Open {
            connection.hearing = Hearing::UntilAnswered(why);
        }
        self.go_on(now, from, session, out);
    }

    /// The first request of these connections begins anew. `refusal`: it does not, and is told this.
    fn go_on_with(
        &mut self,
        now: Tick,
        which: impl Fn(ConnId, &Connection) -> bool,
        refusal: Option<&str>,
        session: &mut Session,
        out: &mut Effects,
    ) {
        let conns: Vec<_> =
            self.connections.iter().filter(|(conn, known)| which(**conn, known)).map(|(conn, _)| *conn).collect();
        for conn in conns {
            let connection = self.connections.get_mut(&conn).expect("listed above");
            connection.blocked = None;
            self.blocked.retain(|&(_, of)| of != conn);
            if let Some(text) = refusal
                && let Some(request) = connection.take_request()
            {
                self.bytes -= request.cost();
                self.counts.commands += 1;
                if request.is_answered.unwrap_or_else(|| connection.is_answered()) {
                    self.scratch.clear();
                    ReplyWriter(&mut self.scratch).item(Item::Error(text));
                    connection.tell(conn, &self.scratch, &mut self.counts, out);
                }
                connection.refused_before_it_began(&request);
            }
            self.go_on(now, conn, session, out);
        }
    }

    fn on_completed(
        &mut self,
        now: Tick,
        call: CallId,
        completion: &Completion,
        session: &mut Session,
        out: &mut Effects,
    ) {
        let is_told =
            matches!(completion, Completion::Executed { .. } | Completion::Read { .. } | Completion::Refreshed);
        self.counts.is_silent &= !is_told;
        match self.calls.remove(&call) {
            Some(Owner::Search) => {}
            None => {
                if matches!(completion, Completion::Unknown(_)) {
                    session.abandon(call);
                }
            }
            Some(Owner::Table(database)) => match self.tables.on_completed(now, database, completion, session, out) {
                Found::NotYet(call) => _ = self.calls.insert(call, Owner::Table(database)),
                found => {
                    let refusal = if let Found::Not(why) = &found { Some(&why[..]) } else { None };
                    let waits = |_, connection: &Connection| connection.blocked == Some(Blocked::Table(database));
                    self.go_on_with(now, waits, refusal, session, out);
                }
            },
            Some(Owner::Connection(conn)) => self.on_answered(now, (conn, call), completion, session, out),
            Some(Owner::Batch(batch)) => {
                if matches!(completion, Completion::Unknown(_)) {
                    // R10.18: it ends later, and is named then.
                    let (conns, keys) = self.told_unknown(&batch);
                    let closed = conns.iter().filter(|_| planted::is_on(Bug::ClosedWhenUnknown));
                    closed.for_each(|&conn| out.push(Effect::Disconnect(Endpoint::Conn(conn))));
                    self.unknown.note(call, conns, keys);
                }
                self.on_batch(now, batch, completion, session, out);
            }
        }
    }

    fn on_answered(
        &mut self,
        now: Tick,
        (conn, call): (ConnId, CallId),
        completion: &Completion,
        session: &mut Session,
        out: &mut Effects,
    ) {
        let Self { options, connections, calls, gathered, run_memory, unknown, scratch, counts, .. } = self;
        let clients = connections.len();
        let connection = connections.get_mut(&conn).expect("who is gone has no calls");
        let Some(Outstanding::Call { mut expected, is_answered, keys, .. }) = connection.outstanding.take() else {
            unreachable!("its call")
        };
        if matches!(completion, Completion::Unknown(_)) {
            // R10.18: it ends later, and is named then.
            unknown.note(call, vec![conn], keys);
        }
        if let Expected::Pages(table, whole) = &mut expected {
            match whole.next(completion, &mut Asking { now, table: *table, session, out }) {
                Next::Asks(call) => {
                    calls.insert(call, Owner::Connection(conn));
                    connection.outstanding = Some(Outstanding::Call { call, expected, is_answered, keys: Vec::new() });
                }
                Next::Replies(reply) => {
                    counts.commands += 1;
                    if is_answered {
                        connection.tell(conn, &reply, counts, out);
                    }
                    self.go_on(now, conn, session, out);
                }
            }
            return;
        }
        if let Expected::Versions { now: seen, later } = &expected
            && multi::note_versions(connection, seen, completion)
            && !later.is_empty()
        {
            let mut doing =
                Doing { now, session, options, clients, counts, unknown, gathered, run_memory, out, scratch };
            let Begun::Waits(outstanding) = multi::look(&mut doing, later.clone(), is_answered) else {
                unreachable!("it looks")
            };
            if let Outstanding::Call { call, .. } = outstanding {
                calls.insert(call, Owner::Connection(conn));
            }
            connection.outstanding = Some(outstanding);
            return;
        }
        counts.commands += 1;
        if is_answered {
            scratch.clear();
            calls::reply(completion, &expected, &mut ReplyWriter(scratch));
            connection.tell(conn, scratch, counts, out);
        }
        self.go_on(now, conn, session, out);
    }

    /// The connections that are told that the outcome of this call is unknown, and the keys of their commands.
    fn told_unknown(&self, batch: &Batch) -> (Vec<ConnId>, Vec<Key>) {
        let (mut conns, mut keys) = (Vec::new(), Vec::new());
        for &Share { conn, .. } in &batch.shares {
            let Some(connection) = self.connections.get(&conn) else { continue };
            let Some(Outstanding::Gathered(requests)) = &connection.outstanding else { continue };
            conns.push(conn);
            for request in requests {
                let words: Vec<_> = Request::of_kept(&request.bytes).words().collect();
                keys.extend(calls::keys_of(batch.table, row_of(&words).expect("it was gathered"), &words));
            }
        }
        (conns, keys)
    }

    /// A call with commands of several connections has ended. What it did not run goes again, ahead of what is newer (**R10.17**).
    fn on_batch(&mut self, now: Tick, batch: Batch, completion: &Completion, session: &mut Session, out: &mut Effects) {
        let result = match completion {
            Completion::Executed { result, .. } | Completion::Read { result }
                if result.first() == Some(&(OutcomeCode::Done as u8)) =>
            {
                Ok(&result[..])
            }
            Completion::Unknown(_) if planted::is_on(Bug::UnknownAskedAgain) => Ok(&[][..]),
            failed => Err(calls::failure(failed)),
        };
        self.end_batch(now, batch, result, session, out);
    }

    /// `result`: of the parts that have run; or why nothing has, and whether it never will together.
    fn end_batch(
        &mut self,
        now: Tick,
        batch: Batch,
        result: Result<&[u8], (String, bool)>,
        session: &mut Session,
        out: &mut Effects,
    ) {
        let is_several = batch.shares.iter().map(|share| share.commands).sum::<usize>() > 1;
        let mut parts = each_part(result.as_ref().copied().unwrap_or_default());
        let mut is_first_left = true;
        for &Share { conn, commands } in &batch.shares {
            let Self { connections, bytes, scratch, counts, .. } = self;
            let Some(connection) = connections.get_mut(&conn) else {
                // R10.5: its commands have run, and nobody is told.
                parts.by_ref().take(commands).for_each(drop);
                continue;
            };
            let Some(Outstanding::Gathered(mut requests)) = connection.outstanding.take() else {
                unreachable!("its share")
            };
            scratch.clear();
            while let Some(request) = requests.front() {
                let end = scratch.len();
                match (parts.next(), &result) {
                    (Some(part), _) => {
                        calls::merged(&mut std::iter::once(part), &calls::Merge::One, &mut ReplyWriter(scratch))
                    }
                    (None, Err((text, never_together))) if !(*never_together && is_several) => {
                        ReplyWriter(scratch).item(Item::Error(text));
                    }
                    (None, _) => break,
                }
                if request.is_answered == Some(false) {
                    scratch.truncate(end);
                }
                requests.pop_front();
                counts.commands += 1;
            }
            connection.tell(conn, scratch, counts, out);
            let before = connection.bytes;
            let is_failed = result.is_err();
            for request in &mut requests {
                request.goes_alone |= is_failed || std::mem::take(&mut is_first_left);
            }
            requests.into_iter().rev().for_each(|request| connection.push_front(request));
            *bytes += connection.bytes - before;
        }
        for Share { conn, .. } in batch.shares {
            self.go_on(now, conn, session, out);
        }
    }
}

impl Front<Session> for RedisFront {
    fn on_request(
        &mut self,
        now: Tick,
        from: ConnId,
        (bytes, is_whole): (&[u8], bool),
        session: &mut Session,
        out: &mut Effects,
    ) {
        if self.is_ending {
            return self.end(now, from, None, session, out);
        }
        self.counts.bytes_in += bytes.len() as u64;
        let is_full = self.bytes >= WAITING_BYTES_TOTAL_MAX;
        let connection = self.connection(from);
        if connection.hearing != Hearing::Open {
            return;
        }
        let is_full = is_full && !connection.requests.is_empty();
        if is_full || connection.requests.len() >= WAITING_REQUESTS_LIMIT || connection.bytes >= WAITING_BYTES_LIMIT {
            let why =
                "ERR too many requests wait for earlier ones of this connection, or of all; read the replies first";
            return self.end(now, from, Some(why.to_owned()), session, out);
        }
        if planted::is_on(Bug::RepliesSwapped) && connection.outstanding.is_some() && connection.queued.is_none() {
            let mut words = Request::of_kept(bytes).words();
            if words.next() == Some(b"PING") && words.next().is_none() {
                let mut reply = Vec::new();
                ReplyWriter(&mut reply).item(Item::Word("PONG"));
                let connection = self.connections.get_mut(&from).expect("it was looked at");
                connection.tell(from, &reply, &mut self.counts, out);
                return;
            }
        }
        if planted::is_on(Bug::ProtocolOfLater) {
            let mut words = Request::of_kept(bytes).words();
            let number = (words.next() == Some(b"HELLO")).then(|| words.next()).flatten();
            let number = number.and_then(kasha_wire::requests::number);
            connection.protocol = number.and_then(Protocol::from_number).unwrap_or(connection.protocol);
        }
        let request =
            Waiting { bytes: bytes.to_vec(), is_cut: !is_whole, since: now, is_answered: None, goes_alone: false };
        let cost = request.cost();
        connection.push_back(request);
        if !connection.is_unheard && connection.has_enough() {
            connection.is_unheard = true;
            out.push(Effect::Hear { from, more: false });
        }
        // Those that wait already are begun when what they wait for is there.
        if connection.requests.len() == 1 && connection.outstanding.is_none() && connection.blocked.is_none() {
            self.ready.push(from);
        }
        self.bytes += cost;
    }

    fn begin(&mut self, now: Tick, session: &mut Session, out: &mut Effects) {
        self.counts.round += 1;
        for conn in std::mem::take(&mut self.ready) {
            self.go_on(now, conn, session, out);
        }
        for (call, batch) in self.gathered.send(now, session, out) {
            self.calls.insert(call, Owner::Batch(batch));
        }
    }

    fn on_requests_end(
        &mut self,
        now: Tick,
        from: ConnId,
        why: RequestsEnd<'_>,
        session: &mut Session,
        out: &mut Effects,
    ) {
        let text = match why {
            RequestsEnd::Bad(text) => Some(format!("ERR Protocol error: {text}")),
            RequestsEnd::HalfClosed => None,
        };
        if planted::is_on(Bug::EndNotAwaited) {
            out.push(Effect::Disconnect(Endpoint::Conn(from)));
        }
        self.end(now, from, text, session, out);
    }

    fn on_backlog(&mut self, of: ConnId, is_full: bool) {
        // Whoever has said nothing is told nothing.
        let Some(connection) = self.connections.get_mut(&of) else { return };
        connection.is_stuffed = is_full;
        if !is_full {
            self.ready.push(of);
        }
    }

    fn on_closed(&mut self, conn: ConnId, session: &mut Session) {
        let Some(connection) = self.connections.remove(&conn) else { return };
        self.bytes -= connection.bytes;
        self.blocked.retain(|&(_, of)| of != conn);
        // R10.5: it is finished all the same. What is a share of a call ends with the call.
        if let Some(Outstanding::Call { call, .. }) = connection.outstanding {
            self.calls.remove(&call);
            session.abandon(call);
        }
    }

    fn collect(&mut self, now: Tick, session: &mut Session, out: &mut Effects) -> bool {
        let mut has_completed = false;
        while let Some((call, completion)) = session.poll_completed() {
            has_completed = true;
            self.on_completed(now, call, &completion, session, out);
            if let Completion::Executed { result, .. } | Completion::Read { result } = completion {
                session.recycle(result);
            }
        }
        while let Some(call) = session.poll_resolvable() {
            has_completed = true;
            // Its connection was told that the outcome is unknown, and is told nothing more.
            session.resolve(call);
            self.unknown.forget(call);
            let waits = |_, connection: &Connection| connection.blocked == Some(Blocked::Unknown);
            self.go_on_with(now, waits, None, session, out);
        }
        while let Some(&(at, conn)) = self.blocked.first()
            && at <= now
        {
            self.go_on_with(now, |of, _| of == conn, Some(TRY_AGAIN), session, out);
        }
        self.counts.note(self.options.counted.as_ref());
        has_completed || !self.gathered.is_empty() || !self.ready.is_empty()
    }

    fn next_deadline(&self) -> Option<Tick> {
        self.blocked.first().map(|&(at, _)| at)
    }

    fn assert_invariants(&self, _: &Session) {
        let bytes: usize = self.connections.values().map(|connection| connection.bytes).sum();
        assert_eq!(self.bytes, bytes, "what waits is counted");
        let (mut waiting, mut shares) = (0, Vec::new());
        for (conn, connection) in &self.connections {
            let cost: usize = connection.requests.iter().map(Waiting::cost).sum();
            assert_eq!(connection.bytes, cost, "what waits is counted");
            assert!(connection.outstanding.is_none() || connection.blocked.is_none(), "it waits for one thing");
            match &connection.outstanding {
                Some(Outstanding::Call { call, .. }) => {
                    assert_eq!(self.calls.get(call), Some(&Owner::Connection(*conn)), "a call knows whose it is");
                    waiting += 1;
                }
                Some(Outstanding::Gathered(requests)) => shares.push((*conn, requests.len())),
                None => {
                    let waits = connection.blocked.is_some() || connection.is_stuffed;
                    let is_begun = connection.requests.is_empty() || waits;
                    assert!(is_begun || self.ready.contains(conn), "a request waits for something");
                }
            }
        }
        let calls = self.calls.values().filter(|owner| matches!(owner, Owner::Connection(_))).count();
        assert_eq!(calls, waiting, "a call has its connection");
        let of_batches = self.calls.values().filter_map(|owner| match owner {
            Owner::Batch(batch) => Some(&batch.shares),
            Owner::Connection(_) | Owner::Table(_) | Owner::Search => None,
        });
        let mut told: Vec<_> = of_batches.flatten().map(|share| (share.conn, share.commands)).collect();
        told.extend(self.gathered.shares().map(|share| (share.conn, share.commands)));
        told.retain(|(conn, _)| self.connections.contains_key(conn));
        told.sort_unstable();
        assert_eq!(told, shares, "what is gathered has its call");
        let blocked = self.connections.values().filter(|connection| connection.blocked.is_some()).count();
        assert_eq!(self.blocked.len(), blocked, "what is blocked has its end");
    }
}
