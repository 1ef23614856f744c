//! Commands as several drivers print them. The shapes are theirs, the numbers ours.

use mlx5_prm::cmd::{CommandQueueEntry, MailboxBlock, Opcode};
use mlx5_prm::layout::Layout;

/// Whose lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// Linux 3.11: the device in front of the function's name; no slots.
    Linux3_11,
    /// Linux 4.12: as today's, without slots; stops at an offset.
    Linux4_12,
    /// Linux 4.12 with `debug_mask=1`.
    Linux4_12Data,
    /// Linux 6.12.
    Linux6_12,
    /// Linux 6.12 with `debug_mask=1`.
    Linux6_12Data,
}

impl Driver {
    pub const ALL: [Driver; 5] =
        [Driver::Linux3_11, Driver::Linux4_12, Driver::Linux4_12Data, Driver::Linux6_12, Driver::Linux6_12Data];

    /// Whether blocks are counted, and not stopped at an offset.
    pub fn prints_all_blocks(self) -> bool {
        self.has_slots() || self.data_only()
    }

    fn has_slots(self) -> bool {
        matches!(self, Driver::Linux6_12 | Driver::Linux6_12Data)
    }

    fn data_only(self) -> bool {
        matches!(self, Driver::Linux4_12Data | Driver::Linux6_12Data)
    }
}

/// A command, sent and answered.
#[derive(Debug, Clone)]
pub struct Exchange {
    pub opcode: Opcode,
    pub input: Vec<u8>,
    pub output: Vec<u8>,
    pub input_blocks: Vec<MailboxBlock>,
    pub output_blocks: Vec<MailboxBlock>,
}

const TOKEN: u8 = 0x5d;

impl Exchange {
    pub fn new(opcode: Opcode, input: Vec<u8>, output: Vec<u8>) -> Exchange {
        let (input_blocks, output_blocks) = (blocks(&input), blocks(&output));
        Exchange { opcode, input, output, input_blocks, output_blocks }
    }

    /// The entry as it is sent, and with its answer.
    fn entry(&self, answered: bool) -> CommandQueueEntry {
        let inline = |bytes: &[u8]| {
            let mut inline = [0; 16];
            inline[..bytes.len().min(16)].copy_from_slice(&bytes[..bytes.len().min(16)]);
            inline
        };
        let pointer = |blocks: &[MailboxBlock], at| if blocks.is_empty() { 0 } else { at };
        let mut entry = CommandQueueEntry::default();
        entry.w().input_length(self.input.len() as u32).output_length(self.output.len() as u32);
        entry.w().command_input_inline_data(&inline(&self.input)).token(TOKEN).ownership(!answered);
        entry.w().input_mailbox_pointer(pointer(&self.input_blocks, 0x1_0000));
        entry.w().output_mailbox_pointer(pointer(&self.output_blocks, 0x2_0000));
        if answered {
            entry.w().command_output_inline_data(&inline(&self.output));
        }
        let signature = !xor(entry.as_bytes());
        entry.w().signature(signature);
        entry
    }
}

fn blocks(data: &[u8]) -> Vec<MailboxBlock> {
    let rest = data.get(16..).unwrap_or_default();
    let count = rest.chunks(512).len();
    let block = |(number, part): (usize, &[u8])| {
        let mut data = [0; 512];
        data[..part.len()].copy_from_slice(part);
        let next = if number + 1 < count { 0x1_0000 + 1024 * (number as u64 + 1) } else { 0 };
        let mut block = MailboxBlock::ZERO;
        block.w().mailbox_data(&data).next_pointer(next).block_number(number as u32).token(TOKEN);
        let control = !xor(&block.as_bytes()[0x200..0x23e]);
        block.w().ctrl_signature(control);
        let all = !xor(&block.as_bytes()[..0x23f]);
        block.w().signature(all);
        block
    };
    rest.chunks(512).enumerate().map(block).collect()
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}

/// What `driver` prints of the exchange.
pub fn lines(exchange: &Exchange, driver: Driver, device: &str, slot: u32) -> Vec<String> {
    let mut lines = dump(exchange, driver, device, slot, false);
    lines.push(says(
        driver,
        device,
        "cmd_work_handler",
        40,
        &format!("writing {:#x} to command doorbell", 1u64 << slot),
    ));
    lines.extend(dump(exchange, driver, device, slot, true));
    let completed = "command completed. ret 0x0, delivery status no errors(0x0)";
    lines.push(says(driver, device, "mlx5_cmd_comp_handler", if driver.has_slots() { 0 } else { 41 }, completed));
    lines
}

fn says(driver: Driver, device: &str, function: &str, pid: u32, what: &str) -> String {
    match driver {
        Driver::Linux3_11 => format!("{device}:{function}:724:(pid {pid}): {what}"),
        _ => format!("mlx5_core {device}: {function}:879:(pid {pid}): {what}"),
    }
}

fn dump(exchange: &Exchange, driver: Driver, device: &str, slot: u32, answered: bool) -> Vec<String> {
    let number = if driver.has_slots() { format!("cmd[{slot}]: ") } else { String::new() };
    let pid = match answered {
        false => 40,
        true if driver.has_slots() => 0,
        true => 41,
    };
    let says = |what: &str| says(driver, device, "dump_command", pid, &format!("{number}{what}"));
    let name = exchange.opcode.prm_name().unwrap_or("unknown command opcode");
    let data = if driver.data_only() { "data " } else { "" };
    let way = if answered { "OUTPUT" } else { "INPUT" };
    let head = says(&format!("dump command {data}{name}({:#x}) {way}", exchange.opcode.number()));
    let mut lines = vec![head];
    if driver.has_slots() {
        lines.insert(0, says("start dump"));
    }
    let (message, blocks) = match answered {
        false => (&exchange.input, &exchange.input_blocks),
        true => (&exchange.output, &exchange.output_blocks),
    };
    if driver.data_only() {
        lines.extend(words(&number, 0, message));
        lines.push(String::new());
    } else {
        lines.extend(words(&number, 0, exchange.entry(answered).as_bytes()));
        lines.push(String::new());
        let mut offset = 0x40;
        for block in blocks {
            if !driver.prints_all_blocks() && offset >= message.len() {
                break;
            }
            lines.push(says("command block:"));
            lines.extend(words(&number, offset, block.as_bytes()));
            lines.push(String::new());
            offset += MailboxBlock::SIZE;
        }
    }
    if driver.has_slots() {
        lines.push(says("end dump"));
    }
    lines
}

fn words(number: &str, offset: usize, bytes: &[u8]) -> Vec<String> {
    let line = |(i, part): (usize, &[u8])| {
        let mut line = format!("{number}{:03x}:", offset + i * 16);
        let mut whole = [0; 16];
        whole[..part.len()].copy_from_slice(part);
        for word in whole.chunks(4) {
            line += &format!(" {:02x}{:02x}{:02x}{:02x}", word[0], word[1], word[2], word[3]);
        }
        line
    };
    bytes.chunks(16).enumerate().map(line).collect()
}
