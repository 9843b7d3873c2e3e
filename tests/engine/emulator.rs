//! The agent's terminal, from outside: what its bytes show, what its questions get, and that no
//! byte gets further than a cell.

use proptest::prelude::*;
use pvisor::emulator::{Cell, Color, CursorShape, Emulator, Mouse};
use pvisor::sandbox::spec::TerminalSize;
use unicode_width::UnicodeWidthStr;

fn size(rows: u16, cols: u16) -> TerminalSize {
    TerminalSize { rows, cols }
}

fn emulator() -> Emulator {
    Emulator::new(size(24, 80), 1_000)
}

fn fed(bytes: &[u8]) -> Emulator {
    let mut emulator = emulator();
    emulator.feed(bytes);
    emulator
}

#[test]
fn every_question_is_answered() {
    let version = env!("CARGO_PKG_VERSION");
    let xtversion = format!("\x1bP>|pvisor-tui({version})\x1b\\");
    let table: &[(&str, &str, &str)] = &[
        ("DA1", "\x1b[c", "\x1b[?62;22c"),
        ("DA1 with zero", "\x1b[0c", "\x1b[?62;22c"),
        ("DECID", "\x1bZ", "\x1b[?62;22c"),
        ("DA2", "\x1b[>c", "\x1b[>0;2600;1c"),
        ("DA3", "\x1b[=c", "\x1bP!|00000000\x1b\\"),
        ("XTVERSION", "\x1b[>0q", &xtversion),
        ("XTVERSION short", "\x1b[>q", &xtversion),
        ("status", "\x1b[5n", "\x1b[0n"),
        ("cursor", "\x1b[3;7H\x1b[6n", "\x1b[3;7R"),
        (
            "cursor within a region",
            "\x1b[5;10r\x1b[?6h\x1b[2;3H\x1b[6n",
            "\x1b[2;3R",
        ),
        ("extended cursor", "\x1b[?6n", "\x1b[?1;1R"),
        ("colour scheme", "\x1b[?996n", "\x1b[?997;1n"),
        (
            "text colour",
            "\x1b]10;?\x07",
            "\x1b]10;rgb:e5e5/e5e5/e5e5\x07",
        ),
        (
            "background",
            "\x1b]11;?\x1b\\",
            "\x1b]11;rgb:0000/0000/0000\x1b\\",
        ),
        (
            "cursor colour",
            "\x1b]12;?\x07",
            "\x1b]12;rgb:e5e5/e5e5/e5e5\x07",
        ),
        (
            "both at once",
            "\x1b]10;?;?\x07",
            "\x1b]10;rgb:e5e5/e5e5/e5e5\x07\x1b]11;rgb:0000/0000/0000\x07",
        ),
        (
            "palette",
            "\x1b]4;1;?;196;?\x07",
            "\x1b]4;1;rgb:cdcd/0000/0000\x07\x1b]4;196;rgb:ffff/0000/0000\x07",
        ),
        (
            "palette as set",
            "\x1b]4;1;#102030\x07\x1b]4;1;?\x07",
            "\x1b]4;1;rgb:1010/2020/3030\x07",
        ),
        ("mode on", "\x1b[?2004h\x1b[?2004$p", "\x1b[?2004;1$y"),
        ("mode off", "\x1b[?2004$p", "\x1b[?2004;2$y"),
        ("alternate scroll", "\x1b[?1007$p", "\x1b[?1007;1$y"),
        ("synchronised", "\x1b[?2026$p", "\x1b[?2026;2$y"),
        (
            "synchronised, within",
            "\x1b[?2026h\x1b[?2026$p",
            "\x1b[?2026;1$y",
        ),
        ("clusters", "\x1b[?2027$p", "\x1b[?2027;4$y"),
        (
            "scheme reports",
            "\x1b[?2031h\x1b[?2031$p",
            "\x1b[?2031;1$y",
        ),
        (
            "focus, mouse",
            "\x1b[?1004$p\x1b[?1016$p",
            "\x1b[?1004;2$y\x1b[?1016;4$y",
        ),
        ("unknown mode", "\x1b[?7777$p", "\x1b[?7777;0$y"),
        (
            "ANSI mode",
            "\x1b[4h\x1b[4$p\x1b[99$p",
            "\x1b[4;1$y\x1b[99;0$y",
        ),
        ("pixels", "\x1b[14t", "\x1b[4;384;640t"),
        ("cell pixels", "\x1b[16t", "\x1b[6;16;8t"),
        ("characters", "\x1b[18t", "\x1b[8;24;80t"),
        ("keyboard", "\x1b[?u", "\x1b[?0u"),
        ("keyboard pushed", "\x1b[>1u\x1b[?u", "\x1b[?1u"),
        ("keyboard beyond ours", "\x1b[>31u\x1b[?u", "\x1b[?1u"),
        ("keyboard popped", "\x1b[>1u\x1b[<u\x1b[?u", "\x1b[?0u"),
        (
            "capabilities",
            "\x1bP+q436f;5858\x1b\\",
            "\x1bP1+r436f=323536\x1b\\\x1bP0+r5858\x1b\\",
        ),
        ("settings", "\x1b[3;9r\x1bP$qr\x1b\\", "\x1bP1$r3;9r\x1b\\"),
        ("unknown setting", "\x1bP$qzz\x1b\\", "\x1bP0$r\x1b\\"),
    ];
    for (name, question, answer) in table {
        let got = emulator().feed(question.as_bytes());
        assert_eq!(String::from_utf8_lossy(&got), *answer, "{name}");
        // The same when it comes byte by byte.
        let mut slow = emulator();
        let got: Vec<u8> = question
            .bytes()
            .flat_map(|byte| slow.feed(&[byte]))
            .collect();
        assert_eq!(String::from_utf8_lossy(&got), *answer, "{name}, slowly");
    }
}

#[test]
fn answers_come_in_the_order_of_the_questions() {
    let got = emulator().feed(b"\x1b[?u\x1b[>q\x1b[c");
    let got = String::from_utf8(got).unwrap();
    let at = |what: &str| got.find(what).unwrap();
    assert!(
        at("?0u") < at("pvisor-tui") && at("pvisor-tui") < at("62;22c"),
        "{got:?}"
    );
}

#[test]
fn secrets_of_the_persons_terminal_are_never_told() {
    let mut emulator = emulator();
    let asked = b"\x1b]0;echo pwned\x07\x1b[21t\x1b[20t\x1b]52;c;?\x07\x1b]52;c;aGk=\x07\x05";
    assert_eq!(emulator.feed(asked), b"");
}

#[test]
fn colours_are_the_persons_and_a_change_is_told_to_who_asked() {
    let mut emulator = emulator();
    emulator.set_colors((1, 2, 3), (250, 250, 250));
    assert_eq!(
        emulator.feed(b"\x1b]10;?\x07\x1b[?996n"),
        b"\x1b]10;rgb:0101/0202/0303\x07\x1b[?997;2n"
    );
    emulator.feed(b"\x1b[?2031h");
    emulator.set_colors((200, 200, 200), (10, 10, 10));
    assert_eq!(emulator.feed(b""), b"\x1b[?997;1n");
    assert_eq!(emulator.feed(b""), b"");
}

#[test]
fn shows_text_with_its_attributes() {
    let emulator = fed(b"\x1b[1;3;4;31;48;5;200mA\x1b[0;2;7;9;38;2;1;2;3mB\x1b[0;8;97mC\x1b[0mD");
    let row = emulator.row(0);
    assert_eq!(row.len(), 80);
    assert_eq!(
        row[0],
        Cell {
            text: "A".into(),
            bold: true,
            italic: true,
            underline: true,
            fg: Color::Indexed(1),
            bg: Color::Indexed(200),
            ..Cell::default()
        }
    );
    assert!(row[1].dim && row[1].inverse && row[1].strikeout);
    assert_eq!(row[1].fg, Color::Rgb(1, 2, 3));
    assert!(row[2].hidden);
    assert_eq!(row[2].fg, Color::Indexed(15));
    assert_eq!(
        row[3],
        Cell {
            text: "D".into(),
            ..Cell::default()
        }
    );
    assert_eq!(row[4], Cell::default());
    assert_eq!(emulator.row(24), []);
}

#[test]
fn wide_characters_take_two_cells_and_joiners_none() {
    let emulator = fed("漢e\u{301}⚠\u{fe0f}👩\u{200d}🚀a\u{202e}b\u{200b}".as_bytes());
    let row = emulator.row(0);
    let shown: Vec<(&str, u8)> = row[..10]
        .iter()
        .map(|cell| (cell.text.as_str(), cell.width))
        .collect();
    assert_eq!(
        shown,
        [
            ("漢", 2),
            ("", 0),
            ("e\u{301}", 1),
            ("⚠", 1),
            ("👩", 2),
            ("", 0),
            ("🚀", 2),
            ("", 0),
            ("a", 1),
            ("b", 1)
        ]
    );
}

#[test]
fn half_a_wide_character_is_marked() {
    let emulator = fed("漢\x1b[1;2Hx漢\x1b[1;3Hy".as_bytes());
    let row = emulator.row(0);
    let text: Vec<&str> = row[..5].iter().map(|cell| cell.text.as_str()).collect();
    assert_eq!(text, [" ", "x", "y", " ", " "]);
    assert!(row.iter().all(|cell| cell.width == 1));
}

#[test]
fn modes_tell_how_to_encode_input() {
    let mut emulator =
        fed(b"\x1b[?1;1002;1006;1004;2004h\x1b=\x1b[?1049h\x1b[?1007l\x1b[>1u\x1b[6 q\x1b[?2026h");
    let modes = emulator.modes();
    assert_eq!(modes.mouse, Mouse::Drag);
    assert!(modes.mouse_sgr && modes.focus_events && modes.bracketed_paste && modes.app_cursor);
    assert!(modes.app_keypad && modes.alternate_screen && !modes.alternate_scroll);
    assert!(modes.disambiguate_keys && emulator.synchronized());
    assert_eq!(emulator.cursor().unwrap().shape, CursorShape::Bar);
    // The command is gone: nothing of what it asked for stays.
    emulator.release_input();
    let modes = emulator.modes();
    assert_eq!(modes.mouse, Mouse::Off);
    assert!(!modes.mouse_sgr && !modes.focus_events && !modes.bracketed_paste);
    assert!(!modes.app_cursor && !modes.app_keypad && !modes.disambiguate_keys);
    assert!(modes.alternate_screen && !emulator.synchronized());
}

#[test]
fn keyboard_flags_belong_to_their_screen() {
    let mut emulator = fed(b"\x1b[>1u\x1b[?1049h");
    assert!(!emulator.modes().disambiguate_keys);
    emulator.feed(b"\x1b[?1049l");
    assert!(emulator.modes().disambiguate_keys);
}

#[test]
fn the_title_is_text_and_has_an_end() {
    let title = |bytes: &[u8]| fed(bytes).title();
    assert_eq!(
        title(b"\x1b]0;hello; world\x07").as_deref(),
        Some("hello; world")
    );
    assert_eq!(
        title("\x1b]2;a\u{202e}b\x1b\\".as_bytes()).as_deref(),
        Some("a\\u{202e}b")
    );
    assert_eq!(title(b"\x1b]2;\x07"), None);
    assert_eq!(
        title(b"\x1b]2;one\x07\x1b[22t\x1b]2;two\x07\x1b[23t").as_deref(),
        Some("one")
    );
    let long = [b"\x1b]2;".as_slice(), &[b'x'; 3_000], b"\x07"].concat();
    assert_eq!(title(&long).map(|title| title.len()), Some(256));
}

#[test]
fn scrolls_through_the_history() {
    let mut emulator = Emulator::new(size(3, 10), 100);
    for line in 0..10 {
        emulator.feed(format!("\r\nline {line}").as_bytes());
    }
    assert_eq!(emulator.text(), "line 7\nline 8\nline 9");
    assert!(emulator.cursor().is_some());
    emulator.scroll(2);
    assert_eq!((emulator.scroll_offset(), emulator.history()), (2, 8));
    assert_eq!(emulator.text(), "line 5\nline 6\nline 7");
    assert_eq!(emulator.cursor(), None);
    // What is being read stays in place while more comes in.
    emulator.feed(b"\r\nline 10");
    assert_eq!(emulator.text(), "line 5\nline 6\nline 7");
    emulator.scroll(i32::MAX);
    assert_eq!(emulator.scroll_offset(), emulator.history());
    emulator.scroll(i32::MIN);
    emulator.scroll(1);
    emulator.scroll_to_bottom();
    assert_eq!(emulator.text(), "line 8\nline 9\nline 10");
}

#[test]
fn finished_lines_stay_whole_through_narrow_and_wide() {
    let line = (1..=60)
        .map(|n| n.to_string())
        .collect::<Vec<_>>()
        .join(",");
    let mut emulator = Emulator::new(size(24, 120), 10_000);
    let mut written = 0;
    for round in 0..20 {
        for _ in 0..10 {
            emulator.feed(format!("{written} {line}\r\n").as_bytes());
            written += 1;
        }
        emulator.resize(size(24, if round % 2 == 0 { 50 } else { 120 }));
    }
    emulator.resize(size(24, 120));
    let wanted: Vec<String> = (0..written).map(|n| format!("{n} {line}")).collect();
    assert_eq!(emulator.transcript(), wanted);
    // And a late client sees the same.
    let mut late = Emulator::new(size(24, 120), 10_000);
    late.feed(&emulator.snapshot());
    assert_eq!(late.transcript(), wanted);
    late.resize(size(30, 50));
    late.resize(size(24, 120));
    assert_eq!(late.transcript(), wanted);
}

#[test]
fn sizes_out_of_reason_are_cut() {
    let mut emulator = Emulator::new(size(0, 0), usize::MAX);
    assert_eq!(emulator.size(), size(1, 2));
    emulator.feed("ab漢c\r\n\x1b[5;5H".as_bytes());
    emulator.resize(size(u16::MAX, u16::MAX));
    assert_eq!(emulator.size(), size(500, 1_000));
    emulator.resize(size(0, 7));
    assert_eq!(emulator.size(), size(1, 7));
}

#[test]
fn a_flood_goes_through_and_leaves_only_the_scrollback() {
    let mut emulator = Emulator::new(size(24, 80), 500);
    let chunk = b"0123456789\r\n".repeat(5_500);
    for _ in 0..200 {
        emulator.feed(&chunk);
    }
    // One endless line, one endless title, one cell with endless accents.
    emulator.feed(&vec![b'x'; 2_000_000]);
    emulator.feed(b"\x1b]2;");
    emulator.feed(&vec![b't'; 2_000_000]);
    emulator.feed(b"\x07\r\na");
    emulator.feed("\u{301}".repeat(500_000).as_bytes());
    assert_eq!(emulator.history(), 500);
    let cursor = emulator.cursor().unwrap();
    assert_eq!((cursor.row, cursor.col), (23, 1));
    let cell = &emulator.row(23)[0];
    assert_eq!(cell.text, format!("a{}", "\u{301}".repeat(8)));
    assert!(emulator.feed(&b"\x1b[c".repeat(100_000)).len() <= 64 * 1024);
}

#[test]
fn cheap_sequences_cannot_burn_time() {
    let mut emulator = Emulator::new(size(50, 200), 100);
    emulator.feed(b"\x1b[3g\x1b[1;200Hx");
    for hostile in [&b"\x1b[65535Z"[..], b"\x1b[65535I", b"x\x1b[65535b"] {
        emulator.feed(&hostile.repeat(2_000));
    }
    assert_eq!(emulator.feed(b"\x1b[H\x1b[6n"), b"\x1b[1;1R");
}

/// Everything a snapshot promises to carry over.
fn seen(emulator: &Emulator) -> Vec<String> {
    let mut seen = emulator.transcript();
    for row in 0..usize::from(emulator.size().rows) {
        let cells = emulator.row(row);
        let texts: Vec<&str> = cells.iter().map(|cell| cell.text.as_str()).collect();
        seen.push(texts.join("|"));
        // How each run of cells looks.
        let mut looks: Vec<(usize, Cell)> = Vec::new();
        for (column, cell) in cells.into_iter().enumerate() {
            let look = Cell {
                text: String::new(),
                width: 1,
                ..cell
            };
            if looks.last().is_none_or(|(_, last)| *last != look) {
                looks.push((column, look));
            }
        }
        let plain = Cell {
            text: String::new(),
            ..Cell::default()
        };
        if looks.iter().any(|(_, look)| *look != plain) {
            seen.push(format!("{looks:?}"));
        }
    }
    seen.push(format!("{:?} {:?}", emulator.cursor(), emulator.modes()));
    seen.push(format!(
        "{:?} {}",
        emulator.title(),
        emulator.synchronized()
    ));
    seen
}

#[test]
fn a_snapshot_carries_the_alternate_screen_and_what_lies_behind_it() {
    let mut first = fed(
        "one\r\n\x1b[32mtwo 漢\x1b[?1049h\x1b[44m\x1b[2J\x1b[5;10Hinner\x1b[?25l\x1b[?1000;1006h"
            .as_bytes(),
    );
    let mut second = emulator();
    second.feed(&first.snapshot());
    assert_eq!(seen(&first), seen(&second));
    for emulator in [&mut first, &mut second] {
        emulator.feed(b"\x1b[?25h\x1b[?1049l!");
    }
    assert_eq!(first.text(), "one\ntwo 漢!".to_owned() + &"\n".repeat(22));
    assert_eq!(seen(&first), seen(&second));
    // Taking one changed nothing.
    assert_eq!(first.snapshot(), first.snapshot());
}

#[test]
fn a_snapshot_goes_on_where_the_stream_was() {
    for (before, after) in [
        ("\x1b[31;1mred", "still red\x1b[0m"),
        ("\x1b(0lqqk", "x\x1b(B."),
        ("\x1b)0a\x0eq", "q\x0fq"),
        ("\x1b[5;10r\x1b[10;1Hx", "\r\n\r\ny"),
        ("\x1b[5;10r\x1b[?6h\x1b[3;4H", "z\x1b[Hw"),
        ("\x1b[24;80Hx", "y"),
        ("\x1b[24;79H漢", "字"),
        ("\x1b[4h\x1b[5;5Habc\x1b[5;5H", "d"),
        ("\x1b[5;5H\x1b7\x1b[9;9Hq", "\x1b8here"),
        ("\x1b[3g\x1b[1;5H\x1bH\x1b[1;1H", "\ttab"),
        ("\x1b]4;1;#123456\x07\x1b[31mx", "y"),
        ("\x1b[?7l\x1b[1;78H", "abcdef"),
    ] {
        let mut first = fed(before.as_bytes());
        let mut second = emulator();
        second.feed(&first.snapshot());
        assert_eq!(seen(&first), seen(&second), "{before:?}");
        for emulator in [&mut first, &mut second] {
            emulator.feed(after.as_bytes());
        }
        assert_eq!(seen(&first), seen(&second), "{before:?} then {after:?}");
    }
}

/// Output as programs make it, with every kind of sequence in it, readable when a test fails.
#[derive(Clone)]
struct Output(Vec<u8>);

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

fn output() -> impl Strategy<Value = Output> {
    let number = prop_oneof![4 => 0u32..30, 1 => 0u32..70_000];
    let piece = prop_oneof![
        4 => "[ -~]{1,30}".prop_map(String::into_bytes),
        2 => "[a漢字é⚠👩🚀\u{301}\u{200d}\u{fe0f}\u{202e}\u{ad}\u{1f3fd}\u{1160}]{1,12}"
            .prop_map(String::into_bytes),
        2 => prop::sample::select(vec![
            "\r\n", "\n", "\r", "\t", "\x08", "\x0e", "\x0f", "\x1b7", "\x1b8", "\x1bM", "\x1bD",
            "\x1bE", "\x1bH", "\x1bc", "\x1b=", "\x1b>", "\x1b(0", "\x1b(B", "\x1b)0", "\x1b#8",
            "\x1b[!p", "\x1b[?1049h", "\x1b[?1049l", "\x1b[?47h", "\x1b[?1047l", "\x1b[?6h",
            "\x1b[?6l", "\x1b[?7l", "\x1b[?7h", "\x1b[4h", "\x1b[4l", "\x1b[20h", "\x1b[3J",
            "\x1b[2J", "\x1b[J", "\x1b[1J", "\x1b[K", "\x1b[3g", "\x1b[0;1;31;44m", "\x1b[m",
            "\x1b[?1000h", "\x1b[?1006h", "\x1b[?2004h", "\x1b[?25l", "\x1b[?25h", "\x1b[?3h",
            "\x1b]2;t\x07", "\x1b]8;;http://x\x1b\\", "\x1b]11;#102030\x07", "\x1b[>1u", "\x1b[<u",
            "\x1b[?1048h", "\x1b[?1048l",
        ]).prop_map(|text| text.as_bytes().to_vec()),
        4 => (number.clone(), number, prop::sample::select(
            b"@ABCDEFGHIJKLMPSTXZ`abdefghlmnpqrstu".to_vec())).prop_map(|(a, b, action)| {
                let mut bytes = format!("\x1b[{a};{b}").into_bytes();
                bytes.push(action);
                bytes
            }),
        1 => prop::collection::vec(any::<u8>(), 0..20),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| Output(pieces.concat()))
}

fn assert_only_cells(emulator: &Emulator) {
    let columns = usize::from(emulator.size().cols);
    for row in 0..usize::from(emulator.size().rows) {
        let cells = emulator.row(row);
        assert_eq!(cells.len(), columns);
        assert_eq!(
            cells
                .iter()
                .map(|cell| usize::from(cell.width))
                .sum::<usize>(),
            columns
        );
        for cell in &cells {
            assert_eq!(cell.text.width(), usize::from(cell.width), "{cell:?}");
            assert!(!cell.text.chars().any(char::is_control), "{cell:?}");
            assert!(
                !cell
                    .text
                    .contains(['\u{200d}', '\u{202e}', '\u{fe0f}', '\u{ad}']),
                "{cell:?}"
            );
        }
    }
    if let Some(cursor) = emulator.cursor() {
        assert!(cursor.row < emulator.size().rows && cursor.col < emulator.size().cols);
    }
    assert!(
        emulator
            .title()
            .is_none_or(|title| !title.chars().any(char::is_control))
    );
}

proptest! {
    #![proptest_config(crate::cases(64))]

    #[test]
    fn any_bytes_end_as_cells(
        bytes in prop::collection::vec(any::<u8>(), 0..2_000),
        rows in 0u16..40,
        cols in 0u16..100,
    ) {
        let mut emulator = Emulator::new(size(rows, cols), 50);
        emulator.feed(&bytes);
        assert_only_cells(&emulator);
    }

    #[test]
    fn any_output_at_any_sizes_ends_as_cells(
        steps in prop::collection::vec((output(), 0u16..40, 0u16..100, -60i32..60), 1..6),
    ) {
        let mut emulator = Emulator::new(size(24, 80), 50);
        for (Output(bytes), rows, cols, scroll) in steps {
            emulator.feed(&bytes);
            assert_only_cells(&emulator);
            emulator.scroll(scroll);
            assert_only_cells(&emulator);
            emulator.resize(size(rows, cols));
            assert_only_cells(&emulator);
            emulator.snapshot();
        }
    }

    #[test]
    fn chunks_make_no_difference(Output(bytes) in output(), cut in any::<prop::sample::Index>()) {
        let whole = fed(&bytes);
        let mut parts = emulator();
        let at = cut.index(bytes.len() + 1);
        let mut answers = parts.feed(&bytes[..at]);
        answers.extend(parts.feed(&bytes[at..]));
        prop_assert_eq!(seen(&whole), seen(&parts));
        prop_assert_eq!(emulator().feed(&bytes), answers);
    }

    #[test]
    fn a_snapshot_gives_the_same_screen(
        Output(bytes) in output(),
        rows in 1u16..12,
        // On two or three columns the gap before a wide character may look different.
        cols in 4u16..40,
        Output(more) in output(),
    ) {
        let mut first = Emulator::new(size(24, 80), 3_000);
        first.feed(&bytes);
        first.resize(size(rows, cols));
        first.feed(&more);
        let snapshot = first.snapshot();
        let mut second = Emulator::new(first.size(), 3_000);
        second.feed(&snapshot);
        prop_assert_eq!(seen(&first), seen(&second));
        prop_assert_eq!(first.history(), second.history());
        prop_assert_eq!(first.snapshot(), snapshot);
    }
}
