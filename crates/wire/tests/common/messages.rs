//! Every message of the table.

use kasha_wire::{AnyMessage, message};
use proptest::prelude::Strategy;
use proptest::strategy::{BoxedStrategy, Union};

use super::*;

/// A message's name, arbitrary ones, and the fixed one.
pub struct Described {
    pub name: &'static str,
    pub any: BoxedStrategy<AnyMessage>,
    pub one: AnyMessage,
}

macro_rules! messages {
    ($($(#[$_doc:meta])* $name:ident = $_number:literal { $($(#[$_of:meta])* $field:ident: $_type:ty),* $(,)? }),* $(,)?) => {
        pub fn described() -> Vec<Described> {
            vec![$(Described {
                name: stringify!($name),
                any: fields_any!(message::$name { $($field),* }).prop_map(AnyMessage::from).boxed(),
                one: {
                    let next = &mut Count(0);
                    fields_one!(next, message::$name { $($field),* }).into()
                },
            }),*]
        }
    };
}
kasha_wire::message_table!(messages);

impl Sample for AnyMessage {
    fn any() -> BoxedStrategy<Self> {
        Union::new(described().into_iter().map(|message| message.any)).boxed()
    }
    fn one(_: &mut Count) -> Self {
        described().swap_remove(0).one
    }
}
