//! Finds names: what lower and upper have under a name, and what shows of it. Owns the meaning of
//! whiteouts and opaque marks when they are read, and the immutable-lower cache.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use nix::errno::Errno;

use super::calls::{Result, Stat};
use super::counters::count;
use super::guard::{Access, Attempt, Refusal};
use super::inode::{DirMarks, Found, Key, Name, Node, Side};
use super::xattr_calls::Subject;
use super::{Attr, Caller, Overlay, held};
use crate::RelPath;

/// Entries the immutable-lower cache holds at most.
const CACHED: usize = 16_384;

/// Lower metadata by directory and name, kept when the lower is declared immutable. Only what was
/// found is kept, never that nothing was.
#[derive(Default)]
pub(super) struct LowerCache {
    found: HashMap<(Key, CString), Stat>,
}

/// What both sides have under a name.
pub(super) struct Sight {
    /// The upper's object, a whiteout apart.
    pub upper: Option<Stat>,
    /// Its marks when it is a directory.
    pub marks: DirMarks,
    /// The upper hides the name.
    pub whiteout: bool,
    /// The lower's object, where the parent lets the lower show.
    pub lower: Option<Stat>,
}

impl Sight {
    /// The object that shows.
    pub fn shown(&self) -> Option<&Stat> {
        match (&self.upper, self.whiteout) {
            (Some(stat), _) => Some(stat),
            (None, true) => None,
            (None, false) => self.lower.as_ref(),
        }
    }

    /// The lower's directory under an upper's that lets it show.
    fn merged(&self) -> Option<&Stat> {
        let upper = self.upper.as_ref()?;
        self.lower
            .as_ref()
            .filter(|low| upper.is_dir() && low.is_dir() && !self.marks.opaque && !low.mount_root)
    }

    /// As the inode table takes it.
    pub fn found(&self) -> Option<Found> {
        let shown = self.shown()?;
        let lower = match &self.upper {
            Some(_) => self.merged(),
            None => Some(shown),
        };
        Some(Found {
            kind: shown.kind(),
            lower: lower.map(|stat| (Key::of(Side::Lower, stat), stat.born)),
            upper: self.upper.as_ref().map(|stat| Key::of(Side::Upper, stat)),
            marks: self.marks,
            bare: self.upper.is_none() && shown.mount_root,
        })
    }
}

/// What lies under a name that was found.
pub(super) struct Shown {
    pub stat: Stat,
    /// The name is a lower's, of a file that was copied up under another name.
    pub is_late: bool,
}

/// The overlay's marks on a directory of the upper.
pub(super) fn dir_marks(dir: BorrowedFd<'_>, name: &CStr) -> Result<DirMarks> {
    let subject = Subject { dir, name };
    let mut marks = DirMarks::default();
    for mark in [c"user.overlay.opaque", c"trusted.overlay.opaque"] {
        match subject.get(mark) {
            Ok(value) if value == b"y" => marks.opaque = true,
            Ok(value) if value == b"x" => marks.xattr_whiteouts = true,
            Ok(_) | Err(Errno::ENODATA | Errno::EOPNOTSUPP | Errno::EACCES) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(marks)
}

/// Whether an empty file of a directory with the mark `x` is a whiteout.
fn whiteout_by_attribute(dir: BorrowedFd<'_>, name: &CStr) -> bool {
    let subject = Subject { dir, name };
    [c"user.overlay.whiteout", c"trusted.overlay.whiteout"]
        .iter()
        .any(|mark| subject.get(mark).is_ok())
}

impl Overlay {
    /// What both sides have under `name`. `parent` is a directory; the tree is held.
    pub(super) fn sight(&self, parent: &Arc<Node>, name: &CStr) -> Result<Sight> {
        let (has_upper, has_lower, marks, bare) = {
            let state = parent.state();
            (
                state.upper.is_some(),
                state.lower.is_some(),
                state.marks,
                state.bare,
            )
        };
        let mut sight = Sight {
            upper: None,
            marks: DirMarks::default(),
            whiteout: false,
            lower: None,
        };
        if bare {
            return Ok(sight);
        }
        if has_upper {
            let dir = self.dir_of(parent, Side::Upper)?;
            let dir = std::os::fd::AsFd::as_fd(&*dir);
            if let Some(stat) = self.stat_at(dir, name)? {
                sight.whiteout = stat.is_whiteout()
                    || marks.xattr_whiteouts
                        && stat.is_file()
                        && stat.size == 0
                        && whiteout_by_attribute(dir, name);
                if !sight.whiteout {
                    if stat.is_dir() {
                        sight.marks = self.marks_of(dir, name, &stat)?;
                    }
                    sight.upper = Some(stat);
                }
            }
        }
        if has_lower {
            sight.lower = self.lower_stat(parent, name)?;
        }
        Ok(sight)
    }

    /// Marks of a directory in the upper: remembered when its node is known.
    fn marks_of(&self, dir: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> Result<DirMarks> {
        let known = self.table().find(Key::of(Side::Upper, stat));
        match known {
            Some(node) if node.is_dir() => Ok(node.state().marks),
            _ => dir_marks(dir, name),
        }
    }

    /// The lower's own entry under a name of a directory whose lower shows.
    pub(super) fn lower_stat(&self, parent: &Arc<Node>, name: &CStr) -> Result<Option<Stat>> {
        let key = parent.state().lower;
        let cached = self.options.immutable_lower.then_some(()).and(key);
        if let Some(key) = cached
            && let Some(stat) = held(&self.lower_cache).found.get(&(key, name.to_owned()))
        {
            count(&self.counters.cache_hits);
            return Ok(Some(*stat));
        }
        let dir = match self.dir_of(parent, Side::Lower) {
            Ok(dir) => dir,
            // Taken away by its owner meanwhile: nothing of it shows.
            Err(Errno::ENOENT | Errno::ESTALE | Errno::ENOTDIR) => return Ok(None),
            Err(e) => return Err(e),
        };
        let found = match self.stat_at(std::os::fd::AsFd::as_fd(&*dir), name) {
            Err(Errno::ENOTDIR) => None,
            other => other?,
        };
        if let (Some(key), Some(stat)) = (cached, found) {
            let mut cache = held(&self.lower_cache);
            if cache.found.len() >= CACHED {
                cache.found.clear();
            }
            cache.found.insert((key, name.to_owned()), stat);
        }
        Ok(found)
    }

    /// The present attributes of a node. The tree is held.
    pub(super) fn node_stat(&self, node: &Arc<Node>) -> Result<Stat> {
        if self.options.immutable_lower {
            let name = {
                let state = node.state();
                let lower_only = state.upper.is_none() && state.orphan.is_none();
                lower_only.then(|| state.names.first().cloned()).flatten()
            };
            if let Some(name) = name
                && let Some(stat) = self.lower_stat(&name.parent, &name.name)?
                && node.state().lower == Some(Key::of(Side::Lower, &stat))
            {
                return Ok(stat);
            }
        }
        self.located(node).map(|(_, stat)| stat)
    }

    /// The object of a name; `None` if there is none. What is returned counts as one reference,
    /// to be taken back by [`Overlay::forget`].
    pub fn lookup(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<Option<Attr>> {
        let parent = self.dir_node(parent)?;
        let name = checked(name)?;
        let moves = self.moves.load(Ordering::Acquire);
        let spoken = self.guard.decides() && self.name_is_spoken_of(&parent, &name);
        if spoken {
            match self.permit(caller, &parent, &name, Access::Lookup, None) {
                Err(Errno::ENOENT) => return Ok(None),
                other => other?,
            }
        }
        let found = {
            let _tree = self.reading();
            self.find(&parent, &name, true)?
        };
        let Some((node, mut stat)) = found else {
            return Ok(None);
        };
        node.state().tell_spoken(moves, spoken);
        if stat.is_late {
            self.link_late(&node, &parent, &name);
            let _tree = self.reading();
            stat.stat = self.node_stat(&node)?;
        }
        let stat = stat.stat;
        if let Err(refused) = self.permit_found(caller, (&parent, &name), &node, &stat) {
            self.forget(node.id, 1);
            return Err(refused);
        }
        self.saw(&parent, &name, Access::Lookup, 0);
        Ok(Some(self.attr(&node, &stat)))
    }

    /// Where nobody says that a file is opened, whether it is protected under another of its names
    /// is asked when it is found. No lock is held.
    pub(super) fn permit_found(
        &self,
        caller: &Caller,
        (parent, name): (&Arc<Node>, &CStr),
        node: &Arc<Node>,
        stat: &Stat,
    ) -> Result<()> {
        if !self.serves_by_node() {
            return Ok(());
        }
        self.permit_alias(caller, (parent, name, Access::Lookup), node, stat)
    }

    /// Asks the guard about a file that may be protected under another of its names. No lock is held.
    pub(super) fn permit_alias(
        &self,
        caller: &Caller,
        (parent, name, access): (&Arc<Node>, &CStr, Access),
        node: &Arc<Node>,
        stat: &Stat,
    ) -> Result<()> {
        if !self.guard.decides() {
            return Ok(());
        }
        match Self::alias_by(node, stat) {
            Some(alias) => self.permit(caller, parent, name, access, Some(alias)),
            None => Ok(()),
        }
    }

    /// The node of a name and what lies there. The tree is held.
    pub(super) fn find(
        &self,
        parent: &Arc<Node>,
        name: &CStr,
        referenced: bool,
    ) -> Result<Option<(Arc<Node>, Shown)>> {
        let sight = self.sight(parent, name)?;
        let (Some(found), Some(stat)) = (sight.found(), sight.shown()) else {
            return Ok(None);
        };
        let name = Name {
            parent: parent.clone(),
            name: name.to_owned(),
        };
        let is_lower = found.upper.is_none();
        let node = self.table().intern(found, name, referenced);
        let is_late = is_lower && !node.is_dir() && node.state().upper.is_some();
        let stat = *stat;
        Ok(Some((node, Shown { stat, is_late })))
    }

    /// The node of a directory.
    pub(super) fn dir_node(&self, id: u64) -> Result<Arc<Node>> {
        let node = self.node(id)?;
        if node.is_dir() {
            Ok(node)
        } else {
            Err(Errno::ENOTDIR)
        }
    }

    /// Whether a rule speaks of a name of a directory.
    pub(super) fn name_is_spoken_of(&self, parent: &Arc<Node>, name: &CStr) -> bool {
        let path = Self::path(parent).map(|dir| dir.join(name.to_bytes()));
        path.is_none_or(|path| self.guard.concerns(&self.layer, &path))
    }

    /// Asks the guard about a name of a directory. No lock is held.
    pub(super) fn permit(
        &self,
        caller: &Caller,
        parent: &Arc<Node>,
        name: &CStr,
        access: Access,
        alias: Option<(u64, u64)>,
    ) -> Result<()> {
        if !self.guard.decides() {
            return Ok(());
        }
        let Some(dir) = Self::path(parent) else {
            return Ok(());
        };
        self.permit_path(caller, &dir.join(name.to_bytes()), access, alias)
    }

    /// Asks the guard about a node, by every name it is known by. No lock is held.
    pub(super) fn permit_node(
        &self,
        caller: &Caller,
        node: &Arc<Node>,
        access: Access,
    ) -> Result<()> {
        if !self.guard.decides() {
            return Ok(());
        }
        let names = node.state().names.clone();
        let alias = self.alias(node);
        if alias.is_none() && names.len() == 1 && !self.is_spoken_of(node) {
            return Ok(());
        }
        if names.is_empty() && node.id == super::ROOT {
            return self.permit_path(caller, &RelPath::root(), access, alias);
        }
        for name in names {
            self.permit(caller, &name.parent, &name.name, access, alias)?;
        }
        Ok(())
    }

    /// Device and inode of a file in the lower that has more than one name.
    pub(super) fn alias(&self, node: &Arc<Node>) -> Option<(u64, u64)> {
        if node.is_dir() {
            return None;
        }
        node.state().lower?;
        let _tree = self.reading();
        let stat = self.node_stat(node).ok()?;
        Self::alias_by(node, &stat)
    }

    /// The same where its attributes are known.
    pub(super) fn alias_by(node: &Arc<Node>, stat: &Stat) -> Option<(u64, u64)> {
        let lower = node.state().lower.filter(|_| !node.is_dir())?;
        (stat.nlink > 1).then_some((lower.dev, lower.ino))
    }

    fn permit_path(
        &self,
        caller: &Caller,
        path: &RelPath,
        access: Access,
        alias: Option<(u64, u64)>,
    ) -> Result<()> {
        let attempt = Attempt {
            layer: &self.layer,
            path,
            access,
            pid: caller.pid,
            alias,
        };
        self.guard
            .permit(&attempt)
            .map_err(|refusal| match refusal {
                Refusal::Absent => Errno::ENOENT,
                Refusal::Denied => Errno::EACCES,
            })
    }

    /// Tells the guard of an access to a name.
    pub(super) fn saw(&self, parent: &Arc<Node>, name: &CStr, access: Access, bytes: u64) {
        if self.guard.observes()
            && let Some(dir) = Self::path(parent)
        {
            let path = dir.join(name.to_bytes());
            self.guard.observed(&self.layer, &path, access, bytes);
        }
    }

    /// Tells the guard of an access to a node.
    pub(super) fn saw_node(&self, node: &Arc<Node>, access: Access, bytes: u64) {
        if self.guard.observes()
            && let Some(path) = Self::path(node)
        {
            self.guard.observed(&self.layer, &path, access, bytes);
        }
    }
}

/// A name as system calls take it.
pub(super) fn checked(name: &[u8]) -> Result<CString> {
    match CString::new(name) {
        _ if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') => {
            Err(Errno::EINVAL)
        }
        Ok(_) if name.len() > 255 => Err(Errno::ENAMETOOLONG),
        Ok(name) => Ok(name),
        Err(_) => Err(Errno::EINVAL),
    }
}
