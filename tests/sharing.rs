//! Shared holders, semaphores, and the ways between shared and exclusive.

mod stream;

use std::thread;
use std::time::{Duration, Instant};

use redislock_testkit::{
    Client, Fsync, HistoryChecker, LockInfo, Mode, Reply, Server, cmd, eventually, every_server, holders,
    promote, send, until_blocked, until_waiting, wait_in_sync, waiters,
};
use stream::{Stream, appended, size};

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

/// Whether nothing was answered yet. What was answered before this command's own answer would be seen.
fn waits(client: &mut Client) -> bool {
    client.read_timeout(Duration::from_millis(30)).is_none()
}

fn info(client: &mut Client, key: &str) -> LockInfo {
    LockInfo::of(client, key).expect("somebody holds or waits")
}

every_server! {
    /// B18: each reader has its own lease, and a writer waits for the longest.
    fn b18_a_shorter_reader_leaves_a_longer_one_alone(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let start = Instant::now();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 1500, "SHARED").int();
        {
            let mut b = server.connect();
            cmd!(b, "LOCK.ACQUIRE", "k", "B", 200, "SHARED").int();
        }
        assert!(cmd!(client, "PTTL", "k").int() > 200, "the mirror shows the longest lease");
        let mut writer = wait(&server, "k", "LOCK.ACQUIRE k C 5000 WAIT 60000");
        eventually(SOON, || holders(&mut client, "k") == ["A"]);
        cmd!(client, "LOCK.ACQUIRE", "k", "D", 1000).nil();
        cmd!(client, "LOCK.RENEW", "k", "B", 1000).nil();
        assert!(writer.read().int() > 0);
        assert!(start.elapsed() >= Duration::from_millis(1500), "A was protected until its own deadline");
        cmd!(client, "LOCK.RENEW", "k", "A", 1000).nil();
    }

    /// B20: readers at the head get in together, and those behind a writer after it.
    fn b20_readers_are_admitted_together_and_in_turn(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "W1", 50_000).int();
        let mut readers = ["R1", "R2", "R3"].map(|owner| {
            wait(&server, "k", &format!("LOCK.ACQUIRE k {owner} 50000 SHARED WAIT 0"))
        });
        let mut writer = wait(&server, "k", "LOCK.ACQUIRE k W2 50000 WAIT 0");
        let mut last = wait(&server, "k", "LOCK.ACQUIRE k R4 50000 SHARED WAIT 0");
        assert_eq!(waiters(&mut client, "k"), ["R1", "R2", "R3", "W2", "R4"]);
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "W1").int(), 0);
        // They hold by the time that the release is answered.
        assert_eq!(holders(&mut client, "k"), ["R1", "R2", "R3"]);
        let fences = readers.each_mut().map(|reader| reader.read().int());
        assert!(fences.is_sorted() && fences[0] < fences[2], "{fences:?}");
        assert!(waits(&mut writer) && waits(&mut last));
        cmd!(client, "LOCK.ACQUIRE", "k", "R5", 50_000, "SHARED").nil();
        for owner in ["R2", "R1", "R3"] {
            assert_eq!(cmd!(client, "LOCK.RELEASE", "k", owner).int(), 0);
        }
        assert!(writer.read().int() > fences[2]);
        assert!(waits(&mut last));
        assert_eq!(holders(&mut client, "k"), ["W2"]);
        cmd!(client, "LOCK.RELEASE", "k", "W2").int();
        last.read().int();
    }

    /// Readers join all the time, one every millisecond; a writer gets its turn when those before it have left.
    fn b20_no_writer_starves_while_readers_keep_arriving(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "first", 50_000, "SHARED").int();
        let mut writer = wait(&server, "k", "LOCK.ACQUIRE k W 50000 WAIT 0");
        let mut crowd: Vec<Client> = (0..100)
            .map(|n| {
                let mut reader = server.connect();
                send!(reader, "LOCK.ACQUIRE", "k", format!("R{n}"), 50_000, "SHARED", "WAIT", 0);
                thread::sleep(Duration::from_millis(1));
                reader
            })
            .collect();
        until_waiting(&server, "k", 101);
        assert_eq!(holders(&mut client, "k"), ["first"]);
        cmd!(client, "LOCK.RELEASE", "k", "first").int();
        let fence = writer.read().int();
        assert_eq!(holders(&mut client, "k"), ["W"]);
        cmd!(client, "LOCK.RELEASE", "k", "W").int();
        for reader in &mut crowd {
            assert!(reader.read().int() > fence);
        }
        assert_eq!(holders(&mut client, "k").len(), 100, "all together");
    }

    /// B21: one hold record, one mode; SHARED by an exclusive holder is one more hold, and none waits for itself.
    fn b21_one_owner_with_both_modes(version) {
        let server = Server::start(version);
        let [mut client, mut other] = [(); 2].map(|()| server.connect());
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let again = say(&mut client, "LOCK.REENTER k A 50000 SHARED WAIT 0");
        assert_eq!(again.ints(), [2, fence], "granted at once, and nested");
        assert_eq!(info(&mut client, "k").mode, "exclusive");
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 1);
        cmd!(other, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").nil();
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 0);
        cmd!(other, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").int();
        cmd!(other, "LOCK.RELEASE", "k", "B").int();
        // Downgraded, with its holds: readers join, and renewals go on.
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        say(&mut client, "LOCK.REENTER k A 50000 SHARED").array();
        assert_eq!(cmd!(client, "LOCK.DOWNGRADE", "k", "A").int(), fence);
        assert_eq!(cmd!(client, "LOCK.DOWNGRADE", "k", "A").int(), fence, "a shared holder just gets its fence");
        cmd!(other, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").int();
        assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 60_000).int(), fence);
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 1);
        cmd!(other, "LOCK.ACQUIRE", "k", "C", 50_000).nil();
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 0);
        cmd!(client, "LOCK.DOWNGRADE", "k", "A").nil();
        assert_eq!(holders(&mut client, "k"), ["B"]);
    }

    /// DOWNGRADE leaves no gap: readers at the head of the line join in the same step, a writer does not get in.
    fn a_downgrade_lets_waiting_readers_join(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let mut readers =
            ["B", "C"].map(|owner| wait(&server, "k", &format!("LOCK.ACQUIRE k {owner} 50000 SHARED WAIT 0")));
        let mut writer = wait(&server, "k", "LOCK.ACQUIRE k W 50000 WAIT 0");
        let mut late = wait(&server, "k", "LOCK.ACQUIRE k D 50000 SHARED WAIT 0");
        assert_eq!(cmd!(client, "LOCK.DOWNGRADE", "k", "A").int(), fence);
        assert_eq!(holders(&mut client, "k"), ["A", "B", "C"]);
        for reader in &mut readers {
            reader.read().int();
        }
        assert!(waits(&mut writer) && waits(&mut late));
        for owner in ["A", "B", "C"] {
            assert_eq!(cmd!(client, "LOCK.RELEASE", "k", owner).int(), 0);
        }
        writer.read().int();
        assert!(waits(&mut late));
    }

    /// LIMIT n: granted while the number of holders exceeds neither the newcomer's n nor that of any holder.
    fn a_limit_binds_both_ways(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let grants = |client: &mut Client, owner: &str, words: &str| {
            !say(client, &format!("LOCK.ACQUIRE k {owner} 50000 SHARED{words}")).is_nil()
        };
        assert!(grants(&mut client, "A", " LIMIT 3"));
        assert_eq!(info(&mut client, "k").limit, Some(3));
        assert!(!grants(&mut client, "B", " LIMIT 1"), "B would stand with A");
        assert!(grants(&mut client, "B", " LIMIT 5"));
        assert_eq!(info(&mut client, "k").limit, Some(3), "the smallest");
        assert!(!grants(&mut client, "C", " LIMIT 2"));
        assert!(grants(&mut client, "C", ""), "plain SHARED counts as without limit");
        assert!(!grants(&mut client, "D", ""), "but A allows three only");
        assert!(!grants(&mut client, "D", " LIMIT 9"));
        assert_eq!(info(&mut client, "k").holders.len(), 3);
        cmd!(client, "LOCK.RELEASE", "k", "A").int();
        assert_eq!(info(&mut client, "k").limit, Some(5));
        for owner in ["D", "E", "F"] {
            assert!(grants(&mut client, owner, " LIMIT 2147483647"));
        }
        assert!(!grants(&mut client, "G", ""), "B allows five");
        cmd!(client, "LOCK.RELEASE", "k", "B").int();
        assert!(grants(&mut client, "G", ""));
        assert_eq!(info(&mut client, "k").limit, Some(2_147_483_647));
        for owner in ["D", "E", "F"] {
            cmd!(client, "LOCK.RELEASE", "k", owner).int();
        }
        assert_eq!(info(&mut client, "k").limit, None, "nobody is left who set one");
        let shape = cmd!(client, "LOCK.INFO", "k");
        assert_eq!(shape.get("limit"), None, "{shape:?}");
        for words in ["LIMIT 2", "SHARED LIMIT 0", "SHARED LIMIT 2147483648", "SHARED LIMIT", "SHARED LIMIT 2 LIMIT 2"] {
            assert_eq!(say(&mut client, &format!("LOCK.ACQUIRE k X 500 {words}")).error_code(), "ERR", "{words}");
        }
    }

    /// B38: those who wait with other limits: one line, and whoever can be served without passing is, at once.
    fn b38_waiters_with_different_limits(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for owner in ["A1", "A2", "B1", "B2"] {
            cmd!(client, "LOCK.ACQUIRE", "k", owner, 50_000, "SHARED", "LIMIT", 4).int();
        }
        let mut c = wait(&server, "k", "LOCK.ACQUIRE k C 50000 SHARED LIMIT 2 WAIT 0");
        let mut d = wait(&server, "k", "LOCK.ACQUIRE k D 50000 SHARED LIMIT 4 WAIT 0");
        cmd!(client, "LOCK.RELEASE", "k", "A1").int();
        cmd!(client, "LOCK.RELEASE", "k", "A2").int();
        assert!(waits(&mut c) && waits(&mut d), "C blocks D, for which there would be room");
        cmd!(client, "LOCK.ACQUIRE", "k", "E", 50_000, "SHARED", "LIMIT", 4).nil();
        cmd!(client, "LOCK.RELEASE", "k", "B1").int();
        c.read().int();
        assert!(waits(&mut d), "C stands with one other at the most");
        cmd!(client, "LOCK.RELEASE", "k", "B2").int();
        d.read().int();
        assert_eq!(holders(&mut client, "k"), ["C", "D"]);
        // C gives up its place in line, and D is served at once.
        let mut c = wait(&server, "k", "LOCK.ACQUIRE k W 50000 WAIT 0");
        let mut d = wait(&server, "k", "LOCK.ACQUIRE k E 50000 SHARED WAIT 0");
        cmd!(client, "LOCK.RELEASE", "k", "C").int();
        assert!(waits(&mut c) && waits(&mut d));
        c.close();
        d.read().int();
    }

    /// A place that becomes free goes to the next in line, once each, and the limit holds all the while.
    fn a_semaphore_never_exceeds_its_limit(version) {
        const LIMIT: i64 = 3;
        let server = Server::start(version);
        let stop = Instant::now() + Duration::from_secs(2);
        let acquired: usize = thread::scope(|scope| {
            let workers: Vec<_> = (0..12)
                .map(|n| {
                    let mut client = server.connect();
                    scope.spawn(move || {
                        let owner = format!("worker {n}");
                        let mut count = 0;
                        while Instant::now() < stop {
                            let granted =
                                cmd!(client, "LOCK.ACQUIRE", "k", &owner, 30_000, "SHARED", "LIMIT", LIMIT, "WAIT", 0);
                            assert!(granted.int() > 0);
                            let inside = cmd!(client, "INCR", "inside").int();
                            assert!(inside <= LIMIT, "{inside} at a time");
                            cmd!(client, "DECR", "inside").int();
                            assert_eq!(cmd!(client, "LOCK.RELEASE", "k", &owner).int(), 0);
                            count += 1;
                        }
                        count
                    })
                })
                .collect();
            let counts: Vec<usize> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
            assert!(counts.iter().all(|count| *count > 0), "everybody had a turn: {counts:?}");
            counts.iter().sum()
        });
        assert!(acquired > 12);
        cmd!(server.connect(), "LOCK.INFO", "k").nil();
    }

    /// Readers and writers with leases of their own, from many connections: a writer is alone, fences rise.
    fn readers_and_writers_under_load(version) {
        let server = Server::start(version);
        let history = HistoryChecker::new();
        let stop = Instant::now() + Duration::from_secs(2);
        thread::scope(|scope| {
            for n in 0..8 {
                let (mut client, history) = (server.connect(), &history);
                scope.spawn(move || {
                    let owner = format!("owner {n}");
                    for round in 0.. {
                        if Instant::now() >= stop {
                            return;
                        }
                        let writes = (round + n) % 4 == 0;
                        let (mode, words) =
                            if writes { (Mode::Exclusive, &["WAIT", "0"][..]) } else { (Mode::Shared, &["SHARED", "WAIT", "0"][..]) };
                        let request = [&["LOCK.ACQUIRE", "k", &owner, "30000"], words].concat();
                        let asked = Instant::now();
                        let fence = client.cmd(&request).int();
                        let end = asked + Duration::from_millis(30_000);
                        let hold = history.granted("k", &owner, mode, fence, Instant::now(), end);
                        history.released(hold, Instant::now());
                        cmd!(client, "LOCK.RELEASE", "k", &owner).int();
                    }
                });
            }
        });
        history.check();
        assert!(history.len() > 100, "{} grants", history.len());
        cmd!(server.connect(), "LOCK.INFO", "k").nil();
    }

    /// From shared to exclusive: at once when alone, with a new fence; the mode stays until DOWNGRADE or the end.
    fn an_upgrade_is_a_new_grant(version) {
        let server = Server::start(version);
        let [mut client, mut other] = [(); 2].map(|()| server.connect());
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000, "SHARED", "LIMIT", 7).int();
        let joined = cmd!(other, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").int();
        cmd!(client, "LOCK.REENTER", "k", "A", 50_000).nil();
        assert_eq!(info(&mut client, "k").holders.iter().map(|holder| holder.holds).sum::<i64>(), 2);
        cmd!(other, "LOCK.RELEASE", "k", "B").int();
        let upgraded = cmd!(client, "LOCK.REENTER", "k", "A", 50_000).ints();
        assert!(upgraded[0] == 2 && upgraded[1] > joined && joined > fence, "{upgraded:?}");
        let seen = info(&mut client, "k");
        assert_eq!((seen.mode.as_str(), seen.limit), ("exclusive", None));
        cmd!(other, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").nil();
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 1);
        cmd!(other, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").nil();
        assert_eq!(cmd!(client, "LOCK.DOWNGRADE", "k", "A").int(), upgraded[1]);
        cmd!(other, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").int();
        assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int(), upgraded[1]);
    }

    /// A waiting upgrade goes ahead of all who wait, the second one is told of the circle, and its lease is its own.
    fn a_waiting_upgrade_goes_first_and_a_second_one_is_a_deadlock(version) {
        let server = Server::start(version);
        let [mut client, mut b] = [(); 2].map(|()| server.connect());
        for owner in ["A", "B", "C"] {
            cmd!(client, "LOCK.ACQUIRE", "k", owner, 50_000, "SHARED").int();
        }
        let mut writer = wait(&server, "k", "LOCK.ACQUIRE k W 50000 WAIT 0");
        let mut a = wait(&server, "k", "LOCK.REENTER k A 50000 WAIT 0");
        assert_eq!(waiters(&mut client, "k"), ["A", "W"]);
        let refused = say(&mut b, "LOCK.REENTER k B 50000 WAIT 0");
        assert_eq!(refused.error_code(), "DEADLOCK");
        assert!(refused.error().contains("'A'") && refused.error().contains("'B'"), "{refused:?}");
        say(&mut b, "LOCK.REENTER k B 50000").nil();
        assert_eq!(say(&mut b, "LOCK.REENTER k B 50000 SHARED").ints()[0], 2, "to nest is no wait");
        assert_eq!(cmd!(b, "LOCK.RELEASE", "k", "B", "ALL").int(), 0);
        assert!(waits(&mut a));
        cmd!(client, "LOCK.RELEASE", "k", "C").int();
        assert_eq!(a.read().ints()[0], 2);
        assert_eq!(holders(&mut client, "k"), ["A"]);
        assert!(waits(&mut writer));
        cmd!(client, "LOCK.RELEASE", "k", "A", "ALL").int();
        writer.read().int();
    }

    /// What was to be upgraded has ended: Null, whether by time, by release or by an operator; and the line goes on.
    fn an_upgrade_whose_shared_lease_ends_gets_null(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for ending in ["time", "LOCK.RELEASE k A", "LOCK.BREAK k A", "LOCK.RELEASE k A ALL"] {
            let ttl = if ending == "time" { 300 } else { 50_000 };
            cmd!(client, "LOCK.ACQUIRE", "k", "A", ttl, "SHARED").int();
            cmd!(client, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").int();
            let mut upgrade = server.connect();
            send!(upgrade, "LOCK.REENTER", "k", "A", 50_000, "WAIT", 0);
            until_blocked(&server, 1);
            let mut reader = server.connect();
            send!(reader, "LOCK.ACQUIRE", "k", "C", 50_000, "SHARED", "WAIT", 0);
            until_blocked(&server, 2);
            if ending != "time" {
                assert!(!say(&mut client, ending).is_error(), "{ending}");
            }
            upgrade.read().nil();
            reader.read().int();
            assert_eq!(holders(&mut client, "k"), ["B", "C"], "{ending}");
            cmd!(client, "LOCK.BREAK", "k").int();
        }
        // The whole key goes: the upgrade has nothing left to stand on.
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000, "SHARED").int();
        cmd!(client, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").int();
        let mut upgrade = wait(&server, "k", "LOCK.REENTER k A 50000 WAIT 0");
        cmd!(client, "DEL", "k").int();
        upgrade.read().nil();
        cmd!(client, "LOCK.INFO", "k").nil();
    }

    /// A client that upgraded by waiting and is gone before it hears: it is as shared as it was.
    fn an_upgrade_that_nobody_hears_of_is_taken_back(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000, "SHARED", "LIMIT", 4).int();
        cmd!(client, "LOCK.ACQUIRE", "k", "B", 50_000, "SHARED").int();
        let mut upgrade = server.connect();
        let id = upgrade.client_id();
        send!(upgrade, "LOCK.REENTER", "k", "A", 50_000, "WAIT", 0);
        until_waiting(&server, "k", 1);
        cmd!(client, "MULTI").ok();
        cmd!(client, "LOCK.RELEASE", "k", "B").text();
        cmd!(client, "CLIENT", "KILL", "ID", id).text();
        cmd!(client, "EXEC").array();
        assert!(upgrade.is_closed_within(SOON));
        eventually(SOON, || {
            let seen = info(&mut client, "k");
            (seen.mode.as_str(), seen.limit, seen.holders.len(), seen.holders[0].holds) == ("shared", Some(4), 1, 1)
        });
    }

    /// LOCK.INFO and LOCK.WAITERS, in both protocols.
    fn info_of_a_crowd(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fences = ["A", "B"].map(|owner| {
            cmd!(client, "LOCK.ACQUIRE", "k", owner, 50_000, "SHARED", "LIMIT", if owner == "A" { 2 } else { 9 }).int()
        });
        cmd!(client, "LOCK.REENTER", "k", "B", 50_000, "SHARED", "SESSION").array();
        let _waiter = wait(&server, "k", "LOCK.ACQUIRE k C 50000 SHARED LIMIT 2 WAIT 40000");
        for protocol in [2, 3] {
            // The connection stays, and with it the tie.
            client.hello(protocol);
            let reply = cmd!(client, "LOCK.INFO", "k");
            assert_eq!(matches!(reply, Reply::Map(_)), protocol == 3 && version.has_command_docs(), "{reply:?}");
            let names: Vec<_> = reply.pairs().iter().map(|(name, _)| name.text().to_owned()).collect();
            assert_eq!(names, ["mode", "limit", "waiters", "holders"]);
            let seen = LockInfo::read(&reply).unwrap();
            assert_eq!((seen.mode.as_str(), seen.limit, seen.waiters), ("shared", Some(2), 1));
            let told: Vec<_> =
                seen.holders.iter().map(|holder| (&holder.owner[..], holder.holds, holder.fence, holder.session)).collect();
            assert_eq!(told, [(&b"A"[..], 1, fences[0], false), (b"B", 2, fences[1], true)]);
            assert!(seen.holders.iter().all(|holder| holder.held <= 50_000 && holder.ttl > 0));
            let line = cmd!(client, "LOCK.WAITERS", "k");
            assert_eq!(line.array()[0].field("mode").text(), "shared");
            assert!((1..=40_000).contains(&line.array()[0].field("timeout").int()));
        }
    }

    /// B40: permits come back when their lease ends, whoever died meanwhile: clients and the server, with SIGKILL.
    fn b40_no_permit_is_lost_when_holders_and_the_server_die(version) {
        let server = Server::builder(version).aof(Fsync::Always).start();
        let take = |client: &mut Client, owner: &str, ttl: u32| {
            cmd!(client, "LOCK.ACQUIRE", "k", owner, ttl, "SHARED", "LIMIT", 3)
        };
        for round in 0..2 {
            let mut client = server.connect();
            let owners = ["A", "B", "C"].map(|owner| format!("{owner}{round}"));
            for owner in &owners {
                let mut holder = server.connect();
                assert!(take(&mut holder, owner, 1000).int() > 0);
                holder.close_hard();
            }
            take(&mut client, "D", 1000).nil();
            server.kill9();
            server.restart();
            let mut client = server.connect();
            let held = LockInfo::of(&mut client, "k").map_or(0, |info| info.holders.len());
            let free = (0..3).filter(|n| !take(&mut client, &format!("E{n}"), 1000).is_nil()).count();
            assert_eq!(held.min(3) + free, 3, "a permit is held or free");
            eventually(SOON, || cmd!(client, "EXISTS", "k").int() == 0);
            let all = ["X", "Y", "Z"].map(|owner| take(&mut client, owner, 50_000).int());
            assert!(all.is_sorted());
            cmd!(client, "LOCK.BREAK", "k").int();
        }
    }

    /// B42: what nobody gives back goes by itself: keys, memory, and the module's own tables.
    fn b42_leftovers_go_by_themselves(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fill = |client: &mut Client, round: usize, count: usize| {
            let mut batch = Vec::new();
            for n in 0..count {
                let line = match n % 4 {
                    0 => format!("LOCK.ACQUIRE s{round}-{n} A 200 SHARED LIMIT 3 SESSION"),
                    1 => format!("LOCK.ACQUIRE s{round}-{n} A 200"),
                    2 => format!("LOCK.ACQUIRE s{round}-{} B 100 SHARED", n - 2),
                    _ => format!("LOCK.MACQUIRE 2 m{round}-{n} n{round}-{n} A 200 SESSION"),
                };
                let words: Vec<_> = line.split(' ').collect();
                batch.extend(format!("*{}\r\n", words.len()).bytes());
                words.iter().for_each(|word| batch.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
            }
            client.send_raw(&batch);
            (0..count).for_each(|_| assert!(!client.read().is_error()));
        };
        let empty = |client: &mut Client| {
            eventually(Duration::from_secs(60), || {
                cmd!(client, "DBSIZE").int() == 0 && client.info("lock_sessions").as_deref() == Some("0")
            });
            client.info("used_memory").unwrap().parse::<i64>().unwrap()
        };
        // Tables and buffers grow to their size at first.
        fill(&mut client, 0, 10_000);
        let base = empty(&mut client);
        for round in 1..4 {
            fill(&mut client, round, 10_000);
        }
        let after = empty(&mut client);
        assert!(after - base < 1_000_000, "{base} bytes before, {after} after");
        assert_eq!(client.info("lock_waiters").as_deref(), Some("0"));
    }

    /// A crowd outlives a restart from RDB, from AOF, from a rewritten AOF, a promotion, and DUMP and RESTORE.
    fn a_crowd_persists(version) {
        let server = Server::builder(version).aof(Fsync::Always).save().start();
        let replica = Server::builder(version).replica_of(&server).start();
        let mut client = server.connect();
        let mut expected = Vec::new();
        for (owner, ttl, limit) in [("A", 40_000, 5), ("B", 50_000, 4), ("C", 60_000, 7)] {
            let fence = cmd!(client, "LOCK.ACQUIRE", "k", owner, ttl, "SHARED", "LIMIT", limit).int();
            expected.push((owner.as_bytes().to_vec(), 1, fence));
        }
        cmd!(client, "LOCK.REENTER", "k", "B", 10, "SHARED").array();
        expected[1].1 = 2;
        let check = |client: &mut Client, key: &str, way: &str| {
            let seen = info(client, key);
            assert_eq!((seen.mode.as_str(), seen.limit, seen.waiters), ("shared", Some(4), 0), "{way}");
            let told: Vec<_> =
                seen.holders.iter().map(|holder| (holder.owner.clone(), holder.holds, holder.fence)).collect();
            assert_eq!(told, expected, "{way}");
            let bounds = [40_000, 50_000, 60_000];
            for (holder, most) in seen.holders.iter().zip(bounds) {
                assert!((most - 30_000..=most).contains(&holder.ttl), "{way}: {holder:?}");
            }
            assert!((30_000..=60_000).contains(&cmd!(client, "PTTL", key).int()), "{way}");
            cmd!(client, "LOCK.ACQUIRE", key, "W", 500).nil();
            assert!(cmd!(client, "LOCK.ACQUIRE", key, "D", 500, "SHARED", "LIMIT", 3).is_nil(), "{way}");
        };
        check(&mut client, "k", "at first");
        wait_in_sync(&server, &replica);
        check_copy(&mut client);
        server.kill9();
        server.restart();
        check(&mut server.connect(), "k", "from the AOF");
        let mut client = server.connect();
        cmd!(client, "BGREWRITEAOF").text();
        eventually(SOON, || client.info("aof_rewrite_in_progress").as_deref() == Some("0")
            && client.info("aof_rewrite_scheduled").as_deref() == Some("0"));
        server.kill9();
        server.restart();
        check(&mut server.connect(), "k", "from a rewritten AOF");
        server.terminate();
        promote(&replica);
        check(&mut replica.connect(), "k", "on the promoted replica");
        let mut client = replica.connect();
        cmd!(client, "DEBUG", "RELOAD").ok();
        check(&mut client, "k", "from an RDB file");
        fn check_copy(client: &mut Client) {
            let payload = cmd!(client, "DUMP", "k");
            cmd!(client, "RESTORE", "copy", 0, payload.bytes()).ok();
            assert_eq!(info(client, "copy").holders.len(), 3);
            assert_eq!(cmd!(client, "DUMP", "copy"), payload);
            assert_eq!(cmd!(client, "DEL", "copy").int(), 1);
        }
    }

    /// An AOF that is rewritten as plain commands has one record a holder.
    fn a_crowd_survives_a_plain_rewrite(version) {
        let server = Server::builder(version).aof(Fsync::Always).aof_preamble(false).start();
        let mut client = server.connect();
        for n in 0..300 {
            cmd!(client, "LOCK.ACQUIRE", "k", format!("owner {n}"), 50_000, "SHARED", "LIMIT", 300).int();
        }
        let before = cmd!(client, "DUMP", "k");
        cmd!(client, "BGREWRITEAOF").text();
        eventually(SOON, || client.info("aof_rewrite_in_progress").as_deref() == Some("0")
            && client.info("aof_rewrite_scheduled").as_deref() == Some("0"));
        server.kill9();
        server.restart();
        assert_eq!(info(&mut server.connect(), "k").holders.len(), 300);
        assert_eq!(cmd!(server.connect(), "DUMP", "k").bytes().len(), before.bytes().len());
    }

    /// Of 10,000 holders only the one that changes travels, and it is small.
    fn only_the_record_of_the_holder_itself_travels(version) {
        const CROWD: usize = 10_000;
        let server = Server::builder(version).aof(Fsync::Always).start();
        let mut client = server.connect();
        cmd!(client, "CONFIG", "SET", "appendfsync", "no").ok();
        crowd(&mut client, CROWD);
        cmd!(client, "CONFIG", "SET", "appendfsync", "always").ok();
        let mut stream = Stream::of(&server);
        let begun = appended(&server).len();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000, "SHARED", "LIMIT", CROWD + 2).int();
        let steps = [
            ("LOCK.RENEW k A 50000", Reply::Int(fence), "k: A shared/10002 x1"),
            ("LOCK.REENTER k A 50000 SHARED", Reply::Array(vec![Reply::Int(2), Reply::Int(fence)]), "k: A shared/10002 x2"),
            ("LOCK.RELEASE k A", Reply::Int(1), "k: A shared/10002 x1"),
            ("LOCK.RELEASE k A", Reply::Int(0), "k: A gone"),
        ];
        assert_eq!(alone(stream.told()), ["k: A shared/10002 x1"]);
        for (line, answer, travels) in &steps {
            assert_eq!(say(&mut client, line), *answer, "{line}");
            let commands = stream.take();
            let bytes: usize = commands.iter().map(size).sum();
            assert!(bytes < 100, "{line}: {bytes} bytes");
            assert_eq!(alone(commands.iter().map(stream::told).collect()), [*travels], "{line}");
        }
        let appended = alone(appended(&server).split_off(begun));
        assert_eq!(appended.len(), 5, "{appended:?}");
        assert_eq!(appended[4], "k: A gone");
        // To look at them costs nothing either: LOCK.INFO and refusals travel not at all.
        assert_eq!(info(&mut client, "k").holders.len(), CROWD);
        cmd!(client, "LOCK.ACQUIRE", "k", "W", 500).nil();
        assert_eq!(stream.told(), Vec::<String>::new());
        assert_eq!(client.info("lock_panics").as_deref(), Some("0"));
    }

    /// What ended and whom it was handed on to is one unit, whoever began it: a command, a timer, an event.
    fn a_batch_travels_as_one_unit(version) {
        let server = Server::builder(version).aof(Fsync::Always).start();
        let mut client = server.connect();
        for ending in ["release", "lapse", "close", "delete"] {
            let mut holder = server.connect();
            let ttl = if ending == "lapse" { 700 } else { 50_000 };
            cmd!(holder, "LOCK.ACQUIRE", "k", "A", ttl, "SESSION").int();
            let mut readers = ["B", "C"].map(|owner| {
                wait(&server, "k", &format!("LOCK.ACQUIRE k {owner} 50000 SHARED LIMIT 2 WAIT 0"))
            });
            let mut stream = Stream::of(&server);
            let before = appended(&server).len();
            match ending {
                "release" => assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 0),
                "delete" => assert_eq!(cmd!(client, "DEL", "k").int(), 1),
                "close" => holder.close(),
                _ => {}
            }
            for reader in &mut readers {
                reader.read().int();
            }
            let joined = ["k: B shared/2 x1", "k: C shared/2 x1"];
            let unit = match ending {
                // The deletion is the server's own, and comes first.
                "delete" => [&["k: A gone", "MULTI"][..], &joined, &["EXEC"]].concat(),
                _ => [&["MULTI", "k: A gone"][..], &joined, &["EXEC"]].concat(),
            };
            // Where the server finds first that the key has expired, the deletion is its own too.
            let plain = |told: &[String]| {
                let text = told.join("\n").replace("UNLINK k", "DEL k").replace("DEL k", "k: A gone");
                if ending == "lapse" { text.replace("k: A gone\nMULTI", "MULTI\nk: A gone") } else { text }
            };
            assert_eq!(plain(&stream.told()), unit.join("\n"), "{ending}, to replicas");
            assert_eq!(plain(&appended(&server)[before..]), unit.join("\n"), "{ending}, in the AOF");
            assert_eq!(cmd!(client, "LOCK.BREAK", "k").int(), 2);
        }
    }

    /// Waiters for places of a semaphore are served as leases end, each in its turn, without any command.
    fn leases_of_a_semaphore_end_one_by_one(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for (owner, ttl) in [("A", 600), ("B", 300), ("C", 50_000)] {
            cmd!(client, "LOCK.ACQUIRE", "k", owner, ttl, "SHARED", "LIMIT", 3).int();
        }
        let mut d = wait(&server, "k", "LOCK.ACQUIRE k D 50000 SHARED LIMIT 3 WAIT 0");
        let mut e = wait(&server, "k", "LOCK.ACQUIRE k E 50000 SHARED LIMIT 3 WAIT 0");
        let mut f = wait(&server, "k", "LOCK.ACQUIRE k F 50000 SHARED LIMIT 3 WAIT 0");
        let first = d.read().int();
        let second = e.read().int();
        assert!(second > first);
        assert_eq!(holders(&mut client, "k"), ["C", "D", "E"]);
        assert!(waits(&mut f));
        assert!(cmd!(client, "PTTL", "k").int() > 10_000);
        // A native time to live that somebody sets ends no lease.
        cmd!(client, "PEXPIRE", "k", 40_000).int();
        cmd!(client, "PERSIST", "k").int();
        eventually(SOON, || (1..=50_000).contains(&cmd!(client, "PTTL", "k").int()));
        assert_eq!(holders(&mut client, "k"), ["C", "D", "E"]);
    }
}

/// A unit that holds one command is as good as the command alone.
fn alone(told: Vec<String>) -> Vec<String> {
    told.into_iter().filter(|command| command != "MULTI" && command != "EXEC").collect()
}

/// So many holders of one semaphore, which has two places more.
fn crowd(client: &mut Client, count: usize) {
    for first in (0..count).step_by(500) {
        let owners = first..count.min(first + 500);
        for n in owners.clone() {
            send!(client, "LOCK.ACQUIRE", "k", format!("holder {n}"), 600_000, "SHARED", "LIMIT", count + 2);
        }
        for _ in owners {
            client.read().int();
        }
    }
}
