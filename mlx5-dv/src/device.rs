//! An opened card.

use std::sync::Arc;

use crate::access::{Access, Function, RawCommand};
use crate::caps::Caps;
use crate::error::{CommandError, CommandErrorKind, Error};

/// How to open a card.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Options {}

/// An opened card.
#[derive(Debug)]
pub struct Device {
    access: Arc<dyn Access>,
    caps: Caps,
}

impl Device {
    /// Brings `function` up.
    pub fn open(function: Function, _options: Options) -> Result<Arc<Device>, Error> {
        Err(Error::NotBuilt(format!("opening {}", function.name)))
    }

    /// The way to the card.
    pub fn access(&self) -> &Arc<dyn Access> {
        &self.access
    }

    /// Its capabilities.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Executes a typed command that creates nothing; `object` is what it is about, for messages.
    pub fn execute<C: mlx5_prm::cmd::Command>(
        &self,
        command: &C,
        object: &str,
    ) -> Result<C::Out, CommandError> {
        let raw = RawCommand::new(command, object);
        let (opcode, op_mod) = (raw.opcode(), raw.op_mod());
        let output = self.access.execute(raw)?;
        <C::Out as mlx5_prm::cmd::Reply>::from_output(&output).ok_or_else(|| CommandError {
            opcode,
            op_mod,
            object: object.into(),
            kind: CommandErrorKind::Length(format!("the reply has only {} bytes", output.len())),
        })
    }
}
