//! A lock, as LOCK.INFO shows it.

use crate::client::{Arg, Client};
use crate::cmd;
use crate::reply::Reply;

/// What LOCK.INFO says of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// `exclusive`, `shared` or `free`.
    pub mode: String,
    /// The smallest limit, where one is set.
    pub limit: Option<i64>,
    /// How many wait.
    pub waiters: i64,
    /// Who holds it.
    pub holders: Vec<Holder>,
}

/// What LOCK.INFO says of a holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Who.
    pub owner: Vec<u8>,
    /// How many nested holds.
    pub holds: i64,
    /// The fencing token.
    pub fence: i64,
    /// How much is left of the lease, in milliseconds.
    pub ttl: i64,
    /// How long it has held, in milliseconds.
    pub held: i64,
    /// Whether the lease is tied to a connection.
    pub session: bool,
}

impl LockInfo {
    /// What LOCK.INFO says of a key; `None` when nobody holds or waits.
    ///
    /// # Panics
    /// When the reply is no such thing.
    #[track_caller]
    pub fn of(client: &mut Client, key: impl Arg) -> Option<LockInfo> {
        Self::read(&cmd!(client, "LOCK.INFO", key))
    }

    /// What a reply of LOCK.INFO says; `None` for Null.
    ///
    /// # Panics
    /// When the reply is no such thing.
    #[track_caller]
    pub fn read(reply: &Reply) -> Option<LockInfo> {
        if reply.is_nil() {
            return None;
        }
        let mut holders = Vec::new();
        for holder in reply.field("holders").array() {
            holders.push(Holder {
                owner: holder.field("owner").bytes().to_vec(),
                holds: holder.field("holds").int(),
                fence: holder.field("fence").int(),
                ttl: holder.field("ttl").int(),
                held: holder.field("held").int(),
                session: holder.field("session").int() == 1,
            });
        }
        Some(LockInfo {
            mode: reply.field("mode").text().to_owned(),
            limit: reply.get("limit").map(Reply::int),
            waiters: reply.field("waiters").int(),
            holders,
        })
    }
}

impl Holder {
    /// The one holder of a key.
    ///
    /// # Panics
    /// When there is none, or more than one.
    #[track_caller]
    pub fn of(client: &mut Client, key: impl Arg) -> Holder {
        let info = LockInfo::of(client, key);
        match info.as_ref().map(|info| &info.holders[..]) {
            Some([holder]) => holder.clone(),
            _ => panic!("expected one holder, found {info:?}"),
        }
    }
}
