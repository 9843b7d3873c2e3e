//! An overlay over temporary directories, worked on by path.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::{
    Attr, Caller, Changes, Errno, Guard, NO_HANDLE, Options, Overlay, ROOT, Result, Sources,
    Unguarded,
};

/// Lower, upper and work in a directory of their own, and the overlay over them.
pub struct Stage {
    pub dir: tempfile::TempDir,
    pub overlay: Overlay,
}

pub fn me() -> Caller {
    Caller {
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        pid: 0,
        umask: 0o022,
    }
}

fn open(path: &Path) -> std::os::fd::OwnedFd {
    std::fs::File::open(path).expect("opens").into()
}

pub fn overlay_of(dir: &Path, options: Options, guard: Arc<dyn Guard>) -> Overlay {
    let sources = Sources {
        layer: "workspace".to_owned(),
        lower: open(&dir.join("lower")),
        upper: open(&dir.join("upper")),
        work: open(&dir.join("work")),
    };
    Overlay::new(sources, options, guard).expect("an overlay")
}

impl Stage {
    /// `fill` makes the lower, in the given directory.
    pub fn new(fill: impl FnOnce(&Path)) -> Self {
        Self::with(Options::default(), Arc::new(Unguarded), fill)
    }

    pub fn with(options: Options, guard: Arc<dyn Guard>, fill: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["lower", "upper", "work"] {
            std::fs::create_dir(dir.path().join(name)).expect("makes");
        }
        fill(&dir.path().join("lower"));
        let overlay = overlay_of(dir.path(), options, guard);
        Self { dir, overlay }
    }

    /// The overlay anew over the same directories, as after the end of the one before.
    pub fn again(&mut self) {
        self.overlay = overlay_of(self.dir.path(), Options::default(), Arc::new(Unguarded));
    }

    pub fn upper(&self, path: &str) -> PathBuf {
        self.dir.path().join("upper").join(path)
    }

    pub fn lower(&self, path: &str) -> PathBuf {
        self.dir.path().join("lower").join(path)
    }

    pub fn attr(&self, path: &str) -> Result<Attr> {
        let mut at = self.overlay.getattr(ROOT, None)?;
        at.id = ROOT;
        for name in Path::new(path).components() {
            if at.mode & libc::S_IFMT != libc::S_IFDIR {
                return Err(Errno::ENOTDIR);
            }
            at = self
                .overlay
                .lookup(&me(), at.id, name.as_os_str().as_bytes())?
                .ok_or(Errno::ENOENT)?;
        }
        Ok(at)
    }

    /// The directory above a path and the path's last name.
    pub fn split<'a>(&self, path: &'a str) -> Result<(u64, &'a [u8])> {
        let path = Path::new(path);
        let above = path.parent().and_then(Path::to_str).unwrap_or_default();
        let dir = self.attr(above)?;
        if dir.mode & libc::S_IFMT != libc::S_IFDIR {
            return Err(Errno::ENOTDIR);
        }
        let name = path.file_name().map(OsStrExt::as_bytes);
        Ok((dir.id, name.unwrap_or_default()))
    }

    pub fn names(&self, path: &str) -> Result<Vec<String>> {
        let listing = self.overlay.opendir(&me(), self.attr(path)?.id)?;
        let mut names = Vec::new();
        self.overlay.readdir(listing.handle, 0, |entry, _| {
            assert_ne!(entry.id, 0, "a name without a number");
            names.push(String::from_utf8_lossy(&entry.name).into_owned());
            false
        })?;
        self.overlay.releasedir(listing.handle);
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }

    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        let attr = self.attr(path)?;
        let opened = self.overlay.open(&me(), attr.id, libc::O_RDONLY)?;
        let mut buffer = vec![0; attr.size as usize + 16];
        let length = self
            .overlay
            .read(&me(), attr.id, opened.handle, 0, &mut buffer)?;
        self.overlay.release(opened.handle);
        buffer.truncate(length);
        let mut same = vec![0; attr.size as usize + 16];
        let length = self.overlay.read(&me(), attr.id, NO_HANDLE, 0, &mut same)?;
        assert_eq!(same[..length], buffer, "without a handle");
        Ok(buffer)
    }

    /// Opens for writing, making the file where there is none, and writes at the end.
    pub fn append(&self, path: &str, data: &[u8]) -> Result<()> {
        let opened = match self.attr(path) {
            Ok(attr) if attr.mode & libc::S_IFMT == libc::S_IFDIR => return Err(Errno::EISDIR),
            Ok(attr) => self.overlay.open(&me(), attr.id, libc::O_WRONLY)?,
            Err(Errno::ENOENT) => {
                let (dir, name) = self.split(path)?;
                let flags = libc::O_WRONLY;
                self.overlay.create(&me(), dir, name, 0o644, flags)?.1
            }
            Err(e) => return Err(e),
        };
        let attr = self.attr(path)?;
        // What is written is the same with a handle and without.
        let handle = if data.len().is_multiple_of(2) {
            opened.handle
        } else {
            NO_HANDLE
        };
        let file = (attr.id, handle);
        let written = self.overlay.write(&me(), file, attr.size, data, false);
        self.overlay.release(opened.handle);
        written.map(drop)
    }

    pub fn change(&self, path: &str, changes: Changes) -> Result<()> {
        let id = self.attr(path)?.id;
        self.overlay.setattr(&me(), id, None, &changes).map(drop)
    }

    pub fn mkdir(&self, path: &str) -> Result<()> {
        let (dir, name) = self.split(path)?;
        self.overlay.mkdir(&me(), dir, name, 0o755).map(drop)
    }

    pub fn symlink(&self, path: &str, target: &str) -> Result<()> {
        let (dir, name) = self.split(path)?;
        let made = self.overlay.symlink(&me(), dir, name, target.as_bytes());
        made.map(drop)
    }

    pub fn link(&self, old: &str, new: &str) -> Result<()> {
        let id = self.attr(old)?.id;
        let (dir, name) = self.split(new)?;
        // What the kernel looks at before it asks.
        if self.attr(new).is_ok() {
            return Err(Errno::EEXIST);
        }
        self.overlay.link(&me(), id, dir, name).map(drop)
    }

    pub fn unlink(&self, path: &str) -> Result<()> {
        let (dir, name) = self.split(path)?;
        self.overlay.unlink(&me(), dir, name)
    }

    pub fn rmdir(&self, path: &str) -> Result<()> {
        let (dir, name) = self.split(path)?;
        self.overlay.rmdir(&me(), dir, name)
    }

    pub fn rename(&self, old: &str, new: &str, flags: u32) -> Result<()> {
        // The order in which the kernel looks at both.
        let (from, to) = (self.split(old)?, self.split(new)?);
        self.attr(old)?;
        self.overlay.rename(&me(), from, to, flags)
    }
}
