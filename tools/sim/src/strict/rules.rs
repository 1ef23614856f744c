//! Names of the strict mode rules that the engines check. Stable: tests compare them.

/// The send doorbell named a WQE that dword 1 of the doorbell record does not cover, but dword 0 does: the producer
/// counter was written to the receive queue's dword.
pub const RECORD_IN_WRONG_SLOT: &str = "doorbell record in the wrong slot";
/// A doorbell record that makes sense only with its bytes swapped.
pub const RECORD_LITTLE_ENDIAN: &str = "doorbell record little-endian";
/// The send doorbell named a WQE that the doorbell record does not cover: the record was written after the doorbell, or
/// not.
pub const RECORD_NOT_WRITTEN: &str = "doorbell record not written before the doorbell";
/// A send doorbell for a queue pair that does not exist, or does not use that UAR page.
pub const UNKNOWN_QP: &str = "doorbell for an unknown queue pair";
/// A send doorbell for a queue pair in RST, INIT or RTR.
pub const WRONG_STATE: &str = "post in a wrong state";
/// The doorbell's eight bytes are not the first eight of the WQE in the ring, by which it is carried out. What follows
/// them in a BlueFlame copy is [`RULE_COPY`](crate::bar::RULE_COPY)'s.
pub const DOORBELL_DIFFERS: &str = "doorbell differs from the WQE in the ring";
/// `wqe_index` is not the WQE's place in the ring.
pub const WQE_INDEX: &str = "wqe_index is not the WQE's place";
/// `qp_or_sq` names another queue pair.
pub const WQE_QPN: &str = "WQE names another queue pair";
/// `ds` counts more segments than were posted, or too few for the opcode.
pub const WQE_SIZE: &str = "ds does not fit the WQE";
/// A reserved bit of a control segment is set.
pub const WQE_RESERVED: &str = "reserved bits set in a WQE";
/// A WQE with an opcode that the queue pair does not take.
pub const WQE_OPCODE: &str = "opcode not supported";
/// More posted to a send queue than fits: WQEs were overwritten before the card was done with them.
pub const SEND_OVERRUN: &str = "send queue overrun";
/// More posted to a receive queue than fits.
pub const RECEIVE_OVERRUN: &str = "receive queue overrun";
/// A receive buffer was posted while it was posted already. Programs may mean it, so it is looked for only if strict
/// mode [watches receives](crate::strict::Strict::watch_receives).
pub const RECEIVE_TWICE: &str = "receive buffer posted twice";
/// A data segment of zero bytes, which means 2 GiB.
pub const ZERO_SEGMENT: &str = "data segment of zero bytes means 2 GiB";
/// More was posted to a queue pair after its error completion than its ring holds: software reused places whose
/// completions said that the queue pair is in error.
pub const ERROR_IGNORED: &str = "error completion ignored";
/// A key that does not allow what a WQE or a remote request wants.
pub const KEY: &str = "key does not allow the access";
/// A WQE would change a key in a way that the key, or who made it, does not allow.
pub const UMR: &str = "key update not allowed";
/// The data of a send changed between its first transmission and a repeated one, or its completion.
pub const BUFFER_CHANGED: &str = "send buffer changed before its completion";
/// The entry to be written next is marked as the card's already: software changed its ownership bit.
pub const STALE_OWNER: &str = "stale owner bit";
/// A completion came while the queue was full.
pub const CQ_OVERRUN: &str = "CQ overrun";
/// The doorbell record's consumer index has never been written, though the queue ran full, or software replaced WQEs
/// whose completions it must have seen: more than half a queue of them.
pub const CI_NEVER_PUBLISHED: &str = "consumer index never published";
/// The consumer index is more than half a queue behind the completions whose WQEs software replaced.
pub const CI_BEHIND: &str = "consumer index not published";
/// A CQ was armed, and armed again, and the doorbell record does not hold the consumer index of the first time yet.
pub const CI_NOT_IN_RECORD: &str = "armed with a consumer index that is not published";
/// The consumer index went back.
pub const CI_BACKWARDS: &str = "consumer index went backwards";
/// The consumer index is ahead of the producer.
pub const CI_AHEAD: &str = "consumer index ahead of the producer";
/// An arm request for a completion queue that does not exist, or does not use that UAR page.
pub const UNKNOWN_CQ: &str = "doorbell for an unknown completion queue";
/// A CQ doorbell armed with a request that the doorbell record does not hold: the record was written after it, or not.
pub const ARM_NOT_IN_RECORD: &str = "arm request not written to the doorbell record";
/// A receive was posted before the queue pair left RST.
pub const RECEIVE_IN_RST: &str = "receive posted in RST";
/// An event came while the event queue was full.
pub const EQ_OVERRUN: &str = "EQ overrun";
/// An event queue's consumer index went back, or ahead of the producer.
pub const EQ_CI: &str = "EQ consumer index is wrong";
/// A doorbell for an event queue that does not exist, or does not use that UAR page.
pub const UNKNOWN_EQ: &str = "doorbell for an unknown event queue";
/// A frame longer than the port's MTU, sent or received: the port drops it.
pub const FRAME_TOO_LONG: &str = "frame longer than the port's MTU";
/// A queue pair sends from a GID index that is empty.
pub const EMPTY_GID: &str = "source GID index is empty";
