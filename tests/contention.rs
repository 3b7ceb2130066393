//! Many clients on one key and on many: never two holders, and fences that only rise.

use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redislock_testkit::{
    Client, HistoryChecker, LockInfo, Mode, Reply, Server, cmd, eventually, every_server,
};

const CLIENTS: usize = 24;
const SOON: Duration = Duration::from_secs(20);

/// What a careful client takes off its lease for the drift of clocks, as the specification of the client does.
fn margin(ttl: u64) -> Duration {
    Duration::from_millis(ttl / 100 + 2)
}

/// When a grant was asked for and answered, and its fence.
type Grants = Mutex<Vec<(Instant, Instant, i64)>>;

/// A fence is above every one that was answered before it was asked for, whatever the keys.
#[track_caller]
fn fences_rise(grants: &Grants) {
    let mut by_request = grants.lock().unwrap().clone();
    by_request.sort_by_key(|(asked, _, _)| *asked);
    let mut by_answer = by_request.clone();
    by_answer.sort_by_key(|(_, answered, _)| *answered);
    let (mut highest, mut answered) = (0, by_answer.iter().peekable());
    for (asked, _, fence) in &by_request {
        while let Some((_, _, before)) = answered.next_if(|(_, at, _)| at < asked) {
            highest = highest.max(*before);
        }
        assert!(*fence > highest, "{fence} was granted after {highest}");
    }
    let mut fences: Vec<_> = by_request.iter().map(|(_, _, fence)| *fence).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), by_request.len(), "one fence, two grants");
}

struct Contender<'a> {
    client: Client,
    owner: String,
    seed: u64,
    history: &'a HistoryChecker,
    grants: &'a Grants,
}

impl Contender<'_> {
    fn roll(&mut self, sides: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % sides
    }

    fn round(&mut self, keys: u64, shares: bool) {
        let key = format!("key-{}", self.roll(keys));
        let shared = shares && self.roll(3) > 0;
        // Short leases lapse in the middle of things; long ones are given back.
        let ttl = if self.roll(2) == 0 { 5 + self.roll(20) } else { 60_000 };
        let asked = Instant::now();
        let reply = match shared {
            true => cmd!(self.client, "LOCK.ACQUIRE", key, self.owner, ttl, "SHARED"),
            false => cmd!(self.client, "LOCK.ACQUIRE", key, self.owner, ttl),
        };
        let answered = Instant::now();
        let fence = match reply {
            Reply::Int(fence) => fence,
            Reply::Nil => return,
            // Its own short lease, which it left to lapse.
            Reply::Error(error) if error.starts_with("HELD ") => return,
            other => panic!("{other:?}"),
        };
        self.grants.lock().unwrap().push((asked, answered, fence));
        let mode = if shared { Mode::Shared } else { Mode::Exclusive };
        let valid = |from: Instant| (from + Duration::from_millis(ttl)).checked_sub(margin(ttl)).unwrap();
        let hold = self.history.granted(&key, &self.owner, mode, fence, answered, valid(asked));
        if self.roll(4) == 0 {
            thread::sleep(Duration::from_micros(self.roll(3000)));
        }
        if self.roll(4) == 0 {
            let asked = Instant::now();
            if let Reply::Int(renewed) = cmd!(self.client, "LOCK.RENEW", key, self.owner, ttl) {
                assert_eq!(renewed, fence, "a renewal is not a grant");
                self.history.renewed(hold, valid(asked));
            }
        }
        if ttl == 60_000 || self.roll(2) == 0 {
            self.history.released(hold, Instant::now());
            let left = cmd!(self.client, "LOCK.RELEASE", key, self.owner);
            assert!(left == Reply::Int(0) || (left.is_nil() && ttl < 60_000), "{left:?} of {ttl} ms");
        }
    }
}

/// Contends for so long, and judges.
fn contend(server: &Server, keys: u64, shares: bool, time: Duration) {
    let (history, grants) = (HistoryChecker::new(), Grants::default());
    let end = Instant::now() + time;
    thread::scope(|scope| {
        for index in 0..CLIENTS {
            let (client, owner) = (server.connect(), format!("owner-{index}"));
            let seed = u64::try_from(index).unwrap() * 7919 + keys;
            let mut contender = Contender { client, owner, seed, history: &history, grants: &grants };
            scope.spawn(move || {
                while Instant::now() < end {
                    contender.round(keys, shares);
                }
            });
        }
    });
    assert!(history.len() > 50, "only {} grants", history.len());
    history.check();
    fences_rise(&grants);
    // What was left to lapse is gone by itself.
    let mut client = server.connect();
    eventually(SOON, || (0..keys).all(|key| LockInfo::of(&mut client, format!("key-{key}")).is_none()));
}

/// Hammers with the server's own benchmark, which takes no care of what it was granted. It ends at an error, so the
/// random owners must be many where one that holds is told so.
fn hammer(server: &Server, requests: u32, random: &str, command: &[&str]) -> std::process::Child {
    Command::new("redis-benchmark")
        .args(["-p", &server.port().to_string(), "-c", &CLIENTS.to_string(), "-n", &requests.to_string()])
        .args(["-r", random, "-q"])
        .args(command)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-benchmark is there: run `make setup`")
}

every_server! {
    fn one_key_has_one_holder(version) {
        contend(&Server::start(version), 1, false, Duration::from_millis(1200));
    }

    fn many_keys_have_one_holder_each(version) {
        contend(&Server::start(version), 40, false, Duration::from_millis(1200));
    }

    fn readers_and_writers_are_never_together(version) {
        contend(&Server::start(version), 3, true, Duration::from_millis(1200));
    }

    /// The same while the server's own benchmark takes the same keys, and others.
    fn one_holder_under_redis_benchmark(version) {
        let server = Server::start(version);
        let (key, owner) = ("key-__rand_int__", "bench-__rand_int__");
        let mut hammers = [
            hammer(&server, 10_000, "1000000000", &["LOCK.ACQUIRE", "key-0", owner, "1"]),
            hammer(&server, 10_000, "1000000000", &["LOCK.ACQUIRE", key, owner, "1000"]),
            hammer(&server, 10_000, "64", &["LOCK.REENTER", "key-0", owner, "1"]),
            hammer(&server, 10_000, "64", &["LOCK.RELEASE", key, owner]),
        ];
        contend(&server, 2, true, Duration::from_millis(1500));
        for hammer in &mut hammers {
            assert!(hammer.wait().expect("it ends").success());
        }
        let stats = |field| server.info(field).parse::<u64>().unwrap();
        assert!(stats("lock_grants") > 1000, "the benchmark was granted nothing");
        assert_eq!(stats("lock_panics"), 0);
    }

    /// Fences of one server rise though its wall clock is set back meanwhile.
    fn fences_rise_though_the_clock_is_set_back(version) {
        let clock = redislock_testkit::Clock::new();
        let server = Server::builder(version).clock(&clock).start();
        let mut client = server.connect();
        let mut last = 0;
        for step in [0, -3_600_000, 7_200_000, -86_400_000, 1] {
            clock.step(step);
            for key in 0..100 {
                let fence = cmd!(client, "LOCK.ACQUIRE", key, "A", 60_000).int();
                assert!(fence > last, "{fence} after {last}, the clock stepped by {step} ms");
                last = fence;
                assert_eq!(cmd!(client, "LOCK.RELEASE", key, "A").int(), 0);
            }
        }
    }
}
