//! A sequence of arbitrary commands, to a function that is brought up or not: each is answered or dropped, and the
//! model survives.
//!
//! The input is a list of opcode, `op_mod`, lengths, and the command's body. Entry and mailboxes are valid, except for
//! errors that the first byte selects.

#![no_main]

use std::fs::File;
use std::os::unix::fs::FileExt;

use libfuzzer_sys::fuzz_target;
use mlx5_prm::cmd::{
    Command, CommandQueueEntry, EnableHcaIn, InitHcaIn, MailboxBlock, ManagePagesIn, Opcode, QueryPagesIn, Reply,
    WithTail,
};
use mlx5_prm::layout::{Be64, Layout};
use mlx5_sim::dma::{Access, Source};
use mlx5_sim::fault::Faults;
use mlx5_sim::firmware;
use mlx5_sim::function::Function;
use mlx5_sim::profile::Profile;
use mlx5_sim::strict::Strict;

/// All memory of the function, from IOVA 0 on: small round numbers are valid addresses.
const MEMORY: u64 = 64 << 20;
const QUEUE: u64 = 0x1000;
const INPUT: u64 = 0x2000;
const OUTPUT: u64 = 0x10000;
/// The first page given to firmware.
const GIVEN: u64 = 0x10_0000;

const SLOT: u32 = 0;
const DOORBELL: u64 = 0x18;

fuzz_target!(|bytes: &[u8]| {
    let Some((flags, mut bytes)) = bytes.split_first() else { return };
    let mut driver = Driver::new(*flags);
    if flags & 1 != 0 {
        driver.bring_up();
    }
    while let Some((&[opcode, op_mod, len, room], rest)) = bytes.split_first_chunk() {
        let (body, rest) = rest.split_at(rest.len().min(usize::from(len) * 4));
        let opcode = Opcode::ALL[usize::from(opcode) % Opcode::ALL.len()].number() as u16;
        let mut input = [opcode.to_be_bytes(), [0; 2], [0; 2], [0, op_mod]].concat();
        input.extend(body);
        input.resize(input.len().max(16), 0);
        driver.execute(&input, 8 + usize::from(room) * 16);
        bytes = rest;
    }
});

struct Driver {
    function: Function,
    memory: File,
    flags: u8,
}

impl Driver {
    fn new(flags: u8) -> Self {
        let mut function = Function::new(0, Profile::connectx7(), Strict::on(), Faults::new());
        let memory = tempfile::tempfile().expect("a temporary file");
        memory.set_len(MEMORY).expect("room for it");
        let source = Source::File { file: memory.try_clone().expect("one more descriptor"), offset: 0 };
        function.nic.dma.map(0, MEMORY, Access::READ | Access::WRITE, source).expect("memory that can be mapped");
        function.nic.now += std::time::Duration::from_millis(10);
        firmware::write_register(&mut function, 0x10, 0);
        firmware::write_register(&mut function, 0x14, QUEUE as u32);
        Driver { function, memory, flags }
    }

    fn bring_up(&mut self) {
        self.command(&EnableHcaIn::default());
        for op_mod in [1, 2] {
            let mut query = QueryPagesIn::default();
            query.w().op_mod(op_mod);
            let wanted = self.command(&query).num_pages();
            let mut give = ManagePagesIn::default();
            give.w().op_mod(1).input_num_entries(wanted);
            let pages = (0..u64::from(wanted)).map(|i| Be64::new(GIVEN + (i << 12))).collect();
            self.command(&WithTail::<_, Be64>::new(give, pages));
        }
        self.command(&InitHcaIn::default());
    }

    fn command<C: Command>(&mut self, command: &C) -> C::Out {
        let output = self.execute(&[command.head(), command.tail()].concat(), command.out_len());
        C::Out::from_output(&output).expect("an answer of the length asked for")
    }

    fn execute(&mut self, input: &[u8], room: usize) -> Vec<u8> {
        let mut inline = [0; 16];
        inline.copy_from_slice(&input[..16]);
        let mut entry = CommandQueueEntry::default();
        entry
            .w()
            .input_length(input.len() as u32)
            .input_mailbox_pointer(self.chain(INPUT, &input[16..]))
            .command_input_inline_data(&inline)
            .output_mailbox_pointer(self.chain(OUTPUT, &vec![0; room.saturating_sub(16)]))
            .output_length(room as u32)
            .token(1)
            .ownership(true);
        let mut entry = entry.as_bytes().to_vec();
        if self.flags & 0x80 != 0 {
            let spoiled = usize::from(self.flags & 0x3f);
            entry[spoiled] ^= 1 << (self.flags >> 4 & 7);
        }
        self.write(QUEUE, &entry);
        firmware::write_register(&mut self.function, DOORBELL, 1 << SLOT);
        firmware::tick(&mut self.function);
        self.answer(room)
    }

    /// Writes data to mailboxes from `first` on; returns their address, 0 if there is no data.
    fn chain(&self, first: u64, data: &[u8]) -> u64 {
        let count = data.len().div_ceil(512);
        for (number, part) in data.chunks(512).enumerate() {
            let at = first + number as u64 * 1024;
            let mut whole = [0; 512];
            whole[..part.len()].copy_from_slice(part);
            let next = if number + 1 < count { at + 1024 } else { 0 };
            let mut block = MailboxBlock::ZERO;
            block.w().mailbox_data(&whole).next_pointer(next).block_number(number as u32).token(1);
            self.write(at, block.as_bytes());
        }
        if count == 0 { 0 } else { first }
    }

    fn answer(&self, room: usize) -> Vec<u8> {
        let entry = CommandQueueEntry::read(&self.read(QUEUE, CommandQueueEntry::SIZE)).expect("64 bytes");
        let mut output = entry.command_output_inline_data().to_vec();
        for number in 0..room.saturating_sub(16).div_ceil(512) {
            output.extend(self.read(OUTPUT + number as u64 * 1024, 512));
        }
        output.truncate(room);
        output
    }

    fn write(&self, iova: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, iova).expect("write to memory");
    }

    fn read(&self, iova: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_exact_at(&mut bytes, iova).expect("read from memory");
        bytes
    }
}
