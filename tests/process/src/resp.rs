//! A connection in the Redis protocol (RESP2), as a driver has it: words go out, replies come back.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// How long a connection may take to be made.
const CONNECT_PATIENCE: Duration = Duration::from_secs(1);

/// What the other side says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A word of the server's own, such as `OK`.
    Word(String),
    /// An error.
    Error(String),
    /// A number.
    Number(i64),
    /// Bytes, as text.
    Text(String),
    /// Nothing.
    Nil,
    /// Several replies.
    List(Vec<Self>),
}

/// The end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It was closed, or broke.
    Closed(String),
    /// Nothing came for too long.
    Silent,
    /// What came is no reply.
    Nonsense(String),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed(why) => write!(f, "ended the connection ({why})"),
            Self::Silent => write!(f, "said nothing for too long"),
            Self::Nonsense(what) => write!(f, "said what is no reply: {what}"),
        }
    }
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::Silent,
            _ => Self::Closed(error.to_string()),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    heard: Vec<u8>,
}

/// The bytes of a request.
#[must_use]
pub fn request<W: AsRef<str>>(words: &[W]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

impl Connection {
    /// Connects. Nothing is waited for longer than `patience`.
    ///
    /// # Errors
    /// If nobody listens, or the connection cannot be made.
    pub fn open(at: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&at, CONNECT_PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        Ok(Self { stream, heard: Vec::new() })
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// If the connection has ended. Any part of the bytes may have been sent.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Says that no more is sent. Replies still come.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn end_side(&mut self) -> Result<(), Lost> {
        Ok(self.stream.shutdown(Shutdown::Write)?)
    }

    /// Waits for a reply.
    ///
    /// # Errors
    /// If none comes any more.
    pub fn hear(&mut self) -> Result<Reply, Lost> {
        loop {
            let mut rest = &self.heard[..];
            if let Some(reply) = take(&mut rest).map_err(Lost::Nonsense)? {
                let used = self.heard.len() - rest.len();
                self.heard.drain(..used);
                return Ok(reply);
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(Lost::Closed("its end came".to_owned())),
                len => self.heard.extend_from_slice(&bytes[..len]),
            }
        }
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    /// If none comes.
    pub fn ask<W: AsRef<str>>(&mut self, words: &[W]) -> Result<Reply, Lost> {
        self.send(&request(words))?;
        self.hear()
    }
}

/// Takes the reply with which the bytes begin. `None`: it has not come whole.
fn take(rest: &mut &[u8]) -> Result<Option<Reply>, String> {
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let line = String::from_utf8_lossy(&rest[..end]).into_owned();
    let mut chars = line.chars();
    let (kind, text) = (chars.next(), chars.as_str());
    let number = || text.parse::<i64>().map_err(|_| line.clone());
    *rest = &rest[end + 2..];
    Ok(Some(match kind {
        Some('+') => Reply::Word(text.to_owned()),
        Some('-') => Reply::Error(text.to_owned()),
        Some(':') => Reply::Number(number()?),
        Some('$' | '*') if text == "-1" => Reply::Nil,
        Some('$') => {
            let len = usize::try_from(number()?).map_err(|_| line.clone())?;
            let Some(bytes) = rest.get(..len + 2) else { return Ok(None) };
            let bytes = bytes.strip_suffix(b"\r\n").ok_or_else(|| line.clone())?;
            *rest = &rest[len + 2..];
            Reply::Text(String::from_utf8_lossy(bytes).into_owned())
        }
        Some('*') => {
            let count = usize::try_from(number()?).map_err(|_| line.clone())?;
            let mut list = Vec::new();
            for _ in 0..count {
                let Some(reply) = take(rest)? else { return Ok(None) };
                list.push(reply);
            }
            Reply::List(list)
        }
        _ => return Err(line),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_taken_when_it_is_whole() {
        let bytes = b"*4\r\n:-1\r\n$2\r\nab\r\n*-1\r\n-ERR no\r\n+OK\r\n";
        let whole = bytes.len() - b"+OK\r\n".len();
        for len in 0..whole {
            assert_eq!(take(&mut &bytes[..len]), Ok(None), "{len}");
        }
        let mut rest = &bytes[..];
        let list = vec![Reply::Number(-1), Reply::Text("ab".into()), Reply::Nil, Reply::Error("ERR no".into())];
        assert_eq!(take(&mut rest), Ok(Some(Reply::List(list))));
        assert_eq!(take(&mut rest), Ok(Some(Reply::Word("OK".into()))));
        assert!(take(&mut &b"HTTP/1.1\r\n"[..]).is_err() && take(&mut &b"$2\r\nabc\r\n"[..]).is_err());
        assert_eq!(request(&["GET", "k"]), b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
    }
}
