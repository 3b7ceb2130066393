//! The program `redislock`, as real processes.

mod support;

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use redislock_testkit::{Server, cmd};
use support::*;

fn redislock(servers: &[&Server]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_redislock"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for server in servers {
        command.arg("--node").arg(server.url());
    }
    command
}

fn exec(servers: &[&Server], options: &[&str], script: &str) -> Command {
    let mut command = redislock(servers);
    command.args(["exec", "--key", "k"]).args(options).args(["--", "sh", "-c", script]);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("{output:?}"))
}

fn wait_until(within: Duration, what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + within;
    while !holds() {
        assert!(Instant::now() < end, "not within {within:?}: {what}");
        std::thread::sleep(ms(5));
    }
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
    assert!(status.success());
}

fn read_end(child: &mut Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

#[test]
fn exec_runs_the_command_under_the_lock_and_gives_its_status() {
    let server = server();
    let script =
        "echo $REDISLOCK_KEY; echo $REDISLOCK_OWNER; echo $REDISLOCK_FENCE; echo $REDISLOCK_PARENT; exit 7";
    let output = exec(&[&server], &[], script).output().unwrap();
    assert_eq!(code(&output), 7, "{output:?}");
    let stdout = text(&output.stdout);
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!((lines[0], lines[1].len(), lines[3]), ("k", 32, ""));
    assert!(lines[2].parse::<u64>().unwrap() > 1_600_000_000_000_000);
    assert!(!is_locked(&server, "k"), "released before the program ended");
}

#[test]
fn exec_gives_the_status_of_a_command_that_was_killed_or_not_found() {
    let server = server();
    assert_eq!(code(&exec(&[&server], &[], "kill -9 $$").output().unwrap()), 128 + 9);
    let mut missing = redislock(&[&server]);
    let output = missing.args(["exec", "--key", "k", "--", "/no/such/program"]).output().unwrap();
    assert_eq!(code(&output), 127);
    let output = redislock(&[&server]).args(["exec", "--key", "k", "--", "/"]).output().unwrap();
    assert_eq!(code(&output), 126);
    assert!(!is_locked(&server, "k"));
}

#[test]
fn exec_gives_75_when_the_lock_is_not_granted_in_time() {
    let server = server();
    assert!(cmd!(server.connect(), "LOCK.ACQUIRE", "k", "other", 60_000).int() > 0);
    for wait in ["0s", "200ms"] {
        let began = Instant::now();
        let output = exec(&[&server], &["--wait", wait], "echo ran").output().unwrap();
        assert_eq!((code(&output), text(&output.stdout).as_str()), (75, ""), "{output:?}");
        assert!(began.elapsed() < ms(1500));
    }
    assert_eq!(server.info("blocked_clients"), "0");
}

#[test]
fn exec_says_how_long_it_waited_and_what_for() {
    let server = server();
    assert!(cmd!(server.connect(), "LOCK.ACQUIRE", "k", "other", 60_000).int() > 0);
    let output = exec(&[&server], &["--wait", "300ms"], "true").output().unwrap();
    let stderr = text(&output.stderr);
    assert!(stderr.contains("not granted in 3") && stderr.contains("held by another owner"), "{stderr}");
    let output = exec(&[&server], &["--wait", "0s"], "true").output().unwrap();
    assert!(text(&output.stderr).contains("node 1: denied"), "{output:?}");
}

#[test]
fn exec_waits_for_its_turn() {
    let server = server();
    assert!(cmd!(server.connect(), "LOCK.ACQUIRE", "k", "other", 60_000).int() > 0);
    let child = exec(&[&server], &["--wait", "forever"], "echo ran").spawn().unwrap();
    wait_until(ms(3000), "it waits", || server.info("blocked_clients") == "1");
    cmd!(server.connect(), "LOCK.RELEASE", "k", "other");
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), text(&output.stdout).as_str()), (0, "ran\n"));
}

#[test]
fn exec_gives_69_when_no_quorum_can_be_reached() {
    let servers = servers(3);
    let nodes: Vec<_> = servers.iter().collect();
    servers[0].kill9();
    assert_eq!(code(&exec(&nodes, &["--wait", "0s"], "true").output().unwrap()), 0);
    servers[1].kill9();
    let output = exec(&nodes, &["--wait", "300ms"], "true").output().unwrap();
    assert_eq!(code(&output), 69, "{output:?}");
    assert!(text(&output.stderr).contains("no quorum"));
}

#[test]
fn exec_gives_64_for_a_wrong_request() {
    let server = server();
    assert_eq!(code(&exec(&[&server], &["--ttl", "100000h"], "true").output().unwrap()), 64);
    cmd!(server.connect(), "SET", "k", "data").ok();
    assert_eq!(code(&exec(&[&server], &[], "true").output().unwrap()), 64);
    let output = Command::new(env!("CARGO_BIN_EXE_redislock"))
        .args(["--node", "http://x", "info", "k"])
        .output()
        .unwrap();
    assert_eq!(code(&output), 64);
}

#[test]
fn exec_gives_76_and_ends_the_command_when_the_lock_is_lost() {
    let server = server();
    let script = "trap 'echo term; exit 0' TERM; echo started; while :; do sleep 0.05; done";
    let mut child = exec(&[&server], &["--ttl", "900ms"], script).spawn().unwrap();
    wait_until(ms(3000), "it runs", || is_locked(&server, "k"));
    std::thread::sleep(ms(100));
    assert_eq!(cmd!(server.connect(), "LOCK.BREAK", "k").int(), 1);
    let began = Instant::now();
    let out = read_end(&mut child);
    assert_eq!(child.wait().unwrap().code(), Some(76));
    assert_eq!(out, "started\nterm\n");
    assert!(began.elapsed() < ms(1500), "noticed by the next renewal");
}

#[test]
fn exec_kills_a_command_that_ignores_the_loss_after_the_grace() {
    let server = server();
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let options = ["--ttl", "600ms", "--grace", "300ms"];
    let mut child = exec(&[&server], &options, script).spawn().unwrap();
    wait_until(ms(3000), "it runs", || is_locked(&server, "k"));
    std::thread::sleep(ms(100));
    server.kill9();
    let began = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(76));
    assert!(began.elapsed() > ms(300) && began.elapsed() < ms(2500), "{:?}", began.elapsed());
}

#[test]
fn exec_ends_the_command_at_the_maximum_hold() {
    let server = server();
    let options = ["--ttl", "500ms", "--max-hold", "700ms", "--grace", "100ms"];
    let began = Instant::now();
    let output = exec(&[&server], &options, "sleep 30").output().unwrap();
    assert_eq!(code(&output), 76);
    assert!(began.elapsed() > ms(600) && began.elapsed() < ms(2500));
}

#[test]
fn exec_passes_signals_on() {
    let server = server();
    for (name, expected) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("USR1", 138)] {
        let mut child = exec(&[&server], &[], "sleep 30").spawn().unwrap();
        wait_until(ms(3000), "it runs", || is_locked(&server, "k"));
        std::thread::sleep(ms(150));
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), Some(expected), "{name}");
        assert!(!is_locked(&server, "k"));
    }
}

#[test]
fn exec_gives_up_its_wait_at_a_signal() {
    let server = server();
    assert!(cmd!(server.connect(), "LOCK.ACQUIRE", "k", "other", 60_000).int() > 0);
    let mut child = exec(&[&server], &["--wait", "forever"], "true").spawn().unwrap();
    wait_until(ms(3000), "it waits", || server.info("blocked_clients") == "1");
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(server.info("blocked_clients"), "0");
}

#[test]
fn exec_that_is_killed_takes_the_command_along_and_the_lock_lapses() {
    let server = server();
    let mut child = exec(&[&server], &["--ttl", "1s"], "exec sleep 30").spawn().unwrap();
    wait_until(ms(3000), "it runs", || is_locked(&server, "k"));
    std::thread::sleep(ms(100));
    let began = Instant::now();
    signal(&child, "KILL");
    child.wait().unwrap();
    // Its end closes the pipe that the command had inherited.
    assert_eq!(read_end(&mut child), "");
    assert!(began.elapsed() < ms(1000), "the command ended with it");
    wait_until(ms(2000), "lapsed", || !is_locked(&server, "k"));
}

#[test]
fn b52_exec_that_was_stopped_past_its_lease_reports_the_loss() {
    let server = server();
    let mut child = exec(&[&server], &["--ttl", "500ms", "--grace", "200ms"], "sleep 30").spawn().unwrap();
    wait_until(ms(3000), "it runs", || is_locked(&server, "k"));
    signal(&child, "STOP");
    std::thread::sleep(ms(1500));
    let fence = cmd!(server.connect(), "LOCK.ACQUIRE", "k", "other", 60_000).int();
    assert!(fence > 0, "another owner has it");
    signal(&child, "CONT");
    assert_eq!(child.wait().unwrap().code(), Some(76));
    let info = cmd!(server.connect(), "LOCK.INFO", "k");
    assert_eq!(info.field("holders").array()[0].field("fence").int(), fence, "the other is untouched");
}

#[test]
fn shared_limited_session_and_several_keys() {
    let server = server();
    for options in [&["--shared"][..], &["--limit", "2"], &["--session"], &["--key", "k2"]] {
        let output = exec(&[&server], options, "true").output().unwrap();
        assert_eq!(code(&output), 0, "{options:?}: {output:?}");
    }
    let output = exec(&[&server], &["--shared", "--limit", "2"], "true").output().unwrap();
    assert_eq!(code(&output), 2, "contradictory options");
}

#[test]
fn info_list_waiters_and_break_in_text_and_json() {
    let server = server();
    let mut holder = server.connect();
    let fence = cmd!(holder, "LOCK.ACQUIRE", "orders:1", "A", 60_000).int();
    let mut waiter = server.connect();
    redislock_testkit::send!(waiter, "LOCK.ACQUIRE", "orders:1", "B", 1000, "WAIT", 30_000);
    wait_until(ms(1000), "it waits", || server.info("blocked_clients") == "1");
    let run = |args: &[&str]| {
        let output = redislock(&[&server]).args(args).output().unwrap();
        assert_eq!(code(&output), 0, "{args:?}: {output:?}");
        text(&output.stdout)
    };
    assert!(run(&["info", "orders:1"]).contains(&format!("held by A with fence {fence}")));
    assert_eq!(run(&["list", "orders:*"]), "orders:1\n");
    assert!(run(&["waiters", "orders:1"]).starts_with("B (exclusive)"));
    let info: serde_json::Value = serde_json::from_str(&run(&["--json", "info", "orders:1"])).unwrap();
    assert_eq!(info["answer"]["holders"][0]["fence"], fence);
    assert_eq!(info["answer"]["waiters"], 1);
    let waiters: serde_json::Value = serde_json::from_str(&run(&["waiters", "orders:1", "--json"])).unwrap();
    assert_eq!(waiters["answer"][0]["owner"], "B");
    assert!(run(&["break", "orders:1", "--owner", "A", "--fence", "1"]).contains("revoked from 0"));
    assert!(run(&["break", "orders:1", "--owner", "A"]).contains("revoked from 1"));
    assert!(run(&["info", "orders:1"]).contains("held by B"));
    assert_eq!(run(&["info", "nothing"]), "free\n");
}

#[test]
fn json_events_tell_of_the_grant_and_the_release() {
    let server = server();
    let output = exec(&[&server], &["--json"], "true").output().unwrap();
    let events: Vec<serde_json::Value> =
        text(&output.stderr).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["event"], &events[1]["event"]), (&"granted".into(), &"released".into()));
    let output = exec(&[&server], &["--json", "--ttl", "100000h"], "true").output().unwrap();
    let error: serde_json::Value = serde_json::from_str(text(&output.stderr).trim()).unwrap();
    assert_eq!((&error["event"], &error["code"]), (&"error".into(), &64.into()));
}

#[test]
fn nodes_come_from_the_environment() {
    let servers = servers(3);
    let urls: Vec<_> = servers.iter().map(Server::url).collect();
    let output = redislock(&[]).env("REDISLOCK_NODES", urls.join(",")).args(["info", "k"]).output().unwrap();
    assert_eq!(text(&output.stdout).lines().filter(|line| *line == "free").count(), 3, "{output:?}");
}

#[test]
fn completions_and_the_manual_are_written() {
    for shell in ["bash", "zsh", "fish"] {
        let output = redislock(&[]).args(["completions", shell]).output().unwrap();
        assert!(text(&output.stdout).contains("redislock"), "{shell}");
    }
    let output = redislock(&[]).arg("man").output().unwrap();
    assert!(text(&output.stdout).contains(".SH SYNOPSIS"), "{output:?}");
}

#[cfg(feature = "tls")]
#[test]
fn nodes_are_reached_over_tls() {
    let dir = std::env::temp_dir().join(format!("redislock-tls-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let identity = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    std::fs::write(&cert, identity.cert.pem()).unwrap();
    std::fs::write(&key, identity.signing_key.serialize_pem()).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = settings(redislock_testkit::Version::Redis70)
        .config("tls-port", port)
        .config("tls-cert-file", cert.display())
        .config("tls-key-file", key.display())
        .config("tls-ca-cert-file", cert.display())
        .config("tls-auth-clients", "no");
    let _server = settings.start();
    let run = |trusted: Option<&std::path::Path>| {
        let mut command = redislock(&[]);
        command.args(["--node", &format!("rediss://localhost:{port}"), "exec", "--key", "k", "--wait", "1s"]);
        if let Some(trusted) = trusted {
            command.env("SSL_CERT_FILE", trusted);
        }
        command.args(["--", "true"]).output().unwrap()
    };
    let output = run(Some(&cert));
    assert_eq!(code(&output), 0, "{output:?}");
    assert_eq!(code(&run(None)), 69, "a certificate that nobody vouches for");
    std::fs::remove_dir_all(dir).unwrap();
}
