//! The built-in rules: names of keys and credentials, wherever they lie. Owns the list.
//!
//! Denied is what nobody's build reads; what tools read on purpose (`.env`, `.npmrc`, certificates
//! among test data) is only remarked. Places of the home directory that are masked on every driver
//! stand in the sandbox's own list.

use super::{Level, Origin, Rule};

/// Denied at any depth.
const DENY: &[&str] = &[
    ".ssh",
    ".gnupg",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    ".git-credentials",
    ".pgpass",
    ".pypirc",
    ".vault-token",
    "*.kdbx",
    "**/.aws/credentials",
    "**/.kube/config",
];

/// Remarked at any depth.
const WARN: &[&str] = &[
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.ppk",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc.yml",
    "**/.docker/config.json",
    "**/.cargo/credentials.toml",
];

/// The built-in rules but those whose globs are in `lifted`; `*` there lifts all.
pub fn builtin(lifted: &[String]) -> Vec<Rule> {
    let rule = |level, glob: &&str| Rule {
        level,
        glob: (*glob).to_owned(),
        origin: Origin::BuiltIn,
    };
    let deny = DENY.iter().map(|glob| rule(Level::Deny, glob));
    let warn = WARN.iter().map(|glob| rule(Level::Warn, glob));
    deny.chain(warn)
        .filter(|rule| !lifted.iter().any(|glob| *glob == rule.glob || glob == "*"))
        .collect()
}

/// Whether a glob stands in the built-in list (or is `*`, which means all of it).
pub fn is_builtin(glob: &str) -> bool {
    glob == "*" || DENY.contains(&glob) || WARN.contains(&glob)
}

/// The globs of the built-in list.
pub fn builtin_globs() -> impl Iterator<Item = &'static str> {
    DENY.iter().chain(WARN).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_a_rule_and_can_be_lifted() {
        for rule in builtin(&[]) {
            Rule::new(rule.level, &rule.glob, rule.origin).expect("a glob");
            assert!(is_builtin(&rule.glob));
        }
        let left = builtin(&["*.pem".into()]);
        assert_eq!(left.len() + 1, builtin(&[]).len());
        assert!(builtin(&["*".into()]).is_empty());
    }
}
