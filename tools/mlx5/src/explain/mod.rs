//! `mlx5 explain`: the meaning of an error, its usual causes, and what to check.

mod command;
mod cqe;
mod eqe;
mod health;
mod recognise;
mod report;

mod status;
mod syndromes;
mod wqe;

use std::io::Read;
use std::path::Path;

use mlx5_prm::cmd::CmdStatus;
use mlx5_tools::{kernel_log, named};

use crate::caps::set::CapSet;
use crate::output::{Failure, print, print_json};
use command::Printed;
use recognise::{Kind, Sighting, recognise};
use report::Report;
use wqe::Service;

/// What to explain.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// `cqe`, `eqe`, `wqe`, `health` or `command` and hex; `status`, `wc`, `syndrome` or `vendor` and a number or name;
    /// or output of a kernel, DPDK, UCX, NCCL, libmlx5 or this driver; or a file with any of these, also after a kind.
    /// Without arguments, or with `-`, standard input.
    #[arg(allow_hyphen_values = true)]
    words: Vec<String>,
    /// Check command inputs against this card: a device, a profile (connectx5, connectx6dx, connectx7) or a file
    /// written by `mlx5 caps --json`.
    #[arg(long, value_name = "DEVICE|PROFILE|FILE")]
    caps: Option<String>,
    /// Service of the WQE's queue, which determines the segments after the control segment.
    #[arg(long, value_enum, default_value_t)]
    service: Service,
    /// Also explain commands of a log that succeeded.
    #[arg(long)]
    all: bool,
}

/// Context of an explanation.
#[derive(Debug, Clone, Copy, Default)]
struct Known<'a> {
    caps: Option<&'a CapSet>,
    service: Service,
    /// Also explain commands that succeeded.
    all: bool,
}

/// Explains the arguments.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let caps = arguments.caps.as_deref().map(CapSet::load).transpose()?;
    let known = Known { caps: caps.as_ref(), service: arguments.service, all: arguments.all };
    let reports = reports(&arguments.words, known)?;
    if json {
        return print_json(&serde_json::json!({ "explained": reports }));
    }
    print(&reports.iter().map(Report::to_string).collect::<Vec<_>>().join("\n"))
}

fn reports(words: &[String], known: Known<'_>) -> Result<Vec<Report>, Failure> {
    if let [kind, rest @ ..] = words
        && let Some((_, explain)) = NAMED.iter().find(|(name, _)| name == kind).filter(|_| !rest.is_empty())
    {
        return explain(&given(rest)?, known);
    }
    of_text(&given(words)?, known)
}

/// The text to explain: standard input, a file, or the words.
fn given(words: &[String]) -> Result<String, Failure> {
    match words {
        [] => input(),
        [one] if one == "-" => input(),
        [one] if Path::new(one).is_file() => read(Path::new(one)),
        words => Ok(words.join(" ")),
    }
}

fn input() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    std::io::stdin().read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read(path: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Explains input of a given kind.
type Named = fn(&str, Known<'_>) -> Result<Vec<Report>, Failure>;

const NAMED: [(&str, Named); 9] = [
    ("cqe", |text, known| of_hex(Kind::Cqe, text, known)),
    ("eqe", |text, known| of_hex(Kind::Eqe, text, known)),
    ("wqe", |text, known| of_hex(Kind::Wqe, text, known)),
    ("health", |text, known| of_hex(Kind::Health, text, known)),
    ("command", of_commands),
    ("status", |text, _| Ok(vec![of_status(text)?])),
    ("wc", |text, _| Ok(vec![of_wc(text)?])),
    ("syndrome", |text, _| {
        Ok(vec![status::explain(&status::Refused { syndrome: number(text)?, ..Default::default() })])
    }),
    ("vendor", |text, _| Ok(vec![cqe::explain(&cqe::Failed { vendor: Some(number(text)?), ..Default::default() })])),
];

/// The commands in a kernel log: those that failed, or all. Or one command from hex.
fn of_commands(text: &str, known: Known<'_>) -> Result<Vec<Report>, Failure> {
    let logged = kernel_log::commands(text);
    if logged.is_empty() {
        return of_hex(Kind::Command, text, known);
    }
    let of_log = logged.iter().filter(|one| known.all || !matches!(one.outcome, kernel_log::Outcome::Ok));
    let reports: Vec<Report> = of_log.filter_map(|one| command::of_printed(&Printed::of(one), known.caps)).collect();
    if reports.is_empty() { Err(all_done().into()) } else { Ok(reports) }
}

fn all_done() -> &'static str {
    "all commands in it succeeded; `--all` explains them anyway, `mlx5 decode` shows them"
}

fn of_hex(kind: Kind, text: &str, known: Known<'_>) -> Result<Vec<Report>, Failure> {
    Ok(vec![of_bytes(kind, &named::bytes(text)?, known)?])
}

fn of_text(text: &str, known: Known<'_>) -> Result<Vec<Report>, Failure> {
    let mut reports = Vec::new();
    for sighting in recognise(text, known.all) {
        let report = of_sighting(sighting, known)?;
        if !reports.contains(&report) {
            reports.push(report);
        }
    }
    if reports.is_empty() && !kernel_log::commands(text).is_empty() {
        return Err(all_done().into());
    }
    if reports.is_empty() {
        let kinds = NAMED.map(|(name, _)| name).join(", ");
        return Err(
            format!("nothing recognised; name the kind: `mlx5 explain KIND ...` with KIND one of {kinds}").into()
        );
    }
    Ok(reports)
}

fn of_sighting(sighting: Sighting, known: Known<'_>) -> Result<Report, Failure> {
    Ok(match sighting {
        Sighting::Refused(refused) => status::explain(&refused),
        Sighting::Timeout { command, opcode, words } => status::timeout(&command, opcode, &words),
        Sighting::Failed(failed) => cqe::explain(&failed),
        Sighting::Wc { status, vendor } => cqe::of_wc(status, vendor),
        Sighting::Bytes(kind, bytes) => of_bytes(kind, &bytes, known)?,
        Sighting::Command(printed) => {
            command::of_printed(&printed, known.caps).ok_or("too little of a command was printed")?
        }
        Sighting::Health(printed) => health::explain(&printed),
        Sighting::Words(words) => health::of_words(&words).ok_or("a line that was recognised but not understood")?,
    })
}

fn of_bytes(kind: Kind, bytes: &[u8], known: Known<'_>) -> Result<Report, Failure> {
    let (report, wanted) = match kind {
        Kind::Cqe => (cqe::of_bytes(bytes), "a CQE has 64 or 128 bytes"),
        Kind::Eqe => (eqe::event(bytes), "an EQE has 64 bytes"),
        Kind::Wqe => (wqe::explain(bytes, known.service), "a send WQE has at least 16 bytes, its control segment"),
        Kind::Health => (health::of_bytes(bytes), "a health buffer has 64 bytes"),
        Kind::Command => (command::of_bytes(bytes, known.caps), "a command's input has at least 16 bytes"),
    };
    report.ok_or_else(|| format!("{} bytes are too few: {wanted}", bytes.len()).into())
}

fn of_status(text: &str) -> Result<Report, Failure> {
    let mut words = text.split_whitespace();
    if let Ok(status) = number(words.next().unwrap_or_default()) {
        let status = status::Refused { status: Some(status), ..Default::default() };
        return Ok(match words.next() {
            Some(syndrome) => status::explain(&status::Refused { syndrome: number(syndrome)?, ..status }),
            None => status::of_status(CmdStatus::from_number(status.status.unwrap_or_default())),
        });
    }
    let named = CmdStatus::ALL.iter().find(|status| status.to_string().eq_ignore_ascii_case(text));
    let named = named.or_else(|| KERNEL_STATUS.iter().find(|(words, _)| *words == text).map(|(_, status)| status));
    named.map(|status| status::of_status(*status)).ok_or_else(|| {
        let known: Vec<String> = CmdStatus::ALL.iter().map(CmdStatus::to_string).collect();
        format!("{text:?} is not a command status; known are {}", known.join(", ")).into()
    })
}

/// The text of mlx5_core for each status.
const KERNEL_STATUS: [(&str, CmdStatus); 17] = [
    ("OK", CmdStatus::Ok),
    ("internal error", CmdStatus::InternalError),
    ("bad operation", CmdStatus::BadOpcode),
    ("bad parameter", CmdStatus::BadParameter),
    ("bad system state", CmdStatus::BadSystemState),
    ("bad resource", CmdStatus::BadResource),
    ("resource busy", CmdStatus::ResourceBusy),
    ("FW not ready", CmdStatus::NotReady),
    ("limits exceeded", CmdStatus::ExceedsLimit),
    ("bad resource state", CmdStatus::BadResourceState),
    ("bad index", CmdStatus::BadIndex),
    ("no resources", CmdStatus::NoResources),
    ("bad input length", CmdStatus::BadInputLength),
    ("bad output length", CmdStatus::BadOutputLength),
    ("bad QP state", CmdStatus::BadQpState),
    ("bad packet (discarded)", CmdStatus::BadPacket),
    ("bad size too many outstanding CQEs", CmdStatus::BadSize),
];

fn of_wc(text: &str) -> Result<Report, Failure> {
    let status = number(text).ok().or_else(|| cqe::wc_by_words(text));
    let status =
        status.ok_or_else(|| format!("{text:?} is not an ibv_wc_status, such as 12 or IBV_WC_RETRY_EXC_ERR"))?;
    Ok(cqe::of_wc(status, None))
}

/// Parses a number, decimal or with 0x.
fn number(text: &str) -> Result<u32, Failure> {
    let text = text.trim();
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is not a number; write 12 or 0xc").into())
}

#[cfg(test)]
mod tests;
