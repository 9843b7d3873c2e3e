//! No size and no page may panic, and lists of any length cost what is on the screen.

use std::time::Instant;

use pvisor::change::Risk;

use crate::fixture::{Screen, Session};

#[test]
fn no_size_panics_on_any_page() {
    let pages: [&[&str]; 9] = [
        &[],
        &["2"],
        &["3"],
        &["4"],
        &["?"],
        &["q"],
        &["o"],
        &["x", "w"],
        &["space", "P"],
    ];
    let sizes: Vec<(u16, u16)> = (0..=200u16)
        .step_by(7)
        .chain([39, 40, 41, 119, 120, 121])
        .flat_map(|w| (0..=60u16).step_by(5).chain([9, 23]).map(move |h| (w, h)))
        .collect();
    for keys in pages {
        let mut screen = Screen::new(Session::full(), (120, 40));
        screen.keys(keys);
        for size in &sizes {
            screen.size = *size;
            screen.draw();
            screen.press("j");
        }
    }
}

#[test]
fn a_screen_too_small_decides_nothing_and_can_be_left() {
    let mut screen = Screen::new(Session::full(), (80, 24));
    screen.size = (30, 5);
    screen.draw();
    for key in ["space", "A", "x", "P", "y", "enter", "X", "U"] {
        screen.press(key);
    }
    assert!(screen.asked().is_empty());
    screen.keys(&["q", "l"]);
    assert!(screen.left.is_some());
    screen.size = (80, 24);
    screen.draw();
}

#[test]
fn consent_cannot_be_given_on_a_screen_too_small() {
    let mut screen = Screen::new(Session::full(), (80, 24));
    screen.keys(&["q"]);
    screen.press("esc");
    screen.go_to(b"gone.txt");
    screen.press("X");
    screen.wait(500);
    screen.size = (20, 5);
    screen.wait(500);
    screen.press("y");
    assert!(screen.asked().is_empty());
}

#[test]
fn sixty_thousand_rows() {
    let mut session = Session::new();
    for i in 0..60_000 {
        session.added(format!("v/{i}").as_bytes(), b"", &[]);
    }
    for i in 1..=3 {
        session.deleted(format!("k/{i}").as_bytes(), b"x\n");
    }
    session.added(b"v/run", b"", &[Risk::Executable]);
    let mut screen = Screen::new(session, (80, 24));
    let text = screen.text();
    // What must not be overlooked stands before the folded mass, with exact counts.
    for name in ["k/1", "k/2", "k/3", "v/run"] {
        assert!(text.contains(name), "{name} is hidden:\n{text}");
    }
    assert!(text.contains("60000"), "{text}");
    assert!(text.contains("60004 undecided"), "{text}");
    // Scrolling looks only at what is on the screen.
    screen.keys(&["G", "l"]);
    let begin = Instant::now();
    for _ in 0..100 {
        screen.press("ctrl-f");
    }
    let each = begin.elapsed() / 100;
    assert!(each.as_millis() < 100, "a page takes {each:?}");
}
