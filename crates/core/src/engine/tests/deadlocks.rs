//! Ten thousand histories of owners that get into one another's way: every deadlock is told to exactly one of
//! them, at once, and nobody is told of one that is none.

use super::memory::Memory;
use super::model::{Model, Said, Why};
use super::op::{ANY, Kind, Part, Wish};
use super::world::{depth, key, mode};
use crate::engine::{Effect, Engine};
use crate::key::Key;
use crate::owner::Owner;
use crate::queue::WaiterId;
use crate::request::{Answer, Ask, Fault, Form, Portion, Verdict, Wait};
use crate::time::{Millis, Now, Ttl};
use std::collections::{BTreeMap, BTreeSet};
use std::println;
use std::vec;
use std::vec::Vec;

/// SplitMix64: each history follows from its number.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u8) -> u8 {
        (self.next() % u64::from(bound)) as u8
    }

    fn one_in(&mut self, many: u8) -> bool {
        self.below(many) == 0
    }

    fn order(&mut self, count: u8) -> Vec<u8> {
        let mut order: Vec<u8> = (0..count).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, usize::from(self.below(last as u8 + 1)));
        }
        order
    }
}

const NOW: Now = Now { at: Millis(1), wall_micros: 1 };

/// What the owners do, and what must come of it. No time passes, so only releases free anything.
struct History {
    engine: Engine,
    memory: Memory,
    model: Model,
    waiters: BTreeMap<WaiterId, usize>,
    /// How long the circles were that were told.
    circles: Vec<usize>,
}

impl History {
    fn new() -> Self {
        let mut model = Model::new(1_000);
        model.now = NOW.at.0;
        Self {
            engine: Engine::new(1_000),
            memory: Memory::default(),
            model,
            waiters: BTreeMap::new(),
            circles: Vec::new(),
        }
    }

    fn is_waiting(&self, owner: u8) -> bool {
        self.model.line.iter().any(|waiting| waiting.wish.owner == owner)
    }

    /// Asks, and checks the answer against every way in which the others could get on.
    fn ask(&mut self, wish: &Wish) {
        let name = [b'A' + wish.owner];
        let keys: Vec<Key<'_>> = wish.keys.iter().map(|number| key(*number)).collect();
        let ask = Ask {
            owner: &name,
            ttl: Ttl::new(wish.ttl).unwrap(),
            mode: mode(wish.kind),
            session: None,
            form: if wish.nests.is_some() { Form::Reenter { hold: None } } else { Form::Acquire },
        };
        let wait = wish.wait.map(|_| Wait { until: None });
        let got = self.engine.acquire(&mut self.memory, NOW, &keys, &ask, wait);
        let before = self.model.clone();
        let said = self.model.ask(wish);
        match (&got, &said) {
            (Ok(Answer::Granted(_)), Said::Granted { .. }) | (Ok(Answer::Refused(_)), Said::Refused) => {}
            (Ok(Answer::Queued(waiter)), Said::Queued(id)) => {
                self.waiters.insert(*waiter, *id);
                assert!(can_end_well(&self.model), "a deadlock that nobody was told of: {wish:?}");
            }
            (Err(Fault::Deadlock(circle)), Said::Wrong(Why::Deadlock)) => {
                let mut closed = before;
                closed.force(wish);
                assert!(!can_end_well(&closed), "a deadlock that is none: {wish:?}");
                assert_eq!(circle.owners()[0].as_bytes(), name);
                let owners: BTreeSet<&Owner> = circle.owners().iter().collect();
                assert_eq!(owners.len(), circle.owners().len());
                assert!(owners.iter().skip(1).all(|owner| owner.as_bytes().len() == 1));
                self.circles.push(circle.owners().len());
            }
            (Err(fault), Said::Wrong(_)) => assert!(!matches!(fault, Fault::Deadlock(_)), "{fault:?}"),
            _ => panic!("{wish:?}: the engine says {got:?}, the model {said:?}"),
        }
        self.settle();
    }

    /// Gives everything back that an owner holds.
    fn release_all(&mut self, owner: u8) {
        let keys: Vec<u8> = self.model.holders.iter().filter(|h| h.owner == owner).map(|h| h.key).collect();
        for number in keys {
            let name = [b'A' + owner];
            let left = self.engine.release(&mut self.memory, NOW, key(number), &name, Portion::All).unwrap();
            assert_eq!(left, Some(0));
            self.model.release(number, owner, Part::All);
            self.model.serve();
        }
        self.settle();
    }

    fn settle(&mut self) {
        self.model.serve();
        let mut told: BTreeMap<usize, Said> = self.model.told.drain(..).collect();
        for Effect::Answer(waiter, verdict) in self.engine.take_effects() {
            let id = self.waiters.remove(&waiter).expect("a second answer");
            let said = told.remove(&id);
            match (&verdict, &said) {
                (Verdict::Granted(_), Some(Said::Granted { .. }))
                | (Verdict::Refused, Some(Said::Refused))
                | (Verdict::Replaced, Some(Said::Replaced)) => {}
                _ => panic!("the engine told {verdict:?}, the model {said:?}"),
            }
        }
        assert!(told.is_empty(), "{told:?}");
        self.engine.queue.audit();
    }

    /// Everyone who runs gives back what it has, until nobody waits.
    fn end(mut self, chance: &mut Chance) -> Vec<usize> {
        while !self.waiters.is_empty() {
            let free = (0..8).filter(|owner| !self.is_waiting(*owner));
            let free: Vec<u8> =
                free.filter(|owner| self.model.holders.iter().any(|h| h.owner == *owner)).collect();
            assert!(!free.is_empty(), "everybody waits");
            self.release_all(free[usize::from(chance.below(free.len() as u8))]);
        }
        self.circles
    }
}

/// Whether there is any order in which those who run can give back what they have, so that in the end nobody waits:
/// every order is tried.
fn can_end_well(model: &Model) -> bool {
    let mut world = model.clone();
    world.serve();
    if world.line.is_empty() {
        return true;
    }
    let waits = |owner: u8| world.line.iter().any(|waiting| waiting.wish.owner == owner);
    let owners: BTreeSet<u8> = world.holders.iter().map(|holder| holder.owner).collect();
    owners.into_iter().filter(|owner| !waits(*owner)).any(|owner| {
        let mut after = world.clone();
        after.holders.retain(|holder| holder.owner != owner);
        can_end_well(&after)
    })
}

/// How rich the requests of a history are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// One key at a time, alone.
    Plain,
    /// Shared modes, limits, upgrades, several keys at once, and owners with several requests.
    Rich,
}

fn wish(chance: &mut Chance, style: Style, owner: u8, keys: u8) -> Wish {
    let mut kind = Kind::Alone;
    let mut names = vec![chance.below(keys)];
    let mut nests = None;
    if style == Style::Rich {
        kind = [Kind::Alone, Kind::Alone, Kind::Together(ANY), Kind::Together(2), Kind::Together(3)]
            [usize::from(chance.below(5))];
        nests = chance.one_in(2).then_some(None);
        if chance.one_in(4) {
            names = chance.order(keys);
            names.truncate(usize::from(2 + chance.below(2)));
            (kind, nests) = (Kind::Alone, None);
        }
    }
    let wait = (!chance.one_in(6)).then_some(None);
    Wish { owner, keys: names, kind, ttl: 1_000, wait, session: None, nests }
}

fn live(number: u64, style: Style) -> Vec<usize> {
    let mut chance = Chance(number);
    let (owners, mut keys) = (2 + chance.below(4), 2 + chance.below(4));
    // Every third is about as many keys as owners, each begins with its own, and mostly asks for the next one's:
    // so long circles come about.
    let ring = number.is_multiple_of(3);
    if ring {
        keys = owners;
    }
    let mut history = History::new();
    for owner in (0..owners).filter(|_| ring) {
        let own = Wish { wait: None, keys: vec![owner], ..wish(&mut chance, Style::Plain, owner, keys) };
        history.ask(&own);
    }
    for _ in 0..24 {
        let owner = chance.below(owners);
        // One thread of work, except that now and then one has a second connection.
        if history.is_waiting(owner) && !(style == Style::Rich && chance.one_in(4)) {
            continue;
        }
        if chance.one_in(6) {
            history.release_all(owner);
        } else {
            let mut wish = wish(&mut chance, style, owner, keys);
            if ring && wish.keys.len() == 1 && !chance.one_in(4) {
                wish.keys = vec![(owner + 1) % keys];
            }
            history.ask(&wish);
        }
    }
    history.end(&mut chance)
}

fn live_many(style: Style, histories: u64) {
    let mut by_length = BTreeMap::<usize, usize>::new();
    for number in 0..histories * u64::from(depth()) {
        for length in live(number, style) {
            *by_length.entry(length).or_default() += 1;
        }
    }
    println!("{style:?}: {histories} histories, circles by length: {by_length:?}");
    for length in 2..=5 {
        assert!(by_length.get(&length).is_some_and(|count| *count >= 5), "too few circles of {length}");
    }
}

#[test]
fn ten_thousand_histories_of_one_key_at_a_time() {
    live_many(Style::Plain, 10_000);
}

#[test]
fn ten_thousand_histories_with_modes_limits_upgrades_and_several_keys() {
    live_many(Style::Rich, 10_000);
}

/// Each owner holds its own key and asks for the next one's, in any order: the last to ask is told, nobody else.
#[test]
fn whoever_closes_a_circle_is_told_and_nobody_else() {
    for number in 0..1_000 {
        let mut chance = Chance(number);
        let count = 2 + chance.below(4);
        let mut history = History::new();
        let hold = |owner: u8, key: u8| Wish {
            owner,
            keys: vec![key],
            kind: Kind::Alone,
            ttl: 1_000,
            wait: Some(None),
            session: None,
            nests: None,
        };
        for owner in 0..count {
            history.ask(&hold(owner, owner));
        }
        let order = chance.order(count);
        for (asked, owner) in order.iter().enumerate() {
            assert_eq!(history.circles, [], "told too early");
            history.ask(&hold(*owner, (owner + 1) % count));
            assert_eq!(history.waiters.len(), (asked + 1).min(order.len() - 1));
        }
        assert_eq!(history.circles, [usize::from(count)]);
        history.end(&mut chance);
    }
}
