//! Where the time goes: the only room in which [`crate::hlo`] and [`crate::profile`] meet.

pub mod mosaic;
pub mod trace;
