//! The kernel's RDMA ioctl interface: constants and structures, with the names of its uapi headers (`rdma/*.h`). A lab
//! test compares all of them with the headers by the C compiler.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A constant of the interface, for comparison with the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Its name in the headers.
    pub name: &'static str,
    /// Its value here.
    pub value: u64,
}

/// A field of a structure, for comparison with the headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The structure's name in the headers.
    pub structure: &'static str,
    /// The field's name in the headers; empty for the whole structure.
    pub name: &'static str,
    /// Its offset in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

macro_rules! numbers {
    ($( $(#[$doc:meta])* $C_NAME:ident: $type:ty = $value:expr, )*) => {
        $( $(#[$doc])* pub const $C_NAME: $type = $value; )*

        /// All of them.
        pub const NUMBERS: &[Number] = &[ $( Number { name: stringify!($C_NAME), value: $C_NAME as u64 }, )* ];
    };
}

/// The first number of driver-specific objects, methods and attributes: `1 << UVERBS_ID_NS_SHIFT`.
const DRIVER: u16 = 1 << 12;

numbers! {
    /// The ioctl for all calls.
    RDMA_VERBS_IOCTL: u32 = 0xc018_1b01,
    /// The call fails if the kernel does not know the attribute.
    UVERBS_ATTR_F_MANDATORY: u16 = 1,
    /// Driver ID of mlx5.
    RDMA_DRIVER_MLX5: u32 = 1,
    /// ABI version of the uverbs core, as in sysfs.
    IB_USER_VERBS_ABI_VERSION: u32 = 6,
    /// ABI version of mlx5's part, as in sysfs.
    MLX5_IB_UVERBS_ABI_VERSION: u32 = 1,

    /// The device itself.
    UVERBS_OBJECT_DEVICE: u16 = 0,
    /// Creates the process's context.
    UVERBS_METHOD_GET_CONTEXT: u16 = 3,
    /// Number of completion vectors.
    UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS: u16 = 0,
    /// Features of the core.
    UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT: u16 = 1,
    /// Input of the driver.
    UVERBS_ATTR_UHW_IN: u16 = DRIVER,
    /// Output of the driver.
    UVERBS_ATTR_UHW_OUT: u16 = DRIVER + 1,
    /// Makes a call of the older interface, by `write`.
    UVERBS_METHOD_INVOKE_WRITE: u16 = 0,
    /// Its input.
    UVERBS_ATTR_CORE_IN: u16 = 0,
    /// Its output.
    UVERBS_ATTR_CORE_OUT: u16 = 1,
    /// Which one it is.
    UVERBS_ATTR_WRITE_CMD: u16 = 2,
    /// Allocates a protection domain.
    IB_USER_VERBS_CMD_ALLOC_PD: u64 = 3,
    /// Registers memory.
    IB_USER_VERBS_CMD_REG_MR: u64 = 9,
    /// Queries the context of a file that another process has opened.
    UVERBS_METHOD_QUERY_CONTEXT: u16 = 4,
    /// Number of completion vectors.
    UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS: u16 = 0,
    /// Features of the core.
    UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT: u16 = 1,
    /// What mlx5 told when the context was created.
    MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX: u16 = DRIVER,

    /// A protection domain.
    UVERBS_OBJECT_PD: u16 = 1,
    /// Frees it.
    UVERBS_METHOD_PD_DESTROY: u16 = 0,
    /// Its handle.
    UVERBS_ATTR_DESTROY_PD_HANDLE: u16 = 0,
    /// Queries it.
    MLX5_IB_METHOD_PD_QUERY: u16 = DRIVER,
    /// Its handle.
    MLX5_IB_ATTR_QUERY_PD_HANDLE: u16 = DRIVER,
    /// Its number on the card.
    MLX5_IB_ATTR_QUERY_PD_RESP_PDN: u16 = DRIVER + 1,

    /// A memory region.
    UVERBS_OBJECT_MR: u16 = 7,
    /// Deregisters it.
    UVERBS_METHOD_MR_DESTROY: u16 = 1,
    /// Its handle.
    UVERBS_ATTR_DESTROY_MR_HANDLE: u16 = 0,
    /// Says what will be done with memory on demand.
    UVERBS_METHOD_ADVISE_MR: u16 = 2,
    /// The protection domain.
    UVERBS_ATTR_ADVISE_MR_PD_HANDLE: u16 = 0,
    /// What will be done.
    UVERBS_ATTR_ADVISE_MR_ADVICE: u16 = 1,
    /// Whether to wait.
    UVERBS_ATTR_ADVISE_MR_FLAGS: u16 = 2,
    /// The memory: structures `ib_uverbs_sge`.
    UVERBS_ATTR_ADVISE_MR_SGE_LIST: u16 = 3,
    /// It will be read.
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH: u64 = 0,
    /// It will be written, too.
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE: u64 = 1,
    /// Only pages count that are there already.
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: u64 = 2,
    /// The call waits until it is done.
    IB_UVERBS_ADVISE_MR_FLAG_FLUSH: u64 = 1,
    /// Queries it.
    UVERBS_METHOD_QUERY_MR: u16 = 3,
    /// Its handle.
    UVERBS_ATTR_QUERY_MR_HANDLE: u16 = 0,
    /// Its local key.
    UVERBS_ATTR_QUERY_MR_RESP_LKEY: u16 = 1,
    /// Its remote key.
    UVERBS_ATTR_QUERY_MR_RESP_RKEY: u16 = 2,
    /// Its length.
    UVERBS_ATTR_QUERY_MR_RESP_LENGTH: u16 = 3,
    /// Its first address.
    UVERBS_ATTR_QUERY_MR_RESP_IOVA: u16 = 4,
    /// Registers device memory.
    UVERBS_METHOD_DM_MR_REG: u16 = 0,
    /// The region's handle.
    UVERBS_ATTR_REG_DM_MR_HANDLE: u16 = 0,
    /// Where in the device memory it starts.
    UVERBS_ATTR_REG_DM_MR_OFFSET: u16 = 1,
    /// Its length.
    UVERBS_ATTR_REG_DM_MR_LENGTH: u16 = 2,
    /// Its protection domain.
    UVERBS_ATTR_REG_DM_MR_PD_HANDLE: u16 = 3,
    /// Its access rights.
    UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS: u16 = 4,
    /// The device memory.
    UVERBS_ATTR_REG_DM_MR_DM_HANDLE: u16 = 5,
    /// Its local key.
    UVERBS_ATTR_REG_DM_MR_RESP_LKEY: u16 = 6,
    /// Its remote key.
    UVERBS_ATTR_REG_DM_MR_RESP_RKEY: u16 = 7,

    /// Device memory.
    UVERBS_OBJECT_DM: u16 = 14,
    /// Allocates it.
    UVERBS_METHOD_DM_ALLOC: u16 = 0,
    /// Its handle.
    UVERBS_ATTR_ALLOC_DM_HANDLE: u16 = 0,
    /// Its length.
    UVERBS_ATTR_ALLOC_DM_LENGTH: u16 = 1,
    /// Log of its alignment.
    UVERBS_ATTR_ALLOC_DM_ALIGNMENT: u16 = 2,
    /// Its offset in the page that is mapped.
    MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET: u16 = DRIVER,
    /// Index of that page, for mmap.
    MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX: u16 = DRIVER + 1,
    /// Frees it.
    UVERBS_METHOD_DM_FREE: u16 = 1,
    /// Its handle.
    UVERBS_ATTR_FREE_DM_HANDLE: u16 = 0,
    /// Queries it.
    MLX5_IB_METHOD_DM_QUERY: u16 = DRIVER + 1,
    /// Its handle.
    MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE: u16 = DRIVER,
    /// Its offset in the page that is mapped.
    MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET: u16 = DRIVER + 1,
    /// Index of that page, for mmap.
    MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX: u16 = DRIVER + 2,
    /// Its length.
    MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH: u16 = DRIVER + 3,
    /// Makes an address that does an operation on it.
    MLX5_IB_METHOD_DM_MAP_OP_ADDR: u16 = DRIVER,
    /// Its handle.
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE: u16 = DRIVER,
    /// The operation.
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP: u16 = DRIVER + 1,
    /// The address's offset in the page that is mapped.
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET: u16 = DRIVER + 2,
    /// Index of that page, for mmap.
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX: u16 = DRIVER + 3,
    /// The mmap offset's command for device memory.
    MLX5_IB_MMAP_DEVICE_MEM: u64 = 8,

    /// Create a DevX user context.
    MLX5_IB_ALLOC_UCTX_DEVX: u32 = 1,
    /// The context's answer has `hca_core_clock_offset`: the clock can be mapped.
    MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET: u32 = 1 << 0,
    /// The context's answer has `dump_fill_mkey`.
    MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY: u32 = 1 << 1,
    /// The library supports 4 KiB UAR pages with any host page size.
    MLX5_LIB_CAP_4K_UAR: u64 = 1,
    /// The library allocates UAR pages one by one; none come with the context.
    MLX5_LIB_CAP_DYN_UAR: u64 = 2,

    /// The page of the clock, in bits 8 to 15 of an mmap offset in pages.
    MLX5_IB_MMAP_CORE_CLOCK: u64 = 5,

    /// Methods without an object.
    MLX5_IB_OBJECT_DEVX: u16 = DRIVER,
    /// Executes a command that creates no object.
    MLX5_IB_METHOD_DEVX_OTHER: u16 = DRIVER,
    /// The command's input.
    MLX5_IB_ATTR_DEVX_OTHER_CMD_IN: u16 = DRIVER,
    /// Its output.
    MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT: u16 = DRIVER + 1,
    /// Queries the EQ of a completion vector.
    MLX5_IB_METHOD_DEVX_QUERY_EQN: u16 = DRIVER + 2,
    /// The vector.
    MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC: u16 = DRIVER,
    /// The EQ's number.
    MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN: u16 = DRIVER + 1,
    /// Subscribes to events.
    MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT: u16 = DRIVER + 3,
    /// The event channel.
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE: u16 = DRIVER,
    /// The object of the events; absent for device events.
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE: u16 = DRIVER + 1,
    /// The event types, 16 bits each.
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST: u16 = DRIVER + 2,
    /// An eventfd to signal instead.
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM: u16 = DRIVER + 3,

    /// A firmware object.
    MLX5_IB_OBJECT_DEVX_OBJ: u16 = DRIVER + 1,
    /// Creates it.
    MLX5_IB_METHOD_DEVX_OBJ_CREATE: u16 = DRIVER,
    /// Its handle.
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE: u16 = DRIVER,
    /// The command's input.
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN: u16 = DRIVER + 1,
    /// Its output.
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT: u16 = DRIVER + 2,
    /// Destroys it.
    MLX5_IB_METHOD_DEVX_OBJ_DESTROY: u16 = DRIVER + 1,
    /// Its handle.
    MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE: u16 = DRIVER,
    /// Modifies it.
    MLX5_IB_METHOD_DEVX_OBJ_MODIFY: u16 = DRIVER + 2,
    /// Its handle.
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE: u16 = DRIVER,
    /// The command's input.
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN: u16 = DRIVER + 1,
    /// Its output.
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT: u16 = DRIVER + 2,
    /// Queries it, and waits for the reply.
    MLX5_IB_METHOD_DEVX_OBJ_QUERY: u16 = DRIVER + 3,
    /// Its handle.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE: u16 = DRIVER,
    /// The command's input.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN: u16 = DRIVER + 1,
    /// Its output.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT: u16 = DRIVER + 2,
    /// Queries it; the reply comes through a channel.
    MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY: u16 = DRIVER + 4,
    /// Its handle.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE: u16 = DRIVER,
    /// The command's input.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN: u16 = DRIVER + 1,
    /// The channel of the reply.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD: u16 = DRIVER + 2,
    /// An ID that the reply returns.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID: u16 = DRIVER + 3,
    /// Size of the output.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN: u16 = DRIVER + 4,

    /// A umem.
    MLX5_IB_OBJECT_DEVX_UMEM: u16 = DRIVER + 2,
    /// Registers it.
    MLX5_IB_METHOD_DEVX_UMEM_REG: u16 = DRIVER,
    /// Its handle.
    MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE: u16 = DRIVER,
    /// Its address in this process.
    MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR: u16 = DRIVER + 1,
    /// Its length.
    MLX5_IB_ATTR_DEVX_UMEM_REG_LEN: u16 = DRIVER + 2,
    /// Access rights.
    MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS: u16 = DRIVER + 3,
    /// Its umem ID.
    MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID: u16 = DRIVER + 4,
    /// Allowed page sizes, one bit per size.
    MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP: u16 = DRIVER + 5,
    /// Destroys it.
    MLX5_IB_METHOD_DEVX_UMEM_DEREG: u16 = DRIVER + 1,
    /// Its handle.
    MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE: u16 = DRIVER,
    /// The dma-buf that it is to be of.
    MLX5_IB_ATTR_DEVX_UMEM_REG_DMABUF_FD: u16 = DRIVER + 6,
    /// Write access for the card.
    IB_UVERBS_ACCESS_LOCAL_WRITE: u32 = 1,
    /// Write access for the remote.
    IB_UVERBS_ACCESS_REMOTE_WRITE: u32 = 2,
    /// Read access for the remote.
    IB_UVERBS_ACCESS_REMOTE_READ: u32 = 4,
    /// Atomics of the remote.
    IB_UVERBS_ACCESS_REMOTE_ATOMIC: u32 = 8,
    /// Addresses count from zero.
    IB_UVERBS_ACCESS_ZERO_BASED: u32 = 1 << 5,
    /// Pages come when they are needed.
    IB_UVERBS_ACCESS_ON_DEMAND: u32 = 1 << 6,
    /// Relaxed ordering; optional: a card without it ignores it.
    IB_UVERBS_ACCESS_RELAXED_ORDERING: u32 = 1 << 20,

    /// Criteria of flow rules, and their priority.
    MLX5_IB_OBJECT_FLOW_MATCHER: u16 = DRIVER + 3,
    /// Creates it.
    MLX5_IB_METHOD_FLOW_MATCHER_CREATE: u16 = DRIVER,
    /// Its handle.
    MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE: u16 = DRIVER,
    /// The criteria: `fte_match_param` or its first part.
    MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK: u16 = DRIVER + 1,
    /// Flow type and priority.
    MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE: u16 = DRIVER + 2,
    /// Enabled parts of the criteria.
    MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA: u16 = DRIVER + 3,
    /// Which frames it is for, of eight bytes; without it, those that are received.
    MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE: u16 = DRIVER + 5,
    /// Those that are sent.
    MLX5_IB_UAPI_FLOW_TABLE_TYPE_NIC_TX: u64 = 1,
    /// Rules with a priority.
    MLX5_IB_FLOW_TYPE_NORMAL: u16 = 0,
    /// Destroys it.
    MLX5_IB_METHOD_FLOW_MATCHER_DESTROY: u16 = DRIVER + 1,
    /// Its handle.
    MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE: u16 = DRIVER,

    /// A rate for send queues ("packet pacing").
    MLX5_IB_OBJECT_PP: u16 = DRIVER + 7,
    /// Sets it.
    MLX5_IB_METHOD_PP_OBJ_ALLOC: u16 = DRIVER,
    /// Its handle.
    MLX5_IB_ATTR_PP_OBJ_ALLOC_HANDLE: u16 = DRIVER,
    /// `set_pp_rate_limit_context`.
    MLX5_IB_ATTR_PP_OBJ_ALLOC_CTX: u16 = DRIVER + 1,
    /// Whether the index is for this object alone.
    MLX5_IB_ATTR_PP_OBJ_ALLOC_FLAGS: u16 = DRIVER + 2,
    /// Its index, of two bytes.
    MLX5_IB_ATTR_PP_OBJ_ALLOC_INDEX: u16 = DRIVER + 3,
    /// Clears it.
    MLX5_IB_METHOD_PP_OBJ_DESTROY: u16 = DRIVER + 1,
    /// Its handle.
    MLX5_IB_ATTR_PP_OBJ_DESTROY_HANDLE: u16 = DRIVER,

    /// A flow rule.
    UVERBS_OBJECT_FLOW: u16 = 9,
    /// Creates it.
    MLX5_IB_METHOD_CREATE_FLOW: u16 = DRIVER,
    /// Its handle.
    MLX5_IB_ATTR_CREATE_FLOW_HANDLE: u16 = DRIVER,
    /// The values to match.
    MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE: u16 = DRIVER + 1,
    /// The destination: a firmware object.
    MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX: u16 = DRIVER + 3,
    /// Its matcher.
    MLX5_IB_ATTR_CREATE_FLOW_MATCHER: u16 = DRIVER + 4,
    /// Its flow tag.
    MLX5_IB_ATTR_CREATE_FLOW_TAG: u16 = DRIVER + 6,
    /// Firmware objects that are flow counters, one for each that counts.
    MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX: u16 = DRIVER + 7,
    /// The index of the counter in each of them.
    MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET: u16 = DRIVER + 8,
    /// What becomes of frames without a destination.
    MLX5_IB_ATTR_CREATE_FLOW_FLAGS: u16 = DRIVER + 9,
    /// They are the kernel's.
    MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS: u32 = 1,
    /// They are dropped.
    MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP: u32 = 2,
    /// Destroys it.
    MLX5_IB_METHOD_DESTROY_FLOW: u16 = DRIVER + 1,
    /// Its handle.
    MLX5_IB_ATTR_DESTROY_FLOW_HANDLE: u16 = DRIVER,

    /// A channel for replies to asynchronous queries.
    MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD: u16 = DRIVER + 4,
    /// Opens it.
    MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC: u16 = DRIVER,
    /// Its descriptor.
    MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE: u16 = DRIVER,
    /// A channel for events.
    MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD: u16 = DRIVER + 5,
    /// Opens it.
    MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC: u16 = DRIVER,
    /// Its descriptor.
    MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE: u16 = DRIVER,
    /// Flags of the channel.
    MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS: u16 = DRIVER + 1,

    /// A UAR page.
    MLX5_IB_OBJECT_UAR: u16 = DRIVER + 8,
    /// Allocates it.
    MLX5_IB_METHOD_UAR_OBJ_ALLOC: u16 = DRIVER,
    /// Its handle.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE: u16 = DRIVER,
    /// The kind of mapping.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE: u16 = DRIVER + 1,
    /// Its mmap offset in the device file.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET: u16 = DRIVER + 2,
    /// Length of the mapping.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH: u16 = DRIVER + 3,
    /// Its page number on the card.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID: u16 = DRIVER + 4,
    /// Frees it.
    MLX5_IB_METHOD_UAR_OBJ_DESTROY: u16 = DRIVER + 1,
    /// Its handle.
    MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE: u16 = DRIVER,
    /// Mapped write combining, for BlueFlame.
    MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF: u64 = 0,
    /// Mapped uncached.
    MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC: u64 = 1,
}

macro_rules! structures {
    ($( $(#[$doc:meta])* $Name:ident, $c_name:literal { $( $(#[$field_doc:meta])* $field:ident: $type:ty, )* } )*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            pub struct $Name { $( $(#[$field_doc])* pub $field: $type, )* }
        )*

        /// All fields of all structures.
        pub const FIELDS: &[Field] = &[ $(
            Field { structure: $c_name, name: "", offset: 0, size: size_of::<$Name>() },
            $( Field {
                structure: $c_name,
                name: bare(stringify!($field)),
                offset: std::mem::offset_of!($Name, $field),
                size: size_of::<$type>(),
            }, )*
        )* ];
    };
}

/// A field's name without the mark of one that is a keyword here.
const fn bare(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    }
}

pub mod rdma_cm;
pub mod shared;

structures! {
    /// The header of a call, followed by its attributes.
    CallHeader, "ib_uverbs_ioctl_hdr" {
        /// Total length in bytes.
        length: u16,
        /// `UVERBS_OBJECT_...`
        object_id: u16,
        /// `UVERBS_METHOD_...`
        method_id: u16,
        /// Number of attributes.
        num_attrs: u16,
        /// Zero.
        reserved1: u64,
        /// `RDMA_DRIVER_...`
        driver_id: u32,
        /// Zero.
        reserved2: u32,
    }

    /// An attribute of a call.
    Attribute, "ib_uverbs_attr" {
        /// Its handle.
        attr_id: u16,
        /// Length in bytes; inputs of up to eight bytes are in `data` itself.
        len: u16,
        /// `UVERBS_ATTR_F_...`
        flags: u16,
        /// Kind of the input, for attributes with several: `enum_data.elem_id`, in the first byte.
        attr_data: u16,
        /// An address, a handle, a descriptor, or the data itself.
        data: u64,
    }

    /// mlx5's input for a context.
    AllocContextIn, "mlx5_ib_alloc_ucontext_req_v2" {
        /// BlueFlame registers to allocate with the context.
        total_num_bfregs: u32,
        /// How many of them are for a single queue each.
        num_low_latency_bfregs: u32,
        /// `MLX5_IB_ALLOC_UCTX_...`
        flags: u32,
        /// Zero.
        comp_mask: u32,
        /// The newest CQE version that we support.
        max_cqe_version: u8,
        /// Zero.
        reserved0: u8,
        /// Zero.
        reserved1: u16,
        /// Zero.
        reserved2: u32,
        /// `MLX5_LIB_CAP_...`
        lib_caps: u64,
    }

    /// The first part of mlx5's output for a context.
    AllocContextOut, "mlx5_ib_alloc_ucontext_resp" {
        /// Number of queue pair numbers.
        qp_tab_size: u32,
        /// Size of a BlueFlame register; 0 without write combining.
        bf_reg_size: u32,
        /// BlueFlame registers allocated with the context.
        tot_bfregs: u32,
        /// Size of a cache line.
        cache_line_size: u32,
        /// Largest send WQE in bytes.
        max_sq_desc_sz: u16,
        /// Largest receive WQE in bytes.
        max_rq_desc_sz: u16,
        /// Largest send queue in WQEBBs.
        max_send_wqebb: u32,
        /// Largest receive queue in WQEs.
        max_recv_wr: u32,
        /// Largest shared receive queue in WQEs.
        max_srq_recv_wr: u32,
        /// Number of ports.
        num_ports: u16,
        /// Supported offloads of flow actions.
        flow_action_flags: u16,
        /// Which of the following fields are valid.
        comp_mask: u32,
        /// Length of the output in bytes.
        response_length: u32,
        /// CQE version of the context's queues.
        cqe_version: u8,
        /// Commands that accept driver-specific input.
        cmds_supp_uhw: u8,
        /// Minimum inline header mode, plus one.
        eth_min_inline: u8,
        /// Supported formats of the clock page.
        clock_info_versions: u8,
        /// Offset of the clock on its page.
        hca_core_clock_offset: u64,
        /// Log of a UAR page's size.
        log_uar_size: u32,
        /// UAR pages per host page.
        num_uars_per_page: u32,
        /// BlueFlame registers that can be allocated later.
        num_dyn_bfregs: u32,
        /// Key of memory that discards writes.
        dump_fill_mkey: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_ALLOC_PD`.
    AllocPd, "ib_uverbs_alloc_pd" {
        /// Unused by ioctls.
        response: u64,
    }

    /// Its output.
    AllocPdResp, "ib_uverbs_alloc_pd_resp" {
        /// The domain's handle.
        pd_handle: u32,
    }

    /// mlx5's part of that output.
    AllocPdDriverResp, "mlx5_ib_alloc_pd_resp" {
        /// Number of the domain on the card.
        pdn: u32,
    }

    /// Input of `IB_USER_VERBS_CMD_REG_MR`.
    RegMr, "ib_uverbs_reg_mr" {
        /// Unused by ioctls.
        response: u64,
        /// Where the memory is in this process.
        start: u64,
        /// Its length.
        length: u64,
        /// The first address of the key.
        hca_va: u64,
        /// The protection domain.
        pd_handle: u32,
        /// `IB_UVERBS_ACCESS_...`
        access_flags: u32,
    }

    /// Its output.
    RegMrResp, "ib_uverbs_reg_mr_resp" {
        /// The region's handle.
        mr_handle: u32,
        /// The local key.
        lkey: u32,
        /// The remote key.
        rkey: u32,
    }

    /// Memory by a region's local key.
    Sge, "ib_uverbs_sge" {
        /// First address.
        addr: u64,
        /// Length in bytes.
        length: u32,
        /// The key.
        lkey: u32,
    }

    /// Header before the output of an asynchronous query.
    AsyncQueryHeader, "mlx5_ib_uapi_devx_async_cmd_hdr" {
        /// The ID given with the query.
        wr_id: u64,
    }

    /// Header before the EQE of an event.
    AsyncEventHeader, "mlx5_ib_uapi_devx_async_event_hdr" {
        /// The cookie given with the subscription.
        cookie: u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ioctl_s_number_is_made_of_its_structure_s_size() {
        let (both_ways, magic, number) = (3 << 30, 0x1b << 8, 1);
        assert_eq!(RDMA_VERBS_IOCTL, both_ways | (size_of::<CallHeader>() as u32) << 16 | magic | number);
    }
}
