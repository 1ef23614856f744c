//! A controller: what a subsystem gives one host.

use std::net::SocketAddr;
use std::time::Duration;

use mlx5_dv::objects::{AccessFlags, MemoryRegion};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use super::connector::{Host, PAUSE};
use super::io::{IoQueue, Namespace};
use super::queue::{Completed, Data, DataPlacement, Queue};
use crate::buffer::{HEADROOM, IoBuffer};
use crate::error::HostError;
use crate::status::Status;
use crate::wire::{
    COMMAND, Command, Connect, ConnectData, ControllerData, DISCOVERY, DiscoveryEntry, DiscoveryHeader, Features,
    Identify, LogPage, NamespaceData, PropertyGet, PropertySet, admin, cns, fabric, feature, identify_bits, log,
    property, text,
};

/// Entries of an admin queue. NVMe base specification: at least 32 over fabrics.
const ADMIN_DEPTH: u16 = 32;
/// Bytes of an identify page, and of the admin queue's buffer.
const PAGE: usize = 4096;
/// CC of a controller in use.
const ENABLED: u32 = property::CC_ENABLE | property::CC_IOSQES | property::CC_IOCQES;
/// Unit of MDTS: the smallest page.
const MDTS_UNIT: usize = 4096;
/// The longest transfer that a keyed SGL descriptor has room for, in whole pages.
const LONGEST: usize = (1 << 24) - PAGE;
/// Any controller.
const NEW_CONTROLLER: u16 = 0xffff;
/// Entries of the discovery log that are asked for at once.
const RECORDS: usize = 2;

/// How a controller is used.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ControllerOptions {
    /// Commands of an I/O queue under way at once, 2 to 1024; the target may have room for fewer. Default: 128.
    pub depth: u16,
    /// I/O queues to ask for. Default: 1.
    pub io_queues: u16,
    /// How the target gets at data. Default: by a standing key.
    pub placement: DataPlacement,
    /// Whether short writes go in the capsule, where the target takes that. Default: yes.
    pub in_capsule: bool,
    /// How long the target keeps a silent host; 0 is without limit. Default: 15 s.
    pub keep_alive: Duration,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        ControllerOptions {
            depth: 128,
            io_queues: 1,
            placement: DataPlacement::StandingKey,
            in_capsule: true,
            keep_alive: Duration::from_secs(15),
        }
    }
}

/// A subsystem that discovery found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    /// Its name.
    pub nqn: String,
    /// Where it is, as text.
    pub address: String,
    /// Its port, as text.
    pub service: String,
    /// Whether it is another discovery subsystem.
    pub is_discovery: bool,
}

/// A connection with a subsystem: the admin queue, from which I/O queues are made.
#[derive(Debug)]
pub struct Controller {
    admin: Queue,
    page: Option<IoBuffer>,
    remote: SocketAddr,
    nqn: String,
    options: ControllerOptions,
    cntlid: u16,
    data: ControllerData,
    depth: u16,
    granted: u16,
    opened: u16,
    next_keep_alive: Duration,
}

/// Namespaces, and subsystems in a discovery log, that are taken from a target: it could name them without end.
const MOST_NAMESPACES: usize = 1 << 16;
const MOST_RECORDS: u64 = 1 << 16;

/// The keep-alive's number among admin commands; those of set-up count from 1.
const KEEP_ALIVE: u64 = 0;

impl Queue {
    /// The next answer, within `timeout`. Of a queue whose program does nothing else.
    pub(super) fn wait(&mut self, command: &'static str, timeout: Duration) -> Result<Completed, HostError> {
        let clock = self.pd().device().clock().clone();
        let deadline = clock.now() + timeout;
        loop {
            if let Some(completed) = self.poll()? {
                return Ok(completed);
            }
            if clock.now() >= deadline {
                return Err(HostError::Timeout { queue: self.qid(), command, after: timeout });
            }
            if clock.is_virtual() { clock.pause(PAUSE) } else { std::hint::spin_loop() }
        }
    }

    /// Submits a command of set-up, and waits for its answer.
    fn call(
        &mut self,
        host: &mut Host,
        what: &'static str,
        command: Command,
        data: Data,
    ) -> Result<Completed, HostError> {
        self.last_call += 1;
        let number = self.last_call;
        let submitted = self.submit(command, data, number);
        submitted.map_err(|refused| HostError::NotSubmitted { command: what, reason: refused.reason })?;
        let deadline = host.clock.now() + host.timeout;
        while host.clock.now() < deadline {
            match self.poll()? {
                // The late answer to a command that was given up gives back its buffer.
                Some(completed) if completed.user != number => self.note(&completed),
                Some(completed) if completed.status.is_success() => return Ok(completed),
                Some(Completed { status, result, .. }) => {
                    return Err(HostError::Failed { command: what, status, hint: hint(status, result) });
                }
                None => host.pause()?,
            }
        }
        Err(HostError::Timeout { queue: self.qid(), command: what, after: host.timeout })
    }

    /// An answer that nothing waits for.
    fn note(&mut self, completed: &Completed) {
        if completed.user == KEEP_ALIVE {
            self.unanswered_since = None;
        }
    }

    /// Makes the connection a queue of a controller. Returns the controller's number.
    fn connect(
        &mut self,
        host: &mut Host,
        (nqn, cntlid): (&str, u16),
        keep_alive: Duration,
        mut page: IoBuffer,
    ) -> Result<(u16, Option<IoBuffer>), HostError> {
        let mut data = ConnectData { host_id: host.id, cntlid: cntlid.into(), ..ConnectData::default() };
        crate::wire::put_text(&mut data.subsystem, nqn);
        crate::wire::put_text(&mut data.host, &host.nqn);
        page.set_len(size_of::<ConnectData>());
        page.write(0, data.as_bytes());
        let command = Command::new(fabric::COMMAND);
        let command = Connect {
            fctype: fabric::CONNECT,
            qid: self.qid().into(),
            sqsize: (self.depth() as u16 - 1).into(),
            kato: (keep_alive.as_millis() as u32).into(),
            ..command.form()
        };
        let done = self.call(host, "CONNECT", Command::of(&command), Data::Out(page))?;
        Ok((done.result as u16, done.buffer))
    }
}

impl Host {
    /// Connects to the subsystem `nqn` at `remote`: its admin queue, and the controller enabled.
    ///
    /// # Errors
    /// [`HostError::Rejected`], [`HostError::Unreachable`], [`HostError::Failed`] where the target refuses;
    /// [`HostError::Unsupported`] where it lacks what RDMA needs; [`HostError::Timeout`].
    pub fn connect(
        &mut self,
        remote: SocketAddr,
        nqn: &str,
        options: ControllerOptions,
    ) -> Result<Controller, HostError> {
        Controller::connect(self, remote, nqn, options)
    }

    /// The subsystems that the target at `remote` has for this host.
    ///
    /// # Errors
    /// As for [`connect`](Self::connect).
    pub fn discover(&mut self, remote: SocketAddr) -> Result<Vec<Discovered>, HostError> {
        let options = ControllerOptions { keep_alive: Duration::ZERO, ..ControllerOptions::default() };
        let mut controller = self.connect(remote, DISCOVERY, options)?;
        let found = controller.discovered(self)?;
        controller.disconnect(self)?;
        Ok(found)
    }
}

/// What a failed CONNECT says of its parameters. NVMe base specification, "Connect Response".
fn hint(status: Status, result: u64) -> String {
    if status.code() != Status::CONNECT_INVALID_PARAMETER.code() {
        return String::new();
    }
    let (offset, in_data) = (result as u16 as usize, result >> 16 & 1 == 1);
    let field = |name| format!("; it names {name}");
    match (in_data, offset) {
        (true, at) if at == std::mem::offset_of!(ConnectData, subsystem) => field("the subsystem's NQN"),
        (true, at) if at == std::mem::offset_of!(ConnectData, host) => field("the host's NQN"),
        (true, at) if at == std::mem::offset_of!(ConnectData, cntlid) => field("the controller ID"),
        (_, at) => format!("; it names byte {at} of the {}", if in_data { "data" } else { "command" }),
    }
}

impl Controller {
    pub(super) fn connect(
        host: &mut Host,
        remote: SocketAddr,
        nqn: &str,
        options: ControllerOptions,
    ) -> Result<Self, HostError> {
        if !(2..=1024).contains(&options.depth) {
            return Err(HostError::Option { what: "depth", given: options.depth.into(), least: 2, most: 1024 });
        }
        host.forget_ended()?;
        let mut admin = host.open((remote, 0), 0, ADMIN_DEPTH, options.placement)?;
        let page = page(&admin)?;
        let (cntlid, page) = admin.connect(host, (nqn, NEW_CONTROLLER), options.keep_alive, page)?;
        let next_keep_alive = host.clock.now() + options.keep_alive / 2;
        let mut controller = Controller {
            admin,
            page,
            remote,
            nqn: nqn.to_owned(),
            depth: options.depth,
            options,
            cntlid,
            data: ControllerData::default(),
            granted: 0,
            opened: 0,
            next_keep_alive,
        };
        controller.enable(host)?;
        controller.identify_controller(host)?;
        Ok(controller)
    }

    /// Enables the controller, and waits until it is ready. NVMe base specification, "Initialization".
    fn enable(&mut self, host: &mut Host) -> Result<(), HostError> {
        let capabilities = self.property(host, property::CAP, 1)?;
        // MQES is zero-based.
        self.depth = self.depth.min((capabilities as u16).saturating_add(1));
        self.set_property(host, property::CC, ENABLED)?;
        // CAP.TO: in 500 ms.
        let patience = Duration::from_millis(500) * (capabilities >> 24 & 0xff).max(1) as u32;
        let deadline = host.clock.now() + patience;
        loop {
            let status = self.property(host, property::CSTS, 0)? as u32;
            if status & property::CSTS_FAILED != 0 {
                return Err(HostError::Unsupported { what: "its controller has a fatal status" });
            }
            if status & property::CSTS_READY != 0 {
                return Ok(());
            }
            if host.clock.now() >= deadline {
                return Err(HostError::Timeout { queue: 0, command: "the controller's enable", after: patience });
            }
            host.pause()?;
        }
    }

    fn property(&mut self, host: &mut Host, offset: u32, attrib: u8) -> Result<u64, HostError> {
        let command = Command::new(fabric::COMMAND);
        let command = PropertyGet { fctype: fabric::PROPERTY_GET, attrib, offset: offset.into(), ..command.form() };
        Ok(self.admin.call(host, "PROPERTY GET", Command::of(&command), Data::None)?.result)
    }

    fn set_property(&mut self, host: &mut Host, offset: u32, value: u32) -> Result<(), HostError> {
        let command = Command::new(fabric::COMMAND);
        let command = PropertySet {
            fctype: fabric::PROPERTY_SET,
            offset: offset.into(),
            value: u64::from(value).into(),
            ..command.form()
        };
        self.admin.call(host, "PROPERTY SET", Command::of(&command), Data::None).map(drop)
    }

    fn identify_controller(&mut self, host: &mut Host) -> Result<(), HostError> {
        self.data = self.identify(host, cns::CONTROLLER, 0)?;
        let lacks = |bit: u32| self.data.sgls.get() & bit == 0;
        if lacks(identify_bits::SGLS_KEYED) {
            return Err(HostError::Unsupported { what: "it takes no keyed SGL descriptors" });
        }
        if self.data.icdoff.get() != 0 {
            return Err(HostError::Unsupported { what: "data of its capsules does not follow the command (ICDOFF)" });
        }
        if self.data.cntlid.get() != self.cntlid {
            let (connected, identified) = (self.cntlid, self.data.cntlid);
            let what = format!("controller {connected} says that it is {identified}");
            return Err(HostError::Protocol { queue: 0, what });
        }
        match self.data.maxcmd.get() {
            0 => {}
            most => self.depth = self.depth.min(most),
        }
        Ok(())
    }

    /// A page of IDENTIFY.
    fn identify<T: FromBytes>(&mut self, host: &mut Host, cns: u8, nsid: u32) -> Result<T, HostError> {
        let command = Command { nsid: nsid.into(), ..Command::new(admin::IDENTIFY) };
        let command = Identify { cns, ..command.form() };
        let bytes = self.fetch(host, "IDENTIFY", Command::of(&command), PAGE)?;
        T::read_from_prefix(&bytes)
            .map(|(page, _)| page)
            .map_err(|_| HostError::Protocol { queue: 0, what: "a short identify page".into() })
    }

    /// What an admin command returns in its data.
    fn fetch(
        &mut self,
        host: &mut Host,
        what: &'static str,
        command: Command,
        len: usize,
    ) -> Result<Vec<u8>, HostError> {
        let mut buffer = match self.page.take() {
            Some(page) => page,
            None => page(&self.admin)?,
        };
        buffer.set_len(len);
        // What the target does not write must not be taken for its answer.
        buffer.write(0, &vec![0; len]);
        let done = self.admin.call(host, what, command, Data::In(buffer))?;
        let buffer =
            done.buffer.ok_or(HostError::Protocol { queue: 0, what: "an answer without its buffer".into() })?;
        let mut bytes = vec![0; len];
        buffer.read(0, &mut bytes);
        self.page = Some(buffer);
        Ok(bytes)
    }

    /// Part of a log page.
    fn log(&mut self, host: &mut Host, lid: u8, offset: usize, len: usize) -> Result<Vec<u8>, HostError> {
        let words = (len / 4 - 1) as u32;
        let command = LogPage {
            lid,
            numdl: (words as u16).into(),
            numdu: ((words >> 16) as u16).into(),
            offset: (offset as u64).into(),
            ..Command::new(admin::GET_LOG_PAGE).form()
        };
        self.fetch(host, "GET LOG PAGE", Command::of(&command), len)
    }

    /// The subsystems that a discovery controller knows.
    pub(super) fn discovered(&mut self, host: &mut Host) -> Result<Vec<Discovered>, HostError> {
        let short = |_| HostError::Protocol { queue: 0, what: "a short log page".into() };
        let (header, entry) = (size_of::<DiscoveryHeader>(), size_of::<DiscoveryEntry>());
        let head = self.log(host, log::DISCOVERY, 0, header)?;
        let head = DiscoveryHeader::read_from_bytes(&head).map_err(|error| short(error.to_string()))?;
        let mut found = Vec::new();
        let records = records(head.records.get())?;
        while found.len() < records {
            let count = RECORDS.min(records - found.len());
            let bytes = self.log(host, log::DISCOVERY, header + found.len() * entry, count * entry)?;
            let entries = <[DiscoveryEntry]>::ref_from_bytes(&bytes).map_err(|error| short(error.to_string()))?;
            found.extend(entries.iter().map(|entry| Discovered {
                nqn: text(&entry.subnqn),
                address: text(&entry.traddr),
                service: text(&entry.trsvcid),
                is_discovery: entry.subtype != fabric::NVME_SUBSYSTEM,
            }));
        }
        Ok(found)
    }

    /// What the controller says of itself.
    pub fn identity(&self) -> &ControllerData {
        &self.data
    }

    /// The controller's number.
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// The subsystem's name.
    pub fn nqn(&self) -> &str {
        &self.nqn
    }

    /// The namespaces that are active.
    ///
    /// # Errors
    /// [`HostError::Failed`], [`HostError::Timeout`], [`HostError::Broken`].
    pub fn namespaces(&mut self, host: &mut Host) -> Result<Vec<Namespace>, HostError> {
        let (mut found, mut listed, mut after): (Vec<Namespace>, _, _) = (Vec::new(), 0, 0);
        loop {
            let list: [U32; PAGE / 4] = self.identify(host, cns::ACTIVE_LIST, after)?;
            let numbers: Vec<_> = list.iter().map(|nsid| nsid.get()).take_while(|&nsid| nsid > after).collect();
            for &nsid in &numbers {
                let data: NamespaceData = self.identify(host, cns::NAMESPACE, nsid)?;
                found.extend(namespace(nsid, &data));
            }
            if numbers.len() < list.len() {
                return Ok(found);
            }
            // Their numbers rise, whether there is anything behind them or not.
            after = numbers.into_iter().fold(after, u32::max);
            listed += list.len();
            if listed >= MOST_NAMESPACES {
                let what = format!("more than {MOST_NAMESPACES} namespaces");
                return Err(HostError::Protocol { queue: 0, what });
            }
        }
    }

    /// Another I/O queue, up to the number that was asked for and the target gives.
    ///
    /// # Errors
    /// [`HostError::NoMoreQueues`], and those of [`Host::connect`].
    pub fn io_queue(&mut self, host: &mut Host) -> Result<IoQueue, HostError> {
        if self.granted == 0 {
            self.granted = self.ask_for_queues(host)?;
        }
        if self.opened >= self.granted {
            return Err(HostError::NoMoreQueues { granted: self.granted });
        }
        let qid = self.opened + 1;
        let mut queue = host.open((self.remote, self.cntlid), qid, self.depth, self.options.placement)?;
        let takes_offsets = self.data.sgls.get() & identify_bits::SGLS_OFFSET != 0;
        if takes_offsets && self.options.in_capsule {
            queue.set_in_capsule((self.data.ioccsz.get() as usize * 16).saturating_sub(COMMAND));
        }
        let page = page(&queue)?;
        queue.connect(host, (&self.nqn, self.cntlid), Duration::ZERO, page)?;
        self.opened = qid;
        Ok(IoQueue::new(queue, self.most_bytes()))
    }

    /// SET FEATURES "Number of Queues": how many the target gives.
    fn ask_for_queues(&mut self, host: &mut Host) -> Result<u16, HostError> {
        let count = u32::from(self.options.io_queues.max(1)) - 1;
        let command = Features {
            fid: feature::NUMBER_OF_QUEUES.into(),
            dword11: (count << 16 | count).into(),
            ..Command::new(admin::SET_FEATURES).form()
        };
        let given = self.admin.call(host, "SET FEATURES (number of queues)", Command::of(&command), Data::None)?.result;
        let least = (given as u16).min((given >> 16) as u16);
        Ok(least.saturating_add(1).min(self.options.io_queues.max(1)))
    }

    /// Longest transfer in bytes.
    pub fn most_bytes(&self) -> usize {
        match u32::from(self.data.mdts) {
            0 => LONGEST,
            mdts => MDTS_UNIT.checked_shl(mdts).filter(|_| mdts < 24).map_or(LONGEST, |most| most.min(LONGEST)),
        }
    }

    /// Answers messages, and keeps the controller alive: call it several times a second.
    ///
    /// # Errors
    /// [`HostError::Timeout`] where the target did not answer a keep-alive; [`HostError::Broken`],
    /// [`HostError::Disconnected`].
    pub fn turn(&mut self, host: &mut Host) -> Result<(), HostError> {
        host.turn()?;
        while let Some(completed) = self.admin.poll()? {
            self.admin.note(&completed);
        }
        let (now, after) = (host.clock.now(), self.options.keep_alive);
        if after.is_zero() {
            return Ok(());
        }
        match self.admin.unanswered_since {
            Some(since) if now.saturating_sub(since) > after => {
                return Err(HostError::Timeout { queue: 0, command: "KEEP ALIVE", after });
            }
            None if now >= self.next_keep_alive => {
                let submitted = self.admin.submit(Command::new(admin::KEEP_ALIVE), Data::None, KEEP_ALIVE);
                submitted
                    .map_err(|refused| HostError::NotSubmitted { command: "KEEP ALIVE", reason: refused.reason })?;
                self.admin.unanswered_since = Some(now);
                self.next_keep_alive = now + after / 2;
            }
            _ => {}
        }
        Ok(())
    }

    /// Shuts the controller down and ends its connection. Its I/O queues are to be closed before.
    ///
    /// # Errors
    /// Those of the shutdown; the connection is ended all the same.
    pub fn disconnect(mut self, host: &mut Host) -> Result<(), HostError> {
        let shut_down = self.set_property(host, property::CC, ENABLED | property::CC_SHN_NORMAL);
        self.admin.close();
        host.turn()?;
        shut_down
    }
}

/// A buffer for a page, which the target may read and write.
fn page(queue: &Queue) -> Result<IoBuffer, HostError> {
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let region = MemoryRegion::allocate(queue.pd(), HEADROOM + PAGE, access)?;
    let buffer = IoBuffer::new(region.buffer(0..HEADROOM + PAGE)?);
    buffer.map_err(|_| HostError::Unsupported { what: "no room for a page" })
}

/// Records of a discovery log to read.
fn records(said: u64) -> Result<usize, HostError> {
    if said > MOST_RECORDS {
        let what = format!("{said} records of a discovery log, and at most {MOST_RECORDS} are taken");
        return Err(HostError::Protocol { queue: 0, what });
    }
    Ok(said as usize)
}

/// What IDENTIFY says of a namespace; `None` for one that is not there, or whose blocks have a size that none has.
fn namespace(nsid: u32, data: &NamespaceData) -> Option<Namespace> {
    let format = data.formats.get(usize::from(data.flbas & 0xf))?;
    let is_size = (9..=20).contains(&format.log_size) && data.size.get() > 0;
    is_size.then(|| Namespace { nsid, blocks: data.size.get(), block_size: 1 << format.log_size, nguid: data.nguid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_discovery_log_without_end_is_refused() {
        assert_eq!(records(3).unwrap(), 3);
        for said in [MOST_RECORDS + 1, u64::MAX] {
            assert!(matches!(records(said), Err(HostError::Protocol { queue: 0, .. })), "{said} records");
        }
    }
}
