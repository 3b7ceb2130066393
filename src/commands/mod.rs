//! The commands: one file each, and what they have in common.

mod acquire;
mod apply;
mod r#break;
mod downgrade;
mod fence;
mod guard;
mod help;
mod info;
mod macquire;
mod mrelease;
mod mrenew;
mod reenter;
mod release;
mod renew;
mod spec;
mod take;
mod waiters;

use crate::args::Args;
use crate::error::Error;
use crate::ffi::string::Argv;
use crate::ffi::{Ctx, Str, command_info};
use crate::step::Step;
use redislock_core::{Fence, Form, Grant, Session};

pub(crate) use spec::{Access, Keys, Param, ParamKind, Spec};

/// A command of the module.
pub(crate) trait Command {
    /// What the server is told of it.
    const SPEC: Spec;

    /// Carries it out. Arguments are read and checked in full before anything changes.
    fn run(call: &Call<'_>, args: &mut Args<'_>) -> Result<Reply, Error>;

    /// Says where the keys are, for a command whose key positions depend on its arguments.
    fn find_keys(call: &Call<'_>) {
        let mut args = call.args();
        if args.keys(Self::SPEC.behind_keys()).is_ok() {
            (2..args.position()).for_each(|position| call.ctx.key_at(position));
        }
    }
}

/// The answer to a command.
#[derive(Debug)]
pub(crate) enum Reply {
    /// An integer.
    Int(u64),
    /// Null: refused, or not held.
    Null,
    /// A grant, in the form that was asked for.
    Grant(Grant, Form),
    /// An answer a key.
    Array(Vec<Reply>),
    /// Nothing here: the answer was written, or comes later.
    Sent,
}

impl Reply {
    /// A fence, or Null.
    pub(crate) fn fence(fence: Option<Fence>) -> Self {
        fence.map_or(Self::Null, |fence| Self::Int(fence.get()))
    }

    /// A number, or Null.
    pub(crate) fn number(number: Option<u32>) -> Self {
        number.map_or(Self::Null, |number| Self::Int(u64::from(number)))
    }

    fn send(self, ctx: Ctx<'_>) {
        match self {
            Self::Int(value) => ctx.reply_int(value.cast_signed()),
            Self::Null => ctx.reply_null(),
            Self::Grant(grant, form) => crate::waiting::reply_grant(ctx, grant, form),
            Self::Array(replies) => {
                ctx.reply_array(replies.len());
                replies.into_iter().for_each(|reply| reply.send(ctx));
            }
            Self::Sent => {}
        }
    }
}

/// One call of a command.
pub(crate) struct Call<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) argv: Argv<'a>,
}

impl<'a> Call<'a> {
    pub(crate) fn new(ctx: Ctx<'a>, argv: Argv<'a>) -> Self {
        Self { ctx, argv }
    }

    pub(crate) fn args(&self) -> Args<'a> {
        Args::new(self.argv)
    }

    /// Runs the command and answers.
    pub(crate) fn run<C: Command>(&self) {
        if self.ctx.asks_for_keys() {
            return C::find_keys(self);
        }
        let count = i32::try_from(self.argv.len()).unwrap_or(i32::MAX);
        let arity = C::SPEC.arity;
        if count < arity.abs() || (arity > 0 && count > arity) {
            return self.ctx.wrong_arity();
        }
        match C::run(self, &mut self.args()) {
            Ok(reply) => reply.send(self.ctx),
            Err(Error::Arity) => self.ctx.wrong_arity(),
            Err(error) => self.ctx.reply_error(&error.to_string()),
        }
    }

    /// Begins the step that carries the command out.
    pub(crate) fn step(&self, key: Str<'a>) -> Result<Step<'a>, Error> {
        Step::of_command(self.ctx, Some(key))
    }

    /// The connection that a lease is to be tied to, where SESSION asks for it.
    pub(crate) fn session(&self, wanted: bool) -> Result<Option<Session>, Error> {
        if !wanted {
            return Ok(None);
        }
        if self.ctx.flags().is_script() {
            return Err(Error::Refused("ERR SESSION can't be used in scripts"));
        }
        let session = self.ctx.connection().and_then(Session::new);
        session.map(Some).ok_or(Error::Refused("ERR SESSION needs a connection, and there is none"))
    }
}

/// Adds all commands to the server.
pub(crate) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    if !command_info::add_category(ctx) {
        return Err("the server refuses the ACL category".to_owned());
    }
    for (create, spec) in TABLE {
        if !create(ctx) {
            return Err(format!("the server refuses the command {}", spec.name.to_string_lossy()));
        }
    }
    Ok(())
}

type Create = fn(Ctx<'_>) -> bool;

/// Every command.
pub(crate) static TABLE: &[(Create, &Spec)] = &[
    entry::<acquire::Acquire>(),
    entry::<reenter::Reenter>(),
    entry::<renew::Renew>(),
    entry::<release::Release>(),
    entry::<downgrade::Downgrade>(),
    entry::<macquire::MAcquire>(),
    entry::<mrenew::MRenew>(),
    entry::<mrelease::MRelease>(),
    entry::<guard::Guard>(),
    entry::<fence::SetFence>(),
    entry::<info::Info>(),
    entry::<waiters::Waiters>(),
    entry::<r#break::Break>(),
    entry::<help::Help>(),
    entry::<apply::Apply>(),
];

const fn entry<C: Command>() -> (Create, &'static Spec) {
    (command_info::create::<C>, &C::SPEC)
}
