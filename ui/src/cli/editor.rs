//! A person's editor on a private copy of some text. Owns the copy; what becomes of the text is the
//! caller's.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory with the copy, which goes with it.
struct Private(PathBuf);

impl Private {
    fn make() -> io::Result<Self> {
        for attempt in 0..64u32 {
            let mut number = [0; 8];
            std::fs::File::open("/dev/urandom")?.read_exact(&mut number)?;
            let name = format!("pvisor-tui-{:016x}", u64::from_le_bytes(number));
            let dir = std::env::temp_dir().join(name);
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Self(dir)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < 63 => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Lets the person edit `text`, the content of a file of this name; what they left, or `None` when
/// that is what it was. Fails where the editor does (`$VISUAL`, `$EDITOR`, else `vi`): then nothing
/// is meant to come of it.
pub fn edit(text: &[u8], name: &Path) -> io::Result<Option<Vec<u8>>> {
    let dir = Private::make()?;
    let file = dir.0.join(copy_name(name));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&file)?
        .write_all(text)?;
    // Through a shell, as git does: it may have arguments.
    let run = r#"e=${VISUAL:-${EDITOR:-vi}}; eval "$e \"\$1\"""#;
    let status = Command::new("sh")
        .args(["-c", run, "sh"])
        .arg(&file)
        .status()?;
    if !status.success() {
        return Err(io::Error::other(format!(
            "the editor has failed ({status}); nothing was written"
        )));
    }
    let left = std::fs::read(&file)?;
    Ok((left != text).then_some(left))
}

/// A name that says no more than which language it is.
fn copy_name(name: &Path) -> String {
    let plain = |text: &&str| {
        let known = text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        known && (1..=12).contains(&text.len())
    };
    match name.extension().and_then(|e| e.to_str()).filter(plain) {
        Some(extension) => format!("conflict.{extension}"),
        None => "conflict".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agents_name_for_a_file_is_no_argument() {
        let name = |text: &str| copy_name(Path::new(text));
        assert_eq!(name("src/-rf.rs"), "conflict.rs");
        assert_eq!(name("a.$(reboot)"), "conflict");
        assert_eq!(name("Makefile"), "conflict");
    }
}
