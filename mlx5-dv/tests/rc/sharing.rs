//! Sharing with other processes, which the kernel's contexts allow and functions of one process do not. A lab test
//! judges what is shared.

use std::os::fd::OwnedFd;

use mlx5_dv::objects::{
    AccessFlags, DeviceMemory, DeviceMemoryHandle, DeviceMemoryRegion, DeviceMemoryRegionHandle, DmaBufRegion,
    ImportedRegion, Pd, PdHandle, RegionHandle,
};
use mlx5_dv::{Device, Error, Invalid, Options};

use crate::ends::{Card, all_rights};

#[test]
fn a_function_of_this_process_is_not_shared_and_says_what_is() {
    let card = Card::new();
    let (region, memory) = (card.region(64), DeviceMemory::alloc(&card.device, 64).unwrap());
    let on_card = DeviceMemoryRegion::register(&card.pd, &memory, 0..64, all_rights()).unwrap();
    let refusals = [
        card.device.export().err(),
        card.pd.handle().err(),
        region.handle().err(),
        memory.handle().err(),
        on_card.handle().err(),
        Pd::import(&card.device, PdHandle(0)).err(),
        ImportedRegion::import(&card.pd, RegionHandle(0)).err(),
        ImportedRegion::import_device_memory(&card.pd, DeviceMemoryRegionHandle(0)).err(),
        DeviceMemory::import(&card.device, DeviceMemoryHandle(0)).err(),
    ];
    for refused in refusals {
        let refused = refused.expect("nothing is shared");
        assert!(matches!(refused, Error::Invalid(Invalid::WrongAccess { kernel: false, .. })), "{refused:?}");
        assert!(refused.to_string().contains("devx:"), "{refused}");
    }
    drop((region, on_card, memory));
    card.end();
}

#[test]
fn a_dma_buf_is_mapped_by_the_kernel_alone_and_as_a_key_can_have_it() {
    let card = Card::new();
    let register = |range, addr, access| {
        let refused = DmaBufRegion::register(&card.pd, tempfile::tempfile().unwrap(), range, addr, access);
        refused.unwrap_err().to_string()
    };
    let remote = AccessFlags::REMOTE_WRITE;
    for (refused, says) in [
        (register(0..4096, 0, all_rights()), "devx:"),
        (register(100..100, 100, all_rights()), "bytes"),
        (register(100..200, 4096, all_rights()), "offset in a page"),
        (register(100..8100, u64::MAX - 3995, all_rights()), "address"),
        (register(0..4096, 0, remote), "LOCAL_WRITE"),
    ] {
        assert!(refused.contains(says), "{refused}");
    }
    card.end();
}

#[test]
fn a_descriptor_that_is_no_context_is_refused() {
    let null = std::fs::File::open("/dev/null").unwrap();
    for file in [OwnedFd::from(tempfile::tempfile().unwrap()), null.into()] {
        let refused = Device::import(file, Options::default()).unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
        assert!(refused.to_string().contains("no RDMA device's file"), "{refused}");
    }
}
