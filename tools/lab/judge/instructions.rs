//! Functions for disassembly: one for each of uar's barriers, and one that copies a WQE to a BlueFlame register. Those
//! of the barriers return different values: otherwise the compiler would merge them.

macro_rules! probes {
    ($($barrier:ident)*) => { $(
        #[inline(never)]
        pub fn $barrier() -> &'static str {
            uar::barrier::$barrier();
            stringify!($barrier)
        }
    )* };
}
probes!(to_device order_writes before_doorbell before_wc flush_wc from_device before_reuse);

/// Rings with one WQEBB.
#[inline(never)]
pub fn blue_flame(doorbell: &mut uar::BlueFlame, control: u64, wqebb: &uar::Wqebb) {
    uar::SendDoorbell::ring_with(doorbell, control, core::slice::from_ref(wqebb));
}
