//! What allocates nothing, and constraints, which must not either. A counting allocator sees it, so that this is a program of
//! its own.

#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cache;
mod constraint;

#[path = "../support/counting_allocator.rs"]
mod counting_allocator;

use counting_allocator::allocations;
