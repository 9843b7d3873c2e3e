//! Makes the rows of the change list from a session's state. Owns their order, what is folded to
//! begin with, and which directories share a row.

use std::ops::Range;
use std::sync::Arc;

use pvisor::change::{Change, ChangeKind, Class, Risk, came_along};
use pvisor::layer::{FileType, WORKSPACE, is_of_home};
use pvisor::review::summary;
use pvisor::session::state::SessionState;
use pvisor::{LayerPath, RelPath};

use super::{Fold, List, Member, Order, Row, RowId, Tally};

/// A directory with more changes than this starts folded.
const AUTO_FOLD: usize = 500;

/// The members of one layer: where they start, and where each part of them ends.
struct LayerPart {
    layer: String,
    start: usize,
    ends: [usize; 5],
}

/// Whether only times differ.
pub fn times_only(change: &Change) -> bool {
    change.kind == ChangeKind::Meta
        && match (&change.before, &change.after) {
            (Some(a), Some(b)) => {
                a.mode == b.mode && a.uid == b.uid && a.gid == b.gid && a.xattrs == b.xattrs
            }
            _ => false,
        }
}

/// Whether a folded directory must not hide this change.
fn never_folded(change: &Change) -> bool {
    change.conflict.is_some()
        || matches!(
            change.kind,
            ChangeKind::Deleted | ChangeKind::Mode | ChangeKind::Type
        )
        || change.file_type() == FileType::Symlink
        || change.risks.first().is_some_and(|r| *r <= Risk::TypeChange)
}

impl List {
    /// Makes the rows anew; the cursor stays on its row, or near it.
    pub fn rebuild(&mut self, state: &SessionState) {
        let stays = self.rows.get(self.cursor).map(|r| self.id(r));
        let untouched = self.rows.is_empty() || self.placed == Some(self.cursor);
        self.members.clear();
        self.rows.clear();
        self.ignored = 0;
        self.conflicts = 0;
        self.tally = Tally::default();
        self.home = Tally::default();
        let mut layers: Vec<&str> = state.changes.keys().map(|k| k.layer.as_str()).collect();
        layers.dedup();
        // The workspace first, the home directory last.
        layers.sort_by_key(|l| (*l != WORKSPACE, is_of_home(l)));
        let parts: Vec<LayerPart> = layers.iter().map(|l| self.sort(state, l)).collect();
        let mut sums = vec![Tally::default()];
        let mut sum = Tally::default();
        for member in &self.members {
            sum.add(member.summary);
            sums.push(sum);
        }
        self.sums = sums;
        for part in parts {
            self.push_layer(state, part);
        }
        if let Some(at) = stays.and_then(|id| self.rows.iter().position(|r| self.id(r) == id)) {
            self.cursor = at;
        }
        self.cursor = self.cursor.min(self.rows.len().saturating_sub(1));
        if untouched {
            // Groups come and go before the first change does.
            let is_change = |r: &Row| matches!(r, Row::Change { .. });
            if !self.current().is_some_and(is_change) {
                self.cursor = self.rows.iter().position(is_change).unwrap_or(0);
            }
            self.placed = Some(self.cursor);
        }
    }

    /// Members of a layer: risky, tree, touched, objects, ignored.
    fn sort(&mut self, state: &SessionState, layer: &str) -> LayerPart {
        let start = self.members.len();
        let low = LayerPath::new(layer, RelPath::root());
        let mut parts: [Vec<(&Change, Member)>; 5] = Default::default();
        for (key, change) in state.changes.range(low..) {
            if key.layer != layer {
                break;
            }
            let summary = summary(change, state.decisions.get(key));
            let part = match change.class {
                Class::Ignored => 4,
                Class::GitObject => 3,
                Class::Plain if times_only(change) && change.conflict.is_none() => 2,
                Class::Plain => {
                    let along = came_along(&state.changes, change);
                    let risky = !along && !change.risks.is_empty() || change.conflict.is_some();
                    usize::from(!(risky && self.order == Order::Risk))
                }
            };
            if part <= 1 {
                if is_of_home(layer) {
                    self.home.add(summary);
                } else {
                    self.tally.add(summary);
                }
            }
            self.conflicts += usize::from(change.conflict.is_some());
            self.ignored += usize::from(part == 4);
            let member = Member {
                key: key.clone(),
                digest: change.digest,
                summary,
            };
            parts[part].push((change, member));
        }
        // Stable: equal risks stay in byte order.
        parts[0].sort_by_key(|(c, _)| (c.conflict.is_none(), c.risks.first().copied()));
        let mut ends = [start; 5];
        for (part, end) in parts.into_iter().zip(&mut ends) {
            self.members.extend(part.into_iter().map(|(_, m)| m));
            *end = self.members.len();
        }
        LayerPart {
            layer: layer.to_owned(),
            start,
            ends,
        }
    }

    fn push_layer(&mut self, state: &SessionState, part: LayerPart) {
        let LayerPart {
            layer,
            start,
            ends: [risky, tree, touched, objects, ignored],
        } = part;
        let open = self.is_open(&RowId::Layer(layer.clone()), !is_of_home(&layer));
        self.rows.push(Row::Layer {
            layer: layer.clone(),
            members: start..objects,
            plain: start..tree,
            open,
        });
        if !open {
            return;
        }
        for member in start..risky {
            self.rows.push(Row::Change {
                member,
                skip: 0,
                depth: 1,
            });
        }
        self.push_tree(state, risky..tree, 0, 1);
        for (fold, members) in [
            (Fold::Touched, tree..touched),
            (Fold::GitObjects, touched..objects),
            (Fold::Ignored, objects..ignored),
        ] {
            if members.is_empty() {
                continue;
            }
            let open = self.is_open(&RowId::Fold(layer.clone(), fold), false);
            self.rows.push(Row::Fold {
                fold,
                layer: layer.clone(),
                members: members.clone(),
                open,
            });
            if open {
                for member in members {
                    self.rows.push(Row::Change {
                        member,
                        skip: 0,
                        depth: 2,
                    });
                }
            }
        }
    }

    /// Rows of members that share the first `skip` bytes of their paths.
    fn push_tree(
        &mut self,
        state: &SessionState,
        members: Range<usize>,
        skip: usize,
        depth: usize,
    ) {
        let mut at = members.start;
        while at < members.end {
            let path = self.members[at].key.path.as_bytes();
            let Some(slash) = path[skip..].iter().position(|b| *b == b'/') else {
                // A directory's own change is shown with its children.
                let mut prefix = path.to_vec();
                prefix.push(b'/');
                if self.range_below(members.clone(), &prefix).is_empty() {
                    self.rows.push(Row::Change {
                        member: at,
                        skip,
                        depth,
                    });
                }
                at += 1;
                continue;
            };
            let mut end = skip + slash;
            let below = self.range_below(at..members.end, &path[..=end]);
            let own = self.own(&members, &path[..end]);
            let new = |member: usize| {
                let change = state.changes.get(&self.members[member].key);
                change.is_some_and(|c| c.kind == ChangeKind::Added)
            };
            let chain_of_new = own.is_some_and(new);
            // What is left for the rows below this one.
            let mut rest = below.clone();
            // A chain of directories with nothing else in them is one row.
            loop {
                let first = self.members[rest.start].key.path.as_bytes();
                let last = self.members[rest.end - 1].key.path.as_bytes();
                let Some(next) = first[end + 1..].iter().position(|b| *b == b'/') else {
                    // A new directory with nothing in it but another new one.
                    let deeper = rest.start + 1..rest.end;
                    let prefix = [first, b"/"].concat();
                    let alone =
                        !deeper.is_empty() && self.range_below(deeper.clone(), &prefix) == deeper;
                    if !(chain_of_new && alone && new(rest.start)) {
                        break;
                    }
                    end = first.len();
                    rest = deeper;
                    continue;
                };
                let longer = end + 1 + next;
                let one_dir = last.get(..=longer) == Some(&first[..=longer]);
                if !one_dir || self.own(&members, &first[..end]).is_some() {
                    break;
                }
                end = longer;
            }
            let bytes = &self.members[rest.start].key.path.as_bytes()[..end];
            let own = own.or_else(|| self.own(&members, bytes));
            // A prefix of a valid path up to a slash is one.
            let path = RelPath::new(bytes).unwrap_or_default();
            let dir = LayerPath::new(self.members[at].key.layer.clone(), path);
            let renamed = own
                .and_then(|own| state.changes.get(&self.members[own].key))
                .is_some_and(|change| change.from().is_some());
            let small = below.len() <= AUTO_FOLD;
            let open = self.is_open(&RowId::Dir(dir.clone()), small && !renamed);
            self.rows.push(Row::Dir {
                dir,
                skip,
                depth,
                own,
                members: below.clone(),
                open,
            });
            if open {
                self.push_tree(state, rest, end + 1, depth + 1);
            } else {
                for member in below.clone() {
                    let key = &self.members[member].key;
                    // Of a renamed directory everything is seen that it did not just take along.
                    let stands_out = |change: &Arc<Change>| {
                        !came_along(&state.changes, change)
                            && (renamed && small || never_folded(change))
                    };
                    if state.changes.get(key).is_some_and(stands_out) {
                        self.rows.push(Row::Change {
                            member,
                            skip: end + 1,
                            depth: depth + 1,
                        });
                    }
                }
            }
            at = below.end;
        }
    }

    /// The members within `range` (in byte order) whose paths begin with `prefix`.
    fn range_below(&self, range: Range<usize>, prefix: &[u8]) -> Range<usize> {
        let part = &self.members[range.clone()];
        let from = part.partition_point(|m| m.key.path.as_bytes() < prefix);
        let len = part[from..].partition_point(|m| m.key.path.as_bytes().starts_with(prefix));
        range.start + from..range.start + from + len
    }

    fn own(&self, range: &Range<usize>, path: &[u8]) -> Option<usize> {
        self.members[range.clone()]
            .binary_search_by(|m| m.key.path.as_bytes().cmp(path))
            .ok()
            .map(|i| range.start + i)
    }

    fn is_open(&self, id: &RowId, otherwise: bool) -> bool {
        self.open.get(id).copied().unwrap_or(otherwise)
    }
}
