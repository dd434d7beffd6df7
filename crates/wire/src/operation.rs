//! Operations: one row each says its code, its name, its arguments, the shape of its result, and whether it only gives
//! memory back. The enums, the codec and whoever goes through arguments follow from the rows.
//!
//! A change of one key has a row, and says in its `axes` what else it may say: a condition ([`condition`]), an answer ([`terms`]), and when
//! the value ends ([`ends`]). So a new condition, or a new answer, is one for all of them.
//!
//! Arguments are encoded in the row's order: `key` and `value` by length and bytes, `delta` as an `i64`, `bounds` as a byte and, if it
//! is 1, two of these, `cursor` as a `u64`, `most` as a `u32`, `prefix` as a key; `keys`, `pairs` and `deltas` are lists ([`items`]),
//! and so are `parts` ([`parts`]), `queries`, which are parts that only read, and `batch`: parts of one table that demand nothing.

pub mod arguments;
pub mod bounds;
mod changes;
pub mod command;
pub mod condition;
pub mod cursor;
pub mod ends;
mod excess;
pub mod items;
pub mod lifetime;
pub mod participants;
pub mod parts;
pub mod terms;

use arguments::{Encoder, Keys, Limits, Shown, Source, Visitor};
pub use bounds::Bounds;
pub use command::{Command, CommandBuffer, Words};
pub use condition::Condition;
pub use cursor::ScanCursor;
pub use ends::Ends;
pub use excess::Excess;
pub use items::{Item, ItemKind, Items, ItemsBuffer};
pub use lifetime::Lifetime;
pub use participants::{Participants, ParticipantsBuffer};
pub use parts::{Part, PartOperation, Parts, PartsBuffer};
pub use terms::{Answer, Axes, Terms};

use std::fmt;

use kasha_types::TableId;

use crate::outcome::Shape;
use crate::version::{Level, level};
use crate::{DecodeError, Reader};

/// What is the same for all operations with one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number on the wire and in logs.
    pub code: u8,
    /// Its name, for people.
    pub name: &'static str,
    /// The level that it needs (R7.6): nobody sends it to a cluster that is at a lower one.
    pub level: Level,
    /// What its usual result looks like where it did what it says.
    pub shape: Shape,
    /// Whether it can only give memory back, with its usual answer: it may use the reserve when memory is full (section 5).
    pub only_frees: bool,
}

/// The type of an argument.
macro_rules! argument {
    ($a:lifetime key) => { &$a [u8] };
    ($a:lifetime value) => { &$a [u8] };
    ($a:lifetime terms) => { Terms<$a> };
    ($a:lifetime axes) => { Axes<$a> };
    ($a:lifetime condition) => { Condition<$a> };
    ($a:lifetime delta) => { i64 };
    ($a:lifetime bounds) => { Bounds };
    ($a:lifetime cursor) => { ScanCursor };
    ($a:lifetime most) => { u32 };
    ($a:lifetime prefix) => { &$a [u8] };
    ($a:lifetime parts) => { Parts<$a> };
    ($a:lifetime queries) => { Parts<$a> };
    ($a:lifetime batch) => { Parts<$a> };
    ($a:lifetime $list:ident) => { Items<$a> };
}

macro_rules! only_frees {
    () => {
        false
    };
    (frees) => {
        true
    };
}

/// Makes an enum of rows. Arguments are named by their kind, which is also a method of [`Source`] and of [`Visitor`].
macro_rules! operations {
    (
        $(#[$doc:meta])*
        $name:ident: $what:literal;
        $(
            $code:literal $variant:ident $text:literal $(since $level:literal)? ($($argument:ident),+)
                => $shape:ident $(, $frees:ident)?;
        )+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the rows say what each has")]
        pub enum $name<'a> {
            $($variant { $($argument: argument!('a $argument)),+ },)+
        }

        impl<'a> $name<'a> {
            /// All rows, in the order of the table.
            pub const ALL: &'static [Row] = &[$(
                Row {
                    code: $code,
                    name: $text,
                    level: level!($($level)?),
                    shape: Shape::$shape,
                    only_frees: only_frees!($($frees)?),
                },
            )+];

            /// What is said of the operation with this code.
            #[must_use]
            pub fn row_of(code: u8) -> Option<&'static Row> {
                Some(match code {
                    $($code => {
                        &Row {
                            code: $code,
                            name: $text,
                            level: level!($($level)?),
                            shape: Shape::$shape,
                            only_frees: only_frees!($($frees)?),
                        }
                    })+
                    _ => return None,
                })
            }

            /// Its number on the wire and in logs.
            #[must_use]
            pub fn code(&self) -> u8 {
                match self {
                    $(Self::$variant { .. } => $code,)+
                }
            }

            /// What is said of operations with its code.
            ///
            /// # Panics
            /// Never: every operation has a row.
            #[must_use]
            pub fn row(&self) -> &'static Row {
                Self::row_of(self.code()).expect("a variant has a row")
            }

            /// The operation with this code, its arguments taken from `source` in their order.
            ///
            /// # Errors
            /// If the source has them not, or there is no such code.
            #[inline(always)]
            pub fn build<S: Source<'a>>(code: u8, source: &mut S) -> Result<Self, S::Error> {
                Ok(match code {
                    $($code => Self::$variant { $($argument: source.$argument()?),+ },)+
                    _ => return Err(S::no_such_operation($what)),
                })
            }

            /// Shows `visitor` every argument, in order.
            #[inline]
            pub fn visit(&self, visitor: &mut impl Visitor<'a>) {
                match *self {
                    $(Self::$variant { $($argument),+ } => { $(visitor.$argument($argument);)+ })+
                }
            }

            /// Decodes the arguments of the operation with this code; they must fill `bytes`.
            ///
            /// # Errors
            /// If they do not, or exceed a limit.
            #[inline(always)]
            pub fn decode(code: u8, bytes: &'a [u8]) -> Result<Self, DecodeError> {
                let mut reader = Reader::new(bytes);
                let operation = Self::build(code, &mut reader)?;
                reader.finish()?;
                Ok(operation)
            }

            /// Encodes the arguments at the end of `out`.
            ///
            /// # Panics
            /// If a list is one of another operation (pairs for a multi-delete, for instance), or a length does not fit its
            /// field.
            pub fn encode_arguments(&self, out: &mut Vec<u8>) {
                self.visit(&mut Encoder(out));
            }

            /// Calls `each` with every key and its table, in order. `table`: of the keys that name none themselves.
            #[inline]
            pub fn for_each_key(&self, table: TableId, each: impl FnMut(TableId, &'a [u8])) {
                self.visit(&mut Keys { table, each });
            }

            /// Checks the limits that [`Self::decode`] refuses to go beyond.
            ///
            /// # Errors
            /// The first one that is exceeded.
            pub fn check_limits(&self) -> Result<(), Excess> {
                let mut limits = Limits(Ok(()));
                self.visit(&mut limits);
                limits.0
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.row().name)?;
                let mut shown = Shown(f, Ok(()));
                self.visit(&mut shown);
                shown.1
            }
        }

        impl From<&$name<'_>> for OwnedOperation {
            fn from(operation: &$name<'_>) -> Self {
                let mut arguments = Vec::new();
                operation.encode_arguments(&mut arguments);
                Self { code: operation.code(), arguments }
            }
        }

        impl $name<'_> {
            /// Checks the limits and encodes.
            ///
            /// # Errors
            /// The first limit that is exceeded.
            pub fn to_owned_within_limits(&self) -> Result<OwnedOperation, Excess> {
                self.check_limits()?;
                Ok(OwnedOperation::from(self))
            }
        }
    };
}

operations! {
    /// An operation that changes something, or may.
    Update: "an update's code";
    1 Put "put" (key, axes, value) => Version;
    2 Increment "increment" (key, axes, delta, bounds) => Number;
    3 Append "append" (key, axes, value) => Length;
    4 Delete "delete" (key, terms) => Version, frees;
    5 Keep "keep" (key, axes) => Version;
    16 MultiPut "multi-put" (pairs) => Versions;
    17 MultiDelete "multi-delete" (keys) => Flags, frees;
    18 MultiIncrement "multi-increment" (deltas) => Numbers;
    32 Transaction "transaction" (parts) => Parts;
    35 Batch "batch" since 2 (batch) => Parts;
}

operations! {
    /// An operation that changes nothing.
    Read: "a read's code";
    64 Get "get" (key) => Value;
    65 Exists "exists" (key) => Flag;
    66 TimeToLive "time-to-live" (key) => Expiry;
    80 MultiGet "multi-get" (keys) => Values;
    81 Observe "observe" (keys) => Observed;
    82 Scan "scan" (cursor, most, prefix) => Keys;
    83 ScanValues "scan-values" (cursor, most, prefix) => KeysAndValues;
    84 Query "query" since 2 (queries) => Parts;
}

operations! {
    /// What a transaction demands of a key. Its result is the key's version, 0 if the key has no value.
    Check: "a check's code";
    96 Meets "meets" (key, condition) => Version;
}

impl<'a> Update<'a> {
    /// Whether it gives a key a lifetime, which counts from when the update was begun.
    #[must_use]
    #[inline(always)]
    pub fn has_lifetime(&self) -> bool {
        match self {
            Self::Put { axes, .. }
            | Self::Increment { axes, .. }
            | Self::Append { axes, .. }
            | Self::Keep { axes, .. } => axes.ends.lifetime().is_some(),
            Self::Transaction { parts } | Self::Batch { batch: parts } => parts.have_lifetime(),
            Self::Delete { .. } | Self::MultiPut { .. } | Self::MultiDelete { .. } | Self::MultiIncrement { .. } => {
                false
            }
        }
    }

    /// Whether its body says when it was begun: lifetimes count from then, and for commands a replay ends what was over by then (R10.12).
    #[must_use]
    #[inline(always)]
    pub fn says_begun(&self) -> bool {
        match self {
            Self::Transaction { parts } | Self::Batch { batch: parts } if parts.have_commands() => true,
            _ => self.has_lifetime(),
        }
    }

    /// Its condition and its answer. An operation on several keys has none.
    #[must_use]
    #[inline]
    pub fn terms(&self) -> Terms<'a> {
        match *self {
            Self::Put { axes, .. }
            | Self::Increment { axes, .. }
            | Self::Append { axes, .. }
            | Self::Keep { axes, .. } => axes.terms,
            Self::Delete { terms, .. } => terms,
            Self::MultiPut { .. }
            | Self::MultiDelete { .. }
            | Self::MultiIncrement { .. }
            | Self::Transaction { .. }
            | Self::Batch { .. } => Terms::NONE,
        }
    }

    /// The same change of one key with other terms. An operation on several keys has none, and stays as it is.
    #[must_use]
    pub fn with_terms(mut self, new: Terms<'a>) -> Self {
        match &mut self {
            Self::Put { axes, .. }
            | Self::Increment { axes, .. }
            | Self::Append { axes, .. }
            | Self::Keep { axes, .. } => axes.terms = new,
            Self::Delete { terms, .. } => *terms = new,
            Self::MultiPut { .. }
            | Self::MultiDelete { .. }
            | Self::MultiIncrement { .. }
            | Self::Transaction { .. }
            | Self::Batch { .. } => {}
        }
        self
    }

    /// The same change of one key with another end of its value. `None`: it leaves no value, or has several keys.
    #[must_use]
    pub fn with_ends(mut self, new: Ends) -> Option<Self> {
        match &mut self {
            Self::Put { axes, .. }
            | Self::Increment { axes, .. }
            | Self::Append { axes, .. }
            | Self::Keep { axes, .. } => axes.ends = new,
            Self::Delete { .. }
            | Self::MultiPut { .. }
            | Self::MultiDelete { .. }
            | Self::MultiIncrement { .. }
            | Self::Transaction { .. }
            | Self::Batch { .. } => return None,
        }
        Some(self)
    }

    /// What its result looks like where it did what it says.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.terms().answer.shape(self.row().shape)
    }

    /// Whether it can only give memory back. The old value in the result takes some.
    #[must_use]
    pub fn only_frees(&self) -> bool {
        match self {
            Self::Transaction { parts } | Self::Batch { batch: parts } => parts.only_free(),
            _ => self.row().only_frees && self.terms().answer != Answer::Old,
        }
    }

    /// Whether it touches all keys of a table, at some shard. A batch does not.
    #[must_use]
    #[inline]
    pub fn touches_everything(&self) -> bool {
        matches!(self, Self::Transaction { parts } if parts.touch_everything())
    }

    /// The level that it needs (R7.6), with all of its parts.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Self::Transaction { parts } => parts.level(),
            Self::Batch { batch } => batch.level().max(self.row().level),
            _ => self.row().level,
        }
    }
}

impl Read<'_> {
    /// What its result looks like.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.row().shape
    }
}

/// An update or a read, encoded, that owns its arguments.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnedOperation {
    code: u8,
    arguments: Vec<u8>,
}

impl fmt::Debug for OwnedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.update(), self.read()) {
            (Some(update), _) => write!(f, "{update}"),
            (None, Some(read)) => write!(f, "{read}"),
            (None, None) => write!(f, "{} {}", self.row().name, self.arguments.escape_ascii()),
        }
    }
}

impl OwnedOperation {
    /// The update that it is.
    #[must_use]
    pub fn update(&self) -> Option<Update<'_>> {
        Update::decode(self.code, &self.arguments).ok()
    }

    /// The read that it is.
    #[must_use]
    pub fn read(&self) -> Option<Read<'_>> {
        Read::decode(self.code, &self.arguments).ok()
    }

    /// The operation's code on the wire.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.code
    }

    /// The operation's arguments, encoded.
    #[must_use]
    pub fn arguments(&self) -> &[u8] {
        &self.arguments
    }

    /// What is said of operations with its code.
    ///
    /// # Panics
    /// Never: it was made from an operation.
    #[must_use]
    pub fn row(&self) -> &'static Row {
        let row = Update::row_of(self.code).or_else(|| Read::row_of(self.code));
        row.or_else(|| Check::row_of(self.code)).expect("made from an operation")
    }

    /// What its result looks like where it did what it says.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.update().map_or(self.row().shape, |update| update.shape())
    }
}
