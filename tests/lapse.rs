//! Leases that end by time, many at once, among many other keys that expire.
//!
//! A fence is the server's wall clock at its grant, in microseconds, so it tells when a lock was handed on, whatever
//! the machine makes of connections and threads.

use redislock_testkit::{Client, Server, cmd, every_server, send, until_blocked};
use std::time::Duration;

/// Keys that live for an hour, so that the server's own expiry has much to look through.
fn fill(server: &Server, count: usize) {
    let script = "for n = 1, tonumber(ARGV[1]) do redis.call('SET', 'other:' .. ARGV[2] .. ':' .. n, 'x', 'EX', 3600) end";
    let mut client = server.connect();
    for part in 0..count / 10_000 {
        cmd!(client, "EVAL", script, 0, 10_000, part);
    }
}

/// A lock that lapses, and the client that waits for it.
struct Turn {
    ttl: i64,
    /// When its lease began, as the server's clock has it, in microseconds.
    since: i64,
    next: Client,
}

impl Turn {
    /// The leases begin when all wait, so that they end while nothing else goes on.
    fn line_up(server: &Server, count: usize) -> Vec<Turn> {
        let mut control = server.connect();
        let mut turns = Vec::new();
        for n in 0..count {
            cmd!(control, "LOCK.ACQUIRE", format!("k{n}"), "A", 600_000).int();
            let mut next = server.connect();
            send!(next, "LOCK.ACQUIRE", format!("k{n}"), "B", 60_000, "WAIT", 0);
            turns.push(Turn { ttl: 0, since: 0, next });
        }
        until_blocked(server, count);
        turns
    }
}

every_server! {
    /// A thousand locks lapse among many other volatile keys: none is handed on before its time, each once.
    fn b90_a_thousand_lapses(version) {
        let count = 1_000;
        let server = Server::builder(version).config("maxclients", 4_000).start();
        fill(&server, 50_000);
        let mut turns = Turn::line_up(&server, count);
        let mut control = server.connect();
        for (n, turn) in turns.iter_mut().enumerate() {
            turn.ttl = 200 + (n as i64 * 37 % 500);
            let time = cmd!(control, "TIME");
            let before = time.array()[0].text().parse::<i64>().expect("seconds") * 1_000_000
                + time.array()[1].text().parse::<i64>().expect("microseconds");
            assert!(cmd!(control, "LOCK.RENEW", format!("k{n}"), "A", turn.ttl).int() > 0);
            turn.since = before;
        }
        let mut latest = 0;
        for (n, turn) in turns.iter_mut().enumerate() {
            let fence = turn.next.read().int();
            let held = fence - turn.since;
            // A millisecond is what the server's clock rounds away.
            assert!(held >= turn.ttl * 1_000 - 1_000, "k{n} of {} ms was handed on after {held} us", turn.ttl);
            latest = latest.max(held - turn.ttl * 1_000);
        }
        println!("the latest of {count}: {latest} us after its deadline");
        assert_eq!(server.info("lock_waiters"), "0");
        assert_eq!(server.info("lock_handoffs"), count.to_string());
        assert_eq!(server.info("lock_panics"), "0");
    }

    /// Leases of one key that end and pass on along a line, each in its time.
    fn a_line_in_which_nobody_releases(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let mut fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 50).int();
        let mut line: Vec<Client> = (0..15)
            .map(|n| {
                let mut client = server.connect();
                send!(client, "LOCK.ACQUIRE", "k", format!("W{n}"), 50, "WAIT", 0);
                client
            })
            .collect();
        // They came on connections of their own, in any order.
        let mut fences: Vec<i64> = line.iter_mut().map(|client| client.read().int()).collect();
        fences.sort_unstable();
        for next in fences {
            assert!(next - fence >= 49_000, "{} us", next - fence);
            fence = next;
        }
    }

    /// Shared leases that end one by one let a writer in with the last, and a place of a semaphore is free with the first.
    fn b18_each_reader_has_its_own_deadline(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let long = cmd!(control, "LOCK.ACQUIRE", "k", "A", 700, "SHARED").int();
        cmd!(control, "LOCK.ACQUIRE", "k", "B", 150, "SHARED").int();
        let mut writer = server.connect();
        send!(writer, "LOCK.ACQUIRE", "k", "C", 60_000, "WAIT", 0);
        assert_eq!(writer.read_timeout(Duration::from_millis(300)), None, "one reader is left");
        assert!(writer.read().int() - long >= 699_000);
        for (owner, ttl) in [("A", 60_000), ("B", 200)] {
            cmd!(control, "LOCK.ACQUIRE", "s", owner, ttl, "SHARED", "LIMIT", 2).int();
        }
        let mut third = server.connect();
        send!(third, "LOCK.ACQUIRE", "s", "C", 60_000, "SHARED", "LIMIT", 2, "WAIT", 0);
        assert!(third.read().int() > 0);
    }
}
