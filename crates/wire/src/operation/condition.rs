//! Conditions: what a change, or a transaction, demands of a key before anything changes.

use super::arguments::{Source, Visitor};

/// Makes the enum of rows. A condition has one argument, named by its kind, which is also a method of [`Source`] and of [`Visitor`].
macro_rules! conditions {
    ($($(#[$doc:meta])* $code:literal $variant:ident $text:literal ($argument:ident: $type:ty);)+) => {
        /// What must be true of a key. Encoded as its number and its argument.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Condition<'a> { $($(#[$doc])* $variant($type),)+ }

        impl<'a> Condition<'a> {
            /// The numbers of all conditions.
            pub const CODES: &'static [u8] = &[$($code),+];

            /// Its number on the wire and in logs.
            #[must_use]
            pub fn code(&self) -> u8 {
                match self { $(Self::$variant(_) => $code,)+ }
            }

            /// Its name, for people.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $text,)+ }
            }

            /// The condition with this number, its argument taken from `source`.
            ///
            /// # Errors
            /// If the source has no such argument, or there is no such condition.
            pub fn build<S: Source<'a>>(code: u8, source: &mut S) -> Result<Self, S::Error> {
                Ok(match code {
                    $($code => Self::$variant(source.$argument()?),)+
                    _ => return Err(S::no_such_operation("a condition's number")),
                })
            }

            /// Shows `visitor` its argument.
            pub(super) fn visit(&self, visitor: &mut impl Visitor<'a>) {
                match *self { $(Self::$variant($argument) => visitor.$argument($argument),)+ }
            }
        }
    };
}

conditions! {
    /// The key has this version; 0: it has no value.
    1 Version "version" (version: u64);
    /// The key has exactly this value.
    2 Value "value" (expected: &'a [u8]);
    /// The key's value has fewer bytes than this; a key without a value has none.
    3 ShorterThan "shorter than" (version: u64);
}

impl Condition<'_> {
    /// The key has no value.
    pub const ABSENT: Self = Self::Version(0);
}
