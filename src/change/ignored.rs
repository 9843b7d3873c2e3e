//! Which paths the workspace's git rules ignore. Reads the host's side only: an agent's own
//! `.gitignore` hides nothing until it was committed.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::git_index;
use crate::RelPath;
use crate::layer::{Node, Tree, read};

/// Largest file of rules that is read.
const LARGEST: u64 = 4 << 20;

/// Largest index that is read for the names it tracks.
const LARGEST_INDEX: u64 = 256 << 20;

/// Rules by directory, read when they are needed.
pub(super) struct Rules {
    /// `.gitignore` by directory; kept until the file moves.
    files: HashMap<RelPath, File>,
    /// What was found of directories in this scan.
    dirs: HashMap<RelPath, bool>,
    outer: Outer,
    tracked: Option<(Option<Node>, HashSet<Vec<u8>>)>,
}

struct File {
    stat: Option<Node>,
    rules: Option<Gitignore>,
    /// Whether it was looked at in this scan.
    fresh: bool,
}

/// The repository around the workspace, when the workspace is not its top.
struct Outer {
    /// Rules above the workspace, nearest first, each with the workspace's path below it.
    above: Vec<(Gitignore, RelPath)>,
    exclude: Option<(Gitignore, RelPath)>,
    /// The workspace's path in the repository.
    prefix: RelPath,
    index: Option<std::path::PathBuf>,
}

impl Rules {
    /// Rules of the layer at `root`.
    pub fn new(root: &Path) -> Self {
        Self {
            files: HashMap::new(),
            dirs: HashMap::new(),
            outer: Outer::find(root),
            tracked: None,
        }
    }

    /// Begins a scan: files of rules that moved are read again.
    pub fn begin(&mut self) {
        self.dirs.clear();
        for file in self.files.values_mut() {
            file.fresh = false;
        }
        self.tracked = self.tracked.take().filter(|(stat, _)| {
            stat.as_ref()
                .is_some_and(|s| self.outer.index_stat().is_some_and(|n| n.same_stat(s)))
        });
    }

    /// Whether git ignores `path`: by a rule, and not tracked all the same.
    pub fn is_ignored(&mut self, lower: &Tree, path: &RelPath, is_dir: bool) -> bool {
        if path.components().any(|c| c == b".git") {
            return false;
        }
        self.by_rules(lower, path, is_dir) && !self.is_tracked(path)
    }

    fn by_rules(&mut self, lower: &Tree, path: &RelPath, is_dir: bool) -> bool {
        // Outermost first: what lies in an ignored directory is ignored whatever its own rules say.
        let mut chain: Vec<RelPath> = path.ancestors().filter(|p| !p.is_root()).collect();
        chain.reverse();
        for dir in chain {
            let ignored = if let Some(known) = self.dirs.get(&dir) {
                *known
            } else {
                let ignored = self.matches(lower, &dir, true);
                self.dirs.insert(dir, ignored);
                ignored
            };
            if ignored {
                return true;
            }
        }
        self.matches(lower, path, is_dir)
    }

    /// What the nearest rule that speaks of exactly this path says.
    fn matches(&mut self, lower: &Tree, path: &RelPath, is_dir: bool) -> bool {
        for dir in path.ancestors() {
            let skip = if dir.is_root() {
                0
            } else {
                dir.as_bytes().len() + 1
            };
            let Ok(below) = RelPath::new(&path.as_bytes()[skip..]) else {
                continue;
            };
            if let Some(rules) = self.rules_of(lower, &dir) {
                match rules.matched(below.as_path(), is_dir) {
                    Match::None => {}
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                }
            }
        }
        for (rules, prefix) in self.outer.above.iter().chain(&self.outer.exclude) {
            match rules.matched(path.under(prefix).as_path(), is_dir) {
                Match::None => {}
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
            }
        }
        false
    }

    fn rules_of(&mut self, lower: &Tree, dir: &RelPath) -> Option<&Gitignore> {
        let known = self.files.entry(dir.clone()).or_insert(File {
            stat: None,
            rules: None,
            fresh: false,
        });
        if !known.fresh {
            known.fresh = true;
            let fd = lower.dir(dir).ok();
            let stat = fd
                .as_ref()
                .and_then(|fd| read::stat(fd.as_fd(), b".gitignore").ok().flatten());
            let same = match (&stat, &known.stat) {
                (Some(a), Some(b)) => a.same_stat(b),
                (None, None) => true,
                _ => false,
            };
            if !same {
                known.rules = fd
                    .and_then(|fd| read::open_file(fd.as_fd(), b".gitignore").ok())
                    .and_then(|file| rules(&file));
                known.stat = stat;
            }
        }
        known.rules.as_ref()
    }

    fn is_tracked(&mut self, path: &RelPath) -> bool {
        if self.tracked.is_none() {
            let stat = self.outer.index_stat();
            let bytes = self
                .outer
                .index
                .as_ref()
                .filter(|_| stat.as_ref().is_some_and(|s| s.size <= LARGEST_INDEX))
                .and_then(|path| std::fs::read(path).ok())
                .unwrap_or_default();
            self.tracked = Some((stat, git_index::tracked(&bytes)));
        }
        self.tracked
            .as_ref()
            .is_some_and(|(_, names)| names.contains(path.under(&self.outer.prefix).as_bytes()))
    }
}

impl Outer {
    fn find(root: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let top = root
            .ancestors()
            .find(|dir| dir.join(".git").symlink_metadata().is_ok())
            .unwrap_or(root);
        let inner = |dir: &Path| {
            root.strip_prefix(dir)
                .ok()
                .and_then(|p| RelPath::parse(p.as_os_str().as_bytes()).ok())
                .unwrap_or_default()
        };
        let mut above = Vec::new();
        if top != root {
            for dir in root.ancestors().skip(1) {
                if let Some(found) = std::fs::File::open(dir.join(".gitignore"))
                    .ok()
                    .and_then(|file| rules(&file))
                {
                    above.push((found, inner(dir)));
                }
                if dir == top {
                    break;
                }
            }
        }
        let exclude = std::fs::File::open(top.join(".git/info/exclude"))
            .ok()
            .and_then(|file| rules(&file))
            .map(|found| (found, inner(top)));
        Self {
            above,
            exclude,
            prefix: inner(top),
            index: Some(top.join(".git/index")),
        }
    }

    fn index_stat(&self) -> Option<Node> {
        let path = self.index.as_ref()?;
        let tree = Tree::open(path.parent()?).ok()?;
        read::stat(tree.root(), b"index").ok()?
    }
}

fn rules(mut file: &std::fs::File) -> Option<Gitignore> {
    let mut bytes = Vec::new();
    Read::by_ref(&mut file)
        .take(LARGEST)
        .read_to_end(&mut bytes)
        .ok()?;
    let mut builder = GitignoreBuilder::new("");
    let text = String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes));
    for line in text.lines() {
        // A line git cannot read either matches nothing.
        let _ = builder.add_line(None, line);
    }
    let rules = builder.build().ok()?;
    (!rules.is_empty()).then_some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], path: &str, is_dir: bool) -> bool {
        let dir = tempfile::tempdir().expect("tempdir");
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().expect("parent")).expect("mkdir");
            std::fs::write(path, text).expect("write");
        }
        let lower = Tree::open(dir.path()).expect("open");
        let mut rules = Rules::new(dir.path());
        rules.is_ignored(&lower, &RelPath::try_from(path).expect("path"), is_dir)
    }

    #[test]
    fn rules_are_gits() {
        let files = [
            (".gitignore", "target/\n*.log\n!keep.log\n/only-top\n"),
            ("sub/.gitignore", "!loud.log\nlocal\n"),
            (".git/info/exclude", "private\n"),
        ];
        assert!(check(&files, "target", true));
        assert!(
            !check(&files, "target", false),
            "a file of that name is not"
        );
        assert!(check(&files, "target/debug/a", false));
        assert!(
            check(&files, "target/keep.log", false),
            "inside an ignored directory"
        );
        assert!(check(&files, "x.log", false));
        assert!(!check(&files, "keep.log", false));
        assert!(!check(&files, "sub/loud.log", false));
        assert!(check(&files, "sub/quiet.log", false));
        assert!(check(&files, "sub/local", false) && !check(&files, "local", false));
        assert!(check(&files, "only-top", false) && !check(&files, "sub/only-top", false));
        assert!(check(&files, "private", false));
        assert!(!check(&files, ".git/x.log", false), "never below .git");
    }
}
