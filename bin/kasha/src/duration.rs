//! Durations as people write them: `200us`, `5ms`, `2s`, `1m`.

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
        "m" => Duration::from_secs(number * 60),
        "" if number == 0 => Duration::ZERO,
        _ => return Err(format!("{text:?} has no unit: write ns, us, ms, s or m behind the number (K0403)")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(parse("200us"), Ok(Duration::from_micros(200)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert!(parse("5").is_err() && parse("ms").is_err() && parse("5 ms").is_err());
    }
}
