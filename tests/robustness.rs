//! Whatever is sent, in whatever number and of whatever bytes: an answer, and a server that lives on.

use std::time::Duration;

use redislock_testkit::{
    Client, Fsync, Holder, LockInfo, Reply, Server, Version, cmd, eventually, every_server, promote,
    wait_in_sync,
};

const SOON: Duration = Duration::from_secs(20);

/// Every command, with arguments that it takes.
const SHAPES: [&str; 15] = [
    "LOCK.ACQUIRE k A 1000",
    "LOCK.REENTER k A 1000",
    "LOCK.RENEW k A 1000",
    "LOCK.RELEASE k A",
    "LOCK.DOWNGRADE k A",
    "LOCK.MACQUIRE 1 k A 1000",
    "LOCK.MRENEW 1 k A 1000",
    "LOCK.MRELEASE 1 k A",
    "LOCK.GUARD k A GET",
    "LOCK.FENCE k A 5",
    "LOCK.INFO k",
    "LOCK.WAITERS k",
    "LOCK.BREAK k",
    "LOCK.HELP",
    "LOCK.APPLY k x",
];

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Bytes that text handling would trip over.
fn odd_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        &b"\0"[..],
        b"a\0b",
        b"a\0c",
        b"\xff",
        b"\xc3\x28",
        b"\r\n",
        b"a\r\nb",
        b"{a}b",
        b"{}",
        b"{",
        b" ",
        b" a ",
        b"1",
        b"01",
        b"%s%n%d",
        b"\"'\\",
        b"*",
        b"\x1b[31m",
    ]
    .map(<[u8]>::to_vec)
    .to_vec();
    names.push("Gr\u{fc}\u{df}e \u{1f512}".as_bytes().to_vec());
    names.push(vec![b'x'; 511]);
    names.push(vec![b'x'; 512]);
    names.push(vec![0; 512]);
    names
}

/// Panics that were caught fail the test when the server is dropped; that it lives is asked here.
fn lives(client: &mut Client) {
    assert_eq!(cmd!(client, "PING").text(), "PONG");
    assert_eq!(client.info("lock_panics").as_deref(), Some("0"));
}

every_server! {
    /// Where a user is bound to keys, the keys are looked for before the arguments are counted.
    fn b86_too_few_arguments_of_a_user_that_is_bound_to_keys(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "ACL", "SETUSER", "u", "on", ">p", "~k*", "+@all").ok();
        cmd!(client, "AUTH", "u", "p").ok();
        for shape in SHAPES {
            let whole = words(shape);
            for count in 1..whole.len() {
                let reply = client.cmd(&whole[..count]);
                assert!(reply.is_error(), "{:?}: {reply:?}", &whole[..count]);
            }
        }
        lives(&mut client);
    }

    fn b86_too_few_and_too_many_arguments_are_errors(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for shape in SHAPES {
            let whole = words(shape);
            for count in 1..whole.len() {
                let reply = client.cmd(&whole[..count]);
                assert!(reply.error().contains("wrong number of arguments"), "{:?}: {reply:?}", &whole[..count]);
                let mut getkeys = vec!["COMMAND", "GETKEYS"];
                getkeys.extend(&whole[..count]);
                let reply = client.cmd(&getkeys);
                // 6.2 knows no arity of module commands.
                assert!(reply.is_error() || version == Version::Redis62, "{getkeys:?}: {reply:?}");
            }
            for more in [&["x"][..], &["x", "y"], &["1", "2", "3", "4"]] {
                let longer = [&whole[..], more].concat();
                let reply = client.cmd(&longer);
                let guard = shape.starts_with("LOCK.GUARD");
                let operator = shape.starts_with("LOCK.BREAK") && more.len() < 3;
                assert!(reply.is_error() || guard || operator, "{longer:?}: {reply:?}");
                let getkeys = [&["COMMAND", "GETKEYS"][..], &longer].concat();
                client.cmd(&getkeys);
            }
        }
        assert_eq!(cmd!(client, "DBSIZE").int(), 0);
        lives(&mut client);
    }

    fn b86_key_counts_that_do_not_fit_are_errors(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for command in ["LOCK.MACQUIRE", "LOCK.MRENEW", "LOCK.MRELEASE"] {
            for count in ["0", "-1", "2147483647", "2147483648", "4294967297", "9223372036854775807", "18446744073709551617", "x", "", "1.0", "+1", "01", "4"] {
                let line = [command, count, "a", "A", "1000"];
                let reply = client.cmd(&line);
                assert!(reply.error().starts_with("ERR numkeys must be between 1 and"), "{line:?}: {reply:?}");
                let getkeys = [&["COMMAND", "GETKEYS"][..], &line].concat();
                let reply = client.cmd(&getkeys);
                // Servers that count the keys themselves do it with 32 bits.
                assert!(reply.is_error() || count == "4294967297", "{getkeys:?}: {reply:?}");
                let script = format!("return redis.pcall('{}')", line.join("', '"));
                assert!(cmd!(client, "EVAL", script, 0).is_error());
            }
            // All words are taken for keys, and nothing is left for the rest.
            for line in [format!("{command} 3 a b c"), format!("{command} 2 a b")] {
                let line = format!("{line} d");
                let counted = words(&line);
                let reply = client.cmd(&counted[..counted.len() - 1]);
                assert!(reply.is_error(), "{counted:?}: {reply:?}");
            }
        }
        // An owner and a ttl must be left.
        let reply = client.cmd(&words("LOCK.MACQUIRE 3 a b A 1000"));
        assert_eq!(reply.error(), "ERR numkeys must be between 1 and 2, the number of keys that follow");
        assert_eq!(cmd!(client, "DBSIZE").int(), 0);
        lives(&mut client);
    }

    /// Bytes are compared as they are: before and after a restart, and on a promoted replica.
    fn b15_keys_and_owners_are_any_bytes(version) {
        let server = Server::builder(version).aof(Fsync::Always).aof_preamble(false).start();
        let replica = Server::builder(version).replica_of(&server).start();
        let names = odd_names();
        let mut keys = names.clone();
        keys.push(Vec::new());
        keys.push(vec![b'k'; 1 << 20]);
        let mut client = server.connect();
        let mut fences = Vec::new();
        for (key, owner) in keys.iter().zip(names.iter().cycle()) {
            let fence = cmd!(client, "LOCK.ACQUIRE", key, owner, 500_000).int();
            assert_eq!(cmd!(client, "LOCK.REENTER", key, owner, 500_000).ints(), [2, fence]);
            assert_eq!(cmd!(client, "LOCK.RENEW", key, owner, 500_000).int(), fence);
            fences.push(fence);
        }
        assert_eq!(cmd!(client, "DBSIZE").int(), i64::try_from(keys.len()).unwrap());
        wait_in_sync(&server, &replica);
        server.kill9();
        server.restart();
        promote(&replica);
        for server in [&server, &replica] {
            let mut client = server.connect();
            for ((key, owner), fence) in keys.iter().zip(names.iter().cycle()).zip(&fences) {
                let holder = Holder::of(&mut client, key);
                assert_eq!((&holder.owner, holder.holds, holder.fence), (owner, 2, *fence));
                for other in &names {
                    if other != owner {
                        cmd!(client, "LOCK.RENEW", key, other, 1000).nil();
                        cmd!(client, "LOCK.RELEASE", key, other).nil();
                        cmd!(client, "LOCK.ACQUIRE", key, other, 1000).nil();
                    }
                }
                assert!(cmd!(client, "LOCK.ACQUIRE", key, owner, 1000).error().starts_with(&format!("HELD {fence} ")));
                assert_eq!(cmd!(client, "LOCK.RELEASE", key, owner).int(), 1);
                assert_eq!(cmd!(client, "LOCK.RELEASE", key, owner).int(), 0);
                cmd!(client, "LOCK.INFO", key).nil();
            }
            assert_eq!(cmd!(client, "DBSIZE").int(), 0);
            lives(&mut client);
        }
    }

    /// Many owners of one key, told apart by every byte.
    fn b15_holders_of_one_key_are_told_apart_by_every_byte(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let names = odd_names();
        for owner in &names {
            cmd!(client, "LOCK.ACQUIRE", "k", owner, 500_000, "SHARED").int();
        }
        cmd!(client, "DEBUG", "RELOAD").ok();
        let mut held: Vec<_> = LockInfo::of(&mut client, "k").unwrap().holders.into_iter().map(|holder| holder.owner).collect();
        let mut wanted = names.clone();
        held.sort();
        wanted.sort();
        assert_eq!(held, wanted);
        for owner in &names {
            assert_eq!(cmd!(client, "LOCK.RELEASE", "k", owner).int(), 0, "{owner:?}");
        }
        cmd!(client, "LOCK.INFO", "k").nil();
    }

    /// The empty key is a key like any other, for every command.
    fn b15_the_empty_key_is_a_key(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "", "A", 50_000).int();
        assert_eq!(cmd!(client, "LOCK.REENTER", "", "A", 50_000).ints(), [2, fence]);
        assert_eq!(cmd!(client, "LOCK.RENEW", "", "A", 50_000).int(), fence);
        assert_eq!(cmd!(client, "LOCK.FENCE", "", "A", 1).int(), fence);
        assert_eq!(cmd!(client, "LOCK.MRENEW", 1, "", "A", 50_000).ints(), [fence]);
        assert_eq!(cmd!(client, "LOCK.DOWNGRADE", "", "A").int(), fence);
        assert_eq!(Holder::of(&mut client, "").holds, 2);
        assert!(cmd!(client, "LOCK.WAITERS", "").array().is_empty());
        assert_eq!(cmd!(client, "LOCK.MRELEASE", 1, "", "A").ints(), [1]);
        assert_eq!(cmd!(client, "LOCK.BREAK", "").int(), 1);
        assert!(cmd!(client, "LOCK.MACQUIRE", 1, "", "A", 50_000).int() > fence);
        assert_eq!(cmd!(client, "LOCK.RELEASE", "", "A").int(), 0);
    }

    fn counts_up_to_two_to_the_31_are_taken(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        // No test counts that far.
        let reply = cmd!(client, "LOCK.REENTER", "k", "A", 50_000, "HOLD", 2_147_483_647);
        assert_eq!(reply.error(), "ERR HOLD does not fit: this owner has 1 holds");
        let fence = cmd!(client, "LOCK.ACQUIRE", "k2", "A", 50_000, "SHARED", "LIMIT", 2_147_483_647).int();
        assert_eq!(LockInfo::of(&mut client, "k2").unwrap().limit, Some(2_147_483_647));
        assert_eq!(cmd!(client, "LOCK.RENEW", "k2", "A", 50_000).int(), fence);
    }

    /// Words at random, from those that mean something and those that don't. The server answers each.
    fn b99_random_words_are_answered(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        client.set_patience(Duration::from_secs(10));
        let names: Vec<Vec<u8>> = SHAPES.iter().map(|shape| words(shape)[0].as_bytes().to_vec()).collect();
        let mut others: Vec<Vec<u8>> =
            ["k", "k2", "A", "B", "1", "2", "1000", "SHARED", "LIMIT", "SESSION", "HOLD", "ALL", "COUNT", "GET", "SET", "DEL", "EXPIRE", "LOCK.RELEASE", "LOCK.BREAK", "0", "-1"]
                .map(|word| word.as_bytes().to_vec())
                .to_vec();
        others.extend(odd_names());
        let mut state = 42_u64;
        let mut pick = |of: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % of
        };
        cmd!(client, "SET", "k2", "v").ok();
        for _ in 0..6000 {
            let mut line = vec![names[pick(names.len())].clone()];
            line.extend((0..pick(8)).map(|_| others[pick(others.len())].clone()));
            let reply = client.try_cmd(&line);
            assert!(reply.is_ok(), "{line:?}: {reply:?}");
        }
        lives(&mut client);
    }

    /// Every kind of record, through everything that a server does to a value.
    fn b99_every_record_through_everything(version) {
        let server = Server::builder(version).save().aof(Fsync::EverySec).start();
        let replica = Server::builder(version).replica_of(&server).start();
        let mut client = server.connect();
        for round in 0..3 {
            for line in [
                "LOCK.ACQUIRE a A 50000",
                "LOCK.REENTER b A 50000",
                "LOCK.REENTER b A 50000",
                "LOCK.ACQUIRE c A 50000 SHARED",
                "LOCK.ACQUIRE c B 50000 SHARED LIMIT 9",
                "LOCK.ACQUIRE c C 50000 SHARED",
                "LOCK.MACQUIRE 2 d e A 50000",
                "LOCK.ACQUIRE f A 50000 SESSION",
                "LOCK.ACQUIRE g A 1",
            ] {
                let reply = client.cmd(&words(line));
                assert!(!reply.is_error(), "{line}: {reply:?}");
            }
            for line in [
                "BGSAVE",
                "DEBUG RELOAD",
                "BGREWRITEAOF",
                "OBJECT FREQ a",
                "OBJECT IDLETIME b",
                "MEMORY USAGE c",
                "MEMORY DOCTOR",
                "DEBUG OBJECT c",
                "DEBUG DIGEST-VALUE a b c d e f",
                "RENAME d e",
                "MOVE e 1",
                "SWAPDB 0 1",
                "SWAPDB 0 1",
                "SET a v",
                "UNLINK b",
                "DEL c",
                "RANDOMKEY",
            ] {
                client.cmd(&words(line));
            }
            let flush = ["FLUSHALL SYNC", "FLUSHALL ASYNC", "FLUSHDB ASYNC"][round];
            eventually(SOON, || client.info("rdb_bgsave_in_progress").as_deref() == Some("0"));
            client.cmd(&words(flush)).ok();
            cmd!(client, "SELECT", 1).ok();
            client.cmd(&words("FLUSHDB")).ok();
            cmd!(client, "SELECT", 0).ok();
            wait_in_sync(&server, &replica);
            assert_eq!(cmd!(replica.connect(), "DBSIZE").int(), 0);
            lives(&mut client);
        }
        lives(&mut replica.connect());
    }

    /// A crash report is asked for without a crash: the module's part of it must not stand in its way.
    fn info_is_shown_whenever_it_is_asked_for(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for section in ["lock", "everything", "modules", "all"] {
            let reply = cmd!(client, "INFO", section);
            assert!(matches!(reply, Reply::Bulk(_)), "{section}");
        }
        lives(&mut client);
    }
}
