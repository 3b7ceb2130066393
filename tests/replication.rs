//! Replicas: what travels to them, that they are as their primary, and what a promotion keeps.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redislock_testkit::{
    Client, Fsync, Holder, LockInfo, Proxy, Reply, Server, Version, cmd, eventually, every_server, follow,
    now_ms, promote, wait_in_sync,
};

const SOON: Duration = Duration::from_secs(20);

fn say(client: &mut Client, line: &str) -> Reply {
    client.cmd(&line.split(' ').collect::<Vec<_>>())
}

/// Every key and all that there is of it. A key that ends meanwhile is not there.
fn all_locks(client: &mut Client) -> Vec<(Reply, Reply)> {
    let mut keys = cmd!(client, "KEYS", "*").array().to_vec();
    keys.sort_by(|one, other| one.bytes().cmp(other.bytes()));
    let dumps = keys.into_iter().map(|key| (key.clone(), cmd!(client, "DUMP", key.bytes())));
    dumps.filter(|(_, dump)| !dump.is_nil()).collect()
}

/// Commands of every kind on a few keys, the same for the same seed.
fn churn(client: &mut Client, seed: u64, rounds: usize) {
    let mut state = seed;
    let mut pick = |of: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % of
    };
    for _ in 0..rounds {
        let (key, owner) = (format!("k{}", pick(12)), format!("owner-{}", pick(4)));
        let ttl = 20_000 + pick(50_000);
        match pick(12) {
            0 | 1 => cmd!(client, "LOCK.ACQUIRE", key, owner, ttl),
            2 | 3 => cmd!(client, "LOCK.ACQUIRE", key, owner, ttl, "SHARED"),
            4 => cmd!(client, "LOCK.ACQUIRE", key, owner, ttl, "SHARED", "LIMIT", 3),
            5 => cmd!(client, "LOCK.REENTER", key, owner, ttl),
            6 => cmd!(client, "LOCK.RENEW", key, owner, ttl),
            7 | 8 => cmd!(client, "LOCK.RELEASE", key, owner),
            9 => cmd!(client, "LOCK.DOWNGRADE", key, owner),
            10 => cmd!(client, "LOCK.ACQUIRE", key, owner, 1 + pick(20)),
            _ => match pick(4) {
                0 => cmd!(client, "DEL", key),
                1 => cmd!(client, "EXPIRE", key, 3),
                2 => cmd!(client, "LOCK.MACQUIRE", 2, key, "other", owner, ttl),
                _ => cmd!(client, "LOCK.BREAK", key),
            },
        };
    }
}

#[track_caller]
fn are_equal(primary: &Server, replica: &Server) {
    wait_in_sync(primary, replica);
    let (mut source, mut target) = (primary.connect(), replica.connect());
    // Leases that end meanwhile end on the primary first.
    eventually(SOON, || {
        wait_in_sync(primary, replica);
        all_locks(&mut source) == all_locks(&mut target)
    });
    assert_eq!(cmd!(source, "DEBUG", "DIGEST").text(), cmd!(target, "DEBUG", "DIGEST").text());
}

fn stat(server: &Server, field: &str) -> i64 {
    server.info(field).parse().unwrap()
}

/// The commands of a plain append-only file, as words.
fn appended(server: &Server) -> Vec<Vec<String>> {
    let folder = server.dir().join("appendonlydir");
    let path = if folder.exists() {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.to_string_lossy().ends_with(".incr.aof")).max().expect("a file to append to")
    } else {
        server.dir().join("appendonly.aof")
    };
    let bytes = fs::read(path).unwrap();
    let mut at = 0;
    let mut line = || {
        let rest = &bytes[at..];
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        at += end + 2;
        Some(rest[..end].to_vec())
    };
    let mut commands = Vec::new();
    while let Some(head) = line() {
        // Annotations of newer servers.
        if head.first() != Some(&b'*') {
            continue;
        }
        let count: usize = String::from_utf8_lossy(&head[1..]).parse().unwrap();
        let mut words = Vec::new();
        for _ in 0..count {
            let length: usize = String::from_utf8_lossy(&line().unwrap()[1..]).parse().unwrap();
            let mut word = line().unwrap();
            while word.len() < length {
                word.extend_from_slice(b"\r\n");
                word.extend(line().unwrap());
            }
            words.push(String::from_utf8_lossy(&word).into_owned());
        }
        commands.push(words);
    }
    commands
}

/// The names of the commands that were appended since `from`, without SELECT.
fn names_since(server: &Server, from: usize) -> Vec<String> {
    let commands = appended(server).split_off(from);
    commands.into_iter().map(|words| words[0].to_uppercase()).filter(|name| name != "SELECT").collect()
}

every_server! {
    fn a_replica_is_as_its_primary(version) {
        let primary = Server::start(version);
        let mut client = primary.connect();
        churn(&mut client, 1, 2000);
        // Full.
        let replica = Server::builder(version).replica_of(&primary).start();
        are_equal(&primary, &replica);
        // By the stream.
        churn(&mut client, 2, 2000);
        are_equal(&primary, &replica);
    }

    fn a_partial_resync_brings_what_was_missed(version) {
        let primary = Server::builder(version).config("repl-backlog-size", "16mb").start();
        let proxy = Proxy::new(primary.addr());
        let replica = Server::builder(version).replica_of_port(proxy.port()).start();
        let mut client = primary.connect();
        churn(&mut client, 3, 300);
        wait_in_sync(&primary, &replica);
        let full = stat(&primary, "sync_full");
        for seed in 4..7 {
            proxy.refuse(true);
            proxy.cut();
            churn(&mut client, seed, 300);
            proxy.refuse(false);
            are_equal(&primary, &replica);
        }
        assert!(stat(&primary, "sync_partial_ok") >= 3);
        assert_eq!(stat(&primary, "sync_full"), full);
    }

    /// Only what became of a holder travels, never the client's own words, and nothing where nothing changed.
    fn b82_b88_only_records_travel_and_only_of_changes(version) {
        let primary = Server::builder(version)
            .aof(Fsync::Always)
            .aof_preamble(false)
            .config("repl-ping-replica-period", 3600)
            .start();
        let replica = Server::builder(version).replica_of(&primary).start();
        let mut client = primary.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        wait_in_sync(&primary, &replica);
        let mut monitor = replica.connect();
        cmd!(monitor, "MONITOR").ok();
        let (offset, from) = (stat(&primary, "master_repl_offset"), appended(&primary).len());
        for line in [
            "LOCK.ACQUIRE k B 1000",
            "LOCK.ACQUIRE k A 1000",
            "LOCK.ACQUIRE k B 0",
            "LOCK.ACQUIRE k B 1000 WAIT 1",
            "LOCK.REENTER k B 1000",
            "LOCK.RENEW k B 1000",
            "LOCK.RENEW free B 1000",
            "LOCK.RELEASE k B",
            "LOCK.RELEASE k B ALL",
            "LOCK.RELEASE k A HOLD 2",
            "LOCK.FENCE k A 1",
            "LOCK.DOWNGRADE k B",
            "LOCK.BREAK k B",
            "LOCK.BREAK free",
            "LOCK.MACQUIRE 2 free k B 1000",
            "LOCK.MRENEW 2 free k B 1000",
            "LOCK.MRELEASE 2 free k B",
            "LOCK.INFO k",
            "LOCK.WAITERS k",
            "LOCK.HELP",
        ] {
            say(&mut client, line);
            assert_eq!(stat(&primary, "master_repl_offset"), offset, "{line}");
        }
        assert_eq!(names_since(&primary, from), Vec::<String>::new());
        for (line, records) in [
            ("LOCK.RENEW k A 50000", 1),
            ("LOCK.REENTER k A 50000", 1),
            ("LOCK.FENCE k A 8", 0),
            ("LOCK.RELEASE k A", 1),
            ("LOCK.DOWNGRADE k A", 1),
            ("LOCK.ACQUIRE k B 50000 SHARED", 1),
            ("LOCK.BREAK k", 2),
            ("LOCK.MACQUIRE 3 x y z A 50000", 3),
            ("LOCK.MRENEW 3 x y z A 50000", 3),
            ("LOCK.MRELEASE 3 x y z A", 3),
        ] {
            let from = appended(&primary).len();
            say(&mut client, line);
            let mut unit = vec!["LOCK.APPLY".to_owned(); records];
            // 6.2 takes whatever a module sends for a unit.
            if records > 1 || (records == 1 && version == Version::Redis62) {
                unit.insert(0, "MULTI".to_owned());
                unit.push("EXEC".to_owned());
            }
            assert_eq!(names_since(&primary, from), unit, "{line}");
        }
        // A script and a transaction are one unit, too.
        let from = appended(&primary).len();
        cmd!(client, "EVAL", "redis.call('LOCK.ACQUIRE', KEYS[1], 'A', 50000) redis.call('LOCK.RELEASE', KEYS[1], 'A')", 1, "k");
        cmd!(client, "MULTI").ok();
        for key in ["x", "y"] {
            cmd!(client, "LOCK.ACQUIRE", key, "A", 50_000);
        }
        cmd!(client, "EXEC").array();
        let unit = ["MULTI", "LOCK.APPLY", "LOCK.APPLY", "EXEC"];
        assert_eq!(names_since(&primary, from), [unit, unit].concat());
        // A release and the grant that it causes, in this order.
        let mut waiter = primary.connect();
        redislock_testkit::send!(waiter, "LOCK.ACQUIRE", "x", "B", 50_000, "WAIT", 0);
        eventually(SOON, || stat(&primary, "lock_waiters") == 1);
        let from = appended(&primary).len();
        cmd!(client, "LOCK.RELEASE", "x", "A").int();
        waiter.read().int();
        assert_eq!(names_since(&primary, from), unit);
        are_equal(&primary, &replica);
        assert_eq!(stat(&replica, "lock_waiters"), 0);
        assert_eq!(stat(&primary, "master_repl_offset"), stat(&replica, "slave_repl_offset"));
        // The replica saw no command of a client.
        cmd!(replica.connect(), "ECHO", "the end");
        let mut seen = 0;
        loop {
            let line = monitor.read();
            let line = line.text();
            if line.contains("the end") {
                break;
            }
            let lock = line.find("\"LOCK.").map(|at| line[at..].starts_with("\"LOCK.APPLY\""));
            assert_ne!(lock, Some(false), "{line}");
            seen += i32::from(lock == Some(true));
        }
        assert!(seen > 20, "{seen} records");
    }

    fn a_replica_takes_no_writes_and_shows_what_is_held(version) {
        let primary = Server::start(version);
        let replica = Server::builder(version).replica_of(&primary).start();
        let fence = cmd!(primary.connect(), "LOCK.ACQUIRE", "k", "A", 50_000).int();
        wait_in_sync(&primary, &replica);
        let mut client = replica.connect();
        for line in [
            "LOCK.ACQUIRE free B 1000",
            "LOCK.ACQUIRE k B 1000 WAIT 0",
            "LOCK.REENTER k A 1000",
            "LOCK.RENEW k A 1000",
            "LOCK.RELEASE k A",
            "LOCK.FENCE k A 5",
            "LOCK.DOWNGRADE k A",
            "LOCK.BREAK k",
            "LOCK.MACQUIRE 1 free B 1000",
            "LOCK.MRENEW 1 k A 1000",
            "LOCK.MRELEASE 1 k A",
            "LOCK.APPLY k x",
        ] {
            assert_eq!(say(&mut client, line).error_code(), "READONLY", "{line}");
        }
        let holder = Holder::of(&mut client, "k");
        assert_eq!((holder.owner, holder.fence, holder.session), (b"A".to_vec(), fence, false));
        assert!((1..=50_000).contains(&holder.ttl));
        cmd!(client, "LOCK.INFO", "free").nil();
        assert!(cmd!(client, "LOCK.WAITERS", "k").array().is_empty());
        assert_eq!(replica.info("blocked_clients"), "0");
    }

    /// A replica deletes nothing by itself, but what is over is over there, too.
    fn b04_a_lease_that_ended_is_not_shown_on_a_replica(version) {
        let primary = Server::start(version);
        let replica = Server::builder(version).replica_of(&primary).start();
        let mut client = primary.connect();
        cmd!(client, "LOCK.ACQUIRE", "crowd", "B", 50_000, "SHARED").int();
        // As the primary would be: it says nothing of what ends now.
        cmd!(client, "DEBUG", "SET-ACTIVE-EXPIRE", 0).ok();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 100).int();
        cmd!(client, "LOCK.ACQUIRE", "crowd", "A", 100, "SHARED").int();
        wait_in_sync(&primary, &replica);
        thread::sleep(Duration::from_millis(150));
        let mut client = replica.connect();
        cmd!(client, "LOCK.INFO", "k").nil();
        assert_eq!(Holder::of(&mut client, "crowd").owner, b"B");
        assert_eq!(cmd!(client, "DBSIZE").int(), 2);
        let fence = cmd!(primary.connect(), "LOCK.ACQUIRE", "k", "B", 50_000).int();
        wait_in_sync(&primary, &replica);
        assert_eq!(Holder::of(&mut client, "k").fence, fence);
    }

    /// Records are for the replication link and the AOF: no client can forge one, by any way.
    fn records_are_refused_from_clients(version) {
        let server = Server::builder(version).aof(Fsync::Always).aof_preamble(false).start();
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        assert!(names_since(&server, 0).contains(&"LOCK.APPLY".to_owned()));
        let before = cmd!(client, "DUMP", "k");
        let record = b"\x01\x05\x00\x01A";
        assert!(cmd!(client, "LOCK.APPLY", "k", record).error().contains("internal"));
        assert!(cmd!(client, "LOCK.APPLY", "free", record).error().contains("internal"));
        let script = "return redis.call('LOCK.APPLY', KEYS[1], ARGV[1])";
        assert!(cmd!(client, "EVAL", script, 1, "k", record).is_error());
        if version.has_guard() {
            assert!(cmd!(client, "LOCK.GUARD", "k", "A", "LOCK.APPLY", "k", record).is_error());
        }
        cmd!(client, "MULTI").ok();
        cmd!(client, "LOCK.APPLY", "k", record);
        assert!(cmd!(client, "EXEC").array()[0].is_error());
        assert_eq!(cmd!(client, "DUMP", "k"), before);
        // Not even where clients may write to a replica.
        let replica = Server::builder(version).replica_of(&server).config("replica-read-only", "no").start();
        wait_in_sync(&server, &replica);
        assert!(cmd!(replica.connect(), "LOCK.APPLY", "k", record).error().contains("internal"));
        assert_eq!(cmd!(replica.connect(), "DUMP", "k"), before);
    }

    /// Fences rise above every one that any client saw; what was replicated keeps its owner and its deadline.
    fn promotion_under_load_keeps_fences_rising_and_deadlines(version) {
        let primary = Server::start(version);
        let replica = Server::builder(version).replica_of(&primary).start();
        let mut client = primary.connect();
        let held: Vec<_> = (0..20)
            .map(|index| {
                let key = format!("held-{index}");
                let fence = cmd!(client, "LOCK.ACQUIRE", key, "A", 30_000 + 1000 * index).int();
                (key, fence)
            })
            .collect();
        wait_in_sync(&primary, &replica);
        let before: Vec<_> = held.iter().map(|(key, _)| cmd!(client, "DUMP", key)).collect();
        let stop = AtomicBool::new(false);
        let last_seen = thread::scope(|scope| {
            let hammers: Vec<_> = (0..6)
                .map(|index| {
                    let (mut client, stop) = (primary.connect(), &stop);
                    scope.spawn(move || {
                        let (key, owner) = (format!("busy-{}", index % 3), format!("owner-{index}"));
                        let mut last = 0;
                        while !stop.load(Ordering::Relaxed) {
                            // The link ends with the primary.
                            let Ok(reply) = client.try_cmd(&["LOCK.ACQUIRE", &key, &owner, "50000"]) else { break };
                            if let Reply::Int(fence) = reply {
                                assert!(fence > last);
                                last = fence;
                                let Ok(_) = client.try_cmd(&["LOCK.RELEASE", &key, &owner]) else { break };
                            }
                        }
                        last
                    })
                })
                .collect();
            thread::sleep(Duration::from_millis(300));
            primary.kill9();
            stop.store(true, Ordering::Relaxed);
            hammers.into_iter().map(|hammer| hammer.join().unwrap()).max().unwrap()
        });
        promote(&replica);
        let mut client = replica.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "new", "A", 50_000).int();
        assert!(fence > last_seen && last_seen > 0, "{fence} after {last_seen}");
        for ((key, fence), dump) in held.iter().zip(&before) {
            assert_eq!(cmd!(client, "DUMP", key), *dump, "{key}");
            cmd!(client, "LOCK.ACQUIRE", key, "B", 1000).nil();
            assert_eq!(cmd!(client, "LOCK.RENEW", key, "A", 50_000).int(), *fence);
        }
    }

    /// The same with a counter far ahead of the clock, which can't come from the clock.
    fn b93_a_promoted_replica_counts_on(version) {
        let primary = Server::start(version);
        let replica = Server::builder(version).replica_of(&primary).start();
        let mut client = primary.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let far = fence + 100 * 86_400_000_000;
        assert_eq!(cmd!(client, "LOCK.FENCE", "k", "A", far).int(), far);
        churn(&mut client, 8, 500);
        let last = stat(&primary, "lock_last_fence");
        assert!(last > far);
        wait_in_sync(&primary, &replica);
        promote(&replica);
        let next = cmd!(replica.connect(), "LOCK.ACQUIRE", "next", "A", 50_000).int();
        assert!(next > last);
        // And back: the old primary follows, and is promoted in its turn.
        follow(&primary, &replica);
        assert_eq!(cmd!(primary.connect(), "LOCK.RENEW", "next", "A", 50_000).error_code(), "READONLY");
        promote(&primary);
        let mut client = primary.connect();
        assert_eq!(cmd!(client, "LOCK.RENEW", "next", "A", 50_000).int(), next);
        assert!(cmd!(client, "LOCK.ACQUIRE", "last", "A", 50_000).int() > next);
    }

    /// A failover in order loses nothing, and neither does the way back.
    fn a_failover_hands_all_locks_over(version) {
        let [one, other] = [(); 2].map(|()| Server::start(version));
        follow(&other, &one);
        let mut client = one.connect();
        churn(&mut client, 14, 300);
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let before = cmd!(client, "DUMP", "k");
        for (primary, replica) in [(&one, &other), (&other, &one)] {
            wait_in_sync(primary, replica);
            cmd!(primary.connect(), "FAILOVER").ok();
            eventually(SOON, || replica.info("role") == "master" && primary.info("role") == "slave");
            let mut client = replica.connect();
            assert_eq!(cmd!(client, "DUMP", "k"), before);
            assert!(cmd!(client, "LOCK.ACQUIRE", "next", "A", 50_000).int() > fence);
            assert_eq!(cmd!(client, "LOCK.RELEASE", "next", "A").int(), 0);
            assert_eq!(cmd!(primary.connect(), "LOCK.RENEW", "k", "A", 50_000).error_code(), "READONLY");
        }
        assert_eq!(cmd!(one.connect(), "LOCK.RENEW", "k", "A", 50_000).int(), fence);
    }

    /// A replica that hears of a lease late does not let it end later.
    fn b89_a_lease_ends_at_its_deadline_on_a_replica_that_lags(version) {
        let primary = Server::start(version);
        let proxy = Proxy::new(primary.addr());
        let replica = Server::builder(version).replica_of_port(proxy.port()).start();
        let mut client = primary.connect();
        cmd!(client, "SET", "data", "v").ok();
        wait_in_sync(&primary, &replica);
        proxy.delay_replies(Duration::from_millis(1500));
        let before = Instant::now();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 1000).int();
        cmd!(client, "LOCK.RENEW", "k", "A", 4000).int();
        let after = Instant::now();
        let mut other = replica.connect();
        eventually(SOON, || LockInfo::of(&mut other, "k").is_some());
        primary.kill9();
        promote(&replica);
        let left = Holder::of(&mut other, "k").ttl;
        let passed = i64::try_from(before.elapsed().as_millis()).unwrap();
        assert!(left <= 4000 - 1500 + 5, "{left} ms left, {passed} ms after the grant");
        let granted = eventually(SOON, || {
            let granted = !cmd!(other, "LOCK.ACQUIRE", "k", "B", 50_000).is_nil();
            granted.then(Instant::now)
        });
        assert!(granted - before >= Duration::from_millis(4000), "after {:?}", granted - before);
        assert!(granted - after < Duration::from_secs(10), "after {:?}", granted - after);
    }

    /// A replica whose primary is gone for long keeps what it was told, and its clock runs on.
    fn leases_end_on_a_replica_that_was_promoted_late(version) {
        let primary = Server::start(version);
        let replica = Server::builder(version).replica_of(&primary).start();
        let mut client = primary.connect();
        cmd!(client, "LOCK.ACQUIRE", "short", "A", 300).int();
        let long = cmd!(client, "LOCK.ACQUIRE", "long", "A", 50_000).int();
        let end = now_ms() + 50_000;
        wait_in_sync(&primary, &replica);
        primary.kill9();
        thread::sleep(Duration::from_millis(400));
        promote(&replica);
        let mut client = replica.connect();
        cmd!(client, "LOCK.RENEW", "short", "A", 1000).nil();
        assert!(cmd!(client, "LOCK.ACQUIRE", "short", "B", 1000).int() > long);
        let deadline = now_ms() + u64::try_from(Holder::of(&mut client, "long").ttl).unwrap();
        assert!(deadline <= end + 5, "{} ms later than it was", deadline - end);
        assert_eq!(cmd!(client, "LOCK.RENEW", "long", "A", 50_000).int(), long);
    }

    /// What is done after a MOVE is done in the right database: here, on replicas and from the AOF.
    fn b95_moves_travel_to_the_right_database(version) {
        let primary = Server::builder(version).aof(Fsync::Always).aof_preamble(false).start();
        let replica = Server::builder(version).replica_of(&primary).start();
        let mut client = primary.connect();
        wait_in_sync(&primary, &replica);
        for (line, database) in [("SET data v", 0), ("LOCK.ACQUIRE k A 50000", 0), ("SET here 1", 0), ("SET there 1", 1)] {
            cmd!(client, "SELECT", database).ok();
            say(&mut client, line);
        }
        cmd!(client, "SELECT", 0).ok();
        for line in ["MOVE data 1", "SET one 1", "MOVE k 1", "SET two 2"] {
            say(&mut client, line);
        }
        cmd!(client, "MULTI").ok();
        for line in ["MOVE here 2", "LOCK.ACQUIRE k2 A 50000", "SELECT 1", "LOCK.RENEW k A 60000"] {
            say(&mut client, line);
        }
        let replies = cmd!(client, "EXEC");
        assert!(replies.array()[3].int() > 0, "{replies:?}");
        let sizes = |server: &Server| {
            let mut client = server.connect();
            [0, 1, 2].map(|database| {
                cmd!(client, "SELECT", database).ok();
                cmd!(client, "DBSIZE").int()
            })
        };
        assert_eq!(sizes(&primary), [3, 3, 1]);
        wait_in_sync(&primary, &replica);
        assert_eq!(sizes(&replica), [3, 3, 1]);
        let digest = |server: &Server| cmd!(server.connect(), "DEBUG", "DIGEST").text().to_owned();
        let before = digest(&primary);
        assert_eq!(digest(&replica), before);
        primary.kill9();
        primary.restart();
        assert_eq!(digest(&primary), before);
    }

    /// A full resync replaces whatever the replica had, with or without waiting for it in the background.
    fn b99_full_resync_over_other_locks(version) {
        let [one, other] = [(); 2].map(|()| Server::start(version));
        churn(&mut one.connect(), 9, 500);
        churn(&mut other.connect(), 10, 500);
        let mut client = other.connect();
        if version != Version::Redis62 {
            cmd!(client, "CONFIG", "SET", "repl-diskless-load", "swapdb").ok();
        }
        follow(&other, &one);
        are_equal(&one, &other);
        promote(&other);
        churn(&mut client, 11, 500);
        follow(&one, &other);
        are_equal(&other, &one);
    }
}

/// One build, every server: a newer server takes the locks of an older one over, as in an upgrade.
#[test]
fn a_newer_server_takes_over_from_an_older_one() {
    use Version::{Redis62, Redis70, Redis82, Valkey81};
    for (older, newer) in
        [(Redis62, Redis70), (Redis62, Redis82), (Redis70, Redis82), (Redis62, Valkey81), (Redis70, Valkey81)]
    {
        if !older.is_selected() || !newer.is_selected() {
            continue;
        }
        let primary = Server::start(older);
        let mut client = primary.connect();
        churn(&mut client, 12, 300);
        let replica = Server::builder(newer).replica_of(&primary).start();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let fence = cmd!(client, "LOCK.REENTER", "k", "A", 50_000).ints()[1];
        churn(&mut client, 13, 300);
        wait_in_sync(&primary, &replica);
        assert_eq!(
            cmd!(client, "DEBUG", "DIGEST-VALUE", "k"),
            cmd!(replica.connect(), "DEBUG", "DIGEST-VALUE", "k"),
            "{older} and {newer}"
        );
        let last = stat(&primary, "lock_last_fence");
        primary.kill9();
        promote(&replica);
        let mut client = replica.connect();
        let holder = Holder::of(&mut client, "k");
        assert_eq!((holder.owner, holder.holds, holder.fence), (b"A".to_vec(), 2, fence));
        assert!((1..=50_000).contains(&holder.ttl));
        assert!(cmd!(client, "LOCK.ACQUIRE", "next", "A", 50_000).int() > last);
    }
}
