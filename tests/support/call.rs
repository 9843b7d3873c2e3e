//! Running the real binary (or a host program) to its end, with both streams and a limit.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::wait;

/// No call of these tests needs longer, real builds included.
const LIMIT: Duration = Duration::from_secs(240);

/// A command about to run.
pub struct Call {
    command: Command,
    stdin: Vec<u8>,
}

/// How it ended.
#[derive(Debug, Clone)]
pub struct Done {
    /// What was run, for messages.
    pub what: String,
    /// Exit code; `None` when a signal ended it.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Exact bytes.
    pub stdout: Vec<u8>,
    /// Exact bytes.
    pub stderr: Vec<u8>,
}

impl Call {
    /// Wraps a prepared command.
    pub fn new(command: Command) -> Self {
        Self {
            command,
            stdin: Vec::new(),
        }
    }

    /// Bytes for its standard input, which ends after them.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// One more environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Another directory to start in.
    pub fn cwd(mut self, dir: impl AsRef<std::path::Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Runs it to its end.
    #[track_caller]
    pub fn done(mut self) -> Done {
        let what = describe(&self.command);
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        let mut input = child.stdin.take().expect("piped");
        let bytes = std::mem::take(&mut self.stdin);
        // From a thread: a command that does not read must not hold up the test. It may end
        // before it has read everything.
        std::thread::spawn(move || drop(input.write_all(&bytes)));
        let stdout = collect(child.stdout.take().expect("piped"));
        let stderr = collect(child.stderr.take().expect("piped"));
        let status = await_exit(&mut child, &what);
        Done {
            stdout: rest(&stdout, &what, "stdout"),
            stderr: rest(&stderr, &what, "stderr"),
            status: status.code(),
            signal: status.signal(),
            what,
        }
    }

    /// Runs it and demands exit code 0.
    #[track_caller]
    pub fn ok(self) -> Done {
        self.done().exits(0)
    }

    /// Starts it and leaves the streams to the caller.
    #[track_caller]
    pub fn spawn(mut self) -> (Child, String) {
        let what = describe(&self.command);
        let child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        (child, what)
    }

    /// The prepared command itself, for a terminal.
    pub fn into_command(self) -> Command {
        self.command
    }
}

impl Done {
    /// Demands this exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.status, Some(code), "exit code of {self}");
        self
    }

    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|e| panic!("stdout is not JSON ({e}): {self}"))
    }

    /// Demands that standard error names `needle`.
    #[track_caller]
    pub fn says(self, needle: &str) -> Self {
        assert!(
            self.err().contains(needle),
            "no {needle:?} on stderr: {self}"
        );
        self
    }
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}\n  status {:?} signal {:?}\n--- stdout\n{}\n--- stderr\n{}\n---",
            self.what,
            self.status,
            self.signal,
            self.stdout.escape_ascii().to_string().replace("\\n", "\n"),
            self.stderr.escape_ascii().to_string().replace("\\n", "\n"),
        )
    }
}

/// Waits for the end of a child, and ends it when it takes too long.
#[track_caller]
pub fn await_exit(child: &mut Child, what: &str) -> ExitStatus {
    let ended = wait::attempt(LIMIT, || {
        child.try_wait().expect("a child can be waited for")
    });
    ended.unwrap_or_else(|| {
        let _ = child.kill();
        let _ = child.wait();
        panic!("{what}: still running after {LIMIT:?}");
    })
}

/// Reads a stream to its end in a thread.
pub fn collect(mut stream: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (out, done) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = out.send(bytes);
    });
    done
}

/// What [`collect`] read. A detached server that kept the caller's stream open fails here: no
/// pipeline behind such a command would ever end.
#[track_caller]
pub fn rest(stream: &Receiver<Vec<u8>>, what: &str, name: &str) -> Vec<u8> {
    stream
        .recv_timeout(wait::PATIENCE)
        .unwrap_or_else(|_| panic!("{what}: ended, but somebody still holds its {name}"))
}

fn describe(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}
