//! The bound on what is staged (`--stage-max`). Owns the thread that looks again and again at what
//! the uppers hold while the command runs; what follows is the session's business.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use super::event::Event;
use crate::layer::{Layer, StageAccess};
use crate::sandbox::Boundary;

/// Shortest pause between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// Share of the time that a look may take: one part of so many.
const SHARE: u32 = 20;

/// The bound the session is to hold, in bytes.
pub(super) fn of(boundary: &Boundary) -> Option<u64> {
    let stage = boundary.limits.iter().find(|limit| limit.name == "stage")?;
    stage.by.as_ref().map(|_| stage.value)
}

/// Starts the thread. It ends after it has told once, and when nobody holds `access` any more.
pub(super) fn watch(
    limit: u64,
    layers: &[Layer],
    access: &Arc<dyn StageAccess>,
    events: Sender<Event>,
) -> std::io::Result<()> {
    let names: Vec<String> = layers.iter().map(|layer| layer.name.clone()).collect();
    let access = Arc::downgrade(access);
    thread::Builder::new()
        .name("stage-limit".into())
        .spawn(move || {
            while let Some((used, took)) = look(&names, &access) {
                if used > limit {
                    let _ = events.send(Event::StageFull { used, limit });
                    return;
                }
                thread::sleep(PAUSE.max(took * SHARE));
            }
        })?;
    Ok(())
}

/// The sum over all layers, and how long it took; `None` when the session has let go of the uppers.
fn look(names: &[String], access: &Weak<dyn StageAccess>) -> Option<(u64, Duration)> {
    let access = access.upgrade()?;
    let begun = Instant::now();
    let mut used = 0u64;
    for name in names {
        match access.allocated(name) {
            Ok(bytes) => used = used.saturating_add(bytes),
            Err(error) => {
                tracing::warn!(layer = name, %error, "measuring an upper");
                return None;
            }
        }
    }
    Some((used, begun.elapsed()))
}
