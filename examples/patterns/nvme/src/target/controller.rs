//! A controller: what one host has of the subsystem, and its admin commands.

use std::time::Duration;

use mlx5_cm::ConnectionId;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use super::disk::{Disk, Task};
use super::options::{MDTS, MOST_AERS, TargetOptions};
use crate::status::Status;
use crate::wire::{
    COMMAND, Command, ConnectData, ControllerData, DISCOVERY, DiscoveryEntry, DiscoveryHeader, Features, Identify,
    LbaFormat, LogPage, NamespaceData, NamespaceDescriptor, PropertyGet, PropertySet, SmartLog, admin, cns, fabric,
    feature, identify_bits, log, namespace_bits, property, put_ascii, put_text, text,
};

/// NVMe 1.3: the first with names for namespaces.
const VERSION: u32 = 0x0001_0300;
/// Bytes of an identify page.
const PAGE: usize = 4096;
/// How long a controller takes to become ready at most, in 500 ms.
const READY: u64 = 15;
/// The NVM command set.
const COMMAND_SET: u64 = 1 << 37;
/// Queues are physically contiguous.
const CONTIGUOUS: u64 = 1 << 16;
/// Further patience beyond the keep-alive timeout.
const GRACE: Duration = Duration::from_secs(2);
/// Keep-alive timeout of discovery controllers whose hosts name none: one that vanishes would be kept for ever. Linux's
/// `NVMET_DISC_KATO_MS`.
const DISCOVERY_KEEP_ALIVE: Duration = Duration::from_secs(120);

/// What a command is answered with.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: Option<Status>,
    pub(super) result: u64,
    pub(super) data: Vec<u8>,
    /// Whether it is not answered now.
    pub(super) held: bool,
}

impl Answer {
    pub(super) fn fail(status: Status) -> Self {
        Answer { status: Some(status.do_not_retry()), ..Answer::default() }
    }

    pub(super) fn result(result: u64) -> Self {
        Answer { result, ..Answer::default() }
    }

    fn data(data: &[u8]) -> Self {
        Answer { data: data.to_vec(), ..Answer::default() }
    }
}

/// What a controller is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Io,
    Discovery,
}

impl Kind {
    /// The keep-alive timeout where the host names this one; zero is without limit.
    fn keep_alive(self, named: Duration) -> Duration {
        if self == Kind::Discovery && named.is_zero() { DISCOVERY_KEEP_ALIVE } else { named }
    }
}

/// What hosts did, for the log page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) bytes_read: u64,
    pub(super) bytes_written: u64,
}

impl Counters {
    /// A command of `len` bytes.
    pub(super) fn count(&mut self, task: Task, len: usize) {
        match task {
            Task::Read => (self.reads, self.bytes_read) = (self.reads + 1, self.bytes_read + len as u64),
            Task::Write => (self.writes, self.bytes_written) = (self.writes + 1, self.bytes_written + len as u64),
            Task::Zero(_) | Task::Flush => {}
        }
    }
}

#[derive(Debug)]
pub(super) struct Controller {
    pub(super) cntlid: u16,
    kind: Kind,
    host_nqn: String,
    host_id: [u8; 16],
    configuration: u32,
    status: u32,
    keep_alive: Duration,
    alive_at: Duration,
    async_events: u32,
    /// Asynchronous event requests that wait for events: none ever comes.
    held: usize,
    pub(super) counters: Counters,
    /// The connection of its admin queue.
    pub(super) admin: ConnectionId,
}

/// What a controller serves.
pub(super) struct Subsystem<'a> {
    pub(super) options: &'a TargetOptions,
    pub(super) disks: &'a [Box<dyn Disk>],
    /// Our address, as the host reached it.
    pub(super) address: std::net::SocketAddr,
}

/// CONNECT names a parameter that does not do.
pub(super) fn invalid_parameter(offset: usize, in_data: bool) -> Answer {
    let result = offset as u64 | u64::from(in_data) << 16;
    Answer { result, ..Answer::fail(Status::CONNECT_INVALID_PARAMETER) }
}

impl Controller {
    /// Of an admin queue whose CONNECT has `data`.
    pub(super) fn connect(
        cntlid: u16,
        admin: ConnectionId,
        data: &ConnectData,
        keep_alive: Duration,
        options: &TargetOptions,
        now: Duration,
    ) -> Result<Self, Answer> {
        let (subsystem, host_nqn) = (text(&data.subsystem), text(&data.host));
        let kind = match subsystem {
            name if name == DISCOVERY => Kind::Discovery,
            name if name == options.nqn => Kind::Io,
            _ => return Err(invalid_parameter(std::mem::offset_of!(ConnectData, subsystem), true)),
        };
        if data.cntlid.get() != 0xffff {
            return Err(invalid_parameter(std::mem::offset_of!(ConnectData, cntlid), true));
        }
        if !host_nqn.starts_with("nqn.") {
            return Err(invalid_parameter(std::mem::offset_of!(ConnectData, host), true));
        }
        if kind == Kind::Io && !options.hosts.is_empty() && !options.hosts.contains(&host_nqn) {
            return Err(Answer::fail(Status::CONNECT_INVALID_HOST));
        }
        Ok(Controller {
            cntlid,
            kind,
            host_nqn,
            host_id: data.host_id,
            configuration: 0,
            status: 0,
            keep_alive: kind.keep_alive(keep_alive),
            alive_at: now,
            async_events: 0,
            held: 0,
            counters: Counters::default(),
            admin,
        })
    }

    /// Whether an I/O queue whose CONNECT has `data` is of the same host.
    pub(super) fn takes_queue(&self, data: &ConnectData, options: &TargetOptions) -> Result<(), Answer> {
        if self.kind != Kind::Io || text(&data.subsystem) != options.nqn {
            return Err(invalid_parameter(std::mem::offset_of!(ConnectData, subsystem), true));
        }
        if text(&data.host) != self.host_nqn || data.host_id != self.host_id {
            return Err(invalid_parameter(std::mem::offset_of!(ConnectData, host), true));
        }
        if !self.is_enabled() {
            return Err(Answer::fail(Status::SEQUENCE_ERROR));
        }
        Ok(())
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.configuration & property::CC_ENABLE != 0
    }

    /// Whether its host has been silent for too long.
    pub(super) fn is_lost(&self, now: Duration) -> bool {
        !self.keep_alive.is_zero() && now.saturating_sub(self.alive_at) > self.keep_alive + GRACE
    }

    /// The host lives.
    pub(super) fn touch(&mut self, now: Duration) {
        self.alive_at = now;
    }

    /// Commands of fabrics but CONNECT.
    pub(super) fn of_fabrics(&mut self, command: &Command, options: &TargetOptions) -> Answer {
        let get: PropertyGet = command.form();
        match get.fctype {
            fabric::PROPERTY_GET => self.property(get.offset.get(), get.attrib, options),
            fabric::PROPERTY_SET => self.set_property(&command.form()),
            _ => Answer::fail(Status::INVALID_OPCODE),
        }
    }

    fn property(&self, offset: u32, attrib: u8, options: &TargetOptions) -> Answer {
        let most = u64::from(options.depth - 1);
        let value = match (offset, attrib & 7) {
            (property::CAP, 1) => most | CONTIGUOUS | READY << 24 | COMMAND_SET,
            (property::VS, 0) => VERSION.into(),
            (property::CC, 0) => self.configuration.into(),
            (property::CSTS, 0) => self.status.into(),
            _ => return Answer::fail(Status::INVALID_FIELD),
        };
        Answer::result(value)
    }

    /// Only CC can be written. NVMe base specification, "Controller Configuration".
    fn set_property(&mut self, set: &PropertySet) -> Answer {
        if (set.offset.get(), set.attrib & 7) != (property::CC, 0) {
            return Answer::fail(Status::INVALID_FIELD);
        }
        let new = set.value.get() as u32;
        if new & property::CC_ENABLE == 0 {
            (self.configuration, self.status) = (new, 0);
            return Answer::default();
        }
        self.configuration = new;
        self.status = property::CSTS_READY;
        if new & property::CC_SHN_MASK != 0 {
            self.status |= property::CSTS_SHUTDOWN_DONE;
        }
        Answer::default()
    }

    /// Commands of the admin queue.
    pub(super) fn admin(&mut self, command: &Command, subsystem: &Subsystem<'_>) -> Answer {
        if !self.is_enabled() {
            return Answer::fail(Status::SEQUENCE_ERROR);
        }
        match command.opcode {
            admin::IDENTIFY => self.identify(&command.form(), subsystem),
            admin::GET_LOG_PAGE => self.log(&command.form(), subsystem),
            admin::KEEP_ALIVE => Answer::default(),
            admin::ASYNC_EVENT => self.hold(),
            admin::SET_FEATURES => self.set_features(&command.form(), subsystem),
            admin::GET_FEATURES => self.features(&command.form(), subsystem),
            // Result bit 0: the command was not aborted. It is answered soon anyway.
            admin::ABORT => Answer::result(1),
            _ => Answer::fail(Status::INVALID_OPCODE),
        }
    }

    fn hold(&mut self) -> Answer {
        if self.held >= MOST_AERS {
            return Answer::fail(Status::ASYNC_EVENT_LIMIT);
        }
        self.held += 1;
        Answer { held: true, ..Answer::default() }
    }

    fn set_features(&mut self, set: &Features, subsystem: &Subsystem<'_>) -> Answer {
        let value = set.dword11.get();
        match set.fid.get() {
            feature::NUMBER_OF_QUEUES => Answer::result(number_of_queues(subsystem.options)),
            feature::KEEP_ALIVE => {
                self.keep_alive = self.kind.keep_alive(Duration::from_millis(value.into()));
                Answer::default()
            }
            feature::ASYNC_EVENTS => {
                self.async_events = value;
                Answer::default()
            }
            _ => Answer::fail(Status::INVALID_FIELD),
        }
    }

    fn features(&self, get: &Features, subsystem: &Subsystem<'_>) -> Answer {
        match get.fid.get() & 0xff {
            feature::NUMBER_OF_QUEUES => Answer::result(number_of_queues(subsystem.options)),
            feature::KEEP_ALIVE => Answer::result(self.keep_alive.as_millis() as u64),
            feature::ASYNC_EVENTS => Answer::result(self.async_events.into()),
            feature::VOLATILE_WRITE_CACHE => Answer::result(has_write_cache(subsystem).into()),
            _ => Answer::fail(Status::INVALID_FIELD),
        }
    }

    fn identify(&self, identify: &Identify, subsystem: &Subsystem<'_>) -> Answer {
        let nsid = identify.nsid.get();
        if identify.cns == cns::CONTROLLER {
            return Answer::data(self.identity(subsystem).as_bytes());
        }
        if self.kind == Kind::Discovery {
            return Answer::fail(Status::INVALID_FIELD);
        }
        match (identify.cns, disk(subsystem.disks, nsid)) {
            (cns::ACTIVE_LIST, _) => Answer::data(&active(nsid, subsystem.disks.len() as u32)),
            (cns::NAMESPACE, Some(disk)) => Answer::data(namespace(nsid, disk, subsystem.options).as_bytes()),
            (cns::DESCRIPTORS, Some(_)) => Answer::data(&descriptors(nsid, subsystem.options)),
            // A number that may have a namespace, and has none: NVMe has zeros for it.
            (cns::NAMESPACE, None) if nsid != 0 && nsid < u32::MAX - 1 => Answer::data(&[0; PAGE]),
            (cns::NAMESPACE | cns::DESCRIPTORS, None) => Answer::fail(Status::INVALID_NAMESPACE),
            _ => Answer::fail(Status::INVALID_FIELD),
        }
    }

    fn identity(&self, subsystem: &Subsystem<'_>) -> ControllerData {
        let options = subsystem.options;
        let mut data = ControllerData {
            mdts: MDTS,
            cntlid: self.cntlid.into(),
            version: VERSION.into(),
            acl: 3,
            aerl: MOST_AERS as u8 - 1,
            lpa: 1 << 2,
            kas: 10.into(),
            maxcmd: options.depth.into(),
            sgls: (identify_bits::SGLS_KEYED | identify_bits::SGLS_OFFSET | 1).into(),
            msdbd: 1,
            ..ControllerData::default()
        };
        put_ascii(&mut data.serial, &options.serial);
        put_ascii(&mut data.model, "mlx5-nvme");
        put_ascii(&mut data.firmware, env!("CARGO_PKG_VERSION"));
        if self.kind == Kind::Discovery {
            data.cntrltype = identify_bits::TYPE_DISCOVERY as u8;
            put_text(&mut data.subnqn, DISCOVERY);
            return data;
        }
        data.cntrltype = identify_bits::TYPE_IO as u8;
        // Without it Linux refuses a second connection to the subsystem.
        data.cmic = identify_bits::CMIC_SEVERAL_CONTROLLERS as u8;
        (data.sqes, data.cqes) = (0x66, 0x44);
        data.nn = (subsystem.disks.len() as u32).into();
        data.mnan = data.nn;
        data.oncs = (identify_bits::ONCS_WRITE_ZEROES as u16).into();
        data.vwc = u8::from(has_write_cache(subsystem));
        data.ioccsz = ((COMMAND + options.in_capsule) as u32 / 16).into();
        data.iorcsz = 1.into();
        put_text(&mut data.subnqn, &options.nqn);
        data
    }

    fn log(&self, get: &LogPage, subsystem: &Subsystem<'_>) -> Answer {
        let page = match (self.kind, get.lid) {
            (Kind::Discovery, log::DISCOVERY) => discovery(subsystem),
            (Kind::Io, log::SMART) => self.smart().as_bytes().to_vec(),
            // No errors are kept, and there is no firmware.
            (Kind::Io, log::ERROR | log::FIRMWARE_SLOT) => vec![0; 512],
            _ => return Answer::fail(Status::INVALID_LOG_PAGE),
        };
        let words = u64::from(get.numdl.get()) | u64::from(get.numdu.get()) << 16;
        let (start, len) = (get.offset.get(), (words + 1) * 4);
        if start > page.len() as u64 || !start.is_multiple_of(4) {
            return Answer::fail(Status::INVALID_FIELD);
        }
        let end = start.saturating_add(len).min(page.len() as u64);
        let mut data = page[start as usize..end as usize].to_vec();
        // Beyond the page there are zeros.
        data.resize(len.min(PAGE as u64 * 256) as usize, 0);
        Answer { data, ..Answer::default() }
    }

    /// NVMe base specification, "SMART / Health Information": data units are of 512000 bytes, rounded up.
    fn smart(&self) -> SmartLog {
        let units = |bytes: u64| u128::from(bytes.div_ceil(512_000)).to_le_bytes();
        SmartLog {
            available_spare: 100,
            units_read: units(self.counters.bytes_read),
            units_written: units(self.counters.bytes_written),
            reads: u128::from(self.counters.reads).to_le_bytes(),
            writes: u128::from(self.counters.writes).to_le_bytes(),
            ..SmartLog::default()
        }
    }
}

/// The disk of a namespace.
pub(super) fn disk(disks: &[Box<dyn Disk>], nsid: u32) -> Option<&dyn Disk> {
    let index = usize::try_from(nsid).ok()?.checked_sub(1)?;
    disks.get(index).map(|disk| &**disk)
}

fn has_write_cache(subsystem: &Subsystem<'_>) -> bool {
    subsystem.disks.iter().any(|disk| disk.has_write_cache())
}

/// Submission and completion queues, less one each.
fn number_of_queues(options: &TargetOptions) -> u64 {
    let less_one = u64::from(options.io_queues - 1);
    less_one << 16 | less_one
}

/// The numbers of namespaces above `after`.
fn active(after: u32, count: u32) -> [u8; PAGE] {
    let mut list = [U32::ZERO; PAGE / 4];
    list.iter_mut().zip(after.saturating_add(1)..=count).for_each(|(entry, nsid)| *entry = nsid.into());
    let mut page = [0; PAGE];
    page.copy_from_slice(list.as_bytes());
    page
}

/// A namespace's globally unique number: the same as long as the subsystem's name is. A UUID of version 8.
fn unique(nsid: u32, options: &TargetOptions) -> [u8; 16] {
    // FNV-1a.
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = options.nqn.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    let mut bytes = (u128::from(hash) << 64 | u128::from(nsid)).to_be_bytes();
    bytes[6] = bytes[6] & 0xf | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}

fn namespace(nsid: u32, disk: &dyn Disk, options: &TargetOptions) -> NamespaceData {
    let mut data = NamespaceData {
        size: disk.blocks().into(),
        capacity: disk.blocks().into(),
        used: disk.blocks().into(),
        nmic: namespace_bits::NMIC_SHARED as u8,
        nguid: unique(nsid, options),
        ..NamespaceData::default()
    };
    data.formats[0] = LbaFormat { log_size: disk.block_size().trailing_zeros() as u8, ..LbaFormat::default() };
    data
}

fn descriptors(nsid: u32, options: &TargetOptions) -> Vec<u8> {
    let head = NamespaceDescriptor { kind: cns::NAME_UUID, length: 16, ..NamespaceDescriptor::default() };
    let mut page = [head.as_bytes(), &unique(nsid, options)].concat();
    page.resize(PAGE, 0);
    page
}

/// The subsystem, as discovery tells it. NVMe over fabrics, "Discovery Log Page".
fn discovery(subsystem: &Subsystem<'_>) -> Vec<u8> {
    let header = DiscoveryHeader { generation: 1.into(), records: 1.into(), ..DiscoveryHeader::default() };
    let address = subsystem.address;
    let mut entry = DiscoveryEntry {
        trtype: fabric::RDMA,
        adrfam: if address.is_ipv4() { fabric::IPV4 } else { fabric::IPV6 },
        subtype: fabric::NVME_SUBSYSTEM,
        portid: 1.into(),
        cntlid: 0xffff.into(),
        asqsz: 32.into(),
        qptype: fabric::CONNECTED,
        prtype: fabric::ROCE_V2,
        cms: fabric::RDMA_CM,
        ..DiscoveryEntry::default()
    };
    put_ascii(&mut entry.trsvcid, &address.port().to_string());
    put_text(&mut entry.subnqn, &subsystem.options.nqn);
    put_ascii(&mut entry.traddr, &address.ip().to_string());
    [header.as_bytes(), entry.as_bytes()].concat()
}

/// CONNECT's data.
pub(super) fn connect_data(bytes: &[u8]) -> Option<ConnectData> {
    ConnectData::read_from_prefix(bytes).ok().map(|(data, _)| data)
}
