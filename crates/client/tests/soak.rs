//! The long tests: what others check on a small scale, in full. `cargo test --test soak -- --ignored --nocapture`
//! also shows figures.

mod support;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redislock_client::{Locker, Released};
use redislock_testkit::{Client, Reply, Server, cmd};
use support::*;

/// How many connections a locker keeps for later, and a few that are about to close.
const KEPT: i64 = 20;

fn connections(server: &Server) -> i64 {
    server.info("connected_clients").parse().unwrap()
}

fn memory(server: &Server) -> i64 {
    server.info("used_memory").parse().unwrap()
}

async fn nothing_is_left(server: &Server, base: i64) {
    let within = ms(30_000);
    eventually(within, "no lock", || cmd!(server.connect(), "DBSIZE").int() == 0).await;
    eventually(within, "no waiter", || server.info("blocked_clients") == "0").await;
    eventually(within, "the connections from before", || connections(server) <= base + KEPT).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn soak_b37_ten_thousand_acquisitions_over_five_nodes_dropped_at_random() {
    let servers = servers(5);
    let locker = locker(&servers);
    let base: Vec<_> = servers.iter().map(connections).collect();
    let began = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..10_000 {
        let request = locker.lock(format!("k{}", number % 97)).ttl(ms(60_000));
        tasks.push(tokio::spawn(async move {
            let patience = Duration::from_micros(rand::random_range(0..20_000));
            let used = async {
                let guard = request.acquire().await;
                tokio::time::sleep(Duration::from_micros(200)).await;
                guard.is_ok()
            };
            tokio::time::timeout(patience, used).await.unwrap_or(false)
        }));
        if number % 10 == 0 {
            tokio::time::sleep(ms(4)).await;
        }
    }
    let mut granted = 0;
    for task in tasks {
        granted += usize::from(task.await.unwrap());
    }
    println!("10000 futures in {:?}: {granted} ran to their end, the others were dropped", began.elapsed());
    for (server, base) in servers.iter().zip(base) {
        nothing_is_left(server, base).await;
    }
    let after = (0..97).map(|key| {
        let request = locker.lock(format!("k{key}"));
        async move { request.acquire_within(ms(10_000)).await }
    });
    for guard in join_all(after).await {
        assert_eq!(guard.unwrap().release().await.unwrap(), Released::Freed);
    }
}

/// One cycle: every name is held, two wait for it, all get it in turn.
async fn hold_and_wait(locker: &Locker, names: usize) {
    let held = join_all((0..names).map(|name| {
        let request = locker.lock(format!("k{name}")).ttl(ms(120_000));
        async move { request.try_acquire().await.unwrap() }
    }));
    let mut waits = Vec::new();
    for (name, guard) in held.await.into_iter().enumerate() {
        for _ in 0..2 {
            let request = locker.lock(format!("k{name}")).ttl(ms(120_000));
            waits
                .push(tokio::spawn(async move { request.acquire().await.unwrap().release().await.unwrap() }));
        }
        // The waits that the locker has room for are in the server by now; they go on as names become free.
        tokio::spawn(async move {
            tokio::time::sleep(ms(50)).await;
            guard.release().await.unwrap();
        });
    }
    for wait in waits {
        assert_eq!(wait.await.unwrap(), Released::Freed);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn soak_b30_five_thousand_names_with_two_waiters_each() {
    let server = server();
    let waits = 500;
    let locker = builder([&server]).node_timeout(ms(10_000)).max_waits(waits).build().unwrap();
    let base = connections(&server);
    hold_and_wait(&locker, 100).await;
    let began = Instant::now();
    let most = Arc::new(std::sync::atomic::AtomicI64::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let watch = {
        let (most, over) = (most.clone(), over.clone());
        let mut client = server.connect();
        std::thread::spawn(move || {
            while !over.load(Ordering::Acquire) {
                let clients =
                    client.info("connected_clients").and_then(|count| count.parse().ok()).unwrap_or(0);
                most.fetch_max(clients, Ordering::AcqRel);
                std::thread::sleep(ms(20));
            }
        })
    };
    let mut sizes = Vec::new();
    for _ in 0..10 {
        hold_and_wait(&locker, 5000).await;
        nothing_is_left(&server, base).await;
        sizes.push(memory(&server) / 1024);
    }
    over.store(true, Ordering::Release);
    watch.join().unwrap();
    let most = most.load(Ordering::Acquire);
    println!("150000 grants in {:?}; at most {most} connections, {base} before", began.elapsed());
    // One for each wait that has room, and those that the server has not yet seen closing.
    assert!(most <= base + i64::try_from(waits * 5 / 4).unwrap() + KEPT, "{most} connections");
    println!("the server's memory after each cycle: {sizes:?} kB");
    assert!(sizes[9] < sizes[0] + 8192, "{sizes:?} kB");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn soak_b46_no_renewal_follows_a_release_in_five_thousand_rounds() {
    let server = server();
    let locker = locker([&server]);
    let mut monitor = server.connect();
    cmd!(monitor, "MONITOR").ok();
    let watched = std::thread::spawn(move || renewals_after_release(&mut monitor));
    let tasks = (0..50).map(|task| {
        let locker = locker.clone();
        tokio::spawn(async move {
            for round in 0..100 {
                let request = locker.lock(format!("k{task}")).ttl(ms(300));
                // The first renewal is due after a third of the ttl: half of the rounds end right about then, the
                // other half right about the grant.
                let pause = if round % 2 == 0 {
                    rand::random_range(0..2000)
                } else {
                    rand::random_range(95_000..125_000)
                };
                let pause = Duration::from_micros(pause);
                let held = async {
                    let guard = request.acquire_within(ms(1000)).await;
                    tokio::time::sleep(pause.mul_f64(0.98)).await;
                    if let Ok(guard) = guard {
                        let _ = guard.release().await;
                    }
                };
                let _ = tokio::time::timeout(pause, held).await;
            }
        })
    });
    for task in join_all(tasks).await {
        task.unwrap();
    }
    eventually(ms(5000), "all keys are gone", || cmd!(server.connect(), "DBSIZE").int() == 0).await;
    cmd!(server.connect(), "ECHO", "the end").text();
    let (renewals, releases, late) = watched.join().unwrap();
    println!("5000 rounds: {renewals} renewals, {releases} releases, {late} renewals after a release");
    assert!(renewals > 0 && releases > 1000);
    assert_eq!(late, 0);
}

/// Reads a monitor up to the end: the renewals, the releases, and the renewals of an owner that had released before.
fn renewals_after_release(monitor: &mut Client) -> (u64, u64, u64) {
    let mut released = HashSet::new();
    let (mut renewals, mut releases, mut late) = (0, 0, 0);
    loop {
        let Some(Reply::Simple(line)) = monitor.read_timeout(ms(60_000)) else {
            panic!("the monitor has ended")
        };
        let words: Vec<_> = line.split('"').skip(1).step_by(2).collect();
        match words[..] {
            ["LOCK.RELEASE", _, owner, ..] => {
                releases += 1;
                released.insert(owner.to_owned());
            }
            ["LOCK.RENEW", _, owner, ..] => {
                renewals += 1;
                late += u64::from(released.contains(owner));
            }
            ["ECHO", "the end"] => return (renewals, releases, late),
            _ => {}
        }
    }
}

async fn take_and_give_back(locker: &Locker, names: std::ops::Range<u32>) {
    let batch =
        names.map(|name| {
            let request = locker.lock(format!("name-{name}"));
            async move {
                assert_eq!(request.try_acquire().await.unwrap().release().await.unwrap(), Released::Freed)
            }
        });
    join_all(batch).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn soak_b58_memory_is_flat_over_a_million_names() {
    let server = server();
    let locker = builder([&server]).node_timeout(ms(10_000)).build().unwrap();
    let mut sizes = Vec::new();
    let began = Instant::now();
    for round in 0..10 {
        for batch in 0..200 {
            let first = round * 100_000 + batch * 500;
            take_and_give_back(&locker, first..first + 500).await;
        }
        sizes.push(resident_kb());
    }
    println!("1000000 names in {:?}, resident after each 100000: {sizes:?} kB", began.elapsed());
    assert!(sizes[9] < sizes[0] + 8192, "{sizes:?} kB");
    // Those that are held are kept, whatever else comes and goes.
    let held = join_all((0..10_000).map(|number| {
        let request = locker.lock(format!("held-{number}")).ttl(ms(20_000));
        async move { request.try_acquire().await.unwrap() }
    }));
    let held = held.await;
    for batch in 0..100 {
        take_and_give_back(&locker, batch * 500..batch * 500 + 500).await;
    }
    tokio::time::sleep(ms(20_000)).await;
    assert!(held.iter().all(|guard| !guard.is_lost()), "renewed all the while");
    let released = join_all(held.iter().map(|guard| guard.release())).await;
    assert!(released.iter().all(|outcome| *outcome == Ok(Released::Freed)));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long"]
async fn soak_b114_two_thousand_clients_on_one_key() {
    let server = server();
    let locker = builder([&server]).node_timeout(ms(10_000)).max_waits(2000).build().unwrap();
    let (base, began) = (connections(&server), Instant::now());
    let tasks = (0..2000).map(|_| {
        let request = locker.lock("hot").ttl(ms(60_000));
        tokio::spawn(async move {
            let guard = request.acquire_within(ms(30_000)).await?;
            tokio::time::sleep(MS).await;
            guard.release().await
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap().expect("granted before its wait ended"), Released::Freed);
    }
    let asked: u64 =
        ["acquire", "renew", "release"].map(|name| calls(&server, &format!("lock.{name}"))).iter().sum();
    println!("2000 grants in {:?} with {asked} commands", began.elapsed());
    assert!(asked <= 2000 * 4, "{asked} commands for 2000 grants");
    nothing_is_left(&server, base).await;
}
