//! Deviations that random scripts leave out, each pinned to exactly what happens.

/// Name and test.
pub const TESTS: &[(&str, fn())] = &[];
