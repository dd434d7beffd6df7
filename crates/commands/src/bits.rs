//! Sets of names, each a bit.

/// Makes a set of names that `COMMAND` tells.
macro_rules! set_of_names {
    ($(#[$doc:meta])* $name:ident; $($(#[$bit_doc:meta])* $bit:ident $text:literal;)+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(u32);

        const _: () = {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Bit { $($bit,)+ }

        impl $name {
            /// The empty set.
            pub const NONE: Self = Self(0);
            $($(#[$bit_doc])* pub const $bit: Self = Self(1 << Bit::$bit as u32);)+

            /// Both.
            #[must_use]
            pub const fn and(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Whether all of the other set are in this one.
            #[must_use]
            pub const fn has(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// The names, in their order.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                [$((Self::$bit, $text)),+].into_iter().filter(move |(bit, _)| self.has(*bit)).map(|(_, text)| text)
            }

            /// How many there are.
            #[must_use]
            pub const fn count(self) -> u32 {
                self.0.count_ones()
            }
        }
        };
    };
}

pub(crate) use set_of_names;
