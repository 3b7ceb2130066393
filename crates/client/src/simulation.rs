//! The coordinator in a simulated world: nodes that crash, restart, freeze and run on clocks of their own, clients
//! that are paused, links that delay, drop and reorder. Every history comes from a seed, and the same seed gives the
//! same history.
//!
//! Two things must hold in every one: no two clients hold a valid guard at the same moment, and a guard that is
//! handed out later carries a higher fence.
//!
//! `REDISLOCK_SIM_SEED=n` replays one seed, `REDISLOCK_SIM_SEEDS=n` runs so many of each test.

mod client;
mod node;
mod world;

use std::time::Duration;

use world::{Faults, History, World};

fn seeds(default: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    match number("REDISLOCK_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("REDISLOCK_SIM_SEEDS").unwrap_or(default),
    }
}

fn run(nodes: usize, faults: Faults, seed: u64) -> History {
    World::new(nodes, 4, faults, seed).run(Duration::from_secs(30))
}

fn check(nodes: usize, faults: Faults, count: u64) {
    let (mut wins, mut lost) = (0, 0);
    for seed in seeds(count) {
        let history = run(nodes, faults, seed);
        assert_eq!(history.violations, Vec::<String>::new(), "{nodes} nodes, seed {seed}");
        assert!(history.starved.is_empty(), "{nodes} nodes, seed {seed}: starved {:?}", history.starved);
        wins += history.wins;
        lost += history.lost;
    }
    println!("{nodes} nodes: {wins} grants, {lost} losses");
    assert!(wins > 0);
}

#[test]
fn one_node_without_faults() {
    check(1, Faults::NONE, 10);
}

#[test]
fn five_nodes_without_faults() {
    check(5, Faults::NONE, 10);
}

#[test]
fn one_node_with_faults() {
    check(1, Faults::ALL, 40);
}

#[test]
fn three_nodes_with_faults() {
    check(3, Faults::ALL, 40);
}

#[test]
fn b72_five_nodes_with_pauses_skew_partitions_and_crashes() {
    check(5, Faults::ALL, 40);
}

#[test]
fn b65_four_nodes_need_three() {
    check(4, Faults::ALL, 40);
}

#[test]
fn a_seed_replays_the_same_history() {
    for seed in 0..3 {
        assert_eq!(run(5, Faults::ALL, seed), run(5, Faults::ALL, seed));
    }
}

/// The checker finds what it is there to find: nodes that forget what they granted let two clients hold.
#[test]
fn b73_nodes_that_forget_without_a_quarantine_are_caught() {
    let faults = Faults { forget: true, ..Faults::ALL };
    let caught = (0..60).filter(|seed| !run(3, faults, *seed).violations.is_empty()).count();
    assert!(caught > 0, "no violation in 60 seeds");
}
