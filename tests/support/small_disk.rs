//! A file system of a few megabytes in a world, unmounted when the test ends. Only root can mount
//! one where a session can be led from.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, umount2};

use super::capability::{self, Capability};
use super::world::World;

/// What is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Memory.
    Tmpfs,
    /// A file with an ext4 in it.
    Ext4,
}

/// A mounted file system of 4 MB that belongs to the world's user.
pub struct SmallDisk {
    /// Where it is mounted.
    pub path: PathBuf,
}

impl SmallDisk {
    /// Mounts one; `None`, with the reason printed, where that cannot be done.
    pub fn mount(world: &World, name: &str, kind: Kind) -> Option<Self> {
        let path = world.root.join(name);
        if nix::unistd::geteuid().is_root() {
            std::fs::create_dir(&path).expect("a new directory");
        }
        Self::mount_at(world, path, kind)
    }

    /// As [`SmallDisk::mount`], over a directory that is there.
    pub fn mount_at(world: &World, path: PathBuf, kind: Kind) -> Option<Self> {
        let mounted = Self::try_mount(world, path, kind);
        let probed = mounted.as_ref().map(|_| ()).map_err(Clone::clone);
        capability::decide(&world.test, Capability::SmallDisk, probed).then_some(mounted.ok()?)
    }

    fn try_mount(world: &World, path: PathBuf, kind: Kind) -> Result<Self, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("only root can mount one where a session can be led from".into());
        }
        let at = path.to_str().ok_or("a path that is not text")?;
        match kind {
            Kind::Tmpfs => run("mount", &["-t", "tmpfs", "-o", "size=4m", "none", at])?,
            Kind::Ext4 => {
                let image = format!("{at}.img");
                let image = Some(image.as_str()).ok_or("a path that is not text")?;
                run("truncate", &["-s", "4M", image])?;
                run("mkfs.ext4", &["-q", "-m", "0", image])?;
                run("mount", &["-o", "loop", image, at])?;
            }
        }
        let disk = Self { path };
        let _ = std::fs::remove_dir(disk.path.join("lost+found"));
        world.own(&disk.path, 0o755);
        Ok(disk)
    }

    /// Bytes that an ordinary user may still write.
    pub fn free(&self) -> u64 {
        let fs = nix::sys::statvfs::statvfs(&self.path).expect("it is mounted");
        fs.blocks_available() * fs.fragment_size()
    }

    /// Fills it up, but for `room` bytes.
    pub fn fill(&self, room: u64) {
        let _ = Command::new("dd")
            .args(["if=/dev/zero", "bs=4096", "status=none"])
            .arg(format!("of={}", self.path.join("filler").display()))
            .stderr(std::process::Stdio::null())
            .status();
        assert!(self.free() < 4096 * 4, "{} bytes are left", self.free());
        let filler = std::fs::OpenOptions::new()
            .write(true)
            .open(self.path.join("filler"));
        let filler = filler.expect("just written");
        let size = filler.metadata().expect("stat").len();
        filler.set_len(size - room).expect("shorter");
    }

    /// Its path as an argument.
    pub fn arg(&self) -> &str {
        self.path.to_str().expect("checked when it was made")
    }

    /// Entries below a directory of it.
    pub fn entries(&self, dir: impl AsRef<Path>) -> usize {
        std::fs::read_dir(self.path.join(dir)).map_or(0, Iterator::count)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A server may still look at it for a second: the mount goes now, the rest with it.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let done = Command::new(program)
        .args(args)
        .env("PATH", path)
        .output()
        .map_err(|e| format!("{program}: {e}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!(
        "{program}: {}",
        String::from_utf8_lossy(&done.stderr).trim()
    ))
}
