//! The driver's side of the command interface, with memory in a file: builds commands, rings, reads answers.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use mlx5_prm::caps::CmdHcaCap;
use mlx5_prm::cmd::*;
use mlx5_prm::ctx::{Cqc, Eqc, ModifyNicVportFieldSelect, NicVportContext, Qpc};
use mlx5_prm::layout::{Be64, Layout};
use mlx5_prm::values::PathMigration;

use super::bring_up::{capability, set};
use super::limits::Judge;
use crate::dma::{Access, Source};
use crate::fault::Faults;
use crate::firmware::{self, mailbox};
use crate::function::Function;
use crate::profile::Profile;
use crate::strict::Strict;

/// IOVA of the client's memory: different from its file offset and address.
const BASE: u64 = 0x12_3400_0000;
const SIZE: u64 = 32 << 20;

/// A status and syndrome other than OK, or a delivery status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Refused(CmdStatus, u32),
    Undelivered(DeliveryStatus),
    Unanswered,
}

pub(crate) struct Client {
    pub f: Function,
    memory: File,
    next: u64,
    queue: u64,
    token: u8,
    mailboxes: u64,
    /// Whether inputs are signed.
    pub sign: bool,
}

impl Client {
    /// A function that has started, and a command queue.
    pub fn new() -> Self {
        Self::with(Profile::connectx5())
    }

    pub fn with(profile: Profile) -> Self {
        let mut f = Function::new(0, profile, Strict::on(), Faults::new());
        f.nic.observer = Some(Box::<Judge>::default());
        f.nic.now += Duration::from_millis(10);
        Self::on(f)
    }

    /// A client of a function that has started.
    pub fn on(f: Function) -> Self {
        let memory = tempfile::tempfile().unwrap();
        memory.set_len(SIZE).unwrap();
        let source = Source::File { file: memory.try_clone().unwrap(), offset: 0 };
        f.nic.dma.map(BASE, SIZE, Access::READ | Access::WRITE, source).unwrap();
        let mut client = Client { f, memory, next: BASE, queue: 0, token: 0, mailboxes: 0, sign: true };
        client.queue = client.pages(1);
        firmware::write_register(&mut client.f, 0x10, (client.queue >> 32) as u32);
        firmware::write_register(&mut client.f, 0x14, client.queue as u32);
        client
    }

    /// As `new`, brought up to INIT_HCA.
    pub fn up() -> Self {
        let mut client = Client::new();
        client.bring_up();
        client
    }

    pub fn bring_up(&mut self) {
        self.exec(&EnableHcaIn::default()).unwrap();
        self.set_issi();
        self.satisfy(1);
        self.turn_on_dct();
        self.satisfy(2);
        self.exec(&InitHcaIn::default()).unwrap();
    }

    /// Takes the interface of step 1, as every driver does.
    pub fn set_issi(&mut self) {
        let mut issi = SetIssiIn::default();
        issi.w().current_issi(1);
        self.exec(&issi).unwrap();
    }

    /// Turns dynamic connections on if the card has them, as Linux does.
    fn turn_on_dct(&mut self) {
        let dct = capability::<CmdHcaCap>(self, 0).dct();
        let mut current = capability::<CmdHcaCap>(self, 1);
        current.w().dct(dct);
        self.exec(&set(0, &current)).unwrap();
    }

    /// Gives the boot (1) or init (2) pages. Returns their number.
    pub fn satisfy(&mut self, op_mod: u16) -> u32 {
        let mut query = QueryPagesIn::default();
        query.w().op_mod(op_mod);
        let wanted = self.exec(&query).unwrap().num_pages();
        self.give(wanted).unwrap();
        wanted
    }

    pub fn give(&mut self, count: u32) -> Result<Vec<u64>, Failure> {
        let pages: Vec<u64> = (0..count).map(|_| self.pages(1)).collect();
        self.exec(&give(&pages))?;
        Ok(pages)
    }

    pub fn take(&mut self, count: u32) -> Vec<u64> {
        let mut command = ManagePagesIn::default();
        command.w().op_mod(2).input_num_entries(count);
        let mut command = WithTail::<_, Be64>::new(command, Vec::new());
        command.out_tail = count as usize;
        let out = self.exec(&command).unwrap();
        let (pages, _) = out.tail.as_chunks::<8>();
        pages[..out.reply.output_num_entries() as usize].iter().map(|page| u64::from_be_bytes(*page)).collect()
    }

    /// `count` contiguous pages of fresh memory.
    pub fn pages(&mut self, count: u64) -> u64 {
        let at = self.next;
        self.next += count << 12;
        assert!(self.next <= BASE + SIZE, "the client's memory is used up");
        at
    }

    pub fn write(&self, iova: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, iova - BASE).unwrap();
    }

    pub fn read(&self, iova: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_exact_at(&mut bytes, iova - BASE).unwrap();
        bytes
    }

    pub fn exec<C: Command>(&mut self, command: &C) -> Result<C::Out, Failure> {
        let input = [command.head(), command.tail()].concat();
        let output = self.exec_bytes(&input, command.out_len())?;
        Ok(C::Out::from_output(&output).expect("an output of the length asked for"))
    }

    /// Why the command is refused; panics if it is not.
    pub fn refused<C: Command>(&mut self, command: &C) -> firmware::syndromes::Syndrome {
        match self.exec(command).map(|_| ()) {
            Err(Failure::Refused(status, number)) => {
                let syndrome = firmware::syndromes::lookup(number).expect("a syndrome of the model's");
                assert_eq!(syndrome.status(), status);
                syndrome
            }
            other => panic!("{}: {other:?}, not refused", C::OPCODE),
        }
    }

    pub fn exec_bytes(&mut self, input: &[u8], out_len: usize) -> Result<Vec<u8>, Failure> {
        let slot = 3;
        let entry = self.entry(input, out_len);
        self.post(slot, &entry);
        self.answer(slot, out_len)
    }

    /// A valid entry with mailboxes, ready to be posted.
    pub fn entry(&mut self, input: &[u8], out_len: usize) -> CommandQueueEntry {
        self.token = self.token.wrapping_add(1).max(1);
        let mut entry = CommandQueueEntry::default();
        let mut inline = [0; 16];
        let head = input.len().min(16);
        inline[..head].copy_from_slice(&input[..head]);
        let rest = input.get(16..).unwrap_or_default();
        let input_chain = self.chain(rest.chunks(512));
        let output_chain = self.chain(vec![0; out_len.saturating_sub(16)].chunks(512));
        entry
            .w()
            .input_length(input.len() as u32)
            .input_mailbox_pointer(input_chain)
            .command_input_inline_data(&inline)
            .output_mailbox_pointer(output_chain)
            .output_length(out_len as u32)
            .token(self.token)
            .ownership(true);
        if self.sign {
            sign(&mut entry);
        }
        entry
    }

    fn chain<'a>(&mut self, parts: impl ExactSizeIterator<Item = &'a [u8]>) -> u64 {
        let count = parts.len();
        // Blocks of 1024 bytes, four in a page, as in Linux's pool.
        let first = if count == 0 { 0 } else { self.scratch(count as u64) };
        for (number, part) in parts.enumerate() {
            let at = first + number as u64 * 1024;
            let mut data = [0; 512];
            data[..part.len()].copy_from_slice(part);
            let mut block = MailboxBlock::ZERO;
            let next = if number + 1 < count { at + 1024 } else { 0 };
            block.w().mailbox_data(&data).next_pointer(next).block_number(number as u32).token(self.token);
            if self.sign {
                sign_block(&mut block);
            }
            self.write(at, block.as_bytes());
        }
        first
    }

    /// An unsigned entry with token 1 whose input is in a chain that [`long_chain`](Self::long_chain) made.
    pub fn long_entry(&self, input: &[u8], chain: u64) -> CommandQueueEntry {
        let mut entry = CommandQueueEntry::default();
        entry
            .w()
            .input_length(input.len() as u32)
            .input_mailbox_pointer(chain)
            .command_input_inline_data(&std::array::from_fn(|at| input[at]))
            .output_length(16)
            .token(1)
            .ownership(true);
        entry
    }

    /// Mailboxes of their own for a long input, unsigned, with token 1: several entries may name them.
    pub fn long_chain(&mut self, input: &[u8]) -> u64 {
        let parts = input[16..].chunks(512);
        let (count, first) = (parts.len() as u64, self.pages((parts.len() as u64).div_ceil(4)));
        for (number, part) in (0..).zip(parts) {
            let at = first + number * 1024;
            let mut data = [0; 512];
            data[..part.len()].copy_from_slice(part);
            let mut block = MailboxBlock::ZERO;
            let next = if number + 1 < count { at + 1024 } else { 0 };
            block.w().mailbox_data(&data).next_pointer(next).block_number(number as u32).token(1);
            self.write(at, block.as_bytes());
        }
        first
    }

    /// Memory for mailboxes, reused cyclically: the last MiB.
    fn scratch(&mut self, blocks: u64) -> u64 {
        const BLOCKS: u64 = 1024;
        assert!(blocks < BLOCKS / 4, "an input of {blocks} blocks");
        if self.mailboxes + blocks > BLOCKS {
            self.mailboxes = 0;
        }
        self.mailboxes += blocks;
        BASE + SIZE - (BLOCKS << 10) + ((self.mailboxes - blocks) << 10)
    }

    pub fn post(&mut self, slot: u32, entry: &CommandQueueEntry) {
        self.write(self.queue + 64 * u64::from(slot), entry.as_bytes());
        firmware::write_register(&mut self.f, 0x18, 1 << slot);
    }

    pub fn slot(&self, slot: u32) -> CommandQueueEntry {
        CommandQueueEntry::read(&self.read(self.queue + 64 * u64::from(slot), 64)).unwrap()
    }

    /// The slot's answer. Checks signatures and tokens of everything written.
    pub fn answer(&mut self, slot: u32, out_len: usize) -> Result<Vec<u8>, Failure> {
        firmware::tick(&mut self.f);
        let entry = self.slot(slot);
        if entry.ownership() {
            return Err(Failure::Unanswered);
        }
        assert_eq!(mailbox::xor(entry.as_bytes()), 0xff, "the entry is signed");
        if entry.status() != DeliveryStatus::Ok {
            return Err(Failure::Undelivered(entry.status()));
        }
        let mut output = entry.command_output_inline_data().to_vec();
        let mut at = entry.output_mailbox_pointer();
        while output.len() < out_len {
            let block = MailboxBlock::read(&self.read(at, MailboxBlock::SIZE)).unwrap();
            assert_eq!(block.token(), entry.token());
            assert_eq!(mailbox::xor(block.as_bytes()), 0xff, "the block is signed");
            assert_eq!(mailbox::xor(&block.as_bytes()[512..575]), 0xff, "its control part is signed");
            output.extend_from_slice(block.mailbox_data());
            at = block.next_pointer();
        }
        output.truncate(out_len);
        let header = OutputHeader::read(&[&output[..], &[0; 16]].concat()).unwrap();
        match header.status() {
            CmdStatus::Ok => Ok(output),
            status => Err(Failure::Refused(status, header.syndrome())),
        }
    }

    pub fn violations(&self) -> Vec<&'static str> {
        self.f.nic.strict.take().into_iter().map(|violation| violation.rule).collect()
    }
}

pub(super) fn give(pages: &[u64]) -> WithTail<ManagePagesIn, Be64> {
    let mut command = ManagePagesIn::default();
    command.w().op_mod(1).input_num_entries(pages.len() as u32);
    WithTail::new(command, pages.iter().map(|page| Be64::new(*page)).collect())
}

pub(super) fn sign(entry: &mut CommandQueueEntry) {
    entry.w().signature(0);
    let signature = !mailbox::xor(entry.as_bytes());
    entry.w().signature(signature);
}

pub(super) fn sign_block(block: &mut MailboxBlock) {
    block.w().ctrl_signature(0).signature(0);
    let control = !mailbox::xor(&block.as_bytes()[512..]);
    block.w().ctrl_signature(control);
    let whole = !mailbox::xor(block.as_bytes());
    block.w().signature(whole);
}

/// The objects that a queue pair needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parents {
    pub pd: u32,
    pub uar: u32,
    pub eqn: u8,
    pub cqn: u32,
    pub doorbells: u64,
}

impl Client {
    pub fn parents(&mut self) -> Parents {
        let pd = self.exec(&AllocPdIn::default()).unwrap().pd();
        let uar = self.exec(&AllocUarIn::default()).unwrap().uar();
        let eq = self.eq(uar, 0);
        let eqn = self.exec(&eq).unwrap().reply.eq_number();
        let doorbells = self.pages(1);
        let cq = self.cq(uar, eqn, doorbells);
        let cqn = self.exec(&cq).unwrap().reply.cqn();
        Parents { pd, uar, eqn, cqn, doorbells }
    }

    /// What a driver sets before its first connection: RoCE on, frames large enough for the largest path MTU.
    pub fn ready_for_roce(&mut self) {
        let mut select = ModifyNicVportFieldSelect::ZERO;
        select.w().roce_en(true);
        let mut context = NicVportContext::ZERO;
        context.w().roce_en(true);
        let mut command = ModifyNicVportContextIn::default();
        command.w().field_select(&select).nic_vport_context(&context);
        self.exec(&command).unwrap();
        self.f.nic.port.mtu = 9216;
    }

    /// An EQ of 64 entries.
    pub fn eq(&mut self, uar: u32, mask: u64) -> WithTail<CreateEqIn, Be64> {
        let ring = self.pages(1);
        let mut entries = [0; 4096];
        entries.iter_mut().skip(63).step_by(64).for_each(|owner| *owner = 1);
        self.write(ring, &entries);
        let mut context = Eqc::ZERO;
        context.w().log_eq_size(6).uar_page(uar).intr(0);
        let mut command = CreateEqIn::default();
        command.w().eq_context_entry(&context).event_bitmask(&[mask, 0, 0, 0].map(Be64::new));
        WithTail::new(command, vec![Be64::new(ring)])
    }

    /// A CQ of 64 entries.
    pub fn cq(&mut self, uar: u32, eqn: u8, doorbell: u64) -> WithTail<CreateCqIn, Be64> {
        let ring = self.pages(1);
        self.write(ring, &[0xff; 4096]);
        let mut context = Cqc::ZERO;
        context.w().log_cq_size(6).uar_page(uar).c_eqn_or_apu_element(eqn.into()).dbr_addr(doorbell);
        let mut command = CreateCqIn::default();
        command.w().cq_context(&context);
        WithTail::new(command, vec![Be64::new(ring)])
    }

    /// A queue pair of 16 sends and 16 receives of 64 bytes, in one page.
    pub fn qp(&mut self, parents: &Parents) -> WithTail<CreateQpIn, Be64> {
        let rings = self.pages(1);
        let mut context = Qpc::ZERO;
        context
            .w()
            .pm_state(PathMigration::Migrated)
            .pd(parents.pd)
            .uar_page(parents.uar)
            .log_sq_size(4)
            .log_rq_size(4)
            .log_rq_stride(2)
            .cqn_snd(parents.cqn)
            .cqn_rcv(parents.cqn)
            .user_index(0xff_ffff)
            .dbr_addr(parents.doorbells + 64);
        let mut command = CreateQpIn::default();
        command.w().qpc(&context);
        WithTail::new(command, vec![Be64::new(rings)])
    }
}
