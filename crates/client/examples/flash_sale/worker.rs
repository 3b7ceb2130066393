//! One process that serves buyers.

use std::process::Command;
use std::time::Duration;

use redislock_client::Locker;
use tokio::task::JoinSet;

use crate::shop::Shop;
use crate::{Outcome, Protection};

/// How many buyers a process serves at the same time.
const TASKS: usize = 25;

/// What it takes to make up an order: payment, address and so on.
const THINKING: Duration = Duration::from_millis(2);

pub(crate) async fn run(
    number: &str,
    protection: Protection,
    freezes: bool,
    shop: &str,
    nodes: &[&str],
) -> Outcome<()> {
    let locker = Locker::builder().nodes(nodes)?.build()?;
    let shop = Shop::open(shop).await?;
    let mut tasks = JoinSet::new();
    for _ in 0..if freezes { 1 } else { TASKS } {
        tasks.spawn(serve(number.to_owned(), protection, freezes, shop.clone(), locker.clone()));
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    locker.drain().await;
    Ok(())
}

async fn serve(
    number: String,
    protection: Protection,
    freezes: bool,
    mut shop: Shop,
    locker: Locker,
) -> Outcome<()> {
    while let Some(buyer) = shop.next_delivery(&number).await? {
        match protection {
            Protection::Nothing => unprotected(&mut shop, &buyer).await?,
            _ => protected(&mut shop, &locker, &buyer, protection, freezes).await?,
        }
        shop.done(&number, &buyer).await?;
        if freezes {
            return Ok(());
        }
    }
    Ok(())
}

async fn unprotected(shop: &mut Shop, buyer: &str) -> Outcome<()> {
    if let Some(stock) = shop.look(buyer).await? {
        tokio::time::sleep(THINKING).await;
        shop.order(stock - 1, buyer).await?;
    }
    Ok(())
}

async fn protected(
    shop: &mut Shop,
    locker: &Locker,
    buyer: &str,
    protection: Protection,
    freezes: bool,
) -> Outcome<()> {
    loop {
        let guard = locker.lock("sale").ttl(Duration::from_millis(500)).acquire().await?;
        let Some(stock) = shop.look(buyer).await? else { return Ok(()) };
        tokio::time::sleep(THINKING).await;
        if guard.is_lost() {
            continue;
        }
        if freezes {
            // At the worst moment: the lock has just been looked at, and the order is about to be written.
            shop.frozen().await?;
            freeze()?;
        }
        let written = match protection {
            Protection::LockAndFence => shop.fenced_order(guard.fence().get(), stock - 1, buyer).await?,
            Protection::GuardedWrites => shop.guarded_order(&guard, stock - 1, buyer).await?,
            Protection::Nothing | Protection::Lock => return shop.order(stock - 1, buyer).await,
        };
        if !written {
            println!("    an order under the old fence {} was refused", guard.fence());
        }
        return Ok(());
    }
}

/// Stops this process until somebody lets it go on.
fn freeze() -> Outcome<()> {
    Command::new("kill").args(["-STOP", &std::process::id().to_string()]).status()?;
    // The signal may take a moment to arrive.
    std::thread::sleep(Duration::from_millis(200));
    Ok(())
}
