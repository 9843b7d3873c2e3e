//! The record against what was put in, also when its end was torn off.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;

const SIZE: TerminalSize = TerminalSize { rows: 24, cols: 80 };

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("output.cast");
    (directory, path)
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The bytes of one stream.
fn bytes_of(path: &Path, stream: Stream) -> Vec<u8> {
    OutputRecord::read(path)
        .unwrap()
        .filter(|r| r.stream == stream)
        .flat_map(|r| r.bytes)
        .collect()
}

/// What a player shows.
fn shown(path: &Path) -> String {
    text(path)
        .lines()
        .skip(1)
        .filter_map(|line| serde_json::from_str::<(f64, String, String)>(line).ok())
        .filter(|(_, code, _)| code == "o")
        .map(|(_, _, data)| data)
        .collect()
}

#[test]
fn is_an_asciicast_that_players_show() {
    let (_keep, path) = place();
    let mut record = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap();
    record
        .output(Stream::Out, "hi \x1b[1mthere\u{7f}\r\n".as_bytes())
        .unwrap();
    record
        .resize(TerminalSize {
            rows: 40,
            cols: 120,
        })
        .unwrap();
    record.output(Stream::Out, b"\xff\n").unwrap();
    record.mark("done").unwrap();
    drop(record);
    let text = text(&path);
    let mut lines = text.lines();
    let header: serde_json::Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    assert_eq!(
        (&header["version"], &header["width"]),
        (&2.into(), &80.into())
    );
    assert_eq!(header["env"]["TERM"], "xterm-256color");
    let events: Vec<(f64, String, String)> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of: Vec<(&str, &str)> = events
        .iter()
        .map(|(_, code, data)| (code.as_str(), data.as_str()))
        .collect();
    assert_eq!(
        of,
        [
            ("o", "hi \x1b[1mthere\u{7f}\r\n"),
            ("r", "120x40"),
            ("b", "/wo="),
            ("o", "\u{fffd}\n"),
            ("m", "done")
        ]
    );
    assert!(events.is_sorted_by(|a, b| a.0 <= b.0));
    // Nobody else reads what an agent printed.
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn characters_cut_by_portions_stay_whole_and_streams_apart() {
    let (_keep, path) = place();
    let mut record = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap();
    for byte in "漢".bytes() {
        record.output(Stream::Out, &[byte]).unwrap();
    }
    record.output(Stream::Out, b"\xe6").unwrap();
    record
        .output(Stream::Err, "oh \u{1f680}".as_bytes())
        .unwrap();
    record.output(Stream::Out, b"\xbc\xa2\xf0\x9f").unwrap();
    record.finish().unwrap();
    assert_eq!(
        bytes_of(&path, Stream::Out),
        "漢漢".bytes().chain(*b"\xf0\x9f").collect::<Vec<_>>()
    );
    assert_eq!(bytes_of(&path, Stream::Err), "oh \u{1f680}".as_bytes());
    assert_eq!(shown(&path), "漢oh \u{1f680}漢\u{fffd}");
}

#[test]
fn a_session_that_goes_on_goes_on_in_its_record() {
    let (_keep, path) = place();
    let mut record = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap();
    record.offset = 100.0;
    record.output(Stream::Err, b"first").unwrap();
    drop(record);
    // The machine crashed while a line was written.
    let mut torn = std::fs::read(&path).unwrap();
    torn.extend(b"[100.5,\"o\",\"tor");
    std::fs::write(&path, &torn).unwrap();
    let mut record = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap();
    record.output(Stream::Out, b"second").unwrap();
    drop(record);
    assert!(!text(&path).contains("tor"));
    let all: Vec<Recorded> = OutputRecord::read(&path).unwrap().collect();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].stream, all[1].stream), (Stream::Err, Stream::Out));
    assert!(all[0].time >= 100.0 && all[1].time >= all[0].time && all[1].time < 200.0);
    let events: Vec<RecordedEvent> = OutputRecord::read(&path).unwrap().events().collect();
    assert_eq!(events[0], RecordedEvent::Resized(0.0, SIZE));
    assert!(
        matches!(events[2], RecordedEvent::Resized(_, SIZE)),
        "{events:?}"
    );
}

#[test]
fn is_cut_at_its_limit_with_one_mark() {
    let (_keep, path) = place();
    for round in 0..2 {
        let mut record = OutputRecord::open(&path, SIZE, 100_000).unwrap();
        for _ in 0..1_000 {
            record.output(Stream::Out, &[b'x'; 1_000]).unwrap();
        }
        record.resize(SIZE).unwrap();
        assert!(record.is_cut(), "round {round}");
    }
    assert!(std::fs::metadata(&path).unwrap().len() < 100_100);
    assert_eq!(text(&path).matches(CUT_MARK).count(), 1);
    let last = OutputRecord::read(&path).unwrap().events().last();
    assert!(matches!(last, Some(RecordedEvent::Mark(_, label)) if label == CUT_MARK));
    assert!(bytes_of(&path, Stream::Out).len() > 90_000);
}

#[test]
fn a_foreign_file_is_left_alone() {
    let (_keep, path) = place();
    std::fs::write(&path, "notes\nof mine\n").unwrap();
    let error = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("output.cast is not an asciicast"),
        "{error}"
    );
    assert!(matches!(
        OutputRecord::read(&path),
        Err(RecordError::Foreign { .. })
    ));
    assert_eq!(text(&path), "notes\nof mine\n");
    let missing = path.with_file_name("missing.cast");
    assert!(matches!(
        OutputRecord::read(&missing),
        Err(RecordError::Open { .. })
    ));
}

#[test]
fn damage_in_the_middle_costs_only_its_line() {
    let (_keep, path) = place();
    let mut record = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap();
    for word in ["one ", "two ", "three"] {
        record.output(Stream::Out, word.as_bytes()).unwrap();
    }
    drop(record);
    let damaged = text(&path).replace("\"two ", "\0\0two ");
    std::fs::write(&path, damaged).unwrap();
    assert_eq!(bytes_of(&path, Stream::Out), b"one three");
    // An endless line and an empty file.
    let mut endless = std::fs::read(&path).unwrap();
    endless.extend(vec![b'z'; 3 * LINE_LIMIT as usize]);
    std::fs::write(&path, endless).unwrap();
    assert_eq!(bytes_of(&path, Stream::Out), b"one three");
    std::fs::write(&path, "").unwrap();
    assert_eq!(OutputRecord::read(&path).unwrap().count(), 0);
}

fn portions() -> impl Strategy<Value = Vec<(bool, Vec<u8>)>> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40),
        "[a-z漢é\u{1f680}\u{1}\u{7f}\"\\\\]{0,20}".prop_map(String::into_bytes),
        (0usize..40_000).prop_map(|length| "aé漢\u{1f680}".bytes().cycle().take(length).collect()),
    ];
    prop::collection::vec((any::<bool>(), bytes), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn gives_back_what_was_put_in(portions in portions(), again in any::<prop::sample::Index>()) {
        let (_keep, path) = place();
        let mut record = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap();
        let reopened = again.index(portions.len() + 1);
        let mut put = [Vec::new(), Vec::new()];
        for (number, (err, bytes)) in portions.iter().enumerate() {
            if number == reopened {
                drop(record);
                record = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap();
            }
            let stream = if *err { Stream::Err } else { Stream::Out };
            record.output(stream, bytes).unwrap();
            put[index(stream)].extend_from_slice(bytes);
        }
        drop(record);
        prop_assert_eq!(&bytes_of(&path, Stream::Out), &put[0]);
        prop_assert_eq!(&bytes_of(&path, Stream::Err), &put[1]);
    }

    #[test]
    fn torn_anywhere_it_gives_a_beginning(
        portions in portions(),
        cut in any::<prop::sample::Index>(),
    ) {
        let (_keep, path) = place();
        let mut record = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap();
        let mut put = Vec::new();
        for (_, bytes) in &portions {
            record.output(Stream::Out, bytes).unwrap();
            put.extend_from_slice(bytes);
        }
        drop(record);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..cut.index(whole.len() + 1)]).unwrap();
        let got = bytes_of(&path, Stream::Out);
        prop_assert!(put.starts_with(&got));
        let mut record = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT).unwrap();
        record.output(Stream::Out, b"more").unwrap();
        drop(record);
        let got = [got, b"more".to_vec()].concat();
        prop_assert_eq!(bytes_of(&path, Stream::Out), got);
    }

    #[test]
    fn any_file_is_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let (_keep, path) = place();
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(recording) = OutputRecord::read(&path) {
            recording.events().count();
        }
        let _ = OutputRecord::open(&path, SIZE, DEFAULT_LIMIT);
        let header = b"{\"version\":2,\"width\":9,\"height\":9}\n".to_vec();
        std::fs::write(&path, [header, bytes].concat()).unwrap();
        OutputRecord::read(&path).unwrap().events().count();
    }
}
