//! A front that speaks lines of text ([`crate::command`]), with the state of each connection.
//!
//! Kept here, of REDIS 2: **R10.1** the answers of a connection leave in the order of its lines, one line each; **R10.2** a
//! connection is not closed because an outcome is unknown: it is told so; **R10.3** in its strictest form, a connection has one
//! call outstanding, and its later lines wait, so that it reads its own writes; **R10.5** a connection that ends drops its answers
//! and the lines that wait, never an update that was sent.

use std::collections::{BTreeMap, VecDeque};

use kasha_client::session::{CallId, CallOptions, Completion, Session};
use kasha_machine::{Effect, Effects, Endpoint, Front, Gate, RequestsEnd};
use kasha_types::planted::{self, Bug};
use kasha_types::{ConnId, TableId, Tick};
use kasha_wire::lines::LINE_BYTES_MAX;
use kasha_wire::outcome::Shape;

use crate::command::{self, Command, Line, Operation};
use crate::limits::{COMMAND_DEADLINE, REQUEST_COST, WAITING_BYTES_MAX, WAITING_BYTES_TOTAL_MAX, WAITING_REQUESTS_MAX};

/// What a connection waits for: its first line stays until that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outstanding {
    /// The call that the line has become.
    Call(CallId, Shape),
    /// A newer configuration, in which the line's table may be.
    Table(CallId),
}

impl Outstanding {
    fn call(self) -> CallId {
        match self {
            Self::Call(call, _) | Self::Table(call) => call,
        }
    }
}

/// Whether more lines are taken from a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Hearing {
    #[default]
    Open,
    /// None are; the connection ends behind the answers to those that were.
    UntilAnswered(End),
    /// None are, and everything is said.
    Over,
}

/// How a connection's input ended, although the connection is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    LineTooLong,
    TooManyLines,
    HalfClosed,
}

/// What a line counts for while it waits.
fn cost(line: &[u8]) -> usize {
    line.len() + REQUEST_COST
}

#[derive(Debug, Default)]
struct Connection {
    outstanding: Option<Outstanding>,
    lines: VecDeque<Vec<u8>>,
    /// The cost of `lines`.
    bytes: usize,
    hearing: Hearing,
}

impl Connection {
    /// The first line is answered. Returns its cost.
    fn answered(&mut self) -> usize {
        let line = self.lines.pop_front().expect("a line that is answered");
        self.bytes -= cost(&line);
        cost(&line)
    }
}

/// The front.
#[derive(Debug, Default)]
pub struct LineFront {
    connections: BTreeMap<ConnId, Connection>,
    calls: BTreeMap<CallId, ConnId>,
    /// The cost of the lines of all connections.
    bytes: usize,
}

fn say(to: ConnId, out: &mut Effects, write: impl FnOnce(&mut Vec<u8>)) {
    let mark = out.mark();
    write(out.arena());
    out.arena().push(b'\n');
    let head = out.span_from(mark);
    out.push(Effect::Send { to: Endpoint::Conn(to), head, tail: None, gate: Gate::Now });
}

fn say_text(to: ConnId, text: &str, out: &mut Effects) {
    say(to, out, |line| line.extend_from_slice(text.as_bytes()));
}

/// What became of a line.
enum Begun {
    /// It is answered.
    Answered,
    /// It is the last one, and answered.
    Ended,
    /// Its connection waits.
    Waits(Outstanding),
}

fn begin(now: Tick, from: ConnId, line: &[u8], knows: bool, session: &mut Session, out: &mut Effects) -> Begun {
    let (name, command) = match Line::parse(line) {
        Ok(Line::Command(table, command)) => (table, command),
        Ok(Line::Quit) => {
            say_text(from, "BYE", out);
            out.push(Effect::Disconnect(Endpoint::Conn(from)));
            return Begun::Ended;
        }
        Err(why) => {
            say_text(from, &format!("ERR {why}"), out);
            return Begun::Answered;
        }
    };
    let table = session.configuration().and_then(|known| known.tables.iter().find(|info| info.name == name));
    match table.map(|info| info.table) {
        Some(table) => Begun::Waits(ask(now, table, command, session, out)),
        None if knows => {
            say_text(from, "ERR there is no such table; create it first (kasha cli, or a client)", out);
            Begun::Answered
        }
        None => Begun::Waits(Outstanding::Table(session.refresh(now, out))),
    }
}

fn ask(now: Tick, table: TableId, command: Command<'_>, session: &mut Session, out: &mut Effects) -> Outstanding {
    let deadline = Some(now.after(COMMAND_DEADLINE));
    match command.operation() {
        Operation::Read(read) => {
            let shape = read.shape();
            Outstanding::Call(session.read(now, table, &read, deadline, out), shape)
        }
        Operation::Update(update) => {
            let options = CallOptions { deadline, cancel_on_deadline: true, ..CallOptions::default() };
            let shape = update.shape();
            Outstanding::Call(session.update(now, table, &update, &options, out), shape)
        }
    }
}

impl LineFront {
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

    /// Goes through the lines that wait until one has to be waited for. `knows`: the session has just been told the newest tables.
    fn go_on(&mut self, now: Tick, conn: ConnId, mut knows: bool, session: &mut Session, out: &mut Effects) {
        let Self { connections, calls, bytes } = self;
        let Some(connection) = connections.get_mut(&conn) else { return };
        while connection.outstanding.is_none()
            && let Some(line) = connection.lines.front()
        {
            match begin(now, conn, line, knows, session, out) {
                Begun::Answered => *bytes -= connection.answered(),
                Begun::Ended => {
                    *bytes -= std::mem::take(&mut connection.bytes);
                    connection.lines.clear();
                    connection.hearing = Hearing::Over;
                }
                Begun::Waits(outstanding) => {
                    calls.insert(outstanding.call(), conn);
                    connection.outstanding = Some(outstanding);
                }
            }
            knows = false;
        }
        if connection.outstanding.is_none()
            && let Hearing::UntilAnswered(end) = connection.hearing
        {
            if end != End::HalfClosed {
                say_text(conn, &end.to_string(), out);
            }
            out.push(Effect::Disconnect(Endpoint::Conn(conn)));
            connection.hearing = Hearing::Over;
        }
    }

    fn on_end(&mut self, now: Tick, from: ConnId, end: End, session: &mut Session, out: &mut Effects) {
        let connection = self.connections.entry(from).or_default();
        if connection.hearing == Hearing::Open {
            connection.hearing = Hearing::UntilAnswered(end);
        }
        self.go_on(now, from, false, session, out);
    }

    fn on_completed(
        &mut self,
        now: Tick,
        call: CallId,
        completion: &Completion,
        session: &mut Session,
        out: &mut Effects,
    ) {
        if matches!(completion, Completion::Unknown(_)) {
            // The session finishes it in the background; nobody asks for it again.
            session.abandon(call);
        }
        let Some(conn) = self.calls.remove(&call) else { return };
        let connection = self.connections.get_mut(&conn).expect("who is gone has no calls");
        let outstanding = connection.outstanding.take().expect("its call");
        let knows = matches!(outstanding, Outstanding::Table(_)) && *completion == Completion::Refreshed;
        let again = matches!(completion, Completion::Unknown(_)) && planted::is_on(Bug::UnknownAskedAgain);
        if !knows && !again {
            self.bytes -= connection.answered();
            match outstanding {
                Outstanding::Call(_, shape) => say(conn, out, |line| command::answer(shape, completion, line)),
                Outstanding::Table(_) => {
                    say_text(conn, "ERR the cluster does not answer; nothing was executed, try again", out);
                }
            }
        }
        self.go_on(now, conn, knows, session, out);
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::LineTooLong => {
                write!(f, "ERR a line is longer than {LINE_BYTES_MAX} bytes; use a client for such values")
            }
            Self::TooManyLines => write!(
                f,
                "ERR more than {WAITING_REQUESTS_MAX} lines, or {WAITING_BYTES_MAX} bytes, wait for answers, or \
                 {WAITING_BYTES_TOTAL_MAX} bytes of all connections; read answers in between"
            ),
            Self::HalfClosed => f.write_str("no more lines come"),
        }
    }
}

impl Front<Session> for LineFront {
    fn on_request(
        &mut self,
        now: Tick,
        from: ConnId,
        (line, _): (&[u8], bool),
        session: &mut Session,
        out: &mut Effects,
    ) {
        let connection = self.connections.entry(from).or_default();
        if connection.hearing != Hearing::Open {
            return;
        }
        if planted::is_on(Bug::ReplyOvertakes) && Line::parse(line).is_err() {
            begin(now, from, line, false, session, out);
            return;
        }
        if connection.lines.len() == WAITING_REQUESTS_MAX
            || connection.bytes + cost(line) > WAITING_BYTES_MAX
            || self.bytes + cost(line) > WAITING_BYTES_TOTAL_MAX
        {
            return self.on_end(now, from, End::TooManyLines, session, out);
        }
        connection.bytes += cost(line);
        self.bytes += cost(line);
        connection.lines.push_back(line.to_vec());
        self.go_on(now, from, false, session, out);
    }

    fn on_requests_end(
        &mut self,
        now: Tick,
        from: ConnId,
        why: RequestsEnd<'_>,
        session: &mut Session,
        out: &mut Effects,
    ) {
        let end = match why {
            RequestsEnd::Bad(_) => End::LineTooLong,
            RequestsEnd::HalfClosed => End::HalfClosed,
        };
        self.on_end(now, from, end, session, out);
    }

    fn on_closed(&mut self, conn: ConnId, session: &mut Session) {
        let Some(connection) = self.connections.remove(&conn) else { return };
        self.bytes -= connection.bytes;
        if let Some(outstanding) = connection.outstanding {
            self.calls.remove(&outstanding.call());
            session.abandon(outstanding.call());
        }
    }

    fn collect(&mut self, now: Tick, session: &mut Session, out: &mut Effects) -> bool {
        let mut any = false;
        while let Some((call, completion)) = session.poll_completed() {
            any = true;
            self.on_completed(now, call, &completion, session, out);
            if let Completion::Executed { result, .. } | Completion::Read { result } = completion {
                session.recycle(result);
            }
        }
        any
    }

    fn assert_invariants(&self, _: &Session) {
        let outstanding = self.connections.values().filter(|connection| connection.outstanding.is_some()).count();
        assert_eq!(outstanding, self.calls.len(), "each call has its connection, and each connection one call");
        assert_eq!(self.bytes, self.connections.values().map(|connection| connection.bytes).sum::<usize>());
        for connection in self.connections.values() {
            assert_eq!(connection.outstanding.is_some(), !connection.lines.is_empty(), "who waits for nothing goes on");
            assert_eq!(connection.bytes, connection.lines.iter().map(|line| cost(line)).sum::<usize>());
        }
    }
}
