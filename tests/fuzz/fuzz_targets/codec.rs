//! Frames from a peer that may be broken or hostile: an answer or an error, never more memory than
//! what arrived, and what was read is written back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pvisor::protocol::{ClientMessage, ServerMessage, codec};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some(message)) = codec::read::<ClientMessage>(&mut &*bytes) {
        let mut again = Vec::new();
        codec::write(&mut again, &message).expect("memory can be written");
        let back = codec::read::<ClientMessage>(&mut &*again).expect("our own frame");
        assert_eq!(back, Some(message));
    }
    let _ = codec::read::<ServerMessage>(&mut &*bytes);
});
