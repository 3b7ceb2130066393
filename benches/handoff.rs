//! What it costs to hand a lock on, against what people use for it today, and how late a lapse is.
//!
//! One run on one server, both sides in turn, so that the ratios hold though machines and their moods differ:
//!
//! - from `LOCK.RELEASE` to the next waiter's answer, against `RPUSH` and `BLPOP`, at 1 and at 5,000 waiters,
//! - the server's own time for a release, a hand-off and a new request, from 10 to 5,000 waiters,
//! - how long after its deadline a lock is handed on, 1,000 locks among 1,000,000 other keys that expire, on an idle
//!   server and on a busy one. A fence is the server's wall clock at its grant, so the server itself says it.
//!
//! REDISLOCK_SERVERS=redis-7.0 keeps it to some servers, BENCH_KEYS says how many other keys there are.

use redislock_testkit::{Client, Server, Version, cmd, send, until_blocked};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 3_000;
const SIZES: [usize; 4] = [10, 100, 1_000, 5_000];

fn main() {
    let keys = std::env::var("BENCH_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(1_000_000);
    for version in Version::selected() {
        println!("\n{version}");
        latency(version, 1);
        latency(version, 5_000);
        server_time(version);
        lateness(version, keys);
    }
}

fn server(version: Version) -> Server {
    Server::builder(version).config("maxclients", 15_000).start()
}

/// Clients in a line that goes round: whoever was served lines up again.
struct Line {
    waiters: VecDeque<(String, Client)>,
    control: Client,
    /// Who holds the lock now.
    holder: Option<(String, Client)>,
}

impl Line {
    fn of_locks(server: &Server, count: usize) -> Self {
        let mut control = server.connect();
        let mut holder = ("W-".to_owned(), server.connect());
        send!(holder.1, "LOCK.ACQUIRE", "k", &holder.0, 86_400_000);
        holder.1.read().int();
        let mut line = VecDeque::new();
        for n in 0..count {
            let (owner, mut client) = (format!("W{n}"), server.connect());
            send!(client, "LOCK.ACQUIRE", "k", &owner, 86_400_000, "WAIT", 0);
            line.push_back((owner, client));
        }
        until_blocked(server, count);
        control.set_patience(Duration::from_secs(60));
        let mut line = Self { waiters: line, control, holder: Some(holder) };
        // They lined up in any order, since each came on its own connection.
        let order = cmd!(line.control, "LOCK.WAITERS", "k");
        let order: Vec<String> =
            order.array().iter().map(|waiter| waiter.field("owner").text().to_owned()).collect();
        line.sort_by(&order);
        line
    }

    fn sort_by(&mut self, order: &[String]) {
        let rank: std::collections::HashMap<&String, usize> =
            order.iter().enumerate().map(|(rank, owner)| (owner, rank)).collect();
        self.waiters.make_contiguous().sort_by_key(|(owner, _)| rank[owner]);
    }

    fn of_pops(server: &Server, count: usize) -> Self {
        let mut waiters = VecDeque::new();
        for n in 0..count {
            let mut client = server.connect();
            send!(client, "BLPOP", "l", 0);
            // One after the other, since nobody can be asked for the order.
            if n % 50 == 0 {
                until_blocked(server, n + 1);
            }
            waiters.push_back((String::new(), client));
        }
        until_blocked(server, count);
        Self { waiters, control: server.connect(), holder: None }
    }

    /// One hand-off, when all have lined up again. Each side is asked right before its turn, so that neither server
    /// has slept longer than the other.
    fn next(&mut self, waiters: usize) -> Duration {
        if waiters == 1 {
            until_blocked_quickly(&mut self.control);
        }
        self.hand_on()
    }

    /// One hand-off: from the release to the answer of who is next.
    fn hand_on(&mut self) -> Duration {
        let (owner, mut client) = self.waiters.pop_front().expect("a line");
        let start = Instant::now();
        let before = match &self.holder {
            Some((holder, _)) => {
                send!(self.control, "LOCK.RELEASE", "k", holder);
                client.read().int();
                start.elapsed()
            }
            None => {
                send!(self.control, "RPUSH", "l", "x");
                client.read().array();
                start.elapsed()
            }
        };
        self.control.read().int();
        match self.holder.replace((owner, client)) {
            Some((owner, mut client)) if !owner.is_empty() => {
                send!(client, "LOCK.ACQUIRE", "k", &owner, 86_400_000, "WAIT", 0);
                self.waiters.push_back((owner, client));
            }
            _ => {
                let (owner, mut client) = self.holder.take().expect("just put there");
                send!(client, "BLPOP", "l", 0);
                self.waiters.push_back((owner, client));
            }
        }
        before
    }
}

fn latency(version: Version, waiters: usize) {
    let server = server(version);
    let mut locks = Line::of_locks(&server, waiters);
    let other = self::server(version);
    let mut pops = Line::of_pops(&other, waiters);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if round % 2 == 0 {
            ours.push(locks.next(waiters));
            theirs.push(pops.next(waiters));
        } else {
            theirs.push(pops.next(waiters));
            ours.push(locks.next(waiters));
        }
    }
    ours.sort_unstable();
    theirs.sort_unstable();
    let at = |times: &[Duration], percent: usize| times[times.len() * percent / 100].as_secs_f64() * 1e6;
    for percent in [50, 99] {
        let (ours, theirs) = (at(&ours, percent), at(&theirs, percent));
        println!(
            "  hand-off at {waiters:>4} waiters, p{percent}: {ours:>7.1} us, BLPOP {theirs:>7.1} us, ratio {:.2}",
            ours / theirs
        );
    }
}

fn until_blocked_quickly(control: &mut Client) {
    while control.info("blocked_clients").as_deref() != Some("1") {}
}

fn server_time(version: Version) {
    let mut least = f64::MAX;
    for waiters in SIZES {
        let server = server(version);
        let mut locks = Line::of_locks(&server, waiters);
        let ours = cpu_of(&server, || locks.hand_on());
        let other = self::server(version);
        let mut pops = Line::of_pops(&other, waiters);
        let theirs = cpu_of(&other, || pops.hand_on());
        least = least.min(ours);
        println!(
            "  server time a hand-off at {waiters:>4} waiters: {ours:>6.2} us ({:.2} of the least), BLPOP {theirs:>6.2} us",
            ours / least
        );
    }
}

/// The server's processor time for each of many rounds, in microseconds.
fn cpu_of(server: &Server, mut round: impl FnMut() -> Duration) -> f64 {
    let cpu = || {
        let seconds = |field| server.info(field).parse::<f64>().expect("seconds");
        seconds("used_cpu_user") + seconds("used_cpu_sys")
    };
    let before = cpu();
    for _ in 0..ROUNDS {
        round();
    }
    (cpu() - before) * 1e6 / ROUNDS as f64
}

fn lateness(version: Version, keys: usize) {
    let server = server(version);
    let fill = "for n = 1, 10000 do redis.call('SET', 'other:' .. ARGV[1] .. ':' .. n, 'x', 'EX', 3600) end";
    let mut control = server.connect();
    for part in 0..keys / 10_000 {
        cmd!(control, "EVAL", fill, 0, part);
    }
    for busy in [false, true] {
        let stop = AtomicBool::new(false);
        let mut late = thread::scope(|scope| {
            if busy {
                for _ in 0..2 {
                    let mut client = server.connect();
                    let stop = &stop;
                    scope.spawn(move || be_busy(&mut client, stop));
                }
            }
            let late = lapses(&server);
            stop.store(true, Ordering::Relaxed);
            late
        });
        late.sort_unstable();
        let at = |per_mille: usize| late[(late.len() * per_mille / 1000).min(late.len() - 1)] as f64 / 1e3;
        println!(
            "  lapse among {keys} keys, {}: p50 {:.2} ms, p99 {:.2} ms after the deadline, the least {:.2} ms",
            if busy { "busy" } else { "idle" },
            at(500),
            at(990),
            at(0)
        );
    }
}

fn be_busy(client: &mut Client, stop: &AtomicBool) {
    let piece: String = (0..50).map(|n| format!("SET busy:{n} x\r\nGET busy:{n}\r\n")).collect();
    while !stop.load(Ordering::Relaxed) {
        client.send_raw(piece.as_bytes());
        (0..100).for_each(|_| drop(client.read()));
    }
}

/// How long after its deadline each of a thousand locks was handed on, in microseconds.
fn lapses(server: &Server) -> Vec<i64> {
    let mut control = server.connect();
    let mut line: Vec<Client> = (0..1_000)
        .map(|n| {
            cmd!(control, "LOCK.ACQUIRE", format!("k{n}"), "A", 600_000).int();
            let mut client = server.connect();
            send!(client, "LOCK.ACQUIRE", format!("k{n}"), "B", 600_000, "WAIT", 0);
            client
        })
        .collect();
    until_blocked(server, line.len());
    let deadlines: Vec<i64> = (0..line.len())
        .map(|n| {
            let ttl = 500 + (n as i64 * 37 % 1_000);
            let time = cmd!(control, "TIME");
            let number = |index: usize| time.array()[index].text().parse::<i64>().expect("a number");
            cmd!(control, "LOCK.RENEW", format!("k{n}"), "A", ttl).int();
            number(0) * 1_000_000 + number(1) + ttl * 1_000
        })
        .collect();
    let late =
        line.iter_mut().zip(&deadlines).map(|(client, deadline)| client.read().int() - deadline).collect();
    for n in 0..line.len() {
        cmd!(control, "DEL", format!("k{n}"));
    }
    late
}
