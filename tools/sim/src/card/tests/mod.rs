mod switch;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use super::*;
use crate::bar::{FIRST_UAR, LOG_PAGE};
use crate::dma::{Access, Source};
use crate::fault::{Fault, Times};
use crate::objects::Uar;

const COMMAND: u64 = 0x04;
const DEVICE_CONTROL: u64 = 0x68;

fn card() -> (Card, FunctionHandle) {
    let card = Card::builder().strict(true).build().unwrap();
    let function = card.function(0);
    (card, function)
}

fn map_page(function: &FunctionHandle, iova: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(4096).unwrap();
    let source = Source::File { file: file.try_clone().unwrap(), offset: 0 };
    function.dma_map(iova, 4096, Access::READ | Access::WRITE, source).unwrap();
    file
}

fn eventually(mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < deadline, "still not so");
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn handles_cross_threads() {
    fn check<T: Send + Sync + Clone>() {}
    check::<FunctionHandle>();
}

#[test]
fn a_card_without_functions_is_refused() {
    assert!(matches!(Card::builder().functions(0).build(), Err(BuildError::NoFunction)));
}

#[test]
fn functions_are_apart() {
    let card = Card::builder().functions(2).build().unwrap();
    let (a, b) = (card.function(0), card.function(1));
    a.config_write(COMMAND, &[6, 0]);
    let mut command = [0xff; 2];
    b.config_read(COMMAND, &mut command);
    assert_eq!(command, [2, 0]);
    map_page(&a, 0x1000);
    assert_eq!((a.counts().dma_ranges, b.counts().dma_ranges), (1, 0));
}

#[test]
fn a_card_whose_thread_panicked_has_ended() {
    let (card, function) = card();
    assert!(!card.has_ended());
    assert_eq!(function.with(|_| -> u32 { panic!("a defect of the card") }), None);
    eventually(|| card.has_ended());
    let mut id = [0; 4];
    function.config_read(0, &mut id);
    assert_eq!(id, [0xff; 4]);
}

#[test]
fn bus_mastering_gates_dma() {
    let (_card, function) = card();
    map_page(&function, 0x1000);
    function.dma().write(0x1000, &[1]).unwrap_err();
    function.config_write(COMMAND, &[6, 0]);
    function.dma().write(0x1000, &[1]).unwrap();
    function.config_write(COMMAND, &[2, 0]);
    function.dma().write(0x1000, &[1]).unwrap_err();
    assert_eq!(function.strict().take().len(), 2);
}

#[test]
fn registers_answer_while_memory_is_decoded_in_d0() {
    const POWER: u64 = 0x44;
    const TABLE: u64 = crate::pci::MSIX_TABLE;
    let (_card, function) = card();
    map_page(&function, 0x1000);
    let read = || {
        let mut bytes = [0; 4];
        function.bar_read(TABLE, &mut bytes);
        bytes
    };
    function.bar_write(TABLE, &[1, 0, 0, 0]);
    for (name, off, on) in
        [("memory space", (COMMAND, [4, 0]), (COMMAND, [6, 0])), ("D0", (POWER, [3, 0]), (POWER, [0, 0]))]
    {
        function.config_write(COMMAND, &[6, 0]);
        function.dma().write(0x1000, &[1]).unwrap();
        function.config_write(off.0, &off.1);
        assert_eq!(read(), [0xff; 4], "{name}");
        function.bar_write(TABLE, &[2, 0, 0, 0]);
        assert_eq!(function.dma().write(0x1000, &[1]).is_ok(), off.0 == COMMAND, "{name}");
        function.config_write(on.0, &on.1);
        assert_eq!(read(), [1, 0, 0, 0], "{name}");
    }
    function.strict().take();
}

#[test]
fn a_stored_doorbell_wakes_the_idle_device() {
    let (_card, function) = card();
    let memory = function.uar_file().unwrap();
    let uar = FIRST_UAR + 1;
    function.with(|f| {
        f.bar.log_doorbells();
        f.nic.objects.uars.insert(Uar { users: 0 }).unwrap();
        f.nic.objects.uars.insert(Uar { users: 0 }).unwrap();
    });
    std::thread::sleep(Duration::from_millis(50));
    let value = 0x0000_010a_0000_4203u64;
    memory.file.unwrap().write_all_at(&value.to_be_bytes(), (u64::from(uar) << LOG_PAGE) + 0x800).unwrap();
    eventually(|| function.with(|f| f.bar.take_rung()).unwrap() == [crate::bar::Rung { uar, register: 0x800, value }]);
}

#[test]
fn flr_by_the_capability_bit_resets_and_keeps_mappings() {
    let (_card, function) = card();
    map_page(&function, 0x1000);
    function.config_write(COMMAND, &[6, 0]);
    function.with(|f| f.nic.objects.uars.insert(Uar { users: 0 }).unwrap());
    assert_eq!(function.counts().uars, 1);
    function.config_write(DEVICE_CONTROL, &[0x10, 0xa8]);
    assert_eq!((function.counts().uars, function.counts().dma_ranges), (0, 1));
    let (mut command, mut control) = ([0xff; 2], [0xff; 2]);
    function.config_read(COMMAND, &mut command);
    function.config_read(DEVICE_CONTROL, &mut control);
    assert_eq!((command, control[1] & 0x80), ([2, 0], 0));
    function.dma().write(0x1000, &[1]).unwrap_err();
}

#[test]
fn what_a_client_leaves_behind_goes() {
    let (_card, function) = card();
    map_page(&function, 0x1000);
    function.config_write(COMMAND, &[6, 0]);
    function.abandon();
    assert_eq!(function.counts(), Counts::default());
}

#[test]
fn a_removed_card_reads_all_ones_and_comes_back_reset() {
    let (_card, function) = card();
    function.config_write(COMMAND, &[6, 0]);
    let removal = function.faults().inject(Fault::SurpriseRemoval, Times::Always);
    let mut bytes = [0; 8];
    function.config_read(0, &mut bytes);
    assert_eq!(bytes, [0xff; 8]);
    function.bar_read(0, &mut bytes);
    assert_eq!(bytes, [0xff; 8]);
    function.config_write(COMMAND, &[4, 0]);
    function.bar_write(0x18, &[0xff; 4]);
    // Let the device thread see it before it ends.
    std::thread::sleep(Duration::from_millis(20));
    function.faults().clear(removal);
    eventually(|| {
        function.config_read(0, &mut bytes);
        bytes[..4] == [0xb3, 0x15, 0x17, 0x10] && bytes[4] == 2
    });
}

#[test]
fn without_power_everything_reads_all_ones() {
    let (card, function) = card();
    drop(card);
    let mut bytes = [0; 4];
    function.config_read(0, &mut bytes);
    assert_eq!(bytes, [0xff; 4]);
    function.bar_write(0, &[0; 4]);
    function.reset();
    function.set_irqs(0, vec![None]).unwrap();
    assert_eq!(function.counts(), Counts::default());
}

/// Processor time of this process's device threads, in clock ticks.
fn device_ticks(name: &str) -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(name)).map(|stat| ticks(&stat)).sum()
}

fn ticks(stat: &str) -> u64 {
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<_> = after_name.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn an_idle_card_burns_no_core() {
    let (_card, function) = card();
    let thread = function.with(|_| std::fs::read_to_string("/proc/thread-self/stat").unwrap()).unwrap();
    let id = thread.split(' ').next().unwrap().to_owned() + " (";
    let before = device_ticks(&id);
    std::thread::sleep(Duration::from_secs(1));
    let burnt = device_ticks(&id) - before;
    // A tick is 10 ms: at most 15 % of a core, on a loaded machine and without optimisation.
    assert!(burnt <= 15, "{burnt} ticks of 100");
}

#[test]
fn posted_writes_wait_when_the_device_is_far_behind() {
    let (_card, function) = card();
    let (busy, started) = std::sync::mpsc::channel();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let posted = std::sync::atomic::AtomicUsize::new(0);
    let count = || posted.load(std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            function.with(move |_| {
                busy.send(()).unwrap();
                let _ = wait.recv();
            });
        });
        started.recv().unwrap();
        scope.spawn(|| {
            for _ in 0..3 * INBOX {
                function.bar_write(0x10, &[0; 4]);
                posted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        while count() < INBOX && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(20));
        let waiting = count();
        // Before anything can fail, or the threads would wait forever.
        release.send(()).unwrap();
        assert_eq!(waiting, INBOX);
    });
    assert_eq!(count(), 3 * INBOX);
}
