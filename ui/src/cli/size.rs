//! `--memory S`, `--stage-max S`, `--cpus N`. Owns the forms: numbers of bytes with the units K, M,
//! G, T (powers of 1,024), and processors with up to three decimals.

/// Reads a number of bytes; the error is one sentence.
pub fn parse(typed: &str) -> Result<u64, String> {
    let form = || format!("{typed:?} is no size: write it as 512M or 4G");
    let digits = typed.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = typed.split_at(digits);
    let number: u64 = number.parse().map_err(|_| form())?;
    let shift = match unit.trim_end_matches("iB").trim_end_matches(['B', 'b']) {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return Err(form()),
    };
    match number.checked_mul(1 << shift) {
        Some(0) => Err("a limit must be more than nothing".into()),
        Some(bytes) => Ok(bytes),
        None => Err(form()),
    }
}

/// Reads a number of processors; the value is in thousandths.
pub fn parse_cpus(typed: &str) -> Result<u64, String> {
    let form = || format!("{typed:?} is no number of processors: write it as 2 or 0.5");
    let (whole, part) = typed.split_once('.').unwrap_or((typed, ""));
    if part.len() > 3 || !part.bytes().all(|b| b.is_ascii_digit()) {
        return Err(form());
    }
    let whole: u64 = whole.parse().map_err(|_| form())?;
    let part: u64 = format!("{part:0<3}").parse().map_err(|_| form())?;
    match whole.checked_mul(1000).and_then(|n| n.checked_add(part)) {
        Some(0) => Err("a limit must be more than nothing".into()),
        Some(millis) => Ok(millis),
        None => Err(form()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("512M"), Ok(512 << 20));
        assert_eq!(parse("2GiB"), Ok(2 << 30));
        for wrong in ["", "M", "1.5G", "-1", "0", "1X", "99999999999T"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn processors_with_decimals() {
        assert_eq!(parse_cpus("2"), Ok(2000));
        assert_eq!(parse_cpus("0.5"), Ok(500));
        assert_eq!(parse_cpus("1.125"), Ok(1125));
        for wrong in ["", "0", "0.0", "1.1234", "-1", "two", "1.x"] {
            assert!(parse_cpus(wrong).is_err(), "{wrong}");
        }
    }
}
