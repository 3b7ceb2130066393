//! The module's state: one engine, and the clients that wait.

use crate::clock;
use crate::ffi::Ctx;
use crate::ffi::info::Section;
use crate::ffi::main_thread::MainThread;
use crate::inbox::Message;
use crate::settings;
use crate::waiting::Waiting;
use once_cell::sync::OnceCell;
use redislock_core::{Effect, Engine, Fence};
use std::cell::RefMut;

static STATE: OnceCell<MainThread<State>> = OnceCell::new();

/// Everything that is not in the keys themselves.
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) waiting: Waiting,
    /// A record on its way, kept so that none is allocated for each.
    pub(crate) record: Vec<u8>,
}

/// Sets the state up.
pub(crate) fn start(ctx: Ctx<'_>) -> Result<(), String> {
    clock::start().map_err(|error| format!("the system has no clock that counts suspend: {error}"))?;
    crate::alarm::start(ctx)?;
    crate::events::start(ctx);
    STATE.get_or_init(|| {
        MainThread::new(State {
            engine: Engine::new(settings::max_waiters()),
            waiting: Waiting::new(ctx),
            record: Vec::new(),
        })
    });
    Ok(())
}

/// The state, for as long as the guard lives.
pub(crate) fn borrow() -> RefMut<'static, State> {
    STATE.get().expect("the state is set up when the module is loaded").borrow()
}

/// The highest token seen.
pub(crate) fn last_fence() -> Fence {
    borrow().engine.last_fence()
}

/// Takes note of a token that was seen in a dump or payload.
pub(crate) fn saw(fence: Fence) {
    borrow().engine.saw(fence);
}

/// Writes the module's section of INFO.
pub(crate) fn write_info(section: &mut Section) {
    let state = borrow();
    let stats = state.engine.stats();
    section.field(c"waiters", state.engine.queue().len() as u64);
    section.field(c"sessions", state.engine.tied() as u64);
    section.field(c"last_fence", state.engine.last_fence().get());
    section.field(c"grants", stats.grants);
    section.field(c"refusals", stats.refusals);
    section.field(c"handoffs", stats.handoffs);
    section.field(c"releases", stats.releases);
    section.field(c"lapses", stats.lapses);
    section.field(c"revocations", stats.revocations);
    section.field(c"closures", stats.closures);
    section.field(c"deadlocks", stats.deadlocks);
    section.field(c"panics", crate::ffi::shield::panics());
}

impl State {
    /// Takes in what a callback left behind.
    pub(crate) fn receive(&mut self, message: Message) {
        match message {
            Message::Note(note) => {
                self.engine.note(note);
            }
            Message::Gone(blocked) => {
                if let Some(id) = self.waiting.gone(blocked) {
                    self.engine.forget(id);
                }
            }
        }
    }

    /// Tells waiters what was decided.
    pub(crate) fn carry_out(&mut self) {
        for Effect::Answer(id, verdict) in self.engine.take_effects() {
            self.waiting.answer(id, verdict);
        }
    }
}
