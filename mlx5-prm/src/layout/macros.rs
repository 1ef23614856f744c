//! The declaring macros: `layout!` and `values!`.

/// Declares layouts. See the [module](mod@crate::layout).
#[macro_export]
macro_rules! layout {
    ($(
        $(#[$meta:meta])*
        pub $kind:tt $Name:ident : $size:literal, $c_name:literal {
            $( $(#[$field_meta:meta])* $offset:literal $([$hi:literal $(: $lo:literal)?])? $field:ident : $ty:ty
                $(as $Named:ty)? $(where $choice:ident)? $(= $default:expr)?, )*
            $( .. $tail:ident : [$Tail:ty] $(where $tail_choice:ident)? $(,)? )?
        }
    )*) => { $(
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, $crate::zerocopy::FromBytes, $crate::zerocopy::IntoBytes,
                 $crate::zerocopy::Immutable, $crate::zerocopy::KnownLayout)]
        #[zerocopy(crate = "zerocopy")]
        pub struct $Name { dwords: [u32; $size / 4] }

        const _: () = {
            const LAYOUT: &str = stringify!($Name);

            /// Setters, chained.
            pub struct Writer<'a>(&'a mut $Name);

            impl Writer<'_> {
                $( $crate::layout_setter! { $offset [$($hi $(: $lo)?)?] $field $ty } )*
            }

            impl $crate::layout::Layout for $Name {
                type Writer<'a> = Writer<'a>;
                const INFO: $crate::layout::Info = $crate::layout::Info::proven(
                    ($crate::layout_kind!($kind), LAYOUT),
                    $c_name,
                    $size,
                    &[ $( $crate::layout_row!($offset [$($hi $(: $lo)?)?] $field $ty $(as $Named)?)
                        $( .chosen($Name::$choice) )? ),* ],
                    $crate::layout_tail!($size $($tail: $Tail $(, $Name::$tail_choice)?)?),
                );
            }

            impl $Name {
                /// The setters.
                #[inline(always)]
                pub fn w(&mut self) -> Writer<'_> {
                    Writer(self)
                }
            }
        };

        impl $Name {
            /// All bits zero: no default applied.
            pub const ZERO: $Name = $Name { dwords: [0; $size / 4] };

            $( $crate::layout_getter! { $(#[$field_meta])* $offset [$($hi $(: $lo)?)?] $field $ty } )*
        }

        impl Default for $Name {
            /// Zero, except for constant fields such as an opcode.
            #[inline]
            fn default() -> Self {
                #[allow(unused_mut)]
                let mut layout = Self::ZERO;
                $( $( let _ = layout.w().$field($default); )? )*
                layout
            }
        }

        impl core::fmt::Debug for $Name {
            #[inline]
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::layout::debug(&<$Name as $crate::layout::Layout>::INFO, $crate::layout::Layout::as_bytes(self), f)
            }
        }

        impl PartialEq for $Name {
            #[inline]
            fn eq(&self, other: &Self) -> bool { self.dwords == other.dwords }
        }

        impl Eq for $Name {}
    )*
        /// The layouts of this module.
        #[allow(dead_code)]
        pub(crate) const LAYOUTS: &[&$crate::layout::Info] = &[ $( &<$Name as $crate::layout::Layout>::INFO ),* ];
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_kind {
    (struct) => {
        false
    };
    (union) => {
        true
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_tail {
    ($size:literal) => {
        None
    };
    ($size:literal $tail:ident : $Tail:ty $(, $choice:path)?) => {
        Some($crate::layout::Field::of_tail::<$Tail>(stringify!($tail), $size) $( .chosen($choice) )?)
    };
}

// These are expanded for every field. `[$hi $(, $lo)?]` is `[high, low]` or `[bit]`: see `table::ends`.

#[doc(hidden)]
#[macro_export]
macro_rules! layout_row {
    ($offset:literal [] $field:ident $ty:ty) => {
        $crate::layout::Field::of_part::<$ty>(stringify!($field), $offset)
    };
    ($offset:literal [$hi:literal $(: $lo:literal)?] $field:ident $ty:ty $(as $Named:ty)?) => {
        $crate::layout::Field::of_bits::<$ty, _>(LAYOUT, stringify!($field), $offset, [$hi $(, $lo)?])
            $( .named::<$Named>(LAYOUT) )?
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_getter {
    ($(#[$meta:meta])* $offset:literal [] $field:ident $ty:ty) => {
        #[doc = concat!("From byte `", stringify!($offset), "`.\n\n")]
        $(#[$meta])*
        #[inline]
        pub fn $field(&self) -> &$ty {
            $crate::layout::part(&self.dwords, $offset)
        }
    };
    ($(#[$meta:meta])* $offset:literal [$hi:literal $(: $lo:literal)?] $field:ident $ty:ty) => {
        #[doc = concat!("`", stringify!($offset [$hi $(: $lo)?]), "`\n\n")]
        $(#[$meta])*
        #[inline(always)]
        pub fn $field(&self) -> $ty {
            $crate::layout::get(&self.dwords, $offset, [$hi $(, $lo)?])
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_setter {
    ($offset:literal [] $field:ident $ty:ty) => {
        /// Sets the part.
        #[inline]
        pub fn $field(self, value: &$ty) -> Self {
            $crate::layout::set_part(&mut self.0.dwords, $offset, value);
            self
        }
    };
    ($offset:literal [$hi:literal $(: $lo:literal)?] $field:ident $ty:ty) => {
        /// Sets the field.
        #[inline(always)]
        pub fn $field(self, value: $ty) -> Self {
            $crate::layout::set(&mut self.0.dwords, $offset, [$hi $(, $lo)?], value, (LAYOUT, stringify!($field)));
            self
        }
    };
}

/// Declares an enumeration of a field's values. Every number converts; those without a name become `Unknown`.
#[macro_export]
macro_rules! values {
    ($(
        $(#[$meta:meta])*
        pub enum $Name:ident : $bits:literal {
            $( $(#[$variant_meta:meta])* $Variant:ident = $number:literal $($prm:literal)? ),* $(,)?
        }
    )*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $Name {
            $( $(#[$variant_meta])* $Variant, )*
            /// A number without a name here.
            Unknown(u32),
        }

        impl $Name {
            /// Every named value.
            pub const ALL: &'static [$Name] = &[ $( $Name::$Variant ),* ];

            /// The number on the wire.
            #[inline]
            pub const fn number(self) -> u32 {
                match self { $( $Name::$Variant => $number, )* $Name::Unknown(number) => number }
            }

            /// The value of a number.
            #[inline]
            pub const fn from_number(number: u32) -> Self {
                match number { $( $number => $Name::$Variant, )* _ => $Name::Unknown(number) }
            }

            /// The PRM's name; `None` for an unknown number.
            pub const fn prm_name(self) -> Option<&'static str> {
                match self { $( $Name::$Variant => Some($crate::values!(@name $Variant $($prm)?)), )* $Name::Unknown(_) => None }
            }
        }

        impl $Name {
            // A function, not a closure, so that it is compiled once and not for every table that refers to it.
            fn name_of(number: u64) -> Option<&'static str> { $Name::from_number(number as u32).prm_name() }
        }

        impl $crate::layout::Value for $Name {
            const BITS: u32 = $bits;
            const READING: $crate::layout::Reading =
                $crate::layout::Reading::Named($Name::name_of);
            #[inline(always)]
            fn from_number(number: u64) -> Self { $Name::from_number(number as u32) }
            #[inline(always)]
            fn number(self) -> u64 { u64::from($Name::number(self)) }
        }

        impl core::fmt::Display for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.prm_name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "unknown({:#x})", self.number()),
                }
            }
        }
    )*
        /// The enumerations of this module.
        #[allow(dead_code)]
        pub(crate) const VALUES: &[&$crate::layout::Values] = &[ $( &$crate::layout::Values {
            name: stringify!($Name),
            bits: $bits,
            named: &[ $( ($crate::values!(@name $Variant $($prm)?), $number) ),* ],
        } ),* ];
    };
    (@name $Variant:ident) => { stringify!($Variant) };
    (@name $Variant:ident $prm:literal) => { $prm };
}
