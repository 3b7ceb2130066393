//! Locks and lines in a cluster, while slots move and nodes fail.

use redislock_testkit::{
    Client, Cluster, HistoryChecker, Mode, Reply, Server, Version, cmd, eventually, every_server, holders,
    send, slot_of, until_waiting, waiters,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(30);

/// A client that does as cluster clients do: it follows redirections, and asks again where it is told to.
struct Roamer {
    home: u16,
    links: HashMap<u16, Client>,
}

impl Roamer {
    fn new(cluster: &Cluster) -> Self {
        Self { home: cluster.node(0).port(), links: HashMap::new() }
    }

    /// Sends a command until a node answers it.
    #[track_caller]
    fn cmd(&mut self, words: &[String]) -> Reply {
        let end = Instant::now() + SOON;
        let mut asking = None;
        while Instant::now() < end {
            let port = asking.take().inspect(|port| self.ask(*port)).unwrap_or(self.home);
            let reply = self.link(port).and_then(|link| link.try_cmd(words));
            let Ok(reply) = reply else {
                self.links.remove(&port);
                thread::sleep(Duration::from_millis(5));
                continue;
            };
            let Reply::Error(text) = &reply else { return reply };
            let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
            let target = || rest.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
            match code {
                "MOVED" => self.home = target(),
                "ASK" => asking = Some(target()),
                "TRYAGAIN" | "CLUSTERDOWN" | "UNBLOCKED" | "LOADING" => {
                    thread::sleep(Duration::from_millis(2))
                }
                _ => return reply,
            }
        }
        panic!("no node answers {words:?}");
    }

    fn ask(&mut self, port: u16) {
        if let Ok(link) = self.link(port) {
            let _ = link.try_cmd(&["ASKING"]);
        }
    }

    fn link(&mut self, port: u16) -> std::io::Result<&mut Client> {
        match self.links.entry(port) {
            Entry::Occupied(link) => Ok(link.into_mut()),
            Entry::Vacant(place) => Ok(place.insert(Client::try_connect(port)?)),
        }
    }
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// A connection on which this owner waits for the key.
#[track_caller]
fn waiter(server: &Server, key: &str, owner: &str) -> Client {
    let before = waiters(&mut server.connect(), key).len();
    let mut client = server.connect();
    send!(client, "LOCK.ACQUIRE", key, owner, 60_000, "WAIT", 0);
    until_waiting(server, key, before + 1);
    client
}

/// Takes a lock, holds it for a moment, gives it back; again and again.
fn work(
    cluster: &Cluster,
    name: &str,
    key: &str,
    checker: &HistoryChecker,
    stop: &AtomicBool,
    done: &AtomicU64,
) {
    let mut roamer = Roamer::new(cluster);
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let owner = format!("{name}-{turn}");
        let ttl = Duration::from_secs(20);
        let asked = Instant::now();
        let fence =
            match roamer.cmd(&words(&format!("LOCK.ACQUIRE {key} {owner} {} WAIT 15000", ttl.as_millis()))) {
                Reply::Int(fence) => fence,
                Reply::Nil => continue,
                // The answer to the grant was lost with its connection.
                Reply::Error(held) if held.starts_with("HELD ") => {
                    held.split(' ').nth(1).and_then(|fence| fence.parse().ok()).expect("a fence")
                }
                other => panic!("{other:?}"),
            };
        let hold = checker.granted(key, &owner, Mode::Exclusive, fence, Instant::now(), asked + ttl);
        thread::sleep(Duration::from_micros(turn % 5 * 300));
        if turn % 3 == 0 {
            assert_eq!(roamer.cmd(&words(&format!("LOCK.RENEW {key} {owner} 20000"))), Reply::Int(fence));
        }
        checker.released(hold, Instant::now());
        assert_eq!(
            roamer.cmd(&words(&format!("LOCK.RELEASE {key} {owner}"))),
            Reply::Int(0),
            "{owner} lost {key}"
        );
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Another node of the cluster, as a replica of one of its primaries.
fn add_replica(cluster: &Cluster, version: Version, primary: usize) -> Server {
    let replica = Server::builder(version).cluster().start();
    let mut client = replica.connect();
    cmd!(client, "CLUSTER", "MEET", "127.0.0.1", cluster.node(primary).port()).ok();
    let id = cmd!(cluster.node(primary).connect(), "CLUSTER", "MYID").text().to_owned();
    eventually(SOON, || cmd!(client, "CLUSTER", "REPLICATE", &id) == Reply::Simple("OK".into()));
    eventually(SOON, || client.info("master_link_status").as_deref() == Some("up"));
    // It must know all, and all must know it as what it is, before it can be voted for.
    eventually(SOON, || {
        let nodes = cmd!(client, "CLUSTER", "NODES");
        let known =
            nodes.text().lines().filter(|line| line.contains("master") && line.contains(" connected"));
        known.count() == cluster.nodes().len() && !nodes.text().contains("handshake")
    });
    let own = cmd!(client, "CLUSTER", "MYID").text().to_owned();
    for node in cluster.nodes() {
        let mut node = node.connect();
        eventually(SOON, || {
            let nodes = cmd!(node, "CLUSTER", "NODES");
            nodes.text().lines().any(|line| line.starts_with(&own) && line.contains("slave"))
        });
    }
    replica
}

/// Moves the slots of some keys around while clients take, renew and release locks at them.
fn move_slots_under_load(version: Version, moves: usize) {
    let cluster = Cluster::start(version, 3);
    let keys = ["alpha", "beta", "gamma"];
    let checker = HistoryChecker::new();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for key in keys {
            for n in 0..4 {
                let (cluster, checker, stop, done) = (&cluster, &checker, &stop, &done);
                scope.spawn(move || work(cluster, &format!("{key}{n}"), key, checker, stop, done));
            }
        }
        let stopper = StopOnDrop(&stop);
        for n in 0..moves {
            let slot = slot_of(keys[n % keys.len()]);
            let from = cluster.node_for_slot(slot);
            cluster.begin_migration(slot, from, (from + 1 + n % 2) % 3);
            thread::sleep(Duration::from_millis(n as u64 % 4 * 10));
            cluster.migrate_keys(slot, from, (from + 1 + n % 2) % 3);
            thread::sleep(Duration::from_millis(n as u64 % 3 * 10));
            // A lock that was taken meanwhile on the old node would keep it from giving the slot away.
            eventually(SOON, || {
                cluster.migrate_keys(slot, from, (from + 1 + n % 2) % 3);
                cmd!(cluster.node(from).connect(), "CLUSTER", "COUNTKEYSINSLOT", slot).int() == 0
            });
            cluster.finish_migration(slot, from, (from + 1 + n % 2) % 3);
            let before = done.load(Ordering::Relaxed);
            eventually(SOON, || done.load(Ordering::Relaxed) > before + 3);
        }
        drop(stopper);
    });
    assert_eq!(checker.violations(), Vec::<String>::new());
    assert!(done.load(Ordering::Relaxed) > 100);
    for node in cluster.nodes() {
        assert_eq!(node.info("lock_waiters"), "0");
        assert_eq!(node.info("lock_panics"), "0");
        assert_eq!(node.info("blocked_clients"), "0");
    }
}

every_server! {
    /// A slot moves away under a holder and a waiter: the lock goes with it, and the waiter is sent after it.
    fn b84_a_slot_moves_away_under_waiters(version) {
        let cluster = Cluster::start(version, 3);
        let (key, slot) = ("k", slot_of("k"));
        let from = cluster.node_for_slot(slot);
        let to = (from + 1) % 3;
        let mut a = cluster.node(from).connect();
        let fence = cmd!(a, "LOCK.REENTER", key, "A", 60_000).array()[1].int();
        cmd!(a, "LOCK.REENTER", key, "A", 60_000).array();
        let mut line = [waiter(cluster.node(from), key, "B"), waiter(cluster.node(from), key, "C")];
        cluster.begin_migration(slot, from, to);
        for client in &mut line {
            assert_eq!(client.read_timeout(Duration::from_millis(250)), None, "the lock is still here");
        }
        assert_eq!(cluster.migrate_keys(slot, from, to), 1);
        for client in &mut line {
            let code = client.read().error_code().to_owned();
            assert!(code == "TRYAGAIN" || code == "MOVED", "{code}");
        }
        // Between the two nodes: the old one sends on, the new one serves whoever was sent.
        assert_eq!(cmd!(a, "LOCK.RENEW", key, "A", 60_000).error_code(), "ASK");
        let mut new = cluster.node(to).connect();
        cmd!(new, "ASKING").ok();
        assert_eq!(cmd!(new, "LOCK.RENEW", key, "A", 60_000).int(), fence);
        cluster.finish_migration(slot, from, to);
        assert_eq!(cmd!(a, "LOCK.RENEW", key, "A", 60_000).error_code(), "MOVED");
        let mut b = waiter(cluster.node(to), key, "B");
        let holder = cmd!(new, "LOCK.INFO", key).field("holders").array()[0].clone();
        assert_eq!((holder.field("fence").int(), holder.field("holds").int()), (fence, 2));
        cmd!(new, "LOCK.RELEASE", key, "A", "ALL").int();
        assert!(b.read().int() > fence);
        assert_eq!(cluster.node(from).info("lock_waiters"), "0");
    }

    /// A slot whose keys are free, but waited for together, moves: those who wait are sent after it.
    fn b84_waiters_for_several_keys_follow(version) {
        let cluster = Cluster::start(version, 3);
        let slot = slot_of("{t}x");
        let from = cluster.node_for_slot(slot);
        let to = (from + 1) % 3;
        let node = cluster.node(from);
        let mut control = node.connect();
        cmd!(control, "LOCK.ACQUIRE", "{t}x", "A", 60_000).int();
        let mut both = node.connect();
        send!(both, "LOCK.MACQUIRE", 2, "{t}x", "{t}free", "B", 60_000, "WAIT", 0);
        until_waiting(node, "{t}free", 1);
        let mut behind = waiter(node, "{t}free", "C");
        cluster.migrate_slot(slot, from, to);
        for client in [&mut both, &mut behind] {
            let code = client.read().error_code().to_owned();
            assert!(code == "TRYAGAIN" || code == "MOVED", "{code}");
        }
        let mut new = cluster.node(to).connect();
        assert_eq!(holders(&mut new, "{t}x"), ["A"]);
        assert_eq!(holders(&mut new, "{t}free"), [""; 0]);
    }

    /// A lease tied to a connection of the old node is bounded by its ttl alone once it has moved.
    fn a_tie_does_not_move_with_its_slot(version) {
        let cluster = Cluster::start(version, 3);
        let slot = slot_of("k");
        let from = cluster.node_for_slot(slot);
        let to = (from + 1) % 3;
        let mut holder = cluster.node(from).connect();
        let fence = cmd!(holder, "LOCK.ACQUIRE", "k", "A", 60_000, "SESSION").int();
        cluster.migrate_slot(slot, from, to);
        holder.close();
        let mut new = cluster.node(to).connect();
        thread::sleep(Duration::from_millis(100));
        let info = cmd!(new, "LOCK.INFO", "k");
        let held = &info.field("holders").array()[0];
        assert_eq!((held.field("fence").int(), held.field("session").int()), (fence, 0));
    }

    /// Slots move to and fro while many work on their locks: nothing is held twice, and nobody hangs.
    fn b84_slots_move_to_and_fro_under_load(version) {
        move_slots_under_load(version, 24);
    }

    /// The same for long.
    #[ignore = "long: run by `make soak`"]
    fn soak_b84_slots_move_to_and_fro_under_load(version) {
        move_slots_under_load(version, 600);
    }

    /// A cluster that has failed serves nobody: those who wait are sent to look around, and what is tied stays so.
    fn waits_end_when_the_cluster_is_down(version) {
        let cluster = Cluster::start(version, 3);
        let home = cluster.node_for_key("k");
        let node = cluster.node(home);
        let mut holder = node.connect();
        let fence = cmd!(holder, "LOCK.ACQUIRE", "k", "A", 60_000, "SESSION").int();
        let mut b = waiter(node, "k", "B");
        let victim = cluster.node((home + 1) % 3);
        victim.stop_signal();
        // By the module, or by those servers that look for it themselves.
        let code = b.read().error_code().to_owned();
        assert!(code == "TRYAGAIN" || code == "CLUSTERDOWN", "{code}");
        let refused = cmd!(node.connect(), "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 0);
        assert_eq!(refused.error_code(), "CLUSTERDOWN");
        victim.resume();
        cluster.wait_until_ok();
        let mut control = node.connect();
        assert_eq!(cmd!(control, "LOCK.RENEW", "k", "A", 60_000).int(), fence);
        let mut c = waiter(node, "k", "C");
        holder.close();
        assert!(c.read().int() > fence, "the tie has outlived it");
    }

    /// A replica takes over in order: waiters of the old primary are sent on, and locks go on at the new one.
    fn b83_cluster_failover_with_waiters(version) {
        let cluster = Cluster::start(version, 3);
        let home = cluster.node_for_key("k");
        let old = cluster.node(home);
        let replica = add_replica(&cluster, version, home);
        let mut control = old.connect();
        let fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        let tag = "{k}2";
        cmd!(control, "LOCK.ACQUIRE", tag, "A", 60_000).int();
        let mut line = [waiter(old, "k", "B"), waiter(old, "k", "C"), waiter(old, tag, "D")];
        // One of them becomes due about when the old primary stops taking writes.
        cmd!(control, "LOCK.RENEW", tag, "A", 60).int();
        let mut asked = Instant::now() - SOON;
        eventually(SOON, || {
            // The nodes may drop the message while they still make their links.
            if asked.elapsed() > Duration::from_secs(3) {
                cmd!(replica.connect(), "CLUSTER", "FAILOVER").ok();
                asked = Instant::now();
            }
            replica.info("role") == "master"
        });
        for (index, client) in line.iter_mut().enumerate() {
            let answer = client.read();
            let sent_on = matches!(&answer, Reply::Error(text) if ["UNBLOCKED", "MOVED", "TRYAGAIN", "REDIRECT"]
                .iter().any(|code| text.starts_with(code)));
            assert!(sent_on || (index == 2 && answer.int() > 0), "{answer:?}");
        }
        let mut new = replica.connect();
        eventually(SOON, || !cmd!(new, "LOCK.INFO", "k").is_error());
        assert_eq!(cmd!(new, "LOCK.RENEW", "k", "A", 60_000).int(), fence);
        let mut next = waiter(&replica, "k", "B");
        cmd!(new, "LOCK.RELEASE", "k", "A").int();
        assert!(next.read().int() > fence);
        eventually(SOON, || old.info("role") == "slave");
        assert_eq!(old.info("lock_waiters"), "0");
        assert_eq!(old.info("lock_panics"), "0");
        assert_eq!(old.info("blocked_clients"), "0");
    }

    /// A primary of the cluster that dies: its replica takes over, with the locks.
    fn a_killed_primary_is_replaced(version) {
        let cluster = Cluster::start(version, 3);
        let home = cluster.node_for_key("k");
        let replica = add_replica(&cluster, version, home);
        let fence = cmd!(cluster.node(home).connect(), "LOCK.ACQUIRE", "k", "A", 60_000).int();
        redislock_testkit::wait_in_sync(cluster.node(home), &replica);
        cluster.node(home).kill9();
        eventually(SOON, || replica.info("role") == "master");
        let mut new = replica.connect();
        eventually(SOON, || !cmd!(new, "LOCK.INFO", "k").is_error());
        assert_eq!(cmd!(new, "LOCK.RENEW", "k", "A", 60_000).int(), fence);
        let mut next = waiter(&replica, "k", "B");
        cmd!(new, "LOCK.RELEASE", "k", "A").int();
        assert!(next.read().int() > fence);
    }
}

/// Tells the others to stop, also when the one that moves slots fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
