//! Finds error messages of kernels, libmlx5, DPDK, UCX, NCCL, perftest and this driver anywhere in a text. Formats of
//! mlx5_core and mlx5_ib from 4.x to 7.x.

use std::sync::LazyLock;

use mlx5_tools::kernel_log::{self, Logged, Outcome};
use regex::{Captures, Regex};

use super::command::Printed;
use super::cqe::{Failed, syndrome_of_wc, wc_by_words};
use super::health;
use super::status::{Refused, known_name};

/// A recognised item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sighting {
    /// A command that firmware refused.
    Refused(Refused),
    /// A command that was not answered in time.
    Timeout { command: String, opcode: u32, words: String },
    /// Numbers of a completion with error.
    Failed(Failed),
    /// `ibv_wc_status` of a completion with error, and its vendor error.
    Wc { status: u32, vendor: Option<u32> },
    /// Bytes of a known kind.
    Bytes(Kind, Vec<u8>),
    /// A command that a kernel printed byte by byte.
    Command(Printed),
    /// A health buffer, field by field.
    Health(health::Printed),
    /// A line with a fixed meaning.
    Words(String),
}

/// Kind of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A completion queue entry.
    Cqe,
    /// An event queue entry.
    Eqe,
    /// A send WQE.
    Wqe,
    /// A health buffer.
    Health,
    /// A command's input.
    Command,
}

/// One message format.
struct Shape {
    regex: Regex,
    sighting: fn(&Captures<'_>) -> Option<Sighting>,
}

/// Finds everything in the text that can be explained, in order, and where it starts. Of commands printed byte by byte
/// it finds those that failed, or `all`.
pub fn recognise(text: &str, all: bool) -> Vec<(usize, Sighting)> {
    let mut found: Vec<(usize, usize, Sighting)> = Vec::new();
    for shape in SHAPES.iter() {
        for captures in shape.regex.captures_iter(text) {
            let Some(whole) = captures.get(0) else { continue };
            let free = found.iter().all(|(start, end, _)| whole.end() <= *start || whole.start() >= *end);
            if let Some(sighting) = Some(()).filter(|()| free).and_then(|()| (shape.sighting)(&captures)) {
                found.push((whole.start(), whole.end(), sighting));
            }
        }
    }
    let (lines, logged) = (lines(text), kernel_log::commands(text));
    found.extend(commands(&lines, &logged, all));
    found.extend(dumps(text, &lines, &logged));
    found.extend(health_lines(text));
    found.sort_by_key(|(start, ..)| *start);
    found.into_iter().map(|(start, _, sighting)| (start, sighting)).collect()
}

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let shape =
        |regex: &str, sighting| Shape { regex: Regex::new(&format!("(?i){regex}")).expect("a regex"), sighting };
    vec![
        // mlx5_core: mlx5_cmd_check (4.x), mlx5_cmd_out_err (5.18 and later).
        shape(
            r"(?<name>\w+)\(0x(?<op>[0-9a-f]+)\)\s+op_mod\(0x(?<mod>[0-9a-f]+)\)\s+(?:failed|erred),\s+status\s+[a-z ()]+?\(0x(?<status>[0-9a-f]+)\),\s+syndrome\s+\(0x(?<synd>[0-9a-f]+)\)(?:,\s*err\((?<err>-?\d+)\))?",
            refused,
        ),
        // mlx5_core 3.x: no name.
        shape(
            r"command failed,\s+status\s+[a-z ()]+?\(0x(?<status>[0-9a-f]+)\),\s+syndrome\s+0x(?<synd>[0-9a-f]+)",
            refused,
        ),
        // This driver.
        shape(
            r"(?<name>\w+)(?: \(op_mod 0x(?<mod>[0-9a-f]+)\))?(?: of [^:\n]+?)? failed: status \w+ \(0x(?<status>[0-9a-f]+)\), syndrome 0x(?<synd>[0-9a-f]+)",
            refused,
        ),
        // DPDK.
        shape(
            r"DevX (?<name>[\w ]+?)(?: \w+=0x[0-9a-f]+)? failed errno=(?<err>-?\d+) status=(?:0x)?(?<status>[0-9a-f]+) syndrome=(?:0x)?(?<synd>[0-9a-f]+)",
            refused,
        ),
        shape(r"Bad DevX status (?<status>[0-9a-f]+), syndrome = (?<synd>[0-9a-f]+)", refused),
        shape(r"Failed to (?<name>[\w ]+?) ?\(syndrome: (?:0x)?(?<synd>[0-9a-f]+)\)", refused),
        // UCX.
        shape(
            r"mlx5dv_devx_(?<call>\w+)\((?:opcode=0x)?(?<name>\w*)[^)]*\) failed(?: on \S+)?, syndrome (?:0x)?(?<synd>[0-9a-f]+)(?:: (?<words>[^\n]+))?",
            refused,
        ),
        // mlx5_core: no answer.
        shape(
            r"(?<name>\w+)\(0x(?<op>[0-9a-f]+)\) (?<words>(?:Async, )?(?:timeout\.? Will cause a leak of a command resource|timed out while waiting for a slot|canceled on out of queue timeout|timeout while waiting for command semaphore|No done completion|recovered after timeout|timeout\. Will cause))",
            timeout,
        ),
        // mlx5e.
        shape(
            r"Error cqe on cqn 0x(?<cqn>[0-9a-f]+), ci 0x(?<ci>[0-9a-f]+), (?:s|r)?qn 0x(?<qpn>[0-9a-f]+), opcode 0x(?<opcode>[0-9a-f]+), syndrome 0x(?<synd>[0-9a-f]+), vendor syndrome 0x(?<vend>[0-9a-f]+)",
            failed,
        ),
        // mlx5_ib, debug.
        shape(
            r"(?:error cqe on cqn 0x(?<cqn>[0-9a-f]+):[^\n]*\n[^\n]*?)?syndrome 0x(?<synd>[0-9a-f]+), vendor syndrome 0x(?<vend>[0-9a-f]+)",
            failed,
        ),
        // UCX, with the queue pair's line after it.
        shape(
            r"(?:\b[a-z][a-z -]+ on \S+ )?\(synd 0x(?<synd>[0-9a-f]+) vend 0x(?<vend>[0-9a-f]+)(?: hw_synd (?<type>\d+)/(?<hw>\d+))?\)(?:[^\n]*\n[^\n]*?\bQP 0x(?<qpn>[0-9a-f]+) wqe\[(?<wqe>\d+)\])?",
            failed,
        ),
        // DPDK.
        shape(
            r"Unexpected CQE error syndrome 0x(?<synd>[0-9a-f]+) CQN = (?<dcqn>\d+) (?:S|R)QN = (?<dqpn>\d+)(?:\s+wqe_counter = (?<wqe>\d+))?",
            failed,
        ),
        // This driver.
        shape(
            r"(?:at WQE index (?<wqe>\d+) of QP 0x(?<qpn>[0-9a-f]+) )?failed: \w+ \(0x(?<synd>[0-9a-f]+)\), vendor syndrome 0x(?<vend>[0-9a-f]+)",
            failed,
        ),
        // NCCL: `status=12 ... vendor err 129`, `error 12, ... vendor err 129`, `status=IBV_WC_RETRY_EXC_ERR(12)`.
        shape(r"(?:status|error)[ =](?:IBV_WC_\w+\()?(?<wc>\d+)\)?,? [^\n]*?vendor err (?<dvend>\d+)", wc),
        // perftest: `Failed status 4: wr_id 0 syndrom 0x51`.
        shape(r"Failed status (?<wc>\d+): wr_id \S+ syndrom (?:0x)?(?<vend>[0-9a-f]+)", wc),
        // Open MPI.
        shape(r"status number (?<wc>\d+)[^\n]*?vendor error (?<dvend>\d+)", wc),
        // Derecho and others: `bad completion with status: 5, vendor syndrome: 249`.
        shape(r"status: (?<wc>\d+), vendor syndrome: (?<dvend>\d+)", wc),
        // ibv_wc_status_str, with a vendor's number where there is one: UCX over verbs, SPDK, many more.
        shape(
            r"(?<words>local length error|local QP operation error|local protection error|work request flushed error|memory bind operation error|bad response error|local access error|remote invalid request error|remote access error|remote operation error|transport retry counter exceeded|RNR retry counter exceeded|IBV_WC_\w+_ERR)(?:[^\n]*?vendor_err:?[ =]*0x(?<vend>[0-9a-f]+))?",
            wc,
        ),
        // Any other mention of a firmware syndrome.
        shape(r"syndrome[ :=]*\(?0x(?<synd>[0-9a-f]{4,8})\)?", refused),
        // `devlink health diagnose` and `dump show`, of the reporters fw and fw_fatal, as text and as JSON.
        shape(r#"\bSyndrome"?:\s?(?<dsynd>\d+),?\s*"?(?:Description|fw_miss_counter)"?:"#, diagnosed),
        // Health.
        shape(
            r"(?<words>(?:Fatal error \d+ detected|device's health compromised - reached miss count|PCI slot is unavailable|PCI channel offline[^\n]*))",
            words,
        ),
    ]
});

fn hex(captures: &Captures<'_>, name: &str) -> Option<u32> {
    u32::from_str_radix(captures.name(name)?.as_str(), 16).ok()
}

fn decimal(captures: &Captures<'_>, name: &str) -> Option<u32> {
    captures.name(name)?.as_str().parse().ok()
}

fn text(captures: &Captures<'_>, name: &str) -> String {
    captures.name(name).map_or_else(String::new, |found| found.as_str().to_owned())
}

fn refused(captures: &Captures<'_>) -> Option<Sighting> {
    let (name, call) = (text(captures, "name"), text(captures, "call"));
    // UCX names what it creates.
    let of_object = if call == "obj_create" { format!("CREATE_{name}") } else { String::new() };
    let known = known_name(&of_object);
    Some(Sighting::Refused(Refused {
        command: known.map_or(name, str::to_owned),
        words: text(captures, "words").trim_end().to_owned(),
        opcode: hex(captures, "op"),
        op_mod: hex(captures, "mod"),
        status: hex(captures, "status"),
        syndrome: hex(captures, "synd")?,
        errno: captures.name("err").and_then(|err| err.as_str().parse().ok()),
    }))
}

fn timeout(captures: &Captures<'_>) -> Option<Sighting> {
    let words = text(captures, "words");
    Some(Sighting::Timeout { command: text(captures, "name"), opcode: hex(captures, "op")?, words })
}

fn failed(captures: &Captures<'_>) -> Option<Sighting> {
    let number = |hexadecimal, base10| hex(captures, hexadecimal).or_else(|| decimal(captures, base10));
    let mut fields = Vec::new();
    fields.extend(number("cqn", "dcqn").map(|n| ("cqn", format!("{n:#x}"))));
    fields.extend(number("qpn", "dqpn").map(|n| ("qpn", format!("{n:#x}"))));
    fields.extend(decimal(captures, "wqe").map(|n| ("wqe_counter", n.to_string())));
    fields.extend(hex(captures, "opcode").map(|n| ("opcode", format!("{n:#x}"))));
    fields.extend(decimal(captures, "hw").map(|n| ("hw_error_syndrome", n.to_string())));
    fields.extend(decimal(captures, "type").map(|n| ("hw_syndrome_type", n.to_string())));
    Some(Sighting::Failed(Failed { syndrome: Some(hex(captures, "synd")?), vendor: hex(captures, "vend"), fields }))
}

fn wc(captures: &Captures<'_>) -> Option<Sighting> {
    let words = captures.name("words").and_then(|words| wc_by_words(words.as_str()));
    let status = decimal(captures, "wc").or(words)?;
    let vendor = hex(captures, "vend").or_else(|| decimal(captures, "dvend"));
    Some(Sighting::Wc { status, vendor })
        .filter(|_| status != 0 && (words.is_some() || syndrome_of_wc(status).is_some()))
}

fn diagnosed(captures: &Captures<'_>) -> Option<Sighting> {
    let synd = decimal(captures, "dsynd")?;
    Some(Sighting::Health(health::Printed { synd: Some(synd), fields: vec![("synd", format!("{synd:#x}"))] }))
}

fn words(captures: &Captures<'_>) -> Option<Sighting> {
    Some(Sighting::Words(text(captures, "words")))
}

/// A row of a hex dump: sixteen bytes, or four dwords.
static ROW: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:(?:[0-9a-f]{2}[ \t]+){15}[0-9a-f]{2}|(?:[0-9a-f]{8}[ \t]+){3}[0-9a-f]{8})").expect("a regex")
});

/// Maximum text between two rows of a dump: the prefix of a line.
const BETWEEN: usize = 160;
/// Distance up to which the heading of a dump is searched.
const HEADING: usize = 240;

/// The printed commands that failed or have no output; or all.
fn commands(lines: &[(usize, &str)], logged: &[Logged], all: bool) -> Vec<(usize, usize, Sighting)> {
    let explained = |command: &&Logged| all || !matches!(command.outcome, Outcome::Ok);
    let printed = logged.iter().filter(|command| !command.input.is_empty()).filter(explained).map(|command| {
        let at = lines.get((command.line() as usize).saturating_sub(1)).map_or(0, |(start, _)| *start);
        (at, at, Sighting::Command(Printed::of(command)))
    });
    printed.collect()
}

/// The lines of a text, and where they start.
fn lines(text: &str) -> Vec<(usize, &str)> {
    let mut start = 0;
    let lines = text.split_inclusive('\n').map(|line| {
        start += line.len();
        (start - line.len(), line.trim_end())
    });
    lines.collect()
}

/// Consecutive rows, as entries of 64 bytes; without those of commands.
fn dumps(text: &str, lines: &[(usize, &str)], logged: &[Logged]) -> Vec<(usize, usize, Sighting)> {
    let mut dumps: Vec<(usize, usize, Vec<u8>)> = Vec::new();
    let of_command = |at: usize| {
        let number = lines.partition_point(|(start, _)| *start <= at);
        let line = number.checked_sub(1).and_then(|number| lines.get(number)).map_or("", |(_, line)| line);
        logged.iter().any(|command| command.holds(number as u64, line))
    };
    for row in ROW.find_iter(text).filter(|row| !of_command(row.start())) {
        let bytes = row_bytes(row.as_str());
        match dumps.last_mut() {
            Some((_, end, all)) if follows(&text[*end..row.start()]) => {
                all.extend(bytes);
                *end = row.end();
            }
            _ => dumps.push((row.start(), row.end(), bytes)),
        }
    }
    dumps.into_iter().filter_map(|(start, end, bytes)| Some((start, end, dump(text, start, bytes)?))).collect()
}

fn follows(between: &str) -> bool {
    let lines = between.matches('\n').count();
    between.len() <= BETWEEN && lines <= 1
}

fn row_bytes(row: &str) -> Vec<u8> {
    let digits: Vec<u8> = row.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The kind of a dump, by its heading or its last byte.
fn dump(text: &str, start: usize, bytes: Vec<u8>) -> Option<Sighting> {
    let from = (0..=start.saturating_sub(HEADING)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let before = text[from..start].to_ascii_lowercase();
    let place = |word: &str| before.rfind(word).map(|at| at + 1).unwrap_or(0);
    let kinds = [
        (place("cqe").max(place("completion")), Kind::Cqe),
        (place("eqe"), Kind::Eqe),
        (place("wqe"), Kind::Wqe),
        (place("health buffer"), Kind::Health),
    ];
    let kind = kinds.into_iter().filter(|(place, _)| *place > 0).max_by_key(|(place, _)| *place).map(|(_, kind)| kind);
    let error = bytes.len() == 64 && matches!(bytes[63] >> 4, 0xd | 0xe);
    match kind {
        None if error => Some(Sighting::Bytes(Kind::Cqe, bytes)),
        None => None,
        Some(kind) => Some(Sighting::Bytes(kind, bytes)),
    }
}

/// The lines of print_health_info, or of devlink, as one buffer; another `assert_var[0]` starts a new one.
fn health_lines(text: &str) -> Vec<(usize, usize, Sighting)> {
    static LINE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r#"(?i)\b(?<name>assert_var\[\d\]|assert_exit_ptr|assert_callra|fw_ver|raw fw_ver|time|hw_id|rfr|severity|irisc_index|ext_synd|synd|raw_fw_ver)"?:?\s?(?<value>0x[0-9a-f]+\b|\d+(?:\.\d+)*\b)"#,
        )
        .expect("a regex")
    });
    /// devlink's, as text and as JSON.
    static ARRAY: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r#"assert_var"?:\s*\[?\s*(?<values>\d+(?:[,\s]+\d+){5})\b"#).expect("a regex"));
    const ASSERTS: [&str; 6] =
        ["assert_var[0]", "assert_var[1]", "assert_var[2]", "assert_var[3]", "assert_var[4]", "assert_var[5]"];
    const NAMES: [&str; 12] = [
        "raw_fw_ver",
        "assert_exit_ptr",
        "assert_callra",
        "fw_ver",
        "raw fw_ver",
        "time",
        "hw_id",
        "rfr",
        "severity",
        "irisc_index",
        "synd",
        "ext_synd",
    ];
    if !["assert_var", "ext_synd", "assert_callra"].iter().any(|word| text.contains(word)) {
        return Vec::new();
    }
    let mut buffers: Vec<(usize, usize, health::Printed)> = Vec::new();
    for captures in LINE.captures_iter(text) {
        let (Some(whole), name, value) =
            (captures.get(0), self::text(&captures, "name"), self::text(&captures, "value"))
        else {
            continue;
        };
        let mut names = ASSERTS.iter().chain(&NAMES);
        let Some(name) = names.find(|known| known.eq_ignore_ascii_case(&name)) else { continue };
        let seen = |printed: &health::Printed| printed.fields.iter().any(|(other, _)| other == name);
        if buffers.last().is_none_or(|(.., printed)| seen(printed)) {
            buffers.push((whole.start(), whole.end(), health::Printed::default()));
        }
        if let Some((_, end, printed)) = buffers.last_mut() {
            *end = whole.end();
            if *name == "synd" {
                printed.synd = match value.strip_prefix("0x") {
                    Some(digits) => u32::from_str_radix(digits, 16).ok(),
                    None => value.parse().ok(),
                };
            }
            printed.fields.push((name, value));
        }
    }
    for captures in ARRAY.captures_iter(text) {
        let at = captures.get(0).map_or(0, |whole| whole.start());
        let values = self::text(&captures, "values");
        let values = values.split(|c: char| !c.is_ascii_digit()).filter(|value| !value.is_empty());
        if let Some((.., printed)) = buffers.iter_mut().find(|(start, ..)| *start > at) {
            let fields = ASSERTS.into_iter().zip(values.map(str::to_owned));
            printed.fields.splice(..0, fields);
        }
    }
    let told = |printed: &health::Printed| printed.synd.is_some() || printed.fields.len() > 2;
    buffers
        .into_iter()
        .filter(|(.., printed)| told(printed))
        .map(|(a, b, printed)| (a, b, Sighting::Health(printed)))
        .collect()
}
