//! The command line: arguments, progress, exit codes. The only room that prints or exits.

pub mod worker;
