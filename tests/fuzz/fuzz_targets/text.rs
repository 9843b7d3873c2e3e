//! Any bytes made visible: one line, nothing that acts on a terminal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pvisor::text::visible;

fuzz_target!(|bytes: &[u8]| {
    let shown = visible(bytes);
    assert!(!shown.chars().any(char::is_control), "{shown:?}");
    let bidi = |c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    assert!(!shown.chars().any(bidi), "{shown:?}");
});
