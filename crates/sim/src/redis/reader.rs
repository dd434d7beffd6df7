//! Reads replies out of bytes, and judges their form: **R10.4**, each is in the protocol that its connection speaks at that place.

use kasha_reference::redis::Reply;

/// A reply, its protocol's own forms, and how many bytes it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// What it says.
    pub reply: Reply,
    /// It has a form that only RESP2 has.
    pub is_old: bool,
    /// It has a form that only RESP3 has.
    pub is_new: bool,
}

/// Reads the reply with which the bytes begin, and how long it is. `None`: it has not ended yet.
///
/// # Errors
/// If the bytes are no reply.
pub fn read(bytes: &[u8]) -> Result<Option<(Read, usize)>, String> {
    let mut read = Read { reply: Reply::Nil, is_old: false, is_new: false };
    let mut rest = bytes;
    Ok(take(&mut rest, &mut read)?.map(|reply| (Read { reply, ..read }, bytes.len() - rest.len())))
}

fn take(rest: &mut &[u8], read: &mut Read) -> Result<Option<Reply>, String> {
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let (line, after) = (&rest[..end], &rest[end + 2..]);
    let Some((kind, line)) = line.split_first() else { return Err("an empty line".to_owned()) };
    *rest = after;
    let text = || String::from_utf8_lossy(line).into_owned();
    let number = || text().parse::<i64>().map_err(|_| format!("no number: {}", text()));
    Ok(Some(match kind {
        b'+' => Reply::Word(text()),
        b'-' => Reply::Error(text()),
        b':' => Reply::Number(number()?),
        b'_' => {
            read.is_new = true;
            Reply::Nil
        }
        b'$' | b'*' if line == b"-1" => {
            read.is_old = true;
            Reply::Nil
        }
        b'$' => {
            let len = usize::try_from(number()?).map_err(|_| format!("no length: {}", text()))?;
            let Some(ended) = rest.get(..len + 2) else { return Ok(None) };
            let bytes = ended.strip_suffix(b"\r\n").ok_or("a string without its end")?;
            *rest = &rest[len + 2..];
            Reply::Bytes(bytes.to_vec())
        }
        b'*' | b'%' => {
            read.is_new |= *kind == b'%';
            let count = usize::try_from(number()?).map_err(|_| format!("no count: {}", text()))?;
            let mut list = Vec::new();
            for _ in 0..count * if *kind == b'%' { 2 } else { 1 } {
                let Some(reply) = take(rest, read)? else { return Ok(None) };
                list.push(reply);
            }
            Reply::List(list)
        }
        other => return Err(format!("no reply begins with {:?}", char::from(*other))),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_when_they_have_ended() {
        let bytes = b"*3\r\n:1\r\n$2\r\nab\r\n*-1\r\n+OK\r\n";
        let whole = bytes.len() - b"+OK\r\n".len();
        for len in 0..whole {
            assert_eq!(read(&bytes[..len]), Ok(None), "{len}");
        }
        let list = Reply::List(vec![Reply::Number(1), Reply::Bytes(b"ab".to_vec()), Reply::Nil]);
        assert_eq!(read(bytes), Ok(Some((Read { reply: list, is_old: true, is_new: false }, whole))));
    }

    #[test]
    fn forms_belong_to_a_protocol() {
        let forms = |bytes: &[u8]| read(bytes).map(|read| read.map(|(read, _)| (read.is_old, read.is_new)));
        assert_eq!(forms(b"_\r\n"), Ok(Some((false, true))));
        assert_eq!(forms(b"%1\r\n+a\r\n:1\r\n"), Ok(Some((false, true))));
        assert_eq!(forms(b"$-1\r\n"), Ok(Some((true, false))));
        assert_eq!(forms(b":1\r\n"), Ok(Some((false, false))));
        assert!(forms(b"!\r\n").is_err() && forms(b"\r\n").is_err() && forms(b":x\r\n").is_err());
    }
}
