use std::io::{Seek, Write};
use std::os::unix::fs::FileExt;

use std::fs::File;

use super::*;

const RW: Access = Access::READ.union(Access::WRITE);

fn file(len: usize) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![0xa5; len]).unwrap();
    file
}

fn source(file: &File, offset: u64) -> Source {
    Source::File { file: file.try_clone().unwrap(), offset }
}

#[test]
fn iovas_are_not_pointers() {
    let dma = Dma::new(Strict::on());
    let file = file(0x3000);
    dma.map(0x7000_0000_0000, 0x2000, RW, source(&file, 0x1000)).unwrap();
    dma.write(0x7000_0000_0ffd, b"across pages").unwrap();
    let mut back = [0; 12];
    file.read_exact_at(&mut back, 0x1ffd).unwrap();
    assert_eq!(&back, b"across pages");
}

#[test]
fn all_lengths_and_alignments_land_whole() {
    let dma = Dma::new(Strict::on());
    let file = file(0x1000);
    dma.map(0, 0x1000, RW, source(&file, 0)).unwrap();
    for len in (0..80).chain([255, 256, 257, 300, 1024]) {
        for at in 0..17 {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 + at) as u8).collect();
            dma.write(0, &[0xa5; 0x600]).unwrap();
            dma.write(at as u64 + 8, &data).unwrap();
            let mut back = vec![0; len + 2];
            dma.read(at as u64 + 7, &mut back).unwrap();
            assert_eq!((back[0], back[len + 1]), (0xa5, 0xa5), "{len} bytes at {at} wrote outside");
            assert_eq!(back[1..=len], data, "{len} bytes at {at}");
        }
    }
}

#[test]
fn unmapped_access_faults_and_is_reported() {
    let strict = Strict::on();
    let dma = Dma::new(strict.clone());
    let file = file(0x1000);
    dma.map(0x10000, 0x1000, RW, source(&file, 0)).unwrap();
    let fault = dma.read(0x10ffc, &mut [0; 8]).unwrap_err();
    assert_eq!((fault.iova, fault.len, fault.write), (0x10ffc, 8, false));
    assert_eq!(dma.unmap(0x10000, 0x1000), 0x1000);
    dma.write(0x10000, &[1]).unwrap_err();
    let rules: Vec<_> = strict.take().into_iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, [RULE, RULE]);
}

#[test]
fn rights_of_the_mapping_hold() {
    let dma = Dma::new(Strict::on());
    let file = file(0x1000);
    dma.map(0, 0x1000, Access::READ, source(&file, 0)).unwrap();
    assert_eq!(dma.load_be32(4).unwrap(), 0xa5a5_a5a5);
    assert_eq!(dma.write(0, &[1]).unwrap_err().reason, NOT_ALLOWED);
    dma.enable(false);
    assert_eq!(dma.load_be32(4).unwrap_err().reason, BUS_MASTER_OFF);
}

#[test]
fn ranges_may_touch_but_not_overlap() {
    let dma = Dma::new(Strict::on());
    let file = file(0x4000);
    dma.map(0x1000, 0x1000, RW, source(&file, 0x2000)).unwrap();
    dma.map(0x2000, 0x1000, RW, source(&file, 0)).unwrap();
    for (iova, len) in [(0x1000, 0x1000), (0xfff, 2), (0x1fff, 1), (0, 0x10000)] {
        assert!(matches!(dma.map(iova, len, RW, source(&file, 0)), Err(MapError::Overlap { .. })));
    }
    assert!(matches!(dma.map(u64::MAX, 2, RW, Source::Unreachable), Err(MapError::NoRange { .. })));
    assert!(matches!(dma.map(0x9000, 0, RW, Source::Unreachable), Err(MapError::NoRange { .. })));
    assert!(matches!(dma.map(0x9000, 0x1000, RW, source(&file, 0x4000)), Err(MapError::PastEndOfFile { .. })));
    let empty = tempfile::tempfile().unwrap();
    assert!(matches!(dma.map(0x9000, 1, RW, source(&empty, 0)), Err(MapError::PastEndOfFile { .. })));
    dma.map(u64::MAX, 1, RW, Source::Unreachable).unwrap();
    assert_eq!(dma.write(u64::MAX, &[1]).unwrap_err().reason, NO_MEMORY);
    // An access may span adjacent ranges.
    dma.write(0x1ffc, b"12345678").unwrap();
    let mut back = [0; 8];
    file.read_exact_at(&mut back[..4], 0x2ffc).unwrap();
    file.read_exact_at(&mut back[4..], 0).unwrap();
    assert_eq!(&back, b"12345678");
}

#[test]
fn unmap_takes_any_range_and_keeps_the_rest() {
    let dma = Dma::new(Strict::on());
    let file = file(0x8000);
    dma.map(0x10000, 0x8000, RW, source(&file, 0)).unwrap();
    assert_eq!(dma.unmap(0x12000, 0x1000), 0x1000);
    assert_eq!(dma.ranges(), 2);
    dma.write(0x13000, b"kept").unwrap();
    let mut back = [0; 4];
    file.read_exact_at(&mut back, 0x3000).unwrap();
    assert_eq!(&back, b"kept");
    dma.write(0x12fff, &[0]).unwrap_err();
    assert_eq!(dma.unmap(0xffff, u64::MAX), 0x7000);
    assert_eq!((dma.ranges(), dma.unmap(0, 0)), (0, 0));
}

#[test]
fn a_hundred_thousand_pages_of_one_file_are_one_mapping() {
    let dma = Dma::new(Strict::on());
    let file = file(0x10000);
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let before = maps();
    for page in 0..100_000u64 {
        dma.map(page << 12, 0x1000, RW, source(&file, (page % 16) << 12)).unwrap();
    }
    assert!(maps() < before + 1000);
    dma.write(99_999 << 12, b"!").unwrap();
    for page in 0..100_000u64 {
        assert_eq!(dma.unmap(page << 12, 0x1000), 0x1000);
    }
    assert_eq!(dma.ranges(), 0);
}

#[test]
fn a_memfd_that_can_be_sealed_keeps_its_length() {
    use rustix::fs::{MemfdFlags, memfd_create};
    let memfd = |flags| {
        let memfd = File::from(memfd_create("client", MemfdFlags::CLOEXEC | flags).unwrap());
        memfd.set_len(0x4000).unwrap();
        memfd
    };
    let (dma, sealable) = (Dma::new(Strict::on()), memfd(MemfdFlags::ALLOW_SEALING));
    dma.map(0x1000, 0x2000, Access::READ | Access::WRITE, source(&sealable, 0)).unwrap();
    assert!(sealable.set_len(0x1000).is_err());
    sealable.set_len(0x8000).unwrap();
    dma.write(0x1ff0, &[1; 16]).unwrap();
    // One that cannot is taken as it is.
    let plain = memfd(MemfdFlags::empty());
    dma.map(0x10000, 0x2000, Access::READ | Access::WRITE, source(&plain, 0)).unwrap();
    dma.write(0x10000, &[1; 16]).unwrap();
}

#[test]
fn a_process_without_a_file_is_reached_through_its_mem() {
    let dma = Dma::new(Strict::on());
    let buffer: Arc<[AtomicBool]> = (0..64).map(|_| AtomicBool::new(false)).collect();
    let mem = Arc::new(File::options().read(true).write(true).open("/proc/self/mem").unwrap());
    let address = buffer.as_ptr() as u64;
    dma.map(0x5000, 64, RW, Source::Process { mem, address }).unwrap();
    dma.publish(0x5000, &[1; 64]).unwrap();
    assert!(buffer.iter().all(|byte| byte.load(Ordering::Acquire)));
    assert_eq!(dma.load_be32(0x5010).unwrap(), 0x0101_0101);
    assert_eq!(dma.update_be64(0x5008, |old| old & !1).unwrap(), 0x0101_0101_0101_0101);
    assert!(!buffer[15].load(Ordering::Acquire));
}

#[test]
fn quadwords_are_updated_atomically() {
    let dma = Dma::new(Strict::on());
    let mut file = file(0x1000);
    file.rewind().unwrap();
    file.write_all(&7u64.to_be_bytes()).unwrap();
    dma.map(0, 0x1000, RW, source(&file, 0)).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..1000).for_each(|_| assert!(dma.update_be64(0, |old| old + 1).unwrap() >= 7)));
        }
    });
    assert_eq!(dma.update_be64(0, |old| old).unwrap(), 2007);
    dma.update_be64(4, |old| old).unwrap_err();
}

#[test]
fn a_reader_never_sees_the_end_before_the_rest() {
    let dma = Dma::new(Strict::on());
    let file = file(0x1000);
    dma.map(0, 0x1000, RW, source(&file, 0)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| (1..20_000u32).for_each(|i| dma.publish(0x40, &[(i % 251) as u8; 64]).unwrap()));
        for _ in 0..20_000 {
            let last = dma.load_be32(0x7c).unwrap() as u8;
            let first = dma.load_be32(0x40).unwrap() as u8;
            // The first bytes may be newer than the last, but never older.
            let ahead = (i32::from(first) - i32::from(last)).rem_euclid(251);
            assert!(last == 0xa5 || ahead < 240, "first {first} behind last {last}");
        }
    });
}

proptest::proptest! {
    /// Compares with the simplest model: for each byte, the file offset mapped to it.
    #[test]
    fn any_sequence_of_maps_and_unmaps(steps in proptest::collection::vec((0..64u64, 0..20u64, proptest::bool::ANY), 1..60)) {
        let dma = Dma::default();
        let file = file(128);
        let contents: Vec<u8> = (0..128).collect();
        file.write_all_at(&contents, 0).unwrap();
        let mut model = [None; 96];
        for (start, len, map) in steps {
            let bytes = &mut model[start as usize..(start + len) as usize];
            if map {
                let fits = len > 0 && bytes.iter().all(Option::is_none);
                assert_eq!(dma.map(start, len, RW, source(&file, start + 3)).is_ok(), fits);
                if fits {
                    (start..).zip(bytes).for_each(|(at, byte)| *byte = Some(contents[at as usize + 3]));
                }
            } else {
                let mapped = bytes.iter().filter(|byte| byte.is_some()).count() as u64;
                assert_eq!(dma.unmap(start, len), mapped);
                bytes.fill(None);
            }
            for (at, expected) in (0..).zip(model) {
                let mut byte = [0];
                assert_eq!(dma.read(at, &mut byte).ok().map(|()| byte[0]), expected);
            }
        }
    }
}
