//! A machine with mounts of its own: commands in a mount namespace that ends with them. Owns how a
//! world's user gets one.

use super::call::{Call, Done};
use super::world::{World, binary};

/// Both drivers, for tests that try each.
pub const DRIVERS: [&str; 2] = ["overlayfs", "fuse"];

/// What `status --json` says of a layer's driver.
#[track_caller]
pub fn driver_of(status: &serde_json::Value, layer: &str) -> String {
    let layers = status["boundary"]["layers"].as_array().expect("layers");
    let found = layers.iter().find(|l| l["name"] == layer);
    let found = found.unwrap_or_else(|| panic!("no layer {layer}: {status:#}"));
    found["driver"].as_str().expect("a driver").to_owned()
}

impl World {
    /// Runs a script in the workspace in a mount namespace of its own, in which it may mount; an
    /// ordinary user is root of a user namespace there. `$PV` is the binary. `None`, with the reason
    /// printed, where that is not possible.
    #[track_caller]
    pub fn in_mounts(&self, script: &str) -> Option<Done> {
        let flags = if self.user.is_root() { "-m" } else { "-Urm" };
        let mut probe = self.command("unshare");
        probe.args([flags, "true"]);
        if Call::new(probe).done().status != Some(0) {
            eprintln!(
                "skipped: {}: unshare {flags} is not possible here",
                self.test
            );
            return None;
        }
        let mut command = self.command("unshare");
        command.args([flags, "sh", "-c"]);
        // The directory is entered again once something may be mounted on it.
        let again = format!("cd {} && {script}", self.workspace.display());
        command.arg(again.replace(
            "mount -t tmpfs none . &&",
            "mount -t tmpfs none \"$PWD\" && cd \"$PWD\" &&",
        ));
        command.env("PV", binary()).current_dir(&self.workspace);
        Some(Call::new(command).done())
    }
}
