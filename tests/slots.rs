//! A node of a cluster touches the keys of the slots that it serves, and while a command runs, of that command's slot
//! only: newer servers look for every key there. What is owed elsewhere is done right after it.

use std::time::Duration;

use redislock_testkit::{
    Client, Cluster, Reply, Version, cmd, eventually, every_server, holders, send, slot_of, until_blocked,
    until_waiting,
};

const SOON: Duration = Duration::from_secs(20);

/// Sends several commands in one piece, so that nothing comes between them; returns the answers.
fn at_once(client: &mut Client, lines: &[String]) -> Vec<Reply> {
    let mut batch = Vec::new();
    for line in lines {
        let words: Vec<_> = line.split(' ').collect();
        batch.extend(format!("*{}\r\n", words.len()).bytes());
        words.iter().for_each(|word| batch.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    }
    client.send_raw(&batch);
    lines.iter().map(|_| client.read()).collect()
}

/// Every key of the node lies in its own slot.
fn is_in_order(cluster: &Cluster, node: usize, keys: &[&str]) {
    let mut client = cluster.node(node).connect();
    assert_eq!(cmd!(client, "DBSIZE").int(), i64::try_from(keys.len()).unwrap());
    for key in keys {
        assert_eq!(cmd!(client, "EXISTS", key).int(), 1, "{key}");
        assert_eq!(cmd!(client, "CLUSTER", "COUNTKEYSINSLOT", slot_of(key)).int(), 1, "the slot of {key}");
    }
}

fn single(version: Version) -> Cluster {
    Cluster::start(version, 1)
}

every_server! {
    /// A key has moved away, and before the node has looked at its line, a command for another key comes.
    fn b84_a_command_for_another_slot_grants_nothing_that_has_moved(version) {
        let cluster = Cluster::start(version, 2);
        let from = cluster.node_for_key("k");
        let to = 1 - from;
        let mut client = cluster.node(from).connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let mut waiter = cluster.node(from).connect();
        send!(waiter, "LOCK.ACQUIRE", "k", "B", 50_000, "WAIT", 0);
        until_waiting(cluster.node(from), "k", 1);
        cluster.begin_migration(slot_of("k"), from, to);
        let other = (0..).map(|n| format!("other{n}")).find(|key| cluster.node_for_key(key) == from).unwrap();
        // Same slot, and there already: served here while the slot moves.
        let port = cluster.node(to).port();
        let replies = at_once(&mut client, &[
            format!("MIGRATE 127.0.0.1 {port} k 0 10000"),
            format!("LOCK.ACQUIRE {other} C 50000"),
        ]);
        assert_eq!(replies[0].text(), "OK");
        assert!(replies[1].int() > fence);
        assert!(matches!(waiter.read().error_code(), "TRYAGAIN" | "MOVED"));
        cluster.finish_migration(slot_of("k"), from, to);
        assert_eq!(cmd!(cluster.node(to).connect(), "LOCK.RENEW", "k", "A", 50_000).int(), fence);
        is_in_order(&cluster, to, &["k"]);
        is_in_order(&cluster, from, &[&other]);
    }

    /// The same with a command for a key of the very slot that moves.
    fn b84_a_command_for_the_same_slot_grants_nothing_that_has_moved(version) {
        let cluster = Cluster::start(version, 2);
        let from = cluster.node_for_key("{k}");
        let to = 1 - from;
        let mut client = cluster.node(from).connect();
        let fences = ["{k}1", "{k}2"].map(|key| cmd!(client, "LOCK.ACQUIRE", key, "A", 50_000).int());
        let mut waiter = cluster.node(from).connect();
        send!(waiter, "LOCK.ACQUIRE", "{k}1", "B", 50_000, "WAIT", 0);
        until_waiting(cluster.node(from), "{k}1", 1);
        cluster.begin_migration(slot_of("{k}"), from, to);
        let port = cluster.node(to).port();
        let replies = at_once(&mut client, &[
            format!("MIGRATE 127.0.0.1 {port} {{k}}1 0 10000"),
            "LOCK.RENEW {k}2 A 50000".to_owned(),
        ]);
        assert_eq!((replies[0].text(), replies[1].int()), ("OK", fences[1]));
        assert!(matches!(waiter.read().error_code(), "TRYAGAIN" | "MOVED"));
        cluster.migrate_keys(slot_of("{k}"), from, to);
        cluster.finish_migration(slot_of("{k}"), from, to);
        let mut client = cluster.node(to).connect();
        assert_eq!(cmd!(client, "LOCK.MRENEW", 2, "{k}1", "{k}2", "A", 50_000).ints(), fences);
        assert_eq!(cmd!(cluster.node(from).connect(), "DBSIZE").int(), 0);
    }

    /// A connection ends that held locks in many slots: each ends, whichever slot the next command is for, and those
    /// who wait are served in the slots where they wait.
    fn the_end_of_a_session_reaches_every_slot(version) {
        let cluster = single(version);
        let node = cluster.node(0);
        let keys = ["a", "b", "c", "d", "e"];
        let [mut client, mut session] = [(); 2].map(|()| node.connect());
        let id = session.client_id();
        for key in keys {
            cmd!(session, "LOCK.ACQUIRE", key, "A", 50_000, "SESSION").int();
        }
        let mut waiters: Vec<Client> = keys[1..]
            .iter()
            .map(|key| {
                let mut waiter = node.connect();
                send!(waiter, "LOCK.ACQUIRE", key, "B", 50_000, "WAIT", 0);
                waiter
            })
            .collect();
        until_blocked(node, 4);
        let replies = at_once(&mut client, &[
            format!("CLIENT KILL ID {id}"),
            "LOCK.ACQUIRE a C 50000".to_owned(),
            "LOCK.ACQUIRE b C 50000".to_owned(),
            "LOCK.RENEW c A 50000".to_owned(),
        ]);
        assert!(replies[1].int() > 0, "a is free the moment that the session ends");
        assert!(replies[2].is_nil() && replies[3].is_nil(), "b was waited for, c is no longer held by A: {replies:?}");
        for waiter in &mut waiters {
            assert!(waiter.read().int() > 0);
        }
        let held: Vec<_> = keys.iter().map(|key| holders(&mut client, *key).join("+")).collect();
        assert_eq!(held, ["C", "B", "B", "B", "B"]);
        is_in_order(&cluster, 0, &keys);
    }

    /// Waits that end, and locks that are deleted, while commands for other slots go on without a pause.
    fn lines_of_other_slots_are_served_between_commands(version) {
        let cluster = single(version);
        let node = cluster.node(0);
        let mut client = node.connect();
        for round in 0..20 {
            cmd!(client, "LOCK.ACQUIRE", "a", "A", 50_000, "SHARED").int();
            cmd!(client, "LOCK.ACQUIRE", "b", "A", 50_000).int();
            let [mut writer, mut reader, mut next] = [(); 3].map(|()| node.connect());
            send!(writer, "LOCK.ACQUIRE", "a", "W", 50_000, "WAIT", 5);
            send!(next, "LOCK.ACQUIRE", "b", "N", 50_000, "WAIT", 0);
            until_waiting(node, "b", 1);
            send!(reader, "LOCK.ACQUIRE", "a", "R", 50_000, "SHARED", "WAIT", 0);
            let lines: Vec<String> = (0..50).map(|n| format!("LOCK.ACQUIRE key{n} C 50000")).collect();
            let deletion = [vec!["DEL b".to_owned()], lines].concat();
            assert!(at_once(&mut client, &deletion).iter().all(|reply| reply.int() > 0));
            writer.read().nil();
            assert!(reader.read().int() > 0 && next.read().int() > 0, "round {round}");
            eventually(SOON, || holders(&mut client, "a") == ["A", "R"] && holders(&mut client, "b") == ["N"]);
            let keys: Vec<String> = (0..50).map(|n| format!("key{n}")).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).chain(["a", "b"]).collect();
            is_in_order(&cluster, 0, &keys);
            cmd!(client, "FLUSHALL").ok();
        }
    }
}
