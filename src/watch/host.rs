//! Watches host directories, each by itself. Owns the `notify` watcher.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::Signals;

/// See the module.
pub(super) struct HostWatch {
    signals: Arc<Signals>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Made with the first directory: a session without changes needs none.
    watcher: Option<RecommendedWatcher>,
    directories: HashSet<PathBuf>,
}

impl HostWatch {
    /// Watches nothing yet.
    pub fn new(signals: Arc<Signals>) -> Self {
        Self {
            signals,
            state: Mutex::new(State::default()),
        }
    }

    /// Watches nothing until directories are set again. What moves meanwhile is not told.
    pub fn pause(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = State::default();
        self.blind(false);
    }

    /// Replaces the set of watched directories. One that cannot be watched is looked at in
    /// intervals instead, unless it is not there: then its parent's events tell of it.
    pub fn set(&self, directories: Vec<PathBuf>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: HashSet<PathBuf> = directories.into_iter().collect();
        if state.watcher.is_none() && !wanted.is_empty() {
            state.watcher = watcher(&self.signals).ok();
        }
        let State {
            watcher,
            directories,
        } = &mut *state;
        let Some(watcher) = watcher else {
            self.blind(!wanted.is_empty());
            return;
        };
        directories.retain(|gone| {
            let stays = wanted.contains(gone);
            if !stays {
                // It may have been removed, which ended the watch.
                let _ = watcher.unwatch(gone);
            }
            stays
        });
        let mut blind = false;
        for dir in wanted {
            if directories.contains(&dir) {
                continue;
            }
            match watcher.watch(&dir, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    directories.insert(dir);
                }
                Err(e) => blind |= !matches!(e.kind, notify::ErrorKind::PathNotFound),
            }
        }
        self.blind(blind);
    }

    fn blind(&self, blind: bool) {
        if self.signals.host_blind.swap(blind, Ordering::SeqCst) != blind {
            self.signals.wake();
        }
    }
}

fn watcher(signals: &Arc<Signals>) -> notify::Result<RecommendedWatcher> {
    let signals = Arc::clone(signals);
    notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        // Opening and reading, our own included, moves nothing. An error may mean lost events.
        if event.is_ok_and(|e| matches!(e.kind, EventKind::Access(_)) && !e.need_rescan()) {
            return;
        }
        // Said once until it is heard: a commit of thousands of files moves as many things.
        if !signals.host.swap(true, Ordering::SeqCst) {
            signals.wake();
        }
    })
}
