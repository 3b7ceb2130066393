//! Hand-offs while a server changes its role, or would take no write.

mod stream;

use redislock_testkit::{
    Client, Fsync, Server, Version, cmd, eventually, every_server, follow, holders, promote, send,
    until_blocked, until_waiting, wait_in_sync, waiters,
};
use std::time::{Duration, Instant};
use stream::Stream;

const SOON: Duration = Duration::from_secs(20);

/// A connection on which this owner waits for the key.
#[track_caller]
fn waiter(server: &Server, key: &str, owner: &str) -> Client {
    let before = waiters(&mut server.connect(), key).len();
    let mut client = server.connect();
    send!(client, "LOCK.ACQUIRE", key, owner, 60_000, "WAIT", 0);
    until_waiting(server, key, before + 1);
    client
}

#[track_caller]
fn is_silent_for(client: &mut Client, millis: u64) {
    let reply = client.read_timeout(Duration::from_millis(millis));
    assert_eq!(reply, None, "a waiter that has no turn is answered");
}

/// Everything that may become due by itself: a lease that ends by time, one whose connection closes, one whose key is
/// deleted by its native TTL; each with a waiter behind it. What is due by then comes about within 300 ms.
struct Due {
    session: Option<Client>,
    line: Vec<Client>,
}

impl Due {
    #[track_caller]
    fn begin(server: &Server) -> Self {
        let mut control = server.connect();
        let mut session = server.connect();
        cmd!(session, "LOCK.ACQUIRE", "tied", "A", 60_000, "SESSION").int();
        cmd!(control, "LOCK.ACQUIRE", "shared", "R1", 60_000, "SHARED").int();
        for (key, owner) in [("lapse", "A"), ("lapse2", "A"), ("shared", "R2")] {
            let mode = if owner == "A" { vec![] } else { vec!["SHARED"] };
            let mut ask = vec!["LOCK.ACQUIRE", key, owner, "60000"];
            ask.extend(mode);
            control.cmd(&ask).int();
        }
        let keys = ["tied", "lapse", "lapse2", "shared"];
        let line = keys.map(|key| waiter(server, key, "B")).into();
        // They have lined up: now let time run.
        for (key, owner) in [("lapse", "A"), ("lapse2", "A"), ("shared", "R1"), ("shared", "R2")] {
            assert!(cmd!(control, "LOCK.RENEW", key, owner, 250).int() > 0);
        }
        Self { session: Some(session), line }
    }

    /// Closes the connection whose lease is tied to it.
    fn close(&mut self) {
        drop(self.session.take());
    }

    #[track_caller]
    fn nothing_is_handed_on(&mut self, millis: u64) {
        let end = Instant::now() + Duration::from_millis(millis);
        while Instant::now() < end {
            self.line.iter_mut().for_each(|client| is_silent_for(client, 5));
        }
    }

    #[track_caller]
    fn all_is_handed_on(&mut self) {
        self.line.iter_mut().for_each(|client| assert!(client.read().int() > 0));
    }
}

/// The number in a field of INFO.
#[track_caller]
fn number(server: &Server, field: &str) -> i64 {
    server.info(field).parse().expect("a number")
}

every_server! {
    /// Waiters on a server that becomes a replica are told so at once, and nothing is granted from the stream.
    fn b83_replicaof_ends_all_waits(version) {
        let (one, two) = (Server::start(version), Server::start(version));
        let mut control = one.connect();
        let fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        follow(&two, &one);
        promote(&two);
        let mut line: Vec<Client> = (0..3).map(|n| waiter(&one, "k", &format!("W{n}"))).collect();
        cmd!(control, "REPLICAOF", "127.0.0.1", two.port()).ok();
        for client in &mut line {
            assert_eq!(client.read().error_code(), "UNBLOCKED");
        }
        wait_in_sync(&two, &one);
        assert_eq!(one.info("lock_waiters"), "0");
        // What the new primary does arrives here, and wakes nobody.
        cmd!(two.connect(), "LOCK.RELEASE", "k", "A").int();
        let new = cmd!(two.connect(), "LOCK.ACQUIRE", "k", "N", 60_000).int();
        assert!(new > fence);
        wait_in_sync(&two, &one);
        let mut reader = one.connect();
        eventually(SOON, || holders(&mut reader, "k") == ["N"]);
        assert_eq!(cmd!(reader, "LOCK.ACQUIRE", "k", "X", 1_000, "WAIT", 0).error_code(), "READONLY");
        // Promoted again, it goes on: deadlines, fences, queues.
        promote(&one);
        let mut client = one.connect();
        assert_eq!(cmd!(client, "LOCK.RENEW", "k", "N", 300).int(), new);
        let mut next = waiter(&one, "k", "M");
        assert!(next.read().int() > new);
        assert_eq!(one.info("lock_panics"), "0");
        until_blocked(&one, 0);
    }

    /// A request and a release and a demotion in one piece: one answer each, and nobody holds here unseen.
    fn b83_a_demotion_right_after_a_release(version) {
        let (one, two) = (Server::start(version), Server::start(version));
        for _ in 0..20 {
            let mut control = one.connect();
            cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
            let mut b = waiter(&one, "k", "B");
            control.send_raw(
                format!("LOCK.RELEASE k A\r\nREPLICAOF 127.0.0.1 {}\r\n", two.port()).as_bytes(),
            );
            assert_eq!(control.read().int(), 0);
            control.read().ok();
            let answer = b.read();
            assert!(answer.is_error() || answer.int() > 0, "{answer:?}");
            promote(&one);
            cmd!(one.connect(), "DEL", "k");
            eventually(SOON, || one.info("blocked_clients") == "0");
        }
        assert_eq!(one.info("lock_panics"), "0");
        assert_eq!(one.info("lock_waiters"), "0");
    }

    /// FAILOVER with hand-offs that are due: no abort; waiters look for the new primary, and wait there.
    fn b83_failover_with_due_hand_offs(version) {
        let one = Server::start(version);
        let two = Server::builder(version).replica_of(&one).start();
        wait_in_sync(&one, &two);
        let mut due = Due::begin(&one);
        let mut control = one.connect();
        let fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        wait_in_sync(&one, &two);
        due.close();
        cmd!(control, "FAILOVER", "TO", "127.0.0.1", two.port()).ok();
        for client in &mut due.line {
            // Served before the pause began, or sent away by it.
            let answer = client.read();
            assert!(answer.is_error() && answer.error_code() == "UNBLOCKED" || answer.int() > 0, "{answer:?}");
        }
        eventually(SOON, || two.info("role") == "master");
        wait_in_sync(&two, &one);
        let mut control = two.connect();
        assert_eq!(cmd!(control, "LOCK.RENEW", "k", "A", 60_000).int(), fence);
        let mut next = waiter(&two, "k", "B");
        cmd!(control, "LOCK.RELEASE", "k", "A").int();
        assert!(next.read().int() > fence);
        assert!(one.is_alive());
        assert_eq!(one.info("lock_waiters"), "0");
        assert_eq!((one.info("lock_panics"), two.info("lock_panics")), ("0".into(), "0".into()));
    }

    /// A FAILOVER that is called off: what became due meanwhile is handed on after it.
    fn a_failover_that_is_aborted(version) {
        let one = Server::start(version);
        let two = Server::builder(version).replica_of(&one).start();
        wait_in_sync(&one, &two);
        let mut due = Due::begin(&one);
        // A replica that says nothing can't take over, and the failover waits for it.
        two.stop_signal();
        let mut control = one.connect();
        cmd!(control, "SET", "unheard", 1).ok();
        cmd!(control, "FAILOVER").ok();
        due.close();
        due.nothing_is_handed_on(400);
        cmd!(control, "FAILOVER", "ABORT").ok();
        due.all_is_handed_on();
        two.resume();
        wait_in_sync(&one, &two);
    }

    /// A replica that is promoted after the deadlines of its locks: they are not held, and nobody is granted twice.
    fn promotion_after_the_deadlines(version) {
        let one = Server::start(version);
        let two = Server::builder(version).replica_of(&one).start();
        let mut control = one.connect();
        let fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 200).int();
        cmd!(control, "LOCK.ACQUIRE", "long", "A", 60_000).int();
        wait_in_sync(&one, &two);
        one.stop_signal();
        std::thread::sleep(Duration::from_millis(300));
        promote(&two);
        let mut client = two.connect();
        cmd!(client, "LOCK.RENEW", "k", "A", 60_000).nil();
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 0).int() > fence);
        let mut next = waiter(&two, "long", "B");
        cmd!(client, "LOCK.RELEASE", "long", "A").int();
        assert!(next.read().int() > fence);
    }

    /// While clients are paused nothing is handed on, and nothing aborts; after it all is.
    fn client_pause_defers_hand_offs(version) {
        let server = Server::builder(version).aof(Fsync::Always).start();
        let replica = Server::builder(version).replica_of(&server).start();
        wait_in_sync(&server, &replica);
        for (mode, unpause) in [("WRITE", true), ("ALL", false), ("WRITE", false)] {
            let mut due = Due::begin(&server);
            let mut control = server.connect();
            let time = if unpause { 60_000 } else { 700 };
            cmd!(control, "CLIENT", "PAUSE", time, mode).ok();
            due.close();
            let paused = Instant::now();
            due.nothing_is_handed_on(450);
            if unpause {
                cmd!(control, "CLIENT", "UNPAUSE").ok();
            }
            due.all_is_handed_on();
            assert!(unpause || paused.elapsed() > Duration::from_millis(600), "handed on in the pause");
            cmd!(control, "FLUSHALL").ok();
        }
        wait_in_sync(&server, &replica);
        assert_eq!(server.info("lock_panics"), "0");
    }

    /// A wait whose time is up ends in a pause as well: that writes nothing.
    fn waits_end_while_clients_are_paused(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 100).int();
        let mut b = server.connect();
        send!(b, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 250);
        let mut c = waiter(&server, "k", "C");
        cmd!(control, "CLIENT", "PAUSE", 60_000, "WRITE").ok();
        let cycles = server.connect().info("eventloop_cycles");
        let answer = b.read();
        // It may have been served before the pause began, on a slow machine.
        assert!(answer.is_nil() || answer.int() > 0, "{answer:?}");
        is_silent_for(&mut c, 500);
        if let Some(before) = cycles {
            let cycles = number(&server, "eventloop_cycles") - before.parse::<i64>().expect("a number");
            assert!(cycles < 5_000, "the server spins: {cycles} turns");
        }
        cmd!(control, "CLIENT", "UNPAUSE").ok();
        if answer.is_nil() {
            assert!(c.read().int() > 0);
        }
    }

    /// With fewer good replicas than asked for, nothing is handed on until there are enough.
    fn too_few_replicas_defer_hand_offs(version) {
        let server = Server::start(version);
        let mut due = Due::begin(&server);
        let mut control = server.connect();
        cmd!(control, "CONFIG", "SET", "min-replicas-to-write", 1).ok();
        due.close();
        due.nothing_is_handed_on(450);
        assert_eq!(cmd!(control, "LOCK.RELEASE", "tied", "A").error_code(), "NOREPLICAS");
        let replica = Server::builder(version).replica_of(&server).start();
        due.all_is_handed_on();
        wait_in_sync(&server, &replica);
        assert_eq!(holders(&mut replica.connect(), "tied"), ["B"]);
        // And by the setting.
        cmd!(control, "FLUSHALL").ok();
        let mut due = Due::begin(&server);
        cmd!(control, "CONFIG", "SET", "min-replicas-to-write", 2).ok();
        due.close();
        due.nothing_is_handed_on(400);
        cmd!(control, "CONFIG", "SET", "min-replicas-to-write", 0).ok();
        due.all_is_handed_on();
    }

    /// A failed save makes the server refuse writes, and hand nothing on.
    fn a_failed_save_defers_hand_offs(version) {
        let server = Server::builder(version).config("save", "86400 1000000").start();
        let mut control = server.connect();
        let in_the_way = server.dir().join("dump.rdb");
        let save = |control: &mut Client, status: &str| {
            cmd!(control, "BGSAVE").text();
            eventually(SOON, || {
                control.info("rdb_bgsave_in_progress").as_deref() == Some("0")
                    && control.info("rdb_last_bgsave_status").as_deref() == Some(status)
            });
        };
        let mut due = Due::begin(&server);
        std::fs::create_dir(&in_the_way).expect("a folder");
        save(&mut control, "err");
        due.close();
        due.nothing_is_handed_on(450);
        assert_eq!(cmd!(control, "LOCK.ACQUIRE", "other", "A", 1_000).error_code(), "MISCONF");
        std::fs::remove_dir(&in_the_way).expect("a folder");
        save(&mut control, "ok");
        due.all_is_handed_on();
        // With the setting that lets it write on, it hands on, too.
        cmd!(control, "FLUSHALL").ok();
        std::fs::remove_file(&in_the_way).expect("a dump");
        std::fs::create_dir(&in_the_way).expect("a folder");
        let mut due = Due::begin(&server);
        save(&mut control, "err");
        cmd!(control, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no").ok();
        due.close();
        due.all_is_handed_on();
    }

    /// SHUTDOWN while hand-offs become due: the server ends in order, and what it saved is what it answered.
    fn shutdown_with_due_hand_offs(version) {
        let server = Server::builder(version).save().start();
        let replica = Server::builder(version).replica_of(&server).start();
        wait_in_sync(&server, &replica);
        let mut due = Due::begin(&server);
        let mut control = server.connect();
        // From 7.0 on the server waits for a replica that lags, with writes paused.
        replica.stop_signal();
        cmd!(control, "SET", "unheard", 1).ok();
        send!(control, "SHUTDOWN", "SAVE");
        due.close();
        if version != Version::Redis62 {
            let granted = due.line.iter_mut().filter_map(|client| {
                client.try_read_timeout(Duration::from_millis(100)).ok().flatten()
            });
            assert_eq!(granted.collect::<Vec<_>>(), [], "handed on while it shuts down");
        }
        std::thread::sleep(Duration::from_millis(300));
        replica.resume();
        let status = server.wait_for_exit(SOON).expect("it ends");
        assert!(status.success(), "{status}\n{}", server.log_tail(40));
        server.restart();
        let mut control = server.connect();
        for key in ["lapse", "lapse2", "shared"] {
            assert_eq!(holders(&mut control, key), [""; 0]);
        }
        assert_eq!(cmd!(control, "GET", "unheard").text(), "1");
    }

    /// What a timer brings about travels as one unit: the end of one lease, and the grant to the next.
    fn b88_hand_offs_without_a_command_are_one_unit(version) {
        let server = Server::builder(version).aof(Fsync::Always).start();
        let mut control = server.connect();
        let mut stream = Stream::of(&server);
        let unit = |records: [&str; 2]| vec!["MULTI".to_owned(), records[0].into(), records[1].into(), "EXEC".into()];
        cmd!(control, "LOCK.ACQUIRE", "lapse", "A", 60_000).int();
        let mut b = waiter(&server, "lapse", "B");
        cmd!(control, "LOCK.RENEW", "lapse", "A", 100).int();
        stream.take();
        assert!(b.read().int() > 0);
        let told = stream.told();
        if told.iter().any(|line| line.ends_with(" lapse")) {
            // Its native TTL has ended it first, and said so by itself.
            let told: Vec<String> = told.into_iter().filter(|line| line != "MULTI" && line != "EXEC").collect();
            assert!(["DEL lapse", "UNLINK lapse"].contains(&told[0].as_str()), "{told:?}");
            assert_eq!(told[1..], ["lapse: B alone x1"]);
        } else {
            assert_eq!(told, unit(["lapse: A gone", "lapse: B alone x1"]));
        }
        let mut holder = server.connect();
        cmd!(holder, "LOCK.ACQUIRE", "tied", "A", 60_000, "SESSION").int();
        let mut c = waiter(&server, "tied", "C");
        stream.take();
        holder.close();
        assert!(c.read().int() > 0);
        assert_eq!(stream.told(), unit(["tied: A gone", "tied: C alone x1"]));
        // A deletion is its own words, and the grant comes after it.
        let mut d = waiter(&server, "tied", "D");
        stream.take();
        cmd!(control, "DEL", "tied").int();
        assert!(d.read().int() > 0);
        let told: Vec<String> = stream.told().into_iter().filter(|line| line != "MULTI" && line != "EXEC").collect();
        assert_eq!(told, ["DEL tied", "tied: D alone x1"]);
    }

    /// Three releases in one transaction, with waiters behind each: one unit, in order.
    fn b88_several_hand_offs_in_one_transaction(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let keys = ["x", "y", "z"];
        for key in keys {
            cmd!(control, "LOCK.ACQUIRE", key, "A", 60_000).int();
        }
        let mut line = keys.map(|key| waiter(&server, key, "B"));
        let mut stream = Stream::of(&server);
        cmd!(control, "MULTI").ok();
        for key in keys {
            cmd!(control, "LOCK.RELEASE", key, "A");
        }
        cmd!(control, "EXEC").array();
        line.iter_mut().for_each(|client| assert!(client.read().int() > 0));
        let each = keys.map(|key| [format!("{key}: A gone"), format!("{key}: B alone x1")]);
        let told = stream.told();
        assert_eq!(told.first().map(String::as_str), Some("MULTI"));
        assert_eq!(told.last().map(String::as_str), Some("EXEC"));
        assert_eq!(told[1..told.len() - 1], each.concat());
    }

    /// After hand-offs of every kind the replica, and what the AOF makes of it, agree with what was answered.
    fn b88_replica_and_aof_agree_after_hand_offs(version) {
        let server = Server::builder(version).aof(Fsync::Always).start();
        let replica = Server::builder(version).replica_of(&server).start();
        wait_in_sync(&server, &replica);
        let mut due = Due::begin(&server);
        due.close();
        let fences: Vec<i64> = due.line.iter_mut().map(|client| client.read().int()).collect();
        wait_in_sync(&server, &replica);
        server.kill9();
        promote(&replica);
        server.restart();
        for server in [&server, &replica] {
            let mut client = server.connect();
            for (key, fence) in ["tied", "lapse", "lapse2", "shared"].iter().zip(&fences) {
                assert_eq!(holders(&mut client, key), ["B"], "{key}");
                assert_eq!(cmd!(client, "LOCK.RENEW", key, "B", 60_000).int(), *fence);
            }
        }
    }
}
