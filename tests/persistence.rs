//! Locks on disk and in payloads: dumps, append-only files, DUMP and RESTORE, and the native time to live.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redislock_testkit::{
    Builder, Client, Clock, Fsync, Holder, LockInfo, Server, Version, cmd, eventually, every_server, now_ms,
    promote, wait_in_sync,
};

const SOON: Duration = Duration::from_secs(20);

/// The ways in which a server keeps its data.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Keeps {
    Rdb,
    AofWithPreamble,
    PlainAof,
}

const ALL_WAYS: [Keeps; 3] = [Keeps::Rdb, Keeps::AofWithPreamble, Keeps::PlainAof];

impl Keeps {
    fn builder(self, version: Version) -> Builder {
        let builder = Server::builder(version);
        match self {
            Keeps::Rdb => builder.save(),
            Keeps::AofWithPreamble => builder.aof(Fsync::Always).aof_preamble(true),
            Keeps::PlainAof => builder.aof(Fsync::Always).aof_preamble(false),
        }
    }
}

/// Makes one lock of every kind.
fn make_locks(client: &mut Client) {
    cmd!(client, "LOCK.ACQUIRE", "plain", "A", 50_000).int();
    cmd!(client, "LOCK.ACQUIRE", "odd \0\r\n\u{ff}", b"\0\xff\r\n{}", 60_000).int();
    for hold in 1..=3 {
        assert_eq!(cmd!(client, "LOCK.REENTER", "nested", "A", 10_000 * hold).ints()[0], hold);
    }
    for owner in ["R1", "R2", "R3"] {
        cmd!(client, "LOCK.ACQUIRE", "shared", owner, 50_000, "SHARED").int();
        cmd!(client, "LOCK.ACQUIRE", "semaphore", owner, 70_000, "SHARED", "LIMIT", 5).int();
    }
    cmd!(client, "LOCK.MACQUIRE", 2, "several-1", "several-2", "A", 50_000).int();
    cmd!(client, "LOCK.ACQUIRE", "raised", "A", 50_000).int();
    let far = i64::try_from(now_ms()).unwrap() * 1000 + 3_600_000_000;
    assert_eq!(cmd!(client, "LOCK.FENCE", "raised", "A", far).int(), far);
    cmd!(client, "LOCK.ACQUIRE", "tied", "A", 50_000, "SESSION").int();
    // What is left of these is what counts.
    cmd!(client, "LOCK.ACQUIRE", "released", "A", 50_000).int();
    assert_eq!(cmd!(client, "LOCK.RELEASE", "released", "A").int(), 0);
    cmd!(client, "LOCK.ACQUIRE", "renewed", "A", 1000).int();
    cmd!(client, "LOCK.RENEW", "renewed", "A", 40_000).int();
    cmd!(client, "SET", "data", "v").ok();
}

/// Every key and all that there is of it: owners, modes, counts, fences, deadlines.
fn all_locks(client: &mut Client) -> Vec<(Vec<u8>, Vec<u8>)> {
    let keys = cmd!(client, "KEYS", "*");
    let mut all: Vec<_> = keys
        .array()
        .iter()
        .map(|key| (key.bytes().to_vec(), cmd!(client, "DUMP", key.bytes()).bytes().to_vec()))
        .collect();
    all.sort();
    all
}

/// Takes the counter so far ahead of the clock that a grant above it can't come from the clock alone. No lock stays.
fn raise_fences(client: &mut Client) -> i64 {
    let fence = cmd!(client, "LOCK.ACQUIRE", "raiser", "A", 50_000).int();
    let far = cmd!(client, "LOCK.FENCE", "raiser", "A", fence + 30 * 86_400_000_000).int();
    assert!(far > fence);
    assert_eq!(cmd!(client, "LOCK.RELEASE", "raiser", "A").int(), 0);
    far
}

#[track_caller]
fn fences_are_above(server: &Server, last: i64) {
    let mut client = server.connect();
    let fence = cmd!(client, "LOCK.ACQUIRE", "next", "A", 50_000).int();
    assert!(fence > last, "{fence} after {last}");
    assert_eq!(cmd!(client, "LOCK.RELEASE", "next", "A").int(), 0);
}

fn rewrite_aof(client: &mut Client) {
    let reply = cmd!(client, "BGREWRITEAOF");
    assert!(!reply.is_error(), "{reply:?}");
    eventually(SOON, || {
        client.info("aof_rewrite_in_progress").as_deref() == Some("0")
            && client.info("aof_rewrite_scheduled").as_deref() == Some("0")
    });
    assert_eq!(client.info("aof_last_bgrewrite_status").as_deref(), Some("ok"));
}

/// The file that commands are appended to.
fn append_file(server: &Server) -> PathBuf {
    let folder = server.dir().join("appendonlydir");
    if !folder.exists() {
        return server.dir().join("appendonly.aof");
    }
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(".incr.aof"));
    files.sort();
    files.pop().expect("there is a file to append to")
}

/// The number that stands for the data type in files: nine characters of six bits, and the encoding in ten.
fn type_number(encoding: u64) -> [u8; 8] {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let name = b"redislock".iter().fold(0, |number, letter| {
        (number << 6) | letters.iter().position(|known| known == letter).unwrap() as u64
    });
    ((name << 10) | encoding).to_be_bytes()
}

fn places(bytes: &[u8], pattern: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|at| bytes[*at..].starts_with(pattern)).collect()
}

/// CRC-64 as payloads carry it (Jones), bit by bit.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u64::from(*byte), |crc: u64, _| {
            if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0x95ac_9329_ac4b_c9b5 }
        })
    })
}

/// A payload changed by `change`, with a checksum that fits.
fn forge(payload: &[u8], change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut forged = payload.to_vec();
    let body = forged.len() - 8;
    change(&mut forged[..body]);
    let crc = crc64(&forged[..body]);
    forged[body..].copy_from_slice(&crc.to_le_bytes());
    forged
}

fn patch_file(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

every_server! {
    fn locks_survive_a_restart_to_the_last_bit(version) {
        for keeps in ALL_WAYS {
            let server = keeps.builder(version).start();
            let mut client = server.connect();
            make_locks(&mut client);
            let before = all_locks(&mut client);
            assert_eq!(before.len(), 11);
            server.restart();
            let mut client = server.connect();
            assert_eq!(all_locks(&mut client), before, "{keeps:?}");
            let nested = Holder::of(&mut client, "nested");
            assert_eq!((nested.owner, nested.holds), (b"A".to_vec(), 3), "{keeps:?}");
            assert!(!Holder::of(&mut client, "tied").session, "{keeps:?}: a tie does not outlive the connection");
            assert_eq!(LockInfo::of(&mut client, "semaphore").unwrap().limit, Some(5));
            assert_eq!(cmd!(client, "LOCK.RELEASE", "nested", "A").int(), 2);
        }
    }

    fn locks_survive_a_rewrite_of_the_aof(version) {
        for keeps in [Keeps::AofWithPreamble, Keeps::PlainAof] {
            let server = keeps.builder(version).start();
            let mut client = server.connect();
            make_locks(&mut client);
            rewrite_aof(&mut client);
            cmd!(client, "LOCK.ACQUIRE", "after", "A", 50_000).int();
            let before = all_locks(&mut client);
            server.kill9();
            server.restart();
            assert_eq!(all_locks(&mut server.connect()), before, "{keeps:?}");
            // And twice over.
            rewrite_aof(&mut server.connect());
            server.kill9();
            server.restart();
            assert_eq!(all_locks(&mut server.connect()), before, "{keeps:?}");
        }
    }

    fn locks_survive_debug_reload(version) {
        let server = Keeps::AofWithPreamble.builder(version).start();
        let mut client = server.connect();
        make_locks(&mut client);
        let before = all_locks(&mut client);
        cmd!(client, "DEBUG", "RELOAD").ok();
        assert_eq!(all_locks(&mut client), before);
        cmd!(client, "DEBUG", "LOADAOF").ok();
        assert_eq!(all_locks(&mut client), before);
        assert_eq!(cmd!(client, "LOCK.RELEASE", "nested", "A").int(), 2);
    }

    /// What ended while the server was down is gone, and nothing brings it back.
    fn b89_a_lease_ends_at_its_deadline_whenever_it_is_loaded(version) {
        for keeps in ALL_WAYS {
            let clock = Clock::new();
            let server = keeps.builder(version).clock(&clock).start();
            let mut client = server.connect();
            let fence = cmd!(client, "LOCK.ACQUIRE", "short", "A", 10_000).int();
            cmd!(client, "LOCK.RENEW", "short", "A", 20_000).int();
            cmd!(client, "LOCK.ACQUIRE", "long", "A", 86_400_000).int();
            cmd!(client, "LOCK.ACQUIRE", "crowd", "A", 10_000, "SHARED").int();
            cmd!(client, "LOCK.ACQUIRE", "crowd", "B", 86_400_000, "SHARED").int();
            server.terminate();
            clock.step(3_600_000);
            server.restart();
            let mut client = server.connect();
            cmd!(client, "LOCK.INFO", "short").nil();
            cmd!(client, "LOCK.RENEW", "short", "A", 20_000).nil();
            let left = Holder::of(&mut client, "long").ttl;
            assert!((82_000_000..=82_800_000).contains(&left), "{keeps:?}: {left} ms left of 23 hours");
            assert_eq!(Holder::of(&mut client, "crowd").owner, b"B");
            cmd!(client, "LOCK.RELEASE", "crowd", "A").nil();
            let next = cmd!(client, "LOCK.ACQUIRE", "short", "B", 10_000).int();
            assert!(next > fence);
            // Yesterday's file.
            server.terminate();
            clock.step(86_400_000);
            server.restart();
            let mut client = server.connect();
            for key in ["short", "long", "crowd"] {
                cmd!(client, "LOCK.INFO", key).nil();
                assert!(cmd!(client, "LOCK.ACQUIRE", key, "C", 1000).int() > next, "{keeps:?}");
            }
        }
    }

    fn b93_fences_go_on_after_a_restart(version) {
        for keeps in ALL_WAYS {
            let server = keeps.builder(version).start();
            let last = raise_fences(&mut server.connect());
            server.restart();
            fences_are_above(&server, last);
        }
    }

    fn b93_fences_go_on_after_a_rewrite_of_the_aof(version) {
        let server = Keeps::AofWithPreamble.builder(version).start();
        let last = raise_fences(&mut server.connect());
        rewrite_aof(&mut server.connect());
        server.kill9();
        server.restart();
        fences_are_above(&server, last);

        // A plain one keeps the counter in the records of the locks that there are.
        let server = Keeps::PlainAof.builder(version).start();
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "old", "A", 50_000).int();
        let last = raise_fences(&mut client);
        rewrite_aof(&mut client);
        server.kill9();
        server.restart();
        fences_are_above(&server, last);
    }

    /// The one path on which the counter is lost, as the specification says: it falls back on the clock.
    fn b93_a_plain_aof_rewritten_without_locks_falls_back_on_the_clock(version) {
        let server = Keeps::PlainAof.builder(version).start();
        let last = raise_fences(&mut server.connect());
        rewrite_aof(&mut server.connect());
        server.kill9();
        server.restart();
        let clock = i64::try_from(now_ms()).unwrap() * 1000;
        let fence = cmd!(server.connect(), "LOCK.ACQUIRE", "k", "A", 50_000).int();
        assert!((clock..last).contains(&fence), "{fence}, with {clock} on the clock and {last} before");
    }

    fn b93_fences_go_on_after_reload_and_flush(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let mut last = raise_fences(&mut client);
        let paths: [&[&str]; 6] = [
            &["DEBUG", "RELOAD"],
            &["FLUSHALL"],
            &["FLUSHALL", "ASYNC"],
            &["FLUSHDB"],
            &["SWAPDB", "0", "1"],
            &["SAVE"],
        ];
        for path in paths {
            client.cmd(path).ok();
            fences_are_above(&server, last);
            last = raise_fences(&mut client);
        }
    }

    fn b93_fences_go_on_after_resync_and_promotion(version) {
        for locked in [false, true] {
            let server = Server::start(version);
            let mut client = server.connect();
            if locked {
                cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
            }
            let before = raise_fences(&mut client);
            // By full resync.
            let replica = Server::builder(version).replica_of(&server).start();
            wait_in_sync(&server, &replica);
            assert!(replica.info("lock_last_fence").parse::<i64>().unwrap() >= before);
            // By the stream: even where a lock came and went.
            let last = raise_fences(&mut client);
            assert!(last > before);
            wait_in_sync(&server, &replica);
            promote(&replica);
            fences_are_above(&replica, last);
        }
    }

    /// A payload may carry a token that this server has not seen.
    fn b93_fences_go_on_after_restore(version) {
        let [source, target] = [(); 2].map(|()| Server::start(version));
        let mut client = source.connect();
        let last = raise_fences(&mut client);
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        assert!(fence > last);
        let payload = cmd!(client, "DUMP", "k");
        cmd!(target.connect(), "RESTORE", "k", 0, payload.bytes()).ok();
        fences_are_above(&target, fence);
    }

    fn an_encoding_newer_than_the_build_is_refused_with_a_line_in_the_log(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let payload = cmd!(client, "DUMP", "k").bytes().to_vec();
        assert_eq!(payload[2..10], type_number(1), "the payload is as this test believes");
        // The same, forged without a change, is taken: the checksum of this test is right.
        cmd!(client, "RESTORE", "same", 0, forge(&payload, |_| {})).ok();
        let type_too_new = forge(&payload, |bytes| bytes[2..10].copy_from_slice(&type_number(2)));
        let lock_too_new = forge(&payload, |bytes| {
            // After the number of the type come an opcode, the length of the string, and its first byte.
            assert_eq!((bytes[10], bytes[12]), (5, 1));
            bytes[12] = 2;
        });
        for forged in [type_too_new, lock_too_new] {
            let lines = server.log().lines().count();
            assert_eq!(cmd!(client, "RESTORE", "k2", 0, &forged[..]).error_code(), "ERR");
            let log = server.log();
            let new: Vec<_> = log.lines().skip(lines).collect();
            assert!(new.iter().any(|line| line.contains("newer")), "{new:?}");
        }
        assert_eq!(cmd!(client, "EXISTS", "k2").int(), 0);
        assert!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int() > 0);
    }

    /// Bytes that no build wrote are refused as well, and nothing crashes.
    fn b99_damaged_payloads_are_refused(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "LOCK.ACQUIRE", "crowd", "A", 50_000, "SHARED").int();
        cmd!(client, "LOCK.ACQUIRE", "crowd", "B", 50_000, "SHARED", "LIMIT", 3).int();
        let mut taken = 0;
        for key in ["k", "crowd"] {
            let payload = cmd!(client, "DUMP", key).bytes().to_vec();
            for at in 10..payload.len() - 10 {
                for value in [0, 1, 0x7f, 0x80, 0xff] {
                    let forged = forge(&payload, |bytes| bytes[at] = value);
                    let reply = cmd!(client, "RESTORE", "k2", 0, &forged[..], "REPLACE");
                    taken += i32::from(!reply.is_error());
                    let reply = cmd!(client, "LOCK.INFO", "k2");
                    assert!(!reply.is_error(), "byte {at} as {value}: {reply:?}");
                }
            }
        }
        // Where the changed byte is a part of a time or an owner, the lock is another one, but a lock.
        assert!(taken > 0);
        assert!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int() > 0);
    }

    /// Tokens stay below 2^53. When there are none left, nobody new is let in, and who holds goes on.
    fn fences_that_are_used_up_end_grants_and_nothing_else(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000, "SHARED").int();
        let payload = cmd!(client, "DUMP", "k").bytes().to_vec();
        let last = forge(&payload, |bytes| {
            assert_eq!(bytes[12..18], [1, 1, 1, b'A', 1, 1], "version, holders, owner, mode, holds");
            bytes[18..26].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]);
        });
        cmd!(client, "RESTORE", "k", 0, &last[..], "REPLACE").ok();
        let highest = (1_i64 << 53) - 1;
        assert_eq!(Holder::of(&mut client, "k").fence, highest);
        for line in [
            "LOCK.ACQUIRE free B 1000",
            "LOCK.ACQUIRE free B 1000 WAIT 0",
            "LOCK.REENTER free B 1000",
            "LOCK.MACQUIRE 2 free free2 B 1000",
            "LOCK.REENTER k A 1000",
            "LOCK.ACQUIRE k B 1000 SHARED",
        ] {
            let reply = client.cmd(&line.split(' ').collect::<Vec<_>>());
            assert_eq!(reply.error(), "ERR fencing tokens exhausted", "{line}");
        }
        assert_eq!(cmd!(client, "DBSIZE").int(), 1);
        assert_eq!(cmd!(client, "LOCK.REENTER", "k", "A", 50_000, "SHARED").ints(), [2, highest]);
        assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int(), highest);
        assert_eq!(cmd!(client, "LOCK.FENCE", "k", "A", highest).int(), highest);
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A", "ALL").int(), 0);
    }

    fn a_dump_file_of_a_newer_build_stops_the_start(version) {
        for which in ["aux", "value", "both"] {
            let server = Server::builder(version).save().start();
            cmd!(server.connect(), "LOCK.ACQUIRE", "k", "A", 50_000).int();
            server.terminate();
            patch_file(&server.dir().join("dump.rdb"), |bytes| {
                let mut found = places(bytes, &type_number(1));
                assert_eq!(found.len(), 2, "one for the counter, one for the lock");
                match which {
                    "aux" => drop(found.pop()),
                    "value" => drop(found.remove(0)),
                    _ => {}
                }
                for at in found {
                    bytes[at..at + 8].copy_from_slice(&type_number(2));
                }
                // No checksum.
                let end = bytes.len();
                bytes[end - 8..].fill(0);
            });
            let log = server.try_restart().expect_err("a file of a newer build is loaded");
            assert!(log.contains("was written by a newer build"), "{which}: {log}");
        }
    }

    /// A lock must not get lost silently: the server does not start without it.
    fn a_record_of_a_newer_build_in_the_aof_stops_the_start(version) {
        let server = Keeps::PlainAof.builder(version).start();
        cmd!(server.connect(), "LOCK.ACQUIRE", "k", "A", 50_000).int();
        server.kill9();
        patch_file(&append_file(&server), |bytes| {
            let command = b"LOCK.APPLY\r\n$1\r\nk\r\n$";
            let at = places(bytes, command)[0] + command.len();
            let record = at + bytes[at..].windows(2).position(|two| two == b"\r\n").unwrap() + 2;
            assert_eq!(bytes[record], 1, "the version of the record");
            bytes[record] = 2;
        });
        let log = server.try_restart().expect_err("a record of a newer build is skipped");
        assert!(log.contains("newer"), "{log}");
    }

    fn b96_restore_brings_holders_back_as_dumped(version) {
        let server = Server::start(version);
        let replica = Server::builder(version).replica_of(&server).start();
        let mut client = server.connect();
        cmd!(client, "LOCK.REENTER", "k", "A", 50_000).array();
        let fence = cmd!(client, "LOCK.REENTER", "k", "A", 50_000).ints()[1];
        let payload = cmd!(client, "DUMP", "k").bytes().to_vec();
        let deadline = now_ms() + 50_000;
        assert_eq!(cmd!(client, "RESTORE", "k", 0, &payload[..]).error_code(), "BUSYKEY");
        let absolute = deadline.to_string();
        // Whatever time to live comes with it: the lease ends when it said, and the native one tells so.
        let ways: [&[&str]; 5] = [
            &["0"],
            &["0", "REPLACE"],
            &["3600000"],
            &["5000", "REPLACE"],
            &[&absolute, "ABSTTL"],
        ];
        for way in ways {
            cmd!(client, "LOCK.RELEASE", "k", "A", "ALL");
            if way.contains(&"REPLACE") {
                cmd!(client, "LOCK.ACQUIRE", "k", "X", 50_000).int();
            }
            let (ttl, words) = way.split_first().unwrap();
            let words = words.iter().map(|word| word.as_bytes());
            let restore: Vec<&[u8]> =
                [b"RESTORE", &b"k"[..], ttl.as_bytes(), &payload].into_iter().chain(words).collect();
            client.cmd(&restore).ok();
            assert_eq!(cmd!(client, "DUMP", "k").bytes(), payload, "{way:?}");
            let holder = Holder::of(&mut client, "k");
            assert_eq!((holder.owner, holder.holds, holder.fence), (b"A".to_vec(), 2, fence));
            for native in [cmd!(client, "PTTL", "k").int(), {
                wait_in_sync(&server, &replica);
                cmd!(replica.connect(), "PTTL", "k").int()
            }] {
                assert!((native - holder.ttl).abs() < 5000, "{way:?}: PTTL {native}, lease {}", holder.ttl);
            }
            cmd!(client, "LOCK.RENEW", "k", "X", 1000).nil();
            cmd!(client, "LOCK.ACQUIRE", "k", "B", 1000).nil();
            assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int(), fence);
            assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 1);
        }
        wait_in_sync(&server, &replica);
        assert_eq!(cmd!(replica.connect(), "DUMP", "k"), cmd!(client, "DUMP", "k"));
    }

    /// A copy gains no later deadline, so one that is over is over.
    fn b96_a_lease_that_ended_is_not_restored(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 100).int();
        let payload = cmd!(client, "DUMP", "k").bytes().to_vec();
        std::thread::sleep(Duration::from_millis(150));
        cmd!(client, "RESTORE", "k3", 0, &payload[..]).ok();
        cmd!(client, "LOCK.INFO", "k3").nil();
        cmd!(client, "LOCK.RENEW", "k3", "A", 50_000).nil();
        assert!(cmd!(client, "LOCK.ACQUIRE", "k3", "B", 50_000).int() > 0);
        // Nor does it stay in memory for good.
        cmd!(client, "RESTORE", "k4", 0, &payload[..]).ok();
        eventually(SOON, || cmd!(client, "EXISTS", "k4").int() == 0);
    }

    fn b96_a_lock_follows_its_key_by_rename_and_move(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        cmd!(client, "LOCK.ACQUIRE", "k2", "X", 60_000).int();
        assert_eq!(cmd!(client, "RENAMENX", "k", "k2").int(), 0);
        cmd!(client, "RENAME", "k", "k2").ok();
        cmd!(client, "LOCK.RENEW", "k", "A", 50_000).nil();
        cmd!(client, "LOCK.RENEW", "k2", "X", 50_000).nil();
        cmd!(client, "LOCK.RELEASE", "k2", "X").nil();
        assert_eq!(cmd!(client, "LOCK.RENEW", "k2", "A", 50_000).int(), fence);
        assert!(cmd!(client, "LOCK.ACQUIRE", "k", "B", 50_000).int() > fence, "the old name is free");
        assert_eq!(cmd!(client, "RENAMENX", "k2", "k3").int(), 1);
        assert_eq!(cmd!(client, "MOVE", "k3", 1).int(), 1);
        cmd!(client, "SET", "here", "v").ok();
        cmd!(client, "LOCK.RENEW", "k3", "A", 50_000).nil();
        cmd!(client, "SELECT", 1).ok();
        assert_eq!(cmd!(client, "EXISTS", "here").int(), 0, "MOVE leaves the connection where it is");
        let left = cmd!(client, "PTTL", "k3").int();
        assert!((1..=50_000).contains(&left), "{left}");
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k3", "A").int(), 0);
    }

    fn a_lock_migrates(version) {
        let [source, target] = [(); 2].map(|()| Server::start(version));
        let mut client = source.connect();
        cmd!(client, "LOCK.REENTER", "k", "A", 50_000).array();
        let fence = cmd!(client, "LOCK.REENTER", "k", "A", 50_000).ints()[1];
        let before = cmd!(client, "DUMP", "k");
        cmd!(client, "MIGRATE", "127.0.0.1", target.port(), "k", 0, 10_000).ok();
        cmd!(client, "LOCK.INFO", "k").nil();
        cmd!(client, "LOCK.RENEW", "k", "A", 50_000).nil();
        let mut client = target.connect();
        assert_eq!(cmd!(client, "DUMP", "k"), before);
        let (native, left) = (cmd!(client, "PTTL", "k").int(), Holder::of(&mut client, "k").ttl);
        assert!((native - left).abs() < 5000, "PTTL {native}, lease {left}");
        assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int(), fence);
        assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "A").int(), 1);
    }

    fn a_lock_is_not_copied(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        for copy in [&["COPY", "k", "k2"][..], &["COPY", "k", "k2", "DB", "1"], &["COPY", "k", "k2", "REPLACE"]] {
            assert!(client.cmd(copy).is_error(), "{copy:?}");
        }
        assert_eq!(cmd!(client, "EXISTS", "k2").int(), 0);
        assert_eq!(cmd!(client, "DBSIZE").int(), 1);
    }

    fn the_native_time_to_live_mirrors_the_lease(version) {
        let server = Keeps::AofWithPreamble.builder(version).start();
        let replica = Server::builder(version).replica_of(&server).start();
        let mut client = server.connect();
        let check = |client: &mut Client, what: &str| {
            wait_in_sync(&server, &replica);
            let info = LockInfo::of(client, "k").unwrap();
            let left = info.holders.iter().map(|holder| holder.ttl).max().unwrap();
            for native in [cmd!(client, "PTTL", "k").int(), cmd!(replica.connect(), "PTTL", "k").int()] {
                assert!((native - left).abs() < 5000, "after {what}: PTTL {native}, lease {left}");
            }
        };
        for line in [
            "LOCK.ACQUIRE k A 50000 SHARED",
            "LOCK.RENEW k A 70000",
            "LOCK.ACQUIRE k B 20000 SHARED",
            "LOCK.REENTER k B 90000 SHARED",
            "LOCK.RELEASE k B ALL",
            "LOCK.RENEW k A 40000",
            "LOCK.ACQUIRE k B 60000 SHARED",
            "LOCK.BREAK k B",
            "LOCK.REENTER k A 80000",
            "LOCK.DOWNGRADE k A",
        ] {
            let reply = client.cmd(&line.split(' ').collect::<Vec<_>>());
            assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
            check(&mut client, line);
        }
        server.restart();
        check(&mut server.connect(), "a restart");
    }

    fn expire_and_persist_leave_the_lease_and_the_mirror_is_set_right(version) {
        let server = Keeps::AofWithPreamble.builder(version).start();
        let replica = Server::builder(version).replica_of(&server).start();
        let mut client = server.connect();
        let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
        let before = cmd!(client, "DUMP", "k");
        let later = (now_ms() / 1000 + 3600).to_string();
        for line in [
            "EXPIRE k 3600".to_owned(),
            "EXPIRE k 1".to_owned(),
            "PEXPIRE k 5".to_owned(),
            "PERSIST k".to_owned(),
            format!("EXPIREAT k {later}"),
            format!("PEXPIREAT k {later}000"),
        ] {
            assert_eq!(client.cmd(&line.split(' ').collect::<Vec<_>>()).int(), 1, "{line}");
            for server in [&server, &replica] {
                let mut client = server.connect();
                eventually(SOON, || (30_000..=50_000).contains(&cmd!(client, "PTTL", "k").int()));
            }
            assert_eq!(cmd!(client, "DUMP", "k"), before, "{line}");
        }
        // As a part of a unit, too.
        cmd!(client, "MULTI").ok();
        cmd!(client, "PEXPIRE", "k", 10);
        cmd!(client, "PERSIST", "k");
        cmd!(client, "PEXPIRE", "k", 20);
        assert_eq!(cmd!(client, "EXEC").ints(), [1, 1, 1]);
        cmd!(client, "EVAL", "return redis.call('PEXPIRE', KEYS[1], 20)", 1, "k").int();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int(), fence);
        server.kill9();
        server.restart();
        let mut client = server.connect();
        assert!((30_000..=50_000).contains(&cmd!(client, "PTTL", "k").int()));
        assert_eq!(cmd!(client, "LOCK.RENEW", "k", "A", 50_000).int(), fence);
    }

    fn an_expiry_in_the_past_revokes(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        for expire in [["EXPIRE", "k", "-1"], ["PEXPIRE", "k", "0"], ["EXPIREAT", "k", "1"]] {
            let fence = cmd!(client, "LOCK.ACQUIRE", "k", "A", 50_000).int();
            assert_eq!(client.cmd(&expire).int(), 1);
            cmd!(client, "LOCK.INFO", "k").nil();
            cmd!(client, "LOCK.RENEW", "k", "A", 50_000).nil();
            assert!(cmd!(client, "LOCK.ACQUIRE", "k", "B", 50_000).int() > fence);
            assert_eq!(cmd!(client, "LOCK.RELEASE", "k", "B").int(), 0);
        }
    }

    fn the_words_of_the_server_know_the_type(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        make_locks(&mut client);
        assert_eq!(cmd!(client, "TYPE", "plain").text(), "redislock");
        let scan = cmd!(client, "SCAN", 0, "COUNT", 1000, "TYPE", "redislock");
        assert_eq!(scan.array()[1].array().len(), 10);
        let usage = |client: &mut Client, key: &str| cmd!(client, "MEMORY", "USAGE", key).int();
        let small = usage(&mut client, "plain");
        assert!((30..500).contains(&small), "{small} bytes");
        assert!(usage(&mut client, "shared") > small);
        for part in ["ENCODING", "IDLETIME", "REFCOUNT"] {
            let reply = cmd!(client, "OBJECT", part, "plain");
            assert!(!reply.is_error() && !reply.is_nil(), "OBJECT {part}: {reply:?}");
        }
        // INFO looks, and does not count as a use; a renewal does.
        assert_eq!(cmd!(client, "TOUCH", "plain").int(), 1);
    }

    /// Dataset digests tell owners, modes, counts and fences, and are the same wherever the data are.
    fn digests_are_equal_where_the_locks_are(version) {
        let server = Keeps::AofWithPreamble.builder(version).start();
        let replica = Server::builder(version).replica_of(&server).start();
        let mut client = server.connect();
        make_locks(&mut client);
        wait_in_sync(&server, &replica);
        let digest = |client: &mut Client| cmd!(client, "DEBUG", "DIGEST").text().to_owned();
        let before = digest(&mut client);
        assert_eq!(digest(&mut replica.connect()), before);
        server.restart();
        assert_eq!(digest(&mut server.connect()), before);
        let mut client = server.connect();
        let raise = format!("LOCK.FENCE raised A {}", (now_ms() + 86_400_000) * 1000);
        for line in ["LOCK.REENTER plain A 50000", "LOCK.RELEASE shared R1", &raise] {
            let before = digest(&mut client);
            let reply = client.cmd(&line.split(' ').collect::<Vec<_>>());
            assert!(!reply.is_error() && !reply.is_nil(), "{line}: {reply:?}");
            assert_ne!(digest(&mut client), before, "{line}");
        }
        let value = |client: &mut Client, key: &str| cmd!(client, "DEBUG", "DIGEST-VALUE", key);
        assert_ne!(value(&mut client, "plain"), value(&mut client, "nested"));
    }

    /// Large crowds are freed in the background, small locks at once.
    fn b99_locks_are_freed_in_the_background(version) {
        let server = Server::start(version);
        let mut client = server.connect();
        let crowd = |client: &mut Client, key: &str| {
            for owner in 0..200 {
                cmd!(client, "LOCK.ACQUIRE", key, owner, 50_000, "SHARED").int();
            }
        };
        let freed = |client: &mut Client| client.info("lazyfreed_objects").unwrap().parse::<i64>().unwrap();
        crowd(&mut client, "k");
        let before = freed(&mut client);
        assert_eq!(cmd!(client, "UNLINK", "k").int(), 1);
        eventually(SOON, || freed(&mut client) > before);
        for flush in [&["FLUSHALL", "ASYNC"][..], &["FLUSHALL", "SYNC"], &["FLUSHDB", "ASYNC"], &["FLUSHDB"]] {
            crowd(&mut client, "k");
            make_locks(&mut client);
            client.cmd(flush).ok();
            assert_eq!(cmd!(client, "DBSIZE").int(), 0);
            cmd!(client, "LOCK.RENEW", "k", 7, 1000).nil();
            eventually(SOON, || client.info("lazyfree_pending_objects").as_deref() == Some("0"));
        }
        crowd(&mut client, "k");
        cmd!(client, "CONFIG", "SET", "lazyfree-lazy-server-del", "yes").ok();
        cmd!(client, "SET", "k", "v").ok();
        crowd(&mut client, "k2");
        cmd!(client, "RENAME", "k", "k2").ok();
        assert_eq!(cmd!(client, "GET", "k2").text(), "v");
    }

    /// A forked child writes what there was, while grants go on.
    fn b99_background_saves_beside_grants(version) {
        let server = Server::builder(version).save().start();
        let mut client = server.connect();
        make_locks(&mut client);
        for round in 0..3 {
            let reply = cmd!(client, "BGSAVE");
            assert!(!reply.is_error(), "{reply:?}");
            for key in 0..200 {
                cmd!(client, "LOCK.REENTER", format!("k{key}"), "A", 50_000).array();
            }
            eventually(SOON, || client.info("rdb_bgsave_in_progress").as_deref() == Some("0"));
            assert_eq!(client.info("rdb_last_bgsave_status").as_deref(), Some("ok"), "round {round}");
        }
        let before = all_locks(&mut client);
        server.restart();
        assert_eq!(all_locks(&mut server.connect()), before);
    }
}

#[test]
fn the_checksum_is_that_of_the_servers() {
    assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
}
