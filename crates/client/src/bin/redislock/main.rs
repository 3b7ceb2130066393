//! `redislock`: locks for shell scripts, and a look at them for operators.

mod args;
mod child;
mod exec;
mod exit;
mod inspect;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use redislock_client::{Error, Locker};

use args::{Args, Command};
use exit::{failed, report};

fn main() -> ExitCode {
    let args = Args::parse();
    match args.command {
        Command::Run { command } => child::become_command(&command),
        Command::Completions { shell } => {
            let name = env!("CARGO_BIN_NAME");
            clap_complete::generate(shell, &mut Args::command(), name, &mut std::io::stdout());
            ExitCode::SUCCESS
        }
        Command::Man => match clap_mangen::Man::new(Args::command()).render(&mut std::io::stdout()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        _ => with_locker(args),
    }
}

/// One thread does everything. It is also the one that the system watches on behalf of the command that `exec` starts.
fn with_locker(args: Args) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            report(args.json, &format!("no runtime: {error}"), exit::SOFTWARE);
            return ExitCode::from(exit::SOFTWARE);
        }
    };
    runtime.block_on(async {
        let locker = match locker(&args) {
            Ok(locker) => locker,
            Err(error) => return failed(args.json, &error),
        };
        let outcome = match &args.command {
            Command::Exec(request) => return exec::run(&locker, request, &args).await,
            Command::Info { key } => inspect::info(&locker, key, args.json).await,
            Command::List { pattern } => inspect::list(&locker, pattern, args.json).await,
            Command::Waiters { key } => inspect::waiters(&locker, key, args.json).await,
            Command::Break { key, owner, fence } => {
                inspect::break_lock(&locker, key, owner.as_deref(), *fence, args.json).await
            }
            Command::Run { .. } | Command::Completions { .. } | Command::Man => Ok(ExitCode::SUCCESS),
        };
        outcome.unwrap_or_else(|error| failed(args.json, &error))
    })
}

fn locker(args: &Args) -> Result<Locker, Error> {
    let timeout = args.node_timeout();
    let builder = Locker::builder().nodes(&args.nodes)?;
    builder.node_timeout(timeout).connect_timeout(timeout.saturating_mul(4)).build()
}
