use mlx5_prm::ctx::QueueState;
use mlx5_prm::values::ServiceType;

use super::*;

fn qp() -> String {
    "QP 0x43".into()
}

/// One value of each variant, and what it says: value, limit, capability, what to do.
#[test]
fn texts_of_invalid_arguments() {
    let entries = Invalid::out_of_range("entries", 4_194_305, 0..=4_194_304, "this card");
    let vector = |limit| Invalid::out_of_range("completion vector", 99, limit, "this device");
    let wqe = |what, sges, inline_bytes| {
        let (needed, most, capability) = (1040, 1024, "max_wqe_sz_sq");
        Invalid::WqeTooLong { what, sges, inline_bytes, needed, most, capability }
    };
    let mtu = |what, payload, max_mtu, syndrome| {
        let (headers, mtu) = (118, 1522);
        Invalid::PortMtu { what, payload, headers, mtu, max_mtu, syndrome }
    };
    let access =
        |what, kernel| Invalid::WrongAccess { what, device: "devx:mlx5_0".into(), kernel, mend: "do this instead" };
    let indices = |given| Invalid::OutOfBounds { what: "indices", given, of: "a flow table", len: 4 };
    let uar = |mapping| Invalid::UarMapping { page: 0x12, mapping, mend: "use AnyDoorbell" };
    let pages = Some("say 4K, 2M or 1G");
    for (invalid, text) in [
        (
            entries.capability("log_max_cq_sz"),
            "entries is 4194305, and this card takes at most 4194304 (log_max_cq_sz = 22)",
        ),
        (
            Invalid::out_of_range("port", 2, 1..=1, "this card").capability("num_ports"),
            "port is 2, and this card takes 1 (num_ports)",
        ),
        (vector(0..=3).mend("see Options"), "completion vector is 99, and this device takes at most 3: see Options"),
        (vector(RangeInclusive::new(1, 0)), "completion vector is 99, and this device takes none"),
        (vector(1..=4), "completion vector is 99, and this device takes 1 to 4"),
        (vector(100..=u64::MAX), "completion vector is 99, and this device takes at least 100"),
        (Invalid::TooWide { what: "psn", given: 1 << 24, bits: 24 }, "psn is 0x1000000, and the field has 24 bits"),
        (
            Invalid::Misaligned { what: "offset", given: 0x1003, multiple_of: 8 },
            "offset is 0x1003, and must be a multiple of 8",
        ),
        (indices(2..5), "indices 2..5 of a flow table, which has 4"),
        (indices(2..2), "indices 2..2 of a flow table: the range is empty"),
        (
            Invalid::Overlap { what: "bytes", given: 0..8, taken: 4..12, by: "a buffer that is lent out" },
            "bytes 0..8 overlap 4..12, which a buffer that is lent out has",
        ),
        (Invalid::Empty { what: "a memory region", lacks: "bytes" }, "a memory region without bytes"),
        (
            Invalid::Requires { what: "send_queue of QP 0x43".into(), requires: "QpOptions::send_wqes above 0" },
            "send_queue of QP 0x43 needs QpOptions::send_wqes above 0",
        ),
        (
            wqe("send_sges", 62, Some(60)),
            "send_sges 62 and inline_bytes 60 need a WQE of 1040 bytes, and this card takes at most 1024 (max_wqe_sz_sq)",
        ),
        (
            wqe("recv_sges", 65, None),
            "recv_sges 65 need a WQE of 1040 bytes, and this card takes at most 1024 (max_wqe_sz_sq)",
        ),
        (
            mtu("path_mtu", 4096, Some(9978), Some(0x6b2f1c)),
            "path_mtu is 4096, and the port's MTU of 1522 leaves no room for it and 118 bytes of headers; use a smaller \
             one, or open the card with a larger Options::mtu, at most 9978 (BAD_PARAM, syndrome 0x6b2f1c)",
        ),
        (
            mtu("the smallest path MTU", 256, None, None),
            "the smallest path MTU is 256, and the port's MTU of 1522 leaves no room for it and 118 bytes of headers; \
             open the card with a larger Options::mtu",
        ),
        (Invalid::ForeignDevice { what: "a TIR's RQ" }, "a TIR's RQ must be of one device"),
        (access("GIDs", true), "the kernel keeps the GIDs of devx:mlx5_0: do this instead"),
        (
            access("flow matchers", false),
            "devx:mlx5_0 is a function of our own, where no kernel has flow matchers: do this instead",
        ),
        (
            Invalid::WrongState {
                object: "SQ 0x5".into(),
                state: QueueState::Rst,
                call: "send_queue",
                wanted: "RDY",
                first: "ready",
            },
            "SQ 0x5 is in RST, and send_queue needs RDY; first call ready",
        ),
        (
            Invalid::WrongService {
                object: qp(),
                service: ServiceType::Ud,
                call: "init",
                wanted: &[ServiceType::Rc, ServiceType::Uc],
                instead: "activate",
            },
            "QP 0x43 is of service UD, and init is for RC or UC: use activate",
        ),
        (
            Invalid::QueueTaken { object: qp(), queue: "SendQueue" },
            "the SendQueue of QP 0x43 was handed out already: reset QP 0x43 first",
        ),
        (
            Invalid::QueueInUse { object: qp(), queue: "SendQueue" },
            "QP 0x43 cannot be reset while its SendQueue is in use: drop the queue first",
        ),
        (
            Invalid::Taken { what: "the root".into(), by: "flow table 0x1".into(), mend: "destroy that first" },
            "the root is taken by flow table 0x1: destroy that first",
        ),
        (
            Invalid::NoRoom { object: "flow group 0x3".into(), entries: 2, mend: "drop a rule first" },
            "all 2 entries of flow group 0x3 are taken: drop a rule first",
        ),
        (
            Invalid::OutsideCriteria { by: "flow group 0x3".into(), offset: 0x1c },
            "the rule matches bits that flow group 0x3 does not look at, or not all that it does: byte 0x1c of fte_match_param",
        ),
        (Invalid::Contradiction { first: "TCP".into(), second: "UDP".into() }, "no frame has both TCP and UDP"),
        (
            Invalid::NoEffect { action: "a flow tag", beside: "drops frames" },
            "a flow tag has no effect in a rule that drops frames: leave one of them out",
        ),
        (uar(MappingKind::Unmapped), "UAR page 0x12 is not mapped here: use AnyDoorbell"),
        (uar(MappingKind::Mapped), "UAR page 0x12 is mapped: use AnyDoorbell"),
        (uar(MappingKind::WriteCombining), "UAR page 0x12 is mapped write-combining: use AnyDoorbell"),
        (
            Invalid::Unknown { what: "MAC address", of: "GID ::1".into(), mend: "put it into Peer::mac" },
            "the MAC address of GID ::1 is not known: put it into Peer::mac",
        ),
        (
            Invalid::NotA { what: "size of pages", given: "\"3X\"".into(), mend: pages },
            "\"3X\" is no size of pages: say 4K, 2M or 1G",
        ),
        (
            Invalid::NotA { what: "multicast address", given: "02:00:00:00:00:01".into(), mend: None },
            "02:00:00:00:00:01 is no multicast address",
        ),
    ] {
        assert_eq!(invalid.to_string(), text);
        assert_eq!(Error::from(invalid).to_string(), text);
    }
}

#[test]
fn texts_of_invalid_responses() {
    for (error, text) in [
        (Error::response("cmd_interface_rev", 4, 5..=5, ""), "cmd_interface_rev is 0x4, and must be 0x5"),
        (
            Error::response("output_num_entries", 9, 0..=8, "pages given back"),
            "output_num_entries is 0x9, and must be 0x0 to 0x8: pages given back",
        ),
        (Error::response("vectors", 0, 1..=u64::MAX, ""), "vectors is 0x0, and must be at least 0x1"),
        (
            Error::response("pas", 0x5000, None, "firmware gave back a page that it never had"),
            "pas is 0x5000: firmware gave back a page that it never had",
        ),
    ] {
        assert_eq!(error.to_string(), format!("invalid response from device: {text}"));
    }
}

/// A time limit or a peer's reset of the program's own is no death, and must not look like one.
#[test]
fn an_io_error_is_a_death_where_the_device_answered_it_and_nowhere_else() {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected, Other, TimedOut, UnexpectedEof};
    for kind in [BrokenPipe, ConnectionReset, NotConnected, TimedOut, UnexpectedEof] {
        assert!(Error::of_device("asking", kind.into()).is_dead(), "{kind}");
        assert!(!Error::io("asking", kind.into()).is_dead(), "{kind}");
    }
    assert!(!Error::of_device("asking", Other.into()).is_dead());
}
