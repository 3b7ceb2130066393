//! Several servers: majorities, servers that are down or hang, fences across servers.

mod support;

use std::time::{Duration, Instant};

use redislock_client::{Error, Fence, Locker, NodeErrorKind, Released, Vote};
use redislock_testkit::{Fsync, Proxy, Server, Version, cmd};
use support::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_majority_holds_excludes_and_frees() {
    for count in [1, 2, 3, 4, 5] {
        let servers = servers(count);
        let (one, two) = (locker(&servers), locker(&servers));
        let guard = one.lock("k").try_acquire().await.unwrap();
        assert!(matches!(two.lock("k").try_acquire().await, Err(Error::Refused { .. })), "{count} nodes");
        assert_eq!(guard.release().await.unwrap(), Released::Freed);
        let next = two.lock("k").acquire_within(ms(1000)).await.unwrap();
        assert!(next.fence() > guard.fence(), "{count} nodes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_released_where_nobody_ever_listened() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // One that accepts and never says a word.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [nobody, mute.local_addr().unwrap()] {
        let url = format!("redis://{address}");
        let locker = Locker::builder().node(url).unwrap().node_timeout(ms(200)).connect_timeout(ms(400));
        let locker = locker.build().unwrap();
        for wait in [Duration::ZERO, ms(300)] {
            let request = locker.lock("k").ttl(Duration::from_secs(3600));
            let outcome = request.acquire_within(wait).await;
            assert!(matches!(outcome, Err(Error::NoQuorum { .. })), "{outcome:?}");
        }
        // Otherwise it would be tried for as long as the ttl.
        tokio::time::timeout(ms(20_000), locker.drain()).await.expect("nothing is under way");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b61_a_lifetime_within_the_drift_is_never_held() {
    let servers = servers(3);
    for millis in [1, 2] {
        let outcome = locker(&servers).lock("k").ttl(ms(millis)).acquire_within(ms(500)).await;
        assert!(matches!(outcome, Err(Error::TooSlow { .. } | Error::NoQuorum { .. })), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b62_validity_is_counted_from_the_attempt_that_won() {
    let servers = servers(3);
    let locker = locker(&servers);
    let blocking = locker.lock("k").ttl(ms(700)).without_watchdog().try_acquire().await.unwrap();
    let guard = locker.lock("k").ttl(ms(1000)).without_watchdog().acquire_within(ms(3000)).await.unwrap();
    assert!(blocking.is_lost());
    let validity = guard.validity();
    assert!(validity > ms(500) && validity < ms(989), "{validity:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b64_one_of_three_down_is_no_matter_and_two_are_told_apart_from_a_refusal() {
    let servers = servers(3);
    let locker = locker(&servers);
    servers[0].kill9();
    let guard = locker.lock("k").try_acquire().await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    servers[1].kill9();
    let outcome = locker.lock("k").try_acquire().await;
    let Err(Error::NoQuorum { votes }) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(votes.iter().flatten().filter(|vote| matches!(vote, Vote::Unreachable(_))).count(), 2);
    eventually(ms(2000), "the one that granted is released", || !is_locked(&servers[2], "k")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b65_clients_that_see_different_servers_never_both_win() {
    let servers = servers(5);
    let proxies = proxies(&servers);
    proxies[3].refuse(true);
    proxies[4].refuse(true);
    let (partial, whole) = (locker_behind(&proxies), locker(&servers));
    for _ in 0..30 {
        let request = (partial.lock("k").ttl(ms(5000)), whole.lock("k").ttl(ms(5000)));
        let (one, two) = tokio::join!(request.0.try_acquire(), request.1.try_acquire());
        assert!(one.is_err() || two.is_err());
        for guard in [one, two].into_iter().flatten() {
            guard.release().await.unwrap();
        }
        tokio::time::sleep(ms(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b65_a_server_listed_twice_votes_once() {
    let servers = servers(2);
    let again = Proxy::new(servers[0].addr());
    let urls = [servers[0].url(), again.url(), servers[1].url()];
    let locker = Locker::builder().nodes(urls).unwrap().node_timeout(PATIENT).build().unwrap();
    let guard = locker.lock("k").try_acquire().await.unwrap();
    guard.release().await.unwrap();
    servers[1].kill9();
    tokio::time::sleep(ms(200)).await;
    let outcome = locker.lock("k").try_acquire().await;
    let Err(Error::NoQuorum { votes }) = &outcome else { panic!("{outcome:?}") };
    let duplicate =
        |vote: &Vote| matches!(vote, Vote::Unreachable(error) if error.kind == NodeErrorKind::Duplicate);
    assert_eq!(votes.iter().flatten().filter(|vote| duplicate(vote)).count(), 1, "{votes}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b67_hanging_and_unresolvable_servers_stall_nothing_and_come_back() {
    let servers = servers(5);
    let proxies = proxies(&servers);
    let mut urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    urls[4] = "redis://no-such-host.invalid:6379".into();
    let locker = Locker::builder().nodes(urls).unwrap().node_timeout(PATIENT).build().unwrap();
    locker.lock("warm-up").acquire().await.unwrap().release().await.unwrap();
    proxies[3].drop_requests(true);
    for round in 0..10 {
        let began = Instant::now();
        let guard = locker.lock("k").ttl(ms(2000)).acquire().await.unwrap();
        guard.renew().await.unwrap();
        guard.release().await.unwrap();
        assert!(began.elapsed() < ms(500), "round {round}: {:?}", began.elapsed());
    }
    proxies[3].drop_requests(false);
    proxies[3].cut();
    servers[2].kill9();
    let end = Instant::now() + ms(5000);
    while let Err(error) = locker.lock("k").try_acquire().await {
        assert!(Instant::now() < end, "{error}");
        tokio::time::sleep(ms(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b67_a_late_grant_is_released() {
    let servers = servers(3);
    let proxies = proxies(&servers);
    let locker = locker_behind(&proxies);
    locker.lock("warm-up").acquire().await.unwrap().release().await.unwrap();
    eventually(ms(5000), "the third is connected, too", || calls(&servers[2], "lock.release") > 0).await;
    // Somebody else has two of the three; the third is slow, and grants after the attempt has failed.
    let mut others: Vec<_> = servers[..2].iter().map(Server::connect).collect();
    for other in &mut others {
        assert!(cmd!(other, "LOCK.ACQUIRE", "k", "X", 20_000).int() > 0);
    }
    proxies[2].delay_requests(ms(400));
    assert!(matches!(locker.lock("k").ttl(ms(20_000)).try_acquire().await, Err(Error::Refused { .. })));
    tokio::time::sleep(ms(1000)).await;
    assert!(calls(&servers[2], "lock.acquire") >= 2, "it was asked");
    assert!(!is_locked(&servers[2], "k"));
}

#[tokio::test(flavor = "multi_thread")]
async fn b69_an_answer_after_the_lease_changes_nothing() {
    let servers = servers(5);
    let proxies = proxies(&servers);
    let locker = locker_behind(&proxies);
    let guard = locker.lock("k").ttl(ms(400)).acquire().await.unwrap();
    proxies.iter().for_each(|proxy| proxy.delay_replies(ms(600)));
    let reason = tokio::time::timeout(ms(550), guard.lost()).await.expect("the clock decides");
    proxies.iter().for_each(|proxy| proxy.delay_replies(Duration::ZERO));
    tokio::time::sleep(ms(700)).await;
    assert_eq!(guard.loss(), Some(reason));
}

#[tokio::test(flavor = "multi_thread")]
async fn b70_leftovers_of_one_attempt_do_not_block_the_next() {
    let servers = servers(3);
    let proxies = proxies(&servers);
    let locker = locker_behind(&proxies);
    locker.lock("warm-up").acquire().await.unwrap().release().await.unwrap();
    let mut other = servers[2].connect();
    assert!(cmd!(other, "LOCK.ACQUIRE", "k", "X", 20_000).int() > 0);
    proxies[1].drop_replies(true);
    assert!(locker.lock("k").ttl(ms(20_000)).try_acquire().await.is_err());
    proxies[1].drop_replies(false);
    proxies[1].cut();
    let guard = locker.lock("k").ttl(ms(20_000)).acquire_within(ms(2000)).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn b72_fences_of_different_majorities_are_ordered() {
    let servers = servers(5);
    let proxies_a = proxies(&servers);
    let proxies_b = proxies(&servers);
    let (a, b) = (locker_behind(&proxies_a), locker_behind(&proxies_b));
    let mut highest = Fence::new(0);
    for round in 0..20 {
        let (locker, proxies) = if round % 2 == 0 { (&a, &proxies_a) } else { (&b, &proxies_b) };
        // Each sees another majority: the first three, or the last three.
        let cut = if round % 2 == 0 { 3..5 } else { 0..2 };
        proxies[cut].iter().for_each(|proxy| {
            proxy.refuse(true);
            proxy.cut();
        });
        let guard = locker.lock("k").ttl(ms(2000)).acquire_within(ms(3000)).await.unwrap();
        assert!(guard.fence() > highest, "round {round}");
        highest = guard.fence();
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b73_servers_that_keep_what_they_acknowledged_grant_no_second_holder() {
    let always = || settings(Version::Redis70).aof(Fsync::Always).start();
    let servers = [always(), always(), always()];
    let locker_a = locker(&servers);
    servers[2].stop_signal();
    let guard = locker_a.lock("k").ttl(ms(10_000)).try_acquire().await.unwrap();
    servers[1].kill9();
    servers[1].restart();
    servers[2].resume();
    let locker_b = locker(&servers);
    servers[0].stop_signal();
    assert!(locker_b.lock("k").acquire_within(ms(500)).await.is_err());
    servers[0].resume();
    assert!(!guard.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn b74_a_grant_that_replicas_do_not_have_is_released() {
    let primary = server();
    let replica = settings(Version::Redis70).replica_of(&primary).start();
    redislock_testkit::wait_in_sync(&primary, &replica);
    let locker = locker([&primary]);
    // A replica that has just been filled may take its time for the first answer.
    let request = locker.lock("k").ttl(ms(60_000));
    let guard = request.clone().acknowledged_by(1, ms(20_000)).try_acquire().await.unwrap();
    guard.release().await.unwrap();
    replica.stop_signal();
    let outcome = request.acknowledged_by(1, ms(1000)).try_acquire().await;
    let Err(Error::NoQuorum { votes }) = &outcome else { panic!("{outcome:?}") };
    assert!(votes.to_string().contains("acknowledged by 0 of 1"), "{votes}");
    eventually(ms(1000), "released", || !is_locked(&primary, "k")).await;
    replica.resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_loses_the_queue_to_the_next() {
    let servers = servers(3);
    let locker = locker(&servers);
    let guard = locker.lock("k").ttl(ms(30_000)).acquire().await.unwrap();
    let request = locker.lock("k").ttl(ms(5000));
    let waiter = tokio::spawn(async move { request.acquire_within(ms(20_000)).await });
    eventually(ms(2000), "it waits at the first", || servers[0].info("blocked_clients") == "1").await;
    servers[0].stop_signal();
    eventually(ms(8000), "it waits at the second", || servers[1].info("blocked_clients") == "1").await;
    guard.release().await.unwrap();
    let next = waiter.await.unwrap().unwrap();
    assert!(next.fence() > guard.fence());
    servers[0].resume();
}

#[tokio::test(flavor = "multi_thread")]
async fn b74_a_grant_by_hand_off_is_acknowledged_by_replicas_on_every_version() {
    for version in Version::selected() {
        let primary = settings(version).start();
        let replica = settings(version).replica_of(&primary).start();
        redislock_testkit::wait_in_sync(&primary, &replica);
        let locker = locker([&primary]);
        let first = locker.lock("k").acquire().await.unwrap();
        let request = locker.lock("k").ttl(ms(20_000)).acknowledged_by(1, ms(1000));
        let waiter = tokio::spawn(async move { request.acquire_within(ms(10_000)).await });
        eventually(ms(3000), "it waits", || primary.info("blocked_clients") == "1").await;
        first.release().await.unwrap();
        let next = waiter.await.unwrap().unwrap();
        let info = cmd!(replica.connect(), "LOCK.INFO", "k");
        let seen = info.pairs().is_empty();
        assert!(!seen, "{version}: the replica has the grant when the guard is there");
        next.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b74_a_primary_without_its_replicas_is_out_of_reach_not_a_refusal() {
    let primary = settings(Version::Redis70).config("min-replicas-to-write", 1).start();
    let outcome = locker([&primary]).lock("k").try_acquire().await;
    let Err(error @ Error::NoQuorum { votes }) = &outcome else { panic!("{outcome:?}") };
    assert!(votes.to_string().contains("NOREPLICAS") && error.is_retryable(), "{votes}");
}

/// Without persistence or a quarantine two holders are possible, as the documentation says.
#[tokio::test(flavor = "multi_thread")]
async fn b73_a_server_that_forgets_can_grant_twice() {
    let servers = servers(3);
    // A cannot reach the third server.
    let proxies = proxies(&servers);
    proxies[2].refuse(true);
    let guard = locker_behind(&proxies).lock("k").ttl(ms(10_000)).try_acquire().await.unwrap();
    servers[1].kill9();
    servers[1].restart();
    let second = locker(&servers).lock("k").ttl(ms(1000)).try_acquire().await.unwrap();
    assert!(!guard.is_lost(), "it knows of nothing yet");
    assert!(second.fence() > guard.fence(), "fences tell them apart, as well as the servers' clocks agree");
}
