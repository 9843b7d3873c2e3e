//! Mode `host`: a plain process under supervision. Owns its start; nothing is staged, and the
//! boundary says so.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::unistd::{ForkResult, fork};

use super::agent::{Confinement, Guards, Program, Streams};
use super::failure::{Doing, Failure, shown};
use super::helper::pidfd_open;
use super::limits::Bounds;
use super::spec::Network;
use super::start::{AgentIo, Lines, Started};
use super::supervisor::{Reach, Supervisor};
use super::wire::Hardening;
use super::{Boundary, Mode, SandboxSpec, Stdio, namespace};
use crate::pty::Pty;

/// Starts the command as a child of a supervisor of its own.
pub(super) fn start(spec: &SandboxSpec) -> Result<Started, Failure> {
    let program = Program::new(&spec.command, &spec.env)?;
    let bounds = Bounds::of(spec);
    let program = program.guarded(Guards::of(spec, bounds.entrance()?));
    let lines = Lines::new(spec.stdio)?;
    let (master, streams) = match (spec.stdio, lines.inherited_pipes) {
        (Stdio::Pty(size), _) => {
            let pty = Pty::open(Path::new("/dev/ptmx"), size).doing("opening a terminal")?;
            (Some(pty.master), Streams::Terminal(pty.slave))
        }
        (Stdio::Pipes, Some(pipes)) => (None, Streams::Pipes(pipes)),
        (Stdio::Pipes, None) => return Err(Failure::new("connecting pipes", "there are none")),
    };
    if spec.network != Network::Host {
        return Err(Failure::new(
            "cutting the network off",
            "a command in mode host shares the network of this machine",
        )
        .hint("use `--net host`, or mode staged"));
    }
    let supervisor = Supervisor {
        reach: Reach::Group,
        reports: lines.inherited_reports,
        orders: lines.inherited_orders,
        lifeline: None,
        renamer: None,
        timeout: spec.timeout,
        files: None,
    };
    // SAFETY: the caller promises that this process has one thread, so the child may do anything.
    let child = match unsafe { fork() }.doing("forking the supervisor")? {
        ForkResult::Child => {
            // Unwinding into the server's frames would run the server's destructors twice.
            let life = std::panic::AssertUnwindSafe(|| {
                supervise(spec, program, streams, supervisor);
            });
            let _ = std::panic::catch_unwind(life);
            namespace::leave(125)
        }
        ForkResult::Parent { child } => child,
    };
    drop((supervisor, streams, program));
    let io = match (lines.pipes, master) {
        (Some(pipes), _) => pipes,
        (None, Some(master)) => AgentIo::Pty(master),
        (None, None) => return Err(Failure::new("connecting a terminal", "there is none")),
    };
    Ok(Started {
        boundary: Boundary {
            mode: Mode::Host.name().into(),
            network: "host".into(),
            writable: vec!["/".into()],
            notes: vec![
                "nothing is staged: the command writes to this machine directly, with all of your \
                 rights"
                    .into(),
            ],
            ..Boundary::default()
        },
        io,
        reports: lines.reports,
        orders: lines.orders,
        supervisor: pidfd_open(child).doing("watching the supervisor")?,
        child: Some(child),
        bounds,
        gate: None,
    })
}

/// The supervisor's life. It is not killed along with the server: it sees the server's end as the
/// end of its orders, and then ends the command's whole group, which a mere death signal would
/// not reach.
fn supervise(spec: &SandboxSpec, program: Program, streams: Streams, supervisor: Supervisor) {
    let mut kept = vec![supervisor.reports.as_fd(), supervisor.orders.as_fd()];
    match &streams {
        Streams::Terminal(slave) => kept.push(slave.as_fd()),
        Streams::Pipes(pipes) => kept.extend(pipes.iter().map(OwnedFd::as_fd)),
    }
    kept.extend(program.kept());
    namespace::close_all_but(&kept);
    if let Err(failure) = settle(spec) {
        supervisor.fail(failure);
    }
    let hardening = Hardening {
        proc: "host".into(),
        ..Hardening::default()
    };
    supervisor.run(program, streams, Confinement::None, hardening)
}

fn settle(spec: &SandboxSpec) -> Result<(), Failure> {
    nix::unistd::setsid().doing("making a session")?;
    namespace::silence().doing("opening /dev/null")?;
    // Only for people who look at a process list.
    let _ = nix::sys::prctl::set_name(c"pvisor-host");
    // Orphans of the command come to us and are reaped.
    nix::sys::prctl::set_child_subreaper(true).doing("becoming a subreaper")?;
    nix::unistd::chdir(&spec.cwd)
        .map_err(|errno| Failure::new(format!("entering {}", shown(&spec.cwd)), errno.desc()))
}
