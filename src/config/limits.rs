//! Upper bounds as settings: `[limits]` in a file, the flags of `run`. Owns their forms: numbers of
//! bytes with the units K, M, G, T (powers of 1,024), processors with up to three decimals, durations.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::sandbox::spec::Limits;

/// `[limits]`. An empty text and 0 stand for no limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// Memory of all processes together.
    #[serde(with = "bytes")]
    pub memory: Option<u64>,
    /// Processors, in thousandths.
    #[serde(with = "cpus")]
    pub cpus: Option<u64>,
    /// Processes and threads at once.
    #[serde(with = "count")]
    pub processes: Option<u64>,
    /// Size of one file.
    #[serde(with = "bytes")]
    pub file_size: Option<u64>,
    /// Open descriptors of one process.
    #[serde(with = "count")]
    pub open_files: Option<u64>,
    /// What may be staged together.
    #[serde(with = "bytes")]
    pub stage: Option<u64>,
    /// How long the command may run.
    #[serde(with = "time")]
    pub timeout: Option<Duration>,
}

impl LimitSettings {
    /// What the sandbox is told.
    pub fn limits(&self) -> Limits {
        Limits {
            memory: self.memory,
            cpu_millis: self.cpus,
            processes: self.processes,
            file_size: self.file_size,
            open_files: self.open_files,
            stage: self.stage,
        }
    }
}

/// Reads a number of bytes; the error is one sentence.
pub fn parse_bytes(typed: &str) -> Result<u64, String> {
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

/// Reads a duration: numbers with units, `1h30m`, `90s`, `500ms`; a bare number counts seconds.
pub fn parse_duration(typed: &str) -> Result<Duration, String> {
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

/// A text that is read by `parse`; the empty one is no limit.
fn text<'de, D, T>(
    deserializer: D,
    parse: fn(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    let typed = String::deserialize(deserializer)?;
    if typed.is_empty() {
        return Ok(None);
    }
    parse(&typed).map(Some).map_err(serde::de::Error::custom)
}

macro_rules! texts {
    ($module:ident, $type:ty, $parse:ident, $write:expr) => {
        mod $module {
            use super::*;

            pub fn deserialize<'de, D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Option<$type>, D::Error> {
                text(deserializer, $parse)
            }

            #[allow(clippy::ref_option, reason = "serde calls it with a reference")]
            pub fn serialize<S: serde::Serializer>(
                value: &Option<$type>,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let write: fn(&$type) -> String = $write;
                serializer.serialize_str(&value.as_ref().map(write).unwrap_or_default())
            }
        }
    };
}

texts!(bytes, u64, parse_bytes, |bytes| bytes.to_string());
texts!(cpus, u64, parse_cpus, |millis| format!(
    "{}.{:03}",
    millis / 1000,
    millis % 1000
));
texts!(time, Duration, parse_duration, |time| format!(
    "{}ms",
    time.as_millis()
));

mod count {
    use super::{Deserialize, Serialize};

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        let count = u64::deserialize(deserializer)?;
        Ok((count > 0).then_some(count))
    }

    #[allow(clippy::ref_option, reason = "serde calls it with a reference")]
    pub fn serialize<S: serde::Serializer>(
        value: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.unwrap_or(0).serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_with_units() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("512M"), Ok(512 << 20));
        assert_eq!(parse_bytes("2GiB"), Ok(2 << 30));
        for wrong in ["", "M", "1.5G", "-1", "0", "1X", "99999999999T"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
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

    #[test]
    fn durations_with_units() {
        let seconds = |typed| parse_duration(typed).map(|d| d.as_secs_f64());
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
            assert!(parse_duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_table_is_read_and_written() {
        let typed = "memory = \"2G\"\ncpus = \"1.5\"\nprocesses = 100\nfile_size = \"\"\n\
                     open_files = 0\nstage = \"\"\ntimeout = \"90s\"\n";
        let read: LimitSettings = toml::from_str(typed).expect("settings");
        assert_eq!(read.memory, Some(2 << 30));
        assert_eq!(read.limits().cpu_millis, Some(1500));
        assert_eq!((read.processes, read.open_files), (Some(100), None));
        assert_eq!(read.timeout, Some(Duration::from_secs(90)));
        let written = toml::to_string(&read).expect("text");
        assert_eq!(
            toml::from_str::<LimitSettings>(&written).expect("settings"),
            read
        );
        assert!(toml::from_str::<LimitSettings>(&typed.replace("2G", "2X")).is_err());
    }
}
