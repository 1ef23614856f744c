//! Pairs outputs with inputs.

use super::assemble::Dump;
use super::line::Direction;

/// Maximum number of inputs waiting for outputs.
const MAX_WAITING: usize = 1024;

/// A command, as far as it is in the log.
#[derive(Debug, Clone)]
pub struct Command {
    /// Its number in the log, from 1.
    pub number: u64,
    /// Its input.
    pub input: Option<Dump>,
    /// Its output.
    pub output: Option<Dump>,
}

/// An event while reading the log.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// Its input.
    Sent(&'a Command),
    /// The whole command.
    Done(&'a Command),
}

/// Pairs dumps.
#[derive(Debug, Default)]
pub struct Pairs {
    waiting: Vec<Command>,
    count: u64,
}

impl Pairs {
    /// Adds a dump, and reports what becomes known.
    pub fn add<E>(&mut self, dump: Dump, tell: &mut impl FnMut(Event<'_>) -> Result<(), E>) -> Result<(), E> {
        match dump.direction {
            Direction::Input => self.input(dump, tell),
            Direction::Output => self.output(dump, tell),
        }
    }

    /// Ends the log: waiting inputs have no output.
    pub fn finish<E>(&mut self, tell: &mut impl FnMut(Event<'_>) -> Result<(), E>) -> Result<(), E> {
        self.waiting.drain(..).try_for_each(|command| tell(Event::Done(&command)))
    }

    fn input<E>(&mut self, dump: Dump, tell: &mut impl FnMut(Event<'_>) -> Result<(), E>) -> Result<(), E> {
        // A slot with a new command will not answer an earlier one.
        let lost = self.waiting.iter().position(|command| {
            let input = command.input.as_ref();
            input.is_some_and(|old| old.slot.is_some() && old.slot == dump.slot && old.device == dump.device)
        });
        let lost = lost.or_else(|| (self.waiting.len() >= MAX_WAITING).then_some(0));
        if let Some(at) = lost {
            tell(Event::Done(&self.waiting.remove(at)))?;
        }
        self.count += 1;
        let command = Command { number: self.count, input: Some(dump), output: None };
        tell(Event::Sent(&command))?;
        self.waiting.push(command);
        Ok(())
    }

    fn output<E>(&mut self, dump: Dump, tell: &mut impl FnMut(Event<'_>) -> Result<(), E>) -> Result<(), E> {
        let answered =
            self.waiting.iter().position(|command| command.input.as_ref().is_some_and(|i| answers(i, &dump)));
        let command = match answered {
            Some(at) => Command { output: Some(dump), ..self.waiting.remove(at) },
            None => {
                self.count += 1;
                Command { number: self.count, input: None, output: Some(dump) }
            }
        };
        tell(Event::Done(&command))
    }
}

/// Whether `output` answers `input`: same slot and opcode, and same token and first bytes of the input if entries are
/// printed. Without slots the oldest such input matches.
fn answers(input: &Dump, output: &Dump) -> bool {
    let same_entry = || {
        let inline =
            |dump: &Dump| (dump.has(0x10, 0x20), dump.bytes(0x10, 0x20), dump.bytes(0x3c, 0x40).first().copied());
        let (whole, of_input, token) = inline(input);
        let (also_whole, of_output, answered) = inline(output);
        !(whole && also_whole && output.has(0x3c, 0x40) && input.has(0x3c, 0x40))
            || (of_input == of_output && token == answered)
    };
    input.device == output.device
        && input.slot == output.slot
        && input.opcode == output.opcode
        && (input.slot.is_some() || input.data_only || output.data_only || same_entry())
}
