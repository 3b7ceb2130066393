//! Starts the servers and the workers, kills and freezes some, and checks the books.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use redislock_testkit::{Server, Version};

use crate::shop::{BUYERS, Books, ITEMS, Shop};
use crate::{Outcome, Protection};

const WORKERS: usize = 8;

/// How many workers are killed in a sale.
const KILLED: usize = 3;

struct Sale<'a> {
    shop_url: &'a str,
    nodes: &'a [String],
    shop: Shop,
}

pub(crate) async fn run(module: &Path) -> Outcome<()> {
    let start = || Server::builder(Version::Redis70).module(module).start();
    let shop = start();
    let nodes: Vec<_> = (0..5).map(|_| start()).collect();
    let urls: Vec<_> = nodes.iter().map(Server::url).collect();
    println!("{BUYERS} buyers, {ITEMS} items, every order delivered twice, {WORKERS} worker processes\n");
    let mut sale = Sale { shop_url: &shop.url(), nodes: &urls, shop: Shop::open(&shop.url()).await? };

    let books = sale.hold(Protection::Nothing, false).await?;
    tell("without a lock", &books);
    let with_lock = sale.hold(Protection::Lock, false).await?;
    tell(&format!("with a lock over five servers, {KILLED} workers killed in mid-order"), &with_lock);
    let books = sale.hold(Protection::Lock, true).await?;
    tell("with a lock, and a worker that freezes right before it writes", &books);
    let with_fences = sale.hold(Protection::LockAndFence, true).await?;
    tell("with a lock and fences, and a worker that freezes right before it writes", &with_fences);

    let with_guard = sale.hold(Protection::GuardedWrites, true).await?;
    tell("with a lock in the shop's server, guarded writes, and a worker that freezes", &with_guard);

    if with_lock.are_right() && with_fences.are_right() && with_guard.are_right() {
        println!(
            "The lock kept the books right; fences and guarded writes did so even where a holder overran its lease."
        );
        Ok(())
    } else {
        Err("a sale that was protected came out wrong".into())
    }
}

fn tell(what: &str, books: &Books) {
    let Books { sold, buyers, left } = books;
    let (over, doubled) = ((sold - ITEMS).max(0), sold - buyers);
    let verdict = if books.are_right() { "right" } else { "WRONG" };
    println!("{what}:");
    println!("    {sold} orders, {over} oversold, {doubled} doubled, stock says {left}: {verdict}\n");
}

impl Sale<'_> {
    async fn hold(&mut self, protection: Protection, freezes: bool) -> Outcome<Books> {
        self.shop.prepare().await?;
        let frozen = if freezes { Some(self.frozen_worker(protection).await?) } else { None };
        let mut workers = Vec::new();
        for number in 0..WORKERS {
            workers.push((number, self.worker(number, protection, false)?));
        }
        if protection == Protection::Lock && !freezes {
            self.kill_some(&mut workers, protection).await?;
        }
        for (_, worker) in &mut workers {
            finish(worker).await?;
        }
        if let Some(mut worker) = frozen {
            let resumed = Command::new("kill").args(["-CONT", &worker.id().to_string()]).status()?;
            if !resumed.success() {
                return Err("the frozen worker is gone".into());
            }
            finish(&mut worker).await?;
        }
        self.shop.books().await
    }

    fn worker(&self, number: usize, protection: Protection, freezes: bool) -> Outcome<Child> {
        let freezes = if freezes { "freezes" } else { "runs" };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["worker", &number.to_string(), protection.name(), freezes, self.shop_url]);
        match protection {
            Protection::GuardedWrites => command.arg(self.shop_url),
            _ => command.args(self.nodes),
        };
        Ok(command.spawn()?)
    }

    /// A worker that takes the lock first, looks at the stock, and stops there.
    async fn frozen_worker(&mut self, protection: Protection) -> Outcome<Child> {
        let worker = self.worker(WORKERS, protection, true)?;
        let end = Instant::now() + Duration::from_secs(10);
        while !self.shop.has_frozen().await? {
            if Instant::now() > end {
                return Err("no worker froze".into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok(worker)
    }

    /// Kills workers while orders are being made, and starts others in their place.
    async fn kill_some(&mut self, workers: &mut [(usize, Child)], protection: Protection) -> Outcome<()> {
        for (victim, orders) in (0..KILLED).zip([5, 15, 30]) {
            let end = Instant::now() + Duration::from_secs(30);
            while self.shop.orders().await? < orders && Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let (number, worker) = &mut workers[victim];
            worker.kill()?;
            worker.wait()?;
            self.shop.redeliver(&number.to_string()).await?;
            let number = WORKERS + 1 + victim;
            workers[victim] = (number, self.worker(number, protection, false)?);
        }
        Ok(())
    }
}

async fn finish(worker: &mut Child) -> Outcome<()> {
    let end = Instant::now() + Duration::from_secs(60);
    while worker.try_wait()?.is_none() {
        if Instant::now() > end {
            worker.kill()?;
            return Err("a worker hangs".into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
