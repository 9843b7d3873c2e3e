//! What is mounted below a directory. Owns reading `/proc/self/mountinfo`; a mount below a lower
//! makes the kernel refuse an overlay over it, and no change may ever cross into it.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Mount points strictly below `root`, in the order they were mounted.
pub fn below(root: &Path) -> std::io::Result<Vec<PathBuf>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?, root))
}

pub(super) fn parse(mountinfo: &[u8], root: &Path) -> Vec<PathBuf> {
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(unescape)
        .filter(|point| point != root && point.starts_with(root))
        .collect()
}

/// Undoes the kernel's `\040` notation (proc_pid_mountinfo(5)).
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, tail)) = rest.split_first() {
        let digits = tail.get(..3).filter(|d| byte == b'\\' && octal(d));
        if let Some(digits) = digits {
            bytes.push(
                digits
                    .iter()
                    .fold(0u8, |n, d| n.wrapping_mul(8).wrapping_add(d - b'0')),
            );
            rest = &tail[3..];
        } else {
            bytes.push(byte);
            rest = tail;
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

fn octal(digits: &[u8]) -> bool {
    digits.iter().all(|d| (b'0'..=b'7').contains(d))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_are_found_and_their_names_unescaped() {
        let table = b"22 27 0:21 / /proc rw - proc proc rw\n\
            30 27 0:30 / /w rw - ext4 /dev/a rw\n\
            31 30 0:31 / /w/a\\040b\\134c rw - tmpfs none rw\n\
            32 27 0:32 / /wider rw - tmpfs none rw\n";
        assert_eq!(parse(table, Path::new("/w")), [PathBuf::from("/w/a b\\c")]);
    }
}
