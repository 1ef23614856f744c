use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tempfile::TempDir;
use vfio_user::Client;

use super::*;
use crate::bar::{FIRST_UAR, LOG_PAGE, Rung};
use crate::card::Card;
use crate::dma::Access;
use crate::objects::Uar;

struct Setup {
    service: Service,
    function: FunctionHandle,
    _card: Card,
    _dir: TempDir,
}

fn setup() -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let card = Card::builder().strict(true).build().unwrap();
    let function = card.function(0);
    let service = serve(function.clone(), dir.path().join("nic.sock")).unwrap();
    Setup { service, function, _card: card, _dir: dir }
}

impl Setup {
    fn client(&self) -> Client {
        Client::new(self.service.path()).unwrap()
    }
}

fn eventually(mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < deadline, "still not so");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn memory() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(0x4000).unwrap();
    file
}

#[test]
fn a_client_finds_a_pci_function() {
    let setup = setup();
    let mut client = setup.client();
    let mut id = [0; 4];
    client.region_read(VFIO_PCI_CONFIG_REGION_INDEX, 0, &mut id).unwrap();
    assert_eq!(id, [0xb3, 0x15, 0x17, 0x10]);
    let bar = client.region(VFIO_PCI_BAR0_REGION_INDEX).unwrap();
    assert_eq!(bar.size, setup.function.bar_size());
    let first = u64::from(FIRST_UAR + 1) << LOG_PAGE;
    assert_eq!((bar.sparse_areas[0].offset, bar.sparse_areas[0].size), (first, bar.size - first - 2 * (128 << 10)));
    let irqs = client.get_irq_info(VFIO_PCI_MSIX_IRQ_INDEX).unwrap();
    assert_eq!(irqs.count, 64);
    let mut whole = vec![0; CONFIG_SIZE];
    client.region_read(VFIO_PCI_CONFIG_REGION_INDEX, 0, &mut whole).unwrap();
    client.region_write(VFIO_PCI_CONFIG_REGION_INDEX, 4, &[6, 0]).unwrap();
    client.region_read(VFIO_PCI_CONFIG_REGION_INDEX, 4, &mut id[..2]).unwrap();
    assert_eq!(id[..2], [6, 0]);
    client.reset().unwrap();
    client.region_read(VFIO_PCI_CONFIG_REGION_INDEX, 4, &mut id[..2]).unwrap();
    assert_eq!(id[..2], [2, 0]);
}

#[test]
fn a_store_to_the_mapped_area_rings() {
    let setup = setup();
    setup.function.with(|f| {
        f.bar.log_doorbells();
        (0..2).for_each(|_| drop(f.nic.objects.uars.insert(Uar { users: 0 })));
    });
    let mut client = setup.client();
    let uar = FIRST_UAR + 1;
    let at = (u64::from(uar) << LOG_PAGE) + 0x800;
    let bar = client.region(VFIO_PCI_BAR0_REGION_INDEX).unwrap();
    let file = bar.file_offset.as_ref().unwrap();
    assert_eq!(file.start(), 0);
    let value = 0x0000_010a_0000_4203u64;
    file.file().write_all_at(&value.to_be_bytes(), at).unwrap();
    let rung = Rung { uar, register: 0x800, value };
    eventually(|| setup.function.with(|f| f.bar.take_rung()).unwrap() == [rung]);
    client.region_write(VFIO_PCI_BAR0_REGION_INDEX, at, &value.to_be_bytes()).unwrap();
    eventually(|| setup.function.with(|f| f.bar.take_rung()).unwrap() == [rung]);
}

/// The file that the client maps UAR pages from.
fn uar_file(client: &Client) -> File {
    let bar = client.region(VFIO_PCI_BAR0_REGION_INDEX).unwrap();
    bar.file_offset.as_ref().unwrap().file().try_clone().unwrap()
}

#[test]
fn a_client_that_left_rings_for_nobody() {
    let setup = setup();
    let gone = setup.client();
    let left = uar_file(&gone);
    gone.shutdown().unwrap();
    let client = setup.client();
    let file = uar_file(&client);
    setup.function.with(|f| {
        f.bar.log_doorbells();
        (0..2).for_each(|_| drop(f.nic.objects.uars.insert(Uar { users: 0 })));
    });
    let page = u64::from(FIRST_UAR + 1) << LOG_PAGE;
    let value = 0x0000_010a_0000_4203u64;
    left.write_all_at(&value.to_be_bytes(), page + 0x800).unwrap();
    // Twice: then every register was checked since the first store.
    for _ in 0..2 {
        file.write_all_at(&value.to_be_bytes(), page + 0xf00).unwrap();
        let rung = Rung { uar: FIRST_UAR + 1, register: 0xf00, value };
        eventually(|| match &setup.function.with(|f| f.bar.take_rung()).unwrap()[..] {
            [] => false,
            doorbells => {
                assert_eq!(doorbells, [rung]);
                true
            }
        });
    }
    let mut untaken = [0; 8];
    left.read_exact_at(&mut untaken, page + 0x800).unwrap();
    assert_eq!(untaken, value.to_be_bytes());
}

#[test]
fn memory_is_reached_while_it_is_mapped() {
    let setup = setup();
    let mut client = setup.client();
    client.region_write(VFIO_PCI_CONFIG_REGION_INDEX, 4, &[6, 0]).unwrap();
    let file = memory();
    client.dma_map(0x1000, 0x8000_0000, 0x2000, file.as_raw_fd()).unwrap();
    setup.function.dma().write(0x8000_0010, b"hello").unwrap();
    let mut back = [0; 5];
    file.read_exact_at(&mut back, 0x1010).unwrap();
    assert_eq!(&back, b"hello");
    // A client may unmap ranges that it did not map.
    client.dma_unmap(0x8000_0000, u64::MAX).unwrap();
    setup.function.dma().write(0x8000_0010, b"hello").unwrap_err();
    assert_eq!(setup.function.counts().dma_ranges, 0);
}

#[test]
fn an_interrupt_arrives_at_the_eventfd() {
    let setup = setup();
    let mut client = setup.client();
    let irq = File::from(eventfd(0, EventfdFlags::empty()).unwrap());
    client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, 0x24, 5, 1, &[irq.as_raw_fd()]).unwrap();
    setup.function.with(|f| f.nic.pci.interrupt(5));
    (&irq).read_exact(&mut [0; 8]).unwrap();
    // Triggered by the client itself, as a test.
    client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, 0x21, 5, 1, &[]).unwrap();
    (&irq).read_exact(&mut [0; 8]).unwrap();
    client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, 0x21, 0, 0, &[]).unwrap();
    setup.function.with(|f| f.nic.pci.interrupt(5));
    let mut fds = [PollFd::from_borrowed_fd(irq.as_fd(), PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 10_000_000 })), Ok(0));
}

#[test]
fn a_client_that_leaves_is_cleaned_up_after_and_the_next_one_served() {
    let setup = setup();
    for _ in 0..3 {
        let mut client = setup.client();
        client.region_write(VFIO_PCI_CONFIG_REGION_INDEX, 4, &[6, 0]).unwrap();
        client.dma_map(0, 0, 0x1000, memory().as_raw_fd()).unwrap();
        assert!(setup.service.is_connected());
        setup.function.with(|f| f.nic.objects.uars.insert(Uar { users: 0 }).unwrap());
        assert_ne!(setup.function.counts(), Default::default());
        client.shutdown().unwrap();
        eventually(|| !setup.service.is_connected() && setup.function.counts() == Default::default());
    }
}

#[test]
fn strange_requests_are_answered_and_change_nothing() {
    let setup = setup();
    let mut client = setup.client();
    let mut bytes = [0; 8];
    for region in [1, 6, 8] {
        client.region_read(region, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [0xff; 8]);
        client.region_write(region, u64::MAX, &[0; 3]).unwrap();
    }
    client.region_read(VFIO_PCI_BAR0_REGION_INDEX, u64::MAX, &mut bytes).unwrap();
    assert_eq!(bytes, [0xff; 8]);
    client.region_write(VFIO_PCI_CONFIG_REGION_INDEX, u64::MAX, &[0; 3]).unwrap();
    client.dma_map(0, 0x1000, 0, memory().as_raw_fd()).unwrap();
    client.dma_map(0x4000, 0x1000, 0x1000, memory().as_raw_fd()).unwrap();
    client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, 0x24, 63, 2, &[]).unwrap();
    client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, 0x24, 0, u32::MAX, &[]).unwrap();
    client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, 0x24, 0, 1, &[memory().as_raw_fd()]).unwrap();
    client.set_irqs(VFIO_PCI_MSIX_IRQ_INDEX, 0xffff_fff9, 0, 1, &[]).unwrap();
    assert_eq!(setup.function.counts(), Default::default());
    client.region_read(VFIO_PCI_CONFIG_REGION_INDEX, 0, &mut bytes).unwrap();
    assert_eq!(bytes[..2], [0xb3, 0x15]);
}

#[test]
fn garbage_ends_the_client_not_the_server() {
    let setup = setup();
    let version_too_short = [1u8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    for garbage in [&version_too_short[..], &[0xff; 64], b"GET / HTTP/1.0\r\n\r\n", &[]] {
        let mut stream = UnixStream::connect(setup.service.path()).unwrap();
        stream.write_all(garbage).unwrap();
        drop(stream);
    }
    let mut id = [0; 2];
    setup.client().region_read(VFIO_PCI_CONFIG_REGION_INDEX, 0, &mut id).unwrap();
    assert_eq!(id, [0xb3, 0x15]);
}

#[test]
fn names_in_use_are_refused_and_stale_ones_replaced() {
    let setup = setup();
    let path = setup.service.path().to_owned();
    assert!(matches!(serve(setup.function.clone(), &path), Err(ServeError::InUse { .. })));
    drop(setup.service);
    assert!(!path.exists());
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists(), "a dead server's socket stays");
    drop(serve(setup.function.clone(), &path).unwrap());
    std::fs::write(&path, "precious").unwrap();
    assert!(matches!(serve(setup.function.clone(), &path), Err(ServeError::NotASocket { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    let nowhere = setup._dir.path().join("no/such/place");
    assert!(matches!(serve(setup.function.clone(), nowhere), Err(ServeError::Listen { .. })));
}

#[test]
fn memory_without_a_descriptor_is_known_but_not_reached() {
    let setup = setup();
    let mut backend = Backend::new(setup.function.clone(), Arc::default());
    let flags = vfio_user::DmaMapFlags::READ_WRITE;
    vfio_user::ServerBackend::dma_map(&mut backend, flags, 0, 0xf000_0000, 0x1000, None).unwrap();
    setup.function.config_write(4, &[6, 0]);
    let reason = setup.function.dma().read(0xf000_0000, &mut [0]).unwrap_err().reason;
    assert!(reason.contains("cannot be reached"), "{reason}");
    let read_only = vfio_user::DmaMapFlags::READ;
    let fd = Some(memory());
    vfio_user::ServerBackend::dma_map(&mut backend, read_only, 0, 0, 0x1000, fd).unwrap();
    setup.function.dma().read(0, &mut [0]).unwrap();
    setup.function.dma().write(0, &[0]).unwrap_err();
    let _ = Access::READ;
}
