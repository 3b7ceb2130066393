//! A panic in any callback is caught: it becomes an error or nothing, a line in the log, and the server lives on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use redislock_testkit::{Client, Server, Version, build_module_with, cmd, every_server, send};

const SOON: Duration = Duration::from_secs(10);

/// The module, built so that a callback can be made to panic.
fn module() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| build_module_with("inject-panics"))
}

/// Every callback, by the name that it has in the source: none can be forgotten.
fn callbacks() -> Vec<String> {
    let mut found = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    found.sort();
    assert!(found.len() > 20, "{found:?}");
    found
}

fn collect(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("the source is there") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("text");
            let names = text.split("shield(\"").skip(1).filter_map(|rest| rest.split_once('"'));
            found.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}

fn say(client: &mut Client, line: &str) {
    // Whatever the answer is, there is one.
    client.try_cmd(&line.split(' ').collect::<Vec<_>>()).unwrap_or_else(|error| panic!("{line}: {error}"));
}

fn wait_until_blocked(server: &Server) {
    for _ in 0..200 {
        if server.info("blocked_clients") != "0" {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// A little of everything.
fn use_everything(server: &Server, callback: &str) {
    let mut client = server.connect();
    say(&mut client, "CONFIG SET aof-use-rdb-preamble no");
    say(&mut client, "CONFIG GET lock.max-ttl");
    say(&mut client, "CONFIG SET lock.max-ttl 80000000");
    say(&mut client, "LOCK.ACQUIRE k A 50000");

    let mut waiters = [(); 4].map(|()| server.connect());
    send!(waiters[0], "LOCK.ACQUIRE", "k", "B", 50_000, "WAIT", 0);
    wait_until_blocked(server);
    let id = cmd!(client, "CLIENT", "LIST");
    let line =
        id.text().lines().find(|line| line.contains("cmd=lock.acquire") || line.contains("cmd=LOCK.ACQUIRE"));
    let id = line.and_then(|line| line.strip_prefix("id=")?.split(' ').next().map(str::to_owned));
    say(&mut client, &format!("CLIENT UNBLOCK {}", id.unwrap_or_else(|| "0".to_owned())));
    let [_, gone, granted, lapsing] = &mut waiters;
    send!(gone, "LOCK.ACQUIRE", "k", "C", 50_000, "WAIT", 0);
    wait_until_blocked(server);
    gone.stream().shutdown(std::net::Shutdown::Both).expect("a connection");
    send!(granted, "LOCK.ACQUIRE", "k", "D", 50_000, "WAIT", 0, "SESSION");
    wait_until_blocked(server);
    say(&mut client, "LOCK.RELEASE k A");
    granted.read_timeout(Duration::from_millis(100));
    granted.stream().shutdown(std::net::Shutdown::Both).expect("a connection");
    say(&mut client, "LOCK.ACQUIRE s A 20");
    send!(lapsing, "LOCK.ACQUIRE", "s", "B", 50_000, "WAIT", 0);
    lapsing.read_timeout(Duration::from_millis(100));

    say(&mut client, "LOCK.ACQUIRE other A 50000");
    let payload = cmd!(client, "DUMP", "other");
    if !payload.is_nil() {
        cmd!(client, "RESTORE", "restored", 0, payload.bytes());
    }
    for owner in 0..100 {
        say(&mut client, &format!("LOCK.ACQUIRE crowd {owner} 50000 SHARED"));
    }
    for line in [
        "MEMORY USAGE other",
        "DEBUG DIGEST",
        "EXPIRE other 100",
        "RENAME other another",
        "UNLINK crowd",
        "BGREWRITEAOF",
        "INFO everything",
        "SWAPDB 0 1",
        "SAVE",
    ] {
        say(&mut client, line);
    }
    // A dump that was not written well, or can't be read, ends a server that loads it.
    if !["rdb_load", "rdb_save", "aux_load", "aux_save"].contains(&callback) {
        say(&mut client, "DEBUG RELOAD");
    }
    for line in ["FLUSHALL", "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"] {
        say(&mut client, line);
    }
}

every_server! {
    fn b99_a_panic_in_any_callback_is_caught(version) {
        for callback in callbacks() {
            let builder = Server::builder(version).module(module()).env("REDISLOCK_PANIC", &callback).allow_bugs();
            let caught = format!("a bug in {callback}, caught: injected");
            // Settings are set once while the module is loaded, where the server knows them.
            if callback == "load" || (callback == "CONFIG SET" && version.has_config()) {
                let log = builder.try_start().expect_err("a module that panics while it is loaded");
                assert!(log.contains(&caught) && !log.contains("BUG REPORT"), "{log}");
                continue;
            }
            let server = builder.start();
            use_everything(&server, &callback);
            let told = || server.log().contains(&caught);
            if callback == "aux_load" {
                let log = server.try_restart().expect_err("a dump that can't be read");
                assert!(log.contains(&caught) && !log.contains("BUG REPORT"), "{log}");
                continue;
            }
            if is_called(&callback, version) {
                let end = Instant::now() + SOON;
                while !told() {
                    assert!(Instant::now() < end, "{callback} was not called");
                    thread::sleep(Duration::from_millis(5));
                }
            }
            let mut client = server.connect();
            let reply = cmd!(client, "LOCK.ACQUIRE", "last", "A", 1000);
            if callback == "a command" {
                assert_eq!(reply.error(), "ERR redislock: internal error, see the server's log");
            } else {
                assert!(reply.int() > 0, "{callback}: {reply:?}");
            }
            assert!(server.is_alive());
            assert!(!server.log().contains("BUG REPORT"), "{callback}: {}", server.log());
            // A rewrite runs in a child, which counts for itself.
            if !["INFO", "aof_rewrite"].contains(&&*callback) && is_called(&callback, version) {
                assert_ne!(server.info("lock_panics"), "0", "{callback}");
            }
        }
    }
}

/// Whether this server surely calls it, in what is done here.
fn is_called(callback: &str, version: Version) -> bool {
    match callback {
        "CONFIG GET" | "CONFIG SET" => version.has_config(),
        // Watched for a moment after a hand-over, which may be over before anything happens.
        "command filter" | "turn of the loop" | "end of a turn" => false,
        _ => true,
    }
}
