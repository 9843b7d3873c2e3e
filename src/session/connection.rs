//! One client's connection to a session's server. Owns who is let in, the two threads of each client,
//! and the translation of messages into events; decides nothing.

use std::io::{self, BufReader, BufWriter};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::Sender;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Uid, User};

use super::backlog::Backlog;
use super::event::{ClientId, Event};
use super::outbox::{Gate, Outbox};
use crate::protocol::{
    ClientMessage, Failure, Hello, PROTOCOL_VERSION, Request, Role, ServerMessage, codec,
};

/// Pause before the next client when one could not be accepted (too many open files).
const REFUSED: Duration = Duration::from_millis(50);

/// Accepts clients for as long as the process lives.
pub(super) fn accept(
    listener: UnixListener,
    gate: &Arc<Gate>,
    backlog: &Arc<Backlog>,
    events: Sender<Event>,
) -> io::Result<()> {
    let (gate, backlog) = (Arc::clone(gate), Arc::clone(backlog));
    let own: Arc<str> = user_name(Uid::effective()).into();
    thread::Builder::new()
        .name("accept".into())
        .spawn(move || {
            for (number, stream) in (1..).zip(listener.incoming()) {
                let stream = match stream {
                    Ok(stream) => stream,
                    Err(error) => {
                        tracing::error!(%error, "accepting a client");
                        thread::sleep(REFUSED);
                        continue;
                    }
                };
                let (gate, backlog) = (Arc::clone(&gate), Arc::clone(&backlog));
                let (events, own) = (events.clone(), Arc::clone(&own));
                let spawned = thread::Builder::new()
                    .name(format!("client-{number}"))
                    .spawn(move || {
                        if let Err(error) =
                            connection(number, stream, &own, gate, &backlog, &events)
                        {
                            tracing::debug!(number, %error, "a client's connection broke");
                        }
                    });
                if let Err(error) = spawned {
                    tracing::error!(%error, "starting a client's thread");
                }
            }
        })?;
    Ok(())
}

fn user_name(uid: Uid) -> String {
    User::from_uid(uid)
        .ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}

/// Reads one client's requests; its writer has a thread of its own. `own` is the server's user.
fn connection(
    number: ClientId,
    stream: UnixStream,
    own: &str,
    gate: Arc<Gate>,
    backlog: &Backlog,
    events: &Sender<Event>,
) -> io::Result<()> {
    let peer = getsockopt(&stream, PeerCredentials)?;
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = BufWriter::new(stream);
    let uid = Uid::from_raw(peer.uid());
    if uid != Uid::effective() && !uid.is_root() {
        let failure = Failure::Other("the session belongs to another user".into());
        return codec::write(&mut output, &ServerMessage::Refused(failure));
    }
    if is_confined(Path::new("/proc"), peer.pid()) {
        let failure = Failure::Other("a session is not led from inside a sandbox".into());
        return codec::write(&mut output, &ServerMessage::Refused(failure));
    }
    let Some(ClientMessage::Hello(hello)) = codec::read(&mut input)? else {
        return Ok(());
    };
    if hello.version != PROTOCOL_VERSION {
        let failure = Failure::Version {
            server: PROTOCOL_VERSION,
            client: hello.version,
        };
        return codec::write(&mut output, &ServerMessage::Refused(failure));
    }
    let outbox = Arc::new(Outbox::new(is_lossless(&hello), gate));
    let user = if uid == Uid::effective() {
        own.to_owned()
    } else {
        user_name(uid)
    };
    let queue = Arc::clone(&outbox);
    let joined = Event::Joined {
        client: number,
        user,
        hello,
        outbox,
    };
    if events.send(joined).is_err() {
        return Ok(());
    }
    let caught_up = events.clone();
    thread::Builder::new()
        .name(format!("client-{number}-out"))
        .spawn(move || {
            queue.drain(&mut output, || {
                let _ = caught_up.send(Event::CaughtUp(number));
            });
            let _ = output.get_ref().shutdown(std::net::Shutdown::Both);
        })?;
    let result = loop {
        match codec::read(&mut input) {
            Ok(Some(ClientMessage::Request(id, request))) => {
                let is_input = matches!(request, Request::Input(_));
                if events
                    .send(Event::Requested {
                        client: number,
                        id,
                        request,
                    })
                    .is_err()
                {
                    break Ok(());
                }
                if is_input && !backlog.hold(input.get_ref()) {
                    break Ok(());
                }
            }
            Ok(_) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let _ = events.send(Event::Left(number));
    result
}

/// Whether the process is in another user namespace than this one, as every agent is: an agent that
/// finds a way to the socket of some session must not be able to approve its own work there. A
/// process that is gone counts as one. Whoever is in a namespace made below this one can be looked
/// at; where that is not allowed, it is an ordinary process that keeps itself closed.
fn is_confined(proc: &Path, pid: i32) -> bool {
    let namespace = |pid: &str| nix::sys::stat::stat(&proc.join(pid).join("ns/user"));
    match (namespace("self"), namespace(&pid.to_string())) {
        (Ok(ours), Ok(theirs)) => (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino),
        (_, Err(nix::Error::ENOENT | nix::Error::ESRCH)) => true,
        _ => false,
    }
}

/// A client that stands for the command's own output must not miss a byte.
fn is_lossless(hello: &Hello) -> bool {
    hello.output && hello.size.is_none() && hello.role == Role::Driver
}
