//! On-demand paging: capabilities, keys of absent pages, answers to page faults.

use mlx5_prm::caps::OdpCap;
use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{AccessMode, Mkc};
use mlx5_prm::layout::Be64;

use super::bring_up::{capability, set};
use super::client::Client;
use crate::firmware::syndromes::Syndrome;
use crate::function::{PageFault, Side};
use crate::objects::{ABSENT_KEY, Translation};
use crate::profile::Profile;

/// `op_mod` of the capability page.
const ODP: u16 = 2 << 1;

/// A key of the whole address space, whose `entries` say that nothing is there.
fn whole(pd: u32, mode: AccessMode, log_page_size: u8, entries: usize) -> WithTail<CreateMkeyIn, Be64> {
    let mut context = Mkc::ZERO;
    context.set_access_mode(mode);
    context.w().lr(true).lw(true).qpn(0xff_ffff).pd(pd).length64(true).log_page_size(log_page_size);
    context.w().translations_octword_size(entries as u32 / 2);
    let mut command = CreateMkeyIn::default();
    command.w().pg_access(true).memory_key_mkey_entry(&context).translations_octword_actual_size(entries as u32 / 2);
    WithTail::new(command, vec![Be64::new(0); entries])
}

#[test]
fn the_driver_turns_faults_of_memory_on() {
    let mut client = Client::with(Profile::connectx7());
    client.exec(&EnableHcaIn::default()).unwrap();
    let (max, mut current) = (capability::<OdpCap>(&mut client, ODP), capability::<OdpCap>(&mut client, ODP | 1));
    assert!(max.mem_page_fault() && !current.mem_page_fault());
    assert!(max.memory_page_fault_scheme_cap().page_prefetch());
    current.w().mem_page_fault(true);
    client.exec(&set(ODP, &current)).unwrap();
    assert!(client.f.nic.firmware.caps.odp().mem_page_fault());
    let mut above = current;
    let mut scheme = *above.transport_page_fault_scheme_cap();
    scheme.w().sig(true);
    above.w().transport_page_fault_scheme_cap(&scheme);
    assert_eq!(client.refused(&set(ODP, &above)), Syndrome::CapabilityAboveMaximum);
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    assert_eq!(client.refused(&set(ODP, &current)), Syndrome::UnknownCapabilityPage, "an older card");
}

#[test]
fn a_key_may_cover_all_addresses_with_nothing_there() {
    let mut client = Client::up();
    client.f.nic.firmware.caps.general.current.w().pg(true).fixed_buffer_size(true).null_mkey(true);
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let index = client.exec(&whole(pd, AccessMode::Mtt, 61, 8)).unwrap().reply.mkey_index();
    let mkey = client.f.nic.objects.mkeys.get(index).unwrap();
    let Translation::OnDemand(list) = &mkey.translation else { panic!("{:?}", mkey.translation) };
    for at in [0, 1 << 40, 1 << 61, u64::MAX - 7] {
        assert_eq!(list.absent(at, 4, 1), Some(at));
    }
    assert_eq!(client.refused(&whole(pd, AccessMode::Mtt, 60, 8)), Syndrome::TranslationsTooFew);
    assert_eq!(client.refused(&whole(pd, AccessMode::Mtt, 11, 8)), Syndrome::PageSize);
    let mut present = whole(pd, AccessMode::Mtt, 61, 8);
    present.tail[3] = Be64::new(3);
    assert_eq!(client.refused(&present), Syndrome::MkeyLength);
    let keys = client.exec(&whole(pd, AccessMode::Ksm, 30, 8)).unwrap().reply.mkey_index();
    let mkey = client.f.nic.objects.mkeys.get(keys).unwrap();
    assert!(matches!(&mkey.translation, Translation::FixedKeys(keys) if keys.len() == 4), "{:?}", mkey.translation);
    assert_eq!(client.refused(&whole(pd, AccessMode::Ksm, 11, 8)), Syndrome::PageSize);
    assert_eq!(client.exec(&QuerySpecialContextsIn::default()).unwrap().null_mkey(), ABSENT_KEY);
}

#[test]
fn an_answer_means_a_fault_that_was_told() {
    let mut client = Client::up();
    client.f.nic.firmware.caps.general.current.w().pg(true);
    let mut answer = PageFaultResumeIn::default();
    let mut info = *answer.page_fault_info();
    let mut trans = *info.trans_page_fault_info();
    trans.w().fault_token(1).wq_number(70).page_fault_type(1);
    info.w().trans_page_fault_info(&trans);
    answer.w().page_fault_info(&info);
    assert_eq!(client.refused(&answer), Syndrome::NoSuchPageFault);
    let faults = &mut client.f.nic.scheduler.page_faults;
    assert_eq!(faults.token(), Some(1));
    let fault = PageFault { queue: 70, side: Side::Requester, kind: 2, wq_number: 70 };
    faults.add(1, fault);
    client.exec(&answer).unwrap();
    let faults = &mut client.f.nic.scheduler.page_faults;
    assert_eq!(faults.take(1, |_| true), Some(fault), "the answer was of another type");
    // The queue pair is gone by now: that is no mistake of the driver's.
    client.exec(&answer).unwrap();
}
