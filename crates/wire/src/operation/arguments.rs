//! Where an operation's arguments come from, and where they go: a method for each kind that a row may name.
//!
//! The table of operations names the arguments of each operation once. A [`Source`] gives them in that order: the bytes
//! of a request, or a generator of tests. A [`Visitor`] is shown them in that order: the encoder, the check of limits,
//! the text of an operation. So a new operation of known kinds needs no code here, and a new kind needs one method in
//! each.

use std::fmt;

use kasha_types::TableId;
use kasha_types::limits::{KEY_BYTES_MAX, OPERATION_KEYS_MAX, VALUE_BYTES_MAX};

use super::bounds::Bounds;
use super::command::Command;
use super::condition::Condition;
use super::cursor::ScanCursor;
use super::ends::Ends;
use super::excess::Excess;
use super::items::{ItemKind, Items, put_key, put_value, take_key, take_value};
use super::lifetime::Lifetime;
use super::parts::{PartOperation, Parts};
use super::terms::{Answer, Axes, Terms};
use crate::{DecodeError, Reader};

/// Gives arguments in their order.
#[expect(missing_docs, reason = "named by what they give")]
pub trait Source<'a>: Sized {
    /// Why an argument cannot be given.
    type Error;

    /// There is no operation with the code that was asked for.
    fn no_such_operation(what: &'static str) -> Self::Error;

    fn key(&mut self) -> Result<&'a [u8], Self::Error>;
    fn value(&mut self) -> Result<&'a [u8], Self::Error>;
    fn version(&mut self) -> Result<u64, Self::Error>;
    fn delta(&mut self) -> Result<i64, Self::Error>;
    fn bounds(&mut self) -> Result<Bounds, Self::Error>;
    fn lifetime(&mut self) -> Result<Lifetime, Self::Error>;
    fn items(&mut self, kind: ItemKind) -> Result<Items<'a>, Self::Error>;
    fn parts(&mut self) -> Result<Parts<'a>, Self::Error>;
    /// Parts that only read.
    fn queries(&mut self) -> Result<Parts<'a>, Self::Error> {
        let parts = self.parts()?;
        if parts.only_read() { Ok(parts) } else { Err(Self::no_such_operation("a query that may change something")) }
    }
    /// Parts of one table that demand nothing.
    fn batch(&mut self) -> Result<Parts<'a>, Self::Error> {
        let parts = self.parts()?;
        if parts.can_be_a_batch() {
            Ok(parts)
        } else {
            Err(Self::no_such_operation("a batch of several tables, or with checks"))
        }
    }
    // Whoever draws operations on keys draws no command.
    fn command(&mut self) -> Result<Command<'a>, Self::Error> {
        Err(Self::no_such_operation("a command"))
    }

    fn expected(&mut self) -> Result<&'a [u8], Self::Error> {
        self.value()
    }
    /// One of these numbers, which say what follows: a decoder takes whatever is there.
    fn which(&mut self, of: &[u8]) -> Result<u8, Self::Error>;

    fn condition(&mut self) -> Result<Condition<'a>, Self::Error> {
        Condition::build(self.which(Condition::CODES)?, self)
    }
    fn answer(&mut self) -> Result<Answer, Self::Error> {
        Answer::from_number(self.which(Answer::CODES)?).ok_or_else(|| Self::no_such_operation("an answer's number"))
    }
    #[inline(always)]
    fn axes(&mut self) -> Result<Axes<'a>, Self::Error> {
        Axes::build(self.which(Axes::all(true))?, self)
    }
    /// Of a change that leaves no value.
    #[inline]
    fn terms(&mut self) -> Result<Terms<'a>, Self::Error> {
        let Axes { terms, ends } = Axes::build(self.which(Axes::all(false))?, self)?;
        if ends == Ends::Usual { Ok(terms) } else { Err(Self::no_such_operation("the end of no value")) }
    }
    // Of a listing, which whoever draws operations on keys does not draw.
    fn cursor(&mut self) -> Result<ScanCursor, Self::Error> {
        Err(Self::no_such_operation("a cursor"))
    }
    fn most(&mut self) -> Result<u32, Self::Error> {
        Err(Self::no_such_operation("a number of keys"))
    }
    fn prefix(&mut self) -> Result<&'a [u8], Self::Error> {
        self.key()
    }
    fn keys(&mut self) -> Result<Items<'a>, Self::Error> {
        self.items(ItemKind::Key)
    }
    fn pairs(&mut self) -> Result<Items<'a>, Self::Error> {
        self.items(ItemKind::KeyValue)
    }
    fn deltas(&mut self) -> Result<Items<'a>, Self::Error> {
        self.items(ItemKind::KeyDelta)
    }
}

impl<'a> Source<'a> for Reader<'a> {
    type Error = DecodeError;

    fn no_such_operation(what: &'static str) -> DecodeError {
        DecodeError::Invalid(what)
    }
    fn key(&mut self) -> Result<&'a [u8], DecodeError> {
        take_key(self)
    }
    fn value(&mut self) -> Result<&'a [u8], DecodeError> {
        take_value(self)
    }
    fn version(&mut self) -> Result<u64, DecodeError> {
        self.take()
    }
    fn delta(&mut self) -> Result<i64, DecodeError> {
        self.take()
    }
    fn bounds(&mut self) -> Result<Bounds, DecodeError> {
        Bounds::decode(self)
    }
    fn lifetime(&mut self) -> Result<Lifetime, DecodeError> {
        Lifetime::from_millis(self.take()?).ok_or(DecodeError::Invalid("a lifetime of nothing"))
    }
    #[inline]
    fn which(&mut self, _: &[u8]) -> Result<u8, DecodeError> {
        self.take()
    }
    fn cursor(&mut self) -> Result<ScanCursor, DecodeError> {
        ScanCursor::from_number(self.take()?).ok_or(DecodeError::Invalid("a cursor"))
    }
    fn most(&mut self) -> Result<u32, DecodeError> {
        self.take()
    }
    fn items(&mut self, kind: ItemKind) -> Result<Items<'a>, DecodeError> {
        Items::decode(kind, self)
    }
    fn parts(&mut self) -> Result<Parts<'a>, DecodeError> {
        Parts::decode(self)
    }
    fn command(&mut self) -> Result<Command<'a>, DecodeError> {
        Command::decode(self)
    }
}

/// Is shown arguments in their order.
#[expect(missing_docs, reason = "named by what they are shown")]
pub trait Visitor<'a>: Sized {
    fn key(&mut self, key: &'a [u8]);
    fn value(&mut self, _: &'a [u8]) {}
    fn version(&mut self, _: u64) {}
    fn delta(&mut self, _: i64) {}
    fn bounds(&mut self, _: Bounds) {}
    fn condition(&mut self, _: Condition<'a>) {}
    fn answer(&mut self, _: Answer) {}
    fn ends(&mut self, _: Ends) {}
    fn axes(&mut self, _: Axes<'a>) {}
    fn terms(&mut self, terms: Terms<'a>) {
        self.axes(Axes::with(terms));
    }
    fn cursor(&mut self, _: ScanCursor) {}
    fn most(&mut self, _: u32) {}
    fn prefix(&mut self, _: &'a [u8]) {}
    fn items(&mut self, kind: ItemKind, items: Items<'a>);
    fn parts(&mut self, parts: Parts<'a>);
    fn command(&mut self, _: Command<'a>) {}
    fn queries(&mut self, parts: Parts<'a>) {
        self.parts(parts);
    }
    fn batch(&mut self, parts: Parts<'a>) {
        self.parts(parts);
    }

    fn expected(&mut self, expected: &'a [u8]) {
        self.value(expected);
    }
    fn keys(&mut self, items: Items<'a>) {
        self.items(ItemKind::Key, items);
    }
    fn pairs(&mut self, items: Items<'a>) {
        self.items(ItemKind::KeyValue, items);
    }
    fn deltas(&mut self, items: Items<'a>) {
        self.items(ItemKind::KeyDelta, items);
    }
}

/// Encodes arguments at the end.
pub(super) struct Encoder<'o>(pub(super) &'o mut Vec<u8>);

impl<'a> Visitor<'a> for Encoder<'_> {
    fn key(&mut self, key: &'a [u8]) {
        put_key(key, self.0);
    }
    fn value(&mut self, value: &'a [u8]) {
        put_value(value, self.0);
    }
    fn version(&mut self, version: u64) {
        self.0.extend_from_slice(&version.to_le_bytes());
    }
    fn delta(&mut self, delta: i64) {
        self.0.extend_from_slice(&delta.to_le_bytes());
    }
    fn bounds(&mut self, bounds: Bounds) {
        bounds.encode(self.0);
    }
    fn condition(&mut self, condition: Condition<'a>) {
        self.0.push(condition.code());
        condition.visit(self);
    }
    fn answer(&mut self, answer: Answer) {
        self.0.extend(answer.code());
    }
    fn axes(&mut self, axes: Axes<'a>) {
        self.0.push(axes.has());
        axes.visit(self);
    }
    fn ends(&mut self, ends: Ends) {
        if let Some(lifetime) = ends.lifetime() {
            self.version(lifetime.millis());
        }
    }
    fn cursor(&mut self, cursor: ScanCursor) {
        self.version(cursor.number());
    }
    fn most(&mut self, most: u32) {
        self.0.extend_from_slice(&most.to_le_bytes());
    }
    fn prefix(&mut self, prefix: &'a [u8]) {
        put_key(prefix, self.0);
    }
    fn items(&mut self, kind: ItemKind, items: Items<'a>) {
        items.encode(kind, self.0);
    }
    fn parts(&mut self, parts: Parts<'a>) {
        parts.encode(self.0);
    }
}

/// Calls a function with every key and its table.
pub(super) struct Keys<F> {
    pub(super) table: TableId,
    pub(super) each: F,
}

impl<'a, F: FnMut(TableId, &'a [u8])> Visitor<'a> for Keys<F> {
    fn key(&mut self, key: &'a [u8]) {
        (self.each)(self.table, key);
    }
    fn items(&mut self, _: ItemKind, items: Items<'a>) {
        items.iter().for_each(|item| (self.each)(self.table, item.key));
    }
    fn parts(&mut self, parts: Parts<'a>) {
        parts.for_each_key(&mut self.each);
    }
}

/// Finds the key of an operation on one key.
pub(super) struct OneKey<'a>(pub(super) Option<&'a [u8]>);

impl<'a> Visitor<'a> for OneKey<'a> {
    fn key(&mut self, key: &'a [u8]) {
        self.0 = Some(key);
    }
    fn items(&mut self, _: ItemKind, _: Items<'a>) {}
    fn parts(&mut self, _: Parts<'a>) {}
}

/// Writes arguments for people, each behind a space: text as it is, other bytes escaped, long values by their length.
pub(super) struct Shown<'s, 'f>(pub(super) &'s mut fmt::Formatter<'f>, pub(super) fmt::Result);

impl Shown<'_, '_> {
    fn show(&mut self, what: fmt::Arguments<'_>) {
        self.1 = self.1.and_then(|()| write!(self.0, " {what}"));
    }
}

impl<'a> Visitor<'a> for Shown<'_, '_> {
    fn key(&mut self, key: &'a [u8]) {
        self.show(format_args!("{}", key.escape_ascii()));
    }
    fn value(&mut self, value: &'a [u8]) {
        const WHOLE_MAX: usize = 40;
        const BEGINNING: usize = 16;
        if value.len() <= WHOLE_MAX {
            self.show(format_args!("{}", value.escape_ascii()));
        } else {
            self.show(format_args!("{}… ({} bytes)", value[..BEGINNING].escape_ascii(), value.len()));
        }
    }
    fn version(&mut self, version: u64) {
        self.show(format_args!("{version}"));
    }
    fn delta(&mut self, delta: i64) {
        self.show(format_args!("{delta}"));
    }
    fn bounds(&mut self, bounds: Bounds) {
        if bounds == Bounds::NONE {
            return;
        }
        self.show(format_args!("within {}..={}", bounds.least(), bounds.most()));
    }
    fn condition(&mut self, condition: Condition<'a>) {
        self.show(format_args!("if {}", condition.name()));
        condition.visit(self);
    }
    fn answer(&mut self, answer: Answer) {
        self.show(format_args!("telling {}", answer.name()));
    }
    fn axes(&mut self, axes: Axes<'a>) {
        axes.visit(self);
    }
    fn ends(&mut self, ends: Ends) {
        match ends {
            Ends::Usual => {}
            Ends::After(lifetime) => self.show(format_args!("for {} ms", lifetime.millis())),
            Ends::AfterMade(lifetime) => self.show(format_args!("for {} ms once made", lifetime.millis())),
            Ends::Never => self.show(format_args!("for ever")),
        }
    }
    fn cursor(&mut self, cursor: ScanCursor) {
        self.show(format_args!("from {}", cursor.number()));
    }
    fn most(&mut self, most: u32) {
        self.show(format_args!("at most {most}"));
    }
    fn prefix(&mut self, prefix: &'a [u8]) {
        self.show(format_args!("{}…", prefix.escape_ascii()));
    }
    fn items(&mut self, kind: ItemKind, items: Items<'a>) {
        for item in items.iter() {
            self.key(item.key);
            match kind {
                ItemKind::Key => {}
                ItemKind::KeyValue => self.value(item.value),
                ItemKind::KeyDelta => self.delta(item.delta),
            }
        }
    }
    fn parts(&mut self, parts: Parts<'a>) {
        for part in parts.iter() {
            self.show(format_args!("[{} {}", part.table, part.operation.row().name));
            if let PartOperation::Command(command) = part.operation {
                self.show(format_args!("{command}"));
            }
            part.operation.visit(self);
            self.1 = self.1.and_then(|()| write!(self.0, "]"));
        }
    }
}

/// Finds the first limit that is exceeded.
pub(super) struct Limits(pub(super) Result<(), Excess>);

impl Limits {
    fn check(&mut self, is_within: bool, excess: Excess) {
        if self.0.is_ok() && !is_within {
            self.0 = Err(excess);
        }
    }
}

impl<'a> Visitor<'a> for Limits {
    fn condition(&mut self, condition: Condition<'a>) {
        condition.visit(self);
    }
    fn axes(&mut self, axes: Axes<'a>) {
        axes.visit(self);
    }
    fn prefix(&mut self, prefix: &'a [u8]) {
        self.key(prefix);
    }
    fn key(&mut self, key: &'a [u8]) {
        self.check(key.len() <= KEY_BYTES_MAX, Excess::Key);
    }
    fn value(&mut self, value: &'a [u8]) {
        self.check(value.len() <= VALUE_BYTES_MAX, Excess::Value);
    }
    /// Keys of a list are within their limit by its encoding.
    fn items(&mut self, _: ItemKind, items: Items<'a>) {
        self.check((1..=OPERATION_KEYS_MAX).contains(&(items.count() as usize)), Excess::KeyCount);
        self.check(!items.holds_too_much(), Excess::Value);
    }
    fn parts(&mut self, parts: Parts<'a>) {
        self.check((1..=OPERATION_KEYS_MAX).contains(&(parts.count() as usize)), Excess::KeyCount);
        self.check(!parts.holds_too_much(), Excess::Value);
    }
}
