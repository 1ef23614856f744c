use std::io::{ErrorKind, Read};

use rustix::event::{EventfdFlags, eventfd};

use super::*;

const MSIX_CONTROL: u64 = 0x9e;

fn pci() -> Pci {
    Pci::new(&Profile::connectx5())
}

/// Two descriptors of an eventfd: the function's, and one to read.
fn irq() -> (Option<File>, File) {
    let ours = File::from(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
    (Some(ours.try_clone().unwrap()), ours)
}

/// How often it was signaled since the last call.
fn count(mut eventfd: &File) -> u64 {
    let mut bytes = [0; 8];
    match eventfd.read(&mut bytes) {
        Ok(8) => u64::from_ne_bytes(bytes),
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        other => panic!("{other:?}"),
    }
}

fn read<const N: usize>(pci: &Pci, offset: u64) -> [u8; N] {
    let mut bytes = [0; N];
    pci.config_read(offset, &mut bytes);
    bytes
}

#[test]
fn identity_is_the_profiles() {
    for (profile, device) in
        [(Profile::connectx5(), 0x1017), (Profile::connectx6dx(), 0x101d), (Profile::connectx7(), 0x1021)]
    {
        let pci = Pci::new(&profile);
        assert_eq!(u32::from_le_bytes(read(&pci, 0)), device << 16 | 0x15b3);
        assert_eq!(read(&pci, 9), [0, 0, 2]);
    }
}

#[test]
fn the_capability_list_ends_and_names_what_there_is() {
    let pci = pci();
    let mut found = Vec::new();
    let [mut at] = read::<1>(&pci, 0x34);
    while at != 0 {
        let [id, next] = read(&pci, at.into());
        found.push(id);
        at = next;
        assert!(found.len() < 10);
    }
    assert_eq!(found, [0x10, 0x11, 0x09, 0x01]);
    assert_eq!(read::<4>(&pci, 0x100), [0; 4], "no extended capabilities");
}

#[test]
fn bar_0_tells_its_size_and_takes_its_address() {
    let mut pci = pci();
    pci.config_write(0x10, &[0xff; 8]);
    assert_eq!(u64::from_le_bytes(read(&pci, 0x10)), !((1 << 25) - 1) | 0xc);
    pci.config_write(0x10, &0x38_0200_0000u64.to_le_bytes());
    assert_eq!(u64::from_le_bytes(read(&pci, 0x10)), 0x38_0200_000c);
    for bar in [0x18, 0x1c, 0x20, 0x24, 0x30] {
        pci.config_write(bar, &[0xff; 4]);
        assert_eq!(read::<4>(&pci, bar), [0; 4], "BAR at {bar:#x}");
    }
}

#[test]
fn read_only_bits_stay() {
    let mut pci = pci();
    let before: [u8; 64] = read(&pci, 0);
    pci.config_write(0, &[0xff; 4]);
    pci.config_write(8, &[0xff; 4]);
    pci.config_write(0x2c, &[0xff; 8]);
    assert_eq!(read::<64>(&pci, 0), before);
    let mut past = [0; 8];
    pci.config_write(4092, &[0; 8]);
    pci.config_read(4092, &mut past);
    assert_eq!(past, [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    pci.config_read(u64::MAX - 3, &mut past[..3]);
    assert_eq!(past[..3], [0xff; 3]);
}

#[test]
fn flr_is_a_bit_that_reads_back_as_zero() {
    let mut pci = pci();
    pci.config_write(4, &[0x06, 0x04]);
    assert!(pci.bus_master());
    assert!(!pci.config_write(0x68, &[0x40, 0x01]).reset);
    assert!(pci.config_write(0x68, &[0x40, 0x81]).reset);
    assert_eq!(read::<2>(&pci, 0x68), [0x40, 0x01]);
    pci.reset();
    assert!(!pci.bus_master());
}

#[test]
fn an_eventfd_enables_and_unmasks() {
    let mut pci = pci();
    let (theirs, ours) = irq();
    pci.interrupt(3);
    assert!(pci.is_pending(3));
    pci.set_irqs(3, vec![theirs]).unwrap();
    assert_eq!(count(&ours), 1, "what was pending is delivered");
    pci.interrupt(3);
    pci.interrupt(2);
    assert_eq!(count(&ours), 1);
    assert!(!pci.is_pending(3));
    assert_ne!(read::<2>(&pci, MSIX_CONTROL)[1] & 0x80, 0);
    pci.set_irqs(3, vec![None]).unwrap();
    pci.interrupt(3);
    assert_eq!((count(&ours), pci.is_pending(3)), (0, true));
}

#[test]
fn function_mask_holds_interrupts_back() {
    let mut pci = pci();
    let (theirs, ours) = irq();
    pci.set_irqs(0, vec![theirs]).unwrap();
    pci.config_write(MSIX_CONTROL, &[0x3f, 0xc0]);
    pci.interrupt(0);
    let mut pba = [0; 8];
    pci.pba_read(0, &mut pba);
    assert_eq!((count(&ours), pba[0]), (0, 1));
    pci.config_write(MSIX_CONTROL, &[0x3f, 0x80]);
    pci.pba_read(0, &mut pba);
    assert_eq!((count(&ours), pba[0]), (1, 0));
}

#[test]
fn table_mask_holds_interrupts_back() {
    let mut pci = pci();
    let (theirs, ours) = irq();
    pci.set_irqs(9, vec![theirs]).unwrap();
    pci.table_write(9 * 16 + 12, &[1, 0, 0, 0]);
    pci.interrupt(9);
    pci.interrupt(9);
    assert_eq!(count(&ours), 0);
    let mut pba = [0; 8];
    pci.pba_read(0, &mut pba);
    assert_eq!(u64::from_le_bytes(pba), 1 << 9);
    pci.table_write(9 * 16, &[1, 2, 3, 4, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0xff, 0, 0]);
    assert_eq!(count(&ours), 1, "raised twice, pending once");
    let mut entry = [0; 16];
    pci.table_read(9 * 16, &mut entry);
    assert_eq!(entry, [1, 2, 3, 4, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn reset_keeps_eventfds_and_drops_the_rest() {
    let mut pci = pci();
    let (theirs, ours) = irq();
    pci.set_irqs(0, vec![theirs]).unwrap();
    pci.mask_irqs(0, 1, true).unwrap();
    pci.interrupt(0);
    pci.interrupt(1);
    pci.reset();
    assert!(!pci.is_pending(0) && !pci.is_pending(1));
    pci.trigger_irqs(0, 1).unwrap();
    assert_eq!(count(&ours), 1);
    pci.clear_irqs();
    pci.interrupt(0);
    assert_eq!(count(&ours), 0);
}

#[test]
fn wrong_vectors_and_descriptors_are_refused() {
    let mut pci = pci();
    assert!(matches!(pci.set_irqs(64, vec![None]), Err(IrqError::NoSuchVector { .. })));
    assert!(matches!(pci.mask_irqs(60, 5, true), Err(IrqError::NoSuchVector { last: 64, .. })));
    assert!(matches!(pci.trigger_irqs(u32::MAX, u32::MAX), Err(IrqError::NoSuchVector { .. })));
    let pipe = File::open("/dev/null").unwrap();
    assert!(matches!(pci.set_irqs(0, vec![Some(pipe)]), Err(IrqError::NotEventfd { vector: 0 })));
    pci.interrupt(u16::MAX);
}

proptest::proptest! {
    /// No sequence of writes makes a read-only bit change or anything panic.
    #[test]
    fn any_config_writes(writes in proptest::collection::vec((0..5000u64, proptest::collection::vec(0..=255u8, 0..12)), 0..50)) {
        let mut pci = pci();
        for (offset, bytes) in writes {
            pci.config_write(offset, &bytes);
            pci.interrupt(3);
            pci.table_write(offset, &bytes);
            pci.pba_read(offset, &mut [0; 9]);
            pci.table_read(offset, &mut [0; 9]);
        }
        assert_eq!(read::<4>(&pci, 0), [0xb3, 0x15, 0x17, 0x10]);
        assert_eq!(read::<2>(&pci, MSIX_CONTROL)[0], 63);
        assert_eq!(read::<4>(&pci, 0x10)[..3], [0xc, 0, 0]);
    }
}
