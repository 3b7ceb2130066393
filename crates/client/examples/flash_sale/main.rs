//! A flash sale: 200 buyers, 50 items, several processes, deliveries that come twice, workers that are killed in
//! mid-order or freeze.
//!
//! `cargo run --release -p redislock-client --example flash_sale` starts its own servers: one is the shop, five keep the
//! lock, except where the shop's own server does. It runs the sale five times, tells what came of it, and fails where a sale that must be right is not.

mod shop;
mod supervisor;
mod worker;

include!("../../tests/support/module.rs");

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How a worker protects its orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protection {
    Nothing,
    Lock,
    LockAndFence,
    /// The shop's server keeps the lock itself, and writes only for the one who holds it.
    GuardedWrites,
}

impl Protection {
    fn name(self) -> &'static str {
        match self {
            Protection::Nothing => "nothing",
            Protection::Lock => "lock",
            Protection::LockAndFence => "lock-and-fence",
            Protection::GuardedWrites => "guarded-writes",
        }
    }

    fn named(name: &str) -> Option<Self> {
        use Protection::{GuardedWrites, Lock, LockAndFence, Nothing};
        let all = [Nothing, Lock, LockAndFence, GuardedWrites];
        all.into_iter().find(|protection| protection.name() == name)
    }
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", number, protection, freezes, shop, ref nodes @ ..] => {
            let protection = Protection::named(protection).ok_or("an unknown protection")?;
            runtime.block_on(worker::run(number, protection, freezes == "freezes", shop, nodes))
        }
        _ => runtime.block_on(supervisor::run(&module_under_test())),
    }
}
