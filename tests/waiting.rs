//! Requests that wait in the server: order, answers, ends.

use redislock_testkit::{
    Client, Proxy, Reply, Server, Version, cmd, eventually, every_server, holders, raw, send, until_blocked,
    until_waiting, waiters,
};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// A connection on which this owner waits for the key.
#[track_caller]
fn waiter(server: &Server, key: &str, owner: &str, ttl: u64, wait: u64) -> Client {
    let before = waiters(&mut server.connect(), key).len();
    let mut client = server.connect();
    send!(client, "LOCK.ACQUIRE", key, owner, ttl, "WAIT", wait);
    until_waiting(server, key, before + 1);
    client
}

/// Asserts that nothing is said on this connection for a while.
#[track_caller]
fn is_silent(client: &mut Client) {
    let reply = client.read_timeout(Duration::from_millis(60));
    assert_eq!(reply, None, "a waiter that has no turn is answered");
}

/// One gives a lock back while another one asks for it, up to a millisecond before or after.
fn release_while_another_asks(version: Version, rounds: u64) {
    let server = Server::start(version);
    let (mut one, mut two) = (server.connect(), server.connect());
    for round in 0..rounds {
        let (holder, next) = (format!("A{round}"), format!("B{round}"));
        assert!(cmd!(one, "LOCK.ACQUIRE", "k", &holder, 60_000).int() > 0);
        let offset = Duration::from_micros(round * 7_919 % 1_000);
        let early = round % 2 == 0;
        thread::scope(|scope| {
            scope.spawn(|| {
                if early {
                    thread::sleep(offset);
                }
                assert_eq!(cmd!(one, "LOCK.RELEASE", "k", &holder).int(), 0);
            });
            if !early {
                thread::sleep(offset);
            }
            assert!(cmd!(two, "LOCK.ACQUIRE", "k", &next, 60_000, "WAIT", 50_000).int() > 0);
            assert_eq!(cmd!(two, "LOCK.RELEASE", "k", &next).int(), 0);
        });
    }
    until_blocked(&server, 0);
}

every_server! {
    /// A lock passes along the line, in the order in which they came, one at a time.
    fn first_come_first_served(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let mut fence = cmd!(control, "LOCK.ACQUIRE", "k", "W0", 60_000).int();
        let mut line: Vec<Client> =
            (1..=12).map(|n| waiter(&server, "k", &format!("W{n}"), 60_000, 0)).collect();
        for (n, client) in line.iter_mut().enumerate() {
            assert_eq!(cmd!(control, "LOCK.RELEASE", "k", format!("W{n}")).int(), 0);
            let next = client.read().int();
            assert!(next > fence, "fences rise");
            fence = next;
            assert_eq!(holders(&mut control, "k"), [format!("W{}", n + 1)]);
            assert_eq!(waiters(&mut control, "k").len(), 11 - n, "one is woken, and no more");
            cmd!(control, "LOCK.ACQUIRE", "k", "newcomer", 1_000).nil();
        }
        for mut client in line {
            assert_eq!(cmd!(client, "PING").text(), "PONG", "each was answered once");
        }
    }

    /// The lease of a waiter is as long as it asked for, from its grant on, not from when it asked.
    fn a_lease_begins_at_its_grant(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = waiter(&server, "k", "B", 50_000, 0);
        thread::sleep(Duration::from_millis(300));
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(b.read().int() > 0);
        let info = cmd!(control, "LOCK.INFO", "k");
        let holder = &info.field("holders").array()[0];
        let (ttl, held) = (holder.field("ttl").int(), holder.field("held").int());
        assert!(ttl <= 50_000 && ttl + held >= 49_990, "ttl {ttl}, held {held}");
    }

    /// Waits of one millisecond, without limit, too long, negative: each has one meaning.
    fn b12_tiny_and_huge_waits(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let deadline = cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        assert!(deadline > 0);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 1).nil();
        let longest = (1_u64 << 53) - 1;
        for bad in ["-1", "9007199254740992", "9223372036854775807", "18446744073709551616", "1.5", "", " 1", "01"] {
            let reply = cmd!(client, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", bad);
            assert!(reply.error().starts_with("ERR WAIT must be between 0 and 9007199254740991"), "{reply:?}");
        }
        let mut endless = waiter(&server, "k", "C", 60_000, 0);
        let mut huge = waiter(&server, "k", "D", 60_000, longest);
        is_silent(&mut endless);
        is_silent(&mut huge);
        let line = cmd!(control, "LOCK.WAITERS", "k");
        assert_eq!(line.array()[0].field("timeout").int(), -1);
        let left = line.array()[1].field("timeout").int();
        assert!(left <= longest as i64 && left > (longest - 60_000) as i64, "{left}");
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(endless.read().int() > 0);
        cmd!(control, "LOCK.RELEASE", "k", "C");
        assert!(huge.read().int() > 0);
    }

    /// A wait that ends by its timeout is a Null, in each protocol's form, and nothing was granted.
    fn a_wait_ends_with_null(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut two = server.connect();
        assert_eq!(raw!(two, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 30), b"$-1\r\n");
        assert_eq!(raw!(two, "LOCK.REENTER", "k", "B", 60_000, "WAIT", 30), b"$-1\r\n");
        let mut three = server.connect();
        three.hello(3);
        assert_eq!(raw!(three, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 30), b"_\r\n");
        assert_eq!(holders(&mut control, "k"), ["A"]);
        assert_eq!(waiters(&mut control, "k"), [""; 0]);
        until_blocked(&server, 0);
    }

    /// A release and a request that comes at the same time: the request is granted, and none sleeps on.
    fn b25_no_wakeup_is_lost(version) {
        release_while_another_asks(version, 400);
    }

    /// The same for long.
    #[ignore = "long: run by `make soak`"]
    fn soak_b25_no_wakeup_is_lost(version) {
        release_while_another_asks(version, 10_000);
    }

    /// Nobody is thrown out of the line before the end of its own wait, however long the holder renews.
    fn b26_live_waiters_stay_in_line(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "T1", 150);
        let mut line: Vec<Client> =
            (2..=5).map(|n| waiter(&server, "k", &format!("T{n}"), 60_000, 600_000)).collect();
        for _ in 0..30 {
            assert!(cmd!(control, "LOCK.RENEW", "k", "T1", 10_000).int() > 0);
            thread::sleep(Duration::from_millis(50));
        }
        line.push(waiter(&server, "k", "newcomer", 60_000, 600_000));
        let owners = ["T1", "T2", "T3", "T4", "T5", "newcomer"];
        assert_eq!(waiters(&mut control, "k"), owners[1..]);
        for (owner, next) in owners.iter().zip(&mut line) {
            cmd!(control, "LOCK.RELEASE", "k", owner);
            assert!(next.read().int() > 0);
        }
    }

    /// A lease that ends by time wakes the waiter, though no command comes.
    fn b28_lapse_wakes_waiters_on_an_idle_server(version) {
        let server = Server::start(version);
        let mut a = server.connect();
        let mut b = server.connect();
        let began = Instant::now();
        let fence = cmd!(a, "LOCK.ACQUIRE", "k", "A", 700).int();
        send!(b, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 50_000);
        assert!(b.read().int() > fence);
        // A millisecond is what the server's clock rounds away.
        assert!(began.elapsed() >= Duration::from_millis(699), "granted early: {:?}", began.elapsed());
        cmd!(a, "LOCK.RENEW", "k", "A", 1_000).nil();
    }

    /// A client that gives up leaves the line at once.
    fn b29_an_abandoned_wait_leaves_the_line(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut gone = waiter(&server, "k", "B", 60_000, 50_000);
        let mut next = waiter(&server, "k", "C", 60_000, 50_000);
        assert_eq!(gone.read_timeout(Duration::from_millis(100)), None);
        gone.close();
        until_waiting(&server, "k", 1);
        until_blocked(&server, 1);
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(next.read().int() > 0);
        until_blocked(&server, 0);
    }

    /// A waiter behind a link that swallows everything holds for its ttl at the most; with another one it keeps its turn.
    fn b33_a_ghost_holds_no_longer_than_its_lease(version) {
        let server = Server::start(version);
        let proxy = Proxy::new(server.addr());
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut ghost = Client::connect(proxy.port());
        send!(ghost, "LOCK.ACQUIRE", "k", "B", 400, "WAIT", 50_000);
        until_waiting(&server, "k", 1);
        let mut next = waiter(&server, "k", "C", 60_000, 50_000);
        proxy.drop_requests(true);
        proxy.drop_replies(true);
        drop(ghost);
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert_eq!(holders(&mut control, "k"), ["B"]);
        let phantom = cmd!(control, "LOCK.INFO", "k").field("holders").array()[0].field("fence").int();
        assert!(next.read().int() > phantom);
        assert_eq!(holders(&mut control, "k"), ["C"]);
    }

    /// The same owner asks again elsewhere: it keeps its place, and the older request is told so.
    fn the_same_request_takes_its_own_place_over(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut old = waiter(&server, "k", "B", 1_000, 50_000);
        let mut last = waiter(&server, "k", "C", 60_000, 50_000);
        let mut new = server.connect();
        send!(new, "LOCK.ACQUIRE", "k", "B", 44_000, "WAIT", 0);
        assert_eq!(old.read().error_code(), "REPLACED");
        assert_eq!(waiters(&mut control, "k"), ["B", "C"]);
        assert_eq!(cmd!(control, "LOCK.WAITERS", "k").array()[0].field("timeout").int(), -1);
        // Another kind of request is a mistake, and one without WAIT only tries.
        let other = cmd!(control, "LOCK.ACQUIRE", "k", "B", 1_000, "SHARED", "WAIT", 10);
        assert_eq!(other.error_code(), "ERR", "{other:?}");
        cmd!(control, "LOCK.ACQUIRE", "k", "B", 1_000).nil();
        assert_eq!(waiters(&mut control, "k"), ["B", "C"]);
        old.close();
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(new.read().int() > 0);
        let left = cmd!(control, "PTTL", "k").int();
        assert!((30_000..=44_000).contains(&left), "the newer request's ttl counts: {left}");
        is_silent(&mut last);
    }

    /// As many wait as may wait; the others are told to come back.
    fn the_queue_is_bounded(version) {
        let server = Server::builder(version).module_args(["max-waiters", "2"]).start();
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        cmd!(control, "LOCK.ACQUIRE", "other", "A", 60_000);
        let mut first = waiter(&server, "k", "B", 60_000, 0);
        let _second = waiter(&server, "other", "C", 60_000, 0);
        let mut client = server.connect();
        assert_eq!(cmd!(client, "LOCK.ACQUIRE", "k", "D", 60_000, "WAIT", 1_000).error_code(), "QUEUEFULL");
        cmd!(client, "LOCK.ACQUIRE", "k", "D", 60_000).nil();
        // A request that takes its own place over needs no new one.
        let mut again = server.connect();
        send!(again, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 0);
        assert_eq!(first.read().error_code(), "REPLACED");
        if version.has_config() {
            cmd!(control, "CONFIG", "SET", "lock.max-waiters", 3).ok();
            let _third = waiter(&server, "k", "D", 60_000, 0);
            cmd!(control, "CONFIG", "SET", "lock.max-waiters", 1).ok();
            assert_eq!(cmd!(client, "LOCK.ACQUIRE", "k", "E", 60_000, "WAIT", 1).error_code(), "QUEUEFULL");
        }
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(again.read().int() > 0, "those who wait stay");
    }

    /// Who would close a circle is told at once, with the circle; the others go on.
    fn a_deadlock_is_told_to_who_closes_it(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let (left, right) = (b"le\xfft \r\n".to_vec(), b"ri\"ght".to_vec());
        cmd!(control, "LOCK.ACQUIRE", "x", &left, 60_000);
        cmd!(control, "LOCK.ACQUIRE", "y", &right, 60_000);
        let mut waits = server.connect();
        send!(waits, "LOCK.ACQUIRE", "y", &left, 60_000, "WAIT", 0);
        until_waiting(&server, "y", 1);
        let told = cmd!(control, "LOCK.ACQUIRE", "x", &right, 60_000, "WAIT", 0);
        assert_eq!(told.error_code(), "DEADLOCK");
        let text = told.error();
        assert!(text.contains(r"le\xfft \r\n") && text.contains(r#"ri\"ght"#), "{text}");
        is_silent(&mut waits);
        cmd!(control, "LOCK.RELEASE", "y", &right);
        assert!(waits.read().int() > 0);
        assert_eq!(server.info("lock_deadlocks"), "1");
    }

    /// Circles of three to five owners are found as well.
    fn deadlocks_of_several_owners(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        for size in 3..=5 {
            let key = |n: usize| format!("{size}-{}", n % size);
            for n in 0..size {
                cmd!(control, "LOCK.ACQUIRE", key(n), format!("O{n}"), 60_000);
            }
            let mut line = Vec::new();
            for n in 0..size - 1 {
                line.push(waiter(&server, &key(n + 1), &format!("O{n}"), 60_000, 0));
            }
            let last = format!("O{}", size - 1);
            let told = cmd!(control, "LOCK.ACQUIRE", key(0), &last, 60_000, "WAIT", 0);
            assert_eq!(told.error_code(), "DEADLOCK");
            assert!((0..size).all(|n| told.error().contains(&format!("O{n}"))), "{told:?}");
            // It lets go, and all get on in turn.
            cmd!(control, "LOCK.RELEASE", key(size - 1), &last);
            for n in (0..size - 1).rev() {
                assert!(line[n].read().int() > 0);
                cmd!(control, "LOCK.RELEASE", key(n), format!("O{n}"));
                cmd!(control, "LOCK.RELEASE", key(n + 1), format!("O{n}"));
            }
        }
        until_blocked(&server, 0);
    }

    /// The queue can be looked at, in order, with what each waits for.
    fn the_line_can_be_seen(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        assert_eq!(cmd!(control, "LOCK.WAITERS", "k").array(), []);
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let _b = waiter(&server, "k", "B", 60_000, 30_000);
        let mut c = server.connect();
        send!(c, "LOCK.ACQUIRE", "k", "C", 60_000, "SHARED", "LIMIT", 3, "WAIT", 0);
        until_waiting(&server, "k", 2);
        for protocol in [2, 3] {
            control.hello(protocol);
            let line = cmd!(control, "LOCK.WAITERS", "k");
            let [b, c] = line.array() else { panic!("{line:?}") };
            assert_eq!((b.field("owner").text(), b.field("mode").text()), ("B", "exclusive"));
            assert_eq!((c.field("owner").text(), c.field("mode").text()), ("C", "shared"));
            let (waited, left) = (b.field("waited").int(), b.field("timeout").int());
            assert!(waited >= 0 && (29_998..=30_000).contains(&(waited + left)), "{waited} {left}");
            assert_eq!(c.field("timeout").int(), -1);
            assert_eq!(matches!(b, Reply::Map(_)), protocol == 3 && version != Version::Redis62);
            assert_eq!(cmd!(control, "LOCK.WAITERS", "k", "COUNT", 1).array().len(), 1);
            assert_eq!(cmd!(control, "LOCK.INFO", "k").field("waiters").int(), 2);
        }
        assert_eq!(cmd!(control, "LOCK.WAITERS", "k", "COUNT", 0).error_code(), "ERR");
    }

    /// An operator revokes all, or one, or one grant of it, and waiters are served.
    fn a_lock_can_be_broken(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        assert_eq!(cmd!(control, "LOCK.BREAK", "k").int(), 0);
        let fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        let mut b = waiter(&server, "k", "B", 60_000, 0);
        assert_eq!(cmd!(control, "LOCK.BREAK", "k", "B").int(), 0);
        assert_eq!(cmd!(control, "LOCK.BREAK", "k", "A", fence + 1).int(), 0, "a changed holder is not touched");
        is_silent(&mut b);
        assert_eq!(cmd!(control, "LOCK.BREAK", "k", "A", fence).int(), 1);
        assert!(b.read().int() > fence);
        cmd!(control, "LOCK.RENEW", "k", "A", 1_000).nil();
        let mut c = waiter(&server, "k", "C", 60_000, 0);
        assert_eq!(cmd!(control, "LOCK.BREAK", "k").int(), 1);
        assert!(c.read().int() > 0);
        for owner in ["R1", "R2", "R3"] {
            cmd!(control, "LOCK.ACQUIRE", "s", owner, 60_000, "SHARED");
        }
        let mut w = waiter(&server, "s", "W", 60_000, 0);
        assert_eq!(cmd!(control, "LOCK.BREAK", "s", "R2").int(), 1);
        is_silent(&mut w);
        assert_eq!(cmd!(control, "LOCK.BREAK", "s").int(), 2);
        assert!(w.read().int() > 0);
    }

    /// RELEASE ALL takes the owner's waiting request back, too.
    fn release_all_withdraws_the_request(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = waiter(&server, "k", "B", 60_000, 0);
        let mut c = waiter(&server, "k", "C", 60_000, 0);
        cmd!(control, "LOCK.RELEASE", "k", "B").nil();
        is_silent(&mut b);
        cmd!(control, "LOCK.RELEASE", "k", "B", "ALL").nil();
        b.read().nil();
        assert_eq!(waiters(&mut control, "k"), ["C"]);
        cmd!(control, "LOCK.RELEASE", "k", "A", "ALL");
        assert!(c.read().int() > 0);
    }

    /// A key of another type is told at once; a lock that is overwritten sends its waiters away.
    fn b17_ordinary_data_at_the_key(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "SET", "k", "v").ok();
        assert_eq!(cmd!(control, "LOCK.ACQUIRE", "k", "A", 1_000, "WAIT", 20_000).error_code(), "WRONGTYPE");
        cmd!(control, "DEL", "k");
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = waiter(&server, "k", "B", 60_000, 0);
        let mut c = waiter(&server, "k", "C", 60_000, 0);
        for (name, args) in [("GET", &["k"][..]), ("INCR", &["k"]), ("LPUSH", &["k", "x"])] {
            let words: Vec<&str> = [name].into_iter().chain(args.iter().copied()).collect();
            assert_eq!(control.cmd(&words).error_code(), "WRONGTYPE", "{name}");
        }
        cmd!(control, "SET", "k", "v", "NX").nil();
        is_silent(&mut b);
        cmd!(control, "SET", "k", "v").ok();
        assert_eq!(b.read().error_code(), "WRONGTYPE");
        assert_eq!(c.read().error_code(), "WRONGTYPE");
        assert_eq!(cmd!(control, "LOCK.RENEW", "k", "A", 1_000).error_code(), "WRONGTYPE");
        assert_eq!(cmd!(control, "LOCK.RELEASE", "k", "A").error_code(), "WRONGTYPE");
        assert_eq!(cmd!(control, "GET", "k").text(), "v");
        until_blocked(&server, 0);
    }

    /// Where nothing may block, to wait means to try.
    fn b87_nothing_blocks_in_transactions_and_scripts(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut client = server.connect();
        cmd!(client, "MULTI").ok();
        cmd!(client, "LOCK.ACQUIRE", "k", "B", 1_000, "WAIT", 50_000);
        cmd!(client, "LOCK.MACQUIRE", 2, "free", "k", "B", 1_000, "WAIT", 0);
        cmd!(client, "PING");
        let replies = cmd!(client, "EXEC");
        let [first, second, third] = replies.array() else { panic!("{replies:?}") };
        assert!(first.is_nil() && second.is_nil());
        assert_eq!(third.text(), "PONG");
        let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], ARGV[1], 1000, 'WAIT', 50000)";
        cmd!(client, "EVAL", script, 1, "k", "B").nil();
        let swap = "redis.call('LOCK.RELEASE', KEYS[1], 'A') return redis.call('LOCK.ACQUIRE', KEYS[1], 'B', 60000, 'WAIT', 0)";
        assert!(cmd!(client, "EVAL", swap, 1, "k").int() > 0);
        assert_eq!(holders(&mut control, "k"), ["B"]);
        if version.has_functions() {
            let library = "#!lua name=locks\nredis.register_function('take', function(keys, args) return redis.call('LOCK.ACQUIRE', keys[1], args[1], 1000, 'WAIT', 0) end)";
            cmd!(client, "FUNCTION", "LOAD", library);
            cmd!(client, "FCALL", "take", 1, "k", "C").nil();
        }
        assert_eq!(waiters(&mut control, "k"), [""; 0]);
        assert_eq!(server.info("blocked_clients"), "0");
        assert_eq!(cmd!(control, "EXISTS", "free").int(), 0);
    }

    /// A release in a script or a transaction hands on; those who wait pass whoever comes later in it.
    fn hand_offs_inside_scripts_and_transactions(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = waiter(&server, "k", "B", 60_000, 0);
        let mut c = waiter(&server, "k", "C", 60_000, 0);
        let swap = "redis.call('LOCK.RELEASE', KEYS[1], 'A') return redis.call('LOCK.ACQUIRE', KEYS[1], 'X', 60000)";
        cmd!(control, "EVAL", swap, 1, "k").nil();
        assert!(b.read().int() > 0);
        cmd!(control, "MULTI").ok();
        cmd!(control, "LOCK.RELEASE", "k", "B");
        cmd!(control, "LOCK.RELEASE", "k", "C");
        cmd!(control, "LOCK.ACQUIRE", "k", "D", 60_000);
        let replies = cmd!(control, "EXEC");
        assert_eq!(replies.array()[..2], [Reply::Int(0), Reply::Int(0)]);
        assert!(replies.array()[2].int() > 0);
        // It was granted, and by somebody else's release it lost the lock again; it is told the first, once.
        assert!(c.read().int() > 0);
        assert_eq!(holders(&mut control, "k"), ["D"]);
    }

    /// A transaction that watches a lock fails when it was handed over, or lapsed.
    fn b87_watch_notices_hand_over_and_lapse(version) {
        let server = Server::start(version);
        let (mut control, mut watcher) = (server.connect(), server.connect());
        let mut try_after = |event: &mut dyn FnMut()| {
            cmd!(watcher, "WATCH", "k").ok();
            event();
            cmd!(watcher, "MULTI").ok();
            cmd!(watcher, "PING");
            cmd!(watcher, "EXEC").is_nil()
        };
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = waiter(&server, "k", "B", 300, 0);
        assert!(!try_after(&mut || {}), "nothing happened");
        assert!(try_after(&mut || {
            cmd!(control, "LOCK.RELEASE", "k", "A");
            assert!(b.read().int() > 0);
        }));
        let mut c = waiter(&server, "k", "C", 60_000, 0);
        assert!(try_after(&mut || assert!(c.read().int() > 0)), "it lapsed, and was handed on");
    }

    /// CLIENT UNBLOCK ends a wait, in both its forms.
    fn a_wait_can_be_unblocked(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = server.connect();
        let id = b.client_id();
        for how in ["TIMEOUT", "ERROR", ""] {
            send!(b, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 0);
            until_waiting(&server, "k", 1);
            let done = if how.is_empty() {
                cmd!(control, "CLIENT", "UNBLOCK", id)
            } else {
                cmd!(control, "CLIENT", "UNBLOCK", id, how)
            };
            assert_eq!(done.int(), 1);
            let reply = b.read();
            match how {
                "ERROR" => assert_eq!(reply.error_code(), "UNBLOCKED"),
                _ => reply.nil(),
            }
            until_waiting(&server, "k", 0);
            until_blocked(&server, 0);
        }
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert_eq!(holders(&mut control, "k"), [""; 0]);
        assert!(cmd!(b, "LOCK.ACQUIRE", "k", "B", 60_000).int() > 0);
    }

    /// A waiter that is killed leaves the line; so does one whose user is deleted.
    fn killed_waiters_leave_the_line(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = server.connect();
        let id = b.client_id();
        send!(b, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 0);
        until_waiting(&server, "k", 1);
        cmd!(control, "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all").ok();
        let mut guest = server.connect();
        cmd!(guest, "AUTH", "guest", "secret").ok();
        send!(guest, "LOCK.ACQUIRE", "k", "G", 60_000, "WAIT", 0);
        until_waiting(&server, "k", 2);
        let mut c = waiter(&server, "k", "C", 60_000, 0);
        assert_eq!(cmd!(control, "CLIENT", "KILL", "ID", id).int(), 1);
        assert!(b.is_closed_within(SOON));
        until_waiting(&server, "k", 2);
        cmd!(control, "ACL", "DELUSER", "guest");
        assert!(guest.is_closed_within(SOON));
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(c.read().int() > 0);
        until_blocked(&server, 0);
    }

    /// A client that wants no replies waits and holds all the same.
    fn a_waiter_without_replies(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut off = server.connect();
        send!(off, "CLIENT", "REPLY", "OFF");
        send!(off, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 0);
        until_waiting(&server, "k", 1);
        let mut skip = server.connect();
        send!(skip, "CLIENT", "REPLY", "SKIP");
        send!(skip, "LOCK.ACQUIRE", "k", "C", 60_000, "WAIT", 0);
        until_waiting(&server, "k", 2);
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert_eq!(holders(&mut control, "k"), ["B"]);
        is_silent(&mut off);
        cmd!(control, "LOCK.RELEASE", "k", "B");
        assert_eq!(holders(&mut control, "k"), ["C"]);
        until_blocked(&server, 0);
        cmd!(off, "CLIENT", "REPLY", "ON").ok();
        assert_eq!(cmd!(skip, "PING").text(), "PONG");
        assert_eq!(holders(&mut control, "k"), ["C"]);
    }

    /// A waiter whose connection is closed for what piles up in its output buffer leaves the line, even if the lock
    /// becomes free before the server has closed it.
    fn b75_a_waiter_over_its_output_buffer(version) {
        let limit = 2_000_000;
        let server = Server::builder(version)
            .config("client-output-buffer-limit", format!("normal {limit} 0 0"))
            .start();
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = server.connect();
        let id = b.client_id();
        b.hello(3);
        cmd!(b, "CLIENT", "TRACKING", "ON").ok();
        // Each of these keys that changes is pushed to it, by its long name.
        let change = "redis.call('SET', ARGV[1] .. string.rep('-', 100000), 'v')";
        let keys = 600;
        (0..keys).for_each(|n| cmd!(b, "GET", format!("{n}{}", "-".repeat(100_000))).nil());
        send!(b, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 0);
        until_waiting(&server, "k", 1);
        let mut c = waiter(&server, "k", "C", 60_000, 0);
        let mut piled_up = |n: usize| {
            cmd!(control, "EVAL", change, 0, n).nil();
            let list = cmd!(control, "CLIENT", "LIST", "ID", id);
            let omem = list.text().split(' ').find_map(|field| field.strip_prefix("omem="));
            omem.expect("it is connected").parse::<i64>().expect("a number")
        };
        let last = (0..keys).find(|n| piled_up(*n) > limit - 300_000).expect("its buffer fills");
        // The last straws and the release come in one: the server closes the connection only after both.
        let straws = (1..=6).map(|n| change.replace("ARGV[1]", &(last + n).to_string()));
        let release = "return redis.call('LOCK.RELEASE', 'k', 'A')".to_owned();
        let both: Vec<String> = straws.chain([release]).collect();
        assert_eq!(cmd!(control, "EVAL", both.join(" "), 0).int(), 0);
        assert!(c.read().int() > 0);
        assert_eq!(holders(&mut control, "k"), ["C"]);
        until_blocked(&server, 0);
        assert!(b.is_closed_within(SOON));
    }

    /// A server that takes no more connections goes on serving those it has.
    fn waiters_at_maxclients(version) {
        let server = Server::builder(version).config("maxclients", 12).start();
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A0", 60_000);
        let mut line: Vec<Client> = (1..=8).map(|n| waiter(&server, "k", &format!("A{n}"), 60_000, 0)).collect();
        let mut more = Vec::new();
        eventually(SOON, || {
            let mut client = server.try_connect().expect("the system still connects");
            let refused = !matches!(client.try_cmd(&["PING"]), Ok(Reply::Simple(_)));
            more.push(client);
            refused
        });
        for (n, next) in line.iter_mut().enumerate() {
            assert_eq!(cmd!(control, "LOCK.RELEASE", "k", format!("A{n}")).int(), 0);
            assert!(next.read().int() > 0);
        }
    }

    /// The server's `timeout` for idle connections spares those that wait.
    fn waiters_are_not_idle(version) {
        let server = Server::builder(version).config("timeout", 1).start();
        let mut control = server.connect();
        let mut idle = server.connect();
        assert_eq!(cmd!(idle, "PING").text(), "PONG");
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = waiter(&server, "k", "B", 60_000, 0);
        eventually(SOON, || {
            assert_eq!(cmd!(control, "PING").text(), "PONG");
            idle.is_closed_within(Duration::from_millis(10))
        });
        assert_eq!(waiters(&mut control, "k"), ["B"]);
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(b.read().int() > 0);
    }

    /// A client that asks, and sends its release behind the request without waiting: the next one is served.
    fn a_release_sent_behind_a_wait(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        for _ in 0..20 {
            cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
            let mut b = server.connect();
            b.send_raw(b"LOCK.ACQUIRE k B 60000 WAIT 0\r\nLOCK.RELEASE k B\r\n");
            until_waiting(&server, "k", 1);
            let mut c = waiter(&server, "k", "C", 60_000, 0);
            cmd!(control, "LOCK.RELEASE", "k", "A").int();
            assert!(b.read().int() > 0);
            assert_eq!(b.read().int(), 0);
            assert!(c.read().int() > 0);
            // One that says goodbye in the same breath was told all the same, and holds on.
            let mut d = server.connect();
            d.send_raw(b"LOCK.ACQUIRE k D 60000 WAIT 0\r\nQUIT\r\n");
            until_waiting(&server, "k", 1);
            cmd!(control, "LOCK.RELEASE", "k", "C").int();
            assert!(d.read().int() > 0);
            d.read().ok();
            assert!(d.is_closed_within(SOON));
            assert_eq!(holders(&mut control, "k"), ["D"]);
            cmd!(control, "LOCK.RELEASE", "k", "D").int();
        }
    }

    /// With hours to go until anything is due, the server has nothing to do.
    fn a_long_wait_keeps_no_server_busy(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 3_600_000).int();
        let mut b = waiter(&server, "k", "B", 60_000, 7_000_000);
        cmd!(server.connect(), "LOCK.ACQUIRE", "k", "C", 60_000, "WAIT", 20).nil();
        let used = |control: &mut Client| -> f64 {
            let mut seconds = |field| control.info(field).expect("a field").parse::<f64>().expect("seconds");
            seconds("used_cpu_user") + seconds("used_cpu_sys")
        };
        let before = used(&mut control);
        thread::sleep(Duration::from_secs(1));
        let seconds = used(&mut control) - before;
        assert!(seconds < 0.15, "an idle server has used {seconds} s of processor time in a second");
        cmd!(control, "LOCK.RELEASE", "k", "A").int();
        assert!(b.read().int() > 0);
    }

    /// What is pushed to a waiter comes between, and its answer is the answer.
    fn a_waiter_that_is_pushed_to(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        let mut b = server.connect();
        b.hello(3);
        cmd!(b, "CLIENT", "TRACKING", "ON").ok();
        cmd!(b, "GET", "cached").nil();
        cmd!(b, "LOCK.INFO", "k");
        send!(b, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 0);
        until_waiting(&server, "k", 1);
        cmd!(control, "SET", "cached", 1).ok();
        is_silent(&mut b);
        let pushes = b.take_pushes();
        assert!(format!("{pushes:?}").contains("cached"), "{pushes:?}");
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(b.read().int() > 0);
        assert_eq!(cmd!(b, "PING").text(), "PONG");
        let pushes = b.take_pushes();
        assert!(format!("{pushes:?}").contains("\"k\""), "a tracked lock that changes is told: {pushes:?}");
    }

    /// Readers at the head of the line are let in together; nobody passes a waiting writer.
    fn b20_readers_are_let_in_together(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "W1", 60_000);
        let wait_shared = |owner: &str, before: usize| {
            let mut client = server.connect();
            send!(client, "LOCK.ACQUIRE", "k", owner, 60_000, "SHARED", "WAIT", 0);
            until_waiting(&server, "k", before + 1);
            client
        };
        let mut readers: Vec<Client> = (0..3_usize).map(|n| wait_shared(&format!("R{n}"), n)).collect();
        let mut w2 = waiter(&server, "k", "W2", 60_000, 0);
        let mut late = wait_shared("R3", 4);
        cmd!(control, "LOCK.RELEASE", "k", "W1");
        readers.iter_mut().for_each(|reader| assert!(reader.read().int() > 0));
        assert_eq!(holders(&mut control, "k"), ["R0", "R1", "R2"]);
        cmd!(control, "LOCK.ACQUIRE", "k", "R4", 60_000, "SHARED").nil();
        is_silent(&mut w2);
        (0..3).for_each(|n| assert_eq!(cmd!(control, "LOCK.RELEASE", "k", format!("R{n}")).int(), 0));
        assert!(w2.read().int() > 0);
        is_silent(&mut late);
        cmd!(control, "LOCK.RELEASE", "k", "W2");
        assert!(late.read().int() > 0);
    }

    /// A request for several keys waits in every line and holds nothing meanwhile.
    fn several_keys_are_waited_for_together(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "x", "A", 60_000);
        let mut both = server.connect();
        send!(both, "LOCK.MACQUIRE", 2, "y", "x", "B", 60_000, "WAIT", 0);
        until_waiting(&server, "x", 1);
        let info = cmd!(control, "LOCK.INFO", "y");
        assert_eq!((info.field("mode").text(), info.field("waiters").int()), ("free", 1));
        cmd!(control, "LOCK.ACQUIRE", "y", "C", 60_000).nil();
        let mut c = waiter(&server, "y", "C", 60_000, 0);
        cmd!(control, "LOCK.RELEASE", "x", "A");
        let fence = both.read().int();
        for key in ["x", "y"] {
            let info = cmd!(control, "LOCK.INFO", key);
            assert_eq!(info.field("holders").array()[0].field("fence").int(), fence);
        }
        cmd!(control, "LOCK.MRELEASE", 2, "x", "y", "B");
        assert!(c.read().int() > fence);
    }

    /// A module with waiters, locks, or nothing stays loaded; loading it twice fails, and all goes on.
    fn b79_the_module_stays_loaded(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let unload = |control: &mut Client| cmd!(control, "MODULE", "UNLOAD", "lock");
        assert!(unload(&mut control).is_error());
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000);
        assert!(unload(&mut control).is_error());
        let mut b = waiter(&server, "k", "B", 60_000, 0);
        assert!(unload(&mut control).is_error());
        let path = redislock_testkit::module_path();
        assert!(cmd!(control, "MODULE", "LOAD", path.to_str().expect("a plain path")).is_error());
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(b.read().int() > 0);
        thread::sleep(Duration::from_millis(300));
        assert_eq!(holders(&mut control, "k"), ["B"]);
    }

    /// Many clients on one key: each gets its turn, by about as many commands as it needs.
    fn b114_a_hot_key_is_not_polled(version) {
        let (clients, turns) = (40, 10);
        let server = Server::start(version);
        let mut control = server.connect();
        let before: i64 = server.info("total_commands_processed").parse().expect("a number");
        thread::scope(|scope| {
            for n in 0..clients {
                let mut client = server.connect();
                scope.spawn(move || {
                    for turn in 0..turns {
                        let owner = format!("{n}-{turn}");
                        assert!(cmd!(client, "LOCK.ACQUIRE", "k", &owner, 60_000, "WAIT", 50_000).int() > 0);
                        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", &owner).int(), 0);
                    }
                });
            }
        });
        let after: i64 = server.info("total_commands_processed").parse().expect("a number");
        let each = (after - before) / (clients * turns);
        assert!(each <= 3, "{each} commands for each acquisition");
        assert_eq!(waiters(&mut control, "k"), [""; 0]);
        assert_eq!(server.info("lock_panics"), "0");
    }
}
