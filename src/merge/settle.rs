//! What a person may make of edits that meet: one side's, or both between markers, which can be
//! picked apart again. Owns the markers, and what still counts as one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Merge, Region, merge, put_together};
use crate::diff::{Lines, join};

/// The shortest marker: what every tool knows.
const SHORTEST: usize = 7;

/// Whose edit stands where edits meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Favour {
    /// The host's.
    Ours,
    /// The agent's.
    Theirs,
}

/// A merge with markers where edits meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The text. Its newline at the end is the one that a clean merge would have.
    pub bytes: Vec<u8>,
    /// Signs in a marker: more than the usual seven where a side has a line that looks like one.
    pub length: u32,
    /// Where edits meet, in file order.
    pub regions: Vec<Region>,
}

/// Merges and takes this side's edit, its newline at the end of the file included, where edits
/// meet. `None` where a side is not text.
pub fn favoured(base: &[u8], ours: &[u8], theirs: &[u8], favour: Favour) -> Option<Vec<u8>> {
    match merge(base, ours, theirs) {
        Merge::Clean(bytes) => return Some(bytes),
        Merge::Binary => return None,
        Merge::Conflicted(_) => {}
    }
    let side = match favour {
        Favour::Ours => ours,
        Favour::Theirs => theirs,
    };
    let mut at_end = false;
    let mut bytes = put_together([base, ours, theirs], |out, meet| {
        at_end = meet.last;
        out.extend(match favour {
            Favour::Ours => meet.ours,
            Favour::Theirs => meet.theirs,
        });
    });
    if at_end && !bytes.is_empty() && !side.is_empty() {
        match (bytes.ends_with(b"\n"), side.ends_with(b"\n")) {
            (true, false) => {
                bytes.pop();
            }
            (false, true) => bytes.push(b'\n'),
            _ => {}
        }
    }
    Some(bytes)
}

/// Merges and puts both sides' lines between markers where edits meet. `None` where a side is not
/// text.
pub fn marked(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Marked> {
    let length = free_length([base, ours, theirs]);
    let clean = match merge(base, ours, theirs) {
        Merge::Clean(bytes) => Some(bytes),
        Merge::Binary => return None,
        Merge::Conflicted(_) => None,
    };
    let mut regions = Vec::new();
    let returns = Lines::of(ours)
        .lines
        .first()
        .is_some_and(|l| l.ends_with(b"\r"));
    let markers = Markers::new(length, returns);
    let bytes = clean.unwrap_or_else(|| {
        put_together([base, ours, theirs], |out, meet| {
            regions.push(meet.region);
            out.push(&markers.start);
            out.extend(meet.ours);
            out.push(&markers.middle);
            out.extend(meet.theirs);
            out.push(&markers.end);
        })
    });
    Some(Marked {
        bytes,
        length: length as u32,
        regions,
    })
}

/// Takes one side's lines wherever markers of this length stand. `None` where they are not in
/// order any more.
pub fn picked(text: &[u8], length: u32, favour: Favour) -> Option<Vec<u8>> {
    let markers = Markers::new(length as usize, false);
    let lines = Lines::of(text);
    let mut out = Vec::with_capacity(lines.len());
    let mut within: Option<Favour> = None;
    for line in &lines.lines {
        match (markers.kind(line), within) {
            (Some(Kind::Start), None) => within = Some(Favour::Ours),
            (Some(Kind::Middle), Some(Favour::Ours)) => within = Some(Favour::Theirs),
            (Some(Kind::End), Some(Favour::Theirs)) => within = None,
            // Outside of a conflict it is a line like any other.
            (None | Some(Kind::Middle), None) => out.push(*line),
            (None, Some(side)) if side == favour => out.push(line),
            (None, Some(_)) => {}
            _ => return None,
        }
    }
    within.is_none().then(|| join(&out, lines.final_newline))
}

/// Whether a conflict of this marker length begins or ends anywhere in a text.
pub fn holds_markers(text: &[u8], length: u32) -> bool {
    let markers = Markers::new(length as usize, false);
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.any(|line| matches!(markers.kind(line), Some(Kind::Start | Kind::End)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Start,
    Middle,
    End,
}

struct Markers {
    start: Vec<u8>,
    middle: Vec<u8>,
    end: Vec<u8>,
}

impl Markers {
    fn new(length: usize, returns: bool) -> Self {
        let line = |sign: &str, name: &str| {
            let end = if returns { "\r" } else { "" };
            format!("{}{name}{end}", sign.repeat(length)).into_bytes()
        };
        Self {
            start: line("<", " host"),
            middle: line("=", ""),
            end: line(">", " agent"),
        }
    }

    fn kind(&self, line: &[u8]) -> Option<Kind> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let kinds = [
            (&self.start, Kind::Start),
            (&self.middle, Kind::Middle),
            (&self.end, Kind::End),
        ];
        kinds
            .into_iter()
            .find_map(|(marker, kind)| (line == marker).then_some(kind))
    }
}

/// The shortest length of which no side has a line that could be taken for a marker.
fn free_length(sides: [&[u8]; 3]) -> usize {
    let mut taken = BTreeSet::new();
    for line in sides
        .into_iter()
        .flat_map(|side| side.split(|b| *b == b'\n'))
    {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        for (sign, name) in [(b'<', &b" host"[..]), (b'=', b""), (b'>', b" agent")] {
            let run = line.iter().take_while(|byte| **byte == sign).count();
            if run >= SHORTEST && &line[run..] == name {
                taken.insert(run);
            }
        }
    }
    // One of so many is not among them.
    (SHORTEST..=SHORTEST + taken.len())
        .find(|length| !taken.contains(length))
        .unwrap_or(SHORTEST)
}
