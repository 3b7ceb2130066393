//! Records from elsewhere: what they say is so, whatever was there, and saying it twice changes nothing.

use super::memory::{Content, Memory};
use super::world::key;
use crate::engine::{Change, Engine};
use crate::fence::Fence;
use crate::lock::{Holds, Lease, Limit, Mode};
use crate::record::Record;
use crate::request::Fault;
use crate::time::Millis;
use proptest::prelude::*;

fn lease(mode: Mode, fence: u64, deadline: u64) -> Lease {
    let fence = Fence::new(fence).unwrap();
    Lease { mode, holds: Holds::ONE, fence, deadline: Millis(deadline), since: Millis(0), session: None }
}

fn record(owner: &[u8], counter: u64, change: Change) -> Record<'_> {
    Record { counter: Fence::new(counter).unwrap(), owner, change }
}

const SHARED: Mode = Mode::Shared(Limit::NONE);

#[test]
fn an_exclusive_holder_on_record_is_alone() {
    let (mut engine, mut memory) = (Engine::new(0), Memory::default());
    let mut apply = |record| engine.apply(&mut memory, key(0), &record).unwrap();
    apply(record(b"A", 1, Change::Held(lease(SHARED, 1, 100))));
    apply(record(b"B", 2, Change::Held(lease(SHARED, 2, 100))));
    apply(record(b"C", 3, Change::Held(lease(Mode::Exclusive, 3, 100))));
    let lock = memory.lock(key(0)).unwrap();
    assert_eq!(lock.len(), 1);
    assert!(lock.is_exclusive() && lock.get(b"C").is_some());
}

#[test]
fn no_clock_is_read_and_nobody_but_the_named_one_goes() {
    let (mut engine, mut memory) = (Engine::new(0), Memory::default());
    let mut apply = |record| engine.apply(&mut memory, key(0), &record).unwrap();
    apply(record(b"A", 1, Change::Held(lease(SHARED, 1, 1))));
    apply(record(b"B", 2, Change::Held(lease(SHARED, 2, 100_000))));
    apply(record(b"X", 2, Change::Gone));
    apply(record(b"B", 2, Change::Gone));
    assert!(memory.lock(key(0)).unwrap().get(b"A").is_some(), "it lapses when its own record says so");
    engine.apply(&mut memory, key(0), &record(b"A", 2, Change::Gone)).unwrap();
    assert_eq!(memory.lock(key(0)), None);
    engine.apply(&mut memory, key(0), &record(b"A", 9, Change::Gone)).unwrap();
    assert_eq!(memory.lock(key(0)), None);
    assert_eq!(engine.last_fence().get(), 9, "every record carries the counter");
    assert_eq!(memory.told, [], "what comes from elsewhere is not told again");
}

#[test]
fn a_record_does_not_touch_a_value_of_another_type() {
    let (mut engine, mut memory) = (Engine::new(0), Memory::default());
    memory.overwrite(key(0));
    let held = record(b"A", 7, Change::Held(lease(SHARED, 7, 100)));
    assert_eq!(engine.apply(&mut memory, key(0), &held), Err(Fault::WrongType));
    assert_eq!(memory.slots[&key(0).to_buf()], Content::Foreign);
}

#[test]
fn the_counter_is_no_lower_than_the_token_of_a_holder() {
    let (mut engine, mut memory) = (Engine::new(0), Memory::default());
    let held = record(b"A", 3, Change::Held(lease(SHARED, 8, 100)));
    engine.apply(&mut memory, key(0), &held).unwrap();
    assert_eq!(engine.last_fence().get(), 8);
}

proptest! {
    #[test]
    fn a_record_that_comes_twice_changes_nothing(
        records in prop::collection::vec((0..2_u8, 0..4_u8, 1..9_u64, prop::option::of((0..4_u32, 1..99_u64))), 1..30),
    ) {
        let (mut once, mut once_memory) = (Engine::new(0), Memory::default());
        let (mut twice, mut twice_memory) = (Engine::new(0), Memory::default());
        for (number, owner, counter, held) in records {
            let change = held.map_or(Change::Gone, |(limit, deadline)| {
                let mode = match limit {
                    0 => Mode::Exclusive,
                    limit => Mode::Shared(Limit::new(limit).unwrap()),
                };
                Change::Held(lease(mode, counter, deadline))
            });
            let owner = [b'A' + owner];
            let record = record(&owner, counter, change);
            once.apply(&mut once_memory, key(number), &record).unwrap();
            twice.apply(&mut twice_memory, key(number), &record).unwrap();
            twice.apply(&mut twice_memory, key(number), &record).unwrap();
            prop_assert_eq!(&once_memory.slots, &twice_memory.slots);
            prop_assert_eq!(once.last_fence(), twice.last_fence());
        }
    }
}
