//! Code that must not allocate, including constraints. A counting allocator checks it, so this is a separate program.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cache;
mod constraint;

#[path = "../support/counting_allocator.rs"]
mod counting_allocator;

use counting_allocator::allocations;
