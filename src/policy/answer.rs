//! Answers to questions, and which paths they settle. Owns their form on disk and in memory; they
//! are kept in files by [`crate::config::answers`].

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Origin;
use crate::overlay::Access;

/// How long an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// This one operation.
    #[default]
    Once,
    /// This session.
    Session,
    /// Every session of this user in this workspace.
    Workspace,
    /// Every session of this user.
    User,
}

impl Scope {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Scope::Once => "once",
            Scope::Session => "session",
            Scope::Workspace => "workspace",
            Scope::User => "user",
        }
    }

    /// Where a remembered answer then comes from; `None` when it is not remembered.
    pub fn origin(self) -> Option<Origin> {
        match self {
            Scope::Once => None,
            Scope::Session => Some(Origin::Session),
            Scope::Workspace => Some(Origin::Workspace),
            Scope::User => Some(Origin::User),
        }
    }
}

/// What an answer is about, seen from the path that was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// This path.
    #[default]
    File,
    /// Everything in its directory (in itself, when a listing was asked about).
    Directory,
    /// Every name with its suffix.
    Suffix,
}

/// The paths an answer settles, in exact bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// This absolute path.
    File(#[serde(with = "crate::path::exact_bytes")] Vec<u8>),
    /// This absolute path and everything below.
    Below(#[serde(with = "crate::path::exact_bytes")] Vec<u8>),
    /// Names that end like this, with the dot.
    Suffix(#[serde(with = "crate::path::exact_bytes")] Vec<u8>),
}

impl Subject {
    /// What `pattern` means for an access to this absolute path; `None` when it has no suffix.
    pub fn of(pattern: Pattern, path: &[u8], access: Access) -> Option<Self> {
        let cut = path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        match pattern {
            Pattern::File => Some(Subject::File(path.to_vec())),
            Pattern::Directory if access == Access::List => Some(Subject::Below(path.to_vec())),
            Pattern::Directory => Some(Subject::Below(path[..cut.max(1)].to_vec())),
            Pattern::Suffix => {
                let name = &path[(cut + 1).min(path.len())..];
                let dot = name.iter().rposition(|b| *b == b'.').filter(|at| *at > 0)?;
                (dot + 1 < name.len()).then(|| Subject::Suffix(name[dot..].to_vec()))
            }
        }
    }

    /// Whether it settles this absolute path.
    pub fn covers(&self, path: &[u8]) -> bool {
        match self {
            Subject::File(file) => path == file,
            Subject::Below(dir) => {
                dir == b"/"
                    || path == dir
                    || (path.starts_with(dir) && path.get(dir.len()) == Some(&b'/'))
            }
            Subject::Suffix(suffix) => {
                let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
                name.len() > suffix.len() && name.ends_with(suffix)
            }
        }
    }

    /// As it is shown, before sanitising: the path, `DIR/**` or `*.suffix`.
    pub fn shown(&self) -> Vec<u8> {
        match self {
            Subject::File(path) => path.clone(),
            Subject::Below(dir) if dir == b"/" => b"/**".to_vec(),
            Subject::Below(dir) => [dir.as_slice(), b"/**"].concat(),
            Subject::Suffix(suffix) => [b"*".as_slice(), suffix].concat(),
        }
    }
}

/// A remembered answer. It holds for every kind of access.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Answer {
    /// What was said.
    pub allow: bool,
    /// How long it holds: session, workspace or user.
    pub origin: Origin,
    /// About what.
    pub subject: Subject,
}

/// Notes an answer: it takes the place of another of its scope on the same subject.
pub fn remember(answers: &mut Vec<Answer>, answer: Answer) {
    answers.retain(|known| (known.origin, &known.subject) != (answer.origin, &answer.subject));
    answers.push(answer);
}

/// The answer that settles an absolute path: the session's before the workspace's before the
/// user's, and of one scope the last.
pub fn settled<'a>(answers: &'a [Answer], path: &[u8]) -> Option<&'a Answer> {
    answers
        .iter()
        .filter(|answer| answer.subject.covers(path))
        .max_by_key(|answer| answer.origin)
}

/// Where answers are kept that outlive a session. Neither lies where an agent can write or read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AnswerFiles {
    /// Of the user: in the configuration directory.
    #[serde(with = "crate::path::exact_path")]
    pub user: PathBuf,
    /// Of the user in one workspace: in the state directory, named after the workspace's path.
    #[serde(with = "crate::path::exact_path")]
    pub workspace: PathBuf,
}

impl AnswerFiles {
    /// The file for answers of this origin; `None` when they are not kept in one.
    pub fn of(&self, origin: Origin) -> Option<&Path> {
        let file = match origin {
            Origin::User => &self.user,
            Origin::Workspace => &self.workspace,
            Origin::Session | Origin::BuiltIn => return None,
        };
        file.is_absolute().then_some(file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(allow: bool, origin: Origin, subject: Subject) -> Answer {
        Answer {
            allow,
            origin,
            subject,
        }
    }

    #[test]
    fn patterns_mean_what_a_person_expects() {
        let of = |pattern, path: &[u8]| Subject::of(pattern, path, Access::Read);
        let file = of(Pattern::File, b"/w/a/x.env").expect("a file");
        assert!(file.covers(b"/w/a/x.env") && !file.covers(b"/w/a/x.env/y"));
        let dir = of(Pattern::Directory, b"/w/a/x.env").expect("a directory");
        assert!(dir.covers(b"/w/a/b/c") && dir.covers(b"/w/a") && !dir.covers(b"/w/ab"));
        let suffix = of(Pattern::Suffix, b"/w/a/x.env").expect("a suffix");
        assert!(suffix.covers(b"/v/y.env") && !suffix.covers(b"/v/.env"));
        for none in [b"/w/.env".as_slice(), b"/w/x", b"/w/x.", b"/"] {
            assert_eq!(of(Pattern::Suffix, none), None);
        }
        let listed = Subject::of(Pattern::Directory, b"/w/a", Access::List).expect("itself");
        assert!(listed.covers(b"/w/a/x") && !listed.covers(b"/w/b"));
        assert_eq!(dir.shown(), b"/w/a/**");
    }

    #[test]
    fn the_nearest_and_last_answer_counts() {
        let x = || Subject::File(b"/w/x".to_vec());
        let mut answers = vec![
            answer(true, Origin::User, x()),
            answer(false, Origin::Workspace, Subject::Below(b"/w".to_vec())),
        ];
        let said = |answers: &[Answer]| settled(answers, b"/w/x").map(|a| a.allow);
        assert_eq!(said(&answers), Some(false));
        remember(&mut answers, answer(false, Origin::Session, x()));
        remember(&mut answers, answer(true, Origin::Session, x()));
        assert_eq!(said(&answers), Some(true));
        assert_eq!(answers.len(), 3);
        assert_eq!(settled(&answers, b"/v"), None);
    }
}
