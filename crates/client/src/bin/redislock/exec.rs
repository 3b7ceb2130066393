//! `redislock exec`: a command runs while the lock is held.

use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use redislock_client::{Error, Guard, LockRequest, Locker, LossReason, Released};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::args::{Args, Exec, Wait};
use crate::child::{Running, signal_code, signals, status_code};
use crate::exit::{LOST, SOFTWARE, failed, report};

pub(crate) async fn run(locker: &Locker, exec: &Exec, args: &Args) -> ExitCode {
    let as_json = args.json;
    let mut signals = match signals() {
        Ok(signals) => signals,
        Err(error) => {
            report(as_json, &format!("signals cannot be received: {error}"), SOFTWARE);
            return ExitCode::from(SOFTWARE);
        }
    };
    let code = match acquire(locker, exec, &mut signals).await {
        Ok(Ok(guard)) => hold(&guard, exec, &mut signals, as_json).await,
        Ok(Err(error)) => failed(as_json, &error),
        Err(signal) => ExitCode::from(signal_code(signal)),
    };
    // What is still to be released has its last chance; a node that does not answer lets the lease lapse.
    let _ = timeout(args.node_timeout(), locker.drain()).await;
    code
}

fn request(locker: &Locker, exec: &Exec) -> LockRequest {
    let mut request = locker.lock_all(&exec.keys).ttl(exec.ttl);
    if exec.shared {
        request = request.shared();
    }
    if let Some(places) = exec.limit {
        request = request.limit(places);
    }
    if exec.session {
        request = request.session();
    }
    if let Some(longest) = exec.max_hold {
        request = request.max_hold(longest);
    }
    request
}

/// Waits for the lock, or for a signal that gives the wait up.
async fn acquire(
    locker: &Locker,
    exec: &Exec,
    signals: &mut mpsc::UnboundedReceiver<Signal>,
) -> Result<Result<Guard, Error>, Signal> {
    let request = request(locker, exec);
    let progress = spinner(&exec.keys.join(" "));
    let acquisition = async {
        match exec.wait {
            Wait::Forever => request.acquire().await,
            Wait::UpTo(limit) => request.acquire_within(limit).await,
        }
    };
    let outcome = tokio::select! {
        outcome = acquisition => Ok(outcome),
        Some(signal) = signals.recv() => Err(signal),
    };
    progress.finish_and_clear();
    outcome
}

/// What is shown on a terminal meanwhile; nothing elsewhere.
fn spinner(name: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} waiting for {msg} ({elapsed})");
    let spinner = ProgressBar::new_spinner().with_message(name.to_owned());
    let spinner = match style {
        Ok(style) => spinner.with_style(style),
        Err(_) => spinner,
    };
    spinner.enable_steady_tick(Duration::from_millis(200));
    spinner
}

enum End {
    Exited(std::io::Result<ExitStatus>),
    Lost(LossReason),
}

async fn hold(
    guard: &Guard,
    exec: &Exec,
    signals: &mut mpsc::UnboundedReceiver<Signal>,
    as_json: bool,
) -> ExitCode {
    event(as_json, "granted", guard, json!({}));
    let mut running = match Running::start(&exec.command, &environment(guard, exec)) {
        Ok(running) => running,
        Err(error) => {
            report(as_json, &format!("the command cannot be started: {error}"), SOFTWARE);
            return ExitCode::from(SOFTWARE);
        }
    };
    let end = tokio::select! {
        biased;
        reason = guard.lost() => End::Lost(reason),
        status = running.wait(signals) => End::Exited(status),
    };
    let reason = match end {
        End::Exited(status) => match guard.loss() {
            None => return release(guard, status, as_json).await,
            Some(reason) => reason,
        },
        End::Lost(reason) => {
            running.end(exec.grace).await;
            reason
        }
    };
    event(as_json, "lost", guard, json!({ "reason": reason.to_string() }));
    if !as_json {
        report(false, &format!("the lock was lost: {reason}"), LOST);
    }
    ExitCode::from(LOST)
}

fn environment<'a>(guard: &Guard, exec: &Exec) -> Vec<(&'a str, OsString)> {
    vec![
        ("REDISLOCK_KEY", exec.keys.join(" ").into()),
        ("REDISLOCK_OWNER", guard.owner().to_string().into()),
        ("REDISLOCK_FENCE", guard.fence().to_string().into()),
    ]
}

async fn release(guard: &Guard, status: std::io::Result<ExitStatus>, as_json: bool) -> ExitCode {
    let outcome = guard.release().await;
    event(as_json, "released", guard, json!({ "outcome": format!("{outcome:?}") }));
    match outcome {
        // It ended between the last look and the release: the command may have overlapped with another holder's.
        Ok(Released::NotHeld) => {
            report(as_json, "the lock was lost before it was released", LOST);
            return ExitCode::from(LOST);
        }
        Ok(_) => {}
        Err(error) => report(as_json, &format!("not released, it ends by its ttl: {error}"), 0),
    }
    match status {
        Ok(status) => ExitCode::from(status_code(status)),
        Err(error) => {
            report(as_json, &format!("the command's end is unknown: {error}"), SOFTWARE);
            ExitCode::from(SOFTWARE)
        }
    }
}

fn event(as_json: bool, name: &str, guard: &Guard, more: Value) {
    if !as_json {
        return;
    }
    let keys: Vec<_> = guard.keys().map(|key| key.escape_ascii().to_string()).collect();
    let mut event = json!({
        "event": name,
        "keys": keys,
        "owner": guard.owner().to_string(),
        "fence": guard.fence().get(),
    });
    if let (Some(event), Value::Object(more)) = (event.as_object_mut(), more) {
        event.extend(more);
    }
    eprintln!("{event}");
}
