//! The extension of a queue pair's context, and streams of DC initiators. What streams do, mlx5-dv and the lab test.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{Ads, Qpc};
use mlx5_prm::layout::Be64;
use mlx5_prm::values::{PathMtu, QpState, ServiceType};

use super::client::{Client, Parents};
use crate::firmware::syndromes::Syndrome;
use crate::profile::Profile;

type Create = WithTail<CreateQpIn, Be64>;

fn up(profile: Profile) -> (Client, Parents) {
    let mut client = Client::with(profile);
    client.bring_up();
    client.ready_for_roce();
    let parents = client.parents();
    (client, parents)
}

/// An initiator of `2^channels` streams at once, of which `2^errored` may not be in error.
fn initiator(client: &mut Client, parents: &Parents, channels: u8, errored: u8) -> Create {
    let mut command = client.qp(parents);
    let mut context = *command.command.qpc();
    context.w().st(ServiceType::Dci).log_num_dci_stream_channels(channels).log_num_dci_errored_streams(errored);
    command.command.w().qpc(&context);
    command
}

fn to_rts(client: &mut Client, qpn: u32) {
    let (mut path, mut context) = (Ads::ZERO, Qpc::ZERO);
    path.w().vhca_port_num(1);
    context.w().primary_address_path(&path).mtu(PathMtu::Mtu1024);
    let mut init = Rst2initQpIn::default();
    init.w().qpn(qpn).qpc(&context);
    client.exec(&init).unwrap();
    let mut rtr = Init2rtrQpIn::default();
    rtr.w().qpn(qpn).qpc(&context);
    client.exec(&rtr).unwrap();
    let mut rts = Rtr2rtsQpIn::default();
    rts.w().qpn(qpn).qpc(&context);
    client.exec(&rts).unwrap();
}

fn reset_of(qpn: u32, mask: u64) -> WithTail<Rts2rtsQpIn, QpContextExtension> {
    let mut command = Rts2rtsQpIn::default();
    command.w().qpn(qpn).qpc_ext(true).opt_param_mask_95_32(mask);
    let mut extension = QpContextExtension::ZERO;
    extension.w().dci_stream_channel_id(3);
    WithTail::new(command, vec![extension])
}

#[test]
fn a_stream_is_reset_by_the_extension_alone() {
    let (mut client, parents) = up(Profile::connectx7());
    let c = &mut client;
    let create = initiator(c, &parents, 6, 6);
    let qpn = c.exec(&create).unwrap().reply.qpn();
    to_rts(c, qpn);
    c.f.queues.qps.get_mut(qpn).unwrap().rc.send.streams.as_mut().unwrap().errored.extend([3, 4]);
    c.exec(&reset_of(qpn, 0)).unwrap();
    c.exec(&reset_of(qpn, 1)).unwrap();
    let qp = c.f.queues.qps.get(qpn).unwrap();
    let streams = qp.rc.send.streams.as_ref().unwrap();
    assert_eq!((qp.state, streams.errored.iter().collect::<Vec<_>>()), (QpState::Rts, vec![&4]));
    assert_eq!(c.refused(&reset_of(qpn, 2)), Syndrome::OptParamMask);
    let mut without = reset_of(qpn, 1).command;
    without.w().qpc_ext(false);
    assert_eq!(c.refused(&without), Syndrome::OptParamMask);
    without.w().opt_param_mask_95_32(0);
    c.exec(&without).unwrap();
    without.w().opt_param_mask_95_32(Rts2rtsQpIn::UDP_SPORT);
    assert_eq!(c.refused(&without), Syndrome::OptParamMask, "who sends to many has a port for each");
    without.w().opt_param_mask_95_32(0).qpc_ext(true);
    assert_eq!(c.refused(&without), Syndrome::InputTooShort);
    let create = initiator(c, &parents, 0, 0);
    let qpn = c.exec(&create).unwrap().reply.qpn();
    to_rts(c, qpn);
    assert_eq!(c.refused(&reset_of(qpn, 1)), Syndrome::OptParamMask);
    assert_eq!(c.violations(), [] as [&str; 0]);
}

#[test]
fn an_extension_that_sets_nothing_stands_before_the_pages() {
    let (mut client, parents) = up(Profile::connectx7());
    let c = &mut client;
    let plain = initiator(c, &parents, 1, 1);
    let mut create = plain.clone();
    create.command.w().qpc_ext(true);
    create.tail.splice(0..0, [Be64::new(0); 24]);
    let qpn = c.exec(&create).unwrap().reply.qpn();
    let mut query = QueryQpIn::default();
    query.w().qpn(qpn).qpc_ext(true);
    let answer = c.exec(&query).unwrap();
    assert_eq!(answer.qpc().log_num_dci_stream_channels(), 1);
    assert_eq!(answer.qp_pas_or_qpc_ext_and_pas(), &[0; 0xc0]);
    create.tail[0] = Be64::new(1);
    assert_eq!(c.refused(&create), Syndrome::QpFeature);
    create.tail.truncate(3);
    assert_eq!(c.refused(&create), Syndrome::InputTooShort);
}

#[test]
fn what_is_not_announced_is_refused() {
    let (mut client, parents) = up(Profile::connectx7());
    let c = &mut client;
    for (channels, errored) in [(7, 1), (1, 7)] {
        let create = initiator(c, &parents, channels, errored);
        assert_eq!(c.refused(&create), Syndrome::QpFeature);
    }
    let mut connected = initiator(c, &parents, 1, 1);
    let mut context = *connected.command.qpc();
    context.w().st(ServiceType::Rc);
    connected.command.w().qpc(&context);
    assert_eq!(c.refused(&connected), Syndrome::QpFeature);

    let (mut client, parents) = up(Profile::connectx5());
    let c = &mut client;
    let create = initiator(c, &parents, 1, 1);
    assert_eq!(c.refused(&create), Syndrome::QpFeature);
    let create = initiator(c, &parents, 0, 0);
    let qpn = c.exec(&create).unwrap().reply.qpn();
    to_rts(c, qpn);
    assert_eq!(c.refused(&reset_of(qpn, 1)), Syndrome::QpFeature);
    let mut query = QueryQpIn::default();
    query.w().qpn(qpn).qpc_ext(true);
    assert_eq!(c.refused(&query), Syndrome::QpFeature);
}
