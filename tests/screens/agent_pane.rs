//! The agent's pane as it is drawn.

use proptest::prelude::*;
use pvisor::emulator::Emulator;
use pvisor::sandbox::spec::TerminalSize;
use pvisor_tui::agent::{AgentPane, ColorDepth};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier};
use unicode_width::UnicodeWidthStr;

fn emulator(rows: u16, cols: u16, bytes: &[u8]) -> Emulator {
    let mut emulator = Emulator::new(TerminalSize { rows, cols }, 1_000);
    emulator.feed(bytes);
    emulator
}

fn drawn(emulator: &Emulator, area: Rect, depth: ColorDepth) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal
        .draw(|frame| {
            let pane = AgentPane::new(emulator).depth(depth);
            if let Some(position) = pane.cursor_position(area) {
                frame.set_cursor_position(position);
            }
            frame.render_widget(pane, area);
        })
        .unwrap();
    terminal.backend().clone()
}

const FULL: Rect = Rect {
    x: 0,
    y: 0,
    width: 80,
    height: 24,
};

/// Each run of cells of a row that look the same.
fn styles(buffer: &Buffer, row: u16) -> String {
    let mut runs: Vec<(String, String)> = Vec::new();
    for x in 0..buffer.area.width {
        let cell = &buffer[(x, row)];
        let look = format!("{:?} on {:?} {:?}", cell.fg, cell.bg, cell.modifier);
        match runs.last_mut() {
            Some((text, last)) if *last == look => text.push_str(cell.symbol()),
            _ => runs.push((cell.symbol().to_owned(), look)),
        }
    }
    let lines = runs
        .iter()
        .map(|(text, look)| format!("{:?} {look}", text.trim_end()));
    lines.fold(String::new(), |all, line| all + &line + "\n")
}

/// A screen as an agent draws it.
fn agent_screen(rows: u16, cols: u16) -> Emulator {
    let mut screen = emulator(rows, cols, b"\x1b[?1049h\x1b[2J\x1b[H");
    screen.feed("\x1b[1;38;2;215;119;87m✻ Agent\x1b[0m ready\r\n\r\n".as_bytes());
    screen.feed(
        "\x1b[31m- old 漢字 line\x1b[0m\r\n\x1b[32m+ new 👩\u{200d}🚀 crew\x1b[0m\r\n".as_bytes(),
    );
    screen.feed("\x1b[48;5;236m\x1b[K  fn main() {\x1b[0m\r\n".as_bytes());
    screen.feed("⚠\u{fe0f} Cafe\u{301} \x1b[7m inverse \x1b[0m \x1b[2mdim\x1b[0m".as_bytes());
    screen.feed(b" \x1b[8msecret\x1b[0m \x1b[3;4;9mall\x1b[0m\r\n");
    screen.feed(
        "\x1b[20;1H╭──────────────╮\r\n│ > edit a.txt │\r\n╰──────────────╯\x1b[21;5H".as_bytes(),
    );
    screen
}

#[test]
fn draws_the_screen_of_an_agent() {
    let screen = agent_screen(24, 80);
    insta::assert_snapshot!(drawn(&screen, FULL, ColorDepth::Truecolor));
}

#[test]
fn colours_and_attributes_arrive_in_every_depth() {
    let screen = agent_screen(24, 80);
    for (name, depth) in [
        ("truecolor", ColorDepth::Truecolor),
        ("indexed", ColorDepth::Indexed),
        ("sixteen", ColorDepth::Sixteen),
        ("none", ColorDepth::None),
    ] {
        let backend = drawn(&screen, FULL, depth);
        let rows = [0, 2, 4, 5]
            .map(|row| styles(backend.buffer(), row))
            .join("\n");
        insta::assert_snapshot!(format!("styles_{name}"), rows);
    }
}

#[test]
fn a_larger_pane_is_filled_up() {
    let screen = emulator(6, 30, "a small terminal\r\n\x1b[44mblue\x1b[K".as_bytes());
    insta::assert_snapshot!(drawn(&screen, FULL, ColorDepth::Truecolor));
}

#[test]
fn a_smaller_pane_shows_the_part_with_the_cursor() {
    let mut screen = emulator(24, 80, b"");
    for line in 0..24 {
        let end = if line == 23 { "" } else { "\r\n" };
        screen.feed(format!("line {line} with 漢字漢字漢字{end}").as_bytes());
    }
    // The edge falls within a wide character.
    let area = Rect {
        x: 2,
        y: 1,
        width: 16,
        height: 5,
    };
    screen.feed(b"\r");
    let backend = drawn(&screen, area, ColorDepth::Truecolor);
    assert_eq!(backend.cursor_position(), Position::new(2, 5));
    insta::assert_snapshot!(backend);
    // The cursor at the right end moves the view, which may begin within one.
    screen.feed("\x1b[24;30H".as_bytes());
    let backend = drawn(&screen, area, ColorDepth::Truecolor);
    assert_eq!(backend.cursor_position(), Position::new(17, 5));
    insta::assert_snapshot!(backend);
}

#[test]
fn history_is_shown_without_a_cursor() {
    let mut screen = emulator(24, 80, b"");
    for line in 0..100 {
        screen.feed(format!("line {line}\r\n").as_bytes());
    }
    let pane = AgentPane::new(&screen);
    assert_eq!(pane.cursor_position(FULL), Some(Position::new(0, 23)));
    screen.scroll(10);
    let pane = AgentPane::new(&screen);
    assert_eq!(pane.cursor_position(FULL), None);
    let backend = drawn(&screen, FULL, ColorDepth::Truecolor);
    let first: String = (0..7).map(|x| backend.buffer()[(x, 0)].symbol()).collect();
    assert_eq!(first, "line 67");
}

#[test]
fn what_was_drawn_before_does_not_shine_through() {
    let screen = emulator(2, 10, "漢".as_bytes());
    let area = Rect {
        x: 0,
        y: 0,
        width: 10,
        height: 2,
    };
    let mut buffer = Buffer::filled(area, ratatui::buffer::Cell::new("#"));
    buffer.set_style(
        area,
        ratatui::style::Style::new()
            .fg(Color::Red)
            .add_modifier(Modifier::BOLD),
    );
    ratatui::widgets::Widget::render(AgentPane::new(&screen), area, &mut buffer);
    let text: String = buffer
        .content()
        .iter()
        .map(ratatui::buffer::Cell::symbol)
        .collect();
    assert_eq!(text.trim(), "漢");
    assert!(
        buffer
            .content()
            .iter()
            .all(|cell| cell.fg == Color::Reset && cell.modifier.is_empty())
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_in_any_room(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..500),
            "[ -~漢👩\u{301}\u{200d}\u{202e}\r\n]{0,300}".prop_map(String::into_bytes),
        ],
        rows in 0u16..40,
        cols in 0u16..100,
        area in (0u16..90, 0u16..30, 0u16..90, 0u16..30),
    ) {
        let screen = emulator(rows, cols, &bytes);
        let mut buffer = Buffer::empty(FULL);
        let area = Rect::new(area.0, area.1, area.2, area.3);
        ratatui::widgets::Widget::render(AgentPane::new(&screen), area, &mut buffer);
        for y in 0..24 {
            let mut x = 0;
            while x < 80 {
                let symbol = buffer[(x, y)].symbol();
                prop_assert!(!symbol.chars().any(char::is_control));
                let width = symbol.width().max(1) as u16;
                // Nothing reaches beyond the pane.
                prop_assert!(width == 1 || x + width <= area.right().min(80));
                x += width;
            }
        }
        if let Some(at) = AgentPane::new(&screen).cursor_position(area) {
            prop_assert!(area.contains(at));
        }
    }
}
