//! Registers: the `register_data` of [`AccessRegisterIn`](crate::cmd::AccessRegisterIn), one layout a register.

use crate::registry::files;

files! {
    host: layouts;
    port: layouts;
}

values! {
    /// `register_id` of `ACCESS_REGISTER`.
    pub enum RegisterId: 16 {
        /// Port MTU.
        Pmtu = 0x5003 "PMTU",
        /// Port type and speed.
        Ptys = 0x5004 "PTYS",
        /// Port administrative and operational status.
        Paos = 0x5006 "PAOS",
        /// Name of the node.
        NodeDesc = 0x6001 "NODE_DESC",
        /// Host endianness.
        HostEndianness = 0x7004 "HOST_ENDIANNESS",
    }
}
