//! `status --observed`: what a session's command looked up, read, wrote and was denied.

use std::fmt::Write as _;

use pvisor::layer::Timestamp;
use pvisor::policy::{Observations, PathCounts};
use pvisor::session::store::SessionRecord;
use serde::Serialize;

use super::json::{self, PathInfo};
use super::list::local_time;
use super::table;

/// `status --observed --json`.
#[derive(Debug, Serialize)]
pub struct Observed {
    /// The session's id.
    pub session: String,
    /// Whether accesses are counted in it.
    pub counted: bool,
    /// By layer and path.
    pub paths: Vec<ObservedPath>,
    /// Accesses to paths beyond the list's bound.
    pub more: u64,
}

/// Counts of one path.
#[derive(Debug, Serialize)]
pub struct ObservedPath {
    /// Where.
    #[serde(flatten)]
    pub path: PathInfo,
    /// Lookups of the name or its attributes.
    pub looked_up: u64,
    /// Listings of the directory.
    pub listed: u64,
    /// Opened.
    pub opened: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes, and changes of mode, times or attributes.
    pub written: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Made.
    pub created: u64,
    /// Removed or renamed away.
    pub removed: u64,
    /// Refused.
    pub denied: u64,
    /// First access, RFC 3339.
    pub first: String,
    /// First that read.
    pub first_read: Option<String>,
    /// First that wrote, made or removed.
    pub first_written: Option<String>,
}

impl Observed {
    /// As JSON tells it.
    pub fn new(record: &SessionRecord, observed: Option<&Observations>) -> Self {
        let paths = observed.map(|observed| observed.paths.iter());
        Self {
            session: record.info.id.clone(),
            counted: observed.is_some(),
            paths: paths
                .into_iter()
                .flatten()
                .map(|(key, counts)| ObservedPath::new(key.into(), counts))
                .collect(),
            more: observed.map_or(0, |observed| observed.more),
        }
    }
}

impl ObservedPath {
    fn new(path: PathInfo, counts: &PathCounts) -> Self {
        let time = |time: Option<Timestamp>| time.map(json::time);
        Self {
            path,
            looked_up: counts.looked_up,
            listed: counts.listed,
            opened: counts.opened,
            bytes_read: counts.bytes_read,
            written: counts.written,
            bytes_written: counts.bytes_written,
            created: counts.created,
            removed: counts.removed,
            denied: counts.denied,
            first: json::time(counts.first),
            first_read: time(counts.first_read),
            first_written: time(counts.first_written),
        }
    }
}

/// The table, names sanitised.
pub fn text(observed: Option<&Observations>) -> String {
    let Some(observed) = observed else {
        return "nothing is counted in this session; `run --observe` counts\n".into();
    };
    let head = [
        "DENIED",
        "LOOKED UP",
        "OPENED",
        "READ",
        "WRITTEN",
        "FIRST",
        "PATH",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    for (key, counts) in &observed.paths {
        rows.push(vec![
            counts.denied.to_string(),
            (counts.looked_up + counts.listed).to_string(),
            counts.opened.to_string(),
            counts.bytes_read.to_string(),
            counts.bytes_written.to_string(),
            local_time(counts.first),
            key.to_string(),
        ]);
    }
    let mut text = table::aligned(&rows);
    if observed.more > 0 {
        let _ = writeln!(text, "and {} more accesses to other paths", observed.more);
    }
    text
}
