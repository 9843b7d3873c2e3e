//! Rules as they are written: `deny:GLOB`, `ask:GLOB`, `warn:GLOB`. Owns what counts as a glob and
//! the nearest right form of what does not.

use globset::GlobBuilder;

use super::{Level, Origin, Rule};
use crate::config::nearest::nearest;
use crate::text::visible;

/// Why something is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// It does not begin with a level.
    #[error("{} is no rule", visible(.typed.as_bytes()))]
    Form {
        /// As typed.
        typed: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
    /// The glob could match nothing, or cannot be understood.
    #[error("the glob {} {why}", visible(.glob.as_bytes()))]
    Glob {
        /// As typed.
        glob: String,
        /// What is wrong with it, without the subject.
        why: String,
        /// What was probably meant.
        nearest: Option<String>,
    },
}

impl RuleError {
    /// What mends it.
    pub fn hint(&self) -> String {
        match self {
            RuleError::Form { nearest, .. } => match nearest {
                Some(nearest) => format!("did you mean {}?", visible(nearest.as_bytes())),
                None => "a rule is deny:GLOB, ask:GLOB or warn:GLOB".into(),
            },
            RuleError::Glob { nearest, .. } => match nearest {
                Some(nearest) => format!("did you mean {}?", visible(nearest.as_bytes())),
                None => {
                    "`*` stays in one directory, `**` crosses; `*.pem` is a name at any depth, \
                         `src/*.rs` counts from a layer's root, `~/notes` and `/srv/x` are absolute"
                        .into()
                }
            },
        }
    }
}

impl Rule {
    /// A rule of this level over a glob.
    pub fn new(level: Level, glob: &str, origin: Origin) -> Result<Self, RuleError> {
        check(glob)?;
        Ok(Self {
            level,
            glob: glob.to_owned(),
            origin,
        })
    }

    /// Reads `LEVEL:GLOB`.
    pub fn parse(typed: &str, origin: Origin) -> Result<Self, RuleError> {
        let form = |nearest| RuleError::Form {
            typed: typed.to_owned(),
            nearest,
        };
        let Some((word, glob)) = typed.split_once(':') else {
            return Err(form(None));
        };
        if let Some(level) = Level::ALL.into_iter().find(|level| level.name() == word) {
            return Self::new(level, glob, origin);
        }
        let meant = nearest(&word.to_lowercase(), Level::ALL.map(Level::name));
        Err(form(meant.map(|level| format!("{level}:{glob}"))))
    }
}

/// Whether a glob can be used as it is.
fn check(glob: &str) -> Result<(), RuleError> {
    let wrong = |why: &str, nearest: Option<String>| RuleError::Glob {
        glob: glob.to_owned(),
        why: why.to_owned(),
        // A form that is itself wrong helps nobody.
        nearest: nearest.filter(|form| check(form).is_ok()),
    };
    if glob.is_empty() {
        return Err(wrong("is empty", None));
    }
    if glob.contains('\0') {
        return Err(wrong("holds a NUL byte", None));
    }
    if glob.starts_with('~') && !glob.starts_with("~/") {
        let rest = glob.trim_start_matches('~').trim_start_matches('/');
        let nearest = Some(format!("~/{rest}"));
        return Err(wrong(
            "names a home directory that is not the caller's",
            nearest,
        ));
    }
    let body = glob.strip_prefix('~').unwrap_or(glob);
    let body = body.strip_prefix('/').unwrap_or(body);
    let lead = &glob[..glob.len() - body.len()];
    let parts: Vec<&str> = body.split('/').collect();
    if parts.iter().any(|part| part.is_empty() || *part == ".") {
        let kept: Vec<&str> = parts
            .iter()
            .copied()
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        let nearest = (!kept.is_empty()).then(|| format!("{lead}{}", kept.join("/")));
        return Err(wrong("has an empty or `.` component", nearest));
    }
    if parts.contains(&"..") {
        return Err(wrong("climbs with `..`", None));
    }
    if let Some(part) = parts
        .iter()
        .find(|part| part.contains("**") && **part != "**")
    {
        let mut single = (*part).to_owned();
        while single.contains("**") {
            single = single.replace("**", "*");
        }
        let nearest = Some(format!("{lead}{}", body.replacen(part, &single, 1)));
        return Err(wrong(
            "has a `**` that is not alone between slashes",
            nearest,
        ));
    }
    if let Err(error) = GlobBuilder::new(glob).literal_separator(true).build() {
        // The usual slip is a bracket or brace that was meant as itself.
        let literal: String = glob
            .chars()
            .flat_map(|c| {
                let special = matches!(c, '[' | ']' | '{' | '}');
                special.then_some('\\').into_iter().chain([c])
            })
            .collect();
        let nearest = Some(literal).filter(|form| form != glob);
        return Err(wrong(
            &format!("is not understood: {}", error.kind()),
            nearest,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint(typed: &str) -> String {
        Rule::parse(typed, Origin::Session).expect_err(typed).hint()
    }

    #[test]
    fn what_is_wrong_is_said_with_the_nearest_right_form() {
        for fine in [
            "deny:*.pem",
            "ask:src/**",
            "warn:~/notes",
            "deny:/srv/a:b",
            "ask:**/x/[ab]?",
        ] {
            assert!(Rule::parse(fine, Origin::User).is_ok(), "{fine}");
        }
        for (typed, form) in [
            ("dney:x", "deny:x"),
            ("DENY:x", "deny:x"),
            ("deny:./x", "x"),
            ("deny:secrets/", "secrets"),
            ("deny://srv//x", "/srv/x"),
            ("deny:~root/.ssh", "~/root/.ssh"),
            ("deny:a**b", "a*b"),
            ("ask:src/[id.rs", "src/\\[id.rs"),
        ] {
            assert_eq!(hint(typed), format!("did you mean {form}?"), "{typed}");
        }
        for typed in ["deny", "allow me", "deny:", "ask:../x", "ask:/"] {
            assert!(
                !hint(typed).contains("did you mean"),
                "{typed}: {}",
                hint(typed)
            );
        }
    }
}
