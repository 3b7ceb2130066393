//! The module's commands as they go over the wire, and what comes back.

use redis::{Cmd, ServerError, Value, cmd};

use crate::acquisition::Answer;
use crate::error::Error;
use crate::fence::Fence;
use crate::owner::Owner;
use crate::ttl::Ttl;
use crate::vote::{NodeError, NodeErrorKind, Vote};

/// How holders of one lock stand to each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    #[default]
    Exclusive,
    Shared,
    Limited(u32),
}

/// What is locked, and how: the part of every command that stays the same while a lock is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) mode: Mode,
    pub(crate) session: bool,
}

/// Which holds a release gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// All of this owner's, and its waiting request.
    All,
    /// The n-th, which may safely be given back twice.
    Nth(u32),
}

impl Terms {
    /// For logs and errors: the keys as text.
    pub(crate) fn name(&self) -> String {
        let keys: Vec<_> = self.keys.iter().map(|key| key.escape_ascii().to_string()).collect();
        keys.join(" ")
    }

    fn command(&self, single: &str, several: &str) -> Cmd {
        match &self.keys[..] {
            [key] => cmd(single).arg(key).take(),
            keys => cmd(several).arg(keys.len()).arg(keys).take(),
        }
    }

    /// Takes the lock: as hold `nth` where it may be nested.
    pub(crate) fn take(&self, owner: &Owner, ttl: Ttl, nth: Option<u32>, wait: Option<u64>) -> Cmd {
        let mut command = match nth {
            Some(_) => self.command("LOCK.REENTER", "LOCK.MACQUIRE"),
            None => self.command("LOCK.ACQUIRE", "LOCK.MACQUIRE"),
        };
        command.arg(owner.as_bytes()).arg(ttl.millis());
        match self.mode {
            Mode::Exclusive => {}
            Mode::Shared => {
                command.arg("SHARED");
            }
            Mode::Limited(limit) => {
                command.arg("SHARED").arg("LIMIT").arg(limit);
            }
        }
        if let Some(millis) = wait {
            command.arg("WAIT").arg(millis);
        }
        if self.session {
            command.arg("SESSION");
        }
        if let Some(nth) = nth {
            command.arg("HOLD").arg(nth);
        }
        command
    }

    /// Restarts the lease. The tie to a session moves to this connection only where `tie` says so.
    pub(crate) fn renew(&self, owner: &Owner, ttl: Ttl, tie: bool) -> Cmd {
        let mut command = self.command("LOCK.RENEW", "LOCK.MRENEW");
        command.arg(owner.as_bytes()).arg(ttl.millis());
        if tie {
            command.arg("SESSION");
        }
        command
    }

    /// Raises the fence, one command a key.
    pub(crate) fn raise(&self, owner: &Owner, fence: Fence) -> impl Iterator<Item = Cmd> {
        self.keys
            .iter()
            .map(move |key| cmd("LOCK.FENCE").arg(key).arg(owner.as_bytes()).arg(fence.get()).take())
    }

    pub(crate) fn release(&self, owner: &Owner, holds: Holds) -> Cmd {
        let mut command = self.command("LOCK.RELEASE", "LOCK.MRELEASE");
        command.arg(owner.as_bytes());
        if let [_] = &self.keys[..] {
            match holds {
                Holds::All => command.arg("ALL"),
                Holds::Nth(nth) => command.arg("HOLD").arg(nth),
            };
        }
        command
    }
}

/// What a node answered to a request to take, confirm or raise; `node` is its index.
pub(crate) fn answer(node: usize, replies: &[Value]) -> Answer {
    let Some((first, raised)) = replies.split_first() else { return protocol(&Value::Nil) };
    match grant(node, first) {
        // What the fence was raised to; an answer of another kind leaves it as it was granted.
        Answer::Granted(fence) => {
            let raised = raised.iter().filter_map(|reply| match reply {
                Value::Int(number) => u64::try_from(*number).ok(),
                _ => None,
            });
            Answer::Granted(raised.map(Fence::new).min().map_or(fence, |raised| raised.max(fence)))
        }
        other => other,
    }
}

fn grant(node: usize, reply: &Value) -> Answer {
    match reply {
        Value::Nil => Answer::Denied,
        Value::Int(number) => match u64::try_from(*number) {
            Ok(number) => Answer::Granted(Fence::new(number)),
            Err(_) => protocol(reply),
        },
        // REENTER: hold count and fence. MRENEW: a fence a key, or nulls.
        Value::Array(items) => match items.last() {
            Some(last) if !items.contains(&Value::Nil) => grant(node, last),
            _ => Answer::Denied,
        },
        Value::ServerError(error) => server_error(node, error),
        other => protocol(other),
    }
}

/// The vote that a renewal was answered with.
pub(crate) fn renewal_vote(reply: &Value) -> Vote {
    match grant(0, reply) {
        Answer::Granted(fence) => Vote::Granted(fence),
        Answer::Denied => Vote::Denied,
        Answer::Failed(error) => Vote::Unreachable(error),
        Answer::Final(error) => {
            Vote::Unreachable(NodeError::new(NodeErrorKind::Unavailable, error.to_string()))
        }
        Answer::Held(_) | Answer::Replaced(_) | Answer::Alive => Vote::Unreachable(unexpected(reply)),
    }
}

/// What a release was answered with: the holds left, or `None` where this owner held nothing.
pub(crate) fn released(reply: &Value) -> Result<Option<u32>, NodeError> {
    match reply {
        Value::Nil => Ok(None),
        Value::Int(left) => Ok(Some(u32::try_from(*left).unwrap_or(u32::MAX))),
        // Several keys: freed where each of them was.
        Value::Array(items) => {
            let each: Result<Vec<_>, _> = items.iter().map(released).collect();
            Ok(each?.into_iter().min().flatten())
        }
        Value::ServerError(error) => Err(NodeError::new(NodeErrorKind::Unavailable, text(error))),
        other => Err(unexpected(other)),
    }
}

fn text(error: &ServerError) -> String {
    match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    }
}

fn server_error(node: usize, error: &ServerError) -> Answer {
    let message = text(error);
    let failed = |kind| Answer::Failed(NodeError::new(kind, message.clone()));
    match error.code() {
        "HELD" => {
            let fence = error.details().and_then(|details| details.split(' ').next()?.parse().ok());
            fence.map_or_else(|| failed(NodeErrorKind::Protocol), |fence| Answer::Held(Fence::new(fence)))
        }
        "DEADLOCK" => Answer::Final(Error::Deadlock(message)),
        "REPLACED" => Answer::Replaced(message),
        "QUEUEFULL" => failed(NodeErrorKind::QueueFull),
        "QUARANTINE" => failed(NodeErrorKind::Quarantine),
        "UNBLOCKED" | "LOADING" | "READONLY" | "MASTERDOWN" | "NOREPLICAS" | "MISCONF" | "OOM"
        | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "BUSY" => failed(NodeErrorKind::Unavailable),
        _ => Answer::Final(Error::Rejected { node, message }),
    }
}

fn unexpected(reply: &Value) -> NodeError {
    NodeError::new(NodeErrorKind::Protocol, format!("an answer of unknown shape: {reply:?}"))
}

fn protocol(reply: &Value) -> Answer {
    Answer::Failed(unexpected(reply))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(keys: &[&str], mode: Mode, session: bool) -> Terms {
        Terms { keys: keys.iter().map(|key| key.as_bytes().to_vec()).collect(), mode, session }
    }

    fn check(command: &Cmd, expected: &str) {
        let args: Vec<_> = command
            .args_iter()
            .map(|arg| match arg {
                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => "?".to_owned(),
            })
            .collect();
        assert_eq!(args.join(" "), expected);
    }

    fn parsed(wire: &str) -> Value {
        redis::parse_redis_value(wire.as_bytes()).unwrap()
    }

    #[test]
    fn commands_are_spelled_as_the_contract_says() {
        let (owner, ttl) = (Owner::new("A").unwrap(), Ttl::new(std::time::Duration::from_secs(1)).unwrap());
        let plain = terms(&["k"], Mode::Exclusive, false);
        check(&plain.take(&owner, ttl, None, None), "LOCK.ACQUIRE k A 1000");
        check(&plain.take(&owner, ttl, None, Some(0)), "LOCK.ACQUIRE k A 1000 WAIT 0");
        check(&plain.take(&owner, ttl, Some(2), None), "LOCK.REENTER k A 1000 HOLD 2");
        check(&plain.renew(&owner, ttl, false), "LOCK.RENEW k A 1000");
        check(&plain.release(&owner, Holds::All), "LOCK.RELEASE k A ALL");
        check(&plain.release(&owner, Holds::Nth(2)), "LOCK.RELEASE k A HOLD 2");
        let limited = terms(&["k"], Mode::Limited(3), true);
        let expected = "LOCK.ACQUIRE k A 1000 SHARED LIMIT 3 WAIT 5 SESSION";
        check(&limited.take(&owner, ttl, None, Some(5)), expected);
        check(&limited.renew(&owner, ttl, true), "LOCK.RENEW k A 1000 SESSION");
        let several = terms(&["x", "y"], Mode::Exclusive, false);
        check(&several.take(&owner, ttl, None, Some(7)), "LOCK.MACQUIRE 2 x y A 1000 WAIT 7");
        check(&several.release(&owner, Holds::All), "LOCK.MRELEASE 2 x y A");
    }

    #[test]
    fn b102_nulls_and_integers_read_alike_in_both_protocols() {
        for null in ["$-1\r\n", "*-1\r\n", "_\r\n"] {
            assert_eq!(answer(0, &[parsed(null)]), Answer::Denied, "{null:?}");
        }
        assert_eq!(answer(0, &[parsed(":9007199254740991\r\n")]), Answer::Granted(Fence::new((1 << 53) - 1)));
        assert_eq!(answer(0, &[parsed("*2\r\n:1\r\n:7\r\n")]), Answer::Granted(Fence::new(7)));
        assert_eq!(answer(0, &[parsed(":5\r\n"), parsed(":9\r\n")]), Answer::Granted(Fence::new(9)));
    }

    #[test]
    fn b104_queued_is_no_grant() {
        assert!(matches!(answer(0, &[parsed("+QUEUED\r\n")]), Answer::Failed(_)));
        assert!(matches!(answer(0, &[parsed("+OK\r\n")]), Answer::Failed(_)));
        assert!(matches!(answer(0, &[]), Answer::Failed(_)));
    }

    #[test]
    fn b11_an_argument_error_is_not_a_refusal() {
        let errors =
            ["-ERR ttl must be between 1 and 86400000 milliseconds", "-WRONGTYPE Operation", "-NOPERM no"];
        for error in errors {
            let answer = answer(3, &[parsed(&format!("{error}\r\n"))]);
            let Answer::Final(error) = answer else { panic!("{answer:?}") };
            assert!(matches!(&error, Error::Rejected { node: 3, .. }) && !error.is_retryable());
        }
    }

    #[test]
    fn b83_errors_of_a_server_that_changed_its_role_can_be_tried_again() {
        for code in
            ["UNBLOCKED the role changed", "READONLY You can't", "LOADING Redis is", "QUARANTINE 5000"]
        {
            assert!(matches!(answer(0, &[parsed(&format!("-{code}\r\n"))]), Answer::Failed(_)), "{code}");
        }
        assert_eq!(answer(0, &[parsed("-HELD 42 by this owner\r\n")]), Answer::Held(Fence::new(42)));
    }
}
