//! A mount of the overlay in namespaces of its own: one process works in it, one serves it. Owns
//! both and what they tell each other.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork, getegid, geteuid};
use pvisor::fuse::{Options, mount_options, serve};
use pvisor::layer::{Driver, Layer};
use pvisor::overlay::{self, Guard, Overlay, Sources, Unguarded};
use pvisor::policy::{Gate, Policy, builtin};
use pvisor::sandbox::spec::CacheMode;

use crate::Sample;
use crate::work::{STEPS, Scale, wait};

/// What is said where the machine has no FUSE.
pub const NO_FUSE: &str = "no fuse";

/// A tree, with or without an overlay over it.
pub struct Mounted {
    base: PathBuf,
    /// Name of the layer's directory and what is cached.
    over: Option<(String, CacheMode)>,
}

/// Ends a mount, in this process's own namespace.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

impl Mounted {
    /// A copy of the tree itself.
    pub fn not(base: &Path) -> Self {
        Self {
            base: base.to_owned(),
            over: None,
        }
    }

    /// The tree under an overlay; `name` is nobody else's.
    pub fn over(base: &Path, name: &str, cache: CacheMode) -> Result<Self, String> {
        for dir in ["upper", "work", "merged"] {
            fs::create_dir_all(base.join(name).join(dir)).map_err(|e| e.to_string())?;
        }
        Ok(Self {
            base: base.to_owned(),
            over: Some((name.to_owned(), cache)),
        })
    }

    /// Does all the steps in a child, which is alone with its mount.
    pub fn work(&self, scale: &Scale) -> Result<Vec<Sample>, String> {
        let (mut ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
        // SAFETY: this process has one thread.
        let child = match unsafe { fork() }.map_err(|e| e.to_string())? {
            ForkResult::Child => {
                drop(ours);
                let told = match self.child(scale) {
                    Ok(samples) => samples,
                    Err(why) => format!("failed {why}\n"),
                };
                let _ = (&theirs).write_all(told.as_bytes());
                std::process::exit(0);
            }
            ForkResult::Parent { child } => child,
        };
        drop(theirs);
        let mut told = String::new();
        ours.read_to_string(&mut told).map_err(|e| e.to_string())?;
        waitpid(child, None).map_err(|e| e.to_string())?;
        if let Some(why) = told.strip_prefix("failed ") {
            return Err(why.trim().to_owned());
        }
        Ok(told.lines().map(parse).collect())
    }

    fn child(&self, scale: &Scale) -> Result<String, String> {
        let Some((name, cache)) = &self.over else {
            let copy = self.base.join("native");
            let _ = fs::remove_dir_all(&copy);
            let status = std::process::Command::new("cp")
                .arg("-a")
                .args([self.base.join("lower"), copy.clone()])
                .status();
            if !status.is_ok_and(|status| status.success()) {
                return Err("copying the tree".into());
            }
            return steps(&copy, scale, &mut String::new);
        };
        let own = self.base.join(name);
        let (asks, tells) = UnixStream::pair().map_err(|e| e.to_string())?;
        self.mount(&own, *cache, tells).map_err(|e| match e {
            Errno::ENODEV | Errno::ENOENT | Errno::ENXIO => NO_FUSE.to_owned(),
            other => format!("mounting: {other}"),
        })?;
        // The server lives in the mount's namespace: the mount has to go for it to end.
        let _mount = Unmount(own.join("merged"));
        let mut heard = BufReader::new(asks.try_clone().map_err(|e| e.to_string())?);
        steps(&own.join("merged"), scale, &mut || {
            let mut line = String::new();
            let asked = (&asks).write_all(b"?");
            if asked.is_ok() && heard.read_line(&mut line).is_ok() {
                line.truncate(line.trim_end().len());
            }
            line
        })
    }

    /// Mounts in namespaces of this process's own; a further child serves.
    fn mount(&self, own: &Path, cache: CacheMode, tells: UnixStream) -> Result<(), Errno> {
        let (user, group) = (geteuid(), getegid());
        let mut namespaces = CloneFlags::CLONE_NEWNS;
        if !user.is_root() {
            namespaces |= CloneFlags::CLONE_NEWUSER;
        }
        unshare(namespaces)?;
        if !user.is_root() {
            let write = |file: &str, text: String| fs::write(file, text).map_err(|_| Errno::EPERM);
            write("/proc/self/setgroups", "deny".to_owned())?;
            write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            write("/proc/self/gid_map", format!("{group} {group} 1"))?;
        }
        let nothing = None::<&str>;
        let private = MsFlags::MS_PRIVATE | MsFlags::MS_REC;
        mount(nothing, "/", nothing, private, nothing)?;
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = |path: &Path| open(path, flags, Mode::empty());
        let sources = Sources {
            layer: "workspace".to_owned(),
            lower: dir(&self.base.join("lower"))?,
            upper: dir(&own.join("upper"))?,
            work: dir(&own.join("work"))?,
        };
        let device = open("/dev/fuse", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
        let options: Vec<String> = mount_options(device.as_fd(), user.as_raw(), group.as_raw())
            .into_iter()
            .map(|(name, value)| match (name.to_string_lossy(), value) {
                (name, Some(value)) => format!("{name}={}", value.to_string_lossy()),
                (name, None) => name.into_owned(),
            })
            .collect();
        let attributes = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let options = options.join(",");
        let merged = own.join("merged");
        let fuse = Some("fuse");
        mount(Some("pvisor"), &merged, fuse, attributes, Some(&*options))?;
        // SAFETY: this process has one thread.
        if let ForkResult::Child = unsafe { fork() }? {
            let behaviour = overlay::Options {
                one_id: !user.is_root(),
                immutable_lower: cache != CacheMode::Default,
                ..overlay::Options::default()
            };
            let guard = self.guard(own, cache);
            let served = Overlay::new(sources, behaviour, guard).and_then(|overlay| {
                let counting = overlay.counting();
                std::thread::spawn(move || tell(&tells, &counting));
                let options = Options {
                    cache,
                    ..Options::default()
                };
                serve(device, overlay, options)
            });
            std::process::exit(i32::from(served.is_err()));
        }
        Ok(())
    }

    /// The built-in rules by default, none where what is cached would go past them.
    fn guard(&self, own: &Path, cache: CacheMode) -> Arc<dyn Guard> {
        if cache == CacheMode::Extended {
            return Arc::new(Unguarded);
        }
        let layer = Layer {
            name: "workspace".into(),
            root: self.base.join("lower"),
            dir: own.to_owned(),
            driver: Driver::Fuse,
        };
        let policy = Policy {
            rules: builtin(&[]),
            ..Policy::default()
        };
        let (session, theirs) = UnixStream::pair().expect("a pair of sockets");
        // Nobody reads it; it lasts as long as the process.
        std::mem::forget(session);
        Arc::new(Gate::new(&policy, &[layer], false, theirs).expect("the built-in rules"))
    }
}

/// Answers each byte with the counters as they are.
fn tell(line: &UnixStream, counting: &overlay::Counting) {
    while let Ok(1) = (&mut &*line).read(&mut [0]) {
        let now = counting.now();
        let mut text = format!(
            "statx={} cached={} cpu-us={}",
            now.physical_stats,
            now.cache_hits,
            processor_time().as_micros()
        );
        for (opcode, count) in now.requests {
            let _ = write!(text, " {opcode}={count}");
        }
        text.push('\n');
        if (&*line).write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn processor_time() -> Duration {
    let clock = nix::libc::CLOCK_PROCESS_CPUTIME_ID;
    let mut time = nix::libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one timespec, which outlives it.
    unsafe { nix::libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// A line for each step: seconds, then what was counted meanwhile.
fn steps(top: &Path, scale: &Scale, count: &mut dyn FnMut() -> String) -> Result<String, String> {
    let mut told = String::new();
    for step in &STEPS {
        wait(step);
        let before = parse(&format!("0 {}", count())).counted;
        let begun = Instant::now();
        if !(step.run)(top, scale) {
            return Err(format!("{} went wrong", step.name));
        }
        let seconds = begun.elapsed().as_secs_f64();
        told.push_str(&seconds.to_string());
        for (what, now) in parse(&format!("0 {}", count())).counted {
            let was = before.get(&what).copied().unwrap_or_default();
            let _ = write!(told, " {what}={}", now.saturating_sub(was));
        }
        told.push('\n');
    }
    Ok(told)
}

fn parse(line: &str) -> Sample {
    let mut words = line.split(' ');
    let seconds = words.next().and_then(|word| word.parse().ok());
    let counted: BTreeMap<String, u64> = words
        .filter_map(|word| word.split_once('='))
        .filter_map(|(what, count)| Some((what.to_owned(), count.parse().ok()?)))
        .collect();
    Sample {
        seconds: seconds.unwrap_or(f64::NAN),
        counted,
    }
}
