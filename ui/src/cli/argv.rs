//! The arguments before clap sees them. Owns one rule: `run` may be left out.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Puts `run` in front of arguments that begin with `--` or an option of `run`. Help, version and
/// the global options stay with the program itself.
pub fn with_verb(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let mut at = 1;
    while let Some(argument) = arguments.get(at) {
        match argument.as_bytes() {
            b"--state-dir" => at += 2,
            bytes if bytes.starts_with(b"--state-dir=") => at += 1,
            b"-h" | b"--help" | b"-V" | b"--version" => break,
            bytes if bytes.starts_with(b"-") => {
                arguments.insert(at, "run".into());
                break;
            }
            _ => break,
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(typed: &str) -> String {
        let arguments = std::iter::once("p").chain(typed.split_whitespace());
        let made = with_verb(arguments.map(OsString::from).collect());
        let words: Vec<_> = made[1..].iter().filter_map(|a| a.to_str()).collect();
        words.join(" ")
    }

    #[test]
    fn run_may_be_left_out() {
        assert_eq!(made("-- bash"), "run -- bash");
        assert_eq!(made("--workspace X -- bash"), "run --workspace X -- bash");
        assert_eq!(made("--state-dir D -- a"), "--state-dir D run -- a");
        assert_eq!(
            made("--state-dir=D --headless -- a"),
            "--state-dir=D run --headless -- a"
        );
    }

    #[test]
    fn verbs_help_and_nothing_stay() {
        for typed in [
            "",
            "list",
            "run -- a",
            "--help",
            "-V",
            "--state-dir D list",
            "--state-dir",
        ] {
            assert_eq!(made(typed), typed);
        }
    }
}
