//! A lock becomes free in the very moment in which a wait for it ends otherwise.
//!
//! Each round lets one owner hold, a second one wait and a third one wait behind it. Then the lock is given back, or
//! lapses, while the second wait is ended: by its timeout, by CLIENT UNBLOCK, by CLIENT KILL, by the client's own end.
//! Whoever comes first, the second owner holds if and only if it was told so, and otherwise the third one holds.
//!
//! `make soak` plays 100,000 rounds on each server.

use redislock_testkit::{Client, Reply, Server, Version, cmd, eventually, every_server, send, until_blocked};
use std::fmt::Write as _;
use std::net::Shutdown;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

/// How the second wait is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Its own timeout.
    Timeout,
    /// CLIENT UNBLOCK ... TIMEOUT.
    Unblock,
    /// CLIENT UNBLOCK ... ERROR.
    UnblockError,
    /// CLIENT KILL.
    Kill,
    /// The client says that it sends no more, which is the end of the connection for a server.
    Close,
    /// The client's machine crashes. It can't be asked what it heard, so its lease is tied to the connection.
    Reset,
}

/// How the lock becomes free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Free {
    Release,
    Lapse,
}

/// Numbers that look random, and are the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

struct Table {
    server: Server,
    control: Client,
    other: Client,
    third: Client,
    dice: Dice,
}

impl Table {
    fn new(server: Server) -> Self {
        let (control, other, third) = (server.connect(), server.connect(), server.connect());
        Self { server, control, other, third, dice: Dice(0x9e37_79b9_7f4a_7c15) }
    }

    fn rounds(&mut self, count: usize, free: Free, ends: &[End]) {
        for round in 0..count {
            let end = ends[round % ends.len()];
            self.round(round, free, end);
        }
    }

    fn round(&mut self, round: usize, free: Free, end: End) {
        let ttl = if free == Free::Lapse { 4 + self.dice.roll(4) } else { 60_000 };
        let began = Instant::now();
        assert!(cmd!(self.control, "LOCK.ACQUIRE", "k", "A", ttl).int() > 0);
        let mut second = self.server.connect();
        let id = second.client_id();
        let wait = match end {
            End::Timeout if free == Free::Lapse => ttl.saturating_sub(elapsed(began)).max(1),
            End::Timeout => 1 + self.dice.roll(2),
            _ => 50_000,
        };
        let session = if end == End::Reset { &["SESSION"][..] } else { &[] };
        let wait = wait.to_string();
        let mut ask = vec!["LOCK.ACQUIRE", "k", "B", "60000", "WAIT", &wait];
        ask.extend(session);
        second.send(&ask);
        let long = usize::from(end != End::Timeout);
        self.until_lined_up(long);
        send!(self.third, "LOCK.ACQUIRE", "k", "C", 60_000, "WAIT", 0);
        self.until_lined_up(1 + long);
        let label = format!("round {round}: {free:?} against {end:?}");
        self.collide(free, end, id, &second, began + Duration::from_millis(ttl));
        let told = hear(second, end, &label);
        if told {
            let back = cmd!(self.control, "LOCK.RELEASE", "k", "B");
            assert_eq!(back, Reply::Int(0), "{label}: it was told that it holds, and does not");
        }
        let served = self.third.read_timeout(SOON);
        assert!(
            matches!(served, Some(Reply::Int(_))),
            "{label}: told {told}, and then the next gets {served:?}"
        );
        let back = cmd!(self.control, "LOCK.RELEASE", "k", "B");
        assert_eq!(back, Reply::Nil, "{label}: it holds, and nobody told it");
        assert_eq!(cmd!(self.control, "LOCK.RELEASE", "k", "C").int(), 0, "{label}");
        cmd!(self.control, "LOCK.ACQUIRE", "k", "A", 60_000).int();
        assert_eq!(cmd!(self.control, "LOCK.RELEASE", "k", "A").int(), 0, "{label}: nobody is left behind");
    }

    /// Waits until so many stand in line, or the race is over already.
    fn until_lined_up(&mut self, count: usize) {
        let control = &mut self.control;
        eventually(SOON, || {
            let info = cmd!(control, "LOCK.INFO", "k");
            info.is_nil()
                || info.field("waiters").int() >= count as i64
                || info.field("holders").array().iter().any(|holder| holder.field("owner").text() != "A")
        });
    }

    /// Frees the lock and ends the wait, in either order, as close to one another as can be.
    fn collide(&mut self, free: Free, end: End, id: i64, second: &Client, lapse: Instant) {
        let release = "LOCK.RELEASE k A\r\n".to_owned();
        let release = if free == Free::Release { release } else { String::new() };
        let by_server = match end {
            End::Timeout | End::Close | End::Reset => None,
            End::Unblock => Some(format!("CLIENT UNBLOCK {id} TIMEOUT\r\n")),
            End::UnblockError => Some(format!("CLIENT UNBLOCK {id} ERROR\r\n")),
            End::Kill => Some(format!("CLIENT KILL ID {id}\r\n")),
        };
        if free == Free::Lapse {
            spin_until(lapse - Duration::from_micros(300 - self.dice.roll(600).min(300)));
        } else if end == End::Timeout {
            spin(Duration::from_micros(self.dice.roll(2_200)));
        }
        let sent = match (by_server, self.dice.roll(4)) {
            (Some(by_server), order @ (0 | 1)) => {
                // One piece for one connection: all in one turn of the server's loop.
                let mut both = if order == 0 { release.clone() } else { by_server.clone() };
                let _ = write!(both, "{}", if order == 0 { by_server } else { release });
                self.control.send_raw(both.as_bytes());
                (both.matches('\n').count(), 0)
            }
            (Some(by_server), _) => {
                self.other.send_raw(by_server.as_bytes());
                self.jitter();
                self.control.send_raw(release.as_bytes());
                (release.matches('\n').count(), 1)
            }
            (None, order) => {
                if order % 2 == 0 {
                    self.control.send_raw(release.as_bytes());
                    self.jitter();
                }
                if end == End::Close {
                    let _ = second.stream().shutdown(Shutdown::Write);
                }
                if order % 2 == 1 {
                    self.jitter();
                    self.control.send_raw(release.as_bytes());
                }
                (release.matches('\n').count(), 0)
            }
        };
        for _ in 0..sent.0 {
            self.control.read();
        }
        for _ in 0..sent.1 {
            self.other.read();
        }
    }

    fn jitter(&mut self) {
        let micros = self.dice.roll(60);
        if micros > 30 {
            spin(Duration::from_micros(micros * 4));
        }
    }

    /// All connections but one are closed: what memory is in use then?
    fn memory(&mut self) -> i64 {
        until_blocked(&self.server, 0);
        let memory = |control: &mut Client| -> i64 {
            control.info("used_memory").expect("a field").parse().expect("a number")
        };
        let control = &mut self.control;
        eventually(SOON, || control.info("connected_clients").as_deref() == Some("3"));
        // The least of several looks, since the server's own tick comes and goes.
        (0..10).map(|_| memory(control)).min().expect("ten looks")
    }
}

/// What a client was told until its connection ended, or until it was answered: whether it holds.
fn hear(mut second: Client, end: End, label: &str) -> bool {
    if end == End::Reset {
        second.close_hard();
        return false;
    }
    let mut replies = Vec::new();
    match end {
        End::Kill | End::Close => {
            while let Ok(Some(reply)) = second.try_read_timeout(SOON) {
                replies.push(reply);
            }
            assert!(replies.len() <= 1, "{label}: {replies:?}");
        }
        _ => {
            replies.push(second.read());
            assert_eq!(cmd!(second, "PING").text(), "PONG", "{label}: more than one answer");
        }
    }
    match (end, replies.first()) {
        (_, Some(Reply::Int(fence))) => *fence > 0,
        (End::Timeout | End::Unblock, Some(Reply::Nil)) | (End::Kill | End::Close, None) => false,
        (End::UnblockError, Some(Reply::Error(text))) if text.starts_with("UNBLOCKED") => false,
        (_, other) => panic!("{label}: {other:?}"),
    }
}

fn elapsed(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn spin(time: Duration) {
    spin_until(Instant::now() + time);
}

fn spin_until(end: Instant) {
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

const ALL: [End; 6] = [End::Timeout, End::Unblock, End::UnblockError, End::Kill, End::Close, End::Reset];

/// Plays, and looks at what is left: nobody blocked, no memory, no bug caught.
fn play(server: Server, rounds: usize, free: Free, ends: &[End]) {
    let mut table = Table::new(server);
    table.rounds(rounds / 4, free, ends);
    let before = table.memory();
    table.rounds(rounds, free, ends);
    let bound = before + 64 * 1024;
    eventually(SOON, || table.memory() <= bound);
    assert_eq!(table.server.info("lock_waiters"), "0");
    assert_eq!(table.server.info("lock_sessions"), "0");
    assert_eq!(table.server.info("lock_panics"), "0");
    assert_eq!(table.server.log().matches("a bug in").count(), 0);
}

every_server! {
    /// A release against every way in which a wait can end.
    fn b75_b77_release_against_the_end_of_a_wait(version) {
        play(Server::start(version), 1_800, Free::Release, &ALL);
    }

    /// A lapse, which no command brings about, against every way in which a wait can end.
    fn b75_b77_lapse_against_the_end_of_a_wait(version) {
        play(Server::start(version), 480, Free::Lapse, &ALL);
    }

    /// The same for long.
    #[ignore = "long: run by `make soak`"]
    fn soak_b75_b77_a_hundred_thousand_rounds(version) {
        play(Server::start(version), 90_000, Free::Release, &ALL);
        play(Server::start(version), 10_000, Free::Lapse, &ALL);
    }
}

/// The same under valgrind, on the servers that are built for it: no read or write of freed memory, no leak.
fn under_valgrind(version: Version) {
    let server = Server::builder(version)
        .wrapper([
            "valgrind",
            "--error-exitcode=99",
            "--exit-on-first-error=no",
            "--leak-check=full",
            "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite",
            "--log-file=valgrind.%p.log",
        ])
        .start();
    let mut table = Table::new(server);
    table.rounds(600, Free::Release, &ALL);
    table.rounds(60, Free::Lapse, &ALL);
    let status = table.server.terminate();
    let logs = std::fs::read_dir(table.server.dir()).expect("its folder").flatten();
    let logs = logs.filter(|file| file.file_name().to_string_lossy().starts_with("valgrind"));
    let text: String = logs.map(|log| std::fs::read_to_string(log.path()).expect("a log")).collect();
    assert!(status.success() && text.contains("ERROR SUMMARY: 0 errors"), "{status}\n{text}");
}

#[test]
#[ignore = "slow: run by `make valgrind`"]
fn valgrind_races_on_redis_6_2() {
    under_valgrind(Version::Redis62);
}

#[test]
#[ignore = "slow: run by `make valgrind`"]
fn valgrind_races_on_valkey_8_1() {
    under_valgrind(Version::Valkey81);
}
