//! Stories: one step a line, and after the arrow what comes of it.
//!
//! ```text
//! A acquire k 100 wait 500    -> #1         the fence; also reenter (x2 #1), renew, fence, downgrade
//! B acquire k 100 wait ever   -> waits
//! @50                                       the clock is at 50 now, and the alarm goes off
//! @100!                                     the clock is at 100 now, and nobody looks
//! A release k                 -> 0, B: #2   the answer, then what waiters are told
//! look k                      -> B alone x1 #2 for 100
//! stream                      -> k A released, k B granted
//! ```
//!
//! The module's own tests (tests/stories.rs) play the stories without steps of the clock on real servers, too.
//!
//! Behind the engine's back: `del k`, `set k`, `rename k l`, `swap` (databases 0 and 1; `1:k` is in 1), `close 7` (a
//! connection), `move k` (to another node), `count A k 9` (holds), `flush`, `mirror k`, `gone B` (a waiter's client), `unblock B`, `untold B` (its last hand-off), `abdicate`, `queue 3`
//! (max-waiters), `wall 7` (the wall clock), `saw 9` (a token), `far k` (keys that begin with k are beyond reach until
//! `near`). The wall stands at 0, so tokens count from 1.

use super::memory::{Content, Memory};
use crate::engine::{Effect, Engine, Event, Note};
use crate::fence::Fence;
use crate::key::{Db, Key, KeyBuf};
use crate::lock::{Holds, Limit, Mode};
use crate::owner::Owner;
use crate::queue::WaiterId;
use crate::request::{Answer, Ask, Fault, Form, Grant, Portion, Verdict, Wait};
use crate::session::Session;
use crate::time::{Millis, Now, Ttl};
use std::collections::BTreeMap;
use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

/// Plays a story, and compares what came of each step.
#[track_caller]
pub(super) fn check(story: &str) {
    let mut stage = Stage::new();
    let lines = story.lines().map(str::trim).filter(|line| !line.is_empty());
    let (mut expected, mut actual) = (String::new(), String::new());
    for line in lines {
        let (step, outcome) = line.split_once("->").unwrap_or((line, ""));
        let step = step.split_whitespace().collect::<Vec<_>>();
        let got = stage.play(&step).join(", ");
        expected += &format!("{:<50} -> {}\n", step.join(" "), outcome.trim());
        actual += &format!("{:<50} -> {got}\n", step.join(" "));
    }
    assert!(expected == actual, "\nexpected:\n{expected}\nactual:\n{actual}");
}

struct Stage {
    engine: Engine,
    memory: Memory,
    now: Now,
    /// Who waits, and for what.
    waiters: BTreeMap<WaiterId, (String, Vec<KeyBuf>)>,
    hand_offs: BTreeMap<String, (Vec<KeyBuf>, Grant)>,
}

fn key(word: &str) -> KeyBuf {
    let (db, name) = word.split_once(':').unwrap_or(("0", word));
    KeyBuf { db: Db(db.parse().unwrap()), name: name.as_bytes().into() }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("not a number: {word}"))
}

fn fence(fence: Fence) -> String {
    format!("#{}", fence.get())
}

fn grant(grant: Grant) -> String {
    match grant.holds {
        Holds::ONE => fence(grant.fence),
        holds => format!("x{} {}", holds.get(), fence(grant.fence)),
    }
}

fn fault(fault: &Fault) -> String {
    match fault {
        Fault::Held(held) => format!("HELD {}", fence(*held)),
        Fault::Hold { has } => format!("HOLD x{}", has.get()),
        Fault::NotUpgraded => "NOTUPGRADED".into(),
        Fault::HoldsFull => "HOLDSFULL".into(),
        Fault::WrongType => "WRONGTYPE".into(),
        Fault::Elsewhere => "ELSEWHERE".into(),
        Fault::Waits => "WAITS".into(),
        Fault::Deadlock(circle) => {
            let owners = circle.owners().iter().map(|owner| format!("{owner:?}")).collect::<Vec<_>>();
            format!("DEADLOCK {}", owners.join(" "))
        }
        Fault::QueueFull => "QUEUEFULL".into(),
        Fault::Ahead(ceiling) => format!("AHEAD of {}", fence(*ceiling)),
        Fault::Exhausted => "EXHAUSTED".into(),
    }
}

fn verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Granted(given) => grant(*given),
        Verdict::Refused => "null".into(),
        Verdict::Fault(why) => fault(why),
        Verdict::Replaced => "REPLACED".into(),
        Verdict::Unblocked => "UNBLOCKED".into(),
    }
}

fn fenced(got: Result<Option<Fence>, Fault>) -> String {
    got.map_or_else(|why| fault(&why), |held| held.map_or("null".into(), fence))
}

fn event(event: Event) -> &'static str {
    match event {
        Event::Granted => "granted",
        Event::Reentered => "reentered",
        Event::Renewed => "renewed",
        Event::Released => "released",
        Event::Downgraded => "downgraded",
        Event::Fenced => "fenced",
        Event::Lapsed => "lapsed",
        Event::Revoked => "revoked",
        Event::Closed => "closed",
        Event::Mirrored => "mirrored",
    }
}

impl Stage {
    fn new() -> Self {
        Self {
            engine: Engine::new(1_000),
            memory: Memory::default(),
            now: Now { at: Millis(0), wall_micros: 0 },
            waiters: BTreeMap::new(),
            hand_offs: BTreeMap::new(),
        }
    }

    /// What comes of a step: its own answer, then what waiters are told once the alarm has gone off.
    fn play(&mut self, step: &[&str]) -> Vec<String> {
        let mut said: Vec<String> = match *step {
            [at] if at.starts_with('@') => {
                self.now.at = Millis(number(at.trim_matches(['@', '!'])));
                if at.ends_with('!') {
                    return Vec::new();
                }
                Vec::new()
            }
            ["look", at] => return [self.look(&key(at))].into(),
            ["stream"] => return self.stream(),
            ["stats"] => return [format!("{:?}", self.engine.stats())].into(),
            ["tied"] => return [self.engine.tied().to_string()].into(),
            ["due"] => {
                return [self.engine.next_due().map_or("never".into(), |due| due.0.to_string())].into();
            }
            [owner, verb, at, ref words @ ..] if owner.chars().all(char::is_uppercase) => {
                [self.request(owner, verb, at, words)].into()
            }
            _ => self.happen(step),
        };
        self.engine.drain(&mut self.memory, self.now);
        self.engine.queue.audit();
        self.engine.ties.audit();
        for Effect::Answer(waiter, told) in self.engine.take_effects() {
            let (owner, keys) = self.waiters.remove(&waiter).expect("a second answer");
            said.push(format!("{owner}: {}", verdict(&told)));
            if let Verdict::Granted(given) = told {
                self.hand_offs.insert(owner, (keys, given));
            }
        }
        said
    }

    fn request(&mut self, owner: &str, verb: &str, at: &str, words: &[&str]) -> String {
        let name = owner.as_bytes();
        let bufs: Vec<KeyBuf> = at.split(',').map(key).collect();
        let keys: Vec<Key<'_>> = bufs.iter().map(KeyBuf::as_key).collect();
        let (engine, memory, now) = (&mut self.engine, &mut self.memory, self.now);
        let after = |word: &str| {
            let index = words.iter().position(|other| *other == word)?;
            Some(words[index + 1])
        };
        let session = after("session").map(|id| Session::new(number(id)).unwrap());
        let hold = after("hold").map(|hold| Holds::new(number(hold) as u32).unwrap());
        match verb {
            "acquire" | "reenter" => {
                let limit =
                    after("limit").map_or(Limit::NONE, |limit| Limit::new(number(limit) as u32).unwrap());
                let ask = Ask {
                    owner: name,
                    ttl: Ttl::new(number(words[0])).unwrap(),
                    mode: if words.contains(&"shared") { Mode::Shared(limit) } else { Mode::Exclusive },
                    session,
                    form: if verb == "acquire" { Form::Acquire } else { Form::Reenter { hold } },
                };
                let wait = after("wait")
                    .map(|wait| Wait { until: (wait != "ever").then(|| Millis(now.at.0 + number(wait))) });
                match engine.acquire(memory, now, &keys, &ask, wait) {
                    Ok(Answer::Granted(given)) => grant(given),
                    Ok(Answer::Refused(_)) => "null".into(),
                    Ok(Answer::Queued(waiter)) => {
                        self.waiters.insert(waiter, (owner.into(), bufs));
                        "waits".into()
                    }
                    Err(why) => fault(&why),
                }
            }
            "renew" => {
                fenced(engine.renew(memory, now, keys[0], name, Ttl::new(number(words[0])).unwrap(), session))
            }
            "release" => {
                let portion = match hold {
                    _ if words.contains(&"all") => Portion::All,
                    Some(hold) => Portion::Nth(hold),
                    None => Portion::One,
                };
                match engine.release(memory, now, keys[0], name, portion) {
                    Ok(left) => left.map_or("null".into(), |left| left.to_string()),
                    Err(why) => fault(&why),
                }
            }
            "fence" => {
                fenced(engine.raise(memory, now, keys[0], name, Fence::new(number(words[0])).unwrap()))
            }
            "downgrade" => fenced(engine.downgrade(memory, now, keys[0], name)),
            _ => panic!("no such verb: {verb}"),
        }
    }

    fn happen(&mut self, step: &[&str]) -> Vec<String> {
        match *step {
            ["break", at, ref words @ ..] => {
                let owner = words.first().map(|owner| owner.as_bytes());
                let held = words.get(1).map(|held| Fence::new(number(held)).unwrap());
                let broken = self.engine.revoke(&mut self.memory, self.now, key(at).as_key(), owner, held);
                return [broken.map_or_else(|why| fault(&why), |count| count.to_string())].into();
            }
            ["del", at] => {
                self.memory.delete(key(at).as_key());
                self.engine.note(Note::Key(key(at)));
            }
            ["set", at] => {
                self.memory.overwrite(key(at).as_key());
                self.engine.note(Note::Name(key(at).name));
            }
            ["rename", from, to] => {
                self.memory.rename(key(from).as_key(), key(to).as_key());
                self.engine.note(Note::Key(key(from)));
                self.engine.note(Note::Arrived(key(to)));
            }
            ["move", at] => {
                self.memory.slots.insert(key(at), Content::Elsewhere);
                self.engine.note(Note::Key(key(at)));
            }
            ["count", owner, at, holds] => {
                let Some(Content::Lock(lock)) = self.memory.slots.get_mut(&key(at)) else {
                    panic!("no lock")
                };
                let lease = *lock.get(owner.as_bytes()).expect("no holder");
                let holds = Holds::new(number(holds) as u32).unwrap();
                lock.set(owner.as_bytes(), crate::lock::Lease { holds, ..lease });
            }
            ["flush"] => {
                self.memory.slots.clear();
                self.engine.note(Note::Database(None));
            }
            ["swap"] => {
                self.memory.swap(Db(0), Db(1));
                self.engine.swapped(Db(0), Db(1));
            }
            ["mirror", at] => {
                self.engine.note(Note::Mirror(key(at)));
            }
            ["close", id] => {
                self.engine.note(Note::Closed(Session::new(number(id)).unwrap()));
            }
            ["gone", owner] => {
                let waiter = self.waiter(owner);
                self.engine.forget(waiter);
                self.waiters.remove(&waiter);
            }
            ["unblock", owner] => self.engine.dismiss(self.waiter(owner), Verdict::Unblocked),
            ["untold", owner] => {
                let (keys, given) = self.hand_offs.remove(owner).expect("nothing was handed on to it");
                let owner = Owner::new(owner.as_bytes()).unwrap();
                self.engine.note(Note::Untold { keys, owner, grant: given });
            }
            ["abdicate"] => self.engine.abdicate(&Verdict::Unblocked),
            ["queue", most] => self.engine.set_max_waiters(number(most) as usize),
            ["far", letter] => self.memory.far = letter.bytes().next(),
            ["near"] => self.memory.far = None,
            ["wall", micros] => self.now.wall_micros = number(micros),
            ["saw", token] => self.engine.saw(Fence::new(number(token)).unwrap()),
            _ => panic!("no such step: {step:?}"),
        }
        Vec::new()
    }

    fn waiter(&self, owner: &str) -> WaiterId {
        *self.waiters.iter().find(|(_, (other, _))| other == owner).expect("it does not wait").0
    }

    fn look(&self, at: &KeyBuf) -> String {
        let holders = match self.memory.slots.get(at) {
            None => "free".into(),
            Some(Content::Foreign) => "foreign".into(),
            Some(Content::Elsewhere) => "elsewhere".into(),
            Some(Content::Lock(lock)) => {
                let one = |(owner, lease): (&Owner, &crate::lock::Lease)| {
                    let mode = match lease.mode {
                        Mode::Exclusive => "alone".into(),
                        Mode::Shared(limit) => {
                            limit.get().map_or("shared".into(), |most| format!("shared/{most}"))
                        }
                    };
                    let left = lease.deadline.since(self.now.at);
                    let tie = self.engine.tie(at.as_key(), owner.as_bytes(), lease).map_or("", |_| " tied");
                    format!("{owner:?} {mode} x{} {} for {left}{tie}", lease.holds.get(), fence(lease.fence))
                };
                lock.iter().map(one).collect::<Vec<_>>().join(" + ")
            }
        };
        let line = self.engine.queue().waiters(at.as_key());
        line.fold(holders, |all, (_, waiter)| format!("{all} | {:?}", waiter.owner()))
    }

    fn stream(&mut self) -> Vec<String> {
        let told = core::mem::take(&mut self.memory.told);
        let one = |told: super::memory::Told| {
            format!("{} {:?} {}", told.key.name.escape_ascii(), told.owner, event(told.event))
        };
        told.into_iter().map(one).collect()
    }
}
