//! What a change of one key may say beside what it changes: a condition, and what it is answered. One byte says which of them
//! follow, so that a change without them costs that byte, and later ones can be added.

use super::arguments::{Source, Visitor};
use super::condition::Condition;
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

const HAS_CONDITION: u8 = 1;
const HAS_ANSWER: u8 = 2;

impl<'a> Terms<'a> {
    /// What may be there.
    pub const ALL: [u8; 4] = [0, HAS_CONDITION, HAS_ANSWER, HAS_CONDITION | HAS_ANSWER];

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

    /// Takes them as they are encoded.
    #[inline]
    pub(super) fn build<S: Source<'a>>(has: u8, source: &mut S) -> Result<Self, S::Error> {
        if has == 0 { Ok(Self::NONE) } else { Self::build_some(has, source) }
    }

    #[cold]
    #[inline(never)]
    fn build_some<S: Source<'a>>(has: u8, source: &mut S) -> Result<Self, S::Error> {
        if !Self::ALL.contains(&has) {
            return Err(S::no_such_operation("terms of an operation"));
        }
        let condition = if has & HAS_CONDITION == 0 { None } else { Some(source.condition()?) };
        let answer = if has & HAS_ANSWER == 0 { Answer::Usual } else { source.answer()? };
        Ok(Self { condition, answer })
    }

    /// Which of them are there.
    pub(super) fn has(&self) -> u8 {
        let condition = if self.condition.is_some() { HAS_CONDITION } else { 0 };
        condition | if self.answer == Answer::Usual { 0 } else { HAS_ANSWER }
    }

    pub(super) fn visit(&self, visitor: &mut impl Visitor<'a>) {
        if let Some(condition) = self.condition {
            visitor.condition(condition);
        }
        if self.answer != Answer::Usual {
            visitor.answer(self.answer);
        }
    }
}
