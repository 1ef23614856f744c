//! Finds error messages of kernels, libmlx5, DPDK, UCX, NCCL, perftest and this driver anywhere in a text. Formats of
//! mlx5_core and mlx5_ib from 4.x to 7.x.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use mlx5_tools::kernel_log::{self, Logged, Outcome};
use regex::{Captures, Regex};

use super::command::Printed;
use super::cqe::{Failed, syndrome_of_wc, wc_by_words};
use super::spans::{Lines, Spans};
use super::status::{Refused, known_name};
use super::{health, position};

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
pub fn recognise(lines: &Lines<'_>, all: bool) -> Vec<(usize, Sighting)> {
    let logged = kernel_log::commands(lines.text);
    let mut found = messages(lines.text);
    found.extend(commands(lines, &logged, all));
    found.extend(dumps(lines, &logged));
    found.extend(health_lines(lines));
    found.sort_by_key(|(start, _)| *start);
    found
}

/// The messages of the text. Where two overlap, the one whose format stands first in the table counts.
fn messages(text: &str) -> Vec<(usize, Sighting)> {
    let mut found = Vec::new();
    // Ends by starts, of those found.
    let mut taken: BTreeMap<usize, usize> = BTreeMap::new();
    for shape in SHAPES.iter() {
        for captures in shape.regex.captures_iter(text) {
            let Some(whole) = captures.get(0) else { continue };
            let free = taken.range(..whole.end()).next_back().is_none_or(|(_, end)| *end <= whole.start());
            if let Some(sighting) = Some(()).filter(|()| free).and_then(|()| (shape.sighting)(&captures)) {
                taken.insert(whole.start(), whole.end());
                found.push((whole.start(), sighting));
            }
        }
    }
    found
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
        // mlx5_ib: a queue pair without completions. Before the verbs' texts, which mislead here.
        shape(
            r"\S+/\d+: QP (?<dqpn>\d+) error: (?<text>[^\n(]+?) \(0x(?<vend>[0-9a-f]+) 0x(?<xtype>[0-9a-f]+) 0x(?<xhw>[0-9a-f]+)\)",
            queue_pair,
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
            r"(?<words>local length error|local QP operation error|local EE context operation error|local protection error|work request flushed error|WR flushed|memory bind operation error|memory management operation error|bad response error|local access error|(?:remote )?invalid request error|remote access error|remote operation error|operation aborted|transport retry counter exceeded|RNR retry counter exceeded|local RDD violation error|remote invalid RD request|invalid EE context number|invalid EE context state|response timeout error|TM software rendezvous|IBV?_WC_\w+_ERR|IBV_WC_TM_RNDV_INCOMPLETE)(?: \((?<rpc>\d+)/0x(?<vend2>[0-9a-f]+)\)|[^\n]*?(?:vendor_err:?[ =]*0x(?<vend>[0-9a-f]+)|vendor_err=(?<dvend>\d+)\b|vend_err:? (?:0x)?(?<vend3>[0-9a-f]+)))?",
            wc,
        ),
        // mlx5_core and mlx5e: an event of a completion queue.
        shape(r"(?<words>CQ error on CQN 0x[0-9a-f]+, syndrome? 0x[0-9a-f]+)", words),
        shape(r"(?<words>mlx5e_cq_error_event:\s+cqn=0x[0-9a-f]+ event=0x0*4)\b", words),
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

/// The kernel takes the syndrome for an `ib_wc_status` and prints that status's text.
fn queue_pair(captures: &Captures<'_>) -> Option<Sighting> {
    let mut fields = vec![("qpn", format!("{:#x}", decimal(captures, "dqpn")?))];
    fields.push(("hw_error_syndrome", hex(captures, "xhw")?.to_string()));
    fields.push(("hw_syndrome_type", hex(captures, "xtype")?.to_string()));
    Some(Sighting::Failed(Failed {
        syndrome: wc_by_words(&text(captures, "text")),
        vendor: hex(captures, "vend"),
        fields,
    }))
}

fn wc(captures: &Captures<'_>) -> Option<Sighting> {
    let words = captures.name("words").and_then(|words| wc_by_words(words.as_str()));
    let status = decimal(captures, "wc").or(words)?;
    let vendor = ["vend", "vend2", "vend3"].into_iter().find_map(|name| hex(captures, name));
    let vendor = vendor.or_else(|| decimal(captures, "dvend"));
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
/// Lines of others between two rows of a dump with offsets.
const LINES_BETWEEN: usize = 16;
/// Distance up to which the heading of a dump is searched.
const HEADING: usize = 240;

/// The printed commands that failed or have no output; or all.
fn commands(lines: &Lines<'_>, logged: &[Logged], all: bool) -> Vec<(usize, Sighting)> {
    let explained = |command: &&Logged| all || !matches!(command.outcome, Outcome::Ok);
    let printed = logged.iter().filter(|command| !command.input.is_empty()).filter(explained).map(|command| {
        let at = lines.start((command.line() as usize).saturating_sub(1));
        (at, Sighting::Command(Printed::of(command)))
    });
    printed.collect()
}

/// A hex dump whose rows are being collected.
struct Dump {
    start: usize,
    end: usize,
    /// The line of the last row.
    line: usize,
    /// Offset of the first row, if offsets are printed.
    offset: Option<u64>,
    /// The function that the rows themselves name.
    function: Option<String>,
    bytes: Vec<u8>,
}

impl Dump {
    /// Whether the row at `at` goes on with this dump. Offsets tell it even if other lines stand between.
    fn goes_on(&self, text: &str, row: &Dump) -> bool {
        match (self.offset, row.offset) {
            (Some(first), Some(next)) => {
                next != 0
                    && next == first.wrapping_add(self.bytes.len() as u64)
                    && row.line - self.line <= LINES_BETWEEN
                    && self.function == row.function
            }
            (None, None) => follows(&text[self.end..row.start]),
            _ => false,
        }
    }
}

/// Dumps by their rows and the offsets printed before them; without rows of commands, machine code and PCIe headers.
fn dumps(lines: &Lines<'_>, logged: &[Logged]) -> Vec<(usize, Sighting)> {
    let text = lines.text;
    let of_commands: Spans = logged.iter().flat_map(Logged::lines).collect();
    let mut dumps: Vec<Dump> = Vec::new();
    // Dumps before this one have ended.
    let mut open = 0;
    for row in ROW.find_iter(text) {
        // Lines of commands count from 1.
        let number = lines.number(row.start()) + 1;
        let Some(before) = lines.before(row.start()) else { continue };
        let is_code = before.contains("Code: ") || before.contains("TLP Header");
        if is_code || of_commands.contain(number) && kernel_log::has_bytes(lines.line(number - 1).trim_end()) {
            continue;
        }
        let offset = offset(before);
        let function = position::function(before);
        let bytes = row_bytes(row.as_str());
        let row = Dump { start: row.start(), end: row.end(), line: number, offset, function, bytes };
        open += dumps[open..].iter().take_while(|dump| number - dump.line > LINES_BETWEEN).count();
        // Of several that it may belong to, the one that waits longest: two CPUs that print at once take turns.
        match dumps[open..].iter_mut().filter(|dump| dump.goes_on(text, &row)).min_by_key(|dump| dump.line) {
            Some(dump) => {
                dump.bytes.extend(row.bytes);
                (dump.end, dump.line) = (row.end, row.line);
            }
            None => dumps.push(row),
        }
    }
    let counters: Vec<usize> = text.match_indices(COUNTER).map(|(at, _)| at + COUNTER.len()).collect();
    dumps.into_iter().flat_map(|dump| entries(text, &counters, dump)).collect()
}

/// The offset printed before a row.
fn offset(before: &str) -> Option<u64> {
    static OFFSET: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?i)(?:^|[\s\[(])(?:0x)?([0-9a-f]{3,16}):[ \t]*$").expect("a regex"));
    u64::from_str_radix(&OFFSET.captures(before)?[1], 16).ok()
}

/// Where the end of a log starts that the next lines may go on with: rows of a dump that is not whole, a command that
/// is being printed, a health buffer; with the lines before it that tell of what it is.
pub fn unfinished(text: &str) -> usize {
    /// Lines of a heading, and of others between two of a kind.
    const NEAR: usize = 3;
    const FAR: usize = 512;
    static HEALTH: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?i)print_health_info|\b(?:assert_var\[\d\]|assert_exit_ptr|assert_callra|ext_synd)\b")
            .expect("a regex")
    });
    if let Some(open) = text.rfind("dump command")
        && text.rfind("end dump").is_none_or(|end| end < open)
    {
        let input = text[..open]
            .rfind("INPUT")
            .filter(|_| text[open..].lines().next().is_some_and(|line| line.contains("OUTPUT")));
        let at = input.unwrap_or(open);
        return text[..at].rfind('\n').map_or(0, |end| end + 1);
    }
    let mut starts: Vec<usize> =
        text.match_indices('\n').map(|(end, _)| end + 1).filter(|at| *at < text.len()).collect();
    starts.insert(0, 0);
    let line = |at: usize| text[at..].lines().next().unwrap_or_default();
    let told = |line: &str| ROW.is_match(line) || HEALTH.is_match(line) || heading(line).is_some();
    let last = starts.iter().rev().take(NEAR).find(|at| told(line(**at)));
    let Some(last) = last.copied() else { return text.len() };
    let is_whole = match ROW.find(line(last)) {
        // An entry ends with its fourth row; a ring and 128 bytes do not go on after a pause.
        Some(row) => offset(&line(last)[..row.start()]).is_none_or(|offset| offset % 64 == 48),
        None => line(last).contains("raw fw_ver"),
    };
    if is_whole {
        return text.len();
    }
    let (mut first, mut others) = (last, 0);
    for at in starts.iter().rev().skip_while(|at| **at > last).take(FAR) {
        others = if told(line(*at)) { 0 } else { others + 1 };
        first = *at;
        if others == NEAR {
            break;
        }
    }
    first
}

fn follows(between: &str) -> bool {
    between.len() <= BETWEEN && between.matches('\n').count() <= 1
}

fn row_bytes(row: &str) -> Vec<u8> {
    let digits: Vec<u8> = row.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// What the heading of a dump says that it is.
#[derive(Clone, Copy)]
enum Heading {
    Is(Kind),
    /// DPDK's rings.
    Completions,
    Sends,
    Receives,
}

/// The heading last printed before a dump.
fn heading(before: &str) -> Option<Heading> {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        // PCIe's words come first, so that its completions are none of a queue.
        Regex::new(
            r"(?i)(?<pcie>unexpected completion|completion timeout|completion abort)|(?<cq>\berror cq:)|(?<sq>\berror sq:)|(?<rq>\berror rq:)|(?<cqe>\bcqes?(?:_dump)?\b|\bcompletions?\b)|(?<eqe>\beqes?(?:_dump)?\b)|(?<wqe>\bwqes?(?:_dump)?\b)|(?<health>health buffer)",
        )
        .expect("a regex")
    });
    let of = |captures: Captures<'_>| {
        let names = [
            ("cq", Heading::Completions),
            ("sq", Heading::Sends),
            ("rq", Heading::Receives),
            ("cqe", Heading::Is(Kind::Cqe)),
            ("eqe", Heading::Is(Kind::Eqe)),
            ("wqe", Heading::Is(Kind::Wqe)),
            ("health", Heading::Is(Kind::Health)),
        ];
        names.into_iter().find(|(name, _)| captures.name(name).is_some()).map(|(_, heading)| heading)
    };
    WORDS.captures_iter(before).filter_map(of).last()
}

/// What DPDK prints of the completion before the rings.
const COUNTER: &str = "wqe_counter = ";

/// The entries in a dump, by its heading or its last byte. A dump without all of its rows has none. `counters` are the
/// ends of [`COUNTER`] in the text.
fn entries(text: &str, counters: &[usize], dump: Dump) -> Vec<(usize, Sighting)> {
    let Dump { start, offset, bytes, .. } = dump;
    let from = (0..=start.saturating_sub(HEADING)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let is_error = |entry: &&[u8]| entry.last().is_some_and(|last| matches!(last >> 4, 0xd | 0xe));
    let whole = bytes.len() % 64 == 0 && offset.unwrap_or(0) % 64 == 0;
    let sighting = |kind, bytes: &[u8]| (start, Sighting::Bytes(kind, bytes.to_vec()));
    let counter = || counters[..counters.partition_point(|at| *at <= start)].last().map(|at| &text[*at..start]);
    let errors = || bytes.chunks_exact(64).filter(is_error).map(|entry| sighting(Kind::Cqe, entry)).collect();
    match heading(&text[from..start]) {
        Some(Heading::Completions) => errors(),
        Some(Heading::Sends) => failed_send(counter(), &bytes).iter().map(|wqe| sighting(Kind::Wqe, wqe)).collect(),
        Some(Heading::Receives) => Vec::new(),
        Some(Heading::Is(Kind::Cqe)) if !whole => Vec::new(),
        Some(Heading::Is(Kind::Cqe)) if bytes.len() == 64 || bytes.len() == 128 && offset.is_some() => {
            vec![sighting(Kind::Cqe, &bytes)]
        }
        Some(Heading::Is(Kind::Cqe)) => errors(),
        Some(Heading::Is(Kind::Eqe | Kind::Health)) if bytes.len() != 64 => Vec::new(),
        Some(Heading::Is(_)) if offset.unwrap_or(0) % 64 != 0 => Vec::new(),
        Some(Heading::Is(kind)) => vec![sighting(kind, &bytes)],
        None if whole && bytes.len() == 64 => errors(),
        None => Vec::new(),
    }
}

/// The WQE of a ring that the `wqe_counter` before it names, whose text is `counter`, as long as its `ds` says.
fn failed_send(counter: Option<&str>, ring: &[u8]) -> Option<Vec<u8>> {
    let digits = counter?.split(|c: char| !c.is_ascii_digit()).next()?;
    let at = digits.parse::<usize>().ok()?.checked_rem(ring.len() / 64)? * 64;
    let length = usize::from(ring.get(at + 7)? & 0x3f).max(1) * 16;
    // A WQE at the end of the ring goes on at its start.
    Some(ring.iter().cycle().skip(at).take(length).copied().collect())
}

/// The lines of print_health_info, or of devlink, as one buffer; another `assert_var[0]` starts a new one.
fn health_lines(lines: &Lines<'_>) -> Vec<(usize, Sighting)> {
    let text = lines.text;
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
    // Functions that fail together print their lines in turns.
    let mut buffers: Vec<(usize, health::Printed)> = Vec::new();
    let mut of_function: HashMap<Option<String>, usize> = HashMap::new();
    for captures in LINE.captures_iter(text) {
        let (Some(whole), name, value) =
            (captures.get(0), self::text(&captures, "name"), self::text(&captures, "value"))
        else {
            continue;
        };
        let mut names = ASSERTS.iter().chain(&NAMES);
        let Some(name) = names.find(|known| known.eq_ignore_ascii_case(&name)) else { continue };
        let seen = |printed: &health::Printed| printed.fields.iter().any(|(other, _)| other == name);
        let function = lines.before(whole.start()).and_then(position::function);
        let open = of_function.entry(function).or_insert(usize::MAX);
        if buffers.get(*open).is_none_or(|(_, printed)| seen(printed)) {
            *open = buffers.len();
            buffers.push((whole.start(), health::Printed::default()));
        }
        if let Some((_, printed)) = buffers.get_mut(*open) {
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
        let after = buffers.partition_point(|(start, _)| *start <= at);
        if let Some((_, printed)) = buffers.get_mut(after) {
            let fields = ASSERTS.into_iter().zip(values.map(str::to_owned));
            printed.fields.splice(..0, fields);
        }
    }
    let told = |printed: &health::Printed| printed.synd.is_some() || printed.fields.len() > 2;
    let told = buffers.into_iter().filter(|(_, printed)| told(printed));
    told.map(|(at, printed)| (at, Sighting::Health(printed))).collect()
}
