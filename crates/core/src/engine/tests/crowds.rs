//! A crowd costs no more than it has to: what is done for one holder or waiter looks at that one only.

use super::memory::Memory;
use crate::engine::{Effect, Engine};
use crate::key::{Db, Key};
use crate::lock::{Limit, Mode};
use crate::request::{Answer, Ask, Fault, Form, Portion, Verdict, Wait};
use crate::time::{Millis, Now, Ttl};
use std::format;
use std::string::String;
use std::time::{Duration, Instant};
use std::vec::Vec;

const KEY: Key<'static> = Key { db: Db(0), name: b"k" };
const TTL: u64 = 1_000_000;

struct Crowd {
    engine: Engine,
    memory: Memory,
    now: Now,
}

impl Crowd {
    fn new() -> Self {
        let now = Now { at: Millis(0), wall_micros: 0 };
        Self { engine: Engine::new(100_000), memory: Memory::default(), now }
    }

    fn ask(&mut self, owner: &str, mode: Mode, form: Form, wait: bool) -> Result<Answer, Fault> {
        let ask = Ask { owner: owner.as_bytes(), ttl: Ttl::new(TTL).unwrap(), mode, session: None, form };
        let wait = wait.then_some(Wait { until: None });
        self.engine.acquire(&mut self.memory, self.now, &[KEY], &ask, wait)
    }

    fn release(&mut self, owner: &str) -> Option<u32> {
        self.engine.release(&mut self.memory, self.now, KEY, owner.as_bytes(), Portion::One).unwrap()
    }

    /// What one step costs: how often a key was looked up, and how many records went out.
    fn cost(&mut self, step: impl FnOnce(&mut Self)) -> (usize, usize) {
        let (finds, told) = (self.memory.finds, self.memory.told.len());
        step(self);
        (self.memory.finds - finds, self.memory.told.len() - told)
    }
}

fn name(number: usize) -> String {
    format!("owner-{number:05}")
}

fn semaphore(holders: usize) -> Crowd {
    let mut crowd = Crowd::new();
    let mode = Mode::Shared(Limit::new(20_000).unwrap());
    for number in 0..holders {
        crowd.now.at.0 += 1;
        assert!(matches!(crowd.ask(&name(number), mode, Form::Acquire, false), Ok(Answer::Granted(_))));
    }
    crowd
}

/// Grants, renews, re-enters and releases in the middle of a crowd: the costs of each, and the time of the quickest
/// round, which a busy machine does not shorten.
fn work(holders: usize) -> (Vec<(usize, usize)>, Duration) {
    let mut crowd = semaphore(holders);
    let mode = Mode::Shared(Limit::NONE);
    let middle = name(holders / 2);
    let mut costs = Vec::new();
    let mut quickest = Duration::MAX;
    for round in 0..250 {
        let start = Instant::now();
        let steps: [&mut dyn FnMut(&mut Crowd); 5] = [
            &mut |crowd| {
                assert!(matches!(crowd.ask("new", mode, Form::Acquire, false), Ok(Answer::Granted(_))));
            },
            &mut |crowd| {
                let ttl = Ttl::new(TTL + round).unwrap();
                let renewed =
                    crowd.engine.renew(&mut crowd.memory, crowd.now, KEY, middle.as_bytes(), ttl, None);
                assert!(renewed.unwrap().is_some());
            },
            &mut |crowd| {
                let nested = crowd.ask(&middle, mode, Form::Reenter { hold: None }, false);
                assert!(matches!(nested, Ok(Answer::Granted(_))));
            },
            &mut |crowd| assert_eq!(crowd.release(&middle), Some(1)),
            &mut |crowd| assert_eq!(crowd.release("new"), Some(0)),
        ];
        costs.clear();
        for step in steps {
            costs.push(crowd.cost(step));
        }
        quickest = quickest.min(start.elapsed());
    }
    (costs, quickest)
}

#[test]
fn a_semaphore_of_ten_thousand_works_like_one_of_ten() {
    let (few, short) = work(10);
    let (many, long) = work(10_000);
    assert_eq!(few, many);
    assert!(
        many.iter().all(|(finds, told)| *finds <= 6 && *told == 1),
        "only its own record travels: {many:?}"
    );
    // A step that walked over the crowd would take hundreds of times as long.
    assert!(long < short * 30, "{short:?} among ten, {long:?} among ten thousand");
}

#[test]
fn ten_thousand_holders_end_one_by_one() {
    let mut crowd = semaphore(10_000);
    assert!(matches!(crowd.ask("writer", Mode::Exclusive, Form::Acquire, true), Ok(Answer::Queued(_))));
    for _ in 0..100 {
        crowd.now.at = crowd.engine.next_due().unwrap();
        let now = crowd.now;
        let (_, told) = crowd.cost(|crowd| crowd.engine.drain(&mut crowd.memory, now));
        assert_eq!(told, 1);
    }
    crowd.now.at.0 += TTL;
    crowd.engine.drain(&mut crowd.memory, crowd.now);
    let effects = crowd.engine.take_effects();
    assert!(matches!(effects[..], [Effect::Answer(_, Verdict::Granted(_))]));
    assert_eq!(crowd.memory.lock(KEY).unwrap().len(), 1);
}

#[test]
fn a_second_upgrader_is_found_in_any_crowd() {
    let mut crowd = semaphore(20_000);
    let upgrade = Form::Reenter { hold: None };
    assert!(matches!(crowd.ask(&name(7), Mode::Exclusive, upgrade, true), Ok(Answer::Queued(_))));
    let second = crowd.ask(&name(8), Mode::Exclusive, upgrade, true);
    let Err(Fault::Deadlock(circle)) = second else { panic!("{second:?}") };
    assert_eq!(circle.owners().len(), 2);
}

/// A lock with so many waiters behind it, and what a release then costs.
fn hand_off(waiters: usize) -> (usize, usize) {
    let mut crowd = Crowd::new();
    assert!(matches!(crowd.ask("holder", Mode::Exclusive, Form::Acquire, false), Ok(Answer::Granted(_))));
    for number in 0..waiters {
        let queued = crowd.cost(|crowd| {
            let asked = crowd.ask(&name(number), Mode::Exclusive, Form::Acquire, true);
            assert!(matches!(asked, Ok(Answer::Queued(_))));
        });
        assert!(queued.0 <= 8, "to queue behind {number} looks at {queued:?}");
    }
    let cost = crowd.cost(|crowd| assert_eq!(crowd.release("holder"), Some(0)));
    assert_eq!(crowd.engine.take_effects().len(), 1);
    crowd.engine.queue.audit();
    cost
}

#[test]
fn a_release_costs_the_same_behind_ten_waiters_or_ten_thousand() {
    assert_eq!(hand_off(10), hand_off(10_000));
}

#[test]
fn waiters_leave_from_anywhere_in_a_long_line() {
    let mut crowd = Crowd::new();
    assert!(matches!(crowd.ask("holder", Mode::Exclusive, Form::Acquire, false), Ok(Answer::Granted(_))));
    let mut ids = Vec::new();
    for number in 0..10_000 {
        let Ok(Answer::Queued(id)) = crowd.ask(&name(number), Mode::Exclusive, Form::Acquire, true) else {
            panic!("not queued");
        };
        ids.push(id);
    }
    for id in ids.iter().skip(1).step_by(2).rev() {
        assert!(crowd.engine.forget(*id));
        assert!(crowd.engine.queue().get(*id).is_none());
    }
    crowd.engine.queue.audit();
    let left: Vec<_> = crowd.engine.queue().waiters(KEY).map(|(id, _)| id).collect();
    assert_eq!(left, ids.iter().copied().step_by(2).collect::<Vec<_>>());
}

/// Queues thousands, behind one who waits for one key or for two. The time of the quickest of the last ones.
fn queue_behind(keys: &[Key<'_>]) -> Duration {
    let mut crowd = Crowd::new();
    let ttl = Ttl::new(TTL).unwrap();
    let mut first = Ask { owner: b"holder", ttl, mode: Mode::Exclusive, session: None, form: Form::Acquire };
    let held = crowd.engine.acquire(&mut crowd.memory, crowd.now, keys, &first, None);
    assert!(matches!(held, Ok(Answer::Granted(_))));
    first.owner = b"first";
    let wait = Some(Wait { until: None });
    let queued = crowd.engine.acquire(&mut crowd.memory, crowd.now, keys, &first, wait);
    assert!(matches!(queued, Ok(Answer::Queued(_))));
    let mut quickest = Duration::MAX;
    for number in 0..5_000 {
        let start = Instant::now();
        let asked = crowd.ask(&name(number), Mode::Exclusive, Form::Acquire, true);
        assert!(matches!(asked, Ok(Answer::Queued(_))));
        if number >= 4_900 {
            quickest = quickest.min(start.elapsed());
        }
    }
    quickest
}

/// Only a search that walked over the line each time would feel how long it is: a hundred times and more.
#[test]
fn to_queue_behind_thousands_costs_no_more_when_one_of_them_waits_for_several_keys() {
    let plain = queue_behind(&[KEY]);
    let entangled = queue_behind(&[KEY, Key { db: Db(0), name: b"far" }]);
    assert!(entangled < plain * 30, "{plain:?} behind one for one key, {entangled:?} behind one for two");
}

/// Two owners that wait for each other, one of them at the end of so long a line: what the closing one is told.
fn close_a_circle_through(waiters: usize) -> Result<Answer, Fault> {
    let mut crowd = Crowd::new();
    let other = Key { db: Db(0), name: b"other" };
    let ask = |crowd: &mut Crowd, owner: &str, key, wait: bool| {
        let ttl = Ttl::new(TTL).unwrap();
        let ask =
            Ask { owner: owner.as_bytes(), ttl, mode: Mode::Exclusive, session: None, form: Form::Acquire };
        let wait = wait.then_some(Wait { until: None });
        crowd.engine.acquire(&mut crowd.memory, crowd.now, &[key], &ask, wait)
    };
    assert!(matches!(ask(&mut crowd, "A", KEY, false), Ok(Answer::Granted(_))));
    assert!(matches!(ask(&mut crowd, "B", other, false), Ok(Answer::Granted(_))));
    for number in 0..waiters {
        assert!(matches!(ask(&mut crowd, &name(number), KEY, true), Ok(Answer::Queued(_))));
    }
    assert!(matches!(ask(&mut crowd, "B", KEY, true), Ok(Answer::Queued(_))));
    ask(&mut crowd, "A", other, true)
}

#[test]
fn a_deadlock_is_found_through_a_line_of_thousands() {
    let closing = close_a_circle_through(9_000);
    let Err(Fault::Deadlock(circle)) = closing else { panic!("{closing:?}") };
    let names: Vec<_> = circle.owners().iter().map(|owner| format!("{owner:?}")).collect();
    assert_eq!(names, ["A", "B"]);
}

/// Beyond its bound a search gives up, and the wait is left to its timeout.
#[test]
fn the_search_for_deadlocks_is_bounded() {
    assert!(matches!(close_a_circle_through(20_001), Ok(Answer::Queued(_))));
}
