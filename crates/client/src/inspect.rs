//! Looking at locks, and taking them away.

use std::time::Duration;

use redis::{Cmd, Value, cmd};

use crate::error::Error;
use crate::fence::Fence;
use crate::locker::Locker;
use crate::owner::Owner;
use crate::vote::{NodeError, NodeErrorKind};

/// What one node answered. The nodes of a quorum may differ: a minority may have missed a grant or a release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerNode<T> {
    /// The node's address, without a login.
    pub node: String,
    /// Its answer.
    pub answer: Result<T, NodeError>,
}

/// The state of one lock at one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// `exclusive`, `shared`, or `free` while a line waits for a lock that nobody holds.
    pub mode: String,
    /// The smallest limit of places, where one is set.
    pub limit: Option<u64>,
    /// How many requests wait.
    pub waiters: u64,
    /// Who holds it.
    pub holders: Vec<HolderInfo>,
}

/// One holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// Its owner.
    pub owner: Vec<u8>,
    /// How many nested holds it has.
    pub holds: u64,
    /// The fence of its grant.
    pub fence: Fence,
    /// What is left of its lease.
    pub ttl: Duration,
    /// For how long it has held.
    pub held: Duration,
    /// Whether the lease is tied to a connection.
    pub session: bool,
}

/// One request that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiterInfo {
    /// Its owner.
    pub owner: Vec<u8>,
    /// `exclusive` or `shared`.
    pub mode: String,
    /// For how long it has waited.
    pub waited: Duration,
    /// What is left of its wait; `None` without limit.
    pub timeout: Option<Duration>,
}

impl Locker {
    /// Who holds a lock and how many wait for it, at every node; `None` where nobody does either.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").acquire().await?;
    /// let seen = locker.info("k").await.remove(0).answer?.expect("it is held");
    /// assert_eq!(seen.holders[0].owner, guard.owner().as_bytes());
    /// assert_eq!(seen.holders[0].fence, guard.fence());
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn info(&self, key: impl AsRef<[u8]>) -> Vec<PerNode<Option<LockInfo>>> {
        let command = cmd("LOCK.INFO").arg(key.as_ref()).take();
        self.each(&command, |reply| match reply {
            Value::Nil => Some(None),
            reply => lock_info(reply).map(Some),
        })
        .await
    }

    /// Who waits for a lock, in the order of the queue, at every node.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// assert!(locker.waiters("k").await.remove(0).answer?.is_empty());
    /// # Ok(()) });
    /// ```
    pub async fn waiters(&self, key: impl AsRef<[u8]>) -> Vec<PerNode<Vec<WaiterInfo>>> {
        let command = cmd("LOCK.WAITERS").arg(key.as_ref()).take();
        self.each(&command, |reply| match reply {
            Value::Array(waiters) => waiters.iter().map(waiter_info).collect(),
            Value::Nil => Some(Vec::new()),
            _ => None,
        })
        .await
    }

    /// The keys of all locks that a node keeps, by a glob-style pattern, at every node. Walks the whole key space in
    /// small steps.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("orders:1").acquire().await?;
    /// assert_eq!(locker.list("orders:*").await.remove(0).answer?, [b"orders:1"]);
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub async fn list(&self, pattern: &str) -> Vec<PerNode<Vec<Vec<u8>>>> {
        let mut answers = Vec::new();
        for link in &self.core.links {
            let mut cursor = b"0".to_vec();
            let mut keys = Vec::new();
            let answer = loop {
                let scan = ["MATCH", pattern, "COUNT", "1000", "TYPE", "redislock"];
                let command = cmd("SCAN").arg(&cursor).arg(&scan).take();
                let replies = match link.call(&[command], self.core.surroundings.node_timeout).await {
                    Ok(replies) => replies,
                    Err(error) => break Err(error),
                };
                match replies.first().map(|reply| scanned(reply, &mut keys)) {
                    Some(Ok(next)) if next == b"0" => break Ok(()),
                    Some(Ok(next)) => cursor = next,
                    Some(Err(error)) => break Err(error),
                    None => break Err(unreadable(&Value::Nil)),
                }
            };
            keys.sort();
            keys.dedup();
            answers.push(PerNode { node: link.node().to_string(), answer: answer.map(|()| keys) });
        }
        answers
    }

    /// Takes a lock away from its holders, as an operator: from all of them, from one owner, or from one grant of it.
    /// Answers how many lost it at every node. Give the fence that you saw, so that nobody else is hit meanwhile.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a fence without an owner.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("k").acquire().await?;
    /// let revoked = locker.break_lock("k", Some(guard.owner()), Some(guard.fence())).await?;
    /// assert_eq!(revoked[0].answer, Ok(1));
    /// assert!(guard.renew().await.is_err());
    /// # Ok(()) });
    /// ```
    pub async fn break_lock(
        &self,
        key: impl AsRef<[u8]>,
        owner: Option<&Owner>,
        fence: Option<Fence>,
    ) -> Result<Vec<PerNode<u64>>, Error> {
        let mut command = cmd("LOCK.BREAK").arg(key.as_ref()).take();
        match (owner, fence) {
            (Some(owner), fence) => {
                command.arg(owner.as_bytes());
                if let Some(fence) = fence {
                    command.arg(fence.get());
                }
            }
            (None, None) => {}
            (None, Some(_)) => {
                return Err(Error::Configuration("a grant is named by its owner and its fence".into()));
            }
        }
        Ok(self.each(&command, number).await)
    }

    async fn each<T>(&self, command: &Cmd, read: impl Fn(&Value) -> Option<T>) -> Vec<PerNode<T>> {
        let commands = [command.clone()];
        let calls =
            self.core.links.iter().map(|link| link.call(&commands, self.core.surroundings.node_timeout));
        let answers = futures_util::future::join_all(calls).await;
        let read = |answer: Result<Vec<Value>, NodeError>| {
            let replies = answer?;
            match replies.first() {
                Some(Value::ServerError(error)) => {
                    let message = format!("{} {}", error.code(), error.details().unwrap_or_default());
                    Err(NodeError::new(NodeErrorKind::Unavailable, message))
                }
                Some(reply) => read(reply).ok_or_else(|| unreadable(reply)),
                None => Err(unreadable(&Value::Nil)),
            }
        };
        let links = self.core.links.iter().map(|link| link.node().to_string());
        links.zip(answers).map(|(node, answer)| PerNode { node, answer: read(answer) }).collect()
    }
}

fn unreadable(reply: &Value) -> NodeError {
    NodeError::new(NodeErrorKind::Protocol, format!("an answer of unknown shape: {reply:?}"))
}

fn scanned(reply: &Value, keys: &mut Vec<Vec<u8>>) -> Result<Vec<u8>, NodeError> {
    let (next, found): (Vec<u8>, Vec<Vec<u8>>) =
        redis::from_redis_value_ref(reply).map_err(|_| unreadable(reply))?;
    keys.extend(found);
    Ok(next)
}

/// A field of a map, which is flat in RESP2.
fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let is_name = |value: &Value| match value {
        Value::BulkString(bytes) => bytes == name.as_bytes(),
        Value::SimpleString(text) => text == name,
        _ => false,
    };
    match map {
        Value::Map(pairs) => pairs.iter().find(|(key, _)| is_name(key)).map(|(_, value)| value),
        Value::Array(items) => items.chunks_exact(2).find(|pair| is_name(&pair[0])).map(|pair| &pair[1]),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn millis(value: &Value) -> Option<Duration> {
    number(value).map(Duration::from_millis)
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes.clone()),
        Value::SimpleString(text) => Some(text.clone().into_bytes()),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    bytes(value).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn lock_info(map: &Value) -> Option<LockInfo> {
    let Value::Array(holders) = field(map, "holders")? else { return None };
    Some(LockInfo {
        mode: text(field(map, "mode")?)?,
        limit: field(map, "limit").and_then(number),
        waiters: number(field(map, "waiters")?)?,
        holders: holders.iter().map(holder_info).collect::<Option<_>>()?,
    })
}

fn holder_info(map: &Value) -> Option<HolderInfo> {
    Some(HolderInfo {
        owner: bytes(field(map, "owner")?)?,
        holds: number(field(map, "holds")?)?,
        fence: Fence::new(number(field(map, "fence")?)?),
        ttl: millis(field(map, "ttl")?)?,
        held: millis(field(map, "held")?)?,
        session: number(field(map, "session")?)? == 1,
    })
}

fn waiter_info(map: &Value) -> Option<WaiterInfo> {
    Some(WaiterInfo {
        owner: bytes(field(map, "owner")?)?,
        mode: text(field(map, "mode")?)?,
        waited: millis(field(map, "waited")?)?,
        timeout: millis(field(map, "timeout")?),
    })
}
