//! `output`: what the agent's command has written, from the session's record.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use pvisor::protocol::Stream;
use pvisor::record::OutputRecord;
use pvisor::text::visible;
use serde::Serialize;

use super::context::Context;
use super::error::CliError;
use super::json::{text_and_bytes, write_escaped};
use super::session_arg::SessionArg;

/// Print what the session's command has written
///
/// What it wrote to its standard error goes to standard error. To a terminal the text is
/// sanitised, to a pipe or a file it is exact.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// As JSON: a list of pieces with their time in seconds
    #[arg(long)]
    json: bool,
}

/// One piece of output.
#[derive(Serialize)]
struct Piece {
    time: f64,
    stream: &'static str,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    text_b64: Option<String>,
}

/// Carries it out.
pub fn run(args: &Args, context: &Context) -> Result<ExitCode, CliError> {
    let record = args.session.find(context)?;
    let path = record.info.dir.join("output.cast");
    let pieces = OutputRecord::read(&path).map_err(|error| CliError::failure(error.to_string()))?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut err = std::io::stderr().lock();
    let (mut out_text, mut err_text) = (Sanitiser::default(), Sanitiser::default());
    let err_is_terminal = std::io::IsTerminal::is_terminal(&err);
    let mut first = true;
    if args.json {
        out.write_all(b"[")?;
    }
    for piece in pieces {
        if args.json {
            let (text, text_b64) = text_and_bytes(&piece.bytes);
            out.write_all(if first { b"\n" } else { b",\n" })?;
            first = false;
            let piece = Piece {
                time: piece.time,
                stream: match piece.stream {
                    Stream::Out => "out",
                    Stream::Err => "err",
                },
                text,
                text_b64,
            };
            write_escaped(&serde_json::to_string(&piece)?, &mut out)?;
            continue;
        }
        match piece.stream {
            Stream::Out if context.stdout_is_terminal => out_text.print(&piece.bytes, &mut out)?,
            Stream::Out => out.write_all(&piece.bytes)?,
            Stream::Err => {
                out.flush()?;
                if err_is_terminal {
                    err_text.print(&piece.bytes, &mut err)?;
                } else {
                    err.write_all(&piece.bytes)?;
                }
            }
        }
    }
    if args.json {
        out.write_all(b"\n]\n")?;
    }
    out_text.end(&mut out)?;
    err_text.end(&mut err)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints text line by line: a character may be cut between two pieces.
#[derive(Default)]
struct Sanitiser {
    line: Vec<u8>,
}

impl Sanitiser {
    fn print(&mut self, bytes: &[u8], out: &mut impl Write) -> std::io::Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.end(out)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut impl Write) -> std::io::Result<()> {
        if self.line.is_empty() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        writeln!(out, "{}", visible(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_before_they_are_shown() {
        let (mut sanitiser, mut out) = (Sanitiser::default(), Vec::new());
        for piece in [b"a\xc3".as_slice(), b"\xa4\r\n\x1b[2", b"Jb\n", b"rest"] {
            sanitiser.print(piece, &mut out).expect("printed");
        }
        sanitiser.end(&mut out).expect("printed");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((lines[0], lines[2], lines.len()), ("aä", "rest", 3));
        assert!(
            lines[1].ends_with("[2Jb") && !lines[1].contains('\u{1b}'),
            "{text:?}"
        );
    }
}
