//! The most memory of each process of a world, as the kernel keeps it (`VmHWM`, proc(5)).

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::support::{World, processes};

/// The highest peaks that were seen, in bytes, by what a process is.
#[derive(Default)]
pub struct Peaks(BTreeMap<&'static str, u64>);

impl Peaks {
    /// Does `work` and looks on. What the processes took before does not count.
    pub fn during<T>(&mut self, world: &World, work: impl FnOnce() -> T) -> T {
        for pid in processes::of(world) {
            // "Reset the peak resident set size": proc_pid_clear_refs(5).
            let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        }
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    for pid in processes::of(world) {
                        self.note(pid);
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            let done = work();
            ended.store(true, Ordering::Relaxed);
            done
        })
    }

    /// Each, and its peak.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(process, most)| (*process, *most))
    }

    fn note(&mut self, pid: i32) {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        let (Some(status), Some(line)) = (read("status"), read("cmdline")) else {
            return;
        };
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().split(' ').next().map(str::to_owned)
        };
        let process = match field("Name:").as_deref() {
            Some("pvisor-helper") => "helper",
            // The server is a fork of the `run` that began the session.
            Some("pvisor-tui") if line.contains("\0run\0") => "server",
            Some("pvisor-tui") => "client",
            _ => return,
        };
        let kibibytes = field("VmHWM:").and_then(|most| most.parse::<u64>().ok());
        let most = self.0.entry(process).or_default();
        *most = (*most).max(kibibytes.unwrap_or_default() << 10);
    }
}

impl fmt::Display for Peaks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (process, most)) in self.iter().enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{process} {} MiB", most >> 20)?;
        }
        Ok(())
    }
}
