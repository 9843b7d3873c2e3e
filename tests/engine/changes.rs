//! Change sets.
