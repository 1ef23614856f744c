//! Checks lists in commands: pages of queues, translations of memory keys, counted elements.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::card::Violation;
use super::input::number_at;
use crate::cmd::{self, InputHeader, Opcode, QpContextExtension};
use crate::ctx::AccessMode;
use crate::flow::ReformatType;
use crate::layout::{Info, Layout};

/// Returns contradictions between a command's input and its list: too few elements, or invalid pages. The input must be
/// complete. Never panics.
pub fn check(input: &[u8]) -> Vec<Violation> {
    let Some(command) = InputHeader::read(input).and_then(|header| cmd::find(header.opcode())) else {
        return Vec::new();
    };
    let Some(list) = input.get(command.input.size..) else { return Vec::new() };
    let mut input = Input { opcode: command.opcode, info: command.input, bytes: input, list };
    if input.opcode == Opcode::CreateQp && input.at("qpc_ext") != 0 {
        // The context's extension comes before the pages.
        input.list = list.get(QpContextExtension::SIZE..).unwrap_or_default();
    }
    match input.queue() {
        Some(queue) => input.pages(&queue),
        None => input.counted().into_iter().chain(input.translated()).collect(),
    }
}

/// A command's input.
struct Input<'a> {
    opcode: Opcode,
    info: &'static Info,
    bytes: &'a [u8],
    list: &'a [u8],
}

/// A queue with a page list.
struct Queue {
    /// The field with its size.
    field: &'static str,
    bytes: u64,
    log_page_size: u64,
    /// Offset of its start in the first page, in units of 1/64 page.
    page_offset: u64,
}

/// Maximum number of violations reported per list.
const MOST: usize = 8;

impl Input<'_> {
    fn at(&self, path: &str) -> u64 {
        number_at(self.info, self.bytes, path).unwrap_or(0)
    }

    fn wrong(&self, field: &str, list: &'static str, words: &str) -> Violation {
        let words = format!("{}: {words}", self.opcode);
        Violation { opcode: self.opcode, field: list.into(), capability: String::from(field), source: "PRM", words }
    }

    /// The queue that the command creates, if the command lists its pages.
    fn queue(&self) -> Option<Queue> {
        let at = |path: &str| self.at(path);
        let listed = |field, elsewhere: &str, log_bytes: u64, context: [u64; 2]| {
            let [log_page_size, page_offset] = context;
            (at(elsewhere) == 0).then_some(Queue { field, bytes: power(log_bytes), log_page_size, page_offset })
        };
        match self.opcode {
            Opcode::CreateCq => {
                let log_entry = if at("cq_context.cqe_sz") == 0 { 6 } else { 7 };
                let pages = [at("cq_context.log_page_size"), at("cq_context.page_offset")];
                listed("log_cq_size", "cq_umem_valid", log_entry + at("cq_context.log_cq_size"), pages)
            }
            Opcode::CreateEq => {
                let pages = [at("eq_context_entry.log_page_size"), at("eq_context_entry.page_offset")];
                listed("log_eq_size", "", 6 + at("eq_context_entry.log_eq_size"), pages)
            }
            Opcode::CreateSrq => {
                let size = at("srq_context_entry.log_srq_size") + at("srq_context_entry.log_rq_stride") + 4;
                let pages = [at("srq_context_entry.log_page_size"), at("srq_context_entry.page_offset")];
                listed("log_srq_size", "", size, pages)
            }
            Opcode::CreateXrcSrq => {
                let size = at("xrc_srq_context_entry.log_xrc_srq_size") + at("xrc_srq_context_entry.log_rq_stride") + 4;
                let pages = [at("xrc_srq_context_entry.log_page_size"), at("xrc_srq_context_entry.page_offset")];
                listed("log_xrc_srq_size", "xrc_srq_umem_valid", size, pages)
            }
            Opcode::CreateQp if at("wq_umem_valid") == 0 => Some(self.queue_pair()),
            // A hairpin's queue is the card's own; a receive queue on an RMP has that one's.
            Opcode::CreateRq if at("ctx.hairpin") == 0 && at("ctx.mem_rq_type") == 0 => self.work_queue("ctx.wq"),
            Opcode::CreateSq if at("ctx.hairpin") == 0 => self.work_queue("ctx.wq"),
            Opcode::CreateRmp => self.work_queue("ctx.wq"),
            Opcode::CreateXrq => self.work_queue("xrq_context.wq"),
            _ => None,
        }
    }

    /// A queue pair: receive queue, then send queue, in one buffer.
    fn queue_pair(&self) -> Queue {
        let has_own_rq = self.at("qpc.rq_type") == 0;
        let receive = if has_own_rq { power(self.at("qpc.log_rq_size") + self.at("qpc.log_rq_stride") + 4) } else { 0 };
        let send = if self.at("qpc.no_sq") == 0 { power(self.at("qpc.log_sq_size") + 6) } else { 0 };
        Queue {
            field: "log_sq_size",
            bytes: receive.saturating_add(send),
            log_page_size: self.at("qpc.log_page_size"),
            page_offset: self.at("qpc.page_offset"),
        }
    }

    fn work_queue(&self, wq: &str) -> Option<Queue> {
        let at = |name: &str| self.at(&format!("{wq}.{name}"));
        (at("wq_umem_valid") == 0).then(|| Queue {
            field: "log_wq_sz",
            bytes: power(at("log_wq_sz") + at("log_wq_stride")),
            log_page_size: at("log_wq_pg_sz"),
            page_offset: at("page_offset"),
        })
    }

    /// Checks a queue's page list: too short, zero or unaligned.
    fn pages(&self, queue: &Queue) -> Vec<Violation> {
        let page = power(12 + queue.log_page_size);
        let offset = page / 64 * queue.page_offset;
        let wanted = queue.bytes.saturating_add(offset).div_ceil(page);
        let list: Vec<u64> = self.list.chunks_exact(8).map(big_endian).collect();
        let mut wrong = Vec::new();
        if (list.len() as u64) < wanted {
            let at = if offset == 0 { String::new() } else { format!(" from byte {offset}") };
            let (entries, bytes) = (list.len(), queue.bytes);
            let words =
                format!("the page list has {entries} entries; {bytes} bytes{at} in pages of {page} take {wanted}");
            wrong.push(self.wrong(queue.field, "pas", &words));
        }
        for (i, address) in list.iter().enumerate().take(usize::try_from(wanted).unwrap_or(usize::MAX)) {
            let words = match address {
                0 => format!("pas[{i}] is 0"),
                _ if address % 4096 != 0 => format!("pas[{i}]={address:#x} is not aligned to 4096 bytes"),
                _ => continue,
            };
            wrong.push(self.wrong(queue.field, "pas", &words));
        }
        wrong.truncate(MOST);
        wrong
    }

    /// Checks lists whose length is in another field.
    fn counted(&self) -> Option<Violation> {
        let at = |path| self.at(path);
        let (list, field, count, size) = match self.opcode {
            Opcode::CreateMkey if at("mkey_umem_valid") == 0 => {
                let field = "translations_octword_actual_size";
                ("klm_pas_mtt", field, at(field), 16)
            }
            Opcode::CreateUmem => ("mtt", "umem.num_of_mtt", at("umem.num_of_mtt"), 8),
            Opcode::CreateRqt => self.queues("rqt_context.rqt_actual_size", "rqt_context.rq_vhca_id_format"),
            Opcode::ModifyRqt if at("bitmask.rqn_list") != 0 => {
                self.queues("ctx.rqt_actual_size", "ctx.rq_vhca_id_format")
            }
            Opcode::SetFlowTableEntry => {
                let field = "flow_context.destination_list_size";
                let size = if at("flow_context.extended_destination") == 0 { 8 } else { 16 };
                ("destination", field, at(field) + at("flow_context.flow_counter_list_size"), size)
            }
            Opcode::AllocModifyHeaderContext => ("actions", "num_of_actions", at("num_of_actions"), 8),
            Opcode::AllocPacketReformatContext if !self.removes_a_header() => {
                let field = "packet_reformat_context.reformat_data_size";
                // Two bytes of it lie in the fixed part.
                ("reformat_data", field, at(field).saturating_sub(2), 1)
            }
            _ => return None,
        };
        let (wanted, found) = (count.saturating_mul(size), self.list.len() as u64);
        (found < wanted).then(|| {
            let last = field.rsplit('.').next().unwrap_or(field);
            let count = at(field);
            self.wrong(field, list, &format!("{last}={count} asks for {wanted} bytes of {list}, the list has {found}"))
        })
    }

    /// Whether the size is that of a removed header, for which no data is given.
    fn removes_a_header(&self) -> bool {
        self.at("packet_reformat_context.reformat_type") == ReformatType::RemoveHdr.number().into()
    }

    fn queues(&self, field: &'static str, wide: &str) -> (&'static str, &'static str, u64, u64) {
        ("rq_num", field, self.at(field), if self.at(wide) == 0 { 4 } else { 8 })
    }

    /// Checks the number of a key's translations against its length. Linux ib/mr.c `get_octo_len`.
    fn translated(&self) -> Option<Violation> {
        let at = |name: &str| self.at(&format!("memory_key_mkey_entry.{name}"));
        // A key over a umem has its translations there; one that is free gets them later.
        let elsewhere = self.at("mkey_umem_valid") != 0 || at("free") != 0;
        if self.opcode != Opcode::CreateMkey || elsewhere || at("length64") != 0 || at("len") == 0 {
            return None;
        }
        let mode = AccessMode::from_number((at("access_mode_4_2") << 2 | at("access_mode_1_0")) as u32);
        let in_an_octword = match mode {
            AccessMode::Mtt => 2,
            AccessMode::Ksm => 1,
            _ => return None,
        };
        let (length, page) = (at("len"), power(at("log_page_size")));
        let wanted = (at("start_addr") % page).saturating_add(length).div_ceil(page);
        let octwords = at("translations_octword_size");
        let found = octwords.saturating_mul(in_an_octword);
        (found < wanted).then(|| {
            let field = "memory_key_mkey_entry.translations_octword_size";
            self.wrong(
                field,
                "memory_key_mkey_entry.len",
                &format!(
                    "{field}={octwords} are {found} translations; {length} bytes in pages of {page} take {wanted}"
                ),
            )
        })
    }
}

/// Two to the power `log`, saturating.
fn power(log: u64) -> u64 {
    u32::try_from(log).ok().and_then(|log| 1u64.checked_shl(log)).unwrap_or(u64::MAX)
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
