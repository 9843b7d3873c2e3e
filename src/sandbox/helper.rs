//! The helper: a process in the session's namespaces that makes the view, starts PID 1 and then
//! reads and restores uppers for the server. Owns that loop. It is forked, never exec'ed (an exec
//! would cost it the namespace's capabilities), has one thread, and never meets the agent: it is
//! outside the PID namespace and cannot be traced from inside.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use super::agent::{Guards, Program, Streams};
use super::failure::{Doing, Failure};
use super::file_server::{self, FileServer};
use super::late::LateKeys;
use super::spec::Network;
use super::supervisor::{Reach, Supervisor};
use super::view::{self, MountedLayer, View};
use super::wire::{Answer, Prepared, Question, send_fds};
use super::{
    Boundary, Mode, SandboxSpec, Stdio, init, listening, namespace, network, overlay, shim,
};
use crate::RelPath;
use crate::fuse;
use crate::layer::direct::open_regular;
use crate::layer::{AccessError, Driver, Layer, overwrite, restore, usage, walk};
use crate::protocol::codec;
use crate::pty::Pty;

/// What the helper keeps of what it inherits; everything else is closed.
pub(super) struct Inherited {
    /// To the server.
    pub server: UnixStream,
    /// The supervisor's, see [`Supervisor`].
    pub reports: File,
    /// The supervisor's, see [`Supervisor`].
    pub orders: OwnedFd,
    /// The command's pipes, unless it gets a terminal.
    pub pipes: Option<[OwnedFd; 3]>,
    /// `cgroup.procs` of the command's own cgroup, if it has one.
    pub cgroup: Option<OwnedFd>,
    /// The file server's end of its line to the session.
    pub gate: Option<UnixStream>,
}

/// The life of the helper of a running command. `server` is the parent.
pub(super) fn run(spec: &SandboxSpec, inherited: Inherited, server: Pid) -> ! {
    let mut kept = vec![
        inherited.server.as_fd(),
        inherited.reports.as_fd(),
        inherited.orders.as_fd(),
    ];
    kept.extend(inherited.pipes.iter().flatten().map(AsFd::as_fd));
    kept.extend(inherited.cgroup.iter().map(AsFd::as_fd));
    kept.extend(inherited.gate.iter().map(AsFd::as_fd));
    namespace::close_all_but(&kept);
    let Inherited {
        server: mut socket,
        reports,
        orders,
        pipes,
        cgroup,
        gate,
    } = inherited;
    let lines = file_server::Lines {
        gate,
        log: file_server::log_of_this_process(),
    };
    let (layers, files, late, _lifeline) = match begin(
        spec,
        &socket,
        Supervision {
            reports,
            orders,
            pipes,
            cgroup,
        },
        lines,
        server,
    ) {
        Ok(started) => started,
        Err(failure) => {
            // A server that is gone needs no report.
            let _ = codec::write(&mut socket, &Prepared::Failed(failure));
            namespace::leave(125)
        }
    };
    serve(socket, &layers, files.as_ref(), late)
}

/// The life of a helper for layers that are not mounted.
pub(super) fn run_unmounted(layers: &[Layer], mut socket: UnixStream, server: Pid) -> ! {
    namespace::close_all_but(&[socket.as_fd()]);
    let opened = settle(server).and_then(|()| {
        // Where namespaces are refused, plain access is what there is: entries without
        // permissions then cannot be read, which the walk reports.
        let _ = namespace::enter(false);
        namespace::die_with_parent()?;
        namespace::check_parent(server);
        open_layers(layers)
    });
    match opened {
        Ok(layers) => {
            if codec::write(&mut socket, &Prepared::View(Box::default())).is_err() {
                namespace::leave(0);
            }
            serve(socket, &layers, None, None)
        }
        Err(failure) => {
            let _ = codec::write(&mut socket, &Prepared::Failed(failure));
            namespace::leave(125)
        }
    }
}

fn open_layers(layers: &[Layer]) -> Result<Vec<MountedLayer>, Failure> {
    layers
        .iter()
        .map(|layer| {
            let upper = layer.upper();
            std::fs::create_dir_all(&upper).doing_at("making", &upper)?;
            Ok(MountedLayer {
                name: layer.name.clone(),
                lower: overlay::open_dir(&layer.root).ok(),
                upper: overlay::open_dir(&upper).doing_at("opening", &upper)?,
                merged: None,
                driver: layer.driver,
            })
        })
        .collect()
}

/// A process of its own: tied to the server's life, out of reach of its terminal.
fn settle(server: Pid) -> Result<(), Failure> {
    namespace::die_with_parent()?;
    namespace::check_parent(server);
    nix::unistd::setsid().doing("making a session")?;
    namespace::silence().doing("opening /dev/null")?;
    // Only for people who look at a process list.
    let _ = prctl::set_name(c"pvisor-helper");
    quiet_signals().doing("setting signals")
}

/// Children that end are not waited for.
fn forget_children(first: Pid) -> Result<(), Errno> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    // SAFETY: ignoring runs no code of ours.
    unsafe { sigaction(Signal::SIGCHLD, &ignore)? };
    // Nobody reaps for us what ended before.
    let _ = waitpid(first, Some(WaitPidFlag::WNOHANG));
    Ok(())
}

/// A broken pipe is an error of the call, not the end; the server's handlers do not run here.
fn quiet_signals() -> Result<(), Errno> {
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGPIPE, Signal::SIGHUP] {
        // SAFETY: ignoring runs no code of ours.
        unsafe { sigaction(signal, &ignore)? };
    }
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in [
        // Must leave the first process in the table until it is watched.
        Signal::SIGCHLD,
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGWINCH,
    ] {
        // SAFETY: the default action runs no code of ours.
        unsafe { sigaction(signal, &default)? };
    }
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

struct Supervision {
    reports: File,
    orders: OwnedFd,
    pipes: Option<[OwnedFd; 3]>,
    cgroup: Option<OwnedFd>,
}

/// The layers, who serves those that the kernel does not merge, what hides keys that appear, and
/// PID 1's lifeline.
type Begun = (
    Vec<MountedLayer>,
    Option<FileServer>,
    Option<LateKeys>,
    OwnedFd,
);

/// Makes the view, starts PID 1 and tells the server. What is returned must live as long as the
/// helper: the other end of PID 1's lifeline.
fn begin(
    spec: &SandboxSpec,
    socket: &UnixStream,
    supervision: Supervision,
    lines: file_server::Lines,
    server: Pid,
) -> Result<Begun, Failure> {
    settle(server)?;
    let program = Program::new(&spec.command, &spec.env)?;
    let program = program.guarded(Guards::of(spec, supervision.cgroup));
    namespace::enter(true)?;
    namespace::die_with_parent()?;
    namespace::check_parent(server);
    // With the rights the agent will have at most, and before the network is left.
    let spec = &listening::hide(spec);
    if spec.network == Network::None {
        network::isolate()?;
    }
    let nesting = if spec.nested {
        Ok(())
    } else {
        namespace::forbid_nesting()
    };
    let late = LateKeys::missing(spec);
    let mut view = view::build(spec, lines)?;
    if let Err(errno) = nesting {
        view.notes.push(format!(
            "user namespaces inside are not forbidden ({}); they give no right over this one",
            errno.desc()
        ));
    }
    let served = view.reasons.iter();
    let served = served.filter(|layer| layer.driver == Driver::Fuse.name());
    let threads = fuse::threads(spec.policy.asks());
    let program = program.beside(served.count() as u64 * threads);
    // From here on nobody with the same user id can look into this process or trace it.
    prctl::set_dumpable(false).doing("closing the helper to others")?;
    namespace::die_with_parent()?;

    let renamer = renamer(spec, &mut view);

    let (master, streams) = streams(spec, supervision.pipes)?;
    let (lifeline, held) = pipe2(OFlag::O_CLOEXEC).doing("making a pipe")?;
    let supervisor = Supervisor {
        reach: Reach::Namespace,
        reports: supervision.reports,
        orders: supervision.orders,
        lifeline: Some(lifeline),
        renamer,
        timeout: spec.timeout,
        files: match &view.file_server {
            Some(files) => Some(files.line()?),
            None => None,
        },
    };
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWIPC | CloneFlags::CLONE_NEWUTS)
        .doing("making pid, ipc and uts namespaces")?;
    // SAFETY: this process has one thread, so the child may do anything.
    let first = match unsafe { fork() }.doing("forking")? {
        ForkResult::Child => {
            drop((held, master));
            namespace::close_all_but(&supervised(&supervisor, &streams, &program));
            init::run(spec, program, streams, supervisor)
        }
        ForkResult::Parent { child } => child,
    };
    drop((supervisor, streams, program));
    let pidfd = pidfd_open(first).doing("watching the first process")?;
    forget_children(first).doing("ignoring children")?;
    announce(socket, boundary(spec, &mut view), &pidfd, master.as_ref())
        .doing("answering the server")?;
    let at_home = spec.layers.iter().find(|layer| layer.root == spec.home);
    let upper = at_home.and_then(|home| view.layers.iter().find(|l| l.name == home.name));
    let upper = upper.map(|layer| layer.upper.as_fd());
    let late = match (late, view.masks.take()) {
        (Some(missing), Some(masks)) => LateKeys::watch(spec, missing, upper, masks),
        _ => None,
    };
    Ok((view.layers, view.file_server, late, held))
}

/// Starts the server of renames where one is wanted. Without it everything else works.
fn renamer(spec: &SandboxSpec, view: &mut View) -> Option<UnixStream> {
    if !spec.rename_shim {
        return None;
    }
    shim::start(spec, &view.layers).unwrap_or_else(|failure| {
        view.notes.push(format!(
            "directories of the host's cannot be renamed (EXDEV): {}: {}",
            failure.doing, failure.cause
        ));
        None
    })
}

/// What PID 1 keeps: everything but its supervision and the command's streams is the helper's.
fn supervised<'a>(
    supervisor: &'a Supervisor,
    streams: &'a Streams,
    program: &'a Program,
) -> Vec<std::os::fd::BorrowedFd<'a>> {
    let mut kept = vec![supervisor.reports.as_fd(), supervisor.orders.as_fd()];
    kept.extend(supervisor.lifeline.as_ref().map(AsFd::as_fd));
    kept.extend(program.kept());
    kept.extend(supervisor.renamer.as_ref().map(AsFd::as_fd));
    kept.extend(supervisor.files.as_ref().map(AsFd::as_fd));
    match streams {
        Streams::Terminal(slave) => kept.push(slave.as_fd()),
        Streams::Pipes(pipes) => kept.extend(pipes.iter().map(AsFd::as_fd)),
    }
    kept
}

/// The command's ends of its streams, and the server's end of a terminal.
fn streams(
    spec: &SandboxSpec,
    pipes: Option<[OwnedFd; 3]>,
) -> Result<(Option<OwnedFd>, Streams), Failure> {
    match (spec.stdio, pipes) {
        (Stdio::Pty(size), _) => {
            let pty = Pty::open(Path::new("/dev/pts/ptmx"), size).doing("opening a terminal")?;
            Ok((Some(pty.master), Streams::Terminal(pty.slave)))
        }
        (Stdio::Pipes, Some(pipes)) => Ok((None, Streams::Pipes(pipes))),
        (Stdio::Pipes, None) => Err(Failure::new("connecting pipes", "there are none")),
    }
}

fn boundary(spec: &SandboxSpec, view: &mut View) -> Boundary {
    let isolated = (spec.network == Network::None).then_some("net");
    let namespaces = ["user", "mnt", "pid", "ipc", "uts"]
        .into_iter()
        .chain(isolated);
    Boundary {
        mode: Mode::Staged.name().into(),
        namespaces: namespaces.map(String::from).collect(),
        layers: std::mem::take(&mut view.reasons),
        network: spec.network.name().into(),
        hidden: std::mem::take(&mut view.hidden),
        writable: std::mem::take(&mut view.writable),
        kept: std::mem::take(&mut view.kept),
        notes: std::mem::take(&mut view.notes),
        ..Boundary::default()
    }
}

fn announce(
    socket: &UnixStream,
    boundary: Boundary,
    pidfd: &OwnedFd,
    master: Option<&OwnedFd>,
) -> std::io::Result<()> {
    codec::write(&mut &*socket, &Prepared::View(Box::new(boundary)))?;
    let mut fds = vec![pidfd.as_fd()];
    fds.extend(master.map(AsFd::as_fd));
    send_fds(socket, &fds)?;
    Ok(())
}

/// A descriptor that stands for a process and becomes readable when it has ended.
pub(super) fn pidfd_open(pid: Pid) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes numbers only.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    // SAFETY: the descriptor was just returned to us; the kernel sets close-on-exec on it.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(fd as i32) })
}

/// Answers until the server lets go.
fn serve(
    mut socket: UnixStream,
    layers: &[MountedLayer],
    files: Option<&FileServer>,
    mut late: Option<LateKeys>,
) -> ! {
    while let Some(()) = await_question(&socket, late.as_mut())
        && let Ok(Some(question)) = codec::read::<Question>(&mut socket)
    {
        let mut opened = None;
        let answer = answer(layers, files, question, &mut opened).unwrap_or_else(Answer::Refused);
        let sent = codec::write(&mut socket, &answer).is_ok();
        let passed = opened.is_none_or(|fd| send_fds(&socket, &[fd.as_fd()]).is_ok());
        if !(sent && passed) {
            break;
        }
    }
    namespace::leave(0)
}

/// Hides keys that appear while nothing is asked. `None` when waiting has failed for good.
fn await_question(socket: &UnixStream, mut late: Option<&mut LateKeys>) -> Option<()> {
    while let Some(late) = &mut late {
        let mut polled = [
            PollFd::new(socket.as_fd(), PollFlags::POLLIN),
            PollFd::new(late.events(), PollFlags::POLLIN),
        ];
        let again = late.again();
        let timeout = again.map_or(PollTimeout::NONE, PollTimeout::from);
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return None,
        }
        let asked = polled[0].any().unwrap_or(false);
        if polled[1].any().unwrap_or(false) || again.is_some() {
            late.settle();
        }
        if asked {
            break;
        }
    }
    Some(())
}

fn answer(
    layers: &[MountedLayer],
    files: Option<&FileServer>,
    question: Question,
    opened: &mut Option<OwnedFd>,
) -> Result<Answer, AccessError> {
    let named = |name: &str| {
        layers
            .iter()
            .find(|layer| layer.name == name)
            .ok_or_else(|| AccessError::NoLayer(name.to_owned()))
    };
    Ok(match question {
        Question::Walk(layer) => {
            let layer = named(&layer)?;
            let _still = shim::still(layer)
                .map_err(|e| AccessError::io("waiting for", &RelPath::root(), &e))?;
            Answer::Entries(walk::walk_upper(layer.upper.as_fd())?)
        }
        Question::Look(layer, paths) => {
            let layer = named(&layer)?;
            let _still = shim::still(layer)
                .map_err(|e| AccessError::io("waiting for", &RelPath::root(), &e))?;
            Answer::Entries(walk::look_upper(layer.upper.as_fd(), &paths)?)
        }
        Question::Open(layer, path) => {
            *opened = Some(open_regular(named(&layer)?.upper.as_fd(), &path)?);
            Answer::Opened
        }
        Question::Restore(layer, path) => {
            let layer = named(&layer)?;
            let _still =
                shim::still(layer).map_err(|e| AccessError::io("waiting for", &path, &e))?;
            let lower = layer
                .lower
                .as_ref()
                .ok_or_else(|| refused("restoring", &path, Errno::ENOENT))?;
            match live_view(layer, files) {
                Some(merged) => restore::restore_live(lower.as_fd(), merged.as_fd(), &path)?,
                None => restore::restore_unmounted(lower.as_fd(), layer.upper.as_fd(), &path)?,
            }
            Answer::Done
        }
        Question::Overwrite(layer, path, new) => {
            let layer = named(&layer)?;
            let _still =
                shim::still(layer).map_err(|e| AccessError::io("waiting for", &path, &e))?;
            match live_view(layer, files) {
                Some(merged) => overwrite::overwrite_live(merged.as_fd(), &path, &new)?,
                None => overwrite::overwrite_unmounted(layer.upper.as_fd(), &path, &new)?,
            }
            Answer::Done
        }
        Question::Allocated(layer) => {
            let sum = usage::allocated(named(&layer)?.upper.as_fd());
            Answer::Bytes(sum.map_err(|e| AccessError::io("measuring", &RelPath::root(), &e))?)
        }
        Question::Sync(layer) => {
            let layer = named(&layer)?;
            if layer.driver == Driver::Fuse
                && let Some(merged) = &layer.merged
            {
                // What the kernel still keeps for the file server; one that has ended gets nothing.
                let _ = nix::unistd::syncfs(merged);
            }
            nix::unistd::syncfs(&layer.upper)
                .map_err(|errno| refused("syncing", &RelPath::root(), errno))?;
            Answer::Done
        }
    })
}

/// The view to write through, where there is one. That of a server which has ended is none any
/// more: nothing else can write the upper.
fn live_view<'a>(layer: &'a MountedLayer, files: Option<&FileServer>) -> Option<&'a OwnedFd> {
    let is_dead = layer.driver == Driver::Fuse && files.is_none_or(FileServer::has_ended);
    layer.merged.as_ref().filter(|_| !is_dead)
}

fn refused(doing: &str, path: &RelPath, errno: Errno) -> AccessError {
    AccessError::Io {
        doing: doing.to_owned(),
        path: path.as_path().to_owned(),
        message: errno.desc().to_owned(),
        errno: errno as i32,
    }
}
