//! The rows of `docs/verbs.md`. To add one: `row!`, or a struct literal where that does not fit.

use std::fs::File;
use std::os::fd::OwnedFd;

use mlx5_dv::memory::HostMemory;
use mlx5_dv::objects::*;
use mlx5_dv::queue::ethernet::{FrameBatch, Frames, Spread};
use mlx5_dv::queue::*;
use mlx5_dv::{ClockRate, Device, Error, Events, Gid};

use crate::table::Offered::{No, Part, Whole};
use crate::table::{DEVX, EVERY, OWNED, Row, Section, calls};

/// A row: its verbs, how much is offered, the calls, the ways, the transports, the judges, remarks.
macro_rules! row {
    ($verbs:expr, $offered:expr, [$($calls:tt)+], $ways:expr, $transports:expr, $judges:expr, $remarks:expr $(,)?) => {
        Row {
            verbs: &$verbs,
            offered: $offered,
            calls: calls!($($calls)+),
            ways: $ways,
            transports: $transports,
            judges: &$judges,
            remarks: $remarks,
        }
    };
    ($verbs:expr, $no:expr) => {
        Row { verbs: &$verbs, offered: $no, calls: &[], ways: &[], transports: "", judges: &[], remarks: "" }
    };
}

const QUERIES: &str = "devx::it_is_listed_and_asked";
const INFO: &str = "devx::info_is_what_linux_shows";
const PINGPONG: &str = "devx::libmlx5_is_at_the_other_end";
const DATAGRAMS: &str = "devx::datagrams_are_those_of_libmlx5";
const SHARED: &str = "devx::shared_receives_are_those_of_libmlx5";
const XRC: &str = "three_ways::messages_name_shared_queues_of_libmlx5_and_of_ours";
const XRC_DEVX: &str = "devx::xrc_is_that_of_libmlx5";
const OPERATIONS: &str = "devx::operations_are_those_of_libmlx5";
const XRC_DOMAIN: &str = "devx::processes_share_an_xrc_domain";
const KEYS: &str = "devx::keys_open_and_close_for_libmlx5";
const SHARING: &str = "devx::processes_share_what_they_export";
const ON_DEMAND: &str = "mlx5_ib::pages_come_when_our_queue_pairs_need_them";
const TUNING: &str = "devx::options_and_events_are_those_of_libmlx5";
const FRAMES: &str = "devx::frames_pass_beside_the_kernels_own";
const DIVIDED: &str = "devx::linux_receives_what_the_card_has_divided";
const RULES: &str = "devx::rules_count_and_drop_beside_the_kernels_own";
const CONNECTED: &str = "RC, UC, XRC";
const ALL: &str = "RC, UC, XRC, UD";

pub const TABLE: &[Section] = &[
    Section { title: "Devices and ports", rows: DEVICES },
    Section { title: "Protection domains and memory", rows: MEMORY },
    Section { title: "Completion queues", rows: COMPLETIONS },
    Section { title: "Queue pairs", rows: QUEUE_PAIRS },
    Section { title: "Shared receive queues", rows: SHARED_RECEIVES },
    Section { title: "Raw Ethernet: work queues, steering, counters", rows: ETHERNET },
];

const DEVICES: &[Row] = &[
    row!(
        ["query_device_ex"],
        Whole,
        [Device::caps, Device::query_caps],
        EVERY,
        "",
        [QUERIES],
        "The card's capability pages under their PRM names, in place of libibverbs' structure"
    ),
    row!(
        ["query_port"],
        Whole,
        [Device::port, Device::link, Device::gids, Device::query_gid],
        EVERY,
        "",
        [INFO, "three_ways::info_of_owned_functions_is_that_of_their_card"],
        ""
    ),
    row!(
        ["query_rt_values"],
        Whole,
        [Device::timestamp, Device::clock_rate, ClockRate::between],
        EVERY,
        "",
        ["devx::our_clock_is_that_of_libmlx5"],
        "Ticks of the clock that completions bear (`Timestamp`), and their rate"
    ),
    row!(
        ["async_event"],
        Whole,
        [Device::events, Device::async_events, Events::fd, Events::wait, Device::is_wanted_back],
        EVERY,
        "",
        ["devx::events_come", "vfio::who_wants_a_function_back_gets_it"],
        "Typed values, with a descriptor for epoll; or entries as the card writes them. VFIO's own, too: who unbinds a \
         function waits until it is closed (`Event::WantedBack`, `Device::is_wanted_back`)"
    ),
    row!(
        ["free_context"],
        Whole,
        [Device],
        EVERY,
        "",
        ["devx::a_killed_program_leaves_nothing", "vfio::a_killed_program_leaves_nothing"],
        "Drop the last handle"
    ),
];

const MEMORY: &[Row] = &[
    row!(["alloc_pd", "dealloc_pd"], Whole, [Pd::alloc, Pd::destroy], EVERY, "", [PINGPONG], ""),
    row!(
        ["alloc_td", "dealloc_td"],
        Whole,
        [Uar::alloc, Uar::alloc_write_combining, Uar::destroy],
        EVERY,
        "",
        [PINGPONG],
        "A thread domain is its UAR page, which each creation names. Queues take no locks"
    ),
    row!(
        ["alloc_parent_domain"],
        Whole,
        [Pd::alloc_parent::<fn(usize) -> Result<HostMemory, Error>>, CqOptions::parent_domain, Pd::destroy],
        EVERY,
        "",
        [PINGPONG],
        "Rings and doorbell records in memory of the user's, by a function of the user's. `vfio-user:` needs memory with a file"
    ),
    row!(
        ["reg_mr", "dereg_mr"],
        Whole,
        [
            MemoryRegion::allocate,
            MemoryRegion::register,
            MemoryRegion::register_at,
            MemoryRegion::into_memory,
            MemoryRegion::query,
            MemoryRegion::destroy,
            ExclusiveRegion::allocate,
            HostMemory::of::<Vec<u8>>,
        ],
        EVERY,
        "",
        [PINGPONG, "vfio::a_page_of_1_gib_is_one_mapping_and_one_entry"],
        "Also `reg_mr_iova`; zero-based at 0. Relaxed ordering. Memory of the driver's, or of an owner that comes back. `ExclusiveRegion`: buffers are slices"
    ),
    row!(
        ["rereg_mr"],
        Whole,
        [MemoryRegion::rereg],
        EVERY,
        "",
        [KEYS],
        "Rights, protection domain, memory; all or nothing, with another key"
    ),
    row!(
        ["reg_dmabuf_mr"],
        Whole,
        [DmaBufRegion::register::<OwnedFd>, DmaBufRegion::remote_at, DmaBufRegion::segment, DmaBufRegion::destroy],
        DEVX,
        "",
        ["devx::memory_of_a_dma_buf_is_written_and_read"],
        "Pinned while it is registered. The kernel alone maps a dma-buf: a function of this process's own reaches none"
    ),
    row!(
        ["advise_mr"],
        Whole,
        [
            MemoryRegion::register_on_demand,
            ImplicitRegion::register,
            MemoryRegion::register_in,
            MemoryRegion::advise,
            MemoryRegion::start_advise,
        ],
        DEVX,
        "",
        [ON_DEMAND],
        "Explicit regions, and one of all addresses (implicit), which no remote reaches. The card announces `mem_page_fault`: of older page faults Linux answers only those of its own queue pairs. Owned functions pin their memory"
    ),
    row!(
        ["alloc_null_mr"],
        Whole,
        [NullRegion::of],
        EVERY,
        "",
        ["mlx5_ib::libmlx5_perftest_and_librdmacm_live_on_the_model"],
        "libmlx5's null region on the same card (`keys.c`); ours is tested on the software card alone"
    ),
    row!(
        ["alloc_mw", "bind_mw", "dealloc_mw"],
        Whole,
        [
            FastWindow::alloc,
            Connection::bind,
            ConnectionBatch::bind,
            Connection::unbind,
            MemoryWindow::alloc,
            SendBatch<AnyDoorbell>::bind_window,
            SendBatch<AnyDoorbell>::unbind_window,
            MemoryWindow::destroy,
        ],
        EVERY,
        "RC, UC",
        [KEYS],
        "Both types, zero-based too"
    ),
    row!(
        ["alloc_dm", "free_dm", "reg_dm_mr"],
        Whole,
        [
            DeviceMemory::alloc,
            DeviceMemory::destroy,
            DeviceMemory::map_increment,
            DeviceMemory::map_test_and_set,
            DeviceMemoryRegion::register,
        ],
        EVERY,
        "",
        [SHARING],
        "Operations by addresses (libmlx5's dm_map_op_addr) on numbers of 4 bytes, big-endian"
    ),
    row!(
        ["import_pd", "import_mr", "import_dm", "unimport_pd", "unimport_mr", "unimport_dm"],
        Whole,
        [
            Device::export,
            Device::import,
            Pd::handle,
            Pd::import,
            MemoryRegion::handle,
            ImportedRegion::import,
            DeviceMemory::handle,
            DeviceMemory::import,
            DeviceMemoryRegion::handle,
            ImportedRegion::import_device_memory,
        ],
        DEVX,
        "",
        [SHARING],
        "With processes on libibverbs, too. A function that a process owns nobody else can use"
    ),
];

const COMPLETIONS: &[Row] = &[
    row!(
        ["create_cq", "destroy_cq"],
        Whole,
        [CompletionQueue::create, CompletionQueue::destroy],
        EVERY,
        ALL,
        [PINGPONG],
        ""
    ),
    row!(
        ["create_cq_ex"],
        Whole,
        [CompletionQueue::create, CqOptions::cqe_size, CqOptions::vector],
        EVERY,
        ALL,
        [PINGPONG],
        "CQEs of 64 or 128 bytes, completion vectors; timestamps and the user index come with each completion. Each is \
         single-threaded"
    ),
    row!(["poll_cq"], Whole, [CompletionQueue::poll, CompletionQueue::poll_batch], EVERY, ALL, [PINGPONG], ""),
    row!(
        ["req_notify_cq", "cq_event"],
        Whole,
        [
            CompletionQueue::arm,
            CompletionQueue::wait,
            CompletionQueue::take_events,
            CompletionQueue::fd,
            EventQueue::take,
            EventQueue::wait,
            CompletionQueue::count_event,
            CompletionQueue::request_event,
        ],
        EVERY,
        ALL,
        [
            "devx::messages_bounce",
            "devx::tasks_of_an_executor_exchange_messages",
            "three_ways::threads_have_event_queues_of_their_own",
        ],
        "For tasks of any executor `CompletionQueue::ready`; for threads that own their event queue `EventQueue`, on \
         owned functions. `EventSource` is how all holders of queues are waited for"
    ),
    row!(["modify_cq"], Whole, [CqOptions::moderation, Cq::moderate, Cq::moderation], EVERY, ALL, [TUNING], ""),
    row!(
        ["resize_cq"],
        Whole,
        [CompletionQueue::resize, Hub<()>::grow],
        EVERY,
        ALL,
        [SHARED],
        "While work goes on"
    ),
];

const QUEUE_PAIRS: &[Row] = &[
    row!(
        ["create_qp", "destroy_qp"],
        Whole,
        [QueuePair::create, QueuePair::destroy, Dct::create, Dct::destroy],
        EVERY,
        "RC, UC, XRC, DC, UD, GSI",
        [PINGPONG, SHARED],
        "Raw packets have SQ and RQ of their own, as the card has it (below)"
    ),
    row!(
        ["create_qp_ex"],
        Whole,
        [QueuePair::create, QpOptions::srq, QpOptions::user_index, QpOptions::dc_initiator, Hub<()>::join],
        EVERY,
        ALL,
        [SHARED],
        "Hundreds on one thread: `Hub`"
    ),
    row!(
        ["query_qp"],
        Whole,
        [QueuePair::query],
        EVERY,
        ALL,
        ["devx::libmlx5_is_at_the_other_end"],
        "State, path, rights, timers, retries, depths, sequence numbers, counters of the queues"
    ),
    row!(
        ["modify_qp"],
        Whole,
        [
            QueuePair::init,
            QueuePair::activate,
            QueuePair::activate_initiator,
            QueuePair::ready_to_receive,
            QueuePair::ready_to_send,
            QueuePair::modify,
            QueuePair::restart_send_queue,
            QueuePair::to_error,
            QueuePair::reset,
            Connection::reset,
            DatagramQueue::reset,
        ],
        EVERY,
        ALL,
        [PINGPONG],
        "`QueuePair::modify` changes rights in INIT and RTS, RNR timer, Q_Key and UDP source port in RTS (libmlx5's \
         `mlx5dv_modify_qp_udp_sport`), `QueuePair::restart_send_queue` leads from SQER to RTS (UC, UD). There is no state \
         SQD, as Linux's mlx5_ib and today's headers have no command that enters it, and no alternate path, which RoCE has not. The port of a bond (`RtrAttributes::lag_port`, and \
         `TisOptions::lag_port` of frames) is untried: the software card has one port"
    ),
    row!(
        ["query_ece", "set_ece"],
        Whole,
        [QueuePair::ece, RtrAttributes::new],
        EVERY,
        CONNECTED,
        ["mlx5_ib::libmlx5_perftest_and_librdmacm_live_on_the_model", TUNING],
        "Field `ece` of `RtrAttributes`. The software card offers version 1 without any option: which there are is not public"
    ),
    row!(
        ["modify_qp_rate_limit"],
        Whole,
        [RateLimit::create, Sq::set_rate_limit, Sq::rate_limit],
        EVERY,
        "raw packets",
        ["mlx5_ib::rates_are_kept", "devx::frames_go_out_at_their_rate"],
        "`RateLimitOptions`: rate, bound of bursts, typical packet. Linux holds queue pairs for raw packets to a rate, and of others \
         only those of UD and UC, if the card says that it can (`packet_pacing_req_ud`)"
    ),
    row!(
        ["post_send"],
        Whole,
        [
            SendQueue<AnyDoorbell>::batch,
            Connection::batch,
            ConnectionBatch::quiet,
            ConnectionBatch::send_all,
            ConnectionBatch::send_inline_all,
            Connection::send,
            Connection::write,
            Hub<()>::batch,
            Connection::read,
            Connection::compare_swap,
            Connection::fetch_add,
            Done::found::<u64>,
            Connection::send_invalidate,
            QueuePair::unreliable_send_queue::<AnyDoorbell>,
            XrcConnection::send,
            XrcConnection::write,
            XrcConnection::read,
            XrcConnection::fetch_add,
            XrcConnection::batch,
            Endpoint::sends,
            EndpointSends::send_imm,
            DatagramEndpoint::sends,
            DatagramQueue::send,
            DatagramSends::send_inline_all,
            DcInitiator::send,
            DcInitiator::write,
            SendBatch<AnyDoorbell>::nop,
        ],
        EVERY,
        "RC, UC, XRC, DC, UD",
        [
            OPERATIONS,
            PINGPONG,
            "devx::atomics_are_those_of_libmlx5",
            KEYS,
            XRC,
            XRC_DOMAIN,
            "devx::dynamic_connections_are_those_of_libmlx5",
            DATAGRAMS,
            DIVIDED,
            "tshark::what_the_card_has_divided_is_well_formed",
        ],
        "SEND, RDMA WRITE (both with and without immediate), SEND with invalidate, RDMA READ, atomics, NOP; inline data, \
         of several parts, too, scatter/gather, fences, solicited events. Raw packets also with segmentation (TSO: `SendBatch::send_large`, in tunnels \
         `SendBatch::send_large_in_tunnel`); that of datagrams is for IPoIB, which RoCE has not"
    ),
    row!(
        ["post_recv"],
        Whole,
        [ReceiveQueue::batch, Connection::receive, DatagramQueue::receive, EndpointReceives::receive_buffer],
        EVERY,
        ALL,
        [PINGPONG],
        ""
    ),
    row!(
        ["create_ah", "destroy_ah"],
        Whole,
        [AddressHandle::new, AddressHandle::to],
        EVERY,
        "UD",
        [DATAGRAMS],
        "An address vector, no object of the card's"
    ),
    row!(
        ["attach_mcast", "detach_mcast"],
        Whole,
        [Membership::join, Membership::leave, AddressPath::group],
        EVERY,
        "UD",
        ["devx::groups_are_those_of_librdmacm"],
        "Frames of a group: `Device::set_multicast`"
    ),
    row!(
        ["open_xrcd", "close_xrcd"],
        Whole,
        [
            Xrcd::alloc,
            Xrcd::open::<&File>,
            Xrcd::destroy,
            QpOptions::xrc_initiator,
            XrcTarget::create,
            QueuePair::xrc_send_queue::<AnyDoorbell>,
            XrcConnection::new,
            XrcReceiver::new,
        ],
        EVERY,
        "XRC",
        [XRC, XRC_DEVX, XRC_DOMAIN],
        "Processes share a domain on devx, by a file"
    ),
    row!(["open_qp"], Whole, [XrcTarget::open, XrcTarget::query, XrcTarget::destroy], DEVX, "XRC", [XRC_DOMAIN], ""),
    row!(
        ["query_qp_data_in_order"],
        Whole,
        [QueuePair::data_in_order, QueuePair::card_data_in_order, Dct::card_data_in_order],
        EVERY,
        "RC, UC, XRC, DC, UD",
        ["devx::bytes_come_in_the_order_that_libmlx5_tells"],
        "For processors and the card together, or for the card alone. Beside memory with relaxed ordering"
    ),
];

const SHARED_RECEIVES: &[Row] = &[
    row!(
        ["create_srq", "query_srq", "destroy_srq"],
        Whole,
        [Srq::create, Srq::query, Srq::destroy, QpOptions::srq],
        EVERY,
        "RC, UC, UD",
        [SHARED],
        ""
    ),
    row!(
        ["modify_srq"],
        Whole,
        [Srq::arm_limit],
        EVERY,
        "RC, UC, UD",
        [SHARED],
        "Its event comes by `Device::async_events`. The size stays, as in libmlx5"
    ),
    row!(
        ["create_srq_ex"],
        Part("tag matching; on devx the status of those of an XRC domain, which Linux does not tell"),
        [Srq::create, Srq::create_xrc],
        EVERY,
        CONNECTED,
        [XRC, XRC_DEVX],
        ""
    ),
    row!(["post_srq_recv"], Whole, [SharedReceiveQueue::batch], EVERY, ALL, [SHARED], ""),
    row!(["get_srq_num"], Whole, [Srq::srqn], EVERY, "XRC", [XRC], ""),
    row!(["post_srq_ops"], No("it is for tag matching, which the software card does not announce")),
];

const ETHERNET: &[Row] = &[
    row!(
        ["create_wq", "modify_wq", "destroy_wq"],
        Whole,
        [Rq::create, Rq::ready, Rq::to_error, Rq::reset, Rq::destroy, Sq::create, Sq::reset, Sq::destroy],
        EVERY,
        "raw packets",
        [FRAMES],
        "Striding queues (mlx5dv's multi-packet receives) by `RqOptions::strides`, owned by `StridingQueue`; compressed \
         completions of receives by `CompressedCompletionQueue`; several frames in one send by `SendBatch::send_several`"
    ),
    row!(
        ["create_rwq_ind_table", "destroy_rwq_ind_table"],
        Whole,
        [Rqt::create, Rqt::set, Rqt::destroy, Tir::create_rss, Spread],
        EVERY,
        "raw packets",
        [FRAMES],
        "`Tir::create_rss` for what verbs have as a queue pair with a hash; `Spread` for both with steering"
    ),
    row!(
        ["create_flow", "destroy_flow"],
        Whole,
        [
            FlowRules::create,
            FlowRules::add::<FlowActions>,
            FlowMatch::new,
            FlowActions::forward,
            FlowTable::with_options,
            FlowGroup::create,
            FlowRule::create::<FlowActions>,
            FlowRule::set_actions::<FlowActions>,
            FlowRule::delete,
            FlowMatcher::create,
            FlowMatcher::of_direction,
            FlowRule::beside_kernel::<FlowActions>,
            ModifyHeader::create,
            PacketReformat::vxlan,
            VxlanPort::add,
            FlowMatch::vxlan_at,
            FlowSampler::create,
            FlowActions::sample,
        ],
        EVERY,
        "raw packets",
        [FRAMES, RULES],
        "`FlowRules` on every way, for what is received and sent; tables, as the card has them; on devx rules start beside \
         the kernel's, by matchers, and go on in tables of ours"
    ),
    row!(
        ["create_flow_action_esp", "modify_flow_action_esp", "destroy_flow_action"],
        No("IPsec is not offloaded: no card that the software card models announces it")
    ),
    row!(
        ["create_counters", "attach_counters_point_flow", "read_counters", "destroy_counters"],
        Whole,
        [
            FlowCounters::create,
            FlowCounter::create,
            FlowActions::count,
            FlowCounter::read,
            FlowCounters::read,
            FlowCounters::destroy,
            FlowAging::new,
        ],
        EVERY,
        "raw packets",
        [RULES],
        "Packets and bytes at once; hundreds at once by `FlowCounters`; `FlowAging` finds rules without frames"
    ),
];

/// What is not of mlx5's context: Linux' kernel verbs, libmlx5's direct verbs, other tools.
pub const BESIDE: &[Row] = &[
    row!(
        ["GIDs of a port (Linux' `ip addr`, `ip link ... type vlan`)"],
        Whole,
        [Device::set_gid, Device::query_gid, Device::gids, Gid::vlan],
        OWNED,
        "",
        ["soft_roce::soft_roce_and_ours_understand_each_other"],
        "With a VLAN, whose tag bears the path's service level; on devx they are the kernel's"
    ),
    row!(
        ["query counters (`ethtool -S`, sysfs)"],
        Whole,
        [Device::query_port_counters, Device::query_pcie_counters, Device::query_vport_counters],
        EVERY,
        "",
        ["devx::counters_are_what_linux_shows", "three_ways::owned_functions_count_as_linux_counts"],
        "`PPCNT`, `MPCNT`, `QUERY_VPORT_COUNTER`"
    ),
    row!(
        ["send at a time (DPDK's `RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP`)"],
        Whole,
        [FrameBatch::wait_until, SendBatch < AnyDoorbell, Frames > ::wait_until, Sq::waits_for_times],
        EVERY,
        "raw packets",
        ["testpmd::testpmd_forwards_between_two_kernels"],
        "Where the card has `wait_on_time`. The judge's own queues, on the software card, which has it as `connectx7`"
    ),
    row!(
        ["fast registration (Linux' `IB_WR_REG_MR`; libmlx5's create_mkey, wr_mr_list, wr_mr_interleaved)"],
        Part("signatures and encryption, which the software card does not announce"),
        [
            FastKey::create,
            Connection::register,
            Connection::register_interleaved,
            ConnectionBatch::register,
            UmrKey::create,
            SendBatch<AnyDoorbell>::register,
        ],
        EVERY,
        "RC",
        [KEYS, "nvme::ours_and_linux_s_ends_read_what_was_written"],
        "Keys of pages on owned functions alone: their entries are addresses of the bus, which Linux tells no process; on \
         devx keys of parts serve"
    ),
    row!(
        ["local_inv"],
        Whole,
        [SendBatch<AnyDoorbell>::local_invalidate, Connection::invalidate],
        EVERY,
        "RC, UC",
        [KEYS],
        ""
    ),
    row!(
        ["masked atomics"],
        Whole,
        [
            SendBatch<AnyDoorbell>::masked_compare_swap::<u64>,
            SendBatch<AnyDoorbell>::masked_fetch_add::<u64>,
            Connection::masked_compare_swap::<u64>,
            Connection::masked_fetch_add::<u64>,
            EndpointSends::masked_fetch_add::<u64>,
            MemoryRegion::found::<u64>,
        ],
        EVERY,
        "RC, XRC, DC",
        ["mlx5_ib::ucx"],
        "Of 4, 8, 16 and 32 bytes, which no verb has; `Caps::check_masked_atomics`. The judge's own, of 4 and 8 bytes, on the software card"
    ),
    row!(
        ["dynamic connections (libmlx5's create_qp, wr_set_dc_addr, wr_set_dc_addr_stream, dci_stream_id_reset)"],
        Whole,
        [
            Dct::create,
            Dct::query,
            Dct::arm_key_violation,
            DcTarget::new,
            DcTarget::stream,
            DcInitiator::new,
            DcInitiator::with_streams,
            DcInitiator::with_qp_options,
            QpOptions::full_handshake,
            DctOptions::full_handshake,
            DcInitiator::reset_stream,
            DcInitiator::reset,
            DcInitiator::batch,
            DcReceiver::new,
        ],
        EVERY,
        "DC",
        [
            "devx::dynamic_connections_are_those_of_libmlx5",
            "mlx5_ib::our_streams_go_on",
            "mlx5_ib::perftest",
            "mlx5_ib::ucx",
        ],
        "How DC looks on the wire is not public: the software card speaks it with software cards alone. Connections open with their first message, or by a handshake where the initiator or the target wants it, as UCX asks for. perftest and UCX: their own queue pairs, on the software card. It announces streams of an initiator as `connectx7`"
    ),
    row!(
        ["reserved numbers of queue pairs (libmlx5's reserved_qpn_alloc, reserved_qpn_dealloc)"],
        Whole,
        [ReservedQpns::alloc, ReservedQpns::numbers, ReservedQpns::destroy],
        EVERY,
        "DC",
        ["devx::reserved_numbers_are_libmlx5_s_or_ours"],
        "For the connection manager, which tells connections of one initiator apart by them. A run at a time, as the card has them"
    ),
];
