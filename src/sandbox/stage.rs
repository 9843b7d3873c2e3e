//! The server's side of the helper. Owns the connection and the helper's life; one question at a
//! time.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::unistd::Pid;

use super::wire::{Answer, Question, receive_fds};
use crate::RelPath;
use crate::layer::{AccessError, Overwrite, StageAccess, UpperEntry};
use crate::protocol::codec;

/// Asks the helper. Dropping it ends the helper, and with it every process of the sandbox.
#[derive(Debug)]
pub(super) struct HelperAccess {
    socket: Mutex<UnixStream>,
    helper: Pid,
}

impl HelperAccess {
    /// Takes over a helper that has said that it is ready.
    pub fn new(socket: UnixStream, helper: Pid) -> Self {
        Self {
            socket: Mutex::new(socket),
            helper,
        }
    }

    fn lock(&self) -> MutexGuard<'_, UnixStream> {
        // A panic between question and answer leaves the stream out of step; the next read then
        // fails, which is reported as such.
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self, question: &Question) -> Result<(Answer, Option<OwnedFd>), AccessError> {
        let mut socket = self.lock();
        codec::write(&mut *socket, question).map_err(|_| AccessError::HelperGone)?;
        let answer = codec::read(&mut *socket);
        match answer.ok().flatten().ok_or(AccessError::HelperGone)? {
            Answer::Refused(error) => Err(error),
            Answer::Opened => {
                let fds = receive_fds(&socket).map_err(|_| AccessError::HelperGone)?;
                Ok((Answer::Opened, fds.into_iter().next()))
            }
            answer => Ok((answer, None)),
        }
    }
}

impl StageAccess for HelperAccess {
    fn walk(&self, layer: &str) -> Result<Vec<UpperEntry>, AccessError> {
        match self.ask(&Question::Walk(layer.to_owned()))? {
            (Answer::Entries(entries), _) => Ok(entries),
            _ => Err(AccessError::HelperGone),
        }
    }

    fn look(&self, layer: &str, paths: &[(RelPath, bool)]) -> Result<Vec<UpperEntry>, AccessError> {
        match self.ask(&Question::Look(layer.to_owned(), paths.to_vec()))? {
            (Answer::Entries(entries), _) => Ok(entries),
            _ => Err(AccessError::HelperGone),
        }
    }

    fn open(&self, layer: &str, path: &RelPath) -> Result<OwnedFd, AccessError> {
        let (_, fd) = self.ask(&Question::Open(layer.to_owned(), path.clone()))?;
        fd.ok_or(AccessError::HelperGone)
    }

    fn restore(&self, layer: &str, path: &RelPath) -> Result<(), AccessError> {
        self.ask(&Question::Restore(layer.to_owned(), path.clone()))
            .map(drop)
    }

    fn overwrite(&self, layer: &str, path: &RelPath, new: &Overwrite) -> Result<(), AccessError> {
        let question = Question::Overwrite(layer.to_owned(), path.clone(), Box::new(new.clone()));
        self.ask(&question).map(drop)
    }

    fn allocated(&self, layer: &str) -> Result<u64, AccessError> {
        match self.ask(&Question::Allocated(layer.to_owned()))? {
            (Answer::Bytes(bytes), _) => Ok(bytes),
            _ => Err(AccessError::HelperGone),
        }
    }

    fn sync(&self, layer: &str) -> Result<(), AccessError> {
        self.ask(&Question::Sync(layer.to_owned())).map(drop)
    }
}

impl Drop for HelperAccess {
    fn drop(&mut self) {
        // The helper ends when the connection does.
        let _ = self.lock().shutdown(std::net::Shutdown::Both);
        // It may have been waited for elsewhere; what matters is that it is gone.
        let _ = nix::sys::wait::waitpid(self.helper, None);
    }
}
