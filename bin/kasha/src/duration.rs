//! Durations as people write them: `200us`, `5ms`, `2s`, `1m`, `24h`, `7d`.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserializer, Error, Visitor};

/// A duration in a file of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written(pub Duration);

impl std::str::FromStr for Written {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        parse(text).map(Self)
    }
}

impl<'de> serde::Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration, for example \"200ms\" or \"2s\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Written, E> {
                parse(text).map(Written).map_err(E::custom)
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Written, E> {
                Err(E::custom(format!("{number} has no unit: write \"{number}s\" for seconds, or \"{number}ms\"")))
            }
        }
        deserializer.deserialize_any(Text)
    }
}

/// Reads a duration.
pub fn parse(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 =
        number.parse().map_err(|_| format!("{text:?} is no duration: write for example 200us or 2s (K0403)"))?;
    Ok(match unit {
        "ns" => Duration::from_nanos(number),
        "us" | "µs" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => seconds(number, 60)?,
        "h" => seconds(number, 60 * 60)?,
        "d" => seconds(number, 24 * 60 * 60)?,
        "" if number == 0 => Duration::ZERO,
        "" => return Err(format!("{text:?} has no unit: write {text}s for seconds, or ns, us, ms, m, h, d (K0403)")),
        _ => return Err(format!("{unit:?} is no unit of time: write ns, us, ms, s, m, h or d (K0403)")),
    })
}

fn seconds(number: u64, unit: u64) -> Result<Duration, String> {
    let seconds = number.checked_mul(unit);
    seconds.map(Duration::from_secs).ok_or_else(|| format!("{number} is too long a time (K0403)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(parse("200us"), Ok(Duration::from_micros(200)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!((parse("24h"), parse("1d")), (parse("1440m"), parse("24h")));
        assert!(parse("18446744073709551615d").is_err());
        assert!(parse("5").unwrap_err().contains("write 5s"));
        assert!(parse("ms").is_err() && parse("5 ms").is_err());
    }
}
