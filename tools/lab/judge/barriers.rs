//! A function for each of uar's barriers, to look at the instructions it is made of. Each returns something of its own:
//! the compiler makes one function of two that are the same.

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
