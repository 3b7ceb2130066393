//! The figures that the client is held to, as ratios measured in one run:
//!
//! `cargo bench -p redislock-client --bench bars [-- round-trips | contention | guards]`
//!
//! Servers run on loopback behind proxies that add 2 ms each way: on bare loopback a round trip is so short that what
//! is measured is how five servers and a client share the cores of one machine. That figure is printed too.

#[path = "../tests/support/mod.rs"]
mod support;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redislock_client::{Error, Guard, Locker};
use redislock_testkit::{Proxy, Server};
use support::{locker_behind, ms, proxies, servers};

const ROUNDS: usize = 400;

/// For how long contention is measured.
const CONTENDED: Duration = Duration::from_secs(4);

fn main() {
    // Two threads, as the smallest machine that this should run well on has two cores.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let mut bars = Bars::default();
    let only = std::env::args().nth(1).filter(|arg| !arg.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    runtime.block_on(async {
        if wanted("round-trips") {
            round_trips(&mut bars).await;
        }
        if wanted("contention") {
            contention(&mut bars).await;
        }
        if wanted("guards") {
            many_guards(&mut bars).await;
        }
    });
    bars.finish();
}

/// What was measured, and whether it is good enough.
#[derive(Default)]
struct Bars {
    failed: Vec<String>,
}

impl Bars {
    fn at_most(&mut self, what: &str, value: f64, bar: f64) {
        self.judge(what, value, value <= bar, &format!("at most {bar}"));
    }

    fn at_least(&mut self, what: &str, value: f64, bar: f64) {
        self.judge(what, value, value >= bar, &format!("at least {bar}"));
    }

    fn judge(&mut self, what: &str, value: f64, holds: bool, bar: &str) {
        println!("{} {what}: {value:.2} ({bar})", if holds { "  ok" } else { "MISS" });
        if !holds {
            self.failed.push(what.to_owned());
        }
    }

    fn finish(self) {
        if !self.failed.is_empty() {
            println!("missed: {}", self.failed.join("; "));
            std::process::exit(1);
        }
    }
}

fn quantile(samples: &mut [Duration], part: f64) -> Duration {
    samples.sort();
    samples[((samples.len() - 1) as f64 * part) as usize]
}

async fn timed<T>(samples: &mut Vec<Duration>, work: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let outcome = work.await;
    samples.push(began.elapsed());
    outcome
}

async fn connections(urls: impl Iterator<Item = String>) -> Vec<MultiplexedConnection> {
    let mut connections = Vec::new();
    for url in urls {
        let client = redis::Client::open(url).expect("a good URL");
        connections.push(client.get_multiplexed_async_connection().await.expect("it is up"));
    }
    connections
}

/// One PING to each node; done when `quorum` of them have answered.
async fn ping(connections: &[MultiplexedConnection], quorum: usize) {
    let pings = connections.iter().map(|connection| {
        let mut connection = connection.clone();
        async move { redis::cmd("PING").query_async::<String>(&mut connection).await }
    });
    let mut pings: FuturesUnordered<_> = pings.collect();
    for _ in 0..quorum {
        pings.next().await;
    }
}

struct Medians {
    ping: Duration,
    acquire: Duration,
    release: Duration,
}

async fn medians(locker: &Locker, connections: &[MultiplexedConnection]) -> Medians {
    let (mut pings, mut acquires, mut releases) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let request = locker.lock(format!("k{round}")).ttl(ms(10_000));
        timed(&mut pings, ping(connections, connections.len() / 2 + 1)).await;
        let guard = timed(&mut acquires, request.try_acquire()).await.expect("it is free");
        timed(&mut releases, guard.release()).await.expect("it is held");
    }
    Medians {
        ping: quantile(&mut pings, 0.5),
        acquire: quantile(&mut acquires, 0.5),
        release: quantile(&mut releases, 0.5),
    }
}

async fn round_trips(bars: &mut Bars) {
    let servers = servers(5);
    let bare = support::locker(&servers);
    let direct = connections(servers.iter().map(Server::url)).await;
    medians(&bare, &direct).await;
    let Medians { ping, acquire, release } = medians(&bare, &direct).await;
    println!("bare loopback: PING {ping:?}, acquire {acquire:?}, release {release:?}");

    let proxies = proxies(&servers);
    proxies.iter().for_each(|proxy| proxy.delay(ms(2)));
    let locker = locker_behind(&proxies);
    let delayed = connections(proxies.iter().map(Proxy::url)).await;
    medians(&locker, &delayed).await;
    let up = medians(&locker, &delayed).await;
    println!("with delay: PING {:?}, acquire {:?}, release {:?}", up.ping, up.acquire, up.release);
    let ratio = |time: Duration, base: Duration| time.as_secs_f64() / base.as_secs_f64();
    bars.at_most("p50 of acquire over 5 nodes, in PINGs to the quorum", ratio(up.acquire, up.ping), 1.5);
    bars.at_most("p50 of release over 5 nodes, in PINGs to the quorum", ratio(up.release, up.ping), 1.5);

    servers[1].stop_signal();
    proxies[3].drop_requests(true);
    let down = medians(&locker, &delayed).await;
    println!("two of five hang: acquire {:?}, release {:?}", down.acquire, down.release);
    bars.at_most("p50 of acquire with two of five hanging, to all up", ratio(down.acquire, up.acquire), 1.2);
    bars.at_most("p50 of release with two of five hanging, to all up", ratio(down.release, up.release), 1.2);
    servers[1].resume();
}

/// Grants, and those among them that went to another client than the one before.
#[derive(Default)]
struct Grants {
    all: AtomicU64,
    passed_on: AtomicU64,
    last: AtomicU64,
}

/// Runs clients that want one lock; how many grants a second there were, and how many a second were
/// passed on to another client.
async fn contend<F, O>(lockers: &[Locker], clients: u64, acquire: F) -> (f64, f64)
where
    F: Fn(Locker) -> O + Clone + Send + 'static,
    O: Future<Output = Result<Guard, Error>> + Send,
{
    let grants = Arc::new(Grants::default());
    let client = |number: u64| {
        let locker = lockers[number as usize % lockers.len()].clone();
        let (grants, acquire) = (grants.clone(), acquire.clone());
        tokio::spawn(async move {
            loop {
                match acquire(locker.clone()).await {
                    Ok(guard) => {
                        grants.all.fetch_add(1, Ordering::Relaxed);
                        if grants.last.swap(number, Ordering::Relaxed) != number {
                            grants.passed_on.fetch_add(1, Ordering::Relaxed);
                        }
                        let _ = guard.release().await;
                    }
                    Err(_) => tokio::time::sleep(ms(rand::random_range(100..300))).await,
                }
            }
        })
    };
    let tasks: Vec<_> = (0..clients).map(client).collect();
    tokio::time::sleep(ms(2000)).await;
    let counts = || (grants.all.load(Ordering::Relaxed), grants.passed_on.load(Ordering::Relaxed));
    let before = counts();
    tokio::time::sleep(CONTENDED).await;
    let after = counts();
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    for task in tasks {
        let _ = task.await;
    }
    tokio::time::sleep(ms(1000)).await;
    let per_second = |count: u64| count as f64 / CONTENDED.as_secs_f64();
    (per_second(after.0 - before.0), per_second(after.1 - before.1))
}

/// A polling client that has just released finds the lock free, and takes it again and again while the others sleep:
/// so what is compared is how often the lock is passed on. The bar is against one client that retries while another
/// holds. Many that retry find the gap sooner, at the price of hundreds of requests a grant, and in no order.
async fn contention(bars: &mut Bars) {
    let servers = servers(5);
    let proxies = proxies(&servers);
    let urls: Vec<_> = proxies.iter().map(Proxy::url).collect();
    let client = |_| {
        let builder = Locker::builder().nodes(&urls).expect("good URLs");
        builder.node_timeout(ms(1000)).build().expect("a locker")
    };
    let lockers: Vec<_> = (0..10).map(client).collect();
    let request = |locker: &Locker, key: &str| locker.lock(key).ttl(ms(10_000)).without_watchdog();
    for delay in [0, 2] {
        proxies.iter().for_each(|proxy| proxy.delay(ms(delay)));
        let poll = move |locker: Locker| async move { request(&locker, "polled").try_acquire().await };
        let mut passed_on = 0.0;
        for clients in [200, 2] {
            let (all, polled) = contend(&lockers, clients, poll).await;
            println!(
                "{delay} ms each way, {clients} clients poll: {all:.1} grants a second, {polled:.1} passed on"
            );
            passed_on = polled;
        }
        let queue = move |locker: Locker| async move { request(&locker, "queued").acquire().await };
        let (all, handed_on) = contend(&lockers, 200, queue).await;
        println!(
            "{delay} ms each way, 200 clients queue: {all:.1} grants a second, {handed_on:.1} passed on"
        );
        let what =
            format!("locks passed on among 200 waiting clients, to a retrying one, {delay} ms each way");
        bars.at_least(&what, handed_on / passed_on.max(0.1), 20.0);
    }
}

async fn many_guards(bars: &mut Bars) {
    let servers = servers(1);
    let proxies = proxies(&servers);
    let url = proxies[0].url();
    let locker = Locker::builder().node(&url).and_then(|builder| builder.node_timeout(ms(2000)).build());
    let locker = locker.expect("a locker");
    proxies[0].delay(ms(50));
    let mut taken = Vec::new();
    for number in 0..5000 {
        let request = locker.lock(format!("g{number}")).ttl(ms(6000));
        taken.push(tokio::spawn(async move { request.try_acquire().await }));
        if number % 50 == 0 {
            tokio::time::sleep(ms(10)).await;
        }
    }
    let mut guards = Vec::new();
    for guard in taken {
        guards.push(guard.await.expect("no panic").expect("it is free"));
    }
    let mut lateness = Vec::new();
    let end = Instant::now() + Duration::from_secs(15);
    while Instant::now() < end {
        let due = Instant::now() + ms(10);
        tokio::time::sleep(ms(10)).await;
        lateness.push(Instant::now() - due);
    }
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    println!("5000 guards over a delay of 100 ms: {} connections", proxies[0].connections());
    bars.at_most("guards lost of 5000", lost as f64, 0.0);
    let p99 = quantile(&mut lateness, 0.99).as_secs_f64() * 1000.0;
    bars.at_most("p99 of how late an unrelated task runs, ms", p99, 50.0);
    bars.at_most("connections for 5000 guards", proxies[0].connections() as f64, 5.0);
}
