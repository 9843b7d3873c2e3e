//! Our overlay file system: merges a lower and an upper in user space and writes the upper in the
//! kernel's overlayfs format. Owns names, inodes, copy-up and whiteouts; knows no transport (an
//! adapter carries requests to it) and no rules (a [`Guard`] is asked).

pub mod guard;

pub use guard::{Access, Attempt, Guard, Refusal, Unguarded};
