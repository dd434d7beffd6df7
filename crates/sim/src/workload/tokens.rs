//! Lists to which each update appends a token of its own. The checker `executed_once` reads from them how often each
//! update ran.

use kasha_machine::Rng;
use kasha_wire::Update;

use super::{Ask, HotKeys, Workload};
use crate::history::Action;

/// Lists of tokens.
pub struct Tokens {
    keys: HotKeys,
    tokens: u64,
}

impl Tokens {
    /// This many keys with each tag.
    #[must_use]
    pub fn new(per_tag: u64) -> Self {
        Self { keys: HotKeys::new("a", per_tag), tokens: 0 }
    }
}

impl Workload for Tokens {
    fn next(&mut self, rng: &mut Rng) -> Ask {
        let key = self.keys.one(rng);
        if rng.chance(1, 5) {
            return Action::get(&key).into();
        }
        self.tokens += 1;
        let token = format!("{};", self.tokens);
        Action::from(Update::append(&key, token.as_bytes())).into()
    }
}
