//! Configuration of a guest, and its boot.

use std::ffi::OsString;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;
use thiserror::Error;

use super::channel::Channel;
use super::error::GuestError;
use super::initramfs;
use super::logs::Logs;
use super::qemu::Qemu;
use super::running::Guest;
use crate::binaries::Build;
use crate::error::{IoContext, LabError};
use crate::lab::Lab;
use crate::lock::FileLock;
use crate::process::open_log;
use crate::progress::say;

const AGENT: &str = include_str!("agent.sh");
/// Number of guests that may run at a time on this machine: each emulated processor needs a real one, or the guest
/// becomes too slow.
const SLOTS: usize = 2;

/// How long QEMU waits for responses of the model.
const MODEL_PATIENCE: Duration = Duration::from_secs(60);

/// A host folder shared with the guest.
#[derive(Clone, Debug)]
struct Share {
    host: PathBuf,
    guest: String,
    writable: bool,
}

/// Configuration of a guest. Made by [`Guest::builder`].
#[derive(Clone, Debug)]
pub struct GuestBuilder {
    name: String,
    memory_mib: u32,
    cpus: u32,
    nics: Vec<PathBuf>,
    wire: Option<PathBuf>,
    iommu: bool,
    kernel: Option<PathBuf>,
    kernel_args: Vec<String>,
    huge_pages_2m: u32,
    huge_pages_1g: u32,
    modules: Vec<String>,
    shares: Vec<Share>,
    icount: bool,
    is_parallel: bool,
    hides_crc: bool,
    key_cache: bool,
    qemu_args: Vec<OsString>,
    boot_patience: Duration,
    slot_patience: Duration,
}

impl Guest {
    /// Starts the configuration of a guest. Its logs go to a folder called `name`.
    pub fn builder(name: &str) -> GuestBuilder {
        GuestBuilder::new(name)
    }
}

impl GuestBuilder {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            memory_mib: 2048,
            cpus: 2,
            nics: Vec::new(),
            wire: None,
            iommu: false,
            kernel: None,
            kernel_args: Vec::new(),
            huge_pages_2m: 0,
            huge_pages_1g: 0,
            modules: Vec::new(),
            shares: Vec::new(),
            icount: false,
            is_parallel: false,
            hides_crc: false,
            key_cache: false,
            qemu_args: Vec::new(),
            boot_patience: Duration::from_secs(180),
            slot_patience: Duration::from_secs(30 * 60),
        }
    }

    /// Memory in MiB (default 2048).
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Number of processors (default 2).
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Adds a function served over vfio-user on the socket at `path`. May be called several times; each function gets
    /// its own root port.
    pub fn nic(mut self, path: impl Into<PathBuf>) -> Self {
        self.nics.push(path.into());
        self
    }

    /// Adds a virtio network card with the address [`WIRE_MAC`](Self::WIRE_MAC), connected to the wire of a running
    /// `mlx5 sim --wire path`.
    pub fn wire(mut self, path: impl Into<PathBuf>) -> Self {
        self.wire = Some(path.into());
        self
    }

    /// MAC address of the card on a [`wire`](Self::wire).
    pub const WIRE_MAC: &str = "52:54:00:00:00:01";

    /// Adds an IOMMU with interrupt remapping and enables it. VFIO in the guest needs it.
    pub fn iommu(mut self) -> Self {
        self.iommu = true;
        self
    }

    /// Boots this kernel image instead of Debian's. It must have everything built in, as its modules are not available.
    pub fn kernel(mut self, image: impl Into<PathBuf>) -> Self {
        self.kernel = Some(image.into());
        self
    }

    /// Adds a parameter to the kernel command line.
    pub fn kernel_arg(mut self, arg: impl Into<String>) -> Self {
        self.kernel_args.push(arg.into());
        self
    }

    /// Reserves huge pages of 2 MiB at boot.
    pub fn huge_pages_2m(mut self, pages: u32) -> Self {
        self.huge_pages_2m = pages;
        self
    }

    /// Reserves huge pages of 1 GiB at boot.
    pub fn huge_pages_1g(mut self, pages: u32) -> Self {
        self.huge_pages_1g = pages;
        self
    }

    /// Loads a kernel module during boot; failure is an error.
    pub fn module(mut self, name: impl Into<String>) -> Self {
        self.modules.push(name.into());
        self
    }

    /// Lets mlx5_ib fill its cache of memory keys, as it does by default: some thousand a function, made after it has
    /// loaded and destroyed when it goes, which takes an emulated processor half a minute. Otherwise it makes a key
    /// when one is asked for (mlx5_core's parameter `prof_sel`).
    pub fn key_cache(mut self) -> Self {
        self.key_cache = true;
        self
    }

    /// Shares the host folder `host`, read-only, at the absolute path `guest`. The guest reads a file once: what is in
    /// the folder stays as it is while the guest runs.
    pub fn share(self, host: impl Into<PathBuf>, guest: impl Into<String>) -> Self {
        self.share_as(host.into(), guest.into(), false)
    }

    /// Like [`share`](Self::share), but writable.
    pub fn share_writable(self, host: impl Into<PathBuf>, guest: impl Into<String>) -> Self {
        self.share_as(host.into(), guest.into(), true)
    }

    /// Adds our own programs to the guest's `PATH`.
    pub fn programs(self, build: &Build) -> Self {
        let folders = build.folders().iter().enumerate();
        folders.fold(self, |guest, (index, host)| guest.share(host, format!("/opt/mlx5/bin{index}")))
    }

    /// Couples time to instructions: every instruction takes one nanosecond of guest time, so the time stamp counter
    /// counts instructions. Implies one processor.
    pub fn count_instructions(mut self) -> Self {
        self.icount = true;
        self
    }

    /// Gives each processor a thread of its own, which takes more of a busy host's time. For soft-RoCE: where one
    /// processor waits while others run, it was seen to lose count of who uses a queue pair.
    pub fn parallel(mut self) -> Self {
        self.is_parallel = true;
        self
    }

    /// Hides the processors' instruction for CRC-32C (SSE4.2), which QEMU emulates bit by bit. For programs that check
    /// much data: with a table it takes them a fraction of the time.
    pub fn hide_crc(mut self) -> Self {
        self.hides_crc = true;
        self
    }

    /// Adds arguments to QEMU's command line.
    pub fn qemu_args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.qemu_args.extend(args.into_iter().map(Into::into));
        self
    }

    /// How long the boot may take (default three minutes; an idle machine needs five seconds).
    pub fn boot_patience(mut self, patience: Duration) -> Self {
        self.boot_patience = patience;
        self
    }

    /// How long to wait for other guests on this machine (default half an hour).
    pub fn slot_patience(mut self, patience: Duration) -> Self {
        self.slot_patience = patience;
        self
    }

    /// Sets up the lab if needed, boots the guest, and returns when it accepts commands. Boots again, if QEMU's
    /// emulator made the kernel fail, or misjudge its clock.
    pub fn boot(self) -> Result<Guest, GuestError> {
        const MOST: u32 = 5;
        for _ in 1..MOST {
            let why = match self.boot_once() {
                Err(GuestError::Boot { evidence, .. }) if evidence.shows_emulator_fault() => {
                    "QEMU ran a breakpoint that its kernel had removed"
                }
                Ok(guest) if guest.logs.show_wrong_clock() => "its kernel misjudged its clock, as the host is busy",
                booted => return booted,
            };
            say(&format!("guest {} boots again: {why}", self.name));
        }
        self.boot_once()
    }

    fn boot_once(&self) -> Result<Guest, GuestError> {
        let prepared = self.prepare(false)?;
        let mut command = self.command(&prepared)?;
        let said = open_log(&prepared.logs.qemu())?;
        let log = said.try_clone().doing("open", &prepared.logs.qemu())?;
        command
            .arg("-serial")
            .arg(keyed("file:", &prepared.logs.console()))
            .stdin(Stdio::null())
            .stdout(said)
            .stderr(log);
        let mut qemu = Qemu(command.spawn().map_err(GuestError::Start)?);

        let deadline = Instant::now() + self.boot_patience;
        let channel = Channel::accept(&prepared.listener, deadline, || qemu.runs())
            .map_err(|_| prepared.boot_error("QEMU does not start the guest"))?;
        let guest = Guest {
            channel,
            qemu,
            logs: prepared.logs.clone(),
            monitor: prepared.monitor(),
            next: AtomicU64::new(1),
            _slot: prepared.slot,
            _temp: prepared.temp,
        };
        guest.await_ready(deadline, self.boot_patience)?;
        Ok(guest)
    }

    /// Boots a guest with a shell on this terminal; returns when it ends.
    pub fn shell(self) -> Result<ExitStatus, ShellError> {
        let prepared = self.prepare(true).map_err(ShellError::Guest)?;
        let mut command = self.command(&prepared).map_err(ShellError::Guest)?;
        // Ctrl-a x ends QEMU; Ctrl-c goes to the guest.
        let mut child = command.args(["-serial", "mon:stdio"]).spawn().map_err(ShellError::Wait)?;
        let deadline = Instant::now() + self.boot_patience;
        let channel = Channel::accept(&prepared.listener, deadline, || true);
        let status = child.wait().map_err(ShellError::Wait);
        drop(channel);
        status
    }

    fn share_as(mut self, host: PathBuf, guest: String, writable: bool) -> Self {
        self.shares.push(Share { host, guest, writable });
        self
    }

    /// Prepares everything before QEMU starts.
    fn prepare(&self, interactive: bool) -> Result<Prepared, GuestError> {
        self.check()?;
        let lab = Lab::ready()?;
        let slots: Vec<PathBuf> = (0..SLOTS).map(|slot| lab.folder().join(&format!("slots/{slot}.lock"))).collect();
        let slot = FileLock::any(&slots, self.slot_patience, || {
            say(&format!("guest {} waits: {SLOTS} guests run on this machine", self.name));
        })?;
        let logs = Logs::take(&self.name)?;
        logs.write("agent.sh", AGENT)?;
        logs.write("modules", &lines(&self.modules))?;
        if interactive {
            logs.write("interactive", "")?;
        }

        // Socket paths are limited to 107 bytes; the target folder's may be longer.
        let base = std::env::temp_dir();
        let temp = tempfile::Builder::new().prefix("mlx5-lab-").tempdir().doing("create a folder in", &base)?;
        let socket = temp.path().join("agent.sock");
        let listener = UnixListener::bind(&socket).doing("listen on", &socket)?;
        let modules = if self.kernel.is_none() { initramfs::MODULES } else { &[] };
        initramfs::write(&lab, modules, &self.mounts(), &temp.path().join("initramfs"))?;
        Ok(Prepared { lab, slot, logs, temp, listener })
    }

    fn check(&self) -> Result<(), GuestError> {
        let wrong = |what: String| Err(GuestError::Configuration { what });
        if let Some(share) = self.shares.iter().find(|share| !share.host.is_dir()) {
            return wrong(format!("{} is not a folder", share.host.display()));
        }
        if let Some(share) =
            self.shares.iter().find(|share| !share.guest.starts_with('/') || share.guest.contains(char::is_whitespace))
        {
            return wrong(format!("a folder cannot be mounted at {:?}", share.guest));
        }
        if self.cpus == 0 || self.memory_mib < 512 {
            return wrong("a guest needs at least one processor and 512 MiB".into());
        }
        if self.name.is_empty() || self.name.contains('/') {
            return wrong(format!("{:?} is not a valid guest name", self.name));
        }
        Ok(())
    }

    /// The mount list for the init script.
    fn mounts(&self) -> String {
        let mut text = "lab rw /lab\n".to_owned();
        for (index, share) in self.shares.iter().enumerate() {
            let mode = if share.writable { "rw" } else { "ro,cache=loose" };
            text.push_str(&format!("share{index} {mode} {}\n", share.guest));
        }
        text
    }

    fn kernel_command_line(&self) -> String {
        // Everything is logged to /dev/kmsg. The console gets warnings only, as it is slow.
        let mut words = vec![
            "console=ttyS0".to_owned(),
            "panic=-1".to_owned(),
            "loglevel=5".to_owned(),
            "log_buf_len=8M".to_owned(),
            "printk.devkmsg=on".to_owned(),
            // The kernel's timer check counts ticks of emulated time, and panics on a busy host.
            "no_timer_check".to_owned(),
            // On a busy host a watchdog takes the emulated TSC for unstable. Linux then reads its clock from a device,
            // which is slow.
            "tsc=reliable".to_owned(),
            // These protect a kernel from its programs. On an emulated processor they take much of the time.
            "mitigations=off".to_owned(),
            "init_on_alloc=0".to_owned(),
            "lsm=capability".to_owned(),
            // A driver that comes or goes waits for many grace periods of RCU, of tens of milliseconds each.
            "rcupdate.rcu_expedited=1".to_owned(),
        ];
        if self.iommu {
            words.push("intel_iommu=on".to_owned());
        }
        if !self.key_cache {
            words.push("mlx5_core.prof_sel=0".to_owned());
        }
        if self.huge_pages_1g > 0 {
            words.push(format!("hugepagesz=1G hugepages={}", self.huge_pages_1g));
        }
        if self.huge_pages_2m > 0 {
            words.push(format!("hugepagesz=2M hugepages={}", self.huge_pages_2m));
        }
        words.extend(self.kernel_args.iter().cloned());
        words.join(" ")
    }

    /// QEMU's command line without the serial port.
    fn command(&self, prepared: &Prepared) -> Result<Command, GuestError> {
        let mut qemu = prepared.lab.qemu();
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        // Without fast string operations, which QEMU emulates byte by byte: Linux then clears and copies pages by
        // words.
        let crc = if self.hides_crc { ",-sse4.2" } else { "" };
        qemu.args(["-no-reboot", "-nic", "none", "-cpu", &format!("max,-erms,-fsrm,-la57{crc}")]);
        self.machine(&mut qemu);
        qemu.arg("-kernel").arg(self.kernel.clone().unwrap_or_else(|| prepared.lab.kernel_image()));
        qemu.arg("-initrd").arg(prepared.temp.path().join("initramfs"));
        qemu.arg("-append").arg(self.kernel_command_line());

        folder(&mut qemu, "root", prepared.lab.root(), false);
        folder(&mut qemu, "lab", prepared.logs.dir(), true);
        for (index, share) in self.shares.iter().enumerate() {
            folder(&mut qemu, &format!("share{index}"), &share.host, share.writable);
        }
        let socket = prepared.temp.path().join("agent.sock");
        qemu.arg("-chardev").arg(keyed("socket,id=agent,path=", &socket));
        let mut monitor = keyed("unix:", &prepared.monitor());
        monitor.push(",server=on,wait=off");
        qemu.arg("-qmp").arg(monitor);
        qemu.args(["-device", "virtio-serial-pci"]);
        qemu.args(["-device", "virtserialport,chardev=agent,name=mlx5.lab"]);
        for (index, socket) in self.nics.iter().enumerate() {
            nic(&mut qemu, index, socket)?;
        }
        if let Some(path) = &self.wire {
            wire(&mut qemu, path);
        }
        qemu.args(&self.qemu_args);
        Ok(qemu)
    }

    fn machine(&self, qemu: &mut Command) {
        let size = self.memory_mib;
        let machine = match self.iommu {
            true => "q35,memory-backend=mem0,kernel-irqchip=off",
            false => "q35,memory-backend=mem0",
        };
        qemu.args(["-machine", machine]);
        // The processors take turns on one thread. With a thread each, on a busy host, one spins for a lock while the
        // other one, which holds it, waits for a processor of the host: that took half of all the time.
        let thread = if self.is_parallel && !self.icount { "multi" } else { "single" };
        qemu.arg("-accel").arg(format!("tcg,thread={thread}"));
        if self.icount {
            qemu.args(["-icount", "shift=0"]);
        }
        let cpus = if self.icount { 1 } else { self.cpus };
        qemu.arg("-smp").arg(cpus.to_string());
        qemu.arg("-m").arg(format!("{size}M"));
        // Shared, so that a vfio-user server can map it for DMA.
        qemu.arg("-object").arg(format!("memory-backend-memfd,id=mem0,size={size}M,share=on"));
        if self.iommu {
            // Must precede all devices, or they bypass it. VFIO needs interrupt remapping.
            qemu.args(["-device", "intel-iommu,caching-mode=on,intremap=on"]);
        }
    }
}

/// A shared folder, as 9p.
fn folder(qemu: &mut Command, tag: &str, host: &Path, writable: bool) {
    let mut value = keyed("local,path=", host);
    value.push(format!(",mount_tag={tag},security_model=none,multidevs=remap"));
    if !writable {
        value.push(",readonly=on");
    }
    qemu.arg("-virtfs").arg(value);
}

/// A function behind its own root port, as cards are.
fn nic(qemu: &mut Command, index: usize, socket: &Path) -> Result<(), GuestError> {
    let Some(path) = socket.to_str() else {
        return Err(GuestError::Configuration { what: format!("QEMU cannot be given the path {}", socket.display()) });
    };
    let slot = index + 1;
    qemu.arg("-device").arg(format!("pcie-root-port,id=port{slot},chassis={slot},slot={slot}"));
    let device = json!({
        "driver": "vfio-user-pci",
        "id": format!("nic{index}"),
        "bus": format!("port{slot}"),
        "socket": { "type": "unix", "path": path },
        // The default is five seconds. On a busy machine the model may not run for that long, and QEMU drops a function
        // whose server is late.
        "x-msg-timeout": MODEL_PATIENCE.as_millis() as u64,
    });
    qemu.arg("-device").arg(device.to_string());
    Ok(())
}

/// A virtio network card on the software card's wire.
fn wire(qemu: &mut Command, path: &Path) {
    let mut far = path.as_os_str().to_owned();
    far.push(".peer");
    let mut netdev = keyed("dgram,id=wire,local.type=unix,local.path=", Path::new(&far));
    netdev.push(keyed(",remote.type=unix,remote.path=", path));
    qemu.arg("-netdev").arg(netdev);
    // Without its boot ROM.
    qemu.arg("-device").arg(format!("virtio-net-pci,netdev=wire,mac={},romfile=", GuestBuilder::WIRE_MAC));
}

/// `prefix` and a path, with commas doubled as QEMU requires.
fn keyed(prefix: &str, path: &Path) -> OsString {
    let mut value = OsString::from(prefix);
    match path.to_str() {
        Some(text) => value.push(text.replace(',', ",,")),
        None => value.push(path),
    }
    value
}

fn lines(words: &[String]) -> String {
    words.iter().map(|word| format!("{word}\n")).collect()
}

/// Files and sockets for the boot of a guest.
struct Prepared {
    lab: Lab,
    slot: FileLock,
    logs: Logs,
    temp: TempDir,
    listener: UnixListener,
}

impl Prepared {
    /// The socket of QEMU's monitor.
    fn monitor(&self) -> PathBuf {
        self.temp.path().join("monitor.sock")
    }

    fn boot_error(&self, reason: &str) -> GuestError {
        GuestError::Boot { reason: reason.to_owned(), evidence: Box::new(self.logs.evidence()) }
    }
}

/// Why an interactive guest failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShellError {
    /// The guest could not be made.
    #[error("cannot make the guest")]
    Guest(#[source] GuestError),
    /// QEMU could not be run.
    #[error("cannot run QEMU")]
    Wait(#[source] std::io::Error),
}

impl From<LabError> for ShellError {
    fn from(error: LabError) -> Self {
        Self::Guest(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let wrong = |builder: GuestBuilder| matches!(builder.check(), Err(GuestError::Configuration { .. }));
        assert!(wrong(GuestBuilder::new("a").cpus(0)));
        assert!(wrong(GuestBuilder::new("a/b")));
        assert!(wrong(GuestBuilder::new("a").share("/nonexistent", "/x")));
        assert!(wrong(GuestBuilder::new("a").share("/", "x")));
        assert!(GuestBuilder::new("a").share("/", "/x").check().is_ok());
    }

    #[test]
    fn the_kernel_is_told() {
        let line = GuestBuilder::new("a").iommu().huge_pages_2m(8).kernel_arg("quiet").kernel_command_line();
        assert!(line.ends_with("intel_iommu=on mlx5_core.prof_sel=0 hugepagesz=2M hugepages=8 quiet"));
        assert!(!GuestBuilder::new("a").key_cache().kernel_command_line().contains("prof_sel"));
    }

    #[test]
    fn commas_are_doubled() {
        assert_eq!(keyed("path=", Path::new("/a,b")), "path=/a,,b");
    }
}
