//! Random histories of a few owners on a real server: every circle is told at once, to the one who would close it,
//! and everything else comes to an end.
//!
//! What the server says is compared with a play of our own: whoever waits for nothing gives back what it has, and
//! whoever then stands first in all its lines and fits is granted, as long as that goes on. Those who are left are
//! stuck.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use redislock_testkit::{Client, LockInfo, Reply, Server, Version, cmd, every_server, send, waiters};

const KEYS: [&str; 3] = ["x", "y", "z"];
const OWNERS: [&str; 5] = ["A", "B", "C", "D", "E"];
const PATIENCE: Duration = Duration::from_secs(20);

/// A sequence of numbers that is the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }
}

/// How one holds or wants to hold: alone, or together with as many as this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Alone,
    Shared(usize),
}

/// A request that may wait.
#[derive(Clone, Debug)]
struct Request {
    keys: Vec<&'static str>,
    mode: Mode,
    upgrade: bool,
}

impl Request {
    fn words(&self, owner: &str) -> Vec<String> {
        let count = self.keys.len().to_string();
        let name = match (self.upgrade, self.keys.len()) {
            (true, _) => &["LOCK.REENTER"][..],
            (false, 1) => &["LOCK.ACQUIRE"],
            (false, _) => &["LOCK.MACQUIRE", &count],
        };
        let mode = match self.mode {
            Mode::Alone => String::new(),
            Mode::Shared(usize::MAX) => "SHARED".to_owned(),
            Mode::Shared(most) => format!("SHARED LIMIT {most}"),
        };
        let words = [name, &self.keys, &[owner, "600000"], &["WAIT", "0"]].concat();
        words.into_iter().chain(mode.split_whitespace()).map(str::to_owned).collect()
    }
}

/// What is so, as far as answers tell.
#[derive(Clone, Debug, Default)]
struct World {
    holders: BTreeMap<&'static str, BTreeMap<&'static str, Mode>>,
    lines: BTreeMap<&'static str, Vec<&'static str>>,
    pending: BTreeMap<&'static str, Request>,
}

impl World {
    fn mode(&self, key: &str, owner: &str) -> Option<Mode> {
        self.holders.get(key)?.get(owner).copied()
    }

    fn join(&mut self, owner: &'static str, request: &Request) {
        for key in &request.keys {
            self.holders.entry(key).or_default().insert(owner, request.mode);
        }
    }

    fn ask(&mut self, owner: &'static str, request: &Request) {
        for key in &request.keys {
            let line = self.lines.entry(key).or_default();
            let place = if request.upgrade { 0 } else { line.len() };
            line.insert(place, owner);
        }
        self.pending.insert(owner, request.clone());
    }

    fn fits(&self, owner: &str, request: &Request) -> bool {
        request.keys.iter().all(|key| {
            let others: Vec<Mode> = self
                .holders
                .get(key)
                .into_iter()
                .flatten()
                .filter(|(other, _)| **other != owner)
                .map(|(_, mode)| *mode)
                .collect();
            let room = |mode: &Mode| match mode {
                Mode::Alone => others.is_empty(),
                Mode::Shared(most) => others.len() < *most,
            };
            let lets_in = |mode: &Mode| *mode != Mode::Alone && room(mode);
            room(&request.mode) && others.iter().all(lets_in)
        })
    }

    /// Whether the holders of a key may stand together.
    fn is_sound(&self, key: &str) -> bool {
        let holders = self.holders.get(key);
        let count = holders.map_or(0, BTreeMap::len);
        holders.into_iter().flatten().all(|(_, mode)| match mode {
            Mode::Alone => count == 1,
            Mode::Shared(most) => count <= *most,
        })
    }

    /// Who would wait for good, if nobody asked for anything more.
    fn stuck(mut self) -> BTreeSet<&'static str> {
        loop {
            let pending = &self.pending;
            for holders in self.holders.values_mut() {
                holders.retain(|owner, _| pending.contains_key(owner));
            }
            let next = self.pending.iter().find(|(owner, request)| {
                request.keys.iter().all(|key| self.lines[key].first() == Some(owner))
                    && self.fits(owner, request)
            });
            let Some((owner, request)) = next.map(|(owner, request)| (*owner, request.clone())) else {
                return self.pending.into_keys().collect();
            };
            self.pending.remove(owner);
            self.lines.values_mut().for_each(|line| line.retain(|other| *other != owner));
            self.join(owner, &request);
        }
    }
}

/// A history that goes on.
struct History {
    server: Server,
    control: Client,
    clients: BTreeMap<&'static str, Client>,
    world: World,
    steps: Vec<String>,
    deadlocks: usize,
}

impl History {
    fn new(version: Version) -> Self {
        let server = Server::start(version);
        let (control, clients) = (server.connect(), BTreeMap::new());
        Self { server, control, clients, world: World::default(), steps: Vec::new(), deadlocks: 0 }
    }

    /// Plays a history of so many steps, and then lets everything come to its end.
    fn play(&mut self, seed: u64, steps: usize) {
        let mut dice = Dice(seed);
        let owners = &OWNERS[..2 + dice.roll(4)];
        self.steps = vec![format!("seed {seed}")];
        for owner in owners {
            self.clients.insert(owner, self.server.connect());
        }
        for _ in 0..steps {
            let idle: Vec<_> =
                owners.iter().copied().filter(|owner| !self.world.pending.contains_key(owner)).collect();
            assert!(!idle.is_empty(), "all wait: {:#?}", self.steps);
            let owner = dice.pick(&idle);
            match self.choose(&mut dice, owner) {
                Some(request) => self.ask(owner, &request),
                None => self.give_back(owner, dice.pick(&KEYS)),
            }
        }
        self.end(owners);
    }

    /// Something to ask for that is no mistake; or nothing.
    fn choose(&self, dice: &mut Dice, owner: &str) -> Option<Request> {
        let mode = |dice: &mut Dice| match dice.roll(4) {
            0 | 1 => Mode::Alone,
            2 => Mode::Shared(usize::MAX),
            _ => Mode::Shared(1 + dice.roll(3)),
        };
        let free: Vec<_> = KEYS.into_iter().filter(|key| self.world.mode(key, owner).is_none()).collect();
        let shared: Vec<_> = KEYS
            .into_iter()
            .filter(|key| matches!(self.world.mode(key, owner), Some(Mode::Shared(_))))
            .collect();
        match dice.roll(8) {
            0..4 if !free.is_empty() => {
                Some(Request { keys: vec![dice.pick(&free)], mode: mode(dice), upgrade: false })
            }
            4 | 5 if free.len() >= 2 => {
                let first = dice.pick(&free);
                let rest: Vec<_> = free.into_iter().filter(|key| *key != first).collect();
                let keys = vec![first, dice.pick(&rest)];
                Some(Request { keys, mode: Mode::Alone, upgrade: false })
            }
            6 if !shared.is_empty() => {
                Some(Request { keys: vec![dice.pick(&shared)], mode: Mode::Alone, upgrade: true })
            }
            _ => None,
        }
    }

    fn ask(&mut self, owner: &'static str, request: &Request) {
        self.steps.push(format!("{owner}: {}", request.words(owner).join(" ")));
        let client = self.clients.get_mut(owner).expect("it takes part");
        client.send(&request.words(owner));
        let mut hypothesis = self.world.clone();
        hypothesis.ask(owner, request);
        let stuck = hypothesis.clone().stuck();
        let Some(reply) = self.answer_or_wait(owner, request.keys[0]) else {
            assert!(stuck.is_empty(), "{stuck:?} wait for good: {:#?}", self.steps);
            self.world = hypothesis;
            return self.look_around();
        };
        self.steps.push(format!("    {reply:?}"));
        if reply.is_error() {
            assert_eq!(reply.error_code(), "DEADLOCK", "{:#?}", self.steps);
            assert!(stuck.contains(owner), "there is no circle: {:#?}", self.steps);
            let circle: Vec<_> = reply.error().split('\'').skip(1).step_by(2).collect();
            assert!(
                circle.len() > 2 && circle.first() == Some(&owner) && circle.last() == Some(&owner),
                "{reply:?}"
            );
            let waits = |other: &&str| *other == owner || self.world.pending.contains_key(other);
            assert!(circle.iter().all(waits), "{reply:?}: {:#?}", self.steps);
            self.deadlocks += 1;
            let pending = self.world.pending.len();
            self.look_around();
            assert_eq!(self.world.pending.len(), pending, "the others go on waiting: {:#?}", self.steps);
        } else {
            self.world.join(owner, request);
            self.look_around();
        }
    }

    /// The answer to a request, or nothing once it stands in line.
    fn answer_or_wait(&mut self, owner: &str, key: &str) -> Option<Reply> {
        let client = self.clients.get_mut(owner).expect("it takes part");
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(reply) = client.read_timeout(Duration::from_micros(300)) {
                return Some(reply);
            }
            if waiters(&mut self.control, key).iter().any(|waiter| waiter == owner) {
                return None;
            }
        }
        panic!("neither answered nor in line: {:#?}", self.steps);
    }

    fn give_back(&mut self, owner: &'static str, key: &'static str) {
        let client = self.clients.get_mut(owner).expect("it takes part");
        let reply = match self.world.mode(key, owner) {
            Some(Mode::Alone) if self.steps.len().is_multiple_of(3) => {
                self.steps.push(format!("{owner}: downgrade {key}"));
                self.world.holders.entry(key).or_default().insert(owner, Mode::Shared(usize::MAX));
                cmd!(client, "LOCK.DOWNGRADE", key, owner)
            }
            mode => {
                self.steps.push(format!("{owner}: release {key}"));
                self.world.holders.entry(key).or_default().remove(owner);
                let reply = cmd!(client, "LOCK.RELEASE", key, owner, "ALL");
                assert_eq!(reply.is_nil(), mode.is_none(), "{:#?}", self.steps);
                reply
            }
        };
        assert!(!reply.is_error(), "{reply:?}: {:#?}", self.steps);
        self.look_around();
    }

    /// Takes in what waiters were told, and compares what the server shows with what the answers tell.
    fn look_around(&mut self) {
        let lines = KEYS.map(|key| waiters(&mut self.control, key));
        let waiting: Vec<_> = self.world.pending.keys().copied().collect();
        for owner in waiting {
            if lines.iter().flatten().any(|waiter| waiter == owner) {
                continue;
            }
            let reply = self.clients.get_mut(owner).expect("it takes part").read();
            self.steps.push(format!("    {owner} is told {reply:?}"));
            let request = self.world.pending.remove(owner).expect("it waits");
            assert!(!reply.is_error() && !reply.is_nil(), "{owner} waited in vain: {:#?}", self.steps);
            self.world.lines.values_mut().for_each(|line| line.retain(|other| *other != owner));
            self.world.join(owner, &request);
        }
        for (key, line) in KEYS.into_iter().zip(lines) {
            let expected = self.world.lines.get(key).cloned().unwrap_or_default();
            assert_eq!(line, expected, "the line of {key}: {:#?}", self.steps);
            let info = LockInfo::of(&mut self.control, key);
            let shown: BTreeSet<_> = info
                .iter()
                .flat_map(|info| &info.holders)
                .map(|holder| String::from_utf8_lossy(&holder.owner).into_owned())
                .collect();
            let believed: BTreeSet<_> = self
                .world
                .holders
                .get(key)
                .into_iter()
                .flatten()
                .map(|(owner, _)| (*owner).to_owned())
                .collect();
            assert_eq!(shown, believed, "the holders of {key}: {:#?}", self.steps);
            assert!(self.world.is_sound(key), "{believed:?} stand together at {key}: {:#?}", self.steps);
        }
        let stuck = self.world.clone().stuck();
        assert!(stuck.is_empty(), "{stuck:?} wait for good, and nobody was told: {:#?}", self.steps);
    }

    /// Whoever waits for nothing gives back all it has, until nobody waits.
    fn end(&mut self, owners: &[&'static str]) {
        for _ in 0..=owners.len() {
            for owner in owners {
                for key in KEYS {
                    if !self.world.pending.contains_key(owner) && self.world.mode(key, owner).is_some() {
                        let client = self.clients.get_mut(owner).expect("it takes part");
                        assert_eq!(cmd!(client, "LOCK.RELEASE", key, owner, "ALL").int(), 0);
                        self.world.holders.entry(key).or_default().remove(owner);
                        self.look_around();
                    }
                }
            }
        }
        assert!(self.world.pending.is_empty(), "{:#?}", self.steps);
        assert_eq!(cmd!(self.control, "DBSIZE").int(), 0);
    }
}

fn histories(version: Version, seeds: std::ops::Range<u64>) {
    let mut history = History::new(version);
    for seed in seeds {
        history.play(seed, 40);
    }
    assert!(history.deadlocks > 5, "{} deadlocks only", history.deadlocks);
    let counted = history.server.info("lock_deadlocks");
    assert_eq!(counted, history.deadlocks.to_string(), "each circle is told once");
}

/// Owners that take what they like in the order they like, all at the same time, without any timeout. Whoever is told
/// of a circle gives back all it has. That this ends at all is the proof.
fn all_at_once(version: Version, rounds: usize) {
    let server = Server::start(version);
    let deadlocks: usize = thread::scope(|scope| {
        let workers: Vec<_> = OWNERS
            .into_iter()
            .enumerate()
            .map(|(n, owner)| {
                let mut client = server.connect();
                client.set_patience(Duration::from_secs(60));
                scope.spawn(move || {
                    let mut dice = Dice(n as u64);
                    let (mut deadlocks, mut held): (usize, BTreeSet<&str>) = (0, BTreeSet::new());
                    for _ in 0..rounds {
                        let key = dice.pick(&KEYS);
                        if held.contains(key) {
                            send!(client, "LOCK.REENTER", key, owner, 600_000, "WAIT", 0);
                        } else if dice.roll(2) == 0 {
                            send!(
                                client,
                                "LOCK.ACQUIRE",
                                key,
                                owner,
                                600_000,
                                "SHARED",
                                "LIMIT",
                                3,
                                "WAIT",
                                0
                            );
                        } else {
                            let others: Vec<_> = KEYS
                                .into_iter()
                                .filter(|other| *other != key && !held.contains(other))
                                .collect();
                            match others.first() {
                                Some(other) => {
                                    send!(client, "LOCK.MACQUIRE", 2, key, other, owner, 600_000, "WAIT", 0);
                                    held.insert(other);
                                }
                                None => send!(client, "LOCK.ACQUIRE", key, owner, 600_000, "WAIT", 0),
                            }
                        }
                        let reply = client.read();
                        held.insert(key);
                        if reply.is_error() {
                            assert_eq!(reply.error_code(), "DEADLOCK");
                            deadlocks += 1;
                        }
                        if reply.is_error() || dice.roll(3) == 0 {
                            for key in KEYS {
                                assert!(!cmd!(client, "LOCK.RELEASE", key, owner, "ALL").is_error());
                            }
                            held.clear();
                        }
                    }
                    for key in KEYS {
                        cmd!(client, "LOCK.RELEASE", key, owner, "ALL");
                    }
                    deadlocks
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("nobody waits for good")).sum()
    });
    assert_eq!(server.info("lock_deadlocks"), deadlocks.to_string());
    assert_eq!(server.info("lock_waiters"), "0");
    assert_eq!(cmd!(server.connect(), "DBSIZE").int(), 0);
    assert!(deadlocks > 0, "no circle was met");
}

every_server! {
    fn every_circle_is_told_at_once_to_who_closes_it(version) {
        histories(version, 0..60);
    }

    fn owners_that_all_act_at_once_come_to_an_end(version) {
        all_at_once(version, 1_000);
    }

    /// The same with other histories, for as long as SOAK_SECONDS says.
    #[ignore = "long: make soak"]
    fn soak_every_circle_is_told(version) {
        let seconds = std::env::var("SOAK_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        let end = Instant::now() + Duration::from_secs(seconds.unwrap_or(60));
        for seed in (1_000..).step_by(60) {
            histories(version, seed..seed + 60);
            all_at_once(version, 2_000);
            if Instant::now() >= end {
                return;
            }
        }
    }
}
