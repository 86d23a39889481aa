//! The command line: arguments, progress, exit codes.

pub mod worker;
