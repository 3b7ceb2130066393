//! Several keys at once: all or none, one place in every line.

mod stream;

use std::thread;
use std::time::{Duration, Instant};

use redislock_testkit::{
    Client, Cluster, Fsync, HistoryChecker, Holder, LockInfo, Mode, Reply, Server, Version, cmd, eventually,
    every_server, holders, promote, send, until_blocked, until_waiting, wait_in_sync, waiters,
};
use stream::{Stream, append_only_file, appended};

const SOON: Duration = Duration::from_secs(20);

fn say(client: &mut Client, line: &str) -> Reply {
    client.cmd(&line.split(' ').collect::<Vec<_>>())
}

/// Sends a request that has to wait, and returns the connection on which it does.
fn wait(server: &Server, key: &str, line: &str) -> Client {
    let mut client = server.connect();
    let before = waiters(&mut client, key).len();
    client.send(&line.split(' ').collect::<Vec<_>>());
    until_waiting(server, key, before + 1);
    client
}

fn waits(client: &mut Client) -> bool {
    client.read_timeout(Duration::from_millis(30)).is_none()
}

/// The holders of keys, a text for each.
fn held(client: &mut Client, keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| holders(client, *key).join("+")).collect()
}

/// Two callers that name the same keys in opposite orders, and one that wants the first key alone, for so long.
fn opposite_orders(version: Version, seconds: u64) {
    let server = Server::start(version);
    let history = HistoryChecker::new();
    let stop = Instant::now() + Duration::from_secs(seconds);
    let counts: Vec<usize> = thread::scope(|scope| {
        let callers = [("A", &["x", "y"][..]), ("B", &["y", "x"]), ("C", &["x"]), ("D", &["y", "z", "x"])];
        let callers: Vec<_> = callers
            .into_iter()
            .map(|(owner, keys)| {
                let (mut client, history) = (server.connect(), &history);
                scope.spawn(move || {
                    let count = keys.len().to_string();
                    let acquire = [&["LOCK.MACQUIRE", &count], keys, &[owner, "30000", "WAIT", "0"]].concat();
                    let release = [&["LOCK.MRELEASE", &count], keys, &[owner]].concat();
                    let mut rounds = 0;
                    while Instant::now() < stop {
                        let end = Instant::now() + Duration::from_millis(30_000);
                        let fence = client.cmd(&acquire).int();
                        let now = Instant::now();
                        let holds: Vec<_> = keys
                            .iter()
                            .map(|key| history.granted(key, owner, Mode::Exclusive, fence, now, end))
                            .collect();
                        let now = Instant::now();
                        holds.into_iter().for_each(|hold| history.released(hold, now));
                        assert_eq!(client.cmd(&release).ints(), vec![0; keys.len()]);
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    history.check();
    // First come, first served: nobody gets on much faster than another.
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(*least > 50 && least * 20 > *most, "{counts:?}");
    assert_eq!(cmd!(server.connect(), "DBSIZE").int(), 0);
    assert_eq!(server.info("lock_deadlocks"), "0");
}

every_server! {
    /// B43 a: one key that can't be had, and none is taken.
    fn b43_a_all_or_none(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "y", "B", 50_000).int();
        cmd!(client, "LOCK.ACQUIRE", "s", "B", 50_000, "SHARED").int();
        for line in [
            "LOCK.MACQUIRE 2 x y A 5000", "LOCK.MACQUIRE 2 y x A 5000", "LOCK.MACQUIRE 3 x s z A 5000",
            "LOCK.MACQUIRE 2 x y A 5000 WAIT 1", "LOCK.MACQUIRE 1 y A 5000",
        ] {
            say(&mut client, line).nil();
            assert_eq!(cmd!(client, "DBSIZE").int(), 2, "{line}");
        }
        cmd!(client, "LOCK.RELEASE", "y", "B").int();
        let fence = say(&mut client, "LOCK.MACQUIRE 3 x y z A 5000").int();
        for key in ["x", "y", "z"] {
            let holder = Holder::of(&mut client, key);
            assert_eq!((holder.fence, holder.holds, &holder.owner[..]), (fence, 1, &b"A"[..]));
            assert!((1..=5000).contains(&holder.ttl) && (1..=5000).contains(&cmd!(client, "PTTL", key).int()));
        }
        let next = cmd!(client, "LOCK.MACQUIRE", 1, "w", "A", 5000, "SESSION").int();
        assert!(next > fence && Holder::of(&mut client, "w").session);
    }

    /// B43 b: opposite orders, under load: both progress.
    fn b43_b_opposite_orders_make_progress(version) {
        opposite_orders(version, 4);
    }

    /// The same for as long as SOAK_SECONDS says.
    #[ignore = "long: make soak"]
    fn soak_b43_b_opposite_orders_make_progress(version) {
        let seconds = std::env::var("SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        opposite_orders(version, seconds.unwrap_or(60));
    }

    /// B43 c: a key of the set is lost, and another owner has it: it is left alone, and the answer says which.
    fn b43_c_a_set_that_is_partly_lost(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "DEBUG", "SET-ACTIVE-EXPIRE", 0).ok();
        for loss in ["lapse", "LOCK.BREAK x", "DEL x", "LOCK.RELEASE x A"] {
            let ttl = if loss == "lapse" { 50 } else { 50_000 };
            let fence = cmd!(client, "LOCK.MACQUIRE", 3, "x", "y", "z", "A", ttl).int();
            assert_eq!(say(&mut client, "LOCK.MRENEW 2 y z A 60000").ints(), [fence, fence]);
            match loss {
                "lapse" => thread::sleep(Duration::from_millis(80)),
                line => assert!(!say(&mut client, line).is_error()),
            }
            let replies = say(&mut client, "LOCK.MRENEW 3 y x z A 60000");
            assert_eq!(replies, Reply::Array(vec![Reply::Int(fence), Reply::Nil, Reply::Int(fence)]), "{loss}");
            let other = cmd!(client, "LOCK.ACQUIRE", "x", "B", 50_000).int();
            let before = cmd!(client, "DUMP", "x");
            let replies = say(&mut client, "LOCK.MRENEW 3 y x z A 60000");
            assert!(replies.array()[1].is_nil() && !replies.array()[0].is_nil(), "{loss}");
            let replies = say(&mut client, "LOCK.MRELEASE 3 x y z A");
            assert_eq!(replies, Reply::Array(vec![Reply::Nil, Reply::Int(0), Reply::Int(0)]), "{loss}");
            assert_eq!(cmd!(client, "DUMP", "x"), before);
            assert_eq!(Holder::of(&mut client, "x").fence, other);
            let replies = say(&mut client, "LOCK.MRELEASE 3 x y z A");
            assert_eq!(replies, Reply::Array(vec![Reply::Nil; 3]));
            cmd!(client, "LOCK.RELEASE", "x", "B").int();
            assert_eq!(cmd!(client, "DBSIZE").int(), 0);
        }
    }

    /// B43 d, and every other mistake in the arguments: nothing happens.
    fn b43_d_wrong_keys_are_errors(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let errors = [
            ("LOCK.MACQUIRE 2 x x A 500", "ERR a key is named twice"),
            ("LOCK.MACQUIRE 3 x y x A 500 WAIT 0", "ERR a key is named twice"),
            ("LOCK.MRENEW 2 x x A 500", "ERR a key is named twice"),
            ("LOCK.MRELEASE 2 x x A", "ERR a key is named twice"),
            ("LOCK.MACQUIRE 0 x A 500", "numkeys must be between 1"),
            ("LOCK.MACQUIRE -1 x A 500", "numkeys must be between 1"),
            ("LOCK.MACQUIRE 01 x A 500", "numkeys must be between 1"),
            ("LOCK.MACQUIRE x y A 500", "numkeys must be between 1"),
            ("LOCK.MACQUIRE 4294967297 x A 500", "numkeys must be between 1"),
            ("LOCK.MACQUIRE 18446744073709551617 x A 500", "numkeys must be between 1"),
            ("LOCK.MACQUIRE 9 x y A 500", "numkeys must be between 1"),
            ("LOCK.MACQUIRE 3 x y A 500", "numkeys must be between 1 and 2,"),
            ("LOCK.MACQUIRE 2 x y A 500 SHARED", "unknown option"),
            ("LOCK.MACQUIRE 2 x y A 500 LIMIT 3", "unknown option"),
            ("LOCK.MACQUIRE 2 x y A 500 HOLD 1", "unknown option"),
            ("LOCK.MACQUIRE 2 x y A 500 WAIT", "WAIT has no value"),
            ("LOCK.MACQUIRE 2 x y A 500 WAIT 5 wait 5", "WAIT is given twice"),
            ("LOCK.MACQUIRE 2 x y A 0", "ttl must be between"),
            ("LOCK.MRENEW 1 x A", "wrong number of arguments"),
            ("LOCK.MRENEW 2 x A 500", "numkeys must be between 1 and 1,"),
            ("LOCK.MRELEASE 1 x A ALL", "unknown option"),
            ("LOCK.MRELEASE 2 x A", "numkeys must be between 1 and 1,"),
            ("LOCK.MACQUIRE", "wrong number of arguments"),
            ("LOCK.MACQUIRE 1 x", "wrong number of arguments"),
        ];
        for (line, text) in errors {
            let reply = say(&mut client, line);
            assert!(reply.error().contains(text), "{line}: {reply:?}");
        }
        assert_eq!(cmd!(client, "DBSIZE").int(), 0);
        cmd!(client, "SET", "data", "v").ok();
        for line in [
            "LOCK.MACQUIRE 2 x data A 500", "LOCK.MACQUIRE 2 data x A 500 WAIT 0", "LOCK.MRENEW 2 x data A 500",
            "LOCK.MRELEASE 2 x data A",
        ] {
            assert_eq!(say(&mut client, line).error_code(), "WRONGTYPE", "{line}");
        }
        let fence = cmd!(client, "LOCK.ACQUIRE", "x", "A", 50_000).int();
        let before = cmd!(client, "DUMP", "x");
        for line in ["LOCK.MRENEW 2 x data A 500", "LOCK.MRELEASE 2 x data A"] {
            assert_eq!(say(&mut client, line).error_code(), "WRONGTYPE", "{line}");
        }
        for line in ["LOCK.MACQUIRE 2 y x A 500", "LOCK.MACQUIRE 2 x y A 500 WAIT 0"] {
            assert!(say(&mut client, line).error().starts_with(&format!("HELD {fence} ")), "{line}");
        }
        assert_eq!(cmd!(client, "DUMP", "x"), before);
        assert_eq!(cmd!(client, "DBSIZE").int(), 2);
    }

    fn the_keys_are_known_to_the_server(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for (line, keys) in [
            ("LOCK.MACQUIRE 1 x A 500", &["x"][..]),
            ("LOCK.MACQUIRE 3 x y z A 500 WAIT 5", &["x", "y", "z"]),
            ("LOCK.MRENEW 2 x y A 500", &["x", "y"]),
            ("LOCK.MRELEASE 2 x y A", &["x", "y"]),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            assert_eq!(client.cmd(&[&["COMMAND", "GETKEYS"], &words[..]].concat()).texts(), keys, "{line}");
        }
        for line in ["LOCK.MACQUIRE 0 x A 500", "LOCK.MACQUIRE 9 x A 500", "LOCK.MRELEASE x y z"] {
            let words: Vec<&str> = line.split(' ').collect();
            let reply = client.cmd(&[&["COMMAND", "GETKEYS"], &words[..]].concat());
            assert!(reply.is_error() || reply.array().is_empty() || !reply.texts().contains(&"A"), "{line}: {reply:?}");
        }
    }

    /// One place in line: nobody who came later passes in any of the lines, even while a key is free.
    fn it_waits_in_every_line_at_one_place(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "x", "A", 50_000).int();
        let mut before = wait(&server, "x", "LOCK.ACQUIRE x W 50000 WAIT 0");
        let mut several = wait(&server, "y", "LOCK.MACQUIRE 3 y x z M 50000 WAIT 0");
        assert_eq!(waiters(&mut client, "x"), ["W", "M"]);
        let free = LockInfo::of(&mut client, "y").unwrap();
        assert_eq!((free.mode.as_str(), free.waiters, free.holders.len(), free.limit), ("free", 1, 0, None));
        assert_eq!(cmd!(client, "EXISTS", "y", "z").int(), 0, "it holds nothing meanwhile");
        for line in [
            "LOCK.ACQUIRE y B 500", "LOCK.ACQUIRE z B 500 SHARED", "LOCK.REENTER y B 500", "LOCK.MACQUIRE 2 y q B 500",
            "LOCK.MACQUIRE 1 z B 500 WAIT 1",
        ] {
            say(&mut client, line).nil();
        }
        let mut behind = wait(&server, "y", "LOCK.ACQUIRE y B 50000 WAIT 0");
        let mut last = wait(&server, "z", "LOCK.MACQUIRE 2 z q L 50000 WAIT 0");
        cmd!(client, "LOCK.RELEASE", "x", "A").int();
        before.read().int();
        assert!(waits(&mut several) && waits(&mut behind) && waits(&mut last));
        cmd!(client, "LOCK.RELEASE", "x", "W").int();
        assert_eq!(held(&mut client, &["x", "y", "z"]), ["M", "M", "M"], "as the release was answered");
        let fence = several.read().int();
        assert!(waits(&mut behind) && waits(&mut last));
        assert_eq!(say(&mut client, "LOCK.MRELEASE 3 x y z M").ints(), [0, 0, 0]);
        assert!(behind.read().int() > fence && last.read().int() > fence);
        assert_eq!(held(&mut client, &["x", "y", "z", "q"]), ["", "B", "L", "L"]);
    }

    /// Sets that overlap: the later one does not pass the earlier one at the key that they share, free though it is.
    fn a_later_set_does_not_pass_an_earlier_one(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "q", "A", 50_000).int();
        cmd!(client, "LOCK.ACQUIRE", "y", "A", 50_000).int();
        let mut earlier = wait(&server, "x", "LOCK.MACQUIRE 2 q x E 50000 WAIT 0");
        let mut later = wait(&server, "y", "LOCK.MACQUIRE 2 x y L 50000 WAIT 0");
        let mut last = wait(&server, "z", "LOCK.MACQUIRE 2 y z M 50000 WAIT 0");
        assert_eq!(waiters(&mut client, "x"), ["E", "L"]);
        cmd!(client, "LOCK.RELEASE", "y", "A").int();
        for key in ["x", "y", "z"] {
            assert_eq!(LockInfo::of(&mut client, key).unwrap().mode, "free", "{key}");
        }
        assert!(waits(&mut later) && waits(&mut last));
        cmd!(client, "LOCK.RELEASE", "q", "A").int();
        let fence = earlier.read().int();
        assert_eq!(held(&mut client, &["q", "x", "y", "z"]), ["E", "E", "", ""]);
        say(&mut client, "LOCK.MRELEASE 2 q x E").array();
        assert!(later.read().int() > fence);
        assert_eq!(held(&mut client, &["q", "x", "y", "z"]), ["", "L", "L", ""]);
        say(&mut client, "LOCK.MRELEASE 2 x y L").array();
        last.read().int();
    }

    /// It lapses, gives up, is unblocked, or its connection is closed or killed: whoever stood behind is served.
    fn who_stands_behind_it_is_served_when_it_goes(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "x", "A", 50_000).int();
        for way in ["timeout", "close", "kill", "unblock", "release all", "overwrite"] {
            let mut several = server.connect();
            let id = several.client_id();
            let timeout = if way == "timeout" { 300 } else { 0 };
            send!(several, "LOCK.MACQUIRE", 3, "x", "y", "z", "M", 50_000, "WAIT", timeout);
            until_blocked(&server, 1);
            let mut behind = ["y", "z"].map(|key| {
                let mut client = server.connect();
                send!(client, "LOCK.ACQUIRE", key, "B", 50_000, "WAIT", 0);
                client
            });
            if way != "timeout" {
                until_blocked(&server, 3);
                assert_eq!(waiters(&mut client, "y"), ["M", "B"]);
            }
            match way {
                "timeout" => several.read().nil(),
                "close" => several.close(),
                "kill" => assert_eq!(cmd!(client, "CLIENT", "KILL", "ID", id).int(), 1),
                "unblock" => {
                    assert_eq!(cmd!(client, "CLIENT", "UNBLOCK", id).int(), 1);
                    several.read().nil();
                }
                "release all" => {
                    cmd!(client, "LOCK.RELEASE", "z", "M", "ALL").nil();
                    several.read().nil();
                }
                _ => {
                    cmd!(client, "SET", "x", "data").ok();
                    assert_eq!(several.read().error_code(), "WRONGTYPE");
                }
            }
            for client in &mut behind {
                assert!(client.read().int() > 0, "{way}");
            }
            assert_eq!(held(&mut client, &["y", "z"]), ["B", "B"], "{way}");
            assert_eq!(say(&mut client, "LOCK.MRELEASE 2 y z B").ints(), [0, 0]);
            assert_eq!(client.info("lock_waiters").as_deref(), Some("0"), "{way}");
        }
    }

    /// Leases that end one after the other, without any command: granted when the last one has.
    fn it_is_granted_when_the_last_lease_has_ended(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for (key, ttl) in [("x", 200), ("y", 600), ("z", 400)] {
            cmd!(client, "LOCK.ACQUIRE", key, "A", ttl).int();
        }
        let start = Instant::now();
        let mut several = wait(&server, "x", "LOCK.MACQUIRE 3 x y z M 50000 WAIT 0");
        assert!(several.read().int() > 0);
        assert!(start.elapsed() >= Duration::from_millis(400), "y was held");
        assert_eq!(held(&mut client, &["x", "y", "z"]), ["M", "M", "M"]);
    }

    /// The same request from another connection takes over all its places; another one of this owner is an error.
    fn the_same_request_takes_its_places_over(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "x", "A", 50_000).int();
        let mut older = wait(&server, "y", "LOCK.MACQUIRE 2 x y M 50000 WAIT 0");
        let mut behind = wait(&server, "y", "LOCK.ACQUIRE y B 50000 WAIT 0");
        let mut newer = server.connect();
        // The order of the keys does not make another request.
        send!(newer, "LOCK.MACQUIRE", 2, "y", "x", "M", 50_000, "WAIT", 0);
        assert_eq!(older.read().error_code(), "REPLACED");
        assert_eq!(waiters(&mut client, "y"), ["M", "B"]);
        for line in [
            "LOCK.MACQUIRE 3 x y z M 50000 WAIT 0", "LOCK.MACQUIRE 1 x M 50000 WAIT 0", "LOCK.ACQUIRE y M 50000 WAIT 0",
            "LOCK.MACQUIRE 2 x z M 50000 WAIT 0",
        ] {
            assert_eq!(say(&mut client, line).error_code(), "ERR", "{line}");
        }
        say(&mut client, "LOCK.MACQUIRE 3 x y z M 50000").nil();
        cmd!(client, "LOCK.RELEASE", "x", "A").int();
        assert!(newer.read().int() > 0);
        assert!(waits(&mut behind));
    }

    /// A grant of several keys whose client is gone is taken back from all of them.
    fn a_grant_that_nobody_hears_of_is_handed_on(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "x", "A", 50_000).int();
        let mut several = server.connect();
        let id = several.client_id();
        send!(several, "LOCK.MACQUIRE", 2, "x", "y", "M", 50_000, "WAIT", 0);
        until_waiting(&server, "y", 1);
        let mut behind = ["x", "y"].map(|key| wait(&server, key, &format!("LOCK.ACQUIRE {key} B 50000 WAIT 0")));
        cmd!(client, "MULTI").ok();
        cmd!(client, "LOCK.RELEASE", "x", "A").text();
        cmd!(client, "CLIENT", "KILL", "ID", id).text();
        assert_eq!(cmd!(client, "EXEC").ints(), [0, 1]);
        for client in &mut behind {
            client.read().int();
        }
        assert_eq!(held(&mut client, &["x", "y"]), ["B", "B"]);
    }

    /// A connection ends, and with it its leases of all keys.
    fn a_session_ends_all_of_its_keys(version) {
        let server = Server::start(version);
        let [mut client, mut session] = [(); 2].map(|()| server.connect());
        cmd!(session, "LOCK.MACQUIRE", 2, "x", "y", "A", 50_000, "SESSION").int();
        cmd!(session, "LOCK.ACQUIRE", "z", "A", 50_000).int();
        let mut several = wait(&server, "x", "LOCK.MACQUIRE 2 y x B 50000 WAIT 0");
        session.close();
        assert!(several.read().int() > 0);
        assert_eq!(held(&mut client, &["x", "y", "z"]), ["B", "B", "A"]);
        // MRENEW ties as well.
        let mut session = server.connect();
        assert_eq!(cmd!(session, "LOCK.MRENEW", 3, "x", "y", "z", "B", 50_000, "SESSION").array()[2], Reply::Nil);
        session.close();
        eventually(SOON, || held(&mut client, &["x", "y", "z"]) == ["", "", "A"]);
    }

    /// What happens to several keys is one unit, for replicas and in the AOF: no half of it is ever seen.
    fn it_travels_as_one_unit(version) {
        let server = Server::builder(version).aof(Fsync::Always).start();
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "x", "A", 50_000).int();
        let mut stream = Stream::of(&server);
        let mut seen = appended(&server).len();
        let mut unit = |what: &str, expected: &[&str]| {
            let expected: Vec<_> = [&["MULTI"], expected, &["EXEC"]].concat();
            assert_eq!(stream.told(), expected, "{what}, to replicas");
            let appended = appended(&server);
            assert_eq!(appended[seen..], expected, "{what}, in the AOF");
            seen = appended.len();
        };
        say(&mut client, "LOCK.MACQUIRE 3 b a c B 50000").int();
        unit("a grant", &["b: B alone x1", "a: B alone x1", "c: B alone x1"]);
        say(&mut client, "LOCK.MACQUIRE 2 q x B 50000").nil();
        say(&mut client, "LOCK.MRENEW 2 a b B 50000").array();
        unit("a renewal, and no refusal", &["a: B alone x1", "b: B alone x1"]);
        let mut several = wait(&server, "q", "LOCK.MACQUIRE 3 q x a M 50000 WAIT 0");
        say(&mut client, "LOCK.MRELEASE 3 a b c B").array();
        unit("a release, and no wait", &["a: B gone", "b: B gone", "c: B gone"]);
        cmd!(client, "LOCK.RELEASE", "x", "A").int();
        several.read().int();
        unit("a release and its hand-off", &["x: A gone", "q: M alone x1", "x: M alone x1", "a: M alone x1"]);
        server.kill9();
        server.restart();
        assert_eq!(held(&mut server.connect(), &["q", "x", "a", "b"]), ["M", "M", "M", ""]);
    }

    /// A crash in the middle of writing leaves half a unit in the AOF: it counts for nothing.
    fn half_a_unit_in_the_aof_counts_for_nothing(version) {
        let server = Server::builder(version).aof(Fsync::Always).start();
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "x", "A", 500_000).int();
        say(&mut client, "LOCK.MACQUIRE 3 a b c M 500000").int();
        server.kill9();
        let file = append_only_file(&server);
        let whole = std::fs::read(&file).unwrap();
        let unit = b"*1\r\n$5\r\nMULTI\r\n";
        let start = whole.windows(unit.len()).rposition(|bytes| bytes == unit).expect("a unit");
        let mut cuts: Vec<usize> = (start + 1..whole.len()).step_by((whole.len() - start) / 7).collect();
        cuts.extend([start + unit.len(), whole.len() - 1]);
        for cut in cuts {
            std::fs::write(&file, &whole[..cut]).unwrap();
            server.restart();
            assert_eq!(held(&mut server.connect(), &["x", "a", "b", "c"]), ["A", "", "", ""], "{cut} of {}", whole.len());
            server.kill9();
        }
        std::fs::write(&file, &whole).unwrap();
        server.restart();
        assert_eq!(held(&mut server.connect(), &["x", "a", "b", "c"]), ["A", "M", "M", "M"]);
    }

    /// A replica that is promoted at any moment has all of a set or nothing.
    fn a_promoted_replica_has_all_or_none(version) {
        let server = Server::start(version);
        let replica = Server::builder(version).replica_of(&server).start();
        let mut client = server.connect();
        // The first write after the image waits for the replica's word that it is there: from then on all flows.
        wait_in_sync(&server, &replica);
        cmd!(client, "LOCK.ACQUIRE", "x0", "A", 50_000).int();
        wait_in_sync(&server, &replica);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = server.connect();
                for n in 0.. {
                    let keys = [n, n + 1, n + 2].map(|n| format!("key{n}"));
                    let request = [vec!["LOCK.MACQUIRE".to_owned(), "3".to_owned()], keys.to_vec(), vec![format!("owner{n}"), "50000".to_owned()]];
                    if client.try_cmd(&request.concat()).is_err() {
                        return;
                    }
                    let request = [vec!["LOCK.MRELEASE".to_owned(), "3".to_owned()], keys.to_vec(), vec![format!("owner{n}")]];
                    if n % 3 == 0 && client.try_cmd(&request.concat()).is_err() {
                        return;
                    }
                }
            });
            thread::sleep(Duration::from_millis(300));
            promote(&replica);
            server.kill9();
        });
        let mut client = replica.connect();
        let mut sets: std::collections::BTreeMap<Vec<u8>, usize> = std::collections::BTreeMap::new();
        for key in cmd!(client, "KEYS", "key*").array() {
            *sets.entry(Holder::of(&mut client, key.bytes()).owner).or_default() += 1;
        }
        assert!(!sets.is_empty(), "nothing was replicated");
        assert!(sets.values().all(|count| *count == 3), "{sets:?}");
    }

    /// More keys than are kept open at a time, in a database of their own.
    fn hundreds_of_keys(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "SELECT", 5).ok();
        let keys: Vec<String> = (0..300).map(|n| format!("key {n}")).collect();
        let request = |name: &str, owner: &str, rest: &[&str]| {
            let words = [&[name, "300"][..], &keys.iter().map(String::as_str).collect::<Vec<_>>(), &[owner], rest].concat();
            words.into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let fence = client.cmd(&request("LOCK.MACQUIRE", "A", &["50000"])).int();
        assert_eq!(cmd!(client, "DBSIZE").int(), 300);
        assert_eq!(client.cmd(&request("LOCK.MRENEW", "A", &["60000"])).ints(), vec![fence; 300]);
        assert!(keys.iter().all(|key| cmd!(client, "PTTL", key).int() > 50_000));
        let mut several = server.connect();
        cmd!(several, "SELECT", 5).ok();
        several.send(&request("LOCK.MACQUIRE", "M", &["50000", "WAIT", "0"]));
        until_blocked(&server, 1);
        for key in &keys[1..] {
            assert_eq!(cmd!(client, "LOCK.RELEASE", key, "A").int(), 0);
        }
        assert!(waits(&mut several));
        cmd!(client, "LOCK.RELEASE", &keys[0], "A").int();
        assert!(several.read().int() > fence);
        assert_eq!(client.cmd(&request("LOCK.MRELEASE", "M", &[])).ints(), vec![0; 300]);
        assert_eq!(cmd!(client, "DBSIZE").int(), 0);
    }

    /// A circle through several keys, and one through a place in line, is told to who closes it.
    fn deadlocks_through_several_keys(version) {
        let server = Server::start(version);
        let [mut client, mut b] = [(); 2].map(|()| server.connect());
        cmd!(client, "LOCK.ACQUIRE", "x", "A", 50_000).int();
        cmd!(client, "LOCK.ACQUIRE", "y", "B", 50_000).int();
        let mut a = wait(&server, "z", "LOCK.MACQUIRE 2 z y A 50000 WAIT 0");
        for line in ["LOCK.ACQUIRE x B 50000 WAIT 0", "LOCK.MACQUIRE 2 q x B 50000 WAIT 0", "LOCK.ACQUIRE x B 50000 SHARED WAIT 0"] {
            let reply = say(&mut b, line);
            assert_eq!(reply.error_code(), "DEADLOCK", "{line}");
            assert!(reply.error().contains("'A'") && reply.error().contains("'B'"), "{line}: {reply:?}");
        }
        // A stands ahead at z, and waits for B: a free key is no way around.
        assert_eq!(say(&mut b, "LOCK.ACQUIRE z B 50000 WAIT 0").error_code(), "DEADLOCK");
        say(&mut b, "LOCK.ACQUIRE x B 50000").nil();
        assert!(waits(&mut a));
        cmd!(b, "LOCK.RELEASE", "y", "B").int();
        a.read().int();
        // M holds nothing, and yet A would wait for it, and it for A.
        let mut m = wait(&server, "w", "LOCK.MACQUIRE 2 w x M 50000 WAIT 0");
        assert_eq!(say(&mut client, "LOCK.ACQUIRE w A 50000 WAIT 0").error_code(), "DEADLOCK");
        assert_eq!(server.info("lock_deadlocks"), "5");
        say(&mut client, "LOCK.MRELEASE 3 x y z A").array();
        m.read().int();
        assert_eq!(server.info("lock_waiters"), "0");
    }

    /// Where nothing may block, to wait means to try; in a transaction all keys are taken or none.
    fn nothing_blocks_in_transactions_and_scripts(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "x", "A", 50_000).int();
        cmd!(client, "MULTI").ok();
        for line in ["LOCK.MACQUIRE 2 x y B 50000 WAIT 0", "LOCK.MACQUIRE 2 y z B 50000 WAIT 0", "LOCK.MRELEASE 2 y z B"] {
            assert_eq!(say(&mut client, line).text(), "QUEUED");
        }
        let replies = cmd!(client, "EXEC");
        assert!(replies.array()[0].is_nil() && replies.array()[1].int() > 0, "{replies:?}");
        assert_eq!(replies.array()[2].ints(), [0, 0]);
        let script = "return redis.call('LOCK.MACQUIRE', #KEYS, KEYS[1], KEYS[2], 'B', 50000, 'WAIT', 0)";
        cmd!(client, "EVAL", script, 2, "y", "x").nil();
        assert!(cmd!(client, "EVAL", script, 2, "y", "z").int() > 0);
        assert_eq!(held(&mut client, &["x", "y", "z"]), ["A", "B", "B"]);
    }

    /// B45: keys of several slots are refused at once, with WAIT or without; those of one slot are served.
    fn b45_all_keys_are_in_one_slot(version) {
        let cluster = Cluster::start(version, 2);
        for key in ["a", "b"] {
            let mut client = cluster.connect_for(key);
            for line in [
                "LOCK.MACQUIRE 2 a b A 50000", "LOCK.MACQUIRE 2 b a A 50000 WAIT 0", "LOCK.MRENEW 2 a b A 50000",
                "LOCK.MRELEASE 2 a b A",
            ] {
                assert_eq!(say(&mut client, line).error_code(), "CROSSSLOT", "{line}");
            }
        }
        let tagged = "LOCK.MACQUIRE 2 {t}a {t}b A 50000";
        let here = cluster.node_for_key("{t}");
        assert_eq!(say(&mut cluster.node(1 - here).connect(), tagged).error_code(), "MOVED");
        let mut client = cluster.connect_for("{t}");
        let fence = say(&mut client, tagged).int();
        let mut several = server_wait(&cluster, here, "LOCK.MACQUIRE 2 {t}b {t}c B 50000 WAIT 0");
        assert_eq!(say(&mut client, "LOCK.MRENEW 2 {t}a {t}b A 50000").ints(), [fence, fence]);
        assert_eq!(say(&mut client, "LOCK.MRELEASE 2 {t}a {t}b A").ints(), [0, 0]);
        assert!(several.read().int() > fence);
        // No other key anywhere: what there is are the two that are held.
        let keys: i64 = cluster.nodes().iter().map(|node| cmd!(node.connect(), "DBSIZE").int()).sum();
        assert_eq!(keys, 2);
        fn server_wait(cluster: &Cluster, node: usize, line: &str) -> Client {
            let mut client = cluster.node(node).connect();
            client.send(&line.split(' ').collect::<Vec<_>>());
            until_blocked(cluster.node(node), 1);
            client
        }
    }

    /// B101: one key that the user may not touch, and nothing happens to the others.
    fn b101_one_forbidden_key_forbids_all(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        say(&mut client, "ACL SETUSER u on nopass ~lock:* -@all +lock.macquire +lock.mrenew +lock.mrelease").ok();
        let mut user = server.connect();
        say(&mut user, "AUTH u nothing").ok();
        let fence = say(&mut user, "LOCK.MACQUIRE 2 lock:a lock:b A 50000").int();
        cmd!(client, "LOCK.ACQUIRE", "other", "A", 50_000).int();
        let before = ["lock:a", "lock:b", "other"].map(|key| cmd!(client, "DUMP", key));
        for line in [
            "LOCK.MACQUIRE 2 lock:c other2 A 50000", "LOCK.MACQUIRE 2 other2 lock:c A 50000 WAIT 0",
            "LOCK.MRENEW 3 lock:a lock:b other A 500", "LOCK.MRELEASE 3 lock:a lock:b other A", "LOCK.RELEASE lock:a A",
        ] {
            assert_eq!(say(&mut user, line).error_code(), "NOPERM", "{line}");
        }
        assert_eq!(["lock:a", "lock:b", "other"].map(|key| cmd!(client, "DUMP", key)), before);
        assert_eq!(cmd!(client, "DBSIZE").int(), 3);
        assert_eq!(say(&mut user, "LOCK.MRENEW 2 lock:a lock:b A 50000").ints(), [fence, fence]);
        if version.has_config() {
            // Selectors and key permissions: to read a key is not enough.
            say(&mut client, "ACL SETUSER r on nopass %R~lock:* -@all +lock.macquire +lock.info").ok();
            let mut reader = server.connect();
            say(&mut reader, "AUTH r nothing").ok();
            assert_eq!(say(&mut reader, "LOCK.MACQUIRE 2 lock:c lock:d B 500").error_code(), "NOPERM");
            assert!(LockInfo::of(&mut reader, "lock:a").is_some());
        }
    }

    /// B108: one owner for two tasks: the second is told so with the same fence, and never gets a grant of its own.
    fn b108_one_owner_for_two_tasks(version) {
        let server = Server::start(version);
        let [mut first, mut second] = [(); 2].map(|()| server.connect());
        let fence = cmd!(first, "LOCK.MACQUIRE", 2, "x", "y", "worker", 50_000).int();
        let held = format!("HELD {fence} ");
        for line in [
            "LOCK.MACQUIRE 2 x y worker 50000", "LOCK.MACQUIRE 2 y z worker 50000 WAIT 0", "LOCK.ACQUIRE x worker 50000",
            "LOCK.ACQUIRE y worker 50000 WAIT 0", "LOCK.ACQUIRE y worker 50000 SHARED LIMIT 2",
        ] {
            assert!(say(&mut second, line).error().starts_with(&held), "{line}");
        }
        assert_eq!(say(&mut first, "LOCK.MRELEASE 2 x y worker").ints(), [0, 0]);
        // Two that wait under one name: one place, and one grant.
        cmd!(first, "LOCK.ACQUIRE", "x", "A", 50_000).int();
        let mut one = wait(&server, "x", "LOCK.MACQUIRE 2 x y worker 50000 WAIT 0");
        let mut two = server.connect();
        send!(two, "LOCK.MACQUIRE", 2, "x", "y", "worker", 50_000, "WAIT", 0);
        assert_eq!(one.read().error_code(), "REPLACED");
        cmd!(first, "LOCK.RELEASE", "x", "A").int();
        let fence = two.read().int();
        assert!(say(&mut one, "LOCK.MACQUIRE 2 x y worker 50000 WAIT 0").error().starts_with(&format!("HELD {fence} ")));
    }
}
