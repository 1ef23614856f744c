//! What strangers send to Ceph's messenger: lines, frames, control frames and operations, raw and behind right CRCs,
//! and whole conversations with a server and with a client. None panics.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use mlx5_ceph::msgr2::{Heard, Identity, Protocol, Refusal, Session};
use mlx5_ceph::wire::{
    Banner, ClientIdent, EntityAddress, EntityKind, EntityName, FrameReader, Hello, Limits, Line, MessageHeader, OsdOp,
    OsdReply, Reconnect, SEGMENTS, ServerIdent, Tag, encode_frame,
};

const TAGS: [Tag; 20] = [
    Tag::Hello,
    Tag::AuthRequest,
    Tag::AuthBadMethod,
    Tag::AuthReplyMore,
    Tag::AuthRequestMore,
    Tag::AuthDone,
    Tag::AuthSignature,
    Tag::ClientIdent,
    Tag::ServerIdent,
    Tag::IdentMissingFeatures,
    Tag::SessionReconnect,
    Tag::SessionReset,
    Tag::SessionRetry,
    Tag::SessionRetryGlobal,
    Tag::SessionReconnectOk,
    Tag::Wait,
    Tag::Message,
    Tag::Keepalive2,
    Tag::Keepalive2Ack,
    Tag::Ack,
];

fn frame(tag: Tag, payload: &[u8]) -> Vec<u8> {
    let segments: Vec<&[u8]> = match tag {
        Tag::Message => payload.chunks(MessageHeader::BYTES).take(SEGMENTS).collect(),
        _ => vec![payload],
    };
    let segments = if segments.is_empty() { vec![&[][..]] } else { segments };
    let (head, tail) = encode_frame(tag, &segments);
    [&head, segments.iter().rfind(|last| !last.is_empty()).copied().unwrap_or_default(), &tail].concat()
}

/// Takes all of `bytes`, and answers what has to be answered.
fn hear(protocol: &mut Protocol, mut bytes: &[u8], how: u8) -> bool {
    while let Ok(Some(heard)) = protocol.hear(&mut bytes) {
        match heard {
            Heard::Ident(_) => protocol.accept(Session::default(), 1),
            Heard::Reconnect(reconnect) if how % 2 == 0 => protocol.resume(Session::default(), reconnect.message_seq),
            Heard::Reconnect(_) => protocol.refuse(Refusal::Retry(how.into())),
            _ => {}
        }
        protocol.pump();
        let all = protocol.to_send();
        protocol.taken(all);
    }
    bytes.is_empty()
}

fuzz_target!(|bytes: &[u8]| {
    let _ = bytes.first_chunk().map(Line::from_bytes);
    let _ = bytes.first_chunk().map(Banner::from_bytes);
    let _ = (Hello::decode(bytes), ClientIdent::decode(bytes), ServerIdent::decode(bytes), Reconnect::decode(bytes));
    let _ = (MessageHeader::decode(bytes), OsdOp::decode(bytes), OsdReply::decode(bytes));
    let (mut reader, mut rest) = (FrameReader::new(Limits::default()), bytes);
    while let Ok(Some(_)) = reader.read(&mut rest) {}

    let at = EntityAddress::msgr2(([10, 0, 0, 1], 6800).into(), 0);
    let identity = Arc::new(Identity {
        name: EntityName { kind: EntityKind::OSD, number: 0 },
        addresses: vec![at],
        is_lossy: false,
        limits: Limits::default(),
    });
    let (mut server, mut client) = (
        Protocol::server(Arc::clone(&identity), at),
        Protocol::client(Arc::clone(&identity), at, Session::default(), 1),
    );
    let hello = Hello { kind: EntityKind::CLIENT, peer: at }.encode();
    let begin = [&Banner::OURS.to_bytes()[..], &frame(Tag::Hello, &hello)].concat();
    for protocol in [&mut server, &mut client] {
        assert!(hear(protocol, &begin, 0));
    }
    // Frames by number, length and bytes.
    let mut rest = bytes;
    while let Some((&[tag, length], after)) = rest.split_first_chunk() {
        let (payload, after) = after.split_at(after.len().min(length.into()));
        let frame = frame(TAGS[usize::from(tag) % TAGS.len()], payload);
        if !hear(&mut server, &frame, tag) && !hear(&mut client, &frame, tag) {
            return;
        }
        rest = after;
    }
});
