//! The kit's own tests, on servers without the module.

use std::time::{Duration, Instant};

use redislock_testkit::{
    Builder, Client, Clock, Cluster, Fsync, Proxy, Reply, Server, Version, cmd, eventually, every_server,
    follow, now_ms, promote, raw, send, slot_of, wait_in_sync,
};

const SOON: Duration = Duration::from_secs(20);

fn plain(version: Version) -> Builder {
    Server::builder(version).without_module()
}

every_server! {
    /// Starts, answers in both protocols, and is gone after the drop.
    fn starts_and_answers(version) {
        let server = plain(version).start();
        let mut client = server.connect();
        assert_eq!(raw!(client, "GET", "k"), b"$-1\r\n");
        client.hello(3);
        assert_eq!(raw!(client, "GET", "k"), b"_\r\n");
        cmd!(client, "SET", b"\x00\xff", 7).ok();
        assert_eq!(cmd!(client, "GET", b"\x00\xff".to_vec()).bytes(), b"7");
        assert_eq!(cmd!(client, "NONSENSE").error_code(), "ERR");
        assert_eq!(cmd!(client, "CONFIG", "GET", "port").field("port").text(), server.port().to_string());
        assert!(client.client_id() > 0);
        let port = server.port();
        drop(server);
        assert!(client.is_closed_within(SOON));
        assert!(Client::try_connect(port).is_err());
    }

    fn says_why_it_does_not_start(version) {
        let log = plain(version).config("maxmemory", "nonsense").try_start().unwrap_err();
        assert!(log.contains("maxmemory"), "{log}");
    }

    fn asks_for_a_password(version) {
        let server = plain(version).requires_password("se cret".replace(' ', "-").as_str()).start();
        cmd!(server.connect(), "SET", "k", "v").ok();
        assert_eq!(cmd!(Client::connect(server.port()), "GET", "k").error_code(), "NOAUTH");
        let replica = plain(version).replica_of(&server).start();
        wait_in_sync(&server, &replica);
    }

    fn restarts_with_its_data(version) {
        let server = plain(version).aof(Fsync::Always).aof_preamble(false).start();
        cmd!(server.connect(), "SET", "k", "v").ok();
        let pid = server.pid();
        server.kill9();
        assert!(!server.is_alive());
        server.restart();
        assert_ne!(server.pid(), pid);
        assert_eq!(cmd!(server.connect(), "GET", "k").text(), "v");

        let server = plain(version).save().start();
        cmd!(server.connect(), "SET", "k", "v").ok();
        assert!(server.terminate().success());
        server.restart();
        assert_eq!(cmd!(server.connect(), "GET", "k").text(), "v");
    }

    fn a_stopped_server_says_nothing(version) {
        let server = plain(version).start();
        let mut client = server.connect();
        server.stop_signal();
        send!(client, "PING");
        assert_eq!(client.read_timeout(Duration::from_millis(100)), None);
        assert!(server.is_alive());
        server.resume();
        assert_eq!(client.read().text(), "PONG");
    }

    fn blocked_clients_are_seen_and_closed(version) {
        let server = plain(version).start();
        for hard in [false, true] {
            let mut blocked = server.connect();
            send!(blocked, "BLPOP", "list", 0);
            eventually(SOON, || server.info("blocked_clients") == "1");
            if hard { blocked.close_hard() } else { blocked.close() }
            eventually(SOON, || server.info("blocked_clients") == "0");
        }
    }

    fn replicas_follow_and_are_promoted(version) {
        let primary = plain(version).start();
        let replica = plain(version).replica_of(&primary).start();
        cmd!(primary.connect(), "SET", "k", "v").ok();
        wait_in_sync(&primary, &replica);
        assert_eq!(cmd!(replica.connect(), "GET", "k").text(), "v");
        assert_eq!(cmd!(replica.connect(), "SET", "k", "w").error_code(), "READONLY");
        promote(&replica);
        cmd!(replica.connect(), "SET", "k", "w").ok();
        follow(&primary, &replica);
        assert_eq!(cmd!(primary.connect(), "GET", "k").text(), "w");
    }

    fn a_slot_moves_with_its_keys(version) {
        let cluster = Cluster::start_with(version, 3, Builder::without_module);
        let slot = slot_of("{t}1");
        let from = cluster.node_for_slot(slot);
        let to = (from + 1) % 3;
        let mut source = cluster.connect_for("{t}1");
        cmd!(source, "SET", "{t}1", "v").ok();
        cmd!(source, "SET", "{t}2", "v").ok();
        assert_eq!(cluster.migrate_slot(slot, from, to), 2);
        assert_eq!(cmd!(source, "GET", "{t}1").error_code(), "MOVED");
        assert_eq!(cluster.node_for_slot(slot), to);
        assert_eq!(cmd!(cluster.connect_for("{t}2"), "GET", "{t}2").text(), "v");
    }

    fn a_proxy_delays_swallows_freezes_and_cuts(version) {
        let server = plain(version).start();
        let proxy = Proxy::new(server.addr());
        let mut client = Client::connect(proxy.port());
        assert_eq!(cmd!(client, "PING").text(), "PONG");

        proxy.delay(Duration::from_millis(50));
        let start = Instant::now();
        assert_eq!(cmd!(client, "PING").text(), "PONG");
        let took = start.elapsed();
        assert!((100..1000).contains(&took.as_millis()), "{took:?}");
        proxy.delay(Duration::ZERO);

        proxy.drop_replies(true);
        send!(client, "SET", "k", "v");
        assert_eq!(client.read_timeout(Duration::from_millis(100)), None);
        assert_eq!(cmd!(server.connect(), "GET", "k").text(), "v");
        proxy.drop_replies(false);

        proxy.freeze(true);
        send!(client, "SET", "k", "w");
        assert_eq!(client.read_timeout(Duration::from_millis(100)), None);
        assert_eq!(cmd!(server.connect(), "GET", "k").text(), "v");
        proxy.freeze(false);
        client.read().ok();

        proxy.cut();
        assert!(client.is_closed_within(SOON));
        assert_eq!(cmd!(Client::connect(proxy.port()), "GET", "k").text(), "w");
        assert_eq!(proxy.connections(), 2);
    }

    fn the_wall_clock_steps_and_the_monotonic_one_does_not(version) {
        let clock = Clock::new();
        let server = plain(version).clock(&clock).start();
        let mut client = server.connect();
        let mut ahead = || {
            let time = cmd!(client, "TIME");
            let ms = |index: usize| time.array()[index].text().parse::<i64>().unwrap();
            ms(0) * 1000 + ms(1) / 1000 - i64::try_from(now_ms()).unwrap()
        };
        assert!(ahead().abs() < 500);
        for offset in [3_600_000, -3_600_000, 31_536_000_000, 0] {
            clock.set(offset);
            let ahead = ahead();
            assert!((ahead - offset).abs() < 500, "set to {offset}, found {ahead}");
        }
        // A key that ends by wall time.
        cmd!(client, "SET", "k", "v", "PX", 60_000).ok();
        clock.step(61_000);
        cmd!(client, "GET", "k").nil();
        // A block, which newer servers time by their monotonic clock.
        send!(client, "BLPOP", "list", 1);
        assert_eq!(client.read_timeout(Duration::from_secs(10)), Some(Reply::Nil));
    }
}
