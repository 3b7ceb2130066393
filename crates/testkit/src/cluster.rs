//! A cluster on loopback.

use crc::{CRC_16_XMODEM, Crc};
use std::time::Duration;

use crate::builder::Builder;
use crate::client::Client;
use crate::cmd;
use crate::server::Server;
use crate::version::Version;
use crate::wait::eventually;

const SLOTS: usize = 16_384;
const PATIENCE: Duration = Duration::from_secs(60);

/// Some primaries that share the slots evenly.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts `count` primaries with the module and waits until all slots are served.
    ///
    /// # Panics
    /// When that takes more than a minute.
    #[track_caller]
    pub fn start(version: Version, count: usize) -> Cluster {
        Self::start_with(version, count, |builder| builder)
    }

    /// As [`Cluster::start`], with settings of your own on each node.
    ///
    /// # Panics
    /// When that takes more than a minute.
    #[track_caller]
    pub fn start_with(version: Version, count: usize, settings: impl Fn(Builder) -> Builder) -> Cluster {
        let nodes: Vec<_> =
            (0..count).map(|_| settings(Server::builder(version).cluster()).start()).collect();
        for (index, node) in nodes.iter().enumerate() {
            let mut client = node.connect();
            cmd!(client, "CLUSTER", "SET-CONFIG-EPOCH", index + 1).ok();
            let mut args = vec!["CLUSTER".to_owned(), "ADDSLOTS".to_owned()];
            args.extend((SLOTS * index / count..SLOTS * (index + 1) / count).map(|slot| slot.to_string()));
            client.cmd(&args).ok();
            for peer in &nodes[..index] {
                cmd!(client, "CLUSTER", "MEET", "127.0.0.1", peer.port()).ok();
            }
        }
        let cluster = Cluster { nodes };
        cluster.wait_until_ok();
        cluster
    }

    /// Waits until every node knows every other and all slots are served.
    ///
    /// # Panics
    /// When that takes more than a minute.
    #[track_caller]
    pub fn wait_until_ok(&self) {
        let known = format!("cluster_known_nodes:{}\r\n", self.nodes.len());
        for node in &self.nodes {
            let mut client = node.connect();
            eventually(PATIENCE, || {
                let info = cmd!(client, "CLUSTER", "INFO");
                info.text().contains("cluster_state:ok") && info.text().contains(&known)
            });
        }
    }

    /// The nodes.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }

    /// One node.
    ///
    /// # Panics
    /// When there are fewer.
    pub fn node(&self, index: usize) -> &Server {
        &self.nodes[index]
    }

    /// The index of the node that serves a slot, as the node itself sees it.
    ///
    /// # Panics
    /// When none does.
    #[track_caller]
    pub fn node_for_slot(&self, slot: u16) -> usize {
        let serves = |node: &Server| {
            let slots = cmd!(node.connect(), "CLUSTER", "SLOTS");
            slots.array().iter().any(|range| {
                let range = range.array();
                (range[0].int()..=range[1].int()).contains(&i64::from(slot))
                    && range[2].array()[1].int() == i64::from(node.port())
            })
        };
        match self.nodes.iter().position(serves) {
            Some(index) => index,
            None => panic!("no node serves slot {slot}"),
        }
    }

    /// The index of the node that serves a key.
    ///
    /// # Panics
    /// When none does.
    #[track_caller]
    pub fn node_for_key(&self, key: impl AsRef<[u8]>) -> usize {
        self.node_for_slot(slot_of(key))
    }

    /// Moves a slot with all its keys to another node. Returns how many keys.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn migrate_slot(&self, slot: u16, from: usize, to: usize) -> usize {
        self.begin_migration(slot, from, to);
        let keys = self.migrate_keys(slot, from, to);
        self.finish_migration(slot, from, to);
        keys
    }

    /// The first step of moving a slot: its keys may be on either node now, and the source answers ASK for missing ones.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn begin_migration(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (self.id(from), self.id(to));
        cmd!(self.nodes[to].connect(), "CLUSTER", "SETSLOT", slot, "IMPORTING", source).ok();
        cmd!(self.nodes[from].connect(), "CLUSTER", "SETSLOT", slot, "MIGRATING", target).ok();
    }

    /// The second step of moving a slot: all its keys move, one at a time. Returns how many.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn migrate_keys(&self, slot: u16, from: usize, to: usize) -> usize {
        let mut source = self.nodes[from].connect();
        let mut moved = 0;
        loop {
            let keys = cmd!(source, "CLUSTER", "GETKEYSINSLOT", slot, 100);
            if keys.array().is_empty() {
                return moved;
            }
            for key in keys.array() {
                let reply =
                    cmd!(source, "MIGRATE", "127.0.0.1", self.nodes[to].port(), key.bytes(), 0, 10_000);
                assert!(!reply.is_error(), "MIGRATE {key:?}: {reply:?}");
                moved += usize::from(reply.text() == "OK");
            }
        }
    }

    /// The last step of moving a slot: every node is told, the target first.
    ///
    /// # Panics
    /// When a node refuses.
    #[track_caller]
    pub fn finish_migration(&self, slot: u16, from: usize, to: usize) {
        let target = self.id(to);
        let rest = (0..self.nodes.len()).filter(|index| *index != from && *index != to);
        for index in [to, from].into_iter().chain(rest) {
            cmd!(self.nodes[index].connect(), "CLUSTER", "SETSLOT", slot, "NODE", &target).ok();
        }
    }

    #[track_caller]
    fn id(&self, index: usize) -> String {
        cmd!(self.nodes[index].connect(), "CLUSTER", "MYID").text().to_owned()
    }

    /// A connection to the node that serves a key.
    ///
    /// # Panics
    /// When none does.
    #[track_caller]
    pub fn connect_for(&self, key: impl AsRef<[u8]>) -> Client {
        self.nodes[self.node_for_key(key)].connect()
    }
}

static CRC: Crc<u16> = Crc::<u16>::new(&CRC_16_XMODEM);

/// The slot of a key: of what stands between its first braces, where they hold something.
pub fn slot_of(key: impl AsRef<[u8]>) -> u16 {
    let key = key.as_ref();
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let length = rest.iter().position(|byte| *byte == b'}')?;
        (length > 0).then(|| &rest[..length])
    });
    CRC.checksum(tag.unwrap_or(key)) % 16_384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(CRC.checksum(b"123456789"), 0x31C3);
        assert_eq!(slot_of("foo"), 12182);
        assert_eq!(slot_of("{foo}bar"), slot_of("foo"));
        assert_eq!(slot_of("foo{}{bar}"), CRC.checksum(b"foo{}{bar}") % 16_384);
        assert_eq!(slot_of("{{bar}}"), slot_of("{bar"));
    }
}
