//! How structures and numbers of the wire are declared, so that their judge can list them.

/// A structure of the wire, for its judge.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// The structure's name in C, without `struct`.
    pub c_name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Its fields.
    pub members: &'static [Member],
}

/// A field of a structure.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// Its name here. One that starts with `reserved` may stand for several in C, from the first on.
    pub name: &'static str,
    /// Its name in C.
    pub c_name: &'static str,
    /// Its offset in bytes.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// Declares structures whose fields lie as those of a C structure, by name, and lists them.
macro_rules! wire {
    ($(
        $(#[$doc:meta])*
        $name:ident = $c_name:literal {
            $( $(#[$field_doc:meta])* $field:ident: $type:ty = $member:literal, )*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(
                Debug, Clone, Copy, PartialEq, Eq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
                zerocopy::KnownLayout, zerocopy::Unaligned,
            )]
            #[repr(C)]
            pub struct $name { $( $(#[$field_doc])* pub $field: $type, )* }

            impl Default for $name {
                fn default() -> Self {
                    zerocopy::FromZeros::new_zeroed()
                }
            }

            impl $name {
                /// Where its fields lie.
                pub const LAYOUT: $crate::wire::declare::Layout = $crate::wire::declare::Layout {
                    c_name: $c_name,
                    size: size_of::<$name>(),
                    members: &[$( $crate::wire::declare::Member {
                        name: stringify!($field),
                        c_name: $member,
                        offset: std::mem::offset_of!($name, $field),
                        size: size_of::<$type>(),
                    }, )*],
                };
            }
        )*
    };
}
pub(super) use wire;

/// Declares constants of one type in a module, with their names in C.
macro_rules! constants {
    ($(
        $(#[$doc:meta])*
        $vis:vis mod $name:ident: $type:ty {
            $( $(#[$value_doc:meta])* $constant:ident = $value:expr, $c_name:literal; )*
        }
    )*) => {
        $(
            $(#[$doc])*
            $vis mod $name {
                $( $(#[$value_doc])* pub const $constant: $type = $value; )*
            }
        )*

        /// The constants with their names in the kernel's headers.
        pub(crate) const CONSTANTS: &[(&str, u64)] = &[$($( ($c_name, $name::$constant as u64), )*)*];
    };
}
pub(super) use constants;
