//! Names of the strict mode rules that the engines check. Stable: tests compare them.

/// The doorbell record's dword 0 covers the WQE of the send doorbell, but dword 1 does not: the producer index was
/// written to the receive queue's dword. PRM "Doorbell Record".
pub const RECORD_IN_WRONG_SLOT: &str = "doorbell record in the wrong slot";
/// A doorbell record that is only valid with its bytes swapped.
pub const RECORD_LITTLE_ENDIAN: &str = "doorbell record little-endian";
/// The doorbell record does not cover the WQE of the send doorbell: it was written after the doorbell, or not at all.
pub const RECORD_NOT_WRITTEN: &str = "doorbell record not written before the doorbell";
/// A send doorbell for a queue pair that does not exist, or does not use that UAR page.
pub const UNKNOWN_QP: &str = "doorbell for an unknown queue pair";
/// A send doorbell for a queue pair in RST, INIT or RTR, or a send queue in reset.
pub const WRONG_STATE: &str = "post in a wrong state";
/// The doorbell's eight bytes differ from the first eight of the WQE in the ring, which is executed. The rest of a
/// BlueFlame copy is checked by [`RULE_COPY`](crate::bar::RULE_COPY).
pub const DOORBELL_DIFFERS: &str = "doorbell differs from the WQE in the ring";
/// `wqe_index` is not the WQE's index in the ring. PRM "Control Segment".
pub const WQE_INDEX: &str = "wqe_index is not the WQE's place";
/// `qp_or_sq` is another queue's number. PRM "Control Segment".
pub const WQE_QPN: &str = "WQE names another queue pair";
/// `ds` is larger than what was posted, or too small for the opcode. PRM "Control Segment".
pub const WQE_SIZE: &str = "ds does not fit the WQE";
/// A reserved bit of a control segment is set.
pub const WQE_RESERVED: &str = "reserved bits set in a WQE";
/// The queue pair does not support the WQE's opcode. PRM "Send WQE opcodes".
pub const WQE_OPCODE: &str = "opcode not supported";
/// The software parser's offsets in an Ethernet segment name no such headers, or the queue has no `allow_swp`.
pub const SOFTWARE_PARSER: &str = "software parser's offsets name no such headers";
/// A large send of UDP whose header does not have the length of each datagram, `mss` and 8, or whose last datagram is
/// shorter: the card does not set the length.
pub const UDP_LENGTH: &str = "UDP length of a large send is not that of its datagrams";
/// More WQEBBs posted than the send queue has: WQEs were overwritten before they completed.
pub const SEND_OVERRUN: &str = "send queue overrun";
/// More WQEs posted than the receive queue has.
pub const RECEIVE_OVERRUN: &str = "receive queue overrun";
/// A receive buffer was posted while already posted. It may be intended, so it is checked only if strict mode [watches
/// receives](crate::strict::Strict::watch_receives).
pub const RECEIVE_TWICE: &str = "receive buffer posted twice";
/// The WQE of a striding receive queue that a packet is for has no buffer: its segments are not where the card reads
/// them. PRM "Striding RQ".
pub const NO_BUFFER: &str = "receive WQE without a buffer";
/// A data segment of zero bytes, which means 2 GiB.
pub const ZERO_SEGMENT: &str = "data segment of zero bytes means 2 GiB";
/// After its error completion, more WQEs were posted to a queue than its ring holds: software ignores that the queue is
/// in error.
pub const ERROR_IGNORED: &str = "error completion ignored";
/// The key does not allow the access of a WQE or of a remote request.
pub const KEY: &str = "key does not allow the access";
/// A work request met absent pages, and its transport cannot wait for them, or no event queue takes page faults.
pub const ABSENT: &str = "memory is absent, and nobody is told";
/// A UMR WQE changes a key in a way that is not allowed.
pub const UMR: &str = "key update not allowed";
/// The message behind a UMR WQE has no fence (`fm`) and was posted before that completed: it may overtake the change of
/// the key. Linux and libmlx5 give it the small initiator fence. PRM "Control Segment".
pub const KEY_FENCE: &str = "no fence behind a key update";
/// The data of a send changed between its first transmission and a retransmission or its completion.
pub const BUFFER_CHANGED: &str = "send buffer changed before its completion";
/// Not all entries of a CQ's ring are invalid when the first one is written. PRM "CQE Format".
pub const RING_NOT_INITIALISED: &str = "CQE ring not initialised";
/// The next CQE to be written already has the card's ownership bit: software changed it. PRM "CQE Format".
pub const STALE_OWNER: &str = "stale owner bit";
/// A completion arrived while the queue was full.
pub const CQ_OVERRUN: &str = "CQ overrun";
/// The doorbell record's consumer index was never written, although the queue ran full, or software reused WQEs whose
/// completions it must have seen: more than half a queue of them.
pub const CI_NEVER_PUBLISHED: &str = "consumer index never published";
/// The consumer index is more than half a queue behind the completions whose WQEs software reused.
pub const CI_BEHIND: &str = "consumer index not published";
/// A CQ was armed twice, and the doorbell record does not have the consumer index of the first time.
pub const CI_NOT_IN_RECORD: &str = "armed with a consumer index that is not published";
/// The consumer index decreased.
pub const CI_BACKWARDS: &str = "consumer index went backwards";
/// The consumer index is ahead of the producer.
pub const CI_AHEAD: &str = "consumer index ahead of the producer";
/// An arm request for a completion queue that does not exist, or does not use that UAR page.
pub const UNKNOWN_CQ: &str = "doorbell for an unknown completion queue";
/// The doorbell record does not have the arm request of a CQ doorbell: it was written after the doorbell, or not at
/// all.
pub const ARM_NOT_IN_RECORD: &str = "arm request not written to the doorbell record";
/// A receive was posted before the queue pair left RST.
pub const RECEIVE_IN_RST: &str = "receive posted in RST";
/// An event occurred while the event queue was full.
pub const EQ_OVERRUN: &str = "EQ overrun";
/// An event queue's consumer index decreased, or is ahead of the producer.
pub const EQ_CI: &str = "EQ consumer index is wrong";
/// A doorbell for an event queue that does not exist, or does not use that UAR page.
pub const UNKNOWN_EQ: &str = "doorbell for an unknown event queue";
/// A frame longer than the port's MTU was sent or received; the port drops it.
pub const FRAME_TOO_LONG: &str = "frame longer than the port's MTU";
/// A command's input is shorter than its layout, and no older edition of it is known to be as short: what it lacks is
/// taken as zero.
pub const INPUT_SHORT: &str = "command input shorter than its layout";
/// A command's output says more than the driver left room for.
pub const OUTPUT_CUT: &str = "command output cut off";
/// A queue pair sends from an empty GID table entry.
pub const EMPTY_GID: &str = "source GID index is empty";
/// A receive of a queue whose TIR joins segments is shorter than what it may join (`lro_max_ip_payload_size`): a
/// longer packet breaks the queue.
pub const LRO_ROOM: &str = "receive shorter than joined segments may be";
/// Flow tables have a frame go to so many destinations that it is dropped: each table leads to many others.
pub const STEERING: &str = "flow tables multiply a frame without end";
