//! What turns declarations into types: `layout!` and `values!`.

/// Declares layouts. See the [module's](mod@crate::layout) page.
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
        #[repr(C)]
        #[derive(Clone, Copy, $crate::zerocopy::FromBytes, $crate::zerocopy::IntoBytes,
                 $crate::zerocopy::Immutable, $crate::zerocopy::KnownLayout)]
        #[zerocopy(crate = "zerocopy")]
        pub struct $Name { dwords: [u32; $size / 4] }

        const _: () = {
            /// Setters, chained.
            pub struct Writer<'a>(&'a mut $Name);

            impl Writer<'_> {
                $( $crate::layout_setter! { $offset [$($hi $(: $lo)?)?] $Name $field $ty } )*
            }

            impl $crate::layout::Layout for $Name {
                type Writer<'a> = Writer<'a>;
                const INFO: $crate::layout::Info = $crate::layout::Info::proven(
                    $crate::layout_kind!($kind $Name),
                    $c_name,
                    $size,
                    &[ $( $crate::layout_row!($offset [$($hi $(: $lo)?)?] $Name $field $ty $(as $Named)?)
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
            /// Zero, but for the fields that are always the same, such as an opcode.
            #[inline]
            fn default() -> Self {
                #[allow(unused_mut)]
                let mut layout = Self::ZERO;
                $( $( let _ = layout.w().$field($default); )? )*
                layout
            }
        }

        impl $crate::layout::ArrayElement for $Name {
            const ELEMENT: $crate::layout::Element = $crate::layout::Element::Layout(&<$Name as $crate::layout::Layout>::INFO);
        }

        impl $crate::layout::Part for $Name {
            const ELEMENT: $crate::layout::Element = <$Name as $crate::layout::ArrayElement>::ELEMENT;
            const COUNT: usize = 1;
        }

        impl core::fmt::Debug for $Name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                $crate::decode::debug(&<$Name as $crate::layout::Layout>::INFO, $crate::layout::Layout::as_bytes(self), f)
            }
        }

        impl PartialEq for $Name {
            fn eq(&self, other: &Self) -> bool { self.dwords == other.dwords }
        }

        impl Eq for $Name {}
    )*
        /// What this module declares.
        #[allow(dead_code)]
        pub(crate) const LAYOUTS: &[&$crate::layout::Info] = &[ $( &<$Name as $crate::layout::Layout>::INFO ),* ];
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_kind {
    (struct $Name:ident) => {
        (false, stringify!($Name))
    };
    (union $Name:ident) => {
        (true, stringify!($Name))
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

#[doc(hidden)]
#[macro_export]
macro_rules! layout_row {
    ($offset:literal [] $Name:ident $field:ident $ty:ty) => {
        $crate::layout::Field::of_part::<$ty>(stringify!($field), $offset)
    };
    ($offset:literal [$bit:literal] $Name:ident $field:ident $ty:ty) => {
        $crate::layout_row!($offset [$bit:$bit] $Name $field $ty)
    };
    ($offset:literal [$hi:literal : $lo:literal] $Name:ident $field:ident $ty:ty) => {
        $crate::layout::Field::of_bits::<$ty>(stringify!($Name), stringify!($field), $offset, $hi, $lo)
    };
    ($offset:literal [$hi:literal : $lo:literal] $Name:ident $field:ident $ty:ty as $Named:ty) => {
        $crate::layout_row!($offset [$hi:$lo] $Name $field $ty).named::<$Named>(stringify!($Name))
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_getter {
    ($(#[$meta:meta])* $offset:literal [] $field:ident $ty:ty) => {
        #[doc = concat!("`", stringify!($field), "`, from byte `", stringify!($offset), "`.\n\n")]
        $(#[$meta])*
        #[inline]
        pub fn $field(&self) -> &$ty {
            const SIZE: usize = core::mem::size_of::<$ty>();
            let bytes = &$crate::zerocopy::IntoBytes::as_bytes(&self.dwords)[$offset..$offset + SIZE];
            match <$ty as $crate::zerocopy::FromBytes>::ref_from_bytes(bytes) {
                Ok(part) => part,
                Err(_) => unreachable!(concat!(stringify!($field), ": offset and size are checked at compile time")),
            }
        }
    };
    ($(#[$meta:meta])* $offset:literal [$bit:literal] $field:ident $ty:ty) => {
        $crate::layout_getter! { @ concat!("[", stringify!($bit), "]"), $(#[$meta])* $offset [$bit:$bit] $field $ty }
    };
    ($(#[$meta:meta])* $offset:literal [$hi:literal : $lo:literal] $field:ident $ty:ty) => {
        $crate::layout_getter! {
            @ concat!("[", stringify!($hi), ":", stringify!($lo), "]"),
            $(#[$meta])* $offset [$hi:$lo] $field $ty
        }
    };
    (@ $bits:expr, $(#[$meta:meta])* $offset:literal [$hi:literal : $lo:literal] $field:ident $ty:ty) => {
        #[doc = concat!("`", stringify!($field), "`, at `", stringify!($offset), " ", $bits, "`.\n\n")]
        $(#[$meta])*
        #[inline(always)]
        pub fn $field(&self) -> $ty {
            <$ty as $crate::layout::Value>::from_number($crate::layout::get(&self.dwords, $offset, $hi, $lo))
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! layout_setter {
    ($offset:literal [] $Name:ident $field:ident $ty:ty) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        #[inline]
        pub fn $field(self, value: &$ty) -> Self {
            const SIZE: usize = core::mem::size_of::<$ty>();
            let bytes = $crate::zerocopy::IntoBytes::as_mut_bytes(&mut self.0.dwords);
            bytes[$offset..$offset + SIZE].copy_from_slice($crate::zerocopy::IntoBytes::as_bytes(value));
            self
        }
    };
    ($offset:literal [$bit:literal] $Name:ident $field:ident $ty:ty) => {
        $crate::layout_setter! { $offset [$bit:$bit] $Name $field $ty }
    };
    ($offset:literal [$hi:literal : $lo:literal] $Name:ident $field:ident $ty:ty) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        #[inline(always)]
        pub fn $field(self, value: $ty) -> Self {
            $crate::layout::set(
                &mut self.0.dwords,
                $offset,
                ($hi, $lo),
                <$ty as $crate::layout::Value>::number(value),
                concat!(stringify!($Name), ".", stringify!($field)),
            );
            self
        }
    };
}

/// Declares a total enumeration of a field's values: every number converts, those without a name to `Unknown`.
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

            /// The value a number stands for.
            #[inline]
            pub const fn from_number(number: u32) -> Self {
                match number { $( $number => $Name::$Variant, )* _ => $Name::Unknown(number) }
            }

            /// The PRM's name; `None` for an unknown number.
            pub const fn prm_name(self) -> Option<&'static str> {
                match self { $( $Name::$Variant => Some($crate::values!(@name $Variant $($prm)?)), )* $Name::Unknown(_) => None }
            }
        }

        impl $crate::layout::Value for $Name {
            const BITS: u32 = $bits;
            const READING: $crate::layout::Reading =
                $crate::layout::Reading::Named(|number| $Name::from_number(number as u32).prm_name());
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
        /// What this module enumerates.
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
