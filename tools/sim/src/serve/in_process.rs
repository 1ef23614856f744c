//! In process: a [`FunctionHandle`](crate::card::FunctionHandle) is all that a client needs.
//!
//! * Registers: `config_read`, `config_write`, `bar_read`, `bar_write`, each a message to the device thread.
//! * Doorbells: map the areas of `uar_file` shared, and store. Nothing else happens on the client's side.
//! * Memory: `dma_map` with a file (memfd, huge pages), or with `/proc/self/mem` where there is none.
//! * Interrupts: `set_irqs` with eventfds.
//!
//! Software turns on bus mastering in config space, as on a bus, before the function can reach any memory.
