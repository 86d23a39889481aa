//! Kills, full disks, flipped bits and many readers.

#[path = "../support/mod.rs"]
mod support;

mod disks;
mod flips;
mod kills;
mod plugin;
mod readers;
