//! Durations as people write them: `200us`, `5ms`, `2s`, `1m`, `24h`, `7d`.

use std::time::Duration;

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
        _ => return Err(format!("{text:?} has no unit: write ns, us, ms, s, m, h or d behind the number (K0403)")),
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
        assert!(parse("5").is_err() && parse("ms").is_err() && parse("5 ms").is_err());
    }
}
