//! Clients that wait: from the moment they block to the one answer that each gets.
//!
//! A waiter is *queued* while it stands in the maps here. It is *decided* when its answer is known, as a [`Delivery`],
//! and *told* at the end of the same turn of the server's loop, when its handle is unblocked with it. It is *gone*
//! when its connection closed or the server answered it while it was queued. Each handle is unblocked exactly once.
//! A grant that turns out not to have been told is handed on.
//!
//! Nothing may come between the unblocking and the server's own look at it: a client that CLIENT UNBLOCK finds
//! unblocked already would never get an answer. So a command only decides, and the timer that ends the turn tells.

use crate::error::Error;
use crate::ffi::Ctx;
use crate::ffi::blocked::Blocked;
use crate::inbox::{self, Message};
use crate::{state, told};
use redislock_core::{Form, Grant, KeyBuf, Note, Owner, Verdict, WaiterId};
use std::collections::BTreeMap;

/// All clients that wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    waiters: BTreeMap<WaiterId, Entry>,
    ids: BTreeMap<Blocked, WaiterId>,
    /// Answers that were decided in this turn.
    decided: Vec<(Blocked, Delivery)>,
    /// Whether CLIENT UNBLOCK may end a wait on this server.
    may_unblock: bool,
}

#[derive(Debug)]
struct Entry {
    blocked: Blocked,
    claim: Claim,
}

/// What a waiter asked for: enough to take a grant back that it never heard of.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) keys: Vec<KeyBuf>,
    pub(crate) owner: Owner,
    pub(crate) form: Form,
}

/// An answer on its way to a client.
#[derive(Debug)]
pub(crate) struct Delivery {
    verdict: Verdict,
    claim: Claim,
    told: Told,
}

/// Whether an answer has reached its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    NotYet,
    /// It was written for this connection.
    To(Option<u64>),
}

impl Waiting {
    pub(crate) fn new(ctx: Ctx<'_>) -> Self {
        Self {
            waiters: BTreeMap::new(),
            ids: BTreeMap::new(),
            decided: Vec::new(),
            may_unblock: !crashes_on_unblock(ctx),
        }
    }

    /// Blocks the caller until its waiter is answered. Returns whether it could be blocked.
    pub(crate) fn block(&mut self, ctx: Ctx<'_>, id: WaiterId, claim: Claim) -> bool {
        let Some(blocked) = Blocked::block(ctx, self.may_unblock) else { return false };
        self.waiters.insert(id, Entry { blocked, claim });
        self.ids.insert(blocked, id);
        true
    }

    /// Decides what a waiter is answered.
    pub(crate) fn answer(&mut self, id: WaiterId, verdict: Verdict) {
        let Some(Entry { blocked, claim }) = self.waiters.remove(&id) else { return };
        self.ids.remove(&blocked);
        self.decided.push((blocked, Delivery { verdict, claim, told: Told::NotYet }));
    }

    /// Whether there are waiters to be told of their answers.
    pub(crate) fn owes_answers(&self) -> bool {
        !self.decided.is_empty()
    }

    /// Tells waiters their answers. Only where the server runs no command before it has looked at them.
    pub(crate) fn tell(&mut self) {
        for (blocked, delivery) in self.decided.drain(..) {
            blocked.unblock(delivery);
        }
    }

    /// The answer of a waiter that was decided, but not told.
    fn decided(&mut self, blocked: Blocked) -> Option<&mut Delivery> {
        self.decided.iter_mut().find(|(other, _)| *other == blocked).map(|(_, delivery)| delivery)
    }

    /// Forgets a client that needs no answer any more. Returns its waiter, unless it was answered before.
    pub(crate) fn gone(&mut self, blocked: Blocked) -> Option<WaiterId> {
        let id = self.ids.remove(&blocked)?;
        self.waiters.remove(&id);
        blocked.unblock_silently();
        Some(id)
    }
}

/// Redis 7.2 crashes where a client that a module blocked is unblocked by CLIENT UNBLOCK, but for one without a
/// timeout callback, which it leaves alone. Valkey says that it is a Redis 7.2, and does not crash.
fn crashes_on_unblock(ctx: Ctx<'_>) -> bool {
    let fields = ctx.server_info(c"server", &[c"redis_version", c"valkey_version"]);
    matches!(&fields[..], [Some(redis), None] if redis.starts_with("7.2."))
}

/// Called by the server to answer a client that was unblocked.
pub(crate) fn deliver(ctx: Ctx<'_>, delivery: &mut Delivery) {
    delivery.told = Told::To(ctx.connection());
    match (&delivery.verdict, delivery.claim.form) {
        (Verdict::Granted(grant), form) => reply_grant(ctx, *grant, form),
        (Verdict::Refused, _) => ctx.reply_null(),
        (Verdict::Fault(fault), _) => ctx.reply_error(&Error::Fault(fault.clone()).to_string()),
        (Verdict::Replaced, _) => {
            ctx.reply_error(
                "REPLACED the same owner asked again on another connection, which waits in this place",
            );
        }
        (Verdict::Unblocked, _) => ctx.reply_error("UNBLOCKED this server is no longer the primary"),
    }
}

/// The answer to a request that was granted.
pub(crate) fn reply_grant(ctx: Ctx<'_>, grant: Grant, form: Form) {
    let fence = grant.fence.get().cast_signed();
    match form {
        Form::Acquire => ctx.reply_int(fence),
        Form::Reenter { .. } => {
            ctx.reply_array(2);
            ctx.reply_int(i64::from(grant.holds.get()));
            ctx.reply_int(fence);
        }
    }
}

/// Called by the server when it is done with an answer. One that was not told found its client gone.
pub(crate) fn done(delivery: Delivery) {
    let Delivery { verdict: Verdict::Granted(grant), claim, told } = delivery else { return };
    match told {
        Told::NotYet => {
            inbox::post(Message::Note(Note::Untold { keys: claim.keys, owner: claim.owner, grant }));
        }
        Told::To(Some(client)) => told::told(client, claim, grant),
        Told::To(None) => {}
    }
}

/// Called by the server on CLIENT UNBLOCK ... TIMEOUT: the wait ends, with the answer that was decided before, if
/// there is one.
pub(crate) fn unblocked(ctx: Ctx<'_>, blocked: Blocked) {
    if let Some(delivery) = state::borrow().waiting.decided(blocked) {
        return deliver(ctx, delivery);
    }
    ctx.reply_null();
    inbox::post(Message::Gone(blocked));
}

/// Called by the server when the connection of a blocked client ends, or when it answered the client itself.
pub(crate) fn disconnected(_ctx: Ctx<'_>, blocked: Blocked) {
    inbox::post(Message::Gone(blocked));
}
