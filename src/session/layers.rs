//! What a new session stages. Owns the list of layers, their names and their directories.

use std::path::{Path, PathBuf};

use super::server::{RunRequest, StartError};
use crate::layer::{Driver, HOME, Layer, WORKSPACE, is_of_home, root};
use crate::sandbox::submounts::MountTable;
use crate::sandbox::{self, MountAccess, SandboxError, Submounts};
use crate::text::visible_path;

/// Mounts inside staged directories that become layers; the rest is shown read-only.
const MOST_SUBMOUNTS: usize = 64;

/// The staged layers, outermost first: the workspace, the home directory, each `stage` mount, and
/// what is mounted inside them. Their directories are made.
pub(super) fn make(dir: &Path, request: &RunRequest) -> Result<Vec<Layer>, StartError> {
    let mut wanted = Wanted::default();
    wanted.add(WORKSPACE, &request.workspace);
    if request.home.parent().is_some() && request.home.is_dir() {
        wanted.add(HOME, &request.home);
    }
    for mount in &request.mounts {
        if mount.access == MountAccess::Stage {
            let name = mount
                .name
                .clone()
                .unwrap_or_else(|| last_name(&mount.source));
            wanted.add(&name, &mount.source);
        }
    }
    inner_mounts(&mut wanted, request)?;
    let mut wanted = wanted.0;
    wanted.sort_by_key(|(_, root)| root.components().count());
    let layers = wanted.into_iter().map(|(name, root)| Layer {
        dir: dir.join("layers").join(file_name(&name)),
        name,
        root,
        // What merges it is decided where the machine can be tried.
        driver: Driver::Overlayfs,
    });
    let layers: Vec<Layer> = layers.collect();
    for layer in &layers {
        let failed = |e| StartError::file("making", &layer.upper(), e);
        sandbox::make_upper(&layer.upper(), &layer.root).map_err(failed)?;
        root::note(layer).map_err(failed)?;
    }
    Ok(layers)
}

/// Names and roots, each of both once.
#[derive(Default)]
struct Wanted(Vec<(String, PathBuf)>);

impl Wanted {
    fn add(&mut self, name: &str, root: &Path) {
        if self.0.iter().any(|(_, known)| known == root) {
            return;
        }
        let taken = |name: &str| self.0.iter().any(|(n, _)| n == name);
        let mut unique = name.to_owned();
        let mut count = 1;
        while taken(&unique) {
            count += 1;
            unique = format!("{name}-{count}");
        }
        self.0.push((unique, root.to_owned()));
    }
}

/// Adds what is mounted inside the layers so far, or refuses it.
fn inner_mounts(wanted: &mut Wanted, request: &RunRequest) -> Result<(), StartError> {
    let table = MountTable::read()
        .map_err(|e| StartError::other("reading", Path::new("/proc/self/mountinfo"), e))?;
    // A directory that the person mounted something on is not seen by the agent as it is.
    let covered = |point: &Path| {
        let covers = |m: &&crate::sandbox::MountSpec| {
            m.access != MountAccess::Stage && point.starts_with(&m.target)
        };
        request.mounts.iter().any(|m| covers(&m))
            || request.spec.hide.iter().any(|h| point.starts_with(h))
    };
    let mut added = 0;
    for (name, root) in wanted.0.clone() {
        let mut closed: Vec<PathBuf> = Vec::new();
        for mount in table.below(&root) {
            let inside_closed = closed.iter().any(|c| mount.point.starts_with(c));
            if covered(&mount.point) || inside_closed {
                continue;
            }
            if request.submounts == Submounts::Refuse && !is_of_home(&name) {
                return Err(SandboxError::Setup {
                    doing: format!("staging {}", visible_path(&root)),
                    cause: format!(
                        "{} is mounted inside it, and --submounts refuse is set",
                        visible_path(&mount.point)
                    ),
                    hint: Some("unmount it, or take `--submounts stage` or `read`".into()),
                }
                .into());
            }
            let staged = request.submounts == Submounts::Stage
                && added < MOST_SUBMOUNTS
                && mount.unstageable().is_none();
            if staged {
                added += 1;
                let last = last_name(&mount.point);
                let name = if is_of_home(&name) {
                    format!("{HOME}/{last}")
                } else {
                    last
                };
                wanted.add(&name, &mount.point);
            } else {
                closed.push(mount.point);
            }
        }
    }
    Ok(())
}

/// A layer's name after the last component of its root.
fn last_name(root: &Path) -> String {
    let last = root.file_name().unwrap_or_default().to_string_lossy();
    // A name is told to people, and stands before a colon and a path.
    let plain = |c: char| {
        if c == ':' || c == '/' || c.is_control() {
            '_'
        } else {
            c
        }
    };
    last.chars().map(plain).collect()
}

/// The layer's directory: its name where that is a safe file name, else something like it.
fn file_name(layer: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut name: String = layer
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    if name.starts_with('.') {
        name.insert(0, '_');
    }
    name
}
