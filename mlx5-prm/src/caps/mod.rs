//! HCA capability pages: the `capability` of `QUERY_HCA_CAP` and `SET_HCA_CAP`, one layout a page.

mod atomic;
mod debug;
mod device_mem;
mod ethernet;
mod general;
mod odp;
mod qos;
mod roce;

pub use atomic::*;
pub use debug::*;
pub use device_mem::*;
pub use ethernet::*;
pub use general::*;
pub use odp::*;
pub use qos::*;
pub use roce::*;
