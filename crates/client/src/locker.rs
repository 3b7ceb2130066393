//! The coordinator over one or several nodes.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::coop::unconstrained;

use crate::acquisition::Now;
use crate::clock::Moment;
use crate::command::Terms;
use crate::contention::Contention;
use crate::error::Error;
use crate::fence::Fence;
use crate::holding::Holding;
use crate::keeper::Keeper;
use crate::link::{Identities, Link, Surroundings};
use crate::node::Node;
use crate::owner::Owner;
use crate::request::LockRequest;
use crate::round::Quorum;

/// Takes locks on one node, or on a majority of several.
///
/// Clones are handles to the same locker and share its connections. Over several nodes every lock is taken on a
/// majority **of the configured nodes**, so that it survives the loss of a minority; every process must be given the
/// same list.
///
/// Nothing is connected until the first request, and nodes that are down then are found again by themselves.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
/// use std::time::Duration;
/// use redislock_client::Locker;
///
/// let locker = Locker::builder().node(&url)?.build()?;
/// let guard = locker.lock("orders:42").ttl(Duration::from_secs(10)).try_acquire().await?;
/// println!("held with fence {}", guard.fence());
/// guard.release().await?;
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct Locker {
    pub(crate) core: Arc<Core>,
}

pub(crate) struct Core {
    pub(crate) quorum: Quorum,
    pub(crate) links: Vec<Arc<Link>>,
    session_links: Vec<OnceLock<Arc<Link>>>,
    pub(crate) surroundings: Arc<Surroundings>,
    pub(crate) contention: Contention,
    pub(crate) keeper: Keeper,
    /// The highest fence seen from any node, for any lock.
    highest_fence: AtomicU64,
    /// By how many microseconds the nodes' clocks were lately ahead of ours when a request arrived.
    lead: AtomicU64,
    pub(crate) default_ttl: Duration,
    /// How many releases are under way.
    background: watch::Sender<usize>,
    /// What this locker holds or is about to take, and the shared state of what is held.
    claims: Mutex<HashMap<Claim, Claimed>>,
}

/// Counts one piece of work in the background.
struct UnderWay(watch::Sender<usize>);

impl UnderWay {
    fn new(background: &watch::Sender<usize>) -> Self {
        background.send_modify(|count| *count += 1);
        Self(background.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// The keys and the owner.
pub(crate) type Claim = (Vec<Vec<u8>>, Owner);

#[derive(Default)]
struct Claimed {
    count: usize,
    holding: Weak<Holding>,
}

impl Locker {
    /// Settings for a new locker.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// assert_eq!(locker.nodes().count(), 1);
    /// # Ok(()) });
    /// ```
    pub fn builder() -> LockerBuilder {
        LockerBuilder::default()
    }

    /// A request for the lock that `key` names: any bytes. Nothing happens until it is told to acquire.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let guard = locker.lock("invoice:7").acquire().await?;
    /// assert!(!guard.is_lost());
    /// # guard.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn lock(&self, key: impl AsRef<[u8]>) -> LockRequest {
        LockRequest::new(self.clone(), vec![key.as_ref().to_vec()])
    }

    /// A request for several locks at once: all or none of them, with one lease and one fence. While it waits it holds
    /// none of them, and nobody who came later passes it in any. In a cluster all keys are in one slot.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// let both = locker.lock_all(["from:1", "to:2"]).acquire().await?;
    /// assert!(locker.lock("to:2").try_acquire().await.is_err());
    /// both.release().await?;
    /// # Ok(()) });
    /// ```
    pub fn lock_all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> LockRequest {
        LockRequest::new(self.clone(), keys.into_iter().map(|key| key.as_ref().to_vec()).collect())
    }

    /// Waits until all releases that are under way in the background are answered, or as long as their leases may run.
    /// A program that ends right after it dropped a guard does well to wait for this, within a limit of its own.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// use std::time::Duration;
    ///
    /// drop(locker.lock("k").acquire().await?);
    /// tokio::time::timeout(Duration::from_secs(1), locker.drain()).await?;
    /// assert_eq!(locker.info("k").await.remove(0).answer?, None);
    /// # Ok(()) });
    /// ```
    pub async fn drain(&self) {
        // The sender lives in the core, so that this ends only when the count is zero.
        let _ = self.core.background.subscribe().wait_for(|count| *count == 0).await;
    }

    /// The configured nodes, in the order in which votes are listed.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/doc.rs")); } doc::with_server(|url| async move {
    /// # let locker = redislock_client::Locker::builder().node(&url)?.build()?;
    /// for node in locker.nodes() {
    ///     println!("{node}");
    /// }
    /// # Ok(()) });
    /// ```
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.core.links.iter().map(|link| link.node())
    }
}

impl fmt::Debug for Locker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes: Vec<_> = self.nodes().map(Node::to_string).collect();
        f.debug_struct("Locker").field("nodes", &nodes).finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let wall = u64::try_from(wall).unwrap_or(0);
        let seen = self.highest_fence.load(Ordering::Relaxed);
        Now { moment: Moment::now(), fence: Fence::new(wall.max(seen + 1)) }
    }

    pub(crate) fn saw(&self, fence: Fence) {
        self.highest_fence.fetch_max(fence.get(), Ordering::Relaxed);
    }

    /// A node made this fence by itself, for a request that left at `sent` by our wall clock.
    pub(crate) fn saw_clock(&self, fence: Fence, sent: Fence) {
        let observed = fence.get().saturating_sub(sent.get());
        // It rises at once and falls slowly, and is no larger than a grant may take to count.
        let most = u64::try_from(self.surroundings.node_timeout.as_micros()).unwrap_or(u64::MAX);
        let known = self.lead.load(Ordering::Relaxed);
        self.lead.store(observed.max(known - known / 16).min(most), Ordering::Relaxed);
    }

    /// How far a proposed fence is to lie ahead of our clock: what was seen, and a quarter and a millisecond more.
    pub(crate) fn lead(&self) -> Duration {
        let seen = Duration::from_micros(self.lead.load(Ordering::Relaxed));
        seen + seen / 4 + Duration::from_millis(1)
    }

    /// The connection to a node that its session-bound locks are tied to.
    pub(crate) fn session_link(&self, node: usize) -> &Arc<Link> {
        self.session_links[node].get_or_init(|| self.links[node].for_sessions())
    }

    /// Runs work in the background, after its first step here: what it sends is then sent before anything that the
    /// caller sends next.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let _here = self.surroundings.runtime.enter();
        let under_way = UnderWay::new(&self.background);
        let mut work = Box::pin(async move {
            work.await;
            drop(under_way);
        });
        if unconstrained(&mut work).now_or_never().is_none() {
            self.surroundings.runtime.spawn(work);
        }
    }

    /// The connection over which a lock is taken and released, so that the one never overtakes the other.
    pub(crate) fn link_for(&self, terms: &Terms, node: usize) -> &Arc<Link> {
        if terms.session { self.session_link(node) } else { &self.links[node] }
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<Claim, Claimed>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that these keys are wanted or held for this owner, until the claim is given up.
    pub(crate) fn claim(&self, claim: &Claim) {
        self.claims().entry(claim.clone()).or_default().count += 1;
    }

    pub(crate) fn give_up_claim(&self, claim: &Claim) {
        let mut claims = self.claims();
        if let Some(claimed) = claims.get_mut(claim) {
            claimed.count -= 1;
            if claimed.count == 0 {
                claims.remove(claim);
            }
        }
    }

    /// Whether a newer request or guard stands for these keys and this owner: then an old release must not be sent
    /// again, since it would fit the newer one.
    pub(crate) fn is_claimed(&self, claim: &Claim) -> bool {
        self.claims().contains_key(claim)
    }

    pub(crate) fn set_holding(&self, claim: &Claim, holding: &Arc<Holding>) {
        if let Some(claimed) = self.claims().get_mut(claim) {
            claimed.holding = Arc::downgrade(holding);
        }
    }

    pub(crate) fn holding(&self, claim: &Claim) -> Option<Arc<Holding>> {
        self.claims().get(claim).and_then(|claimed| claimed.holding.upgrade())
    }
}

/// Settings of a [`Locker`].
#[derive(Clone, Debug)]
pub struct LockerBuilder {
    nodes: Vec<Node>,
    node_timeout: Duration,
    connect_timeout: Duration,
    max_waits: usize,
    default_ttl: Duration,
}

impl Default for LockerBuilder {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            node_timeout: Duration::from_millis(500),
            connect_timeout: Duration::from_secs(5),
            max_waits: 1024,
            default_ttl: Duration::from_secs(30),
        }
    }
}

impl LockerBuilder {
    /// Adds a node by its URL (see [`Node::new`]). One node is a plain lock; three or five survive the loss of one or
    /// two.
    ///
    /// # Errors
    /// [`Error::Configuration`] when the URL cannot be read.
    ///
    /// ```
    /// use redislock_client::Locker;
    ///
    /// assert!(Locker::builder().node("redis://10.0.0.1").is_ok());
    /// assert!(Locker::builder().node("ftp://10.0.0.1").is_err());
    /// ```
    pub fn node(mut self, url: impl AsRef<str>) -> Result<Self, Error> {
        self.nodes.push(Node::new(url.as_ref())?);
        Ok(self)
    }

    /// Adds several nodes by their URLs.
    ///
    /// # Errors
    /// [`Error::Configuration`] when a URL cannot be read.
    ///
    /// ```
    /// let urls = ["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"];
    /// assert!(redislock_client::Locker::builder().nodes(urls).is_ok());
    /// ```
    pub fn nodes<U: AsRef<str>>(self, urls: impl IntoIterator<Item = U>) -> Result<Self, Error> {
        urls.into_iter().try_fold(self, LockerBuilder::node)
    }

    /// The longest that one node is waited for in one round, 500 ms where not set. It should be well above the
    /// slowest healthy round trip and small beside the ttl: for a request it is never more than a quarter of the ttl.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let builder = redislock_client::Locker::builder().node_timeout(Duration::from_millis(50));
    /// # let _ = builder;
    /// ```
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// The longest that making a connection may take, name resolution included; 5 s where not set. A round does not
    /// wait for it longer than for anything else.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let builder = redislock_client::Locker::builder().connect_timeout(Duration::from_secs(1));
    /// # let _ = builder;
    /// ```
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How many requests may wait in servers at the same time, 1024 where not set: each has a connection of its own.
    /// Further ones wait here for one of them to end, within their own limits.
    ///
    /// ```
    /// let builder = redislock_client::Locker::builder().max_waits(100);
    /// # let _ = builder;
    /// ```
    pub fn max_waits(mut self, requests: usize) -> Self {
        self.max_waits = requests;
        self
    }

    /// The ttl of requests that name none, 30 s where not set.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let builder = redislock_client::Locker::builder().default_ttl(Duration::from_secs(10));
    /// # let _ = builder;
    /// ```
    pub fn default_ttl(mut self, ttl: Duration) -> Self {
        self.default_ttl = ttl;
        self
    }

    /// Makes the locker. It lives on the runtime that this is called on.
    ///
    /// # Errors
    /// [`Error::Configuration`] when no node is given, a setting is zero, or there is no tokio runtime here.
    ///
    /// ```
    /// use redislock_client::{Error, Locker};
    ///
    /// assert!(matches!(Locker::builder().build(), Err(Error::Configuration(_))));
    /// ```
    pub fn build(self) -> Result<Locker, Error> {
        let wrong = |what: &str| Err(Error::Configuration(what.into()));
        if self.nodes.is_empty() {
            return wrong("a locker needs at least one node");
        }
        if self.node_timeout.is_zero() || self.connect_timeout.is_zero() || self.max_waits == 0 {
            return wrong("node timeout, connect timeout and the number of waits must not be zero");
        }
        let Ok(runtime) = Handle::try_current() else {
            return wrong("a locker is built inside a tokio runtime");
        };
        let surroundings = Arc::new(Surroundings {
            runtime,
            node_timeout: self.node_timeout,
            connect_timeout: self.connect_timeout,
            waits: Arc::new(Semaphore::new(self.max_waits.min(Semaphore::MAX_PERMITS))),
            identities: Identities::new(self.nodes.len()),
        });
        let link = |(index, node)| Link::new(index, node, surroundings.clone());
        let quorum = Quorum::of(self.nodes.len());
        let core = Core {
            quorum,
            session_links: self.nodes.iter().map(|_| OnceLock::new()).collect(),
            links: self.nodes.into_iter().enumerate().map(link).collect(),
            keeper: Keeper::new(surroundings.runtime.clone()),
            surroundings,
            contention: Contention::new(),
            highest_fence: AtomicU64::new(0),
            lead: AtomicU64::new(0),
            default_ttl: self.default_ttl,
            background: watch::Sender::new(0),
            claims: Mutex::default(),
        };
        Ok(Locker { core: Arc::new(core) })
    }
}
