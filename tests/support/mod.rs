//! Code that tests share. Each binary includes all of it and uses some of it.

#![allow(dead_code, unreachable_pub)]

pub mod collectives;
pub mod compiled_elsewhere;
pub mod executable;
pub mod folder;
pub mod formula;
pub mod pjrt;
pub mod prerequisite;
pub mod program;
pub mod schemas;
pub mod scripted;
pub mod shared;
pub mod step;
pub mod survival;
pub mod xspace;
