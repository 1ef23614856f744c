//! Finds the Debian mirror that this machine's apt uses.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::LabError;

/// The Debian release of the guests.
pub(super) const SUITE: &str = "trixie";

/// The keyring with the keys of every Debian release.
const DEBIAN_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An archive in apt's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mirror {
    pub(super) uri: String,
    suites: Vec<String>,
    components: Vec<String>,
    /// Lines of a deb822 entry that configure trust, copied from the machine's configuration.
    trust: Vec<String>,
}

impl Mirror {
    /// The mirror to use: the one that the user names, otherwise the machine's.
    pub(super) fn find() -> Result<Self, LabError> {
        let machines = of_machine(Path::new("/etc/apt"));
        match std::env::var("MLX5_LAB_MIRROR") {
            Ok(uri) => Ok(Self { uri, ..machines.unwrap_or_default() }),
            Err(_) => machines.ok_or(LabError::NoMirror { suite: SUITE }),
        }
    }

    /// The entry for our own sources list: for packages, or for `sources`.
    pub(super) fn entry(&self, sources: bool) -> String {
        let (kind, uri) = (if sources { "deb-src" } else { "deb" }, &self.uri);
        let mut text = format!("Types: {kind}\nURIs: {uri}\nSuites: {SUITE} {SUITE}-backports\nComponents: main\n");
        // A machine may trust only the key of its own release.
        let custom = self.trust.iter().any(|line| !line.contains("debian-archive"));
        if custom || !Path::new(DEBIAN_KEYRING).exists() {
            for line in &self.trust {
                text.push_str(line);
                text.push('\n');
            }
        } else {
            text.push_str(&format!("Signed-By: {DEBIAN_KEYRING}\n"));
        }
        text
    }

    /// Whether this is a Debian archive: not security updates, which are elsewhere, and no third-party packages.
    fn is_debian_archive(&self) -> bool {
        const RELEASES: [&str; 10] =
            ["stable", "oldstable", "testing", "unstable", "sid", "bullseye", "bookworm", SUITE, "forky", "duke"];
        let release = |suite: &String| RELEASES.contains(&suite.as_str());
        self.suites.iter().any(release) && self.components.iter().any(|name| name == "main")
    }
}

/// The first Debian archive in an apt folder.
fn of_machine(etc_apt: &Path) -> Option<Mirror> {
    let mut files: Vec<PathBuf> = fs::read_dir(etc_apt.join("sources.list.d"))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    files.insert(0, etc_apt.join("sources.list"));
    files
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("list") => parse_list(&text),
                Some("sources") => parse_deb822(&text),
                _ => Vec::new(),
            }
        })
        .find(Mirror::is_debian_archive)
}

/// Reads the one-line format.
fn parse_list(text: &str) -> Vec<Mirror> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Mirror> {
    let line = line.split('#').next()?.trim();
    let mut rest = line.strip_prefix("deb ")?.trim();
    let mut trust = Vec::new();
    if let Some(after) = rest.strip_prefix('[') {
        let (options, after) = after.split_once(']')?;
        rest = after.trim();
        for option in options.split_whitespace() {
            match option.split_once('=') {
                Some(("signed-by", value)) => trust.push(format!("Signed-By: {value}")),
                Some(("trusted", value)) => trust.push(format!("Trusted: {value}")),
                _ => {}
            }
        }
    }
    let mut words = rest.split_whitespace().map(str::to_owned);
    Some(Mirror { uri: words.next()?, suites: vec![words.next()?], components: words.collect(), trust })
}

/// Reads the deb822 format.
fn parse_deb822(text: &str) -> Vec<Mirror> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    lines.split(|line| line.trim().is_empty()).filter_map(parse_stanza).collect()
}

fn parse_stanza(lines: &[&str]) -> Option<Mirror> {
    let mut mirror = Mirror::default();
    let mut enabled = true;
    let mut binary = false;
    let mut field = String::new();
    for line in lines {
        let continued = line.starts_with([' ', '\t']);
        let value = if continued {
            line
        } else {
            let (name, value) = line.split_once(':')?;
            field = name.to_ascii_lowercase();
            value
        };
        let words = || value.split_whitespace().map(str::to_owned);
        match field.as_str() {
            "types" => binary |= words().any(|word| word == "deb"),
            "uris" if mirror.uri.is_empty() => mirror.uri = words().next().unwrap_or_default(),
            "suites" => mirror.suites.extend(words()),
            "components" => mirror.components.extend(words()),
            "enabled" => enabled = value.trim() != "no",
            // A key may be given inline, in several lines.
            "signed-by" | "trusted" => mirror.trust.push((*line).to_owned()),
            _ => {}
        }
    }
    (enabled && binary && !mirror.uri.is_empty()).then_some(mirror)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(mirrors: Vec<Mirror>) -> Option<Mirror> {
        mirrors.into_iter().find(Mirror::is_debian_archive)
    }

    #[test]
    fn reads_one_line_entries() {
        let mirror = first(parse_list(
            "# deb http://no.example/ bookworm main\n\
             deb-src http://src.example/ bookworm main\n\
             deb http://other.example/apt stable-tools main\n\
             deb http://sec.example/ bookworm-security main\n\
             deb [arch=amd64 signed-by=/k.gpg] http://a.example/debian bookworm main contrib # x\n",
        ))
        .unwrap();
        assert_eq!(mirror.uri, "http://a.example/debian");
        assert_eq!(mirror.trust, ["Signed-By: /k.gpg"]);
        assert!(mirror.entry(false).contains("Signed-By: /k.gpg"));
    }

    #[test]
    fn reads_stanzas() {
        let text = "Types: deb\nURIs: http://off.example\nSuites: trixie\nComponents: main\n\
                    Enabled: no\n\nTypes: deb deb-src\n# note\nURIs: http://b.example/debian\n\
                    Suites: bookworm bookworm-updates\nComponents: main\nSigned-By:\n -----BEGIN\n .\n -----END\n";
        let mirror = first(parse_deb822(text)).unwrap();
        assert_eq!(mirror.uri, "http://b.example/debian");
        assert!(mirror.entry(false).ends_with("Signed-By:\n -----BEGIN\n .\n -----END\n"));
    }

    #[test]
    fn asks_for_both_suites_of_the_release() {
        let mirror = Mirror { uri: "http://c.example".into(), ..Mirror::default() };
        assert!(
            mirror.entry(false).starts_with("Types: deb\nURIs: http://c.example\nSuites: trixie trixie-backports\n")
        );
        assert!(mirror.entry(true).starts_with("Types: deb-src\nURIs: http://c.example\n"));
    }

    #[test]
    fn strangers_are_no_mirror() {
        let text = "deb https://vendor.example/apt vendor main\n";
        assert_eq!(first(parse_list(text)), None);
        assert!(of_machine(Path::new("/nonexistent")).is_none());
    }
}
