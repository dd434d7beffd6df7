//! What a change of one key may say beside what it changes: a condition, what it is answered, and when its value ends. One byte says which
//! of them follow, so that a change without them costs that byte, and later ones can be added.

use super::arguments::{Source, Visitor};
use super::condition::Condition;
use super::ends::Ends;
use crate::outcome::Shape;

/// Makes the enum of rows.
macro_rules! answers {
    ($($(#[$doc:meta])* $code:literal $variant:ident $text:literal => $shape:ident;)+) => {
        /// What a change is answered where it is done. Encoded as its number; the usual answer is not encoded.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum Answer {
            /// What the row of the operation says.
            #[default]
            Usual,
            $($(#[$doc])* $variant,)+
        }

        impl Answer {
            /// The numbers of all but the usual one.
            pub const CODES: &'static [u8] = &[$($code),+];

            pub(super) fn from_number(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)+
                    _ => None,
                }
            }

            /// Its number. `None`: the usual answer.
            pub(super) fn code(self) -> Option<u8> {
                match self {
                    Self::Usual => None,
                    $(Self::$variant => Some($code),)+
                }
            }

            /// Its name, for people.
            pub(super) fn name(self) -> &'static str {
                match self {
                    Self::Usual => "as usual",
                    $(Self::$variant => $text,)+
                }
            }

            /// The shape of the answer, where `usual` is that of the usual one.
            #[must_use]
            pub fn shape(self, usual: Shape) -> Shape {
                match self {
                    Self::Usual => usual,
                    $(Self::$variant => Shape::$shape,)+
                }
            }
        }
    };
}

answers! {
    /// The version that the usual answer tells, and what the key had before. Where a condition fails, what the key has.
    1 Old "old value" => Replaced;
    /// The length of what the key had before, 0 if it had no value, and the version that the usual answer tells.
    2 OldLength "old length" => Length;
}

/// A condition and an answer, if a change names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms<'a> {
    /// What must be true, or nothing changes.
    pub condition: Option<Condition<'a>>,
    /// What is answered.
    pub answer: Answer,
}

/// Everything that a change which leaves a value may say: terms, and when the value ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Axes<'a> {
    /// Condition and answer.
    pub terms: Terms<'a>,
    /// When the value ends.
    pub ends: Ends,
}

/// Bits of the byte that says what follows.
const HAS_CONDITION: u8 = 1;
const HAS_ANSWER: u8 = 2;
/// The number of the end is above these.
const END_SHIFT: u32 = 2;
/// All of them.
const MOST: u8 = 15;

impl<'a> Terms<'a> {
    /// No condition, and the usual answer.
    pub const NONE: Self = Self { condition: None, answer: Answer::Usual };

    /// With this condition, and the usual answer.
    #[must_use]
    pub const fn only_if(condition: Condition<'a>) -> Self {
        Self { condition: Some(condition), answer: Answer::Usual }
    }

    /// The same condition with another answer.
    #[must_use]
    pub const fn answering(self, answer: Answer) -> Self {
        Self { answer, ..self }
    }
}

impl<'a> Axes<'a> {
    /// No terms, and the usual end.
    pub const NONE: Self = Self { terms: Terms::NONE, ends: Ends::Usual };

    /// These terms, and the usual end.
    #[must_use]
    pub const fn with(terms: Terms<'a>) -> Self {
        Self { terms, ends: Ends::Usual }
    }

    /// What they may be, by the byte in front of them. `ends`: whether a value is left that can end.
    pub(super) fn all(ends: bool) -> &'static [u8] {
        const ALL: [u8; MOST as usize + 1] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        if ends { &ALL } else { &ALL[..1 << END_SHIFT] }
    }

    /// Takes what this byte says. Nothing, for most changes.
    #[inline(always)]
    pub(super) fn build<S: Source<'a>>(has: u8, source: &mut S) -> Result<Self, S::Error> {
        if has == 0 { Ok(Self::NONE) } else { Self::build_some(has, source) }
    }

    #[cold]
    #[inline(never)]
    fn build_some<S: Source<'a>>(has: u8, source: &mut S) -> Result<Self, S::Error> {
        if has > MOST {
            return Err(S::no_such_operation("what a change may say"));
        }
        let condition = if has & HAS_CONDITION == 0 { None } else { Some(source.condition()?) };
        let answer = if has & HAS_ANSWER == 0 { Answer::Usual } else { source.answer()? };
        Ok(Self { terms: Terms { condition, answer }, ends: Ends::build(has >> END_SHIFT, source)? })
    }

    /// The byte in front of them.
    pub(super) fn has(&self) -> u8 {
        let condition = if self.terms.condition.is_some() { HAS_CONDITION } else { 0 };
        let answer = if self.terms.answer == Answer::Usual { 0 } else { HAS_ANSWER };
        condition | answer | self.ends.code() << END_SHIFT
    }

    pub(super) fn visit(&self, visitor: &mut impl Visitor<'a>) {
        if let Some(condition) = self.terms.condition {
            visitor.condition(condition);
        }
        if self.terms.answer != Answer::Usual {
            visitor.answer(self.terms.answer);
        }
        if self.ends != Ends::Usual {
            visitor.ends(self.ends);
        }
    }
}
