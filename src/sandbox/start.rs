//! Starting a sandbox. Owns the order of steps from a specification to a running command, and
//! what the session holds of it afterwards.
//!
//! ```text
//! server --fork--> helper: user and mount namespace, view, then answers about uppers
//!                    +--fork--> PID 1: pid, ipc and uts namespace, /proc, reaps and reports
//!                                 +--fork--> the command: no capabilities, exec
//! ```
//!
//! Each is tied to the life of the one above, so that nothing survives a killed server. What
//! remains in reach of an agent is told in the boundary; a socket that lies in the read-only part
//! of the file system (not in `/run`, `/tmp` or among the hidden places) can be connected to.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork, getpid, pipe2};

use super::boundary::LayerBoundary;
use super::cgroup::Cgroup;
use super::failure::{Doing, Failure};
use super::helper::{self, Inherited};
use super::host;
use super::landlock;
use super::limits::Bounds;
use super::spec::TerminalSize;
use super::stage::HelperAccess;
use super::wire::{Hardening, Prepared, Report, StopOrder, receive_fds};
use super::{Boundary, ExitStatus, Mode, SandboxSpec, Stdio, choice, namespace};
use crate::layer::{Driver, Layer, StageAccess};
use crate::protocol::codec;
use crate::pty;

/// Why nothing runs.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The machine or the specification does not allow it.
    #[error("{doing}: {cause}")]
    Setup {
        /// The step, e.g. `making a user namespace`.
        doing: String,
        /// The system's words.
        cause: String,
        /// What mends it.
        hint: Option<String>,
    },
}

/// The command's side of its standard streams.
#[derive(Debug)]
pub enum AgentIo {
    /// The master of its terminal.
    Pty(OwnedFd),
    /// Its three pipes.
    Pipes {
        /// We write.
        stdin: OwnedFd,
        /// We read.
        stdout: OwnedFd,
        /// We read.
        stderr: OwnedFd,
    },
}

/// A started command.
pub struct Running {
    /// What was really put in force.
    pub boundary: Boundary,
    /// Its streams.
    pub io: AgentIo,
    /// The door to its uppers; `None` in mode `host`. Dropping the last copy ends the helper, and
    /// with it everything that still runs in the sandbox.
    pub access: Option<Arc<dyn StageAccess>>,
    /// Ends and resizes it.
    pub control: Control,
    /// Tells how it ended.
    pub exit: ExitWaiter,
    /// The file server's line to whoever answers for rules and counts accesses; only where there is
    /// something to ask or to count.
    pub gate: Option<UnixStream>,
}

/// Ends and resizes a running command. Cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct Control {
    orders: Arc<OwnedFd>,
    terminal: Option<Arc<OwnedFd>>,
}

impl Control {
    /// Asks the command to end (SIGHUP and SIGTERM to its processes), and ends its whole process
    /// tree after `grace`. In mode `host` that is its process group.
    pub fn stop(&self, grace: Duration) {
        self.order(StopOrder {
            grace,
            signal: None,
        });
    }

    /// Passes a signal on to the command's processes, and ends its whole process tree after `grace`.
    /// In mode `host` that is its process group.
    pub fn pass_on(&self, signal: Signal, grace: Duration) {
        self.order(StopOrder {
            grace,
            signal: Some(signal),
        });
    }

    fn order(&self, order: StopOrder) {
        // A command that has ended needs no stopping.
        let _ = nix::unistd::write(&*self.orders, &order.to_bytes());
    }

    /// Sets the terminal's size; the kernel tells the command. Nothing for pipes.
    pub fn resize(&self, size: TerminalSize) {
        if let Some(terminal) = &self.terminal {
            // Fails only after the terminal is gone.
            let _ = pty::resize(&**terminal, size);
        }
    }
}

/// Waits for the end of the command. Dropping it and every [`Control`] ends the command.
#[derive(Debug)]
pub struct ExitWaiter {
    reports: File,
    supervisor: OwnedFd,
    /// The supervisor's pid when it is our own child and must be reaped.
    child: Option<Pid>,
    /// The command's own cgroup, removed with the command.
    cgroup: Option<Cgroup>,
    /// Keeps the supervisor from ending as long as somebody waits.
    _orders: Arc<OwnedFd>,
}

impl ExitWaiter {
    /// Blocks until the command has ended and its whole process tree is gone (in mode `host`:
    /// until the command has ended).
    pub fn wait(mut self) -> ExitStatus {
        let status = match codec::read(&mut self.reports) {
            Ok(Some(Report::Ended(status))) => status,
            _ => ExitStatus::Lost,
        };
        // The first process of a namespace is gone only after everything in it is.
        let mut polled = [PollFd::new(self.supervisor.as_fd(), PollFlags::POLLIN)];
        while poll(&mut polled, PollTimeout::NONE) == Err(nix::errno::Errno::EINTR) {}
        if let Some(child) = self.child {
            // Somebody else may have reaped it; it has ended in any case.
            let _ = waitpid(child, None);
        }
        // Ends in mode host what the command left in it.
        drop(self.cgroup.take());
        status
    }
}

/// Both ends of everything a supervisor and its command are connected with.
pub(super) struct Lines {
    pub inherited_reports: File,
    pub inherited_orders: OwnedFd,
    pub inherited_pipes: Option<[OwnedFd; 3]>,
    pub reports: File,
    pub orders: OwnedFd,
    pub pipes: Option<AgentIo>,
}

impl Lines {
    pub fn new(stdio: Stdio) -> Result<Self, Failure> {
        let pipe = || pipe2(OFlag::O_CLOEXEC).doing("making a pipe");
        let (reports, inherited_reports) = pipe()?;
        let (inherited_orders, orders) = pipe()?;
        let (inherited_pipes, pipes) = match stdio {
            Stdio::Pty(_) => (None, None),
            Stdio::Pipes => {
                let (input, stdin) = pipe()?;
                let (stdout, output) = pipe()?;
                let (stderr, error) = pipe()?;
                let ours = AgentIo::Pipes {
                    stdin,
                    stdout,
                    stderr,
                };
                (Some([input, output, error]), Some(ours))
            }
        };
        Ok(Self {
            inherited_reports: inherited_reports.into(),
            inherited_orders,
            inherited_pipes,
            reports: reports.into(),
            orders,
            pipes,
        })
    }
}

/// A sandbox in the making. Its processes are on their way; whoever holds it has time for something
/// else until [`Starting::running`]. Dropping it ends them.
pub struct Starting(Stage);

/// How far it has come.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one, and it is moved twice"
)]
enum Stage {
    /// The helper makes the view.
    View {
        socket: UnixStream,
        helper: Pid,
        reports: File,
        orders: OwnedFd,
        pipes: Option<AgentIo>,
        bounds: Box<Bounds>,
        gate: Option<UnixStream>,
    },
    /// The supervisor executes the command.
    Command(Box<Started>),
}

/// Starts the command: [`begin`] and [`Starting::running`] in one.
pub fn start(spec: &SandboxSpec) -> Result<Running, SandboxError> {
    begin(spec)?.running()
}

/// Begins to make a sandbox and to start the command in it. **Must be called while the process has
/// one thread** (it forks children that go on without exec), and on a thread that lives as long as
/// the process (the children end with it).
pub fn begin(spec: &SandboxSpec) -> Result<Starting, SandboxError> {
    let stage = match spec.mode {
        Mode::Staged => staged(spec)?,
        Mode::Host => Stage::Command(Box::new(host::start(spec)?)),
    };
    Ok(Starting(stage))
}

impl Starting {
    /// Waits until the command was executed, or could not be.
    pub fn running(self) -> Result<Running, SandboxError> {
        let (started, access) = match self.0 {
            Stage::Command(started) => (*started, None),
            Stage::View {
                socket,
                helper,
                reports,
                orders,
                pipes,
                bounds,
                gate,
            } => {
                let (mut started, access) =
                    viewed(socket, helper, reports, orders, pipes, *bounds)?;
                // Without a file server nobody speaks on it.
                let served = |l: &LayerBoundary| l.driver == Driver::Fuse.name();
                started.gate = gate.filter(|_| started.boundary.layers.iter().any(served));
                (started, Some(access))
            }
        };
        Ok(started.running(access)?)
    }
}

fn staged(spec: &SandboxSpec) -> Result<Stage, Failure> {
    let lines = Lines::new(spec.stdio)?;
    let bounds = Bounds::of(spec);
    let cgroup = bounds.entrance()?;
    let (gate, inherited_gate) = if choice::is_guarded(spec) || !spec.policy.rules.is_empty() {
        let (ours, theirs) = UnixStream::pair().doing("making a socket pair")?;
        (Some(ours), Some(theirs))
    } else {
        (None, None)
    };
    let inherited = |server| Inherited {
        server,
        reports: lines.inherited_reports,
        orders: lines.inherited_orders,
        pipes: lines.inherited_pipes,
        cgroup,
        gate: inherited_gate,
    };
    let (socket, helper) = fork_helper(|socket, server| {
        helper::run(spec, inherited(socket), server);
    })?;
    Ok(Stage::View {
        socket,
        helper,
        reports: lines.reports,
        orders: lines.orders,
        pipes: lines.pipes,
        bounds: Box::new(bounds),
        gate,
    })
}

/// Waits until the view stands.
fn viewed(
    socket: UnixStream,
    helper: Pid,
    reports: File,
    orders: OwnedFd,
    pipes: Option<AgentIo>,
    bounds: Bounds,
) -> Result<(Started, Arc<dyn StageAccess>), Failure> {
    let (boundary, mut fds) = match hear(&socket, helper) {
        Ok((boundary, fds)) => (boundary, fds.into_iter()),
        Err(failure) => {
            let _ = waitpid(helper, None);
            return Err(failure);
        }
    };
    let access = HelperAccess::new(socket, helper);
    let lost = || Failure::new("starting the command", "the helper process was lost");
    let supervisor = fds.next().ok_or_else(lost)?;
    let io = match pipes {
        Some(pipes) => pipes,
        None => AgentIo::Pty(fds.next().ok_or_else(lost)?),
    };
    let started = Started {
        boundary,
        io,
        reports,
        orders,
        supervisor,
        child: None,
        bounds,
        gate: None,
    };
    Ok((started, Arc::new(access)))
}

/// A supervisor that was forked and has not reported yet.
pub(super) struct Started {
    pub boundary: Boundary,
    pub io: AgentIo,
    pub reports: File,
    pub orders: OwnedFd,
    pub supervisor: OwnedFd,
    pub child: Option<Pid>,
    pub bounds: Bounds,
    pub gate: Option<UnixStream>,
}

impl Started {
    /// Waits for the supervisor's word that the command was executed.
    pub fn running(mut self, access: Option<Arc<dyn StageAccess>>) -> Result<Running, Failure> {
        let hardening = match codec::read(&mut self.reports) {
            Ok(Some(Report::Started(hardening))) => hardening,
            Ok(Some(Report::Failed(failure))) => return Err(failure),
            _ => {
                let lost = "the supervising process was lost";
                return Err(Failure::new("starting the command", lost));
            }
        };
        self.boundary.limits = self.bounds.account(hardening.cgroup_refused);
        record(&mut self.boundary, hardening, access.is_some());
        let terminal = match &self.io {
            AgentIo::Pty(master) => {
                let copy = master.try_clone().doing("keeping the terminal")?;
                Some(Arc::new(copy))
            }
            AgentIo::Pipes { .. } => None,
        };
        let orders = Arc::new(self.orders);
        Ok(Running {
            boundary: self.boundary,
            io: self.io,
            access,
            gate: self.gate,
            control: Control {
                orders: Arc::clone(&orders),
                terminal,
            },
            exit: ExitWaiter {
                reports: self.reports,
                supervisor: self.supervisor,
                child: self.child,
                cgroup: self.bounds.into_cgroup(),
                _orders: orders,
            },
        })
    }
}

fn record(boundary: &mut Boundary, hardening: Hardening, staged: bool) {
    boundary.proc = hardening.proc;
    boundary.no_capabilities = hardening.no_capabilities;
    boundary.landlock = hardening.landlock;
    boundary.seccomp = hardening.seccomp;
    boundary.rename_shim = hardening.renames;
    boundary.notes.extend(hardening.notes);
    if !staged {
        return;
    }
    let abi = boundary.landlock.unwrap_or(0);
    if abi < landlock::SCOPES {
        boundary.notes.push(
            "sockets of the abstract namespace outside can be connected to: cutting them off needs \
             Landlock ABI 6 (Linux 6.12)"
                .into(),
        );
    }
    if abi < landlock::PATH_SOCKETS {
        boundary.notes.push(
            "unix sockets that are made outside later, and lie outside /run, /tmp and the hidden \
             places, can be connected to: those that listened at the start are hidden"
                .into(),
        );
    }
}

/// Forks a helper that lives in `life`; our end of the connection and its pid.
fn fork_helper(life: impl FnOnce(UnixStream, Pid)) -> Result<(UnixStream, Pid), Failure> {
    let (ours, theirs) = UnixStream::pair().doing("making a socket pair")?;
    let server = getpid();
    // SAFETY: the caller promises that this process has one thread, so the child may do anything.
    match unsafe { fork() }.doing("forking the helper")? {
        ForkResult::Child => {
            drop(ours);
            // Unwinding into the server's frames would run the server's destructors twice.
            let life = std::panic::AssertUnwindSafe(|| life(theirs, server));
            let _ = std::panic::catch_unwind(life);
            namespace::leave(125)
        }
        ForkResult::Parent { child } => Ok((ours, child)),
    }
}

/// The helper's first words.
fn hear(socket: &UnixStream, helper: Pid) -> Result<(Boundary, Vec<OwnedFd>), Failure> {
    match codec::read(&mut &*socket) {
        Ok(Some(Prepared::View(boundary))) => {
            let fds = receive_fds(socket).doing("hearing the helper")?;
            Ok((*boundary, fds))
        }
        Ok(Some(Prepared::Failed(failure))) => Err(failure),
        _ => Err(Failure::new(
            "making the sandbox",
            format!("the helper process (pid {helper}) ended unexpectedly"),
        )),
    }
}

/// The door to the uppers of layers that are not mounted: a helper process in a user namespace of
/// its own, so that the agent's mode-000 entries can be read; plain access where that is refused.
/// **Must be called while the process has one thread**, as [`start`].
pub fn open_unmounted(layers: &[Layer]) -> Result<Arc<dyn StageAccess>, SandboxError> {
    let (socket, helper) = fork_helper(|socket, server| {
        helper::run_unmounted(layers, socket, server);
    })?;
    let ready = match codec::read(&mut &socket) {
        Ok(Some(Prepared::View(_))) => Ok(()),
        Ok(Some(Prepared::Failed(failure))) => Err(failure),
        _ => Err(Failure::new(
            "reading the stage",
            "the helper process ended unexpectedly",
        )),
    };
    let access = HelperAccess::new(socket, helper);
    ready?;
    Ok(Arc::new(access))
}
