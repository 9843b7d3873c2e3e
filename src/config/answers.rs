//! Remembered answers of a user, for every workspace or for one. Owns their files: `answers.json`
//! in the configuration directory, and one per workspace in the state directory, never in the
//! workspace. A file that somebody else could have written is refused.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::layer::Digest;
use crate::paths::{Paths, replace_file};
use crate::policy::{Answer, AnswerFiles, Origin, answer};

/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// Why remembered answers could not be read or kept.
#[derive(Debug, thiserror::Error)]
#[error(
    "{doing} the remembered answers in {}: {source}",
    crate::text::visible_path(path)
)]
pub struct AnswersError {
    /// What was attempted.
    pub doing: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Why not.
    pub source: io::Error,
}

/// What a file holds.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    /// The workspace it is about; absent in the user's file.
    #[serde(default, with = "crate::path::optional_bytes")]
    workspace: Option<Vec<u8>>,
    answers: Vec<Answer>,
}

/// The files of this caller for this workspace.
pub fn files(paths: &Paths, workspace: &Path) -> AnswerFiles {
    let name = Digest::of(workspace.as_os_str().as_bytes()).to_string();
    AnswerFiles {
        user: paths.config_dir.join("answers.json"),
        workspace: paths
            .state_dir
            .join("answers")
            .join(format!("{}.json", name.get(..32).unwrap_or(&name))),
    }
}

/// Everything remembered for this workspace. Nothing is, where there is no file.
pub fn load(files: &AnswerFiles) -> Result<Vec<Answer>, AnswersError> {
    let mut answers = Vec::new();
    for origin in [Origin::User, Origin::Workspace] {
        if let Some(path) = files.of(origin) {
            let kept = read(path)?;
            // Whatever the file says of itself, it holds for what its place stands for.
            answers.extend(
                kept.answers
                    .into_iter()
                    .map(|answer| Answer { origin, ..answer }),
            );
        }
    }
    Ok(answers)
}

/// Adds an answer to a file, in place of another on the same subject.
pub fn keep(path: &Path, workspace: Option<&Path>, answer: Answer) -> Result<(), AnswersError> {
    change(path, workspace, |answers| answer::remember(answers, answer))
}

/// Takes an answer out of a file.
pub fn forget(path: &Path, workspace: Option<&Path>, answer: &Answer) -> Result<(), AnswersError> {
    change(path, workspace, |answers| {
        answers.retain(|known| known.subject != answer.subject);
    })
}

fn change(
    path: &Path,
    workspace: Option<&Path>,
    change: impl FnOnce(&mut Vec<Answer>),
) -> Result<(), AnswersError> {
    let fail = |source| AnswersError {
        doing: "writing",
        path: path.into(),
        source,
    };
    if let Some(dir) = path.parent() {
        crate::paths::make_private(dir).map_err(|error| fail(io::Error::other(error)))?;
    }
    let mut kept = read(path)?;
    kept.workspace = workspace.map(|path| path.as_os_str().as_bytes().to_vec());
    change(&mut kept.answers);
    let mut text = serde_json::to_vec_pretty(&kept).map_err(|error| fail(error.into()))?;
    text.push(b'\n');
    if text.len() as u64 > MAX_BYTES {
        return Err(fail(io::Error::other(
            "there are too many of them; forget some first",
        )));
    }
    replace_file(path, &text).map_err(fail)
}

fn read(path: &Path) -> Result<Kept, AnswersError> {
    let fail = |source| AnswersError {
        doing: "reading",
        path: path.into(),
        source,
    };
    let refused = |why: &str| Err(fail(io::Error::other(why.to_owned())));
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path);
    let file = match file {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kept::default()),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return refused("it is a symbolic link");
        }
        Err(error) => return Err(fail(error)),
    };
    let meta = file.metadata().map_err(fail)?;
    if !meta.is_file() {
        return refused("it is not a regular file");
    }
    if meta.uid() != nix::unistd::Uid::effective().as_raw() {
        return refused("it belongs to another user");
    }
    if meta.mode() & 0o022 != 0 {
        return refused("others may write it: `chmod 600` it, after a look at what it says");
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    if bytes.len() as u64 > MAX_BYTES {
        return refused("it is larger than 1 MiB");
    }
    serde_json::from_slice(&bytes).map_err(|error| fail(error.into()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::policy::Subject;

    fn answer(allow: bool, origin: Origin, path: &[u8]) -> Answer {
        Answer {
            allow,
            origin,
            subject: Subject::File(path.to_vec()),
        }
    }

    #[test]
    fn answers_are_kept_by_place_and_forgotten() {
        let dir = tempfile::tempdir().expect("tempdir");
        let files = AnswerFiles {
            user: dir.path().join("c/answers.json"),
            workspace: dir.path().join("s/answers/w.json"),
        };
        assert_eq!(load(&files).expect("nothing"), []);
        let yes = answer(true, Origin::User, b"/w/\xff");
        let no = answer(false, Origin::Workspace, b"/w/x");
        keep(&files.user, None, answer(false, Origin::User, b"/w/\xff")).expect("kept");
        keep(&files.user, None, yes.clone()).expect("kept");
        keep(&files.workspace, Some(Path::new("/w")), no.clone()).expect("kept");
        assert_eq!(load(&files).expect("both"), [yes.clone(), no.clone()]);
        let meta = std::fs::metadata(&files.user).expect("stat");
        assert_eq!(meta.mode() & 0o777, 0o600);
        forget(&files.user, None, &yes).expect("forgotten");
        assert_eq!(load(&files).expect("one"), [no]);
    }

    #[test]
    fn a_file_that_somebody_else_may_have_written_is_refused() {
        let dir = tempfile::tempdir().expect("tempdir");
        let files = AnswerFiles {
            user: dir.path().join("answers.json"),
            workspace: PathBuf::new(),
        };
        let why = || load(&files).expect_err("refused").to_string();
        std::fs::write(&files.user, "{\"answers\":[]}").expect("write");
        std::fs::set_permissions(&files.user, PermissionsExt::from_mode(0o622)).expect("chmod");
        assert!(why().contains("others may write it"), "{}", why());
        std::fs::set_permissions(&files.user, PermissionsExt::from_mode(0o600)).expect("chmod");
        assert!(load(&files).is_ok());
        std::fs::write(&files.user, vec![b' '; (1 << 20) + 1]).expect("write");
        assert!(why().contains("larger than 1 MiB"));
        std::fs::write(&files.user, "{").expect("write");
        assert!(why().contains("answers.json"));
        std::fs::rename(&files.user, dir.path().join("there")).expect("rename");
        std::os::unix::fs::symlink("there", &files.user).expect("link");
        assert!(why().contains("symbolic link"));
        assert!(keep(&files.user, None, answer(true, Origin::User, b"/x")).is_err());
    }
}
