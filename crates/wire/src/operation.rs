//! Operations: one row each says its code, its name, its arguments, the shape of its result, and whether it only gives
//! memory back. The enums, the codec and whoever goes through arguments follow from the rows.
//!
//! Arguments are encoded in the row's order: `key`, `value` and `expected` (another value) by length and bytes, `version` as
//! a `u64`, `delta` as an `i64`, `bounds` as two of these, `lifetime` as milliseconds in a `u64`, `cursor` as a
//! `u64`, `most` as a `u32`, `prefix` as a key; `keys`, `pairs` and `deltas` are lists ([`items`]), and so is `parts` ([`parts`]).

pub mod arguments;
pub mod bounds;
pub mod cursor;
pub mod items;
pub mod lifetime;
pub mod participants;
pub mod parts;

pub use arguments::Excess;
use arguments::{Encoder, Keys, Limits, Shown, Source, Visitor};
pub use bounds::Bounds;
pub use cursor::ScanCursor;
pub use items::{Item, ItemKind, Items, ItemsBuffer};
pub use lifetime::Lifetime;
pub use participants::{Participants, ParticipantsBuffer};
pub use parts::{Part, PartOperation, Parts, PartsBuffer};

use std::fmt;

use kasha_types::TableId;

use crate::outcome::Shape;
use crate::{DecodeError, Reader};

/// What is the same for all operations with one code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number on the wire and in logs.
    pub code: u8,
    /// Its name, for people.
    pub name: &'static str,
    /// What its result looks like where it did what it says.
    pub shape: Shape,
    /// Whether it can only give memory back: it may use the reserve when memory is full (section 5).
    pub only_frees: bool,
}

/// The type of an argument.
macro_rules! argument {
    ($a:lifetime key) => { &$a [u8] };
    ($a:lifetime value) => { &$a [u8] };
    ($a:lifetime expected) => { &$a [u8] };
    ($a:lifetime version) => { u64 };
    ($a:lifetime delta) => { i64 };
    ($a:lifetime bounds) => { Bounds };
    ($a:lifetime lifetime) => { Lifetime };
    ($a:lifetime cursor) => { ScanCursor };
    ($a:lifetime most) => { u32 };
    ($a:lifetime prefix) => { &$a [u8] };
    ($a:lifetime parts) => { Parts<$a> };
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
        $($code:literal $variant:ident $text:literal ($($argument:ident),+) => $shape:ident $(, $frees:ident)?;)+
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
                Row { code: $code, name: $text, shape: Shape::$shape, only_frees: only_frees!($($frees)?) },
            )+];

            /// What is said of the operation with this code.
            #[must_use]
            pub fn row_of(code: u8) -> Option<&'static Row> {
                Some(match code {
                    $($code => {
                        &Row { code: $code, name: $text, shape: Shape::$shape, only_frees: only_frees!($($frees)?) }
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

            /// The operation with this code, its arguments taken from `source` in their order.
            ///
            /// # Errors
            /// If the source has them not, or there is no such code.
            #[inline]
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
            #[inline]
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
                f.write_str(Self::row_of(self.code()).expect("a variant has a row").name)?;
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
    1 Put "put" (key, value) => Version;
    2 PutIfVersion "put-if-version" (key, version, value) => Version;
    3 PutIfAbsent "put-if-absent" (key, value) => Version;
    4 Delete "delete" (key) => Version, frees;
    5 DeleteIfVersion "delete-if-version" (key, version) => Version, frees;
    6 Increment "increment" (key, delta) => Number;
    7 Append "append" (key, value) => Length;
    8 GetAndPut "get-and-put" (key, value) => Replaced;
    9 GetAndDelete "get-and-delete" (key) => Value;
    10 CompareAndPut "compare-and-put" (key, expected, value) => Version;
    11 IncrementWithin "increment-within" (key, delta, bounds) => Number;
    12 PutExpiring "put-expiring" (key, lifetime, value) => Version;
    13 PutIfAbsentExpiring "put-if-absent-expiring" (key, lifetime, value) => Version;
    14 IncrementExpiring "increment-expiring" (key, delta, bounds, lifetime) => Number;
    16 MultiPut "multi-put" (pairs) => Versions;
    17 MultiDelete "multi-delete" (keys) => Flags, frees;
    18 MultiIncrement "multi-increment" (deltas) => Numbers;
    19 Expire "expire" (key, lifetime) => Version;
    20 Persist "persist" (key) => Version;
    32 Transaction "transaction" (parts) => Parts;
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
}

operations! {
    /// What a transaction demands of a key. Its result is the key's version, 0 if the key has no value.
    Check: "a check's code";
    96 HasVersion "has-version" (key, version) => Version;
    97 HasValue "has-value" (key, expected) => Version;
}

impl Update<'_> {
    /// Whether it gives a key a lifetime, which counts from when the update was begun.
    #[must_use]
    #[inline]
    pub fn has_lifetime(&self) -> bool {
        match self {
            Self::PutExpiring { .. }
            | Self::PutIfAbsentExpiring { .. }
            | Self::IncrementExpiring { .. }
            | Self::Expire { .. } => true,
            Self::Transaction { parts } => parts.have_lifetime(),
            Self::Put { .. }
            | Self::PutIfVersion { .. }
            | Self::PutIfAbsent { .. }
            | Self::Delete { .. }
            | Self::DeleteIfVersion { .. }
            | Self::Increment { .. }
            | Self::Append { .. }
            | Self::GetAndPut { .. }
            | Self::GetAndDelete { .. }
            | Self::CompareAndPut { .. }
            | Self::IncrementWithin { .. }
            | Self::MultiPut { .. }
            | Self::MultiDelete { .. }
            | Self::MultiIncrement { .. }
            | Self::Persist { .. } => false,
        }
    }

    /// Whether it can only give memory back.
    #[must_use]
    pub fn only_frees(&self) -> bool {
        Self::row_of(self.code()).expect("every update has a row").only_frees
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
}
