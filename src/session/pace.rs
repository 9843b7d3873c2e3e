//! When the session looks at its files while the command runs. Owns the measure: what was hinted at
//! is looked at soon, but the looking takes a part of one processor only, however much there is to
//! see, so that it never competes with the command for long.

use std::time::{Duration, Instant};

use super::core::Session;
use super::worker::{Job, Then};
use crate::watch::Hint;

/// Rest after a scan, in lengths of the scan.
const SHARE: u32 = 3;

/// Longest rest after a scan: when a burst is over, what is left of it is known soon. A command
/// that makes files faster than a quarter of a processor can look at them costs more than that.
const LONGEST_REST: Duration = Duration::from_millis(200);

/// How long after a commit it is looked for saves that came too late for it: by then whoever was
/// about to open a file when its name was taken has written.
const LOOK_BACK: Duration = Duration::from_secs(1);

/// How often the set of watched host directories follows the change set.
const DIRECTORIES_EVERY: Duration = Duration::from_millis(500);

/// From this number of files on, a commit is not watched.
const MANY: usize = 64;

/// See the module.
#[derive(Default)]
pub(super) struct Pace {
    /// Something moved in an upper since the last scan began.
    upper: bool,
    /// Something moved in a host directory.
    host: bool,
    rest_until: Option<Instant>,
    /// The change set has moved since the host directories were set.
    changed: bool,
    directories_set: Option<Instant>,
    /// The host's directories are not watched while a commit writes to them.
    paused: bool,
    /// When what a commit displaced is looked at once more.
    look_back_at: Option<Instant>,
}

impl Pace {
    /// A scan that begins now sees everything hinted at so far.
    pub fn covered(&mut self) {
        self.upper = false;
        self.host = false;
    }

    /// A scan took this long, what followed from it included.
    pub fn rest(&mut self, took: Duration) {
        self.rest_until = Some(Instant::now() + (took * SHARE).min(LONGEST_REST));
    }

    /// Something was committed: what it displaced is looked at again in a while.
    pub fn look_back(&mut self) {
        self.look_back_at = Some(Instant::now() + LOOK_BACK);
    }

    /// The change set has moved.
    pub fn changed(&mut self) {
        self.changed = true;
    }
}

impl Session {
    /// Files are about to be written on the host, this many.
    pub(super) fn pause_watch(&mut self, files: usize) {
        if files >= MANY
            && let Some(watch) = &self.watch
        {
            watch.pause_host();
            self.pace.paused = true;
        }
    }

    /// They are written: the host is watched again, and looked at once this is so.
    pub(super) fn resume_watch(&mut self) {
        if std::mem::take(&mut self.pace.paused) {
            self.pace.changed = true;
            self.pace.directories_set = None;
            self.pace.host = true;
        }
    }

    /// Something has moved: it is looked at when it is time.
    pub(super) fn hinted(&mut self, hint: Hint) {
        match hint {
            Hint::Upper => self.pace.upper = true,
            Hint::Host => self.pace.host = true,
        }
        self.tend();
    }

    /// How long until [`Session::tend`] has something to do; `None` if not before an event.
    pub(super) fn tends_in(&self) -> Option<Duration> {
        let now = Instant::now();
        let left = |at: Option<Instant>| at.map_or(Duration::ZERO, |at| at - now.min(at));
        let looks = (self.pace.upper || self.pace.host) && self.scanning == 0;
        let sets = self.pace.changed && !self.pace.paused && self.watch.is_some();
        let due = self.pace.directories_set.map(|at| at + DIRECTORIES_EVERY);
        let looks = looks.then(|| left(self.pace.rest_until));
        let sets = sets.then(|| left(due));
        let back = self.pace.look_back_at.map(|at| left(Some(at)));
        looks.into_iter().chain(sets).chain(back).min()
    }

    /// Does what is due without anybody asking for it.
    pub(super) fn tend(&mut self) {
        let now = Instant::now();
        let is_due = |at: Option<Instant>| at.is_none_or(|at| at <= now);
        // Before anything is looked at: what moves once it was looked at is told.
        let due = self.pace.directories_set.map(|at| at + DIRECTORIES_EVERY);
        if self.pace.changed && !self.pace.paused && is_due(due) {
            self.pace.changed = false;
            self.pace.directories_set = Some(now);
            if let Some(watch) = &self.watch {
                watch.set_host_directories(self.host_directories());
            }
        }
        if (self.pace.upper || self.pace.host) && self.scanning == 0 && is_due(self.pace.rest_until)
        {
            // What the host did is told by a look at everything.
            if self.pace.host || self.jobs.is_none() {
                self.scan(Then::Rest);
            } else {
                self.pace.covered();
                self.scanning += 1;
                self.push_job(Job::Look);
            }
        }
        if self.pace.look_back_at.is_some_and(|at| at <= now) {
            self.pace.look_back_at = None;
            self.push_job(Job::LookBack);
        }
    }
}
