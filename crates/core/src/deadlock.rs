//! Would this wait close a circle of owners that wait for one another?
//!
//! A wait gets on when everyone ahead of it in its lines gets on, and when what is left of the holders after all
//! those that get on have left would let it in: nobody at all beside an exclusive one, fewer than the limit beside
//! a shared one. An owner gets on when each of its waits does; one that does not wait always does. The smallest
//! set of owners for which this holds is found by repetition; who is not in it is stuck for good. Every wait that
//! would be stuck is refused when it is asked for, so a stuck asker always stands in a circle itself, and the
//! shortest one is its answer.
//!
//! This is the usual reduction of a wait-for graph with k-of-n waits (Knapp, "Deadlock detection in distributed
//! databases", ACM Computing Surveys 19(4), 1987, section on the AND-OR and k-out-of-n models), within one server.

use crate::engine::{Keyspace, Slot};
use crate::key::{Key, KeyBuf};
use crate::lock::{Limit, Mode};
use crate::owner::Owner;
use crate::queue::{Queue, WaiterId};
use crate::request::Ask;
use crate::time::Millis;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// How many holders and waiters one search looks at. A search that would need more finds nothing, and the wait
/// ends by its timeout.
const VISITS_MAX: usize = 20_000;

/// Owners that wait for one another: each for the next, and the last for the first, who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle(Vec<Owner>);

impl Circle {
    /// The owners, beginning with the one who asked.
    #[must_use]
    pub fn owners(&self) -> &[Owner] {
        &self.0
    }
}

/// One waiting request, as the search sees it.
struct Wait {
    mode: Mode,
    keys: Vec<Crowd>,
}

/// Those who wait themselves among the people in the way at one key.
struct Crowd {
    holders: Vec<(usize, Mode)>,
    ahead: Vec<usize>,
}

struct Search<'a, K> {
    queue: &'a Queue,
    keys: &'a mut K,
    now: Millis,
    names: BTreeMap<Owner, usize>,
    owners: Vec<Owner>,
    waits: Vec<Vec<Wait>>,
    visits: usize,
}

/// More was to be looked at than a search may.
struct TooMany;

/// The circle that would close if this request waited for these keys, at the end of their lines or, for an upgrade,
/// ahead of them.
pub(crate) fn search<K: Keyspace>(
    queue: &Queue,
    keys: &mut K,
    now: Millis,
    names: &[Key<'_>],
    ask: &Ask<'_>,
    upgrade: bool,
) -> Option<Circle> {
    let mut search = Search {
        queue,
        keys,
        now,
        names: BTreeMap::new(),
        owners: Vec::new(),
        waits: Vec::new(),
        visits: 0,
    };
    search.explore(names, ask, upgrade).ok()?;
    let going = search.going();
    search.circle(&going)
}

impl<K: Keyspace> Search<'_, K> {
    fn explore(&mut self, names: &[Key<'_>], ask: &Ask<'_>, upgrade: bool) -> Result<(), TooMany> {
        let asker = self.node(&Owner::checked(ask.owner));
        let mut crowds = Vec::new();
        for key in names {
            crowds.push(Crowd { holders: self.holders(asker, *key)?, ahead: Vec::new() });
        }
        // The ordinary crowd around a busy key: no holder waits, and nobody in line waits for anything else. Then
        // all get on in turn, and the line need not be walked.
        let plain = crowds.iter().all(|crowd| crowd.holders.is_empty());
        if plain && !self.queue.is_entangled() && !self.queue.waits(ask.owner) {
            return Ok(());
        }
        if !upgrade {
            for (key, crowd) in names.iter().zip(&mut crowds) {
                crowd.ahead = self.ahead(asker, *key, None)?;
            }
        }
        self.waits[asker].push(Wait { mode: ask.mode, keys: crowds });
        let mut next = 0;
        while next < self.owners.len() {
            self.expand(next)?;
            next += 1;
        }
        Ok(())
    }

    /// Notes every waiting request of an owner.
    fn expand(&mut self, node: usize) -> Result<(), TooMany> {
        let owner = self.owners[node].clone();
        let ids: Vec<WaiterId> = self.queue.of_owner(owner.as_bytes()).map(|(id, _)| id).collect();
        for id in ids {
            let Some(waiter) = self.queue.get(id) else { continue };
            let mode = waiter.mode();
            let names: Vec<KeyBuf> = self.queue.keys(id).map(Key::to_buf).collect();
            let mut keys = Vec::new();
            for key in &names {
                let key = key.as_key();
                keys.push(Crowd { holders: self.holders(node, key)?, ahead: self.ahead(node, key, Some(id))? });
            }
            self.waits[node].push(Wait { mode, keys });
        }
        Ok(())
    }

    /// The holders of a key, other than this owner, that wait themselves.
    fn holders(&mut self, node: usize, key: Key<'_>) -> Result<Vec<(usize, Mode)>, TooMany> {
        let Slot::Held(lock) = self.keys.find(key) else { return Ok(Vec::new()) };
        self.visits += lock.len();
        if self.visits > VISITS_MAX {
            return Err(TooMany);
        }
        let own = &self.owners[node];
        let waiting: Vec<(Owner, Mode)> = lock
            .iter()
            .filter(|(owner, lease)| lease.runs(self.now) && *owner != own && self.queue.waits(owner.as_bytes()))
            .map(|(owner, lease)| (owner.clone(), lease.mode))
            .collect();
        Ok(waiting.into_iter().map(|(owner, mode)| (self.node(&owner), mode)).collect())
    }

    /// The owners ahead of a waiter in a line, or of its end.
    fn ahead(&mut self, node: usize, key: Key<'_>, until: Option<WaiterId>) -> Result<Vec<usize>, TooMany> {
        let mut ahead = Vec::new();
        let queue = self.queue;
        for (id, waiter) in queue.waiters(key) {
            if Some(id) == until {
                break;
            }
            self.visits += 1;
            if self.visits > VISITS_MAX {
                return Err(TooMany);
            }
            let other = self.node(waiter.owner());
            if other != node {
                ahead.push(other);
            }
        }
        Ok(ahead)
    }

    fn node(&mut self, owner: &Owner) -> usize {
        if let Some(node) = self.names.get(owner) {
            return *node;
        }
        let node = self.owners.len();
        self.names.insert(owner.clone(), node);
        self.owners.push(owner.clone());
        self.waits.push(Vec::new());
        node
    }

    /// Which owners get on.
    fn going(&self) -> Vec<bool> {
        let mut going = vec![false; self.owners.len()];
        loop {
            let before = going.iter().filter(|going| **going).count();
            for node in 0..going.len() {
                going[node] = going[node] || self.waits[node].iter().all(|wait| wait.gets_on(&going));
            }
            if going.iter().filter(|going| **going).count() == before {
                return going;
            }
        }
    }

    /// The shortest way from the asker over stuck owners back to it.
    fn circle(&self, going: &[bool]) -> Option<Circle> {
        let asker = 0;
        if going[asker] {
            return None;
        }
        let mut from = vec![None; self.owners.len()];
        let mut open = VecDeque::from([asker]);
        while let Some(node) = open.pop_front() {
            for next in self.waits[node].iter().flat_map(|wait| wait.blockers(going)) {
                if next == asker {
                    let way = core::iter::successors(Some(node), |node| from[*node]);
                    let mut owners: Vec<Owner> = way.map(|node| self.owners[node].clone()).collect();
                    owners.reverse();
                    return Some(Circle(owners));
                }
                if from[next].is_none() {
                    from[next] = Some(node);
                    open.push_back(next);
                }
            }
        }
        None
    }
}

impl Wait {
    fn gets_on(&self, going: &[bool]) -> bool {
        self.keys.iter().all(|crowd| crowd.ahead.iter().all(|node| going[*node]) && crowd.admits(self.mode, going))
    }

    fn blockers(&self, going: &[bool]) -> Vec<usize> {
        let mut blockers = Vec::new();
        for crowd in &self.keys {
            if !crowd.admits(self.mode, going) {
                blockers.extend(crowd.holders.iter().map(|(node, _)| *node).filter(|node| !going[*node]));
            }
            blockers.extend(crowd.ahead.iter().copied().filter(|node| !going[*node]));
        }
        blockers
    }
}

impl Crowd {
    /// Whether the key can be had once every holder that gets on has left.
    fn admits(&self, mode: Mode, going: &[bool]) -> bool {
        let stuck = || self.holders.iter().filter(|(node, _)| !going[*node]).map(|(_, mode)| *mode);
        match mode {
            Mode::Exclusive => stuck().next().is_none(),
            Mode::Shared(limit) => {
                let smallest = stuck().try_fold(limit, |least, mode| match mode {
                    Mode::Exclusive => None,
                    Mode::Shared(limit) => Some(least.min(limit)),
                });
                smallest.is_some_and(|least: Limit| least.allows(stuck().count() + 1))
            }
        }
    }
}
