//! The stories that the core is tested with, played on real servers.
//!
//! They are read from the core's own tests (`crates/core/src/engine/tests/stories`; `story.rs` beside it says how a
//! story is written), so that one text drives both. Time passes by itself on a real server: a millisecond of a story
//! is a second here, and stories in which the clock is moved stay with the core, as do those that speak of what only
//! it can see. A limit is shown of a lock as a whole, not of each holder.

mod stream;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use redislock_testkit::{Client, LockInfo, Reply, Server, Version, cmd, eventually, every_server, waiters};
use stream::{Command, Stream};

const SOON: Duration = Duration::from_secs(20);

/// The steps that a real server can play beside requests.
const STEPS: [&str; 12] =
    ["look", "stream", "tied", "break", "del", "set", "rename", "flush", "swap", "close", "gone", "unblock"];

/// Every story of a file that a real server can play, with the name of its test.
fn stories(file: &str) -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/core/src/engine/tests/stories");
    let path = format!("{folder}/{file}.rs");
    let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let mut stories = Vec::new();
    for test in source.split("#[test]").skip(1) {
        let name = test.split(['(', ' ']).nth(1).unwrap_or_default().trim_start_matches("fn ").to_owned();
        for call in test.split("check(").skip(1) {
            let text = call.trim_start().strip_prefix('"').and_then(|call| call.split_once('"'));
            stories.extend(text.map(|(story, _)| (name.clone(), story.to_owned())));
        }
    }
    stories.retain(|(_, story)| lines(story).all(|(step, _)| is_fit(&step)));
    stories
}

/// The steps of a story, each with what comes of it.
fn lines(story: &str) -> impl Iterator<Item = (Vec<&str>, &str)> {
    let lines = story.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| {
        let (step, outcome) = line.split_once("->").unwrap_or((line, ""));
        (step.split_whitespace().collect(), outcome.trim())
    })
}

fn is_fit(step: &[&str]) -> bool {
    let is_request = step[0].chars().all(char::is_uppercase);
    // A connection that waits can't do anything else; and a token of one's own choice has no place among the others.
    let busy = step.contains(&"session") && step.contains(&"wait");
    // To the server 0 says that a wait has no end.
    let over = step.windows(2).any(|pair| pair == ["wait", "0"]);
    // A command reaches keys of one database.
    let apart = |keys: &str| {
        keys.split(',').any(|key| parse(key).0 != parse(keys.split(',').next().unwrap_or(key)).0)
    };
    if is_request {
        !busy && !over && step[1] != "fence" && !apart(step[2])
    } else {
        STEPS.contains(&step[0])
    }
}

struct Waiter {
    owner: String,
    id: i64,
    client: Client,
}

struct Stage {
    server: Server,
    control: Client,
    stream: Stream,
    sessions: BTreeMap<String, (i64, Client)>,
    waiting: Vec<Waiter>,
    /// Who waited, and was told. It stays connected.
    told: Vec<Client>,
    /// Every token seen, in its order: its place is its name.
    fences: Vec<i64>,
}

/// A database and a key of it.
fn parse(word: &str) -> (u32, &str) {
    let (db, name) = word.split_once(':').unwrap_or(("0", word));
    (db.parse().expect("a number of a database"), name)
}

fn thousandfold(word: &str) -> String {
    format!("{word}000")
}

impl Stage {
    fn new(version: Version) -> Self {
        let server = Server::builder(version).module_args(["max-ttl", "31536000000"]).start();
        let (control, stream) = (server.connect(), Stream::of(&server));
        Self {
            server,
            control,
            stream,
            sessions: BTreeMap::new(),
            waiting: Vec::new(),
            told: Vec::new(),
            fences: Vec::new(),
        }
    }

    /// Plays a story, and compares what came of each step.
    fn check(&mut self, name: &str, story: &str) {
        (self.sessions, self.waiting, self.told, self.fences) = Default::default();
        cmd!(self.control, "FLUSHALL").ok();
        let control = &mut self.control;
        let quiet = |control: &mut Client, field| control.info(field).as_deref() == Some("0");
        eventually(SOON, || quiet(control, "lock_waiters") && quiet(control, "lock_sessions"));
        self.stream.take();
        let (mut expected, mut actual) = (String::new(), String::new());
        for (step, outcome) in lines(story) {
            let outcome = comparable(&step, outcome);
            let got = self.play(&step, &outcome);
            expected += &format!("{:<50} -> {}\n", step.join(" "), outcome.join(", "));
            actual += &format!("{:<50} -> {}\n", step.join(" "), got.join(", "));
        }
        assert!(expected == actual, "{name}\nexpected:\n{expected}\nactual:\n{actual}");
    }

    fn play(&mut self, step: &[&str], expected: &[String]) -> Vec<String> {
        match *step {
            ["look", at] => return vec![self.look(at)],
            ["stream"] => return self.stream.take().iter().filter_map(subject).collect(),
            ["tied"] => return vec![self.server.info("lock_sessions")],
            _ => {}
        }
        let own =
            if step[0].chars().all(char::is_uppercase) { self.request(step) } else { self.happen(step) };
        let told = self.listen(expected);
        let told_fences = told.iter().filter_map(|(_, reply)| token(reply));
        let counts = step[0] == "break" || step.get(1) == Some(&"release");
        let mut fences: Vec<i64> =
            own.iter().filter(|_| !counts).filter_map(token).chain(told_fences).collect();
        fences.sort_unstable();
        let last = self.fences.last().copied().unwrap_or(0);
        self.fences.extend(fences.into_iter().filter(|fence| *fence > last));
        self.fences.dedup();
        let own = own.map(|reply| match reply {
            Reply::Simple(waits) => waits,
            Reply::Int(count) if matches!(step[0], "break") || step.get(1) == Some(&"release") => {
                count.to_string()
            }
            reply => self.describe(&reply),
        });
        let told = told.into_iter().map(|(owner, reply)| format!("{owner}: {}", self.describe(&reply)));
        let told: Vec<_> = told.collect();
        own.into_iter().chain(told).collect()
    }

    /// The own answer to a request, or that it waits.
    fn request(&mut self, step: &[&str]) -> Option<Reply> {
        let words = step[3..].iter();
        let mut options = Vec::new();
        let mut session = None;
        let mut words = words.copied();
        while let Some(word) = words.next() {
            match word {
                "session" => {
                    session = words.next();
                    options.push("SESSION".to_owned());
                }
                "wait" => {
                    let limit = words.next().expect("a limit");
                    options.extend([
                        "WAIT".to_owned(),
                        if limit == "ever" { "0".to_owned() } else { thousandfold(limit) },
                    ]);
                }
                "hold" | "limit" => {
                    options.extend([word.to_owned(), words.next().expect("a number").to_owned()])
                }
                "shared" | "all" => options.push(word.to_owned()),
                ttl => options.push(thousandfold(ttl)),
            }
        }
        let (db, _) = parse(step[2].split(',').next().expect("a key"));
        let keys: Vec<String> = step[2].split(',').map(|key| parse(key).1.to_owned()).collect();
        let command = match keys.len() {
            1 => vec![format!("LOCK.{}", step[1])],
            count => vec![format!("LOCK.M{}", step[1]), count.to_string()],
        };
        let request = [command, keys, vec![step[0].to_owned()], options].concat();
        let reply = match session {
            Some(number) => {
                let server = &self.server;
                let (_, client) = self.sessions.entry(number.to_owned()).or_insert_with(|| {
                    let mut client = server.connect();
                    (client.client_id(), client)
                });
                cmd!(client, "SELECT", db).ok();
                client.cmd(&request)
            }
            None => self.request_or_wait(step[0], db, &request),
        };
        Some(reply)
    }

    fn request_or_wait(&mut self, owner: &str, db: u32, request: &[String]) -> Reply {
        let mut client = self.server.connect();
        cmd!(client, "SELECT", db).ok();
        let id = client.client_id();
        client.send(request);
        let end = Instant::now() + SOON;
        while Instant::now() < end {
            if let Some(reply) = client.read_timeout(Duration::from_micros(300)) {
                return reply;
            }
            if cmd!(self.control, "CLIENT", "LIST", "ID", id).text().contains(" flags=b") {
                self.waiting.push(Waiter { owner: owner.to_owned(), id, client });
                return Reply::Simple("waits".to_owned());
            }
        }
        panic!("neither answered nor blocked: {request:?}");
    }

    /// Something that is not a request of an owner.
    fn happen(&mut self, step: &[&str]) -> Option<Reply> {
        let at = step.get(1).copied().unwrap_or_default();
        let (db, name) = parse(at.split(' ').next().unwrap_or_default());
        match step[0] {
            "close" => {
                let (id, client) = self.sessions.remove(at)?;
                client.close();
                self.until_gone(id);
                return None;
            }
            "gone" => {
                let index = self.waiting.iter().position(|waiter| waiter.owner == at).expect("it waits");
                let Waiter { id, client, .. } = self.waiting.remove(index);
                client.close();
                self.until_gone(id);
                return None;
            }
            "unblock" => {
                let id = self.waiting.iter().find(|waiter| waiter.owner == at).expect("it waits").id;
                assert_eq!(cmd!(self.control, "CLIENT", "UNBLOCK", id, "ERROR").int(), 1);
                return None;
            }
            _ => {}
        }
        cmd!(self.control, "SELECT", db).ok();
        let reply = match *step {
            ["break", _, ref words @ ..] => {
                let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
                if let Some(number) = words.get_mut(1) {
                    let index: usize = number.parse().expect("a number");
                    *number = self.fences.get(index - 1).copied().unwrap_or(1).to_string();
                }
                let command = vec!["LOCK.BREAK".to_owned(), name.to_owned()];
                Some(self.control.cmd(&[command, words].concat()))
            }
            ["rename", _, to] if parse(to).0 != db => {
                assert_eq!(cmd!(self.control, "MOVE", name, parse(to).0).int(), 1);
                None
            }
            ["del", _] => self.quietly(&["DEL", name]),
            ["set", _] => self.quietly(&["SET", name, "data"]),
            ["rename", _, to] => self.quietly(&["RENAME", name, parse(to).1]),
            ["flush"] => self.quietly(&["FLUSHALL"]),
            ["swap"] => self.quietly(&["SWAPDB", "0", "1"]),
            _ => panic!("no such step: {step:?}"),
        };
        cmd!(self.control, "SELECT", 0).ok();
        reply
    }

    fn quietly(&mut self, words: &[&str]) -> Option<Reply> {
        let reply = self.control.cmd(words);
        assert!(!reply.is_error(), "{words:?}: {reply:?}");
        None
    }

    fn until_gone(&mut self, id: i64) {
        eventually(SOON, || cmd!(self.control, "CLIENT", "LIST", "ID", id).text().is_empty());
    }

    /// What waiters are told, those first who are expected to be.
    fn listen(&mut self, expected: &[String]) -> Vec<(String, Reply)> {
        let mut told = Vec::new();
        for owner in expected.iter().filter_map(|item| Some(item.split_once(": ")?.0)) {
            let end = Instant::now() + SOON;
            while !self.hear(|waiter| waiter.owner == owner, &mut told) {
                if Instant::now() > end {
                    break;
                }
            }
        }
        // Whoever was told at all has been by the time of this answer.
        cmd!(self.control, "PING").text();
        while self.hear(|_| true, &mut told) {}
        told
    }

    fn hear(&mut self, whom: impl Fn(&Waiter) -> bool, told: &mut Vec<(String, Reply)>) -> bool {
        for index in 0..self.waiting.len() {
            let waiter = &mut self.waiting[index];
            if whom(waiter)
                && let Some(reply) = waiter.client.read_timeout(Duration::from_micros(200))
            {
                let Waiter { owner, client, .. } = self.waiting.remove(index);
                told.push((owner, reply));
                self.told.push(client);
                return true;
            }
        }
        false
    }

    fn describe(&self, reply: &Reply) -> String {
        let fence = |fence: i64| match self.fences.iter().position(|seen| *seen == fence) {
            Some(place) => format!("#{}", place + 1),
            None => format!("a token below the last one, {fence}"),
        };
        match reply {
            Reply::Nil => "null".to_owned(),
            Reply::Int(number) => fence(*number),
            Reply::Array(pair) => match (pair[0].int(), pair[1].int()) {
                (1, number) => fence(number),
                (holds, number) => format!("x{holds} {}", fence(number)),
            },
            Reply::Error(text) => match text.split(' ').collect::<Vec<_>>()[..] {
                ["HELD", number, ..] => format!("HELD {}", fence(number.parse().expect("a token"))),
                ["DEADLOCK", ..] => {
                    let mut owners: Vec<&str> = text.split('\'').skip(1).step_by(2).collect();
                    owners.pop();
                    format!("DEADLOCK {}", owners.join(" "))
                }
                ["ERR", "HOLD", .., "has", count, "holds"] => format!("HOLD x{count}"),
                ["ERR", "HOLD", .., "shared"] => "NOTUPGRADED".to_owned(),
                ["ERR", "hold", "count", ..] => "HOLDSFULL".to_owned(),
                ["ERR", "this", "owner", "waits", ..] => "WAITS".to_owned(),
                [code, ..] => code.to_owned(),
                [] => String::new(),
            },
            other => format!("{other:?}"),
        }
    }

    fn look(&mut self, at: &str) -> String {
        let (db, name) = parse(at);
        cmd!(self.control, "SELECT", db).ok();
        let reply = cmd!(self.control, "LOCK.INFO", name);
        let line = if reply.is_error() { Vec::new() } else { waiters(&mut self.control, name) };
        cmd!(self.control, "SELECT", 0).ok();
        if reply.is_error() {
            return "foreign".to_owned();
        }
        let info = LockInfo::read(&reply);
        let mode =
            if info.as_ref().is_some_and(|info| info.mode == "exclusive") { "alone" } else { "shared" };
        let held = info.iter().flat_map(|info| &info.holders).map(|holder| {
            let owner = String::from_utf8_lossy(&holder.owner);
            let left = (holder.ttl + 999) / 1000;
            let tied = if holder.session { " tied" } else { "" };
            format!(
                "{owner} {mode} x{} {} for {left}{tied}",
                holder.holds,
                self.describe(&Reply::Int(holder.fence))
            )
        });
        let held: Vec<_> = held.collect();
        let held = if held.is_empty() { "free".to_owned() } else { held.join(" + ") };
        line.into_iter().fold(held, |all, owner| format!("{all} | {owner}"))
    }
}

/// The token in an answer.
fn token(reply: &Reply) -> Option<i64> {
    match reply {
        Reply::Int(fence) => Some(*fence),
        Reply::Array(pair) => Some(pair[1].int()),
        _ => None,
    }
}

/// What a step comes to, as far as a real server shows it.
fn comparable(step: &[&str], outcome: &str) -> Vec<String> {
    let items = outcome.split(", ").filter(|item| !item.is_empty());
    match step[0] {
        // Whose record it is, and of which key.
        "stream" => items.map(|item| item.rsplit_once(' ').expect("an event").0.to_owned()).collect(),
        "look" => vec![without_limits(outcome)],
        _ => items.map(str::to_owned).collect(),
    }
}

fn without_limits(look: &str) -> String {
    let words = look.split(' ').map(|word| if word.starts_with("shared/") { "shared" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// Which key a record is about, and which holder.
fn subject(command: &Command) -> Option<String> {
    let told = stream::told(command);
    let (key, rest) = told.split_once(": ").filter(|_| command[0] == b"LOCK.APPLY")?;
    Some(format!("{key} {}", rest.split(' ').next()?))
}

fn play(version: Version, file: &str, least: usize) {
    let stories = stories(file);
    assert!(stories.len() >= least, "{} stories of {file} only", stories.len());
    let mut stage = Stage::new(version);
    for (name, story) in stories {
        stage.check(&name, &story);
    }
}

every_server! {
    fn stories_of_holding(version) {
        play(version, "holding", 10);
    }

    fn stories_of_waiting(version) {
        play(version, "waiting", 10);
    }

    fn stories_of_sharing(version) {
        play(version, "sharing", 10);
    }

    fn stories_of_several_keys(version) {
        play(version, "several", 8);
    }

    fn stories_of_sessions(version) {
        play(version, "sessions", 4);
    }

    fn stories_of_events(version) {
        play(version, "events", 4);
    }
}
