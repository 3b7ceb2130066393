//! Finds one server behind two names.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::{Value, cmd};
use tokio::time::timeout;
use tracing::warn;

use super::wire::Wire;
use crate::vote::{NodeError, NodeErrorKind};

/// The id of the server that each node was last found to be.
///
/// A server that is configured twice would otherwise vote twice, and two clients could each find a majority.
#[derive(Default)]
pub(crate) struct Identities {
    /// False for a single node, which cannot be a duplicate.
    pub(crate) checked: bool,
    known: Mutex<HashMap<usize, String>>,
}

impl Identities {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { checked: nodes > 1, known: Mutex::default() }
    }

    /// Asks a new connection for its server's id.
    pub(super) async fn check(&self, node: usize, wire: &mut Wire, limit: Duration) -> Result<(), NodeError> {
        if !self.checked || matches!(wire, Wire::Cluster(_)) {
            return Ok(());
        }
        let answer = timeout(limit, wire.send(&[cmd("INFO").arg("server").take()])).await;
        let id = match answer {
            Ok(Ok(answers)) => answers.first().and_then(run_id),
            Ok(Err(error)) => return Err(NodeError::new(NodeErrorKind::Connection, error.to_string())),
            Err(_) => {
                return Err(NodeError::new(NodeErrorKind::Timeout, format!("no answer within {limit:?}")));
            }
        };
        let Some(id) = id else {
            warn!(node = node + 1, "INFO gives no server id: a node listed twice will not be noticed");
            return Ok(());
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((other, _)) = known.iter().find(|(other, known)| **other != node && **known == id) {
            let message = format!("the same server as node {}: its vote counts once", other + 1);
            warn!(node = node + 1, "{message}");
            return Err(NodeError::new(NodeErrorKind::Duplicate, message));
        }
        known.insert(node, id);
        Ok(())
    }
}

fn run_id(info: &Value) -> Option<String> {
    let text: String = redis::from_redis_value_ref(info).ok()?;
    text.lines().find_map(|line| line.strip_prefix("run_id:")).map(|id| id.trim().to_owned())
}
