//! `--timeout D`. Owns the form: numbers with units, `1h30m`, `90s`, `500ms`; a bare number counts
//! seconds.

use std::time::Duration;

/// Reads a duration; the error is one sentence.
pub fn parse(typed: &str) -> Result<Duration, String> {
    let form = || format!("{typed:?} is no duration: write it as 90s, 5m or 1h30m");
    if let Ok(seconds) = typed.parse::<u64>() {
        return above_zero(Duration::from_secs(seconds));
    }
    let mut rest = typed;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().map_err(|_| form())?;
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let milliseconds = match unit {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            _ => return Err(form()),
        };
        let part = number.checked_mul(milliseconds).map(Duration::from_millis);
        total = part
            .and_then(|part| total.checked_add(part))
            .ok_or_else(form)?;
        rest = tail;
    }
    above_zero(total)
}

fn above_zero(duration: Duration) -> Result<Duration, String> {
    if duration.is_zero() {
        Err("a time limit must be longer than nothing".into())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        let seconds = |typed| parse(typed).map(|d| d.as_secs_f64());
        assert_eq!(seconds("90s"), Ok(90.0));
        assert_eq!(seconds("5m"), Ok(300.0));
        assert_eq!(seconds("1h30m"), Ok(5400.0));
        assert_eq!(seconds("1500ms"), Ok(1.5));
        assert_eq!(seconds("7"), Ok(7.0));
        for wrong in [
            "",
            "0",
            "0s",
            "5x",
            "m",
            "1h-3m",
            "5 m",
            "99999999999999999999h",
            "-1",
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
