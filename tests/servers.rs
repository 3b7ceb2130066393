//! The module loads on every server, and the test kit can do what the other tests rely on.

use redislock_testkit::{Fsync, Server, cmd, every_server, promote, wait_in_sync};

every_server! {
    /// A lock is taken, refused and given back.
    fn the_module_loads_and_locks(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", "A", 60_000).int() > 0);
        cmd!(client, "LOCK.ACQUIRE", "k", "B", 60_000).nil();
        assert_eq!(cmd!(client, "TYPE", "k").text(), "redislock");
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 0);
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", "B", 60_000).int() > 0);
    }

    /// A setting that nobody knows stops the start, and the log says why.
    fn an_unknown_setting_stops_the_start(version) {
        let log = Server::builder(version).module_args(["no-such-setting", "1"]).try_start().unwrap_err();
        assert!(log.contains("no-such-setting"), "{log}");
    }

    /// A lock is there after a crash, and on a promoted replica, with its fence.
    fn a_lock_survives_a_crash_and_a_promotion(version) {
        let server = Server::builder(version).aof(Fsync::Always).start();
        let replica = Server::builder(version).replica_of(&server).start();
        let fence = cmd!(server.connect(), "LOCK.ACQUIRE", "k", "A", 60_000).int();
        wait_in_sync(&server, &replica);
        server.kill9();
        promote(&replica);
        server.restart();
        for server in [&server, &replica] {
            assert_eq!(cmd!(server.connect(), "LOCK.RENEW", "k", "A", 60_000).int(), fence);
        }
    }
}
