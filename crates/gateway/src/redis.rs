//! A front that speaks the Redis protocol, with the state of each connection.
//!
//! A connection's requests are handled in their order. A command that the front can answer by itself is answered at once (`local`); one on keys
//! becomes a part of a call of the session, together with those behind it whose keys are of the same shard (`calls`). While a call is
//! outstanding the connection's later requests wait. So:
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
mod info;
mod local;
mod multi;
mod settings;
mod tables;
mod unknown;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use kasha_client::session::{CallId, Completion, Session};
use kasha_commands::{Class, Command as Name, Item, ReplyWriter, Row, find, find_sub, later};
use kasha_machine::{Effect, Effects, Endpoint, Front, Gate, RequestsEnd};
use kasha_types::{ConnId, TableId, Tick};
use kasha_wire::requests::Request;

use crate::limits::{REPLIED_WITHIN, WAITING_BYTES_MAX, WAITING_BYTES_TOTAL_MAX, WAITING_REQUESTS_MAX};
use crate::resp::{self, Protocol};
use calls::{Ended, Expected, NoCall, Together};
use connection::{Blocked, Connection, Hearing, Outstanding, Waiting};
use tables::{Found, Tables};
use unknown::Unknown;
use whole::{Asking, Next, Whole};

/// The reply to a request of which a word is longer than what is kept.
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// The reply to a request that waited for one whose outcome is not known (R10.18), or for a table.
const TRY_AGAIN: &str = "TRYAGAIN it waited for what others do not answer, and was not executed";

/// Whose a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Connection(ConnId),
    /// It is for the table of this database.
    Table(u8),
}

/// The front.
#[derive(Debug, Default)]
pub struct RedisFront {
    connections: BTreeMap<ConnId, Connection>,
    calls: BTreeMap<CallId, Owner>,
    tables: Tables,
    unknown: Unknown,
    /// Connections whose first request does not wait longer than until then.
    blocked: BTreeSet<(Tick, ConnId)>,
    /// The cost of the requests of all connections that wait.
    bytes: usize,
    /// Connections that there have been.
    count: u64,
    /// No more requests are taken.
    is_ending: bool,
    /// A reply while it is written, in the form without a protocol.
    scratch: Vec<u8>,
}

/// What a request is begun with.
struct Doing<'d> {
    now: Tick,
    session: &'d mut Session,
    unknown: &'d Unknown,
    out: &'d mut Effects,
    scratch: &'d mut Vec<u8>,
}

/// What became of a request.
enum Begun {
    /// The scratch buffer has its reply. Whether it is answered, if that is known already.
    Answered(Option<bool>),
    /// It is the last one, and answered.
    Ended,
    /// The connection waits for this.
    Waits(Outstanding),
    /// It begins anew when this is over.
    Blocked(Blocked),
}

fn send(to: ConnId, protocol: Protocol, replies: &[u8], out: &mut Effects) {
    if replies.is_empty() {
        return;
    }
    let mark = out.mark();
    resp::write(replies, protocol, out.arena());
    let head = out.span_from(mark);
    out.push(Effect::Send { to: Endpoint::Conn(to), head, tail: None, gate: Gate::Now });
}

/// The row of the command that these words are, or the reply to those that are none.
fn row_of(words: &[&[u8]]) -> Result<&'static Row, String> {
    /// Bytes of all arguments that are told.
    const TOLD_MAX: usize = 128;
    let name = words[0];
    let Some(row) = find(name) else {
        let shown = local::shown(name);
        if later::is_later(name) {
            return Err(format!(
                "ERR '{}' is a command of Redis that Kasha does not know yet",
                shown.to_ascii_lowercase()
            ));
        }
        let mut arguments = String::new();
        for word in &words[1..] {
            if arguments.len() >= TOLD_MAX {
                break;
            }
            let left = TOLD_MAX - arguments.len();
            arguments += &format!("'{}' ", local::shown(&word[..word.len().min(left)]));
        }
        return Err(format!("ERR unknown command '{shown}', with args beginning with: {arguments}"));
    };
    let found = words.get(1).and_then(|sub| find_sub(row, sub)).unwrap_or(row);
    match found.arity.allows(words.len()) {
        true => Ok(found),
        false => Err(format!("ERR wrong number of arguments for '{}' command", found.name)),
    }
}

impl Doing<'_> {
    fn reply(&mut self, item: Item<'_>) -> Begun {
        ReplyWriter(self.scratch).item(item);
        Begun::Answered(None)
    }

    fn table(&self, database: u8) -> Option<TableId> {
        tables::table(database, self.session)
    }

    fn known(&self) -> local::Known {
        let faults = self.session.configuration().map_or(0, |known| known.faults);
        local::Known { faults, unix: self.session.unix_time(self.now) }
    }

    /// Begins a command of no key.
    fn begin_whole(
        &mut self,
        (conn, connection): (ConnId, &mut Connection),
        (row, words): (&'static Row, &[&[u8]]),
        is_answered: Option<bool>,
    ) -> Begun {
        // R10.18: what nobody knows the outcome of comes first, whatever its keys are.
        if self.unknown.has(conn, std::iter::empty()) {
            return Begun::Blocked(Blocked::Unknown);
        }
        let database = connection.database;
        let Some(table) = self.table(database) else { return Begun::Blocked(Blocked::Table(database)) };
        let mut asking = Asking { now: self.now, table, session: self.session, out: self.out };
        let (whole, next) = Whole::begin(row, words, &mut asking);
        match (whole, next) {
            (Some(whole), Next::Asks(call)) => {
                let answers = vec![is_answered.unwrap_or_else(|| connection.is_answered())];
                let expected = Expected::Pages(table, Box::new(whole));
                Begun::Waits(Outstanding { call, expected, answers, requests: Vec::new(), keys: Vec::new() })
            }
            (_, Next::Replies(reply)) => {
                self.scratch.extend_from_slice(&reply);
                Begun::Answered(None)
            }
            (None, Next::Asks(_)) => unreachable!("who asks is under way"),
        }
    }

    /// Begins a request that has been taken.
    fn begin(&mut self, (conn, connection): (ConnId, &mut Connection), request: &Waiting) -> Begun {
        if request.is_cut {
            connection.spoil();
            return self.reply(Item::Error(TOO_LONG));
        }
        let words: Vec<_> = Request::of_kept(&request.bytes).words().collect();
        let row = match row_of(&words) {
            Ok(row) => row,
            Err(text) => {
                connection.spoil();
                return self.reply(Item::Error(&text));
            }
        };
        if let Some(begun) = multi::begin(self, (conn, connection), (row, &words), request) {
            return begun;
        }
        match row.class {
            Class::Local if row.command == Name::Time && self.known().unix.is_none() => {
                self.begin_whole((conn, connection), (row, &words), request.is_answered)
            }
            Class::Local => {
                local::answer(row, &words, self.known(), connection, &mut ReplyWriter(self.scratch));
                if row.command == Name::Quit { Begun::Ended } else { Begun::Answered(None) }
            }
            Class::Composed => self.begin_whole((conn, connection), (row, &words), request.is_answered),
            Class::Reads(_) | Class::Changes(_) => {
                self.begin_together((conn, connection), (row, &words), request.is_answered)
            }
        }
    }

    /// Begins a command on keys, and with it those that wait behind it and can go together with it.
    fn begin_together(
        &mut self,
        (conn, connection): (ConnId, &mut Connection),
        (row, words): (&'static Row, &[&[u8]]),
        is_answered: Option<bool>,
    ) -> Begun {
        let database = connection.database;
        let Some(table) = self.table(database) else { return Begun::Blocked(Blocked::Table(database)) };
        let mut together = Together::default();
        match calls::split(row, words, table, self.session) {
            Ok(split) => together.push(table, &split),
            Err(NoCall::Refused(text)) => return self.reply(Item::Error(&text)),
            Err(NoCall::Table) => return Begun::Blocked(Blocked::Table(database)),
        }
        if self.unknown.has(conn, together.keys().iter()) {
            return Begun::Blocked(Blocked::Unknown);
        }
        let mut answers = vec![is_answered.unwrap_or_else(|| connection.is_answered())];
        let mut requests = Vec::new();
        while connection.alone == 0
            && let Some(next) = connection.requests.front()
            && !next.is_cut
        {
            let words: Vec<_> = Request::of_kept(&next.bytes).words().collect();
            let Ok(row) = row_of(&words) else { break };
            if row.class.number().is_none() {
                break;
            }
            let Ok(split) = calls::split(row, &words, table, self.session) else { break };
            if !together.takes(&split) {
                break;
            }
            together.push(table, &split);
            let next = connection.take_request().expect("it was looked at");
            answers.push(next.is_answered.unwrap_or_else(|| connection.is_answered()));
            requests.push(next);
        }
        match together.call(self.now, self.session, self.out) {
            Ok(called) => {
                let (call, expected, keys) = (called.call, Expected::Each(called.merges), called.keys);
                Begun::Waits(Outstanding { call, expected, answers, requests, keys })
            }
            Err(why) => {
                // It is the first one that is wrong: the others were small.
                requests.into_iter().rev().for_each(|request| connection.push_front(request));
                ReplyWriter(self.scratch).item(Item::Error(&format!("ERR {why}")));
                Begun::Answered(Some(answers[0]))
            }
        }
    }
}

impl RedisFront {
    /// A front without connections.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
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

    /// Whether nothing is outstanding.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.calls.values().all(|owner| matches!(owner, Owner::Table(_)))
    }

    fn connection(&mut self, from: ConnId) -> &mut Connection {
        self.connections.entry(from).or_insert_with(|| {
            self.count += 1;
            Connection::new(self.count)
        })
    }

    /// Goes through the requests that wait until one has to be waited for.
    fn go_on(&mut self, now: Tick, conn: ConnId, session: &mut Session, out: &mut Effects) {
        let Self { connections, calls, tables, unknown, blocked, bytes, scratch, .. } = self;
        let Some(connection) = connections.get_mut(&conn) else { return };
        let before = connection.bytes;
        while connection.outstanding.is_none()
            && connection.blocked.is_none()
            && let Some(mut request) = connection.take_request()
        {
            scratch.clear();
            let mut doing = Doing { now, session, unknown, out, scratch };
            match doing.begin((conn, connection), &request) {
                Begun::Answered(decided) => {
                    let is_answered = decided.or(request.is_answered).unwrap_or_else(|| connection.is_answered());
                    if is_answered {
                        send(conn, connection.protocol, scratch, out);
                    }
                }
                Begun::Ended => {
                    if connection.is_answered() {
                        send(conn, connection.protocol, scratch, out);
                    }
                    connection.forget_requests();
                    connection.hearing = Hearing::UntilAnswered(None);
                }
                Begun::Waits(mut outstanding) => {
                    calls.insert(outstanding.call, Owner::Connection(conn));
                    if !outstanding.requests.is_empty() {
                        request.is_answered = Some(outstanding.answers[0]);
                        outstanding.requests.insert(0, request);
                    }
                    connection.outstanding = Some(outstanding);
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
        if connection.outstanding.is_none()
            && connection.blocked.is_none()
            && let Hearing::UntilAnswered(why) = &connection.hearing
        {
            if let Some(why) = why {
                scratch.clear();
                ReplyWriter(scratch).item(Item::Error(why));
                send(conn, connection.protocol, scratch, out);
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
                if request.is_answered.unwrap_or_else(|| connection.is_answered()) {
                    self.scratch.clear();
                    ReplyWriter(&mut self.scratch).item(Item::Error(text));
                    send(conn, connection.protocol, &self.scratch, out);
                }
                connection.forget_multi_if_exec(&request);
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
        match self.calls.remove(&call) {
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
        let Self { connections, calls, unknown, bytes, scratch, .. } = self;
        let connection = connections.get_mut(&conn).expect("who is gone has no calls");
        let Outstanding { mut expected, answers, requests, keys, .. } =
            connection.outstanding.take().expect("its call");
        if matches!(completion, Completion::Unknown(_)) {
            // R10.18: it ends later, and is named then.
            unknown.note(call, conn, keys);
        }
        if let Expected::Pages(table, whole) = &mut expected {
            match whole.next(completion, &mut Asking { now, table: *table, session, out }) {
                Next::Asks(call) => {
                    calls.insert(call, Owner::Connection(conn));
                    connection.outstanding = Some(Outstanding { call, expected, answers, requests, keys: Vec::new() });
                }
                Next::Replies(reply) => {
                    if answers == [true] {
                        send(conn, connection.protocol, &reply, out);
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
            let mut doing = Doing { now, session, unknown, out, scratch };
            let Begun::Waits(outstanding) = multi::look(&mut doing, later.clone(), answers) else {
                unreachable!("it looks")
            };
            calls.insert(outstanding.call, Owner::Connection(conn));
            connection.outstanding = Some(outstanding);
            return;
        }
        match calls::replies(completion, &expected, &answers) {
            Ended::Replies(replies) => send(conn, connection.protocol, &replies, out),
            Ended::NotTogether => {
                let before = connection.bytes;
                connection.alone = requests.len();
                for (mut request, is_answered) in requests.into_iter().zip(answers).rev() {
                    request.is_answered = Some(is_answered);
                    connection.push_front(request);
                }
                *bytes += connection.bytes - before;
            }
        }
        self.go_on(now, conn, session, out);
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
        let is_full = self.bytes >= WAITING_BYTES_TOTAL_MAX;
        let connection = self.connection(from);
        if connection.hearing != Hearing::Open {
            return;
        }
        let is_full = is_full && !connection.requests.is_empty();
        if is_full || connection.requests.len() >= WAITING_REQUESTS_MAX || connection.bytes >= WAITING_BYTES_MAX {
            let why =
                "ERR too many requests wait for earlier ones of this connection, or of all; read the replies first";
            return self.end(now, from, Some(why.to_owned()), session, out);
        }
        let request = Waiting { bytes: bytes.to_vec(), is_cut: !is_whole, since: now, is_answered: None };
        let cost = request.cost();
        connection.push_back(request);
        self.bytes += cost;
        self.go_on(now, from, session, out);
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
        self.end(now, from, text, session, out);
    }

    fn on_closed(&mut self, conn: ConnId, session: &mut Session) {
        let Some(connection) = self.connections.remove(&conn) else { return };
        self.bytes -= connection.bytes;
        self.blocked.retain(|&(_, of)| of != conn);
        if let Some(outstanding) = connection.outstanding {
            self.calls.remove(&outstanding.call);
            // R10.5: it is finished all the same.
            session.abandon(outstanding.call);
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
        has_completed
    }

    fn next_deadline(&self) -> Option<Tick> {
        self.blocked.first().map(|&(at, _)| at)
    }

    fn assert_invariants(&self, _: &Session) {
        let bytes: usize = self.connections.values().map(|connection| connection.bytes).sum();
        assert_eq!(self.bytes, bytes, "what waits is counted");
        let mut waiting = 0;
        for (conn, connection) in &self.connections {
            let cost: usize = connection.requests.iter().map(Waiting::cost).sum();
            assert_eq!(connection.bytes, cost, "what waits is counted");
            assert!(connection.outstanding.is_none() || connection.blocked.is_none(), "it waits for one thing");
            if let Some(outstanding) = &connection.outstanding {
                assert_eq!(
                    self.calls.get(&outstanding.call),
                    Some(&Owner::Connection(*conn)),
                    "a call knows whose it is"
                );
                waiting += 1;
            } else {
                assert!(
                    connection.requests.is_empty() || connection.blocked.is_some(),
                    "a request waits for something"
                );
            }
        }
        let calls = self.calls.values().filter(|owner| matches!(owner, Owner::Connection(_))).count();
        assert_eq!(calls, waiting, "a call has its connection");
        let blocked = self.connections.values().filter(|connection| connection.blocked.is_some()).count();
        assert_eq!(self.blocked.len(), blocked, "what is blocked has its end");
    }
}
