//! What a front is made with.

use kasha_types::CorePort;
use kasha_wire::message::Placement;

/// The options of a front.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// What `AUTH` asks for (`requirepass`). `None`: nothing, and whoever reaches the port may do everything.
    pub password: Option<String>,
    /// The port that it serves, as `CONFIG` and `INFO` tell it; 0: none.
    pub port: u16,
    /// Where the keys of a database are that the front makes: in one shard, as in one server of Redis, or in all of them.
    pub placement: Placement,
    /// The connections that it may have, as `CONFIG` and `INFO` tell: the shell refuses more.
    pub clients_max: usize,
    /// Where it notes what it counts, and finds what the other cores of the port have counted. `None`: it is alone.
    pub counted: Option<CorePort>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self { password: None, port: 0, placement: Placement::OneShard, clients_max: 10_000, counted: None }
    }
}
