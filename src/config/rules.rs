//! The settings' rules on paths. Owns that a glob nobody could mean is refused where it stands, and
//! who said which rule.

use toml::Table;

use super::load::{Loaded, Origin};
use super::nearest::nearest;
use super::{ConfigError, RuleSettings};
use crate::policy::{self, Level, Rule, RuleError};
use crate::text::visible;

/// Refuses globs that are none, and lifted entries that the built-in list does not have.
pub(super) fn check(table: &Table, origin: &Origin) -> Result<(), ConfigError> {
    let Some(rules) = table.get("rules").and_then(|rules| rules.as_table()) else {
        return Ok(());
    };
    let wrong = |message: String| ConfigError::Value {
        origin: origin.clone(),
        message,
    };
    let globs = |key: &str| {
        let list = rules.get(key).and_then(|list| list.as_array());
        list.into_iter().flatten().filter_map(|glob| glob.as_str())
    };
    for level in Level::ALL {
        for glob in globs(level.name()) {
            Rule::new(level, glob, policy::Origin::User).map_err(|error: RuleError| {
                wrong(format!("rules.{}: {error}; {}", level.name(), error.hint()))
            })?;
        }
    }
    for glob in globs("lift") {
        if !policy::is_builtin(glob) {
            let similar = nearest(glob, policy::builtin_globs())
                .map(|similar| format!("; a similar entry is {similar}"));
            return Err(wrong(format!(
                "rules.lift: {} is not in the built-in list{}",
                visible(glob.as_bytes()),
                similar.unwrap_or_default()
            )));
        }
    }
    Ok(())
}

impl Loaded {
    /// The rules of the settings, the built-in ones that were not lifted first.
    pub fn rules(&self) -> Vec<Rule> {
        let RuleSettings {
            deny,
            ask,
            warn,
            lift,
        } = &self.config.rules;
        let mut rules = policy::builtin(lift);
        for (level, globs) in [(Level::Deny, deny), (Level::Ask, ask), (Level::Warn, warn)] {
            let origins = self
                .origins
                .get(["rules", level.name()].map(String::from).as_slice());
            for (at, glob) in globs.iter().enumerate() {
                let origin = match origins.and_then(|origins| origins.get(at)) {
                    Some(Origin::Workspace(_)) => policy::Origin::Workspace,
                    Some(Origin::Environment(_) | Origin::Flag(_)) => policy::Origin::Session,
                    Some(Origin::Default | Origin::User(_)) | None => policy::Origin::User,
                };
                rules.push(Rule {
                    level,
                    glob: glob.clone(),
                    origin,
                });
            }
        }
        rules
    }
}
