//! Reading `output.cast`: one event after the other, whatever state the file was left in. Owns no
//! writing.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{CUT_MARK, LINE_LIMIT, RecordError};
use crate::protocol::Stream;
use crate::sandbox::spec::TerminalSize;

/// Some output as it was recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Seconds since the record began.
    pub time: f64,
    /// Where it came from.
    pub stream: Stream,
    /// The bytes, exactly.
    pub bytes: Vec<u8>,
}

/// What a record holds, output and all else.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedEvent {
    /// Output.
    Output(Recorded),
    /// The terminal has this size from now on (seconds since the record began, size).
    Resized(f64, TerminalSize),
    /// A mark (seconds since the record began, label).
    Mark(f64, String),
}

/// The output in a record, in order.
#[derive(Debug)]
pub struct Recording {
    events: Events,
}

impl Recording {
    pub(super) fn open(path: &Path) -> Result<Self, RecordError> {
        let open = |source| RecordError::Open {
            path: path.to_owned(),
            source,
        };
        let mut lines = Lines {
            input: BufReader::new(File::open(path).map_err(open)?),
        };
        let size = match lines.next() {
            // Nothing was recorded yet, or the machine crashed in the first moment.
            None => None,
            Some(first) => {
                let Some(size) = header_size(&first) else {
                    return Err(RecordError::Foreign {
                        path: path.to_owned(),
                    });
                };
                Some(size)
            }
        };
        Ok(Self {
            events: Events {
                lines,
                size,
                stream: Stream::Out,
                shown: false,
            },
        })
    }

    /// All events instead of output only: also sizes and marks, as a replay needs them. The size
    /// at the beginning comes first.
    pub fn events(self) -> impl Iterator<Item = RecordedEvent> {
        self.events
    }
}

impl Iterator for Recording {
    type Item = Recorded;

    fn next(&mut self) -> Option<Recorded> {
        self.events.find_map(|event| match event {
            RecordedEvent::Output(output) => Some(output),
            RecordedEvent::Resized(..) | RecordedEvent::Mark(..) => None,
        })
    }
}

#[derive(Debug)]
struct Events {
    lines: Lines,
    /// Size at the beginning, until it was handed out.
    size: Option<TerminalSize>,
    stream: Stream,
    /// The next output is what players show for bytes already handed out.
    shown: bool,
}

impl Iterator for Events {
    type Item = RecordedEvent;

    fn next(&mut self) -> Option<RecordedEvent> {
        if let Some(size) = self.size.take() {
            return Some(RecordedEvent::Resized(0.0, size));
        }
        loop {
            let line = self.lines.next()?;
            let Some((time, code, data)) = parse(&line) else {
                continue;
            };
            let shown = std::mem::take(&mut self.shown);
            let stream = self.stream;
            match code.as_str() {
                "o" if !shown => {
                    let bytes = data.into_bytes();
                    return Some(RecordedEvent::Output(Recorded {
                        time,
                        stream,
                        bytes,
                    }));
                }
                "b" => {
                    if let Ok(bytes) = BASE64.decode(data) {
                        self.shown = true;
                        return Some(RecordedEvent::Output(Recorded {
                            time,
                            stream,
                            bytes,
                        }));
                    }
                }
                "s" => {
                    self.stream = if data == "err" {
                        Stream::Err
                    } else {
                        Stream::Out
                    }
                }
                "r" => {
                    if let Some(size) = size_of(&data) {
                        return Some(RecordedEvent::Resized(time, size));
                    }
                }
                "m" => return Some(RecordedEvent::Mark(time, data)),
                _ => {}
            }
        }
    }
}

/// Whole lines of the file. One without an end or beyond all bounds is damage.
#[derive(Debug)]
struct Lines {
    input: BufReader<File>,
}

impl Iterator for Lines {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let mut line = Vec::new();
            match (&mut self.input)
                .take(LINE_LIMIT)
                .read_until(b'\n', &mut line)
            {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "the output record cannot be read to its end");
                    return None;
                }
            }
            if line.pop_if(|last| *last == b'\n').is_some() {
                return Some(line);
            }
        }
    }
}

fn parse(line: &[u8]) -> Option<(f64, String, String)> {
    serde_json::from_slice(line).ok()
}

fn header_size(line: &[u8]) -> Option<TerminalSize> {
    let header: serde_json::Value = serde_json::from_slice(line).ok()?;
    if header.get("version")?.as_u64()? != 2 {
        return None;
    }
    let side = |name| u16::try_from(header.get(name)?.as_u64()?).ok();
    Some(TerminalSize {
        rows: side("height")?,
        cols: side("width")?,
    })
}

fn size_of(text: &str) -> Option<TerminalSize> {
    let (cols, rows) = text.split_once('x')?;
    Some(TerminalSize {
        rows: rows.parse().ok()?,
        cols: cols.parse().ok()?,
    })
}

/// Where a record ends and what its last event says.
pub(super) struct End {
    /// Bytes of whole lines.
    pub(super) size: u64,
    /// Time of the last event, in seconds.
    pub(super) time: f64,
    /// The last event says that nothing more is recorded.
    pub(super) cut: bool,
    /// The file has content and is no record.
    pub(super) foreign: bool,
}

/// Finds the end of the last whole line without reading the rest of the file.
pub(super) fn find_end(file: &mut File) -> std::io::Result<End> {
    let mut end = End {
        size: 0,
        time: 0.0,
        cut: false,
        foreign: false,
    };
    let length = file.metadata()?.len();
    let mut first = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    BufReader::new(file.by_ref().take(LINE_LIMIT)).read_until(b'\n', &mut first)?;
    if !first.ends_with(b"\n") {
        // Empty, or torn in the first moment: begun anew when it looks like ours.
        end.foreign = !first.is_empty() && !first.starts_with(b"{\"");
        return Ok(end);
    }
    if header_size(&first).is_none() {
        end.foreign = true;
        return Ok(end);
    }
    // A few of the longest lines: one of them is whole.
    let from = length.saturating_sub(4 * LINE_LIMIT);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.read_to_end(&mut tail)?;
    let whole = tail
        .iter()
        .rposition(|&b| b == b'\n')
        .map_or(0, |at| at + 1);
    end.size = from + whole as u64;
    let last = tail[..whole].split(|&b| b == b'\n').rev().find_map(parse);
    if let Some((time, code, data)) = last {
        end.time = if time.is_finite() { time.max(0.0) } else { 0.0 };
        end.cut = code == "m" && data == CUT_MARK;
    }
    Ok(end)
}
