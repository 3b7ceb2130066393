//! Requests that wait in the server, and requests that are given up.

mod support;

use std::time::{Duration, Instant};

use redislock_client::{Error, Owner};
use redislock_testkit::cmd;
use support::*;

#[tokio::test(flavor = "multi_thread")]
async fn b12_tiny_waits_end_and_huge_ones_go_on() {
    let server = server();
    let locker = locker([&server]);
    let guard = locker.lock("k").acquire().await.unwrap();
    let began = Instant::now();
    let outcome = locker.lock("k").acquire_within(Duration::from_micros(500)).await;
    assert!(matches!(outcome, Err(Error::TimedOut { .. } | Error::Refused { .. })), "{outcome:?}");
    assert!(began.elapsed() < ms(100));
    assert!(locker.lock("k").acquire_within(Duration::ZERO).await.is_err());
    let request = locker.lock("k");
    let waiter = tokio::spawn(async move { request.acquire_within(Duration::MAX).await });
    tokio::time::sleep(ms(100)).await;
    assert!(!waiter.is_finished());
    guard.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_granted_at_release_and_at_lapse() {
    for count in [1, 3] {
        let servers = servers(count);
        let locker = locker(&servers);
        let guard = locker.lock("k").ttl(ms(5000)).acquire().await.unwrap();
        let request = locker.lock("k").ttl(ms(1000));
        let waiter = tokio::spawn(async move { request.acquire().await });
        tokio::time::sleep(ms(100)).await;
        let began = Instant::now();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        assert!(began.elapsed() < ms(400), "{count} nodes: {:?}", began.elapsed());
        std::mem::forget(next);
        // Now by lapse: the holder's process is gone, as it were.
        let dead = locker.lock("dead").ttl(ms(500)).without_watchdog().acquire().await.unwrap();
        let began = Instant::now();
        let late = locker.lock("dead").acquire_within(ms(3000)).await.unwrap();
        assert!(began.elapsed() < ms(1000) && dead.is_lost(), "{count} nodes: {:?}", began.elapsed());
        late.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_served_in_the_order_in_which_they_came() {
    for count in [1, 5] {
        let servers = servers(count);
        // On a busy machine a shorter one would now and then move the queue to another server.
        let locker = builder(&servers).node_timeout(ms(2000)).build().unwrap();
        let guard = locker.lock("k").acquire().await.unwrap();
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        for number in 0..10 {
            let (request, sender) = (locker.lock("k"), sender.clone());
            tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                sender.send(number).unwrap();
                guard.release().await.unwrap();
            });
            tokio::time::sleep(ms(150)).await;
        }
        guard.release().await.unwrap();
        let mut served = Vec::new();
        for _ in 0..10 {
            served.push(tokio::time::timeout(ms(5000), order.recv()).await.expect("served").unwrap());
        }
        assert_eq!(served, (0..10).collect::<Vec<_>>(), "{count} nodes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b30_the_limit_of_waits_holds_back_and_nothing_is_left() {
    let server = server();
    let locker = builder([&server]).max_waits(20).build().unwrap();
    let base: i64 = server.info("connected_clients").parse().unwrap();
    let mut tasks = Vec::new();
    for name in 0..200 {
        for _ in 0..2 {
            let request = locker.lock(format!("k{name}")).ttl(ms(5000));
            tasks.push(tokio::spawn(async move {
                let guard = request.acquire().await.unwrap();
                tokio::time::sleep(MS).await;
                guard.release().await.unwrap();
            }));
        }
    }
    let mut most: i64 = 0;
    for task in tasks {
        most = most.max(server.info("connected_clients").parse().unwrap());
        task.await.unwrap();
    }
    assert!(most <= base + 25, "{most} connections");
    assert_eq!(server.info("blocked_clients"), "0");
    assert_eq!(cmd!(server.connect(), "DBSIZE").int(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn b34_a_wait_that_is_given_up_never_ends_as_a_silent_holder() {
    let server = server();
    let locker = locker([&server]);
    let guard = locker.lock("k").acquire().await.unwrap();
    let given_up = tokio::time::timeout(ms(200), locker.lock("k").acquire_within(ms(10_000))).await;
    assert!(given_up.is_err());
    guard.release().await.unwrap();
    eventually(ms(1000), "free, with nobody waiting", || !is_locked(&server, "k")).await;
    drop(locker.lock("k").try_acquire().await.unwrap());
    assert_eq!(server.info("blocked_clients"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn b36_renew_and_release_stay_quick_beside_a_hundred_waits() {
    let server = server();
    let locker = locker([&server]);
    let guard = locker.lock("k").ttl(ms(10_000)).acquire().await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..100 {
        let request = locker.lock("k");
        waits.push(tokio::spawn(async move { request.acquire_within(ms(10_000)).await.map(drop) }));
    }
    eventually(ms(5000), "all wait", || server.info("blocked_clients") == "100").await;
    // The best of a few, since the machine may be busy with something else.
    let mut renewals = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        guard.renew().await.unwrap();
        renewals.push(began.elapsed());
    }
    assert!(renewals.iter().min() < Some(&ms(20)), "renewed in {renewals:?}");
    let began = Instant::now();
    guard.release().await.unwrap();
    assert!(began.elapsed() < ms(200), "released in {:?}", began.elapsed());
    for wait in waits {
        wait.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b37_acquisitions_dropped_at_random_leave_nothing() {
    for count in [1, 5] {
        let servers = servers(count);
        let locker = locker(&servers);
        let base: Vec<i64> =
            servers.iter().map(|server| server.info("connected_clients").parse().unwrap()).collect();
        let mut tasks = Vec::new();
        let total = if count == 1 { 10_000 } else { 2_000 };
        for number in 0..total {
            let request = locker.lock(format!("k{}", number % 97)).ttl(ms(20_000));
            tasks.push(tokio::spawn(async move {
                let patience = Duration::from_micros(rand::random_range(0..4000));
                let _ = tokio::time::timeout(patience, async {
                    let _guard = request.acquire().await;
                    tokio::time::sleep(Duration::from_micros(200)).await;
                })
                .await;
            }));
            if number % 50 == 0 {
                tokio::time::sleep(MS).await;
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
        for (server, base) in servers.iter().zip(base) {
            eventually(ms(5000), "no lock and no waiter", || {
                cmd!(server.connect(), "DBSIZE").int() == 0 && server.info("blocked_clients") == "0"
            })
            .await;
            let now: i64 = server.info("connected_clients").parse().unwrap();
            assert!(now <= base + 20, "{now} connections, {base} before");
        }
        // What is kept for later answers as it should.
        let guard = locker.lock("after").acquire_within(ms(1000)).await.unwrap();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circle_of_owners_is_told() {
    let server = server();
    let locker = locker([&server]);
    let (a, b) = (Owner::random(), Owner::random());
    let x = locker.lock("x").owner(&a).acquire().await.unwrap();
    let y = locker.lock("y").owner(&b).acquire().await.unwrap();
    let request = locker.lock("y").owner(&a);
    let waiter = tokio::spawn(async move { request.acquire_within(ms(5000)).await });
    eventually(ms(1000), "a waits for y", || server.info("blocked_clients") == "1").await;
    let outcome = locker.lock("x").owner(&b).acquire_within(ms(5000)).await;
    assert!(matches!(&outcome, Err(error @ Error::Deadlock(_)) if error.is_retryable()), "{outcome:?}");
    y.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
    x.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_survives_a_broken_connection() {
    let server = server();
    let proxies = proxies(std::slice::from_ref(&server));
    let (behind, direct) = (locker_behind(&proxies), locker([&server]));
    let guard = direct.lock("k").acquire().await.unwrap();
    let request = behind.lock("k");
    let waiter = tokio::spawn(async move { request.acquire_within(ms(10_000)).await });
    eventually(ms(2000), "it waits", || server.info("blocked_clients") == "1").await;
    proxies[0].cut();
    eventually(ms(2000), "it waits again", || server.info("blocked_clients") == "1").await;
    guard.release().await.unwrap();
    drop(waiter.await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn b83_waiters_of_a_primary_that_steps_down_go_on_trying() {
    let (server, other) = (server(), server());
    let locker = locker([&server]);
    let guard = locker.lock("k").ttl(ms(2000)).acquire().await.unwrap();
    let request = locker.lock("k");
    let waiter = tokio::spawn(async move { request.acquire_within(ms(10_000)).await });
    eventually(ms(2000), "it waits", || server.info("blocked_clients") == "1").await;
    let mut admin = server.connect();
    cmd!(admin, "REPLICAOF", "127.0.0.1", i64::from(other.port())).ok();
    tokio::time::sleep(ms(300)).await;
    assert!(!waiter.is_finished(), "the error of a role change can be tried again");
    cmd!(admin, "REPLICAOF", "NO", "ONE").ok();
    drop(waiter.await.unwrap().unwrap());
    drop(guard);
}

#[tokio::test(flavor = "multi_thread")]
async fn b114_a_hot_key_costs_a_few_commands_a_grant_and_nobody_gives_up() {
    let server = server();
    let locker = builder([&server]).node_timeout(ms(5000)).build().unwrap();
    let mut tasks = Vec::new();
    for _ in 0..500 {
        let request = locker.lock("hot").ttl(ms(30_000));
        tasks.push(tokio::spawn(async move {
            let guard = request.acquire_within(ms(30_000)).await.unwrap();
            tokio::time::sleep(MS).await;
            guard.release().await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let asked: u64 =
        ["acquire", "renew", "release"].map(|name| calls(&server, &format!("lock.{name}"))).iter().sum();
    assert!(asked <= 500 * 4, "{asked} commands for 500 grants");
    assert_eq!(server.info("blocked_clients"), "0");
}
