//! A request is begun: answered at once, gathered with others of its shard, or made a call of its own.

use std::collections::VecDeque;

use arrayvec::ArrayVec;
use kasha_client::session::Session;
use kasha_commands::{Class, Command as Name, Item, ReplyWriter, Row};
use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::{ConnId, TableId, Tick};
use kasha_wire::operation::PartsBuffer;
use kasha_wire::requests::Request;

use super::calls::{self, Expected, NoCall, OperationKey, Sending, Together};
use super::connection::{Blocked, Connection, Outstanding, TablesAsked, Waiting};
use super::counts::Counts;
use super::gathered::{self, Gathered, Run};
use super::moving::{Asked, Going, Moving, Next as Step};
use super::options::RedisOptions;
use super::rows::row_of;
use super::unknown::{Touched, Unknown, Watched};
use super::whole::{Asking, Next, Whole};
use super::{flush, local, multi, tables};
use crate::limits::{COMMAND_DEADLINE, GOES_ON_WITHIN};

/// What a request is begun with.
pub(super) struct Doing<'d> {
    pub(super) now: Tick,
    pub(super) session: &'d mut Session,
    pub(super) options: &'d RedisOptions,
    pub(super) clients: usize,
    pub(super) counts: &'d Counts,
    pub(super) unknown: &'d Unknown,
    pub(super) gathered: &'d mut Gathered,
    pub(super) run_memory: &'d mut PartsBuffer,
    pub(super) out: &'d mut Effects,
    pub(super) scratch: &'d mut Vec<u8>,
}

/// What became of a request.
pub(super) enum Begun {
    /// The scratch buffer has its reply. Whether it is answered, if that is known already.
    Answered(Option<bool>),
    /// It is the last one, and answered.
    Ended,
    /// The connection waits for this.
    Waits(Outstanding),
    /// It is gathered, with these requests behind it. Whether it is answered.
    Gathered(bool, VecDeque<Waiting>),
    /// It begins anew when this is over.
    Blocked(Blocked),
}

/// The reply to a request that waited for one whose outcome is not known (R10.18), or for a table.
pub(super) const TRY_AGAIN: &str = "TRYAGAIN it waited for what others do not answer, and was not executed";

/// The reply to a request of which a word is longer than what is kept.
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

impl Doing<'_> {
    pub(super) fn reply(&mut self, item: Item<'_>) -> Begun {
        ReplyWriter(self.scratch).item(item);
        Begun::Answered(None)
    }

    pub(super) fn table(&self, database: u8) -> Option<TableId> {
        tables::table(database, self.session)
    }

    /// Answers a command that the front can answer by itself, in the scratch buffer.
    pub(super) fn answer(&mut self, row: &Row, words: &[&[u8]], connection: &mut Connection) {
        let Self { now, ref session, options, clients, counts, .. } = *self;
        let known = local::Known { session, options, clients, counts, unix: session.unix_time(now) };
        local::answer(row, words, known, connection, &mut ReplyWriter(self.scratch));
    }

    pub(super) fn known(&self) -> local::Known<'_> {
        let Self { now, ref session, options, clients, counts, .. } = *self;
        local::Known { session, options, clients, counts, unix: session.unix_time(now) }
    }

    /// Begins a command of no key.
    pub(super) fn begin_whole(
        &mut self,
        (conn, connection): (ConnId, &mut Connection),
        (row, words): (&'static Row, &[&[u8]]),
        is_answered: Option<bool>,
    ) -> Begun {
        // R10.18: what nobody knows the outcome of comes first, whatever its keys are.
        if self.unknown.has(conn, Vec::new) {
            return Begun::Blocked(Blocked::Unknown);
        }
        let database = connection.database;
        let Some(table) = self.table(database) else { return Begun::Blocked(Blocked::Table(database)) };
        let mut asking = Asking { now: self.now, table, session: self.session, out: self.out };
        let (whole, next) = Whole::begin(row, words, &mut asking);
        match (whole, next) {
            (Some(whole), Next::Asks(call)) => {
                let is_answered = is_answered.unwrap_or_else(|| connection.is_answered());
                let expected = Expected::Pages(table, Box::new(whole));
                Begun::Waits(Outstanding::Call { call, expected, is_answered, touched: Touched::default() })
            }
            (_, Next::Replies(reply)) => {
                self.scratch.extend_from_slice(&reply);
                Begun::Answered(None)
            }
            (None, Next::Asks(_)) => unreachable!("who asks is under way"),
        }
    }

    /// Begins a request that has been taken.
    pub(super) fn begin(&mut self, (conn, connection): (ConnId, &mut Connection), request: &Waiting) -> Begun {
        if request.is_cut {
            connection.spoil();
            return self.reply(Item::Error(TOO_LONG));
        }
        let (few, many);
        let words = match words_of(&request.bytes) {
            Some(words) => {
                few = words;
                &few[..]
            }
            None => {
                many = Request::of_kept(&request.bytes).words().collect::<Vec<_>>();
                &many[..]
            }
        };
        let row = match row_of(words) {
            Ok(row) => row,
            // A browser speaks, and perhaps for a page of somebody else: what it says next is no command either.
            Err(_) if is_of_http(words[0]) => {
                connection.forget_requests();
                return Begun::Ended;
            }
            Err(text) if words[0].eq_ignore_ascii_case(b"exec") && connection.is_authenticated => {
                connection.end_multi();
                let why = text.strip_prefix("ERR ").unwrap_or(&text);
                return self.reply(Item::Error(&format!("EXECABORT Transaction discarded because of: {why}")));
            }
            Err(text) => {
                connection.spoil();
                return self.reply(Item::Error(&text));
            }
        };
        if !connection.is_authenticated && !matches!(row.command, Name::Auth | Name::Hello | Name::Quit | Name::Reset) {
            connection.spoil();
            return self.reply(Item::Error("NOAUTH Authentication required."));
        }
        if let Some(begun) = multi::begin(self, (conn, connection), (row, words), request) {
            return begun;
        }
        match row.class {
            Class::Local if row.command == Name::Time && self.known().unix.is_none() => {
                self.begin_whole((conn, connection), (row, words), request.is_answered)
            }
            Class::Local => {
                self.answer(row, words, connection);
                if row.command == Name::Quit { Begun::Ended } else { Begun::Answered(None) }
            }
            _ if flush::is_one(row) => self.begin_flush(connection, (row, words), request),
            Class::Composed => self.begin_whole((conn, connection), (row, words), request.is_answered),
            Class::Reads(_) | Class::Changes(_) => self.begin_on_keys((conn, connection), (row, words), request),
        }
    }

    /// Begins a command on keys. If these are of one shard, so do those behind it that are of this shard, too.
    pub(super) fn begin_on_keys(
        &mut self,
        (conn, connection): (ConnId, &mut Connection),
        (row, words): (&'static Row, &[&[u8]]),
        request: &Waiting,
    ) -> Begun {
        let database = connection.database;
        let Some(table) = self.table(database) else { return Begun::Blocked(Blocked::Table(database)) };
        if self.unknown.has(conn, || calls::keys_of(table, row, words)) {
            return Begun::Blocked(Blocked::Unknown);
        }
        let is_late = request.begun.is_some_and(|begun| self.now.since(begun) > GOES_ON_WITHIN);
        let shard = match calls::shard_of(row, words, table, self.session) {
            Ok(Some(shard)) if !request.goes_alone && !is_late && row.command != Name::Lcs => shard,
            Ok(_) => return self.begin_alone(connection, (row, words), table, request, None),
            Err(NoCall::Refused(text)) => return self.reply(Item::Error(&text)),
            Err(NoCall::Table | NoCall::Moves) => return Begun::Blocked(Blocked::Table(database)),
        };
        let since = request.begun.unwrap_or(self.now);
        let mut run = Run::new((table, shard), since, std::mem::take(self.run_memory), self.session);
        if run.push(row, words).is_err() {
            return self.reply(Item::Error(&calls::too_long(row)));
        }
        let is_answered = request.is_answered.unwrap_or_else(|| connection.is_answered());
        let requests = self.gather((conn, connection), &mut run, (table, shard));
        *self.run_memory = self.gathered.push(conn, run);
        Begun::Gathered(is_answered, requests)
    }

    /// Begins a flush that stands outside `MULTI`.
    pub(super) fn begin_flush(
        &mut self,
        connection: &mut Connection,
        (row, words): (&'static Row, &[&[u8]]),
        request: &Waiting,
    ) -> Begun {
        // R10.18: what nobody knows the outcome of comes first, whatever its keys are.
        if self.unknown.has_any() {
            return Begun::Blocked(Blocked::Unknown);
        }
        if row.command == Name::FlushAll && connection.tables != TablesAsked::Answered {
            return Begun::Blocked(Blocked::Tables);
        }
        let Some(table) = self.table(connection.database) else {
            return Begun::Blocked(Blocked::Table(connection.database));
        };
        self.begin_alone(connection, (row, words), table, request, None)
    }

    /// Begins a command that goes with no other one, under an operation key or none.
    pub(super) fn begin_alone(
        &mut self,
        connection: &mut Connection,
        (row, words): (&'static Row, &[&[u8]]),
        table: TableId,
        request: &Waiting,
        once: Option<OperationKey<'_>>,
    ) -> Begun {
        let split = match calls::split(row, words, table, self.session) {
            Err(NoCall::Moves) if row.command == Name::MSetNx => calls::if_none(words, table, self.session),
            split => split.map(|split| (Vec::new(), split)),
        };
        let (demands, split) = match split {
            Ok(split) => split,
            Err(NoCall::Refused(text)) => return self.reply(Item::Error(&text)),
            Err(NoCall::Table) => return Begun::Blocked(Blocked::Table(connection.database)),
            Err(NoCall::Moves) => {
                let said = Asked::Command { table, row, words: words.iter().map(|word| word.to_vec()).collect() };
                return self.begin_moving(connection, (vec![said], None), request, once);
            }
        };
        let is_answered = request.is_answered.unwrap_or_else(|| connection.is_answered());
        let mut together = Together::default();
        demands.iter().for_each(|demand| together.check(demand));
        together.push(&split);
        if together.is_answered() {
            calls::merged(&mut std::iter::empty(), &split.merge, &mut ReplyWriter(self.scratch));
            return Begun::Answered(Some(is_answered));
        }
        let Some(until) = self.deadline(request, is_answered) else {
            return self.too_late(connection, request, is_answered);
        };
        match together.call(self.now, &Sending::new(until, once), self.session, self.out) {
            Ok(called) if planted::is_on(Bug::NextOneNotHeldUp) && row.command == Name::MSet => {
                self.session.abandon(called.call);
                ReplyWriter(self.scratch).item(Item::Ok);
                Begun::Answered(Some(is_answered))
            }
            Ok(called) => {
                let expected = calls::expected(false, demands.len(), called.merges);
                Begun::Waits(Outstanding::Call { call: called.call, expected, is_answered, touched: called.touched })
            }
            Err(why) => {
                ReplyWriter(self.scratch).item(Item::Error(&format!("ERR {why}")));
                Begun::Answered(Some(is_answered))
            }
        }
    }

    /// Begins what moves something between shards: a command, or all of `EXEC` with its demands on these watched keys.
    pub(super) fn begin_moving(
        &mut self,
        connection: &mut Connection,
        (said, watched): (Vec<Asked>, Option<Vec<Watched>>),
        request: &Waiting,
        once: Option<OperationKey<'_>>,
    ) -> Begun {
        let is_answered = request.is_answered.unwrap_or_else(|| connection.is_answered());
        let Some(until) = self.deadline(request, is_answered) else {
            return self.too_late(connection, request, is_answered);
        };
        let mut moving = match Moving::new((said, watched), once, until, self.session) {
            Ok(moving) => Box::new(moving),
            Err(NoCall::Refused(text)) => return self.reply(Item::Error(&text)),
            Err(NoCall::Table | NoCall::Moves) => return self.reply(Item::Error(TRY_AGAIN)),
        };
        let next = moving.ask(&mut Going { now: self.now, session: self.session, out: self.out });
        match next {
            Step::Asks(call, touched) => {
                Begun::Waits(Outstanding::Call { call, expected: Expected::Moving(moving), is_answered, touched })
            }
            Step::Pauses(until) => Begun::Waits(Outstanding::Pause { until, moving, is_answered }),
            Step::Replies(reply) => {
                self.scratch.extend_from_slice(&reply);
                Begun::Answered(Some(is_answered))
            }
        }
    }

    /// How long a command may take (R10.2). `None`: its time is over. Who is not answered is not waited for, and has all the time.
    pub(super) fn deadline(&self, request: &Waiting, is_answered: bool) -> Option<Tick> {
        let since = request.begun.filter(|_| is_answered).unwrap_or(self.now);
        Some(since.after(COMMAND_DEADLINE)).filter(|until| *until > self.now)
    }

    /// Nothing was executed.
    pub(super) fn too_late(&mut self, connection: &mut Connection, request: &Waiting, is_answered: bool) -> Begun {
        connection.refused_before_it_began(request);
        ReplyWriter(self.scratch).item(Item::Error(TRY_AGAIN));
        Begun::Answered(Some(is_answered))
    }

    /// Takes those requests that can go on a run.
    pub(super) fn gather(
        &mut self,
        (conn, connection): (ConnId, &mut Connection),
        run: &mut Run,
        (table, shard): gathered::Place,
    ) -> VecDeque<Waiting> {
        let mut requests = VecDeque::new();
        while connection.requests.front().is_some_and(|next| self.goes_on(conn, run, next, (table, shard))) {
            let mut next = connection.take_request().expect("it was looked at");
            next.is_answered = Some(next.is_answered.unwrap_or_else(|| connection.is_answered()));
            requests.push_back(next);
        }
        requests
    }

    /// Takes the command of a request on a run, if it can go there.
    pub(super) fn goes_on(
        &self,
        conn: ConnId,
        run: &mut Run,
        request: &Waiting,
        (table, shard): gathered::Place,
    ) -> bool {
        if request.is_cut || request.goes_alone {
            return false;
        }
        let Some(words) = words_of(&request.bytes) else { return false };
        let Ok(row) = row_of(&words) else { return false };
        row.class.number().is_some()
            && row.command != Name::Lcs // R11.14: it goes alone
            && calls::shard_of(row, &words, table, self.session) == Ok(Some(shard))
            && !self.unknown.has(conn, || calls::keys_of(table, row, &words))
            && run.push(row, &words).is_ok()
    }
}

/// Whether a request begins as a line of HTTP does.
fn is_of_http(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"post") || word.eq_ignore_ascii_case(b"host:")
}

/// The words of a request that has a few, as most have.
fn words_of(request: &[u8]) -> Option<ArrayVec<&[u8], 8>> {
    let mut all = ArrayVec::new();
    Request::of_kept(request).words().try_for_each(|word| all.try_push(word)).ok()?;
    Some(all)
}
