//! Clients in the same process: [`FunctionHandle`](crate::card::FunctionHandle) is all that they need.
//!
//! * Registers: `config_read`, `config_write`, `bar_read`, `bar_write`; each is a message to the device thread.
//! * Doorbells: map the areas of `uar_file` shared, and store.
//! * Memory: `dma_map` with a file (memfd, huge pages), or with `/proc/self/mem` for other memory.
//! * Interrupts: `set_irqs` with eventfds.
//!
//! Software must enable bus mastering in config space before the function can access memory.
