//! Handing on: the one place where a waiter is granted.

use super::acquire::{Judgement, Turn};
use super::{Engine, Keyspace, Slot};
use crate::key::{Key, KeyBuf};
use crate::owner::Owner;
use crate::queue::WaiterId;
use crate::request::{Ask, Refusal, Verdict};
use crate::time::Now;
use alloc::vec;
use alloc::vec::Vec;

/// What became of the waiter at the head of a line.
enum Head {
    /// It was answered, and these lines have a new head.
    Left(Vec<KeyBuf>),
    /// It can't be served yet.
    Stays,
}

impl Engine {
    /// Ends what has lapsed at the key and serves its line, as far as it goes. With a waiter for several keys the
    /// other lines that it leaves are served too.
    pub(super) fn serve<K: Keyspace>(&mut self, keys: &mut K, now: Now, key: Key<'_>) {
        self.lapse(keys, now.at, key);
        let mut open = vec![key.to_buf()];
        while let Some(key) = open.pop() {
            let key = key.as_key();
            while let Some(head) = self.queue.head(key) {
                match self.serve_head(keys, now, head) {
                    Head::Left(others) => {
                        open.extend(others.into_iter().filter(|other| other.as_key() != key))
                    }
                    Head::Stays => break,
                }
            }
            self.watch(keys, key);
        }
    }

    fn serve_head<K: Keyspace>(&mut self, keys: &mut K, now: Now, head: WaiterId) -> Head {
        let names: Vec<KeyBuf> = self.queue.keys(head).map(Key::to_buf).collect();
        let names: Vec<Key<'_>> = names.iter().map(KeyBuf::as_key).collect();
        if names.len() > 1 {
            for key in &names {
                self.lapse(keys, now.at, *key);
            }
        }
        let Some(verdict) = self.verdict(keys, now, head, &names) else { return Head::Stays };
        let left = self.queue.remove(head);
        if names.len() > 1 {
            for key in &names {
                self.watch(keys, *key);
            }
        }
        match &verdict {
            Verdict::Granted(_) => self.stats.handoffs += 1,
            _ => self.stats.refusals += 1,
        }
        self.answer(head, verdict);
        Head::Left(left)
    }

    /// What the waiter at the head is told; `None` while it must wait on.
    fn verdict<K: Keyspace>(
        &mut self,
        keys: &mut K,
        now: Now,
        id: WaiterId,
        names: &[Key<'_>],
    ) -> Option<Verdict> {
        let waiter = self.queue.get(id)?;
        let owner = Owner::checked(waiter.ask().owner);
        let ask = Ask { owner: owner.as_bytes(), ..waiter.ask() };
        let ended = match keys.find(names[0]) {
            Slot::Held(lock) => lock.get(ask.owner).is_none(),
            Slot::Free => true,
            Slot::Foreign | Slot::Elsewhere => false,
        };
        if waiter.is_upgrade() && ended {
            return Some(Verdict::Refused);
        }
        match self.judge(keys, now, names, &ask, Turn::Next) {
            Err(fault) => Some(Verdict::Fault(fault)),
            Ok(Judgement::Refuse(Refusal::Ended)) => Some(Verdict::Refused),
            Ok(Judgement::Refuse(_)) => None,
            // Nobody who came later passes it in any line, and it passes nobody.
            Ok(Judgement::Grant(_)) if !self.queue.leads(id) => None,
            Ok(Judgement::Grant(plan)) => Some(match self.grant(keys, now, names, &ask, plan) {
                Ok(grant) => Verdict::Granted(grant),
                Err(fault) => Verdict::Fault(fault),
            }),
        }
    }

    /// Keeps the line's next look at the moment when the first lease of its lock ends.
    pub(super) fn watch<K: Keyspace>(&mut self, keys: &mut K, key: Key<'_>) {
        if self.queue.line(key).is_none() {
            return;
        }
        let due = match keys.find(key) {
            Slot::Held(lock) => Some(lock.earliest()),
            Slot::Free | Slot::Foreign | Slot::Elsewhere => None,
        };
        self.queue.set_due(key, due);
    }
}
