//! Whoever is no Kasha of this version: what it seems to speak, an answer that it can print, and a line in the log.
//!
//! Frames are judged by `handshake`. What cannot be a frame is answered in text: `KASHA`, the wire version and a reason
//! ([`kasha_wire::plain`]), in the form of an answer of the protocol that was spoken, if that has one for such a case.

use std::fmt;

use kasha_types::{ConnId, Tick};
use kasha_wire::plain::{self, First};
use kasha_wire::{FrameError, FrameHeader, WIRE_VERSION, WireVersion};

use super::Network;
use crate::connection::{Phase, Role};
use crate::limits::STRANGERS_TOLD;

/// First bytes that are looked at.
const LOOKED_AT: usize = 1024;

/// What a stranger seems to speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Speech {
    /// A frame of a version whose handshake is another one.
    OtherVersion(WireVersion),
    Http,
    Redis,
    Tls,
    /// Something else: its first bytes.
    Other(Vec<u8>),
    Nothing,
}

impl Speech {
    /// Judges the first bytes of a connection. `None`: they may be a frame's.
    pub(super) fn of(first: &[u8]) -> Option<Self> {
        match FrameHeader::parse_of(WireVersion::HANDSHAKE, first) {
            Ok(None) if !FrameHeader::may_begin(first) => {}
            Ok(_) | Err(FrameError::TooLarge(_) | FrameError::Checksum) => return None,
            Err(FrameError::Version { found, .. }) => return Some(Self::OtherVersion(found)),
            Err(FrameError::Magic) => {}
        }
        const METHODS: [&[u8]; 10] =
            [b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI "];
        Some(if METHODS.iter().any(|method| first.starts_with(method)) {
            Self::Http
        } else if first.starts_with(b"*") {
            Self::Redis
        } else if first.starts_with(&[0x16, 3]) {
            Self::Tls
        } else {
            Self::Other(first[..first.len().min(16)].to_vec())
        })
    }

    fn reason(&self) -> String {
        match self {
            Self::OtherVersion(version) => format!(
                "a greeting of wire version {version}, but every greeting is of {}: run releases of Kasha on both sides \
                 that understand each other (K0206)",
                WireVersion::HANDSHAKE
            ),
            Self::Nothing => "no Hello came in time: let only Kasha's programs connect here, or see what delays the \
                              network (K0202)"
                .to_owned(),
            Self::Http | Self::Redis | Self::Tls | Self::Other(_) => {
                format!("not a Kasha frame, but {self}: use `kasha cli` or a client library of Kasha's here (K0202)")
            }
        }
    }

    /// What it is told.
    fn answer(&self) -> String {
        let line = plain::line(&self.reason());
        match self {
            Self::Http => format!(
                "HTTP/1.0 400 KASHA {WIRE_VERSION}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: \
                 close\r\n\r\n{line}",
                line.len()
            ),
            Self::Redis => format!("-{line}"),
            // TLS has no text for this, and says of text that it is no TLS.
            Self::Tls | Self::OtherVersion(_) | Self::Other(_) | Self::Nothing => line,
        }
    }
}

impl fmt::Display for Speech {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherVersion(version) => write!(f, "wire version {version}"),
            Self::Http => f.write_str("HTTP"),
            Self::Redis => f.write_str("the Redis protocol"),
            Self::Tls => f.write_str("TLS"),
            Self::Other(first) => write!(f, "\"{}\"", first.escape_ascii()),
            Self::Nothing => f.write_str("nothing"),
        }
    }
}

/// Who knocked, as far as the log says.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    told: Option<Tick>,
    untold: u64,
}

impl Network {
    /// Looks at the first bytes of a connection. Says whether it is over with them, or waits for more of a text.
    pub(super) fn is_text(&mut self, id: ConnId, now: Tick, bytes: &[u8]) -> bool {
        let Some(connection) = self.table.get(id).filter(|connection| connection.phase == Phase::Greeting) else {
            return false;
        };
        let first: Vec<u8> = connection.cutter.greeting().held().iter().chain(bytes).copied().take(LOOKED_AT).collect();
        match connection.role {
            Role::Accepted => match Speech::of(&first) {
                Some(speech) => {
                    self.stats.bad_frames += 1;
                    self.turn_away(now, id, &speech);
                    true
                }
                None => false,
            },
            Role::Dialled(peer) => match plain::first(&first) {
                First::Said(line) => {
                    self.tell_wrong_peer(peer, &format!("it says: {line}"));
                    self.stats.refused += 1;
                    self.drop_connection(now, id);
                    true
                }
                First::Half => {
                    connection.cutter.greeting().hold(bytes);
                    self.supervise(now);
                    true
                }
                First::Other => false,
            },
        }
    }

    /// Answers a stranger, closes, and tells the operator who knocked, once in a while.
    pub(super) fn turn_away(&mut self, now: Tick, id: ConnId, speech: &Speech) {
        let Some(connection) = self.table.get(id) else { return };
        let from = connection.stream.peer_addr().map_or_else(|_| "somebody".to_owned(), |from| from.to_string());
        let Strangers { told, untold } = &mut self.strangers;
        if told.is_none_or(|at| now.since(at) >= STRANGERS_TOLD) {
            let before = std::mem::take(untold);
            *told = Some(now);
            tracing::warn!(
                "a stranger knocked: {from} spoke {speech} ({before} more since this was last told, once a minute at most) \
                 (K0202)"
            );
        } else {
            *untold += 1;
        }
        self.refuse(now, id, &speech.answer());
    }

    /// Says something in text to whoever has not been welcomed, and closes.
    pub(super) fn refuse(&mut self, now: Tick, id: ConnId, text: &str) {
        let Some(connection) = self.table.get(id) else { return };
        if matches!(connection.phase, Phase::Closing { .. }) {
            return;
        }
        tracing::debug!(%id, text, "closing a connection");
        connection.output.push(text.as_bytes());
        self.close(now, id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_answered_in_a_form_that_can_be_printed() {
        let client_hello = [&[0x16, 3, 1, 0, 0xf8, 1, 0, 0, 0xf4, 3, 3][..], &[7; 32]].concat();
        let cases: [(&[u8], Speech, &str); 8] = [
            (b"GET / HTTP/1.1\r\nHost: kasha\r\n\r\n", Speech::Http, "HTTP/1.0 400 KASHA"),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Speech::Http, "HTTP/1.0 400 KASHA"),
            (b"*1\r\n$4\r\nPING\r\n", Speech::Redis, "-KASHA "),
            (&client_hello, Speech::Tls, "KASHA "),
            (b"PING\r\n", Speech::Other(b"PING\r\n".to_vec()), "KASHA "),
            (b"SSH-2.0-OpenSSH_9.6\r\n", Speech::Other(b"SSH-2.0-OpenSSH_".to_vec()), "KASHA "),
            (&[0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f], Speech::Other(vec![0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f]), "KASHA "),
            (&[0xff; 16], Speech::Other(vec![0xff; 16]), "KASHA "),
        ];
        for (first, speech, answer) in cases {
            assert_eq!(Speech::of(first), Some(speech.clone()), "{}", first.escape_ascii());
            let said = speech.answer();
            assert!(said.starts_with(answer) && said.contains("KASHA ") && said.ends_with("(K0202)\r\n"), "{said}");
        }
    }

    #[test]
    fn a_frame_is_no_strangers_however_it_is_cut() {
        let mut hello = Vec::new();
        kasha_wire::Message::encode(
            &kasha_wire::message::Hello {
                versions: kasha_wire::WireVersions::OURS,
                cluster: kasha_types::ClusterId(1),
                from: None,
                incarnation: kasha_types::Incarnation(0),
                to: None,
            },
            &mut hello,
        );
        for len in 0..=hello.len() {
            assert_eq!(Speech::of(&hello[..len]), None, "{len}");
        }
        hello[10] -= 1;
        assert_eq!(Speech::of(&hello), Some(Speech::OtherVersion(WireVersion(WireVersion::HANDSHAKE.0 - 1))));
        assert!(Speech::OtherVersion(WireVersion(1)).answer().starts_with("KASHA "));
    }
}
