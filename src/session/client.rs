//! The client's end of a session's socket. Owns the connection and the matching of replies; keeps
//! no state of the session (who wants one applies the updates to a `SessionState`).

use std::collections::HashMap;
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use crate::protocol::codec;
use crate::protocol::{ClientMessage, Failure, Hello, Reply, Request, ServerMessage, Welcome};

/// Why a session could not be reached, or was lost.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens there.
    #[error(
        "connecting to the session at {}: {source}",
        crate::text::visible_path(path)
    )]
    Connect {
        /// The socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the session server was lost: {0}")]
    Lost(#[from] io::Error),
    /// The server ended the connection.
    #[error("the session server has closed the connection")]
    Closed,
    /// The server did not carry out a request.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Who waits for which reply; `None` once nothing is read any more.
type Waiting = Arc<Mutex<Option<HashMap<u64, Sender<Result<Reply, Failure>>>>>>;

/// A connection to a session server. Requests may come from any thread.
pub struct Client {
    stream: Mutex<UnixStream>,
    next: AtomicU64,
    waiting: Waiting,
    messages: Receiver<ServerMessage>,
    reader: Option<JoinHandle<()>>,
}

impl Client {
    /// Connects, greets and starts the reading thread.
    pub fn connect(socket: &Path, hello: Hello) -> Result<(Self, Welcome), ClientError> {
        let mut stream = super::socket::connect(socket).map_err(|source| ClientError::Connect {
            path: socket.into(),
            source,
        })?;
        codec::write(&mut stream, &ClientMessage::Hello(hello))?;
        let mut input = BufReader::new(stream.try_clone()?);
        let welcome = match codec::read(&mut input)? {
            Some(ServerMessage::Welcome(welcome)) => *welcome,
            Some(ServerMessage::Refused(failure)) => return Err(failure.into()),
            _ => return Err(ClientError::Closed),
        };
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (out, messages) = unbounded();
        let for_reader = Arc::clone(&waiting);
        let reader = std::thread::Builder::new()
            .name("client-reader".into())
            .spawn(move || {
                while let Ok(Some(message)) = codec::read(&mut input) {
                    if let ServerMessage::Reply(id, result) = message {
                        let waiter = lock(&for_reader).as_mut().and_then(|w| w.remove(&id));
                        if let Some(waiter) = waiter {
                            let _ = waiter.send(result);
                        }
                    } else if out.send(message).is_err() {
                        break;
                    }
                }
                // Dropping the senders wakes everybody who still waits.
                *lock(&for_reader) = None;
            })?;
        let client = Self {
            stream: Mutex::new(stream),
            next: AtomicU64::new(1),
            waiting,
            messages,
            reader: Some(reader),
        };
        Ok((client, welcome))
    }

    /// Updates, output and snapshots in the order the server sent them. Closed when the connection
    /// is lost.
    pub fn messages(&self) -> &Receiver<ServerMessage> {
        &self.messages
    }

    /// Sends a request whose reply is not waited for.
    pub fn send(&self, request: Request) -> Result<(), ClientError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut stream = lock(&self.stream);
        codec::write(&mut *stream, &ClientMessage::Request(id, request))?;
        Ok(())
    }

    /// Sends a request; the reply arrives on the returned channel, which closes without one when
    /// the connection is lost.
    pub fn ask(&self, request: Request) -> Result<Receiver<Result<Reply, Failure>>, ClientError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (out, reply) = bounded(1);
        match &mut *lock(&self.waiting) {
            Some(waiting) => waiting.insert(id, out),
            None => return Err(ClientError::Closed),
        };
        let mut stream = lock(&self.stream);
        codec::write(&mut *stream, &ClientMessage::Request(id, request))?;
        Ok(reply)
    }

    /// Sends a request and waits for its reply.
    pub fn call(&self, request: Request) -> Result<Reply, ClientError> {
        let reply = self.ask(request)?;
        Ok(reply.recv().map_err(|_| ClientError::Closed)??)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = lock(&self.stream).shutdown(Shutdown::Both);
        // Whoever gave up a connection may fork next, and must be one thread then.
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
