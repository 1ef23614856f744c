//! Options of a stack, and the attributes that Ceph gives each queue pair.

use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, RtsAttributes};
use mlx5_dv::queue::{ConnectionOptions, HubOptions};
use mlx5_prm::values::PathMtu;

/// Options of a [`Stack`](super::Stack). Named after Ceph's own (`src/common/options/global.yaml.in`,
/// `ms_async_rdma_*`), whose defaults they have but for fewer chunks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StackOptions {
    /// Bytes of a chunk: no less than the other end's, whose messages are as long. Default: 128 KiB.
    pub buffer_size: usize,
    /// Chunks of all streams together that are sent from. Default: 128.
    pub send_buffers: u32,
    /// Chunks that are posted for receives, and shared by all streams. Default: 255.
    pub receive_queue_len: u32,
    /// Maximum number of streams, at most 16384. Default: 256.
    pub streams: u32,
    /// Chunks of one stream that may be under way, where those of others leave as many. Default: 32.
    pub send_depth: u32,
    /// How long the other end may take none of a stream's sends while some are under way; the stream fails then, at
    /// most an eighth of it later. Default: 40 s, as long as a messenger's end may be silent.
    pub send_timeout: Duration,
    /// Index of the local GID. Default: 0.
    pub gid_index: u8,
    /// Service level: the Ethernet priority. Default: 3.
    pub service_level: u8,
    /// Traffic class: DSCP and ECN. Default: 96.
    pub traffic_class: u8,
    /// Whether [`Stack::wait`](super::Stack::wait) sleeps until the card interrupts. Default: no.
    pub events: bool,
    /// How long an exchange may take. Default: 10 s.
    pub patience: Duration,
}

impl Default for StackOptions {
    fn default() -> Self {
        StackOptions {
            buffer_size: 128 << 10,
            send_buffers: 128,
            receive_queue_len: 255,
            streams: 256,
            send_depth: 32,
            send_timeout: Duration::from_secs(40),
            gid_index: 0,
            service_level: 3,
            traffic_class: 96,
            events: false,
            patience: Duration::from_secs(10),
        }
    }
}

impl StackOptions {
    /// Attributes as `src/msg/async/rdma/Infiniband.cc` has them (`modify_qp_to_rtr`, `modify_qp_to_rts`): the other
    /// end has the same, whatever the port can. The timers are those of Ceph's first versions, 67 and 0.64 ms. Ceph
    /// 18.2 writes 0x12 for both, 1.07 s and 5.12 ms: what a lost frame costs that no NAK tells of.
    pub(super) fn hub(&self) -> HubOptions {
        let mut each = ConnectionOptions::default();
        // One more than is used: the beacon always has room.
        each.send_depth = self.send_depth + 2;
        each.events = self.events;
        each.gid_index = self.gid_index;
        each.service_level = self.service_level;
        each.traffic_class = self.traffic_class;
        // Nobody reads or writes remote memory here.
        each.remote_access = AccessFlags::empty();
        each.path_mtu = Some(PathMtu::Mtu1024);
        each.min_rnr_timer = 12;
        // The card never gives up an end that posts no receives: `send_timeout` does.
        each.rts = RtsAttributes {
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            max_rd_atomic: Some(1),
            ..RtsAttributes::new(0)
        };
        let mut hub = HubOptions::default();
        hub.connections = self.streams;
        hub.receives = self.receive_queue_len;
        hub.spares = self.send_buffers;
        hub.message_bytes = self.buffer_size;
        hub.each = each;
        hub
    }
}
