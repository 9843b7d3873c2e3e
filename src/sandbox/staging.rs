//! The staged layers of a view. Owns what is probed of each, who merges it, and what becomes of
//! mounts inside it; where they are put is the view's.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::boundary::LayerBoundary;
use super::choice::{self, Facts, Verdict};
use super::failure::{Doing, Failure, shown};
use super::file_server::{FileServer, Rules, Served};
use super::fuse_mount::{self, FuseMount};
use super::mount_api::{READ_ONLY, TAME};
use super::place::{Inside, Place};
use super::submounts::{MountTable, Submount};
use super::view::{MountedLayer, View};
use super::{SandboxSpec, overlay, ownership, probe};
use crate::layer::{Driver, HOME, Layer, root};

/// A layer that is merged, before its view can be opened.
struct Merged {
    name: String,
    mount: OwnedFd,
    lower: OwnedFd,
    upper: OwnedFd,
    driver: Driver,
}

/// See the module.
#[derive(Default)]
pub(super) struct Staging {
    merged: Vec<Merged>,
    served: Vec<Served>,
}

/// What was probed of one layer.
struct Probed<'a> {
    layer: &'a Layer,
    below: Vec<Submount>,
    facts: Facts,
}

impl Staging {
    /// Probes every layer, decides, and mounts what is to be staged.
    pub fn prepare(
        spec: &SandboxSpec,
        masks: &[PathBuf],
        view: &mut View,
        places: &mut Vec<Place>,
    ) -> Result<Self, Failure> {
        let table = MountTable::read().doing("reading /proc/self/mountinfo")?;
        let probed = spec
            .layers
            .iter()
            .map(|layer| probe_layer(layer, &table))
            .collect::<Result<Vec<_>, _>>()?;
        let mut refused = None;
        let mut verdicts = decide(spec, &probed, None)?;
        let mut first = None;
        if verdicts.iter().any(is_fuse) {
            match fuse_mount::new() {
                Ok(mount) => first = Some(mount),
                Err(failure) => {
                    verdicts = decide(spec, &probed, Some(&failure))?;
                    refused = Some(failure);
                }
            }
        }
        let mut staging = Self::default();
        for (probed, verdict) in probed.iter().zip(verdicts) {
            match verdict {
                Verdict::ReadOnly { reason } => {
                    view.notes.push(format!(
                        "{} is read-only: {reason}",
                        if probed.layer.name == HOME {
                            "the home directory".into()
                        } else {
                            shown(&probed.layer.root)
                        }
                    ));
                    show_unstaged(probed.layer, reason, view)?;
                }
                Verdict::Staged { driver, reason } => {
                    view.reasons.push(LayerBoundary {
                        name: probed.layer.name.clone(),
                        driver: driver.name().into(),
                        reason,
                    });
                    if driver == Driver::Overlayfs {
                        view.notes.extend(ownership::remark(probed.layer));
                        staging.by_kernel(probed.layer, places)?;
                    } else {
                        let mount = match first.take() {
                            Some(mount) => mount,
                            None => fuse_mount::new()?,
                        };
                        staging.by_server(spec, probed.layer, masks, mount, places)?;
                    }
                    show_inner(probed, spec, view, places)?;
                }
            }
        }
        if let Some(failure) = refused {
            tracing::debug!(cause = failure.cause, "no file server");
        }
        Ok(staging)
    }

    fn by_kernel(&mut self, layer: &Layer, places: &mut Vec<Place>) -> Result<(), Failure> {
        let overlay = overlay::mount(layer)?;
        places.push(Place {
            target: layer.root.clone(),
            mount: overlay.mount.try_clone().doing("keeping an overlay")?,
            inside: Inside::Staged(opened_dir(layer)?),
        });
        self.merged.push(Merged {
            name: layer.name.clone(),
            mount: overlay.mount,
            lower: overlay.lower,
            upper: overlay.upper,
            driver: Driver::Overlayfs,
        });
        Ok(())
    }

    fn by_server(
        &mut self,
        spec: &SandboxSpec,
        layer: &Layer,
        masks: &[PathBuf],
        mount: FuseMount,
        places: &mut Vec<Place>,
    ) -> Result<(), Failure> {
        let upper = layer.upper();
        overlay::make_upper(&upper, &layer.root).doing_at("making", &upper)?;
        let opened = overlay::open_dir(&upper).doing_at("opening", &upper)?;
        probe::holds_marks(opened.as_fd(), &layer.dir)?;
        places.push(Place {
            target: layer.root.clone(),
            mount: mount.mount.try_clone().doing("keeping a mount")?,
            inside: Inside::Staged(opened_dir(layer)?),
        });
        let kept_apart = masks.iter().filter_map(|mask| layer.relative(mask));
        self.served.push(Served {
            layer: layer.clone(),
            device: mount.device,
            cache: choice::cache_of(spec, layer),
            fences: kept_apart.filter(|path| !path.is_root()).collect(),
        });
        self.merged.push(Merged {
            name: layer.name.clone(),
            mount: mount.mount,
            lower: overlay::open_dir(&layer.root).doing_at("opening", &layer.root)?,
            upper: opened,
            driver: Driver::Fuse,
        });
        Ok(())
    }

    /// Starts the file server, if a layer needs one. Before the first place is put: a path into its
    /// mount is answered by it.
    pub fn serve(
        &mut self,
        spec: &SandboxSpec,
        lines: super::file_server::Lines,
    ) -> Result<Option<FileServer>, Failure> {
        let served = std::mem::take(&mut self.served);
        if served.is_empty() {
            return Ok(None);
        }
        let rules = Rules {
            policy: Some(&spec.policy),
            observe: spec.observe,
            budget: spec.limits.stage,
        };
        FileServer::start(&rules, served, lines).map(Some)
    }

    /// Opens the merged views, once they are in place.
    pub fn finish(self, view: &mut View) -> Result<(), Failure> {
        for merged in self.merged {
            let open = overlay::merged(&merged.mount).doing("opening a merged view")?;
            view.layers.push(MountedLayer {
                name: merged.name,
                lower: Some(merged.lower),
                upper: merged.upper,
                merged: Some(open),
                driver: merged.driver,
            });
        }
        Ok(())
    }
}

/// The layer's own directory, for notes made once the host's tree is read-only.
fn opened_dir(layer: &Layer) -> Result<Rc<OwnedFd>, Failure> {
    let dir = overlay::open_dir(&layer.dir).doing_at("opening", &layer.dir)?;
    Ok(Rc::new(dir))
}

fn is_fuse(verdict: &Verdict) -> bool {
    matches!(
        verdict,
        Verdict::Staged {
            driver: Driver::Fuse,
            ..
        }
    )
}

fn decide(
    spec: &SandboxSpec,
    probed: &[Probed<'_>],
    refused: Option<&Failure>,
) -> Result<Vec<Verdict>, Failure> {
    probed
        .iter()
        .map(|probed| choice::choose(spec, probed.layer, &probed.facts, refused))
        .collect()
}

fn probe_layer<'a>(layer: &'a Layer, table: &MountTable) -> Result<Probed<'a>, Failure> {
    let doing = || format!("staging {}", shown(&layer.root));
    if layer.root.parent().is_none() {
        return Err(Failure::new(doing(), "the whole machine cannot be staged"));
    }
    root::check(layer).map_err(|e| Failure::new(doing(), e.to_string()))?;
    let below = table.below(&layer.root);
    let unfit = [layer.upper(), layer.dir.clone()]
        .iter()
        .find_map(|dir| overlay::open_dir(dir).ok())
        .and_then(|dir| probe::unfit(dir.as_fd()));
    Ok(Probed {
        layer,
        facts: Facts {
            unfit: unfit.map(|(name, reason)| format!("{name}, {reason}")),
            below: below.iter().map(|mount| mount.point.clone()).collect(),
        },
        below,
    })
}

/// A layer that is seen but not staged.
fn show_unstaged(layer: &Layer, reason: String, view: &mut View) -> Result<(), Failure> {
    view.reasons.push(LayerBoundary {
        name: layer.name.clone(),
        driver: "read-only".into(),
        reason,
    });
    std::fs::create_dir_all(layer.upper()).doing_at("making", &layer.upper())?;
    view.layers.push(MountedLayer {
        name: layer.name.clone(),
        lower: overlay::open_dir(&layer.root).ok(),
        upper: overlay::open_dir(&layer.upper()).doing_at("opening", &layer.upper())?,
        merged: None,
        driver: layer.driver,
    });
    Ok(())
}

/// Mounts inside a staged layer that are no layers themselves: shown, not written.
fn show_inner(
    probed: &Probed<'_>,
    spec: &SandboxSpec,
    view: &mut View,
    places: &mut Vec<Place>,
) -> Result<(), Failure> {
    let mut shown_already: Vec<&Path> = Vec::new();
    for mount in &probed.below {
        let point = mount.point.as_path();
        let within = |outer: &Path| point.starts_with(outer);
        // The innermost layer around it answers for it.
        let deeper = spec.layers.iter().any(|l| {
            l.root != probed.layer.root && l.root.starts_with(&probed.layer.root) && within(&l.root)
        });
        let asked = spec.mounts.iter().any(|m| within(&m.target));
        if deeper || asked || shown_already.iter().any(|outer| within(outer)) {
            continue;
        }
        shown_already.push(point);
        let attributes = READ_ONLY | TAME;
        places.push(Place::bind(
            point,
            point.to_owned(),
            attributes,
            Inside::Foreign,
        )?);
        let why = mount
            .unstageable()
            .map_or_else(String::new, |why| format!(": {why}"));
        view.notes.push(format!(
            "{} is mounted inside {} and shown read-only{why}",
            shown(point),
            shown(&probed.layer.root),
        ));
    }
    Ok(())
}
