//! Commands as text and as JSON.

use std::io::{self, Write};

use mlx5_prm::cmd::Opcode;
use serde_json::{Value, json};

use super::assemble::Dump;
use super::check::Message;
use super::line::Direction;
use super::options::{Options, Summary};
use super::pair::Event;
use super::whole::{Outcome, Whole, notes};
use crate::fields::{VERSION, hex, json_of};

/// Prints events, and counts.
pub(super) struct Printer<'a, W> {
    writer: W,
    options: &'a Options,
    summary: Summary,
}

impl<'a, W: Write> Printer<'a, W> {
    pub(super) fn new(writer: W, options: &'a Options) -> Self {
        Printer { writer, options, summary: Summary::default() }
    }

    /// Prints an event.
    pub(super) fn print(&mut self, event: Event<'_>) -> io::Result<()> {
        match event {
            // Filtering by outcome, and one line per command, need the output first.
            Event::Sent(command) if !self.options.failed && !self.options.json => {
                let whole = Whole::of(command);
                if self.wants(&whole) {
                    whole.messages().try_for_each(|(dump, message, way)| self.text(&whole, dump, message, way))?;
                    self.writer.flush()?;
                }
                Ok(())
            }
            Event::Sent(_) => Ok(()),
            Event::Done(command) => self.done(&Whole::of(command)),
        }
    }

    /// Finishes, and returns the summary.
    pub(super) fn finish(mut self) -> io::Result<Summary> {
        self.writer.flush()?;
        Ok(self.summary)
    }

    fn done(&mut self, whole: &Whole<'_>) -> io::Result<()> {
        let outcome = whole.outcome();
        self.summary.commands += 1;
        match outcome {
            Outcome::Ok => {}
            Outcome::Failed(_) => self.summary.failed += 1,
            Outcome::Unanswered(_) => self.summary.unanswered += 1,
        }
        for (_, message, direction) in whole.messages() {
            let uncovered = whole.decoded(message, direction).map_or(0, |decoded| decoded.uncovered().count());
            self.summary.problems += (message.problems.len() + uncovered) as u64;
        }
        if !self.wants(whole) || (self.options.failed && matches!(outcome, Outcome::Ok)) {
            return Ok(());
        }
        if self.options.json {
            writeln!(self.writer, "{}", self.json(whole, &outcome))?;
        } else {
            for (dump, message, way) in whole.messages() {
                // The input was printed before.
                if way == Direction::Output || self.options.failed {
                    self.text(whole, dump, message, way)?;
                }
            }
            if let Outcome::Unanswered(why) = outcome {
                writeln!(self.writer, "{}: {why}\n", title(whole))?;
            }
        }
        self.writer.flush()
    }

    fn wants(&self, whole: &Whole<'_>) -> bool {
        self.options.opcodes.is_empty() || self.options.opcodes.contains(&whole.opcode())
    }

    fn text(&mut self, whole: &Whole<'_>, dump: &Dump, message: &Message, way: Direction) -> io::Result<()> {
        let out = &mut self.writer;
        let op_mod = whole.op_mod();
        let op_mod = if op_mod == 0 { String::new() } else { format!(" op_mod {op_mod:#x}") };
        match (way, whole.outcome()) {
            (Direction::Input, _) => writeln!(out, "{}{op_mod} input, line {}", title(whole), dump.line)?,
            (_, Outcome::Failed(kind)) => writeln!(out, "{}{op_mod} output: FAILED, {kind}", title(whole))?,
            (_, Outcome::Ok) => writeln!(out, "{}{op_mod} output: OK", title(whole))?,
            (_, Outcome::Unanswered(_)) => writeln!(out, "{}{op_mod} output", title(whole))?,
        }
        match whole.decoded(message, way) {
            _ if dump.is_empty() => {}
            Some(decoded) if self.options.all => write!(out, "{}", decoded.with_zeros())?,
            Some(decoded) => write!(out, "{decoded}")?,
            None => {
                writeln!(out, "no layout for {}, {:#x} bytes", name(dump), message.data.len())?;
                for (i, row) in message.data.chunks(16).enumerate() {
                    writeln!(out, "  {:#06x} {}", i * 16, hex(row))?;
                }
            }
        }
        for note in notes(dump, message) {
            writeln!(out, "  ! {note}")?;
        }
        writeln!(out)
    }

    fn json(&self, whole: &Whole<'_>, outcome: &Outcome) -> Value {
        let dump = whole.dump();
        let mut object = json!({
            "version": VERSION,
            "number": whole.command.number,
            "device": dump.and_then(|dump| dump.device.clone()),
            "slot": dump.and_then(|dump| dump.slot),
            "command": dump.map(name),
            "opcode": whole.opcode(),
            "op_mod": whole.op_mod(),
            "uid": whole.uid(),
            "result": match outcome {
                Outcome::Ok => "ok",
                Outcome::Failed(_) => "failed",
                Outcome::Unanswered(_) => "unanswered",
            },
            "reason": match outcome {
                Outcome::Ok => None,
                Outcome::Failed(kind) => Some(kind.to_string()),
                Outcome::Unanswered(why) => Some((*why).to_owned()),
            },
            "status": whole.status().map(|(status, _)| status.number()),
            "syndrome": whole.status().map(|(_, syndrome)| syndrome),
            "input": null,
            "output": null,
        });
        for (dump, message, way) in whole.messages() {
            let key = if way == Direction::Input { "input" } else { "output" };
            object[key] = self.message(whole, dump, message, way);
        }
        object
    }

    fn message(&self, whole: &Whole<'_>, dump: &Dump, message: &Message, way: Direction) -> Value {
        let decoded = whole.decoded(message, way);
        let entry = message.entry.as_ref();
        let mut object = json!({
            "line": dump.line,
            "length": message.length,
            "bytes": hex(&message.data),
            "missing": message.missing,
            "token": entry.map(|entry| entry.token()),
            "delivery": entry.filter(|_| way == Direction::Output).map(|entry| entry.status().number()),
            "problems": message.problems.iter().map(|problem| json!({ "kind": problem.kind(), "text": problem.to_string() })).collect::<Vec<_>>(),
            "doubtful": dump.doubtful,
        });
        let fields = decoded.map_or(json!({ "layout": null }), |decoded| json_of(&decoded, self.options.all));
        if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
            object.extend(fields);
        }
        object
    }
}

/// Number, device, slot and name.
fn title(whole: &Whole<'_>) -> String {
    let Some(dump) = whole.dump() else { return String::new() };
    let device = dump.device.as_ref().map_or_else(String::new, |device| format!(" {device}"));
    let slot = dump.slot.map_or_else(String::new, |slot| format!(" cmd[{slot}]"));
    format!("#{}{device}{slot} {} ({:#x})", whole.command.number, name(dump), dump.opcode)
}

/// The PRM's name of the command, else the driver's.
fn name(dump: &Dump) -> String {
    Opcode::from_number(dump.opcode.into()).prm_name().map_or_else(|| dump.name.clone(), str::to_owned)
}
