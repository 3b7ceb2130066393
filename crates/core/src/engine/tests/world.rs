//! An engine, its replica and the model of it, taken through the same steps and compared after each.

use super::memory::{Content, Memory};
use super::model::{Model, Said, Why};
use super::op::{ANY, Kind, Op, Part, Token, Wish};
use crate::engine::{Change, Effect, Engine, Event, Note};
use crate::fence::Fence;
use crate::key::{Db, Key, KeyBuf};
use crate::lock::{Holds, Lease, Limit, Lock, Mode};
use crate::owner::Owner;
use crate::queue::WaiterId;
use crate::record::{self, Record};
use crate::request::{Answer, Ask, Fault, Form, Grant, Portion, Verdict, Wait};
use crate::session::Session;
use crate::time::{Millis, Now, Offset, Ttl};
use std::collections::BTreeMap;
use std::string::String;
use std::vec::Vec;

/// A grant that was told to a waiter, as the shell would remember it.
#[derive(Clone, Debug)]
struct HandOff {
    keys: Vec<u8>,
    owner: u8,
    grant: Grant,
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) model: Model,
    pub(super) memory: Memory,
    replica: Engine,
    mirror: Memory,
    waiters: BTreeMap<WaiterId, usize>,
    /// What each waiter asked for: its owner and its keys.
    asked: BTreeMap<usize, (u8, Vec<u8>)>,
    hand_offs: Vec<HandOff>,
    /// What the engine told and the model has not said yet.
    unmatched: Vec<Effect>,
    last_grant: Fence,
    /// Whether a request reaches the keys of its own slot only, as on a node of a cluster. Each name is a slot.
    pub(super) clustered: bool,
    /// What the answers were, for those who want to know how rich a run was.
    pub(super) tally: Tally,
}

/// A world without its history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Shape {
    held: Vec<String>,
    line: Vec<String>,
    untold: Vec<String>,
    foreign: Vec<u8>,
    ties: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) grants: usize,
    pub(super) hand_offs: usize,
    pub(super) deadlocks: usize,
    pub(super) late_deadlocks: usize,
    pub(super) queued: usize,
}

const KEYS: [u8; 4] = [0, 1, 2, 3];

/// How much more than by default is to be tried: 1 unless `REDISLOCK_DEPTH` says otherwise.
pub(super) fn depth() -> u32 {
    std::env::var("REDISLOCK_DEPTH").ok().and_then(|depth| depth.parse().ok()).unwrap_or(1)
}

fn key_name(key: u8) -> &'static [u8] {
    [b"a", b"b"][usize::from(key & 1)]
}

pub(super) fn key(key: u8) -> Key<'static> {
    Key { db: Db(u32::from(key >> 1)), name: key_name(key) }
}

pub(super) fn key_buf(number: u8) -> KeyBuf {
    key(number).to_buf()
}

fn owner_name(owner: u8) -> [u8; 1] {
    [b'A' + owner]
}

fn session(number: u8) -> Session {
    Session::new(u64::from(number) + 1).unwrap()
}

pub(super) fn mode(kind: Kind) -> Mode {
    match kind {
        Kind::Alone => Mode::Exclusive,
        Kind::Together(ANY) => Mode::Shared(Limit::NONE),
        Kind::Together(limit) => Mode::Shared(Limit::new(limit).unwrap()),
    }
}

fn limit(limit: Limit) -> u32 {
    limit.get().unwrap_or(ANY)
}

impl World {
    pub(super) fn new(max_waiters: usize) -> Self {
        Self {
            engine: Engine::new(max_waiters),
            model: Model::new(max_waiters),
            memory: Memory::default(),
            replica: Engine::new(0),
            mirror: Memory::default(),
            waiters: BTreeMap::new(),
            asked: BTreeMap::new(),
            hand_offs: Vec::new(),
            unmatched: Vec::new(),
            last_grant: Fence::default(),
            clustered: false,
            tally: Tally::default(),
        }
    }

    /// What may matter for anything that can still happen: two worlds with the same shape behave alike.
    pub(super) fn shape(&self) -> Shape {
        let now = self.model.now;
        let mut held = Vec::new();
        for number in KEYS {
            for (owner, lease) in self.memory.lock(key(number)).into_iter().flat_map(Lock::iter) {
                let tie = self.engine.tie(key(number), owner.as_bytes(), lease);
                let Lease { mode, holds, deadline, .. } = lease;
                let left = deadline.0.checked_sub(now).filter(|left| *left > 0);
                held.push(std::format!(
                    "{number} {owner:?} {mode:?} {holds:?} {left:?} {tie:?} {:?}",
                    lease.session
                ));
            }
        }
        let mut line = Vec::new();
        for waiting in &self.model.line {
            let left = waiting.until.map(|until| until - now);
            line.push(std::format!("{:?} {left:?} {}", waiting.wish, waiting.upgrade));
        }
        let mut untold = Vec::new();
        for HandOff { keys, owner, grant } in &self.hand_offs {
            let stands =
                |key: &u8| self.model.holder(*key, *owner).is_some_and(|h| h.fence == grant.fence.get());
            untold.push(std::format!(
                "{keys:?} {owner} {:?} {:?}",
                keys.iter().map(stands).collect::<Vec<_>>(),
                grant.upgraded
            ));
        }
        Shape {
            held,
            line,
            untold,
            foreign: self.model.foreign.iter().copied().collect(),
            ties: self.engine.tied(),
        }
    }

    fn now(&self) -> Now {
        // Slower than the steady clock, so that tokens come now from the clock and now from the counter.
        Now { at: Millis(self.model.now), wall_micros: 1_000 + self.model.now / 8 }
    }

    /// One step of both, and the comparison. A step that only lets time pass is not looked at.
    pub(super) fn step(&mut self, op: &Op) {
        if let Op::Pass { millis } = op {
            self.model.now += millis;
            return;
        }
        // A request finds everything in order; what happens behind the engine's back may come before the alarm.
        if matches!(
            op,
            Op::Ask(_)
                | Op::Renew { .. }
                | Op::Release { .. }
                | Op::Raise { .. }
                | Op::Downgrade { .. }
                | Op::Break { .. }
                | Op::Untold { .. }
        ) {
            self.model.catch_up();
        }
        self.memory.far = self.clustered.then(|| beyond_reach(op)).flatten();
        self.apply(op);
        self.memory.far = None;
        self.model.catch_up();
        let now = self.now();
        self.engine.drain(&mut self.memory, now);
        self.model.wind_up();
        self.compare_answers();
        self.replicate();
        self.compare_state();
        self.audit();
    }

    fn apply(&mut self, op: &Op) {
        let now = self.now();
        match *op {
            Op::Ask(ref wish) => self.ask(wish),
            Op::Renew { owner, key: at, ttl, session: tie } => {
                let ttl_of = Ttl::new(ttl).unwrap();
                let tie_of = tie.map(session);
                let name = owner_name(owner);
                let got = self.engine.renew(&mut self.memory, now, key(at), &name, ttl_of, tie_of);
                self.reveal();
                let said = self.model.renew(at, owner, ttl, tie);
                assert_eq!(fenced(got), said, "renew");
            }
            Op::Release { owner, key: at, part } => {
                let portion = match part {
                    Part::One => Portion::One,
                    Part::Nth(hold) => Portion::Nth(Holds::new(hold).unwrap()),
                    Part::All => Portion::All,
                };
                let got = self.engine.release(&mut self.memory, now, key(at), &owner_name(owner), portion);
                let said = self.model.release(at, owner, part);
                let got = match got {
                    Ok(Some(left)) => Said::Count(left),
                    Ok(None) => Said::Nothing,
                    Err(fault) => Said::Wrong(why(&fault)),
                };
                assert_eq!(got, said, "release");
            }
            Op::Raise { owner, key: at, token } => self.raise(owner, at, token),
            Op::Downgrade { owner, key: at } => {
                let got = self.engine.downgrade(&mut self.memory, now, key(at), &owner_name(owner));
                self.reveal();
                let said = self.model.downgrade(at, owner);
                assert_eq!(fenced(got), said, "downgrade");
            }
            Op::Break { key: at, owner } => {
                let name = owner.map(owner_name);
                let name = name.as_ref().map(|name| &name[..]);
                let got = self.engine.revoke(&mut self.memory, now, key(at), name, None);
                let said = self.model.break_lock(at, owner);
                let got = match got {
                    Ok(count) => Said::Count(count as u32),
                    Err(fault) => Said::Wrong(why(&fault)),
                };
                assert_eq!(got, said, "break");
            }
            Op::Delete { key: at } => {
                self.behind(|memory| memory.delete(key(at)));
                self.engine.note(Note::Key(key_buf(at)));
                self.model.delete(at);
            }
            Op::Overwrite { key: at } => {
                self.behind(|memory| memory.overwrite(key(at)));
                // The server knows names here, not databases.
                self.engine.note(Note::Name(key_name(at).into()));
                self.model.overwrite(at);
            }
            Op::Rename { from, to } if from != to && self.memory.slots.contains_key(&key_buf(from)) => {
                self.behind(|memory| {
                    memory.rename(key(from), key(to));
                });
                self.engine.note(Note::Key(key_buf(from)));
                self.engine.note(Note::Arrived(key_buf(to)));
                self.model.rename(from, to);
            }
            Op::Rename { .. } => {}
            Op::SwapDatabases => {
                self.behind(|memory| memory.swap(Db(0), Db(1)));
                self.engine.swapped(Db(0), Db(1));
                self.model.swap();
            }
            Op::Close { session: closed } => {
                while let Some(nth) = self.model.line.iter().position(|w| w.wish.session == Some(closed)) {
                    self.apply(&Op::Forget { nth });
                }
                self.engine.note(Note::Closed(session(closed)));
                self.model.close(closed);
            }
            Op::Forget { nth } => {
                if let Some(id) = self.model.leave(nth) {
                    let waiter = self.waiter(id);
                    assert!(self.engine.forget(waiter), "one who waits was not found");
                    assert!(!self.engine.forget(waiter), "one who waits no longer was found");
                    self.waiters.remove(&waiter);
                }
            }
            Op::Dismiss { nth } => {
                if let Some(id) = self.model.leave(nth) {
                    let waiter = self.waiter(id);
                    self.engine.dismiss(waiter, Verdict::Refused);
                    self.engine.dismiss(waiter, Verdict::Refused);
                    self.model.told.push((id, Said::Refused));
                }
            }
            Op::Untold { nth } => {
                let Some(index) = nth.checked_rem(self.hand_offs.len()) else { return };
                let HandOff { keys, owner, grant } = self.hand_offs.remove(index);
                let names = keys.iter().map(|key| key_buf(*key)).collect();
                let name = Owner::new(&owner_name(owner)).unwrap();
                self.engine.note(Note::Untold { keys: names, owner: name, grant });
                self.model.take_back(&keys, owner, grant.fence.get(), grant.upgraded.map(limit));
            }
            Op::Drain | Op::Pass { .. } => {}
        }
    }

    fn waiter(&self, id: usize) -> WaiterId {
        *self.waiters.iter().find(|(_, other)| **other == id).unwrap().0
    }

    fn ask(&mut self, wish: &Wish) {
        let name = owner_name(wish.owner);
        let keys: Vec<Key<'_>> = wish.keys.iter().map(|number| key(*number)).collect();
        let ask = Ask {
            owner: &name,
            ttl: Ttl::new(wish.ttl).unwrap(),
            mode: mode(wish.kind),
            session: wish.session.map(session),
            form: match wish.nests {
                None => Form::Acquire,
                Some(hold) => Form::Reenter { hold: hold.map(|hold| Holds::new(hold).unwrap()) },
            },
        };
        let now = self.now();
        let wait = wish.wait.map(|wait| Wait { until: wait.map(|wait| Millis(now.at.0 + wait)) });
        let got = self.engine.acquire(&mut self.memory, now, &keys, &ask, wait);
        self.reveal();
        let mut said = self.model.ask(wish);
        if said == Said::Wrong(Why::Unsure) {
            said = self.take_the_engines_word(&got);
        }
        match (&got, &said) {
            (Ok(Answer::Granted(grant)), Said::Granted { grant: number, holds, upgraded }) => {
                assert_eq!((grant.holds.get(), grant.upgraded.map(limit)), (*holds, *upgraded));
                self.model.reveal(*number, grant.fence.get());
                self.tally.grants += 1;
            }
            (Ok(Answer::Refused(_)), Said::Refused) => {}
            (Ok(Answer::Queued(waiter)), Said::Wrong(Why::Deadlock)) if self.clustered => {
                // It can't be seen from here, and is told by the drain in the same turn.
                let id = self.model.new_id();
                self.waiters.insert(*waiter, id);
                self.model.told.push((id, Said::Wrong(Why::Deadlock)));
                self.tally.late_deadlocks += 1;
            }
            (Ok(Answer::Queued(waiter)), Said::Queued(id)) => {
                self.waiters.insert(*waiter, *id);
                self.asked.insert(*id, (wish.owner, wish.keys.clone()));
                self.tally.queued += 1;
            }
            (Err(fault), Said::Wrong(expected)) => {
                assert_eq!(why(fault), *expected);
                if let Fault::Deadlock(circle) = fault {
                    self.tally.deadlocks += 1;
                    self.check_circle(wish, circle.owners());
                }
            }
            _ => panic!("the engine says {got:?}, the model {said:?}"),
        }
    }

    fn take_the_engines_word(&mut self, got: &Result<Answer, Fault>) -> Said {
        let mine = self.model.line.iter().map(|waiting| waiting.id).max().unwrap();
        if matches!(got, Ok(Answer::Queued(_))) {
            return Said::Queued(mine);
        }
        self.model.line.retain(|waiting| waiting.id != mine);
        Said::Wrong(Why::Deadlock)
    }

    /// Every arrow of a circle is true: the first waits for, or stands behind, something of the next.
    fn check_circle(&self, wish: &Wish, circle: &[Owner]) {
        let circle: Vec<u8> = circle.iter().map(|owner| owner.as_bytes()[0] - b'A').collect();
        assert_eq!(circle[0], wish.owner);
        assert!(circle.len() >= 2);
        let waited = |owner: u8| {
            let queued = self.model.line.iter().filter(move |w| w.wish.owner == owner).map(|w| &w.wish);
            let asked = (owner == wish.owner).then_some(wish);
            queued.chain(asked).flat_map(|wish| wish.keys.iter().copied()).collect::<Vec<u8>>()
        };
        for (index, owner) in circle.iter().enumerate() {
            let next = circle[(index + 1) % circle.len()];
            let met = waited(*owner).into_iter().any(|key| {
                self.model.holder(key, next).is_some()
                    || self.model.line_of(key).any(|waiting| waiting.wish.owner == next)
            });
            assert!(met, "{owner} does not wait for {next} in {circle:?}");
            assert!(!circle[..index].contains(owner), "{owner} is twice in {circle:?}");
        }
    }

    fn raise(&mut self, owner: u8, at: u8, token: Token) {
        let now = self.now();
        let far = self.memory.far.take();
        self.engine.drain(&mut self.memory, now);
        self.memory.far = far;
        self.model.wind_up();
        self.reveal();
        let last = self.engine.last_fence().get();
        let (token, too_far) = match token {
            Token::Above(more) => (last + more, false),
            Token::Below(less) => (last.saturating_sub(less), false),
            Token::TooFar => (now.wall_micros + crate::fence::Counter::LEAP_MAX + 1 + last, true),
        };
        let fence = Fence::new(token).unwrap();
        let got = self.engine.raise(&mut self.memory, now, key(at), &owner_name(owner), fence);
        let said = self.model.raise(at, owner, token, too_far);
        assert_eq!(fenced(got), said, "raise");
        assert!(self.engine.last_fence().get() >= last);
    }

    /// Something that happens to the keys of the primary and of its replica alike.
    fn behind(&mut self, what: impl Fn(&mut Memory)) {
        self.replicate();
        what(&mut self.memory);
        what(&mut self.mirror);
    }

    /// Tells the model the tokens of what was handed on so far, in the same order for each waiter.
    fn reveal(&mut self) {
        self.unmatched.extend(self.engine.take_effects());
        for effect in core::mem::take(&mut self.unmatched) {
            let Effect::Answer(waiter, ref verdict) = effect;
            let Some(id) = self.waiters.get(&waiter).copied() else {
                panic!("a second answer for {waiter:?}")
            };
            let Some(index) = self.model.told.iter().position(|(other, _)| *other == id) else {
                // The model may not have come to this yet.
                self.unmatched.push(effect);
                continue;
            };
            self.waiters.remove(&waiter);
            let (_, said) = self.model.told.remove(index);
            match (verdict, &said) {
                (Verdict::Granted(grant), Said::Granted { grant: number, holds, upgraded }) => {
                    assert_eq!((grant.holds.get(), grant.upgraded.map(limit)), (*holds, *upgraded));
                    self.model.reveal(*number, grant.fence.get());
                    let (owner, keys) = self.asked[&id].clone();
                    self.hand_offs.push(HandOff { keys, owner, grant: *grant });
                    self.hand_offs.drain(..self.hand_offs.len().saturating_sub(4));
                    self.tally.hand_offs += 1;
                }
                (Verdict::Refused, Said::Refused) | (Verdict::Replaced, Said::Replaced) => {}
                (Verdict::Fault(fault), Said::Wrong(expected)) => assert_eq!(why(fault), *expected),
                _ => panic!("the engine told {verdict:?}, the model {said:?}"),
            }
        }
    }

    fn compare_answers(&mut self) {
        self.reveal();
        assert_eq!(self.unmatched, [], "the engine told what the model did not");
        assert_eq!(self.model.told, [], "the model told what the engine did not");
    }

    /// Sends every record to the replica, and checks that the stream makes sense.
    fn replicate(&mut self) {
        let mut bytes = Vec::new();
        let offset = Offset(7_000);
        let mut last = (self.last_grant, Owner::new(b"-").unwrap());
        for told in core::mem::take(&mut self.memory.told) {
            if let (Change::Held(lease), Event::Granted) = (told.change, told.event) {
                let same = lease.fence == last.0 && told.owner == last.1;
                assert!(lease.fence > last.0 || same, "a grant under {:?} after {:?}", lease.fence, last);
                last = (lease.fence, told.owner.clone());
            }
            last.0 = last.0.max(told.counter);
            let record = Record { counter: told.counter, owner: told.owner.as_bytes(), change: told.change };
            record::encode_record(&mut bytes, &record, offset);
            let read = record::decode_record(&bytes, offset).unwrap();
            self.replica.apply(&mut self.mirror, told.key.as_key(), &read).unwrap();
        }
        self.last_grant = last.0;
        assert_eq!(self.replica.last_fence(), self.engine.last_fence());
        let locks = |memory: &Memory| {
            let locks = memory.slots.iter().map(|(key, content)| (key.clone(), bare(content)));
            locks.collect::<BTreeMap<_, _>>()
        };
        assert_eq!(locks(&self.mirror), locks(&self.memory), "the replica differs");
    }

    fn compare_state(&mut self) {
        for number in KEYS {
            assert_eq!(
                self.model.foreign.contains(&number),
                matches!(self.memory.slots.get(&key_buf(number)), Some(Content::Foreign))
            );
            let mut held = Vec::new();
            for (owner, lease) in self.memory.lock(key(number)).into_iter().flat_map(Lock::iter) {
                if lease.runs(Millis(self.model.now)) {
                    let tie = self.engine.tie(key(number), owner.as_bytes(), lease);
                    held.push((owner.as_bytes()[0] - b'A', Lease { session: tie, ..*lease }));
                } else {
                    let line = self.engine.queue().line(key(number));
                    assert!(line.is_none(), "a lease that has ended lies before a line");
                }
            }
            let expected = self.model.holders.iter().filter(|holder| holder.key == number);
            let mut expected: Vec<_> = expected
                .map(|holder| {
                    let lease = Lease {
                        mode: mode(holder.kind),
                        holds: Holds::new(holder.holds).unwrap(),
                        fence: Fence::new(holder.fence).unwrap(),
                        deadline: Millis(holder.deadline),
                        since: Millis(holder.since),
                        session: holder.session.map(session),
                    };
                    (holder.owner, lease)
                })
                .collect();
            expected.sort_by_key(|(owner, _)| *owner);
            held.sort_by_key(|(owner, _)| *owner);
            assert_eq!(held, expected, "the holders of {number}");
            let line: Vec<_> = self
                .engine
                .queue()
                .waiters(key(number))
                .map(|(id, w)| (self.waiters[&id], w.mode(), w.since(), w.until(), w.is_upgrade()))
                .collect();
            let expected: Vec<_> = self
                .model
                .line_of(number)
                .map(|w| (w.id, mode(w.wish.kind), Millis(w.since), w.until.map(Millis), w.upgrade))
                .collect();
            assert_eq!(line, expected, "the line of {number}");
        }
    }

    /// What must be so, whatever the model says.
    fn audit(&mut self) {
        self.engine.queue.audit();
        self.engine.ties.audit();
        assert!(!self.engine.has_notes());
        assert_eq!(self.waiters.len(), self.engine.queue().len());
        let mut due: Vec<Millis> =
            self.engine.queue().iter().filter_map(|(_, waiter)| waiter.until()).collect();
        for number in KEYS {
            let Some(lock) = self.memory.lock(key(number)) else { continue };
            let exclusive = lock.iter().filter(|(_, lease)| lease.mode == Mode::Exclusive).count();
            assert!(exclusive == 0 || lock.len() == 1, "an exclusive holder beside another");
            assert_eq!(lock.len(), lock.iter().count());
            for (_, lease) in lock.iter() {
                assert!(lease.fence <= self.engine.last_fence());
                if let Mode::Shared(limit) = lease.mode {
                    assert!(limit.allows(lock.len()), "more than a limit");
                }
            }
            if self.engine.queue().line(key(number)).is_some() {
                due.push(lock.earliest());
            }
            let offset = Offset(-3);
            let bytes = record::encode_lock(&lock.clone(), Offset(0));
            assert_eq!(bare_lock(&record::decode_lock(&bytes, Offset(0)).unwrap()), bare_lock(lock));
            let moved = record::encode_lock(lock, Offset(1_000));
            let read = record::decode_lock(&moved, Offset(1_000 + offset.0)).unwrap();
            assert_eq!(read.latest(), Offset(3).to_steady(0).max(Millis(lock.latest().0 + 3)));
        }
        assert_eq!(self.engine.next_due(), due.iter().min().copied(), "the alarm");
        assert!(due.iter().all(|due| *due > Millis(self.model.now)), "something was due");
        let ties: Vec<_> = self.model.holders.iter().filter(|holder| holder.session.is_some()).collect();
        assert!(self.engine.tied() >= ties.len());
    }
}

/// The name whose keys a request does not reach: the one that it does not use.
fn beyond_reach(op: &Op) -> Option<u8> {
    let keys = match op {
        Op::Ask(wish) => &wish.keys[..],
        Op::Renew { key, .. }
        | Op::Release { key, .. }
        | Op::Raise { key, .. }
        | Op::Downgrade { key, .. }
        | Op::Break { key, .. } => core::slice::from_ref(key),
        _ => return None,
    };
    match keys.iter().map(|key| key & 1).collect::<Vec<_>>()[..] {
        [0] => Some(b'b'),
        [1] => Some(b'a'),
        _ => None,
    }
}

fn fenced(got: Result<Option<Fence>, Fault>) -> Said {
    match got {
        Ok(Some(fence)) => Said::Fence(fence.get()),
        Ok(None) => Said::Nothing,
        Err(fault) => Said::Wrong(why(&fault)),
    }
}

fn why(fault: &Fault) -> Why {
    match fault {
        Fault::Held(fence) => Why::Held(fence.get()),
        Fault::Hold { has } => Why::Hold(has.get()),
        Fault::NotUpgraded => Why::NotUpgraded,
        Fault::WrongType => Why::WrongType,
        Fault::Waits => Why::Waits,
        Fault::Deadlock(_) => Why::Deadlock,
        Fault::QueueFull => Why::QueueFull,
        Fault::Ahead(_) => Why::Ahead,
        Fault::HoldsFull | Fault::Exhausted | Fault::Elsewhere => {
            panic!("not in a world as small as this: {fault:?}")
        }
    }
}

/// A lock as it travels: without ties.
fn bare_lock(lock: &Lock) -> Vec<(Owner, Lease)> {
    lock.iter().map(|(owner, lease)| (owner.clone(), Lease { session: None, ..*lease })).collect()
}

fn bare(content: &Content) -> Option<Vec<(Owner, Lease)>> {
    match content {
        Content::Lock(lock) => Some(bare_lock(lock)),
        Content::Foreign | Content::Elsewhere => None,
    }
}
