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
mod flush;
mod gathered;
mod info;
mod local;
mod moving;
mod multi;
mod once;
mod options;
mod rows;
mod settings;
mod tables;
mod unknown;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use kasha_client::session::{CallId, Completion, Session};
use kasha_commands::{Class, Item, ReplyWriter};
use kasha_machine::{Effect, Effects, Endpoint, Front, RequestsEnd};
use kasha_types::planted::{self, Bug};
use kasha_types::{ConnId, TableId, Tick};
use kasha_wire::operation::PartsBuffer;
use kasha_wire::outcome::each_part;
use kasha_wire::requests::Request;

use crate::limits::{
    REPLIED_WITHIN, TURN_BYTES_MAX, WAITING_BYTES_LIMIT, WAITING_BYTES_TOTAL_MAX, WAITING_REQUESTS_LIMIT,
};
use crate::resp::Protocol;
use calls::Expected;
use connection::{Blocked, Connection, Hearing, Outstanding, TablesAsked, Waiting};
use counts::Counts;
use doing::{Begun, Doing, TRY_AGAIN};
use gathered::{Batch, Gathered, Share};
use moving::{Going, Next as Step};
pub use options::RedisOptions;
use rows::row_of;
use tables::{Found, Tables};
use unknown::{Key, Touched, Unknown};
use whole::{Asking, Next};

/// Whose a call is.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Connection(ConnId),
    /// It has commands of several.
    Batch(Batch),
    /// It is for the table of this database.
    Table(u8),
    /// It tells which tables there are, for the first request of a connection.
    Tables(ConnId),
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
    /// Connections whose operation goes on then.
    paused: BTreeSet<(Tick, ConnId)>,
    /// The cost of the requests of all connections that wait.
    bytes: usize,
    counts: Counts,
    /// No more requests are taken.
    is_ending: bool,
    /// A reply while it is written, in the form without a protocol.
    scratch: Vec<u8>,
}

/// Whether a request that was gathered may change something.
fn changes(request: &Waiting) -> bool {
    let words: Vec<_> = Request::of_kept(&request.bytes).words().collect();
    row_of(&words).is_ok_and(|row| matches!(row.class, Class::Changes(_)))
}

/// The keys of requests that were gathered.
fn keys_of<'r>(table: TableId, requests: impl IntoIterator<Item = &'r Waiting>) -> Vec<Key> {
    let words = |request: &'r Waiting| Request::of_kept(&request.bytes).words().collect::<Vec<_>>();
    let keys = |words: Vec<&[u8]>| calls::keys_of(table, row_of(&words).expect("it was gathered"), &words);
    requests.into_iter().map(words).flat_map(keys).collect()
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
            self.blocked.remove(&(connection.blocked_until, conn));
            connection.blocked = None;
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
        let is_no_command = |owner: &Owner| matches!(owner, Owner::Table(_) | Owner::Tables(_) | Owner::Search);
        self.gathered.is_empty() && self.paused.is_empty() && self.calls.values().all(is_no_command)
    }

    fn connection(&mut self, from: ConnId) -> &mut Connection {
        self.connections.entry(from).or_insert_with(|| {
            self.counts.connections += 1;
            Connection::new(self.counts.connections, self.options.password.is_none())
        })
    }

    /// Goes through the requests that wait until one has to be waited for.
    fn go_on(&mut self, now: Tick, conn: ConnId, session: &mut Session, out: &mut Effects) {
        let Self { options, connections, calls, gathered, run_memory, unknown, scratch, counts, .. } = self;
        let clients = connections.len();
        let Some(connection) = connections.get_mut(&conn) else { return };
        let before = connection.bytes;
        while connection.outstanding.is_none()
            && connection.blocked.is_none()
            && connection.may_be_told_more(counts.round)
            && out.mark() < TURN_BYTES_MAX
            && let Some(mut request) = connection.take_request()
        {
            scratch.clear();
            let mut doing =
                Doing { now, session, options, clients, counts, unknown, gathered, run_memory, out, scratch };
            let begun = doing.begin((conn, connection), &request);
            if !matches!(begun, Begun::Blocked(_)) {
                connection.tables = TablesAsked::No;
            }
            match begun {
                Begun::Answered(decided) => {
                    connection.on_reply(scratch);
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
                    calls.extend(outstanding.call().map(|call| (call, Owner::Connection(conn))));
                    self.paused.extend(outstanding.pauses_until().map(|until| (until, conn)));
                    connection.outstanding = Some(outstanding);
                }
                Begun::Gathered(is_answered, mut requests) => {
                    request.is_answered = Some(is_answered);
                    requests.push_front(request);
                    connection.outstanding = Some(Outstanding::Gathered(requests));
                }
                Begun::Blocked(by) => {
                    connection.blocked_until = request.since.after(REPLIED_WITHIN);
                    self.blocked.insert((connection.blocked_until, conn));
                    connection.blocked = Some(by);
                    request.begun.get_or_insert(now);
                    connection.push_front(request);
                    match by {
                        Blocked::Table(database) => {
                            let call = self.tables.look_for(now, database, session, out);
                            calls.extend(call.map(|call| (call, Owner::Table(database))));
                        }
                        Blocked::Tables => {
                            let call = session.refresh(now, out);
                            connection.tables = TablesAsked::Asks(call);
                            calls.insert(call, Owner::Tables(conn));
                        }
                        Blocked::Unknown => {}
                    }
                }
            }
        }
        self.bytes = self.bytes + connection.bytes - before;
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

    /// The first request of each connection begins anew that waits for this. `refusal`: it does not, and is told this.
    fn go_on_with(&mut self, now: Tick, by: Blocked, refusal: Option<&str>, session: &mut Session, out: &mut Effects) {
        let waits = |conn: &ConnId| self.connections.get(conn).is_some_and(|known| known.blocked == Some(by));
        let conns: Vec<_> = self.blocked.iter().map(|&(_, conn)| conn).filter(waits).collect();
        conns.into_iter().for_each(|conn| self.begin_anew(now, conn, refusal, session, out));
    }

    /// The same of one connection that waits.
    fn begin_anew(&mut self, now: Tick, conn: ConnId, refusal: Option<&str>, session: &mut Session, out: &mut Effects) {
        let connection = self.connections.get_mut(&conn).expect("it waits");
        self.blocked.remove(&(connection.blocked_until, conn));
        connection.blocked = None;
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
            connection.tables = TablesAsked::No;
        }
        self.go_on(now, conn, session, out);
    }

    /// A call has ended whose outcome was not known, or whose connection is gone. Says whether somebody may have waited for it.
    fn on_known(&mut self, now: Tick, call: CallId, session: &mut Session, out: &mut Effects) {
        if self.unknown.forget(call) {
            self.go_on_with(now, Blocked::Unknown, None, session, out);
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
            // Its connection is gone. What it may change is in the way of others until it ends (R10.18).
            None => {
                let is_open = matches!(completion, Completion::Unknown(_)) && session.resolve(call).is_none();
                if !is_open {
                    self.on_known(now, call, session, out);
                }
            }
            Some(Owner::Table(database)) => match self.tables.on_completed(now, database, completion, session, out) {
                Found::NotYet(call) => _ = self.calls.insert(call, Owner::Table(database)),
                found => {
                    let refusal = if let Found::Not(why) = &found { Some(&why[..]) } else { None };
                    self.go_on_with(now, Blocked::Table(database), refusal, session, out);
                }
            },
            Some(Owner::Tables(of)) => {
                let is_heard = matches!(completion, Completion::Refreshed);
                let asks = |connection: &Connection| connection.tables == TablesAsked::Asks(call);
                let Some(connection) = self.connections.get_mut(&of).filter(|connection| asks(connection)) else {
                    return; // nobody waits for it any more
                };
                connection.tables = if is_heard { TablesAsked::Answered } else { TablesAsked::No };
                if connection.blocked == Some(Blocked::Tables) {
                    self.begin_anew(now, of, (!is_heard).then_some(TRY_AGAIN), session, out);
                }
            }
            Some(Owner::Connection(conn)) => self.on_answered(now, (conn, call), completion, session, out),
            Some(Owner::Batch(batch)) => {
                let is_open = matches!(completion, Completion::Unknown(_)) && session.resolve(call).is_none();
                if is_open {
                    // R10.18: it ends later, and is named then. One that never will stays in nobody's way.
                    let (conns, keys) = self.told_unknown(&batch);
                    let closed = conns.iter().filter(|_| planted::is_on(Bug::ClosedWhenUnknown));
                    closed.for_each(|&conn| out.push(Effect::Disconnect(Endpoint::Conn(conn))));
                    self.unknown.note(call, conns, keys.into());
                }
                self.on_batch(now, batch, completion, session, out);
                if !is_open {
                    self.on_known(now, call, session, out); // some of its connections may be gone
                }
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
        let Some(Outstanding::Call { mut expected, is_answered, touched, .. }) = connection.outstanding.take() else {
            unreachable!("its call")
        };
        if matches!(completion, Completion::Unknown(_)) && session.resolve(call).is_none() {
            // R10.18: it ends later, and is named then. One that never will stays in nobody's way.
            unknown.note(call, vec![conn], touched);
        }
        let step = match &mut expected {
            Expected::Pages(table, whole) => {
                Some(match whole.next(completion, &mut Asking { now, table: *table, session, out }) {
                    Next::Asks(call) => Step::Asks(call, Touched::default()),
                    Next::Replies(reply) => Step::Replies(reply),
                })
            }
            Expected::Moving(moving) => Some(moving.next(completion, &mut Going { now, session, out })),
            Expected::One { .. } | Expected::Whole { .. } | Expected::Versions { .. } => None,
        };
        if let Some(step) = step {
            return self.on_step(now, conn, (step, expected, is_answered), session, out);
        }
        if let Expected::Versions { now: seen, later, until } = &mut expected
            && multi::note_versions(connection, seen, completion, later)
            && !later.is_empty()
        {
            let mut doing =
                Doing { now, session, options, clients, counts, unknown, gathered, run_memory, out, scratch };
            let Begun::Waits(outstanding) = multi::look(&mut doing, (std::mem::take(later), *until), is_answered)
            else {
                unreachable!("it looks")
            };
            if let Outstanding::Call { call, .. } = outstanding {
                calls.insert(call, Owner::Connection(conn));
            }
            connection.outstanding = Some(outstanding);
            return;
        }
        scratch.clear();
        calls::reply(completion, &expected, &mut ReplyWriter(scratch));
        connection.on_reply(scratch);
        counts.commands += 1;
        if is_answered {
            connection.tell(conn, scratch, counts, out);
        }
        self.go_on(now, conn, session, out);
    }

    /// What takes several calls has come to this.
    fn on_step(
        &mut self,
        now: Tick,
        conn: ConnId,
        (step, expected, is_answered): (Step, Expected, bool),
        session: &mut Session,
        out: &mut Effects,
    ) {
        let connection = self.connections.get_mut(&conn).expect("who is gone has no calls");
        match (step, expected) {
            (Step::Asks(call, touched), expected) => {
                self.calls.insert(call, Owner::Connection(conn));
                connection.outstanding = Some(Outstanding::Call { call, expected, is_answered, touched });
            }
            (Step::Pauses(until), Expected::Moving(moving)) => {
                self.paused.insert((until, conn));
                connection.outstanding = Some(Outstanding::Pause { until, moving, is_answered });
            }
            (Step::Pauses(_), _) => unreachable!("nothing else pauses"),
            (Step::Replies(reply), _) => {
                connection.on_reply(&reply);
                self.counts.commands += 1;
                if is_answered {
                    connection.tell(conn, &reply, &mut self.counts, out);
                }
                self.go_on(now, conn, session, out);
            }
        }
    }

    /// The pause of a connection's operation is over.
    fn on_pause_over(&mut self, now: Tick, conn: ConnId, session: &mut Session, out: &mut Effects) {
        let connection = self.connections.get_mut(&conn).expect("who is gone has no pause");
        let Some(Outstanding::Pause { mut moving, is_answered, .. }) = connection.outstanding.take() else {
            unreachable!("its pause")
        };
        let step = moving.ask(&mut Going { now, session, out });
        self.on_step(now, conn, (step, Expected::Moving(moving), is_answered), session, out);
    }

    /// The connections that are told that the outcome of this call is unknown, and the keys of their commands.
    fn told_unknown(&self, batch: &Batch) -> (Vec<ConnId>, Vec<Key>) {
        let (mut conns, mut keys) = (Vec::new(), Vec::new());
        for &Share { conn, .. } in &batch.shares {
            let Some(connection) = self.connections.get(&conn) else { continue };
            let Some(Outstanding::Gathered(requests)) = &connection.outstanding else { continue };
            conns.push(conn);
            keys.extend(keys_of(batch.table, requests));
        }
        (conns, keys)
    }

    /// A call with commands of several connections has ended. What it did not run goes again, ahead of what is newer (**R10.17**).
    fn on_batch(&mut self, now: Tick, batch: Batch, completion: &Completion, session: &mut Session, out: &mut Effects) {
        let result = match completion {
            Completion::Executed { result, .. } | Completion::Read { result } if calls::is_done(completion) => {
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
            if let Some(next) = requests.front_mut() {
                next.begun = scratch.is_empty().then(|| next.begun.unwrap_or(batch.since));
            }
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
        let request = Waiting {
            bytes: bytes.to_vec(),
            is_cut: !is_whole,
            since: now,
            is_answered: None,
            goes_alone: false,
            begun: None,
        };
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
        self.blocked.remove(&(connection.blocked_until, conn));
        // R10.5: it is finished all the same. What is a share of a call ends with the call. Nobody is told the outcome: it is in the way as one
        // is that is not known (R10.18).
        match connection.outstanding {
            Some(Outstanding::Call { call, touched, .. }) => {
                self.calls.remove(&call);
                match touched == Touched::default() {
                    true => session.abandon(call),
                    false => self.unknown.note(call, Vec::new(), touched),
                }
            }
            Some(Outstanding::Pause { until, .. }) => _ = self.paused.remove(&(until, conn)),
            Some(Outstanding::Gathered(requests)) => {
                let its = |owner: &Owner| match owner {
                    Owner::Batch(batch) => batch.shares.iter().any(|share| share.conn == conn).then_some(batch.table),
                    Owner::Connection(_) | Owner::Table(_) | Owner::Tables(_) | Owner::Search => None,
                };
                if let Some((call, table)) = self.calls.iter().find_map(|(call, owner)| Some((*call, its(owner)?))) {
                    let keys = keys_of(table, requests.iter().filter(|request| changes(request)));
                    self.unknown.note(call, Vec::new(), keys.into());
                }
            }
            None => {}
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
        let mut are_known = false;
        while let Some(call) = session.poll_resolvable() {
            has_completed = true;
            // Its connection was told that the outcome is unknown, and is told nothing more.
            session.resolve(call);
            are_known |= self.unknown.forget(call);
        }
        if are_known {
            self.go_on_with(now, Blocked::Unknown, None, session, out);
        }
        while let Some(&(at, conn)) = self.blocked.first()
            && at <= now
        {
            self.begin_anew(now, conn, Some(TRY_AGAIN), session, out);
        }
        while let Some(&(at, conn)) = self.paused.first()
            && at <= now
        {
            has_completed = true;
            self.paused.pop_first();
            self.on_pause_over(now, conn, session, out);
        }
        self.counts.note(self.options.counted.as_ref());
        has_completed || !self.gathered.is_empty() || !self.ready.is_empty()
    }

    fn next_deadline(&self) -> Option<Tick> {
        [&self.blocked, &self.paused].into_iter().filter_map(|waiting| Some(waiting.first()?.0)).min()
    }

    fn assert_invariants(&self, _: &Session) {
        let bytes: usize = self.connections.values().map(|connection| connection.bytes).sum();
        assert_eq!(self.bytes, bytes, "what waits is counted");
        let (mut waiting, mut pausing, mut shares) = (0, 0, Vec::new());
        for (conn, connection) in &self.connections {
            let cost: usize = connection.requests.iter().map(Waiting::cost).sum();
            assert_eq!(connection.bytes, cost, "what waits is counted");
            assert!(connection.outstanding.is_none() || connection.blocked.is_none(), "it waits for one thing");
            match &connection.outstanding {
                Some(Outstanding::Call { call, .. }) => {
                    assert_eq!(self.calls.get(call), Some(&Owner::Connection(*conn)), "a call knows whose it is");
                    waiting += 1;
                }
                Some(Outstanding::Pause { until, .. }) => {
                    assert!(self.paused.contains(&(*until, *conn)), "what pauses goes on");
                    pausing += 1;
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
        assert_eq!((calls, self.paused.len()), (waiting, pausing), "a call and a pause have their connection");
        let of_batches = self.calls.values().filter_map(|owner| match owner {
            Owner::Batch(batch) => Some(&batch.shares),
            Owner::Connection(_) | Owner::Table(_) | Owner::Tables(_) | Owner::Search => None,
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
