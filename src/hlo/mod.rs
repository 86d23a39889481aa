//! Bytes of a module, in any form that users have, to the labels in it: which, how often, where, on what evidence.

mod found;

pub use found::{CallSite, Diagnosis, FoundLabel, ModuleForm, Scan};
