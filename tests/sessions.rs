//! Leases that end with a connection.

use redislock_testkit::{
    Client, Server, cmd, eventually, every_server, follow, holders, promote, send, until_waiting,
    wait_in_sync, waiters,
};
use std::process::{Command, Stdio};
use std::time::Duration;

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

/// Whether the only holder of a key is tied to a connection.
#[track_caller]
fn is_tied(client: &mut Client, key: &str) -> bool {
    cmd!(client, "LOCK.INFO", key).field("holders").array()[0].field("session").int() == 1
}

every_server! {
    /// A process that holds a lock is killed: whoever waits has it.
    fn the_lock_of_a_killed_process_is_handed_on(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        // A process whose connection is all it has: bash, which can talk to a socket.
        let script = format!(
            "exec 3<>/dev/tcp/127.0.0.1/{}; printf 'LOCK.ACQUIRE k A 60000 SESSION\\r\\n' >&3; read -r reply <&3; sleep 600 & wait",
            server.port()
        );
        let mut holder = Command::new("bash").args(["-c", &script]).stdin(Stdio::null()).spawn().expect("bash");
        eventually(SOON, || holders(&mut control, "k") == ["A"]);
        let mut next = waiter(&server, "k", "B");
        assert_eq!(next.read_timeout(Duration::from_millis(60)), None);
        // The sleeper has inherited the connection, so that both must go.
        kill_family(&mut holder);
        assert!(next.read().int() > 0);
        assert_eq!(holders(&mut control, "k"), ["B"]);
    }

    /// What ends is exactly what was tied to the connection that was killed.
    fn b109_exactly_the_killed_connections_locks_end(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let (mut one, mut two) = (server.connect(), server.connect());
        let id = one.client_id();
        for key in ["a", "a-b"] {
            cmd!(one, "LOCK.ACQUIRE", key, "X", 60_000, "SESSION").int();
        }
        cmd!(one, "LOCK.ACQUIRE", "untied", "X", 60_000).int();
        cmd!(two, "LOCK.ACQUIRE", "a-lock-b", "X", 60_000, "SESSION").int();
        cmd!(one, "LOCK.ACQUIRE", "shared", "X", 60_000, "SHARED", "SESSION").int();
        cmd!(two, "LOCK.ACQUIRE", "shared", "Y", 60_000, "SHARED", "SESSION").int();
        cmd!(one, "LOCK.MACQUIRE", 2, "m1", "m2", "X", 60_000, "SESSION").int();
        let mut line: Vec<Client> = ["a", "a-b", "m1", "m2"].iter().map(|key| waiter(&server, key, "N")).collect();
        let mut others: Vec<Client> =
            ["a-lock-b", "untied", "shared"].iter().map(|key| waiter(&server, key, "N")).collect();
        assert_eq!(server.info("lock_sessions"), "7");
        assert_eq!(cmd!(control, "CLIENT", "KILL", "ID", id).int(), 1);
        line.iter_mut().for_each(|next| assert!(next.read().int() > 0));
        for other in &mut others {
            assert_eq!(other.read_timeout(Duration::from_millis(30)), None);
        }
        assert_eq!(holders(&mut control, "shared"), ["Y"]);
        assert_eq!(holders(&mut control, "untied"), ["X"]);
        assert_eq!(server.info("lock_sessions"), "2");
        assert_eq!(server.info("lock_closures"), "5");
        // The owner learns of it at its next call.
        cmd!(control, "LOCK.RENEW", "a", "X", 1_000).nil();
        two.close();
        assert!(others[0].read().int() > 0);
        assert!(others[2].read().int() > 0);
    }

    /// The connection lives on through RESET, AUTH and SELECT, and so does the tie.
    fn b109_reset_auth_and_select_keep_the_tie(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "ACL", "SETUSER", "guest", "on", ">secret", "~*", "&*", "+@all").ok();
        let mut holder = server.connect();
        cmd!(holder, "LOCK.ACQUIRE", "k", "A", 60_000, "SESSION").int();
        let mut next = waiter(&server, "k", "B");
        assert_eq!(cmd!(holder, "RESET").text(), "RESET");
        cmd!(holder, "AUTH", "guest", "secret").ok();
        cmd!(holder, "SELECT", 3).ok();
        assert_eq!(next.read_timeout(Duration::from_millis(60)), None);
        assert!(is_tied(&mut control, "k"));
        holder.close();
        assert!(next.read().int() > 0);
    }

    /// The last command with SESSION decides; those without it leave the tie.
    fn b109_a_lock_is_tied_anew_on_another_connection(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let (mut one, mut two) = (server.connect(), server.connect());
        cmd!(one, "LOCK.ACQUIRE", "k", "A", 60_000, "SESSION").int();
        assert_eq!(cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).error_code(), "HELD");
        cmd!(control, "LOCK.RENEW", "k", "A", 60_000).int();
        cmd!(control, "LOCK.REENTER", "k", "A", 60_000);
        assert!(is_tied(&mut control, "k"), "without SESSION the tie stays");
        let mut next = waiter(&server, "k", "B");
        cmd!(two, "LOCK.RENEW", "k", "A", 60_000, "SESSION").int();
        one.close();
        assert_eq!(next.read_timeout(Duration::from_millis(60)), None, "the tie has moved");
        two.close();
        assert!(next.read().int() > 0, "all holds end with the connection");
        let mut three = server.connect();
        cmd!(three, "LOCK.REENTER", "r", "A", 60_000);
        cmd!(three, "LOCK.REENTER", "r", "A", 60_000, "SESSION");
        let mut after = waiter(&server, "r", "B");
        three.close();
        assert!(after.read().int() > 0);
    }

    /// A waiter's lease is tied to the connection that it waited on.
    fn a_waiters_lease_is_tied_to_its_connection(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        let mut second = server.connect();
        send!(second, "LOCK.ACQUIRE", "k", "B", 60_000, "WAIT", 0, "SESSION");
        until_waiting(&server, "k", 1);
        let mut third = waiter(&server, "k", "C");
        cmd!(control, "LOCK.RELEASE", "k", "A");
        assert!(second.read().int() > 0);
        assert!(is_tied(&mut control, "k"));
        second.close_hard();
        assert!(third.read().int() > 0);
        assert!(!is_tied(&mut control, "k"));
    }

    /// SESSION works in a transaction, and is an error in scripts, where nothing is changed by it.
    fn session_in_transactions_and_scripts(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let mut holder = server.connect();
        cmd!(holder, "MULTI").ok();
        cmd!(holder, "LOCK.ACQUIRE", "k", "A", 60_000, "SESSION");
        assert!(cmd!(holder, "EXEC").array()[0].int() > 0);
        assert!(is_tied(&mut control, "k"));
        let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'A', 60000, 'SESSION')";
        let refused = cmd!(control, "EVAL", script, 1, "s");
        assert!(refused.error().contains("SESSION"), "{refused:?}");
        assert_eq!(cmd!(control, "EXISTS", "s").int(), 0);
        let mut next = waiter(&server, "k", "B");
        holder.close();
        assert!(next.read().int() > 0);
    }

    /// The tie follows the lock through RENAME, MOVE and SWAPDB.
    fn the_tie_follows_the_lock(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let mut holder = server.connect();
        for key in ["renamed", "moved", "swapped"] {
            cmd!(holder, "LOCK.ACQUIRE", key, "A", 60_000, "SESSION").int();
        }
        cmd!(control, "RENAME", "renamed", "new-name").ok();
        assert_eq!(cmd!(control, "MOVE", "moved", 1).int(), 1);
        // Another lock takes the old name, and is not to be touched.
        cmd!(control, "LOCK.ACQUIRE", "renamed", "Z", 60_000).int();
        let mut next = waiter(&server, "new-name", "B");
        cmd!(control, "SWAPDB", 0, 2).ok();
        let other = |db: i32| {
            let mut client = server.connect();
            cmd!(client, "SELECT", db).ok();
            client
        };
        let (mut in_one, mut in_two) = (other(1), other(2));
        assert!(is_tied(&mut in_one, "moved"));
        assert!(is_tied(&mut in_two, "swapped"));
        assert!(is_tied(&mut in_two, "new-name"));
        holder.close();
        eventually(SOON, || holders(&mut in_one, "moved").is_empty());
        eventually(SOON, || holders(&mut in_two, "swapped").is_empty());
        eventually(SOON, || holders(&mut in_two, "new-name").is_empty());
        assert_eq!(holders(&mut in_two, "renamed"), ["Z"]);
        // The line stayed in its database, whose key is free now.
        assert!(next.read().int() > 0);
    }

    /// A tie is not kept through a restart, and does not go to replicas: the ttl alone bounds the lease then.
    fn ties_are_not_persisted(version) {
        let server = Server::builder(version).save().start();
        let replica = Server::builder(version).replica_of(&server).start();
        let mut holder = server.connect();
        let fence = cmd!(holder, "LOCK.ACQUIRE", "k", "A", 60_000, "SESSION").int();
        wait_in_sync(&server, &replica);
        assert!(!is_tied(&mut replica.connect(), "k"));
        server.restart();
        let mut control = server.connect();
        assert!(!is_tied(&mut control, "k"));
        promote(&replica);
        for server in [&server, &replica] {
            let mut client = server.connect();
            assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 60_000, "SESSION").int(), fence);
            assert!(is_tied(&mut server.connect(), "k"), "a command with SESSION ties it again");
            client.close();
            let mut control = server.connect();
            eventually(SOON, || holders(&mut control, "k").is_empty());
        }
    }

    /// On a server that was demoted and promoted again, ties of before mean nothing.
    fn ties_end_with_the_role(version) {
        let (one, two) = (Server::start(version), Server::start(version));
        let mut holder = one.connect();
        cmd!(holder, "LOCK.ACQUIRE", "k", "A", 60_000, "SESSION").int();
        follow(&two, &one);
        promote(&two);
        follow(&one, &two);
        assert_eq!(one.info("lock_sessions"), "0");
        promote(&one);
        let mut control = one.connect();
        holder.close();
        let mut client = one.connect();
        assert_eq!(cmd!(client, "PING").text(), "PONG");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(holders(&mut control, "k"), ["A"]);
    }
}

/// Kills a process and its children, with SIGKILL.
fn kill_family(parent: &mut std::process::Child) {
    let pid = parent.id();
    let children = Command::new("ps").args(["-o", "pid=", "--ppid", &pid.to_string()]).output().expect("ps");
    let children = String::from_utf8_lossy(&children.stdout).into_owned();
    parent.kill().expect("it runs");
    let kill: Vec<&str> = children.split_whitespace().collect();
    if !kill.is_empty() {
        let killed = Command::new("kill").arg("-9").args(&kill).status();
        assert!(killed.expect("kill").success());
    }
    parent.wait().expect("it ended");
}
