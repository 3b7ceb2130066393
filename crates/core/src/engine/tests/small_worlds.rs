//! Small worlds searched through: every sequence of steps up to some length, each step against the model.
//!
//! `REDISLOCK_DEPTH` multiplies how many steps may be tried.

use super::op::{ANY, Kind, Op, Part, Wish};
use super::world::{World, depth};
use std::collections::BTreeSet;
use std::println;
use std::vec;
use std::vec::Vec;

const FOR_EVER: Option<Option<u64>> = Some(None);

fn wish(owner: u8, keys: &[u8], kind: Kind) -> Wish {
    Wish { owner, keys: keys.into(), kind, ttl: 3, wait: None, session: None, nests: None }
}

/// Whether waiters may be left waiting for one another, as when a lock moves to a key that its owner waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stuck {
    Never,
    Possible,
}

/// Tries every step in every world that can be reached, nearest first, until the steps are used up or no new world
/// is found.
fn search(name: &str, alphabet: &[Op], steps: usize, stuck: Stuck) {
    let steps = steps * depth() as usize;
    let start = World::new(100);
    let mut seen = BTreeSet::from([start.shape()]);
    let mut layer = vec![start];
    let (mut tried, mut layers) = (0, 0);
    while !layer.is_empty() && tried + layer.len() * alphabet.len() <= steps {
        let mut next = Vec::new();
        for world in &layer {
            for op in alphabet {
                let mut world = world.clone();
                world.step(op);
                if matches!(op, Op::Pass { .. }) {
                    world.step(&Op::Drain);
                }
                tried += 1;
                if seen.insert(world.shape()) {
                    if stuck == Stuck::Never {
                        assert_eq!(world.model.stuck(), Vec::<usize>::new());
                    }
                    next.push(world);
                }
            }
        }
        layer = next;
        layers += 1;
    }
    let end = if layer.is_empty() { ", all there are" } else { "" };
    println!(
        "{name}: {} steps known, {layers} deep, {} worlds{end}, {tried} steps tried",
        alphabet.len(),
        seen.len()
    );
    assert!(layers >= 4, "not deep enough to mean something");
}

/// For each owner, what it may do.
fn each(owners: u8, ops: impl Fn(u8) -> Vec<Op>) -> Vec<Op> {
    (0..owners).flat_map(ops).collect()
}

#[test]
fn two_owners_one_key_and_every_kind_of_request() {
    let mut alphabet = each(2, |owner| {
        let mut ops = Vec::new();
        for kind in [Kind::Alone, Kind::Together(ANY), Kind::Together(1)] {
            for nests in [None, Some(None), Some(Some(1)), Some(Some(2))] {
                for wait in [None, FOR_EVER] {
                    ops.push(Op::Ask(Wish { nests, wait, ..wish(owner, &[0], kind) }));
                }
            }
        }
        ops.extend([
            Op::Ask(Wish { wait: Some(Some(2)), ..wish(owner, &[0], Kind::Alone) }),
            Op::Renew { owner, key: 0, ttl: 1, session: None },
            Op::Renew { owner, key: 0, ttl: 5, session: None },
            Op::Release { owner, key: 0, part: Part::One },
            Op::Release { owner, key: 0, part: Part::Nth(1) },
            Op::Release { owner, key: 0, part: Part::Nth(2) },
            Op::Release { owner, key: 0, part: Part::All },
            Op::Downgrade { owner, key: 0 },
        ]);
        ops
    });
    alphabet.extend([Op::Pass { millis: 1 }, Op::Pass { millis: 3 }, Op::Break { key: 0, owner: None }]);
    search("two owners, one key", &alphabet, 40_000, Stuck::Never);
}

#[test]
fn three_owners_sharing_one_key() {
    let mut alphabet = each(3, |owner| {
        let waits = |kind| Op::Ask(Wish { wait: FOR_EVER, ..wish(owner, &[0], kind) });
        let upgrade = Wish { wait: FOR_EVER, nests: Some(None), ..wish(owner, &[0], Kind::Alone) };
        vec![
            waits(Kind::Alone),
            waits(Kind::Together(ANY)),
            waits(Kind::Together(2)),
            Op::Ask(upgrade),
            Op::Release { owner, key: 0, part: Part::One },
            Op::Release { owner, key: 0, part: Part::All },
            Op::Downgrade { owner, key: 0 },
        ]
    });
    alphabet.push(Op::Pass { millis: 2 });
    search("three owners, one key", &alphabet, 40_000, Stuck::Never);
}

#[test]
fn three_owners_two_keys_one_by_one() {
    let alphabet = each(3, |owner| {
        let mut ops = Vec::new();
        for key in [0, 1] {
            ops.push(Op::Ask(Wish { wait: FOR_EVER, ttl: 100, ..wish(owner, &[key], Kind::Alone) }));
            ops.push(Op::Ask(Wish { wait: FOR_EVER, ttl: 100, ..wish(owner, &[key], Kind::Together(2)) }));
            ops.push(Op::Release { owner, key, part: Part::All });
        }
        ops
    });
    search("three owners, two keys", &alphabet, 40_000, Stuck::Never);
}

#[test]
fn three_owners_and_several_keys_at_once() {
    let mut alphabet = each(3, |owner| {
        let mut ops = vec![
            Op::Ask(Wish { wait: FOR_EVER, ..wish(owner, &[0, 1], Kind::Alone) }),
            Op::Ask(Wish { wait: FOR_EVER, ..wish(owner, &[2, 1], Kind::Alone) }),
        ];
        for key in [0, 1] {
            ops.push(Op::Ask(Wish { wait: FOR_EVER, ..wish(owner, &[key], Kind::Alone) }));
            ops.push(Op::Release { owner, key, part: Part::All });
        }
        ops
    });
    alphabet.extend([Op::Pass { millis: 3 }, Op::Forget { nth: 0 }]);
    search("three owners, several keys at once", &alphabet, 40_000, Stuck::Never);
}

#[test]
fn two_owners_with_connections_that_close() {
    let mut alphabet = each(2, |owner| {
        let tied = |session| Wish { session: Some(session), ..wish(owner, &[0], Kind::Alone) };
        vec![
            Op::Ask(tied(0)),
            Op::Ask(Wish { wait: FOR_EVER, ..tied(0) }),
            Op::Ask(Wish { wait: FOR_EVER, kind: Kind::Together(2), ..tied(1) }),
            Op::Ask(Wish { wait: FOR_EVER, kind: Kind::Alone, nests: Some(None), ..tied(1) }),
            Op::Ask(Wish { session: None, nests: Some(None), ..tied(0) }),
            Op::Renew { owner, key: 0, ttl: 3, session: None },
            Op::Renew { owner, key: 0, ttl: 3, session: Some(1) },
            Op::Release { owner, key: 0, part: Part::One },
        ]
    });
    alphabet.extend([
        Op::Close { session: 0 },
        Op::Close { session: 1 },
        Op::Untold { nth: 0 },
        Op::Untold { nth: 1 },
        Op::Pass { millis: 2 },
    ]);
    search("two owners, two connections", &alphabet, 40_000, Stuck::Never);
}

#[test]
fn two_owners_while_locks_move() {
    let mut alphabet = each(2, |owner| {
        vec![
            Op::Ask(Wish { session: Some(0), ..wish(owner, &[0], Kind::Alone) }),
            Op::Ask(Wish { wait: FOR_EVER, ..wish(owner, &[0], Kind::Alone) }),
            Op::Ask(Wish { wait: FOR_EVER, nests: Some(None), ..wish(owner, &[2], Kind::Together(2)) }),
            Op::Ask(Wish { wait: FOR_EVER, nests: Some(None), ..wish(owner, &[0], Kind::Alone) }),
            Op::Release { owner, key: 2, part: Part::One },
        ]
    });
    alphabet.extend([
        Op::Rename { from: 0, to: 2 },
        Op::Rename { from: 2, to: 0 },
        Op::SwapDatabases,
        Op::Close { session: 0 },
        Op::Untold { nth: 0 },
        Op::Delete { key: 0 },
        Op::Overwrite { key: 2 },
        Op::Pass { millis: 2 },
    ]);
    search("two owners, locks that move", &alphabet, 40_000, Stuck::Possible);
}
