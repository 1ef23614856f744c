//! Declares the files of a folder, each with its tables.

use super::table::{Info, Values};

/// The tables of one file.
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

    /// Accepts a table of commands, which [`cmd`](crate::cmd) collects by itself.
    pub(crate) const fn commands<T>(self, _: &'static [T]) -> Self {
        self
    }
}

/// Declares the files of a folder, each with its tables, and re-exports their items.
macro_rules! files {
    ($( $(#[$meta:meta])* $file:ident: $($table:ident)+; )*) => {
        $( $(#[$meta])* pub(crate) mod $file; pub use $file::*; )*

        /// The tables of the files in this folder.
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
