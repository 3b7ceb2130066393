//! Random lives of small worlds, each step against the model.

use super::op::{ANY, Kind, Op, Part, Token, Wish};
use super::world::{World, depth};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

const OWNERS: u8 = 5;

fn owner() -> impl Strategy<Value = u8> {
    0..OWNERS
}

fn key() -> impl Strategy<Value = u8> {
    prop_oneof![4 => Just(0_u8), 3 => Just(1_u8), 1 => 2..4_u8]
}

fn tie() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![4 => Just(None), 1 => (0..3_u8).prop_map(Some)]
}

fn ttl() -> impl Strategy<Value = u64> {
    prop_oneof![3 => 1..12_u64, 2 => 12..200_u64]
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => Just(Kind::Alone),
        2 => Just(Kind::Together(ANY)),
        3 => (1..4_u32).prop_map(Kind::Together),
    ]
}

fn wait() -> impl Strategy<Value = Option<Option<u64>>> {
    prop_oneof![
        2 => Just(None),
        4 => Just(Some(None)),
        3 => (0..30_u64).prop_map(|wait| Some(Some(wait))),
    ]
}

fn single() -> impl Strategy<Value = Wish> {
    let nests = prop_oneof![
        3 => Just(None),
        3 => Just(Some(None)),
        1 => (1..4_u32).prop_map(|hold| Some(Some(hold))),
    ];
    (owner(), key(), kind(), ttl(), wait(), tie(), nests).prop_map(
        |(owner, key, kind, ttl, wait, session, nests)| Wish {
            owner,
            keys: vec![key],
            kind,
            ttl,
            wait,
            session,
            nests,
        },
    )
}

/// Several keys are always asked for alone, as LOCK.MACQUIRE does.
fn several() -> impl Strategy<Value = Wish> {
    let keys = prop::sample::subsequence(vec![0_u8, 1, 2], 2..=3).prop_shuffle();
    (owner(), keys, ttl(), wait(), tie()).prop_map(|(owner, keys, ttl, wait, session)| Wish {
        owner,
        keys,
        kind: Kind::Alone,
        ttl,
        wait,
        session,
        nests: None,
    })
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![4 => Just(Part::One), 1 => (1..4_u32).prop_map(Part::Nth), 2 => Just(Part::All)]
}

fn token() -> impl Strategy<Value = Token> {
    prop_oneof![
        3 => (0..50_u64).prop_map(Token::Above),
        1 => (0..50_u64).prop_map(Token::Below),
        1 => Just(Token::TooFar),
    ]
}

/// Requests and time.
fn ordinary() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => single().prop_map(Op::Ask),
        3 => several().prop_map(Op::Ask),
        6 => (owner(), key(), part()).prop_map(|(owner, key, part)| Op::Release { owner, key, part }),
        2 => (owner(), key(), ttl(), tie()).prop_map(|(owner, key, ttl, session)| Op::Renew { owner, key, ttl, session }),
        1 => (owner(), key()).prop_map(|(owner, key)| Op::Downgrade { owner, key }),
        1 => (owner(), key(), token()).prop_map(|(owner, key, token)| Op::Raise { owner, key, token }),
        1 => (key(), prop::option::of(owner())).prop_map(|(key, owner)| Op::Break { key, owner }),
        3 => (0..15_u64).prop_map(|millis| Op::Pass { millis }),
        2 => Just(Op::Drain),
    ]
}

/// What clients, connections and operators do to it besides.
fn disturbance() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => key().prop_map(|key| Op::Delete { key }),
        1 => key().prop_map(|key| Op::Overwrite { key }),
        3 => (0..3_u8).prop_map(|session| Op::Close { session }),
        2 => (0..8_usize).prop_map(|nth| Op::Forget { nth }),
        2 => (0..8_usize).prop_map(|nth| Op::Dismiss { nth }),
        4 => (0..4_usize).prop_map(|nth| Op::Untold { nth }),
    ]
}

/// Locks that change their place.
///
/// Without requests for several keys: when the lock of one who waits for it arrives at a key, it is told so as soon
/// as it heads a line that is served, and the model does not know which lines are.
fn move_about() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0..4_u8, 0..4_u8).prop_map(|(from, to)| Op::Rename { from, to }),
        1 => Just(Op::SwapDatabases),
    ]
}

fn is_single(op: &Op) -> bool {
    !matches!(op, Op::Ask(wish) if wish.keys.len() > 1)
}

fn live(ops: &[Op], max_waiters: usize) -> World {
    let mut world = World::new(max_waiters);
    // A request looks at its own keys only. Where others hang together with them, what is due there shows as soon
    // as the alarm has gone off, and the model knows no alarm.
    let late = ops.iter().all(is_single);
    for op in ops {
        world.step(op);
        if !late {
            world.step(&Op::Drain);
        }
    }
    world
}

fn cases(default: u32) -> ProptestConfig {
    ProptestConfig { cases: default * depth(), failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(250))]

    #[test]
    fn requests_and_time(ops in prop::collection::vec(ordinary(), 1..80)) {
        let world = live(&ops, 1_000);
        prop_assert_eq!(world.model.stuck(), Vec::<usize>::new());
    }

    #[test]
    fn one_key_at_a_time(ops in prop::collection::vec(prop_oneof![6 => ordinary(), 1 => disturbance()], 1..80)) {
        let ops = ops.into_iter().filter(is_single).collect::<Vec<_>>();
        let world = live(&ops, 1_000);
        prop_assert_eq!(world.model.stuck(), Vec::<usize>::new());
    }

    #[test]
    fn a_node_of_a_cluster(ops in prop::collection::vec(prop_oneof![4 => ordinary(), 1 => disturbance()], 1..80)) {
        let mut world = World::new(1_000);
        world.clustered = true;
        for op in ops.iter().filter(|op| is_single(op)) {
            world.step(op);
        }
        prop_assert_eq!(world.model.stuck(), Vec::<usize>::new());
    }

    #[test]
    fn clients_that_come_and_go(ops in prop::collection::vec(prop_oneof![4 => ordinary(), 1 => disturbance()], 1..80)) {
        let world = live(&ops, 1_000);
        prop_assert_eq!(world.model.stuck(), Vec::<usize>::new());
    }

    #[test]
    fn locks_that_move(
        ops in prop::collection::vec(prop_oneof![12 => ordinary(), 3 => disturbance(), 2 => move_about()], 1..80),
    ) {
        let ops = ops.into_iter().filter(is_single).collect::<Vec<_>>();
        live(&ops, 1_000);
    }

    #[test]
    fn a_short_queue(ops in prop::collection::vec(prop_oneof![4 => ordinary(), 1 => disturbance()], 1..60)) {
        let at_once = ops.into_iter().flat_map(|op| [op, Op::Drain]).collect::<Vec<_>>();
        live(&at_once, 3);
    }
}
