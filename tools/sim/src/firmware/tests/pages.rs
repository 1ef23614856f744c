//! Pages: given, taken back, requested.

use mlx5_prm::cmd::*;
use mlx5_prm::eqe::EventType;

use super::client::{Client, Failure, give};
use super::keys::umem;
use crate::dma::{Access, Purpose, Source};
use crate::fault::{Fault, Times};
use crate::firmware;
use crate::firmware::queue::{BYTES_A_TURN, MOST_KEPT};
use crate::firmware::syndromes::Syndrome;
use crate::function::Pending;
use crate::profile::{PageNeeds, Profile};

/// Room for the contexts of very few objects.
pub(super) fn tight() -> Client {
    let mut profile = Profile::connectx5();
    profile.pages = PageNeeds { boot: 2, init: 4, contexts: 1, batch: 3 };
    let mut client = Client::with(profile);
    client.bring_up();
    client
}

pub(super) fn take_page_requests(client: &mut Client) {
    let uar = client.exec(&AllocUarIn::default()).unwrap().uar();
    let eq = client.eq(uar, 1 << EventType::PageRequest.number());
    client.exec(&eq).unwrap();
}

#[test]
fn what_is_given_is_checked() {
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    let pages = client.give(2).unwrap();
    assert_eq!(client.refused(&give(&pages[..1])), Syndrome::PageGivenTwice);
    let fresh = client.pages(1);
    assert_eq!(client.refused(&give(&[fresh, fresh])), Syndrome::PageGivenTwice);
    assert_eq!(client.refused(&give(&[fresh + 8])), Syndrome::PageMisaligned);
    let mut short = give(&[fresh]);
    short.command.w().input_num_entries(2);
    assert_eq!(client.refused(&short), Syndrome::PageCount);
    assert_eq!(client.violations(), [] as [&str; 0]);
    for unmapped in [0, 0x10_0000] {
        assert_eq!(client.refused(&give(&[unmapped])), Syndrome::PageUnreachable);
        client.violations();
    }
    assert_eq!(client.f.nic.firmware.pages_held(), 2, "all or none");
    let mut other = give(&[fresh]);
    other.command.w().function_id(1);
    assert_eq!(client.refused(&other), Syndrome::OtherFunction);
    let mut back = client.take(10);
    back.sort();
    assert_eq!(back, pages);
}

/// libmlx5's VFIO driver hands out IOVAs from 0 on, where the IOMMU has them.
#[test]
fn a_page_may_lie_at_iova_0() {
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(0x2000).unwrap();
    client.f.nic.dma.map(0, 0x2000, Access::READ | Access::WRITE, Source::File { file, offset: 0 }).unwrap();
    client.exec(&give(&[0, 0x1000])).unwrap();
    assert_eq!(client.take(2), [0x1000, 0]);
    assert_eq!(client.violations(), [] as [&str; 0]);
}

#[test]
fn a_page_that_was_written_to_is_noticed() {
    let mut client = Client::new();
    client.exec(&EnableHcaIn::default()).unwrap();
    let pages = client.give(2).unwrap();
    client.write(pages[1], b"mine");
    client.take(2);
    assert_eq!(client.violations(), ["page changed while firmware held it"]);
}

#[test]
fn in_use_only_spare_pages_go_back() {
    let mut client = Client::up();
    assert_eq!(client.take(100), [] as [u64; 0]);
    let extra = client.give(5).unwrap();
    let mut back = client.take(100);
    back.sort();
    assert_eq!(back, extra);
}

#[test]
fn an_object_that_finds_no_page_waits_for_one() {
    let mut client = tight();
    take_page_requests(&mut client);
    // A page takes 64 PDs, less what the EQ takes.
    let mut made = 0;
    let outcome = loop {
        match client.exec(&AllocPdIn::default()) {
            Ok(_) => made += 1,
            Err(failure) => break failure,
        }
    };
    assert_eq!((outcome, made), (Failure::Unanswered, (4096 - 512) / 64));
    let mut query = QueryPagesIn::default();
    query.w().op_mod(3);
    let answer = send_meanwhile(&mut client, &query).unwrap();
    assert_eq!(answer[12..], [0, 0, 0, 3], "it asks for three");
    give_meanwhile(&mut client, 3);
    client.answer(3, 16).expect("the PD, at last");
}

/// Gives pages while a command waits for them.
pub(super) fn give_meanwhile(client: &mut Client, count: u64) {
    let pages: Vec<u64> = (0..count).map(|_| client.pages(1)).collect();
    send_meanwhile(client, &give(&pages)).unwrap();
}

/// Answers a command while another one waits.
fn send_meanwhile<C: Command>(client: &mut Client, command: &C) -> Result<Vec<u8>, Failure> {
    let entry = client.entry(&[command.head(), command.tail()].concat(), 16);
    client.post(5, &entry);
    client.answer(5, 16)
}

#[test]
fn a_long_list_of_pages_takes_pages_of_its_own() {
    let mut client = Client::up();
    let room = |client: &mut Client| client.f.nic.firmware.pages.needed(0);
    let before = room(&mut client);
    let page = client.pages(1);
    let umem = client.exec(&umem(&vec![page; 2048], 0)).unwrap().reply.umem_id();
    assert!((4..=5).contains(&(room(&mut client) - before)), "eight bytes each");
    let mut destroy = DestroyUmemIn::default();
    destroy.w().umem_id(umem);
    client.exec(&destroy).unwrap();
    assert_eq!(room(&mut client), before);
}

#[test]
fn as_many_pages_are_asked_for_as_one_object_needs() {
    let mut client = tight();
    take_page_requests(&mut client);
    let page = client.pages(1);
    let outcome = client.exec(&umem(&vec![page; 8 * 512], 0)).map(drop).unwrap_err();
    assert_eq!(outcome, Failure::Unanswered);
    let mut query = QueryPagesIn::default();
    query.w().op_mod(3);
    assert_eq!(send_meanwhile(&mut client, &query).unwrap()[12..], [0, 0, 0, 8]);
}

#[test]
fn pages_for_one_of_two_commands_that_wait_let_one_go_on() {
    let mut client = tight();
    take_page_requests(&mut client);
    let page = client.pages(1);
    let command = umem(&vec![page; 8 * 512], 0);
    let command = [command.head(), command.tail()].concat();
    for slot in [6, 7] {
        let entry = client.entry(&command, 16);
        client.post(slot, &entry);
        assert_eq!(client.answer(slot, 16).unwrap_err(), Failure::Unanswered);
    }
    give_meanwhile(&mut client, 8);
    firmware::tick(&mut client.f);
    let answers = [6, 7].map(|slot| client.answer(slot, 16).is_ok());
    assert_eq!(answers.iter().filter(|is_answered| **is_answered).count(), 1);
}

/// As long as one function's commands take, the card's other functions stand still.
#[test]
fn long_commands_of_all_slots_are_fetched_a_few_bytes_a_turn_and_wait_for_their_pages() {
    let slots = || 6..30;
    let mut client = tight();
    take_page_requests(&mut client);
    let page = client.pages(1);
    let command = umem(&vec![page; 1 << 16], 0);
    let input = [command.head(), command.tail()].concat();
    let chain = client.long_chain(&input);
    let entry = client.long_entry(&input, chain);
    let read = |client: &Client| client.f.nic.dma.traffic().of(Purpose::Command).read_bytes;
    let bound = (BYTES_A_TURN + BYTES_A_TURN / 4) as u64;
    let turns = |client: &mut Client| {
        std::iter::from_fn(|| {
            let before = read(client);
            firmware::tick(&mut client.f).then(|| read(client) - before)
        })
        .collect::<Vec<_>>()
    };
    let before = read(&client);
    slots().for_each(|slot| client.post(slot, &entry));
    assert!(read(&client) - before < bound, "one turn's");
    let fetched = turns(&mut client);
    assert!(fetched.len() > 24 && fetched.iter().all(|bytes| *bytes < bound), "{fetched:?}");
    assert!(slots().all(|slot| client.slot(slot).ownership()), "all wait for pages");
    let kept = |client: &Client| client.f.nic.firmware.queue.pending.iter().map(Pending::kept).sum::<usize>();
    assert!((1 << 19..=MOST_KEPT).contains(&kept(&client)));
    // A page of many makes no difference to any of them.
    give_meanwhile(&mut client, 1);
    let before = read(&client);
    firmware::tick(&mut client.f);
    assert_eq!(read(&client), before);
    // With pages for three, the first three go on, each as soon as its bytes are here again.
    give_meanwhile(&mut client, 3 * 129);
    let fetched = turns(&mut client);
    assert!(fetched.len() > 3 && fetched.iter().all(|bytes| *bytes < bound), "{fetched:?}");
    let waiting = |client: &Client| slots().filter(|slot| client.slot(*slot).ownership()).collect::<Vec<_>>();
    assert_eq!(waiting(&client), Vec::from_iter(9..30));
    // What cannot be had is said to all, of which most are fetched again.
    let mut sorry = ManagePagesIn::default();
    sorry.w().op_mod(0);
    send_meanwhile(&mut client, &sorry).unwrap();
    assert!(turns(&mut client).iter().all(|bytes| *bytes < bound));
    let answers = Vec::from_iter(slots().map(|slot| client.answer(slot, 16)));
    assert!(answers[..3].iter().all(Result::is_ok));
    assert!(answers[3..].iter().all(|answer| *answer == Err(refusal(Syndrome::PagesRefused))), "{answers:?}");
    assert_eq!(kept(&client), 0);
}

#[test]
fn a_driver_that_cannot_give_is_told_so() {
    let mut client = tight();
    assert_eq!(fill(&mut client), refusal(Syndrome::PagesUnasked));
    take_page_requests_of_full(&mut client);
    assert_eq!(fill(&mut client), Failure::Unanswered);
    let mut sorry = ManagePagesIn::default();
    sorry.w().op_mod(0);
    send_meanwhile(&mut client, &sorry).unwrap();
    let failure = client.answer(3, 16).unwrap_err();
    assert_eq!(failure, refusal(Syndrome::PagesRefused));
}

/// Linux forgets a request for pages that firmware refused, and would never give others.
#[test]
fn commands_end_that_wait_for_pages_which_are_refused() {
    let mut client = tight();
    take_page_requests(&mut client);
    assert_eq!(fill(&mut client), Failure::Unanswered);
    let refused = send_meanwhile(&mut client, &give(&[8]));
    assert_eq!(refused, Err(refusal(Syndrome::PageMisaligned)));
    assert_eq!(client.answer(3, 16), Err(refusal(Syndrome::PagesRefused)));
    // The next object requests its pages again.
    assert_eq!(fill(&mut client), Failure::Unanswered);
    give_meanwhile(&mut client, 3);
    client.answer(3, 16).unwrap();
}

fn refusal(syndrome: Syndrome) -> Failure {
    Failure::Refused(syndrome.status(), syndrome.number())
}

/// Frees room in the pages for an EQ first.
fn take_page_requests_of_full(client: &mut Client) {
    for pd in 1..=8 {
        let mut command = DeallocPdIn::default();
        command.w().pd(pd);
        client.exec(&command).unwrap();
    }
    take_page_requests(client);
}

fn fill(client: &mut Client) -> Failure {
    loop {
        if let Err(failure) = client.exec(&AllocPdIn::default()) {
            return failure;
        }
    }
}

#[test]
fn many_unused_pages_are_offered_back() {
    let mut client = tight();
    take_page_requests(&mut client);
    client.give(6).unwrap();
    let pd = client.exec(&AllocPdIn::default()).unwrap().pd();
    let mut dealloc = DeallocPdIn::default();
    dealloc.w().pd(pd);
    client.exec(&dealloc).unwrap();
    let mut query = QueryPagesIn::default();
    query.w().op_mod(3);
    assert_eq!(client.exec(&query).unwrap().num_pages() as i32, -3);
    assert_eq!(client.take(3).len(), 3);
    assert_eq!(client.exec(&query).unwrap().num_pages(), 0);
}

#[test]
fn page_requests_on_demand() {
    let mut client = Client::up();
    take_page_requests(&mut client);
    client.f.nic.faults.inject(Fault::PageRequest { pages: 20 }, Times::Count(1));
    firmware::tick(&mut client.f);
    let mut query = QueryPagesIn::default();
    query.w().op_mod(3);
    assert_eq!(client.exec(&query).unwrap().num_pages(), 20);
}
