//! All capability pages of a card, by PRM names: queried from a card, saved to a file, loaded again.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;

use mlx5_dv::{CapPage, CommandErrorKind, Device};
use mlx5_open::board;
use mlx5_prm::cmd::QueryHcaCapIn;
use mlx5_prm::decode::{Found, all_uncovered, walk};
use mlx5_prm::layout::Info;
use mlx5_prm::limits::Card;
use mlx5_sim::profile::Profile;
use serde::{Deserialize, Serialize};

use crate::output::Failure;

/// Format of saved files; changes only if older versions of this program could not read new files.
const FORMAT: &str = "mlx5-caps-1";

/// Every capability page of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapSet {
    /// The device string, also of a saved file.
    pub device: String,
    /// Firmware version.
    pub firmware: String,
    /// Whether it is the software card: its capabilities are the model's, not a card's.
    pub software: bool,
    /// The pages of the card, in the order of their numbers.
    pub pages: Vec<Page>,
    /// Pages that the card refused, with its answer.
    pub absent: BTreeMap<String, String>,
}

/// One page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// PRM name in lower case: `general`.
    pub name: String,
    /// Its capabilities, in the PRM's order.
    pub capabilities: Vec<Capability>,
}

/// One capability, with at least one of its two values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capability {
    /// PRM name; inside nested layouts `outer.inner`.
    pub name: String,
    /// Maximum and current value.
    pub value: Both,
}

/// Maximum and current value of a capability.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Both {
    /// Maximum.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max: Option<u64>,
    /// Current.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub current: Option<u64>,
}

impl Both {
    /// The current value if known, else the maximum.
    pub fn effective(self) -> Option<u64> {
        self.current.or(self.max)
    }
}

/// The saved form: maps of names to numbers.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    format: String,
    device: String,
    firmware: String,
    #[serde(default)]
    software_card: bool,
    pages: BTreeMap<String, BTreeMap<String, Both>>,
    #[serde(default)]
    absent: BTreeMap<String, String>,
}

impl Serialize for CapSet {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let page = |page: &Page| {
            let all = page.capabilities.iter().map(|one| (one.name.clone(), one.value)).collect();
            (page.name.clone(), all)
        };
        Saved {
            format: FORMAT.into(),
            device: self.device.clone(),
            firmware: self.firmware.clone(),
            software_card: self.software,
            pages: self.pages.iter().map(page).collect(),
            absent: self.absent.clone(),
        }
        .serialize(to)
    }
}

impl CapSet {
    /// Whose limits these are, for texts.
    pub fn owner(&self) -> String {
        match self.software {
            true => format!("the software card {} (a model: a real card's limits differ)", self.device),
            false => self.device.clone(),
        }
    }

    /// Loads `source`: a file written by `mlx5 caps --json`, a profile of the software card, or a device string.
    pub fn load(source: &str) -> Result<Self, Failure> {
        if Path::new(source).is_file() {
            let text = std::fs::read_to_string(source).map_err(|error| format!("cannot read {source}: {error}"))?;
            return Self::from_json(&text).map_err(|error| format!("{source}: {error}").into());
        }
        if Path::new(source).is_dir() {
            return Err(format!("{source} is a directory; give a file that `mlx5 caps --json` wrote").into());
        }
        // No device string has a slash before its kind.
        let is_path = source.split(':').next().is_some_and(|start| start.contains('/')) && !Path::new(source).exists();
        if source.ends_with(".json") || is_path {
            return Err(format!("no file {source}; `mlx5 caps --json > {source}` writes one").into());
        }
        match Profile::NAMES.contains(&source) {
            true => Self::of_device(&format!("sim:{source}")),
            false => Self::of_device(source),
        }
    }

    fn of_device(name: &str) -> Result<Self, Failure> {
        Self::query(&*mlx5_open::open(name)?, name)
    }

    /// Queries every page of the PRM. A page that the card refuses is absent.
    pub fn query(device: &Device, name: &str) -> Result<Self, Failure> {
        let (major, minor, sub) = device.caps().fw_version;
        let firmware = format!("{major}.{minor}.{sub:04}");
        let software = board::id(device).is_some_and(|id| board::is_software(&id));
        let mut set = CapSet { device: name.into(), firmware, software, pages: Vec::new(), absent: BTreeMap::new() };
        for &page in CapPage::ALL {
            match (query(device, page, false)?, query(device, page, true)?) {
                (Ok(max), Ok(current)) => {
                    let capabilities = capabilities(page.layout(), &max, &current);
                    set.pages.push(Page { name: page_name(page), capabilities });
                }
                (Err(refusal), _) | (_, Err(refusal)) => {
                    set.absent.insert(page_name(page), refusal);
                }
            }
        }
        Ok(set)
    }

    fn from_json(text: &str) -> Result<Self, Failure> {
        let saved: Saved = serde_json::from_str(text)
            .map_err(|error| format!("not a capability file ({error}); `mlx5 caps --json` writes them"))?;
        if saved.format != FORMAT {
            return Err(format!("its format is {:?}; this program reads {FORMAT:?}", saved.format).into());
        }
        let mut pages: Vec<Page> = saved.pages.into_iter().map(|(name, all)| in_order(name, all)).collect();
        pages.sort_by_key(|page| page_by_name(&page.name).map_or(u32::MAX, CapPage::number));
        // Files of earlier versions name the software card by its device string alone.
        let software = saved.software_card || saved.device == "sim" || saved.device.starts_with("sim:");
        Ok(CapSet { device: saved.device, firmware: saved.firmware, software, pages, absent: saved.absent })
    }

    /// The page `name`.
    pub fn page(&self, name: &str) -> Option<&Page> {
        self.pages.iter().find(|page| page.name == name)
    }

    /// A capability's values.
    pub fn value(&self, page: CapPage, capability: &str) -> Option<Both> {
        self.page(&page_name(page))?.value(capability)
    }
}

/// Capabilities of an absent page count as 0.
impl Card for CapSet {
    fn current(&self, page: CapPage, name: &str) -> Option<u64> {
        match self.value(page, name) {
            Some(value) => value.effective(),
            None => self.absent.contains_key(&page_name(page)).then_some(0),
        }
    }

    fn max(&self, page: CapPage, name: &str) -> Option<u64> {
        match self.value(page, name) {
            Some(value) => value.max,
            None => self.absent.contains_key(&page_name(page)).then_some(0),
        }
    }
}

impl Page {
    /// The values of the capability `name`.
    pub fn value(&self, name: &str) -> Option<Both> {
        self.capabilities.iter().find(|one| one.name == name).map(|one| one.value)
    }
}

/// PRM name of a page in lower case.
pub fn page_name(page: CapPage) -> String {
    page.to_string().to_ascii_lowercase()
}

/// The page `name`.
pub fn page_by_name(name: &str) -> Option<CapPage> {
    CapPage::ALL.iter().copied().find(|page| page_name(*page) == name)
}

/// The bytes of a page, or firmware's reason to refuse it. Any other error is a failure.
fn query(device: &Device, page: CapPage, current: bool) -> Result<Result<Vec<u8>, String>, Failure> {
    let mut query = QueryHcaCapIn::default();
    query.w().op_mod(page.op_mod(current));
    match device.execute(&query, &format!("{page} page")) {
        Ok(output) => Ok(Ok(output.capability().to_vec())),
        Err(error) => match error.kind {
            CommandErrorKind::Status { status, syndrome, .. } => {
                Ok(Err(format!("QUERY_HCA_CAP: status {status} ({:#x}), syndrome {syndrome:#x}", status.number())))
            }
            _ => Err(error.into()),
        },
    }
}

fn capabilities(info: Option<&Info>, max: &[u8], current: &[u8]) -> Vec<Capability> {
    let mut all: Vec<Capability> = match info {
        Some(info) => {
            let both = numbers(info, max).into_iter().zip(numbers(info, current));
            both.map(|((name, max), (_, current))| capability(name, max, current)).collect()
        }
        None => Vec::new(),
    };
    let (max, current) = (unnamed(info, max), unnamed(info, current));
    let places: std::collections::BTreeSet<usize> = max.keys().chain(current.keys()).copied().collect();
    let value = |bits: &BTreeMap<usize, u64>, at| bits.get(&at).copied().unwrap_or(0);
    all.extend(
        places.into_iter().map(|at| capability(format!("unnamed_{at:#05x}"), value(&max, at), value(&current, at))),
    );
    all
}

fn capability(name: String, max: u64, current: u64) -> Capability {
    Capability { name, value: Both { max: Some(max), current: Some(current) } }
}

/// Every number of a page in the PRM's order; nested names are `outer.inner`.
fn numbers(info: &Info, bytes: &[u8]) -> Vec<(String, u64)> {
    let mut path: Vec<String> = Vec::new();
    let mut numbers = Vec::new();
    let _: Result<(), Infallible> = walk(info, bytes, &mut |found: Found<'_>| {
        path.truncate(found.depth);
        let name = match found.index {
            Some(index) => format!("{}[{index}]", found.field.name),
            None => found.field.name.to_owned(),
        };
        path.push(name);
        if let Some(number) = found.number {
            numbers.push((path.join("."), number));
        }
        Ok(())
    });
    numbers
}

/// Set bits that no field covers, by dword: newer firmware may announce capabilities unknown to this program.
fn unnamed(info: Option<&Info>, bytes: &[u8]) -> BTreeMap<usize, u64> {
    let end = info.map_or(0, |info| info.size.min(bytes.len()));
    let inside = info.into_iter().flat_map(|info| all_uncovered(info, bytes)).map(|at| (at.offset, u64::from(at.bits)));
    let after = bytes[end..].chunks_exact(4).enumerate().map(|(i, dword)| {
        let number = dword.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        (end + i * 4, number)
    });
    inside.chain(after).filter(|(_, bits)| *bits != 0).collect()
}

/// Sorts a page's capabilities into the PRM's order.
fn in_order(name: String, all: BTreeMap<String, Both>) -> Page {
    let mut capabilities: Vec<Capability> = all.into_iter().map(|(name, value)| Capability { name, value }).collect();
    if let Some(info) = page_by_name(&name).and_then(CapPage::layout) {
        let names = numbers(info, &vec![0; info.size]);
        let place: BTreeMap<&str, usize> =
            names.iter().enumerate().map(|(at, (name, _))| (name.as_str(), at)).collect();
        capabilities.sort_by_key(|one| place.get(one.name.as_str()).copied().unwrap_or(usize::MAX));
    }
    Page { name, capabilities }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use mlx5_prm::caps::CmdHcaCap;
    use mlx5_prm::layout::Layout;

    /// A card with one page, of these capabilities.
    pub(crate) fn card(device: &str, max: &CmdHcaCap, current: &CmdHcaCap) -> CapSet {
        let capabilities = capabilities(Some(&CmdHcaCap::INFO), max.as_bytes(), current.as_bytes());
        let pages = vec![Page { name: "general".into(), capabilities }];
        CapSet {
            device: device.into(),
            firmware: "16.35.4030".into(),
            software: device == "sim",
            pages,
            absent: BTreeMap::new(),
        }
    }

    #[test]
    fn a_saved_card_is_read_back_as_it_was() {
        let (mut max, mut current) = (CmdHcaCap::default(), CmdHcaCap::default());
        let _ = max.w().log_max_qp(18).roce(true);
        let _ = current.w().log_max_qp(17);
        let mut card = card("sim", &max, &current);
        card.absent.insert("tls".into(), "refused".into());
        let text = serde_json::to_string(&card).expect("JSON");
        assert_eq!(CapSet::from_json(&text).expect("the file"), card);
    }

    #[test]
    fn bits_without_a_name_are_capabilities_too() {
        let mut bytes = vec![0; 4096];
        bytes[4095] = 3;
        let found = capabilities(Some(&CmdHcaCap::INFO), &bytes, &[0; 4096]);
        let unnamed = found.iter().find(|one| one.name == "unnamed_0xffc").expect("the bits");
        assert_eq!(unnamed.value, Both { max: Some(3), current: Some(0) });
        let found = capabilities(None, &bytes, &bytes);
        assert_eq!(found.len(), 1, "a page without a layout is shown by its dwords");
    }

    #[test]
    fn files_that_are_none_are_refused_with_what_writes_one() {
        for text in ["", "{}", "[1]", r#"{"format":"x","device":"","firmware":"","pages":{}}"#] {
            let error = CapSet::from_json(text).expect_err("refused").to_string();
            assert!(error.contains("mlx5"), "{error}");
        }
    }

    #[test]
    fn the_software_card_says_which_pages_it_has_not_got() {
        let set = CapSet::load("connectx5").expect("the software card");
        assert_eq!(set.pages.len() + set.absent.len(), CapPage::ALL.len());
        assert!(set.page("general").is_some_and(|page| page.value("log_max_qp").is_some()));
        assert!(set.absent.values().all(|reason| reason.contains("status")));
    }
}
