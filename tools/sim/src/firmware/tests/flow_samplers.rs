//! Flow samplers: what firmware refuses, and which frames go where.

use mlx5_prm::cmd::*;
use mlx5_prm::ctx::TrafficCounter;
use mlx5_prm::flow::*;
use mlx5_prm::layout::{Be64, Layout};
use mlx5_prm::obj::{ObjType, SamplerObj};

use super::client::Client;
use super::ethernet::{Rig, create_group, create_table, destination, lead};
use crate::firmware::syndromes::Syndrome;
use crate::profile::Profile;

/// Levels of the table whose entries lead to the sampler, of the sampler, and of its tables. That of `Rig` is 1.
const LEVELS: [u8; 3] = [1, 2, 3];
/// `flow_context.action`.
const DROP: u16 = 0x2;
const COUNT: u16 = 0x8;

/// As libmlx5's `mlx5dv_dr_action_create_flow_sampler` sends it, but for `ignore_flow_level`.
fn context(ratio: u32, sample: u32, default: u32) -> SamplerObj {
    let mut context = SamplerObj::ZERO;
    context.w().table_type(FlowTableType::NicRx).level(LEVELS[1]).sample_ratio(ratio);
    context.w().sample_table_id(sample).default_table_id(default);
    context
}

fn create(context: &SamplerObj) -> WithTail<CreateGeneralObjectIn, u8> {
    let mut command = CreateGeneralObjectIn::default();
    command.w().obj_type(ObjType::Sampler);
    WithTail::new(command, Layout::as_bytes(context).to_vec())
}

fn destroy(obj_id: u32) -> DestroyGeneralObjectIn {
    let mut destroy = DestroyGeneralObjectIn::default();
    destroy.w().obj_type(ObjType::Sampler).obj_id(obj_id);
    destroy
}

fn destroy_table(number: u32) -> DestroyFlowTableIn {
    let mut destroy = DestroyFlowTableIn::default();
    destroy.w().table_id(number);
    destroy
}

fn query(obj_id: u32) -> WithTail<QueryGeneralObjectIn, u8> {
    let mut query = QueryGeneralObjectIn::default();
    query.w().obj_type(ObjType::Sampler).obj_id(obj_id);
    let mut query = WithTail::new(query, Vec::new());
    query.out_tail = SamplerObj::SIZE;
    query
}

fn sampler(client: &mut Client, context: &SamplerObj) -> u32 {
    client.exec(&create(context)).unwrap().reply.obj_id()
}

fn table(client: &mut Client, level: u8) -> u32 {
    client.exec(&create_table(level)).unwrap().table_id()
}

/// A function with samplers, and two tables for them.
fn up() -> (Client, u32, u32) {
    let mut client = Client::up();
    let tables = [table(&mut client, LEVELS[2]), table(&mut client, LEVELS[2])];
    (client, tables[0], tables[1])
}

#[test]
fn a_sampler_is_made_asked_for_and_ended_and_keeps_its_tables() {
    let (mut client, sample, default) = up();
    let asked = context(100, sample, default);
    let number = sampler(&mut client, &asked);
    let found = SamplerObj::read(&client.exec(&query(number)).unwrap().tail).unwrap();
    assert_eq!(Layout::as_bytes(&found), Layout::as_bytes(&asked));
    for table in [sample, default] {
        assert_eq!(client.refused(&destroy_table(table)), Syndrome::FlowTableInUse);
    }
    client.exec(&destroy(number)).unwrap();
    assert_eq!(client.refused(&destroy(number)), Syndrome::NoSuchGeneralObject);
    assert_eq!(client.refused(&query(number)), Syndrome::NoSuchGeneralObject);
    for table in [sample, default] {
        client.exec(&destroy_table(table)).unwrap();
    }
}

#[test]
fn what_no_sampler_can_be_is_refused() {
    type Change = fn(&mut SamplerObj);
    const WRONG: [(Change, Syndrome); 11] = [
        (|one| _ = one.w().sample_ratio(0), Syndrome::SampleRatio),
        (|one| _ = one.w().table_type(FlowTableType::Fdb), Syndrome::FlowTableType),
        (|one| _ = one.w().table_type(FlowTableType::NicTx), Syndrome::CapabilityNotAnnounced),
        (|one| _ = one.w().ignore_flow_level(true), Syndrome::CapabilityNotAnnounced),
        (|one| _ = one.w().level(LEVELS[2]), Syndrome::FlowTableLevel),
        (|one| _ = one.w().level(u8::MAX), Syndrome::FlowTableLevel),
        (|one| _ = one.w().sample_table_id(0xff), Syndrome::NoSuchFlowTable),
        (|one| _ = one.w().default_table_id(0xff), Syndrome::NoSuchFlowTable),
        (|one| _ = one.w().modify_field_select(1), Syndrome::ReservedSet),
        (|one| _ = one.w().sw_steering_icm_address_rx(1), Syndrome::ReservedSet),
        (|one| _ = one.w().sw_steering_icm_address_tx(1), Syndrome::ReservedSet),
    ];
    let (mut client, sample, default) = up();
    for (number, (change, refusal)) in WRONG.into_iter().enumerate() {
        let mut wrong = context(2, sample, default);
        change(&mut wrong);
        assert_eq!(client.refused(&create(&wrong)), refusal, "{number}");
    }
    let mut command = CreateFlowTableIn::default();
    command.w().table_type(FlowTableType::NicTx).flow_table_context(create_table(LEVELS[2]).flow_table_context());
    let sent = client.exec(&command).unwrap().table_id();
    assert_eq!(client.refused(&create(&context(2, sample, sent))), Syndrome::NoSuchFlowTable, "of another type");
    let mut several = create(&context(2, sample, default));
    let mut range = GeneralObjCreateParam::ZERO;
    range.w().log_obj_range(1);
    several.command.w().op_param(&range);
    assert_eq!(client.refused(&several), Syndrome::ObjectRange);
    let mut short = create(&context(2, sample, default));
    short.tail.truncate(SamplerObj::SIZE - 4);
    assert_eq!(client.refused(&short), Syndrome::InputTooShort);
    let mut long = create(&context(2, sample, default));
    long.tail.extend([0, 0, 0, 1]);
    assert_eq!(client.refused(&long), Syndrome::ReservedSet);
    let mut profile = Profile::default();
    for caps in [&mut profile.general_max, &mut profile.general_current] {
        caps.w().general_obj_types(1 << ObjType::ReservedQpn.number());
    }
    let mut without = Client::with(profile);
    without.bring_up();
    assert_eq!(without.refused(&create(&context(2, 1, 1))), Syndrome::ObjectType);
}

#[test]
fn there_are_as_many_samplers_as_announced_of_each_type() {
    let mut profile = Profile::default();
    let (mut few, mut more) = (
        *profile.flow_table.flow_table_properties_nic_receive(),
        *profile.flow_table.flow_table_properties_nic_transmit(),
    );
    few.w().log_max_ft_sampler_num(1);
    more.w().log_max_ft_sampler_num(3);
    profile.flow_table.w().flow_table_properties_nic_receive(&few).flow_table_properties_nic_transmit(&more);
    let mut client = Client::with(profile);
    client.bring_up();
    let received = table(&mut client, LEVELS[2]);
    let both = context(2, received, received);
    let first = sampler(&mut client, &both);
    sampler(&mut client, &both);
    assert_eq!(client.refused(&create(&both)), Syndrome::TooManySamplers);
    let mut command = CreateFlowTableIn::default();
    command.w().table_type(FlowTableType::NicTx).flow_table_context(create_table(LEVELS[2]).flow_table_context());
    let sent = client.exec(&command).unwrap().table_id();
    let mut of_sent = context(2, sent, sent);
    of_sent.w().table_type(FlowTableType::NicTx);
    for _ in 0..6 {
        sampler(&mut client, &of_sent);
    }
    client.exec(&destroy(first)).unwrap();
    sampler(&mut client, &both);
}

/// The command of a user context, as the kernel sends it for DevX: the PRM has no name for the field here.
fn of_user(command: &SetFteIn, uid: u16) -> SetFteIn {
    let mut bytes = Layout::as_bytes(command).to_vec();
    bytes[2..4].copy_from_slice(&uid.to_be_bytes());
    SetFteIn::read(&bytes).unwrap()
}

#[test]
fn a_user_context_keeps_its_sampler_to_itself() {
    let (mut client, sample, default) = up();
    let [uid, other] = [(); 2].map(|()| client.exec(&CreateUctxIn::default()).unwrap().uid());
    let mut theirs = create(&context(2, sample, default));
    theirs.command.w().uid(uid);
    let number = client.exec(&theirs).unwrap().reply.obj_id();
    let from = table(&mut client, LEVELS[0]);
    let group = client.exec(&create_group(from, 0, 7)).unwrap().group_id();
    let mut entry = lead(from, group, vec![destination(FlowDestinationType::FlowSampler, number)]);
    entry.command = of_user(&entry.command, other);
    assert_eq!(client.refused(&entry), Syndrome::NoSuchGeneralObject);
    entry.command = of_user(&entry.command, uid);
    client.exec(&entry).unwrap();
    let mut close = DestroyUctxIn::default();
    close.w().uid(uid);
    assert_eq!(client.refused(&close), Syndrome::UserContextInUse);
}

#[test]
fn an_entry_leads_to_a_sampler_of_its_type_and_a_higher_level_and_keeps_it() {
    let (mut client, sample, default) = up();
    let number = sampler(&mut client, &context(2, sample, default));
    let to_sampler = |client: &mut Client, level: u8| {
        let from = table(client, level);
        let group = client.exec(&create_group(from, 0, 7)).unwrap().group_id();
        lead(from, group, vec![destination(FlowDestinationType::FlowSampler, number)])
    };
    let (below, beside) = (to_sampler(&mut client, LEVELS[0]), to_sampler(&mut client, LEVELS[1]));
    assert_eq!(client.refused(&beside), Syndrome::FlowTableLevel);
    let mut missing = below.clone();
    missing.tail = vec![destination(FlowDestinationType::FlowSampler, number + 1)];
    assert_eq!(client.refused(&missing), Syndrome::NoSuchGeneralObject);
    let mut command = CreateFlowTableIn::default();
    command.w().table_type(FlowTableType::NicTx).flow_table_context(create_table(LEVELS[0]).flow_table_context());
    let sent = client.exec(&command).unwrap().table_id();
    let mut group = create_group(sent, 0, 7);
    group.w().table_type(FlowTableType::NicTx);
    let group = client.exec(&group).unwrap().group_id();
    let mut of_sent = lead(sent, group, below.tail.clone());
    of_sent.command.w().table_type(FlowTableType::NicTx);
    assert_eq!(client.refused(&of_sent), Syndrome::NoSuchGeneralObject, "a sampler of received frames");
    client.exec(&below).unwrap();
    assert_eq!(client.refused(&destroy(number)), Syndrome::SamplerInUse);
    let mut delete = DeleteFteIn::default();
    delete.w().table_id(below.command.table_id());
    client.exec(&delete).unwrap();
    client.exec(&destroy(number)).unwrap();
}

/// A function whose frames all go through a sampler.
struct Sampled {
    rig: Rig,
    /// Counters of what comes to the table of samples, and to the other.
    counters: [u32; 2],
}

impl Sampled {
    /// Both tables count frames and drop them.
    fn new(ratio: u32) -> Self {
        let mut rig = Rig::new();
        let ends = [(); 2].map(|()| {
            let c = &mut rig.client;
            let (number, counter) = (table(c, LEVELS[2]), c.exec(&AllocFlowCounterIn::default()).unwrap());
            let group = c.exec(&create_group(number, 0, 7)).unwrap().group_id();
            let mut entry = lead(number, group, vec![Be64::new(u64::from(counter.flow_counter_id()) << 32)]);
            let mut context = *entry.command.flow_context();
            context.w().action(DROP | COUNT).destination_list_size(0).flow_counter_list_size(1);
            entry.command.w().flow_context(&context);
            c.exec(&entry).unwrap();
            (number, counter.flow_counter_id())
        });
        Self::between(rig, ratio, ends)
    }

    fn between(mut rig: Rig, ratio: u32, ends: [(u32, u32); 2]) -> Self {
        let number = sampler(&mut rig.client, &context(ratio, ends[0].0, ends[1].0));
        let mut context = FlowContext::ZERO;
        context.w().group_id(rig.group).action(4).destination_list_size(1);
        let mut command = SetFteIn::default();
        command.w().table_id(rig.table).op_mod(1).modify_enable_mask(0xf).flow_context(&context);
        let to = WithTail::new(command, vec![destination(FlowDestinationType::FlowSampler, number)]);
        rig.client.exec(&to).unwrap();
        Sampled { rig, counters: ends.map(|(_, counter)| counter) }
    }

    /// Which of `count` frames were sampled. All go to the other table.
    fn samples(&mut self, count: usize) -> Vec<bool> {
        let frame = self.rig.frame(b"one of many");
        let sampled = (0..count).map(|sent| {
            let before = self.counted();
            self.rig.send(&frame);
            assert_eq!(self.rig.polls().len(), 1, "sent");
            let after = self.counted();
            assert_eq!(after[1] - before[1], 1, "{sent}");
            assert!(after[0] - before[0] <= 1, "{sent}");
            after[0] > before[0]
        });
        sampled.collect()
    }

    fn counted(&mut self) -> [u64; 2] {
        self.counters.map(|counter| {
            let mut query = QueryFlowCounterIn::default();
            query.w().flow_counter_id(counter);
            let mut query = WithTail::<_, Be64>::new(query, vec![]);
            query.out_tail = 2;
            TrafficCounter::read(&self.rig.client.exec(&query).unwrap().tail).unwrap().packets()
        })
    }
}

#[test]
fn all_frames_go_on_and_one_of_so_many_also_to_the_other_table() {
    assert_eq!(Sampled::new(1).samples(50), [true; 50]);
    assert_eq!(Sampled::new(u32::MAX).samples(50), [false; 50]);
    let mut sampled = Sampled::new(4);
    let taken = sampled.samples(800);
    let count = taken.iter().filter(|is_sampled| **is_sampled).count();
    assert!((150..250).contains(&count), "{count} of 800");
    let gaps = taken.chunk_by(|_, after| !after).map(<[bool]>::len);
    assert!(gaps.collect::<std::collections::BTreeSet<_>>().len() > 4, "not every fourth: {taken:?}");
    assert_eq!(sampled.rig.client.violations(), [""; 0]);
    // The same card draws the same.
    assert_eq!(Sampled::new(4).samples(200), taken[..200]);
}

#[test]
fn another_seed_samples_others_and_a_reset_begins_nothing_anew() {
    let mut seeded = Sampled::new(4);
    seeded.rig.client.f.nic.objects.steering.seed(7);
    let first = seeded.samples(100);
    assert_ne!(first, Sampled::new(4).samples(100));
    let mut again = Sampled::new(4);
    again.rig.client.f.nic.objects.steering.seed(7);
    assert_eq!(again.samples(50), first[..50]);
    let mut before = again.rig.client.f.nic.objects.steering;
    let mut fresh = Sampled::new(4);
    fresh.rig.client.f.nic.objects.steering.succeed(&mut before);
    assert_eq!(fresh.samples(50), first[50..]);
}

/// As they come to receive queues: the same frame twice, with the flow tag of either table.
#[test]
fn a_sample_is_the_frame_itself() {
    let mut rig = Rig::new();
    rig.post_receives(2);
    let ends = [0x11, 0x22].map(|tag| {
        let number = table(&mut rig.client, LEVELS[2]);
        let group = rig.client.exec(&create_group(number, 0, 7)).unwrap().group_id();
        let mut entry = lead(number, group, vec![destination(FlowDestinationType::Tir, rig.tirn)]);
        let mut context = *entry.command.flow_context();
        context.w().flow_tag(tag);
        entry.command.w().flow_context(&context);
        rig.client.exec(&entry).unwrap();
        (number, 0)
    });
    let Sampled { mut rig, .. } = Sampled::between(rig, 1, ends);
    let frame = rig.frame(b"each is sampled");
    rig.send(&frame);
    let done = rig.polls();
    let mut tags: Vec<_> = done[1..].iter().map(|cqe| cqe.qpn()).collect();
    tags.sort_unstable();
    assert_eq!(tags, [0x11, 0x22]);
    for buffer in [32, 33] {
        assert_eq!(rig.client.read(rig.buffer(buffer), frame.len()), frame);
    }
}
