//! What is known of single agent programs: the variables they need, the directories in which they
//! keep sign-in and caches, and what is none of their business. The knowledge is data (`presets/`);
//! this owns how it is read and which of it a command line asks for.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Deserialize;

use super::{ConfigError, Origin};
use crate::text::visible;

/// Every preset by its name.
const FILES: [(&str, &str); 7] = [
    ("aider", include_str!("presets/aider.toml")),
    ("claude", include_str!("presets/claude.toml")),
    ("codex", include_str!("presets/codex.toml")),
    ("cursor-agent", include_str!("presets/cursor-agent.toml")),
    ("gemini", include_str!("presets/gemini.toml")),
    ("goose", include_str!("presets/goose.toml")),
    ("opencode", include_str!("presets/opencode.toml")),
];

/// The choice by the command's program.
pub const AUTO: &str = "auto";
/// The choice of none.
pub const NONE: &str = "none";

/// One agent program.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// The preset's name.
    #[serde(skip)]
    pub name: String,
    /// Names of the program's file.
    pub programs: Vec<String>,
    /// Names of the packages that bring it, for `npx` and its like.
    pub packages: Vec<String>,
    /// The version it was tried with; empty when it was not.
    pub tested: String,
    /// Variables that are passed, as in `env.pass`.
    pub pass: Vec<String>,
    /// Variables that are set where the caller has not set them; `~/` is the home directory.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// What it does not see, as in `hide`.
    pub hide: Vec<String>,
    /// What of the home directory lives on across sessions.
    #[serde(default)]
    pub keep: Vec<Keep>,
}

/// A directory that lives on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    /// Where the program looks for it.
    pub path: String,
    /// A variable that names another place.
    #[serde(default)]
    pub variable: Option<String>,
    /// What a new one begins with.
    pub seed: Vec<Seed>,
}

/// Something that a new directory takes over from the host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum Seed {
    /// A name below the host's directory of the same path.
    Same(String),
    /// From elsewhere.
    Other {
        /// The host's path.
        from: String,
        /// Its name below the directory.
        to: String,
    },
}

/// The names of all presets.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The preset of this name.
pub fn named(name: &str) -> Result<Preset, ConfigError> {
    let value = |message| ConfigError::Value {
        origin: Origin::Default,
        message,
    };
    let Some((name, text)) = FILES.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = names().collect();
        return Err(value(format!(
            "there is no preset {}; there are {}, {AUTO} and {NONE}",
            visible(name.as_bytes()),
            known.join(", ")
        )));
    };
    let preset: Preset =
        toml::from_str(text).map_err(|e| value(format!("preset {name}: {}", e.message())))?;
    Ok(Preset {
        name: (*name).to_owned(),
        ..preset
    })
}

/// The preset that is chosen for a command, if one is.
pub fn choose(choice: &str, command: &[OsString]) -> Result<Option<Preset>, ConfigError> {
    match choice {
        NONE => Ok(None),
        AUTO => {
            let Some(program) = program(command) else {
                return Ok(None);
            };
            for name in names() {
                let preset = named(name)?;
                if preset.is_of(program) {
                    return Ok(Some(preset));
                }
            }
            Ok(None)
        }
        name => named(name).map(Some),
    }
}

impl Preset {
    fn is_of(&self, program: &OsStr) -> bool {
        let name = Path::new(program).file_name().unwrap_or(program);
        if self.programs.iter().any(|known| name == known.as_str()) {
            return true;
        }
        let Some(package) = program.to_str() else {
            return false;
        };
        // `name@version`; a scope begins with the same letter.
        let end = package.get(1..).and_then(|rest| rest.find('@'));
        let package = end.map_or(package, |at| &package[..=at]);
        self.packages.iter().any(|known| known == package)
    }
}

/// The program that a command runs in the end, through the wrappers that say so plainly.
fn program(command: &[OsString]) -> Option<&OsStr> {
    let mut words = command.iter().map(OsString::as_os_str);
    loop {
        let word = words.next()?;
        let name = Path::new(word).file_name().unwrap_or(word);
        let mut rest = words.clone().peekable();
        match name.to_str() {
            Some("env") => while rest.next_if(|w| is_assignment(w)).is_some() {},
            Some("npx" | "bunx" | "uvx") => {
                while rest.next_if(|w| *w == "-y" || *w == "--yes").is_some() {}
            }
            Some("exec" | "nice" | "nohup") => {}
            _ => return Some(word),
        }
        // An option of the wrapper may take the next word with it: then nothing is plain any more.
        if rest.peek()?.as_bytes().starts_with(b"-") {
            return None;
        }
        let left = rest.count();
        let skip = words.len() - left;
        for _ in 0..skip {
            words.next();
        }
    }
}

fn is_assignment(word: &OsStr) -> bool {
    let bytes = word.as_bytes();
    bytes
        .iter()
        .position(|b| *b == b'=')
        .is_some_and(|at| at > 0)
        && !bytes.starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(command: &[&str]) -> Option<String> {
        let command: Vec<OsString> = command.iter().map(Into::into).collect();
        choose(AUTO, &command).expect("presets").map(|p| p.name)
    }

    #[test]
    fn every_file_can_be_read_and_says_what_it_means() {
        for name in names() {
            let preset = named(name).expect(name);
            assert!(
                !preset.programs.is_empty() && !preset.pass.is_empty(),
                "{name}"
            );
            let kept: Vec<_> = preset.keep.iter().map(|k| k.path.as_str()).collect();
            for path in preset.hide.iter().map(String::as_str).chain(kept) {
                assert!(path.starts_with("~/"), "{name}: {path}");
            }
            for keep in &preset.keep {
                assert!(
                    !preset.hide.contains(&keep.path),
                    "{name} hides what it keeps"
                );
            }
        }
    }

    #[test]
    fn a_program_is_found_by_its_name_and_through_plain_wrappers() {
        assert_eq!(chosen(&["claude", "-p", "x"]).as_deref(), Some("claude"));
        assert_eq!(chosen(&["/opt/bin/codex"]).as_deref(), Some("codex"));
        assert_eq!(
            chosen(&["env", "A=1", "B=2", "gemini"]).as_deref(),
            Some("gemini")
        );
        let npx = ["npx", "-y", "@anthropic-ai/claude-code@2.1.0", "-p"];
        assert_eq!(chosen(&npx).as_deref(), Some("claude"));
        assert_eq!(chosen(&["uvx", "aider-chat"]).as_deref(), Some("aider"));
        for other in [
            &["bash", "-c", "claude"][..],
            &["env", "-i", "claude"],
            &["claude-like"],
            &["npx"],
            &[],
        ] {
            assert_eq!(chosen(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_choice_by_name_counts_and_an_unknown_one_is_named() {
        let command = ["bash".into()];
        assert_eq!(choose(NONE, &["claude".into()]).expect("none"), None);
        assert!(choose("codex", &command).expect("codex").is_some());
        let error = choose("codexx", &command).expect_err("unknown").to_string();
        assert!(
            error.contains("codexx") && error.contains("opencode"),
            "{error}"
        );
    }
}
