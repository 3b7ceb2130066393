//! Arguments are checked in full before anything changes, and the error names the argument and its bound.

use redislock_testkit::{Client, Holder, LockInfo, Reply, Server, cmd, every_server, now_ms};

const TTL_ERROR: &str = "ERR ttl must be between 1 and 86400000 milliseconds";

/// Sends words; a text of words parted by spaces is enough for most.
fn say(client: &mut Client, line: &str) -> Reply {
    client.cmd(&line.split(' ').collect::<Vec<_>>())
}

/// Every command that takes a ttl, with one that is to be refused, for a key and an owner.
fn with_ttl(key: &str, ttl: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let commands = [
        format!("LOCK.ACQUIRE {key} A"),
        format!("LOCK.REENTER {key} A"),
        format!("LOCK.RENEW {key} A"),
        format!("LOCK.MACQUIRE 1 {key} A"),
        format!("LOCK.MRENEW 1 {key} A"),
    ];
    let words = |line: String| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    commands.into_iter().map(|line| [words(line), vec![ttl.to_vec()]].concat()).collect()
}

/// All that there is of a key, times and fence included.
fn state(client: &mut Client, key: &str) -> Reply {
    cmd!(client, "DUMP", key)
}

every_server! {
    fn b07_zero_and_negative_ttls_are_errors_and_change_nothing(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 5000).int();
        let before = state(&mut client, "k");
        for ttl in ["0", "-1", "-5", "-9223372036854775808"] {
            for key in ["k", "k2"] {
                for command in with_ttl(key, ttl.as_bytes()) {
                    assert_eq!(client.cmd(&command).error(), TTL_ERROR, "{command:?}");
                }
            }
        }
        assert_eq!(state(&mut client, "k"), before);
        let holder = Holder::of(&mut client, "k");
        assert_eq!((holder.owner, holder.fence, holder.holds), (b"A".to_vec(), fence, 1));
        assert_eq!(cmd!(client, "DBSIZE").int(), 1, "k2 was made");
    }

    fn b09_ttls_that_overflow_or_are_no_plain_decimals_are_errors(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000);
        let before = state(&mut client, "k");
        let far = i64::MAX - i64::try_from(now_ms()).unwrap();
        let mut ttls: Vec<Vec<u8>> =
            [far - 1, far, far + 1, 100_000_000_000_000_000, i64::MAX - 1, i64::MAX, i64::MIN]
                .map(|ttl| ttl.to_string().into_bytes())
                .to_vec();
        ttls.extend(
            [
                "86400001", "18446744073709551615", "18446744073709551616", "18446744073709551617",
                "340282366920938463463374607431768211457", "1e3", "0x10", " 5", "5 ", "+5", "05", "00", "-0",
                "123.45", "1.0", "", "abc", "5,0", "1_000", "inf", "nan", "\u{663}", "5\0", "\0", "5\r\n", "5\n",
            ]
            .map(|ttl| ttl.as_bytes().to_vec()),
        );
        ttls.push(b"\xff".to_vec());
        for ttl in ttls {
            for key in ["k", "k2"] {
                for command in with_ttl(key, &ttl) {
                    assert_eq!(client.cmd(&command).error(), TTL_ERROR, "{command:?}");
                }
            }
        }
        assert_eq!(state(&mut client, "k"), before);
        assert_eq!(cmd!(client, "DBSIZE").int(), 1, "k2 was made");
    }

    fn b09_the_bounds_themselves_are_taken(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for (key, ttl) in [("longest", 86_400_000), ("shortest", 1)] {
            assert!(cmd!(client, "LOCK.ACQUIRE", key, "A", ttl).int() > 0);
        }
        let left = Holder::of(&mut client, "longest").ttl;
        assert!((86_000_000..=86_400_000).contains(&left), "{left} ms left of a day");
    }

    /// The error names the bound that is set, and the longest lease that can be set at all is one.
    fn b09_the_longest_lease_of_all_survives_reload_and_replication(version) {
        let longest: i64 = 31_536_000_000_000;
        let server = Server::builder(version).module_args(["max-ttl".to_owned(), longest.to_string()]).save().start();
        let replica = Server::builder(version).replica_of(&server).start();
        let mut client = server.connect();
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", "A", longest).int() > 0);
        assert_eq!(
            cmd!(client, "LOCK.ACQUIRE", "k2", "A", longest + 1).error(),
            format!("ERR ttl must be between 1 and {longest} milliseconds")
        );
        redislock_testkit::wait_in_sync(&server, &replica);
        let is_long = |client: &mut Client| {
            let (ttl, native) = (Holder::of(client, "k").ttl, cmd!(client, "PTTL", "k").int());
            for left in [ttl, native] {
                assert!((longest - 600_000..=longest).contains(&left), "{left}");
            }
        };
        is_long(&mut client);
        is_long(&mut replica.connect());
        server.restart();
        is_long(&mut server.connect());
    }

    /// Refused at once, also where the request would wait; the option is named, and nothing is left behind.
    fn b11_bad_options_are_errors_that_name_them(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for line in ["LOCK.ACQUIRE held A 50000", "LOCK.ACQUIRE mine B 50000"] {
            say(&mut client, line).int();
        }
        let before = [state(&mut client, "held"), state(&mut client, "mine")];
        let wait_bound = "WAIT must be between 0 and 9007199254740991 milliseconds";
        let count_bound = |name| format!("{name} must be between 1 and 2147483647");
        for (line, error) in [
            ("LOCK.ACQUIRE held B 1000 WAIT", "option WAIT has no value".to_owned()),
            ("LOCK.ACQUIRE held B 1000 WAIT 5 WAIT 5", "option WAIT is given twice".to_owned()),
            ("LOCK.ACQUIRE held B 1000 WAIT -1", wait_bound.to_owned()),
            ("LOCK.ACQUIRE held B 1000 WAIT 1.5", wait_bound.to_owned()),
            ("LOCK.ACQUIRE held B 1000 WAIT 01", wait_bound.to_owned()),
            ("LOCK.ACQUIRE held B 1000 WAIT 9007199254740992", wait_bound.to_owned()),
            ("LOCK.ACQUIRE held B 1000 WAIT 9223372036854775807", wait_bound.to_owned()),
            ("LOCK.ACQUIRE held B 1000 WAIT SESSION", wait_bound.to_owned()),
            ("LOCK.ACQUIRE held B 1000 NOW", "unknown option 'NOW'".to_owned()),
            ("LOCK.ACQUIRE held B 1000 5", "unknown option '5'".to_owned()),
            ("LOCK.ACQUIRE held B 1000 HOLD 1", "unknown option 'HOLD'".to_owned()),
            ("LOCK.ACQUIRE held B 1000 ALL", "unknown option 'ALL'".to_owned()),
            ("LOCK.ACQUIRE free B 1000 SHARED SHARED", "option SHARED is given twice".to_owned()),
            ("LOCK.ACQUIRE free B 1000 SESSION session", "option SESSION is given twice".to_owned()),
            ("LOCK.ACQUIRE free B 1000 LIMIT 2", "LIMIT goes with SHARED".to_owned()),
            ("LOCK.ACQUIRE free B 1000 SHARED LIMIT", "option LIMIT has no value".to_owned()),
            ("LOCK.ACQUIRE free B 1000 SHARED LIMIT 0", count_bound("LIMIT")),
            ("LOCK.ACQUIRE free B 1000 SHARED LIMIT 2147483648", count_bound("LIMIT")),
            ("LOCK.ACQUIRE free B 1000 SHARED LIMIT 4294967297", count_bound("LIMIT")),
            ("LOCK.REENTER free B 1000 HOLD 0", count_bound("HOLD")),
            ("LOCK.REENTER free B 1000 HOLD -1", count_bound("HOLD")),
            ("LOCK.REENTER free B 1000 HOLD 2147483648", count_bound("HOLD")),
            ("LOCK.REENTER free B 1000 HOLD 4294967297", count_bound("HOLD")),
            ("LOCK.REENTER free B 1000 HOLD 01", count_bound("HOLD")),
            ("LOCK.REENTER free B 1000 HOLD", "option HOLD has no value".to_owned()),
            ("LOCK.REENTER free B 1000 HOLD 1 hold 1", "option HOLD is given twice".to_owned()),
            ("LOCK.RENEW mine B 1000 WAIT 1", "unknown option 'WAIT'".to_owned()),
            ("LOCK.RENEW mine B 1000 SHARED", "unknown option 'SHARED'".to_owned()),
            ("LOCK.RELEASE mine B ALL HOLD 1", "HOLD and ALL don't go together".to_owned()),
            ("LOCK.RELEASE mine B HOLD 1 ALL", "HOLD and ALL don't go together".to_owned()),
            ("LOCK.RELEASE mine B ALL ALL", "option ALL is given twice".to_owned()),
            ("LOCK.RELEASE mine B HOLD", "option HOLD has no value".to_owned()),
            ("LOCK.RELEASE mine B 1", "unknown option '1'".to_owned()),
            ("LOCK.RELEASE mine B SESSION", "unknown option 'SESSION'".to_owned()),
            ("LOCK.MACQUIRE 1 free B 1000 SHARED", "unknown option 'SHARED'".to_owned()),
            ("LOCK.MACQUIRE 2 free free B 1000", "a key is named twice".to_owned()),
            ("LOCK.MRENEW 2 mine mine B 1000", "a key is named twice".to_owned()),
            ("LOCK.MRELEASE 2 mine mine B", "a key is named twice".to_owned()),
            ("LOCK.WAITERS held COUNT", "option COUNT has no value".to_owned()),
            ("LOCK.WAITERS held COUNT 0", count_bound("COUNT")),
            ("LOCK.WAITERS held 5", "unknown option '5'".to_owned()),
            ("LOCK.FENCE mine B -1", "token must be between 0 and 9007199254740991".to_owned()),
            ("LOCK.FENCE mine B 9007199254740992", "token must be between 0 and 9007199254740991".to_owned()),
            ("LOCK.FENCE mine B 1e3", "token must be between 0 and 9007199254740991".to_owned()),
            ("LOCK.BREAK mine B 1e3", "fence must be between 0 and 9007199254740991".to_owned()),
        ] {
            assert_eq!(say(&mut client, line).error(), format!("ERR {error}"), "{line}");
        }
        assert_eq!([state(&mut client, "held"), state(&mut client, "mine")], before);
        assert_eq!(cmd!(client, "DBSIZE").int(), 2);
        assert_eq!(client.info("lock_waiters").as_deref(), Some("0"));
    }

    fn options_come_in_any_order_and_letter_case(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for (index, options) in
            ["SHARED LIMIT 3 WAIT 0 SESSION", "session wait 0 limit 3 shared", "Limit 3 Session Shared Wait 0"]
                .into_iter()
                .enumerate()
        {
            let reply = say(&mut client, &format!("lock.acquire k owner-{index} 50000 {options}"));
            assert!(reply.int() > 0, "{options}: {reply:?}");
        }
        let info = LockInfo::of(&mut client, "k").unwrap();
        assert_eq!((info.mode.as_str(), info.limit, info.holders.len()), ("shared", Some(3), 3));
        assert!(info.holders.iter().all(|holder| holder.session));
        assert_eq!(say(&mut client, "Lock.Reenter k owner-0 50000 hold 2 Shared").ints()[0], 2);
        assert_eq!(say(&mut client, "LOCK.release k owner-0 Hold 2").int(), 1);
        assert_eq!(say(&mut client, "LOCK.release k owner-0 aLL").int(), 0);
    }

    /// An unknown word is shown without its control characters, and not at any length.
    fn an_error_shows_what_was_sent_and_stays_one_line(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let reply = cmd!(client, "LOCK.ACQUIRE", "k", "A", 1000, b"a\r\n\0%s%n\xff");
        assert_eq!(reply.error(), r"ERR unknown option 'a\r\n\x00%s%n\xff'");
        let reply = cmd!(client, "LOCK.ACQUIRE", "k", "A", 1000, vec![b'x'; 1_000_000]);
        assert!(reply.error().len() < 200, "{} bytes", reply.error().len());
        assert_eq!(cmd!(client, "PING").text(), "PONG");
    }

    /// Owners are 1 to 512 bytes, in every command.
    fn b15_owners_that_are_empty_or_too_long_are_refused_by_every_command(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for owner in [vec![], vec![b'x'; 513], vec![b'x'; 1 << 20]] {
            let commands: [&[&str]; 9] = [
                &["LOCK.ACQUIRE", "k", "?", "1000"],
                &["LOCK.REENTER", "k", "?", "1000"],
                &["LOCK.RENEW", "k", "?", "1000"],
                &["LOCK.RELEASE", "k", "?"],
                &["LOCK.DOWNGRADE", "k", "?"],
                &["LOCK.FENCE", "k", "?", "5"],
                &["LOCK.BREAK", "k", "?"],
                &["LOCK.MACQUIRE", "1", "k", "?", "1000"],
                &["LOCK.MRELEASE", "1", "k", "?"],
            ];
            for command in commands {
                let words: Vec<Vec<u8>> = command
                    .iter()
                    .map(|word| if *word == "?" { owner.clone() } else { word.as_bytes().to_vec() })
                    .collect();
                let reply = client.cmd(&words);
                assert_eq!(reply.error(), "ERR owner must be between 1 and 512 bytes", "{command:?}");
            }
        }
        assert_eq!(cmd!(client, "DBSIZE").int(), 0);
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", vec![b'x'; 512], 1000).int() > 0);
    }

    /// A coordinator may raise tokens by up to 366 days, and any token that the counter has passed is taken.
    fn a_token_too_far_ahead_is_an_error(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let day = 86_400_000_000_i64;
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let reply = cmd!(client, "LOCK.FENCE", "k", "A", fence + 367 * day);
        assert!(reply.error().starts_with("ERR token must be at most "), "{reply:?}");
        assert_eq!(Holder::of(&mut client, "k").fence, fence);
        let high = fence + 365 * day;
        assert_eq!(cmd!(client, "LOCK.FENCE", "k", "A", high).int(), high);
        assert_eq!(cmd!(client, "LOCK.FENCE", "k", "A", 5).int(), high, "a fence never falls");
        assert_eq!(cmd!(client, "LOCK.ACQUIRE", "other", "A", 50_000).int(), high + 1);
        assert_eq!(cmd!(client, "LOCK.FENCE", "other", "A", high).int(), high + 1);
        cmd!(client, "LOCK.FENCE", "other", "B", high).nil();
    }
}
