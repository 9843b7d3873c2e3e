//! `changes --json`: the change set, with what was decided.

use pvisor::RelPath;
use pvisor::change::{Change, ChangeKind, Class, Conflict, Merges};
use pvisor::diff::{Item, Span};
use pvisor::merge::Standing;
use pvisor::review::{FileDecision, item_summary, reason, summary};
use pvisor::session::state::SessionState;
use pvisor::session::store::SessionRecord;
use serde::Serialize;

use super::{LayerInfo, text_and_bytes};

/// `changes --json`.
#[derive(Debug, Serialize)]
pub struct Changes {
    /// Id of the session.
    pub session: String,
    /// As in `status --json`.
    pub state: &'static str,
    /// The staged layers.
    pub layers: Vec<LayerInfo>,
    /// How many there are of each.
    pub counts: Counts,
    /// Every change, by layer and path.
    pub changes: Vec<ChangeInfo>,
}

impl Changes {
    /// Of a session, from what was agreed.
    pub fn new(record: &SessionRecord, run: &'static str, state: &SessionState) -> Self {
        Self {
            session: record.info.id.clone(),
            state: run,
            layers: record.info.layers.iter().map(LayerInfo::from).collect(),
            counts: Counts::of(state.changes.values().map(|change| &**change)),
            changes: state
                .changes
                .values()
                .map(|change| ChangeInfo::new(change, state.decisions.get(&change.key)))
                .collect(),
        }
    }
}

/// Numbers of changes by kind. What is ignored by git's rules is counted under `ignored` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// New entries.
    pub added: usize,
    /// Content differs.
    pub modified: usize,
    /// Gone.
    pub deleted: usize,
    /// Under a new name.
    pub renamed: usize,
    /// Permission bits only.
    pub mode: usize,
    /// Another type of entry.
    pub r#type: usize,
    /// xattrs, owner or times only.
    pub meta: usize,
    /// Ignored, whatever their kind.
    pub ignored: usize,
}

impl Counts {
    /// Counts.
    pub fn of<'a>(changes: impl Iterator<Item = &'a Change>) -> Self {
        let mut counts = Self::default();
        for change in changes {
            *match (change.class, &change.kind) {
                (Class::Ignored, _) => &mut counts.ignored,
                (_, ChangeKind::Added) => &mut counts.added,
                (_, ChangeKind::Modified) => &mut counts.modified,
                (_, ChangeKind::Deleted) => &mut counts.deleted,
                (_, ChangeKind::Renamed { .. }) => &mut counts.renamed,
                (_, ChangeKind::Mode) => &mut counts.mode,
                (_, ChangeKind::Type) => &mut counts.r#type,
                (_, ChangeKind::Meta) => &mut counts.meta,
            } += 1;
        }
        counts
    }

    /// Each word with its number, zeros left out.
    pub fn words(&self) -> Vec<(&'static str, usize)> {
        [
            ("added", self.added),
            ("modified", self.modified),
            ("deleted", self.deleted),
            ("renamed", self.renamed),
            ("mode", self.mode),
            ("type", self.r#type),
            ("meta", self.meta),
            ("ignored", self.ignored),
        ]
        .into_iter()
        .filter(|(_, number)| *number > 0)
        .collect()
    }
}

/// One change.
#[derive(Debug, Serialize)]
pub struct ChangeInfo {
    /// Layer's name.
    pub layer: String,
    /// Path below the layer's root.
    pub path: String,
    /// Exact bytes of `path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_b64: Option<String>,
    /// `plain`, `ignored` or `git-object`.
    pub class: &'static str,
    /// `added`, `modified`, `deleted`, `renamed`, `mode`, `type` or `meta`.
    pub kind: &'static str,
    /// Old path of a rename.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Exact bytes of `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_b64: Option<String>,
    /// `file`, `dir`, `symlink`, `fifo`, `socket` or `device`.
    pub r#type: &'static str,
    /// Type and permission bits in octal, as git writes them.
    pub mode: Sides<String>,
    /// Apparent size in bytes.
    pub size: Sides<u64>,
    /// Either side is not text.
    pub binary: bool,
    /// Lines added.
    pub added: u32,
    /// Lines removed.
    pub removed: u32,
    /// Names exactly this change; `approve --expect` takes it.
    pub digest: String,
    /// Why it deserves a second look, heaviest first.
    pub risks: Vec<&'static str>,
    /// `undecided`, `approved`, `rejected` or `mixed`.
    pub decision: &'static str,
    /// Why it was rejected: the reasons given.
    pub reason: Option<String>,
    /// What the host did meanwhile, one sentence; null when nothing.
    pub conflict: Option<String>,
    /// Of a conflict: `clean` when `commit --merge` would take the whole change, else `conflicts`;
    /// null without a conflict.
    pub merges: Option<&'static str>,
    /// What can be decided on, in file order.
    pub items: Vec<ItemInfo>,
}

/// Both sides of a change; null where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sides<T> {
    /// The baseline's.
    pub before: Option<T>,
    /// The agent's.
    pub after: Option<T>,
}

/// One item of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemInfo {
    /// What stands behind `#` on the command line.
    pub id: String,
    /// `whole`, `hunk`, `mode`, `eof`, `link` or `meta`.
    pub kind: &'static str,
    /// First line and number of lines taken away.
    pub old: [u32; 2],
    /// First line and number of lines brought.
    pub new: [u32; 2],
    /// As for the change; `mixed` when lines of it were decided apart.
    pub decision: &'static str,
    /// Of a hunk whose file the host has changed as well: `still applies` (the host left the lines
    /// around it alone), `merges cleanly` or `conflicts`. Left out where there is nothing to say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stands: Option<&'static str>,
}

impl ChangeInfo {
    /// A change with what was said of it.
    pub fn new(change: &Change, decision: Option<&FileDecision>) -> Self {
        // What was said of other content is void.
        let decision = decision.filter(|decision| decision.digest == change.digest);
        let (name, path_b64) = text_and_bytes(change.key.path.as_bytes());
        let from = change.from().map(RelPath::as_bytes).map(text_and_bytes);
        let (from, from_b64) = from.map_or((None, None), |(text, b64)| (Some(text), b64));
        let mode = |node: &pvisor::layer::Node| format!("{:06o}", node.full_mode());
        Self {
            layer: change.key.layer.clone(),
            path: name,
            path_b64,
            class: change.class.name(),
            kind: change.kind.name(),
            from,
            from_b64,
            r#type: change.file_type().name(),
            mode: Sides {
                before: change.before.as_deref().map(mode),
                after: change.after.as_deref().map(mode),
            },
            size: Sides {
                before: change.before.as_ref().map(|node| node.size),
                after: change.after.as_ref().map(|node| node.size),
            },
            binary: change.binary,
            added: change.added,
            removed: change.removed,
            digest: change.digest.to_string(),
            risks: change.risks.iter().map(|risk| risk.name()).collect(),
            decision: summary(change, decision).name(),
            reason: decision.and_then(reason),
            conflict: change.conflict.as_ref().map(Conflict::describe),
            merges: change.conflict.as_ref().map(|_| match change.merges {
                Some(Merges::Clean { .. }) => "clean",
                _ => "conflicts",
            }),
            items: change
                .items
                .iter()
                .map(|item| ItemInfo::new(item, decision, change.merges.as_ref()))
                .collect(),
        }
    }
}

impl ItemInfo {
    fn new(item: &Item, decision: Option<&FileDecision>, merges: Option<&Merges>) -> Self {
        let span = |span: Span| [span.start, span.len];
        Self {
            id: item.id.to_string(),
            kind: item.kind.name(),
            old: span(item.old),
            new: span(item.new),
            decision: item_summary(item, decision).name(),
            stands: merges
                .and_then(|merges| merges.standing(&item.id))
                .map(Standing::name),
        }
    }
}
