//! `redislock info`, `list`, `waiters` and `break`.

use std::process::ExitCode;
use std::time::Duration;

use redislock_client::{Error, Fence, HolderInfo, LockInfo, Locker, Owner, PerNode, WaiterInfo};
use serde_json::{Value, json};

use crate::exit::{UNAVAILABLE, report};

pub(crate) async fn info(locker: &Locker, key: &str, as_json: bool) -> Result<ExitCode, Error> {
    let answers = locker.info(key).await;
    Ok(show(as_json, answers, info_json, |info| match info {
        None => "free".to_owned(),
        Some(info) => info_text(info),
    }))
}

pub(crate) async fn list(locker: &Locker, pattern: &str, as_json: bool) -> Result<ExitCode, Error> {
    let answers = locker.list(pattern).await;
    let names = |keys: &Vec<Vec<u8>>| keys.iter().map(|key| text(key)).collect::<Vec<_>>();
    Ok(show(as_json, answers, |keys| json!(names(keys)), |keys| names(keys).join("\n")))
}

pub(crate) async fn waiters(locker: &Locker, key: &str, as_json: bool) -> Result<ExitCode, Error> {
    let answers = locker.waiters(key).await;
    let each = |waiters: &Vec<WaiterInfo>| waiters.iter().map(waiter_json).collect::<Value>();
    Ok(show(as_json, answers, each, |waiters| {
        let lines: Vec<_> = waiters.iter().map(waiter_text).collect();
        if lines.is_empty() { "nobody waits".to_owned() } else { lines.join("\n") }
    }))
}

pub(crate) async fn break_lock(
    locker: &Locker,
    key: &str,
    owner: Option<&str>,
    fence: Option<u64>,
    as_json: bool,
) -> Result<ExitCode, Error> {
    let owner = owner.map(Owner::new).transpose()?;
    let answers = locker.break_lock(key, owner.as_ref(), fence.map(Fence::new)).await?;
    Ok(show(as_json, answers, |count| json!(count), |count| format!("revoked from {count}")))
}

/// Shows every node's answer. Fails when none of them answered.
fn show<T>(
    as_json: bool,
    answers: Vec<PerNode<T>>,
    as_value: impl Fn(&T) -> Value,
    as_text: impl Fn(&T) -> String,
) -> ExitCode {
    let several = answers.len() > 1;
    let answered = answers.iter().any(|node| node.answer.is_ok());
    for PerNode { node, answer } in &answers {
        match answer {
            Ok(answer) if as_json => println!("{}", json!({ "node": node, "answer": as_value(answer) })),
            Ok(answer) => {
                if several {
                    println!("{node}");
                }
                let text = as_text(answer);
                if !text.is_empty() {
                    println!("{text}");
                }
            }
            Err(error) => report(as_json, &format!("{node}: {error}"), UNAVAILABLE),
        }
    }
    if answered { ExitCode::SUCCESS } else { ExitCode::from(UNAVAILABLE) }
}

fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

fn time(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn info_text(info: &LockInfo) -> String {
    let limit = info.limit.map(|limit| format!(", at most {limit}")).unwrap_or_default();
    let mut lines = vec![format!("{}{limit}, {} waiting", info.mode, info.waiters)];
    lines.extend(info.holders.iter().map(holder_text));
    lines.join("\n")
}

fn holder_text(holder: &HolderInfo) -> String {
    let session = if holder.session { ", tied to its connection" } else { "" };
    format!(
        "  held by {} with fence {} ({} holds) for {}, {} left{session}",
        text(&holder.owner),
        holder.fence,
        holder.holds,
        time(holder.held),
        time(holder.ttl),
    )
}

fn waiter_text(waiter: &WaiterInfo) -> String {
    let left = waiter.timeout.map_or("without limit".to_owned(), |left| format!("{} left", time(left)));
    format!("{} ({}) for {}, {left}", text(&waiter.owner), waiter.mode, time(waiter.waited))
}

fn info_json(info: &Option<LockInfo>) -> Value {
    let Some(info) = info else { return Value::Null };
    let holders: Vec<_> = info
        .holders
        .iter()
        .map(|holder| {
            json!({
                "owner": text(&holder.owner),
                "holds": holder.holds,
                "fence": holder.fence.get(),
                "ttl_ms": millis(holder.ttl),
                "held_ms": millis(holder.held),
                "session": holder.session,
            })
        })
        .collect();
    json!({ "mode": info.mode, "limit": info.limit, "waiters": info.waiters, "holders": holders })
}

fn waiter_json(waiter: &WaiterInfo) -> Value {
    json!({
        "owner": text(&waiter.owner),
        "mode": waiter.mode,
        "waited_ms": millis(waiter.waited),
        "timeout_ms": waiter.timeout.map(millis),
    })
}
