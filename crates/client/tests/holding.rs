//! One server: what a guard knows, the watchdog, and giving the lock back.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use redislock_client::{Error, LossReason, Owner, Released};
use redislock_testkit::{Reply, Version, cmd};
use support::*;

#[tokio::test(flavor = "multi_thread")]
async fn every_version_grants_renews_and_frees() {
    for version in Version::selected() {
        let server = settings(version).start();
        let locker = locker([&server]);
        let guard = locker.lock("k").ttl(ms(1000)).try_acquire().await.unwrap();
        assert!(matches!(locker.lock("k").try_acquire().await, Err(Error::Refused { .. })), "{version}");
        assert!(guard.renew().await.unwrap() > ms(900), "{version}");
        assert_eq!(guard.release().await.unwrap(), Released::Freed, "{version}");
        let next = locker.lock("k").acquire_within(ms(1000)).await.unwrap();
        assert!(next.fence() > guard.fence(), "{version}");
    }
}

#[tokio::test]
async fn b01_a_late_release_says_so_and_leaves_the_next_holder_alone() {
    let server = server();
    let locker = locker([&server]);
    let late = locker.lock("k").ttl(ms(100)).without_watchdog().try_acquire().await.unwrap();
    tokio::time::sleep(ms(150)).await;
    let next = locker.lock("k").try_acquire().await.unwrap();
    assert_eq!(late.release().await.unwrap(), Released::NotHeld);
    assert!(matches!(locker.lock("k").try_acquire().await, Err(Error::Refused { .. })));
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn b03_a_loss_is_told_once_and_nothing_is_won_back() {
    let server = server();
    let proxies = proxies(std::slice::from_ref(&server));
    let (behind, direct) = (locker_behind(&proxies), locker([&server]));
    let guard = Arc::new(behind.lock("k").ttl(ms(300)).acquire().await.unwrap());
    let told = Arc::new(AtomicUsize::new(0));
    let (watched, count) = (guard.clone(), told.clone());
    tokio::spawn(async move {
        watched.lost().await;
        count.fetch_add(1, Ordering::SeqCst);
    });
    proxies[0].freeze(true);
    let next = direct.lock("k").acquire_within(ms(2000)).await.unwrap();
    proxies[0].freeze(false);
    assert!(matches!(guard.renew().await, Err(Error::Lost(_))));
    tokio::time::sleep(ms(200)).await;
    assert_eq!(told.load(Ordering::SeqCst), 1);
    assert!(!next.is_lost());
    assert_eq!(next.release().await.unwrap(), Released::Freed);
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_leases_last_as_asked_and_are_never_reported_longer() {
    let server = server();
    let locker = locker([&server]);
    for ttl in [Duration::from_nanos(1), Duration::from_micros(999)] {
        let outcome = locker.lock("tiny").ttl(ttl).try_acquire().await;
        assert!(matches!(outcome, Err(Error::TooSlow { .. })), "{outcome:?}");
    }
    let guard = locker.lock("k").ttl(ms(1500)).without_watchdog().try_acquire().await.unwrap();
    let left = cmd!(server.connect(), "PTTL", "k").int();
    assert!((1400..=1500).contains(&left) && guard.validity() <= ms(1483), "{left}");
    assert!(matches!(locker.lock("k").ttl(Duration::ZERO).try_acquire().await, Err(Error::Configuration(_))));
}

#[tokio::test]
async fn b11_a_rejected_argument_is_no_refusal_and_is_not_retried() {
    let server = server();
    let locker = locker([&server]);
    let began = Instant::now();
    let outcome = locker.lock("k").ttl(Duration::from_secs(3 * 86400)).acquire_within(ms(3000)).await;
    assert!(
        matches!(&outcome, Err(error @ Error::Rejected { message, .. })
        if message.contains("ttl") && !error.is_retryable()),
        "{outcome:?}"
    );
    assert!(began.elapsed() < ms(1000));
    assert!(!is_locked(&server, "k"));
    cmd!(server.connect(), "SET", "data", "v").ok();
    let outcome = locker.lock("data").acquire_within(ms(3000)).await;
    assert!(matches!(&outcome, Err(Error::Rejected { message, .. }) if message.starts_with("WRONGTYPE")));
    assert!(matches!(locker.lock("k").limit(0).try_acquire().await, Err(Error::Configuration(_))));
    assert!(began.elapsed() < ms(1000));
}

#[tokio::test]
async fn b11_a_server_without_the_module_is_an_error_of_its_own() {
    let server = redislock_testkit::Server::builder(Version::Redis70).without_module().start();
    let outcome = locker([&server]).lock("k").acquire_within(ms(1000)).await;
    assert!(matches!(&outcome, Err(Error::Rejected { message, .. }) if message.contains("unknown command")));
}

#[tokio::test(flavor = "multi_thread")]
async fn b23_a_resent_acquire_counts_once() {
    let server = server();
    let proxies = proxies(std::slice::from_ref(&server));
    let builder = redislock_client::Locker::builder().node(proxies[0].url()).unwrap();
    let locker = builder.node_timeout(ms(150)).build().unwrap();
    drop(locker.lock("warm-up").acquire_within(ms(5000)).await.unwrap());
    for reentrant in [false, true] {
        proxies[0].delay_replies(ms(250));
        let request = locker.lock("k").ttl(ms(10_000));
        let request = if reentrant { request.owner(&Owner::random()).reentrant() } else { request };
        let pending = tokio::spawn(async move { request.acquire_within(ms(5000)).await });
        tokio::time::sleep(ms(400)).await;
        proxies[0].delay_replies(Duration::ZERO);
        let guard = pending.await.unwrap().unwrap();
        let _ = guard.release().await;
        eventually(ms(5000), "one release frees it", || is_free(&server, "k")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b06_a_conflict_ends_the_watchdog_for_good() {
    let servers = servers(3);
    let proxies = proxies(&servers);
    let (behind, direct) = (locker_behind(&proxies), locker(&servers));
    let guard = behind.lock("k").ttl(ms(400)).acquire().await.unwrap();
    proxies.iter().for_each(|proxy| proxy.freeze(true));
    let other = direct.lock("k").ttl(ms(5000)).acquire_within(ms(3000)).await.unwrap();
    proxies.iter().for_each(|proxy| proxy.freeze(false));
    tokio::time::sleep(ms(300)).await;
    assert!(guard.is_lost());
    other.release().await.unwrap();
    let before: u64 = servers.iter().map(|server| calls(server, "lock.renew")).sum();
    tokio::time::sleep(ms(600)).await;
    let after: u64 = servers.iter().map(|server| calls(server, "lock.renew")).sum();
    assert_eq!(before, after, "the watchdog goes on");
    assert!(servers.iter().all(|server| !is_locked(server, "k")) && guard.is_lost());
}

#[tokio::test(flavor = "multi_thread")]
async fn b46_no_renewal_follows_a_release() {
    let server = server();
    let locker = locker([&server]);
    let mut rounds = Vec::new();
    for round in 0..500 {
        let locker = locker.clone();
        rounds.push(tokio::spawn(async move {
            let request = locker.lock(format!("k{}", round % 50)).ttl(ms(300));
            let pause = Duration::from_micros(rand::random_range(0..3000));
            let _ = tokio::time::timeout(pause, request.acquire_within(ms(1000))).await;
        }));
    }
    for round in rounds {
        round.await.unwrap();
    }
    tokio::time::sleep(ms(350)).await;
    let renewals = calls(&server, "lock.renew");
    tokio::time::sleep(ms(300)).await;
    assert_eq!(calls(&server, "lock.renew"), renewals);
    assert!((0..50).all(|key| !is_locked(&server, &format!("k{key}"))));
}

#[tokio::test(flavor = "multi_thread")]
async fn b47_a_panicking_task_frees_its_lock() {
    let server = server();
    let locker = locker([&server]);
    let task = tokio::spawn(async move {
        let _guard = locker.lock("k").ttl(ms(60_000)).acquire().await.unwrap();
        panic!("as a test");
    });
    assert!(task.await.is_err());
    eventually(ms(1000), "released", || !is_locked(&server, "k")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b47_a_release_that_fails_stops_the_watchdog() {
    let server = server();
    let proxies = proxies(std::slice::from_ref(&server));
    let locker = locker_behind(&proxies);
    let guard = locker.lock("k").ttl(ms(600)).acquire().await.unwrap();
    proxies[0].drop_requests(true);
    assert!(matches!(guard.release().await, Err(Error::NoQuorum { .. })));
    proxies[0].drop_requests(false);
    proxies[0].cut();
    let renewals = calls(&server, "lock.renew");
    eventually(ms(700), "gone within the ttl", || !is_locked(&server, "k")).await;
    assert_eq!(calls(&server, "lock.renew"), renewals);
}

#[tokio::test(flavor = "multi_thread")]
async fn b47_b53_a_leaked_guard_ends_at_its_maximum() {
    let server = server();
    let locker = locker([&server]);
    let began = Instant::now();
    let request = locker.lock("k").ttl(ms(1500)).max_hold(ms(3000));
    std::mem::forget(request.acquire().await.unwrap());
    tokio::time::sleep(ms(2500)).await;
    assert!(is_locked(&server, "k"), "renewed up to the maximum");
    eventually(ms(3000), "free after it", || !is_locked(&server, "k")).await;
    assert!(began.elapsed() < ms(5000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn b49_a_saturated_runtime_loses_locally_first() {
    let server = server();
    let locker = locker([&server]);
    for lease_lengths in [0.5, 0.9, 1.5] {
        let ttl = ms(400);
        let guard = locker.lock("k").ttl(ttl).acquire().await.unwrap();
        let expires = Instant::now() + ttl;
        let blocked = Instant::now() + ttl.mul_f64(lease_lengths);
        // The only worker does nothing else meanwhile.
        tokio::spawn(async move { std::thread::sleep(blocked - Instant::now()) }).await.unwrap();
        if Instant::now() > expires {
            assert!(guard.is_lost());
        } else {
            assert!(guard.renew().await.is_ok() || guard.is_lost());
        }
        drop(guard);
        eventually(ms(1000), "free", || !is_locked(&server, "k")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b49_a_failed_renewal_is_tried_again_soon() {
    let server = server();
    let proxies = proxies(std::slice::from_ref(&server));
    let locker = locker_behind(&proxies);
    let guard = locker.lock("k").ttl(ms(1500)).acquire().await.unwrap();
    for _ in 0..8 {
        tokio::time::sleep(ms(450)).await;
        proxies[0].cut();
    }
    assert!(!guard.is_lost());
}

#[tokio::test]
async fn b55_two_releases_are_one_on_the_wire() {
    let server = server();
    let locker = locker([&server]);
    let guard = Arc::new(locker.lock("k").ttl(ms(300)).acquire().await.unwrap());
    let before = calls(&server, "lock.release");
    let outcomes = futures_util::future::join_all((0..3).map(|_| guard.release())).await;
    assert!(outcomes.iter().all(|outcome| *outcome == Ok(Released::Freed)));
    drop(guard);
    tokio::time::sleep(ms(100)).await;
    assert_eq!(calls(&server, "lock.release"), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn b56_a_release_that_is_cancelled_or_unanswered_can_be_repeated() {
    let server = server();
    let proxies = proxies(std::slice::from_ref(&server));
    let locker = locker_behind(&proxies);
    // Cancelled in flight: it goes on.
    let guard = locker.lock("k").ttl(ms(10_000)).acquire().await.unwrap();
    let _ = tokio::time::timeout(Duration::from_nanos(1), guard.release()).await;
    eventually(ms(1000), "released", || !is_locked(&server, "k")).await;
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    // The reply is lost, and somebody else takes the lock before it is repeated.
    let guard = locker.lock("k").ttl(ms(10_000)).acquire().await.unwrap();
    proxies[0].drop_replies(true);
    assert!(matches!(guard.release().await, Err(Error::NoQuorum { .. })));
    let mut other = server.connect();
    assert!(cmd!(other, "LOCK.ACQUIRE", "k", "B", 10_000).int() > 0);
    proxies[0].drop_replies(false);
    proxies[0].cut();
    eventually(ms(3000), "reachable again", || {
        std::thread::sleep(ms(20));
        calls(&server, "lock.release") > 0
    })
    .await;
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    assert!(cmd!(other, "LOCK.RENEW", "k", "B", 1000).int() > 0, "B is untouched");
}

#[tokio::test]
async fn b60_a_guard_is_invalid_before_the_server_hands_on() {
    let server = server();
    let locker = locker([&server]);
    let asked = Instant::now();
    let guard = locker.lock("k").ttl(ms(500)).without_watchdog().acquire().await.unwrap();
    while asked.elapsed() < ms(800) {
        let valid = !guard.is_lost();
        assert!(!valid || asked.elapsed() < ms(500 - 7) + MS, "valid after {:?}", asked.elapsed());
        tokio::time::sleep(ms(10)).await;
    }
    assert_eq!(guard.loss(), Some(LossReason::Lapsed));
    assert!(guard.validity().is_zero());
}

#[tokio::test]
async fn b108_owners_are_unique_and_a_given_one_gets_no_second_grant() {
    let server = server();
    let locker = locker([&server]);
    let common = Owner::new("workers").unwrap();
    let first = locker.lock("k").owner(&common).try_acquire().await.unwrap();
    for _ in 0..2 {
        let second = locker.lock("k").owner(&common).acquire_within(ms(100)).await;
        assert_eq!(second.unwrap_err(), Error::Held { fence: first.fence() });
    }
    assert!(first.renew().await.is_ok(), "the first is untouched");
}

#[tokio::test(flavor = "multi_thread")]
async fn b109_the_end_of_the_session_ends_its_locks_and_no_others() {
    let server = server();
    let locker = locker([&server]);
    let tied = locker.lock("a").ttl(ms(60_000)).session().acquire().await.unwrap();
    let free = locker.lock("a-lock-b").ttl(ms(60_000)).acquire().await.unwrap();
    free.renew().await.unwrap();
    let mut admin = server.connect();
    let clients = cmd!(admin, "CLIENT", "LIST").text().to_lowercase();
    let last_took = |line: &&str| line.contains("cmd=lock.acquire");
    let session = clients.lines().find(last_took).expect("the session's connection");
    let id = session.split(' ').next().and_then(|id| id.strip_prefix("id=")).expect("its id").to_owned();
    assert_eq!(cmd!(admin, "CLIENT", "KILL", "ID", id).int(), 1);
    let reason = tokio::time::timeout(ms(1000), tied.lost()).await.expect("told at once");
    assert_eq!(reason, LossReason::SessionEnded);
    assert!(!is_locked(&server, "a") && is_locked(&server, "a-lock-b"));
    tokio::time::sleep(ms(200)).await;
    assert!(!is_locked(&server, "a"), "it is not taken again");
    assert!(free.renew().await.is_ok());
}

#[tokio::test]
async fn nested_holds_are_given_back_one_by_one_in_any_order() {
    let server = server();
    let locker = locker([&server]);
    let request = locker.lock("k").owner(&Owner::random()).reentrant();
    let (first, second) = (request.acquire().await.unwrap(), request.acquire().await.unwrap());
    assert_eq!(first.release().await.unwrap(), Released::Nested(1));
    assert!(!second.is_lost() && is_locked(&server, "k"));
    assert_eq!(second.release().await.unwrap(), Released::Freed);
    assert!(!is_locked(&server, "k"));
    assert_eq!(request.acquire().await.unwrap().release().await.unwrap(), Released::Freed);
}

#[tokio::test]
async fn a_handover_keeps_the_lock_and_its_fence() {
    let server = server();
    let (here, there) = (locker([&server]), locker([&server]));
    let guard = here.lock("k").ttl(ms(3000)).acquire().await.unwrap();
    let (owner, fence) = (guard.owner().clone(), guard.fence());
    let taken = there.take_over(guard.hand_over().await.unwrap()).await.unwrap();
    assert_eq!((taken.owner(), taken.fence()), (&owner, fence));
    tokio::time::sleep(ms(3500)).await;
    assert!(!taken.is_lost());
    assert_eq!(taken.release().await.unwrap(), Released::Freed);
    let gone = here.lock("k").acquire().await.unwrap().hand_over().await.unwrap();
    assert!(matches!(cmd!(server.connect(), "DEL", "k"), Reply::Int(1)));
    assert!(matches!(there.take_over(gone).await, Err(Error::Lost(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn b104_locks_are_taken_beside_transactions_of_others() {
    let server = server();
    let locker = locker([&server]);
    let mut other = server.connect();
    cmd!(other, "MULTI").ok();
    assert!(matches!(cmd!(other, "LOCK.ACQUIRE", "k", "A", 1000), Reply::Simple(text) if text == "QUEUED"));
    let guard = locker.lock("k").try_acquire().await.unwrap();
    assert!(cmd!(other, "EXEC").array()[0].is_nil());
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b50_renewals_of_many_guards_are_grouped() {
    let server = server();
    let proxies = proxies(std::slice::from_ref(&server));
    let builder = redislock_client::Locker::builder().node(proxies[0].url()).unwrap();
    let locker = builder.node_timeout(ms(1500)).build().unwrap();
    proxies[0].delay(ms(100));
    let taken = (0..1000).map(|number| {
        let request = locker.lock(format!("k{number}")).ttl(ms(5000));
        async move { request.try_acquire().await.unwrap() }
    });
    let guards = futures_util::future::join_all(taken).await;
    // How late an unrelated task runs meanwhile is measured in the bench.
    eventually(ms(20_000), "each is renewed twice", || calls(&server, "lock.renew") >= 2000).await;
    assert!(guards.iter().all(|guard| !guard.is_lost()));
    assert_eq!(proxies[0].connections(), 1);
}

#[tokio::test]
async fn b52_a_guarded_write_is_refused_once_the_lock_is_gone() {
    let server = server();
    let locker = locker([&server]);
    let guard = locker.lock("k").ttl(ms(10_000)).acquire().await.unwrap();
    guard.guarded(["SET", "data", "1"]).await.unwrap();
    let mut other = server.connect();
    cmd!(other, "DEL", "k");
    assert!(cmd!(other, "LOCK.ACQUIRE", "k", "B", 10_000).int() > 0);
    assert!(!guard.is_lost(), "nobody has told it yet");
    assert!(matches!(guard.guarded(["SET", "data", "2"]).await, Err(Error::Lost(_))));
    assert!(guard.is_lost());
    assert_eq!(cmd!(other, "GET", "data").text(), "1");
    let fine = locker.lock("x").acquire().await.unwrap();
    assert!(matches!(fine.guarded(["NO-SUCH-COMMAND"]).await, Err(Error::Rejected { .. })));
}

#[tokio::test]
async fn b52_guarded_commands_in_one_piece_run_while_the_lock_is_held_and_not_after() {
    let server = server();
    let locker = locker([&server]);
    let guard = locker.lock("k").ttl(ms(10_000)).acquire().await.unwrap();
    let mut other = server.connect();
    let replies =
        guard.guarded_all([vec!["SET", "n", "1"], vec!["LPUSH", "n", "x"], vec!["INCR", "n"]]).await;
    let replies = replies.unwrap();
    assert!(matches!(&replies[1], Err(Error::Rejected { message, .. }) if message.starts_with("WRONGTYPE")));
    assert_eq!(replies[2], Ok(redislock_client::Reply::Int(2)), "one that is refused holds up nothing");
    assert_eq!(guard.guarded_all(Vec::<Vec<&str>>::new()).await, Ok(Vec::new()));
    // The second takes the lock away from the third.
    let outcome = guard.guarded_all([vec!["INCR", "n"], vec!["DEL", "k"], vec!["INCR", "n"]]).await;
    assert!(matches!(outcome, Err(Error::LostMidway { ran: 2, .. })), "{outcome:?}");
    assert_eq!(cmd!(other, "GET", "n").text(), "3");
    assert!(guard.is_lost());
    assert!(matches!(guard.guarded_all([["INCR", "n"]]).await, Err(Error::Lost(_))));
    let gone = locker.lock("k").ttl(ms(10_000)).acquire().await.unwrap();
    cmd!(other, "DEL", "k");
    assert!(matches!(gone.guarded_all([["INCR", "n"], ["INCR", "n"]]).await, Err(Error::Lost(_))));
    assert_eq!(cmd!(other, "GET", "n").text(), "3", "nothing of it ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn b58_memory_does_not_grow_with_the_names_ever_used() {
    let server = server();
    let locker = locker([&server]);
    let round = async |round: u32| {
        for batch in 0..40 {
            let each = (0..100).map(|number| {
                let request = locker.lock(format!("name-{round}-{batch}-{number}")).without_watchdog();
                async move {
                    request.try_acquire().await.unwrap().release().await.unwrap();
                }
            });
            futures_util::future::join_all(each).await;
        }
    };
    round(0).await;
    let before = resident_kb();
    round(1).await;
    round(2).await;
    let after = resident_kb();
    assert!(after < before + 4096, "{before} kB, then {after} kB");
}

#[cfg(feature = "blocking")]
#[test]
fn the_blocking_front_waits_renews_and_releases_at_the_end() {
    let server = server();
    let locker = redislock_client::blocking::Locker::new(support::builder([&server])).unwrap();
    let guard = locker.acquire(&locker.lock("k").ttl(ms(600))).unwrap();
    std::thread::sleep(ms(900));
    assert!(!guard.is_lost(), "the watchdog runs on a thread of its own");
    let other = locker.clone();
    let waiter = std::thread::spawn(move || {
        other.acquire_within(&other.lock("k"), ms(3000)).map(|guard| guard.fence())
    });
    std::thread::sleep(ms(100));
    let fence = guard.fence();
    drop(guard);
    assert!(waiter.join().unwrap().unwrap() > fence);
    let last = locker.acquire(&locker.lock("k").ttl(ms(60_000))).unwrap();
    drop(locker);
    drop(last);
    assert!(!is_locked(&server, "k"), "released before the last handle was gone");
}
