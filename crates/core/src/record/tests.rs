//! What is encoded comes back, what comes back is encoded the same, and nothing else is accepted.

use super::*;
use crate::lock::HOLDS_MAX;
use crate::time::Millis;
use proptest::prelude::*;
use std::string::ToString;
use std::vec;

fn owner() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![4 => prop::collection::vec(any::<u8>(), 1..40), 1 => prop::collection::vec(any::<u8>(), 512)]
}

fn mode() -> impl Strategy<Value = Mode> {
    let limit = prop_oneof![1..5_u32, 1..=HOLDS_MAX];
    prop_oneof![
        Just(Mode::Exclusive),
        Just(Mode::Shared(Limit::NONE)),
        limit.prop_map(|limit| Mode::Shared(Limit::new(limit).unwrap())),
    ]
}

/// Times far enough from the ends of the number range for any two offsets that are tried, one after the other.
fn time() -> impl Strategy<Value = Millis> {
    (3_000_000_000_u64..4_000_000_000_000).prop_map(Millis)
}

fn lease() -> impl Strategy<Value = Lease> {
    let holds = prop_oneof![1..4_u32, 1..=HOLDS_MAX].prop_map(|holds| Holds::new(holds).unwrap());
    let fence = (0..=Fence::MAX.get()).prop_map(|fence| Fence::new(fence).unwrap());
    (mode(), holds, fence, time(), time()).prop_map(|(mode, holds, fence, deadline, since)| Lease {
        mode,
        holds,
        fence,
        deadline,
        since,
        session: None,
    })
}

fn lock() -> impl Strategy<Value = Lock> {
    prop::collection::vec((owner(), lease()), 1..8).prop_map(|holders| {
        let mut all = holders.into_iter();
        let (first, lease) = all.next().unwrap();
        let mut lock = Lock::new(Owner::checked(&first), lease);
        for (owner, lease) in all.filter(|_| lease.mode != Mode::Exclusive) {
            if lease.mode != Mode::Exclusive {
                lock.set(&owner, lease);
            }
        }
        lock
    })
}

fn offset() -> impl Strategy<Value = Offset> {
    (-1_000_000_000..1_000_000_000_i64).prop_map(Offset)
}

fn record_bytes() -> impl Strategy<Value = Vec<u8>> {
    (owner(), prop::option::of(lease()), 0..=Fence::MAX.get()).prop_map(|(owner, lease, counter)| {
        let mut bytes = Vec::new();
        let change = lease.map_or(Change::Gone, Change::Held);
        let record = Record { counter: Fence::new(counter).unwrap(), owner: &owner, change };
        encode_record(&mut bytes, &record, Offset(0));
        bytes
    })
}

/// Some bytes changed, cut off or put in.
fn mutated(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..4);
    (bytes, changes).prop_map(|(mut bytes, changes)| {
        for (index, byte, kind) in changes {
            let at = index.index(bytes.len() + 1);
            match kind {
                0 => bytes.insert(at, byte),
                1 if at < bytes.len() => bytes[at] = byte,
                _ => bytes.truncate(at),
            }
        }
        bytes
    })
}

fn accepted_is_canonical(bytes: &[u8]) {
    if let Ok(lock) = decode_lock(bytes, Offset(0)) {
        assert_eq!(encode_lock(&lock, Offset(0)), bytes);
        assert!(lock.len() == 1 || !lock.is_exclusive());
    }
    if let Ok(record) = decode_record(bytes, Offset(0)) {
        let mut again = Vec::new();
        encode_record(&mut again, &record, Offset(0));
        assert_eq!(again, bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_lock_comes_back(lock in lock(), here in offset(), there in offset()) {
        prop_assert_eq!(&decode_lock(&encode_lock(&lock, here), here).unwrap(), &lock);
        // On another server the same wall time is another point on its clock.
        let moved = decode_lock(&encode_lock(&lock, here), there).unwrap();
        prop_assert_eq!(here.to_wall(lock.latest()), there.to_wall(moved.latest()));
        prop_assert_eq!(here.to_wall(lock.earliest()), there.to_wall(moved.earliest()));
    }

    #[test]
    fn a_record_comes_back(owner in owner(), lease in prop::option::of(lease()), counter in 0..=Fence::MAX.get(), offset in offset()) {
        let change = lease.map_or(Change::Gone, Change::Held);
        let record = Record { counter: Fence::new(counter).unwrap(), owner: &owner, change };
        let mut bytes = vec![1, 2, 3];
        encode_record(&mut bytes, &record, offset);
        prop_assert_eq!(decode_record(&bytes, offset), Ok(record));
    }

    #[test]
    fn any_bytes_are_refused_or_canonical(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        accepted_is_canonical(&bytes);
    }

    #[test]
    fn bytes_of_our_version_are_refused_or_canonical(bytes in prop::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..32)) {
        let mut versioned = vec![VERSION];
        versioned.extend(bytes);
        accepted_is_canonical(&versioned);
    }

    #[test]
    fn damaged_locks_are_refused_or_canonical(bytes in mutated(lock().prop_map(|lock| encode_lock(&lock, Offset(0))))) {
        accepted_is_canonical(&bytes);
    }

    #[test]
    fn damaged_records_are_refused_or_canonical(bytes in mutated(record_bytes())) {
        accepted_is_canonical(&bytes);
    }

    #[test]
    fn cut_bytes_are_refused(lock in lock(), cut in any::<prop::sample::Index>()) {
        let bytes = encode_lock(&lock, Offset(0));
        prop_assert_eq!(decode_lock(&bytes[..cut.index(bytes.len())], Offset(0)), Err(DecodeError::Truncated));
    }
}

fn lease_of(mode: Mode) -> Lease {
    let fence = Fence::new(300).unwrap();
    Lease { mode, holds: Holds::ONE, fence, deadline: Millis(7), since: Millis(5), session: None }
}

#[test]
fn the_encoding_of_version_1_stays_what_it_is() {
    let lock = Lock::new(Owner::checked(b"A"), lease_of(Mode::Exclusive));
    assert_eq!(encode_lock(&lock, Offset(1)), [1, 1, 1, b'A', 0, 1, 0xac, 2, 8, 6]);
    let mut lock = Lock::new(Owner::checked(b"B"), lease_of(Mode::Shared(Limit::NONE)));
    lock.set(b"A", lease_of(Mode::Shared(Limit::new(3).unwrap())));
    assert_eq!(
        encode_lock(&lock, Offset(0)),
        [1, 2, 1, b'A', 4, 1, 0xac, 2, 7, 5, 1, b'B', 1, 1, 0xac, 2, 7, 5]
    );
    let mut bytes = Vec::new();
    let record = Record { counter: Fence::new(2).unwrap(), owner: b"A", change: Change::Gone };
    encode_record(&mut bytes, &record, Offset(0));
    assert_eq!(bytes, [1, 2, 0, 1, b'A']);
}

#[test]
fn a_newer_version_is_named() {
    let refused = decode_lock(&[2, 1, 1, b'A'], Offset(0)).unwrap_err();
    assert_eq!(refused, DecodeError::Version(2));
    assert_eq!(refused.to_string(), "encoding version 2 is newer than 1, the newest that this build reads");
    assert_eq!(decode_record(&[7], Offset(0)), Err(DecodeError::Version(7)));
}

#[test]
fn what_no_build_writes_is_refused() {
    let refused = |bytes: &[u8]| decode_lock(bytes, Offset(0)).unwrap_err();
    assert_eq!(refused(&[]), DecodeError::Truncated);
    assert_eq!(refused(&[0, 1]), DecodeError::Invalid("version"));
    assert_eq!(refused(&[1, 0]), DecodeError::Invalid("holders: there are none"));
    // No owner, no hold, a limit that is none, a fence of 2^53, a time beyond all servers, bytes after the end.
    assert_eq!(refused(&[1, 1, 0, 0, 1, 1, 7, 5]), DecodeError::Invalid("owner"));
    assert_eq!(refused(&[1, 1, 1, b'A', 0, 0, 1, 7, 5]), DecodeError::Invalid("hold count"));
    assert_eq!(
        refused(&[1, 1, 1, b'A', 0x80, 0x80, 0x80, 0x80, 0x10, 1, 1, 7, 5]),
        DecodeError::Invalid("limit")
    );
    let fence = [1, 1, 1, b'A', 0, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10, 7, 5];
    assert_eq!(refused(&fence), DecodeError::Invalid("fence"));
    let time = [1, 1, 1, b'A', 0, 1, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1, 5];
    assert_eq!(refused(&time), DecodeError::Invalid("deadline"));
    assert_eq!(refused(&[1, 1, 1, b'A', 0, 1, 1, 7, 5, 0]), DecodeError::Trailing);
    // A number longer than it need be, and one that no integer holds.
    assert_eq!(refused(&[1, 0x81, 0]), DecodeError::Invalid("integer"));
    assert_eq!(refused(&[&[1][..], &[0xff; 11]].concat()), DecodeError::Invalid("integer"));
    // An exclusive holder beside another, holders out of order, one twice.
    let holder = |owner: u8, mode: u8| [1, owner, mode, 1, 1, 7, 5];
    let two = |one: [u8; 7], other: [u8; 7]| refused(&[&[1, 2][..], &one, &other].concat());
    let alone = DecodeError::Invalid("mode: an exclusive holder stands alone");
    assert_eq!(two(holder(b'A', 0), holder(b'B', 1)), alone);
    assert_eq!(two(holder(b'A', 1), holder(b'B', 0)), alone);
    let order = DecodeError::Invalid("owner: it is out of order");
    assert_eq!(two(holder(b'B', 1), holder(b'A', 1)), order);
    assert_eq!(two(holder(b'A', 1), holder(b'A', 1)), order);
}
