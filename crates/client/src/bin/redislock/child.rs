//! The command that runs under the lock: started, signalled, and ended with its parent.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, getppid, kill_process, kill_process_group, set_parent_process_death_signal,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::exit::{NOT_FOUND, NOT_RUN, SIGNALLED};

/// The parent's number, told to the child so that it can see whether the parent is gone already.
const PARENT: &str = "REDISLOCK_PARENT";

/// A command under way.
pub(crate) struct Running {
    child: Child,
    pid: Option<Pid>,
    /// The command leads a process group of its own, so that a signal reaches what it has started, too. At a terminal
    /// it stays in ours: a group of its own could not read from there.
    leads_group: bool,
}

impl Running {
    /// Starts the command with additional environment.
    pub(crate) fn start(command: &[OsString], environment: &[(&str, OsString)]) -> std::io::Result<Self> {
        let leads_group = !std::io::stdin().is_terminal();
        let mut starter = Command::new(std::env::current_exe()?);
        starter.arg("run").arg("--").args(command);
        starter.envs(environment.iter().cloned()).env(PARENT, std::process::id().to_string());
        if leads_group {
            starter.process_group(0);
        }
        let child = starter.spawn()?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        Ok(Self { child, pid, leads_group })
    }

    /// Waits for its end, and passes signals on meanwhile.
    pub(crate) async fn wait(
        &mut self,
        signals: &mut mpsc::UnboundedReceiver<Signal>,
    ) -> std::io::Result<ExitStatus> {
        loop {
            tokio::select! {
                status = self.child.wait() => return status,
                Some(signal) = signals.recv() => {
                    // A terminal sends these to the whole group by itself.
                    if self.leads_group || !matches!(signal, Signal::INT | Signal::QUIT) {
                        self.signal(signal);
                    }
                }
            }
        }
    }

    /// Ends it: SIGTERM, and SIGKILL after the grace.
    pub(crate) async fn end(&mut self, grace: Duration) {
        self.signal(Signal::TERM);
        if timeout(grace, self.child.wait()).await.is_err() {
            self.signal(Signal::KILL);
            let _ = self.child.wait().await;
        }
        // What the command left behind in its group must not go on without the lock either.
        if self.leads_group {
            self.signal(Signal::KILL);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            let _ =
                if self.leads_group { kill_process_group(pid, signal) } else { kill_process(pid, signal) };
        }
    }
}

/// The signals that are passed on, as they come.
pub(crate) fn signals() -> std::io::Result<mpsc::UnboundedReceiver<Signal>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    for (kind, passed) in [
        (SignalKind::terminate(), Signal::TERM),
        (SignalKind::interrupt(), Signal::INT),
        (SignalKind::quit(), Signal::QUIT),
        (SignalKind::hangup(), Signal::HUP),
        (SignalKind::user_defined1(), Signal::USR1),
        (SignalKind::user_defined2(), Signal::USR2),
    ] {
        let mut stream = signal(kind)?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender.send(passed).is_err() {
                    return;
                }
            }
        });
    }
    Ok(receiver)
}

/// The exit status as shells tell it.
pub(crate) fn status_code(status: ExitStatus) -> u8 {
    let signalled = status.signal().and_then(|signal| u8::try_from(signal).ok());
    match (status.code(), signalled) {
        (Some(code), _) => u8::try_from(code & 0xff).unwrap_or(NOT_RUN),
        (None, Some(signal)) => SIGNALLED.saturating_add(signal),
        (None, None) => NOT_RUN,
    }
}

pub(crate) fn signal_code(signal: Signal) -> u8 {
    SIGNALLED.saturating_add(u8::try_from(signal.as_raw()).unwrap_or(0))
}

/// Replaces this process by the command, which is told when its parent dies: it would go on without a lock.
pub(crate) fn become_command(command: &[OsString]) -> ExitCode {
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    let parent = std::env::var(PARENT).ok().and_then(|parent| parent.parse::<i32>().ok());
    let present = getppid().map(|parent| parent.as_raw_pid());
    if parent.is_some() && parent != present {
        return ExitCode::from(signal_code(Signal::TERM));
    }
    let Some((program, args)) = command.split_first() else { return ExitCode::from(NOT_RUN) };
    let error = std::process::Command::new(program).args(args).env_remove(PARENT).exec();
    eprintln!("redislock: {}: {error}", program.display());
    ExitCode::from(match error.kind() {
        std::io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUN,
    })
}
