//! A headless run in progress: the test talks with the agent's script over its standard streams,
//! so that both always know where the other is.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use super::call::{self, Call, Done};
use super::wait::PATIENCE;
use super::world::World;

/// A running agent.
pub struct Live {
    /// The client.
    pub child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Receiver<Vec<u8>>,
    what: String,
}

impl Live {
    /// Starts a script in the world's workspace.
    #[track_caller]
    pub fn start(world: &World, flags: &[&str], script: &str) -> Self {
        Self::of(world.run_with(flags, script))
    }

    /// Starts a prepared call.
    #[track_caller]
    pub fn of(call: Call) -> Self {
        let (mut child, what) = call.spawn();
        let stdout = child.stdout.take().expect("piped");
        let (out, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if out.send(line).is_err() {
                    break;
                }
            }
        });
        Self {
            stdin: child.stdin.take(),
            stderr: call::collect(child.stderr.take().expect("piped")),
            lines,
            child,
            what,
        }
    }

    /// Waits until the agent prints exactly this line.
    #[track_caller]
    pub fn hear(&mut self, expected: &str) {
        let mut heard = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line == expected => return,
                Ok(line) => heard.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    panic!(
                        "{}: no {expected:?} within {PATIENCE:?}, but {heard:?}",
                        self.what
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let error = call::rest(&self.stderr, &self.what, "stderr");
                    panic!(
                        "{}: ended without {expected:?}, said {heard:?} and {:?}",
                        self.what,
                        String::from_utf8_lossy(&error)
                    )
                }
            }
        }
    }

    /// Sends the agent one line.
    #[track_caller]
    pub fn say(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("standard input is open");
        writeln!(stdin, "{line}").unwrap_or_else(|e| panic!("{}: {e}", self.what));
    }

    /// Sends the agent bytes for as long as somebody takes them, and counts those.
    pub fn pour(&mut self) -> Arc<AtomicU64> {
        let mut stdin = self.stdin.take().expect("standard input is open");
        let poured = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&poured);
        std::thread::spawn(move || {
            let piece = vec![b'x'; 1 << 16];
            while stdin.write_all(&piece).is_ok() {
                count.fetch_add(1 << 16, Ordering::Relaxed);
            }
        });
        poured
    }

    /// Sends a signal to the client.
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).expect("the client is there");
    }

    /// Ends the agent's input and waits for the client's end.
    #[track_caller]
    pub fn finish(mut self) -> Done {
        use std::os::unix::process::ExitStatusExt;
        drop(self.stdin.take());
        let status = call::await_exit(&mut self.child, &self.what);
        let stdout: Vec<String> = self.lines.iter().collect();
        Done {
            stdout: stdout.join("\n").into_bytes(),
            stderr: call::rest(&self.stderr, &self.what, "stderr"),
            status: status.code(),
            signal: status.signal(),
            what: self.what,
        }
    }
}
