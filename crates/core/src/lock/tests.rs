//! The holders of one key against a plain map of them.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

fn lease(mode: Mode, deadline: u64) -> Lease {
    let fence = Fence::new(1).unwrap();
    Lease { mode, holds: Holds::ONE, fence, deadline: Millis(deadline), since: Millis(0), session: None }
}

fn shared(limit: u32) -> Mode {
    Mode::Shared(Limit::new(limit).unwrap_or(Limit::NONE))
}

#[test]
fn a_held_lock_stays_small() {
    assert_eq!(size_of::<Lock>(), 80, "with an owner of up to 38 bytes inside");
}

#[test]
fn holds_and_limits_have_bounds() {
    assert_eq!(Holds::new(0), None);
    assert_eq!(Holds::new(HOLDS_MAX).and_then(Holds::more), None);
    assert_eq!(Holds::new(HOLDS_MAX + 1), None);
    assert_eq!(Holds::ONE.less(), None);
    assert_eq!(Holds::ONE.more().and_then(Holds::less), Some(Holds::ONE));
    assert_eq!(Limit::new(0), None);
    assert_eq!(Limit::new(HOLDS_MAX + 1), None);
    assert_eq!(Limit::new(HOLDS_MAX).and_then(Limit::get), Some(HOLDS_MAX));
    assert_eq!(Limit::NONE.get(), None);
    assert!(Limit::new(HOLDS_MAX).unwrap() < Limit::NONE);
}

#[test]
fn a_lease_runs_up_to_its_deadline() {
    let lease = lease(Mode::Exclusive, 10);
    assert!(lease.runs(Millis(9)));
    assert!(!lease.runs(Millis(10)));
}

#[test]
fn an_exclusive_lease_sends_all_others_away() {
    let mut lock = Lock::new(Owner::checked(b"A"), lease(shared(3), 10));
    lock.set(b"B", lease(shared(3), 20));
    lock.set(b"C", lease(Mode::Exclusive, 5));
    assert_eq!((lock.len(), lock.is_exclusive(), lock.latest()), (1, true, Millis(5)));
    lock.set(b"D", lease(shared(3), 7));
    assert_eq!((lock.len(), lock.is_exclusive(), lock.latest()), (1, false, Millis(7)));
    assert!(!lock.remove(b"D"), "the last one goes with the lock");
}

#[test]
fn a_holder_takes_the_memory_that_its_name_needs() {
    let short = Lock::new(Owner::checked(b"A"), lease(Mode::Exclusive, 10));
    let long = Lock::new(Owner::checked(&[7; 512]), lease(Mode::Exclusive, 10));
    assert!(long.footprint() >= short.footprint() + 400);
    let mut crowd = short.clone();
    crowd.set(b"A", lease(shared(9), 10));
    let one = crowd.footprint();
    crowd.set(b"B", lease(shared(9), 10));
    assert!(crowd.footprint() > one);
}

proptest! {
    #[test]
    fn a_crowd_is_a_map_of_its_holders(
        first in (0..6_u8, 1..5_u32, 1..50_u64),
        steps in prop::collection::vec((0..6_u8, prop::option::of((1..5_u32, 1..50_u64))), 0..40),
        now in 0..50_u64,
    ) {
        let (owner, limit, deadline) = first;
        let mut lock = Lock::new(Owner::checked(&[owner]), lease(shared(limit), deadline));
        let mut map = BTreeMap::from([(owner, (limit, deadline))]);
        for (owner, change) in steps {
            match change {
                Some((limit, deadline)) => {
                    lock.set(&[owner], lease(shared(limit), deadline));
                    map.insert(owner, (limit, deadline));
                }
                None if map.len() > 1 => {
                    prop_assert!(lock.remove(&[owner]));
                    map.remove(&owner);
                }
                None => {}
            }
            let held: Vec<_> = lock.iter().map(|(owner, lease)| (owner.as_bytes()[0], *lease)).collect();
            let expected: Vec<_> =
                map.iter().map(|(owner, (limit, end))| (*owner, lease(shared(*limit), *end))).collect();
            prop_assert_eq!(held, expected);
            prop_assert_eq!(lock.len(), map.len());
            prop_assert_eq!(lock.earliest().0, map.values().map(|(_, end)| *end).min().unwrap());
            prop_assert_eq!(lock.latest().0, map.values().map(|(_, end)| *end).max().unwrap());
            let least = map.values().map(|(limit, _)| *limit).min().unwrap();
            prop_assert_eq!(lock.limit().get(), Some(least));
            for limit in 1..8 {
                let fits = map.len() < limit.min(least) as usize;
                prop_assert_eq!(lock.admits(shared(limit)), fits);
            }
            prop_assert!(!lock.admits(Mode::Exclusive));
            let ended = lock.lapsed(Millis(now)).map(|owner| map[&owner.as_bytes()[0]].1);
            prop_assert_eq!(ended, map.values().map(|(_, end)| *end).filter(|end| *end <= now).min());
        }
    }
}
