//! `mlx5 explain`: the meaning of an error, its usual causes, and what to check.

mod command;
mod cqe;
mod eqe;
mod health;
mod host;
mod input;
mod log;
mod position;
mod recognise;
mod report;
mod spans;
mod status;
mod syndromes;
mod wqe;

use mlx5_prm::cmd::CmdStatus;
use mlx5_prm::cqe::CqeSyndrome;
use mlx5_prm::init_seg::HealthSyndrome;
use mlx5_tools::hex::{self, Hex};
use mlx5_tools::kernel_log;

use crate::caps::set::CapSet;
use crate::output::{self, Failure, print, print_json, printable, usage};
use command::Printed;
use recognise::{Kind, Sighting};
use report::Report;
use wqe::Service;

/// What to explain.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    dmesg -w | mlx5 explain                  as it happens\n  \
    mlx5 explain wc 12                       an ibv_wc_status\n  \
    mlx5 explain status 0x8 0x62bbc6         a command's status and syndrome\n  \
    mlx5 explain cqe - < cqe.bin             hex in any dumper's format, or raw bytes\n  \
    mlx5 explain --caps mine.json command dmesg.txt   failed commands against a card's limits")]
pub struct Arguments {
    /// `cqe`, `eqe`, `wqe`, `health` or `command` and hex; `status`, `wc`, `syndrome` or `vendor` and a number or name;
    /// or output of a kernel, DPDK, UCX, NCCL, libmlx5 or this driver; or a file with any of these, also after a kind.
    /// Without arguments, or with `-`, standard input.
    #[arg(allow_negative_numbers = true)]
    words: Vec<String>,
    /// Check command inputs against this card: a device, a profile (connectx5, connectx6dx, connectx7) or a file
    /// written by `mlx5 caps --json`.
    #[arg(long, value_name = "DEVICE|PROFILE|FILE")]
    caps: Option<String>,
    /// Service of the WQE's queue, which determines the segments after the control segment [default: guessed].
    #[arg(long, value_enum)]
    service: Option<Service>,
    /// Also explain commands of a log that succeeded.
    #[arg(long)]
    all: bool,
}

impl Arguments {
    /// Checks that each option says something about what is to be explained.
    fn check(&self) -> Result<(), Failure> {
        let kind = self.words.first().filter(|word| NAMED.iter().any(|named| named.name == **word));
        let Some(kind) = kind else { return Ok(()) };
        let needs = [
            (self.service.is_some(), "--service", "wqe", "how a WQE is read"),
            (self.caps.is_some(), "--caps", "command", "what a command is checked against"),
            (self.all, "--all", "command", "that commands which succeeded are explained, too"),
        ];
        match needs.iter().find(|(given, _, needed, _)| *given && kind != needed) {
            Some((_, option, needed, says)) => {
                Err(usage(format!("{option} says {says}: it needs `{needed}` or a log, not `{kind}`")))
            }
            None => Ok(()),
        }
    }
}

/// Context of an explanation.
#[derive(Debug, Clone, Copy, Default)]
struct Known<'a> {
    caps: Option<&'a CapSet>,
    service: Option<Service>,
    /// Also explain commands that succeeded.
    all: bool,
    /// The words that name or are the input.
    words: &'a [String],
}

/// Explains the arguments.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    arguments.check()?;
    let caps = arguments.caps.as_deref().map(CapSet::load).transpose()?;
    let known = Known { caps: caps.as_ref(), service: arguments.service, all: arguments.all, words: &arguments.words };
    if !json && matches!(&arguments.words[..], [] | [_]) && arguments.words.first().is_none_or(|word| word == "-") {
        return stream(known);
    }
    let reports = reports(&arguments.words, known)?;
    if json {
        return print_json(&serde_json::json!({ "explained": reports }));
    }
    print_reports(&reports)
}

/// Explains standard input as it comes. What comes at once is explained at once; input that ends without a pause is
/// explained as a file is.
fn stream(known: Known<'_>) -> Result<(), Failure> {
    let mut bursts = input::Bursts::of_standard_input();
    let first = bursts.next(false)?;
    if bursts.ended() {
        return print_reports(&of_text(&first, known)?);
    }
    let mut session = log::Session::default();
    let mut unexplained = None;
    let mut burst = first;
    let mut held = String::new();
    loop {
        // A pause, or a log that is long, may cut a dump: its beginning waits for its rest, if that comes soon.
        let is_whole = bursts.ended() || burst.is_empty();
        held.push_str(&input::plain(&String::from_utf8_lossy(&burst)));
        let is_whole = is_whole || held.len() > MOST_HELD;
        let rest = held.split_off(if is_whole { held.len() } else { recognise::unfinished(&held) });
        session.add(&held, known.all, |sighting| of_sighting(sighting, known));
        held = rest;
        print_reports(&session.news())?;
        for (line, failure) in session.unexplained() {
            output::note(&format!("line {line}: {failure}"));
            unexplained.get_or_insert(failure);
        }
        if bursts.ended() {
            break;
        }
        burst = bursts.next(!held.is_empty())?;
    }
    let repeated = session.repeated();
    match unexplained.filter(|_| session.is_empty()) {
        Some(failure) => Err(failure),
        None if session.is_empty() => Err(unrecognised("", known).into()),
        None => print(&printable(&repeated)),
    }
}

/// Bytes of a beginning that are held for its rest: more than the largest command takes in a log.
const MOST_HELD: usize = 16 << 20;

fn print_reports(reports: &[Report]) -> Result<(), Failure> {
    print(&printable(&reports.iter().map(Report::to_string).collect::<Vec<_>>().join("\n")))
}

fn reports(words: &[String], known: Known<'_>) -> Result<Vec<Report>, Failure> {
    if let [kind, rest @ ..] = words
        && let Some(named) = NAMED.iter().find(|named| named.name == kind)
    {
        if rest.is_empty() && !named.takes.is_empty() {
            return Err(usage(format!("`{kind}` needs {}: `mlx5 explain {kind} {}`", named.takes, named.example)));
        }
        return (named.explain)(&input::given(rest)?, Known { words: rest, ..known });
    }
    of_text(&input::given(words)?, known)
}

/// Explains input of a given kind.
struct Named {
    name: &'static str,
    /// What it takes on the command line alone; empty for what may come from standard input.
    takes: &'static str,
    example: &'static str,
    explain: fn(&[u8], Known<'_>) -> Result<Vec<Report>, Failure>,
}

const NAMED: [Named; 9] = [
    of_kind("cqe", |input, known| of_hex(Kind::Cqe, input, known)),
    of_kind("eqe", |input, known| of_hex(Kind::Eqe, input, known)),
    of_kind("wqe", |input, known| of_hex(Kind::Wqe, input, known)),
    of_kind("health", |input, known| of_hex(Kind::Health, input, known)),
    of_kind("command", of_commands),
    Named {
        name: "status",
        takes: "a command status, by number or name",
        example: "BAD_PARAM",
        explain: |input, _| Ok(vec![of_status(&text(input))?]),
    },
    Named {
        name: "wc",
        takes: "an ibv_wc_status, by number or name",
        example: "12",
        explain: |input, _| Ok(vec![of_wc(&text(input))?]),
    },
    Named {
        name: "syndrome",
        takes: "the number of a syndrome",
        example: "0x62bbc6",
        explain: |input, _| Ok(of_syndrome(number(&text(input))?)),
    },
    Named {
        name: "vendor",
        takes: "the vendor syndrome of a completion",
        example: "0x81",
        explain: |input, _| {
            let vendor = of_eight_bits(number(&text(input))?, "a vendor syndrome")?;
            Ok(vec![cqe::explain(&cqe::Failed { vendor: Some(vendor), ..Default::default() })])
        },
    },
];

const fn of_kind(name: &'static str, explain: fn(&[u8], Known<'_>) -> Result<Vec<Report>, Failure>) -> Named {
    Named { name, takes: "", example: "", explain }
}

fn text(input: &[u8]) -> String {
    input::plain(&String::from_utf8_lossy(input)).trim().to_owned()
}

/// Reports on a syndrome without its context. A CQE's has eight bits, as the health buffer's has; a command's is
/// larger than both.
fn of_syndrome(number: u32) -> Vec<Report> {
    let mut reports = Vec::new();
    if number == 0 {
        let meaning = "no error: commands that succeeded, completions and healthy cards have it".into();
        return vec![Report { what: "syndrome 0x0".into(), meaning, ..Report::default() }];
    }
    if CqeSyndrome::from_number(number).prm_name().is_some() {
        reports.push(cqe::explain(&cqe::Failed { syndrome: Some(number), ..Default::default() }));
    }
    if HealthSyndrome::from_number(number).prm_name().is_some() {
        reports.push(health::explain(&health::Printed { synd: Some(number), fields: Vec::new() }));
    }
    if reports.is_empty() {
        reports.push(status::explain(&status::Refused { syndrome: number, ..Default::default() }));
    }
    reports
}

/// The commands in a kernel log: those that failed, or all. Or one command from hex.
fn of_commands(input: &[u8], known: Known<'_>) -> Result<Vec<Report>, Failure> {
    let logged = kernel_log::commands(&text(input));
    if logged.is_empty() {
        return of_hex(Kind::Command, input, known);
    }
    let of_log = logged.iter().filter(|one| known.all || !matches!(one.outcome, kernel_log::Outcome::Ok));
    let reports: Vec<Report> = of_log.filter_map(|one| command::of_printed(&Printed::of(one), known.caps)).collect();
    if reports.is_empty() { Err(all_done().into()) } else { Ok(reports) }
}

fn all_done() -> &'static str {
    "all commands in it succeeded; `--all` explains them anyway, `mlx5 decode` shows them"
}

fn of_hex(kind: Kind, input: &[u8], known: Known<'_>) -> Result<Vec<Report>, Failure> {
    let Hex { bytes, note } = hex::read(input).map_err(|error| match input::missing_file(known.words) {
        Some(missing) => Failure::from(format!("{error}; {missing}")),
        None => error.into(),
    })?;
    let mut report = of_bytes(kind, &bytes, known)?;
    report.fields.extend(note.map(|note| ("bytes", note)));
    Ok(vec![report])
}

fn of_text(input: &[u8], known: Known<'_>) -> Result<Vec<Report>, Failure> {
    let text = text(input);
    let mut session = log::Session::default();
    session.add(&text, known.all, |sighting| of_sighting(sighting, known));
    let unexplained = session.unexplained();
    let mut reports = session.into_reports();
    for (line, failure) in unexplained {
        if reports.is_empty() {
            return Err(failure);
        }
        output::note(&format!("line {line}: {failure}"));
    }
    if reports.is_empty() && !kernel_log::commands(&text).is_empty() {
        return Err(all_done().into());
    }
    if reports.is_empty() {
        reports.extend(of_name(&text).or_else(|| of_bare_hex(input)));
    }
    if reports.is_empty() {
        return Err(unrecognised(&text, known).into());
    }
    Ok(reports)
}

/// Report on the name of a status or syndrome alone.
fn of_name(text: &str) -> Option<Report> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Ok(report) = of_status(text).or_else(|_| of_wc(text)) {
        return Some(report);
    }
    let health = HealthSyndrome::ALL.iter().find(|synd| synd.to_string().eq_ignore_ascii_case(text))?;
    Some(health::explain(&health::Printed { synd: Some(health.number()), fields: Vec::new() }))
}

/// Report on hex without a word about what it is, if it can only be an error CQE.
fn of_bare_hex(input: &[u8]) -> Option<Report> {
    let Hex { bytes, note } = hex::read(input).ok()?;
    let mut report = cqe::of_bytes(&bytes).filter(|_| matches!(bytes.last().map(|last| last >> 4), Some(0xd | 0xe)))?;
    report.fields.extend(note.map(|note| ("bytes", note)));
    Some(report)
}

fn unrecognised(text: &str, known: Known<'_>) -> String {
    let kinds = NAMED.map(|named| named.name).join(", ");
    let found = match (hex::read_text(text), input::missing_file(known.words)) {
        (Ok(hex), _) => format!("{} bytes of hex, which could be anything", hex.bytes.len()),
        (_, Some(missing)) => format!("nothing recognised; {missing}"),
        (_, None) => "nothing recognised".to_owned(),
    };
    format!("{found}; name the kind: `mlx5 explain KIND ...` with KIND one of {kinds}")
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
        Kind::Eqe => (eqe::event(bytes).filter(|_| bytes.len() == 64), "an EQE has 64 bytes"),
        Kind::Wqe => (wqe::explain_as(bytes, known.service), "a send WQE has at least 16 bytes, its control segment"),
        Kind::Health => (health::of_bytes(bytes).filter(|_| bytes.len() == 64), "a health buffer has 64 bytes"),
        Kind::Command => (command::of_bytes(bytes, known.caps), "a command's input has at least 16 bytes"),
    };
    report.ok_or_else(|| format!("{wanted}, the input has {}", bytes.len()).into())
}

fn of_status(text: &str) -> Result<Report, Failure> {
    let mut words = text.split_whitespace();
    if let Ok(status) = number(words.next().unwrap_or_default()) {
        let status = of_eight_bits(status, "a command status")?;
        let status = status::Refused { status: Some(status), ..Default::default() };
        return Ok(match words.next() {
            Some(syndrome) => status::explain(&status::Refused { syndrome: number(syndrome)?, ..status }),
            None => status::of_status(CmdStatus::from_number(status.status.unwrap_or_default())),
        });
    }
    if let Some(status) = status_by_name(text) {
        return Ok(status::of_status(status));
    }
    // A syndrome may follow the name, as it may follow the number.
    if let Some((name, syndrome)) = text.trim_end().rsplit_once(char::is_whitespace)
        && let (Some(status), Ok(syndrome)) = (status_by_name(name.trim_end()), number(syndrome))
    {
        let status = Some(status.number());
        return Ok(status::explain(&status::Refused { status, syndrome, ..Default::default() }));
    }
    let known: Vec<String> = CmdStatus::ALL.iter().map(CmdStatus::to_string).collect();
    Err(usage(format!("{text:?} is not a command status; known are {}", known.join(", "))))
}

/// The status of this name, in the PRM or in messages of mlx5_core.
fn status_by_name(text: &str) -> Option<CmdStatus> {
    let named = CmdStatus::ALL.iter().find(|status| status.to_string().eq_ignore_ascii_case(text));
    let of_kernel = KERNEL_STATUS.iter().find(|(words, _)| words.eq_ignore_ascii_case(text));
    named.or(of_kernel.map(|(_, status)| status)).copied()
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
        status.ok_or_else(|| usage(format!("{text:?} is not an ibv_wc_status, such as 12 or IBV_WC_RETRY_EXC_ERR")))?;
    Ok(cqe::of_wc(status, None))
}

/// The number, if it fits its field.
fn of_eight_bits(number: u32, what: &str) -> Result<u32, Failure> {
    match u8::try_from(number) {
        Ok(number) => Ok(number.into()),
        Err(_) => Err(usage(format!("{number:#x} is too large: {what} has 8 bits"))),
    }
}

/// Parses a number, decimal or with 0x.
fn number(text: &str) -> Result<u32, Failure> {
    let text = text.trim();
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| usage(format!("{text:?} is not a number; write 12 or 0xc")))
}

#[cfg(test)]
mod tests;
