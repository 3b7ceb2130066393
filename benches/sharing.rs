//! What a holder costs among many, and what several keys cost against one.
//!
//! - The server's time for a grant, a renewal and a release at a semaphore with 10,000 holders against one with ten,
//!   both in turn on one server.
//! - The throughput of two callers that take two keys in opposite orders against that of two callers of one key.
//!
//! Run it with `make bench`; REDISLOCK_SERVERS=redis-7.0 keeps it to some servers.

use redislock_testkit::{Client, Server, Version, cmd};
use std::thread;
use std::time::{Duration, Instant};

const ROUNDS: usize = 9;
const REQUESTS: usize = 2_000;
const PIPELINE: usize = 50;
const CROWDS: [usize; 4] = [1, 10, 100, 10_000];
const COMMANDS: [&str; 3] = ["lock.acquire", "lock.renew", "lock.release"];

fn main() {
    for version in Version::selected() {
        let server = Server::start(version);
        println!("\n{version}: us a call in the server, median of {ROUNDS} rounds of {REQUESTS} calls\n");
        crowds(&server);
        several(&server);
    }
}

/// Microseconds a call of each command.
type Costs = [f64; COMMANDS.len()];

fn crowds(server: &Server) {
    let mut client = server.connect();
    for crowd in CROWDS {
        let owners = (1..crowd).map(|n| acquire(crowd, &format!("holder {n}")));
        send_all(&mut client, owners.collect());
    }
    let mut rounds: Vec<[Costs; CROWDS.len()]> = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(CROWDS.map(|crowd| measure(&mut client, crowd)));
    }
    print!("{:<13}", "holders");
    CROWDS.iter().for_each(|crowd| print!(" {crowd:>9}"));
    println!("   10,000 to 10");
    for (command, name) in COMMANDS.iter().enumerate() {
        print!("{:<13}", name.to_uppercase());
        for crowd in 0..CROWDS.len() {
            print!(" {:>9.2}", median(rounds.iter().map(|round| round[crowd][command]).collect()));
        }
        let ratio = median(rounds.iter().map(|round| round[3][command] / round[1][command]).collect());
        println!("   {ratio:>12.2}");
    }
}

fn acquire(crowd: usize, owner: &str) -> Vec<String> {
    ["LOCK.ACQUIRE", &format!("crowd {crowd}"), owner, "86400000", "SHARED", "LIMIT", "1000000"]
        .map(str::to_owned)
        .to_vec()
}

/// One more holder comes, renews and goes, again and again.
fn measure(client: &mut Client, crowd: usize) -> Costs {
    let key = format!("crowd {crowd}");
    cmd!(client, "CONFIG", "RESETSTAT").ok();
    let requests = (0..REQUESTS).flat_map(|n| {
        // Spread over the whole crowd, as far as names go.
        let owner = format!("holder {}x", n * 7_919 % 10_000);
        let renew = ["LOCK.RENEW", &key, &owner, "86400000"].map(str::to_owned).to_vec();
        let release = ["LOCK.RELEASE", &key, &owner].map(str::to_owned).to_vec();
        [acquire(crowd, &owner), renew, release]
    });
    send_all(client, requests.collect());
    let stats = cmd!(client, "INFO", "commandstats").text().to_lowercase();
    COMMANDS.map(|command| {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let mut fields = line.expect("the command was called").split(',');
        let cost = fields.find_map(|field| field.strip_prefix("usec_per_call="));
        cost.and_then(|value| value.parse().ok()).expect("a number")
    })
}

fn send_all(client: &mut Client, requests: Vec<Vec<String>>) {
    for requests in requests.chunks(PIPELINE) {
        let mut batch = Vec::new();
        for words in requests {
            batch.extend(format!("*{}\r\n", words.len()).bytes());
            words.iter().for_each(|word| batch.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
        }
        client.send_raw(&batch);
        for _ in requests {
            let reply = client.read();
            assert!(!reply.is_error() && !reply.is_nil(), "a request of the benchmark failed: {reply:?}");
        }
    }
}

/// Two callers, each with the keys that it names, in turn: one key, the same two keys, and in opposite orders.
fn several(server: &Server) {
    let cases: [(&str, [&[&str]; 2]); 3] = [
        ("one key", [&["x"], &["x"]]),
        ("two keys, one order", [&["x", "y"], &["x", "y"]]),
        ("two keys, opposite orders", [&["x", "y"], &["y", "x"]]),
    ];
    let mut rounds: Vec<[f64; 3]> = Vec::new();
    for _ in 0..ROUNDS {
        rounds.push(cases.map(|(_, callers)| rate(server, callers)));
    }
    println!("\nacquisitions a second by two callers that wait for each other, median of {ROUNDS} rounds\n");
    for (case, (name, _)) in cases.iter().enumerate() {
        let rate = median(rounds.iter().map(|round| round[case]).collect());
        let ratio = median(rounds.iter().map(|round| round[case] / round[0]).collect());
        println!("{name:<26} {rate:>9.0}   {ratio:>5.2} of one key's");
    }
}

fn rate(server: &Server, callers: [&[&str]; 2]) -> f64 {
    let start = Instant::now();
    let end = start + Duration::from_millis(700);
    let rounds: usize = thread::scope(|scope| {
        let callers: Vec<_> = callers
            .into_iter()
            .zip(["A", "B"])
            .map(|(keys, owner)| {
                let mut client = server.connect();
                scope.spawn(move || {
                    let count = keys.len().to_string();
                    let acquire = [&["LOCK.MACQUIRE", &count], keys, &[owner, "30000", "WAIT", "0"]].concat();
                    let release = [&["LOCK.MRELEASE", &count], keys, &[owner]].concat();
                    let mut rounds = 0;
                    while Instant::now() < end {
                        client.cmd(&acquire).int();
                        client.cmd(&release).array();
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("it ends")).sum()
    });
    rounds as f64 / start.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
