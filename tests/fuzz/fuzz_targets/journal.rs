//! A journal that was cut or damaged anywhere: each whole line is an update or an error, and the
//! reducer takes whatever sequence of updates comes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pvisor::session::state::{SessionState, Update};

fuzz_target!(|bytes: &[u8]| {
    let mut state = SessionState::default();
    for line in bytes.split(|b| *b == b'\n') {
        let Ok(update) = serde_json::from_slice::<Update>(line) else {
            break;
        };
        state.apply(&update);
    }
    let json = serde_json::to_vec(&state).expect("a state is serialisable");
    let back: SessionState = serde_json::from_slice(&json).expect("and readable");
    assert_eq!(back, state);
});
