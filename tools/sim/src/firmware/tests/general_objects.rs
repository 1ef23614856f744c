//! General objects: reserved numbers of queue pairs, options of GENEVE.

use mlx5_prm::cmd::*;
use mlx5_prm::layout::{Be32, Layout};
use mlx5_prm::obj::{GeneveTlvOption, ObjType};

use super::client::Client;
use crate::firmware::syndromes::Syndrome;
use crate::profile::Profile;

const LOG_RUN: u8 = 6;

/// As libmlx5 sends it: the object's context, which is empty, follows.
fn create(obj_type: ObjType, log_obj_range: u8) -> WithTail<CreateGeneralObjectIn, Be32> {
    let mut range = GeneralObjCreateParam::ZERO;
    range.w().log_obj_range(log_obj_range);
    let mut command = CreateGeneralObjectIn::default();
    command.w().obj_type(obj_type).op_param(&range);
    WithTail::new(command, vec![Be32::ZERO; 4])
}

fn reserve(client: &mut Client) -> u32 {
    client.exec(&create(ObjType::ReservedQpn, LOG_RUN)).unwrap().reply.obj_id()
}

fn query(obj_id: u32) -> QueryGeneralObjectIn {
    let mut query = QueryGeneralObjectIn::default();
    query.w().obj_type(ObjType::ReservedQpn).obj_id(obj_id);
    query
}

fn destroy(obj_id: u32) -> DestroyGeneralObjectIn {
    let mut destroy = DestroyGeneralObjectIn::default();
    destroy.w().obj_type(ObjType::ReservedQpn).obj_id(obj_id);
    destroy
}

#[test]
fn reserved_numbers_are_no_queue_s() {
    let mut client = Client::up();
    let (first, second) = (reserve(&mut client), reserve(&mut client));
    assert_eq!(second, first + (1 << LOG_RUN));
    let caps = Profile::default().general_max;
    let queues = (1 << caps.log_max_qp()) + (1 << caps.log_max_sq()) + (1 << caps.log_max_rq());
    assert!(first > queues && second + (1 << LOG_RUN) <= 1 << 24, "{first:#x}, {second:#x}");
    assert_eq!(client.exec(&query(second)).unwrap().obj_id(), second);

    client.exec(&destroy(first)).unwrap();
    assert_eq!(client.refused(&query(first)), Syndrome::NoSuchGeneralObject);
    assert_eq!(client.refused(&destroy(second + 1)), Syndrome::NoSuchGeneralObject);
    assert_eq!(reserve(&mut client), first);
}

#[test]
fn no_more_numbers_are_reserved_than_announced() {
    let mut profile = Profile::default();
    profile.general_2.w().log_max_num_reserved_qpn(LOG_RUN + 1);
    let mut client = Client::with(profile);
    client.bring_up();
    reserve(&mut client);
    let last = reserve(&mut client);
    assert_eq!(client.refused(&create(ObjType::ReservedQpn, LOG_RUN)), Syndrome::TooManyReservedQpns);
    client.exec(&destroy(last)).unwrap();
    assert_eq!(reserve(&mut client), last);
}

#[test]
fn general_objects_that_are_not_announced_are_refused() {
    let mut client = Client::up();
    // The model has the one, on other cards; and not the other.
    for obj_type in [ObjType::FlowMeterAso, ObjType::MatchDefiner] {
        assert_eq!(client.refused(&create(obj_type, 0)), Syndrome::ObjectType);
    }
    for log_obj_range in [0, LOG_RUN - 1, LOG_RUN + 1] {
        assert_eq!(client.refused(&create(ObjType::ReservedQpn, log_obj_range)), Syndrome::ReservedQpnRange);
    }
    let mut alias = create(ObjType::ReservedQpn, LOG_RUN);
    let mut range = GeneralObjCreateParam::ZERO;
    range.w().alias_object(true).log_obj_range(LOG_RUN);
    alias.command.w().op_param(&range);
    assert_eq!(client.refused(&alias), Syndrome::Alias);
    let filled = WithTail::new(create(ObjType::ReservedQpn, LOG_RUN).command, vec![Be32::new(1)]);
    assert_eq!(client.refused(&filled), Syndrome::ReservedSet);
}

#[test]
fn a_user_context_keeps_its_reserved_numbers_to_itself() {
    is_its_own(create(ObjType::ReservedQpn, LOG_RUN), ObjType::ReservedQpn);
}

/// Checks that the object of a user context is not another's, and keeps its own alive.
fn is_its_own<T>(mut theirs: WithTail<CreateGeneralObjectIn, T>, obj_type: ObjType)
where
    WithTail<CreateGeneralObjectIn, T>: Command<Out = ReplyWithTail<CreateGeneralObjectOut>>,
{
    let mut client = Client::up();
    let uid = client.exec(&CreateUctxIn::default()).unwrap().uid();
    theirs.command.w().uid(uid);
    let number = client.exec(&theirs).unwrap().reply.obj_id();
    let other = client.exec(&CreateUctxIn::default()).unwrap().uid();
    let mut end = destroy(number);
    end.w().obj_type(obj_type).uid(other);
    assert_eq!(client.refused(&end), Syndrome::NoSuchGeneralObject);
    let mut close = DestroyUctxIn::default();
    close.w().uid(uid);
    assert_eq!(client.refused(&close), Syndrome::UserContextInUse);
    end.w().uid(uid);
    client.exec(&end).unwrap();
    client.exec(&close).unwrap();
}

/// As Linux's lib/geneve.c sends it.
fn geneve_option(class: u16, kind: u8, words: u8) -> WithTail<CreateGeneralObjectIn, u8> {
    let mut option = GeneveTlvOption::ZERO;
    option.w().option_class(class).option_type(kind).option_data_length(words);
    let mut command = CreateGeneralObjectIn::default();
    command.w().obj_type(ObjType::GeneveTlvOpt);
    WithTail::new(command, Layout::as_bytes(&option).to_vec())
}

#[test]
fn one_geneve_option_is_made_asked_for_and_ended() {
    let mut client = Client::up();
    let number = client.exec(&geneve_option(0x0102, 0x83, 1)).unwrap().reply.obj_id();
    assert_eq!(client.refused(&geneve_option(0x0102, 0x84, 1)), Syndrome::TooManyGeneveOptions);
    let mut asked = query(number);
    asked.w().obj_type(ObjType::GeneveTlvOpt);
    let mut asked = WithTail::<_, u8>::new(asked, Vec::new());
    asked.out_tail = GeneveTlvOption::SIZE;
    let context = GeneveTlvOption::read(&client.exec(&asked).unwrap().tail).unwrap();
    let option = (context.option_class(), context.option_type(), context.option_data_length());
    assert_eq!((option, context.geneve_option_fte_index()), ((0x0102, 0x83, 1), 0));
    // The number is of another type.
    assert_eq!(client.refused(&destroy(number)), Syndrome::NoSuchGeneralObject);
    let mut end = destroy(number);
    end.w().obj_type(ObjType::GeneveTlvOpt);
    client.exec(&end).unwrap();
    assert_eq!(client.refused(&end), Syndrome::NoSuchGeneralObject);
    assert_eq!(client.refused(&asked), Syndrome::NoSuchGeneralObject);
    client.exec(&geneve_option(0x0102, 0x84, 1)).unwrap();
}

#[test]
fn geneve_options_that_are_not_announced_are_refused() {
    let mut client = Client::up();
    for words in [2, 31] {
        assert_eq!(client.refused(&geneve_option(1, 1, words)), Syndrome::GeneveOptionLength);
    }
    assert_eq!(client.refused(&geneve_option(1, 1, 0)), Syndrome::GeneveOptionEmpty);
    let mut several = geneve_option(1, 1, 1);
    let mut range = GeneralObjCreateParam::ZERO;
    range.w().log_obj_range(1);
    several.command.w().op_param(&range);
    assert_eq!(client.refused(&several), Syndrome::ObjectRange);
    let mut indexed = geneve_option(1, 1, 1);
    indexed.tail[0xb] = 1; // geneve_option_fte_index
    assert_eq!(client.refused(&indexed), Syndrome::ReservedSet);
    let mut short = geneve_option(1, 1, 1);
    short.tail.truncate(GeneveTlvOption::SIZE - 4);
    assert_eq!(client.refused(&short), Syndrome::InputTooShort);
    let mut alias = query(1);
    let mut of_alias = GeneralObjQueryParam::ZERO;
    of_alias.w().alias_object(true);
    alias.w().op_param(&of_alias);
    assert_eq!(client.refused(&alias), Syndrome::Alias);
    let long = WithTail::new(query(1), vec![Be32::new(1)]);
    assert_eq!(client.refused(&long), Syndrome::InputTooLong);
    let mut profile = Profile::default();
    for caps in [&mut profile.general_max, &mut profile.general_current] {
        caps.w().general_obj_types(1 << ObjType::ReservedQpn.number());
    }
    let mut client = Client::with(profile);
    client.bring_up();
    assert_eq!(client.refused(&geneve_option(1, 1, 1)), Syndrome::ObjectType);
}

#[test]
fn a_user_context_keeps_its_geneve_option_to_itself() {
    is_its_own(geneve_option(1, 1, 1), ObjType::GeneveTlvOpt);
}
