//! Entry groups of a log, by the layout in `docs/log.md`: read from the bytes, not through the code that wrote them.

use kasha_types::{AckedBelow, ClientId, Epoch, RpcId, Sequence};

use super::frames::{Names, result, rpc};

/// One entry group of a log, by the layout in docs/log.md.
pub struct Group {
    /// Bytes that the group takes.
    pub len: usize,
    /// The epoch of the primary that wrote it.
    pub epoch: Epoch,
    /// The update, or another purpose of the group.
    pub what: String,
    /// The update's acknowledgement and result, if it is one.
    pub record: Option<(AckedBelow, String)>,
}

/// The complete groups at the beginning of these bytes.
pub fn groups(bytes: &[u8], names: &Names) -> Vec<Group> {
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes")) as usize;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let (mut out, mut start) = (Vec::new(), 0);
    while bytes.get(start..start + 2) == Some(b"GK") {
        let len = 48 + half(start + 4);
        let mut group = Group { len, epoch: Epoch(half(start + 24) as u32), what: String::new(), record: None };
        let mut entry = start + 48;
        while entry < start + len {
            let (kind, payload_len, payload) = (bytes[entry], half(entry + 4), entry + 8);
            let other = match kind {
                3 => {
                    let slots = usize::from(bytes[payload + 1]);
                    let id = RpcId { client: ClientId(word(payload + 3)), sequence: Sequence(word(payload + 11)) };
                    group.what = rpc(id, names);
                    let said = &bytes[payload + 43 + 2 * slots..payload + payload_len];
                    group.record = Some((AckedBelow(word(payload + 27)), result(said)));
                    ""
                }
                5 => "expiry-floor",
                6 => "epoch-start",
                7 => "digest",
                8 => "segment-freed",
                9 => "table-dropped",
                10 => "version-floor",
                11 => "operation-key-dropped",
                12 => "whole",
                _ => "",
            };
            if group.what.is_empty() {
                group.what = other.into();
            }
            entry += 8 + payload_len.next_multiple_of(8);
        }
        out.push(group);
        start += len;
    }
    out
}
