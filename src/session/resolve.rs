//! Resolving conflicts, on the worker: what a person makes of a file that host and agent both
//! changed is written into the agent's view, and what the host had in it becomes the baseline. The
//! host is not written.
//!
//! The agent's file first, the baseline then: cut in between, the merge in the agent's file still
//! merges with the host's, and nobody's edit counts as taken away by the other.

use super::worker::Worker;
use crate::change::{Change, ChangeKind, Conflict, Merges};
use crate::layer::{Digest, Node, Overwrite, StageAccess, Timestamp};
use crate::merge::{self, Favour, Merge};
use crate::protocol::{MarkedFile, Resolution};

/// What comes of a resolution: the file's new bytes and what they are dressed in.
struct Resolved {
    node: Node,
    bytes: Vec<u8>,
    host: (Node, Vec<u8>),
    marked: Option<u32>,
}

impl Worker {
    /// Carries a resolution out; or the reason why not, in words without the path.
    pub(super) fn resolve(&mut self, change: &Change, how: &Resolution) -> Result<(), String> {
        let access = self.stage()?;
        let Some(conflict) = &change.conflict else {
            return Err("it is in no conflict".into());
        };
        if *conflict == Conflict::Markers {
            return self.resolve_marked(change, how, &*access);
        }
        let sides = match self.tracker.sides(change, &*access) {
            Ok(sides) => sides,
            Err(why) => return self.resolve_whole(change, how, why, &*access),
        };
        let (base, host, agent) = (&sides.base, &sides.host, &sides.agent);
        let three = [base, host, agent].map(|(node, bytes)| (node, &bytes[..]));
        if merge::merge(&base.1, &host.1, &agent.1) == Merge::Binary {
            let why = "binary files are not merged".to_owned();
            return self.resolve_whole(change, how, why, &*access);
        }
        let node = |favour| merge::nodes_for(favour, &base.0, &host.0, &agent.0);
        let favoured = |favour| {
            let bytes = merge::favoured(&base.1, &host.1, &agent.1, favour);
            Some((node(favour), bytes?, None))
        };
        let marked = || merge::marked(&base.1, &host.1, &agent.1);
        let made = match how {
            Resolution::Merge => {
                let node = merge::nodes(&base.0, &host.0, &agent.0).map_err(|e| e.to_string())?;
                match merge::merge(&base.1, &host.1, &agent.1) {
                    Merge::Clean(bytes) => Some((node, bytes, None)),
                    Merge::Conflicted(regions) => {
                        return Err(Merges::places(regions.len(), &regions));
                    }
                    Merge::Binary => None,
                }
            }
            Resolution::Ours => favoured(Favour::Ours),
            Resolution::Theirs => favoured(Favour::Theirs),
            // The agent's mode, if both changed it: it is shown, and decided on like any other.
            Resolution::Markers => marked().map(|marked| {
                let length = (!marked.regions.is_empty()).then_some(marked.length);
                (node(Favour::Theirs), marked.bytes, length)
            }),
            Resolution::Edited { bytes, host: seen } => {
                if host.0.digest != Some(*seen) {
                    return Err("the host's file was changed while it was edited".into());
                }
                marked().map(|marked| {
                    let left = merge::holds_markers(bytes, marked.length);
                    let length = left.then_some(marked.length);
                    (node(Favour::Theirs), bytes.clone(), length)
                })
            }
        };
        let (mut node, bytes, marked) = made.ok_or("binary files are not merged")?;
        node.mtime = merge::time(three, &bytes, Timestamp::now());
        let host = sides.host;
        let resolved = Resolved {
            node,
            bytes,
            host,
            marked,
        };
        self.put(change, resolved, &*access)
    }

    /// Of a file that holds markers: the host has not moved since they were put there.
    fn resolve_marked(
        &mut self,
        change: &Change,
        how: &Resolution,
        access: &dyn StageAccess,
    ) -> Result<(), String> {
        let (text, length) = self.tracker.marked(change, access)?;
        let pick = |favour| {
            merge::picked(&text, length, favour)
                .ok_or("its conflict markers are not in order; edit it")
        };
        let bytes = match how {
            Resolution::Ours => pick(Favour::Ours)?,
            Resolution::Theirs => pick(Favour::Theirs)?,
            Resolution::Edited { bytes, .. } => bytes.clone(),
            Resolution::Merge | Resolution::Markers => {
                return Err(Conflict::Markers.describe());
            }
        };
        let node = change.after.as_deref().ok_or("the agent has removed it")?;
        let host = change.before.as_deref();
        let host = host.filter(|host| host.digest == Some(Digest::of(&bytes)));
        let node = Node {
            mtime: host.map_or_else(Timestamp::now, |host| host.mtime),
            ..node.clone()
        };
        let left = merge::holds_markers(&bytes, length);
        overwrite(change, bytes, &node, access)?;
        if left {
            return Ok(());
        }
        self.tracker.unmark(&change.key).map_err(|e| e.to_string())
    }

    /// Where nothing can be put together: one side's entry as a whole.
    fn resolve_whole(
        &mut self,
        change: &Change,
        how: &Resolution,
        why: String,
        access: &dyn StageAccess,
    ) -> Result<(), String> {
        let whole = matches!(
            change.conflict,
            Some(
                Conflict::HostModified
                    | Conflict::HostCreated
                    | Conflict::HostDeleted
                    | Conflict::HostTypeChanged
            )
        );
        let is_dir = |node: Option<&Node>| {
            let dir = crate::layer::FileType::Dir;
            node.is_some_and(|node| node.file_type == dir)
        };
        let renamed = matches!(change.kind, ChangeKind::Renamed { .. });
        if !whole || renamed || is_dir(change.before.as_deref()) || is_dir(change.after.as_deref())
        {
            return Err(format!("{why}; take it back with `revert`, or leave it"));
        }
        let attributes = matches!(change.kind, ChangeKind::Mode | ChangeKind::Meta);
        if attributes
            && *how == Resolution::Theirs
            && change.conflict == Some(Conflict::HostModified)
        {
            // As a whole it would take content along that is not the agent's.
            return Err(format!(
                "{why}, and the agent changed none of its content; take ours as a whole, or leave it"
            ));
        }
        match how {
            Resolution::Ours => access
                .restore(&change.key.layer, &change.key.path)
                .map_err(|e| e.to_string())?,
            Resolution::Theirs => {}
            _ => return Err(format!("{why}; take ours or theirs as a whole")),
        }
        self.tracker
            .take_host(&change.key)
            .map_err(|e| e.to_string())?
    }

    fn put(
        &mut self,
        change: &Change,
        resolved: Resolved,
        access: &dyn StageAccess,
    ) -> Result<(), String> {
        // First what may fail for lack of room.
        self.tracker
            .keep_host(&change.key, &resolved.host)
            .map_err(|e| e.to_string())?;
        overwrite(change, resolved.bytes, &resolved.node, access)?;
        self.tracker
            .agree_on_host(&change.key, &resolved.host.0, resolved.marked)
            .map_err(|e| e.to_string())
    }

    /// What a person is given to edit: the merge, with markers where edits meet.
    pub(super) fn marked_file(&mut self, change: &Change) -> Result<MarkedFile, String> {
        let access = self.stage()?;
        let digest = change.digest;
        if change.conflict == Some(Conflict::Markers) {
            let (bytes, _) = self.tracker.marked(change, &*access)?;
            let host = change.before.as_ref().and_then(|node| node.digest);
            return Ok(MarkedFile {
                digest,
                host: host.unwrap_or(Digest::of(b"")),
                bytes,
            });
        }
        if change.conflict.is_none() {
            return Err("it is in no conflict".into());
        }
        let sides = self.tracker.sides(change, &*access)?;
        let marked = merge::marked(&sides.base.1, &sides.host.1, &sides.agent.1);
        Ok(MarkedFile {
            digest,
            host: sides.host.0.digest.unwrap_or(Digest::of(b"")),
            bytes: marked.ok_or("binary files are not merged")?.bytes,
        })
    }
}

/// Writes the agent's file, in its view.
fn overwrite(
    change: &Change,
    bytes: Vec<u8>,
    node: &Node,
    access: &dyn StageAccess,
) -> Result<(), String> {
    let expect = change.after.as_ref().and_then(|node| node.digest);
    let expect = expect.ok_or("the agent's file cannot be read")?;
    access
        .overwrite(
            &change.key.layer,
            &change.key.path,
            &Overwrite::new(expect, bytes, node),
        )
        .map_err(|e| e.to_string())
}
