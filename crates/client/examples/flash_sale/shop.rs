//! The shop: its stock, its orders, and the deliveries that ask for them.

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, cmd, pipe};
use redislock_client::{Error, Guard};

use crate::Outcome;

pub(crate) const ITEMS: i64 = 50;
pub(crate) const BUYERS: usize = 200;

/// Writes an order unless the shop has seen a higher fence.
const FENCED_ORDER: &str = r"
local seen = tonumber(redis.call('GET', 'fence') or '0')
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('SET', 'fence', ARGV[1])
redis.call('SET', 'stock', ARGV[2])
redis.call('RPUSH', 'orders', ARGV[3])
return 1";

#[derive(Clone)]
pub(crate) struct Shop {
    redis: MultiplexedConnection,
}

/// How a sale ended.
pub(crate) struct Books {
    pub(crate) sold: i64,
    pub(crate) buyers: i64,
    pub(crate) left: i64,
}

impl Books {
    pub(crate) fn are_right(&self) -> bool {
        self.sold == ITEMS && self.buyers == ITEMS && self.left == 0
    }
}

impl Shop {
    pub(crate) async fn open(url: &str) -> Outcome<Self> {
        Ok(Self { redis: redis::Client::open(url)?.get_multiplexed_async_connection().await? })
    }

    /// Fills the shelves, and has every order delivered twice, as queues that promise 'at least once' do.
    pub(crate) async fn prepare(&mut self) -> Outcome<()> {
        cmd("FLUSHALL").exec_async(&mut self.redis).await?;
        self.redis.set::<_, _, ()>("stock", ITEMS).await?;
        let buyers: Vec<_> = (0..2 * BUYERS).map(|number| format!("buyer-{}", number / 2)).collect();
        Ok(self.redis.rpush::<_, _, ()>("deliveries", buyers).await?)
    }

    /// The next delivery for a worker; it stays on the worker's own list until it is done.
    pub(crate) async fn next_delivery(&mut self, worker: &str) -> Outcome<Option<String>> {
        let mine = format!("deliveries:{worker}");
        let command = cmd("LMOVE").arg("deliveries").arg(mine).arg("LEFT").arg("RIGHT").take();
        Ok(command.query_async(&mut self.redis).await?)
    }

    pub(crate) async fn done(&mut self, worker: &str, buyer: &str) -> Outcome<()> {
        Ok(self.redis.lrem::<_, _, ()>(format!("deliveries:{worker}"), 1, buyer).await?)
    }

    /// Gives the deliveries of a dead worker to the others.
    pub(crate) async fn redeliver(&mut self, worker: &str) -> Outcome<()> {
        let mine = format!("deliveries:{worker}");
        let open: Vec<String> = self.redis.lrange(&mine, 0, -1).await?;
        if !open.is_empty() {
            pipe().atomic().rpush("deliveries", open).del(mine).exec_async(&mut self.redis).await?;
        }
        Ok(())
    }

    /// The stock as it is, unless this buyer has an order already.
    pub(crate) async fn look(&mut self, buyer: &str) -> Outcome<Option<i64>> {
        let position: Option<i64> = self.redis.lpos("orders", buyer, redis::LposOptions::default()).await?;
        let stock: i64 = self.redis.get("stock").await?;
        Ok((position.is_none() && stock > 0).then_some(stock))
    }

    pub(crate) async fn order(&mut self, stock: i64, buyer: &str) -> Outcome<()> {
        Ok(pipe().atomic().set("stock", stock).rpush("orders", buyer).exec_async(&mut self.redis).await?)
    }

    /// As [`order`](Self::order), with the fence of the lock that it was made under; false when that is out of date.
    pub(crate) async fn fenced_order(&mut self, fence: u64, stock: i64, buyer: &str) -> Outcome<bool> {
        let command = cmd("EVAL").arg(FENCED_ORDER).arg(0).arg(fence).arg(stock).arg(buyer).take();
        Ok(command.query_async::<i64>(&mut self.redis).await? == 1)
    }

    /// As [`order`](Self::order), written by the server only while the guard's owner holds the lock, which is the
    /// shop's own; false when it does not.
    pub(crate) async fn guarded_order(&self, guard: &Guard, stock: i64, buyer: &str) -> Outcome<bool> {
        let stock = stock.to_string();
        let writes = [["SET", "stock", &stock], ["RPUSH", "orders", buyer]];
        match guard.guarded_all(writes).await {
            Ok(replies) => {
                replies.into_iter().collect::<Result<Vec<_>, _>>()?;
                Ok(true)
            }
            Err(Error::Lost(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) async fn frozen(&mut self) -> Outcome<()> {
        Ok(self.redis.set::<_, _, ()>("frozen", 1).await?)
    }

    pub(crate) async fn has_frozen(&mut self) -> Outcome<bool> {
        Ok(self.redis.exists("frozen").await?)
    }

    pub(crate) async fn orders(&mut self) -> Outcome<i64> {
        Ok(self.redis.llen("orders").await?)
    }

    pub(crate) async fn books(&mut self) -> Outcome<Books> {
        let orders: Vec<String> = self.redis.lrange("orders", 0, -1).await?;
        let buyers: std::collections::HashSet<_> = orders.iter().collect();
        Ok(Books {
            sold: i64::try_from(orders.len())?,
            buyers: i64::try_from(buyers.len())?,
            left: self.redis.get("stock").await?,
        })
    }
}
