//! The process that serves the layers which the kernel does not merge. Owns its life: what it is
//! forked from, what it keeps and gives up, how others see that it has ended.
//!
//! It has a mount namespace of its own, in which its mounts do not exist: it can never wait for
//! itself. It outlives neither the helper nor, with requests open, the command.

use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{ForkResult, Pid, fork, getpid};

use super::failure::{Doing, Failure};
use super::fence::Fence;
use super::rights::{Right, keep_only};
use super::spec::CacheMode;
use super::{fuse_mount, namespace, overlay};
use crate::RelPath;
use crate::fuse;
use crate::layer::Layer;
use crate::overlay::{Guard, Options, Overlay, Sources, Unguarded};
use crate::policy::{Gate, Policy};
use crate::protocol::codec;

/// One layer it serves.
pub(super) struct Served {
    /// Which.
    pub layer: Layer,
    /// Where requests for it arrive.
    pub device: OwnedFd,
    /// What the kernel may keep of its answers.
    pub cache: CacheMode,
    /// Places in it that are not the layer's.
    pub fences: Vec<RelPath>,
}

/// What of a specification it acts on.
#[derive(Clone, Copy, Default)]
pub(super) struct Rules<'a> {
    /// Rules on paths.
    pub policy: Option<&'a Policy>,
    /// Whether every access is counted.
    pub observe: bool,
    /// The most that each upper may hold, in bytes.
    pub budget: Option<u64>,
}

/// What it is given of the session's.
#[derive(Default)]
pub(super) struct Lines {
    /// To whoever answers for rules and counts accesses.
    pub gate: Option<UnixStream>,
    /// The session's log.
    pub log: Option<OwnedFd>,
}

/// A running file server, as the helper holds it.
pub(super) struct FileServer {
    /// Its end is the file server's end; a byte ends it at once.
    line: UnixStream,
}

impl FileServer {
    /// Forks it and waits until it can answer. The caller has one thread, in the session's user and
    /// mount namespace, and has put none of the mounts in place yet.
    pub fn start(rules: &Rules<'_>, served: Vec<Served>, lines: Lines) -> Result<Self, Failure> {
        let (ours, theirs) = UnixStream::pair().doing("making a socket pair")?;
        let helper = getpid();
        // SAFETY: this process has one thread, so the child may do anything.
        match unsafe { fork() }.doing("forking the file server")? {
            ForkResult::Child => {
                drop(ours);
                // Unwinding into the helper's frames would run the helper's destructors.
                let life =
                    std::panic::AssertUnwindSafe(|| live(rules, served, lines, &theirs, helper));
                let _ = std::panic::catch_unwind(life);
                namespace::leave(1)
            }
            ForkResult::Parent { .. } => {}
        }
        drop((theirs, served, lines));
        match codec::read::<Result<(), Failure>>(&mut &ours) {
            Ok(Some(Ok(()))) => Ok(Self { line: ours }),
            Ok(Some(Err(failure))) => Err(failure),
            _ => Err(Failure::new(
                "starting the file server",
                "it ended before it could answer",
            )
            .hint("the session's server.log may say more")),
        }
    }

    /// A file server of one layer that is mounted nowhere, and the root of what it serves.
    pub fn for_trial(layer: Layer) -> Result<(Self, OwnedFd), Failure> {
        let mount = fuse_mount::new()?;
        let served = Served {
            layer,
            device: mount.device,
            cache: CacheMode::Default,
            fences: Vec::new(),
        };
        let server = Self::start(&Rules::default(), vec![served], Lines::default())?;
        let merged = overlay::merged(&mount.mount).doing("opening what a file server serves")?;
        Ok((server, merged))
    }

    /// A second hold on it, for PID 1: it ends the command when the file server has ended, and the
    /// file server when a killed command waits for an answer.
    pub fn line(&self) -> Result<UnixStream, Failure> {
        self.line.try_clone().doing("watching the file server")
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut polled = [PollFd::new(self.line.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}

/// The session's log, where standard error is a file: never a caller's terminal.
pub(super) fn log_of_this_process() -> Option<OwnedFd> {
    let stderr = std::io::stderr();
    let kind = fstat(&stderr).ok()?.st_mode & libc::S_IFMT;
    (kind == SFlag::S_IFREG.bits())
        .then(|| stderr.as_fd().try_clone_to_owned().ok())
        .flatten()
}

/// Rights over files of others, since the agent's own are checked by the kernel before.
const RIGHTS: [Right; 7] = [
    Right::Chown,
    Right::DacOverride,
    Right::DacReadSearch,
    Right::Fowner,
    Right::Fsetid,
    Right::Mknod,
    Right::Setfcap,
];

/// The file server's life.
fn live(rules: &Rules<'_>, served: Vec<Served>, lines: Lines, line: &UnixStream, helper: Pid) -> ! {
    let prepared = prepare(rules, served, lines, line, helper);
    let (ready, answer) = match prepared {
        Ok(servers) => (Some(servers), Ok(())),
        Err(failure) => (None, Err(failure)),
    };
    let told = codec::write(&mut &*line, &answer);
    let Some(servers) = ready.filter(|_| told.is_ok()) else {
        namespace::leave(1);
    };
    for server in servers {
        let started = std::thread::Builder::new()
            .name("files".into())
            .spawn(move || {
                let name = server.name.clone();
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.run()));
                match ended {
                    Ok(Ok(())) => tracing::debug!(layer = name, "the mount is gone"),
                    Ok(Err(error)) => {
                        let error = error.to_string();
                        let error = crate::text::visible(error.as_bytes());
                        tracing::error!(layer = name, %error, "the file server has failed");
                    }
                    // The hook has told.
                    Err(_) => {}
                }
                // A layer without its server is an agent without its files.
                namespace::leave(1);
            });
        if let Err(error) = started {
            tracing::error!(%error, "starting a thread of the file server");
            namespace::leave(1);
        }
    }
    // Whatever comes, a word or the end of everybody who could say one, means the same.
    let _ = (&*line).read(&mut [0]);
    namespace::leave(0)
}

/// Everything that can fail, before anybody depends on it.
fn prepare(
    rules: &Rules<'_>,
    served: Vec<Served>,
    lines: Lines,
    line: &UnixStream,
    helper: Pid,
) -> Result<Vec<LayerServer>, Failure> {
    namespace::die_with_parent()?;
    namespace::check_parent(helper);
    // Only for people who look at a process list.
    let _ = prctl::set_name(c"pvisor-files");
    log_to(lines.log.as_ref()).doing("opening the log")?;
    close_the_rest(&served, &lines, line);
    unshare(CloneFlags::CLONE_NEWNS).doing("making a mount namespace")?;
    // What is mounted on this machine from now on is not seen.
    nix::mount::mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )
    .doing("making mounts private")?;
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // What it has is enough for a start.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    keep_only(&RIGHTS)?;
    prctl::set_no_new_privs().doing("setting no_new_privs")?;
    prctl::set_dumpable(false).doing("closing the file server to others")?;
    // A change of credentials loosens the tie.
    namespace::die_with_parent()?;
    namespace::check_parent(helper);
    let budget = rules.budget;
    let guard = guard(rules, &served, lines.gate)?;
    let servers = served
        .into_iter()
        .map(|served| LayerServer::open(budget, served, Arc::clone(&guard), helper))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(servers)
}

/// Panics and errors go to the session's log, with everything an agent named made visible.
fn log_to(log: Option<&OwnedFd>) -> Result<(), Errno> {
    if let Some(log) = log {
        nix::unistd::dup2_stderr(log)?;
    }
    std::panic::set_hook(Box::new(|info| {
        let text = info.to_string();
        let text = crate::text::visible(text.as_bytes());
        tracing::error!("the file server has panicked: {text}");
    }));
    Ok(())
}

fn close_the_rest(served: &[Served], lines: &Lines, line: &UnixStream) {
    let mut kept: Vec<BorrowedFd<'_>> = vec![line.as_fd()];
    kept.extend(served.iter().map(|served| served.device.as_fd()));
    kept.extend(lines.gate.as_ref().map(AsFd::as_fd));
    kept.extend(lines.log.as_ref().map(AsFd::as_fd));
    namespace::close_all_but(&kept);
}

/// The rules of the session, as far as there are any. Starts threads where there are: what belongs to
/// a thread must be settled before.
fn guard(
    rules: &Rules<'_>,
    served: &[Served],
    gate: Option<UnixStream>,
) -> Result<Arc<dyn Guard>, Failure> {
    let (Some(policy), Some(gate)) = (rules.policy, gate) else {
        return Ok(Arc::new(Unguarded));
    };
    let layers: Vec<Layer> = served.iter().map(|served| served.layer.clone()).collect();
    match Gate::new(policy, &layers, rules.observe, gate) {
        Ok(gate) => Ok(Arc::new(gate)),
        Err(error) => Err(Failure::new(
            "putting the rules in force",
            error.to_string(),
        )),
    }
}

/// One layer, ready to be served.
struct LayerServer {
    name: String,
    device: OwnedFd,
    overlay: Overlay,
    options: fuse::Options,
}

impl LayerServer {
    /// Opens the layer's directories in this process' own mount namespace.
    fn open(
        budget: Option<u64>,
        served: Served,
        guard: Arc<dyn Guard>,
        helper: Pid,
    ) -> Result<Self, Failure> {
        let Served {
            layer,
            device,
            cache,
            fences,
        } = served;
        let guard = Arc::new(Fence::new(guard, fences, helper.as_raw().unsigned_abs()));
        let (upper, work) = (layer.upper(), layer.work());
        let work = overlay::fresh_work(&work).doing_at("making a work directory in", &layer.dir)?;
        let sources = Sources {
            layer: layer.name.clone(),
            lower: overlay::open_dir(&layer.root).doing_at("opening", &layer.root)?,
            upper: overlay::open_dir(&upper).doing_at("opening", &upper)?,
            work: overlay::open_dir(&work).doing_at("opening", &work)?,
        };
        let options = Options {
            budget,
            immutable_lower: cache != CacheMode::Default,
            // The sandbox's namespace maps the caller's alone.
            one_id: true,
        };
        let overlay = Overlay::new(sources, options, guard)
            .doing_at("looking at the layer of", &layer.root)?;
        Ok(Self {
            name: layer.name,
            device,
            overlay,
            options: fuse::Options {
                cache,
                ..fuse::Options::default()
            },
        })
    }

    /// Answers until the mount is gone.
    fn run(self) -> std::io::Result<()> {
        fuse::serve(self.device, self.overlay, self.options)
    }
}
