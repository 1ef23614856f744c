//! Named values of fields that several layouts share.

values! {
    /// State of a queue pair. PRM `qpc.state`.
    pub enum QpState: 4 {
        /// Reset.
        Rst = 0 "RST",
        /// Initialised: receives may be posted.
        Init = 1 "INIT",
        /// Ready to receive.
        Rtr = 2 "RTR",
        /// Ready to send.
        Rts = 3 "RTS",
        /// The send queue failed.
        Sqer = 4 "SQER",
        /// The send queue is drained.
        Sqd = 5 "SQD",
        /// Error: everything posted is flushed.
        Err = 6 "ERR",
        /// The send queue is draining. `mlx5_ifc.h` calls this number SQD.
        SqDraining = 7 "SQ_DRAINING",
        /// Suspended.
        Suspended = 9 "SUSPENDED",
    }

    /// Transport service of a queue pair. PRM `qpc.st`.
    pub enum ServiceType: 8 {
        /// Reliable connection.
        Rc = 0 "RC",
        /// Unreliable connection.
        Uc = 1 "UC",
        /// Unreliable datagram.
        Ud = 2 "UD",
        /// Extended reliable connection.
        Xrc = 3 "XRC",
        /// Raw packets with headers built by software.
        Mlx = 4 "MLX",
        /// Dynamically connected, initiator.
        Dci = 5 "DCI",
        /// Dynamically connected, target.
        Dct = 6 "DCT",
        /// Subnet management.
        Qp0 = 7 "QP0",
        /// General services.
        Qp1 = 8 "QP1",
        /// Raw Ethernet.
        RawEthertype = 9 "RAW_ETHERTYPE",
        /// Raw IPv6.
        RawIpv6 = 0xa "RAW_IPV6",
        /// Sniffer.
        Sniffer = 0xb "SNIFFER",
        /// Memory registration by work request.
        RegUmr = 0xc "REG_UMR",
        /// Precision time protocol.
        Ptp1588 = 0xd "PTP_1588",
        /// Memory registration by work request, synchronised.
        SyncUmr = 0xe "SYNC_UMR",
    }

    /// Path migration state. PRM `qpc.pm_state`.
    pub enum PathMigration: 2 {
        /// Armed.
        Armed = 0 "ARMED",
        /// To be rearmed.
        Rearm = 1 "REARM",
        /// Migrated: the only state of a RoCE queue pair.
        Migrated = 3 "MIGRATED",
    }

    /// Path MTU. PRM `qpc.mtu`.
    pub enum PathMtu: 3 {
        /// 256 bytes.
        Mtu256 = 1 "256_BYTES",
        /// 512 bytes.
        Mtu512 = 2 "512_BYTES",
        /// 1024 bytes.
        Mtu1024 = 3 "1K_BYTES",
        /// 2048 bytes.
        Mtu2048 = 4 "2K_BYTES",
        /// 4096 bytes.
        Mtu4096 = 5 "4K_BYTES",
    }
}

impl PathMtu {
    /// Payload bytes of a full packet; `None` for an unknown number.
    pub const fn bytes(self) -> Option<u32> {
        match self {
            PathMtu::Unknown(_) => None,
            known => Some(128 << known.number()),
        }
    }

    /// The MTU of exactly `bytes`.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            256 => Some(PathMtu::Mtu256),
            512 => Some(PathMtu::Mtu512),
            1024 => Some(PathMtu::Mtu1024),
            2048 => Some(PathMtu::Mtu2048),
            4096 => Some(PathMtu::Mtu4096),
            _ => None,
        }
    }
}
