//! Would this wait close a circle of owners that wait for one another?
//!
//! The search plays on from here as well as it can go: every owner that waits for nothing gives back all it has,
//! and every waiter that then stands at the head of all its lines and fits beside the holders that are left is
//! granted, again and again. No grant ever takes a chance away from another, so the order does not matter. An owner
//! goes when all its waits are granted; those that never go are stuck for good. Every wait that would be stuck is
//! refused when it is asked for, so a stuck asker always stands in a circle itself, and a short one is its answer.
//!
//! This is the usual reduction of a wait-for graph with k-of-n waits (Knapp, "Deadlock detection in distributed
//! databases", ACM Computing Surveys 19(4), 1987, section on the AND-OR and k-out-of-n models), within one server.

use crate::engine::{Keyspace, Slot};
use crate::key::Key;
use crate::lock::{Limit, Lock, Mode};
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

/// How many lines are looked at to see whether anyone waits for the asker at all.
const FEW_LINES: usize = 32;

/// Owners that wait for one another: each for the next, and the last for the first, who asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle(Vec<Owner>);

impl Circle {
    /// The asker, and the one other that it waits for and that waits for it.
    pub(crate) fn pair(asker: &[u8], other: &Owner) -> Self {
        Self(vec![Owner::checked(asker), other.clone()])
    }

    /// The owners, beginning with the one who asked.
    #[must_use]
    pub fn owners(&self) -> &[Owner] {
        &self.0
    }
}

/// An owner that waits: the asker, or one that may be in its way.
struct Node<'a> {
    owner: &'a [u8],
    /// Its requests that are not granted yet.
    pending: usize,
    waits: Vec<usize>,
    /// Where it holds something.
    stands: Vec<usize>,
    gone: bool,
}

/// One waiting request.
struct Wait {
    node: usize,
    mode: Mode,
    granted: bool,
    /// Its place in each of its lines.
    places: Vec<Place>,
}

#[derive(Clone, Copy)]
struct Place {
    line: usize,
    position: usize,
}

/// A key with those who stand in the way there: what its running holders have is as good as given back.
#[derive(Default)]
struct Crowd {
    /// The holders that wait themselves.
    standing: BTreeMap<usize, Mode>,
    limits: BTreeMap<Limit, usize>,
    exclusive: usize,
    /// All who wait for the key, in order, and how many of them are granted.
    line: Vec<usize>,
    served: usize,
}

/// More was to be looked at than a search may.
struct TooMany;

struct Search<'a, K> {
    queue: &'a Queue,
    keys: &'a mut K,
    now: Millis,
    asker: &'a [u8],
    by_owner: BTreeMap<&'a [u8], usize>,
    nodes: Vec<Node<'a>>,
    by_id: BTreeMap<WaiterId, usize>,
    waits: Vec<Wait>,
    by_key: BTreeMap<Key<'a>, usize>,
    crowds: Vec<Crowd>,
    visits: usize,
    blind: bool,
}

/// What a search has come to.
pub(crate) struct Found {
    /// The circle that closes.
    pub(crate) circle: Option<Circle>,
    /// There are keys that matter and that this step does not reach: what is held there was left out.
    pub(crate) blind: bool,
}

/// The circle that would close if this request waited for these keys, at the end of their lines or, for an upgrade,
/// ahead of them.
pub(crate) fn search<'a, K: Keyspace>(
    queue: &'a Queue,
    keys: &'a mut K,
    now: Millis,
    names: &'a [Key<'a>],
    ask: &Ask<'a>,
    upgrade: bool,
) -> Found {
    let mut search = Search::new(queue, keys, now, ask.owner);
    if search.is_plain(names) {
        return Found { circle: None, blind: false };
    }
    let explored = search.explore(Some((names, ask.mode, upgrade)));
    search.end(&explored)
}

/// The circle in which this owner stands already.
pub(crate) fn search_around<'a, K: Keyspace>(
    queue: &'a Queue,
    keys: &'a mut K,
    now: Millis,
    owner: &'a [u8],
) -> Found {
    let mut search = Search::new(queue, keys, now, owner);
    let explored = search.explore(None);
    search.end(&explored)
}

impl<'a, K: Keyspace> Search<'a, K> {
    fn new(queue: &'a Queue, keys: &'a mut K, now: Millis, asker: &'a [u8]) -> Self {
        Self {
            queue,
            keys,
            now,
            asker,
            by_owner: BTreeMap::new(),
            nodes: Vec::new(),
            by_id: BTreeMap::new(),
            waits: Vec::new(),
            by_key: BTreeMap::new(),
            crowds: Vec::new(),
            visits: 0,
            blind: false,
        }
    }

    fn end(&mut self, explored: &Result<(), TooMany>) -> Found {
        let circle = explored.as_ref().ok().and_then(|()| {
            self.play();
            self.circle()
        });
        Found { circle, blind: self.blind && explored.is_ok() }
    }

    /// Whether it can be seen at once that no circle closes: nobody would wait for the asker, or its way is clear.
    fn is_plain(&mut self, names: &[Key<'_>]) -> bool {
        if self.queue.waits(self.asker) {
            return false;
        }
        names.iter().all(|key| self.is_clear(*key)) || self.is_free_of_others()
    }

    /// Whether this is the ordinary crowd around a busy key: no holder waits, and nobody in line waits for anything
    /// else. Then all get on in turn, and the line need not be walked.
    fn is_clear(&mut self, key: Key<'_>) -> bool {
        let (queue, now, asker) = (self.queue, self.now, self.asker);
        !queue.is_entangled(key)
            && match self.keys.find(key) {
                Slot::Held(lock) => waiting(lock, queue, now).all(|(owner, _)| owner.as_bytes() == asker),
                Slot::Free | Slot::Foreign | Slot::Elsewhere => true,
            }
    }

    /// Whether the asker holds nothing that anyone waits for, where that is quickly said: however many wait, when
    /// they all wait for a few keys.
    fn is_free_of_others(&mut self) -> bool {
        let (queue, asker) = (self.queue, self.asker);
        queue.lines().take(FEW_LINES + 1).count() <= FEW_LINES
            && queue.lines().all(|key| {
                self.keys.reaches(key)
                    && match self.keys.find(key) {
                        Slot::Held(lock) => lock.get(asker).is_none(),
                        Slot::Free | Slot::Foreign | Slot::Elsewhere => true,
                    }
            })
    }

    /// Gathers every wait that can matter: a new one, and whatever the asker's lines and holders hang together with.
    fn explore(&mut self, new: Option<(&'a [Key<'a>], Mode, bool)>) -> Result<(), TooMany> {
        let node = self.node(self.asker);
        if let Some((names, mode, upgrade)) = new {
            let wait = self.wait(node, mode);
            for key in names {
                let line = self.crowd(*key)?;
                let position = if upgrade { 0 } else { self.crowds[line].line.len() };
                self.crowds[line].line.insert(position, wait);
            }
        }
        let mut next = 0;
        while next < self.nodes.len() {
            let owner = self.nodes[next].owner;
            for (id, _) in self.queue.of_owner(owner) {
                for key in self.queue.keys(id) {
                    self.crowd(key)?;
                }
            }
            next += 1;
        }
        for line in 0..self.crowds.len() {
            for position in 0..self.crowds[line].line.len() {
                let wait = self.crowds[line].line[position];
                self.waits[wait].places.push(Place { line, position });
            }
        }
        Ok(())
    }

    /// Notes a key with its holders and its line.
    fn crowd(&mut self, key: Key<'a>) -> Result<usize, TooMany> {
        if let Some(line) = self.by_key.get(&key) {
            return Ok(*line);
        }
        let line = self.crowds.len();
        self.by_key.insert(key, line);
        self.crowds.push(Crowd::default());
        for (owner, mode) in self.holders(key)? {
            let node = self.node(owner);
            self.stand(line, node, mode);
        }
        let queue = self.queue;
        for (id, waiter) in queue.waiters(key) {
            self.visit(1)?;
            let wait = match self.by_id.get(&id) {
                Some(wait) => *wait,
                None => {
                    let node = self.node(waiter.owner().as_bytes());
                    let wait = self.wait(node, waiter.mode());
                    self.by_id.insert(id, wait);
                    wait
                }
            };
            self.crowds[line].line.push(wait);
        }
        Ok(line)
    }

    /// The holders of a key that wait themselves, the asker among them.
    fn holders(&mut self, key: Key<'_>) -> Result<Vec<(&'a [u8], Mode)>, TooMany> {
        let (queue, now, asker) = (self.queue, self.now, self.asker);
        if !self.keys.reaches(key) {
            self.blind = true;
            return Ok(Vec::new());
        }
        let Slot::Held(lock) = self.keys.find(key) else { return Ok(Vec::new()) };
        let steps = lock.len().min(queue.owners());
        let mut holders: Vec<(&'a [u8], Mode)> = waiting(lock, queue, now)
            .filter(|(owner, _)| owner.as_bytes() != asker)
            .map(|(owner, mode)| (owner.as_bytes(), mode))
            .collect();
        let own = lock.get(asker).filter(|lease| lease.runs(now));
        holders.extend(own.map(|lease| (asker, lease.mode)));
        self.visit(steps)?;
        Ok(holders)
    }

    fn visit(&mut self, steps: usize) -> Result<(), TooMany> {
        self.visits += steps;
        if self.visits > VISITS_MAX { Err(TooMany) } else { Ok(()) }
    }

    fn node(&mut self, owner: &'a [u8]) -> usize {
        let nodes = &mut self.nodes;
        *self.by_owner.entry(owner).or_insert_with(|| {
            nodes.push(Node { owner, pending: 0, waits: Vec::new(), stands: Vec::new(), gone: false });
            nodes.len() - 1
        })
    }

    fn wait(&mut self, node: usize, mode: Mode) -> usize {
        let wait = self.waits.len();
        self.waits.push(Wait { node, mode, granted: false, places: Vec::new() });
        self.nodes[node].waits.push(wait);
        self.nodes[node].pending += 1;
        wait
    }

    fn stand(&mut self, line: usize, node: usize, mode: Mode) {
        self.crowds[line].leave(node);
        self.crowds[line].join(node, mode);
        self.nodes[node].stands.push(line);
    }

    /// Lets everyone get on who can.
    fn play(&mut self) {
        let mut open: Vec<usize> = (0..self.crowds.len()).collect();
        while let Some(line) = open.pop() {
            while let Some(wait) = self.crowds[line].head() {
                if !self.can_be_granted(wait) {
                    break;
                }
                self.grant(wait, &mut open);
            }
        }
    }

    fn can_be_granted(&self, wait: usize) -> bool {
        let Wait { node, mode, places, .. } = &self.waits[wait];
        places.iter().all(|Place { line, position }| {
            self.crowds[*line].served == *position && self.crowds[*line].admits(*node, *mode)
        })
    }

    fn grant(&mut self, wait: usize, open: &mut Vec<usize>) {
        let Wait { node, mode, ref places, .. } = self.waits[wait];
        let lines: Vec<usize> = places.iter().map(|place| place.line).collect();
        self.waits[wait].granted = true;
        for line in &lines {
            self.crowds[*line].served += 1;
            self.stand(*line, node, mode);
        }
        open.extend(lines);
        self.nodes[node].pending -= 1;
        if self.nodes[node].pending == 0 {
            self.nodes[node].gone = true;
            for line in core::mem::take(&mut self.nodes[node].stands) {
                self.crowds[line].leave(node);
                open.push(line);
            }
        }
    }

    /// The shortest way from the asker over stuck owners back to it.
    fn circle(&self) -> Option<Circle> {
        let asker = 0;
        if self.nodes[asker].gone {
            return None;
        }
        let mut walked: Vec<Walked> = self.crowds.iter().map(|_| Walked::default()).collect();
        let mut from = vec![None; self.nodes.len()];
        let mut open = VecDeque::from([asker]);
        while let Some(node) = open.pop_front() {
            for next in self.blockers(node, &mut walked) {
                if next == asker {
                    let way = core::iter::successors(Some(node), |node| from[*node]);
                    let mut owners: Vec<Owner> =
                        way.map(|node| Owner::checked(self.nodes[node].owner)).collect();
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

    /// Whom a stuck owner waits for: the holders that don't let it in, and who is stuck ahead of it. Those that
    /// were walked over before, from an owner nearer to the asker, are left out.
    fn blockers(&self, node: usize, walked: &mut [Walked]) -> Vec<usize> {
        let mut blockers = Vec::new();
        for wait in self.nodes[node].waits.iter().map(|wait| &self.waits[*wait]).filter(|wait| !wait.granted)
        {
            for Place { line, position } in &wait.places {
                let (crowd, walked) = (&self.crowds[*line], &mut walked[*line]);
                if !walked.holders && !crowd.admits(node, wait.mode) {
                    blockers.extend(crowd.standing.keys().copied().filter(|other| *other != node));
                    // The asker leaves itself out here, and it is the one to be found.
                    walked.holders = node != 0;
                }
                let ahead = crowd.served.max(walked.ahead)..*position;
                blockers
                    .extend(crowd.line.get(ahead).into_iter().flatten().map(|wait| self.waits[*wait].node));
                walked.ahead = walked.ahead.max(*position);
            }
        }
        blockers
    }
}

/// How much of a crowd was walked over already.
#[derive(Default)]
struct Walked {
    holders: bool,
    ahead: usize,
}

/// The holders of a lock that wait for something, with the names by which they wait.
fn waiting<'l, 'a: 'l>(
    lock: &'l Lock,
    queue: &'a Queue,
    now: Millis,
) -> impl Iterator<Item = (&'a Owner, Mode)> + use<'l, 'a> {
    // Whichever are fewer are walked: the holders, or all who wait.
    let few_holders = lock.len() <= queue.owners();
    let by_holder =
        few_holders.then(|| lock.iter().filter_map(|(owner, _)| queue.waiting_owner(owner.as_bytes())));
    let by_waiter = (!few_holders).then(|| queue.waiting_owners());
    let owners = by_holder.into_iter().flatten().chain(by_waiter.into_iter().flatten());
    owners.filter_map(move |owner| {
        let lease = lock.get(owner.as_bytes()).filter(|lease| lease.runs(now))?;
        Some((owner, lease.mode))
    })
}

impl Crowd {
    fn head(&self) -> Option<usize> {
        self.line.get(self.served).copied()
    }

    fn join(&mut self, node: usize, mode: Mode) {
        self.standing.insert(node, mode);
        match mode {
            Mode::Exclusive => self.exclusive += 1,
            Mode::Shared(limit) => *self.limits.entry(limit).or_default() += 1,
        }
    }

    fn leave(&mut self, node: usize) {
        match self.standing.remove(&node) {
            None => {}
            Some(Mode::Exclusive) => self.exclusive -= 1,
            Some(Mode::Shared(limit)) => {
                if let Some(count) = self.limits.get_mut(&limit) {
                    *count -= 1;
                    if *count == 0 {
                        self.limits.remove(&limit);
                    }
                }
            }
        }
    }

    /// Whether the key can be had beside those who are still there.
    fn admits(&self, node: usize, mode: Mode) -> bool {
        let holds = self.standing.contains_key(&node);
        match mode {
            Mode::Exclusive => self.standing.len() == usize::from(holds),
            Mode::Shared(limit) => {
                let least = self.limits.keys().next().map_or(limit, |least| limit.min(*least));
                holds || (self.exclusive == 0 && least.allows(self.standing.len() + 1))
            }
        }
    }
}
