//! What callbacks leave behind that may not decide anything: they run in the middle of something else.

use crate::alarm;
use crate::ffi::blocked::Blocked;
use crate::ffi::main_thread::MainThread;
use redislock_core::Note;

static INBOX: MainThread<Vec<Message>> = MainThread::new(Vec::new());

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Message {
    /// Something for the core to look at.
    Note(Note),
    /// A blocked client is gone, or was answered by the server.
    Gone(Blocked),
}

/// Leaves a message, and sees to it that it is read in this turn of the server's loop.
pub(crate) fn post(message: Message) {
    INBOX.borrow().push(message);
    alarm::owe_awake();
}

/// Whether there are no messages.
pub(crate) fn is_empty() -> bool {
    INBOX.borrow().is_empty()
}

/// Takes all messages out, oldest first.
pub(crate) fn take() -> Vec<Message> {
    let mut inbox = INBOX.borrow();
    if inbox.is_empty() { Vec::new() } else { std::mem::take(&mut *inbox) }
}
