//! Error numbers that o2iblnd tells the other end: Linux's, negative (`include/uapi/asm-generic/errno-base.h` and
//! `errno.h`).

/// Nothing matches a GET: `ENODATA`.
pub const ENODATA: i32 = -61;
/// The other end broke the protocol: `EPROTO`.
pub const EPROTO: i32 = -71;
/// Too many fragments: `EMSGSIZE`.
pub const EMSGSIZE: i32 = -90;
/// No memory: `ENOMEM`.
pub const ENOMEM: i32 = -12;
/// Nobody wants it: `ENOENT`.
pub const ENOENT: i32 = -2;
