//! `--mount SRC[:DST]:ACCESS`. Owns its grammar (`\:` and `\=` are a plain colon and equals sign,
//! `SRC=NAME` names a staged layer or a kept directory) and turns it into a [`MountSpec`] with absolute paths.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use crate::sandbox::{MountAccess, MountSpec};
use crate::text::visible;

/// Why a mount was not understood.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// It has no access, or too many parts.
    #[error("the mount {} is not SRC[:DST]:ACCESS", visible(.0))]
    Form(Vec<u8>),
    /// The access is none that exists.
    #[error("the mount {} has no known access: it is one of read, stage, write, hide, private, keep", visible(.0))]
    Access(Vec<u8>),
    /// A name was given to something that is no staged layer, or it is no name.
    #[error("the mount {} gives a name, and only what is staged or kept has one (letters, digits, `-`, `_`, `.`)", visible(.0))]
    Name(Vec<u8>),
    /// A staged layer was to appear elsewhere.
    #[error("the mount {} is staged: a staged layer appears at its own path", visible(.0))]
    StagedElsewhere(Vec<u8>),
    /// The place inside is no absolute path without `..`.
    #[error("the mount {} has a place inside that is not an absolute path", visible(.0))]
    Target(Vec<u8>),
    /// The source cannot be used.
    #[error("the mount's source {}: {source}", crate::text::visible_path(path))]
    Source {
        /// The path as it was understood.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// The parts of a mount as typed, unescaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRequest {
    /// Host path, may be relative or begin with `~/`.
    pub source: OsString,
    /// Name of the staged layer, or of the kept directory.
    pub name: Option<String>,
    /// Path inside.
    pub target: Option<OsString>,
    /// What may be done with it.
    pub access: MountAccess,
}

/// What relative paths and `~` stand for.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    /// The caller's home directory.
    pub home: &'a Path,
    /// Where relative paths begin.
    pub base: &'a Path,
}

impl Places<'_> {
    /// `path` with `~` and relative beginnings resolved, `.` and `..` taken out lexically.
    pub fn absolute(&self, path: &OsStr) -> PathBuf {
        let bytes = path.as_bytes();
        let joined = if bytes == b"~" {
            self.home.to_path_buf()
        } else if let Some(tail) = bytes.strip_prefix(b"~/") {
            self.home.join(OsStr::from_bytes(tail))
        } else {
            self.base.join(path)
        };
        let mut out = PathBuf::from("/");
        for part in joined.components() {
            match part {
                Component::Normal(name) => out.push(name),
                Component::ParentDir => {
                    out.pop();
                }
                _ => {}
            }
        }
        out
    }

    /// The same without links; a path that does not exist keeps its last parts as typed.
    pub fn canonical(&self, path: &OsStr) -> PathBuf {
        let absolute = self.absolute(path);
        for above in absolute.ancestors() {
            if let Ok(real) = above.canonicalize() {
                let tail = absolute.strip_prefix(above).unwrap_or(Path::new(""));
                return if tail.as_os_str().is_empty() {
                    real
                } else {
                    real.join(tail)
                };
            }
        }
        absolute
    }
}

/// Splits a mount into its parts.
pub fn split(typed: &OsStr) -> Result<MountRequest, MountError> {
    let whole = typed.as_bytes();
    let parts = split_at(whole, b':');
    let (access, places) = match parts.as_slice() {
        [source, access] => (access, (*source, None)),
        [source, target, access] => (access, (*source, Some(*target))),
        _ => return Err(MountError::Form(whole.into())),
    };
    let access = match *access {
        b"read" => MountAccess::Read,
        b"stage" => MountAccess::Stage,
        b"write" => MountAccess::Write,
        b"hide" => MountAccess::Hide,
        b"private" => MountAccess::Private,
        b"keep" => MountAccess::Keep,
        _ => return Err(MountError::Access(whole.into())),
    };
    let (source, name) = match split_at(places.0, b'=').as_slice() {
        [source] => (*source, None),
        [source, name] => (*source, Some(*name)),
        _ => return Err(MountError::Name(whole.into())),
    };
    let name = match name {
        None => None,
        Some(name)
            if matches!(access, MountAccess::Stage | MountAccess::Keep) && is_layer_name(name) =>
        {
            Some(String::from_utf8_lossy(name).into_owned())
        }
        Some(_) => return Err(MountError::Name(whole.into())),
    };
    if source.is_empty() {
        return Err(MountError::Form(whole.into()));
    }
    Ok(MountRequest {
        source: unescape(source),
        name,
        target: places.1.map(unescape),
        access,
    })
}

impl MountRequest {
    /// The mount with absolute paths. A source that is to be seen must exist.
    pub fn resolve(&self, places: Places<'_>) -> Result<MountSpec, MountError> {
        let absolute = places.absolute(&self.source);
        let source = match self.access {
            // What is taken from sight need not be there.
            MountAccess::Hide | MountAccess::Private | MountAccess::Keep => {
                places.canonical(&self.source)
            }
            _ => absolute
                .canonicalize()
                .map_err(|source| MountError::Source {
                    path: absolute,
                    source,
                })?,
        };
        let typed = || self.source.as_bytes().to_vec();
        let target = match &self.target {
            None => source.clone(),
            Some(target) => {
                let inside = places.absolute(target);
                if !Path::new(target).is_absolute() && !target.as_bytes().starts_with(b"~") {
                    return Err(MountError::Target(typed()));
                }
                inside
            }
        };
        if self.access == MountAccess::Keep && target.exists() && !target.is_dir() {
            return Err(MountError::Source {
                path: target,
                source: io::Error::other("only a directory can be kept"),
            });
        }
        if self.access == MountAccess::Stage {
            if target != source {
                return Err(MountError::StagedElsewhere(typed()));
            }
            if !source.is_dir() {
                return Err(MountError::Source {
                    path: source,
                    source: io::Error::from(io::ErrorKind::NotADirectory),
                });
            }
        }
        Ok(MountSpec {
            source,
            target,
            access: self.access,
            name: self.name.clone(),
        })
    }
}

/// Splits at `mark` where no backslash stands before it.
fn split_at(bytes: &[u8], mark: u8) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < bytes.len() {
        if bytes[at] == b'\\' {
            at += 1;
        } else if bytes[at] == mark {
            parts.push(&bytes[start..at]);
            start = at + 1;
        }
        at += 1;
    }
    parts.push(&bytes[start..]);
    parts
}

/// Takes out the backslash of `\:`, `\=` and `\\`; any other one is part of the name.
fn unescape(bytes: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().copied().peekable();
    while let Some(byte) = rest.next() {
        match (byte, rest.peek()) {
            (b'\\', Some(&next)) if matches!(next, b':' | b'=' | b'\\') => {
                out.push(next);
                rest.next();
            }
            _ => out.push(byte),
        }
    }
    OsString::from_vec(out)
}

/// The layer names `workspace` and `home` are taken.
fn is_layer_name(name: &[u8]) -> bool {
    !name.is_empty()
        && !name.starts_with(b".")
        && name != crate::layer::WORKSPACE.as_bytes()
        && name != crate::layer::HOME.as_bytes()
        && name
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(typed: &str) -> Result<MountRequest, String> {
        split(OsStr::new(typed)).map_err(|error| error.to_string())
    }

    fn parts(source: &str, target: Option<&str>, access: MountAccess) -> MountRequest {
        MountRequest {
            source: source.into(),
            name: None,
            target: target.map(Into::into),
            access,
        }
    }

    #[test]
    fn source_destination_and_access() {
        assert_eq!(parse("/a:read"), Ok(parts("/a", None, MountAccess::Read)));
        assert_eq!(
            parse("a:/b:write"),
            Ok(parts("a", Some("/b"), MountAccess::Write))
        );
        assert_eq!(
            parse(r"/a\:b\\:hide"),
            Ok(parts(r"/a:b\", None, MountAccess::Hide))
        );
        assert_eq!(
            parse(r"/a\b:private"),
            Ok(parts(r"/a\b", None, MountAccess::Private))
        );
        let named = parse("/srv/data=store:stage").expect("named");
        assert_eq!(
            (named.source, named.name),
            ("/srv/data".into(), Some("store".into()))
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parse("/a").is_err_and(|e| e.contains("SRC[:DST]:ACCESS")));
        assert!(parse("/a:/b:/c:read").is_err_and(|e| e.contains("SRC[:DST]:ACCESS")));
        assert!(parse("/a:kept").is_err_and(|e| e.contains("hide, private, keep")));
        assert!(parse("/a=x:read").is_err_and(|e| e.contains("staged or kept")));
        assert!(parse("/a=home:stage").is_err());
        assert!(parse(":read").is_err());
        let kept = parse("~/.tool=tools:keep").expect("a kept directory");
        assert_eq!(kept.name.as_deref(), Some("tools"));
    }

    #[test]
    fn paths_become_absolute_and_lose_their_links() {
        let dir = tempfile::tempdir().expect("tempdir");
        let base = dir.path().canonicalize().expect("canonical");
        std::fs::create_dir(base.join("real")).expect("mkdir");
        std::os::unix::fs::symlink("real", base.join("link")).expect("link");
        let places = Places {
            home: &base.join("real"),
            base: &base,
        };
        let spec = |typed: &str| split(typed.as_ref()).and_then(|m| m.resolve(places));
        assert_eq!(spec("link:read").expect("spec").source, base.join("real"));
        assert_eq!(spec("~:stage").expect("spec").target, base.join("real"));
        let hidden = spec("link/none/x:hide").expect("spec");
        assert_eq!(hidden.source, base.join("real/none/x"));
        assert_eq!(
            spec("real/../link:/in/side:write").expect("spec").target,
            Path::new("/in/side")
        );
        assert!(matches!(spec("none:read"), Err(MountError::Source { .. })));
        assert!(matches!(
            spec("real:inside:read"),
            Err(MountError::Target(_))
        ));
        assert!(matches!(
            spec("real:/else:stage"),
            Err(MountError::StagedElsewhere(_))
        ));
    }
}
