//! An access that traces its commands.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::{CommandRecord, Direction, Observers};
use crate::access::sealed::Sealed;
use crate::access::{
    Access, AsyncEvents, CardMemory, KernelSteering, KernelVerbs, LentEvents, ObjectHandle, RawCommand, UarHandle,
    UarMapping, UmemHandle,
};
use crate::clock::Clock;
use crate::error::{CommandError, CommandErrorKind, Error};
use crate::memory::{DmaBuffer, HostMemory};

/// Wraps an access and calls observers for each command. Commands that the inner access sends on its own (for umems and
/// UARs) are not traced.
#[derive(Debug)]
pub struct Traced {
    inner: Arc<dyn Access>,
    observers: Observers,
}

/// A command in flight.
struct Passing<'a> {
    clock: &'a Clock,
    observers: &'a Observers,
    record: CommandRecord,
    begin: Duration,
}

impl<'a> Passing<'a> {
    fn begin(clock: &'a Clock, observers: &'a Observers, command: &RawCommand) -> Self {
        let record = CommandRecord {
            slot: 0,
            opcode: command.opcode(),
            op_mod: command.op_mod(),
            object: command.object.clone(),
            direction: Direction::Input,
            entry: None,
            blocks: vec![],
            data: command.input.clone(),
            answers: vec![],
            elapsed: Duration::ZERO,
        };
        observers.tell(&record);
        Passing { clock, observers, record, begin: clock.now() }
    }

    fn end(mut self, output: Option<&[u8]>, error: Option<&CommandError>) {
        self.record.direction = Direction::Output;
        self.record.elapsed = self.clock.now().saturating_sub(self.begin);
        let output = match (output, error.map(|error| &error.kind)) {
            (Some(output), _) => output.to_vec(),
            // Rebuild the output of a failed command from its error.
            (None, Some(CommandErrorKind::Status { status, syndrome, .. })) => {
                let words = [status.number() << 24, *syndrome, 0, 0];
                words.iter().flat_map(|word| word.to_be_bytes()).collect()
            }
            // There was no reply.
            _ => return,
        };
        self.record.answers = std::mem::replace(&mut self.record.data, output);
        self.observers.tell(&self.record);
    }
}

impl Traced {
    /// Wraps `inner`; calls `observers` for each command.
    pub fn new(inner: Arc<dyn Access>, observers: Observers) -> Arc<Self> {
        Arc::new(Traced { inner, observers })
    }

    fn pass(
        &self,
        command: RawCommand,
        run: impl FnOnce(RawCommand) -> Result<Vec<u8>, CommandError>,
    ) -> Result<Vec<u8>, CommandError> {
        let passing = Passing::begin(self.inner.clock(), &self.observers, &command);
        let result = run(command);
        passing.end(result.as_deref().ok(), result.as_ref().err());
        result
    }
}

impl Sealed for Traced {}

impl Access for Traced {
    fn name(&self) -> &str {
        self.inner.name()
    }

    unsafe fn execute(&self, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        // SAFETY: by this function's contract.
        self.pass(command, |command| unsafe { self.inner.execute(command) })
    }

    unsafe fn create(&self, command: RawCommand) -> Result<(ObjectHandle, Vec<u8>), CommandError> {
        let passing = Passing::begin(self.inner.clock(), &self.observers, &command);
        // SAFETY: by this function's contract.
        let result = unsafe { self.inner.create(command) };
        passing.end(result.as_ref().ok().map(|(_, output)| output.as_slice()), result.as_ref().err());
        result
    }

    unsafe fn modify(&self, object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        // SAFETY: by this function's contract.
        self.pass(command, |command| unsafe { self.inner.modify(object, command) })
    }

    unsafe fn query(&self, object: ObjectHandle, command: RawCommand) -> Result<Vec<u8>, CommandError> {
        // SAFETY: by this function's contract.
        self.pass(command, |command| unsafe { self.inner.query(object, command) })
    }

    unsafe fn destroy(&self, object: ObjectHandle, command: RawCommand) -> Result<(), CommandError> {
        let passing = Passing::begin(self.inner.clock(), &self.observers, &command);
        // SAFETY: by this function's contract.
        let result = unsafe { self.inner.destroy(object, command) };
        // A successful output is all zero.
        passing.end(result.as_ref().ok().map(|()| &[0; 16][..]), result.as_ref().err());
        result
    }

    fn register_umem(&self, memory: Arc<DmaBuffer>, writable: bool) -> Result<UmemHandle, Error> {
        self.inner.register_umem(memory, writable)
    }

    fn destroy_umem(&self, umem: UmemHandle) -> Result<(), (UmemHandle, CommandError)> {
        self.inner.destroy_umem(umem)
    }

    fn alloc_uar(&self, wanted: UarMapping) -> Result<UarHandle, Error> {
        self.inner.alloc_uar(wanted)
    }

    fn free_uar(&self, uar: UarHandle) -> Result<(), Box<(UarHandle, CommandError)>> {
        self.inner.free_uar(uar)
    }

    fn write_uar(&self, uar: &UarHandle, offset: usize, value: u64) -> Result<(), Error> {
        self.inner.write_uar(uar, offset, value)
    }

    fn alloc_dma(self: Arc<Self>, len: usize) -> Result<DmaBuffer, Error> {
        Arc::clone(&self.inner).alloc_dma(len)
    }

    fn show(self: Arc<Self>, memory: HostMemory) -> Result<DmaBuffer, Error> {
        Arc::clone(&self.inner).show(memory)
    }

    fn eqn(&self, vector: u32) -> Result<u32, Error> {
        self.inner.eqn(vector)
    }

    fn completion_vectors(&self) -> u32 {
        self.inner.completion_vectors()
    }

    fn knows_addresses(&self) -> bool {
        self.inner.knows_addresses()
    }

    fn completion_eventfd(&self, cq: ObjectHandle, cqn: u32, vector: u32) -> Result<OwnedFd, Error> {
        self.inner.completion_eventfd(cq, cqn, vector)
    }

    fn lend_event_queue(self: Arc<Self>, vector: u32) -> Result<Box<dyn LentEvents>, Error> {
        Arc::clone(&self.inner).lend_event_queue(vector)
    }

    fn forget_completion_eventfd(&self, cqn: u32) {
        self.inner.forget_completion_eventfd(cqn);
    }

    fn async_events(&self, count: Option<OwnedFd>) -> AsyncEvents {
        self.inner.async_events(count)
    }

    fn is_wanted_back(&self) -> bool {
        self.inner.is_wanted_back()
    }

    fn death(&self) -> Option<Error> {
        self.inner.death()
    }

    fn clock(&self) -> &Clock {
        self.inner.clock()
    }

    fn clock_ticks(&self) -> Result<u64, Error> {
        self.inner.clock_ticks()
    }

    fn real_time(&self) -> Result<u64, Error> {
        self.inner.real_time()
    }

    fn null_key(&self) -> Option<u32> {
        self.inner.null_key()
    }

    fn card_memory(&self) -> &dyn CardMemory {
        self.inner.card_memory()
    }

    fn kernel_verbs(&self) -> Option<&dyn KernelVerbs> {
        self.inner.kernel_verbs()
    }

    fn kernel_steering(&self) -> Option<&dyn KernelSteering> {
        self.inner.kernel_steering()
    }
}
