//! `[S] (PATH... | --all)` with `--paths-from FILE -0`: the arguments of the verbs that work on
//! paths. Owns how paths are read from a file; what they mean is [`super::address`]'s.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use pvisor::session::store::SessionRecord;

use super::context::{Context, shown};
use super::error::CliError;
use super::session_arg;

/// Which session and which paths.
#[derive(Debug, Clone, Default, Args)]
pub struct PathArgs {
    /// The session (`last`, a full id or an exact name; default: last), then paths relative to the
    /// workspace's root; `LAYER:PATH` and absolute paths reach other layers
    #[arg(value_name = "S|PATH")]
    arguments: Vec<OsString>,
    /// The session by the beginning of its id or name
    #[arg(short = 's', value_name = "S")]
    session: Option<OsString>,
    /// Read further paths from FILE, one a line (`-` for standard input)
    #[arg(long, value_name = "FILE")]
    paths_from: Option<PathBuf>,
    /// Paths in FILE end with a NUL byte, not with a line
    #[arg(short = '0', requires = "paths_from")]
    null: bool,
}

impl PathArgs {
    /// The session and the paths as typed, where paths and `--all` exclude each other and one of
    /// them is needed. What can be seen to be wrong is refused before a session is looked for.
    pub fn resolve_or_all(
        &self,
        all: bool,
        context: &Context,
    ) -> Result<(SessionRecord, Vec<Vec<u8>>), CliError> {
        let nothing = || CliError::usage("nothing is named").hint("name paths, or give --all");
        let both = || CliError::usage("--all and paths exclude each other");
        if !all && self.arguments.is_empty() && self.paths_from.is_none() {
            return Err(nothing());
        }
        if all && self.paths_from.is_some() {
            return Err(both());
        }
        let (record, paths) = self.resolve(context)?;
        match (all, paths.is_empty()) {
            (false, true) => Err(nothing()),
            (true, false) => Err(both()),
            _ => Ok((record, paths)),
        }
    }

    /// The session and the paths as typed.
    pub fn resolve(&self, context: &Context) -> Result<(SessionRecord, Vec<Vec<u8>>), CliError> {
        let (record, rest) = session_arg::split(context, self.session.as_deref(), &self.arguments)?;
        let mut paths: Vec<Vec<u8>> = rest.iter().map(|p| p.as_bytes().to_vec()).collect();
        if let Some(file) = &self.paths_from {
            let mut bytes = Vec::new();
            let read = if file.as_os_str() == "-" {
                std::io::stdin().lock().read_to_end(&mut bytes)
            } else {
                std::fs::File::open(context.current_dir.join(file))
                    .and_then(|mut file| file.read_to_end(&mut bytes))
            };
            read.map_err(|error| {
                CliError::while_doing(format!("reading the paths in {}", shown(file)), error)
            })?;
            paths.extend(entries(&bytes, if self.null { 0 } else { b'\n' }));
        }
        Ok((record, paths))
    }
}

/// The entries between separators; a last one needs none, empty ones are no paths.
fn entries(bytes: &[u8], separator: u8) -> impl Iterator<Item = Vec<u8>> {
    bytes
        .split(move |byte| *byte == separator)
        .filter(|entry| !entry.is_empty())
        .map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_exact_bytes() {
        let read = |bytes: &[u8], by| entries(bytes, by).collect::<Vec<_>>();
        assert_eq!(read(b"a\nb\0\xff", 0), [b"a\nb".to_vec(), b"\xff".to_vec()]);
        assert_eq!(read(b"a\n\nb\n", b'\n'), [b"a".to_vec(), b"b".to_vec()]);
        assert!(read(b"", 0).is_empty());
    }
}
