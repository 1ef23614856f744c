//! Capabilities of receiving: header and data split, out of order.

use super::{FlowTableFieldsSupported2, FlowTablePropLayout};

layout! {
    /// Split of headers from data, and aggregation (SHAMPO). PRM `shampo_cap`.
    pub struct ShampoCap: 0x100, "mlx5_ifc_shampo_cap_bits" {
        0x00 [28:24] shampo_log_max_reservation_size: u8,
        0x00 [20:16] shampo_log_min_reservation_size: u8,
        0x00 [15:0] shampo_min_mss_size: u16,
        0x04 [31] shampo_header_split: bool,
        0x04 [30] shampo_header_split_data_merge: bool,
        0x04 [28:24] shampo_log_max_headers_entry_size: u8,
    }

    /// Advanced RDMA. PRM `adv_rdma_cap`.
    pub struct AdvRdmaCap: 0x800, "mlx5_ifc_adv_rdma_cap_bits" {
        0x00 [31] rdma_transport_manager: bool,
        0x00 [30] rdma_transport_manager_other_eswitch: bool,
        0x04 [31:24] rcx_type: u8,
        0x04 [21:16] ps_entry_log_max_value: u8,
        0x04 [9:0] qp_max_ps_num_entry: u16,
        0x08 [31:24] mp_max_num_queues: u8,
        0x08 [23:16] ps_user_context_max_log_size: u8,
        0x08 [15:8] message_based_qp_and_striding_wq: u8,
        0x0c [31:16] max_receive_send_message_size_stride: u16,
        0x10 [31:0] max_receive_send_message_size_byte: u32,
        0x40 rdma_transport_rx_flow_table_properties: FlowTablePropLayout,
        0x80 rdma_transport_tx_flow_table_properties: FlowTablePropLayout,
        0xc0 rdma_transport_rx_ft_field_support_2: FlowTableFieldsSupported2,
        0xd0 rdma_transport_tx_ft_field_support_2: FlowTableFieldsSupported2,
        0xe0 rdma_transport_rx_ft_field_bitmask_support_2: FlowTableFieldsSupported2,
        0xf0 rdma_transport_tx_ft_field_bitmask_support_2: FlowTableFieldsSupported2,
    }
}
