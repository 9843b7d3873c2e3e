//! What an upper takes on its disk. Owns the sum; follows no link, crosses no mount.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::read;
use super::tree::dir_beneath;
use crate::RelPath;

/// Bytes of one allocation unit as `stat` counts them.
const BLOCK: u64 = 512;

/// Allocated bytes of everything at and below `root`, a file with several names counted once. What
/// vanishes or cannot be read meanwhile is left out.
pub fn allocated(root: BorrowedFd<'_>) -> io::Result<u64> {
    let Some(top) = read::statx(root, c"")? else {
        return Ok(0);
    };
    let device = |stat: &libc::statx| (stat.stx_dev_major, stat.stx_dev_minor);
    let (mut sum, mut linked) = (0u64, HashSet::new());
    let mut dirs = vec![RelPath::root()];
    while let Some(path) = dirs.pop() {
        let Ok(dir) = dir_beneath(root, &path) else {
            continue;
        };
        for name in read::list(dir.as_fd()).unwrap_or_default() {
            let Ok(text) = std::ffi::CString::new(name.as_slice()) else {
                continue;
            };
            let Ok(Some(stat)) = read::statx(dir.as_fd(), &text) else {
                continue;
            };
            if stat.stx_nlink > 1 && !linked.insert(stat.stx_ino) {
                continue;
            }
            sum = sum.saturating_add(stat.stx_blocks.saturating_mul(BLOCK));
            let is_dir = u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
            if is_dir && device(&stat) == device(&top) {
                dirs.push(path.join(&name));
            }
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_counted_holes_and_second_names_are_not() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("directory");
        let path = |name: &str| dir.path().join(name);
        let open = std::fs::File::open(dir.path()).expect("open");
        assert_eq!(allocated(open.as_fd()).expect("sum"), 0);
        std::fs::create_dir(path("d")).expect("dir");
        std::fs::write(path("d/file"), vec![1; 1 << 20]).expect("write");
        std::fs::hard_link(path("d/file"), path("again")).expect("link");
        let sparse = std::fs::File::create(path("sparse")).expect("file");
        sparse.set_len(1 << 30).expect("hole");
        std::os::unix::fs::symlink("/", path("link")).expect("link");
        nix::unistd::sync();
        let sum = allocated(open.as_fd()).expect("sum");
        assert!((1 << 20..1 << 21).contains(&sum), "{sum}");
    }
}
