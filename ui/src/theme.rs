//! Stand-in until the themes are merged.

/// Names of the built-in themes.
pub fn names() -> Vec<String> {
    vec!["dark".into(), "light".into()]
}
