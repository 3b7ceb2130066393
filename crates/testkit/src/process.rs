//! A child process that ends with the test process, however that one ends.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

use crate::wait::poll_until;

type Job = Box<dyn FnOnce() + Send>;

/// Starts the command so that the system kills it when this process ends, by a signal or abort too.
///
/// The system watches the thread that started a child, not the process, and test threads come and go: so one thread
/// that never ends starts them all.
pub(crate) fn spawn(mut command: Command) -> io::Result<Child> {
    static STARTER: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        std::thread::spawn(move || inbox.into_iter().for_each(|job| job()));
        Mutex::new(jobs)
    });
    if cfg!(target_os = "linux") {
        // SAFETY: prctl is async-signal-safe, touches no memory of ours, and the closure does nothing else.
        unsafe { command.pre_exec(die_with_parent) };
    }
    let (answer, child) = mpsc::channel();
    let job = Box::new(move || {
        let _ = answer.send(command.spawn());
    });
    starter.lock().expect("the starter is sound").send(job).expect("the starter lives");
    child.recv().expect("the starter answers")
}

fn die_with_parent() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: a plain system call with integer arguments.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A child, and how it ended.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    status: Option<ExitStatus>,
}

impl Process {
    pub(crate) fn new(child: Child) -> Self {
        Process { child, status: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("a child can be waited for");
        }
        self.status
    }

    /// Sends a signal, unless the process has ended: its number may belong to another one then.
    pub(crate) fn signal(&mut self, signal: libc::c_int) {
        if self.status().is_none() {
            let pid = libc::pid_t::try_from(self.pid()).expect("process numbers fit");
            // SAFETY: the child has not been waited for, so the number is still its own.
            unsafe { libc::kill(pid, signal) };
        }
    }

    pub(crate) fn wait(&mut self, within: Duration) -> Option<ExitStatus> {
        poll_until(Instant::now() + within, || self.status())
    }

    pub(crate) fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
    }
}
