//! General objects: reserved numbers of queue pairs.

use mlx5_prm::cmd::*;
use mlx5_prm::layout::Be32;
use mlx5_prm::obj::ObjType;

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
    assert_eq!(client.refused(&create(ObjType::Sampler, 0)), Syndrome::ObjectType);
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
    let mut client = Client::up();
    let uid = client.exec(&CreateUctxIn::default()).unwrap().uid();
    let mut theirs = create(ObjType::ReservedQpn, LOG_RUN);
    theirs.command.w().uid(uid);
    let first = client.exec(&theirs).unwrap().reply.obj_id();
    let other = client.exec(&CreateUctxIn::default()).unwrap().uid();
    let mut end = destroy(first);
    end.w().uid(other);
    assert_eq!(client.refused(&end), Syndrome::NoSuchGeneralObject);
    let mut close = DestroyUctxIn::default();
    close.w().uid(uid);
    assert_eq!(client.refused(&close), Syndrome::UserContextInUse);
    end.w().uid(uid);
    client.exec(&end).unwrap();
    client.exec(&close).unwrap();
}
