//! The wall clock is stepped while some hold and others wait.

use redislock_testkit::{Client, Clock, Server, cmd, every_server, holders, send, until_waiting, waiters};
use std::time::{Duration, Instant};

const HOUR: i64 = 3_600_000;

#[track_caller]
fn waiter(server: &Server, key: &str, owner: &str, wait: u64) -> Client {
    let before = waiters(&mut server.connect(), key).len();
    let mut client = server.connect();
    send!(client, "LOCK.ACQUIRE", key, owner, 60_000, "WAIT", wait);
    until_waiting(server, key, before + 1);
    client
}

/// Reads an answer, and asserts that it did not come before this much time. A millisecond is the server's to round.
#[track_caller]
fn answer_after(client: &mut Client, since: Instant, millis: u64) -> redislock_testkit::Reply {
    let reply = client.read();
    let elapsed = since.elapsed();
    assert!(elapsed >= Duration::from_millis(millis - 1), "{reply:?} after {elapsed:?}, not {millis} ms");
    reply
}

every_server! {
    /// The clock falls back by an hour: leases and waits end when they should have, and so do later ones.
    fn b111_an_hour_back(version) {
        let clock = Clock::new();
        let server = Server::builder(version).clock(&clock).start();
        let mut control = server.connect();
        let mut fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        cmd!(control, "LOCK.ACQUIRE", "long", "A", 60_000).int();
        let mut b = waiter(&server, "k", "B", 0);
        let mut gives_up = waiter(&server, "long", "G", 900);
        let began = Instant::now();
        cmd!(control, "LOCK.RENEW", "k", "A", 600).int();
        clock.step(-HOUR);
        let next = answer_after(&mut b, began, 600).int();
        assert!(next > fence, "fences rise, though the clock they come from went back");
        fence = next;
        answer_after(&mut gives_up, began, 600).nil();
        // The lease that ran through the step is as long as it was, and shows it.
        let left = cmd!(control, "LOCK.INFO", "long").field("holders").array()[0].field("ttl").int();
        assert!((1..60_000).contains(&left), "{left}");
        let mut c = waiter(&server, "k", "C", 0);
        let began = Instant::now();
        cmd!(control, "LOCK.RENEW", "k", "B", 300).int();
        assert!(answer_after(&mut c, began, 300).int() > fence);
        assert_eq!(holders(&mut control, "long"), ["A"]);
    }

    /// The clock leaps ahead, by less than what the leases have left: nobody is granted early, waits keep their length.
    fn b111_a_leap_ahead(version) {
        let clock = Clock::new();
        let server = Server::builder(version).clock(&clock).start();
        let mut control = server.connect();
        let fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 4 * HOUR).int();
        let mut b = waiter(&server, "k", "B", 0);
        let began = Instant::now();
        let mut gives_up = waiter(&server, "k", "G", 500);
        clock.step(HOUR);
        answer_after(&mut gives_up, began, 500).nil();
        assert_eq!(b.read_timeout(Duration::from_millis(200)), None);
        assert_eq!(holders(&mut control, "k"), ["A"]);
        let left = cmd!(control, "LOCK.INFO", "k").field("holders").array()[0].field("ttl").int();
        assert!(left > 3 * HOUR + HOUR / 2, "the lease has not shrunk: {left}");
        let began = Instant::now();
        cmd!(control, "LOCK.RENEW", "k", "A", 300).int();
        assert!(answer_after(&mut b, began, 300).int() > fence);
    }

    /// Back and forth, at random, while a line moves on by lapses.
    fn b111_a_clock_that_jumps_about(version) {
        let clock = Clock::new();
        let server = Server::builder(version).clock(&clock).start();
        let mut control = server.connect();
        let mut fence = cmd!(control, "LOCK.ACQUIRE", "k", "A0", 60_000).int();
        for (round, step) in [-HOUR, -5_000, 1_500, -1, 30_000, -HOUR / 2, 7, 10 * HOUR].into_iter().enumerate() {
            let owner = format!("A{}", round + 1);
            let mut next = waiter(&server, "k", &owner, 0);
            let began = Instant::now();
            // Long enough that no leap ahead takes its native TTL away; it is given back after the step.
            cmd!(control, "LOCK.RENEW", "k", format!("A{round}"), 20 * HOUR).int();
            clock.step(step);
            cmd!(control, "LOCK.RENEW", "k", format!("A{round}"), 120).int();
            let granted = answer_after(&mut next, began, 120).int();
            assert!(granted > fence);
            fence = granted;
        }
        assert_eq!(server.info("lock_panics"), "0");
    }
}
