//! A folder of layouts names its files once, each with the tables it has.

use super::table::{Info, Values};

/// The tables that one file declares.
pub(crate) struct Tables {
    pub(crate) layouts: &'static [&'static Info],
    pub(crate) values: &'static [&'static Values],
}

impl Tables {
    pub(crate) const NONE: Tables = Tables { layouts: &[], values: &[] };

    pub(crate) const fn layouts(self, layouts: &'static [&'static Info]) -> Self {
        Tables { layouts, ..self }
    }

    pub(crate) const fn values(self, values: &'static [&'static Values]) -> Self {
        Tables { values, ..self }
    }

    /// Commands have a list of their own, beside the type of its entries.
    pub(crate) const fn commands<T>(self, _: &'static [T]) -> Self {
        self
    }
}

/// Declares the files of a folder, each with the tables it has, and makes public what they declare.
macro_rules! files {
    ($( $(#[$meta:meta])* $file:ident: $($table:ident)+; )*) => {
        $( $(#[$meta])* pub(crate) mod $file; pub use $file::*; )*

        /// What the files of this folder declare.
        pub(crate) const FILES: &[$crate::layout::files::Tables] =
            &[ $( $crate::layout::files::tables!($file: $($table)+) ),* ];
    };
}
pub(crate) use files;

/// The tables of one file.
macro_rules! tables {
    ($file:ident: $($table:ident)+) => {
        $crate::layout::files::Tables::NONE $( .$table($crate::layout::files::table!($file $table)) )+
    };
}
pub(crate) use tables;

/// One table of a file, by the name of its kind.
macro_rules! table {
    ($file:ident layouts) => {
        $file::LAYOUTS
    };
    ($file:ident values) => {
        $file::VALUES
    };
    ($file:ident commands) => {
        $file::COMMANDS
    };
}
pub(crate) use table;
