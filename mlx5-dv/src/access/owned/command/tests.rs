//! The command queue against a scripted firmware that knows it only by registers and memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use mlx5_prm::cmd::{CmdStatus, Command, MailboxBlock, NopIn, QueryHcaCapIn};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

use super::*;
use crate::access::owned::health::Health;
use crate::access::owned::space::Space;
use crate::access::{Bar, BarMapping, DmaSpace, HostRange};
use crate::clock::Clock;
use crate::error::Death;
use crate::memory::Iova;

/// Logs of the number of slots and of their distance, as in the fake init segment.
const LOG_SLOTS: u32 = 3;
const LOG_STRIDE: u32 = 6;
const SOON: Duration = Duration::from_secs(5);

/// Memory mapped for the device.
#[derive(Debug, Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<u64, Arc<MmapRegion>>>>);

impl Memory {
    /// The mapping at `iova`, and the offset in it.
    fn at(&self, iova: u64) -> (Arc<MmapRegion>, usize) {
        let map = self.0.lock().unwrap();
        let (start, mapping) = map.range(..=iova).next_back().expect("mapped memory");
        (Arc::clone(mapping), (iova - start) as usize)
    }

    fn read<L: Layout>(&self, iova: u64) -> L {
        let mut bytes = vec![0; L::SIZE];
        let (mapping, offset) = self.at(iova);
        mapping.as_volatile_slice().read_slice(&mut bytes, offset).unwrap();
        L::read(&bytes).unwrap()
    }

    fn write(&self, iova: u64, bytes: &[u8]) {
        let (mapping, offset) = self.at(iova);
        mapping.as_volatile_slice().write_slice(bytes, offset).unwrap();
    }
}

// SAFETY: the only device is the test's, which accesses the memory through a mapping of the file.
unsafe impl DmaSpace for Memory {
    unsafe fn map(&self, range: HostRange<'_>, iova: Iova) -> io::Result<()> {
        let (file, offset) = range.file().expect("our memory has a file");
        // Mapped, as a file of huge pages cannot be written.
        let file = FileOffset::new(File::from(file.try_clone_to_owned()?), offset);
        let mapping = MmapRegion::from_file(file, range.len()).map_err(io::Error::other)?;
        self.0.lock().unwrap().insert(iova.0, Arc::new(mapping));
        Ok(())
    }

    fn unmap(&self, iova: Iova, _len: usize) -> io::Result<()> {
        self.0.lock().unwrap().remove(&iova.0);
        Ok(())
    }

    fn iova_ranges(&self) -> Vec<(u64, u64)> {
        vec![(1 << 40, (1 << 41) - 1)]
    }

    fn takes_anonymous_memory(&self) -> bool {
        false
    }
}

/// Firmware's reaction to a doorbell.
type Script = Box<dyn FnMut(&Firmware, u32) + Send>;

/// Fake registers and memory, and the script to run at a doorbell.
struct Firmware {
    memory: Memory,
    queue: AtomicU32,
    high: AtomicU32,
    vanished: AtomicBool,
    /// Reads of registers until it vanishes.
    reads_left: AtomicU32,
    broken: AtomicBool,
    script: Mutex<Script>,
}

#[derive(Clone)]
struct Registered(Arc<Firmware>);

impl std::fmt::Debug for Registered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Firmware")
    }
}

// SAFETY: as above; nothing can be mapped.
unsafe impl Bar for Registered {
    fn size(&self) -> u64 {
        1 << 20
    }
    fn read32(&self, offset: u64) -> io::Result<u32> {
        if self.0.broken.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::ConnectionReset));
        }
        let left = |reads: u32| reads.checked_sub(1);
        if self.0.reads_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_err() {
            self.0.vanished.store(true, Ordering::Relaxed);
        }
        if self.0.vanished.load(Ordering::Relaxed) {
            return Ok(u32::MAX);
        }
        Ok(match offset {
            0x04 => u32::from(INTERFACE_REV) << 16,
            0x14 => LOG_SLOTS << 4 | LOG_STRIDE,
            _ => 0,
        })
    }
    unsafe fn write32(&self, offset: u64, value: u32) -> io::Result<()> {
        match offset {
            0x10 => self.0.high.store(value, Ordering::Relaxed),
            0x14 => self.0.queue.store(value, Ordering::Relaxed),
            0x18 => {
                let mut script = self.0.script.lock().unwrap();
                for slot in (0..32).filter(|slot| value & 1 << slot != 0) {
                    script(&self.0, slot);
                }
            }
            _ => {}
        }
        Ok(())
    }
    unsafe fn write64(&self, _offset: u64, _value: u64) -> io::Result<()> {
        Ok(())
    }
    fn map(&self, _offset: u64, _len: usize) -> io::Result<Option<BarMapping>> {
        Ok(None)
    }
    fn reset(&self) -> io::Result<()> {
        Ok(())
    }
    fn set_bus_master(&self, _enabled: bool) -> io::Result<()> {
        Ok(())
    }
}

impl Firmware {
    fn entry_at(&self, slot: u32) -> u64 {
        let low = self.queue.load(Ordering::Relaxed) & !0xfff;
        (u64::from(self.high.load(Ordering::Relaxed)) << 32 | u64::from(low)) + (u64::from(slot) << LOG_STRIDE)
    }

    fn entry(&self, slot: u32) -> CommandQueueEntry {
        self.memory.read(self.entry_at(slot))
    }

    /// Reads the chain at `pointer`, and checks each block as a card does.
    fn chain(&self, mut pointer: u64, token: u8) -> Vec<(u64, MailboxBlock)> {
        let mut blocks = vec![];
        while pointer != 0 {
            assert_eq!(pointer % 1024, 0, "a block crosses 1024 bytes");
            let block: MailboxBlock = self.memory.read(pointer);
            assert_eq!(block_damage(&block, blocks.len(), token), None);
            let next = block.next_pointer();
            blocks.push((pointer, block));
            pointer = next;
        }
        blocks
    }

    fn input(&self, slot: u32) -> Vec<u8> {
        let entry = self.entry(slot);
        assert_eq!(xor(entry.as_bytes()), 0xff, "the entry is signed");
        assert!(entry.ownership());
        assert_eq!(entry.r#type(), 7);
        let mut input = entry.command_input_inline_data().to_vec();
        for (_, block) in self.chain(entry.input_mailbox_pointer(), entry.token()) {
            input.extend_from_slice(block.mailbox_data());
        }
        input.truncate(entry.input_length() as usize);
        input
    }

    /// Writes the signed reply `output`; `spoil` may change entry and blocks before.
    fn answer(&self, slot: u32, output: &[u8], spoil: impl Fn(&mut CommandQueueEntry, &mut Vec<(u64, MailboxBlock)>)) {
        let mut entry = self.entry(slot);
        let mut blocks = self.chain(entry.output_mailbox_pointer(), entry.token());
        let mut inline = [0; INLINE];
        let len = output.len().min(INLINE);
        inline[..len].copy_from_slice(&output[..len]);
        let mut rest = output.get(INLINE..).unwrap_or_default().chunks(512);
        for (_, block) in &mut blocks {
            let mut data = [0; 512];
            let part = rest.next().unwrap_or_default();
            data[..part.len()].copy_from_slice(part);
            block.w().mailbox_data(&data).ctrl_signature(0).signature(0);
            let control = !xor(&block.as_bytes()[0x200..0x23e]);
            block.w().ctrl_signature(control);
            let all = !xor(&block.as_bytes()[..0x23f]);
            block.w().signature(all);
        }
        entry.w().command_output_inline_data(&inline).ownership(false).signature(0);
        let signature = !xor(entry.as_bytes());
        entry.w().signature(signature);
        spoil(&mut entry, &mut blocks);
        for (at, block) in &blocks {
            self.memory.write(*at, block.as_bytes());
        }
        let (rest, last) = entry.as_bytes().split_at(0x3c);
        self.memory.write(self.entry_at(slot), rest);
        self.memory.write(self.entry_at(slot) + 0x3c, last);
    }
}

struct Bench {
    firmware: Arc<Firmware>,
    queue: Arc<CommandQueue>,
    liveness: Arc<Liveness>,
}

fn bench(timeout: Duration, script: impl FnMut(&Firmware, u32) + Send + 'static) -> Bench {
    bench_in(&Clock::system(), timeout, script)
}

fn bench_in(clock: &Clock, timeout: Duration, script: impl FnMut(&Firmware, u32) + Send + 'static) -> Bench {
    let memory = Memory::default();
    let firmware = Arc::new(Firmware {
        memory: memory.clone(),
        queue: AtomicU32::new(0),
        high: AtomicU32::new(0),
        vanished: AtomicBool::new(false),
        reads_left: AtomicU32::new(u32::MAX),
        broken: AtomicBool::new(false),
        script: Mutex::new(Box::new(script)),
    });
    let liveness = Liveness::new();
    let registers = Arc::new(Registers::new(Box::new(Registered(Arc::clone(&firmware))), Arc::clone(&liveness)));
    let space = Arc::new(Space::new(Box::new(memory), Arc::clone(&liveness)));
    let pool = DmaPool::new(move |len| space.allocate(len));
    let queue =
        CommandQueue::start(registers, pool, Arc::clone(&liveness), timeout, clock.clone(), Observers::default())
            .unwrap();
    queue.set_verify(true);
    Bench { firmware, queue, liveness }
}

impl Bench {
    fn execute(&self, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        // SAFETY: the firmware is the test's script, which accesses only the driver's memory.
        unsafe { self.queue.execute(command) }
    }

    fn submit(&self, command: RawCommand, class: Class) -> Option<Result<Pending, CommandError>> {
        // SAFETY: as above.
        unsafe { self.queue.submit(command, class) }
    }
}

fn nop() -> RawCommand {
    RawCommand::new(&NopIn::default(), "")
}

fn honest(firmware: &Firmware, slot: u32) {
    firmware.answer(slot, &[0; 16], |_, _| {});
}

/// A reply with `status` and `syndrome`.
fn status(status: u8, syndrome: u32) -> Vec<u8> {
    let mut output = vec![status, 0, 0, 0];
    output.extend_from_slice(&syndrome.to_be_bytes());
    output.resize(16, 0);
    output
}

fn text_of(result: Result<Vec<u8>, CommandError>) -> String {
    match result {
        Ok(_) => panic!("it must fail"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_length_of_input_and_output_arrives_whole() {
    let bench = bench(SOON, |firmware, slot| {
        let mut output = firmware.input(slot);
        output[..16].fill(0);
        output.resize(firmware.entry(slot).output_length() as usize, 0xee);
        firmware.answer(slot, &output, |_, _| {});
    });
    for (input, output) in
        [(16, 16), (16, 12), (17, 17), (528, 529), (529, 528), (3000, 5000), (0x1010, 16), (70000, 16)]
    {
        let mut command = nop();
        command.input.extend((16..input).map(|i| (i * 7) as u8));
        command.out_len = output;
        let expected = command.input.clone();
        let got = bench.execute(command).unwrap();
        assert_eq!(got.len(), output);
        let common = input.min(output);
        assert_eq!(got[16.min(common)..common], expected[16.min(common)..common], "{input} {output}");
        assert!(got[common..].iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn every_status_is_an_error_of_its_own_with_a_reason() {
    let answer = Arc::new(AtomicU32::new(0));
    let wanted = Arc::clone(&answer);
    let bench = bench(SOON, move |firmware, slot| {
        firmware.answer(slot, &status(wanted.load(Ordering::Relaxed) as u8, 0x6b2f1c), |_, _| {});
    });
    for code in CmdStatus::ALL.iter().filter(|status| **status != CmdStatus::Ok).chain([&CmdStatus::Unknown(0x77)]) {
        answer.store(code.number(), Ordering::Relaxed);
        let error = bench.execute(nop()).expect_err("refused");
        assert_eq!(error.status(), Some(*code));
        let text = error.to_string();
        assert!(text.starts_with("NOP failed: status ") && text.contains("syndrome 0x6b2f1c: "), "{text}");
    }
}

#[test]
fn a_short_reply_of_12_bytes_has_a_status_too() {
    let bench = bench(SOON, |firmware, slot| firmware.answer(slot, &status(3, 0xabc), |_, _| {}));
    let mut command = nop();
    command.out_len = 12;
    assert!(text_of(bench.execute(command)).contains("BAD_PARAM"));
}

#[test]
fn a_delivery_error_is_named() {
    let bench = bench(SOON, |firmware, slot| {
        firmware.answer(slot, &[0; 16], |entry, _| {
            entry.w().status(DeliveryStatus::TokenError);
        });
    });
    assert!(text_of(bench.execute(nop())).contains("not delivered: TOKEN_ERR (0x2)"));
}

#[test]
fn damaged_replies_are_found_where_firmware_signs() {
    type Spoil = fn(&mut CommandQueueEntry, &mut Vec<(u64, MailboxBlock)>);
    let cases: [(&str, Spoil); 4] = [
        ("its entry carries token", |entry, _| {
            let token = entry.token();
            entry.w().token(!token);
        }),
        ("its entry has a wrong signature", |entry, _| {
            let signature = entry.signature();
            entry.w().signature(!signature);
        }),
        ("mailbox block 1 carries token", |_, blocks| {
            let token = blocks[1].1.token();
            blocks[1].1.w().token(!token);
        }),
        ("mailbox block 0 has a wrong signature", |_, blocks| {
            // One byte only: two equal ones would cancel in an XOR.
            let mut data = [0; 512];
            data[300] = 0x11;
            blocks[0].1.w().mailbox_data(&data);
        }),
    ];
    for (expected, spoil) in cases {
        let bench = bench(SOON, move |firmware, slot| firmware.answer(slot, &[0; 16], spoil));
        let mut command = nop();
        command.out_len = 1500;
        let text = text_of(bench.execute(command.clone()));
        assert!(text.contains("the reply is damaged") && text.contains(expected), "{text}");
        bench.queue.set_verify(false);
        assert!(bench.execute(command).is_ok(), "a card that does not sign is believed");
    }
}

#[test]
fn a_command_without_an_answer_times_out_and_its_slot_waits_for_it() {
    let answers = Arc::new(AtomicBool::new(false));
    let answering = Arc::clone(&answers);
    let bench = bench(Duration::from_millis(50), move |firmware, slot| {
        if answering.load(Ordering::Relaxed) {
            honest(firmware, slot);
        }
    });
    let begin = Instant::now();
    let text = text_of(bench.execute(nop()));
    assert!(text.contains("no reply within 50 ms"), "{text}");
    assert!(begin.elapsed() < SOON);
    assert_eq!(bench.queue.slots(), (8, 1));

    answers.store(true, Ordering::Relaxed);
    bench.execute(nop()).unwrap();
    assert_eq!(bench.queue.slots(), (8, 1), "the slot is not used while firmware owns it");
    honest(&bench.firmware, 0);
    bench.execute(nop()).unwrap();
    assert_eq!(bench.queue.slots(), (8, 0), "its late answer brought it back");
}

#[test]
fn with_all_slots_lost_commands_fail_in_time_but_pages_still_go() {
    let bench = bench(Duration::from_millis(30), |_, _| {});
    for _ in 0..7 {
        assert!(text_of(bench.execute(nop())).contains("no reply"));
    }
    assert!(text_of(bench.execute(nop())).contains("no command slot became free within 30 ms"));
    assert!(bench.submit(nop(), Class::Ordinary).is_none());
    let mut pending = bench.submit(nop(), Class::Pages).expect("a slot is kept for pages").unwrap();
    honest(&bench.firmware, 7);
    assert!(bench.queue.finish(&mut pending).expect("done").is_ok());
}

#[test]
fn answers_may_come_in_any_order_and_all_slots_are_in_flight_together() {
    let rung = Arc::new(Mutex::new(vec![]));
    let ringing = Arc::clone(&rung);
    let bench = bench(SOON, move |_, slot| ringing.lock().unwrap().push(slot));
    for by_event in [false, true] {
        bench.queue.set_by_event(by_event);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..7u8)
                .map(|number| {
                    let queue = &bench;
                    scope.spawn(move || {
                        let mut command = nop();
                        command.input[15] = number;
                        (number, queue.execute(command).unwrap()[15])
                    })
                })
                .collect();
            let begin = Instant::now();
            while rung.lock().unwrap().len() < 7 {
                assert!(begin.elapsed() < SOON, "not all in flight: {:?}", rung.lock().unwrap());
                std::thread::yield_now();
            }
            let slots = std::mem::take(&mut *rung.lock().unwrap());
            for slot in slots.iter().rev() {
                let mut output = [0; 16];
                output[15] = bench.firmware.input(*slot)[15];
                bench.firmware.answer(*slot, &output, |_, _| {});
                bench.queue.completed(1 << slot);
            }
            for worker in workers {
                let (sent, got) = worker.join().unwrap();
                assert_eq!(sent, got, "each gets its own answer");
            }
        });
    }
}

#[test]
fn a_lost_event_costs_little() {
    let bench = bench(SOON, honest);
    bench.queue.set_by_event(true);
    let begin = Instant::now();
    bench.execute(nop()).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(1));
}

/// A register of a card that is gone reads as ones: as a syndrome, too, that asks for a reset.
#[test]
fn a_card_that_vanishes_between_two_registers_is_not_said_to_be_ill() {
    for reads in 0..8 {
        let bench = bench(SOON, |_, _| {});
        bench.firmware.reads_left.store(reads, Ordering::Relaxed);
        Health::new(SOON).check(&bench.queue.registers, &bench.liveness, Duration::ZERO);
        let death = bench.liveness.death();
        // The check may have read all that it needs.
        let is_over = reads > 4 && death.is_none();
        assert!(is_over || death == Some(Death::Vanished), "after {reads} reads: {death:?}");
    }
}

#[test]
fn a_card_that_vanishes_ends_the_wait() {
    for by_event in [false, true] {
        let bench = bench(Duration::from_secs(60), |firmware, _| firmware.vanished.store(true, Ordering::Relaxed));
        bench.queue.set_by_event(by_event);
        let begin = Instant::now();
        let error = bench.execute(nop()).expect_err("gone");
        assert!(matches!(error.kind, CommandErrorKind::Dead(Death::Vanished)), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        assert!(bench.execute(nop()).expect_err("still gone").is_dead());
    }
}

#[test]
fn a_broken_way_to_the_card_ends_the_wait() {
    let bench = bench(Duration::from_secs(60), |firmware, _| firmware.broken.store(true, Ordering::Relaxed));
    let error = bench.execute(nop()).expect_err("gone");
    assert!(matches!(&error.kind, CommandErrorKind::Dead(Death::ServerGone { .. })), "{error}");
}

#[test]
fn a_death_found_elsewhere_wakes_every_waiter_at_once() {
    let bench = bench(Duration::from_secs(60), |_, _| {});
    bench.queue.set_by_event(true);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..10).map(|_| scope.spawn(|| bench.execute(nop()))).collect();
        std::thread::sleep(Duration::from_millis(30));
        bench.liveness.end(Death::CounterStill { after: Duration::from_secs(3) });
        let begin = Instant::now();
        for waiter in waiters {
            assert!(waiter.join().unwrap().expect_err("dead").is_dead());
        }
        assert!(begin.elapsed() < Duration::from_secs(1));
    });
}

#[test]
fn messages_name_command_and_object() {
    let bench = bench(SOON, |firmware, slot| firmware.answer(slot, &status(0x9, 0x1234), |_, _| {}));
    let mut query = QueryHcaCapIn::default();
    query.w().op_mod(9);
    assert_eq!(query.out_len(), 0x1010);
    let text = text_of(bench.execute(RawCommand::new(&query, "CQ 0x43")));
    assert!(text.starts_with("QUERY_HCA_CAP (op_mod 0x9) of CQ 0x43 failed: status BAD_RES_STATE (0x9)"), "{text}");
}

/// Time that passes only in pauses, and the scheduled events.
#[derive(Default)]
struct Story {
    now: Duration,
    events: Vec<(Duration, Box<dyn FnOnce() + Send>)>,
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<Story>>);

impl std::fmt::Debug for Told {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

impl Told {
    fn after(&self, delay: Duration, event: impl FnOnce() + Send + 'static) {
        let mut story = lock(&self.0);
        let at = story.now + delay;
        story.events.push((at, Box::new(event)));
    }
}

impl crate::clock::VirtualTime for Told {
    fn now(&self) -> Duration {
        lock(&self.0).now
    }

    fn pass(&self, limit: Duration) {
        let event = {
            let mut story = lock(&self.0);
            let end = story.now.saturating_add(limit);
            let next = (0..story.events.len()).min_by_key(|index| story.events[*index].0);
            let next = next.filter(|index| story.events[*index].0 <= end).map(|index| story.events.remove(index));
            story.now = next.as_ref().map_or(end, |(at, _)| *at);
            next
        };
        if let Some((_, event)) = event {
            event();
        }
    }
}

#[test]
fn in_virtual_time_firmware_that_takes_hours_is_waited_for_in_no_time() {
    let (told, begin) = (Told::default(), Instant::now());
    let clock = Clock::of(told.clone());
    let (hour, firmwares) = (Duration::from_secs(3600), Arc::new(OnceLock::<Arc<Firmware>>::new()));
    let (teller, firmware) = (told.clone(), Arc::clone(&firmwares));
    let bench = bench_in(&clock, 3 * hour, move |_, slot| {
        // Slot 0 gets a late reply, the others none.
        if slot == 0 {
            let firmware = Arc::clone(&firmware);
            teller.after(2 * hour, move || honest(firmware.get().expect("set below"), slot));
        }
    });
    let _ = firmwares.set(Arc::clone(&bench.firmware));
    bench.execute(nop()).expect("answered after two hours");
    assert_eq!(clock.now(), 2 * hour);

    // Slot 0 is now taken by a command that nobody waits for, and the next command gets no reply.
    let _pending = bench.submit(nop(), Class::Ordinary).expect("a free slot").expect("sent");
    let text = text_of(bench.execute(nop()));
    assert!(text.contains("no reply within 10800"), "{text}");
    assert_eq!(clock.now(), 5 * hour);
    assert!(begin.elapsed() < hour / 60);
}
