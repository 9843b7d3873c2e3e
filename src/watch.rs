//! Live watch. Owns inotify watches on the uppers and `notify` on host directories; its events are
//! hints, the scan is the truth.

use std::path::PathBuf;

use crate::layer::Layer;

/// A hint that a scan is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Something moved in an upper (or events were lost).
    Upper,
    /// Something moved in a watched host directory.
    Host,
}

/// Watches until it is dropped.
pub struct Watch {}

impl Watch {
    /// Watches the uppers of these layers; `sink` is called from the watch's own thread, at most
    /// once per 20 ms and kind.
    pub fn start(
        _layers: &[Layer],
        _sink: impl Fn(Hint) + Send + 'static,
    ) -> std::io::Result<Self> {
        Ok(Self {})
    }

    /// Replaces the set of watched host directories.
    pub fn set_host_directories(&self, _directories: Vec<PathBuf>) {}
}
