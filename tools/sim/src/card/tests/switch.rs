use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::card::switch::Wire;
use crate::fault::{Fault, Faults, FrameFate, Times};
use crate::function::Function;
use crate::profile::Profile;
use crate::strict::Strict;
use crate::strict::rules::FRAME_TOO_LONG;
use crate::transport::packet::{Mac, Route, gid_of_ipv4};
use crate::transport::psn::Psn;
use crate::transport::{Opcode, Packet};
use crate::wire::{Capture, Frame, Own, PcapWriter, ROOM, Sender, SocketUplink, Uplink};

/// Functions that have registered their addresses with the switch.
fn functions(count: usize) -> Vec<Function> {
    let mut functions: Vec<_> =
        (0..count).map(|index| Function::new(index, Profile::connectx5(), Strict::on(), Faults::new())).collect();
    functions.iter_mut().for_each(listen);
    functions
}

fn listen(function: &mut Function) {
    let mac = function.nic.objects.vport.mac();
    assert!(function.nic.objects.l2_table.as_mut().unwrap().set(0, mac));
    function.nic.objects.vport.multicast = vec![[0xff; 6]];
}

fn send(from: &mut Function, frame: Frame, faults: &Faults) {
    let own = from.nic.objects.vport.mac();
    from.nic.port.send(frame, Own { mac: own, domain: None }, faults, from.nic.now);
}

fn ethernet(to: Mac) -> Frame {
    let mut bytes = to.to_vec();
    bytes.extend_from_slice(&[2, 0, 0, 0, 0, 9, 0x88, 0xb5, 1, 2, 3]);
    Frame::Ethernet(bytes)
}

fn packet(to: Mac) -> Frame {
    let route =
        Route { dst_mac: to, src: gid_of_ipv4([10, 0, 0, 1]), dst: gid_of_ipv4([10, 0, 0, 2]), ..Route::default() };
    Frame::Roce(Box::new(Packet::new(Opcode::Acknowledge, route, 64, Psn::new(1))))
}

fn bytes(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    bytes
}

fn received(function: &mut Function) -> Vec<Frame> {
    std::iter::from_fn(|| Some(function.nic.port.take_received()?.0)).collect()
}

#[test]
fn frames_reach_their_addressee_alone() {
    let mut functions = functions(3);
    let to = functions[2].nic.objects.vport.mac();
    let faults = Faults::new();
    send(&mut functions[0], ethernet(to), &faults);
    assert!(Wire::new().exchange(&mut functions));
    assert!(!Wire::new().exchange(&mut functions));
    assert_eq!(received(&mut functions[2]), [ethernet(to)]);
    assert!(received(&mut functions[1]).is_empty());
    assert!(received(&mut functions[0]).is_empty());
}

#[test]
fn a_frame_to_oneself_comes_back_at_once() {
    let mut functions = functions(1);
    let to = functions[0].nic.objects.vport.mac();
    send(&mut functions[0], ethernet(to), &Faults::new());
    assert_eq!(received(&mut functions[0]), [ethernet(to)]);
}

#[test]
fn a_frame_to_everybody_reaches_all_that_list_the_address() {
    let mut functions = functions(3);
    send(&mut functions[1], ethernet([0xff; 6]), &Faults::new());
    Wire::new().exchange(&mut functions);
    let marks = functions
        .iter_mut()
        .map(|function| function.nic.port.take_received().map(|(_, sender)| sender != Sender::Other));
    assert_eq!(marks.collect::<Vec<_>>(), [Some(false), Some(true), Some(false)]);
}

#[test]
fn a_group_reaches_who_lists_it_who_has_a_member_and_who_wants_all_groups() {
    let mut functions = functions(6);
    let gid = gid_of_ipv4([239, 129, 2, 3]);
    let group = [1, 0, 0x5e, 1, 2, 3];
    functions[1].nic.objects.vport.multicast.push(group);
    functions[2].nic.objects.groups.attach(gid, 7);
    functions[3].nic.objects.vport.context.w().promisc_mc(true);
    functions[4].nic.objects.vport.context.w().promisc_uc(true);
    for (to, expected) in [(group, [1, 1, 1, 0, 0]), ([1, 0, 0x5e, 1, 2, 4], [0, 0, 1, 0, 0])] {
        send(&mut functions[0], ethernet(to), &Faults::new());
        Wire::new().exchange(&mut functions);
        let heard = [1, 2, 3, 4, 5].map(|index| received(&mut functions[index]).len());
        assert_eq!(heard, expected);
    }
    assert_eq!(filtered(&functions), [0, 1, 1, 0, 2, 2]);
    let at_port = |index: usize| functions[index].nic.port.counters.physical.received.multicast.packets;
    assert_eq!([1, 2, 3, 4, 5].map(at_port), [2; 5], "heard or not");
    functions[2].nic.objects.groups.detach(&gid, 7);
    send(&mut functions[0], ethernet(group), &Faults::new());
    Wire::new().exchange(&mut functions);
    assert!(received(&mut functions[2]).is_empty());
}

/// The second manages no e-switch.
fn one_that_manages_no_switch() -> Vec<Function> {
    let mut profile = Profile::connectx5();
    profile.general_max.w().eswitch_manager(false);
    let mut functions = functions(1);
    functions.push(Function::new(1, profile, Strict::on(), Faults::new()));
    functions
}

#[test]
fn a_member_on_a_function_that_manages_no_switch_hears_its_group_if_the_function_does() {
    let mut functions = one_that_manages_no_switch();
    functions[1].nic.objects.groups.attach(gid_of_ipv4([239, 129, 2, 3]), 7);
    let group = [1, 0, 0x5e, 1, 2, 3];
    for (listed, heard) in [(vec![], 0), (vec![group], 1)] {
        functions[1].nic.objects.vport.multicast = listed;
        send(&mut functions[0], ethernet(group), &Faults::new());
        Wire::new().exchange(&mut functions);
        assert_eq!(received(&mut functions[1]).len(), heard);
    }
}

fn filtered(functions: &[Function]) -> Vec<u64> {
    functions.iter().map(|function| function.nic.port.counters.filtered).collect()
}

#[test]
fn a_function_hears_only_addresses_of_its_l2_table() {
    let mut functions = functions(2);
    let to = functions[1].nic.objects.vport.mac();
    let table = functions[1].nic.objects.l2_table.as_mut().unwrap();
    assert!(table.remove(0));
    // The list is only read by the e-switch's manager, which uses its own table.
    functions[1].nic.objects.vport.unicast = vec![to];
    send(&mut functions[0], ethernet(to), &Faults::new());
    Wire::new().exchange(&mut functions);
    assert!(received(&mut functions[1]).is_empty());
    assert_eq!(filtered(&functions), [0, 1]);
    functions[1].nic.objects.l2_table.as_mut().unwrap().set(5, [2, 0, 0, 0, 7, 7]);
    send(&mut functions[0], ethernet([2, 0, 0, 0, 7, 7]), &Faults::new());
    Wire::new().exchange(&mut functions);
    assert_eq!(received(&mut functions[1]), [ethernet([2, 0, 0, 0, 7, 7])]);
    assert_eq!(filtered(&functions), [0, 1]);
}

#[test]
fn a_function_that_manages_no_switch_hears_what_its_unicast_list_has() {
    let mut functions = one_that_manages_no_switch();
    let to = functions[1].nic.objects.vport.mac();
    for (listed, heard) in [(vec![], 0), (vec![to], 1)] {
        functions[1].nic.objects.vport.unicast = listed;
        send(&mut functions[0], ethernet(to), &Faults::new());
        Wire::new().exchange(&mut functions);
        assert_eq!(received(&mut functions[1]).len(), heard);
    }
    assert_eq!(filtered(&functions), [0, 1]);
}

#[test]
fn a_promiscuous_function_hears_all_that_others_send() {
    let mut functions = functions(3);
    let to = functions[1].nic.objects.vport.mac();
    for all in [false, true] {
        functions[2].nic.objects.vport.context.w().promisc_uc(!all).promisc_all(all);
        send(&mut functions[0], ethernet(to), &Faults::new());
        send(&mut functions[0], ethernet([2, 0, 0, 0, 7, 7]), &Faults::new());
        send(&mut functions[2], ethernet(to), &Faults::new());
        Wire::new().exchange(&mut functions);
        assert_eq!([0, 1, 2].map(|index| received(&mut functions[index]).len()), [0, 2, 2]);
    }
    assert_eq!(filtered(&functions), [0, 2, 0], "the frame to nobody");
}

#[test]
fn a_frame_above_the_mtu_is_dropped_by_the_sender_and_by_the_receiver() {
    let mut functions = functions(2);
    let to = functions[1].nic.objects.vport.mac();
    let frame = |len: usize| {
        let mut bytes = to.to_vec();
        bytes.resize(len - 4, 0);
        Frame::Ethernet(bytes)
    };
    let too_long = |functions: &[Function]| [0, 1].map(|index| functions[index].nic.port.counters.too_long);
    send(&mut functions[0], frame(1522), &Faults::new());
    send(&mut functions[0], frame(1523), &Faults::new());
    Wire::new().exchange(&mut functions);
    assert_eq!(received(&mut functions[1]), [frame(1522)]);
    assert_eq!(too_long(&functions), [1, 0]);
    functions[0].nic.port.mtu = 9000;
    send(&mut functions[0], frame(1523), &Faults::new());
    Wire::new().exchange(&mut functions);
    assert!(received(&mut functions[1]).is_empty());
    assert_eq!(too_long(&functions), [1, 1]);
    let rules = functions.iter().flat_map(|function| function.nic.strict.take()).map(|violation| violation.rule);
    assert_eq!(rules.collect::<Vec<_>>(), [FRAME_TOO_LONG; 2]);
}

#[test]
fn a_port_that_is_full_holds_senders_back_in_turn() {
    let mut functions = functions(3);
    let to = functions[2].nic.objects.vport.mac();
    let faults = Faults::new();
    let mut wire = Wire::new();
    let (mut come, mut from_second) = (0, 0);
    for _ in 0..4 {
        for (from, function) in functions[..2].iter_mut().enumerate() {
            for _ in 0..ROOM {
                let mut frame = ethernet(to);
                if let Frame::Ethernet(bytes) = &mut frame {
                    bytes[13] = from as u8;
                }
                send(function, frame, &faults);
            }
        }
        assert!(wire.exchange(&mut functions));
        let frames = received(&mut functions[2]);
        assert_eq!(frames.len(), ROOM);
        come += frames.len();
        from_second += frames.iter().filter(|frame| matches!(frame, Frame::Ethernet(bytes) if bytes[13] == 1)).count();
    }
    assert!(from_second > 0 && from_second < come, "{from_second} of {come}");
}

#[test]
fn a_function_that_is_gone_takes_no_frames() {
    let mut functions = functions(2);
    let to = functions[1].nic.objects.vport.mac();
    functions[1].nic.faults.inject(Fault::SurpriseRemoval, Times::Always);
    send(&mut functions[0], ethernet(to), &Faults::new());
    Wire::new().exchange(&mut functions);
    assert!(received(&mut functions[1]).is_empty());
}

#[test]
fn nothing_leaves_a_port_whose_link_is_down() {
    let mut functions = functions(2);
    let to = functions[1].nic.objects.vport.mac();
    functions[0].nic.port.link_up = false;
    send(&mut functions[0], ethernet(to), &Faults::new());
    assert!(!Wire::new().exchange(&mut functions));
}

#[test]
fn fates() {
    let mut functions = functions(1);
    let to = functions[0].nic.objects.vport.mac();
    let faults = Faults::new();
    let once = |fate| faults.inject(Fault::Frame { fate, per_million: 1_000_000 }, Times::Count(1));
    let marked = |mark| {
        let mut frame = ethernet(to);
        if let Frame::Ethernet(bytes) = &mut frame {
            bytes.push(mark);
        }
        frame
    };
    let function = &mut functions[0];
    once(FrameFate::Lost);
    send(function, marked(0), &faults);
    once(FrameFate::Duplicated);
    send(function, marked(1), &faults);
    once(FrameFate::Reordered);
    send(function, marked(2), &faults);
    send(function, marked(3), &faults);
    once(FrameFate::Corrupted(400));
    send(function, packet(to), &faults);
    let frames = received(&mut functions[0]);
    assert_eq!(frames[..4], [marked(1), marked(1), marked(3), marked(2)]);
    let mut bytes = Vec::new();
    frames[4].encode(&mut bytes);
    assert_eq!(Frame::from_bytes(bytes), None, "the check where it arrives finds it");
}

#[test]
fn a_flipped_bit_is_found_by_the_check_that_covers_it() {
    let whole = packet([2, 0, 0, 0, 0, 9]);
    let Frame::Roce(before) = &whole else { panic!("{whole:?}") };
    let flipped = |bit| {
        let mut frame = whole.clone();
        frame.damage(bit);
        frame
    };
    // The last bit of the destination MAC: no checksum covers it, and the frame goes elsewhere.
    assert_eq!(flipped(47).destination(), [2, 0, 0, 0, 0, 8]);
    // The EtherType, and the UDP port: no longer a RoCE packet.
    for bit in [8 * 12, 8 * (14 + 20 + 2)] {
        assert!(matches!(flipped(bit), Frame::Ethernet(_)), "bit {bit}");
    }
    // The QP number; a byte that every router may change.
    assert!(matches!(flipped(8 * (14 + 20 + 8 + 5)), Frame::Roce(packet) if packet.flipped.is_some()));
    let marked = flipped(8 * (14 + 20 + 8 + 4));
    assert!(matches!(marked, Frame::Roce(packet) if packet.fecn != before.fecn && packet.flipped.is_none()));
}

#[test]
fn two_processes_cards_meet_on_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wire");
    let mut here = Wire::with_uplink(SocketUplink::join(&path).unwrap());
    let mut there = Wire::with_uplink(SocketUplink::join(&path).unwrap());
    let (mut ours, mut theirs) = (functions(1), functions(1));
    theirs[0].nic.objects.vport.set_mac([2, 0, 0, 0, 7, 7]);
    listen(&mut theirs[0]);
    let (us, them) = (ours[0].nic.objects.vport.mac(), theirs[0].nic.objects.vport.mac());
    // More than a socket holds: none may be lost.
    for _ in 0..1000 {
        send(&mut ours[0], packet(them), &Faults::new());
        send(&mut theirs[0], packet(us), &Faults::new());
    }
    for _ in 0..1000 {
        here.exchange(&mut ours);
        there.exchange(&mut theirs);
    }
    let decoded = |frames: Vec<Frame>| frames.into_iter().filter_map(|frame| Frame::from_bytes(bytes(&frame)));
    assert_eq!(decoded(received(&mut ours[0])).collect::<Vec<_>>(), vec![packet(us); 1000]);
    assert_eq!(decoded(received(&mut theirs[0])).collect::<Vec<_>>(), vec![packet(them); 1000]);
    drop((here, there));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_socket_left_behind_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wire");
    drop(std::os::unix::net::UnixDatagram::bind(&path).unwrap());
    let first = SocketUplink::join(&path).unwrap();
    let second = SocketUplink::join(&path).unwrap();
    drop((first, second));
}

/// A capture's file.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// An uplink on which these frames wait.
#[derive(Debug)]
struct Waiting(std::vec::IntoIter<Vec<u8>>);

impl Uplink for Waiting {
    fn send(&mut self, _: &[u8]) {}

    fn receive(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let frame = self.0.next()?;
        buffer[..frame.len()].copy_from_slice(&frame);
        Some(frame.len())
    }
}

#[test]
fn a_capture_has_every_frame_of_the_uplink_once_as_it_was() {
    let file = Shared::default();
    let mut functions = functions(2);
    let to = functions[0].nic.objects.vport.mac();
    let capture = Capture::new(PcapWriter::new(file.clone()).unwrap(), functions[0].nic.now, Duration::ZERO);
    functions.iter_mut().for_each(|function| function.nic.port.attach_capture(Some(capture.clone())));
    let mut damaged = bytes(&packet(to));
    *damaged.last_mut().unwrap() ^= 1;
    // The IP identification is not kept by a packet that was decoded.
    let mut marked = bytes(&packet(to));
    (marked[18], marked[24]) = (0x12, marked[24].wrapping_sub(0x12));
    let frames = vec![damaged, marked, bytes(&ethernet([2, 0, 0, 0, 9, 9])), bytes(&ethernet([0xff; 6]))];
    let heard = [0, 1, 3].map(|index: usize| Frame::Ethernet(frames[index].clone()));
    let expected = frames.clone();
    Wire::with_uplink(Waiting(frames.into_iter())).exchange(&mut functions);
    assert_eq!(received(&mut functions[0]), heard);
    let file = file.0.lock().unwrap().clone();
    let (mut rest, mut captured) = (&file[24..], Vec::new());
    while let Some((header, after)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
        captured.push(after[..len].to_vec());
        rest = &after[len..];
    }
    assert_eq!(captured, expected);
}

#[test]
fn a_capture_holds_real_frames() {
    let file = Shared::default();
    let mut functions = functions(1);
    let to = functions[0].nic.objects.vport.mac();
    let writer = PcapWriter::new(file.clone()).unwrap();
    let begin = functions[0].nic.now;
    functions[0].nic.port.attach_capture(Some(Capture::new(writer, begin, Duration::from_secs(7))));
    functions[0].nic.now = begin + Duration::from_nanos(1_000_000_005);
    send(&mut functions[0], packet(to), &Faults::new());
    let bytes = file.0.lock().unwrap().clone();
    assert_eq!(bytes[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
    assert_eq!(bytes[24..32], [8, 0, 0, 0, 5, 0, 0, 0], "seconds and nanoseconds of the card's clock");
    let len = u32::from_le_bytes(bytes[32..36].try_into().unwrap()) as usize;
    assert_eq!(bytes.len(), 24 + 16 + len);
    assert_eq!(Frame::from_bytes(bytes[40..].to_vec()), Some(packet(to)));
}
