//! Look-ups from C and C++. `include/autotune_lowered.h` describes the functions, docs/capi.md shows how to use them.
//!
//! | module | its one job |
//! | --- | --- |
//! | `abi` | the functions that are exported: arguments in, a status and a line of text out |
//! | `layout` | the structs and numbers of the header |
//! | `pointers` | the only place that reads and writes through the caller's pointers |
//! | `cache` | an open cache that many threads query and refresh |
//! | `hit`, `device` | the content of handles |
//! | `fault` | statuses, and a line that says what failed |

mod abi;
mod cache;
mod device;
mod fault;
mod hit;
mod layout;
mod pointers;
#[cfg(test)]
mod tests;
