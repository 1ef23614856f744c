//! `mlx5 decode`: a kernel's command log, or hex of a named layout, into fields.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read};
use std::path::Path;

use mlx5_prm::registry::VALUES;
use mlx5_tools::fields::json_of;
use mlx5_tools::hex::{self, Hex};
use mlx5_tools::kernel_log::{self, Options, Summary};
use mlx5_tools::named;

use crate::output::{self, Failure, print, print_json, usage};

/// What to decode.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    dmesg | mlx5 decode --failed             the commands that firmware refused\n  \
    mlx5 decode --opcode CREATE_QP dmesg.txt one command of a saved log\n  \
    mlx5 decode --as cqe 00000000 ...        hex as a layout; `--list` names them all\n\n\
    To make the kernel log its commands:\n  \
    echo 'module mlx5_core +p' > /sys/kernel/debug/dynamic_debug/control; dmesg -w | mlx5 decode\n\
    With --json, one object per line and command.")]
pub struct Arguments {
    /// Also print fields that are zero.
    #[arg(long)]
    all: bool,
    /// Only commands that failed, or have no answer in the log.
    #[arg(long, conflicts_with = "as")]
    failed: bool,
    /// Only this command, by PRM name or number, 0 to 65535; repeat for more.
    #[arg(long, value_parser = opcode, conflicts_with = "as")]
    opcode: Vec<u16>,
    /// Read hex as this layout, such as `create_cq_in`, instead of a log.
    #[arg(long, value_name = "LAYOUT")]
    r#as: Option<String>,
    /// List the layouts that `--as` knows.
    #[arg(long, conflicts_with_all = ["all", "as", "failed", "opcode", "input"])]
    list: bool,
    /// The log file; stdin by default, or if it is `-`. With `--as`, a file of hex, or the hex itself.
    input: Vec<String>,
}

/// Decodes the input.
pub fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    match &arguments.r#as {
        _ if arguments.list => list(json),
        Some(layout) => layout_of_hex(arguments, layout, json),
        None => log(arguments, json),
    }
}

/// Parses a command's name or number.
fn opcode(text: &str) -> Result<u16, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let opcodes = VALUES.iter().find(|values| values.name == "Opcode").map_or(&[][..], |values| values.named);
    let named = || opcodes.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)).map(|(_, number)| *number as u16);
    number.or_else(named).ok_or_else(|| {
        let nearest = named::nearest(text, opcodes.iter().map(|(name, _)| *name));
        format!("unknown command; similar names: {}", nearest.join(", "))
    })
}

fn list(json: bool) -> Result<(), Failure> {
    let all = named::all();
    if json {
        let all: Vec<_> =
            all.iter().map(|i| serde_json::json!({ "name": i.prm_name(), "rust": i.name, "bytes": i.size })).collect();
        return print_json(&serde_json::json!({ "layouts": all }));
    }
    let line = |info: &&mlx5_prm::layout::Info| format!("{:<48} {:<40} {:#x}\n", info.prm_name(), info.name, info.size);
    print(&all.iter().map(line).collect::<String>())
}

fn layout_of_hex(arguments: &Arguments, layout: &str, json: bool) -> Result<(), Failure> {
    let info = named::layout(layout).map_err(usage)?;
    let input = match &arguments.input[..] {
        [] => read(None)?,
        [path] if path == "-" => read(None)?,
        [path] if Path::new(path).exists() => read(Some(path))?,
        words => words.join(" ").into_bytes(),
    };
    let Hex { bytes, note } = hex::read(&input)?;
    if let Some(note) = note {
        output::note(&note);
    }
    let decoded = named::decoded(info, &bytes);
    match (json, arguments.all) {
        (true, all) => print_json(&json_of(&decoded, all)),
        (false, true) => print(&decoded.with_zeros().to_string()),
        (false, false) => print(&decoded.to_string()),
    }
}

fn read(path: Option<&str>) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes).map_err(|error| format!("cannot read {}: {error}", path.unwrap_or("stdin")))?;
    Ok(bytes)
}

fn open(path: Option<&str>) -> Result<Box<dyn BufRead>, Failure> {
    Ok(match path {
        None => Box::new(io::stdin().lock()),
        Some(path) if Path::new(path).is_dir() => return Err(format!("{path} is a directory; give a file").into()),
        Some(path) => {
            Box::new(BufReader::new(File::open(path).map_err(|error| format!("cannot open {path}: {error}"))?))
        }
    })
}

fn log(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let path = match &arguments.input[..] {
        [] => None,
        [path] if path == "-" => None,
        [path] => Some(path.as_str()),
        _ => return Err(usage("give one log at a time; hex needs `--as LAYOUT`")),
    };
    let options = Options { all: arguments.all, json, failed: arguments.failed, opcodes: arguments.opcode.clone() };
    let mut out = BufWriter::new(io::stdout().lock());
    let summary = match kernel_log::decode(open(path)?, &mut out, &options) {
        // The reader closed stdout, as `head` does.
        Err(kernel_log::Error::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other?,
    };
    drop(out);
    if summary.commands == 0 {
        let fix =
            "the kernel logs commands after `echo 'module mlx5_core +p' > /sys/kernel/debug/dynamic_debug/control`";
        return Err(format!("no command in the {} lines of the log; {fix}", summary.lines).into());
    }
    if json { Ok(()) } else { print(&sentence(&summary)) }
}

fn sentence(summary: &Summary) -> String {
    let Summary { commands, failed, unanswered, problems, stray, .. } = summary;
    let mut text = format!("{commands} commands: {failed} failed, {unanswered} without an answer; {problems} problems");
    if *stray > 0 {
        text += &format!("; {stray} hex lines belong to no command");
    }
    text + "\n"
}
