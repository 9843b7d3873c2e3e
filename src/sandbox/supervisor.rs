//! The process above the command: PID 1 of its namespace, or a plain supervisor in mode `host`.
//! Owns reaping, stopping, the time limit and the report of how the command ended.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, sigaction};
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{ForkResult, Pid, fork, pipe2};

use super::ExitStatus;
use super::agent::{Confinement, Program, Streams, drop_capabilities, told};
use super::failure::{Doing, Failure};
use super::namespace::{self, leave};
use super::wire::{Hardening, Report, StopOrder};
use crate::protocol::codec;

/// How long a command may take to end after its time limit.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);

/// How long killed processes may wait for an answer of the file server.
const ANSWER_GRACE: Duration = Duration::from_secs(1);

/// Whom signals are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Everything in this PID namespace; its end is the end of all.
    Namespace,
    /// The command's process group.
    Group,
}

/// What a supervisor has in hand.
pub(super) struct Supervisor {
    /// Whom signals are for.
    pub reach: Reach,
    /// Reports go here.
    pub reports: File,
    /// The server's orders, see [`StopOrder`]. Its end is the server's end.
    pub orders: OwnedFd,
    /// Its end is the helper's end.
    pub lifeline: Option<OwnedFd>,
    /// The way to the server of renames, see [`super::shim`]. Its end is that server's end, without
    /// which no rename would work any more.
    pub renamer: Option<UnixStream>,
    /// The time limit.
    pub timeout: Option<Duration>,
    /// To the file server: its end is the end of the command, a byte is its own.
    pub files: Option<UnixStream>,
}

impl Supervisor {
    /// Tells that nothing runs, and ends.
    pub fn fail(mut self, failure: Failure) -> ! {
        // A server that is gone needs no report.
        let _ = codec::write(&mut self.reports, &Report::Failed(failure));
        leave(125)
    }

    /// Runs `program` to its end.
    pub fn run(
        mut self,
        program: Program,
        streams: Streams,
        confinement: Confinement,
        mut hardening: Hardening,
    ) -> ! {
        let launched = self.launch(program, streams, confinement, &mut hardening);
        let (signals, main, not_executed) = match launched {
            Ok(started) => started,
            Err(failure) => self.fail(failure),
        };
        let _ = codec::write(&mut self.reports, &Report::Started(hardening));
        let status = self.wait(&signals, main);
        let status = match (status, not_executed) {
            (ExitStatus::Code(code), true) => ExitStatus::NotExecuted(code),
            (status, _) => status,
        };
        self.leave_nobody_waiting();
        let _ = codec::write(&mut self.reports, &Report::Ended(status));
        leave(0)
    }

    /// Forks the command and waits until it was executed or could not be.
    fn launch(
        &self,
        program: Program,
        streams: Streams,
        confinement: Confinement,
        hardening: &mut Hardening,
    ) -> Result<(SignalFd, Pid, bool), Failure> {
        let signals = watch_children().doing("watching children")?;
        let (told, tell) = pipe2(OFlag::O_CLOEXEC).doing("making a pipe")?;
        // SAFETY: this process has one thread, so the child may do anything.
        let main = match unsafe { fork() }.doing("forking")? {
            ForkResult::Child => {
                program.become_it(streams, confinement, self.renamer.as_ref(), tell.into())
            }
            ForkResult::Parent { child } => child,
        };
        drop(tell);
        if confinement == Confinement::Full {
            // The first process signals and reaps, which takes no right of a capability; the
            // command below it could not use one, but nothing inside shall hold any.
            drop_capabilities()?;
            namespace::die_with_parent()?;
        }
        // Only the command holds its ends: their end is its end.
        drop(streams);
        let mut message = Vec::new();
        File::from(told)
            .read_to_end(&mut message)
            .doing("starting the command")?;
        let mut rest = message.as_slice();
        hardening.no_capabilities = confinement == Confinement::Full;
        while let [what, value, tail @ ..] = rest {
            match *what {
                told::RENAMES => hardening.renames = true,
                told::LANDLOCK => hardening.landlock = Some(u32::from(*value)),
                told::SECCOMP => hardening.seccomp = true,
                told::NO_CGROUP => hardening.cgroup_refused = Some(i32::from(*value)),
                _ => break,
            }
            rest = tail;
        }
        if self.renamer.is_some() && !hardening.renames {
            hardening.notes.push(
                "directories of the host's cannot be renamed (EXDEV): helping with that needs \
                 Linux 5.19"
                    .into(),
            );
        }
        match rest {
            [] => Ok((signals, main, false)),
            [told::NOT_EXECUTED, _] => Ok((signals, main, true)),
            [_, failure @ ..] => Err(postcard::from_bytes(failure)
                .unwrap_or_else(|_| Failure::new("starting the command", "the child was lost"))),
        }
    }

    /// Reaps until the command has ended, obeying orders meanwhile.
    fn wait(&mut self, signals: &SignalFd, main: Pid) -> ExitStatus {
        let mut limit = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut last_call = None;
        let mut timed_out = false;
        let mut files_lost = false;
        // When whoever still waits for an answer gets none any more.
        let mut last_answer: Option<Instant> = None;
        loop {
            if let Some(status) = reap(main) {
                if self.reach == Reach::Group && last_call.is_some() {
                    self.signal(main, &[Signal::SIGKILL]);
                }
                return if files_lost {
                    ExitStatus::FilesLost
                } else if timed_out {
                    ExitStatus::TimedOut
                } else {
                    status
                };
            }
            let due = [limit, last_call, last_answer].into_iter().flatten().min();
            match self.next_order(signals, due) {
                Order::Nothing => {}
                Order::FilesLost => {
                    files_lost = true;
                    self.files = None;
                    self.signal(main, &[Signal::SIGKILL]);
                }
                Order::Stop(StopOrder { grace, signal }) => {
                    match signal {
                        Some(signal) => self.signal(main, &[signal, Signal::SIGCONT]),
                        None => {
                            self.signal(main, &[Signal::SIGHUP, Signal::SIGTERM, Signal::SIGCONT]);
                        }
                    }
                    last_call = Some(Instant::now() + grace);
                }
                Order::RenamerLost => {
                    self.signal(main, &[Signal::SIGKILL]);
                    self.end_files();
                    return ExitStatus::RenamerLost;
                }
                Order::Abandoned => {
                    self.signal(main, &[Signal::SIGKILL]);
                    self.end_files();
                    leave(0);
                }
            }
            let now = Instant::now();
            if last_call.is_some_and(|at| at <= now) {
                self.signal(main, &[Signal::SIGKILL]);
                last_call = None;
                limit = None;
                last_answer = Some(now + ANSWER_GRACE);
            } else if last_answer.is_some_and(|at| at <= now) {
                last_answer = None;
                self.end_files();
            } else if limit.is_some_and(|at| at <= now) {
                timed_out = true;
                limit = None;
                self.signal(main, &[Signal::SIGTERM, Signal::SIGCONT]);
                last_call = Some(now + TIMEOUT_GRACE);
            }
        }
    }

    /// A process that waits for the file server cannot be killed until it is answered
    /// (request_wait_answer() in fs/fuse/dev.c).
    fn end_files(&self) {
        if let Some(mut files) = self.files.as_ref() {
            // Gone already: then nobody waits.
            let _ = files.write_all(&[0]);
        }
    }

    /// Ends what the command left behind; the first process' end would wait for it.
    fn leave_nobody_waiting(&self) {
        if self.files.is_none() || self.reach != Reach::Namespace {
            return;
        }
        // Nobody but this process may be left.
        let _ = kill(Pid::from_raw(-1), Signal::SIGKILL);
        let until = Instant::now() + ANSWER_GRACE;
        while has_children() {
            if Instant::now() >= until {
                self.end_files();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn signal(&self, main: Pid, signals: &[Signal]) {
        let target = match self.reach {
            // Everybody but PID 1 itself.
            Reach::Namespace => Pid::from_raw(-1),
            Reach::Group => Pid::from_raw(-main.as_raw()),
        };
        for signal in signals {
            // Nobody left to hear it is what a stop wants.
            let _ = kill(target, *signal);
        }
    }

    /// Sleeps until a child changed, an order came, somebody we depend on ended, or `due`.
    fn next_order(&mut self, signals: &SignalFd, due: Option<Instant>) -> Order {
        let timeout = due.map_or(PollTimeout::NONE, |due| {
            let left = due.saturating_duration_since(Instant::now());
            // Rounded up: waking early would spin until the moment has come.
            let millis = left.as_micros().div_ceil(1000);
            PollTimeout::from(u16::try_from(millis).unwrap_or(u16::MAX))
        });
        let mut polled: Vec<PollFd<'_>> = [signals.as_fd(), self.orders.as_fd()]
            .into_iter()
            .chain(self.lifeline.as_ref().map(AsFd::as_fd))
            .chain(self.renamer.as_ref().map(AsFd::as_fd))
            .chain(self.files.as_ref().map(AsFd::as_fd))
            .map(|fd: BorrowedFd<'_>| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        if poll(&mut polled, timeout).is_err() {
            return Order::Nothing;
        }
        let ready = |index: usize| polled.get(index).and_then(PollFd::any).unwrap_or(false);
        // In the order in which they were chained above.
        let mut next = 2;
        let mut ended = |there: bool| {
            let index = next;
            next += usize::from(there);
            there && ready(index)
        };
        let helper_gone = ended(self.lifeline.is_some());
        let renamer_gone = ended(self.renamer.is_some());
        if helper_gone {
            return Order::Abandoned;
        }
        if renamer_gone {
            return Order::RenamerLost;
        }
        if ended(self.files.is_some()) {
            return Order::FilesLost;
        }
        let ordered = ready(1);
        if ready(0) {
            // One record may stand for several children; `reap` looks at all of them.
            let _ = signals.read_signal();
        }
        if ordered {
            return read_order(&self.orders);
        }
        Order::Nothing
    }
}

enum Order {
    Nothing,
    Stop(StopOrder),
    Abandoned,
    FilesLost,
    RenamerLost,
}

fn read_order(orders: &OwnedFd) -> Order {
    let mut bytes = [0; StopOrder::LENGTH];
    match nix::unistd::read(orders, &mut bytes) {
        Ok(StopOrder::LENGTH) => Order::Stop(StopOrder::from_bytes(bytes)),
        Err(Errno::EINTR | Errno::EAGAIN) => Order::Nothing,
        // Nobody can give orders any more.
        _ => Order::Abandoned,
    }
}

/// Children end as signals in a descriptor, whatever was set up before the fork.
fn watch_children() -> Result<SignalFd, Errno> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: the default action runs no code of ours.
    unsafe { sigaction(Signal::SIGCHLD, &default)? };
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.thread_block()?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
}

/// Whether a child is left; reaps those that have ended.
fn has_children() -> bool {
    // SAFETY: no status is asked for; numbers only.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
    Errno::last() != Errno::ECHILD
}

/// Reaps everything that has ended; the status of `main` if it was among them.
fn reap(main: Pid) -> Option<ExitStatus> {
    let mut ended = None;
    loop {
        let mut status = 0;
        // SAFETY: the status is written through a pointer valid for the call. (The wrapped form
        // knows no real-time signals and would lose a command that one of them ended.)
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid <= 0 {
            return ended;
        }
        if pid == main.as_raw() && libc::WIFEXITED(status) {
            ended = Some(ExitStatus::Code(libc::WEXITSTATUS(status) as u8));
        } else if pid == main.as_raw() && libc::WIFSIGNALED(status) {
            ended = Some(ExitStatus::Signal(libc::WTERMSIG(status)));
        }
    }
}
