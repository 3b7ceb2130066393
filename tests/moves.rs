//! Locks that are deleted, moved, renamed, overwritten or reloaded while others wait for them.

use redislock_testkit::{
    Client, Server, Version, cmd, eventually, every_server, holders, send, until_blocked, waiters,
};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(20);

/// A connection on which this owner waits for the key in this database.
#[track_caller]
fn waiter_in(server: &Server, db: i32, key: &str, owner: &str) -> Client {
    let mut look = in_db(server, db);
    let before = waiters(&mut look, key).len();
    let mut client = in_db(server, db);
    send!(client, "LOCK.ACQUIRE", key, owner, 60_000, "WAIT", 0);
    eventually(SOON, || waiters(&mut look, key).len() == before + 1);
    client
}

#[track_caller]
fn waiter(server: &Server, key: &str, owner: &str) -> Client {
    waiter_in(server, 0, key, owner)
}

#[track_caller]
fn in_db(server: &Server, db: i32) -> Client {
    let mut client = server.connect();
    cmd!(client, "SELECT", db).ok();
    client
}

#[track_caller]
fn is_silent(client: &mut Client) {
    let reply = client.read_timeout(Duration::from_millis(60));
    assert_eq!(reply, None, "a waiter that has no turn is answered");
}

/// Takes a lock with a waiter behind it, runs `revoke`, and asserts that the waiter holds it then and that the former
/// holder is told that it lost it.
#[track_caller]
fn is_revoked_by(server: &Server, revoke: impl FnOnce(&mut Client)) {
    let mut control = server.connect();
    let fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
    let mut b = waiter(server, "k", "B");
    let mut c = waiter(server, "k", "C");
    revoke(&mut control);
    assert!(b.read().int() > fence);
    cmd!(control, "LOCK.RENEW", "k", "A", 60_000).nil();
    cmd!(control, "LOCK.RELEASE", "k", "A").nil();
    assert_eq!(holders(&mut control, "k"), ["B"]);
    is_silent(&mut c);
    cmd!(control, "LOCK.RELEASE", "k", "B").int();
    assert!(c.read().int() > 0);
    cmd!(control, "LOCK.RELEASE", "k", "C").int();
}

/// Whatever DUMP made of the key, as an argument.
#[track_caller]
fn dump(client: &mut Client, key: &str) -> Vec<u8> {
    cmd!(client, "DUMP", key).bytes().to_vec()
}

every_server! {
    /// Every way to delete a key revokes the lock, and the first waiter has it at once.
    fn b98_a_deleted_lock_is_handed_on(version) {
        let server = Server::start(version);
        is_revoked_by(&server, |client| assert_eq!(cmd!(client, "DEL", "k").int(), 1));
        is_revoked_by(&server, |client| assert_eq!(cmd!(client, "UNLINK", "k").int(), 1));
        is_revoked_by(&server, |client| cmd!(client, "FLUSHDB").ok());
        is_revoked_by(&server, |client| cmd!(client, "FLUSHDB", "ASYNC").ok());
        is_revoked_by(&server, |client| cmd!(client, "FLUSHALL").ok());
        is_revoked_by(&server, |client| cmd!(client, "FLUSHALL", "SYNC").ok());
        is_revoked_by(&server, |client| cmd!(client, "FLUSHALL", "ASYNC").ok());
        is_revoked_by(&server, |client| assert_eq!(cmd!(client, "EXPIRE", "k", -1).int(), 1));
        is_revoked_by(&server, |client| assert_eq!(cmd!(client, "PEXPIREAT", "k", 1).int(), 1));
        if version != Version::Redis62 {
            is_revoked_by(&server, |client| assert_eq!(cmd!(client, "EXPIREAT", "k", 1).int(), 1));
        }
        until_blocked(&server, 0);
        assert_eq!(server.info("lock_panics"), "0");
    }

    /// Also where nothing may block, or where it is a script that deletes.
    fn b78_a_lock_deleted_in_transactions_and_scripts(version) {
        let server = Server::start(version);
        is_revoked_by(&server, |client| {
            cmd!(client, "MULTI").ok();
            cmd!(client, "PING");
            cmd!(client, "DEL", "k");
            assert_eq!(cmd!(client, "EXEC").array().len(), 2);
        });
        is_revoked_by(&server, |client| {
            assert_eq!(cmd!(client, "EVAL", "return redis.call('DEL', KEYS[1])", 1, "k").int(), 1);
        });
        is_revoked_by(&server, |client| {
            cmd!(client, "EVAL", "redis.call('FLUSHDB') return 1", 0).int();
        });
        if version.has_functions() {
            let library = "#!lua name=d\nredis.register_function('d', function(keys) return redis.call('DEL', keys[1]) end)";
            let mut control = server.connect();
            cmd!(control, "FUNCTION", "LOAD", library);
            is_revoked_by(&server, |client| assert_eq!(cmd!(client, "FCALL", "d", 1, "k").int(), 1));
        }
        if version.has_guard() {
            let mut control = server.connect();
            cmd!(control, "LOCK.ACQUIRE", "guard", "G", 60_000).int();
            is_revoked_by(&server, |client| {
                assert_eq!(cmd!(client, "LOCK.GUARD", "guard", "G", "DEL", "k").int(), 1);
            });
        }
    }

    /// Deleted and taken again before its waiters could be looked at: they wait for the new holder.
    fn a_lock_deleted_and_taken_in_one_go(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        let mut b = waiter(&server, "k", "B");
        cmd!(control, "MULTI").ok();
        cmd!(control, "DEL", "k");
        cmd!(control, "LOCK.ACQUIRE", "k", "C", 60_000);
        let replies = cmd!(control, "EXEC");
        // Nobody gets in between: the one who waits is served first.
        assert!(replies.array()[1].is_nil(), "{replies:?}");
        assert!(b.read().int() > 0);
        assert_eq!(holders(&mut control, "k"), ["B"]);
    }

    /// Waiters are judged by what their database contains; ties and deadlines follow the data.
    fn b95_swapdb_and_move(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let mut in_one = in_db(&server, 1);
        // To a database where the key is free: the waiter is served at once, and A holds on, elsewhere.
        let mut a = server.connect();
        cmd!(a, "LOCK.ACQUIRE", "k", "A", 60_000, "SESSION").int();
        let mut b = waiter(&server, "k", "B");
        cmd!(control, "SWAPDB", 0, 1).ok();
        assert!(b.read().int() > 0);
        assert_eq!(holders(&mut in_one, "k"), ["A"]);
        assert_eq!(holders(&mut control, "k"), ["B"]);
        // MOVE does not overwrite; once the place is free it does move, and waiters there wait for who came.
        assert_eq!(cmd!(control, "MOVE", "k", 1).int(), 0);
        let mut c = waiter_in(&server, 1, "k", "C");
        cmd!(control, "LOCK.RELEASE", "k", "B").int();
        assert_eq!(cmd!(in_one, "MOVE", "k", 0).int(), 1);
        assert!(c.read().int() > 0, "its key is free");
        assert_eq!(holders(&mut control, "k"), ["A"]);
        let mut d = waiter(&server, "k", "D");
        a.close();
        assert!(d.read().int() > 0, "the tie has followed");
        // To a database where another one holds: the waiter waits for that one now.
        let mut x = in_db(&server, 2);
        cmd!(x, "LOCK.ACQUIRE", "k", "X", 60_000).int();
        let mut e = waiter(&server, "k", "E");
        cmd!(control, "SWAPDB", 0, 2).ok();
        is_silent(&mut e);
        assert_eq!(waiters(&mut control, "k"), ["E"]);
        cmd!(control, "LOCK.RELEASE", "k", "D").nil();
        is_silent(&mut e);
        assert_eq!(cmd!(control, "LOCK.RELEASE", "k", "X").int(), 0);
        assert!(e.read().int() > 0);
        // Deadlines as well: the lease that waited in database 3 ends here.
        let mut y = in_db(&server, 3);
        cmd!(y, "LOCK.ACQUIRE", "short", "Y", 300).int();
        cmd!(control, "LOCK.ACQUIRE", "short", "Z", 60_000).int();
        let mut g = waiter(&server, "short", "G");
        cmd!(control, "SWAPDB", 0, 3).ok();
        assert!(g.read().int() > 0);
        assert_eq!(server.info("lock_panics"), "0");
    }

    /// A lock goes with its key when that is renamed; who waits stays with the name.
    fn b96_rename(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let mut a = server.connect();
        let fence = cmd!(a, "LOCK.ACQUIRE", "k", "A", 60_000, "SESSION").int();
        cmd!(control, "LOCK.ACQUIRE", "k2", "X", 60_000).int();
        let mut b = waiter(&server, "k", "B");
        let mut c = waiter(&server, "k2", "C");
        assert_eq!(cmd!(control, "RENAMENX", "k", "k2").int(), 0);
        is_silent(&mut b);
        cmd!(control, "RENAME", "k", "k2").ok();
        assert!(b.read().int() > fence, "k is free");
        is_silent(&mut c);
        cmd!(control, "LOCK.RENEW", "k2", "X", 60_000).nil();
        assert_eq!(cmd!(control, "LOCK.RENEW", "k2", "A", 60_000).int(), fence);
        cmd!(control, "LOCK.RELEASE", "k", "B").int();
        // Onto a free name, with a line: those wait for who came.
        assert_eq!(cmd!(control, "RENAMENX", "k2", "k3").int(), 1);
        assert!(c.read().int() > 0);
        let mut d = waiter(&server, "k3", "D");
        is_silent(&mut d);
        a.close();
        assert!(d.read().int() > 0, "the tie has followed twice");
        // The deadline as well.
        cmd!(control, "LOCK.ACQUIRE", "short", "S", 300).int();
        cmd!(control, "RENAME", "short", "renamed").ok();
        let mut e = waiter(&server, "renamed", "E");
        assert!(e.read().int() > 0);
        assert_eq!(server.info("lock_panics"), "0");
    }

    /// A dump is restored as it was: owner, fence, deadline. It is for moving.
    fn b96_dump_and_restore(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        let payload = dump(&mut control, "k");
        cmd!(control, "LOCK.ACQUIRE", "k3", "B0", 60_000).int();
        let mut c = waiter(&server, "k3", "C");
        // Onto a key that is held: REPLACE revokes, and its line waits for what came.
        assert_eq!(cmd!(control, "RESTORE", "k3", 0, &payload).error_code(), "BUSYKEY");
        cmd!(control, "RESTORE", "k3", 0, &payload, "REPLACE").ok();
        is_silent(&mut c);
        cmd!(control, "LOCK.RENEW", "k3", "B0", 1_000).nil();
        assert_eq!(cmd!(control, "LOCK.RENEW", "k3", "A", 60_000).int(), fence);
        cmd!(control, "LOCK.RELEASE", "k3", "A").int();
        assert!(c.read().int() > fence);
        // Whatever lifetime RESTORE names, the lease is that of the payload.
        for ttl in [0, 600_000] {
            cmd!(control, "RESTORE", "copy", ttl, &payload).ok();
            eventually(SOON, || {
                let left = cmd!(control, "PTTL", "copy").int();
                (1..=60_000).contains(&left)
            });
            assert_eq!(holders(&mut control, "copy"), ["A"]);
            assert_eq!(cmd!(control, "DEL", "copy").int(), 1);
        }
        let later = redislock_testkit::now_ms() + 500_000;
        cmd!(control, "RESTORE", "copy", later, &payload, "ABSTTL").ok();
        eventually(SOON, || cmd!(control, "PTTL", "copy").int() <= 60_000);
        let mut d = waiter(&server, "copy", "D");
        cmd!(control, "LOCK.RELEASE", "copy", "A").int();
        assert!(d.read().int() > fence);
        // Restored after a release: it comes back, as documented.
        cmd!(control, "LOCK.RELEASE", "k", "A").int();
        cmd!(control, "RESTORE", "k", 0, &payload, "REPLACE").ok();
        assert_eq!(holders(&mut control, "k"), ["A"]);
        // A payload whose lease is over holds nothing.
        let over = dump_of_a_short_lease(&mut control);
        let mut e = waiter(&server, "k", "E");
        cmd!(control, "RESTORE", "k", 0, &over, "REPLACE").ok();
        assert!(e.read().int() > 0);
        assert_eq!(server.info("lock_panics"), "0");
    }

    /// A lease can't have two places.
    fn a_lock_is_not_copied(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        assert!(cmd!(control, "COPY", "k", "k2").is_error());
        assert_eq!(cmd!(control, "EXISTS", "k2").int(), 0);
    }

    /// EXPIRE and PERSIST change no lease, and what PTTL shows is set right again.
    fn expire_and_persist_change_no_lease(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        let mut b = waiter(&server, "k", "B");
        assert_eq!(cmd!(control, "PERSIST", "k").int(), 1);
        eventually(SOON, || (1..=60_000).contains(&cmd!(control, "PTTL", "k").int()));
        assert_eq!(cmd!(control, "PEXPIRE", "k", 1).int(), 1);
        eventually(SOON, || cmd!(control, "PTTL", "k").int() > 30_000);
        assert_eq!(cmd!(control, "EXPIRE", "k", 600).int(), 1);
        eventually(SOON, || cmd!(control, "PTTL", "k").int() <= 60_000);
        is_silent(&mut b);
        assert_eq!(holders(&mut control, "k"), ["A"]);
    }

    /// DEBUG RELOAD: locks are what was saved, and those who wait wait on.
    fn waiters_outlive_a_reload(version) {
        let server = Server::start(version);
        let mut control = server.connect();
        let fence = cmd!(control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        let mut b = waiter(&server, "k", "B");
        let mut c = waiter(&server, "k", "C");
        cmd!(control, "DEBUG", "RELOAD").ok();
        assert_eq!(cmd!(control, "LOCK.RENEW", "k", "A", 60_000).int(), fence);
        is_silent(&mut b);
        cmd!(control, "LOCK.RELEASE", "k", "A").int();
        assert!(b.read().int() > fence);
        // A lease that ends by time after a reload is seen, too.
        cmd!(control, "LOCK.RENEW", "k", "B", 400).int();
        cmd!(control, "DEBUG", "RELOAD").ok();
        assert!(c.read().int() > fence);
        // Reloaded without being saved: what the file does not know is not held any more.
        cmd!(control, "SAVE").ok();
        let fence = cmd!(control, "LOCK.ACQUIRE", "new", "A", 60_000).int();
        let mut d = waiter(&server, "new", "D");
        cmd!(control, "DEBUG", "RELOAD", "NOSAVE").ok();
        assert!(d.read().int() > fence);
        assert_eq!(server.info("lock_panics"), "0");
    }
}

/// The dump of a lock whose lease is over by the time it is used.
fn dump_of_a_short_lease(client: &mut Client) -> Vec<u8> {
    cmd!(client, "LOCK.ACQUIRE", "brief", "O", 40).int();
    let payload = dump(client, "brief");
    std::thread::sleep(Duration::from_millis(60));
    payload
}
