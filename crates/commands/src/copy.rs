//! What the words of `COPY` say behind its keys.

/// Whether what is there is replaced.
///
/// # Errors
/// The text of the reply to words that are wrong.
pub fn copy_replaces<'w>(words: impl IntoIterator<Item = &'w [u8]>) -> Result<bool, &'static str> {
    const SYNTAX: &str = "ERR syntax error";
    let (mut replaces, mut words) = (false, words.into_iter());
    while let Some(word) = words.next() {
        match &word.to_ascii_uppercase()[..] {
            b"REPLACE" => replaces = true,
            b"DB" => {
                let number = words.next().ok_or(SYNTAX)?;
                return Err(match crate::likeness::integer(number) {
                    Some(_) => "ERR COPY works within one database: Kasha does not know DB",
                    None => "ERR value is not an integer or out of range",
                });
            }
            _ => return Err(SYNTAX),
        }
    }
    Ok(replaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_behind_the_keys_are_replace_or_wrong() {
        let said = |words: &[&[u8]]| copy_replaces(words.iter().copied());
        assert_eq!((said(&[]), said(&[b"replace", b"REPLACE"])), (Ok(false), Ok(true)));
        for wrong in [&[&b"x"[..]][..], &[b"DB"], &[b"db", b"x"], &[b"DB", b"1"]] {
            assert!(said(wrong).is_err(), "{wrong:?}");
        }
    }
}
