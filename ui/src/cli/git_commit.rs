//! `commit --git-commit`: records what was just written in the workspace's git repository. Owns the
//! way there and what of the repository it must not obey: no hook, monitor, filter, signing program
//! or transport runs, and nothing is recorded when the commit itself wrote below a `.git`.
//!
//! The repository's settings may have come with an earlier commit of the agent's work, and `git add`
//! and `git commit` start what they name. The calls that commit is made of here do not.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use wait_timeout::ChildExt;

use pvisor::LayerPath;
use pvisor::RelPath;
use pvisor::change::{ChangeSet, Class};
use pvisor::layer::WORKSPACE;
use pvisor::text::visible;

use super::error::{CliError, REFUSED};

/// What git is told in any case.
const SETTINGS: [&str; 5] = [
    "--literal-pathspecs",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
];

/// The trailer that names the session.
const SESSION: &str = "Pvisor-Session";

/// How long git may take for one call. It waits for ever where somebody has put a pipe into the
/// repository's directory.
const PATIENCE: Duration = Duration::from_secs(120);

/// A session's note of its commits that git has, too: a line each, its number and git's name for it.
const NOTED: &str = "git-commits";

/// Object ids asked for in one call.
const AT_ONCE: usize = 4096;

/// Records the `paths` of commit `number` (and the old names of renames among them, as `before` knows
/// them), each with the bytes it has on disk. `session` is the session's directory, for the index of
/// the new commit and the note that there is one.
pub fn record(
    workspace: &Path,
    session: &Path,
    (number, paths): (u32, &[LayerPath]),
    before: &ChangeSet,
    message: &str,
) -> Result<(), CliError> {
    let written = written(paths, before)?;
    if written.is_empty() {
        return Ok(());
    }
    let repository = Repository {
        workspace,
        index: session.join(format!("git-index-{}", std::process::id())),
    };
    let done = repository.record(&written, message);
    let _ = std::fs::remove_file(&repository.index);
    if let Some(made) = done? {
        let note = std::fs::File::options()
            .append(true)
            .create(true)
            .open(session.join(NOTED));
        // Without the note an undo only says less.
        let _ = note.and_then(|mut note| writeln!(note, "{number} {made}"));
    }
    Ok(())
}

/// Git's name for commit `number` of a session, where it was recorded there.
pub fn noted(session: &Path, number: u32) -> Option<String> {
    let notes = std::fs::read_to_string(session.join(NOTED)).ok()?;
    let mut notes = notes.lines().filter_map(|line| line.split_once(' '));
    let (_, made) = notes.find(|(noted, _)| *noted == number.to_string())?;
    let is_name = made.len() >= 40 && made.bytes().all(|b| b.is_ascii_hexdigit());
    is_name.then(|| made.to_owned())
}

/// The message with the session and who approved named behind it, as git's trailers
/// (git-interpret-trailers(1), which is not asked: it may run programs of the repository's choice).
pub fn with_trailers(message: &str, session: &str, approved_by: &BTreeSet<String>) -> String {
    let message = message.trim_end();
    let last = message.rsplit("\n\n").next().unwrap_or_default();
    let is_trailer = |line: &str| {
        line.split_once(": ").is_some_and(|(key, _)| {
            key.starts_with(|c: char| c.is_ascii_alphabetic())
                && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
    };
    let joins = last.len() < message.len() && last.lines().all(is_trailer);
    let mut lines = vec![format!("{SESSION}: {session}")];
    let approved = approved_by.iter().map(|name| visible(name.as_bytes()));
    lines.extend(approved.map(|name| format!("Pvisor-Approved-By: {name}")));
    let between = if joins { "\n" } else { "\n\n" };
    format!("{message}{between}{}\n", lines.join("\n"))
}

/// Whether there is a repository to record in, asked before anything is written.
pub fn check(workspace: &Path, scratch: &Path) -> Result<(), CliError> {
    let repository = Repository {
        workspace,
        index: scratch.join("git-index"),
    };
    let asked = ["rev-parse", "--is-inside-work-tree"];
    let cause = match repository.call(Index::Own, &asked, b"") {
        Ok((true, out, _)) if out.trim_ascii() == b"true" => return Ok(()),
        Ok((true, ..)) => "the workspace is not part of a git work tree".into(),
        Err(error) => error.cause().to_owned(),
        Ok((false, _, said)) => format!("git says: {}", visible(said.trim().as_bytes())),
    };
    Err(CliError::refused(format!(
        "nothing was written: --git-commit has no repository to record in; {cause}"
    ))
    .hint("make one with `git init`, or commit without --git-commit"))
}

/// What of the commit a git repository tracks.
fn written(paths: &[LayerPath], before: &ChangeSet) -> Result<BTreeSet<RelPath>, CliError> {
    let mut written = BTreeSet::new();
    for key in paths.iter().filter(|key| key.layer == WORKSPACE) {
        if key.path.components().any(|part| part == b".git") {
            return Err(CliError::refused(format!(
                "committed, but not recorded in git: the commit itself wrote {key}"
            ))
            .hint("look at the repository before git works in it, then commit there by hand"));
        }
        let change = before.get(key);
        if change.is_some_and(|change| change.class == Class::Ignored) {
            continue;
        }
        // git knows no directories of their own.
        let is_dir = change.is_some_and(|c| c.file_type() == pvisor::layer::FileType::Dir);
        if is_dir {
            continue;
        }
        written.extend(change.and_then(|change| change.from()).cloned());
        written.insert(key.path.clone());
    }
    Ok(written)
}

/// Which index a call works on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    /// The repository's own.
    Own,
    /// That of the new commit.
    New,
}

struct Repository<'a> {
    workspace: &'a Path,
    index: PathBuf,
}

impl Repository<'_> {
    /// Git's name for what was recorded, unless it has it already.
    fn record(
        &self,
        written: &BTreeSet<RelPath>,
        message: &str,
    ) -> Result<Option<String>, CliError> {
        self.check_merge()?;
        self.check_programs(written)?;
        self.check_inner(written)?;
        let entries = self.entries(written)?;
        let parent = self.try_git(
            Index::Own,
            &["rev-parse", "-q", "--verify", "HEAD^{commit}"],
            b"",
        )?;
        let parent = parent.map(word);
        match &parent {
            Some(parent) => self.git(Index::New, &["read-tree", parent], b"")?,
            None => self.git(Index::New, &["read-tree", "--empty"], b"")?,
        };
        let into = ["update-index", "-z", "--index-info"];
        self.git(Index::New, &into, &entries)?;
        let tree = word(self.git(Index::New, &["write-tree"], b"")?);
        let mut commit = vec!["commit-tree", &tree, "-m", message];
        if let Some(parent) = &parent {
            let same = self.git(
                Index::Own,
                &["rev-parse", &format!("{parent}^{{tree}}")],
                b"",
            )?;
            if word(same) == tree {
                return Ok(None);
            }
            commit.extend(["-p", parent]);
        }
        let made = word(self.git(Index::Own, &commit, b"")?);
        let reflog = format!("commit: {}", message.lines().next().unwrap_or_default());
        let was = parent.unwrap_or_default();
        self.git(
            Index::Own,
            &["update-ref", "-m", &reflog, "HEAD", &made, &was],
            b"",
        )?;
        // What was staged there before stays staged.
        self.git(Index::Own, &into, &entries)?;
        Ok(Some(made))
    }

    fn check_merge(&self) -> Result<(), CliError> {
        let merge = ["rev-parse", "-q", "--verify", "MERGE_HEAD"];
        match self.try_git(Index::Own, &merge, b"")? {
            None => Ok(()),
            Some(_) => Err(refused("a merge is under way")
                .hint("finish it, then `git add` and `git commit` there by hand")),
        }
    }

    /// Refuses what would be recorded otherwise than by hand: a filter is a program that changes
    /// the bytes, and it is not run here.
    fn check_programs(&self, written: &BTreeSet<RelPath>) -> Result<(), CliError> {
        let settings = [
            "config",
            "--null",
            "--name-only",
            "--get-regexp",
            r"^(filter|hook)\.",
        ];
        let Some(names) = self.try_git(Index::Own, &settings, b"")? else {
            return Ok(());
        };
        let mut filters: BTreeSet<&[u8]> = BTreeSet::new();
        for name in names.split(|b| *b == 0) {
            if name.starts_with(b"hook.") && name.ends_with(b".command") {
                return Err(
                    refused(&format!("the setting {} names a program", visible(name)))
                        .hint("look at it, then commit there by hand"),
                );
            }
            let name = name.strip_prefix(b"filter.").unwrap_or_default();
            let dot = name.iter().rposition(|b| *b == b'.').unwrap_or(0);
            filters.insert(&name[..dot]);
        }
        let list = nul_ended(written.iter().map(RelPath::as_bytes));
        let told = self.git(
            Index::Own,
            &["check-attr", "-z", "--stdin", "filter"],
            &list,
        )?;
        let fields: Vec<&[u8]> = told.split(|b| *b == 0).collect();
        for field in fields.chunks_exact(3) {
            if filters.contains(field[2]) {
                return Err(refused(&format!(
                    "{} goes through the filter {}, a program that the repository's settings name",
                    visible(field[0]),
                    visible(field[2])
                ))
                .hint("look at the setting, then `git add` and `git commit` there by hand"));
            }
        }
        Ok(())
    }

    /// What lies in a repository of its own is not this one's to record.
    fn check_inner(&self, written: &BTreeSet<RelPath>) -> Result<(), CliError> {
        let mut parents = BTreeSet::new();
        for path in written {
            let mut parent = path.parent();
            while let Some(dir) = parent.filter(|dir| !dir.is_root()) {
                parent = dir.parent();
                if !parents.insert(dir) {
                    break;
                }
            }
        }
        let is_own = |dir: &&RelPath| self.on_disk(dir).join(".git").symlink_metadata().is_ok();
        match parents.iter().find(is_own) {
            None => Ok(()),
            Some(dir) => Err(refused(&format!(
                "{} is a repository of its own",
                visible(dir.as_bytes())
            ))
            .hint("commit in each of them by hand")),
        }
    }

    fn on_disk(&self, path: &RelPath) -> PathBuf {
        self.workspace
            .join(std::ffi::OsStr::from_bytes(path.as_bytes()))
    }

    /// Lines for `update-index --index-info`: mode, object and name of what is there, zeros for
    /// what is not.
    fn entries(&self, written: &BTreeSet<RelPath>) -> Result<Vec<u8>, CliError> {
        let ask = ["rev-parse", "--show-object-format", "--show-prefix"];
        let told = self.git(Index::Own, &ask, b"")?;
        let (format, prefix) = match told.iter().position(|b| *b == b'\n') {
            Some(at) => told.split_at(at),
            None => (&told[..], &told[..0]),
        };
        let prefix = prefix.trim_ascii();
        let nothing = "0".repeat(if format == b"sha256" { 64 } else { 40 });
        let mut found: Vec<(&str, &RelPath, Option<String>)> = Vec::new();
        for path in written {
            let place = self.on_disk(path);
            let (mode, object) = match place.symlink_metadata() {
                Err(_) => ("0", Some(nothing.clone())),
                Ok(meta) if meta.is_symlink() => {
                    let target = std::fs::read_link(&place)?;
                    let object = self.object(target.as_os_str().as_bytes())?;
                    ("120000", Some(object))
                }
                Ok(meta) if meta.is_file() => {
                    let mode = if meta.mode() & 0o100 == 0 {
                        "100644"
                    } else {
                        "100755"
                    };
                    let plain = !place.as_os_str().as_bytes().contains(&b'\n');
                    let object = (!plain).then(|| self.object(&std::fs::read(&place)?));
                    (mode, object.transpose()?)
                }
                // Neither directories nor pipes are git's.
                Ok(_) => continue,
            };
            found.push((mode, path, object));
        }
        self.objects(&mut found)?;
        let mut lines = Vec::new();
        for (mode, path, object) in found {
            write!(lines, "{mode} {}\t", object.unwrap_or_default())?;
            lines.extend_from_slice(prefix);
            lines.extend_from_slice(path.as_bytes());
            lines.push(0);
        }
        Ok(lines)
    }

    /// Stores these bytes as they are.
    fn object(&self, bytes: &[u8]) -> Result<String, CliError> {
        let arguments = ["hash-object", "-w", "--no-filters", "--stdin"];
        Ok(word(self.git(Index::Own, &arguments, bytes)?))
    }

    /// Stores the files that have no object yet, many in one call.
    fn objects(&self, found: &mut [(&str, &RelPath, Option<String>)]) -> Result<(), CliError> {
        let mut missing: Vec<_> = found.iter_mut().filter(|f| f.2.is_none()).collect();
        for some in missing.chunks_mut(AT_ONCE) {
            let mut list = Vec::new();
            for (_, path, _) in some.iter() {
                list.extend_from_slice(self.on_disk(path).as_os_str().as_bytes());
                list.push(b'\n');
            }
            let arguments = ["hash-object", "-w", "--no-filters", "--stdin-paths"];
            let told = self.git(Index::Own, &arguments, &list)?;
            let told = String::from_utf8_lossy(&told);
            let mut ids = told.lines();
            for file in some.iter_mut() {
                file.2 = ids.next().map(str::to_owned);
            }
        }
        Ok(())
    }

    /// Calls git; what it printed.
    fn git(&self, index: Index, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, CliError> {
        match self.call(index, arguments, input)? {
            (true, out, _) => Ok(out),
            (false, _, said) => Err(failed(&format!("git {}: {}", arguments[0], said.trim()))),
        }
    }

    /// The same where a failure is an answer.
    fn try_git(
        &self,
        index: Index,
        arguments: &[&str],
        input: &[u8],
    ) -> Result<Option<Vec<u8>>, CliError> {
        let (done, out, _) = self.call(index, arguments, input)?;
        Ok(done.then_some(out))
    }

    fn call(
        &self,
        index: Index,
        arguments: &[&str],
        input: &[u8],
    ) -> Result<(bool, Vec<u8>, String), CliError> {
        let mut command = Command::new("git");
        command.arg("-C").arg(self.workspace).args(SETTINGS);
        // Nothing is fetched, whatever is missing.
        command.env("GIT_ALLOW_PROTOCOL", "none");
        command.env("GIT_NO_LAZY_FETCH", "1");
        if index == Index::New {
            command.env("GIT_INDEX_FILE", &self.index);
        }
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(&error))?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (status, out, said) = std::thread::scope(|scope| {
            // It may answer before it has heard everything.
            scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
            let out = scope.spawn(move || read_all(stdout));
            let said = scope.spawn(move || read_all(stderr));
            let status = child.wait_timeout(PATIENCE);
            if !matches!(status, Ok(Some(_))) {
                let _ = child.kill();
                let _ = child.wait();
            }
            let text = |read: ScopedJoinHandle<'_, Vec<u8>>| read.join().unwrap_or_default();
            (status, text(out), text(said))
        });
        let status = status.map_err(|error| failed(&error))?.ok_or_else(|| {
            failed(&format!(
                "`git {}` did not end within {PATIENCE:?}; look for a pipe in the repository's \
                 directory (`find .git -type p`)",
                arguments[0]
            ))
        })?;
        let said = String::from_utf8_lossy(&said).into_owned();
        Ok((status.success(), out, said))
    }
}

fn failed(error: &dyn std::fmt::Display) -> CliError {
    CliError::while_doing("committed, but not recorded in git", error).with_status(REFUSED)
}

fn refused(why: &str) -> CliError {
    CliError::refused(format!("committed, but not recorded in git: {why}"))
}

fn read_all(stream: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What came until it broke off says enough.
    let _ = stream.map(|mut stream| stream.read_to_end(&mut bytes));
    bytes
}

fn word(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

fn nul_ended<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    paths
        .flat_map(|path| path.iter().copied().chain([0]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::{change, renamed};

    fn key(path: &[u8]) -> LayerPath {
        LayerPath::new(WORKSPACE, RelPath::new(path).expect("path"))
    }

    #[test]
    fn a_commit_below_git_is_never_followed_by_git() {
        let set = ChangeSet::new();
        assert!(written(&[key(b"a"), key(b".git/config")], &set).is_err());
        assert!(written(&[key(b"sub/.git/hooks/x")], &set).is_err());
    }

    #[test]
    fn both_names_of_a_rename_and_nothing_ignored() {
        let mut ignored = change(WORKSPACE, b"target/x", &[]);
        ignored.class = Class::Ignored;
        let set: ChangeSet = [
            ignored,
            renamed(WORKSPACE, b"old", b"new", &[]),
            change(WORKSPACE, b"a", &[]),
        ]
        .into_iter()
        .map(|c| (c.key.clone(), std::sync::Arc::new(c)))
        .collect();
        let paths: Vec<_> = set.keys().cloned().collect();
        let names = written(&paths, &set).expect("paths");
        let names: Vec<_> = names.iter().filter_map(RelPath::as_utf8).collect();
        assert_eq!(names, ["a", "new", "old"]);
    }

    #[test]
    fn git_records_exactly_these_paths_and_runs_no_hook() {
        let dir = tempfile::tempdir().expect("tempdir");
        let w = dir.path();
        let host = |script: &str| {
            let done = Command::new("sh")
                .args(["-ec", script])
                .current_dir(w)
                .output();
            let done = done.expect("sh");
            String::from_utf8_lossy(&done.stdout).trim().to_owned()
        };
        if host("command -v git").is_empty() {
            eprintln!("skipped: git is not installed");
            return;
        }
        host(
            "git init -q .; git config user.name ada; git config user.email ada@example.org
             echo 1 > gone; echo 1 > other; git add .; git commit -qm first
             printf '#!/bin/sh\\ntouch ran\\n' > .git/hooks/post-commit; chmod +x .git/hooks/*
             rm gone; echo 2 > other; git add other; echo x > '[a]*'",
        );
        let scratch = tempfile::tempdir().expect("tempdir");
        record(
            w,
            scratch.path(),
            (1, &[key(b"gone"), key(b"[a]*")]),
            &ChangeSet::new(),
            "the message",
        )
        .expect("recorded");
        assert_eq!(
            host("git show --format=%s --name-status HEAD"),
            "the message\n\nA\t[a]*\nD\tgone"
        );
        assert_eq!(
            host("git status --short"),
            "M  other",
            "what was staged before stays staged"
        );
        assert!(!w.join("ran").exists(), "no hook ran");
    }

    #[test]
    fn no_program_of_the_repositorys_settings_runs() {
        let dir = tempfile::tempdir().expect("tempdir");
        let scratch = tempfile::tempdir().expect("tempdir");
        let w = dir.path();
        let host = |script: &str| {
            let script = format!("cd -- \"$0\"; {script}");
            let done = Command::new("sh").args(["-ec", &script]).arg(w).output();
            let done = done.expect("sh");
            String::from_utf8_lossy(&done.stdout).trim().to_owned()
        };
        if host("command -v git").is_empty() {
            eprintln!("skipped: git is not installed");
            return;
        }
        // Everything that `git add` and `git commit` would start.
        host(
            "git init -q .; git config user.name ada; git config user.email ada@example.org
             mkdir sub; echo 1 > sub/a; git add .; git commit -qm first
             printf '#!/bin/sh\\ntouch %s/ran\\ncat\\n' \"$PWD\" > mark; chmod +x mark
             for k in core.fsmonitor core.sshCommand core.editor gpg.program; do git config $k \"$PWD/mark\"; done
             git config commit.gpgSign true; git config filter.m.clean \"$PWD/mark\"
             git config filter.m.smudge \"$PWD/mark\"; git config core.hooksPath \"$PWD/hooks\"
             mkdir hooks; for h in post-index-change reference-transaction pre-commit post-commit; do cp mark hooks/$h; done
             echo '*.f filter=m' > .gitattributes; echo 2 > sub/a; echo 1 > sub/x.f; ln -s a sub/l; rm -f ran",
        );
        let before = ChangeSet::new();
        let record = |paths: &[&[u8]], message: &str| {
            let keys: Vec<_> = paths.iter().map(|path| key(path)).collect();
            record(&w.join("sub"), scratch.path(), (1, &keys), &before, message)
        };
        let error = record(&[b"a", b"x.f"], "filtered").expect_err("a filter");
        let mut said = Vec::new();
        error.print(&mut said).expect("prints");
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(said.contains("x.f goes through the filter m"), "{said}");
        record(&[b"a", b"l"], "taken over").expect("recorded");
        assert!(!w.join("ran").exists(), "a program ran");
        assert_eq!(
            host("git -c core.hooksPath= log -1 --format=%s --raw --abbrev=4 | cut -d' ' -f2,5-"),
            "over\n\n100644 M\tsub/a\n120000 A\tsub/l"
        );
        assert_eq!(host("git show HEAD:sub/a"), "2");
        let left = std::fs::read_dir(scratch.path()).expect("lists");
        let left: Vec<_> = left.flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left, [NOTED], "the index of the commit goes");
        assert!(
            noted(scratch.path(), 1).is_some_and(|made| host("git rev-list HEAD").contains(&made))
        );
        assert_eq!(noted(scratch.path(), 2), None);
    }
}
