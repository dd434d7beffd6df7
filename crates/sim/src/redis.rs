//! Programs that use a front by the Redis protocol: what they say ([`draw`]), what each reply may be ([`dialogue`]), and what they were told
//! ([`history`]).

pub mod dialogue;
pub mod draw;
pub mod driver;
pub mod history;
pub mod reader;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use kasha_machine::Rng;

use draw::Draw;
use history::Commands;

/// A command: its name, and its arguments.
pub type Words = Vec<Vec<u8>>;

/// What all these programs share.
pub struct Redis {
    /// What they asked for and were told.
    pub history: Commands,
    /// Draws what they say.
    pub draw: Draw,
    /// Groups of keys that are still to be read, at the end.
    pub to_read: Vec<u32>,
    /// Starts of the front that listens here.
    pub lives: BTreeMap<SocketAddr, u64>,
}

impl Redis {
    /// Nothing was said yet.
    #[must_use]
    pub fn new(rng: Rng) -> Self {
        let (history, lives) = (Commands::default(), BTreeMap::new());
        Self { history, draw: Draw::new(rng), to_read: Vec::new(), lives }
    }

    /// How often the front at this address has started.
    #[must_use]
    pub fn life(&self, at: SocketAddr) -> u64 {
        self.lives.get(&at).copied().unwrap_or(0)
    }
}
