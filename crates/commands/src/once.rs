//! `KASHA.ONCE`, which names another command: where that one stands among its words.

/// The words of `KASHA.ONCE key [TTL seconds] command…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Once<'w> {
    /// The operation key.
    pub key: &'w [u8],
    /// How long it is remembered, if that is said, as it is said.
    pub seconds: Option<&'w [u8]>,
    /// The command, with its name.
    pub command: &'w [&'w [u8]],
}

impl<'w> Once<'w> {
    /// The parts of a request whose arity is right. `TTL` is the option where a command may follow, and else the command of this name, which has
    /// one word more.
    ///
    /// # Panics
    /// If the request has fewer than three words.
    #[must_use]
    pub fn of(words: &'w [&'w [u8]]) -> Self {
        match *words {
            [_, key, option, seconds, ref command @ ..]
                if !command.is_empty() && option.eq_ignore_ascii_case(b"ttl") =>
            {
                Self { key, seconds: Some(seconds), command }
            }
            [_, key, ref command @ ..] if !command.is_empty() => Self { key, seconds: None, command },
            _ => panic!("its arity was looked at"),
        }
    }
}
