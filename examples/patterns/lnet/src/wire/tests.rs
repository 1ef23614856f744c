use proptest::prelude::*;

use super::*;
use crate::nid::Nid;

/// Messages of a C program that was compiled with `o2iblnd-idl.h` and `lnet-idl.h` of Lustre's commit
/// c881f8ebcbd130cf6c2b9e8862582fc5d2da5289, on x86-64: it filled `struct kib_msg` and `struct kib_rej` field by field,
/// with the values of [`spoken`]. NOOP and IMMEDIATE have checksums.
const LAYOUTS: [(&str, &str); 7] = [
    (
        "CONNREQ",
        "911be90b1200c00738000000000000000100000a070005008877665544332211fe00000a0700050000ffeeddccbbaa99\
         0201040300100000",
    ),
    ("NOOP", "911be90b1200d007300000008ab8de580100000a070005008877665544332211fe00000a0700050000ffeeddccbbaa99"),
    (
        "IMMEDIATE",
        "911be90b1200d1077d0000004dd638800100000a070005008877665544332211fe00000a0700050000ffeeddccbbaa99\
         fe00000a070005000100000a0700050039300000393000000100000005000000\
         ffffffffffffffffffffffffffffffff080706050403020118171615141312112423222134333231\
         68656c6c6f",
    ),
    (
        "PUT_REQ",
        "911be90b1200d20780000000000000000100000a070005008877665544332211fe00000a0700050000ffeeddccbbaa99\
         fe00000a070005000100000a0700050039300000393000000100000005000000\
         ffffffffffffffffffffffffffffffff080706050403020118171615141312112423222134333231\
         5857565554535251",
    ),
    (
        "PUT_ACK",
        "911be90b1200d40760000000000000000100000a070005008877665544332211fe00000a0700050000ffeeddccbbaa99\
         5857565554535251686766656463626174737271020000000010000088878685848382810110000089878685848382\
         81",
    ),
    (
        "GET_REQ",
        "911be90b1200d60794000000000000000100000a070005008877665544332211fe00000a0700050000ffeeddccbbaa99\
         fe00000a070005000100000a0700050039300000393000000200000000000000\
         010203040506070811121314151617180807060504030201242322213433323144434241\
         00000000585756555453525174737271010000000010000088878685848382\
         81",
    ),
    (
        "GET_DONE",
        "911be90b1200d7073c000000000000000100000a070005008877665544332211fe00000a0700050000ffeeddccbbaa99\
         5857565554535251c3ffffff",
    ),
];
const REJECT: &str = "911be90b1200070088776655443322110201040300100000";

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn header(message: LnetMessage, payload_length: u32) -> Header {
    Header::new(Nid(0x0005_0007_0a00_0001), Nid(0x0005_0007_0a00_00fe), payload_length, message)
}

fn parameters() -> ConnectionParameters {
    ConnectionParameters { queue_depth: 0x0102, max_fragments: 0x0304, max_message_size: 4096 }
}

/// What the messages of [`LAYOUTS`] say.
fn spoken() -> [Body<'static>; 7] {
    let put = LnetMessage::Put(Put {
        ack: Handle::NONE,
        match_bits: 0x0102_0304_0506_0708,
        hdr_data: 0x1112_1314_1516_1718,
        portal: 0x2122_2324,
        offset: 0x3132_3334,
    });
    let get = LnetMessage::Get(Get {
        reply: Handle { interface: [1, 2, 3, 4, 5, 6, 7, 8], object: [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18] },
        match_bits: 0x0102_0304_0506_0708,
        portal: 0x2122_2324,
        offset: 0x3132_3334,
        sink_length: 0x4142_4344,
    });
    let cookie = 0x5152_5354_5556_5758;
    let fragment = |number: u32| Fragment { len: 4096 + number, addr: 0x8182_8384_8586_8788 + u64::from(number) };
    let descriptor = |count| RdmaDescriptor { key: 0x7172_7374, fragments: (0..count).map(fragment).collect() };
    [
        Body::ConnReq(parameters()),
        Body::Noop,
        Body::Immediate { header: header(put, 5), payload: b"hello" },
        Body::PutReq { header: header(put, 5), cookie },
        Body::PutAck { source_cookie: cookie, sink_cookie: 0x6162_6364_6566_6768, descriptor: descriptor(2) },
        Body::GetReq { header: header(get, 0), cookie, descriptor: descriptor(1) },
        Body::GetDone { cookie, status: crate::status::ENODATA },
    ]
}

fn message(body: Body<'_>) -> Message<'_> {
    Message {
        version: VERSION_2,
        credits: 7,
        source: Nid(0x0005_0007_0a00_0001),
        source_stamp: 0x1122_3344_5566_7788,
        destination: Nid(0x0005_0007_0a00_00fe),
        destination_stamp: 0x99aa_bbcc_ddee_ff00,
        body,
    }
}

#[test]
fn messages_are_those_that_the_c_compiler_makes_of_lustres_headers() {
    for ((name, hex), body) in LAYOUTS.into_iter().zip(spoken()) {
        let sums = matches!(name, "NOOP" | "IMMEDIATE");
        let (theirs, message) = (unhex(hex), message(body));
        assert_eq!(message.to_vec(ByteOrder::Little, sums), theirs, "{name}");
        assert_eq!(Message::decode(&theirs).unwrap(), (message, ByteOrder::Little), "{name}");
    }
    let reject = Reject {
        version: VERSION_2,
        why: RejectReason::MsgQueueSize,
        terms: Some((0x1122_3344_5566_7788, parameters())),
    };
    assert_eq!(reject.encode(ByteOrder::Little).to_vec(), unhex(REJECT));
}

/// A node of the other byte order flips o2iblnd's fields, and not LNet's header.
#[test]
fn messages_of_the_other_byte_order_say_the_same() {
    for body in spoken() {
        let message = message(body);
        for sums in [false, true] {
            let (big, little) = (message.to_vec(ByteOrder::Big, sums), message.to_vec(ByteOrder::Little, sums));
            assert_eq!(Message::decode(&big).unwrap(), (message.clone(), ByteOrder::Big));
            assert_ne!(big, little);
            assert_eq!(big[4..6], [0, 0x12]);
            assert_eq!(big[16..24], [0, 5, 0, 7, 10, 0, 0, 1]);
            if matches!(message.body, Body::Immediate { .. } | Body::PutReq { .. } | Body::GetReq { .. }) {
                assert_eq!(big[48..120], little[48..120], "LNet's header");
            }
        }
    }
    for (version, terms) in [(VERSION_2, Some((9, parameters()))), (VERSION_1, None)] {
        for number in 0..=12 {
            let reject = Reject { version, why: RejectReason::from_number(number), terms };
            for order in [ByteOrder::Little, ByteOrder::Big] {
                assert_eq!(Reject::decode(&reject.encode(order)), Ok(reject));
            }
            assert_eq!(reject.why.number(), number);
        }
    }
}

#[test]
fn every_cut_message_is_refused() {
    for (name, hex) in LAYOUTS {
        let bytes = unhex(hex);
        for len in 0..bytes.len() {
            assert!(matches!(Message::decode(&bytes[..len]), Err(WireError::Short { .. })), "{name}, {len} bytes");
        }
    }
}

#[test]
fn every_field_that_lies_is_named() {
    let with = |body, at: usize, bytes: &[u8]| {
        let mut all = message(body).to_vec(ByteOrder::Little, false);
        all[at..at + bytes.len()].copy_from_slice(bytes);
        Message::decode(&all).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(Body::Noop, 0, &[0]), WireError::Magic(0x0be9_1b00));
    assert_eq!(with(Body::Noop, 4, &[0x13]), WireError::Version(0x13));
    assert_eq!(with(Body::Noop, 6, &[0xd8]), WireError::Type(0xd8));
    assert_eq!(with(Body::Noop, 8, &[0xff; 4]), WireError::Short { given: 48, wanted: u32::MAX as usize });
    assert_eq!(with(Body::Noop, 8, &[47]), WireError::Short { given: 47, wanted: 48 });
    assert!(matches!(with(Body::Noop, 12, &[1]), WireError::Checksum { given: 1, .. }));
    assert_eq!(with(Body::Noop, 16, &[0xff; 8]), WireError::NoSource);
    let [.., immediate, _, put_ack, _, _] = spoken();
    assert_eq!(with(immediate.clone(), 48 + 24, &[9]), WireError::LnetType(9));
    assert_eq!(with(immediate, 48 + 28, &[6]), WireError::Short { given: 5, wanted: 6 });
    for (count, fragments) in [([0, 0], 0), ([2, 1], 258), ([0xff, 0xff], 65535)] {
        assert_eq!(with(put_ack.clone(), 68, &count), WireError::Fragments(fragments));
    }
    assert!(matches!(with(put_ack, 68, &[3]), WireError::Short { .. }));
}

proptest! {
    #[test]
    fn no_bytes_panic_and_what_is_read_is_written_again(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        kind in 0xbfu8..0xd9,
        big: bool,
    ) {
        let mut bytes = bytes;
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let len = bytes.len() as u32;
        if bytes.len() >= 48 {
            let (magic, version, len) = match order {
                ByteOrder::Little => (MAGIC.to_le_bytes(), VERSION_2.to_le_bytes(), len.to_le_bytes()),
                ByteOrder::Big => (MAGIC.to_be_bytes(), VERSION_2.to_be_bytes(), len.to_be_bytes()),
            };
            bytes[..4].copy_from_slice(&magic);
            bytes[4..6].copy_from_slice(&version);
            bytes[6] = kind;
            bytes[8..12].copy_from_slice(&len);
            bytes[12..16].fill(0);
        }
        let _ = Reject::decode(&bytes);
        if let Ok((message, read)) = Message::decode(&bytes) {
            prop_assert_eq!(read, order);
            let again = message.to_vec(order, false);
            prop_assert_eq!(Message::decode(&again).unwrap().0, message);
        }
    }
}
