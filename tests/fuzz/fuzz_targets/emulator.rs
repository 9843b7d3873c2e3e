//! Any output of an agent, at any size: the emulator neither panics nor loses its own snapshot.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pvisor::emulator::Emulator;
use pvisor::sandbox::spec::TerminalSize;

fuzz_target!(|input: (u8, u8, &[u8], u8, u8)| {
    let (rows, cols, bytes, later_rows, later_cols) = input;
    let size = |rows: u8, cols: u8| TerminalSize {
        rows: u16::from(rows.max(1)),
        cols: u16::from(cols.max(1)),
    };
    let mut emulator = Emulator::new(size(rows, cols), 100);
    let (first, second) = bytes.split_at(bytes.len() / 2);
    emulator.feed(first);
    emulator.resize(size(later_rows, later_cols));
    emulator.feed(second);
    let snapshot = emulator.snapshot();
    let mut copy = Emulator::new(emulator.size(), 100);
    copy.feed(&snapshot);
    assert_eq!(copy.text(), emulator.text());
});
