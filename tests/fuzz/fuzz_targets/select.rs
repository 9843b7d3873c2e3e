//! Any two files: every hunk chosen gives the one, none gives the other, byte for byte, and any
//! choice between them is possible.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pvisor::diff::{Item, ItemRef, as_text, items, select};
use pvisor::change::ChangeKind;

fuzz_target!(|input: (&[u8], &[u8], u64)| {
    let (old, new, choice) = input;
    let diff = as_text(old, new);
    let all: Vec<Item> = items(&ChangeKind::Modified, None, None, Some(&diff));
    let chosen = |picked: &dyn Fn(usize) -> bool| -> Vec<ItemRef> {
        let items = all.iter().enumerate().filter(|(at, _)| picked(*at));
        items.map(|(_, item)| item.id.clone().into()).collect()
    };
    assert_eq!(select(old, new, &diff, &chosen(&|_| true)).expect("all"), new);
    assert_eq!(select(old, new, &diff, &[]).expect("none"), old);
    let some = chosen(&|at| choice >> (at % 64) & 1 == 1);
    select(old, new, &diff, &some).expect("any choice");
});
