//! The command queue: its entries, and the mailbox blocks they point to. PRM "Command Interface".

layout! {
    /// One slot of the command queue. PRM "Command Queue Entry Layout".
    ///
    /// The XOR of all its bytes is 0xff once `signature` is right. Hardware clears `ownership` when it is done.
    pub struct CommandQueueEntry: 0x40, "mlx5_cmd_layout" {
        /// 7 for a PCI transport.
        0x00 [31:24] r#type: u8 = 7,
        0x04 [31:0] input_length: u32,
        0x08 [63:0] input_mailbox_pointer: u64,
        0x10 command_input_inline_data: [u8; 16],
        0x20 command_output_inline_data: [u8; 16],
        0x30 [63:0] output_mailbox_pointer: u64,
        0x38 [31:0] output_length: u32,
        0x3c [31:24] token: u8,
        0x3c [23:16] signature: u8,
        /// Delivery status, see [`DeliveryStatus`].
        0x3c [7:1] status: DeliveryStatus,
        /// 1: the entry is hardware's.
        0x3c [0] ownership: bool,
    }

    /// One mailbox block: 512 bytes of data and a trailer. PRM "Command Interface Mailbox".
    pub struct MailboxBlock: 0x240, "mlx5_cmd_prot_block" {
        0x000 mailbox_data: [u8; 512],
        0x230 [63:0] next_pointer: u64,
        0x238 [31:0] block_number: u32,
        0x23c [23:16] token: u8,
        0x23c [15:8] ctrl_signature: u8,
        0x23c [7:0] signature: u8,
    }
}

values! {
    /// Whether a command reached firmware at all. PRM "Command Delivery Status".
    pub enum DeliveryStatus: 7 {
        /// No error.
        Ok = 0 "NO_ERROR",
        /// Signature error.
        SignatureError = 1 "SIGNATURE_ERR",
        /// Token error.
        TokenError = 2 "TOKEN_ERR",
        /// Bad block number.
        BadBlockNumber = 3 "BAD_BLOCK_NUM",
        /// Output pointer not aligned to the block size.
        BadOutputPointer = 4 "BAD_OUT_PTR_ALIGN",
        /// Input pointer not aligned to the block size.
        BadInputPointer = 5 "BAD_IN_PTR_ALIGN",
        /// Internal firmware error.
        InternalError = 6 "FW_ERR",
        /// Bad input length.
        BadInputLength = 7 "IN_LENGTH_ERR",
        /// Bad output length.
        BadOutputLength = 8 "OUT_LENGTH_ERR",
        /// Reserved field not clear.
        ReservedNotClear = 9 "RES_FLD_NOT_CLR",
        /// Bad command type.
        BadType = 0x10 "CMD_TYPE_ERR",
    }
}
