//! A file system of some gigabytes in a loop file, with a world's directories on it, unmounted when
//! it is dropped. Only root can mount one where a session can be led from.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::mount::{MntFlags, umount2};

use super::support::{World, capability};
use capability::Capability;

/// How large it appears; only what is written takes room.
const SIZE: &str = "8G";

/// See the module.
pub struct Disk {
    /// Where it is mounted.
    pub path: PathBuf,
}

impl Disk {
    /// Mounts one in the world and moves the world's state there, as a person has it whose home and
    /// whose work are on one file system; `None`, with the reason printed, where that cannot be done.
    pub fn mount(world: &mut World, kind: &str) -> Option<Self> {
        let path = world.root.join("disk");
        let mounted = Self::try_mount(world, path, kind);
        let probed = mounted.as_ref().map(|_| ()).map_err(Clone::clone);
        let have = capability::decide(&world.test, Capability::SmallDisk, probed);
        let disk = mounted.ok().filter(|_| have)?;
        world.state = disk.path.join("state");
        fs::create_dir(&world.state).expect("a new directory");
        world.own(&world.state, 0o700);
        Some(disk)
    }

    fn try_mount(world: &World, path: PathBuf, kind: &str) -> Result<Self, String> {
        if !nix::unistd::geteuid().is_root() {
            return Err("only root can mount one where a session can be led from".into());
        }
        fs::create_dir(&path).map_err(|e| e.to_string())?;
        let at = path.to_str().ok_or("a path that is not text")?;
        let image = format!("{at}.img");
        call("truncate", &["-s", SIZE, &image])?;
        call(&format!("mkfs.{kind}"), &["-q", &image])?;
        call("mount", &["-o", "loop", &image, at])?;
        let disk = Self { path };
        world.own(&disk.path, 0o755);
        Ok(disk)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // A server may still look at it for a second: the mount goes now, the rest with it.
        let _ = umount2(&self.path, MntFlags::MNT_DETACH);
    }
}

fn call(program: &str, args: &[&str]) -> Result<(), String> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let done = Command::new(program).args(args).env("PATH", path).output();
    let done = done.map_err(|e| format!("{program}: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    let failed = || format!("{program}: {}", said.trim());
    done.status.success().then_some(()).ok_or_else(failed)
}
