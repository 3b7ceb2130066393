//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

/// Locks over one or several Redis servers that load the redislock module.
#[derive(Debug, Parser)]
#[command(name = "redislock", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Args {
    /// A node, as redis://, rediss://, unix://, redis-sentinel:// or redis-cluster:// URL; several times for a lock on
    /// a majority
    #[arg(
        long = "node",
        value_name = "URL",
        env = "REDISLOCK_NODES",
        value_delimiter = ',',
        default_value = "redis://127.0.0.1:6379",
        hide_env_values = true,
        global = true
    )]
    pub(crate) nodes: Vec<String>,

    /// The longest that one node is waited for in one round; 500ms for `exec`, 5s for all else where not set
    #[arg(long, value_name = "TIME", value_parser = duration, global = true)]
    pub(crate) node_timeout: Option<Duration>,

    /// Write JSON: results to standard output, events and errors of `exec` to standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// How long one node is waited for. A lease runs meanwhile in `exec`; a look is asked once, and has time.
    pub(crate) fn node_timeout(&self) -> Duration {
        self.node_timeout.unwrap_or(match self.command {
            Command::Exec(_) => Duration::from_millis(500),
            _ => Duration::from_secs(5),
        })
    }
}

const EXIT_CODES: &str = "\
Exit status: that of the command for `exec`; 64 for a wrong request or configuration, 69 when no quorum could be \
reached, 75 when the lock was not granted in time, 76 when it was lost while the command ran, 126 or 127 when the \
command could not be run.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    ///
    /// The command finds REDISLOCK_KEY, REDISLOCK_OWNER and REDISLOCK_FENCE in its environment. Signals are passed on
    /// to it. When the lock is lost it gets SIGTERM, and SIGKILL after the grace; when redislock itself is killed it
    /// gets SIGTERM.
    Exec(Exec),
    /// Show who holds a lock, and how many wait
    Info {
        /// The key of the lock
        key: String,
    },
    /// List the keys of locks that are held or waited for
    List {
        /// A glob-style pattern
        #[arg(default_value = "*")]
        pattern: String,
    },
    /// Show who waits for a lock, in the order of the queue
    Waiters {
        /// The key of the lock
        key: String,
    },
    /// Take a lock away from its holders
    Break {
        /// The key of the lock
        key: String,
        /// Only from this owner
        #[arg(long)]
        owner: Option<String>,
        /// Only this grant of the owner, so that nobody is hit who got the lock meanwhile
        #[arg(long, requires = "owner")]
        fence: Option<u64>,
    },
    /// Write a completion script to standard output
    Completions {
        /// For which shell
        shell: Shell,
    },
    /// Write the manual page to standard output
    Man,
    /// Become the command, to be ended together with the parent
    #[command(hide = true)]
    Run {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<OsString>,
    },
}

#[derive(Debug, clap::Args)]
pub(crate) struct Exec {
    /// The key of the lock; several times for all of them at once
    #[arg(long = "key", value_name = "KEY", required = true)]
    pub(crate) keys: Vec<String>,

    /// How long the lock stays locked after this process died; it is renewed while the command runs
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,

    /// How long to wait for the lock; 0s to try, `forever` without limit
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = wait)]
    pub(crate) wait: Wait,

    /// Stand together with other shared holders
    #[arg(long, conflicts_with = "limit")]
    pub(crate) shared: bool,

    /// Stand together with others up to so many holders
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) limit: Option<u32>,

    /// End the lease at once when the connection closes
    #[arg(long)]
    pub(crate) session: bool,

    /// The longest that the lock is held; then the command is ended as after a loss
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// How long the command has between SIGTERM and SIGKILL when the lock is lost
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) grace: Duration,

    /// The command and its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    UpTo(Duration),
    Forever,
}

/// A time such as `30s`, `1h 30m` or `250ms`. A bare number is refused, since nobody could tell its unit.
fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

fn wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        text => duration(text).map(Wait::UpTo),
    }
}
