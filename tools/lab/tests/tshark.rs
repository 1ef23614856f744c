//! tshark and Scapy check packets: every opcode, field by field and by its ICRC, and captures of real traffic, over a
//! wire with faults, too.

mod common;

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Report, TestResult, build, free_port};
use mlx5_dv::objects::{AccessFlags, MemoryRegion, Pd, TunnelHeaders};
use mlx5_dv::queue::ethernet::{EthernetOptions, EthernetQueue, FrameFlags};
use mlx5_lab::{Model, Scapy, Tshark, log_file};
use mlx5_open::Sim;
use mlx5_sim::transport::packet::{Aeth, AtomicEth, Deth, Reth, Route, gid_of_ipv4};
use mlx5_sim::transport::{Opcode, Packet, Psn, Transport, icrc};
use mlx5_sim::wire::{Frame, PcapWriter};

/// The fields of a capture's packets, one row for each packet. A missing field is empty.
fn fields(tshark: &Tshark, capture: &Path, names: &[&str]) -> Result<Vec<Vec<String>>, Report> {
    let mut command = tshark.read(capture);
    command.args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
    for name in names {
        command.args(["-e", name]);
    }
    let said = output(&mut command)?;
    Ok(said.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect())
}

fn output(command: &mut Command) -> Result<String, Report> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Fails if tshark finds any packet of the capture malformed, or a checksum wrong.
fn assert_well_formed(tshark: &Tshark, capture: &Path) -> TestResult {
    const WRONG: &str =
        "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status == 0 || tcp.checksum.status == 0";
    let said = output(tshark.read(capture).args(["-Y", WRONG, "-V"]))?;
    assert!(said.is_empty(), "tshark finds these wrong:\n{said}");
    Ok(())
}

fn route(ipv4: bool, tag: Option<u16>) -> Route {
    let gid = |last| match ipv4 {
        true => gid_of_ipv4([10, 0, 0, last]),
        false => [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last],
    };
    Route {
        dst_mac: [2, 0, 0xc5, 0, 0, 2],
        src_mac: [2, 0, 0xc5, 0, 0, 1],
        src: gid(1),
        dst: gid(2),
        sport: 0xc123,
        hop_limit: 64,
        tclass: 0x68,
        flow_label: if ipv4 { 0 } else { 0xabcde },
        tag,
    }
}

/// A packet with a different value in every field, and `payload` bytes if its opcode has a payload.
fn packet(transport: Transport, opcode: Opcode, route: Route, payload: usize) -> Packet {
    let mut packet = Packet::new(opcode, route, 0x1234, Psn::new(0x00ab_cdef));
    packet.transport = transport;
    packet.pkey = 0xffff;
    packet.xrc_srqn = 0x5678;
    packet.deth = Deth { qkey: 0x1111_2222, src_qpn: 0x33_4455 };
    packet.reth = Reth { va: 0x1122_3344_5566_7788, rkey: 0x99aa_bbcc, len: 0x1000 };
    packet.aeth = Aeth { syndrome: 0x60, msn: 0x77_8899 };
    packet.immediate = 0xdead_beef;
    packet.atomic = AtomicEth {
        va: 0x0102_0304_0506_0708,
        rkey: 0x0a0b_0c0d,
        swap_add: 0x1020_3040_5060_7080,
        compare: 0x0f0e_0d0c,
    };
    packet.atomic_ack = 0xa1a2_a3a4_a5a6_a7a8;
    if opcode.has_payload() {
        packet.payload = (0..payload).map(|byte| 0x40 | byte as u8 & 0x1f).collect();
    }
    packet
}

/// Packets of every public opcode: IPv4 and IPv6, with and without VLAN tag, with 0 to 3 bytes of padding.
fn every_packet() -> Vec<Packet> {
    let mut packets = Vec::new();
    for transport in Transport::ALL {
        let known = |opcode: &Opcode| transport.has(*opcode) && transport.is_public(*opcode);
        for opcode in Opcode::ALL.into_iter().filter(known) {
            for payload in 0..4 {
                let tag = (payload == 1).then_some(5);
                packets.push(packet(transport, opcode, route(payload % 2 == 0, tag), 64 + payload));
            }
        }
    }
    packets
}

/// A capture of `packets`.
fn write(capture: &Path, packets: &[Packet]) -> TestResult {
    let mut writer = PcapWriter::new(BufWriter::new(File::create(capture)?))?;
    for packet in packets {
        writer.write(Duration::ZERO, &Frame::Roce(Box::new(packet.clone())));
    }
    writer.flush()?;
    Ok(())
}

/// What tshark must show for each field of a packet; `None` if the packet does not have it.
fn expected(packet: &Packet) -> Vec<(&'static str, Option<String>)> {
    // tshark does not know XRC's extended transport header, and stops there.
    let is_known = packet.transport != Transport::Xrc;
    let opcode = packet.opcode;
    let when = |is_there: bool, value: String| (is_there && is_known).then_some(value);
    let dword = |value: u32| format!("0x{value:08x}");
    let bytes = |value: u32| format!("{value:08x}");
    // tshark shows an atomic's address under the same name.
    let address = if opcode.has_atomic() { packet.atomic.va } else { packet.reth.va };
    vec![
        ("infiniband.bth.opcode", Some(packet.transport.number(opcode).to_string())),
        ("infiniband.bth.destqp", Some(format!("0x{:06x}", packet.dest_qpn))),
        ("infiniband.bth.psn", Some(packet.psn.number().to_string())),
        ("infiniband.bth.p_key", Some(packet.pkey.to_string())),
        ("infiniband.reth.va", when(opcode.has_reth() || opcode.has_atomic(), format!("0x{address:016x}"))),
        ("infiniband.reth.dmalen", when(opcode.has_reth(), packet.reth.len.to_string())),
        ("infiniband.aeth.msn", when(opcode.has_aeth(), packet.aeth.msn.to_string())),
        ("infiniband.immdt", when(opcode.has_immediate(), bytes(packet.immediate))),
        ("infiniband.ieth", when(opcode.has_ieth(), bytes(packet.immediate))),
        ("infiniband.atomiceth.swapdt", when(opcode.has_atomic(), packet.atomic.swap_add.to_string())),
        ("infiniband.atomiceth.cmpdt", when(opcode.has_atomic(), packet.atomic.compare.to_string())),
        ("infiniband.atomicacketh.origremdt", when(opcode.has_atomic_ack(), packet.atomic_ack.to_string())),
        ("infiniband.deth.srcqp", when(packet.transport == Transport::Ud, dword(packet.deth.src_qpn))),
    ]
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn tshark_reads_every_packet_as_it_was_meant() -> TestResult {
    let tshark = Tshark::ready()?;
    let capture = log_file("every.pcap")?;
    let packets = every_packet();
    write(&capture, &packets)?;
    assert_well_formed(&tshark, &capture)?;
    let names: Vec<&str> = expected(&packets[0]).into_iter().map(|(name, _)| name).collect();
    let rows = fields(&tshark, &capture, &names)?;
    assert_eq!(rows.len(), packets.len());
    for (packet, row) in packets.iter().zip(rows) {
        for ((name, wanted), read) in expected(packet).into_iter().zip(row) {
            assert_eq!(read, wanted.unwrap_or_default(), "{name} of {packet:?}");
        }
    }
    Ok(())
}

/// `rc_pingpong` between the two functions of one card, every byte checked.
fn play(model: &Model) -> TestResult {
    let build = build()?;
    let port = free_port()?.to_string();
    let player = |socket: &Path, last: &[&str]| -> Result<Command, Report> {
        let mut command = Command::new(build.program("rc_pingpong")?);
        command.arg("-d").arg(format!("vfio-user:{}", socket.display()));
        command.args(["-c", "-p", &port, "-n", "200", "-s", "9001", "-m", "1024"]).args(last);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    };
    let [first, second] = model.sockets() else { return Err("two sockets".into()) };
    let server = player(first, &["--listen"])?.spawn()?;
    let client = player(second, &["127.0.0.1"])?.output()?;
    for (who, output) in [("client", client), ("server", server.wait_with_output()?)] {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "the {who}: {said}\nthe model said:\n{}", model.stderr());
    }
    Ok(())
}

/// For every packet of a capture: the opcode, the ICRC that it has, and the one that Scapy computes.
fn icrcs(capture: &Path) -> Result<Vec<Vec<String>>, Report> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/icrc.py");
    let said = output(Scapy::ready()?.run(&script).arg(capture))?;
    Ok(said.lines().map(|line| line.split(' ').map(str::to_owned).collect()).collect())
}

/// Fails if an ICRC in the capture differs from Scapy's. Returns the number of packets.
fn assert_icrc(capture: &Path) -> Result<usize, Report> {
    let packets = icrcs(capture)?;
    let wrong: Vec<_> = packets.iter().filter(|packet| packet.len() != 3 || packet[1] != packet[2]).collect();
    assert!(wrong.is_empty(), "opcode, ICRC, what Scapy makes of it: {wrong:?}");
    Ok(packets.len())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn scapy_makes_the_same_icrc_for_every_packet() -> TestResult {
    let capture = log_file("every.pcap")?;
    let packets = every_packet();
    write(&capture, &packets)?;
    assert_eq!(assert_icrc(&capture)?, packets.len());
    // The check can fail: one changed byte of a payload gives another ICRC.
    let mut bytes = std::fs::read(&capture)?;
    let in_last_payload = bytes.len() - icrc::LEN - 8;
    bytes[in_last_payload] ^= 1;
    std::fs::write(&capture, bytes)?;
    let seen = icrcs(&capture)?;
    let wrong = seen.iter().filter(|packet| packet[1] != packet[2]).count();
    assert_eq!(wrong, 1, "a packet was damaged, and Scapy did not see it: {seen:?}");
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn a_capture_of_two_functions_is_well_formed() -> TestResult {
    let tshark = Tshark::ready()?;
    let capture = log_file("wire.pcap")?;
    let model = Model::start(&build()?, 2, &["--pcap", capture.to_str().ok_or("a path in UTF-8")?])?;
    play(&model)?;
    drop(model);
    assert_well_formed(&tshark, &capture)?;
    assert!(assert_icrc(&capture)? > 1000, "most of the packets are missing");
    let opcodes = fields(&tshark, &capture, &["infiniband.bth.opcode"])?;
    for opcode in [Opcode::SendFirst, Opcode::SendMiddle, Opcode::SendLast, Opcode::Acknowledge] {
        let number = Transport::Rc.number(opcode).to_string();
        assert!(opcodes.iter().any(|row| row[0] == number), "no {opcode:?} in the capture");
    }
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn what_the_card_has_divided_is_well_formed() -> TestResult {
    let (tshark, build) = (Tshark::ready()?, build()?);
    for (addresses, version) in [(&[][..], "4"), (&["--source", "fd00::1", "--destination", "fd00::77"][..], "6")] {
        let capture = log_file("segments.pcap")?;
        let model = Model::start(&build, 1, &["--pcap", capture.to_str().ok_or("a path in UTF-8")?])?;
        let [socket] = model.sockets() else { return Err("one socket".into()) };
        let mut command = Command::new(build.program("segments")?);
        command.arg("-d").arg(format!("vfio-user:{}", socket.display())).args(["--to", "02:00:c5:00:00:77"]);
        output(command.args(addresses))?;
        drop(model);
        assert_well_formed(&tshark, &capture)?;
        let seen =
            fields(&tshark, &capture, &["ip.version", "tcp.checksum.status", "tcp.len", "tcp.seq_raw", "tcp.flags"])?;
        let segments: Vec<_> = seen.iter().filter(|row| !row[2].is_empty()).collect();
        let expected: Vec<_> = (0..3u32)
            .flat_map(|packet| (0..20_000).step_by(1400).map(move |at| (packet, at)))
            .map(|(packet, at)| {
                let (len, flags) = if at == 19_600 { ("400", "0x0018") } else { ("1400", "0x0010") };
                [version, "1", len, &(1000 + packet * 20_000 + at).to_string(), flags].map(str::to_owned)
            })
            .collect();
        assert_eq!(segments, expected.iter().collect::<Vec<_>>());
    }
    Ok(())
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn everything_arrives_once_and_in_order_over_a_bad_wire() -> TestResult {
    let tshark = Tshark::ready()?;
    let capture = log_file("wire.pcap")?;
    let mut arguments = vec!["--pcap", capture.to_str().ok_or("a path in UTF-8")?];
    for fault in ["loss:1%", "duplicate:1%", "reorder:1%", "corrupt:1%"] {
        arguments.extend(["--fault", fault]);
    }
    let model = Model::start(&build()?, 2, &arguments)?;
    play(&model)?;
    assert!(model.violations().is_empty(), "{}", model.stderr());
    drop(model);
    // The wire lost packets: gaps were reported.
    const SEQUENCE_ERROR: &str = "96";
    let syndromes = fields(&tshark, &capture, &["infiniband.aeth.syndrome"])?;
    assert!(syndromes.iter().any(|row| row[0] == SEQUENCE_ERROR), "no negative acknowledgement of a sequence error");
    Ok(())
}

/// An IPv4 header without length and checksum, of a protocol, between hosts of a network.
fn ipv4(protocol: u8, network: u8) -> Vec<u8> {
    vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, protocol, 0, 0, 10, network, 0, 1, 10, network, 0, 2]
}

/// Headers of a TCP packet in each kind of tunnel, and tshark's name of the protocol that carries it.
fn tunnels([to, from]: [[u8; 6]; 2]) -> [(&'static str, Vec<u8>); 5] {
    let ethernet = [&to[..], &from, &[8, 0]].concat();
    let mut tcp = ipv4(6, 2);
    tcp.extend([0x30, 0x39, 0x1f, 0x90, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    let frame = [&ethernet[..], &tcp].concat();
    let udp = |port: u16| [&[0x30, 0x39][..], &port.to_be_bytes(), &[0; 4]].concat();
    let around = |protocol: u8, parts: &[&[u8]]| [&ethernet[..], &ipv4(protocol, 1), &parts.concat()].concat();
    [
        ("vxlan", around(17, &[&udp(4789), &[8, 0, 0, 0, 0, 0, 77, 0], &frame])),
        ("geneve", around(17, &[&udp(6081), &[0, 0, 0x65, 0x58, 0, 0, 78, 0], &frame])),
        ("gre", around(47, &[&[0x20, 0, 0x65, 0x58, 0, 0, 0, 5], &frame])),
        ("gre", around(47, &[&[0, 0, 8, 0], &tcp])),
        ("ip", around(4, &[&tcp])),
    ]
}

#[test]
#[cfg_attr(lab_skipped, ignore = "MLX5_LAB=skip")]
fn what_the_card_divides_in_tunnels_is_well_formed() -> TestResult {
    const SEGMENT: usize = 1000;
    const SOON: Duration = Duration::from_secs(20);
    let (tshark, capture) = (Tshark::ready()?, log_file("tunnels.pcap")?);
    let mut writer = PcapWriter::new(BufWriter::new(File::create(&capture)?))?;
    let sim = Sim::builder().functions(2).build()?;
    let open = |function| -> Result<_, Report> {
        let device = sim.open(function)?;
        let pd = Pd::alloc(&device)?;
        let region = MemoryRegion::allocate(&pd, 1 << 16, AccessFlags::LOCAL_WRITE)?;
        let mut options = EthernetOptions::default();
        options.inline_bytes = 140;
        Ok((device.mac(), EthernetQueue::new(&pd, options)?, region))
    };
    let ((from, mut here, region), (to, mut there, far)) = (open(0)?, open(1)?);
    there.listen(&[])?;
    let tunnels = tunnels([to.0, from.0]);
    for (_, headers) in &tunnels {
        for at in 0..3 {
            there.receive(far.buffer(at * 2048..(at + 1) * 2048)?)?;
        }
        let packet = [&headers[..], &[0x5a; 2 * SEGMENT + 333]].concat();
        let mut buffer = region.buffer(0..packet.len())?;
        buffer.write(0, &packet);
        let tunnel = TunnelHeaders::of(headers).ok_or("in no tunnel")?;
        here.send_large_in_tunnel(buffer, FrameFlags::L4_CHECKSUM, &tunnel, SEGMENT as u16)?;
        here.wait(SOON)?.result?;
        for _ in 0..3 {
            let done = there.wait(SOON)?;
            let mut frame = vec![0; done.result?.byte_len as usize];
            done.buffer.ok_or("no buffer")?.read(0, &mut frame);
            writer.write(Duration::ZERO, &Frame::Ethernet(frame));
        }
    }
    writer.flush()?;
    assert_well_formed(&tshark, &capture)?;
    let rows = fields(&tshark, &capture, &["frame.protocols", "tcp.seq_raw", "tcp.len", "tcp.checksum.status"])?;
    assert_eq!(rows.len(), 3 * tunnels.len());
    for (row, number) in rows.iter().zip(0..) {
        let (name, at) = (tunnels[number / 3].0, number % 3);
        let len = if at == 2 { 333 } else { SEGMENT };
        assert!(row[0].split(':').any(|protocol| protocol == name), "{row:?}");
        assert_eq!(row[1..], [(1 + at * SEGMENT).to_string(), len.to_string(), "1".to_owned()], "{name}");
    }
    assert_eq!(sim.violations().len(), 0);
    Ok(())
}
