//! What a command of `kasha cli` came to, for people and for scripts.

use std::io::IsTerminal;

use kasha_client::Value;
use serde_json::{Value as Json, json};

/// The result of a command, for scripts: the exit code depends on it.
pub enum Done {
    /// The command did what it says.
    Yes,
    /// The condition failed, or there was no value: an answer, not an error.
    No,
}

/// The outcome of a command: text for people, JSON for scripts, and the result.
pub type Told = (String, Json, Done);

/// Bytes as text for people: unchanged if they are text, escaped otherwise.
pub fn show(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !std::io::stdout().is_terminal() || !text.chars().any(char::is_control) => text.to_owned(),
        Ok(_) | Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// Bytes for scripts: text, or else base64, and which of the two.
fn encoded(bytes: &[u8]) -> (String, &'static str) {
    use base64::Engine;
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.to_owned(), "utf-8"),
        Err(_) => (base64::engine::general_purpose::STANDARD.encode(bytes), "base64"),
    }
}

/// A key of a listing: its text, or an object if it has none.
pub fn json_bytes(bytes: &[u8]) -> Json {
    match encoded(bytes) {
        (text, "utf-8") => json!(text),
        (key, encoding) => json!({ "key": key, "encoding": encoding }),
    }
}

pub fn json_value(value: Option<&Value>) -> Json {
    let Some(value) = value else { return Json::Null };
    let (text, encoding) = encoded(&value.bytes);
    json!({ "value": text, "encoding": encoding, "version": value.version })
}
