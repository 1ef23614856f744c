//! apt with its own configuration: it does not use this machine's package state and writes only to its folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::mirror::{Mirror, SUITE};
use crate::error::{IoContext, LabError};
use crate::process::{run_logged, tail};
use crate::progress::{Progress, say};

/// Number of attempts; apt also retries each file itself.
const ATTEMPTS: u32 = 3;
/// How long apt may make no progress before it is killed.
const QUIET: Duration = Duration::from_secs(180);
/// Packages that are recent enough only in backports: `vfio-user-pci` needs QEMU 10.1.
const BACKPORTS: &str = "src:qemu:any src:seabios:any src:ipxe:any";

/// A file to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Archive {
    pub(super) file_name: String,
    pub(super) size: u64,
}

impl Archive {
    /// The package's name, with its architecture if it is not this machine's: `libc6`, `libc6:arm64`.
    pub(super) fn package(&self) -> String {
        let mut parts = self.file_name.trim_end_matches(".deb").split('_');
        let name = parts.next().unwrap_or_default();
        match parts.next_back() {
            Some("amd64" | "all") | None => name.to_owned(),
            Some(foreign) => format!("{name}:{foreign}"),
        }
    }
}

/// An apt with its own configuration.
pub(super) struct Apt {
    dir: PathBuf,
    mirror: Mirror,
    /// Whether it also uses packages for aarch64.
    arm64: bool,
}

impl Apt {
    /// Writes the configuration into `dir`.
    pub(super) fn new(dir: PathBuf, arm64: bool) -> Result<Self, LabError> {
        let apt = Self { mirror: Mirror::find()?, dir, arm64 };
        for name in ["lists/partial", "cache/archives/partial", "empty/partial", "state", "log"] {
            let path = apt.dir.join(name);
            fs::create_dir_all(&path).doing("create", &path)?;
        }
        apt.write("status", "")?;
        let entries = [apt.mirror.entry(false), apt.mirror.entry(true)];
        apt.write("lab.sources", &entries.join("\n"))?;
        let pin = format!("Package: {BACKPORTS}\nPin: release n={SUITE}-backports\nPin-Priority: 990\n");
        apt.write("preferences", &pin)?;
        apt.write("apt.conf", &apt.configuration(&network_settings()?))?;
        Ok(apt)
    }

    /// Fetches the package lists.
    pub(super) fn update(&self) -> Result<(), LabError> {
        let bar = Progress::step("package lists", 0, true);
        let lists = self.dir.join("lists");
        self.insist("fetching the package lists", &["update", "-q"], || {
            let size = folder_size(&lists);
            bar.set(size);
            size
        })
    }

    /// The downloads for `packages` and all their dependencies.
    pub(super) fn closure(&self, packages: &[String]) -> Result<Vec<Archive>, LabError> {
        let mut arguments = vec!["install", "-qq", "-y", "--print-uris"];
        arguments.extend(packages.iter().map(String::as_str));
        self.plan(&arguments)
    }

    /// The downloads for `packages` only.
    pub(super) fn alone(&self, packages: &[String]) -> Result<Vec<Archive>, LabError> {
        let mut arguments = vec!["download", "-qq", "--print-uris"];
        arguments.extend(packages.iter().map(String::as_str));
        self.plan(&arguments)
    }

    /// The upstream source archive of a package.
    pub(super) fn source(&self, package: &str) -> Result<Archive, LabError> {
        let plan = self.plan(&["source", "-qq", "--tar-only", "--download-only", "--print-uris", package])?;
        let released = |archive: &Archive| archive.file_name.contains(".orig.tar.");
        plan.into_iter().find(released).ok_or_else(|| LabError::Missing { what: format!("source of {package}") })
    }

    /// Downloads the archive of [`Apt::source`].
    pub(super) fn fetch_source(&self, package: &str) -> Result<(), LabError> {
        let bar = Progress::step(&format!("fetching the source of {package}"), 0, true);
        let arguments = ["source", "-q", "--tar-only", "--download-only", package];
        self.insist("fetching sources", &arguments, || {
            let size = folder_size(&self.archives());
            bar.set(size);
            size
        })
    }

    /// The names of all packages that start with `prefix`.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>, LabError> {
        let output = self
            .command("apt-cache", &["pkgnames", prefix])
            .stdin(Stdio::null())
            .output()
            .map_err(no_apt("apt-cache"))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect());
        }
        fs::write(self.log(), &output.stderr).doing("write", &self.log())?;
        Err(self.failure("listing the packages"))
    }

    /// Downloads the files of [`Apt::closure`] or, if `alone`, of [`Apt::alone`]. Continues earlier partial downloads.
    pub(super) fn fetch(&self, packages: &[String], plan: &[Archive], alone: bool) -> Result<(), LabError> {
        let total = plan.iter().map(|archive| archive.size).sum();
        let message = format!("fetching {} packages, {} MB", plan.len(), total / 1_000_000);
        let bar = Progress::step(&message, total, true);
        let mut arguments = match alone {
            true => vec!["download", "-q"],
            false => vec!["install", "-q", "-y", "--download-only"],
        };
        arguments.extend(packages.iter().map(String::as_str));
        let archives = self.archives();
        self.insist("fetching the packages", &arguments, || {
            let size = folder_size(&archives) + folder_size(&archives.join("partial"));
            bar.set(size);
            size
        })
    }

    /// The download folder.
    pub(super) fn archives(&self) -> PathBuf {
        self.dir.join("cache/archives")
    }

    /// The log of apt's output.
    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log/setup.log")
    }

    fn write(&self, name: &str, text: &str) -> Result<(), LabError> {
        let path = self.dir.join(name);
        fs::write(&path, text).doing("write", &path)
    }

    fn configuration(&self, network: &str) -> String {
        let dir = self.dir.display();
        let architectures = if self.arm64 { "{ \"amd64\"; \"arm64\"; }" } else { "\"amd64\"" };
        format!(
            "Dir::Etc::main \"/dev/null\";\n\
             Dir::Etc::parts \"/dev/null\";\n\
             Dir::Etc::sourcelist \"{dir}/lab.sources\";\n\
             Dir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferences \"{dir}/preferences\";\n\
             Dir::Etc::preferencesparts \"/dev/null\";\n\
             Dir::State \"{dir}/state\";\n\
             Dir::State::lists \"{dir}/lists\";\n\
             Dir::State::status \"{dir}/status\";\n\
             Dir::Cache \"{dir}/cache\";\n\
             Dir::Log \"{dir}/log\";\n\
             APT::Architecture \"amd64\";\n\
             APT::Architectures {architectures};\n\
             APT::Install-Recommends \"false\";\n\
             APT::Sandbox::User \"root\";\n\
             APT::Update::Error-Mode \"any\";\n\
             Acquire::Languages \"none\";\n\
             Acquire::Retries \"3\";\n\
             {network}"
        )
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            // `apt-get download` writes to the current folder.
            .current_dir(self.archives())
            .env("APT_CONFIG", self.dir.join("apt.conf"))
            .env("LC_ALL", "C")
            .env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    fn plan(&self, arguments: &[&str]) -> Result<Vec<Archive>, LabError> {
        // apt leaves out files already downloaded; the plan must have all.
        let empty = self.dir.join("empty");
        let output = self
            .command("apt-get", arguments)
            .arg(format!("-oDir::Cache::archives={}", empty.display()))
            .current_dir(&empty)
            .stdin(Stdio::null())
            .output()
            .map_err(no_apt("apt-get"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let plan: Vec<Archive> = text.lines().filter_map(parse_uri_line).collect();
        if output.status.success() && !plan.is_empty() {
            return Ok(plan);
        }
        let words = [&output.stdout[..], &output.stderr[..]].concat();
        fs::write(self.log(), &words).doing("write", &self.log())?;
        Err(self.failure("choosing the packages"))
    }

    /// Runs apt, and retries it on failure, as networks can fail.
    fn insist(
        &self,
        step: &'static str,
        arguments: &[&str],
        mut progress: impl FnMut() -> u64,
    ) -> Result<(), LabError> {
        for attempt in 1..=ATTEMPTS {
            let mut command = self.command("apt-get", arguments);
            let status = run_logged(&mut command, step, &self.log(), QUIET, &mut progress)?;
            if status.map_err(no_apt("apt-get"))?.success() {
                return Ok(());
            }
            if attempt < ATTEMPTS {
                say(&format!("{step} failed, trying again"));
                thread::sleep(Duration::from_secs(u64::from(2 * attempt)));
            }
        }
        Err(self.failure(step))
    }

    fn failure(&self, step: &'static str) -> LabError {
        LabError::Apt { step, mirror: self.mirror.uri.clone(), log: self.log(), tail: tail(&self.log(), 12) }
    }
}

/// The error if a program cannot be started.
pub(super) fn no_apt(program: &'static str) -> impl Fn(io::Error) -> LabError {
    move |source| LabError::NoApt { program, source }
}

/// This machine's network settings of apt (proxies, certificates, date checks), as configuration lines.
fn network_settings() -> Result<String, LabError> {
    const KEPT: [&str; 5] =
        ["Acquire::http::", "Acquire::https::", "Acquire::socks::", "Acquire::Check-", "Acquire::Force"];
    let output = Command::new("apt-config").arg("dump").stdin(Stdio::null()).output().map_err(no_apt("apt-config"))?;
    let kept = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| KEPT.iter().any(|prefix| line.starts_with(prefix)))
        .map(|line| format!("{line}\n"))
        .collect();
    Ok(kept)
}

/// Reads a line of `--print-uris`: `'URI' file size hash`.
fn parse_uri_line(line: &str) -> Option<Archive> {
    let mut words = line.split_whitespace();
    words.next().filter(|uri| uri.starts_with('\''))?;
    Some(Archive { file_name: words.next()?.to_owned(), size: words.next()?.parse().ok()? })
}

/// The size of the files directly in a folder.
fn folder_size(dir: &Path) -> u64 {
    fs::read_dir(dir).map_or(0, |entries| {
        entries
            .flatten()
            .filter_map(|entry| entry.metadata().ok())
            .filter(|file| file.is_file())
            .map(|file| file.len())
            .sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_package_is_named_with_its_architecture() {
        let package = |file_name: &str| Archive { file_name: file_name.into(), size: 0 }.package();
        assert_eq!(package("libc6_2.41-12_amd64.deb"), "libc6");
        assert_eq!(package("linux-headers-7.3.4+deb13-common_7.3.4-1_all.deb"), "linux-headers-7.3.4+deb13-common");
        assert_eq!(package("libc6_2.41-12_arm64.deb"), "libc6:arm64");
    }

    #[test]
    fn reads_uris() {
        let line = "'http://a.example/p/strace_6.13%2bds-1_amd64.deb' strace_6.13+ds-1_amd64.deb 1422560 MD5Sum:57c1";
        assert_eq!(
            parse_uri_line(line),
            Some(Archive { file_name: "strace_6.13+ds-1_amd64.deb".into(), size: 1_422_560 })
        );
        assert_eq!(parse_uri_line("Reading package lists..."), None);
    }
}
