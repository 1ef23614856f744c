//! In process: the [`FunctionHandle`](crate::card::FunctionHandle) itself.
