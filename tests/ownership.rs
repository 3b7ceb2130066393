//! Who holds, who doesn't, and that nobody but the holder changes a lease.

use std::thread::sleep;
use std::time::{Duration, Instant};

use redislock_testkit::{Client, Holder, LockInfo, Proxy, Server, cmd, eventually, every_server, send};

const SOON: Duration = Duration::from_secs(20);

/// Waits until a lease of so many milliseconds, begun before now, is over.
fn outlive(ttl: u64) {
    sleep(Duration::from_millis(ttl + 50));
}

every_server! {
    fn b01_a_late_release_leaves_the_next_holder_alone(version) {
        let server = Server::start(version);
        let [mut c1, mut c2, mut c3] = [(); 3].map(|()| server.connect());
        let first = cmd!(c1, "LOCK.ACQUIRE", "k", "A", 100).int();
        outlive(100);
        let second = cmd!(c2, "LOCK.ACQUIRE", "k", "B", 50_000).int();
        assert!(second > first, "{second} after {first}");
        let before = cmd!(c1, "DUMP", "k");
        for release in [&["LOCK.RELEASE", "k", "A"][..], &["LOCK.RELEASE", "k", "A", "ALL"]] {
            c1.cmd(release).nil();
        }
        cmd!(c1, "LOCK.RELEASE", "k", "A", "HOLD", 1).nil();
        cmd!(c1, "LOCK.MRELEASE", 1, "k", "A").array()[0].nil();
        cmd!(c3, "LOCK.ACQUIRE", "k", "C", 5000).nil();
        assert_eq!(cmd!(c1, "DUMP", "k"), before, "fence, count and deadline of B stay");
        assert_eq!(Holder::of(&mut c2, "k").fence, second);
        assert_eq!(cmd!(c2, "LOCK.RELEASE", "k", "B").int(), 0);
    }

    fn b03_a_renewal_checks_the_owner(version) {
        let server = Server::start(version);
        let proxy = Proxy::new(server.addr());
        let mut c1 = Client::connect(proxy.port());
        let mut c2 = server.connect();
        cmd!(c1, "LOCK.ACQUIRE", "k", "A", 100).int();
        proxy.freeze(true);
        send!(c1, "LOCK.RENEW", "k", "A", 10_000);
        outlive(100);
        cmd!(c2, "LOCK.ACQUIRE", "k", "B", 50_000).int();
        let before = cmd!(c2, "DUMP", "k");
        proxy.freeze(false);
        c1.read().nil();
        cmd!(c1, "LOCK.REENTER", "k", "A", 10_000).nil();
        cmd!(c1, "LOCK.FENCE", "k", "A", 5).nil();
        cmd!(c1, "LOCK.DOWNGRADE", "k", "A").nil();
        assert_eq!(cmd!(c2, "DUMP", "k"), before);
    }

    fn b04_nothing_revives_a_lease_that_has_ended(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for ending in ["time", "DEL", "UNLINK", "LOCK.BREAK"] {
            let ttl = if ending == "time" { 50 } else { 50_000 };
            let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", ttl).int();
            match ending {
                "time" => outlive(50),
                command => assert_eq!(cmd!(client, command, "k").int(), 1),
            }
            cmd!(client, "LOCK.RENEW", "k", "A", 5000).nil();
            assert!(cmd!(client, "LOCK.MRENEW", 1, "k", "A", 5000).array()[0].is_nil());
            cmd!(client, "LOCK.FENCE", "k", "A", fence).nil();
            cmd!(client, "LOCK.DOWNGRADE", "k", "A").nil();
            cmd!(client, "LOCK.REENTER", "k", "A", 5000, "HOLD", 2).nil();
            cmd!(client, "LOCK.RELEASE", "k", "A").nil();
            cmd!(client, "LOCK.INFO", "k").nil();
            assert_eq!(cmd!(client, "EXISTS", "k").int(), 0, "after {ending}");
            // REENTER takes a free lock: as a new grant, with a new fence and one hold.
            let again = cmd!(client, "LOCK.REENTER", "k", "A", 50_000).ints();
            assert!(again[0] == 1 && again[1] > fence, "{again:?} after {fence}");
            assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 0);
        }
    }

    /// A lease is over for every command the moment it ends, whatever lies in memory: active expiry is off here.
    fn b04_the_end_of_a_lease_needs_no_clean_up(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "DEBUG", "SET-ACTIVE-EXPIRE", 0).ok();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 30).int();
        cmd!(client, "LOCK.ACQUIRE", "crowd", "A", 30, "SHARED").int();
        cmd!(client, "LOCK.ACQUIRE", "crowd", "B", 50_000, "SHARED").int();
        outlive(30);
        cmd!(client, "LOCK.INFO", "k").nil();
        cmd!(client, "LOCK.RENEW", "k", "A", 5000).nil();
        assert_eq!(LockInfo::of(&mut client, "crowd").unwrap().holders.len(), 1);
        cmd!(client, "LOCK.RENEW", "crowd", "A", 5000).nil();
        cmd!(client, "LOCK.RELEASE", "crowd", "A").nil();
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", "B", 5000).int() > 0);
    }

    /// Never earlier than asked: the clock starts before the request is sent, and stops when another one has it.
    fn b10_a_lease_lasts_as_long_as_asked(version) {
        let server = Server::start(version);
        let [mut holder, mut other] = [(); 2].map(|()| server.connect());
        let ttls = [1_u32, 2, 3, 5, 10].repeat(20).into_iter().chain([999, 1000, 1001, 1500]);
        for ttl in ttls {
            let start = Instant::now();
            cmd!(holder, "LOCK.ACQUIRE", "k", "A", ttl).int();
            let seen = LockInfo::of(&mut other, "k").map_or(0, |info| info.holders[0].ttl);
            assert!(seen <= i64::from(ttl), "{seen} ms left of {ttl}");
            let native = cmd!(other, "PTTL", "k").int();
            assert!(native <= i64::from(ttl), "PTTL is {native} of {ttl}");
            let lasted = eventually(SOON, || {
                let granted = !cmd!(other, "LOCK.ACQUIRE", "k", "B", 50_000).is_nil();
                granted.then(|| start.elapsed())
            });
            assert!(lasted >= Duration::from_millis(u64::from(ttl)), "{ttl} ms lasted {lasted:?}");
            assert_eq!(cmd!(other, "LOCK.RELEASE", "k", "B").int(), 0);
        }
    }

    /// The second ask of the same owner is told so, with its fence; nothing changes.
    fn b23_b108_an_owner_that_holds_is_told_so(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let before = cmd!(client, "DUMP", "k");
        let commands = [
            "LOCK.ACQUIRE k A 9000",
            "LOCK.ACQUIRE k A 9000 WAIT 1000",
            "LOCK.ACQUIRE k A 9000 SHARED",
            "LOCK.ACQUIRE k A 9000 SHARED LIMIT 2 WAIT 0",
            "LOCK.MACQUIRE 1 k A 9000",
            "LOCK.MACQUIRE 2 free k A 9000 WAIT 1000",
        ];
        for line in commands {
            let reply = client.cmd(&line.split(' ').collect::<Vec<_>>());
            let held = format!("HELD {fence} ");
            assert!(reply.error().starts_with(&held), "{line}: {reply:?}");
            assert!(reply.error().contains("LOCK.REENTER") && reply.error().contains("LOCK.RENEW"));
        }
        assert_eq!(cmd!(client, "DUMP", "k"), before);
        assert_eq!(cmd!(client, "EXISTS", "free").int(), 0);
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 0, "one release frees it");
    }

    /// Holds nest; HOLD n is safe to send again; the fence is the same all the while.
    fn holds_nest_and_are_given_back_one_by_one(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let mut reenter = |hold: Option<i64>| {
            let reply = match hold {
                Some(hold) => cmd!(client, "LOCK.REENTER", "k", "A", 50_000, "HOLD", hold),
                None => cmd!(client, "LOCK.REENTER", "k", "A", 50_000),
            };
            if reply.is_error() { Err(reply.error().to_owned()) } else { Ok(reply.ints()) }
        };
        let fence = reenter(Some(1)).unwrap()[1];
        assert_eq!(reenter(Some(1)), Ok(vec![1, fence]), "sent again, not counted again");
        assert_eq!(reenter(None), Ok(vec![2, fence]));
        assert_eq!(reenter(Some(3)), Ok(vec![3, fence]));
        assert_eq!(reenter(Some(3)), Ok(vec![3, fence]));
        for wrong in [1, 2, 5, 2_147_483_647] {
            let error = reenter(Some(wrong)).unwrap_err();
            assert_eq!(error, "ERR HOLD does not fit: this owner has 3 holds", "HOLD {wrong}");
        }
        let mut release = |words: &[&str]| client.cmd(&[&["LOCK.RELEASE", "k", "A"][..], words].concat());
        assert_eq!(release(&["HOLD", "1"]).error_code(), "ERR");
        assert_eq!(release(&["HOLD", "3"]).int(), 2);
        assert_eq!(release(&["HOLD", "3"]).int(), 2, "sent again, not given back again");
        assert_eq!(release(&[]).int(), 1);
        assert_eq!(release(&["HOLD", "1"]).int(), 0);
        release(&["HOLD", "1"]).nil();
        release(&[]).nil();
        cmd!(client, "LOCK.REENTER", "k", "A", 50_000, "HOLD", 2).nil();
        for _ in 0..3 {
            cmd!(client, "LOCK.REENTER", "k", "A", 50_000).array();
        }
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A", "ALL").int(), 0);
        assert_eq!(cmd!(client, "EXISTS", "k").int(), 0);
    }

    /// Only RENEW shortens; re-entry, releases and raised fences leave the longer lease.
    fn a_lease_is_shortened_by_renewal_alone(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        for command in [
            "LOCK.REENTER k A 10",
            "LOCK.RELEASE k A",
            "LOCK.FENCE k A 5",
            "LOCK.REENTER k A 10 SHARED",
            "LOCK.DOWNGRADE k A",
            "LOCK.ACQUIRE k B 100 SHARED",
            "LOCK.RELEASE k B",
        ] {
            let reply = client.cmd(&command.split(' ').collect::<Vec<_>>());
            assert!(!reply.is_error() && !reply.is_nil(), "{command}: {reply:?}");
            let left = LockInfo::of(&mut client, "k").unwrap().holders[0].ttl;
            assert!(left > 30_000, "{left} ms left after {command}");
            assert!(cmd!(client, "PTTL", "k").int() > 30_000, "after {command}");
        }
        cmd!(client, "LOCK.RENEW", "k", "A", 9000).int();
        let left = Holder::of(&mut client, "k").ttl;
        assert!((1..=9000).contains(&left), "{left}");
        assert!((1..=9000).contains(&cmd!(client, "PTTL", "k").int()));
        cmd!(client, "LOCK.REENTER", "k", "A", 80_000, "SHARED").array();
        assert!(Holder::of(&mut client, "k").ttl > 60_000, "re-entry prolongs");
    }

    /// Every grant has a higher fence than all before it, across keys and databases; nothing else changes it.
    fn fences_rise_with_every_grant_and_stay_with_the_holder(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let mut last = 0;
        for round in 0..50 {
            cmd!(client, "SELECT", round % 3).ok();
            let key = format!("k{}", round % 7);
            let fence = cmd!(client, "LOCK.ACQUIRE", key, "A", 50_000).int();
            assert!(fence > last, "{fence} after {last}");
            assert!(fence < 1 << 53);
            assert_eq!(cmd!(client, "LOCK.RENEW", key, "A", 60_000).int(), fence);
            assert_eq!(cmd!(client, "LOCK.REENTER", key, "A", 60_000).ints(), [2, fence]);
            assert_eq!(cmd!(client, "LOCK.DOWNGRADE", key, "A").int(), fence);
            // An upgrade is a grant.
            let upgraded = cmd!(client, "LOCK.REENTER", key, "A", 60_000).ints()[1];
            assert!(upgraded > fence);
            last = upgraded;
            assert_eq!(cmd!(client, "LOCK.RELEASE", key, "A", "ALL").int(), 0);
        }
        let [one, two] = ["x", "y"].map(|key| {
            cmd!(client, "LOCK.MACQUIRE", 2, format!("{key}1"), format!("{key}2"), "A", 5000).int()
        });
        assert!(one > last && two > one);
        assert_eq!(Holder::of(&mut client, "x1").fence, Holder::of(&mut client, "x2").fence);
    }

    fn info_tells_of_holders_and_null_of_none(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.INFO", "k").nil();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let info = LockInfo::of(&mut client, "k").unwrap();
        assert_eq!((info.mode.as_str(), info.limit, info.waiters), ("exclusive", None, 0));
        let holder = &info.holders[0];
        assert_eq!((&holder.owner[..], holder.holds, holder.fence, holder.session), (&b"A"[..], 1, fence, false));
        assert!((1..=50_000).contains(&holder.ttl) && (0..40_000).contains(&holder.held), "{holder:?}");
        cmd!(client, "LOCK.RENEW", "k", "A", 50_000, "SESSION").int();
        assert!(Holder::of(&mut client, "k").session);
        assert_eq!(cmd!(client, "TYPE", "k").text(), "redislock");
        cmd!(client, "LOCK.RELEASE", "k", "A").int();
        cmd!(client, "LOCK.INFO", "k").nil();
        assert_eq!(cmd!(client, "TYPE", "k").text(), "none");
        assert_eq!(cmd!(client, "DBSIZE").int(), 0);
    }

    fn b17_a_key_of_another_type_is_left_alone(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "SET", "k", "v").ok();
        for line in [
            "LOCK.ACQUIRE k A 1000",
            "LOCK.ACQUIRE k A 1000 WAIT 0",
            "LOCK.ACQUIRE k A 1000 SHARED WAIT 500",
            "LOCK.REENTER k A 1000",
            "LOCK.RENEW k A 1000",
            "LOCK.RELEASE k A",
            "LOCK.RELEASE k A ALL",
            "LOCK.DOWNGRADE k A",
            "LOCK.FENCE k A 5",
            "LOCK.INFO k",
            "LOCK.WAITERS k",
            "LOCK.BREAK k",
            "LOCK.MACQUIRE 2 free k A 1000",
            "LOCK.MRENEW 2 free k A 1000",
            "LOCK.MRELEASE 2 free k A",
        ] {
            let reply = client.cmd(&line.split(' ').collect::<Vec<_>>());
            assert_eq!(reply.error_code(), "WRONGTYPE", "{line}");
        }
        if version.has_guard() {
            assert_eq!(cmd!(client, "LOCK.GUARD", "k", "A", "SET", "x", "y").error_code(), "WRONGTYPE");
        }
        assert_eq!(cmd!(client, "GET", "k").text(), "v");
        assert_eq!(cmd!(client, "DBSIZE").int(), 1);
    }

    fn b17_data_commands_get_wrongtype_and_an_overwritten_lock_is_lost(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let before = cmd!(client, "DUMP", "k");
        for line in ["GET k", "INCR k", "APPEND k x", "LPUSH k x", "HSET k a b", "SADD k x", "GETSET k x"] {
            let reply = client.cmd(&line.split(' ').collect::<Vec<_>>());
            assert_eq!(reply.error_code(), "WRONGTYPE", "{line}");
        }
        cmd!(client, "SET", "k", "v", "NX").nil();
        assert_eq!(cmd!(client, "DUMP", "k"), before);
        cmd!(client, "SET", "k", "v").ok();
        for line in ["LOCK.RENEW k A 1000", "LOCK.RELEASE k A", "LOCK.ACQUIRE k A 1000"] {
            let reply = client.cmd(&line.split(' ').collect::<Vec<_>>());
            assert_eq!(reply.error_code(), "WRONGTYPE", "{line}");
        }
        assert_eq!(cmd!(client, "PTTL", "k").int(), -1, "the data got no time to live from the lock");
        assert_eq!(cmd!(client, "GET", "k").text(), "v");
    }

    fn an_operator_revokes_all_or_one_or_one_grant(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fences = ["A", "B", "C"].map(|owner| cmd!(client, "LOCK.ACQUIRE", "k", owner, 50_000, "SHARED").int());
        assert_eq!(cmd!(client, "LOCK.BREAK", "k", "A", fences[0] + 1).int(), 0, "another grant");
        assert_eq!(cmd!(client, "LOCK.BREAK", "k", "D").int(), 0);
        assert_eq!(cmd!(client, "LOCK.BREAK", "k", "A", fences[0]).int(), 1);
        assert_eq!(cmd!(client, "LOCK.BREAK", "k", "A", fences[0]).int(), 0);
        assert_eq!(cmd!(client, "LOCK.BREAK", "k").int(), 2);
        assert_eq!(cmd!(client, "LOCK.BREAK", "k").int(), 0);
        cmd!(client, "LOCK.RELEASE", "k", "B").nil();
        assert_eq!(client.info("lock_revocations").as_deref(), Some("3"));
    }
}
