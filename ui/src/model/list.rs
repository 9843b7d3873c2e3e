//! The change list: rows made of a session's changes, grouped by layer, risk first or by path.
//! Owns order, folding and the cursor; draws nothing and decides nothing.
//!
//! A row knows its changes as a range of members, and every member carries the digest it had when
//! the rows were made: what a person acts on is what was on the screen.

use std::collections::HashMap;
use std::ops::Range;

use pvisor::change::{Change, ChangeKind, Class, Risk};
use pvisor::layer::{Digest, FileType, HOME, WORKSPACE};
use pvisor::review::{Summary, summary};
use pvisor::session::state::SessionState;
use pvisor::{LayerPath, RelPath};

/// A directory with more changes than this starts folded.
const AUTO_FOLD: usize = 500;

/// A change of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Which change.
    pub key: LayerPath,
    /// Its digest when the rows were made.
    pub digest: Digest,
    /// What was decided by then.
    pub summary: Summary,
}

/// Changes that are folded to one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fold {
    /// Nothing but times differs.
    Touched,
    /// New git objects.
    GitObjects,
    /// Ignored by git.
    Ignored,
}

/// One row. Numbers are indices of members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// A layer's head.
    Layer {
        /// Its name.
        layer: String,
        /// Its changes, ignored ones apart.
        members: Range<usize>,
        /// Those of them that are not folded: what is to be decided one by one.
        plain: Range<usize>,
        /// Whether its rows follow.
        open: bool,
    },
    /// A directory, or a chain of directories with nothing else in them.
    Dir {
        /// The directory.
        dir: LayerPath,
        /// Bytes of the path that the rows above already show.
        skip: usize,
        /// Depth of indentation.
        depth: usize,
        /// The directory's own change, if it is one.
        own: Option<usize>,
        /// The changes below it.
        members: Range<usize>,
        /// Whether its rows follow.
        open: bool,
    },
    /// Folded changes.
    Fold {
        /// Why.
        fold: Fold,
        /// In which layer.
        layer: String,
        /// Which.
        members: Range<usize>,
        /// Whether its rows follow.
        open: bool,
    },
    /// A change.
    Change {
        /// Which.
        member: usize,
        /// Bytes of the path that the rows above already show.
        skip: usize,
        /// Depth of indentation.
        depth: usize,
    },
}

/// What a row is, whatever its place.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RowId {
    /// A layer.
    Layer(String),
    /// A directory.
    Dir(LayerPath),
    /// Folded changes of a layer.
    Fold(String, Fold),
    /// A change.
    Change(LayerPath),
}

/// Decisions over some changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Nothing said.
    pub undecided: usize,
    /// All approved.
    pub approved: usize,
    /// All rejected.
    pub rejected: usize,
    /// Some of each.
    pub mixed: usize,
}

impl Tally {
    /// All of them.
    pub fn total(&self) -> usize {
        self.undecided + self.approved + self.rejected + self.mixed
    }

    /// Them in one word.
    pub fn summary(&self) -> Summary {
        match self.total() {
            n if n == self.undecided => Summary::Undecided,
            n if n == self.approved => Summary::Approved,
            n if n == self.rejected => Summary::Rejected,
            _ => Summary::Mixed,
        }
    }

    fn add(&mut self, summary: Summary) {
        match summary {
            Summary::Undecided => self.undecided += 1,
            Summary::Approved => self.approved += 1,
            Summary::Rejected => self.rejected += 1,
            Summary::Mixed => self.mixed += 1,
        }
    }

    fn minus(&self, other: &Tally) -> Tally {
        Tally {
            undecided: self.undecided - other.undecided,
            approved: self.approved - other.approved,
            rejected: self.rejected - other.rejected,
            mixed: self.mixed - other.mixed,
        }
    }
}

/// Order of the rows within a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// What carries a risk on top, heaviest first; the rest as a tree.
    #[default]
    Risk,
    /// Everything as a tree.
    Path,
}

/// The list.
#[derive(Debug, Clone, Default)]
pub struct List {
    /// Every change, in the order of the rows if all were open.
    pub members: Vec<Member>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Row under the cursor.
    pub cursor: usize,
    /// First row on the screen.
    pub top: usize,
    /// Order.
    pub order: Order,
    /// The row the cursor was put on when nobody had moved it yet.
    placed: Option<usize>,
    /// Folding that a person changed.
    open: HashMap<RowId, bool>,
    /// Decisions over the members before each index.
    sums: Vec<Tally>,
    /// Over everything that has to be decided: ignored and touched ones apart, and the home
    /// directory's, which no commit takes with the rest.
    pub tally: Tally,
    /// The same of the home directory.
    pub home: Tally,
    /// Ignored changes.
    pub ignored: usize,
    /// Changes that the host's own edits stand against.
    pub conflicts: usize,
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
        layers.sort_by_key(|l| (*l != WORKSPACE, *l == HOME));
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
                Class::Plain if times_only(change) => 2,
                Class::Plain => {
                    let risky = !change.risks.is_empty() || change.conflict.is_some();
                    usize::from(!(risky && self.order == Order::Risk))
                }
            };
            if part <= 1 {
                if layer == HOME {
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
        let open = self.is_open(&RowId::Layer(layer.clone()), layer != HOME);
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
            let open = self.is_open(&RowId::Dir(dir.clone()), below.len() <= AUTO_FOLD);
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
                    if state.changes.get(key).is_some_and(never_folded) {
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

    /// What a row is.
    pub fn id(&self, row: &Row) -> RowId {
        match row {
            Row::Layer { layer, .. } => RowId::Layer(layer.clone()),
            Row::Dir { dir, .. } => RowId::Dir(dir.clone()),
            Row::Fold { fold, layer, .. } => RowId::Fold(layer.clone(), *fold),
            Row::Change { member, .. } => RowId::Change(self.members[*member].key.clone()),
        }
    }

    /// The row under the cursor.
    pub fn current(&self) -> Option<&Row> {
        self.rows.get(self.cursor)
    }

    /// The change of a row: the row's own.
    pub fn change(&self, row: &Row) -> Option<&Member> {
        match row {
            Row::Change { member, .. } => self.members.get(*member),
            Row::Dir { own, .. } => self.members.get((*own)?),
            _ => None,
        }
    }

    /// Every change a row stands for.
    pub fn members_of(&self, row: &Row) -> Vec<&Member> {
        match row {
            Row::Change { member, .. } => self.members.get(*member).into_iter().collect(),
            Row::Dir { own, members, .. } => own
                .iter()
                .map(|o| &self.members[*o])
                .chain(&self.members[members.clone()])
                .collect(),
            Row::Layer { members, .. } | Row::Fold { members, .. } => {
                self.members[members.clone()].iter().collect()
            }
        }
    }

    /// Decisions over the changes of a row.
    pub fn tally_of(&self, row: &Row) -> Tally {
        let (range, own) = match row {
            Row::Change { member, .. } => (*member..*member + 1, None),
            Row::Dir { members, own, .. } => (members.clone(), *own),
            Row::Layer { members, .. } | Row::Fold { members, .. } => (members.clone(), None),
        };
        let mut tally = self.tally_in(&range);
        if let Some(own) = own {
            tally.add(self.members[own].summary);
        }
        tally
    }

    /// Decisions over these members.
    pub fn tally_in(&self, range: &Range<usize>) -> Tally {
        self.sums[range.end].minus(&self.sums[range.start])
    }

    /// Folds or opens a group; `None` toggles. Returns whether anything moved.
    pub fn fold(&mut self, at: usize, open: Option<bool>) -> bool {
        let Some(row) = self.rows.get(at) else {
            return false;
        };
        let now = match row {
            Row::Layer { open, .. } | Row::Dir { open, .. } | Row::Fold { open, .. } => *open,
            Row::Change { .. } => return false,
        };
        let wanted = open.unwrap_or(!now);
        let id = self.id(row);
        self.open.insert(id, wanted);
        self.placed = None;
        wanted != now
    }

    /// The nearest group above `at` that holds it.
    pub fn parent(&self, at: usize) -> Option<usize> {
        let depth = |row: &Row| match row {
            Row::Layer { .. } => 0,
            Row::Fold { .. } => 1,
            Row::Dir { depth, .. } | Row::Change { depth, .. } => *depth,
        };
        let mine = depth(self.rows.get(at)?);
        (0..at).rev().find(|i| depth(&self.rows[*i]) < mine)
    }

    /// Opens whatever hides this change.
    pub fn reveal(&mut self, key: &LayerPath) {
        self.open.insert(RowId::Layer(key.layer.clone()), true);
        for dir in key.path.ancestors() {
            self.open
                .insert(RowId::Dir(LayerPath::new(key.layer.clone(), dir)), true);
        }
    }
}

struct LayerPart {
    layer: String,
    start: usize,
    ends: [usize; 5],
}
