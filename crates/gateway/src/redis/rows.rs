//! Which command a request is.

use kasha_commands::{Row, find, find_sub, later};

/// A word as a part of an error: in one line, and not too long.
pub fn shown(word: &[u8]) -> String {
    const SHOWN_MAX: usize = 128;
    String::from_utf8_lossy(&word[..word.len().min(SHOWN_MAX)]).replace(['\r', '\n'], " ")
}

/// The row of the command that these words are, or the reply to those that are none.
pub fn row_of(words: &[&[u8]]) -> Result<&'static Row, String> {
    /// Bytes of all arguments that are told.
    const TOLD_MAX: usize = 128;
    let name = words[0];
    let Some(row) = find(name) else {
        let named = shown(name);
        if later::is_later(name) {
            return Err(format!(
                "ERR '{}' is a command of Redis that Kasha does not know yet",
                named.to_ascii_lowercase()
            ));
        }
        let mut arguments = String::new();
        for word in &words[1..] {
            if arguments.len() >= TOLD_MAX {
                break;
            }
            let left = TOLD_MAX - arguments.len();
            arguments += &format!("'{}' ", shown(&word[..word.len().min(left)]));
        }
        return Err(format!("ERR unknown command '{named}', with args beginning with: {arguments}"));
    };
    let found = words.get(1).and_then(|sub| find_sub(row, sub)).unwrap_or(row);
    match found.arity.allows(words.len()) {
        true => Ok(found),
        false => Err(format!("ERR wrong number of arguments for '{}' command", found.name)),
    }
}
