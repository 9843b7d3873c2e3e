//! Compiled rules. Owns which rule speaks about a path; the answer depends on nothing but the
//! rules, the layer's root and the path.
//!
//! Names are compared byte by byte. Where a layer's lower does not tell upper from lower case (the
//! gate finds that out), globs do not either: names of every script are then compared in lower case
//! and in one Unicode normal form, so `ID_RSA` is `id_rsa` there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use globset::{Glob, GlobBuilder, GlobSet, GlobSetBuilder};
use unicode_normalization::UnicodeNormalization;

use super::{Level, Policy, Rule, RuleError};
use crate::RelPath;

/// A layer's root as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Absolute host path of the root, in bytes.
    pub root: &'a [u8],
    /// Names that differ in case only are one name here.
    pub folds_case: bool,
}

impl Place<'_> {
    /// The absolute path of `path` in this layer.
    pub fn absolute(&self, path: &RelPath) -> Vec<u8> {
        let mut bytes = self.root.to_vec();
        if !path.is_root() {
            if bytes.last() != Some(&b'/') {
                bytes.push(b'/');
            }
            bytes.extend_from_slice(path.as_bytes());
        }
        bytes
    }
}

/// The rules of one level.
#[derive(Debug, Clone, Default)]
struct Tier {
    relative: GlobSet,
    /// Which rule each of the relative globs is.
    relative_rules: Vec<usize>,
    absolute: GlobSet,
    absolute_rules: Vec<usize>,
}

/// Every rule of a policy, ready to be asked.
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    rules: Vec<Rule>,
    /// Strictest first: deny, ask, warn.
    exact: [Tier; 3],
    folded: [Tier; 3],
}

const ORDER: [Level; 3] = [Level::Deny, Level::Ask, Level::Warn];

impl Matcher {
    /// Compiles a policy.
    pub fn new(policy: &Policy) -> Result<Self, RuleError> {
        let home = policy.home.to_string_lossy();
        let tiers = |fold: bool| -> Result<[Tier; 3], RuleError> {
            let tier = |level| tier(&policy.rules, level, &home, fold);
            Ok([tier(ORDER[0])?, tier(ORDER[1])?, tier(ORDER[2])?])
        };
        Ok(Self {
            exact: tiers(false)?,
            folded: tiers(true)?,
            rules: policy.rules.clone(),
        })
    }

    /// Whether any rule denies or asks.
    pub fn protects(&self) -> bool {
        self.rules.iter().any(|rule| rule.level >= Level::Ask)
    }

    /// Whether any rule asks.
    pub fn asks(&self) -> bool {
        self.rules.iter().any(|rule| rule.level == Level::Ask)
    }

    /// Whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The strictest rule on this path, of at least this level.
    pub fn verdict(&self, place: Place<'_>, path: &RelPath, least: Level) -> Option<&Rule> {
        let tiers = if place.folds_case {
            &self.folded
        } else {
            &self.exact
        };
        let mut absolute = None;
        let mut relative = None;
        for (tier, level) in tiers.iter().zip(ORDER) {
            if level < least {
                break;
            }
            if !tier.relative.is_empty() {
                let path = relative.get_or_insert_with(|| spelt(path.as_bytes(), place));
                if tier.relative.is_match(Path::new(path)) {
                    return self.first(&tier.relative, &tier.relative_rules, path);
                }
            }
            if !tier.absolute.is_empty() {
                let path = absolute.get_or_insert_with(|| spelt(&place.absolute(path), place));
                if tier.absolute.is_match(Path::new(path)) {
                    return self.first(&tier.absolute, &tier.absolute_rules, path);
                }
            }
        }
        None
    }

    fn first(&self, set: &GlobSet, rules: &[usize], path: &OsStr) -> Option<&Rule> {
        let glob = *set.matches(Path::new(path)).first()?;
        self.rules.get(*rules.get(glob)?)
    }
}

/// The path as the globs of this place are written.
fn spelt(path: &[u8], place: Place<'_>) -> OsString {
    if !place.folds_case {
        return OsStr::from_bytes(path).to_owned();
    }
    match std::str::from_utf8(path) {
        Ok(text) => folded(text).into(),
        Err(_) => OsString::from_vec(path.to_ascii_lowercase()),
    }
}

/// One spelling for names that such a file system takes for one.
fn folded(text: &str) -> String {
    text.nfc()
        .collect::<String>()
        .to_lowercase()
        .nfc()
        .collect()
}

fn tier(rules: &[Rule], level: Level, home: &str, fold: bool) -> Result<Tier, RuleError> {
    let (mut relative, mut absolute) = (GlobSetBuilder::new(), GlobSetBuilder::new());
    let mut tier = Tier::default();
    for (at, rule) in rules.iter().enumerate().filter(|(_, r)| r.level == level) {
        let glob = match rule.glob.strip_prefix("~/") {
            Some(rest) => format!("{}/{rest}", globset::escape(home.trim_end_matches('/'))),
            None => rule.glob.clone(),
        };
        let is_absolute = glob.starts_with('/');
        let glob = if is_absolute || glob.contains('/') {
            glob
        } else {
            format!("**/{glob}")
        };
        // A directory covers what lies in it.
        let below = (!glob.ends_with("/**") && glob != "**").then(|| format!("{glob}/**"));
        for glob in [Some(glob), below].into_iter().flatten() {
            let built = compile(&glob, fold).map_err(|error| RuleError::Glob {
                glob: rule.glob.clone(),
                why: format!("is not understood: {}", error.kind()),
                nearest: None,
            })?;
            if is_absolute {
                absolute.add(built);
                tier.absolute_rules.push(at);
            } else {
                relative.add(built);
                tier.relative_rules.push(at);
            }
        }
    }
    let failed = |error: globset::Error| RuleError::Glob {
        glob: error.glob().unwrap_or_default().to_owned(),
        why: format!("is not understood: {}", error.kind()),
        nearest: None,
    };
    tier.relative = relative.build().map_err(failed)?;
    tier.absolute = absolute.build().map_err(failed)?;
    Ok(tier)
}

fn compile(glob: &str, fold: bool) -> Result<Glob, globset::Error> {
    let glob = if fold { folded(glob) } else { glob.to_owned() };
    GlobBuilder::new(&glob).literal_separator(true).build()
}

#[cfg(test)]
mod tests {
    use super::super::Origin;
    use super::*;

    fn policy(rules: &[&str]) -> Policy {
        Policy {
            rules: rules
                .iter()
                .map(|typed| Rule::parse(typed, Origin::Session).expect("a rule"))
                .collect(),
            home: "/home/ann".into(),
            ..Policy::default()
        }
    }

    const PLACE: Place<'static> = Place {
        root: b"/home/ann/w",
        folds_case: false,
    };

    fn said(rules: &[&str], path: &[u8]) -> Option<String> {
        let matcher = Matcher::new(&policy(rules)).expect("compiles");
        let path = RelPath::new(path).expect("a path");
        let rule = matcher.verdict(PLACE, &path, Level::Warn)?;
        Some(format!("{}:{}", rule.level.name(), rule.glob))
    }

    #[test]
    fn globs_stay_cross_and_cover() {
        let matched = |glob: &str, path: &[u8]| said(&[&format!("deny:{glob}")], path).is_some();
        for (glob, path) in [
            ("*.pem", b"a/b/x.pem".as_slice()),
            ("*.pem", b"x.pem"),
            ("secrets", b"a/secrets/deep/x"),
            ("a/*.rs", b"a/x.rs"),
            ("a/**", b"a/b/c"),
            ("a/**/z", b"a/z"),
            ("a/**/z", b"a/b/c/z/inside"),
            ("**/k", b"k"),
            ("/home/ann/w/x", b"x/y"),
            ("~/w/x", b"x"),
            ("~/w", b"anything"),
            ("**", b"anything"),
            ("*", b"\xff\xfe"),
            ("{a,b}.txt", b"d/b.txt"),
            ("\\[x\\]", b"[x]"),
        ] {
            assert!(matched(glob, path), "{glob} {}", path.escape_ascii());
        }
        for (glob, path) in [
            ("*.pem", b"x.pem.txt".as_slice()),
            ("a/*.rs", b"a/b/x.rs"),
            ("a/*.rs", b"b/a/x.rs"),
            ("a/**", b"a"),
            ("x", b"X"),
            ("secret", b"secrets/x"),
            ("/w/x", b"x"),
            ("~/x", b"x"),
        ] {
            assert!(!matched(glob, path), "{glob} {}", path.escape_ascii());
        }
    }

    #[test]
    fn the_strictest_wins_whoever_said_it() {
        let rules = ["warn:*", "deny:x.env", "ask:*.env", "warn:x.env"];
        assert_eq!(said(&rules, b"d/x.env").as_deref(), Some("deny:x.env"));
        assert_eq!(said(&rules, b"y.env").as_deref(), Some("ask:*.env"));
        assert_eq!(said(&rules, b"z").as_deref(), Some("warn:*"));
        assert_eq!(said(&[], b"z"), None);
        let matcher = Matcher::new(&policy(&["warn:*"])).expect("compiles");
        let path = RelPath::new(*b"z").expect("a path");
        assert!(matcher.verdict(PLACE, &path, Level::Ask).is_none());
    }

    #[test]
    fn where_case_is_one_rules_do_not_tell_it_either() {
        let matcher = Matcher::new(&policy(&["deny:Id_Rsa", "deny:ÄRGER"])).expect("compiles");
        let said = |path: &str, folds_case| {
            let place = Place {
                folds_case,
                ..PLACE
            };
            let path = RelPath::try_from(path).expect("a path");
            matcher.verdict(place, &path, Level::Deny).is_some()
        };
        let decomposed = "a\u{308}rger";
        for (path, exact) in [
            ("id_rsa", false),
            ("Id_Rsa", true),
            ("ärger", false),
            (decomposed, false),
        ] {
            assert_eq!(said(path, false), exact, "{path}");
            assert!(said(path, true), "{path}");
        }
    }
}
