//! Names, texts and notices made to deceive a terminal or a reader: shown, never obeyed.

use pvisor::change::Risk;
use pvisor::session::state::Update;
use ratatui::buffer::Buffer;

use crate::fixture::{Screen, Session};

fn hostile() -> Session {
    let mut s = Session::new();
    s.added(
        b"e.sh",
        b"#!/bin/sh\n: \x1b]0;T\x07\x1b[2J\x1b[?1049h\n: \x1b]x; echo hidden-cmd; \x07\n: \x1b[8mhidden\x1b[0m \x9b[31m \x08\x08\x7f\n",
        &[Risk::HiddenText],
    );
    s.added(
        b"b.py",
        "role = \"user\u{202e} \u{2066}\"; // ok\u{2069}\nad\u{200b}min()\nna\u{ef}ve \u{a0}x\n"
            .as_bytes(),
        &[Risk::HiddenText],
    );
    s.added(
        b"\x1b[2J\x1b]0;owned\x07/a\nb\rc",
        b"x\n",
        &[Risk::HiddenText],
    );
    s.added(b"\xff\xfe.bin", b"x", &[Risk::HiddenText]);
    s.added(
        "photo\u{202e}gpj.sh".as_bytes(),
        b"x\n",
        &[Risk::HiddenText],
    );
    s
}

fn no_control(buffer: &Buffer) {
    for cell in buffer.content() {
        for c in cell.symbol().chars() {
            let hidden = c.is_control()
                || matches!(c as u32, 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x2069 | 0xfeff | 0xe0000..=0xe007f);
            assert!(!hidden, "{c:?} reached the screen");
        }
    }
}

#[test]
fn names_are_one_row_each_and_escaped() {
    for size in [(80, 24), (120, 40)] {
        let mut screen = Screen::new(hostile(), size);
        no_control(&screen.draw());
        insta::assert_snapshot!(
            format!("hostile_names_{}x{}", size.0, size.1),
            screen.text()
        );
    }
}

#[test]
fn contents_are_shown_and_found() {
    let mut screen = Screen::new(hostile(), (80, 24));
    for (name, file) in [("escapes", b"e.sh".as_slice()), ("bidi", b"b.py")] {
        screen.go_to(file);
        screen.press("2");
        no_control(&screen.draw());
        insta::assert_snapshot!(format!("hostile_{name}"), screen.text());
    }
    screen.go_to(b"e.sh");
    screen.press("2");
    screen.press("/");
    for key in ["h", "i", "d", "d", "e", "n", "-", "c", "m", "d", "enter"] {
        screen.press(key);
    }
    let at = screen.model.diff.cursor;
    let document = screen.model.diff.document.clone().expect("loaded");
    let pvisor_tui::model::document::DocRow::Line(line) = &document.rows[at] else {
        panic!("not a line");
    };
    assert!(line.bytes.windows(10).any(|w| w == b"hidden-cmd"));
}

#[test]
fn escapes_have_a_style_that_no_file_can_imitate() {
    let mut session = hostile();
    session.added(b"forged", b"\\x1b[2J\n", &[]);
    let mut screen = Screen::new(session, (80, 24));
    let escape = screen.theme.style("text.escape").bg;
    let styled = |screen: &mut Screen, file: &[u8]| {
        screen.go_to(file);
        screen.press("2");
        let buffer = screen.draw();
        // Below tabs and the change's own line, above status bar and footer.
        (2..22u16)
            .flat_map(|y| (0..80u16).map(move |x| (x, y)))
            .filter(|at| buffer[*at].style().bg == escape)
            .count()
    };
    assert!(styled(&mut screen, b"e.sh") > 20);
    assert_eq!(styled(&mut screen, b"forged"), 0);
}

#[test]
fn no_page_lets_anything_through() {
    let mut screen = Screen::new(hostile(), (120, 40));
    screen.learn(Update::Noticed("\u{1b}[2Jnotice\u{202e}".into()));
    no_control(&screen.draw());
    for keys in [
        &["4"][..],
        &["1", "x"],
        &["esc", "X"],
        &["esc", "space"],
        &["q"],
    ] {
        for key in keys {
            screen.press(key);
        }
        no_control(&screen.draw());
    }
}

#[test]
fn carriage_returns_and_tabs() {
    let mut session = Session::new();
    session.modified(
        b"c.txt",
        b"one\r\ntwo\r\nthree\r\n",
        b"one\r\nTWO\r\nthree\nfour\r\n",
        &[],
    );
    session.modified(
        b"t.txt",
        b"a\tb\n1234567\t8\n",
        b"a\tB\n12345678\t9\n        x\n\tx\n",
        &[],
    );
    let mut screen = Screen::new(session, (80, 24));
    screen.go_to(b"c.txt");
    screen.press("2");
    let text = screen.text();
    assert!(text.contains("mixed line ends"), "{text}");
    assert!(text.contains("only the line end differs"), "{text}");
    insta::assert_snapshot!("line_ends", text);
    screen.go_to(b"t.txt");
    screen.keys(&["2", "i"]);
    insta::assert_snapshot!("tabs", screen.text());
    screen.press("i");
}
