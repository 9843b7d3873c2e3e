//! What server, helper and the namespace's first process say to each other while a command is
//! started and run. Owns the messages and how descriptors travel with them.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::{Boundary, ExitStatus};
use crate::RelPath;
use crate::layer::{AccessError, Overwrite, UpperEntry};

/// First message of the helper: the view stands, or it does not. The first process' pidfd and, if
/// there is a terminal, its master follow.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Prepared {
    /// What is in force so far.
    View(Box<Boundary>),
    /// Nothing runs.
    Failed(Failure),
}

/// Messages of the process that supervises the command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// The command was executed, or the reason why not was told to its standard error.
    Started(Hardening),
    /// Nothing runs.
    Failed(Failure),
    /// The command has ended.
    Ended(ExitStatus),
}

/// Asks the command to end, and ends it after a while. Written in one piece, so that a pipe's reader
/// finds whole orders only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StopOrder {
    /// How long it may take.
    pub grace: Duration,
    /// What its processes are sent; `None` is what a terminal that goes away and a stop both mean,
    /// SIGHUP and SIGTERM.
    pub signal: Option<Signal>,
}

impl StopOrder {
    /// Length of one, in bytes.
    pub const LENGTH: usize = 12;

    /// Milliseconds, then the signal's number or 0.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        let millis = u64::try_from(self.grace.as_millis()).unwrap_or(u64::MAX);
        let signal = self.signal.map_or(0, |signal| signal as i32);
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&millis.to_le_bytes());
        bytes[8..].copy_from_slice(&signal.to_le_bytes());
        bytes
    }

    /// What [`StopOrder::to_bytes`] wrote.
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        let (mut millis, mut signal) = ([0; 8], [0; 4]);
        millis.copy_from_slice(&bytes[..8]);
        signal.copy_from_slice(&bytes[8..]);
        Self {
            grace: Duration::from_millis(u64::from_le_bytes(millis)),
            signal: Signal::try_from(i32::from_le_bytes(signal)).ok(),
        }
    }
}

/// What was put in force after the view was made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Hardening {
    /// See [`Boundary::proc`].
    pub proc: String,
    /// See [`Boundary::no_capabilities`].
    pub no_capabilities: bool,
    /// See [`Boundary::landlock`].
    pub landlock: Option<u32>,
    /// See [`Boundary::seccomp`].
    pub seccomp: bool,
    /// The errno with which the command was kept out of its cgroup.
    pub cgroup_refused: Option<i32>,
    /// Renames are reported to their server.
    pub renames: bool,
    /// See [`Boundary::notes`].
    pub notes: Vec<String>,
}

/// What the helper is asked; answered by a [`Answer`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    Walk(String),
    Look(String, Vec<(RelPath, bool)>),
    Open(String, RelPath),
    Restore(String, RelPath),
    Overwrite(String, RelPath, Box<Overwrite>),
    Sync(String),
    Allocated(String),
}

/// The helper's answer. A descriptor follows [`Answer::Opened`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Entries(Vec<UpperEntry>),
    Opened,
    Done,
    Bytes(u64),
    Refused(AccessError),
}

/// Sends descriptors, at least one, along with one byte.
pub(super) fn send_fds(socket: &UnixStream, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let raw: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(&[0])],
        &[ControlMessage::ScmRights(&raw)],
        MsgFlags::MSG_NOSIGNAL,
        None,
    )
    .map(drop)
}

/// Receives what [`send_fds`] sent, at most four.
pub(super) fn receive_fds(socket: &UnixStream) -> Result<Vec<OwnedFd>, Errno> {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([std::os::fd::RawFd; 4]);
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = control {
            // SAFETY: the kernel installed these descriptors for this message; nobody else owns
            // them.
            fds.extend(
                raw.into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    Ok(fds)
}
