//! LOCK.GUARD: a command that runs only while its owner holds the lock, and as if its caller had sent it alone.

mod stream;

use std::fs;
use std::time::Duration;

use redislock_testkit::{
    Client, Cluster, Fsync, LockInfo, Reply, Server, Version, cmd, eventually, every_server, until_waiting,
    wait_in_sync,
};
use stream::{Stream, appended};

const SOON: Duration = Duration::from_secs(20);

fn say(client: &mut Client, line: &str) -> Reply {
    client.cmd(&line.split(' ').collect::<Vec<_>>())
}

/// A line, guarded by owner A and key `k`.
fn guarded(client: &mut Client, line: &str) -> Reply {
    say(client, &format!("LOCK.GUARD k A {line}"))
}

/// What the tests below come to where there is no guard: a clear error, whoever holds, and nothing runs.
fn lacks_guard(version: Version) -> bool {
    if !version.has_guard() {
        let server = Server::start(version);
        let mut client = server.connect();
        for held in [false, true] {
            if held {
                cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
            }
            let refusal = guarded(&mut client, "SET data v");
            assert_eq!(refusal.error(), "ERR LOCK.GUARD needs Redis 7.0 or later, or Valkey");
        }
        cmd!(client, "GET", "data").nil();
    }
    !version.has_guard()
}

every_server! {
    fn a_guarded_command_runs_only_while_its_owner_holds(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "DEBUG", "SET-ACTIVE-EXPIRE", 0).ok();
        let refused = |client: &mut Client, why: &str| {
            assert_eq!(guarded(client, "SET data wrong").error_code(), "NOTHELD", "{why}");
            assert_eq!(guarded(client, "NO-SUCH-COMMAND").error_code(), "NOTHELD", "{why}");
        };
        let runs = |client: &mut Client| {
            guarded(client, "SET data v").ok();
            assert_eq!(guarded(client, "GET data").text(), "v");
            let before = cmd!(client, "DUMP", "k");
            assert_eq!(guarded(client, "STRLEN data").int(), 1);
            assert_eq!(cmd!(client, "DUMP", "k"), before, "a guard changes nothing of its lock");
        };
        refused(&mut client, "nobody holds");
        cmd!(client, "LOCK.ACQUIRE", "k", "B", 50_000).int();
        refused(&mut client, "another one holds");
        cmd!(client, "LOCK.RELEASE", "k", "B").int();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        runs(&mut client);
        cmd!(client, "LOCK.REENTER", "k", "A", 50_000).array();
        cmd!(client, "LOCK.RELEASE", "k", "A").int();
        runs(&mut client);
        cmd!(client, "LOCK.RELEASE", "k", "A").int();
        refused(&mut client, "it was released");
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 20).int();
        std::thread::sleep(Duration::from_millis(40));
        refused(&mut client, "it has lapsed, though it still lies in memory");
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "LOCK.BREAK", "k").int();
        refused(&mut client, "it was revoked");
        for owner in ["A", "B"] {
            cmd!(client, "LOCK.ACQUIRE", "k", owner, 50_000, "SHARED", "LIMIT", 2).int();
        }
        runs(&mut client);
        say(&mut client, "LOCK.GUARD k B SET data v").ok();
        cmd!(client, "LOCK.RELEASE", "k", "A").int();
        refused(&mut client, "the other one holds on");
        assert_eq!(cmd!(client, "GET", "data").text(), "v", "nothing that was refused has run");
    }

    /// From the reply alone nobody could tell that the command was guarded, in either protocol.
    fn the_reply_is_that_of_the_command(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "HSET", "hash", "f1", "v1", "f2", "v2").int();
        cmd!(client, "ZADD", "zset", "1.5", "one").int();
        cmd!(client, "SADD", "set", "member").int();
        cmd!(client, "XADD", "events", "1-1", "f", "v").text();
        cmd!(client, "SET", "bytes", b"\0\r\n\xff").ok();
        let lines = [
            "PING", "GET bytes", "GET missing", "HGETALL hash", "HGET hash f1", "ZSCORE zset one",
            "ZRANGE zset 0 -1 WITHSCORES", "SMEMBERS set", "XRANGE events - +", "LRANGE missing 0 -1",
            "EXISTS hash missing", "INCR hash", "GET", "NO-SUCH-COMMAND a", "LPOP missing", "LPOP missing 2",
            "HELLO", "CONFIG GET maxmemory", "TYPE k", "OBJECT ENCODING hash", "LOCK.RENEW other B 5",
            "LOCK.MRENEW 2 other another B 5", "SET hash v NX", "SET hash v XX GET", "COPY set set",
        ];
        for protocol in [2, 3] {
            client.hello(protocol);
            for line in lines {
                let words: Vec<&str> = line.split(' ').collect();
                let alone = client.raw(&words);
                let within = client.raw(&[&["LOCK.GUARD", "k", "A"], &words[..]].concat());
                let [alone, within] = [alone, within].map(|frame| String::from_utf8_lossy(&frame).into_owned());
                if matches!(words[0], "HELLO" | "CONFIG") {
                    assert!(within.starts_with("-ERR "), "{line}: {within}");
                } else {
                    assert_eq!(within, alone, "{line}, RESP{protocol}");
                }
            }
        }
    }

    fn what_scripts_may_not_run_is_refused_and_nothing_blocks(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "SET", "data", "v").ok();
        let id = client.client_id();
        for line in [
            "MULTI", "EXEC", "DISCARD", "WATCH k", "UNWATCH", "SUBSCRIBE x", "PSUBSCRIBE x", "MONITOR", "SYNC",
            "PSYNC ? -1", "EVAL return(1) 0", "FCALL f 0", "SCRIPT FLUSH", "FUNCTION FLUSH", "AUTH secret",
            "HELLO 3", "RESET", "QUIT", "CLIENT SETNAME x", "CLIENT REPLY OFF", "SHUTDOWN NOSAVE", "DEBUG SLEEP 0",
            "CONFIG SET maxmemory 1", "REPLICAOF 127.0.0.1 1", "SLAVEOF 127.0.0.1 1", "FAILOVER", "SAVE", "BGSAVE",
            "BGREWRITEAOF", "MODULE LIST", "ACL SETUSER x", "SLOWLOG RESET", "LATENCY RESET", "PFSELFTEST",
            "LOCK.GUARD k A SET data x", "lock.guard k A lock.guard k A SET data x",
        ] {
            let reply = guarded(&mut client, line);
            assert_eq!(reply.error_code(), "ERR", "{line}");
            let reason = reply.error();
            assert!(
                ["not allowed", "can't guard"].iter().any(|words| reason.contains(words)),
                "{line}: {reason}"
            );
        }
        for line in ["BLPOP none 0", "BRPOPLPUSH none other 0", "XREAD BLOCK 0 STREAMS none $", "BZPOPMIN none 0"] {
            let reply = guarded(&mut client, line);
            assert!(reply.is_nil() || reply.is_error(), "{line}: {reply:?}");
        }
        assert!(guarded(&mut client, "LOCK.APPLY k record").error().contains("internal"));
        guarded(&mut client, "LOCK.ACQUIRE k B 500 WAIT 0").nil();
        assert_eq!(client.client_id(), id, "the connection is as it was");
        assert_eq!(cmd!(client, "GET", "data").text(), "v");
        assert_eq!(client.info("role").as_deref(), Some("master"));
        assert_eq!(client.info("maxmemory").as_deref(), Some("0"));
    }

    /// A guard in a guard in a guard: the server looks for keys before it runs the command.
    fn guards_within_guards_are_refused_however_deep(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let guard = ["LOCK.GUARD", "k", "A"];
        let deep = [guard.repeat(20_000), vec!["PING"]].concat();
        assert_eq!(client.cmd(&deep).error_code(), "ERR");
        let keys = client.cmd(&[&["COMMAND", "GETKEYS"], &deep[..]].concat());
        assert_eq!(keys.texts(), ["k"]);
    }

    /// The access rules are those of the caller: for the command, for its keys, and for what it does to them.
    fn b101_the_inner_command_runs_with_the_rights_of_its_caller(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "LOCK.ACQUIRE", "secret", "A", 50_000).int();
        cmd!(client, "SET", "ro", "v").ok();
        say(
            &mut client,
            "ACL SETUSER u on nopass ~k ~data ~d:* %R~ro -@all +lock.guard +set +get +mset +copy +eval +multi +exec \
             +publish +flushall &news",
        )
        .ok();
        let mut user = server.connect();
        say(&mut user, "AUTH u nothing").ok();
        for line in ["SET data v", "GET data", "MSET d:1 v d:2 v", "GET ro", "PUBLISH news x", "COPY ro d:3"] {
            assert!(!guarded(&mut user, line).is_error(), "{line}");
        }
        for line in [
            "SET other v", "GET other", "DEL data", "LOCK.RELEASE k A", "MSET d:1 w other w", "MSET other w d:1 w",
            "SET ro w", "COPY d:1 ro", "PUBLISH gossip x", "COPY data other", "CLUSTER RESET",
        ] {
            let reply = guarded(&mut user, line);
            let code = reply.error_code();
            assert!(code == "NOPERM" || reply.error().contains("administrators"), "{line}: {reply:?}");
        }
        let stranger = say(&mut user, "LOCK.GUARD secret A SET data w");
        assert_eq!(stranger.error_code(), "NOPERM", "the lock is a key too");
        // The same from within a script and a transaction.
        let script = "return redis.pcall('LOCK.GUARD', 'k', 'A', unpack(ARGV))";
        let mut evaluate = |words: &[&str]| user.cmd(&[&["EVAL", script, "0"], words].concat());
        evaluate(&["SET", "data", "v"]).ok();
        for words in [&["SET", "other", "w"][..], &["DEL", "data"], &["SET", "ro", "w"]] {
            let reply = evaluate(words);
            let says = |text| reply.error().contains(text);
            assert!(says("permission") || says("can't access") || says("can't run"), "{words:?}: {reply:?}");
        }
        cmd!(user, "MULTI").ok();
        assert_eq!(guarded(&mut user, "SET data v").text(), "QUEUED");
        assert_eq!(guarded(&mut user, "SET other w").error_code(), "NOPERM");
        assert_eq!(cmd!(user, "EXEC").error_code(), "EXECABORT");
        // A user who may send the guard, but loses what it guards.
        say(&mut client, "ACL SETUSER u -set").ok();
        assert_eq!(guarded(&mut user, "SET data w").error_code(), "NOPERM");
        say(&mut client, "ACL SETUSER u +set -lock.guard").ok();
        assert_eq!(guarded(&mut user, "SET data w").error_code(), "NOPERM");
        for (key, value) in [("data", "v"), ("ro", "v"), ("d:1", "v"), ("d:3", "v")] {
            assert_eq!(cmd!(client, "GET", key).text(), value, "{key}");
        }
        cmd!(client, "GET", "other").nil();
    }

    /// COMMAND GETKEYS tells all keys, so that clients, proxies, access rules and clusters know them.
    fn the_keys_of_the_inner_command_are_known(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for (line, keys) in [
            ("SET data v", &["k", "data"][..]),
            ("MSET a 1 b 2", &["k", "a", "b"]),
            ("PING", &["k"]),
            ("NO-SUCH-COMMAND a b", &["k"]),
            ("GET", &["k"]),
            ("XREAD COUNT 1 STREAMS a b 0 0", &["k", "a", "b"]),
            ("SINTERSTORE to a b", &["k", "to", "a", "b"]),
            ("EVAL script 2 a b c", &["k", "a", "b"]),
            ("OBJECT ENCODING a", &["k", "a"]),
            ("LOCK.MACQUIRE 2 a b B 500", &["k", "a", "b"]),
            ("LOCK.MACQUIRE 3 a b B 500 WAIT 5", &["k", "a", "b", "B"]),
            ("LOCK.MACQUIRE 2 a a B 500", &["k"]),
            ("LOCK.INFO a", &["k", "a"]),
        ] {
            let line: Vec<&str> = line.split(' ').collect();
            let reply = client.cmd(&[&["COMMAND", "GETKEYS", "LOCK.GUARD", "k", "A"], &line[..]].concat());
            assert_eq!(reply.texts(), keys, "{line:?}");
        }
        cmd!(client, "EXISTS", "k").int();
    }

    fn oom_applies_as_if_it_were_sent_alone(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "SET", "data", "v").ok();
        cmd!(client, "CONFIG", "SET", "maxmemory", 1).ok();
        assert_eq!(guarded(&mut client, "SET data w").error_code(), "OOM");
        assert_eq!(guarded(&mut client, "LOCK.ACQUIRE other B 500").error_code(), "OOM");
        assert_eq!(guarded(&mut client, "GET data").text(), "v");
        assert_eq!(guarded(&mut client, "LOCK.RENEW k A 50000").int(), cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int());
        assert_eq!(guarded(&mut client, "DEL data").int(), 1);
    }

    fn readonly_noreplicas_and_misconf_apply_as_if_it_were_sent_alone(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::builder(version).save().start();
        let replica = Server::builder(version).replica_of(&server).start();
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "SET", "data", "v").ok();
        wait_in_sync(&server, &replica);
        assert_eq!(guarded(&mut replica.connect(), "SET data w").error_code(), "READONLY");
        cmd!(client, "CONFIG", "SET", "min-replicas-to-write", 2).ok();
        assert_eq!(guarded(&mut client, "SET data w").error_code(), "NOREPLICAS");
        cmd!(client, "CONFIG", "SET", "min-replicas-to-write", 0).ok();
        // The dump can't take the place of a folder.
        fs::create_dir_all(server.dir().join("dump.rdb/in-the-way")).unwrap();
        // The image for the replica may still be on its way.
        eventually(SOON, || !cmd!(client, "BGSAVE").is_error());
        eventually(SOON, || client.info("rdb_last_bgsave_status").as_deref() == Some("err"));
        assert_eq!(guarded(&mut client, "SET data w").error_code(), "MISCONF");
        cmd!(client, "CONFIG", "SET", "stop-writes-on-bgsave-error", "no").ok();
        guarded(&mut client, "SET data x").ok();
        wait_in_sync(&server, &replica);
        assert_eq!(cmd!(replica.connect(), "GET", "data").text(), "x");
    }

    /// Replicas and the AOF get what the inner command did, and nothing of the guard.
    fn only_the_effect_of_the_inner_command_travels(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::builder(version).aof(Fsync::Always).start();
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let mut stream = Stream::of(&server);
        let before = appended(&server).len();
        guarded(&mut client, "SET data v").ok();
        assert_eq!(guarded(&mut client, "GET data").text(), "v");
        assert_eq!(guarded(&mut client, "DEL missing").int(), 0);
        assert!(guarded(&mut client, "INCR data").is_error());
        assert_eq!(say(&mut client, "LOCK.GUARD k B SET data w").error_code(), "NOTHELD");
        guarded(&mut client, "EXPIRE data 0").int();
        guarded(&mut client, "LOCK.REENTER k A 50000").array();
        cmd!(client, "MULTI").ok();
        guarded(&mut client, "INCR number").text();
        guarded(&mut client, "LOCK.RELEASE k A").text();
        guarded(&mut client, "LOCK.RELEASE k A").text();
        guarded(&mut client, "INCR number").text();
        let replies = cmd!(client, "EXEC");
        assert_eq!(replies.array()[..3], [Reply::Int(1), Reply::Int(1), Reply::Int(0)]);
        assert_eq!(replies.array()[3].error_code(), "NOTHELD");
        let lone = ["SET data v", "DEL data", "k: A alone x2"];
        let unit = ["MULTI", "INCR number", "k: A alone x1", "k: A gone", "EXEC"];
        let expected = [&lone[..], &unit[..]].concat();
        // A lone effect may stand in a unit of its own, and expiry in the past may be told as one or the other.
        let plain = |told: Vec<String>| {
            let text = told.join("\n").replace("UNLINK data", "DEL data");
            let mut text = text.replace("MULTI\nDEL data\nEXEC", "DEL data");
            for effect in lone {
                text = text.replace(&format!("MULTI\n{effect}\nEXEC"), effect);
            }
            text
        };
        assert_eq!(plain(stream.told()), expected.join("\n"));
        assert_eq!(plain(appended(&server).split_off(before)), expected.join("\n"));
    }

    fn it_stands_in_transactions_and_its_effect_is_watched(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::start(version);
        let [mut client, mut other] = [(); 2].map(|()| server.connect());
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let mut increments = |client: &mut Client, meanwhile: &str| {
            cmd!(client, "WATCH", "data", "k").ok();
            guarded(&mut other, meanwhile);
            cmd!(client, "MULTI").ok();
            guarded(client, "INCR data").text();
            cmd!(client, "EXEC")
        };
        assert_eq!(increments(&mut client, "GET data").ints(), [1], "a look disturbs nobody");
        increments(&mut client, "SET data 5").nil();
        assert_eq!(increments(&mut client, "INCR elsewhere").ints(), [6]);
        increments(&mut client, "LOCK.RENEW k A 40000").nil();
        // Another database has keys of its own.
        cmd!(client, "SELECT", 3).ok();
        assert_eq!(guarded(&mut client, "SET data x").error_code(), "NOTHELD");
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        guarded(&mut client, "SET data x").ok();
        assert_eq!(cmd!(client, "GET", "data").text(), "x");
        cmd!(client, "SELECT", 0).ok();
        assert_eq!(cmd!(client, "GET", "data").text(), "6");
    }

    fn it_runs_from_scripts(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let call = "return redis.call('LOCK.GUARD', KEYS[1], ARGV[1], 'SET', KEYS[2], 'v')";
        cmd!(client, "EVAL", call, 2, "k", "data", "A").ok();
        let refused = cmd!(client, "EVAL", call, 2, "k", "data", "B");
        assert_eq!(refused.error_code(), "NOTHELD");
        let nested = "return redis.pcall('LOCK.GUARD', KEYS[1], 'A', 'EVAL', 'return 1', '0')";
        assert!(cmd!(client, "EVAL", nested, 1, "k").is_error());
        let map = "return redis.call('LOCK.GUARD', KEYS[1], 'A', 'LRANGE', KEYS[2], '0', '-1')";
        cmd!(client, "RPUSH", "list", "a", "b").int();
        assert_eq!(cmd!(client, "EVAL", map, 2, "k", "list").texts(), ["a", "b"]);
        let library = "#!lua name=lib\nredis.register_function('f', function(keys, args) \
                       return redis.call('LOCK.GUARD', keys[1], args[1], 'INCR', keys[2]) end)";
        cmd!(client, "FUNCTION", "LOAD", library).text();
        assert_eq!(cmd!(client, "FCALL", "f", 2, "k", "count", "A").int(), 1);
        assert_eq!(cmd!(client, "FCALL", "f", 2, "k", "count", "B").error_code(), "NOTHELD");
        assert_eq!(cmd!(client, "GET", "count").text(), "1");
    }

    /// Our own commands can be guarded, also where they end the very lock that guards them.
    fn commands_of_the_module_can_be_guarded(version) {
        if lacks_guard(version) {
            return;
        }
        let server = Server::start(version);
        let [mut client, mut waiter] = [(); 2].map(|()| server.connect());
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        assert_eq!(guarded(&mut client, "LOCK.RENEW k A 60000").int(), fence);
        assert_eq!(guarded(&mut client, "LOCK.ACQUIRE k A 60000").error_code(), "HELD");
        assert!(guarded(&mut client, "LOCK.MACQUIRE 2 a b A 60000").int() > fence);
        assert_eq!(LockInfo::read(&guarded(&mut client, "LOCK.INFO a")).unwrap().holders.len(), 1);
        assert_eq!(guarded(&mut client, "LOCK.ACQUIRE c A 5000 SESSION").error_code(), "ERR");
        cmd!(client, "LOCK.INFO", "c").nil();
        for ending in ["LOCK.RELEASE k A", "DEL k", "LOCK.BREAK k", "RENAME k away", "SET k v", "FLUSHALL"] {
            waiter.send(&["LOCK.ACQUIRE", "k", "B", "50000", "WAIT", "0"]);
            until_waiting(&server, "k", 1);
            let reply = guarded(&mut client, ending);
            assert!(!reply.is_error(), "{ending}: {reply:?}");
            let told = waiter.read();
            match ending {
                "SET k v" => assert_eq!(told.error_code(), "WRONGTYPE"),
                _ => assert!(told.int() > fence, "{ending}"),
            }
            cmd!(client, "DEL", "k").int();
            cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        }
    }

    /// The slot of an inner key is looked at before anything runs.
    fn b45_an_inner_key_in_another_slot_is_refused(version) {
        if lacks_guard(version) {
            return;
        }
        let cluster = Cluster::start(version, 2);
        let mut client = cluster.connect_for("k");
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let elsewhere = (0..).map(|n| format!("data{n}")).find(|key| {
            cluster.node_for_key(key) != cluster.node_for_key("k")
        });
        let here = (0..).map(|n| format!("data{n}")).find(|key| {
            cluster.node_for_key(key) == cluster.node_for_key("k")
        });
        for key in [elsewhere.unwrap(), here.unwrap()] {
            let reply = guarded(&mut client, &format!("SET {key} w"));
            assert_eq!(reply.error_code(), "CROSSSLOT", "{key}");
            let reply = guarded(&mut client, &format!("MSET {{k}}1 w {key} w"));
            assert_eq!(reply.error_code(), "CROSSSLOT", "{key}");
            cmd!(cluster.connect_for(&key), "EXISTS", &key).int();
            assert_eq!(cmd!(cluster.connect_for(&key), "EXISTS", &key).int(), 0);
        }
        guarded(&mut client, "MSET {k}1 v {k}2 v").ok();
        guarded(&mut client, "PING").text();
        let other = cluster.nodes().iter().position(|node| node.port() != cluster.node(cluster.node_for_key("k")).port());
        let mut other = cluster.node(other.unwrap()).connect();
        assert_eq!(guarded(&mut other, "SET {k}1 w").error_code(), "MOVED");
        assert_eq!(guarded(&mut other, "PING").error_code(), "MOVED");
        for line in ["CLUSTER RESET", "CLUSTER DELSLOTS 1", "CLUSTER FAILOVER TAKEOVER"] {
            assert!(guarded(&mut client, line).error().contains("administrators"), "{line}");
        }
        assert_eq!(cmd!(client, "GET", "{k}1").text(), "v");
    }
}
