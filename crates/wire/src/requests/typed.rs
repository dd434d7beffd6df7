//! Lines that people type: words between spaces, with quotes as in a shell.

/// The line as a request in its first form; nothing if it has no words. `None`: its quotes do not match.
///
/// As Redis reads it: `"…"` knows `\n \r \t \b \a \xHH` and `\` before anything else; `'…'` knows `\'`. A closing quote ends its word, so
/// that a space, or the line's end, has to follow.
pub(super) fn request(line: &[u8]) -> Option<Vec<u8>> {
    // Redis' lines are C's strings.
    let mut rest = line.split(|&byte| byte == 0).next().unwrap_or_default();
    let (mut words, mut count) = (Vec::new(), 0);
    let mut word = Vec::new();
    while let Some(begin) = rest.iter().position(|byte| !is_space(*byte)) {
        rest = take_word(&rest[begin..], &mut word)?;
        words.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        words.append(&mut word);
        words.extend_from_slice(b"\r\n");
        count += 1;
    }
    if count > 0 {
        words.splice(..0, format!("*{count}\r\n").into_bytes());
    }
    Some(words)
}

/// What C's `isspace` says of ASCII.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Takes the word that the bytes begin with. Returns what follows.
fn take_word<'a>(mut bytes: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((&byte, rest)) = bytes.split_first() {
        match byte {
            b'"' => return take_quoted(rest, b'"', word),
            b'\'' => return take_quoted(rest, b'\'', word),
            b' ' | b'\n' | b'\r' | b'\t' => break,
            other => word.push(other),
        }
        bytes = rest;
    }
    Some(bytes)
}

/// Takes what stands before the closing quote.
fn take_quoted<'a>(mut bytes: &'a [u8], quote: u8, word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (&byte, mut rest) = bytes.split_first()?;
        match (byte, rest) {
            (b'\\', [b'x', high, low, after @ ..])
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            (b'\\', [escaped, after @ ..]) if quote == b'"' => {
                word.push(unescaped(*escaped));
                rest = after;
            }
            (b'\\', [b'\'', after @ ..]) if quote == b'\'' => {
                word.push(b'\'');
                rest = after;
            }
            (byte, _) if byte == quote => {
                return rest.first().is_none_or(|&next| is_space(next)).then_some(rest);
            }
            (byte, _) => word.push(byte),
        }
        bytes = rest;
    }
}

fn hex(digit: u8) -> u8 {
    (digit as char).to_digit(16).map_or(0, |value| value as u8)
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'a' => 7,
        other => other,
    }
}
