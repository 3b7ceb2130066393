//! What a command costs, against what people use for it today.
//!
//! One run on one server, both sides in turn, so that the ratios hold though machines and their moods differ:
//!
//! - `LOCK.ACQUIRE` against `SET key owner NX PX ttl`,
//! - `LOCK.RELEASE` against a script that compares and deletes,
//! - `LOCK.RENEW` against a script that compares and sets the expiry,
//! - `LOCK.REENTER` against a script that counts holds in a hash,
//! - the memory of a held lock against that of the string that SET leaves.
//!
//! Server time is what INFO commandstats says of the commands, throughput what one pipelining client sees. Run it with
//! `make bench`; REDISLOCK_SERVERS=redis-7.0 keeps it to some servers, BENCH_KEYS says how many keys a round uses.

use redislock_testkit::{Client, Server, Version, cmd};
use std::time::Instant;

const ROUNDS: usize = 7;
const PIPELINE: usize = 64;
const OWNER: &str = "0123456789abcdef0123456789abcdef";

const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const COMPARE_AND_EXPIRE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
     return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
const REENTRANT: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then \
     redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2]) return nil else \
     return redis.call('pttl', KEYS[1]) end";

fn main() {
    let keys = std::env::var("BENCH_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(50_000);
    for version in Version::selected() {
        let server = Server::start(version);
        println!("\n{version}: {keys} keys a round, {ROUNDS} rounds, median of the rounds\n");
        println!("{:<13} {:>10} {:>10} {:>7}   {:>12}", "", "us a call", "today", "ratio", "throughput");
        Bench::new(&server, keys).run();
        memory(&server, 1_000_000);
    }
}

/// One command, as one side sends it for one key.
type Request<'a> = Box<dyn Fn(&str) -> Vec<String> + 'a>;

struct Bench {
    client: Client,
    keys: Vec<String>,
    delete: String,
    expire: String,
    reenter: String,
}

impl Bench {
    fn new(server: &Server, keys: usize) -> Self {
        let mut client = server.connect();
        let mut load = |script: &str| cmd!(client, "SCRIPT", "LOAD", script).text().to_owned();
        let (delete, expire, reenter) = (load(COMPARE_AND_DELETE), load(COMPARE_AND_EXPIRE), load(REENTRANT));
        let keys = (0..keys).map(|key| format!("lock:{key:08}")).collect();
        Self { client, keys, delete, expire, reenter }
    }

    fn run(&mut self) {
        let (delete, expire, reenter) = (self.delete.clone(), self.expire.clone(), self.reenter.clone());
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let set: Request<'_> = Box::new(move |key| words(&["SET", key, OWNER, "NX", "PX", "30000"]));
        let acquire: Request<'_> = Box::new(move |key| words(&["LOCK.ACQUIRE", key, OWNER, "30000"]));
        self.compare("LOCK.ACQUIRE", (None, &acquire), (None, &set), "set");
        self.compare(
            "LOCK.RELEASE",
            (Some(&acquire), &|key| words(&["LOCK.RELEASE", key, OWNER])),
            (Some(&set), &|key| words(&["EVALSHA", &delete, "1", key, OWNER])),
            "evalsha",
        );
        self.compare(
            "LOCK.RENEW",
            (Some(&acquire), &|key| words(&["LOCK.RENEW", key, OWNER, "30000"])),
            (Some(&set), &|key| words(&["EVALSHA", &expire, "1", key, OWNER, "30000"])),
            "evalsha",
        );
        self.compare(
            "LOCK.REENTER",
            (None, &|key| words(&["LOCK.REENTER", key, OWNER, "30000"])),
            (None, &|key| words(&["EVALSHA", &reenter, "1", key, OWNER, "30000"])),
            "evalsha",
        );
    }

    fn compare(&mut self, name: &str, ours: Side<'_>, theirs: Side<'_>, command: &str) {
        let mut rounds: Vec<(Cost, Cost)> = Vec::new();
        for round in 0..ROUNDS {
            // In turn, and each first every other time.
            let (one, other) = if round % 2 == 0 {
                let ours = self.side(&ours, &name.to_lowercase());
                (ours, self.side(&theirs, command))
            } else {
                let theirs = self.side(&theirs, command);
                (self.side(&ours, &name.to_lowercase()), theirs)
            };
            rounds.push((one, other));
        }
        let middle = |of: &dyn Fn(&(Cost, Cost)) -> f64| median(rounds.iter().map(of).collect());
        println!(
            "{name:<13} {:>10.2} {:>10.2} {:>7.2}   {:>11.2}x",
            middle(&|(ours, _)| ours.server),
            middle(&|(_, theirs)| theirs.server),
            middle(&|(ours, theirs)| ours.server / theirs.server),
            middle(&|(ours, theirs)| theirs.wall / ours.wall),
        );
    }

    fn side(&mut self, (prepare, request): &Side<'_>, command: &str) -> Cost {
        cmd!(self.client, "FLUSHALL").ok();
        if let Some(prepare) = prepare {
            self.send_all(prepare);
        }
        cmd!(self.client, "CONFIG", "RESETSTAT").ok();
        let start = Instant::now();
        self.send_all(request);
        let wall = start.elapsed().as_secs_f64();
        let stats = cmd!(self.client, "INFO", "commandstats").text().to_lowercase();
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let mut fields = line.expect("the command was called").split(',');
        let server = fields.find_map(|field| field.strip_prefix("usec_per_call="));
        Cost { server: server.and_then(|value| value.parse().ok()).expect("a number"), wall }
    }

    fn send_all(&mut self, request: &dyn Fn(&str) -> Vec<String>) {
        for keys in self.keys.chunks(PIPELINE) {
            let mut batch = Vec::new();
            for key in keys {
                encode(&mut batch, &request(key));
            }
            self.client.send_raw(&batch);
            for _ in keys {
                assert!(!self.client.read().is_error(), "a request of the benchmark failed");
            }
        }
    }
}

/// What is done before the clock starts, and what is measured.
type Side<'a> = (Option<&'a dyn Fn(&str) -> Vec<String>>, &'a dyn Fn(&str) -> Vec<String>);

struct Cost {
    /// Microseconds a call, in the server.
    server: f64,
    /// Seconds for all calls, seen by the client.
    wall: f64,
}

fn encode(batch: &mut Vec<u8>, words: &[String]) {
    batch.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        batch.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The memory of so many held locks against that of so many strings.
fn memory(server: &Server, count: usize) {
    let mut bench = Bench::new(server, count);
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut grown = |request: &dyn Fn(&str) -> Vec<String>| {
        cmd!(bench.client, "FLUSHALL").ok();
        let used = |client: &mut Client| client.info("used_memory").and_then(|used| used.parse::<f64>().ok());
        let before = used(&mut bench.client).expect("a number");
        bench.send_all(request);
        (used(&mut bench.client).expect("a number") - before) / count as f64
    };
    let string = grown(&|key| words(&["SET", key, OWNER, "NX", "PX", "3000000"]));
    let lock = grown(&|key| words(&["LOCK.ACQUIRE", key, OWNER, "3000000"]));
    println!(
        "\nmemory of {count} held locks: {lock:.0} bytes each, a string {string:.0}: ratio {:.2}",
        lock / string
    );
}
