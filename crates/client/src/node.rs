//! Where a node is.

use std::fmt;
use std::str::FromStr;

use redis::io::tcp::TcpSettings;
use redis::sentinel::{Sentinel, SentinelNodeConnectionInfo};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

use crate::error::Error;

const SENTINEL_SCHEME: &str = "redis-sentinel://";
const CLUSTER_SCHEME: &str = "redis-cluster://";

/// One voter: a server, the primary that a group of Sentinels names, or a whole cluster.
///
/// ```
/// use redislock_client::Node;
///
/// let plain: Node = "redis://user:secret@10.0.0.1:6379/2?protocol=resp3".parse()?;
/// let socket: Node = "unix:///run/redis/redis.sock".parse()?;
/// let primary: Node = "redis-sentinel://10.0.0.1:26379,10.0.0.2:26379/mymaster".parse()?;
/// let cluster: Node = "redis-cluster://10.0.0.1:7000,10.0.0.2:7000".parse()?;
/// assert!("http://10.0.0.1".parse::<Node>().is_err());
/// // A password is never shown.
/// assert_eq!(plain.to_string(), "redis://10.0.0.1:6379/2");
/// # Ok::<(), redislock_client::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Node {
    place: Place,
}

#[derive(Clone, Debug)]
pub(crate) enum Place {
    Server(ConnectionInfo),
    Sentinel { sentinels: Vec<ConnectionInfo>, service: String, login: RedisConnectionInfo },
    Cluster(Vec<ConnectionInfo>),
}

impl Node {
    /// A node by its URL.
    ///
    /// - `redis://[user:password@]host[:port][/db][?protocol=resp3]`, `rediss://` for TLS (feature `tls`)
    /// - `unix:///path/to/socket[?db=n&user=u&pass=p]`
    /// - `redis-sentinel://[user:password@]host:port,host:port/service[/db]`: the primary that the Sentinels name at
    ///   each connection; the login is for the primary
    /// - `redis-cluster://[user:password@]host:port,host:port`: the cluster votes as one node
    ///
    /// # Errors
    /// [`Error::Configuration`] when it cannot be read.
    ///
    /// ```
    /// assert!(redislock_client::Node::new("redis://127.0.0.1:6379").is_ok());
    /// ```
    pub fn new(url: &str) -> Result<Self, Error> {
        let place = if let Some(rest) = url.strip_prefix(SENTINEL_SCHEME) {
            sentinel(rest)?
        } else if let Some(rest) = url.strip_prefix(CLUSTER_SCHEME) {
            let (login, hosts) = split_login(rest);
            Place::Cluster(servers(login, hosts.trim_end_matches('/'))?)
        } else {
            Place::Server(server(url)?)
        };
        Ok(Self { place })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }
}

impl FromStr for Node {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self, Error> {
        Self::new(url)
    }
}

/// The address, without a login.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Server(info) => show_server(f, info),
            Place::Sentinel { sentinels, service, .. } => {
                f.write_str(SENTINEL_SCHEME)?;
                show_list(f, sentinels)?;
                write!(f, "/{service}")
            }
            Place::Cluster(seeds) => {
                f.write_str(CLUSTER_SCHEME)?;
                show_list(f, seeds)
            }
        }
    }
}

fn show_server(f: &mut fmt::Formatter<'_>, info: &ConnectionInfo) -> fmt::Result {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => write!(f, "redis://{host}:{port}")?,
        ConnectionAddr::TcpTls { host, port, .. } => write!(f, "rediss://{host}:{port}")?,
        other => write!(f, "unix://{other}")?,
    }
    match info.redis_settings().db() {
        0 => Ok(()),
        db => write!(f, "/{db}"),
    }
}

fn show_list(f: &mut fmt::Formatter<'_>, servers: &[ConnectionInfo]) -> fmt::Result {
    for (index, info) in servers.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(f, "{comma}{}", info.addr())?;
    }
    Ok(())
}

fn split_login(rest: &str) -> (Option<&str>, &str) {
    match rest.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, rest),
    }
}

fn sentinel(rest: &str) -> Result<Place, Error> {
    let (login, rest) = split_login(rest);
    let mut parts = rest.splitn(3, '/');
    let hosts = parts.next().unwrap_or_default();
    let service = parts.next().unwrap_or_default();
    if service.is_empty() {
        return Err(Error::Configuration("a Sentinel URL ends with /service".into()));
    }
    let db = parts.next().unwrap_or("0");
    let login = server(&format!("redis://{}localhost/{db}", at(login)))?.redis_settings().clone();
    Ok(Place::Sentinel { sentinels: servers(None, hosts)?, service: service.into(), login })
}

fn servers(login: Option<&str>, hosts: &str) -> Result<Vec<ConnectionInfo>, Error> {
    hosts.split(',').map(|host| server(&format!("redis://{}{host}", at(login)))).collect()
}

fn at(login: Option<&str>) -> String {
    login.map(|login| format!("{login}@")).unwrap_or_default()
}

fn server(url: &str) -> Result<ConnectionInfo, Error> {
    let info = url
        .into_connection_info()
        .map_err(|error| Error::Configuration(format!("this node's URL cannot be read: {error}")))?;
    Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

/// Finds the server to connect to now; with `resp3` whatever the URL says, where pushes are needed.
pub(crate) async fn locate(place: &Place, resp3: bool) -> redis::RedisResult<Client> {
    let protocol = |login: &RedisConnectionInfo| match resp3 {
        true => login.clone().set_protocol(ProtocolVersion::RESP3),
        false => login.clone(),
    };
    match place {
        Place::Server(info) => Client::open(info.clone().set_redis_settings(protocol(info.redis_settings()))),
        Place::Sentinel { sentinels, service, login } => {
            let mut sentinel = Sentinel::build(sentinels.clone())?;
            let info = SentinelNodeConnectionInfo::default()
                .set_redis_connection_info(protocol(login))
                .set_tcp_settings(TcpSettings::default().set_nodelay(true));
            sentinel.async_master_for(service, Some(&info)).await
        }
        Place::Cluster(_) => Err(redis::RedisError::from((
            redis::ErrorKind::InvalidClientConfig,
            "a cluster has no single server to connect to",
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_shown_without_secrets() {
        for (url, shown) in [
            ("redis://localhost", "redis://localhost:6379"),
            ("redis://u:p@localhost:1234/3", "redis://localhost:1234/3"),
            ("redis-sentinel://:pw@a:26379,b:26380/main/2", "redis-sentinel://a:26379,b:26380/main"),
            ("redis-cluster://u:p@a:7000,b:7001", "redis-cluster://a:7000,b:7001"),
        ] {
            assert_eq!(Node::new(url).unwrap().to_string(), shown);
        }
        let Place::Sentinel { login, .. } = Node::new("redis-sentinel://:pw@a:1/main/2").unwrap().place
        else {
            panic!("a Sentinel");
        };
        assert_eq!((login.db(), login.password()), (2, Some("pw")));
    }

    #[test]
    fn unreadable_urls_are_a_configuration_error() {
        for url in
            ["", "localhost", "http://localhost", "redis://", "redis-sentinel://a:1", "redis://h:99999"]
        {
            assert!(matches!(Node::new(url), Err(Error::Configuration(_))), "{url}");
        }
    }
}
