//! Kinds of nodes: sockets, logins, RESP3, clusters, primaries behind Sentinel.

mod support;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redislock_client::{Error, Guard, Locker, Released};
use redislock_testkit::{Cluster, Server, Version};
use support::*;

async fn works_over(url: &str) -> Guard {
    let locker = Locker::builder().node(url).unwrap().build().unwrap();
    let guard = locker.lock("k").ttl(ms(5000)).acquire_within(ms(3000)).await.unwrap();
    assert!(matches!(locker.lock("k").try_acquire().await, Err(Error::Refused { .. })), "{url}");
    assert!(guard.renew().await.is_ok(), "{url}");
    let request = locker.lock("k");
    let waiter = tokio::spawn(async move { request.acquire_within(ms(3000)).await });
    tokio::time::sleep(ms(50)).await;
    assert_eq!(guard.release().await.unwrap(), Released::Freed, "{url}");
    waiter.await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_logins_databases_and_protocols() {
    let dir = std::env::temp_dir().join(format!("redislock-socket-{}", std::process::id()));
    let settings = settings(Version::Redis70).requires_password("secret").config("unixsocket", dir.display());
    let server = settings.start();
    let port = server.port();
    drop(works_over(&format!("redis://:secret@127.0.0.1:{port}/2")).await);
    drop(works_over(&format!("redis://default:secret@127.0.0.1:{port}/?protocol=resp3")).await);
    drop(works_over(&format!("unix://{}?pass=secret", dir.display())).await);
    let wrong = format!("redis://:wrong@127.0.0.1:{port}");
    let locker = Locker::builder().node(&wrong).unwrap().build().unwrap();
    assert!(matches!(locker.lock("k").try_acquire().await, Err(Error::NoQuorum { .. })));
    let _ = std::fs::remove_file(dir);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_votes_as_one_node() {
    let module = module();
    let cluster = Cluster::start_with(Version::Redis70, 3, |builder| builder.module(&module));
    let seeds: Vec<_> = cluster.nodes().iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redis-cluster://{}", seeds.join(","));
    drop(works_over(&url).await);
    let locker = Locker::builder().node(&url).unwrap().build().unwrap();
    let together = locker.lock_all(["{t}a", "{t}b"]).acquire().await.unwrap();
    assert_eq!(together.release().await.unwrap(), Released::Freed);
    let apart = locker.lock_all(["a", "b"]).try_acquire().await;
    assert!(matches!(&apart, Err(Error::Rejected { .. })), "{apart:?}");
    for key in 0..20 {
        let guard = locker.lock(format!("k{key}")).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
}

/// A Sentinel process that ends with the test.
struct Sentinel {
    child: Child,
    port: u16,
}

impl Sentinel {
    fn start(primary: &Server) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = primary.dir().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n",
            primary.port()
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(Version::Redis70.binary());
        command.arg(&config).arg("--sentinel").stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: command.spawn().unwrap(), port }
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b83_a_primary_found_by_sentinel_is_followed_through_a_failover() {
    let primary = server();
    let replica = settings(Version::Redis70).replica_of(&primary).start();
    redislock_testkit::wait_in_sync(&primary, &replica);
    let sentinel = Sentinel::start(&primary);
    let url = format!("redis-sentinel://127.0.0.1:{}/main", sentinel.port);
    let locker = Locker::builder().node(&url).unwrap().build().unwrap();
    let guard = locker.lock("k").ttl(ms(20_000)).acquire_within(ms(10_000)).await.unwrap();
    // The replica has the grant before the primary dies.
    eventually(ms(3000), "replicated", || is_locked(&replica, "k")).await;
    // It takes the Sentinel a while to learn of the replica.
    tokio::time::sleep(Duration::from_secs(11)).await;
    primary.kill9();
    // The Sentinel cuts the connections of the server that it promotes.
    let role = || replica.try_connect().and_then(|mut client| client.try_cmd(&["ROLE"]));
    eventually(ms(20_000), "the replica is promoted", || {
        role().is_ok_and(|role| role.array()[0].text() == "master")
    })
    .await;
    // Held at the new primary, or not found yet: granted in neither case.
    assert!(locker.lock("k").acquire_within(ms(1000)).await.is_err_and(|error| error.is_retryable()));
    let renewed = async {
        loop {
            match guard.renew().await {
                Ok(_) => return,
                Err(Error::NoQuorum { .. }) => tokio::time::sleep(ms(100)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    tokio::time::timeout(ms(8000), renewed).await.expect("the guard goes on at the new primary");
    assert_eq!(guard.release().await.unwrap(), Released::Freed);
    let next = locker.lock("k").acquire_within(ms(1000)).await.unwrap();
    assert!(next.fence() > guard.fence());
}
