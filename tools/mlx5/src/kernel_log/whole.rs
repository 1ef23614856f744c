//! A command with input and output: outcome, fields, inconsistencies.

use mlx5_dv::CommandErrorKind;
use mlx5_prm::cmd::{CmdStatus, DeliveryStatus, InputHeader, OutputHeader};
use mlx5_prm::decode::{self, Dump as Decoded};
use mlx5_prm::layout::Layout;

use super::assemble::Dump;
use super::check::Message;
use super::line::Direction;
use super::pair::Command;

/// A command with input and output.
pub(super) struct Whole<'a> {
    pub(super) command: &'a Command,
    pub(super) input: Option<Message>,
    output: Option<Message>,
    /// The first bytes of its input, from the input or from the output's entry.
    header: Vec<u8>,
}

impl<'a> Whole<'a> {
    pub(super) fn of(command: &'a Command) -> Whole<'a> {
        let message = |dump: &Option<Dump>| dump.as_ref().map(Message::of);
        let (input, output) = (message(&command.input), message(&command.output));
        // If the input is not in the log, the output's entry has its first bytes.
        let of_entry = || {
            let entry = output.as_ref()?.entry.as_ref()?;
            Some(entry.command_input_inline_data().to_vec())
        };
        let header = input.as_ref().map(|input| input.data.clone()).or_else(of_entry).unwrap_or_default();
        Whole { command, input, output, header }
    }

    pub(super) fn dump(&self) -> Option<&Dump> {
        self.command.input.as_ref().or(self.command.output.as_ref())
    }

    pub(super) fn opcode(&self) -> u16 {
        self.dump().map_or(0, |dump| dump.opcode)
    }

    pub(super) fn op_mod(&self) -> u16 {
        InputHeader::read(&self.padded_header()).map_or(0, |header| header.op_mod())
    }

    pub(super) fn uid(&self) -> u16 {
        InputHeader::read(&self.padded_header()).map_or(0, |header| header.uid())
    }

    /// The first bytes of its input, if known.
    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }

    fn padded_header(&self) -> Vec<u8> {
        let mut bytes = self.header.clone();
        bytes.resize(bytes.len().max(InputHeader::SIZE), 0);
        bytes
    }

    /// Status and syndrome of the output, if known.
    pub(super) fn status(&self) -> Option<(CmdStatus, u32)> {
        let output = self.output.as_ref().filter(|output| !output.unanswered())?;
        let first = output.data.get(..8)?;
        let header = OutputHeader::read(&[first, &[0; 8]].concat())?;
        Some((header.status(), header.syndrome()))
    }

    /// The outcome of the command.
    pub(super) fn outcome(&self) -> Outcome {
        let Some(output) = &self.output else { return Outcome::Unanswered("no output in the log") };
        if output.unanswered() {
            return Outcome::Unanswered("hardware had not answered when the driver gave up");
        }
        match (output.delivery(), self.status()) {
            (Some(delivery), _) if delivery != DeliveryStatus::Ok => {
                Outcome::Failed(CommandErrorKind::Delivery(delivery))
            }
            (_, Some((CmdStatus::Ok, _))) => Outcome::Ok,
            (_, Some((status, syndrome))) => {
                Outcome::Failed(CommandErrorKind::Status { status, syndrome, reason: String::new() })
            }
            (_, None) => Outcome::Unanswered("the log ends before its status"),
        }
    }

    pub(super) fn decoded<'b>(&'b self, message: &'b Message, direction: Direction) -> Option<Decoded<'b>> {
        match direction {
            Direction::Input => decode::command_input(&message.data),
            Direction::Output => decode::command_output_to(&self.told_by(), &message.data),
        }
    }

    /// The input by which the output is decoded, if it belongs to the command in the heading.
    fn told_by(&self) -> Vec<u8> {
        let mut input = self.padded_header();
        input[..2].copy_from_slice(&self.opcode().to_be_bytes());
        input
    }

    pub(super) fn messages(&self) -> impl Iterator<Item = (&Dump, &Message, Direction)> {
        let input = self.command.input.as_ref().zip(self.input.as_ref()).map(|(d, m)| (d, m, Direction::Input));
        let output = self.command.output.as_ref().zip(self.output.as_ref()).map(|(d, m)| (d, m, Direction::Output));
        input.into_iter().chain(output)
    }
}

/// The outcome of a command.
#[derive(Debug)]
pub enum Outcome {
    /// Success.
    Ok,
    /// It did not reach firmware, or firmware refused it.
    Failed(CommandErrorKind),
    /// Unknown, with the reason.
    Unanswered(&'static str),
}

/// Remarks on a dump.
pub(super) fn notes(dump: &Dump, message: &Message) -> Vec<String> {
    let mut notes: Vec<String> = message.problems.iter().map(ToString::to_string).collect();
    if dump.is_empty() {
        notes.push("none of its bytes are in the log".into());
    }
    for (from, to) in message.missing.iter().filter(|_| !dump.is_empty()) {
        let why = if message.left_out { ": old drivers do not print them" } else { "" };
        notes.push(format!("bytes {from:#x} to {to:#x} are not in the log{why}"));
    }
    if dump.doubtful {
        notes.push("another dump was printed at the same time: lines that name no device may be mixed up".into());
    }
    notes
}
