//! One connection, to a server or to a cluster.

use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Arg, AsyncConnectionConfig, Cmd, Pipeline, PushInfo, RedisResult, Value};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

use crate::node::{Node, Place, locate};

/// How much may wait to be sent over one connection: without limit. Were there one, a request that found the line full
/// could be overtaken, on its way into it, by the release that comes after it.
const ROOM: usize = Semaphore::MAX_PERMITS;

/// Clones share the connection; it closes when the last one is dropped.
#[derive(Clone)]
pub(crate) enum Wire {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Wire {
    /// Connects. Where `pushes` is given, it is told when the connection ends.
    pub(crate) async fn open(
        node: &Node,
        limit: Duration,
        pushes: Option<UnboundedSender<PushInfo>>,
    ) -> RedisResult<Self> {
        if let Place::Cluster(seeds) = node.place() {
            // Waits may take as long as they like; what is to be quick is bounded by its caller.
            let client = ClusterClient::builder(seeds.clone())
                .connection_timeout(limit)
                .response_timeout(Duration::from_secs(u64::from(u32::MAX)))
                .overall_response_timeout(None)
                .build()?;
            return Ok(Self::Cluster(client.get_async_connection().await?));
        }
        let client = locate(node.place(), pushes.is_some()).await?;
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(limit))
            .set_response_timeout(None)
            .set_pipeline_buffer_size(ROOM);
        if let Some(pushes) = pushes {
            config = config.set_push_sender(pushes);
        }
        Ok(Self::Server(client.get_multiplexed_async_connection_with_config(&config).await?))
    }

    /// Sends commands in one piece; the answers come in the same order, errors of the server among them.
    pub(crate) async fn send(&mut self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        match self {
            Self::Server(connection) => match commands {
                [command] => Ok(vec![connection.send_packed_command(command).await?]),
                commands => {
                    let mut pipeline = Pipeline::with_capacity(commands.len());
                    for command in commands {
                        pipeline.add_command(command.clone());
                    }
                    connection.send_packed_commands(&pipeline, 0, commands.len()).await
                }
            },
            Self::Cluster(connection) => {
                let answers = commands.iter().map(|command| {
                    let mut connection = connection.clone();
                    async move { connection.route_command(command.clone(), route(command)).await }
                });
                join_all(answers).await.into_iter().map(server_error_as_value).collect()
            }
        }
    }
}

/// A cluster connection follows redirections by itself, and reports what else a server says as an error.
fn server_error_as_value(answer: RedisResult<Value>) -> RedisResult<Value> {
    match answer {
        Err(error) => match redis::ServerError::try_from(error) {
            Ok(error) => Ok(Value::ServerError(error)),
            Err(error) => Err(error),
        },
        answer => answer,
    }
}

/// Where in a cluster a command goes: by its first key, which follows the number of keys in commands over several.
fn route(command: &Cmd) -> RoutingInfo {
    let mut args = command.args_iter().filter_map(|arg| match arg {
        Arg::Simple(bytes) => Some(bytes),
        _ => None,
    });
    let name = args.next().unwrap_or_default();
    let key = if name.starts_with(b"LOCK.M") { args.nth(1) } else { args.next() };
    RoutingInfo::SingleNode(match key {
        Some(key) => SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master)),
        None => SingleNodeRoutingInfo::Random,
    })
}

/// Whether a primary found by Sentinel has said that it is none any more: then the Sentinels are to be asked again.
pub(crate) fn has_left_primary(node: &Node, answers: &[Value]) -> bool {
    matches!(node.place(), Place::Sentinel { .. })
        && answers.iter().any(|answer| match answer {
            Value::ServerError(error) => matches!(error.code(), "READONLY" | "UNBLOCKED" | "MASTERDOWN"),
            _ => false,
        })
}
