//! One step of the module: from a command's arguments, or a timer, to effects that are carried out.

use crate::error::Error;
use crate::ffi::{Ctx, Str};
use crate::keys::Keys;
use crate::state::{self, State};
use crate::{alarm, clock, events, inbox, settings};
use redislock_core::{Db, Engine, Key, Now};
use std::cell::RefMut;

/// A step that has begun. It ends when it is dropped: effects are carried out, and the alarm is set anew.
pub(crate) struct Step<'a> {
    home: Db,
    state: RefMut<'static, State>,
    keys: Option<Keys<'a>>,
    now: Now,
}

impl<'a> Step<'a> {
    /// Begins the step of a command that may write. Each request to the engine lets what happened before it come
    /// first, as far as the keys are within reach.
    ///
    /// The server lets no client write to a replica, unless it is told to. A lock can't be had there even then: the
    /// primary decides.
    pub(crate) fn of_command(ctx: Ctx<'a>, named: Option<Str<'a>>) -> Result<Self, Error> {
        if !events::is_primary() {
            return Err(Error::Refused("READONLY locks can't be changed on a replica"));
        }
        Ok(Self::begin(ctx, named))
    }

    /// Begins a step, and reads the inbox.
    pub(crate) fn begin(ctx: Ctx<'a>, named: Option<Str<'a>>) -> Self {
        let (now, offset) = clock::now();
        let mut state = state::borrow();
        for message in inbox::take() {
            state.receive(message);
        }
        state.engine.set_max_waiters(settings::max_waiters());
        let record = std::mem::take(&mut state.record);
        Self { home: ctx.db(), state, keys: Some(Keys::new(ctx, offset, named, record)), now }
    }

    /// The key that an argument names, in the caller's database: another one may be selected while notes are worked off.
    pub(crate) fn key<'n>(&self, name: Str<'n>) -> Key<'n> {
        Key { db: self.home, name: name.as_bytes() }
    }

    /// Sees to it that a request to each of these keys can be served, before one of them is: a key of another type
    /// must not be found when others have changed already.
    pub(crate) fn judge_all(&mut self, names: &[Str<'_>], owner: &[u8]) -> Result<(), Error> {
        for name in names {
            let key = self.key(*name);
            let (engine, port, now) = self.parts();
            engine.lease(port, now, key, owner)?;
        }
        Ok(())
    }

    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// What a request to the core takes.
    pub(crate) fn parts(&mut self) -> (&mut Engine, &mut Keys<'a>, Now) {
        let keys = self.keys.as_mut().expect("taken when the step ends, not before");
        (&mut self.state.engine, keys, self.now)
    }

    pub(crate) fn state(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let state = &mut *self.state;
        if let Some(keys) = self.keys.take() {
            state.record = keys.finish();
        }
        state.carry_out();
        events::expect(state.engine.queue().len(), state.engine.tied());
        alarm::expect(state, self.now.at);
    }
}
