//! The header between networks.

layout! {
    /// Global route header. IBTA 8.3. Also an IPv6 header, and what lies before a received datagram.
    pub struct Grh: 0x28, "ib_grh" {
        /// 6.
        0x00 [31:28] ip_ver: u8 = 6,
        /// Traffic class.
        0x00 [27:20] t_class: u8,
        /// Flow label.
        0x00 [19:0] flow_label: u32,
        /// Bytes after this header.
        0x04 [31:16] pay_len: u16,
        /// Next header: 0x1b for a [`Bth`](super::Bth), 17 for UDP.
        0x04 [15:8] nxt_hdr: u8,
        /// Hop limit.
        0x04 [7:0] hop_lmt: u8,
        /// Source.
        0x08 sgid: [u8; 16],
        /// Destination.
        0x18 dgid: [u8; 16],
    }
}
