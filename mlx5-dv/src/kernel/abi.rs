//! The kernel's RDMA ioctl interface: its numbers and structures, under the names that its headers (`rdma/*.h` of the
//! uapi) give them. The C compiler judges every one of them in the lab.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A number of the interface, for whoever compares it with the headers'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// As the headers call it.
    pub name: &'static str,
    /// What it is here.
    pub value: u64,
}

/// A field of a structure, for whoever compares it with the headers'.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// The structure's name in the headers.
    pub structure: &'static str,
    /// The field's name there; empty for the whole structure.
    pub name: &'static str,
    /// Byte of the structure it starts at.
    pub offset: usize,
    /// Its bytes.
    pub size: usize,
}

macro_rules! numbers {
    ($( $(#[$doc:meta])* $C_NAME:ident: $type:ty = $value:expr, )*) => {
        $( $(#[$doc])* pub const $C_NAME: $type = $value; )*

        /// All of them.
        pub const NUMBERS: &[Number] = &[ $( Number { name: stringify!($C_NAME), value: $C_NAME as u64 }, )* ];
    };
}

/// The first number of a driver's own objects, methods and attributes: `1 << UVERBS_ID_NS_SHIFT`.
const DRIVER: u16 = 1 << 12;

numbers! {
    /// The ioctl that carries every call.
    RDMA_VERBS_IOCTL: u32 = 0xc018_1b01,
    /// The call fails if the kernel does not know the attribute.
    UVERBS_ATTR_F_MANDATORY: u16 = 1,
    /// Which driver's objects and attributes are meant.
    RDMA_DRIVER_MLX5: u32 = 1,
    /// Version of the core's interface, as sysfs has it.
    IB_USER_VERBS_ABI_VERSION: u32 = 6,
    /// Version of mlx5's part, as sysfs has it.
    MLX5_IB_UVERBS_ABI_VERSION: u32 = 1,

    /// The device itself.
    UVERBS_OBJECT_DEVICE: u16 = 0,
    /// Makes the process' context.
    UVERBS_METHOD_GET_CONTEXT: u16 = 3,
    /// How many completion vectors there are.
    UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS: u16 = 0,
    /// What the core can do.
    UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT: u16 = 1,
    /// What the driver is asked.
    UVERBS_ATTR_UHW_IN: u16 = DRIVER,
    /// What the driver answers.
    UVERBS_ATTR_UHW_OUT: u16 = DRIVER + 1,

    /// The context shall have a user context of the card's.
    MLX5_IB_ALLOC_UCTX_DEVX: u32 = 1,
    /// UAR pages of 4 KiB are understood, whatever the host's page.
    MLX5_LIB_CAP_4K_UAR: u64 = 1,
    /// UAR pages are allocated one by one, none with the context.
    MLX5_LIB_CAP_DYN_UAR: u64 = 2,

    /// Calls that belong to no object.
    MLX5_IB_OBJECT_DEVX: u16 = DRIVER,
    /// Executes a command that creates nothing.
    MLX5_IB_METHOD_DEVX_OTHER: u16 = DRIVER,
    /// The command's input.
    MLX5_IB_ATTR_DEVX_OTHER_CMD_IN: u16 = DRIVER,
    /// Its output.
    MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT: u16 = DRIVER + 1,
    /// The EQ of a completion vector.
    MLX5_IB_METHOD_DEVX_QUERY_EQN: u16 = DRIVER + 2,
    /// The vector.
    MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC: u16 = DRIVER,
    /// The EQ's number.
    MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN: u16 = DRIVER + 1,
    /// Subscribes to events.
    MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT: u16 = DRIVER + 3,
    /// The channel they come by.
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE: u16 = DRIVER,
    /// The object they are about; none for those of the device.
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE: u16 = DRIVER + 1,
    /// Their types, 16 bits each.
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST: u16 = DRIVER + 2,
    /// An eventfd that is signalled instead.
    MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_NUM: u16 = DRIVER + 3,

    /// An object of the card's.
    MLX5_IB_OBJECT_DEVX_OBJ: u16 = DRIVER + 1,
    /// Creates it.
    MLX5_IB_METHOD_DEVX_OBJ_CREATE: u16 = DRIVER,
    /// What the kernel calls it.
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE: u16 = DRIVER,
    /// The command's input.
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN: u16 = DRIVER + 1,
    /// Its output.
    MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT: u16 = DRIVER + 2,
    /// Destroys it.
    MLX5_IB_METHOD_DEVX_OBJ_DESTROY: u16 = DRIVER + 1,
    /// Which.
    MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE: u16 = DRIVER,
    /// Modifies it.
    MLX5_IB_METHOD_DEVX_OBJ_MODIFY: u16 = DRIVER + 2,
    /// Which.
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE: u16 = DRIVER,
    /// The command's input.
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN: u16 = DRIVER + 1,
    /// Its output.
    MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT: u16 = DRIVER + 2,
    /// Queries it, and answers later.
    MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY: u16 = DRIVER + 4,
    /// Which.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE: u16 = DRIVER,
    /// The command's input.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN: u16 = DRIVER + 1,
    /// The channel the answer comes by.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD: u16 = DRIVER + 2,
    /// What tells the answer from others.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID: u16 = DRIVER + 3,
    /// Bytes of the output.
    MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN: u16 = DRIVER + 4,

    /// A umem.
    MLX5_IB_OBJECT_DEVX_UMEM: u16 = DRIVER + 2,
    /// Registers it.
    MLX5_IB_METHOD_DEVX_UMEM_REG: u16 = DRIVER,
    /// What the kernel calls it.
    MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE: u16 = DRIVER,
    /// Its address in this process.
    MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR: u16 = DRIVER + 1,
    /// Its bytes.
    MLX5_IB_ATTR_DEVX_UMEM_REG_LEN: u16 = DRIVER + 2,
    /// Who may do what with it.
    MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS: u16 = DRIVER + 3,
    /// What the card calls it.
    MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID: u16 = DRIVER + 4,
    /// Of which pages it may be made: a bit for each size.
    MLX5_IB_ATTR_DEVX_UMEM_REG_PGSZ_BITMAP: u16 = DRIVER + 5,
    /// Ends it.
    MLX5_IB_METHOD_DEVX_UMEM_DEREG: u16 = DRIVER + 1,
    /// Which.
    MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE: u16 = DRIVER,
    /// The card may write it.
    IB_UVERBS_ACCESS_LOCAL_WRITE: u32 = 1,

    /// Which bits of a frame rules look at, and how urgent they are.
    MLX5_IB_OBJECT_FLOW_MATCHER: u16 = DRIVER + 3,
    /// Makes it.
    MLX5_IB_METHOD_FLOW_MATCHER_CREATE: u16 = DRIVER,
    /// What the kernel calls it.
    MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE: u16 = DRIVER,
    /// The bits, as `fte_match_param` or its first part.
    MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK: u16 = DRIVER + 1,
    /// What kind of rules they are, and their priority.
    MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE: u16 = DRIVER + 2,
    /// Which parts of the bits count.
    MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA: u16 = DRIVER + 3,
    /// Rules that have a priority.
    MLX5_IB_FLOW_TYPE_NORMAL: u16 = 0,
    /// Ends it.
    MLX5_IB_METHOD_FLOW_MATCHER_DESTROY: u16 = DRIVER + 1,
    /// Which.
    MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE: u16 = DRIVER,

    /// A rule.
    UVERBS_OBJECT_FLOW: u16 = 9,
    /// Makes it.
    MLX5_IB_METHOD_CREATE_FLOW: u16 = DRIVER,
    /// What the kernel calls it.
    MLX5_IB_ATTR_CREATE_FLOW_HANDLE: u16 = DRIVER,
    /// What the matcher's bits must be.
    MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE: u16 = DRIVER + 1,
    /// Where its frames go: an object of the card's.
    MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX: u16 = DRIVER + 3,
    /// Its matcher.
    MLX5_IB_ATTR_CREATE_FLOW_MATCHER: u16 = DRIVER + 4,
    /// Its flow tag.
    MLX5_IB_ATTR_CREATE_FLOW_TAG: u16 = DRIVER + 6,
    /// Ends it.
    MLX5_IB_METHOD_DESTROY_FLOW: u16 = DRIVER + 1,
    /// Which.
    MLX5_IB_ATTR_DESTROY_FLOW_HANDLE: u16 = DRIVER,

    /// A channel for answers to asynchronous queries.
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
    /// What comes by it.
    MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS: u16 = DRIVER + 1,

    /// A UAR page.
    MLX5_IB_OBJECT_UAR: u16 = DRIVER + 8,
    /// Allocates it.
    MLX5_IB_METHOD_UAR_OBJ_ALLOC: u16 = DRIVER,
    /// What the kernel calls it.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE: u16 = DRIVER,
    /// How it is to be mapped.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE: u16 = DRIVER + 1,
    /// Where in the device's file it is mapped from.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET: u16 = DRIVER + 2,
    /// Bytes of the mapping.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH: u16 = DRIVER + 3,
    /// What the card calls it.
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID: u16 = DRIVER + 4,
    /// Gives it back.
    MLX5_IB_METHOD_UAR_OBJ_DESTROY: u16 = DRIVER + 1,
    /// Which.
    MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE: u16 = DRIVER,
    /// Mapped write-combining, for BlueFlame.
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

        /// Every field of every structure.
        pub const FIELDS: &[Field] = &[ $(
            Field { structure: $c_name, name: "", offset: 0, size: size_of::<$Name>() },
            $( Field {
                structure: $c_name,
                name: stringify!($field),
                offset: std::mem::offset_of!($Name, $field),
                size: size_of::<$type>(),
            }, )*
        )* ];
    };
}

structures! {
    /// What begins a call. Its attributes follow.
    CallHeader, "ib_uverbs_ioctl_hdr" {
        /// Bytes of all of it.
        length: u16,
        /// `UVERBS_OBJECT_...`
        object_id: u16,
        /// `UVERBS_METHOD_...`
        method_id: u16,
        /// How many follow.
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
        /// Which.
        attr_id: u16,
        /// Bytes; up to eight of an input are in `data` itself.
        len: u16,
        /// `UVERBS_ATTR_F_...`
        flags: u16,
        /// Which of several kinds of input it is, where there are such: `enum_data.elem_id`, the first byte.
        attr_data: u16,
        /// An address, a handle, a descriptor, or the bytes themselves.
        data: u64,
    }

    /// What mlx5 is asked for with a context.
    AllocContextIn, "mlx5_ib_alloc_ucontext_req_v2" {
        /// BlueFlame registers that come with the context.
        total_num_bfregs: u32,
        /// Those of them that one queue each has.
        num_low_latency_bfregs: u32,
        /// `MLX5_IB_ALLOC_UCTX_...`
        flags: u32,
        /// Zero.
        comp_mask: u32,
        /// The newest CQE format that we understand.
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

    /// What mlx5 answers: the first part of it.
    AllocContextOut, "mlx5_ib_alloc_ucontext_resp" {
        /// Queue pair numbers there are.
        qp_tab_size: u32,
        /// Bytes of a BlueFlame register; 0 where the processor cannot combine writes.
        bf_reg_size: u32,
        /// BlueFlame registers that came with the context.
        tot_bfregs: u32,
        /// Bytes of a cache line.
        cache_line_size: u32,
        /// Bytes of the largest send WQE.
        max_sq_desc_sz: u16,
        /// Bytes of the largest receive WQE.
        max_rq_desc_sz: u16,
        /// WQEBBs of the largest send queue.
        max_send_wqebb: u32,
        /// WQEs of the largest receive queue.
        max_recv_wr: u32,
        /// WQEs of the largest shared receive queue.
        max_srq_recv_wr: u32,
        /// Ports.
        num_ports: u16,
        /// Offloads of flow actions.
        flow_action_flags: u16,
        /// Which of what follows is valid.
        comp_mask: u32,
        /// Bytes that were answered.
        response_length: u32,
        /// CQE format of the context's queues.
        cqe_version: u8,
        /// Commands that take more from the driver.
        cmds_supp_uhw: u8,
        /// Bytes of a frame that a WQE must hold, as a mode and one.
        eth_min_inline: u8,
        /// Formats of the clock's page.
        clock_info_versions: u8,
        /// Where on its page the clock is.
        hca_core_clock_offset: u64,
        /// log2 of a UAR page's bytes.
        log_uar_size: u32,
        /// UAR pages on a page of the host's.
        num_uars_per_page: u32,
        /// BlueFlame registers that can be had later.
        num_dyn_bfregs: u32,
        /// The key of memory that swallows what is written.
        dump_fill_mkey: u32,
    }

    /// What precedes the output of an asynchronous query.
    AsyncQueryHeader, "mlx5_ib_uapi_devx_async_cmd_hdr" {
        /// As it was given with the query.
        wr_id: u64,
    }

    /// What precedes the event queue entry of an event.
    AsyncEventHeader, "mlx5_ib_uapi_devx_async_event_hdr" {
        /// As it was given with the subscription.
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
