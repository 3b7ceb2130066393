//! A connection of its own for one request that blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use redis::{Cmd, Value};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError};
use tokio::time::timeout;
use tracing::{Instrument, debug_span, warn};

use super::wire::Wire;
use super::{Link, connection_error};
use crate::vote::{NodeError, NodeErrorKind};

/// How many idle connections are kept for later waits.
const IDLE: usize = 16;

/// A connection that nobody else uses meanwhile.
pub(crate) struct Lane {
    link: Arc<Link>,
    wire: Option<Wire>,
    used_before: bool,
    /// What undoes the request that is under way.
    undo: Option<Cmd>,
    /// Cleared when the same owner goes on asking elsewhere: an undo that came late would fit what it gets there.
    undoes: Arc<AtomicBool>,
    _permit: OwnedSemaphorePermit,
}

impl Link {
    /// Takes a connection for a request that may block. When as many requests wait as this locker allows, waits until
    /// one of them is over.
    pub(crate) async fn lane(self: &Arc<Self>) -> Result<Lane, NodeError> {
        let permit = self.permit().await?;
        let idle = self.idle_lanes.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let used_before = idle.is_some();
        let wire = match idle {
            Some(wire) => wire,
            None => self.open_lane().await?,
        };
        Ok(Lane {
            link: self.clone(),
            wire: Some(wire),
            used_before,
            undo: None,
            undoes: Arc::new(AtomicBool::new(true)),
            _permit: permit,
        })
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, NodeError> {
        let waits = &self.surroundings.waits;
        match waits.clone().try_acquire_owned() {
            Ok(permit) => return Ok(permit),
            Err(TryAcquireError::Closed) => {}
            Err(TryAcquireError::NoPermits) => {
                metrics::counter!("redislock_waits_held_back_total").increment(1);
                warn!("the locker's limit of waiting requests is reached: this one waits for another to end");
            }
        }
        let closed = |_| NodeError::new(NodeErrorKind::Connection, "the locker is gone");
        waits.clone().acquire_owned().instrument(debug_span!("redislock.held_back")).await.map_err(closed)
    }

    async fn open_lane(&self) -> Result<Wire, NodeError> {
        let limit = self.surroundings.connect_timeout;
        match timeout(limit, Wire::open(&self.node, limit, None)).await {
            Ok(Ok(wire)) => {
                self.reached.store(true, Ordering::Release);
                Ok(wire)
            }
            Ok(Err(error)) => Err(connection_error(&error)),
            Err(_) => Err(NodeError::new(NodeErrorKind::Timeout, format!("no connection within {limit:?}"))),
        }
    }
}

impl Lane {
    /// Has `undoes` decide whether a dropped request is undone.
    pub(crate) fn undone_if(mut self, undoes: Arc<AtomicBool>) -> Self {
        self.undoes = undoes;
        self
    }

    /// Sends commands and waits for their answers, however long that takes. When this future is dropped before, `undo`
    /// is sent behind them on the same connection, so that a grant that is under way is undone after it came.
    pub(crate) async fn exchange(mut self, commands: &[Cmd], undo: Cmd) -> Result<Vec<Value>, NodeError> {
        let mut answers = self.attempt(commands, &undo).await;
        if answers.is_err() && self.used_before {
            // An idle connection may have been closed by the server meanwhile. Asking again is safe: the owner is
            // the same.
            self.wire = Some(self.link.open_lane().await?);
            answers = self.attempt(commands, &undo).await;
        }
        if answers.is_ok() {
            self.give_back();
        }
        answers
    }

    async fn attempt(&mut self, commands: &[Cmd], undo: &Cmd) -> Result<Vec<Value>, NodeError> {
        let Some(mut wire) = self.wire.clone() else {
            return Err(NodeError::new(NodeErrorKind::Connection, "the connection is gone"));
        };
        self.undo = Some(undo.clone());
        let answers = wire.send(commands).await;
        self.undo = None;
        answers.map_err(|error| {
            self.wire = None;
            connection_error(&error)
        })
    }

    fn give_back(&mut self) {
        if let Some(wire) = self.wire.take() {
            let mut idle = self.link.idle_lanes.lock().unwrap_or_else(PoisonError::into_inner);
            if idle.len() < IDLE {
                idle.push(wire);
            }
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let (Some(mut wire), Some(undo)) = (self.wire.take(), self.undo.take()) else { return };
        if !self.undoes.load(Ordering::Acquire) {
            return;
        }
        let limit = self.link.surroundings.node_timeout;
        self.link.surroundings.runtime.spawn(async move {
            // The connection closes after this at the latest, which withdraws what still waits.
            let _ = timeout(limit, wire.send(&[undo])).await;
        });
    }
}
