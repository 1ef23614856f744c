//! The initramfs: busybox, the modules needed to mount the root file system, and the script that mounts it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, ModeFileType, trailer};

use super::error::GuestError;
use crate::error::{IoContext, LabError};
use crate::lab::Lab;

const INIT: &str = include_str!("init.sh");
/// Modules of Debian's kernel needed for the root file system; others are loaded from there.
pub(super) const MODULES: &[&str] = &["9pnet_virtio", "9p", "overlay"];

/// Writes an initramfs to `path` that loads `modules`. `mounts` has a line `tag mode path` for each shared folder.
pub(super) fn write(lab: &Lab, modules: &[&str], mounts: &str, path: &Path) -> Result<(), GuestError> {
    let order = load_order(&lab.modules(), modules)?;
    let mut files = Vec::new();
    let mut names = String::new();
    for file in &order {
        let name = file.rsplit('/').next().unwrap_or(file);
        names.push_str(&format!("{name}\n"));
        files.push((format!("modules/{name}"), read(&lab.modules().join(file))?));
    }
    let busybox = read(&lab.root().join("usr/bin/busybox"))?;

    let file = File::create(path).doing("create", path)?;
    let mut archive = Archive::new(BufWriter::new(file));
    let written = (|| {
        for dir in ["bin", "dev", "lower", "modules", "new", "proc", "sys", "upper"] {
            archive.dir(dir)?;
        }
        archive.file("bin/busybox", 0o755, &busybox)?;
        archive.file("init", 0o755, INIT.as_bytes())?;
        archive.file("mounts", 0o644, mounts.as_bytes())?;
        archive.file("modules.order", 0o644, names.as_bytes())?;
        for (name, content) in &files {
            archive.file(name, 0o644, content)?;
        }
        archive.finish()
    })();
    Ok(written.doing("write", path)?)
}

fn read(path: &Path) -> Result<Vec<u8>, LabError> {
    fs::read(path).doing("read", path)
}

/// An archive being written. Each file gets its own inode number.
struct Archive<W: Write> {
    to: W,
    inode: u32,
}

impl<W: Write> Archive<W> {
    fn new(to: W) -> Self {
        Self { to, inode: 0 }
    }

    fn dir(&mut self, name: &str) -> io::Result<()> {
        let entry = Builder::new(name).mode(0o755).set_mode_file_type(ModeFileType::Directory);
        self.entry(entry, &[])
    }

    fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let entry = Builder::new(name).mode(mode).set_mode_file_type(ModeFileType::Regular);
        self.entry(entry, content)
    }

    fn entry(&mut self, entry: Builder, content: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let length = u32::try_from(content.len()).map_err(io::Error::other)?;
        let mut writer = entry.ino(self.inode).write(&mut self.to, length);
        writer.write_all(content)?;
        writer.finish()?;
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        trailer(&mut self.to)?;
        self.to.flush()
    }
}

/// The module files for `wanted`, each after its dependencies.
fn load_order(modules: &Path, wanted: &[&str]) -> Result<Vec<String>, LabError> {
    let path: PathBuf = modules.join("modules.dep");
    let text = fs::read_to_string(&path).doing("read", &path)?;
    order_of(&text, wanted).map_err(|missing| LabError::Missing { what: format!("kernel module {missing}") })
}

fn order_of(modules_dep: &str, wanted: &[&str]) -> Result<Vec<String>, String> {
    let lines: HashMap<String, (&str, &str)> = modules_dep
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(file, needs)| (module_name(file), (file, needs)))
        .collect();
    let mut order: Vec<String> = Vec::new();
    for &name in wanted {
        let (file, needs) = lines.get(name).ok_or_else(|| name.to_owned())?;
        // depmod lists all dependencies, the most distant last.
        for file in needs.split_whitespace().rev().chain([*file]) {
            if !order.iter().any(|known| known == file) {
                order.push(file.to_owned());
            }
        }
    }
    Ok(order)
}

/// `kernel/fs/9p/9p.ko.xz` is the module `9p`.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/fs/netfs/netfs.ko.xz:\n\
                       kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
                       kernel/net/9p/9pnet.ko.xz:\n\
                       kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz\n";

    #[test]
    fn loads_what_is_needed_first() {
        let order = order_of(DEP, &["9pnet_virtio", "9p"]).unwrap();
        let names: Vec<_> = order.iter().map(|file| module_name(file)).collect();
        assert_eq!(names, ["9pnet", "9pnet_virtio", "netfs", "9p"]);
        assert_eq!(order_of(DEP, &["overlay"]), Err("overlay".to_owned()));
    }

    #[test]
    fn an_archive_reads_back() {
        let mut bytes = Vec::new();
        let mut archive = Archive::new(&mut bytes);
        archive.dir("bin").unwrap();
        archive.file("init", 0o755, b"hello").unwrap();
        archive.finish().unwrap();
        let reader = cpio::newc::Reader::new(&bytes[..]).unwrap();
        assert_eq!(reader.entry().name(), "bin");
        let reader = cpio::newc::Reader::new(reader.finish().unwrap()).unwrap();
        assert_eq!(reader.entry().name(), "init");
        assert_eq!(reader.entry().file_size(), 5);
    }
}
